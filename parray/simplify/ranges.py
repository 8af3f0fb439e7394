"""What is known of i64 values: linear forms and bounds over the size variables.

    form ::= constant + sum of coefficient * variable

A size of an array is at least 0, an iota parameter of extent n is in 0..n-1.  With that `Ranges.at_least_zero` shows
indices in range and decides comparisons; the rules that use it stand with the scalars and the arrays.  Arithmetic on
i64 wraps, so bounds are only drawn through sums and products of values known to be small: sizes, indices and what is
made of them.  Facts hold in the scope in which they were gathered: an array in a branch says nothing outside it.
"""
from __future__ import annotations

from typing import Any, Callable, Iterable

from parray.ir import Const, Op, Var, as_size
from parray.soacs import Prim
from parray.types import Type, i64

Form = dict[Any, int]                       # variable, or None for the constant
_DEPTH = 6
_SMALL = 1 << 48


def _atom(a: Any) -> Form:
    return ({None: a} if a else {}) if isinstance(a, int) else {a: 1}


def add(a: Form, b: Form, scale: int = 1) -> Form:
    """``a + scale * b``."""
    out = dict(a)
    for k, c in b.items():
        out[k] = out.get(k, 0) + scale * c
    return {k: c for k, c in out.items() if c}


class Ranges:
    """Facts gathered on the walk; ``producers`` is the engine's."""

    def __init__(self, producers: dict[Var, Op]):
        self.producers = producers
        self.extents: dict[Var, Any] = {}
        self.not_negative: dict[Var, None] = {}

    def count(self, v: Var, n: Any) -> None:
        """The variable runs from 0 to below ``n``."""
        self.extents[v] = n

    def sizes(self, t: Type) -> None:
        """The sizes of an array that exists are not negative."""
        for s in t.shape:
            if isinstance(s, Var):
                self.not_negative.setdefault(s)

    def leave(self, known: int) -> None:
        """Forget the sizes seen since there were ``known``."""
        while len(self.not_negative) > known:
            self.not_negative.popitem()

    # --- forms -------------------------------------------------------------------------------------------------------

    def ring_form(self, op: Prim, depth: int = _DEPTH) -> Form | None:
        """The result of i64 arithmetic as a linear form modulo 2**64; None for what is not linear."""
        return self._linear(op, lambda a: self._ring(a, depth - 1)) if depth else None

    def _ring(self, a: Any, depth: int) -> Form:
        a = as_size(a)
        op = self.producers.get(a) if isinstance(a, Var) else None
        made = self.ring_form(op, depth) if isinstance(op, Prim) else None
        return _atom(a) if made is None else made

    def form(self, a: Any, depth: int = _DEPTH) -> Form:
        """The value as a linear form over the integers: arithmetic that may wrap is not looked into."""
        a = as_size(a)
        op = self.producers.get(a) if isinstance(a, Var) else None
        if depth and isinstance(op, Prim):
            made = self._linear(op, lambda arg: self.form(arg, depth - 1))
            if made is not None and all(abs(c) < _SMALL and (k is None or self._small(k)) for k, c in made.items()):
                return made
        return _atom(a)

    @staticmethod
    def _linear(op: Prim, form: Callable[[Any], Form]) -> Form | None:
        if op.elem != i64:
            return None
        match op.prim:
            case "add":
                return add(form(op.args[0]), form(op.args[1]))
            case "sub":
                return add(form(op.args[0]), form(op.args[1]), -1)
            case "neg":
                return add({}, form(op.args[0]), -1)
            case "mul":
                for x, y in (op.args, op.args[::-1]):
                    if isinstance(y, Const):
                        return add({}, form(x), int(y.value))
        return None

    def _small(self, a: Any, depth: int = _DEPTH) -> bool:
        """Whether the value is far from where i64 wraps."""
        return self._far(a, False, depth) and self._far(a, True, depth)

    def _far(self, a: Any, upper: bool, depth: int) -> bool:
        """Whether it is far from the greatest (least) integer."""
        if isinstance(a, Const):
            return abs(int(a.value)) < _SMALL
        if a in self.not_negative or a in self.extents:
            return True
        op = self.producers.get(a)
        if not isinstance(op, Prim) or op.elem != i64 or depth == 0:
            return False
        if op.prim in ("max", "min"):
            quantifier = all if upper == (op.prim == "max") else any
            return quantifier(self._far(arg, upper, depth - 1) for arg in op.args)
        if op.prim == "convert":
            elem = op.args[0].type.elem
            return not elem.is_float and elem.bits <= 32
        if op.prim == "mod":
            return self._small(op.args[1], depth - 1)
        if op.prim in ("add", "sub", "neg", "floordiv", "select"):
            return all(self._small(arg, depth - 1) for arg in op.args[op.prim == "select":])
        return False

    # --- proofs ------------------------------------------------------------------------------------------------------

    def at_least_zero(self, form: Form, depth: int = _DEPTH) -> bool:
        """Whether the form is certainly not negative."""
        if all(c >= 0 and (k is None or self._not_negative(k, depth)) for k, c in form.items()):
            return True
        if depth == 0:
            return False
        for k, c in form.items():                       # replace a variable by what bounds it on the side that matters
            enough, bounds = self._bounds(k, c < 0, depth) if k is not None else (any, [])
            if bounds:
                rest = {q: d for q, d in form.items() if q is not k}
                return enough(self.at_least_zero(add(rest, bound, c), depth - 1) for bound in bounds)
        return False

    def _not_negative(self, v: Var, depth: int) -> bool:
        if v in self.not_negative or v in self.extents:
            return True
        op = self.producers.get(v)
        if not isinstance(op, Prim) or depth == 0 or op.elem != i64:
            return False
        match op.prim:
            case "mod":
                return self.at_least_zero(self.form(op.args[1]), depth - 1)
            case "mul" | "floordiv":
                return all(self._small(a) and self.at_least_zero(self.form(a), depth - 1) for a in op.args)
        return False

    def _bounds(self, v: Var, upper: bool, depth: int) -> tuple[Callable[[Iterable[bool]], bool], list[Form]]:
        """Forms that bound the variable from above (below): all of them together, or any one alone."""
        op = self.producers.get(v)
        if isinstance(op, Prim) and op.elem == i64:
            match op.prim:
                case "max" | "min":
                    return (all if upper == (op.prim == "max") else any), [self.form(a) for a in op.args]
                case "select":
                    return all, [self.form(a) for a in op.args[1:]]
                case "mod" if upper:
                    most = add(self.form(op.args[1]), {None: -1})
                    return any, [most] if self.at_least_zero(most, depth - 1) else []
        if v in self.extents:
            return any, [add(self.form(self.extents[v]), {None: -1}) if upper else {}]
        return any, []

    def at_most(self, a: Any, b: Any, gap: int = 0) -> bool:
        """Whether ``a + gap <= b`` for certain."""
        return self.at_least_zero(add(add(self.form(b), self.form(a), -1), {None: -gap}))

    def in_range(self, i: Any, n: Any) -> bool:
        """Whether ``0 <= i < n`` for certain."""
        return self.at_most(0, i) and self.at_most(i, n, 1)
