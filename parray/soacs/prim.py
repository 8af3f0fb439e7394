"""Prim: one scalar primitive on scalars.  What each means, and its derivative, stands in `parray.prims`.

`Factors` is the ``m`` of the derivatives there: it makes `Term`s, expressions emitted only when they are used.  With
out = prim(x, y):  out_dot = factor_x * x_dot + factor_y * y_dot  and  x_bar += out_bar * factor_x.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from parray import builder as b
from parray import prims
from parray.errors import DivisionError, TypeMismatch
from parray.ir import Atom, Const, Op, Stm
from parray.types import ScalarType, Type, bool_


@dataclass(frozen=True)
class Prim(Op):
    """``prim args``; ``elem`` is the result's type."""
    prim: str
    args: tuple[Atom, ...]
    elem: ScalarType

    @staticmethod
    def of(prim: str, args: tuple[Atom, ...], to: ScalarType | None = None) -> Prim:
        """The primitive with its result type worked out; raises TypeMismatch for operands it does not take."""
        row = prims.TABLE[prim]
        types = [a.type.elem for a in args]
        if any(not a.type.is_scalar for a in args) or len(args) != row.arity:
            raise AssertionError(f"{prim} takes {row.arity} scalars, not {[a.type for a in args]}")
        if prim in prims.TYPED:
            assert to is not None
            return Prim(prim, args, to)
        operands = types[1:] if prim == "select" else types
        if any(t != operands[0] for t in operands) or (prim == "select" and types[0] != bool_):
            raise AssertionError(f"{prim} on {types}")
        if not row.accepts(operands[0]):
            raise TypeMismatch(f"{prim} is not defined on {operands[0]}")
        return Prim(prim, args, row.result_type(operands[0]))

    @property
    def row(self) -> prims.PrimRow:
        return prims.TABLE[self.prim]

    def infer(self) -> tuple[Type, ...]:
        return (Type(self.elem),)

    def fails(self) -> bool:
        if self.prim in prims.INTEGER_DIVISIONS and self.elem.is_integer:
            return not (isinstance(self.args[1], Const) and self.args[1].value != 0)
        return False

    def apply(self, *values: Any) -> Any:
        """The meaning on NumPy scalars."""
        if self.prim == "convert":
            return prims.convert(values[0], self.elem)
        if self.prim == "bitcast":
            return prims.bitcast(values[0], self.elem)
        if self.prim in prims.INTEGER_DIVISIONS and self.elem.is_integer and values[1] == 0:
            raise DivisionError("integer division by zero")
        with np.errstate(all="ignore"):
            return self.elem.dtype.type(self.row.fn(*values))

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        return (self.apply(*(ev.value(a) for a in self.args)),)

    def fold(self) -> Const:
        """The constant it is, when every operand is a constant and it does not fail."""
        values = [a.value for a in self.args]                       # type: ignore[union-attr]
        return Const(self.apply(*values), self.elem)

    # --- derivatives -------------------------------------------------------------------------------------------------

    def partials(self, out: Atom) -> list[Callable[[Atom], Atom | None]]:
        """For each operand what its derivative makes of a tangent or cotangent."""
        if self.prim == "select":
            zero = Const(0, self.elem)
            c = self.args[0]
            return [lambda t: None, lambda t: b.select(c, t, zero), lambda t: b.select(c, zero, t)]
        m = Factors(self.args[0].type.elem)
        assert self.row.derivative is not None
        factors = self.row.derivative(m, Term(out), *map(Term, self.args))
        return [lambda t, f=f: m.scale(t, f) for f in factors]      # type: ignore[misc]

    def jvp(self, ad: Any, stm: Stm) -> None:
        """See the module; a tangent of select is a select of tangents."""
        ad.emit(stm)
        tangents = [ad.tangent(a) for a in self.args]
        total: Atom | None = None
        if self.prim == "convert":
            total = b.convert(tangents[0], self.elem)
        elif self.prim == "select":
            zero = Const(0, self.elem)
            total = b.select(self.args[0], *(zero if t is None else t for t in tangents[1:]))
        else:
            for t, partial in zip(tangents, self.partials(stm.vars[0])):
                part = None if t is None else partial(t)
                total = part if total is None else total if part is None else b.prim("add", total, part)
        ad.set(stm.vars[0], total)

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """See the module; the cotangent of a conversion is converted back."""
        bar = bars[0]
        assert bar is not None
        if self.prim == "convert":
            ad.add(self.args[0], b.convert(bar, self.args[0].type.elem))
            return
        for a, partial in zip(self.args, self.partials(stm.vars[0])):
            if ad.is_active(a):
                ad.add(a, partial(bar))


