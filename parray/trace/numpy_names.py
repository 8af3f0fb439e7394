"""NumPy's own names on tracers: ufuncs by ``__array_ufunc__``, a short list of functions by ``__array_function__``."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from parray import builder
from parray.errors import TraceError
from parray.trace import reductions as r
from parray.trace import views
from parray.trace.elementwise import apply, astype, lift, logical, where
from parray.trace.promote import float_type
from parray.trace.tracer import Tracer
from parray.types import scalar_type, u8

UFUNCS: dict[str, str] = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floordiv", "remainder": "mod", "mod": "mod", "fmod": "fmod", "power": "pow", "float_power": "pow",
    "negative": "neg", "absolute": "abs", "fabs": "abs", "sign": "sign", "maximum": "max", "minimum": "min",
    "sqrt": "sqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
    "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "arctan2": "atan2", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "hypot": "hypot", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "rint": "round", "copysign": "copysign", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite",
    "invert": "not", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "shl",
    "right_shift": "shr"}
_LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}
_FLOAT = ("float_power", "fabs", "rint")
_OTHERS: dict[str, Callable[..., Any]] = {
    "square": lambda x: apply("mul", x, x), "reciprocal": lambda x: apply("div", 1, x), "positive": lambda x: x,
    "matmul": r.matmul, "deg2rad": lambda x: apply("mul", x, np.pi / 180),
    "rad2deg": lambda x: apply("mul", x, 180 / np.pi), "radians": lambda x: apply("mul", x, np.pi / 180),
    "degrees": lambda x: apply("mul", x, 180 / np.pi), "signbit": lambda x: apply("lt", apply("copysign", 1.0, x), 0),
    "heaviside": lambda x, h: where(apply("lt", x, 0), 0.0, where(apply("gt", x, 0), 1.0, where(
        apply("eq", x, 0), h, x))),
    "divmod": lambda x, y: (apply("floordiv", x, y), apply("mod", x, y)),
    "fmax": lambda x, y: _ignoring_nan("max", x, y), "fmin": lambda x, y: _ignoring_nan("min", x, y),
    "logaddexp": lambda x, y: _log_sum(x, y), "bitwise_count": lambda x: astype(apply("popcount", apply("abs", x)), u8)}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": r.sum, "multiply": r.prod, "maximum": r.max, "minimum": r.min, "logical_and": r.all, "logical_or": r.any}


def _ignoring_nan(name: str, x: Any, y: Any) -> Any:
    """The extreme of two numbers, or the other one where one is NaN."""
    return where(apply("ne", x, x), y, where(apply("ne", y, y), x, apply(name, x, y)))


def _log_sum(x: Any, y: Any) -> Any:
    """``log(exp(x) + exp(y))``; equal infinities included."""
    top, low = apply("max", x, y), apply("min", x, y)
    gap = where(apply("eq", top, low), 0.0, apply("sub", low, top))
    return apply("add", top, apply("log1p", apply("exp", gap)))


def call_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What ``ufunc(*inputs)`` means when an input is a tracer."""
    name = ufunc.__name__
    if method == "reduce" and name in _REDUCTIONS and set(kwargs) <= {"axis", "keepdims"}:
        return _REDUCTIONS[name](inputs[0], axis=kwargs.get("axis", 0), keepdims=kwargs.get("keepdims", False))
    if method != "__call__" or kwargs:
        extra = "." + method if method != "__call__" else "".join(f", {k}=..." for k in kwargs)
        raise TraceError(f"np.{name}{extra} is not available on traced values", builder.here())
    if name in _LOGICAL:
        return logical(_LOGICAL[name], *inputs)
    if name in _OTHERS:
        return _OTHERS[name](*inputs)
    if name not in UFUNCS:
        raise TraceError(f"np.{name} is not available on traced values", builder.here())
    if name in _FLOAT:
        inputs = [astype(x, float_type(lift(x).dtype)) if not lift(x).dtype.is_float else x for x in inputs]
    return apply(UFUNCS[name], *inputs)


# --- functions -------------------------------------------------------------------------------------------------------

def _axis(axis: Any, rank: int, what: str) -> int:
    """The one axis that a function works along."""
    if axis is None or isinstance(axis, tuple):
        raise TraceError(f"{what} takes one axis on traced values, not {axis!r}", builder.here())
    return r.axes_of(axis, rank, what)[0]


def _flat(x: Any, what: str) -> Tracer:
    """All elements in order."""
    a = lift(x, what)
    return a if a.ndim == 1 else a.flatten()


def _concatenate(arrays: Sequence[Any], axis: Any = 0) -> Any:
    what = "np.concatenate"
    parts = [lift(a, what) if axis is not None else _flat(a, what) for a in arrays]
    return Tracer(views.concat_atoms(parts, _axis(axis or 0, parts[0].ndim, what)))


