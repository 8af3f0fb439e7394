"""Lowering of Argsort: a bottom-up merge sort of places.

    width 1, 2, 4, ..:   every pair of sorted runs of that width becomes one, from one half of the memory to the other

Merging is stable (the left run wins between equals) and branch-free but for its loop; one thread does it.
"""
from __future__ import annotations

from typing import Callable, Sequence

from parray import kernels as K
from parray.ir import Stm
from parray.kernels import Apply, Assign, Expr, For, Let, Lit, Ref, While
from parray.lower.core import Lowering, lower_op
from parray.lower.soacs import serial
from parray.lower.values import Arr, Dest, Val
from parray.soacs import Argsort
from parray.types import Type, bool_, i64


@lower_op.register
def _argsort(op: Argsort, lw: Lowering, stm: Stm, dests: Sequence[Dest | None]) -> Sequence[Val]:
    if lw.host:
        return serial(lw, stm, lambda ds: _argsort(op, lw, stm, ds), dests)
    keys = [lw.materialise(lw.val(k), k.type) for k in op.keys]
    n = lw.size(op.n)
    out = lw.target(stm.vars[0].type, dests[0])
    runs = lw.alloc(Type(i64, (2, op.n)))
    _fill(lw, n, lambda i: lw.store(Dest(runs.at(K.ZERO, i)), i))
    width, half = Ref(lw.fresh("w")), Ref(lw.fresh("h"))
    lw.emit(Let(width.name, K.ONE))
    lw.emit(Let(half.name, K.ZERO))
    body: list[K.Stm] = []
    lw.emit(While([], Apply("lt", (width, n), bool_), body))
    with lw.into(body):
        twice = lw.let(K.mul(width, Lit(2)))
        pairs = Apply("floordiv", (K.sub(K.add(n, twice), K.ONE), twice), i64)
        _fill(lw, pairs, lambda p: _merge(lw, keys, runs, n, half, width, lw.let(K.mul(p, twice))))
        lw.emit(Assign(width.name, twice))
        lw.emit(Assign(half.name, K.sub(K.ONE, half)))
    dest = Dest(out, dests[0].acc if dests[0] is not None and dests[0].arr is out else None)
    _fill(lw, n, lambda i: lw.store(dest.at(i), runs.at(half, i).load()))
    return [out]


def _fill(lw: Lowering, n: Expr, body: Callable[[Expr], None]) -> None:
    """A loop over ``n``."""
    i = Ref(lw.fresh("j"))
    code: list[K.Stm] = []
    lw.emit(For(i.name, n, code))
    with lw.into(code):
        body(i)


def _merge(lw: Lowering, keys: Sequence[Arr], runs: Arr, n: Expr, half: Expr, width: Expr, low: Expr) -> None:
    """Merge the runs at ``low`` and ``low + width`` from one half to the other."""
    middle = lw.let(K.minimum(K.add(low, width), n))
    high = lw.let(K.minimum(K.add(middle, width), n))
    other = lw.let(K.sub(K.ONE, half))
    last = lw.let(K.sub(n, K.ONE))
    left, right = Ref(lw.fresh("l")), Ref(lw.fresh("r"))
    lw.emit(Let(left.name, low))
    lw.emit(Let(right.name, middle))

    def step(k: Expr) -> None:
        a = lw.let(runs.at(half, K.minimum(left, last)).load())
        b = lw.let(runs.at(half, K.minimum(right, last)).load())
        smaller = before(lw, [key.at(b).load() for key in keys], [key.at(a).load() for key in keys])
        keep = K.either(Apply("ge", (right, high), bool_), Apply("not", (smaller,), bool_))
        first = lw.let(K.both(Apply("lt", (left, middle), bool_), keep))
        lw.store(Dest(runs.at(other, lw.let(K.add(low, k)))), Apply("select", (first, a, b), i64))
        lw.emit(Assign(left.name, K.add(left, Apply("select", (first, K.ONE, K.ZERO), i64))))
        lw.emit(Assign(right.name, K.add(right, Apply("select", (first, K.ZERO, K.ONE), i64))))
    _fill(lw, lw.let(K.sub(high, low)), step)


def before(lw: Lowering, xs: Sequence[Expr], ys: Sequence[Expr]) -> Expr:
    """Whether the keys ``xs`` come before ``ys``."""
    result: Expr = Lit(False, bool_)
    for x, y in reversed(list(zip(xs, ys))):
        x, y = lw.let(x, "x"), lw.let(y, "x")
        less: Expr = Apply("lt", (x, y), bool_)
        equal: Expr = Apply("eq", (x, y), bool_)
        if x.elem.is_float:
            no_x, no_y = Apply("isnan", (x,), bool_), Apply("isnan", (y,), bool_)
            less = K.either(less, K.both(no_y, Apply("not", (no_x,), bool_)))
            equal = K.either(equal, K.both(no_x, no_y))
        result = lw.let(K.either(less, K.both(equal, result)))
    return result
