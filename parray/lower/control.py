"""Lowering of Loop, While and Cond.

A carried array lives in memory of the loop's own: that of its initial value where nobody else needs it any more, else
a copy.  The body writes the next value elsewhere and it is copied over at the end of the iteration, unless the body
updated the memory in place (`Scatter` on a dead array), which is the common case of a loop that fills an array.
"""
from __future__ import annotations

from typing import Sequence

from parray import kernels as K
from parray.ir import Atom, Lambda, Stm, Var, free_vars
from parray.kernels import Assign, For, If, Let, Lit, Ref
from parray.lower.core import Lowering, is_small, lower_op
from parray.lower.soacs import memory, serial
from parray.lower.values import Arr, Dest, Lazy, Val
from parray.soacs import Cond, Loop, Screma, While

Dests = Sequence[Dest | None]


def _carry(inits: Sequence[Atom], params: Sequence[Var], dests: Dests, lw: Lowering, *lams: Lambda) -> list[Val]:
    """Memory and names for carried values, holding the initial ones; ``lams`` are what reads while the loop runs."""
    carried: list[Val] = []
    read = memory(lw, [v for lam in lams for v in free_vars(lam)])
    for k, (init, p, d) in enumerate(zip(inits, params, dests)):
        if p.type.is_scalar:
            name = lw.fresh("c")
            lw.emit(Let(name, lw.scalar(init)))
            carried.append(Ref(name, p.type.elem))
        else:
            arr = lw.val(init)
            others = [a for j, a in enumerate(inits) if j != k and isinstance(a, Var)]
            given = isinstance(init, Var) and isinstance(arr, Arr) and d is None and lw.dead(init) and \
                arr.buf.name not in read | memory(lw, others)
            if not given:
                arr = lw.target(p.type, d)
                lw.copy(Dest(arr), lw.val(init))
            carried.append(arr)
    lw.bind(params, carried)
    return carried


def _iterate(lam: Lambda, carried: Sequence[Val], lw: Lowering) -> None:
    """One iteration: the body on the carried values, then the results take their place together."""
    params = lam.params[-len(carried):] if carried else ()
    arrays = [p for p, c in zip(params, carried) if isinstance(c, Arr)]
    dests = [Dest(c) if isinstance(c, Arr) and _elementwise(lam, p, r) else None
             for p, c, r in zip(params, carried, lam.results)]
    results = lw.block(lam, dests, owned=arrays)
    bufs = {c.buf.name for c in carried if isinstance(c, Arr)}
    moved: list[Val] = []
    for old, new, r in zip(carried, results, lam.results):
        if isinstance(old, Arr):
            if isinstance(new, Arr) and new.buf.name in bufs and new != old:
                fresh = lw.alloc(r.type)                        # another carried array: move through fresh memory
                lw.copy(Dest(fresh), new)
                new = fresh
        elif len(carried) > 1:
            name = lw.fresh("t")
            lw.emit(Let(name, new if not isinstance(new, (Arr, Lazy)) else new.load()))
            new = Ref(name, old.elem)
        moved.append(new)
    for old, new in zip(carried, moved):
        if isinstance(old, Arr):
            if new != old:
                lw.copy(Dest(old), new)
        else:
            lw.emit(Assign(old.name, new))


def _elementwise(lam: Lambda, p: Var, r: Atom) -> bool:
    """Whether a map makes the next value of a carried array, each element from the one in its place, which nothing else
    reads: then it may be written over the old one."""
    users = [s for s in lam.stms if p in free_vars(s.op)]
    op = users[0].op if len(users) == 1 else None
    if not isinstance(op, Screma) or op.scans or r not in users[0].vars or lam.results.count(r) > 1 or p in lam.results:
        return False
    rows = [q for q, x in zip(op.lam.params, op.xs) if x == p]
    inner = free_vars(op.lam)
    return p not in inner and all(q.type.is_scalar for q in rows) and users[0].vars.index(r) >= op.red_width


@lower_op.register
def _loop(op: Loop, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    if lw.host and is_small(op.lam, lw):                        # no iteration is worth sharing: one thread runs all
        return serial(lw, stm, lambda ds: _loop(op, lw, stm, ds), dests)
    carried = _carry(op.inits, op.lam.params[1:], dests, lw, op.lam)
    i = Ref(lw.fresh("j"))
    n = lw.size(op.n)
    lw.extent[i.name] = n
    body: list[K.Stm] = []
    lw.emit(For(i.name, n, body))
    lw.env[op.lam.params[0]] = i
    with lw.into(body):
        _iterate(op.lam, carried, lw)
    return carried


@lower_op.register
def _while(op: While, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    if lw.host and is_small(op.lam, lw):
        return serial(lw, stm, lambda ds: _while(op, lw, stm, ds), dests)
    carried = _carry(op.inits, op.lam.params, dests, lw, op.lam, op.cond)
    test: list[K.Stm] = []
    with lw.into(test):
        lw.bind(op.cond.params, carried)
        (cond,) = lw.block(op.cond)
    body: list[K.Stm] = []
    lw.emit(K.While(test, cond, body))
    with lw.into(body):
        _iterate(op.lam, carried, lw)
    return carried


@lower_op.register
def _cond(op: Cond, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    pred = lw.scalar(op.pred)
    outs: list[Val] = []
    for v, d in zip(stm.vars, dests):
        if v.type.is_scalar:
            name = lw.fresh("c")
            lw.emit(Let(name, Lit(0, v.type.elem)))
            outs.append(Ref(name, v.type.elem))
        else:
            outs.append(lw.target(v.type, d))
    branches: list[list[K.Stm]] = []
    for lam in (op.then, op.orelse):
        code: list[K.Stm] = []
        with lw.into(code):
            known = dict(lw.known)
            vals = lw.block(lam, [Dest(o) if isinstance(o, Arr) else None for o in outs])
            for o, value in zip(outs, vals):
                if not isinstance(o, Arr):
                    lw.emit(Assign(o.name, value if not isinstance(value, (Arr, Lazy)) else value.load()))
            lw.known = known
        branches.append(code)
    lw.emit(If(pred, branches[0], branches[1]))
    return outs
