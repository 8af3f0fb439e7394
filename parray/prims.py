"""THE table of scalar primitives: one row a primitive.

A row says everything scalar about it: its operands' and result's types, its meaning as a NumPy function, its partial
derivatives, and properties rules ask about.  How it is written in generated source stands with the generator
(`parray.backends.source`).

Partial derivatives are functions ``(m, out, *operands) -> one factor per operand`` on objects with arithmetic
operators; ``m`` calls primitives (``m.exp(x)``).  ``None`` means no dependence.  Conventions at points without a
derivative (the whole table of them): abs and sign give 0 at 0; max and min give the whole cotangent to the first
operand at a tie; sqrt at 0 gives +inf; ``x ** y`` gives (0, 0) at (0, 0) and no NaN for x = 0, nor for y where
x <= 0; floor, ceil, round, comparisons, integer bit operations give 0.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from parray.types import ScalarType, bool_

Derivative = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class PrimRow:
    """``operands``: 'any', 'num', 'float', 'int', 'logic' (bool or integer); ``result``: 'same' or 'bool'."""
    name: str
    arity: int
    operands: str
    result: str
    fn: Callable[..., Any]
    derivative: Derivative | None = None
    commutative: bool = False
    associative: bool = False
    symbol: str = ""

    def accepts(self, t: ScalarType) -> bool:
        match self.operands:
            case "any":
                return True
            case "num":
                return not t.is_bool
            case "float":
                return t.is_float
            case "int":
                return t.is_integer
            case _:
                return not t.is_float

    @property
    def constant(self) -> bool:
        """Whether its derivative is zero everywhere."""
        return self.derivative is _ZERO

    def result_type(self, t: ScalarType) -> ScalarType:
        return bool_ if self.result == "bool" else t


TABLE: dict[str, PrimRow] = {}


def _row(name: str, arity: int, operands: str, result: str, fn: Callable[..., Any], d: Derivative | None = None,
         **properties: Any) -> None:
    TABLE[name] = PrimRow(name, arity, operands, result, fn, d, **properties)


# --- reference meanings NumPy has no single function for -------------------------------------------------------------

def _each(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    """A Python float function as one on NumPy scalars, computed in f64 and rounded once."""
    def apply(x: Any) -> Any:
        try:
            return x.dtype.type(fn(float(x)))
        except (OverflowError, ValueError):
            return x.dtype.type(np.nan)
    return apply


def _maximum(x: Any, y: Any) -> Any:
    """NaN propagates; -0 is below +0."""
    if x == y and x.dtype.kind == "f":
        return y if np.signbit(x) else x
    return np.maximum(x, y)


def _minimum(x: Any, y: Any) -> Any:
    if x == y and x.dtype.kind == "f":
        return x if np.signbit(x) else y
    return np.minimum(x, y)


def _quotient(x: Any, y: Any) -> Any:
    """Division rounded toward zero; wraps for the integer minimum over -1."""
    q = abs(int(x)) // abs(int(y))
    q = -q if (int(x) < 0) != (int(y) < 0) else q
    return _wrap(q, x.dtype)


def _wrap(value: int, dtype: np.dtype[Any]) -> Any:
    bits = dtype.itemsize * 8
    value &= (1 << bits) - 1
    if dtype.kind == "i" and value >= 1 << (bits - 1):
        value -= 1 << bits
    return dtype.type(value)


def _floordiv(x: Any, y: Any) -> Any:
    return np.floor_divide(x, y) if x.dtype.kind == "f" else _wrap(int(x) // int(y), x.dtype)


def _remainder(x: Any, y: Any) -> Any:
    return np.remainder(x, y) if x.dtype.kind == "f" else _wrap(int(x) % int(y), x.dtype)


def _fmod(x: Any, y: Any) -> Any:
    return np.fmod(x, y) if x.dtype.kind == "f" else _wrap(int(x) - int(y) * int(_quotient(x, y)), x.dtype)


def _power(x: Any, y: Any) -> Any:
    """Integer powers wrap; a negative integer exponent gives the truncated quotient 1 // x ** -y (0, or +-1)."""
    if x.dtype.kind == "f":
        if y == 0.5 and not x > 0 and (x == 0 or np.isinf(x)):  # NumPy takes the root, which is not pow for -inf and -0
            return np.abs(x)
        return np.power(x, y)
    if y < 0:
        return _wrap({1: 1, -1: 1 if int(y) % 2 == 0 else -1}.get(int(x), 0), x.dtype)
    return _wrap(pow(int(x), int(y), 1 << 64), x.dtype)


