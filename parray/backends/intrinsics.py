"""What generated CPU kernels call: typed buffers, exact scalar arithmetic, barriers.

``buffer(base, offset, elem, k, n)`` is a pointer to typed memory whose numba type carries ``k``, its number among the
program's ``n`` buffers.  Loads and stores through it (``b[i]``) tell LLVM that different buffers never overlap
(alias scopes), which is what lets loops over many arrays become vectors without run-time overlap tests.

Sums marked by the lowering (`sum_`) may be reassociated by LLVM; nothing else may.  Scalar arithmetic is in `scalars`.
"""
from __future__ import annotations

import operator
from typing import Any

import numba
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from numba.core.imputils import impl_ret_untracked

boolean, i8, i16, i32, i64 = numba.boolean, numba.int8, numba.int16, numba.int32, numba.int64
u8, u16, u32, u64 = numba.uint8, numba.uint16, numba.uint32, numba.uint64
f32, f64 = numba.float32, numba.float64

half = types.float16                              # f16 in memory; values are f32 (see `f16`)

ALWAYS = {"inline": "never", "error_model": "numpy", "nogil": True}


class Buffer(types.Type):
    """Pointer to ``elem``; buffer ``k`` of ``n``."""

    def __init__(self, elem: types.Type, k: int, n: int):
        self.elem, self.k, self.n = elem, k, n
        self.value = types.float32 if elem == types.float16 else elem
        super().__init__(name=f"Buffer({elem}, {k}, {n})")


def _memory_type(dmm: Any, buf: Buffer) -> Any:
    return ir.HalfType() if buf.elem == types.float16 else dmm[buf.elem].get_data_type()


@register_model(Buffer)
class BufferModel(models.PrimitiveModel):
    """A buffer is a plain pointer to machine code."""
    def __init__(self, dmm: Any, fe_type: Buffer):
        super().__init__(dmm, fe_type, _memory_type(dmm, fe_type).as_pointer())


@infer_global(operator.getitem)
class GetBuffer(AbstractTemplate):
    """The type of ``b[i]``."""
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], Buffer) and isinstance(args[1], types.Integer):
            return signature(args[0].value, args[0], types.int64)
        return None


@infer_global(operator.setitem)
class SetBuffer(AbstractTemplate):
    """The type of ``b[i] = x``."""
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], Buffer) and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.int64, args[0].value)
        return None


def _scopes(module: Any, buf: Buffer) -> tuple[Any, Any]:
    """The alias-scope metadata of one buffer: its own scope, and those of all others."""
    domain = module.add_metadata(["parray"])
    every = [module.add_metadata([f"buffer {i}", domain]) for i in range(buf.n)]
    return module.add_metadata([every[buf.k]]), module.add_metadata(every[:buf.k] + every[buf.k + 1:])


def _mark(instruction: Any, module: Any, buf: Buffer) -> None:
    cache = module.__dict__.setdefault("_parray_scopes", {})
    if (buf.k, buf.n) not in cache:
        cache[buf.k, buf.n] = _scopes(module, buf)
    own, others = cache[buf.k, buf.n]
    instruction.set_metadata("alias.scope", own)
    instruction.set_metadata("noalias", others)


@lower_builtin(operator.getitem, Buffer, types.Integer)
def _load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    buf = sig.args[0]
    value = builder.load(builder.gep(args[0], [args[1]]))
    _mark(value, builder.module, buf)
    if buf.elem == types.float16:
        return builder.fpext(value, ir.FloatType())
    return impl_ret_untracked(context, builder, sig.return_type,
                              context.data_model_manager[buf.elem].from_data(builder, value))


@lower_builtin(operator.setitem, Buffer, types.Integer, types.Any)
def _store(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    buf = sig.args[0]
    if buf.elem == types.float16:
        data = builder.fptrunc(args[2], ir.HalfType())
    else:
        data = context.data_model_manager[buf.elem].as_data(builder, args[2])
    _mark(builder.store(data, builder.gep(args[0], [args[1]])), builder.module, buf)
    return context.get_dummy_value()


@intrinsic(prefer_literal=True)
def buffer(typingctx: Any, base: Any, offset: Any, elem: Any, k: Any, n: Any) -> Any:
    """Typed memory ``offset`` bytes into ``base`` (a byte pointer)."""
    buf = Buffer(elem.instance_type if hasattr(elem, "instance_type") else elem.dtype, k.literal_value,
                 n.literal_value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.gep(args[0], [args[1]]), context.get_value_type(buf))
    return buf(base, types.int64, elem, k, n), codegen


@intrinsic
def pointer(typingctx: Any, array: Any) -> Any:
    """The address of an array's first element, as a byte pointer."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.bitcast(data, cgutils.voidptr_t)
    return types.voidptr(array), codegen


@intrinsic
def heap_new(typingctx: Any, nbytes: Any) -> Any:
    """Memory for an array whose size only the running program knows."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(cgutils.voidptr_t, [ir.IntType(64)]),
                                            "malloc")
        return builder.call(fn, [args[0]])
    return types.voidptr(types.int64), codegen


