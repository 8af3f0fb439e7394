"""Derived functions, written in the language itself: they inherit derivatives, fusion and every backend.

All work elementwise on arrays; those of whole arrays (softmax, logsumexp ...) on one axis or all.
"""
from __future__ import annotations

import math
from typing import Any

from parray import tree
from parray.trace import reductions
from parray.trace.elementwise import apply, lift, where
from parray.trace.numpy_names import broadcast_to, expand_dims
from parray.trace.reductions import cumulative
from parray.trace.views import iota, replicate
from parray.types import f64, scalar_type

pi, e, inf, nan = math.pi, math.e, math.inf, math.nan


# --- scalars ---------------------------------------------------------------------------------------------------------

def square(x: Any) -> Any:
    """``x * x``."""
    return apply("mul", x, x)


def reciprocal(x: Any) -> Any:
    """``1 / x``."""
    return apply("div", 1, x)


def relu(x: Any) -> Any:
    """``max(x, 0)``; its derivative at 0 is 0."""
    return tree.map(lambda v: where(apply("gt", v, 0), v, 0), x)


def sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``, without overflow: by way of tanh."""
    return apply("add", apply("mul", apply("tanh", apply("mul", x, 0.5)), 0.5), 0.5)


def softplus(x: Any) -> Any:
    """``log(1 + exp(x))``, without overflow.

    ``max(x, 0) + log1p(exp(-max(x, -x)))``: at 0 both maxima pass the derivative to their first operand, which adds up
    to the right one, 1 - 1/2.
    """
    size = apply("max", x, apply("neg", x))
    return apply("add", apply("max", x, 0), apply("log1p", apply("exp", apply("neg", size))))


def silu(x: Any) -> Any:
    """``x * sigmoid(x)``."""
    return apply("mul", x, sigmoid(x))


def gelu(x: Any) -> Any:
    """``x`` times the normal distribution's value at ``x``."""
    normal = apply("add", apply("erf", apply("mul", x, math.sqrt(0.5))), 1)
    return apply("mul", apply("mul", x, 0.5), normal)


def clip(x: Any, low: Any, high: Any) -> Any:
    """``min(max(x, low), high)``."""
    return apply("min", apply("max", x, low), high)


# --- arrays ----------------------------------------------------------------------------------------------------------

def _keep(x: Any, axis: Any, f: Any) -> Any:
    return f(x, axis=axis, keepdims=lift(x).ndim > 0)


def softmax(x: Any, axis: Any = -1) -> Any:
    """Positive numbers that sum to 1 along an axis; shifted by the maximum, so nothing overflows."""
    top = _stop(_keep(x, axis, reductions.max))
    powers = apply("exp", apply("sub", x, top))
    return apply("div", powers, _keep(powers, axis, reductions.sum))


def log_softmax(x: Any, axis: Any = -1) -> Any:
    """``log(softmax(x))``, without underflow."""
    shifted = apply("sub", x, _stop(_keep(x, axis, reductions.max)))
    return apply("sub", shifted, apply("log", _keep(apply("exp", shifted), axis, reductions.sum)))


def logsumexp(x: Any, axis: Any = None) -> Any:
    """``log(sum(exp(x)))``, without overflow."""
    top = _keep(x, axis, reductions.max)
    finite = _stop(where(apply("isfinite", top), top, 0))
    total = _keep(apply("exp", apply("sub", x, finite)), axis, reductions.sum)
    out = apply("add", apply("log", total), finite)
    return reductions.sum(out, axis=axis)


def _stop(x: Any) -> Any:
    from parray.api.differentiate import stop_gradient
    return stop_gradient(x)


def cumsum(x: Any, axis: Any = None) -> Any:
    """Running sums along an axis; without one, of all elements in order."""
    return cumulative("add", x, axis)


def cumprod(x: Any, axis: Any = None) -> Any:
    """Running products along an axis; without one, of all elements in order."""
    return cumulative("mul", x, axis)


def outer(x: Any, y: Any) -> Any:
    """All products ``x[i] * y[j]`` of two vectors."""
    return apply("mul", expand_dims(x, 1), y)


def full(shape: Any, value: Any, dtype: Any = None) -> Any:
    """An array full of one value."""
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    x = lift(value, "pa.full")
    out: Any = x.astype(x.dtype if dtype is None else scalar_type(dtype))
    for n in reversed(sizes):
        out = replicate(n, out)
    return out


def zeros(shape: Any, dtype: Any = f64) -> Any:
    """An array of zeros."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = f64) -> Any:
    """An array of ones."""
    return full(shape, 1, dtype)


def zeros_like(x: Any) -> Any:
    """Zeros in the types and shapes of ``x``, which may be a structure."""
    return tree.map(lambda v: full(lift(v).shape, 0, lift(v).dtype), x)


def ones_like(x: Any) -> Any:
    """Ones in the types and shapes of ``x``, which may be a structure."""
    return tree.map(lambda v: full(lift(v).shape, 1, lift(v).dtype), x)


def eye(n: Any, dtype: Any = f64) -> Any:
    """The identity matrix."""
    i = iota(n)
    return apply("eq", expand_dims(i, 1), i).astype(dtype)


def one_hot(index: Any, n: Any, dtype: Any = f64) -> Any:
    """Vectors of size ``n`` that are 1 at an index and else 0; all 0 for an index outside."""
    x = lift(index, "pa.one_hot")
    return apply("eq", expand_dims(x, x.ndim), iota(n)).astype(dtype)


__all__ = ["broadcast_to", "clip", "cumprod", "cumsum", "e", "expand_dims", "eye", "full", "gelu", "inf",
           "log_softmax", "logsumexp", "nan", "one_hot", "ones", "ones_like", "outer", "pi", "reciprocal", "relu",
           "sigmoid", "silu", "softmax", "softplus", "square", "zeros", "zeros_like"]
