"""While loops in a map run in lock step, a block of elements at a time: a pass for targets with vectors.

    map n (\\x. after (while c f (before x))) xs
        =>  map blocks (\\b. let s    = map LANES before (the block's xs)
                               s' = while (some lane is live) (map LANES (\\s. if live then f s else s)) s

Each element iterates as often as before, and its state is left alone from then on; but the lanes of a block go through
one loop without branches, which becomes vectors.  Only loops of scalars that cannot fail: a lane that has ended still
computes, and its values are thrown away.
"""
from __future__ import annotations

from typing import Any, Sequence

from parray import builder as b
from parray.ir import (Atom, Const, Lambda, Monoid, Stm, Substitution, Var, free_vars, lambdas, map_op, refresh,
                       size_atom)
from parray.soacs import Index, Iota, Prim, Replicate, Reshape, Screma, Slice, Transpose, While
from parray.types import Type, i32, i64

LANES = 32                                        # two vectors of the widest registers, so that one waits less
_PLAIN = (Index, Iota, Prim, Replicate, Reshape, Slice, Transpose)
_ZERO, _ONE = Const(0, i32), Const(1, i32)
_LIVE = Type(i32)


def lockstep(lam: Lambda) -> Lambda:
    """The pass."""
    stms: list[Stm] = []
    for stm in lam.stms:
        op = map_op(stm.op, lambda a: a, lockstep) if lambdas(stm.op) else stm.op
        stm = stm if op is stm.op else Stm(stm.vars, op, stm.loc)
        stms += _blocks(stm)
    same = len(stms) == len(lam.stms) and all(x is y for x, y in zip(stms, lam.stms))
    return lam if same else Lambda(lam.params, tuple(stms), lam.results)


def _suits(loop: While) -> bool:
    """Whether a loop is arithmetic on scalars that cannot fail."""
    inner = [s.op for l in (loop.cond, loop.lam) for s in l.stms]
    scalars = all(p.type.is_scalar for p in loop.lam.params)
    return scalars and bool(loop.inits) and all(isinstance(op, (Prim, Index)) and not op.fails() for op in inner)


def _blocks(stm: Stm) -> list[Stm]:
    """The statement, or what runs its loop in lock step."""
    op = stm.op
    if not isinstance(op, Screma) or not op.is_map or isinstance(op.n, int) and op.n <= LANES:
        return [stm]
    at = next((k for k, s in enumerate(op.lam.stms) if isinstance(s.op, While)), None)
    if at is None or not all(r.type.is_scalar for r in op.lam.results):
        return [stm]
    loop: Any = op.lam.stms[at].op
    before, after = op.lam.stms[:at], op.lam.stms[at + 1:]
    if not _suits(loop) or any(s.op.fails() or not isinstance(s.op, _PLAIN) for s in before):
        return [stm]
    local = {*op.lam.params, *(v for s in before for v in s.vars)}
    needed: dict[Var, None] = {}
    for part in (loop.cond, loop.lam, Lambda((), after, op.lam.results)):
        needed.update((v, None) for v in free_vars(part) if v in local)
    if not all(v.type.is_scalar for v in needed):
        return [stm]
    with b.scope(root=True) as s, b.at(stm.loc):
        results = _lanes(op, before, op.lam.stms[at], after, list(needed))
    names = dict(zip(results, stm.vars))
    return [Stm(tuple(names.get(v, v) for v in t.vars), t.op, t.loc) for t in s.stms]


def _lanes(op: Screma, before: Sequence[Stm], loop: Stm, after: Sequence[Stm], needed: list[Var]) -> list[Var]:
    """Emit the map over blocks, and cut its results to the map's length."""
    n = size_atom(op.n)
    count = b.size_prim("floordiv", b.size_add(op.n, LANES - 1), LANES)
    lanes = b.iota(LANES)

    def block(k: Atom) -> Sequence[Atom]:
        first, last = b.prim("mul", k, size_atom(LANES)), b.prim("sub", n, Const(1, i64))
        return _block(op, before, loop, after, needed, lanes,
                      lambda l: b.prim("min", b.prim("add", first, l), last))
    made = b.map_(block, b.iota(count))
    out = []
    for v in made:
        flat = b.emit1(Reshape(v, (b.size_mul(count, LANES),)))
        out.append(b.emit1(Slice(flat, (Const(0, i64),), (op.n,), (1,))))
    return out


def _block(op: Screma, before: Sequence[Stm], loop: Stm, after: Sequence[Stm], needed: list[Var], lanes: Var,
           place: Any) -> tuple[Var, ...]:
    """Emit one block: what stands before the loop, the loop, and what stands after it, each for all lanes."""
    what: Any = loop.op

    def start(l: Atom) -> Sequence[Atom]:
        i = place(l)
        xs = [b.index(x, i, safe=True) for x in op.xs]
        begun = refresh(Lambda(op.lam.params, tuple(before), (*what.inits, *needed)))
        state = b.inline(begun, xs)
        env = dict(zip(needed, state[len(what.inits):]))
        (live,) = b.inline(Substitution(dict(env)).lam(what.cond), state[:len(what.inits)])
        return [b.select(live, _ONE, _ZERO), *state]
    live, *made = b.map_(start, lanes)
    state, seen = made[:len(what.inits)], made[len(what.inits):]

    def step(on: Atom, *values: Atom) -> Sequence[Atom]:
        old, more = values[:len(state)], values[len(state):]
        env = dict(zip(needed, more))
        test = b.prim("ne", on, _ZERO)
        new = b.inline(Substitution(dict(env)).lam(what.lam), old)
        kept = [b.select(test, y, x) for x, y in zip(old, new)]
        (again,) = b.inline(Substitution(dict(env)).lam(what.cond), kept)
        on = b.select(b.prim("and", test, again), _ONE, _ZERO)
        return [on, on, *kept]

    def some(flags: Var) -> Var:
        return b.reduce_(_any(), flags)[0]

    types = [_LIVE, live.type, *(v.type for v in state)]
    cond = b.make_lambda(types, lambda any_, *_: (b.prim("ne", any_, _ZERO),))
    body = b.make_lambda(types, lambda any_, on, *values: b.screma(
        LANES, (on, *values, *seen), b.make_lambda(
            [x.type.row() for x in (on, *values, *seen)], step), reds=(_any(),)))
    _, _, *final = b.emit(While(cond, body, (some(live), live, *state)))

    def finish(*values: Atom) -> Sequence[Atom]:
        env = dict(zip(loop.vars, values)) | dict(zip(needed, values[len(state):]))
        return b.inline(Substitution(env).lam(Lambda((), tuple(after), op.lam.results)), ())
    return b.map_(finish, *final, *seen)


def _any() -> Monoid:
    """``or`` of flags."""
    op = b.make_lambda((_LIVE, _LIVE), lambda x, y: (b.prim("or", x, y),))
    return Monoid(op, (_ZERO,), True)


__all__ = ["lockstep"]
