"""Control: Loop (a counted loop), While, Cond.  Carried values keep their types.

    loop n lam inits        for i < n: carried = lam i carried
    while cond lam inits    while cond carried: carried = lam carried
    cond p then else        only the chosen branch runs

In reverse mode a loop's forward part also writes down, for every iteration, those carried values that its reverse
reads, or the elements read of an array of which nothing else is used; the reverse lambda is made first to see which
these are.  The reverse is a loop from the end:

    for i = n-1 .. 0:  carried_bar = pullback of (lam i) at the carried values of iteration i, applied to carried_bar

A While is counted by running it and then is a Loop.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parray import builder as b
from parray.ir import Atom, Const, Lambda, Op, Stm, Var, free_vars, prune, refresh, size_atom, size_field
from parray.soacs.arrays import Index
from parray.soacs.monoids import update
from parray.types import SIZE, Type, i64


@dataclass(frozen=True)
class Loop(Op):
    """``lam: (i: i64, carried..) -> carried``; a negative ``n`` is zero iterations.

    ``kept``: it stays a loop although it has one iteration, so that its reverse runs the body again (`checkpoint`).
    """
    n: Any = size_field()
    lam: Lambda = None                                              # type: ignore[assignment]
    inits: tuple[Atom, ...] = ()
    kept: bool = False

    def infer(self) -> tuple[Type, ...]:
        return tuple(p.type for p in self.lam.params[1:])

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        carried = tuple(ev.value(a) for a in self.inits)
        for i in range(ev.size(self.n)):
            carried = ev.call(self.lam, np.int64(i), *carried)
        return carried

    def jvp(self, ad: Any, stm: Stm) -> None:
        """Values and tangents are carried."""
        flags = ad.carried(self.lam, self.inits, True)
        lam, inits = ad.dual_loop(self.lam, self.inits, flags, 1)
        ad.bind(stm.vars + ad.tangents_of(stm.vars, flags), Loop(self.n, lam, inits, self.kept))

    def forward(self, ad: Any, stm: Stm) -> None:
        """Emit the loop, with histories of the values that the reverse lambda reads."""
        flags = ad.carried(self.lam, self.inits, True)
        n = self.count()
        whole, captures = self.reverse(ad, n, flags)
        k = len(self.inits)
        save, back = saved_part(whole, k)
        blank = [b.zeros(t.array_of(n)) for t in save.result_types]

        def body(i: Atom, *carried: Atom) -> list[Atom]:
            values = b.inline(save, (i,) + carried[:k])
            news = [update(h, (i,), value) for h, value in zip(carried[k:], values)]
            return list(b.inline(self.lam, (i,) + carried[:k])) + news

        lam = b.make_lambda([SIZE] + [a.type for a in self.inits] + [h.type for h in blank], body)
        histories = tuple(Var(h.type) for h in blank)
        ad.record(Stm(stm.vars + histories, Loop(self.n, lam, self.inits + tuple(blank), self.kept), stm.loc))
        ad.memo[stm.vars[flags.index(True)]] = (n, back, captures, flags, histories)

    def count(self) -> Any:
        """The number of iterations; ``n`` itself where it is the size of an array in sight."""
        if isinstance(self.n, int):
            return max(self.n, 0)
        seen = list(free_vars(self.lam)) + list(self.inits)
        return self.n if any(self.n in v.type.shape for v in seen) else b.size_prim("max", self.n, 0)

    def reverse(self, ad: Any, n: Any, flags: tuple[bool, ...]) -> tuple[Lambda, Any]:
        """The reverse of one iteration: (i, carried.., cotangents.., captures..) -> (cotangents.., captures..); and how
        captured variables' cotangents come out of it."""
        k = len(self.inits)
        on = [j for j, flag in enumerate(flags) if flag]

        def body(child: Any, i: Var, *values: Var) -> list[Atom]:
            child.active.update(values[j] for j in on)
            bars: list[Atom | None] = [None] * k
            for j, bar in zip(on, values[k:]):
                bars[j] = bar
            child.replay(self.lam, (i,) + values[:k], bars)
            return [child.take_or_zero(values[j]) for j in on]

        types = [a.type for a in self.inits]
        found: tuple[Lambda, Any] = ad.loop_lambda(
            n, [SIZE] + types + [types[j] for j in on], ad.captured(self.lam), body)
        return found

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """See the module."""
        first = next(v for v in stm.vars if v in ad.memo)
        n, back, captures, flags, histories = ad.memo[first]
        on = [j for j, flag in enumerate(flags) if flag]
        last = b.prim("sub", size_atom(n), Const(1, i64))

        def body(k: Atom, *carried: Atom) -> tuple[Atom, ...]:
            i = b.prim("sub", last, k)
            return b.inline(back, (i, *(b.index(h, i, safe=True) for h in histories)) + carried)

        inits = [b.zeros(stm.vars[j].type) if bars[j] is None else bars[j] for j in on]
        lam = b.make_lambda([SIZE] + [stm.vars[j].type for j in on] + captures.types, body)
        for j, bar in zip(on, ad.loop_back(n, lam, inits, captures, self.kept)):
            ad.add(self.inits[j], bar)


