"""Element types of results: NumPy 2's promotion, with weak Python numbers.

A Python number, an entry of ``x.shape`` and what is computed from these alone is *weak*: it takes the type of what it
meets, as long as that is of its kind or a greater one (bool < int < float).
"""
from __future__ import annotations

from functools import cache
from typing import Any, Sequence

import numpy as np

from parray import builder
from parray.errors import TypeMismatch
from parray.ir import Atom, Const
from parray.types import ScalarType, bool_, f16, f32, f64, i64, scalar_type

_RANK = {"b": 0, "i": 1, "u": 1, "f": 2}


@cache
def _result_type(a: ScalarType, b: ScalarType) -> ScalarType:
    return scalar_type(np.result_type(a.dtype, b.dtype))


@cache
def _common(strong: tuple[ScalarType, ...], weak: tuple[ScalarType, ...]) -> ScalarType:
    result: ScalarType | None = None
    for t in strong:
        result = t if result is None else _result_type(result, t)
    widest: ScalarType | None = None
    for t in weak:
        if widest is None or _RANK[t.kind] > _RANK[widest.kind]:
            widest = t
    if result is None:
        assert widest is not None
        return widest
    if widest is not None and _RANK[widest.kind] > _RANK[result.kind]:
        return _result_type(result, widest)
    return result


def python_type(value: Any) -> ScalarType:
    """The type a Python number has on its own."""
    return bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f64


def common_type(elems: Sequence[ScalarType], weak: Sequence[bool]) -> ScalarType:
    """The type in which operands of these types meet."""
    return _common(tuple(t for t, w in zip(elems, weak) if not w), tuple(t for t, w in zip(elems, weak) if w))


def float_type(t: ScalarType) -> ScalarType:
    """The type in which NumPy computes a floating-point function of an operand of type ``t``."""
    if t.is_float:
        return t
    return {8: f16, 16: f32}.get(t.bits, f64)


def is_python_number(value: Any) -> bool:
    """A Python bool, int or float that is not a NumPy scalar (``np.float64`` is a float, too)."""
    return type(value) in (int, float, bool)


def constant(value: Any, elem: ScalarType) -> Const:
    """A Python number as a constant; raises TypeMismatch where NumPy raises OverflowError."""
    if isinstance(value, int) and elem.is_integer and not fits(value, elem):
        raise TypeMismatch(f"the integer {value} is out of bounds for {elem}", builder.here())
    if isinstance(value, float) and elem.is_integer:
        return Const(_truncate(value, elem), elem)
    with np.errstate(all="ignore"):
        return Const(bool(value) if elem.is_bool else value, elem)


def _truncate(value: float, elem: ScalarType) -> Any:
    from parray.prims import convert
    return convert(np.float64(value), elem)


def fits(value: int, elem: ScalarType) -> bool:
    """Whether an integer type holds this integer."""
    info = np.iinfo(elem.dtype)
    return int(info.min) <= value <= int(info.max)


def can_coerce(a: ScalarType, b: ScalarType) -> bool:
    """Whether a neutral element or a weak value of type ``a`` may become one of type ``b``: same kind or greater."""
    return _RANK[a.kind] <= _RANK[b.kind]


def convert(x: Atom, to: ScalarType) -> Atom:
    """A scalar or array converted elementwise."""
    if x.type.elem == to:
        return x
    if isinstance(x, Const):
        with np.errstate(all="ignore"):
            return builder.convert(x, to)
    return builder.elementwise(lambda e: builder.convert(e, to), x)
