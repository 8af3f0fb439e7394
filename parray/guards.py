"""Checks made once, before a program runs, where they depend on sizes alone.

    map n (\\i. x[i + 1])     =>     guard 0 <= 1 and n <= len(x) - 1, or n <= 0;  map n (\\i. x[i + 1] proved)

An index that is linear in the counters of the maps, reductions and loops around it takes its extremes at their ends,
and they run whenever none is empty: so the check can be made for all of them from the sizes, and loops without checks
become vectors and contractions.  A guard that fails has the program run by the reference, which says exactly which
index it was.  Checks of the program's own that depend on sizes alone are guards too: what follows a failed one would
use memory of the wrong size.  Bodies of branches and while loops may not run, so nothing is hoisted out of them.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

from parray import builder as b
from parray.ir import Const, Lambda, Op, Stm, Var, as_size, size_atom
from parray.prims import ON_ENTRY
from parray.simplify.ranges import Form, Ranges, add
from parray.soacs import Assert, Index, Iota, Loop, Prim, Scatter, Screma
from parray.types import SIZE

_RUNS = (Loop, Scatter, Screma)                   # what runs its lambda for every one of ``n``, or of its inputs


def hoist(lam: Lambda) -> Lambda:
    """The program with guards for its indices."""
    return _Hoist(lam).program()


class _Hoist:
    def __init__(self, lam: Lambda):
        self.lam = lam
        self.producers: dict[Var, Op] = {}
        self.ranges = Ranges(self.producers)
        for p in lam.params:
            self.ranges.sizes(p.type)
        self.entry: set[Any] = set(self.ranges.not_negative)
        self.conditions: set[Any] = set()         # truth values known on entry
        self.extents: list[Any] = []              # of what is around a statement
        self.known = False                        # whether the extents around are all known on entry
        self.before: list[Stm] = []
        self.made: set[Any] = set()

    def program(self) -> Lambda:
        out: list[Stm] = []
        for stm in self.lam.stms:
            self.known = True
            new = self.stm(stm)
            if isinstance(stm.op, Assert) and stm.op.cond in self.conditions:
                new = replace(stm, op=replace(stm.op, guard=True))
            out += [*self.before, new]
            self.before.clear()
            if isinstance(stm.op, Prim) and stm.op.prim in ON_ENTRY and \
                    all(isinstance(a, Const) or a in self.entry or a in self.conditions for a in stm.op.args):
                (self.entry if stm.op.elem == SIZE.elem else self.conditions).update(stm.vars)
        same = len(out) == len(self.lam.stms) and all(x is y for x, y in zip(out, self.lam.stms))
        return self.lam if same else Lambda(self.lam.params, tuple(out), self.lam.results)

    def block(self, stms: Sequence[Stm]) -> list[Stm]:
        return [self.stm(s) for s in stms]

    def stm(self, stm: Stm) -> Stm:
        op = stm.op
        self.producers.update(dict.fromkeys(stm.vars, op))
        if isinstance(op, Index) and not op.safe and self.extents and self.known and self.guard(op, stm):
            return Stm(stm.vars, replace(op, safe=True), stm.loc)
        if not isinstance(op, _RUNS):
            return stm
        known, n = self.known, as_size(op.n)
        self.known = known and (isinstance(n, int) or n in self.entry)
        self.extents.append(n)
        counters = [p for p, x in zip(op.lam.params, getattr(op, "xs", ())) if isinstance(self.producers.get(x), Iota)]
        for p in counters if not isinstance(op, Loop) else op.lam.params[:1]:
            if p.type == SIZE:
                self.ranges.count(p, n)
        body = self.block(op.lam.stms)
        self.extents.pop()
        self.known = known
        if all(x is y for x, y in zip(body, op.lam.stms)):
            return stm
        lam = Lambda(op.lam.params, tuple(body), op.lam.results)
        return Stm(stm.vars, replace(op, lam=lam), stm.loc)

    def guard(self, op: Index, stm: Stm) -> bool:
        """Emit the guard of an index; whether it has one."""
        bounds: list[Form] = []                                         # none may be negative
        for i, n in zip(op.indices, op.x.type.shape):
            form = self.ranges.form(i)
            ends = [self.extreme(form, -1), self.extreme(form, 1)]
            if ends[0] is None or ends[1] is None or not (isinstance(n, int) or n in self.entry):
                return False
            bounds += [ends[0], add(add(self.ranges.form(n), {None: -1}), ends[1], -1)]
        bounds = [f for f in bounds if not self.ranges.at_least_zero(f)]
        key = (frozenset(frozenset(f.items()) for f in bounds), frozenset(self.extents))
        if bounds and key not in self.made:
            self.made.add(key)
            with b.scope(root=True) as s, b.at(stm.loc):
                self.emit(bounds, f"an index is out of bounds for an array of {op.x.type.rank} dimension"
                                  f"{'s' * (op.x.type.rank > 1)}")
            self.before += s.stms
        return True

    def extreme(self, form: Form, sign: int) -> Form | None:
        """The form at its least (-1) or greatest (1), in what is known on entry."""
        out: Form = {}
        for v, c in form.items():
            if v is None or v in self.entry:
                out = add(out, {v: c})
            elif v not in self.ranges.extents:
                return None
            elif c * sign > 0:                                          # at n - 1; else at 0
                out = add(out, add(self.ranges.form(self.ranges.extents[v]), {None: -1}), c)
        return out if all(v is None or v in self.entry for v in out) else None

    def emit(self, bounds: Sequence[Form], message: str) -> None:
        zero = size_atom(0)
        ok: Any = None
        for form in bounds:
            total: Any = 0
            for v, c in form.items():
                total = b.size_add(total, c if v is None else b.size_mul(v, c))
            test = b.prim("ge", size_atom(total), zero)
            ok = test if ok is None else b.prim("and", ok, test)
        for n in dict.fromkeys(self.extents):
            if not isinstance(n, int):
                ok = b.prim("or", ok, b.prim("le", size_atom(n), zero))
            elif n <= 0:
                return
        b.emit(Assert(ok, message, (), "BoundsError", guard=True))


__all__ = ["hoist"]
