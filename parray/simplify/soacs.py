"""Rules of map/scan/reduce, scatter, loops and branches."""
from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from parray.ir import Atom, Const, Lambda, Monoid, Op, Stm, Var
from parray.simplify.engine import Simplifier, rule
from parray.simplify.keys import lambda_key
from parray.soacs import Cond, Index, Loop, Prim, Replicate, Reshape, Scatter, Screma, While
from parray.types import Type, i64

_CHEAP = 8                      # a branch of at most this many scalar primitives is computed rather than jumped to


# --- inputs ----------------------------------------------------------------------------------------------------------

@rule(Screma, Scatter, early=True)
def input_of_replicate(op: Any, s: Simplifier) -> Op | None:
    """map (\\x y -> e) (replicate n c) ys  =>  map (\\y -> e[c/x]) ys"""
    made = {k: r for k, r in enumerate(map(s.producer, op.xs)) if isinstance(r, Replicate)}
    for k, r in made.items():
        s.env[op.lam.params[k]] = r.x
    return without_inputs(op, set(made)) if made else None


@rule(Screma, Scatter, early=True)
def input_twice(op: Any, s: Simplifier) -> Op | None:
    """map (\\x y -> e) xs xs  =>  map (\\x -> e[x/y]) xs"""
    first: dict[Var, Var] = {}
    again = set()
    for k, (x, p) in enumerate(zip(op.xs, op.lam.params)):
        if first.setdefault(x, p) is not p:
            s.env[p] = first[x]
            again.add(k)
    return without_inputs(op, again) if again else None


@rule(Screma, Scatter, early=True)
def input_of_unit_reshape(op: Any, s: Simplifier) -> Op | None:
    """map (\\r -> e) (reshape x to [n, 1, m])  =>  map (\\q -> e[reshape q to [1, m] / r]) x  where x is [n, m]"""
    for k, x in enumerate(op.xs):
        made, p = s.producer(x), op.lam.params[k]
        if not isinstance(made, Reshape) or made.x.type.shape[0] != op.n or not _only_ones(made):
            continue
        q = Var(made.x.type.row(), p.hint)
        stms, row = [], q
        for n in reversed(p.type.shape) if q.type.is_scalar else ():
            stms.append(Stm((Var(row.type.array_of(n)),), Replicate(n, row), s.loc))
            row = stms[-1].vars[0]
        if not q.type.is_scalar:
            stms.append(Stm((Var(p.type, p.hint),), Reshape(q, p.type.shape), s.loc))
        s.env[p] = stms[-1].vars[0]
        params = (*op.lam.params[:k], q, *op.lam.params[k + 1:])
        lam = Lambda(params, (*stms, *op.lam.stms), op.lam.results)
        new: Op = dataclasses.replace(op, xs=(*op.xs[:k], made.x, *op.xs[k + 1:]), lam=lam)
        return new
    return None


def _only_ones(op: Reshape) -> bool:
    """Whether the reshape adds and removes dimensions of size 1 behind the first, and does nothing else."""
    old, new = op.x.type.shape, op.shape
    return old[0] == new[0] and [n for n in old[1:] if n != 1] == [n for n in new[1:] if n != 1]


