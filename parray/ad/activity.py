"""Activity: which results of an operation depend on active operands through derivatives.

Only active variables get tangents and cotangents; everything else is constant to differentiation.  Both modes ask here,
with their own notion of which variables are active so far.  Booleans never are.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Iterable, Sequence

from parray.ir import Lambda, Monoid, Op, Var, atoms, free_vars
from parray.soacs import Argsort, Assert, Cond, Index, Iota, Loop, Prim, Scatter, Screma, Slice, Update, While

Active = Callable[[Any], bool]


class Activity(ABC):
    """What both engines offer to the operations' rules about activity."""

    @abstractmethod
    def is_active(self, a: Any) -> bool:
        """Whether an atom is active."""

    def through(self, lam: Lambda, params: Sequence[bool] = ()) -> tuple[bool, ...]:
        """Activity of a lambda's results."""
        return through(lam, params, self.is_active)

    def carried(self, lam: Lambda, inits: Sequence[Any], counted: bool) -> tuple[bool, ...]:
        """Activity of a loop's carried values; ``counted``: the first parameter is the loop's index."""
        return carried(lam, (False,) * counted, tuple(map(self.is_active, inits)), self.is_active)

    def monoid(self, m: Monoid, operands: Sequence[bool]) -> tuple[bool, ...]:
        """Activity of the results of a reduction or scan."""
        return monoid(m, operands, self.is_active)

    def captured(self, *lams: Lambda) -> tuple[Var, ...]:
        """The active variables that lambdas capture."""
        return captured(lams, self.is_active)


def results(op: Op, active: Active) -> tuple[bool, ...]:
    """For each result of ``op`` whether it is active."""
    match op:
        case Prim():
            flags: tuple[bool, ...] = (_prim(op, active),)
        case Iota() | Assert() | Argsort():
            flags = tuple(False for _ in op.infer())
        case Index() | Slice():
            flags = (active(op.x),)
        case Update():
            flags = (active(op.x) or active(op.value),)
        case Screma():
            flags = _screma(op, active)
        case Scatter():
            flags = _scatter(op, active)
        case Loop():
            flags = carried(op.lam, (False,), tuple(map(active, op.inits)), active)
        case While():
            flags = carried(op.lam, (), tuple(map(active, op.inits)), active)
        case Cond():
            pairs = zip(through(op.then, (), active), through(op.orelse, (), active))
            flags = tuple(a or b for a, b in pairs)
        case _:
            flags = (any(map(active, atoms(op))),)
    return flags


def through(lam: Lambda, params: Sequence[bool], active: Active) -> tuple[bool, ...]:
    """Activity of a lambda's results when the given parameters, and ``active`` variables around it, are active."""
    local = {p for p, on in zip(lam.params, params, strict=True) if on and not p.type.elem.is_bool}

    def here(a: Any) -> bool:
        return a in local or active(a)

    for stm in lam.stms:
        local.update(v for v, on in zip(stm.vars, results(stm.op, here)) if on and not v.type.elem.is_bool)
    return tuple(isinstance(r, Var) and here(r) for r in lam.results)


def carried(lam: Lambda, first: tuple[bool, ...], inits: tuple[bool, ...], active: Active) -> tuple[bool, ...]:
    """Activity of a loop's carried values: the least fixed point."""
    while True:
        new = tuple(a or b for a, b in zip(inits, through(lam, first + inits, active)))
        if new == inits:
            return new
        inits = new


def monoid(m: Monoid, operands: Sequence[bool], active: Active) -> tuple[bool, ...]:
    """Activity of the components of a reduction or scan with active operands: the least fixed point."""
    flags = tuple(a or active(e) for a, e in zip(operands, m.ne, strict=True))
    while True:
        new = tuple(a or b for a, b in zip(flags, through(m.op, flags + flags, active)))
        if new == flags:
            return new
        flags = new


def captured(lams: Iterable[Lambda], active: Active) -> tuple[Var, ...]:
    """The active variables that lambdas capture, in order of use."""
    found: dict[Var, None] = {}
    for lam in lams:
        found.update((v, None) for v in free_vars(lam) if active(v))
    return tuple(found)


def _prim(op: Prim, active: Active) -> bool:
    if op.elem.is_bool or op.row.constant:
        return False
    if op.prim == "convert" and op.args[0].type.elem.is_float and not op.elem.is_float:
        return False
    return any(map(active, op.args[1:] if op.prim == "select" else op.args))


def _screma(op: Screma, active: Active) -> tuple[bool, ...]:
    flags = through(op.lam, tuple(map(active, op.xs)), active)
    out = [f for m, operands in zip(op.scans + op.reds, op.groups(flags)) for f in monoid(m, operands, active)]
    return tuple(out) + tuple(op.split(flags)[2])


def _scatter(op: Scatter, active: Active) -> tuple[bool, ...]:
    values = through(op.lam, tuple(map(active, op.xs)), active)[op.rank:]
    flags = tuple(active(d) or v for d, v in zip(op.dests, values))
    return flags if op.op is None else monoid(op.op, flags, active)