def _stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    parts = [lift(a, "np.stack") for a in arrays]
    k = _axis(axis, parts[0].ndim + 1, "np.stack")
    return _concatenate([expand_dims(p, k) for p in parts], k)


def expand_dims(x: Any, axis: int) -> Any:
    """``x`` with a dimension of size 1 put in at ``axis``."""
    a = lift(x, "np.expand_dims")
    k = _axis(axis, a.ndim + 1, "np.expand_dims")
    return Tracer(views.reshape_atom(a.atom, (*a.type.shape[:k], 1, *a.type.shape[k:])))


def squeeze(x: Any, axis: Any = None) -> Any:
    """``x`` without its dimensions of static size 1, or without those named."""
    a = lift(x, "np.squeeze")
    ones = [d for d, n in enumerate(a.type.shape) if n == 1 and isinstance(n, int)]
    axes = ones if axis is None else r.axes_of(axis, a.ndim, "np.squeeze")
    if not set(axes) <= set(ones):
        raise TraceError("only dimensions of static size 1 can be squeezed", builder.here())
    return Tracer(views.reshape_atom(a.atom, tuple(n for d, n in enumerate(a.type.shape) if d not in axes)))


def swapaxes(x: Any, a: int, b: int) -> Any:
    """``x`` with two dimensions exchanged."""
    value = lift(x, "np.swapaxes")
    a, b = (_axis(k, value.ndim, "np.swapaxes") for k in (a, b))
    perm = list(range(value.ndim))
    perm[a], perm[b] = b, a
    return Tracer(views.permute(value.atom, perm))


def moveaxis(x: Any, source: int, destination: int) -> Any:
    """``x`` with one dimension moved to another place."""
    value = lift(x, "np.moveaxis")
    a, b = (_axis(k, value.ndim, "np.moveaxis") for k in (source, destination))
    perm = [d for d in range(value.ndim) if d != a]
    perm.insert(b, a)
    return Tracer(views.permute(value.atom, perm))


def _full_like(x: Any, value: Any, dtype: Any = None) -> Any:
    a = lift(x)
    elem = a.dtype if dtype is None else scalar_type(dtype)
    return Tracer(builder.full(type(a.type)(elem, a.type.shape), value))


def broadcast_to(x: Any, shape: Any) -> Any:
    """``x`` repeated to a shape."""
    from parray.trace.elementwise import broadcast_shapes
    from parray.trace.elementwise import broadcast_to as repeat
    a = lift(x, "np.broadcast_to").atom
    sizes = tuple(views.as_size(n, "np.broadcast_to") for n in (shape if isinstance(shape, tuple) else (shape,)))
    if broadcast_shapes([a.type.shape, sizes], "np.broadcast_to") and len(sizes) < a.type.rank:
        raise TraceError("np.broadcast_to cannot take dimensions away", builder.here())
    return Tracer(repeat(a, sizes))