def _shift_left(x: Any, y: Any) -> Any:
    return _wrap(int(x) << int(y), x.dtype) if 0 <= y < x.dtype.itemsize * 8 else x.dtype.type(0)


def _shift_right(x: Any, y: Any) -> Any:
    bits = x.dtype.itemsize * 8
    return _wrap(int(x) >> (int(y) if 0 <= y < bits else bits - 1), x.dtype) if 0 <= y < bits or x.dtype.kind == "i" \
        else x.dtype.type(0)


def _select(c: Any, x: Any, y: Any) -> Any:
    return x if c else y


def _gamma(x: Any) -> Any:
    """The gamma function; at 0 an infinity of its sign, NaN at negative integers and -inf, inf where it overflows."""
    with np.errstate(all="ignore"):
        try:
            return x.dtype.type(math.gamma(float(x)))
        except OverflowError:
            return x.dtype.type(np.inf)
        except ValueError:
            return np.copysign(x.dtype.type(np.inf), x) if x == 0 else x.dtype.type(np.nan)


def _lgamma(x: Any) -> Any:
    """The logarithm of the gamma function's magnitude; inf at its poles."""
    with np.errstate(all="ignore"):
        try:
            return x.dtype.type(math.lgamma(float(x)))
        except (OverflowError, ValueError):
            return x.dtype.type(np.inf)


def digamma(x: float) -> float:
    """The derivative of lgamma, by reflection, the recurrence and its asymptotic series; also compiled by backends."""
    if x != x or x == -math.inf:
        return math.nan
    mirrored = x <= 0
    if mirrored and x == math.floor(x):
        return math.nan
    y = 1 - x if mirrored else x
    total = 0.0
    while y < 10:
        total -= 1 / y
        y += 1
    z = 1 / (y * y)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760 - z / 12))))))
    total += math.log(y) - 0.5 / y - series
    return total - math.pi / math.tan(math.pi * x) if mirrored else total


def _trigamma(m: Any, x: Any) -> Any:
    """The derivative of digamma in terms that have derivatives in turn: reflection, recurrence, asymptotic series."""
    mirrored = m.lt(x, 0.5)
    y = m.select(mirrored, 1 - x, x)
    total: Any = 1 / (y * y)
    for k in range(1, 10):
        total = total + 1 / ((y + k) * (y + k))
    w = 1 / (y + 10)
    z = w * w
    total = total + w + 0.5 * z + w * z * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * (5 / 66)))))
    s = m.sin(math.pi * x)
    return m.select(mirrored, (math.pi * math.pi) / (s * s) - total, total)


def _bits(x: Any) -> int:
    """An integer's bits as a number that is not negative."""
    mask: int = (1 << x.dtype.itemsize * 8) - 1
    return int(x) & mask


# --- the rows --------------------------------------------------------------------------------------------------------

_ZERO: Derivative = lambda m, out, *xs: (None,) * len(xs)
_LN2 = math.log(2.0)
_LN10 = math.log(10.0)

# arithmetic
_row("neg", 1, "num", "same", np.negative, lambda m, o, x: (-1,), symbol="-")
_row("abs", 1, "num", "same", np.abs, lambda m, o, x: (m.sign(x),))
_row("sign", 1, "num", "same", np.sign, _ZERO)
_row("add", 2, "num", "same", np.add, lambda m, o, x, y: (1, 1), commutative=True, associative=True, symbol="+")
_row("sub", 2, "num", "same", np.subtract, lambda m, o, x, y: (1, -1), symbol="-")
_row("mul", 2, "num", "same", np.multiply, lambda m, o, x, y: (y, x), commutative=True, associative=True, symbol="*")
_row("div", 2, "float", "same", np.divide, lambda m, o, x, y: (1 / y, -(o / y)), symbol="/")
_row("floordiv", 2, "num", "same", _floordiv, _ZERO, symbol="//")
_row("mod", 2, "num", "same", _remainder, lambda m, o, x, y: (1, -m.floordiv(x, y)), symbol="%")
_row("quot", 2, "int", "same", _quotient, _ZERO)
_row("fmod", 2, "num", "same", _fmod, lambda m, o, x, y: (1, -m.trunc(x / y) if m.is_float(x) else None))
_row("pow", 2, "num", "same", _power,
     lambda m, o, x, y: (m.select(m.eq(y, 0), 0, y * m.pow(x, y - 1)),
                         m.select(m.gt(x, 0), o * m.log(m.select(m.gt(x, 0), x, 1)), 0) if m.is_float(x) else None),
     symbol="**")
