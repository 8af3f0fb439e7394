"""Reductions down columns become reductions of rows: a pass of the pipeline, after fusion.

    map n (\\col -> reduce (+) 0 (map f col)) (transpose x)  =>  reduce (map2 (+)) (replicate n 0) (map (map f) x)

The left side walks each column with the stride of a row; the right side adds whole rows, in the order in which they lie
in memory, with vectors.  It applies where every matrix the inner reduction reads is a transposed one.  The operator is
applied to the same operands in the same order, so the results are the same.
"""
from __future__ import annotations

from dataclasses import replace

from parray import builder as b
from parray.ir import Lambda, Monoid, Op, Stm, Substitution, Var, free_vars
from parray.soacs import Prim, Replicate, Screma, Transpose


def interchange(lam: Lambda) -> Lambda:
    """The pass."""
    with b.scope(root=True):
        return _Interchange().lam(lam)


def scalar_prim(m: Monoid) -> bool:
    """Whether the operator is one scalar primitive."""
    op = m.op
    return len(op.stms) == 1 and isinstance(op.stms[0].op, Prim) and op.stms[0].op.args == op.params


class _Interchange(Substitution):
    """Rebuilds a graph; ``transposed`` knows what each transposed matrix was."""

    def __init__(self) -> None:
        super().__init__()
        self.transposed: dict[Var, Var] = {}

    def lam(self, lam: Lambda) -> Lambda:
        params = tuple(self.fresh(p) for p in lam.params)
        with b.scope() as s:
            for stm in lam.stms:
                with b.at(stm.loc):
                    self._emit(stm)
        return Lambda(params, tuple(s.stms), tuple(self.atom(r) for r in lam.results))

    def _emit(self, stm: Stm) -> None:
        op = self.op(stm.op)
        new = self._rows(op) if isinstance(op, Screma) else None
        outs = tuple(self.fresh(v) for v in stm.vars)
        if isinstance(op, Transpose) and op.perm == (1, 0):
            self.transposed[outs[0]] = op.x
        b.current().stms.append(Stm(outs, new or op, stm.loc))

    def _rows(self, op: Screma) -> Op | None:
        """The reduction of rows, where ``op`` is a map of reductions down columns."""
        lam = op.lam
        inner = lam.stms[0].op if op.is_map and len(lam.stms) == 1 else None
        if not isinstance(inner, Screma) or not inner.is_reduce or lam.results != lam.stms[0].vars:
            return None
        outer = dict(zip(lam.params, op.xs))
        columns = [k for k, x in enumerate(inner.xs) if x in outer]
        fits = columns and all(outer[inner.xs[k]] in self.transposed for k in columns) and \
            all(map(scalar_prim, inner.reds)) and all(r.type.is_scalar for r in inner.lam.results) and \
            all(a not in outer for m in inner.reds for a in m.ne) and inner.n not in outer
        used = free_vars(inner.lam)
        if not fits or any(not p.type.is_scalar for p in outer if p in used):
            return None
        xs = tuple(self.transposed[outer[x]] if x in outer else x for x in inner.xs)
        params = tuple(Var(x.type.row(), p.hint) for x, p in zip(xs, inner.lam.params))
        given = [p for p in outer if p in used]
        each = Lambda(tuple(inner.lam.params[k] for k in columns) + tuple(given), inner.lam.stms, inner.lam.results)
        rest = {inner.lam.params[k]: params[k] for k in range(len(xs)) if k not in columns}
        arrays = tuple(params[k] for k in columns) + tuple(outer[p] for p in given)
        row = Screma(op.n, arrays, Substitution(rest).lam(each))
        outs = tuple(Var(t) for t in row.infer())
        reds = tuple(_lifted(m, op.n) for m in inner.reds)
        return replace(inner, xs=xs, lam=Lambda(params, (Stm(outs, row, b.here()),), outs), reds=reds)


def _lifted(m: Monoid, n: object) -> Monoid:
    """The operator on vectors."""
    t = m.ne[0].type.array_of(n)
    op = b.make_lambda((t, t), lambda x, y: b.map_(lambda *es: b.inline(m.op, es), x, y, n=n))
    return Monoid(op, tuple(b.emit1(Replicate(n, ne)) for ne in m.ne), m.commutative)
