"""What generated CPU kernels call: typed buffers, exact scalar arithmetic, barriers.

``buffer(base, offset, elem, k, n)`` is a pointer to typed memory whose numba type carries ``k``, its number among the
program's ``n`` buffers.  Loads and stores through it (``b[i]``) tell LLVM that different buffers never overlap
(alias scopes), which is what lets loops over many arrays become vectors without run-time overlap tests.

Integer helpers do what the language says where the machine would trap or wrap differently; sums marked by the lowering
(`sum_`) may be reassociated by LLVM, nothing else may.
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


def _unary(name: str) -> Any:
    @intrinsic
    def op(typingctx: Any, a: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            t = args[0].type
            fn = builder.module.declare_intrinsic(f"llvm.{name}", [t], ir.FunctionType(t, [t]))
            return builder.call(fn, args)
        return a(a), codegen
    return op


floor_, ceil_, trunc_, rint_, sqrt_, fabs_ = (_unary(n) for n in ("floor", "ceil", "trunc", "rint", "sqrt", "fabs"))


@intrinsic
def copysign_(typingctx: Any, a: Any, b: Any) -> Any:
    """The magnitude of one float with the sign of another."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = args[0].type
        return builder.call(builder.module.declare_intrinsic("llvm.copysign", [t], ir.FunctionType(t, [t, t])), args)
    return a(a, a), codegen


