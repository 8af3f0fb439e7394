"""Lowering of Contract: a loop nest whose order suits vectors.

Two forms.  *Rows*: the innermost loop runs along the result's last axis, which lies contiguous in one operand and not
in the other: ``out[j] += a * y[j]``, no horizontal sums.  *Dots*: the innermost loop runs along a summed axis,
``acc += x[k] * y[k]``, where both operands are contiguous.  Rows is taken where it applies.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from parray import kernels as K
from parray.ir import Stm
from parray.kernels import Acc, Apply, Assign, Expr, For, Let, Lit, Par, Ref
from parray.lower.core import Lowering, combine, lower_op
from parray.lower.soacs import SCALAR_BLOCK, blocks
from parray.lower.values import Arr, Dest, Val
from parray.soacs import Contract

At = dict[int, Expr]


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


@lower_op.register
def _contract(op: Contract, lw: Lowering, stm: Stm, dests: Sequence[Dest | None]) -> Sequence[Val]:
    nest = Nest(op, lw)
    if not op.out_axes:
        return [_dot(nest, lw)]
    dest = dests[0] if dests[0] is not None else Dest(lw.alloc(stm.vars[0].type))
    if dest.acc not in (None, "add"):
        dest = Dest(lw.alloc(stm.vars[0].type))
    lane = nest.lane(dest.arr)
    host = lw.host
    outer = [a for a in op.out_axes if a != lane]

    def place(at: At, axes: Any) -> Dest:
        order = [at.get(a, K.ZERO) for a in op.out_axes]
        return Dest(dest.arr.at(*order), dest.acc)

    def rows(at: At) -> None:
        assert lane is not None
        if dest.acc is None:
            nest.loops([lane], at, lambda at: lw.store(place(at, op.out_axes), Lit(0, nest.elem)))
        nest.loops([*op.summed, lane], at, lambda at: lw.store(Dest(place(at, op.out_axes).arr, "add"), nest.term(at)))

    def dots(at: At) -> None:
        lw.store(place(at, op.out_axes), _sum(nest, lw, at))

    if host and not outer:
        from parray.lower.soacs import serial

        def make() -> Sequence[Val]:
            rows({})
            return ()
        serial(lw, stm, make)
    else:
        nest.loops(outer, {}, rows if lane is not None else dots, host)
    return [dest.arr]


def _sum(nest: Nest, lw: Lowering, at: At) -> Expr:
    """The summed axes by one accumulator; long ones in blocks."""
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
        _sum_block(nest, lw, at, last, acc, b)


def _sum_block(nest: Nest, lw: Lowering, at: At, last: int, acc: Ref, b: Ref) -> None:
    n = nest.size[last]
    part = Ref(lw.fresh("acc"), nest.elem)
    lw.emit(Let(part.name, Lit(0, nest.elem)))
    first = lw.let(K.mul(b, Lit(SCALAR_BLOCK)))
    j = Ref(lw.fresh("j"))
    inner: list[K.Stm] = []
    lw.emit(For(j.name, K.minimum(Lit(SCALAR_BLOCK), K.sub(n, first)), inner))
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
    par = Par(b.name, nest.size[first] if rest else blocks(nest.size[first], SCALAR_BLOCK), [], [acc],
              [Assign(acc.name, combine("add", total, other))], loc=lw.loc, what="contract")
    with lw.into(par.body), lw.mode(host=False, private=True):
        if rest:
            *outer, last = rest
            nest.loops(outer, {first: b}, lambda at: _sum_last(nest, lw, at, last, total))
        else:
            _sum_block(nest, lw, {}, first, total, b)
    lw.emit(par)
    return total
