"""Vectors in generated CPU kernels: a numba type for a row of floats in one register, and what register tiles do.

LLVM makes vectors of loops by itself; a register tile is the one shape that it does not find: several rows of sums,
each a vector, that stay in registers while the summed axes run (Goto and van de Geijn, Anatomy of High-Performance
Matrix Multiplication, 2008).  Vectors wider than the processor's registers are cut by LLVM, so the code is right on
any of them; `width` gives the width that is fast on this one.
"""
from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from parray.backends.intrinsics import Buffer, _mark


@cache
def width() -> int:
    """Bytes of this processor's vector registers."""
    features = binding.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") else 16


class Vector(types.Type):
    """``lanes`` floats in a register."""

    def __init__(self, elem: types.Type, lanes: int):
        self.elem, self.lanes = elem, lanes
        super().__init__(name=f"Vector({elem}, {lanes})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """LLVM's own vector type."""
    def __init__(self, dmm: Any, fe_type: Vector):
        super().__init__(dmm, fe_type, ir.VectorType(dmm[fe_type.elem].get_value_type(), fe_type.lanes))


def _splat(builder: Any, x: Any, t: Any) -> Any:
    """All lanes ``x``."""
    undefined, word = ir.Constant(t, ir.Undefined), ir.IntType(32)
    one = builder.insert_element(undefined, x, ir.Constant(word, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(word, t.count), [0] * t.count))


def _mask(builder: Any, t: Any, count: Any) -> Any:
    """True in the first ``count`` lanes."""
    lanes = ir.VectorType(ir.IntType(64), t.count)
    return builder.icmp_signed("<", ir.Constant(lanes, list(range(t.count))), _splat(builder, count, lanes))


def _place(builder: Any, p: Any, i: Any, t: Any) -> Any:
    return builder.bitcast(builder.gep(p, [i]), t.as_pointer())


def _masked(builder: Any, kind: str, result: Any, args: list[Any], t: Any) -> Any:
    """A call of LLVM's masked load or store; ``t``: the vector's type."""
    name = f"llvm.masked.{kind}.v{t.count}{'f32' if t.element == ir.FloatType() else 'f64'}.p0"
    fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, [a.type for a in args]), name)
    return builder.call(fn, args)


def _bytes(t: Any) -> int:
    return 4 if t.element == ir.FloatType() else 8


@intrinsic(prefer_literal=True)
def vector_zero(typingctx: Any, like: Any, lanes: Any) -> Any:
    """Zeros of a buffer's element type."""
    v = Vector(like.elem, lanes.literal_value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(v), None)
    return v(like, lanes), codegen


@intrinsic(prefer_literal=True)
def vector_load(typingctx: Any, buf: Any, i: Any, lanes: Any) -> Any:
    """Neighbours from element ``i`` on."""
    v = Vector(buf.elem, lanes.literal_value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = context.get_value_type(v)
        value = builder.load(_place(builder, args[0], args[1], t), align=_bytes(t))
        _mark(value, builder.module, buf)
        return value
    return v(buf, types.int64, lanes), codegen


@intrinsic(prefer_literal=True)
def vector_load_part(typingctx: Any, buf: Any, i: Any, lanes: Any, count: Any) -> Any:
    """``count`` neighbours from element ``i`` on, and zeros."""
    v = Vector(buf.elem, lanes.literal_value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = context.get_value_type(v)
        align = ir.Constant(ir.IntType(32), _bytes(t))
        given = [_place(builder, args[0], args[1], t), align, _mask(builder, t, args[3]), ir.Constant(t, None)]
        value = _masked(builder, "load", t, given, t)
        _mark(value, builder.module, buf)
        return value
    return v(buf, types.int64, lanes, types.int64), codegen


@intrinsic
def vector_add_product(typingctx: Any, acc: Any, x: Any, v: Any) -> Any:
    """``acc + x * v``, rounded once where the processor can."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        product = builder.fmul(_splat(builder, args[1], args[2].type), args[2], flags=("contract",))
        return builder.fadd(args[0], product, flags=("contract",))
    return acc(acc, v.elem, v), codegen


def _stored(context: Any, builder: Any, buf: Buffer, args: Any, write: Any) -> Any:
    """Write the vector, or its sum with what is there."""
    to = _place(builder, args[0], args[1], args[2].type)
    with builder.if_else(args[3]) as (then, orelse):
        with then:
            write(to, True)
        with orelse:
            write(to, False)
    return context.get_dummy_value()


@intrinsic
def vector_store(typingctx: Any, buf: Any, i: Any, v: Any, add: Any) -> Any:
    """Write (or add, where ``add`` holds) a vector to a buffer."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = args[2].type

        def write(to: Any, adds: bool) -> None:
            value = args[2]
            if adds:
                old = builder.load(to, align=_bytes(t))
                _mark(old, builder.module, buf)
                value = builder.fadd(old, value)
            _mark(builder.store(value, to, align=_bytes(t)), builder.module, buf)
        return _stored(context, builder, buf, args, write)
    return types.void(buf, types.int64, v, types.boolean), codegen


@intrinsic
def vector_store_part(typingctx: Any, buf: Any, i: Any, v: Any, add: Any, count: Any) -> Any:
    """The first ``count`` lanes of `vector_store`."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = args[2].type
        mask, align = _mask(builder, t, args[4]), ir.Constant(ir.IntType(32), _bytes(t))

        def write(to: Any, adds: bool) -> None:
            value = args[2]
            if adds:
                old = _masked(builder, "load", t, [to, align, mask, ir.Constant(t, None)], t)
                _mark(old, builder.module, buf)
                value = builder.fadd(old, value)
            _mark(_masked(builder, "store", ir.VoidType(), [value, to, align, mask], t), builder.module, buf)
        return _stored(context, builder, buf, args, write)
    return types.void(buf, types.int64, v, types.boolean, types.int64), codegen
