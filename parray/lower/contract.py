"""Lowering of Contract: register tiles (`parray.lower.tiles`) where both operands are used again, else a loop nest.

    rows    for each k:                for j: out[j] += x[k] * y[k, j]
    dots    for each j:                out[j] = sum over k of x[k] * y[j, k]

The innermost loop of rows runs along the result's last axis, which lies contiguous in one operand (``y``) and is not in
the other.  Dots is what remains.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from parray import kernels as K
from parray.ir import Stm
from parray.kernels import Acc, Apply, Assign, Expr, For, If, Let, Lit, Par, Ref
from parray.lower.core import Lowering, combine, lower_op
from parray.lower.soacs import SCALAR_BLOCK, blocks, shared_length
from parray.lower.tiles import Tiles
from parray.lower.values import Arr, Dest, Val
from parray.soacs import Contract
from parray.types import Type, bool_

At = dict[int, Expr]
PANEL = 512                                       # summed elements added one after the other


class Nest:
    """One contraction: operands, axes and the code of a product."""

    def __init__(self, op: Contract, lw: Lowering):
        self.op, self.lw = op, lw
        self.x, self.y = lw.val(op.x), lw.val(op.y)
        self.size = {a: lw.size(s) for a, s in op.sizes().items()}
        self.elem = op.x.type.elem

    def term(self, at: At) -> Expr:
        x = self.x.at(*(at[a] for a in self.op.x_axes)).load()
        y = self.y.at(*(at[a] for a in self.op.y_axes)).load()
        return Apply("mul", (x, y), self.elem, sum=True)

    def unit(self, v: Val, axes: tuple[int, ...], axis: int) -> bool:
        """Whether neighbours along an axis are neighbours in memory."""
        return isinstance(v, Arr) and axis in axes and v.strides[axes.index(axis)] == K.ONE

    def lane(self, out: Arr) -> int | None:
        """The axis of the Rows form, or None."""
        op = self.op
        if not op.out_axes or not op.summed or out.strides[-1] != K.ONE:
            return None
        j = op.out_axes[-1]
        x = self.unit(self.x, op.x_axes, j) and j not in op.y_axes
        y = self.unit(self.y, op.y_axes, j) and j not in op.x_axes
        return j if x or y or (self.unit(self.x, op.x_axes, j) and self.unit(self.y, op.y_axes, j)) else None

    def loops(self, axes: Sequence[int], at: At, body: Callable[[At], None], host: bool = False) -> None:
        """Loops over axes, outermost first; the first is shared among threads when ``host``."""
        if not axes:
            body(at)
            return
        lw = self.lw
        i = Ref(lw.fresh("j"))
        n = self.size[axes[0]]
        lw.extent[i.name] = n
        code: list[K.Stm] = []
        lw.emit(Par(i.name, n, code, loc=lw.loc, what="contract") if host else For(i.name, n, code))
        with lw.into(code), lw.mode(host=False, private=lw.private or host):
            self.loops(axes[1:], at | {axes[0]: i}, body)

    def span(self, axis: int, first: Expr, count: Expr, at: At, body: Callable[[At], None]) -> None:
        """A loop over part of an axis."""
        lw = self.lw
        i = Ref(lw.fresh("j"))
        lw.extent[i.name] = self.size[axis]
        code: list[K.Stm] = []
        lw.emit(For(i.name, count, code))
        with lw.into(code):
            body(at | {axis: i if first == K.ZERO else lw.let(K.add(first, i), "j")})


@lower_op.register
def _contract(op: Contract, lw: Lowering, stm: Stm, dests: Sequence[Dest | None]) -> Sequence[Val]:
    nest = Nest(op, lw)
    if not op.out_axes:
        return [_dot(nest, lw)]
    dest = dests[0] if dests[0] is not None else Dest(lw.alloc(stm.vars[0].type))
    if dest.acc not in (None, "add"):
        dest = Dest(lw.alloc(stm.vars[0].type))
    tiles = Tiles(op, lw, dest.arr)
    if tiles.plan is not None:
        tiles.run(dest)
        return [dest.arr]
    lane = nest.lane(dest.arr)
    host = lw.host
    outer = [a for a in op.out_axes if a != lane]

    def place(at: At, axes: Any) -> Dest:
        order = [at.get(a, K.ZERO) for a in op.out_axes]
        return Dest(dest.arr.at(*order), dest.acc)

    def rows(at: At) -> None:
        assert lane is not None
        first, *rest = op.summed

        def add(start: Expr, count: Expr) -> None:
            def product(at: At) -> None:
                lw.store(Dest(place(at, op.out_axes).arr, "add"), nest.term(at))
            nest.span(first, start, count, at, lambda at: nest.loops([*rest, lane], at, product))
        if dest.acc is None:
            nest.loops([lane], at, lambda at: lw.store(place(at, op.out_axes), Lit(0, nest.elem)))
        _panels(nest, lw, first, lane, [lambda j: place(at | {lane: j}, op.out_axes).arr], add)

    def dots(at: At) -> None:
        lw.store(place(at, op.out_axes), _sum(nest, lw, at))

    if host and not outer:
        from parray.lower.soacs import serial

        def make(dests: Sequence[Dest | None]) -> Sequence[Val]:
            rows({})
            return ()
        serial(lw, stm, make)
    else:
        nest.loops(outer, {}, rows if lane is not None else dots, host)
    return [dest.arr]


def _panels(nest: Nest, lw: Lowering, axis: int, lane: int, places: Sequence[Callable[[Expr], Arr]],
            body: Callable[[Expr, Expr], None]) -> None:
    """``body(first, count)`` adds a part of a summed axis to ``places``: all of it, or panel after panel.

    A sum over several panels is a sum of sums, gathered beside the result: long float sums keep their digits.
    """
    n = nest.size[axis]
    if isinstance(n, Lit) and n.value <= PANEL:
        body(K.ZERO, n)
        return
    op = nest.op
    width = op.sizes()[lane]
    total = lw.alloc(Type(nest.elem, (len(places), width)))

    def if_several(change: Callable[[Arr, Arr], None]) -> None:
        then: list[K.Stm] = []
        lw.emit(If(Apply("lt", (Lit(PANEL), n), bool_), then))

        def each(at: At) -> None:
            for r, place in enumerate(places):
                change(place(at[lane]), total.at(Lit(r), at[lane]))
        with lw.into(then):
            nest.loops([lane], {}, each)

    def gather(acc: str | None) -> Callable[[Arr, Arr], None]:
        def change(out: Arr, total: Arr) -> None:
            lw.store(Dest(total, acc), out.load())
            lw.store(Dest(out), Lit(0, nest.elem))
        return change
    if_several(gather(None))
    p = Ref(lw.fresh("j"))
    code: list[K.Stm] = []
    lw.emit(For(p.name, blocks(n, PANEL), code))
    with lw.into(code):
        first = lw.let(K.mul(p, Lit(PANEL)), "j")
        body(first, lw.let(K.minimum(Lit(PANEL), K.sub(n, first)), "j"))
        if_several(gather("add"))
    if_several(lambda out, total: lw.store(Dest(out), total.load()))


def _sum(nest: Nest, lw: Lowering, at: At) -> Expr:
    """The summed axes by one accumulator; long ones in blocks."""
    if not nest.op.summed:
        return nest.term(at)
    acc = Ref(lw.fresh("acc"), nest.elem)
    lw.emit(Let(acc.name, Lit(0, nest.elem)))
    *outer, last = nest.op.summed
    nest.loops(outer, at, lambda at: _sum_last(nest, lw, at, last, acc))
    return acc


def _sum_last(nest: Nest, lw: Lowering, at: At, last: int, acc: Ref) -> None:
    n = nest.size[last]
    if isinstance(n, Lit) and n.value <= SCALAR_BLOCK:
        nest.loops([last], at, lambda at: lw.emit(Assign(acc.name, combine("add", acc, nest.term(at)))))
        return
    b = Ref(lw.fresh("j"))
    body: list[K.Stm] = []
    lw.emit(For(b.name, blocks(n, SCALAR_BLOCK), body))
    with lw.into(body):
        _sum_block(nest, lw, at, last, acc, b, Lit(SCALAR_BLOCK))


def _sum_block(nest: Nest, lw: Lowering, at: At, last: int, acc: Ref, b: Ref, length: Expr) -> None:
    n = nest.size[last]
    part = Ref(lw.fresh("acc"), nest.elem)
    lw.emit(Let(part.name, Lit(0, nest.elem)))
    first = lw.let(K.mul(b, length))
    j = Ref(lw.fresh("j"))
    inner: list[K.Stm] = []
    lw.emit(For(j.name, K.minimum(length, K.sub(n, first)), inner))
    with lw.into(inner):
        k = lw.let(K.add(first, j), "j")
        lw.emit(Assign(part.name, combine("add", part, nest.term(at | {last: k}))))
    lw.emit(Assign(acc.name, combine("add", acc, part)))


def _dot(nest: Nest, lw: Lowering) -> Expr:
    """A contraction to a scalar; on the host level its first axis is shared among threads."""
    first, *rest = nest.op.summed
    if not lw.host:
        return _sum(nest, lw, {})
    acc = Acc(lw.fresh("acc"), lw.fresh("part"), Lit(0, nest.elem))
    total, other = Ref(acc.name, nest.elem), Ref(acc.other, nest.elem)
    b = Ref(lw.fresh("j"))
    length = shared_length(lw, nest.size[first], SCALAR_BLOCK)
    par = Par(b.name, nest.size[first] if rest else blocks(nest.size[first], length), [], [acc],
              [Assign(acc.name, combine("add", total, other))], loc=lw.loc, what="contract")
    with lw.into(par.body), lw.mode(host=False, private=True):
        if rest:
            *outer, last = rest
            nest.loops(outer, {first: b}, lambda at: _sum_last(nest, lw, at, last, total))
        else:
            _sum_block(nest, lw, {}, first, total, b, length)
    lw.emit(par)
    return total