class Term:
    """A scalar expression in a derivative, emitted when first used."""

    def __init__(self, value: Atom | None, name: str = "", args: tuple[Any, ...] = ()):
        self.value, self.name, self.args = value, name, args

    def atom(self, like: ScalarType) -> Atom:
        """The expression as an atom, emitted at most once; ``like`` is the type of numbers among its operands."""
        if self.value is None:
            self.value = b.prim(self.name, *(_atom(a, like) for a in self.args))
        return self.value

    def __neg__(self) -> Term:
        return Term(None, "neg", (self,))

    def __add__(self, other: Any) -> Term:
        return Term(None, "add", (self, other))

    def __radd__(self, other: Any) -> Term:
        return Term(None, "add", (other, self))

    def __sub__(self, other: Any) -> Term:
        return Term(None, "sub", (self, other))

    def __rsub__(self, other: Any) -> Term:
        return Term(None, "sub", (other, self))

    def __mul__(self, other: Any) -> Term:
        return Term(None, "mul", (self, other))

    def __rmul__(self, other: Any) -> Term:
        return Term(None, "mul", (other, self))

    def __truediv__(self, other: Any) -> Term:
        return Term(None, "div", (self, other))

    def __rtruediv__(self, other: Any) -> Term:
        return Term(None, "div", (other, self))


def _atom(a: Any, like: ScalarType) -> Atom:
    return a.atom(like) if isinstance(a, Term) else Const(a, like)


class Factors:
    """What derivatives call ``m``: every primitive by its name (``not_`` for not), on `Term`s and numbers."""

    def __init__(self, elem: ScalarType):
        self.elem = elem

    def __getattr__(self, name: str) -> Callable[..., Term]:
        return lambda *args: Term(None, name.rstrip("_"), args)

    def is_float(self, x: Term) -> bool:
        return self.elem.is_float

    def cast(self, condition: Term, like: Term) -> Term:
        """1 where the condition holds, else 0; multiplied with by a select, so that 0 * inf does not occur."""
        return Term(None, "select", (condition, 1, 0))

    def first_max(self, x: Term, y: Term) -> Term:
        """Whether max takes its first operand (ties, and a NaN, too)."""
        ge = self.ge(x, y)
        return self.or_(ge, self.isnan(x)) if self.elem.is_float else ge

    def first_min(self, x: Term, y: Term) -> Term:
        """Whether min takes its first operand."""
        le = self.le(x, y)
        return self.or_(le, self.isnan(x)) if self.elem.is_float else le

    def scale(self, t: Atom, factor: Any) -> Atom | None:
        """``t * factor`` without the multiplication where there is nothing to multiply."""
        if factor is None or (not isinstance(factor, Term) and factor == 0):
            return None
        if not isinstance(factor, Term):
            if factor == 1:
                return t
            return b.prim("neg", t) if factor == -1 else b.prim("mul", t, Const(factor, t.type.elem))
        if factor.name == "neg" and factor.value is None:
            scaled = self.scale(t, factor.args[0])
            return None if scaled is None else b.prim("neg", scaled)
        if factor.name == "select" and factor.value is None:
            zero = Const(0, t.type.elem)
            x, y = (self.scale(t, f) or zero for f in factor.args[1:])
            return b.select(_atom(factor.args[0], self.elem), x, y)
        return b.prim("mul", t, factor.atom(self.elem))
