"""Contractions: map nests around a sum of products become `Contract` nodes, however they were spelled.

    map (\\w -> reduce (+) 0 (map2 (*) w x)) ws                     =>  contract ws x "mn,n->m"
    reduce (map2 (+)) 0 (map (\\y x -> outer y x) ys xs)            =>  contract ys xs "tm,tn->mn"
    map (\\x -> .. contract w (f x) .. ) xs                         =>  contract w (map f xs) "mn,tn->tm", map ..

    notation.py   what statements compute, in index notation
    pull.py       sums of products taken out of the nests they stand in
    split.py      a map parted at a contraction inside it, so that the contraction has the map's axis too
    overlap.py    gradients of convolutions

A contraction needs reuse: some axis of the result is missing in an operand, which then is read again and again along
it.  An elementwise product summed (a dot product, or one for each row) has none; it stays a reduction and fuses with
its neighbours.  Only float sums with neutral element 0 are recognised, and only products of exactly two factors as
written: nothing is pulled out of a sum, for that would round differently.  Runs before fusion, level by level from the
outside in.
"""
from __future__ import annotations

from parray.contractions.notation import Known
from parray.contractions.overlap import merged
from parray.contractions.pull import pull
from parray.contractions.split import split
from parray.ir import Lambda, Op, Stm, Var, each_op, lambdas, map_op
from parray.simplify.dead import remove_dead
from parray.soacs import Contract, Iota, Replicate, Screma

_ROUNDS = 12


def recognise(lam: Lambda) -> Lambda:
    """The lambda with its contractions as single nodes."""
    done: dict[int, Lambda] = {}
    for _ in range(_ROUNDS):
        new = remove_dead(_body(lam, known(lam), done))
        if new is lam:
            break
        lam = new
    return lam


def convolutions(lam: Lambda) -> Lambda:
    """The lambda with sums of products of windows as contractions, and no others: for differentiation, whose rule for a
    contraction gives contractions, where element by element it would give sums of shifted arrays."""
    found = known(lam)

    def body(lam: Lambda) -> Lambda:
        while (pulled := pull(lam, found, windows=True)) is not lam:
            lam = remove_dead(pulled)
        stms = tuple(Stm(s.vars, map_op(s.op, lambda a: a, body), s.loc) if lambdas(s.op) else s for s in lam.stms)
        return lam if all(a.op is b.op for a, b in zip(stms, lam.stms)) else Lambda(lam.params, stms, lam.results)
    return body(lam)


def known(lam: Lambda) -> Known:
    """The constructors, anywhere in the lambda, that neutral elements and counters come from."""
    found: dict[Var, Op] = {}

    def walk(body: Lambda) -> None:
        for stm in body.stms:
            if isinstance(stm.op, (Iota, Replicate)):
                found[stm.vars[0]] = stm.op
            for inner in lambdas(stm.op):
                walk(inner)
    walk(lam)
    return found


def _sums(lam: Lambda) -> bool:
    """Whether there is anything to recognise."""
    return any(isinstance(op, Contract) or isinstance(op, Screma) and op.reds for op in each_op(lam))


def _body(lam: Lambda, found: Known, done: dict[int, Lambda]) -> Lambda:
    """One round on a body: out of its nests, inside its nests, and nests parted at what was found inside.
    ``done`` holds, by identity, the bodies with nothing left to find."""
    if id(lam) in done or not _sums(lam):
        return lam
    start = lam
    while (pulled := pull(lam, found)) is not lam:
        lam = remove_dead(pulled)
    stms: list[Stm] = []
    for stm in lam.stms:
        op = _inside(stm.op, found, done)
        stm = stm if op is stm.op else Stm(stm.vars, op, stm.loc)
        stms += split(stm) if isinstance(op, Screma) else [stm]
    stms = merged(stms)
    if len(stms) != len(lam.stms) or any(a is not b for a, b in zip(stms, lam.stms)):
        return Lambda(lam.params, tuple(stms), lam.results)
    if lam is start:
        done[id(lam)] = lam
    return lam


def _inside(op: Op, found: Known, done: dict[int, Lambda]) -> Op:
    changed = False

    def inner(body: Lambda) -> Lambda:
        nonlocal changed
        new = _body(body, found, done)
        changed = changed or new is not body
        return new

    new = map_op(op, lambda a: a, inner)
    return new if changed else op


__all__ = ["convolutions", "recognise"]