@intrinsic
def heap_free(typingctx: Any, p: Any) -> Any:
    """Give back what `heap_new` gave."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t]),
                                            "free")
        builder.call(fn, [args[0]])
        return context.get_dummy_value()
    return types.void(types.voidptr), codegen


# --- reductions and extrema ------------------------------------------------------------------------------------------

def _float_op(name: str, flags: tuple[str, ...]) -> Any:
    @intrinsic
    def op(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return getattr(builder, name)(args[0], args[1], flags=flags)
        return a(a, a), codegen
    return op


sum_ = _float_op("fadd", ("reassoc", "contract", "nsz"))
product_ = _float_op("fmul", ("reassoc", "contract", "nsz"))


def _extremum(name: str) -> Any:
    @intrinsic
    def op(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            t = args[0].type
            fn = builder.module.declare_intrinsic(f"llvm.{name}", [t], ir.FunctionType(t, [t, t]))
            return builder.call(fn, args)
        return a(a, a), codegen
    return op


fmax, fmin = _extremum("maximum"), _extremum("minimum")          # NaN propagates, -0 < +0


# --- threads ---------------------------------------------------------------------------------------------------------

def _atomic(kind: str) -> Any:
    """An atomic operation on 64-bit words: of an array, or behind an address."""
    @intrinsic
    def op(typingctx: Any, p: Any, i: Any, v: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            at = builder.gep(builder.bitcast(args[0], ir.IntType(64).as_pointer()), [args[1]])
            if kind == "add":
                return builder.atomic_rmw("add", at, args[2], "seq_cst")
            if kind == "load":
                return builder.load_atomic(at, "seq_cst", 8)
            builder.store_atomic(args[2], at, "seq_cst", 8)
            return args[2]
        return types.int64(types.voidptr, types.int64, types.int64), codegen
    return op


atomic_add, atomic_load, atomic_store = (_atomic(k) for k in ("add", "load", "store"))


@intrinsic
def give_way(typingctx: Any) -> Any:
    """Let another thread have the processor."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield")
        builder.call(fn, [])
        return context.get_dummy_value()
    return types.void(), codegen


@intrinsic
def part(typingctx: Any, n: Any, thread: Any, threads: Any) -> Any:
    """Where the share of thread ``thread`` in ``n`` iterations begins."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        n, thread, threads = args
        one, zero = ir.Constant(n.type, 1), ir.Constant(n.type, 0)
        alone = builder.select(builder.icmp_signed("==", thread, zero), zero, n)
        with builder.if_else(builder.icmp_signed("==", threads, one)) as (then, orelse):
            with then:
                first = builder.block
            with orelse:
                shared, second = builder.sdiv(builder.mul(n, thread), threads), builder.block
        out = builder.phi(n.type)
        out.add_incoming(alone, first)
        out.add_incoming(shared, second)
        return out
    return types.int64(types.int64, types.int64, types.int64), codegen


@njit(**ALWAYS)
def wait(sync: Any, threads: int) -> None:
    """Wait until all threads of the call are here; spins a little, then yields."""
    turn = atomic_load(sync, 8, 0)
    if atomic_add(sync, 0, 1) == threads - 1:
        atomic_store(sync, 0, 0)
        atomic_add(sync, 8, 1)
    else:
        spins = 0
        while atomic_load(sync, 8, 0) == turn:
            spins += 1
            if spins > 1000:
                give_way()


@njit(**ALWAYS)
def barrier(sync: Any, threads: int) -> None:
    """`wait`, where there is anyone to wait for.  ``sync`` is the address of the call's counters, or their array."""
    if threads > 1:
        wait(sync, threads)
