"""Lowering of constructors, views and indexing: arithmetic on offsets and strides, almost never code.

Out-of-range indices are recorded (`Check`) and replaced by 0, so the access that follows is harmless; every buffer
holds at least one element of every row for that reason (`Lowering.alloc`, and the caller's arrays likewise).
"""
from __future__ import annotations

from typing import Sequence

from parray import kernels as K
from parray.ir import Stm
from parray.kernels import Apply, Expr, Lit, Ref, add, mul
from parray.lower.core import Lowering, lower_op
from parray.lower.soacs import serial
from parray.lower.values import Arr, Dest, Lazy, Val, row_major
from parray.soacs import Assert, Concat, Index, Iota, Overlap, Replicate, Reshape, Slice, Transpose, Windows
from parray.types import bool_, i64

Dests = Sequence[Dest | None]


def _to(e: Expr, elem: K.ScalarType) -> Expr:
    return e if e.elem == elem else Apply("convert", (e,), elem)


@lower_op.register
def _iota(op: Iota, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    return [Lazy(op.elem, (lw.size(op.n),), lambda at: _to(at[0], op.elem))]


@lower_op.register
def _replicate(op: Replicate, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    x, n = lw.val(op.x), lw.size(op.n)
    if isinstance(x, Arr):
        return [Arr(x.buf, x.offset, (n,) + x.shape, (K.ZERO,) + x.strides)]
    if isinstance(x, Lazy):
        return [Lazy(x.elem, (n,) + x.shape, lambda at: x.fn(at[1:]), x.constant)]
    return [Lazy(x.elem, (n,), lambda at: x, True)]


@lower_op.register
def _transpose(op: Transpose, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    x = lw.val(op.x)
    shape = tuple(x.shape[p] for p in op.perm)
    if isinstance(x, Arr):
        return [Arr(x.buf, x.offset, shape, tuple(x.strides[p] for p in op.perm))]
    return [Lazy(x.elem, shape, lambda at: x.fn(tuple(at[op.perm.index(d)] for d in range(len(op.perm)))),
                 x.constant)]


@lower_op.register
def _slice(op: Slice, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    x = lw.val(op.x)
    shape = tuple(lw.size(s) for s in op.sizes)
    steps = [lw.size(s) for s in op.steps]
    starts = [lw.scalar(s) for s in op.starts]
    if isinstance(x, Lazy):
        return [Lazy(x.elem, shape, lambda at: x.fn(tuple(add(b, mul(i, s)) for b, i, s in zip(starts, at, steps))),
                     x.constant)]
    offset = x.offset
    for start, size, stride in zip(starts, shape, x.strides):
        if start != K.ZERO and not (isinstance(size, Lit) and size.value > 0):
            start = Apply("select", (Apply("gt", (size, K.ZERO), bool_), start, K.ZERO), i64)   # empty: stay inside
        offset = add(offset, mul(start, stride))
    return [Arr(x.buf, offset, shape, tuple(mul(st, s) for st, s in zip(x.strides, steps)))]


@lower_op.register
def _windows(op: Windows, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    x, d = lw.val(op.x), op.axis
    shape = (*x.shape[:d], *(lw.size(s) for s in op.sizes), *x.shape[d + 1:])
    far, near = map(Lit, op.steps)
    if isinstance(x, Lazy):
        return [Lazy(x.elem, shape, lambda at: x.fn((*at[:d], add(mul(at[d], far), mul(at[d + 1], near)),
                                                     *at[d + 2:])), x.constant)]
    stride = x.strides[d]
    return [Arr(x.buf, x.offset, shape, (*x.strides[:d], mul(stride, far), mul(stride, near), *x.strides[d + 1:]))]


@lower_op.register
def _overlap(op: Overlap, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    """Zeros, and every element added where it belongs; threads share the dimensions in front."""
    d, y = op.axis, lw.val(op.y)
    far, near = map(Lit, op.steps)

    def write(dests: Dests) -> Sequence[Val]:
        out = lw.target(stm.vars[0].type, dests[0])
        stride = out.strides[d]
        places = Arr(out.buf, out.offset, (*out.shape[:d], *y.shape[d:d + 2], *out.shape[d + 1:]),
                     (*out.strides[:d], mul(stride, far), mul(stride, near), *out.strides[d + 1:]))
        lw.copy(Dest(out), Lazy(out.elem, out.shape, lambda _: Lit(0, out.elem), True))
        lw.copy(Dest(places, "add"), y)
        return [out]
    return serial(lw, stm, write, dests) if lw.host and d == 0 else write(dests)


@lower_op.register
def _reshape(op: Reshape, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    x = lw.val(op.x)
    shape = tuple(lw.size(s) for s in op.shape)
    if isinstance(x, Lazy):
        old = x.shape

        def at(indices: tuple[Expr, ...]) -> Expr:
            flat: Expr = K.ZERO
            for i, s in zip(indices, row_major(shape)):
                flat = add(flat, mul(i, s))
            out = []
            for k, s in enumerate(row_major(old)):
                q = flat if s == K.ONE else Apply("floordiv", (flat, s), i64)
                out.append(q if k == 0 else Apply("mod", (q, old[k]), i64))
            return x.fn(tuple(out))                             # type: ignore[no-any-return]
        if len(old) == 1 or op.x.type.rank:
            return [Lazy(x.elem, shape, at, x.constant)]
    x = lw.contiguous(x, op.x.type)
    return [Arr(x.buf, x.offset, shape, row_major(shape))]


@lower_op.register
def _index(op: Index, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    x = lw.val(op.x)
    at: list[Expr] = []
    bad: Expr | None = None
    for i, n in zip((lw.scalar(i) for i in op.indices), x.shape):
        at.append(i)
        if not (op.safe or _in_range(i, n, lw)):
            outside = K.either(Apply("lt", (i, K.ZERO), bool_), Apply("ge", (i, n), bool_))
            bad = outside if bad is None else K.either(bad, outside)
    if bad is not None:
        bad = lw.let(bad, "bad")
        lw.fail(bad, f"an index is out of bounds for an array of {op.x.type.rank} dimension"
                     f"{'s' * (op.x.type.rank > 1)}", "BoundsError")
        at = [lw.let(Apply("select", (bad, K.ZERO, i), i64)) for i in at]
    e = x.at(*at)
    return [lw.let(e.load(), "x") if not e.shape else e]


def _in_range(i: Expr, n: Expr, lw: Lowering) -> bool:
    """Whether 0 <= i < n for certain: a literal in a literal, or a loop variable in its own extent."""
    if isinstance(i, Lit) and isinstance(n, Lit):
        return bool(0 <= i.value < n.value)
    return isinstance(i, Ref) and lw.extent.get(i.name) == n


@lower_op.register
def _concat(op: Concat, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    out = lw.target(stm.vars[0].type, dests[0])
    start: Expr = K.ZERO
    for v in op.xs:
        n = lw.size(v.type.shape[0])
        part = Arr(out.buf, add(out.offset, mul(start, out.strides[0])), (n,) + out.shape[1:], out.strides)
        lw.copy(Dest(part), lw.val(v))
        start = add(start, n)
    return [out]


@lower_op.register
def _assert(op: Assert, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    ok = lw.scalar(op.cond)
    on_entry = lw.expand(ok) if op.guard else None
    if on_entry is not None:
        lw.guards.append((on_entry, lw.failure(op.message, op.error)))
        return []
    assert not op.guard, "a guard depends on what is known on entry"
    lw.fail(Apply("not", (ok,), bool_), op.message, op.error)
    if op.error == "SizeMismatch":               # what follows would use memory of another size
        rest = K.If(ok, [], rest=True)
        lw.emit(rest)
        lw.out = rest.then
    return []
