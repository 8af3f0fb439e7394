"""A map parted at the contractions inside it, which then have the map's axis too: a matrix times a vector for each of
many rows becomes a matrix times a matrix.

    map (\\x -> u = f x;  h = contract w u "mn,n->m";  g h) xs
        =>  us = map (\\x -> f x) xs;  hs = contract w us "mn,tn->tm";  map (\\x h -> g h) xs hs

Done where one operand is the same for every iteration and the contraction is not a product of matrices already.  What
the first part computes and the second needs is written out between them, but for views, which are made again.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable

from parray.ir import Lambda, Stm, Var, free_vars, refresh
from parray.soacs import Contract, Index, Iota, Replicate, Reshape, Screma, Slice, Transpose, Windows

_VIEWS = (Index, Iota, Replicate, Reshape, Slice, Transpose, Windows)


def split(stm: Stm) -> list[Stm]:
    """The statement, or what it is parted into."""
    out: list[Stm] = []
    while True:
        parts = _Parts(stm)
        if not parts.wave:
            return [*out, stm]
        *first, stm = parts.stms()
        out += first


def _is_matrix_product(op: Contract) -> bool:
    """Whether each operand has an axis of the result that the other has not."""
    x, y, out = set(op.x_axes), set(op.y_axes), set(op.out_axes)
    return bool(x & out - y) and bool(y & out - x)


class _Parts:
    """The statements of a map's body, sorted into those before the first contractions and those after."""

    def __init__(self, stm: Stm):
        assert isinstance(stm.op, Screma)
        self.stm, self.op = stm, stm.op
        self.lam = stm.op.lam
        self.reads = [set(free_vars(s.op)) for s in self.lam.stms]
        self.maker = {v: k for k, s in enumerate(self.lam.stms) for v in s.vars}
        self.local = set(self.maker) | set(self.lam.params)
        eligible = {k for k, s in enumerate(self.lam.stms) if self.eligible(s)}
        slices = {k: self.slice(self.reads[k]) for k in eligible}
        self.wave = sorted(k for k in eligible if not slices[k] & eligible)
        self.early = set().union(*(slices[k] for k in self.wave)) if self.wave else set()

    def eligible(self, stm: Stm) -> bool:
        if not isinstance(stm.op, Contract) or _is_matrix_product(stm.op):
            return False
        if any(s in self.local for s in stm.op.sizes().values()):
            return False                                            # the array cannot exist outside
        return (stm.op.x in self.local) != (stm.op.y in self.local)

    def slice(self, vs: Iterable[Var]) -> set[int]:
        """The statements needed for these variables."""
        needed: set[int] = set()
        todo = list(vs)
        while todo:
            k = self.maker.get(todo.pop())
            if k is not None and k not in needed:
                needed.add(k)
                todo += self.reads[k]
        return needed

    def stms(self) -> list[Stm]:
        """The first map, the contractions, the second map."""
        crossing, again = self.crossing()
        stms = self.lam.stms
        operands = [self.local_operand(stms[k]) for k in self.wave]
        outside = {v: Var(v.type.array_of(self.op.n), v.hint)
                   for v in dict.fromkeys([*crossing, *operands]) if v in self.maker}
        outside_of = {**dict(zip(self.lam.params, self.op.xs)), **outside}
        out = []
        if outside:
            first = Lambda(self.lam.params, tuple(stms[k] for k in sorted(self.early)), tuple(outside))
            out.append(Stm(tuple(outside.values()), Screma(self.op.n, self.op.xs, first), self.stm.loc))
        inputs = {v: outside[v] for v in crossing}
        for k in self.wave:
            contract = self.batched(stms[k], outside_of)
            out.append(contract)
            inputs[stms[k].vars[0]] = contract.vars[0]
        late = [k for k in range(len(stms)) if k in again or (k not in self.early and k not in self.wave)]
        lam = refresh(Lambda(self.lam.params + tuple(inputs), tuple(stms[k] for k in late), self.lam.results))
        second = replace(self.op, xs=self.op.xs + tuple(inputs.values()), lam=lam)
        return [*out, Stm(self.stm.vars, second, self.stm.loc)]

    def crossing(self) -> tuple[list[Var], set[int]]:
        """Early variables that the second map needs, and the early views it makes again."""
        late = [k for k in range(len(self.lam.stms)) if k not in self.early and k not in self.wave]
        todo: list[Any] = [v for k in late for v in self.reads[k]] + list(self.lam.results)
        values: dict[Var, None] = {}
        again: set[int] = set()
        while todo:
            v = todo.pop()
            k = self.maker.get(v) if isinstance(v, Var) else None
            if k is None or k not in self.early or k in again:
                continue
            op = self.lam.stms[k].op
            if isinstance(op, _VIEWS) and not op.fails():
                again.add(k)
                todo += self.reads[k]
            else:
                values[v] = None
        return sorted(values, key=lambda v: self.maker[v]), again

    def local_operand(self, stm: Stm) -> Var:
        assert isinstance(stm.op, Contract)
        return stm.op.x if stm.op.x in self.local else stm.op.y

    def batched(self, stm: Stm, outside_of: dict[Var, Var]) -> Stm:
        """The contraction with the map's axis in its local operand and in front of its result."""
        op = stm.op
        assert isinstance(op, Contract)
        axis = 1 + max((*op.x_axes, *op.y_axes))
        if op.x in self.local:
            op = replace(op, x=outside_of[op.x], x_axes=(axis, *op.x_axes), out_axes=(axis, *op.out_axes))
        else:
            op = replace(op, y=outside_of[op.y], y_axes=(axis, *op.y_axes), out_axes=(axis, *op.out_axes))
        (t,) = op.infer()
        return Stm((Var(t, stm.vars[0].hint),), op, stm.loc)