@intrinsic
def fma_(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``x * y + z``, rounded once."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = args[0].type
        return builder.call(builder.module.declare_intrinsic("llvm.fma", [t], ir.FunctionType(t, [t, t, t])), args)
    return a(a, a, a), codegen


@intrinsic
def select(typingctx: Any, c: Any, x: Any, y: Any) -> Any:
    """``x if c else y`` without a branch."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(args[0], args[1], args[2])
    return x(types.boolean, x, x), codegen


# --- exact integer arithmetic ----------------------------------------------------------------------------------------

@intrinsic
def _sdiv(typingctx: Any, a: Any, b: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return (builder.sdiv if sig.return_type.signed else builder.udiv)(args[0], args[1])
    return a(a, a), codegen


def _int_op(name: str) -> Any:
    @intrinsic
    def op(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return getattr(builder, name)(args[0], args[1])
        return a(a, a), codegen
    return op


add_, sub_, mul_ = (_int_op(n) for n in ("add", "sub", "mul"))   # wrapping, in the operands' own width


@intrinsic
def neg_(typingctx: Any, a: Any) -> Any:
    """``-x``, wrapping."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.neg(args[0])
    return a(a), codegen


@intrinsic
def _shift(typingctx: Any, a: Any, b: Any, left: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, n, go_left = args
        right = builder.ashr(x, n) if sig.return_type.signed else builder.lshr(x, n)
        return builder.select(go_left, builder.shl(x, n), right)
    return a(a, a, types.boolean), codegen


@njit(**ALWAYS)
def quot_i(a: Any, b: Any) -> Any:
    """Truncating division; 0 when b is 0 (recorded elsewhere), wrapping for the minimum over -1."""
    zero = sub_(a, a)
    minus = b == sub_(zero, _one(b))
    q = _sdiv(a, select((b == zero) | minus, _one(b), b))
    return select(b == zero, zero, select(minus, neg_(a), q))


@intrinsic
def _one(typingctx: Any, a: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(args[0].type, 1)
    return a(a), codegen


@njit(**ALWAYS)
def floordiv_i(a: Any, b: Any) -> Any:
    """``x // y`` rounded down."""
    q = quot_i(a, b)
    zero = sub_(a, a)
    inexact = (mul_(q, b) != a) & (b != zero) & ((a < zero) != (b < zero))
    return select(inexact, sub_(q, _one(a)), q)


@njit(**ALWAYS)
def mod_i(a: Any, b: Any) -> Any:
    """The remainder of `floordiv_i`."""
    return sub_(a, mul_(floordiv_i(a, b), b))


@njit(**ALWAYS)
def floordiv_u(a: Any, b: Any) -> Any:
    """``x // y``."""
    zero = sub_(a, a)
    return select(b == zero, zero, _sdiv(a, select(b == zero, _one(b), b)))


@njit(**ALWAYS)
def mod_u(a: Any, b: Any) -> Any:
    """The remainder of `floordiv_u`."""
    return sub_(a, mul_(floordiv_u(a, b), b))


@njit(**ALWAYS)
def fmod_i(a: Any, b: Any) -> Any:
    """The remainder of division rounded toward zero."""
    return sub_(a, mul_(quot_i(a, b), b))


@intrinsic
def _i64_of(typingctx: Any, a: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if args[0].type.width == 64:
            return args[0]
        return (builder.sext if sig.args[0].signed else builder.zext)(args[0], ir.IntType(64))
    return types.int64(a), codegen


@njit(**ALWAYS)
def shl_(a: Any, b: Any, bits: int) -> Any:
    """``x << y``, 0 from the width on."""
    n = _i64_of(b)
    inside = (n >= 0) & (n < bits)
    zero = sub_(a, a)
    return select(inside, _shift(a, select(inside, b, zero), True), zero)


@njit(**ALWAYS)
def shr_(a: Any, b: Any, bits: int, signed: bool) -> Any:
    """``x >> y``, the sign or 0 from the width on."""
    n = _i64_of(b)
    inside = (n >= 0) & (n < bits)
    zero = sub_(a, a)
    shifted = _shift(a, select(inside, b, zero), False)
    outside = select((a < zero) & signed, sub_(zero, _one(a)), zero)
    return select(inside, shifted, outside)


@njit(**ALWAYS)
def pow_i(a: Any, n: Any) -> Any:
    """Wrapping integer power; a negative exponent gives 1 / a ** -n truncated."""
    one = _one(a)
    zero = sub_(a, a)
    e = _i64_of(n)
    minus = sub_(zero, one)
    if e < 0:
        odd = (e & 1) != 0
        return select(a == one, one, select((a == minus) & (minus < zero), select(odd, minus, one), zero))
    result = one
    base = a
    while e > 0:
        if e & 1:
            result = mul_(result, base)
        base = mul_(base, base)
        e >>= 1
    return result


@njit(**ALWAYS)
def pow_u(a: Any, n: Any) -> Any:
    """``x ** y``, wrapping."""
    one = _one(a)
    result = one
    base = a
    e = n
    zero = sub_(n, n)
    while e != zero:
        if e & _one(n) != zero:
            result = mul_(result, base)
        base = mul_(base, base)
        e = _shift(e, _one(n), False)
    return result


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


@njit(**ALWAYS)
def part(n: int, thread: int, threads: int) -> int:
    """Where the share of thread ``thread`` in ``n`` iterations begins."""
    if threads == 1:
        return n if thread else 0
    return n * thread // threads


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



# --- scalar functions numba lacks or gives another meaning -----------------------------------------------------------

inf, nan = float("inf"), float("nan")

and_, or_, xor_ = (_int_op(n) for n in ("and_", "or_", "xor"))


@intrinsic
def invert_(typingctx: Any, a: Any) -> Any:
    """``~x``."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.not_(args[0])
    return a(a), codegen


@njit(**ALWAYS)
def abs_i(a: Any) -> Any:
    """``abs(x)``, wrapping."""
    return select(a < sub_(a, a), neg_(a), a)


@njit(**ALWAYS)
def sign_i(a: Any) -> Any:
    """-1, 0 or 1."""
    zero = sub_(a, a)
    return select(a > zero, _one(a), select(a < zero, sub_(zero, _one(a)), zero))


@njit(**ALWAYS)
def max_i(a: Any, b: Any) -> Any:
    """The greater of two integers."""
    return select(a > b, a, b)


@njit(**ALWAYS)
def min_i(a: Any, b: Any) -> Any:
    """The lesser of two integers."""
    return select(a < b, a, b)


@intrinsic
def _like(typingctx: Any, a: Any, value: Any) -> Any:
    """The f64 ``value`` in the float type of ``a``."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.cast(builder, args[1], types.float64, sig.return_type)
    return a(a, types.float64), codegen


@njit(**ALWAYS)
def sign_f(a: Any) -> Any:
    """-1, 0 (keeping its sign), 1 or NaN."""
    return select(a > 0, _like(a, 1.0), select(a < 0, _like(a, -1.0), a))


@intrinsic
def _frem(typingctx: Any, a: Any, b: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.frem(args[0], args[1])
    return a(a, a), codegen


fmod_f = _frem


@njit(**ALWAYS)
def mod_f(a: Any, b: Any) -> Any:
    """Remainder with the divisor's sign, as NumPy's."""
    r = fmod_f(a, b)
    zero = _like(a, 0.0)
    if r != zero:
        return select((r < zero) != (b < zero), r + b, r)
    return copysign_(zero, b) if b == b and a == a and fabs_(a) < inf and b != zero else r


@njit(**ALWAYS)
def floordiv_f(a: Any, b: Any) -> Any:
    """Floor of the quotient, fitting ``mod`` (a == b*q + r) as NumPy's."""
    zero = _like(a, 0.0)
    if b == zero:
        return a / b
    r = fmod_f(a, b)
    q = (a - r) / b
    if r != zero and (r < zero) != (b < zero):
        q = q - _like(a, 1.0)
    if q != zero:
        whole = floor_(q)
        return select(q - whole > _like(a, 0.5), whole + _like(a, 1.0), whole)
    return copysign_(zero, a / b)


@njit(**ALWAYS)
def float_to_int(x: Any, to: Any, low: Any, high: Any) -> Any:
    """Truncated and saturated; 0 for NaN and infinities."""
    y = f64(x)
    finite = fabs_(y) < inf
    inside = (y > f64(low) - 1.0) & (y < f64(high))
    cut = to(select(inside & finite, y, 0.0))
    return select(finite, select(inside, cut, select(y >= f64(high), high, low)), to(0))


@intrinsic
def _powf(typingctx: Any, a: Any, b: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = args[0].type
        return builder.call(builder.module.declare_intrinsic("llvm.pow", [t], ir.FunctionType(t, [t, t])), args)
    return a(a, a), codegen


pow_f = _powf


def _libm(name: str) -> Any:
    """A function of the C library, in the operand's own precision."""
    @intrinsic
    def op(typingctx: Any, a: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            t = args[0].type
            symbol = name + ("f" if isinstance(t, ir.FloatType) else "")
            fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(t, [t]), symbol)
            return builder.call(fn, args)
        return a(a), codegen
    return op


cbrt_ = _libm("cbrt")


@intrinsic
def _to_half(typingctx: Any, x: Any) -> Any:
    """An f32 rounded to half precision."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fpext(builder.fptrunc(args[0], ir.HalfType()), ir.FloatType())
    return types.float32(types.float32), codegen


@intrinsic
def _to_odd(typingctx: Any, x: Any) -> Any:
    """An f64 as f32, the last bit set when inexact: rounding that once more is rounding the f64 once."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i32_, f64_ = ir.IntType(32), ir.DoubleType()
        y = builder.fptrunc(args[0], ir.FloatType())
        wide = builder.fpext(y, f64_)
        fabs = builder.module.declare_intrinsic("llvm.fabs", [f64_], ir.FunctionType(f64_, [f64_]))
        over = builder.fcmp_ordered(">", builder.call(fabs, [wide]), builder.call(fabs, [args[0]]))
        inexact = builder.fcmp_ordered("!=", wide, args[0])
        bits = builder.sub(builder.bitcast(y, i32_), builder.zext(over, i32_))
        return builder.bitcast(builder.or_(bits, builder.zext(inexact, i32_)), ir.FloatType())
    return types.float32(types.float64), codegen


@njit(**ALWAYS)
def f16(x: Any) -> Any:
    """A number of any type rounded to half precision (held in f32)."""
    return _to_half(_to_odd(f64(x)))
