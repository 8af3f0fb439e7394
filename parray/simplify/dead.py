"""Removal of what nothing uses: statements, results, operators, inputs and carried values.

One walk backwards.  A variable is live when a kept statement or result uses it, or when it is a size in the type of a
live variable.  An operation is kept for its effect (`Assert`), never for a failure its value does not show.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from parray.ir import Lambda, Monoid, Op, Stm, Var, atoms, free_vars, lambdas, size_vars
from parray.simplify.engine import with_lambdas
from parray.soacs import Cond, Loop, Scatter, Screma, While


def remove_dead(lam: Lambda) -> Lambda:
    """The lambda without what its results do not need."""
    return _Liveness().body(lam, [True] * len(lam.results))


def has_effect(op: Op) -> bool:
    """Whether it, or anything in it, must be kept although nothing uses its results."""
    return op.effect or any(has_effect(stm.op) for lam in lambdas(op) for stm in lam.stms)


def _kept(values: Sequence[Any], keep: Sequence[bool]) -> tuple[Any, ...]:
    return tuple(v for v, k in zip(values, keep, strict=True) if k)


def _dependences(lam: Lambda, params: Sequence[Var]) -> tuple[list[int], int]:
    """Which of ``params`` each result depends on, as bit masks, and which the effects do."""
    mask = {p: 1 << k for k, p in enumerate(params)}
    effects = 0
    for stm in lam.stms:
        m = 0
        for v in free_vars(stm.op):
            m |= mask.get(v, 0)
        if m:
            mask.update(dict.fromkeys(stm.vars, m))
            effects |= m if has_effect(stm.op) else 0
    return [mask.get(r, 0) if isinstance(r, Var) else 0 for r in lam.results], effects


def _closure(used: Sequence[bool], needs: Sequence[int], roots: int = 0) -> list[bool]:
    """The used results and all that their next values depend on."""
    live = roots | sum(1 << k for k, u in enumerate(used) if u)
    while True:
        more = live
        for k, need in enumerate(needs):
            if live >> k & 1:
                more |= need
        if more == live:
            return [bool(live >> k & 1) for k in range(len(used))]
        live = more


def _operator_needs(m: Monoid) -> list[int]:
    """For each component of an operator's result, the components it is computed from."""
    needs, _ = _dependences(m.op, m.op.params)
    return [n & ((1 << m.width) - 1) | n >> m.width for n in needs]


class _Liveness:
    def __init__(self) -> None:
        self.live: set[Var] = set()

    def use(self, a: Any) -> None:
        if isinstance(a, Var) and a not in self.live:
            self.live.add(a)
            self.live.update(size_vars(a.type))

    def body(self, lam: Lambda, keep: Sequence[bool]) -> Lambda:
        """The lambda with only the kept results and what they need; its parameters stay."""
        results = lam.results if all(keep) else _kept(lam.results, keep)
        for r in results:
            self.use(r)
        out: list[Stm] = []
        same = results is lam.results
        for stm in reversed(lam.stms):
            used = [v in self.live for v in stm.vars]
            if any(used) or has_effect(stm.op):
                new = self.stm(stm, used)
                same = same and new is stm
                out.append(new)
            else:
                same = False
        for p in lam.params:
            for v in size_vars(p.type):
                self.use(v)
        return lam if same else Lambda(lam.params, tuple(reversed(out)), results)

    def stm(self, stm: Stm, used: list[bool]) -> Stm:
        op, keep = self.trimmed(stm.op, used)
        for a in atoms(op):
            self.use(a)
        if op is stm.op:
            return stm
        return Stm(_kept(stm.vars, keep), op, stm.loc)

    def trimmed(self, op: Op, used: list[bool]) -> tuple[Op, list[bool]]:
        """The operation with the results it must keep, its lambdas trimmed and their uses noted."""
        match op:
            case Screma():
                return self.screma(op, used)
            case Scatter():
                return self.scatter(op, used)
            case Loop() | While():
                return self.loop(op, used)
            case Cond():
                then, orelse = self.body(op.then, used), self.body(op.orelse, used)
                same = then is op.then and orelse is op.orelse
                return (op if same else Cond(op.pred, then, orelse)), used
        return with_lambdas(op, lambda lam: self.body(lam, [True] * len(lam.results))), used

    def monoid(self, m: Monoid, keep: Sequence[bool]) -> Monoid:
        op = self.body(m.op, keep)
        if all(keep):
            return m if op is m.op else Monoid(op, m.ne, m.commutative)
        return Monoid(Lambda(_kept(op.params, [*keep, *keep]), op.stms, op.results), _kept(m.ne, keep), m.commutative)

    def inputs(self, op: Any, lam: Lambda) -> tuple[tuple[Var, ...], Lambda]:
        """The inputs whose parameters are used."""
        keep = [p in self.live for p in lam.params]
        if all(keep):
            return op.xs, lam
        return _kept(op.xs, keep), Lambda(_kept(lam.params, keep), lam.stms, lam.results)

    def screma(self, op: Screma, used: list[bool]) -> tuple[Op, list[bool]]:
        keep: list[bool] = []
        monoids: list[list[Monoid]] = [[], []]
        for k, (m, group) in enumerate(zip(op.scans + op.reds, op.groups(used))):
            wanted = group if all(group) or not any(group) else _closure(group, _operator_needs(m))
            keep += wanted
            if any(wanted):
                monoids[k >= len(op.scans)].append(self.monoid(m, wanted))
        keep += used[len(keep):]
        xs, lam = self.inputs(op, self.body(op.lam, keep))
        scans, reds = map(tuple, monoids)
        same = lam is op.lam and all(a is b for a, b in zip(scans + reds, op.scans + op.reds, strict=False))
        if same and len(scans) == len(op.scans) and len(reds) == len(op.reds):
            return op, keep
        return Screma(op.n, xs, lam, scans, reds), keep

    def scatter(self, op: Scatter, used: list[bool]) -> tuple[Op, list[bool]]:
        keep = used if any(used) else [True] * len(used)            # kept for an effect in its lambda
        if op.op is not None and not all(keep):
            keep = _closure(keep, _operator_needs(op.op))
        combine = self.monoid(op.op, keep) if op.op is not None else None
        xs, lam = self.inputs(op, self.body(op.lam, [True] * op.rank + keep))
        if all(keep) and lam is op.lam and combine is op.op:
            return op, keep
        return Scatter(op.n, _kept(op.dests, keep), op.rank, combine, lam, xs), keep

    def loop(self, op: Any, used: list[bool]) -> tuple[Op, list[bool]]:
        counted = 1 if isinstance(op, Loop) else 0
        keep = used
        if not all(used):
            needs, roots = _dependences(op.lam, op.lam.params[counted:])
            if not counted:
                tested, effects = _dependences(op.cond, op.cond.params)
                roots |= tested[0] | effects
            keep = _closure(used, needs, roots)
        lams = {"lam": self.body(op.lam, keep)}
        if not counted:
            lams["cond"] = self.body(op.cond, [True])
        if all(keep):
            same = all(l is getattr(op, name) for name, l in lams.items())
            return (op if same else dataclasses.replace(op, **lams)), keep
        for name, l in lams.items():
            first = counted if name == "lam" else 0
            lams[name] = Lambda(l.params[:first] + _kept(l.params[first:], keep), l.stms, l.results)
        return dataclasses.replace(op, inits=_kept(op.inits, keep), **lams), keep
