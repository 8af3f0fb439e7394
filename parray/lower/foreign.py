"""Lowering of Foreign: scalars by value, arrays as contiguous memory, results where they are wanted.

A call on the host level is one thread's; inside a parallel operation each iteration calls with memory of its own.
"""
from __future__ import annotations

from typing import Sequence

from parray.ir import Atom, Stm
from parray.kernels import Call, Expr, Place, Ref
from parray.lower.core import Lowering, lower_op
from parray.lower.soacs import serial
from parray.lower.values import Arr, Dest, Val
from parray.soacs import Foreign
from parray.types import Type


@lower_op.register
def _foreign(op: Foreign, lw: Lowering, stm: Stm, dests: Sequence[Dest | None]) -> Sequence[Val]:
    if lw.host and not op.function.on_scalars:
        return serial(lw, stm, lambda ds: _foreign(op, lw, stm, ds), dests)
    f = op.function
    args: list[Expr | Place] = [_argument(lw, a) for a in op.args]
    outs = [] if f.returns else [_target(lw, v.type, d) for v, d in zip(stm.vars, dests)]
    args += [Place(a.buf, a.offset, a.shape) for a in outs]
    sizes = [lw.size(s) for s in op.extents] if f.address else []
    code = lw.failure(f"{f.name} raised an exception", "ForeignError") if op.fails() else 0
    name = lw.fresh("v") if f.returns else None
    lw.emit(Call(f, args, sizes, name, f.results[0].elem, code))
    return [Ref(name, f.results[0].elem)] if name is not None else outs


def _argument(lw: Lowering, a: Atom) -> Expr | Place:
    if a.type.is_scalar:
        return lw.scalar(a)
    arr = lw.contiguous(lw.materialise(lw.val(a), a.type), a.type)
    return Place(arr.buf, arr.offset, arr.shape)


def _target(lw: Lowering, t: Type, dest: Dest | None) -> Arr:
    arr = lw.target(t, dest)
    return arr if arr.contiguous else lw.alloc(t)