def _max(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return r.max(x, axis=axis, keepdims=keepdims)


def _min(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return r.min(x, axis=axis, keepdims=keepdims)


def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else apply("max", x, low)
    return x if high is None else apply("min", x, high)


def _flip(x: Any, axis: Any = None) -> Any:
    a = lift(x, "np.flip").atom
    for k in r.axes_of(axis, a.type.rank, "np.flip"):
        a = views.slice_at(a, k, builder.size_sub(a.type.shape[k], 1), a.type.shape[k], -1)
    return Tracer(a)


def _roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """Rotated along an axis; without one, as all elements in order."""
    a = lift(x, "np.roll")
    if axis is None:
        return views.reshape(views.rotate(_flat(a, "np.roll"), -shift), a.shape)
    k = _axis(axis, a.ndim, "np.roll")
    return moveaxis(views.rotate(moveaxis(a, k, 0), -shift), 0, k)


def _outer(x: Any, y: Any) -> Any:
    a, b = (_flat(v, "np.outer") for v in (x, y))
    return apply("mul", expand_dims(a, 1), b)


def _inner(x: Any, y: Any) -> Any:
    """Sums of products over the last axis of both."""
    b = lift(y, "np.inner")
    return r.dot(x, b if b.ndim < 2 else swapaxes(b, -1, -2))


def _irregular(name: str, *args: Any) -> Any:
    from parray.trace import irregular
    return getattr(irregular, name)(*args)


def _einsum(spec: str, *xs: Any) -> Any:
    from parray.trace.einsum import contract
    return contract(spec, *xs)


def _along(x: Any, axis: Any, name: str) -> Any:
    """``sort`` or ``argsort`` along an axis, or of all elements."""
    if axis is None:
        return _along(_flat(x, f"np.{name}"), 0, name)
    a = lift(x, f"np.{name}")
    k = _axis(axis, a.ndim, f"np.{name}")
    moved = moveaxis(a, k, a.ndim - 1)
    out = r._below(moved.atom, a.ndim - 1, lambda row: _irregular(name, Tracer(row)).atom)
    return moveaxis(Tracer(out), a.ndim - 1, k)


def _diff(x: Any, n: int = 1, axis: int = -1) -> Any:
    a = lift(x, "np.diff")
    k = _axis(axis, a.ndim, "np.diff")
    for _ in range(n):
        before: list[Any] = [slice(None)] * a.ndim
        after = list(before)
        before[k], after[k] = slice(None, -1), slice(1, None)
        a = apply("sub", a[tuple(after)], a[tuple(before)])
    return a


def _sinc(x: Any) -> Any:
    t = apply("mul", x, np.pi)
    return where(apply("eq", t, 0), 1.0, apply("div", apply("sin", t), where(apply("eq", t, 0), 1.0, t)))


_NUMPY: dict[str, Callable[..., Any]] = {
    "sum": r.sum, "prod": r.prod, "mean": r.mean, "var": r.var, "std": r.std, "any": r.any, "all": r.all,
    "argmax": r.argmax, "argmin": r.argmin,
    "max": _max, "min": _min, "amax": _max, "amin": _min, "dot": r.dot, "matmul": r.matmul,
    "vdot": lambda x, y: r.dot(_flat(x, "np.vdot"), _flat(y, "np.vdot")), "inner": _inner, "outer": _outer,
    "where": where, "transpose": views.transpose,
    "reshape": views.reshape, "concatenate": _concatenate, "stack": _stack, "expand_dims": expand_dims,
    "squeeze": squeeze, "swapaxes": swapaxes, "moveaxis": moveaxis, "broadcast_to": broadcast_to, "clip": _clip,
    "flip": _flip, "ravel": lambda x: _flat(x, "np.ravel"), "shape": lambda x: lift(x).shape,
    "ndim": lambda x: lift(x).ndim, "size": lambda x: lift(x).size, "round": lambda x: apply("round", x),
    "cumsum": lambda x, axis=None: r.cumulative("add", x, axis),
    "cumprod": lambda x, axis=None: r.cumulative("mul", x, axis),
    "zeros_like": lambda x, dtype=None: _full_like(x, 0, dtype),
    "ones_like": lambda x, dtype=None: _full_like(x, 1, dtype),
    "full_like": _full_like,
    "sort": lambda x, axis=-1: _along(x, axis, "sort"), "argsort": lambda x, axis=-1: _along(x, axis, "argsort"),
    "unique": lambda x: _irregular("unique", _flat(x, "np.unique")),
    "einsum": lambda spec, *xs: _einsum(spec, *xs),
    "searchsorted": lambda x, v, side="left": _irregular("searchsorted", x, v, side),
    "diff": _diff, "sinc": _sinc, "copy": lambda x: x, "roll": _roll, "astype": astype}


_INSTEAD = {"vstack": "np.concatenate(xs, axis=0)", "hstack": "np.concatenate(xs, axis=-1)", "tile": "pa.replicate",
            "repeat": "pa.replicate, pa.replicated_iota or pa.expand", "median": "pa.sort(xs)[n // 2]",
            "nanmax": "pa.max(pa.where(np.isnan(x), -pa.inf, x))", "nansum": "pa.sum(pa.where(np.isnan(x), 0, x))",
            "nanmin": "pa.min(pa.where(np.isnan(x), pa.inf, x))", "norm": "pa.sqrt(pa.sum(x * x))",
            "nonzero": "pa.filter or x[mask]", "bincount": "pa.histogram(i, n)", "histogram": "pa.histogram(i, n)",
            "append": "pa.concat(xs, ys)", "split": "pa.split", "array_split": "pa.split", "triu": "a mask: i <= j",
            "tril": "a mask: i >= j", "apply_along_axis": "pa.map(f, xs)", "cross": "its formula"}


def call_function(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a NumPy function means when an argument is a tracer."""
    name = str(function.__name__)
    meaning = _NUMPY.get(name)
    if meaning is None or getattr(np, name, None) is not function:
        module = str(getattr(function, "__module__", "numpy")).replace("numpy", "np", 1)
        hint = f": use {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise TraceError(f"{module}.{name} is not available on traced values{hint}", builder.here())
    try:
        return meaning(*args, **kwargs)
    except TypeError as e:
        if type(e) is TypeError and "argument" in str(e):
            raise TraceError(f"np.{name} on traced values: {e}", builder.here()) from None
        raise
