"""Screma: map, scan and reduce over one index space, in one node.

    screma n lam (scans) (reds) xs

    for i < n:  (s.., r.., m..) = lam xs[i]..
    results:    inclusive scans of the s, reductions of the r, the m as arrays

A map is a Screma without scans and reductions; ``reduce op ne xs`` has the identity as ``lam``.  Because every fusion
of these is again a Screma, fusion composes lambdas and code generation knows one loop shape (after Futhark's
``screma``).  Operators are associative with neutral element; the order of operands is kept.

Derivatives are taken of the parts a Screma was fused from (`Screma.parts`); the rules of reduce and scan stand in
`parray.soacs.monoids`.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parray import builder as b
from parray.ir import Atom, Lambda, Monoid, Op, Stm, Var, size_field
from parray.soacs import monoids
from parray.types import Type


@dataclass(frozen=True)
class Screma(Op):
    """See the module.  ``lam`` gives first the operands of every scan, then of every reduction, then the maps'."""
    n: Any = size_field()
    xs: tuple[Var, ...] = ()
    lam: Lambda = None                                              # type: ignore[assignment]
    scans: tuple[Monoid, ...] = ()
    reds: tuple[Monoid, ...] = ()

    @property
    def scan_width(self) -> int:
        return sum(m.width for m in self.scans)

    @property
    def red_width(self) -> int:
        return sum(m.width for m in self.reds)

    @property
    def map_width(self) -> int:
        return len(self.lam.results) - self.scan_width - self.red_width

    @property
    def is_map(self) -> bool:
        return not self.scans and not self.reds

    @property
    def is_reduce(self) -> bool:
        return bool(self.reds) and not self.scans and self.map_width == 0

    def split(self, values: Any) -> tuple[Any, Any, Any]:
        """Per-result values parted into those of scans, reductions and maps."""
        s, r = self.scan_width, self.scan_width + self.red_width
        return values[:s], values[s:r], values[r:]

    def groups(self, values: Any) -> list[Any]:
        """Per-result values of scans and reductions parted by operator, in order."""
        out, at = [], 0
        for m in self.scans + self.reds:
            out.append(values[at:at + m.width])
            at += m.width
        return out

    def infer(self) -> tuple[Type, ...]:
        scans, reds, maps = self.split(self.lam.result_types)
        return tuple(t.array_of(self.n) for t in scans) + tuple(reds) + tuple(t.array_of(self.n) for t in maps)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        n = ev.size(self.n)
        xs = [ev.value(x) for x in self.xs]
        monoids = self.scans + self.reds
        accs = [[ev.value(a) for a in m.ne] for m in monoids]
        rows: list[list[Any]] = [[] for _ in self.lam.results]
        for i in range(n):
            values = ev.call(self.lam, *(x[i] for x in xs))
            for k, (m, operands) in enumerate(zip(monoids, self.groups(values))):
                accs[k] = list(ev.call(m.op, *accs[k], *operands))
            scanned = [a for acc in accs[:len(self.scans)] for a in acc]
            for row, value in zip(rows, scanned + list(values[self.scan_width:])):
                row.append(value)
        out: list[Any] = []
        for k, t in enumerate(self.lam.result_types):
            if self.scan_width <= k < self.scan_width + self.red_width:
                out.append([a for acc in accs for a in acc][k])
            else:
                shape = (n,) + tuple(ev.size(s) for s in t.shape)
                out.append(np.array(rows[k], dtype=t.elem.dtype).reshape(shape))
        return tuple(out)

    # --- derivatives -------------------------------------------------------------------------------------------------

    def is_part(self) -> bool:
        """Whether it is a map, or one reduction or scan of arrays as they are."""
        alone = len(self.scans) + len(self.reds) == 1 and self.map_width == 0
        return self.is_map or alone and not self.lam.stms and self.lam.results == self.lam.params

    def parts(self, stm: Stm) -> list[Stm]:
        """A map and then reductions and scans of its results that together give ``stm.vars``."""
        width = len(self.lam.results) - self.map_width
        operands, outs = self.lam.results[:width], stm.vars[width:]
        if not self.lam.stms and all(r in self.lam.params for r in operands):
            arrays = tuple(self.xs[self.lam.params.index(r)] for r in operands)
            mapped = Lambda(self.lam.params, (), self.lam.results[width:])
        else:
            arrays = tuple(Var(r.type.array_of(self.n)) for r in operands)
            mapped = self.lam
            outs = arrays + outs
        found = [Stm(outs, Screma(self.n, self.xs, mapped), stm.loc)] if outs else []
        operators = [((m,), ()) for m in self.scans] + [((), (m,)) for m in self.reds]
        for (scans, reds), xs, group in zip(operators, self.groups(arrays), self.groups(stm.vars)):
            lam = b.identity_lambda(b.row_types(xs))
            found.append(Stm(group, Screma(self.n, xs, lam, scans, reds), stm.loc))
        return found

    def forward(self, ad: Any, stm: Stm) -> None:
        if self.is_part():
            ad.record(stm)
            return
        for part in self.parts(stm):
            ad.forward(part)

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        if self.is_map:
            ad.map_back(self.n, self.xs, self.lam, bars)
        elif self.reds:
            monoids.reduce_vjp(ad, self.reds[0], self.xs, stm.vars, bars)
        else:
            monoids.scan_vjp(ad, self.scans[0], self.xs, stm.vars, bars)

    def jvp(self, ad: Any, stm: Stm) -> None:
        """The same Screma on pairs of values and tangents."""
        flags = ad.through(self.lam, tuple(map(ad.is_active, self.xs)))
        groups = [ad.monoid(m, fs) for m, fs in zip(self.scans + self.reds, self.groups(flags))]
        wanted = tuple(f for fs in groups for f in fs) + self.split(flags)[2]
        lam, xs = ad.dual(self.lam, self.xs, wanted)
        results = ad.paired(lam.results, wanted)
        outs = list(zip(stm.vars, ad.tangent_vars(stm.vars, wanted)))
        duals: list[list[Monoid]] = [[], []]
        order: list[tuple[int, int]] = []                           # (which result, 1 for its tangent)
        at = 0
        for k, (m, fs) in enumerate(zip(self.scans + self.reds, groups)):
            for dual, picks in ad.dual_monoids(m, fs):
                duals[k >= len(self.scans)].append(dual)
                order.extend((at + j, tangent) for j, tangent in picks)
            at += m.width
        order.extend((k, t) for k in range(at, len(flags)) for t in range(1 + wanted[k]))
        lam = Lambda(lam.params, lam.stms, tuple(results[k][t] for k, t in order))
        ad.bind(tuple(outs[k][t] for k, t in order), Screma(self.n, xs, lam, tuple(duals[0]), tuple(duals[1])))
