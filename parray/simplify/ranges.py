"""What is known of i64 values: linear forms and bounds over the size variables.

    form ::= constant + sum of coefficient * variable

A size of an array is at least 0, an iota parameter of extent n is in 0..n-1.  With that ``prove_at_least(form)`` shows
indices in range and decides comparisons; the rules that use it stand with the scalars and the arrays.
"""
from __future__ import annotations

from typing import Any, Callable, Iterable

from parray.ir import Const, Op, Var, as_size
from parray.soacs import Prim
from parray.types import Type, i64

Form = dict[Any, int]                       # variable, or None for the constant
_DEPTH = 6


def add(a: Form, b: Form, scale: int = 1) -> Form:
    """``a + scale * b``."""
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
        self.not_negative: set[Var] = set()

    def count(self, v: Var, n: Any) -> None:
        """The variable runs from 0 to below ``n``."""
        self.extents[v] = n

    def sizes(self, t: Type) -> None:
        """The sizes of an array that exists are not negative."""
        for s in t.shape:
            if isinstance(s, Var):
                self.not_negative.add(s)

    def form(self, a: Any, depth: int = _DEPTH) -> Form:
        """The value as a linear form (exact, also where arithmetic wraps)."""
        a = as_size(a)
        if isinstance(a, int):
            return {None: a} if a else {}
        op = self.producers.get(a)
        made = self.form_of(op, depth - 1) if depth and isinstance(op, Prim) else None
        return {a: 1} if made is None else made

    def form_of(self, op: Prim, depth: int = _DEPTH) -> Form | None:
        """The result of i64 arithmetic as a linear form; None for what is not linear."""
        if op.elem != i64:
            return None
        args = op.args
        match op.prim:
            case "add":
                return add(self.form(args[0], depth), self.form(args[1], depth))
            case "sub":
                return add(self.form(args[0], depth), self.form(args[1], depth), -1)
            case "neg":
                return add({}, self.form(args[0], depth), -1)
            case "mul":
                for x, y in (args, args[::-1]):
                    if isinstance(y, Const):
                        return add({}, self.form(x, depth), int(y.value))
        return None

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
                return all(self.at_least_zero(self.form(a), depth - 1) for a in op.args)
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
