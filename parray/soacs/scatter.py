"""Scatter: writes at computed places, alone (`scatter`, `update`) or combined by an operator (`reduce_by_index`).

    scatter n dests op lam xs

    for i < n:  (i1..ir, v..) = lam xs[i]..
                dests[i1..ir] = v                       without an operator: of several writes the last stays
                dests[i1..ir] = op dests[i1..ir] v      with one

A write with any coordinate out of range (negative too) is dropped.  Several destinations share the places (arrays of
tuples).  The destinations themselves are values and stay as they are; where one is dead afterwards the backend works
in place.  ``n = 1`` without inputs is a functional update.

In reverse mode (of places and values that are arrays, or of one update; others are first made so):

    no operator:  dests_bar is zero where something was written; the last writer of a place gets out_bar there
    (+):          dests_bar = out_bar;  values_bar[i] = out_bar[place i]
    max, min:     the destination where it attains the result, else the first value that does
    others:       a loop, with the destinations' values before each write kept: backwards,
                  (old_bar, value_bar) = pullback of op at (old, value), applied to out_bar[place]
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np

from parray import builder as b
from parray.ir import Atom, Const, Lambda, Monoid, Op, Stm, Var, size_atom, size_field
from parray.soacs.monoids import attains, component_prims, update
from parray.types import SIZE, Type, i64

ONE = Const(1, i64)


@dataclass(frozen=True)
class Scatter(Op):
    """See the module; ``rank`` leading dimensions are indexed, the rest of a destination's shape is the value's."""
    n: Any = size_field()
    dests: tuple[Var, ...] = ()
    rank: int = 1
    op: Monoid | None = None
    lam: Lambda = None                                              # type: ignore[assignment]
    xs: tuple[Var, ...] = ()

    def infer(self) -> tuple[Type, ...]:
        return tuple(d.type for d in self.dests)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        outs = [np.array(ev.value(d)) for d in self.dests]
        xs = [ev.value(x) for x in self.xs]
        for i in range(ev.size(self.n)):
            results = ev.call(self.lam, *(x[i] for x in xs))
            at = tuple(int(k) for k in results[:self.rank])
            values = results[self.rank:]
            if all(0 <= k < size for k, size in zip(at, outs[0].shape)):
                if self.op is not None:
                    values = ev.call(self.op.op, *(o[at].copy() for o in outs), *values)
                for o, v in zip(outs, values):
                    o[at] = v
        return tuple(outs)

    # --- derivatives -------------------------------------------------------------------------------------------------

    @property
    def is_update(self) -> bool:
        """Whether it writes once, at a place known outside."""
        return self.n == 1 and not self.xs

    def jvp(self, ad: Any, stm: Stm) -> None:
        """Tangents are further destinations with the same places."""
        flags = ad.through(self.lam, tuple(map(ad.is_active, self.xs)))[self.rank:]
        flags = tuple(ad.is_active(d) or v for d, v in zip(self.dests, flags))
        if self.op is not None:
            flags = ad.monoid(self.op, flags)
        lam, xs = ad.dual(self.lam, self.xs, (False,) * self.rank + flags)
        tangents = tuple(ad.tangent_or_zero(d) for d, f in zip(self.dests, flags) if f)
        op = None if self.op is None else ad.dual_monoid(self.op, flags)
        dual = Scatter(self.n, self.dests + tangents, self.rank, op, lam, xs)
        ad.bind(stm.vars + ad.tangents_of(stm.vars, flags), dual)

    def adds(self) -> bool:
        """Whether the operator is addition of each component."""
        return self.op is not None and set(component_prims(self.op.op)) == {"add"}

    def forward(self, ad: Any, stm: Stm) -> None:
        """Emit what gives places and values, then the scatter of them."""
        if self.is_update:
            self._forward_update(ad, stm)
        elif self.lam.stms or self.lam.results != self.lam.params:
            from parray.soacs.screma import Screma
            arrays = tuple(Var(r.type.array_of(self.n)) for r in self.lam.results)
            ad.forward(Stm(arrays, Screma(self.n, self.xs, self.lam), stm.loc))
            lam = b.identity_lambda(b.row_types(arrays))
            ad.record(Stm(stm.vars, Scatter(self.n, self.dests, self.rank, self.op, lam, arrays), stm.loc))
        else:
            ad.record(stm)

    def _forward_update(self, ad: Any, stm: Stm) -> None:
        """An operator other than addition is applied here, so that only plain updates remain."""
        results = ad.inline(self.lam, ())
        at, values = results[:self.rank], results[self.rank:]
        if self.op is None or self.adds():
            lam = Lambda((), (), results)
            ad.record(Stm(stm.vars, Scatter(1, self.dests, self.rank, self.op, lam, ()), stm.loc))
            return

        def write() -> tuple[Var, ...]:
            assert self.op is not None
            old = tuple(b.index(d, *at, safe=True) for d in self.dests)
            new = b.inline(self.op.op, old + values)
            return b.emit(Scatter(1, self.dests, self.rank, None, Lambda((), (), at + new), ()))

        from parray.soacs.control import Cond
        ok = in_range(at, self.dests[0].type.shape)
        ad.forward(Stm(stm.vars, Cond(ok, b.make_lambda((), write), Lambda((), (), self.dests)), stm.loc))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """See the module; `forward` made places and values plain."""
        operands: Any = self.lam.results if self.is_update else self.xs
        at, values = operands[:self.rank], operands[self.rank:]
        if self.op is None:
            self._overwrite_vjp(ad, at, values, bars)
        elif self.adds():
            for d, v, bar in zip(self.dests, values, bars):
                ad.add(d, bar)
                if bar is not None and ad.is_active(v):
                    ad.add(v, guarded(bar, at) if self.is_update else b.map1(lambda *i, bar=bar: guarded(bar, i), *at))
        elif component_prims(self.op.op)[0] in ("max", "min") and self.op.ne[0].type.is_scalar and len(bars) == 1:
            assert bars[0] is not None
            self._extremum_vjp(ad, at, values[0], stm.vars[0], bars[0])
        else:
            self._any_vjp(ad, at, values, stm.vars, bars)

    def _overwrite_vjp(self, ad: Any, at: Any, values: Any, bars: Sequence[Atom | None]) -> None:
        on = [k for k, (v, bar) in enumerate(zip(values, bars)) if bar is not None and ad.is_active(v)]
        if self.is_update:
            for k in on:
                ad.add(values[k], guarded(bars[k], at))
        elif on:
            for k, given in zip(on, self._last_writers(at, [bars[k] for k in on])):
                ad.add(values[k], given)
        for d, bar in zip(self.dests, bars):
            if bar is None or not ad.is_active(d):
                continue
            zero = b.zeros(d.type.row(self.rank))
            types = [] if self.is_update else [SIZE] * self.rank
            lam = b.make_lambda(types, lambda *i: (*(i or at), zero))
            dest: Any = bar
            ad.add(d, b.emit1(Scatter(self.n, (dest,), self.rank, None, lam, () if self.is_update else at)))

    def _last_writers(self, at: Sequence[Var], bars: Sequence[Any]) -> tuple[Var, ...]:
        """For each write the cotangents of its place, zeros where a later one overwrote it."""
        positions = b.iota(self.n)
        blank: Any = b.full(Type(i64, self.dests[0].type.shape[:self.rank]), -1)
        lam = b.identity_lambda([SIZE] * (self.rank + 1))
        winner = b.emit1(Scatter(self.n, (blank,), self.rank, None, lam, (*at, positions)))

        def element(k: Atom, *i: Atom) -> tuple[Var, ...]:
            won = choose(in_range(i, winner.type.shape), lambda: (b.prim("eq", b.index(winner, *i, safe=True), k),),
                         lambda: (b.bool_const(False),))[0]
            return choose(won, lambda: [b.index(bar, *i, safe=True) for bar in bars],
                          lambda: [b.zeros(bar.type.row(self.rank)) for bar in bars])

        return b.map_(element, positions, *at)

    def _extremum_vjp(self, ad: Any, at: Sequence[Var], values: Var, out: Var, bar: Atom) -> None:
        dest, zero, none = self.dests[0], Const(0, out.type.elem), Const(2**63 - 1, i64)
        ad.add(dest, b.elementwise(lambda d, o, g: b.select(attains(d, o), g, zero), dest, out, bar))
        if not ad.is_active(values):
            return

        def place(k: Atom, v: Atom, *i: Atom) -> tuple[Atom, ...]:
            return (*i, b.select(attains(v, guarded(out, i)), k, none))

        types = [SIZE, values.type.row()] + [SIZE] * self.rank
        lowest = Monoid(b.lift2("min", SIZE), (none,), True)
        blank: Any = b.full(Type(i64, out.type.shape), none.value)
        positions = b.iota(self.n)
        xs = (positions, values, *at)
        first = b.emit1(Scatter(self.n, (blank,), self.rank, lowest, b.make_lambda(types, place), xs))

        def mine(k: Atom, *i: Atom) -> tuple[Atom, ...]:
            d, o, f, g = (b.index(x, *i, safe=True) for x in (dest, out, first, bar))
            won = b.prim("and", b.prim("eq", f, k), b.prim("not", attains(d, o)))
            return (b.select(won, g, zero),)

        ad.add(values, b.map1(lambda k, *i: choose(in_range(i, out.type.shape), lambda: mine(k, *i),
                                                   lambda: (zero,))[0], positions, *at))

    def _any_vjp(self, ad: Any, at: Sequence[Var], values: Sequence[Var], outs: Sequence[Var],
                 bars: Sequence[Atom | None]) -> None:
        assert self.op is not None
        op = self.op.op
        olds = self._old_values(at, values)
        last = b.prim("sub", size_atom(self.n), ONE)
        on = [k for k, o in enumerate(outs) if ad.is_active(o)]
        on_v = [k for k, v in enumerate(values) if ad.is_active(v)]

        def step(child: Any, k: Atom, *carried: Any) -> Sequence[Atom]:
            i = b.prim("sub", last, k)
            place = [b.index(a, i, safe=True) for a in at]
            old, v = (tuple(b.index(x, i, safe=True) for x in xs) for xs in (olds, values))
            child.active.update([old[j] for j in on] + [v[j] for j in on_v])
            total: list[Atom | None] = [None] * len(outs)
            for j, bar in zip(on, carried):
                total[j] = guarded(bar, place)
            child.replay(op, old + v, total)
            dests = [update(bar, place, child.take_or_zero(old[j])) for j, bar in zip(on, carried)]
            ok = in_range(place, self.dests[0].type.shape)
            given = [child.take_or_zero(v[j]) for j in on_v]
            kept = choose(ok, lambda: given, lambda: [b.zeros(g.type) for g in given])
            return dests + [update(x, (i,), g) for x, g in zip(carried[len(on):], kept)]

        inits = [b.zeros(outs[j].type) if bars[j] is None else bars[j] for j in on]
        inits += [b.zeros(values[j].type) for j in on_v]
        types = [SIZE] + [outs[j].type for j in on] + [values[j].type for j in on_v]
        lam, captures = ad.loop_lambda(self.n, types, ad.captured(op), step)
        results = ad.loop_back(self.n, lam, inits, captures)
        for x, bar in zip([self.dests[j] for j in on] + [values[j] for j in on_v], results):
            ad.add(x, bar)

    def _old_values(self, at: Sequence[Var], values: Sequence[Var]) -> tuple[Var, ...]:
        """For each write the destinations' elements before it (zeros where it is dropped)."""
        from parray.soacs.control import Loop
        w = len(self.dests)

        def step(i: Atom, *carried: Any) -> tuple[Atom, ...]:
            assert self.op is not None
            place = tuple(b.index(a, i, safe=True) for a in at)
            old = tuple(guarded(d, place) for d in carried[:w])
            new = b.inline(self.op.op, old + tuple(b.index(v, i, safe=True) for v in values))
            dests = b.emit(Scatter(1, carried[:w], self.rank, None, Lambda((), (), place + new), ()))
            return dests + tuple(update(o, (i,), a) for o, a in zip(carried[w:], old))

        inits = self.dests + tuple(b.zeros(v.type) for v in values)
        return b.emit(Loop(self.n, b.make_lambda([SIZE] + [a.type for a in inits], step), inits))[w:]


def choose(condition: Atom, then: Callable[[], Sequence[Atom]], orelse: Callable[[], Sequence[Atom]]
           ) -> tuple[Var, ...]:
    """Emit a Cond; only one of the two is run."""
    from parray.soacs.control import Cond
    return b.emit(Cond(condition, b.make_lambda((), then), b.make_lambda((), orelse)))


def in_range(indices: Sequence[Atom], sizes: Sequence[Any]) -> Atom:
    """Whether all indices are inside their dimensions."""
    ok: Atom | None = None
    for i, n in zip(indices, sizes):
        inside = b.prim("and", b.prim("le", Const(0, i64), i), b.prim("lt", i, size_atom(n)))
        ok = inside if ok is None else b.prim("and", ok, inside)
    assert ok is not None
    return ok


def guarded(x: Any, indices: Sequence[Atom]) -> Atom:
    """``x[indices]``, or zeros where that is out of range."""
    row = x.type.row(len(indices))
    ok = in_range(indices, x.type.shape)
    return choose(ok, lambda: (b.index(x, *indices, safe=True),), lambda: (b.zeros(row),))[0]