def saved_part(back: Lambda, k: int) -> tuple[Lambda, Lambda]:
    """The reverse of an iteration, (i, k carried.., others..) -> results, as ``save: (i, carried..) -> saved..``, which
    the forward loop runs, and ``back: (i, saved.., others..) -> results``."""
    first, others = back.params[:1 + k], back.params[1 + k:]
    reads: list[Stm] = []
    for p in first[1:]:
        users = [stm for stm in back.stms if p in free_vars(stm.op)]
        outs = [v for stm in users for v in stm.vars]
        small = outs and all(v.type.rank < p.type.rank for v in outs)
        if small and _only_read(p, Lambda((), tuple(users), back.results)):
            made = free_vars(Lambda((), prune(back.stms, outs), ()))
            reads += [] if any(v in others for v in made) else users
    stms = prune([stm for stm in back.stms if stm not in reads], back.results)
    used = free_vars(Lambda((), stms, back.results))
    kept = tuple(p for p in first[1:] if p in used)
    values = tuple(v for stm in reads for v in stm.vars)
    save = refresh(Lambda(first, prune(back.stms, values), kept + values))
    return save, Lambda(first[:1] + kept + values + others, stms, back.results)


def _only_read(p: Var, lam: Lambda) -> bool:
    """Whether elements of an array are all that a lambda uses of it."""
    def reads(op: Op) -> bool:
        if isinstance(op, Cond):
            return all(_only_read(p, branch) for branch in (op.then, op.orelse))
        return isinstance(op, Index) or p not in free_vars(op)

    return p not in lam.results and all(reads(stm.op) for stm in lam.stms)


@dataclass(frozen=True)
class While(Op):
    """``cond: carried -> bool``, ``lam: carried -> carried``."""
    cond: Lambda
    lam: Lambda
    inits: tuple[Atom, ...]

    def infer(self) -> tuple[Type, ...]:
        return tuple(p.type for p in self.lam.params)

    def fails(self) -> bool:
        return True                                                 # it may not end

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        carried = tuple(ev.value(a) for a in self.inits)
        while ev.call(self.cond, *carried)[0]:
            carried = ev.call(self.lam, *carried)
        return carried

    def jvp(self, ad: Any, stm: Stm) -> None:
        """Values and tangents are carried; the condition looks at the values."""
        flags = ad.carried(self.lam, self.inits, False)
        lam, inits = ad.dual_loop(self.lam, self.inits, flags, 0)
        cond = b.make_lambda([a.type for a in inits], lambda *xs: b.inline(self.cond, xs[:len(flags)]))
        ad.bind(stm.vars + ad.tangents_of(stm.vars, flags), While(cond, lam, inits))

    def forward(self, ad: Any, stm: Stm) -> None:
        """Count the iterations, then run a Loop of so many."""
        types = [a.type for a in self.inits]
        k = len(types)

        def step(*xs: Atom) -> list[Atom]:
            return list(b.inline(self.lam, xs[:k])) + [b.prim("add", xs[k], Const(1, i64))]

        cond = b.make_lambda(types + [SIZE], lambda *xs: b.inline(self.cond, xs[:k]))
        *_, n = b.emit(While(cond, b.make_lambda(types + [SIZE], step), self.inits + (Const(0, i64),)))
        body = b.make_lambda([SIZE] + types, lambda i, *xs: b.inline(self.lam, xs))
        ad.forward(Stm(stm.vars, Loop(n, body, self.inits), stm.loc))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """`forward` made it a Loop."""
        raise AssertionError("a while loop on a tape")


@dataclass(frozen=True)
class Cond(Op):
    """``then`` and ``orelse`` take no parameters and capture what they use; equal result types."""
    pred: Atom
    then: Lambda
    orelse: Lambda

    def infer(self) -> tuple[Type, ...]:
        return self.then.result_types

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        return ev.call(self.then if ev.value(self.pred) else self.orelse)   # type: ignore[no-any-return]

    def jvp(self, ad: Any, stm: Stm) -> None:
        """Branches give values and tangents."""
        flags = tuple(x or y for x, y in zip(ad.through(self.then), ad.through(self.orelse)))
        then, orelse = (ad.dual(lam, (), flags)[0] for lam in (self.then, self.orelse))
        ad.bind(stm.vars + ad.tangents_of(stm.vars, flags), Cond(self.pred, then, orelse))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """The same branch is taken back."""
        ad.cond_back(self, bars)
