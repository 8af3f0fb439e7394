"""Indexing by the parameter of an iota becomes an input of the map: `tabulate` turns into maps over its arrays.

    map (\\i -> .. q[i] ..) (iota n)             =>  map (\\i q_i -> .. q_i ..) (iota n) q
    map (\\w_k -> .. w_k[j] ..) w                =>  map (\\w_kj -> .. w_kj ..) (transpose w)[j]

The second law gives columns to the map around it, to which the first law applies.  With both, differentiation sees
inputs (whose cotangents are maps) instead of indexing (whose cotangent is a scatter), and contractions are found.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable

from parray.ir import Const, Lambda, Op, Stm, Var, lambdas
from parray.simplify.engine import Simplifier, rule, with_lambdas
from parray.soacs import Index, Scatter, Screma, Transpose


@rule(Screma, Scatter)
def index_by_iota(op: Any, s: Simplifier) -> Op | None:
    """map (\\i -> .. x[i, j] ..) (iota n)  =>  map (\\i xi -> .. xi[j] ..) (iota n) x  where x has n rows"""
    counters = {p for p, x in zip(op.lam.params, op.xs) if s.extent(x) == op.n}
    if not counters:
        return None
    inputs: dict[Var, Var] = {}

    def matches(index: Index) -> Var | None:
        i, x = index.indices[0], index.x
        if i not in counters or x.type.shape[0] != op.n or not s.outside(x):
            return None
        if x not in inputs:
            inputs[x] = Var(x.type.row(), x.hint)
        return inputs[x]

    return _with_inputs(op, _without_index(op.lam, matches, s), inputs)


@rule(Screma, Scatter)
def column_of_input(op: Any, s: Simplifier) -> Op | None:
    """map (\\xk -> .. xk[j] ..) x  =>  map (\\xkj -> .. xkj ..) (transpose x)[j]  where j is bound outside"""
    arrays = {p: x for p, x in zip(op.lam.params, op.xs) if x.type.rank > 1}
    if not arrays:
        return None
    found: dict[Any, Var] = {}

    def matches(index: Index) -> Var | None:
        p, j = index.x, index.indices[0]
        if p not in arrays or not index.safe or isinstance(j, Const) or not s.outside(j):
            return None
        if (p, j) not in found:
            found[p, j] = Var(p.type.row(), p.hint)
        return found[p, j]

    lam = _without_index(op.lam, matches, s)
    inputs: dict[Var, Var] = {}
    for (p, j), q in found.items():
        x = arrays[p]
        turned = s.emit1(Transpose(x, (1, 0, *range(2, x.type.rank))), x.hint)
        inputs[s.emit1(Index(turned, (j,), True), x.hint)] = q     # type: ignore[arg-type,index]
    return _with_inputs(op, lam, inputs)


def _with_inputs(op: Any, lam: Lambda, inputs: dict[Var, Var]) -> Op | None:
    """The map with this lambda and more inputs; None when there are none."""
    if not inputs:
        return None
    lam = Lambda(lam.params + tuple(inputs.values()), lam.stms, lam.results)
    new: Op = dataclasses.replace(op, xs=op.xs + tuple(inputs), lam=lam)
    return new


def _without_index(lam: Lambda, matches: Callable[[Index], Var | None], s: Simplifier) -> Lambda:
    """The lambda where every matching ``x[i, rest]`` has become ``p[rest]``."""
    stms: list[Stm] = []
    for stm in lam.stms:
        if isinstance(stm.op, Index):
            p = matches(stm.op)
            if p is not None:
                rest = stm.op.indices[1:]
                if not rest:
                    s.env[stm.vars[0]] = p
                    continue
                stm = Stm(stm.vars, Index(p, rest, stm.op.safe), stm.loc)
        elif any(True for _ in lambdas(stm.op)):
            new = with_lambdas(stm.op, lambda inner: _without_index(inner, matches, s))
            stm = stm if new is stm.op else Stm(stm.vars, new, stm.loc)
        stms.append(stm)
    if len(stms) == len(lam.stms) and all(a is b for a, b in zip(stms, lam.stms)):
        return lam
    return Lambda(lam.params, tuple(stms), lam.results)


RULES = (index_by_iota, column_of_input)