_row("max", 2, "any", "same", _maximum, lambda m, o, x, y: (m.cast(m.first_max(x, y), x), m.cast(m.not_(
    m.first_max(x, y)), x)), commutative=True, associative=True)
_row("min", 2, "any", "same", _minimum, lambda m, o, x, y: (m.cast(m.first_min(x, y), x), m.cast(m.not_(
    m.first_min(x, y)), x)), commutative=True, associative=True)
_row("fma", 3, "float", "same", lambda x, y, z: x.dtype.type(np.longdouble(x) * np.longdouble(y) + np.longdouble(z)),
     lambda m, o, x, y, z: (y, x, 1))

# exponentials and powers
_row("sqrt", 1, "float", "same", np.sqrt, lambda m, o, x: (0.5 / o,))
_row("rsqrt", 1, "float", "same", lambda x: x.dtype.type(1) / np.sqrt(x), lambda m, o, x: (-0.5 * o / x,))
_row("cbrt", 1, "float", "same", np.cbrt, lambda m, o, x: (1 / (3 * o * o),))
_row("exp", 1, "float", "same", np.exp, lambda m, o, x: (o,))
_row("exp2", 1, "float", "same", np.exp2, lambda m, o, x: (_LN2 * o,))
_row("expm1", 1, "float", "same", np.expm1, lambda m, o, x: (o + 1,))
_row("log", 1, "float", "same", np.log, lambda m, o, x: (1 / x,))
_row("log2", 1, "float", "same", np.log2, lambda m, o, x: (1 / (_LN2 * x),))
_row("log10", 1, "float", "same", np.log10, lambda m, o, x: (1 / (_LN10 * x),))
_row("log1p", 1, "float", "same", np.log1p, lambda m, o, x: (1 / (1 + x),))

# trigonometric and hyperbolic
_row("sin", 1, "float", "same", np.sin, lambda m, o, x: (m.cos(x),))
_row("cos", 1, "float", "same", np.cos, lambda m, o, x: (-m.sin(x),))
_row("tan", 1, "float", "same", np.tan, lambda m, o, x: (1 + o * o,))
_row("asin", 1, "float", "same", np.arcsin, lambda m, o, x: (m.rsqrt(1 - x * x),))
_row("acos", 1, "float", "same", np.arccos, lambda m, o, x: (-m.rsqrt(1 - x * x),))
_row("atan", 1, "float", "same", np.arctan, lambda m, o, x: (1 / (1 + x * x),))
_row("sinh", 1, "float", "same", np.sinh, lambda m, o, x: (m.cosh(x),))
_row("cosh", 1, "float", "same", np.cosh, lambda m, o, x: (m.sinh(x),))
_row("tanh", 1, "float", "same", np.tanh, lambda m, o, x: (1 - o * o,))
_row("asinh", 1, "float", "same", np.arcsinh, lambda m, o, x: (m.rsqrt(x * x + 1),))
_row("acosh", 1, "float", "same", np.arccosh, lambda m, o, x: (m.rsqrt(x * x - 1),))
_row("atanh", 1, "float", "same", np.arctanh, lambda m, o, x: (1 / (1 - x * x),))
_row("atan2", 2, "float", "same", np.arctan2, lambda m, o, y, x: (x / (x * x + y * y), -(y / (x * x + y * y))))
_row("hypot", 2, "float", "same", np.hypot, lambda m, o, x, y: (x / o, y / o))

# special functions
_row("erf", 1, "float", "same", _each(math.erf), lambda m, o, x: (m.exp(-(x * x)) * (2 / math.sqrt(math.pi)),))
_row("erfc", 1, "float", "same", _each(math.erfc), lambda m, o, x: (m.exp(-(x * x)) * (-2 / math.sqrt(math.pi)),))

_row("gamma", 1, "float", "same", _gamma, lambda m, o, x: (o * m.digamma(x),))
_row("lgamma", 1, "float", "same", _lgamma, lambda m, o, x: (m.digamma(x),))
_row("digamma", 1, "float", "same", _each(digamma), lambda m, o, x: (_trigamma(m, x),))

