"""Random initial weights (`parray.nn`); filters and matrices are [out, in, ..]."""
from __future__ import annotations

from typing import Any

import numpy as np

import parray as pa
from parray import f32
from parray.trace import context


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of one unit."""
    size = 1
    for n in shape[2:]:
        size *= n
    return shape[1] * size, shape[0] * size


@pa.parallel
def _numbers(key: Any, n: Any) -> Any:
    """Normal and uniform numbers of any count: one program for every shape."""
    return pa.random.normal(key, (n,)), pa.random.uniform(key, (n,))


def _draw(kind: int, key: Any, shape: tuple[int, ...], scale: float, shift: float, dtype: Any) -> Any:
    """Numbers of a kind, scaled and shifted; an array of NumPy's outside a trace."""
    if context.active():
        make = pa.random.uniform if kind else pa.random.normal
        return make(key, shape, dtype) * scale + shift
    values = _numbers(key, int(np.prod(shape)))[kind].reshape(shape)
    return (values * scale + shift).astype(dtype.dtype)


def gauss(key: Any, shape: tuple[int, ...], std: float = 1.0, dtype: Any = f32) -> Any:
    """Normal numbers of deviation ``std``."""
    return _draw(0, key, shape, std, 0.0, dtype)


def kaiming(key: Any, shape: tuple[int, ...], dtype: Any = f32) -> Any:
    """Normal, of variance 2 / inputs: for layers with a ReLU after them (He et al., 2015)."""
    return gauss(key, shape, (2 / _fans(shape)[0]) ** 0.5, dtype)


def xavier(key: Any, shape: tuple[int, ...], dtype: Any = f32) -> Any:
    """Uniform within sqrt(6 / (inputs + outputs)) (Glorot and Bengio, 2010)."""
    bound = (6 / sum(_fans(shape))) ** 0.5
    return _draw(1, key, shape, 2 * bound, -bound, dtype)
