"""The Python array API's names for traced values: what ``x.__array_namespace__()`` gives.

    def softmax(x, xp):                          # knows neither NumPy nor parray
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

Creation functions, data types and what the standard calls otherwise than NumPy stand here; all other names are NumPy's
functions, which work on traced values by NumPy's own protocols as far as parray has what they mean.  See
https://data-apis.org/array-api.
"""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from parray import builder, prelude
from parray.errors import TraceError
from parray.prelude import e, expand_dims, inf, nan, pi
from parray.trace import reductions, views
from parray.trace.combinators import gather
from parray.trace.elementwise import apply, lift
from parray.trace.numpy_names import moveaxis
from parray.types import bool_, f32, f64, i8, i16, i32, i64, scalar_type, u8, u16, u32, u64

__array_api_version__ = "2024.12"
newaxis = None
bool = bool_
int8, int16, int32, int64, uint8, uint16, uint32, uint64 = i8, i16, i32, i64, u8, u16, u32, u64
float32, float64 = f32, f64


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
    """An array, number, or nested list of traced numbers as a traced value."""
    x = np.stack([asarray(v) for v in obj]) if isinstance(obj, (list, tuple)) else lift(obj, "asarray")
    return x if dtype is None else x.astype(dtype)


def zeros(shape: Any, *, dtype: Any = f64, device: Any = None) -> Any:
    """An array of zeros."""
    return prelude.zeros(shape, f64 if dtype is None else dtype)


def ones(shape: Any, *, dtype: Any = f64, device: Any = None) -> Any:
    """An array of ones."""
    return prelude.ones(shape, f64 if dtype is None else dtype)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array full of one value."""
    return prelude.full(shape, fill_value, dtype)


empty = zeros


def eye(n_rows: Any, n_cols: Any = None, *, k: int = 0, dtype: Any = f64, device: Any = None) -> Any:
    """Ones on the ``k``-th diagonal."""
    rows, columns = views.iota(n_rows), views.iota(n_rows if n_cols is None else n_cols)
    return apply("eq", apply("add", expand_dims(rows, 1), k), columns).astype(f64 if dtype is None else dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    """``start, start + step, ..`` below ``stop``, for integers."""
    start, stop = (0, start) if stop is None else (start, stop)
    n = -(-(stop - start) // step)
    made = apply("add", apply("mul", views.iota(reductions.max(n, 0)), step), start)
    return made if dtype is None else made.astype(dtype)


def linspace(start: Any, stop: Any, num: Any, *, dtype: Any = f64, device: Any = None, endpoint: Any = True) -> Any:
    """``num`` numbers from ``start`` to ``stop``, equally far apart."""
    steps = reductions.max(num - 1 if endpoint else num, 1)
    made = apply("add", apply("mul", views.iota(num, f64), apply("div", stop - start, steps)), start)
    return made.astype(f64 if dtype is None else dtype)


def take(x: Any, indices: Any, *, axis: Any = None) -> Any:
    """Elements by number along an axis."""
    axis = 0 if axis is None else axis
    return moveaxis(gather(moveaxis(x, axis, 0), indices), 0, axis) if axis else gather(x, indices)


def matrix_transpose(x: Any) -> Any:
    """The last two axes exchanged."""
    return moveaxis(x, -1, -2)


def cumulative_sum(x: Any, *, axis: Any = None) -> Any:
    """Running sums along an axis."""
    return reductions.cumulative("add", x, axis if axis is not None else 0)


def cumulative_prod(x: Any, *, axis: Any = None) -> Any:
    """Running products along an axis."""
    return reductions.cumulative("mul", x, axis if axis is not None else 0)


def vecdot(x: Any, y: Any, *, axis: int = -1) -> Any:
    """Sums of products along an axis."""
    return reductions.sum(apply("mul", x, y), axis=axis)


def finfo(type: Any, /) -> Any:
    """The limits of a float type (or of a value's)."""
    return np.finfo(scalar_type(getattr(type, "dtype", type)).dtype)


def iinfo(type: Any, /) -> Any:
    """The limits of an integer type (or of a value's)."""
    return np.iinfo(scalar_type(getattr(type, "dtype", type)).dtype)


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not hasattr(np, name):
        raise AttributeError(f"the array API of traced values has no {name!r}")
    return getattr(np, name)


def meshgrid(*arrays: Any, indexing: str = "xy") -> Sequence[Any]:
    """Not available: broadcasting does what it is for."""
    raise TraceError("meshgrid is not available on traced values: x[:, None] and y broadcast", builder.here())


__all__ = ["arange", "asarray", "bool", "cumulative_prod", "cumulative_sum", "e", "empty", "eye", "finfo", "float32",
           "float64", "full", "iinfo", "inf", "int16", "int32", "int64", "int8", "linspace", "matrix_transpose",
           "meshgrid", "nan", "newaxis", "ones", "pi", "take", "uint16", "uint32", "uint64", "uint8", "vecdot", "zeros"]