def without_inputs(op: Any, drop: set[int]) -> Any:
    """The map without some inputs, whose parameters are no longer used."""
    def kept(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(v for k, v in enumerate(values) if k not in drop)
    lam = Lambda(kept(op.lam.params), op.lam.stms, op.lam.results)
    return dataclasses.replace(op, xs=kept(op.xs), lam=lam)


# --- results ---------------------------------------------------------------------------------------------------------

@rule(Screma)
def trivial_result(op: Screma, s: Simplifier) -> Sequence[Atom] | None:
    """map (\\x -> x, c, e, e) xs  =>  xs, replicate n c, e', e'  where (e') = map (\\x -> e) xs"""
    lam, start = op.lam, op.scan_width + op.red_width
    inputs: dict[Atom, Var] = dict(zip(lam.params, op.xs))
    outs: dict[int, Atom] = {}
    first: dict[Atom, int] = {}
    for k in range(start, len(lam.results)):
        r = lam.results[k]
        if r in inputs:
            outs[k] = inputs[r]
        elif s.outside(r):
            outs[k] = s.emit1(Replicate(op.n, r))
        else:
            first.setdefault(r, k)
    kept = list(range(start)) + sorted(first.values())
    if len(kept) == len(lam.results):
        return None
    rest = Lambda(lam.params, lam.stms, tuple(lam.results[k] for k in kept))
    if rest.results or s.may_fail(op):
        outs.update(zip(kept, s.emit(dataclasses.replace(op, lam=rest), "v")))
    return [outs[k] if k in outs else outs[first[r]] for k, r in enumerate(lam.results)]


@rule(Screma)
def operator_twice(op: Screma, s: Simplifier) -> Sequence[Atom] | None:
    """screma (\\x -> e, e) (reduce f) (reduce f) xs  =>  r, r  where r = screma (\\x -> e) (reduce f) xs"""
    first: dict[Any, int] = {}                                      # the place of each operator's first result
    same: list[int] = []                                            # for every result, the one it is equal to
    kept: list[list[Monoid]] = [[], []]
    for k, (m, operands) in enumerate(zip(op.scans + op.reds, op.groups(op.lam.results))):
        scan = k < len(op.scans)
        start = first.setdefault((scan, lambda_key(m.op), m.ne, operands), len(same))
        if start == len(same):
            kept[not scan].append(m)
        same += range(start, start + m.width)
    if all(k == other for k, other in enumerate(same)):
        return None
    same += range(len(same), len(op.lam.results))
    places = sorted(set(same))
    lam = Lambda(op.lam.params, op.lam.stms, tuple(op.lam.results[k] for k in places))
    outs = s.emit(Screma(op.n, op.xs, lam, *map(tuple, kept)), "v")
    return [outs[places.index(k)] for k in same]


@rule(Screma)
def empty_map(op: Screma, s: Simplifier) -> Sequence[Atom] | None:
    """map f of nothing  =>  [];  reduce op ne []  =>  ne"""
    if op.n != 0:
        return None
    outs: list[Atom] = []
    for t in op.infer()[:op.scan_width]:
        outs.append(_zeros(t, s))
    outs += [a for m in op.reds for a in m.ne]
    for t in op.infer()[op.scan_width + op.red_width:]:
        outs.append(_zeros(t, s))
    return outs


def _zeros(t: Type, s: Simplifier) -> Atom:
    x: Atom = Const(0, t.elem)
    for n in reversed(t.shape):
        x = s.emit1(Replicate(n, x))
    return x


@rule(Screma)
def single_map(op: Screma, s: Simplifier) -> Sequence[Atom] | None:
    """map f [x]  =>  [f x];  reduce op ne (map f [x])  =>  op ne (f x)"""
    if op.n != 1:
        return None
    rows = [s.emit1(Index(x, (Const(0, i64),), True)) for x in op.xs]
    values = s.inline(op.lam, rows)
    combined = [v for m, vs in zip(op.scans + op.reds, op.groups(values)) for v in s.inline(m.op, (*m.ne, *vs))]
    scans, reds = combined[:op.scan_width], combined[op.scan_width:]
    maps = values[len(combined):]
    return [*(s.emit1(Replicate(1, v)) for v in scans), *reds, *(s.emit1(Replicate(1, v)) for v in maps)]


@rule(Scatter)
def empty_scatter(op: Scatter, s: Simplifier) -> Sequence[Atom] | None:
    """scatter dest of nothing  =>  dest"""
    return op.dests if op.n == 0 else None


# --- loops -----------------------------------------------------------------------------------------------------------

@rule(Loop, early=True)
def empty_loop(op: Loop, s: Simplifier) -> Sequence[Atom] | None:
    """loop 0 f x  =>  x"""
    return op.inits if isinstance(op.n, int) and op.n <= 0 else None


@rule(Loop, early=True)
def single_loop(op: Loop, s: Simplifier) -> Sequence[Atom] | None:
    """loop 1 f x  =>  f 0 x"""
    return s.inline(op.lam, (Const(0, i64), *op.inits)) if op.n == 1 and not op.kept else None


@rule(Loop)
def constant_carried(op: Loop, s: Simplifier) -> Sequence[Atom] | None:
    """loop n (\\i a b -> a, e) x y  =>  x, loop n (\\i b -> e[x/a]) y"""
    fixed = _fixed(op.lam.params[1:], op.inits, op.lam.results)
    if not fixed:
        return None
    return _without_carried(op, s, fixed, 1)


@rule(While)
def constant_carried_while(op: While, s: Simplifier) -> Sequence[Atom] | None:
    """while c (\\a b -> a, e) x y  =>  x, while c[x/a] (\\b -> e[x/a]) y"""
    fixed = _fixed(op.lam.params, op.inits, op.lam.results)
    if not fixed:
        return None
    for k in fixed:
        s.env[op.cond.params[k]] = op.inits[k]
    cond = Lambda(tuple(p for k, p in enumerate(op.cond.params) if k not in fixed), op.cond.stms, op.cond.results)
    return _without_carried(dataclasses.replace(op, cond=cond), s, fixed, 0)


def _fixed(params: Sequence[Var], inits: Sequence[Atom], results: Sequence[Atom]) -> set[int]:
    """Carried values that never change."""
    return {k for k, (p, a, r) in enumerate(zip(params, inits, results)) if r is p or r == a}


def _without_carried(op: Any, s: Simplifier, fixed: set[int], first: int) -> list[Atom]:
    """The loop with the fixed values substituted; the atoms of all its results."""
    def kept(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(v for k, v in enumerate(values) if k not in fixed)
    for k in fixed:
        s.env[op.lam.params[first + k]] = op.inits[k]
    lam = Lambda(op.lam.params[:first] + kept(op.lam.params[first:]), op.lam.stms, kept(op.lam.results))
    rest = iter(s.emit(dataclasses.replace(op, lam=lam, inits=kept(op.inits)), "v"))
    return [a if k in fixed else next(rest) for k, a in enumerate(op.inits)]


# --- branches --------------------------------------------------------------------------------------------------------

@rule(Cond, early=True)
def decided_branch(op: Cond, s: Simplifier) -> Sequence[Atom] | None:
    """if True then e else f  =>  e"""
    return s.inline(op.then if op.pred.value else op.orelse, ()) if isinstance(op.pred, Const) else None


@rule(Cond)
def cheap_branches(op: Cond, s: Simplifier) -> Sequence[Atom] | None:
    """if c then e else f  =>  select c e f  for a few scalar primitives that cannot fail"""
    branches = (op.then, op.orelse)
    stms = [stm for b in branches for stm in b.stms]
    cheap = all(isinstance(stm.op, Prim) and not stm.op.fails() for stm in stms) and len(stms) <= 2 * _CHEAP
    if not cheap or not all(t.is_scalar for t in op.infer()):
        return None
    then, orelse = (s.inline(b, ()) for b in branches)
    return [s.emit1(Prim.of("select", (op.pred, x, y))) for x, y in zip(then, orelse)]


@rule(Cond)
def equal_results(op: Cond, s: Simplifier) -> Sequence[Atom] | None:
    """if c then (x, e) else (x, f)  =>  x, if c then e else f"""
    pairs = list(zip(op.then.results, op.orelse.results))
    same = {k for k, (x, y) in enumerate(pairs) if x == y and s.outside(x)}
    if not same:
        return None
    then, orelse = (Lambda((), b.stms, tuple(r for k, r in enumerate(b.results) if k not in same))
                    for b in (op.then, op.orelse))
    needed = len(same) < len(pairs) or s.may_fail(op)
    rest = iter(s.emit(Cond(op.pred, then, orelse), "v") if needed else ())
    return [x if k in same else next(rest) for k, (x, _) in enumerate(pairs)]


RULES = (input_of_replicate, input_twice, input_of_unit_reshape, trivial_result, operator_twice, empty_map,
         single_map, empty_scatter, empty_loop, single_loop, constant_carried, constant_carried_while, decided_branch,
         cheap_branches, equal_results)