# rounding
_row("floor", 1, "float", "same", np.floor, _ZERO)
_row("ceil", 1, "float", "same", np.ceil, _ZERO)
_row("trunc", 1, "float", "same", np.trunc, _ZERO)
_row("round", 1, "float", "same", np.rint, _ZERO)
_row("copysign", 2, "float", "same", np.copysign, lambda m, o, x, y: (m.sign(x) * m.sign(o), None))

# comparisons and logic
for _name, _fn, _symbol in (("eq", np.equal, "=="), ("ne", np.not_equal, "!="), ("lt", np.less, "<"),
                            ("le", np.less_equal, "<="), ("gt", np.greater, ">"), ("ge", np.greater_equal, ">=")):
    _row(_name, 2, "any", "bool", _fn, _ZERO, commutative=_name in ("eq", "ne"), symbol=_symbol)
_row("isnan", 1, "float", "bool", np.isnan, _ZERO)
_row("isinf", 1, "float", "bool", np.isinf, _ZERO)
_row("isfinite", 1, "float", "bool", np.isfinite, _ZERO)
_row("not", 1, "logic", "same", np.invert, _ZERO, symbol="~")
_row("and", 2, "logic", "same", np.bitwise_and, _ZERO, commutative=True, associative=True, symbol="&")
_row("or", 2, "logic", "same", np.bitwise_or, _ZERO, commutative=True, associative=True, symbol="|")
_row("xor", 2, "logic", "same", np.bitwise_xor, _ZERO, commutative=True, associative=True, symbol="^")
_row("shl", 2, "int", "same", _shift_left, _ZERO, symbol="<<")
_row("shr", 2, "int", "same", _shift_right, _ZERO, symbol=">>")

_row("popcount", 1, "int", "same", lambda x: x.dtype.type(_bits(x).bit_count()), _ZERO)
_row("clz", 1, "int", "same", lambda x: x.dtype.type(x.dtype.itemsize * 8 - _bits(x).bit_length()), _ZERO)
_row("ctz", 1, "int", "same", lambda x: x.dtype.type(
    (_bits(x) & -_bits(x)).bit_length() - 1 if x else x.dtype.itemsize * 8), _ZERO)

# choice and conversion: the first operand of select is bool; convert's result type is the operation's own
_row("select", 3, "any", "same", _select)

# what has the value of its operand and no derivative
_row("stop", 1, "any", "same", lambda x: x, _ZERO)
_row("convert", 1, "any", "same", lambda x: x)
_row("bitcast", 1, "num", "same", lambda x: x, _ZERO)       # the same bits as another type of as many
TYPED = frozenset({"convert", "bitcast"})                   # whose result type is the operation's own

INTEGER_DIVISIONS = frozenset({"floordiv", "mod", "quot", "fmod"})


def convert(value: Any, to: ScalarType) -> Any:
    """``value`` (a NumPy scalar) as ``to``: narrowing wraps, float to int truncates, NaN and infinities give 0 and
    floats beyond the integer's range saturate; anything but 0 is True."""
    if to.is_bool:
        return np.bool_(value != 0)
    if to.is_integer and value.dtype.kind == "f":
        if not np.isfinite(value):
            return to.dtype.type(0)
        info = np.iinfo(to.dtype)
        return to.dtype.type(min(max(int(value), int(info.min)), int(info.max)))
    if to.is_integer:
        return _wrap(int(value), to.dtype)
    with np.errstate(all="ignore"):                     # too large is inf
        return to.dtype.type(value)


def bitcast(value: Any, to: ScalarType) -> Any:
    """The bits of a NumPy scalar as a value of another type."""
    return np.asarray(value).view(to.dtype)[()]


def neutral_element(name: str, t: ScalarType) -> Any:
    """The neutral element of an associative primitive, or None where it has none."""
    if name in ("max", "min"):
        low = name == "max"
        if t.is_bool:
            return not low
        if t.is_float:
            return -np.inf if low else np.inf
        info = np.iinfo(t.dtype)
        return info.min if low else info.max
    if name == "and":
        return True if t.is_bool else (-1 if t.kind == "i" else np.iinfo(t.dtype).max)
    return {"add": 0, "mul": 1, "or": 0, "xor": 0}.get(name)


# What a caller computes as the program does, on i64 and booleans: sizes of memory and guards come from both.
ON_ENTRY = frozenset({"add", "sub", "mul", "neg", "abs", "sign", "floordiv", "mod", "quot", "max", "min", "select",
                      "and", "or", "xor", "not", "eq", "ne", "lt", "le", "gt", "ge"})
