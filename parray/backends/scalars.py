"""Scalar arithmetic of generated CPU code: what the language says where numba or the machine would differ.

Integers keep their width and wrap; division by zero is recorded elsewhere and harmless here, and the minimum over -1
wraps instead of trapping.  Remainders are NumPy's.  Half precision is f32 rounded after every operation.
"""
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

import parray.prims as prims
from parray.backends.intrinsics import ALWAYS, f64

# --- floats as LLVM has them -----------------------------------------------------------------------------------------


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

def _integer(code: Any, doc: str = "") -> Any:
    """An operation on integers of one type, written where it is used: numba would take longer to compile a function
    than the kernel around it.  ``code(builder, signed, *args)`` gives its LLVM value."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return code(builder, sig.return_type.signed, *args)

    def unary(typingctx: Any, a: Any) -> Any:
        return a(a), codegen

    def binary(typingctx: Any, a: Any, b: Any) -> Any:
        return a(a, a), codegen
    f = unary if code.__code__.co_argcount == 3 else binary
    f.__doc__ = doc or code.__doc__
    return intrinsic(f)


def _int_op(name: str) -> Any:
    return _integer(lambda b, signed, x, y: getattr(b, name)(x, y))


add_, sub_, mul_ = (_int_op(n) for n in ("add", "sub", "mul"))   # wrapping, in the operands' own width
neg_ = _integer(lambda b, signed, x: b.neg(x), "``-x``, wrapping.")
_one = _integer(lambda b, signed, x: ir.Constant(x.type, 1))


@intrinsic
def _shift(typingctx: Any, a: Any, b: Any, left: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, n, go_left = args
        right = builder.ashr(x, n) if sig.return_type.signed else builder.lshr(x, n)
        return builder.select(go_left, builder.shl(x, n), right)
    return a(a, a, types.boolean), codegen


def _less(b: Any, signed: bool, x: Any, y: Any) -> Any:
    return (b.icmp_signed if signed else b.icmp_unsigned)("<", x, y)


def _quotient(b: Any, signed: bool, x: Any, y: Any) -> Any:
    """Truncating division; 0 where y is 0 (recorded elsewhere), wrapping for the minimum over -1."""
    zero, one, minus = (ir.Constant(x.type, k) for k in (0, 1, -1))
    if isinstance(y, ir.Constant) and y.constant not in (0, -1):
        return (b.sdiv if signed else b.udiv)(x, y)
    none = b.icmp_signed("==", y, zero)
    if not signed:
        return b.select(none, zero, b.udiv(x, b.select(none, one, y)))
    turned = b.icmp_signed("==", y, minus)
    q = b.sdiv(x, b.select(b.or_(none, turned), one, y))
    return b.select(none, zero, b.select(turned, b.neg(x), q))


def _floor(b: Any, signed: bool, x: Any, y: Any) -> Any:
    """``x // y`` rounded down."""
    q = _quotient(b, signed, x, y)
    if not signed:
        return q
    zero = ir.Constant(x.type, 0)
    signs = b.icmp_signed("!=", b.icmp_signed("<", x, zero), b.icmp_signed("<", y, zero))
    inexact = b.and_(b.icmp_signed("!=", b.mul(q, y), x), b.icmp_signed("!=", y, zero))
    return b.select(b.and_(inexact, signs), b.sub(q, ir.Constant(x.type, 1)), q)


quot_i = _integer(_quotient)
floordiv_i = floordiv_u = _integer(_floor)
mod_i = mod_u = _integer(lambda b, signed, x, y: b.sub(x, b.mul(_floor(b, signed, x, y), y)),
                         "The remainder of `floordiv_i`.")
fmod_i = _integer(lambda b, signed, x, y: b.sub(x, b.mul(_quotient(b, signed, x, y), y)),
                  "The remainder of division rounded toward zero.")


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


# --- scalar functions numba lacks or gives another meaning -----------------------------------------------------------

inf, nan = float("inf"), float("nan")

and_, or_, xor_ = (_int_op(n) for n in ("and_", "or_", "xor"))


invert_ = _integer(lambda b, signed, x: b.not_(x), "``~x``.")
abs_i = _integer(lambda b, signed, x: b.select(_less(b, signed, x, ir.Constant(x.type, 0)), b.neg(x), x),
                 "``abs(x)``, wrapping.")
max_i = _integer(lambda b, signed, x, y: b.select(_less(b, signed, y, x), x, y), "The greater of two integers.")
min_i = _integer(lambda b, signed, x, y: b.select(_less(b, signed, x, y), x, y), "The lesser of two integers.")


def _sign(b: Any, signed: bool, x: Any) -> Any:
    """-1, 0 or 1."""
    zero = ir.Constant(x.type, 0)
    less, more = (b.zext(_less(b, signed, *pair), x.type) for pair in ((x, zero), (zero, x)))
    return b.sub(more, less)


sign_i = _integer(_sign)


@intrinsic
def _like(typingctx: Any, a: Any, value: Any) -> Any:
    """The f64 ``value`` in the float type of ``a``."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.cast(builder, args[1], types.float64, sig.return_type)
    return a(a, types.float64), codegen


@njit(**ALWAYS)
def sign_f(a: Any) -> Any:
    """-1, 0 (never -0, as NumPy has it), 1 or NaN."""
    return select(a > 0, _like(a, 1.0), select(a < 0, _like(a, -1.0), a + _like(a, 0.0)))


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
digamma_ = njit(**ALWAYS)(prims.digamma)


# --- bits ------------------------------------------------------------------------------------------------------------

def _counting(name: str, flag: bool) -> Any:
    """An LLVM intrinsic on the bits of an integer."""
    @intrinsic
    def op(typingctx: Any, a: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            t = args[0].type
            more = [ir.IntType(1)] if flag else []
            fn = builder.module.declare_intrinsic(f"llvm.{name}", [t], ir.FunctionType(t, [t, *more]))
            return builder.call(fn, [args[0], *(ir.Constant(m, 0) for m in more)])
        return a(a), codegen
    return op


popcount_, clz_, ctz_ = _counting("ctpop", False), _counting("ctlz", True), _counting("cttz", True)


@intrinsic
def bitcast_(typingctx: Any, a: Any, to: Any) -> Any:
    """The same bits as another type."""
    result = to.instance_type if hasattr(to, "instance_type") else to.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(result))
    return result(a, to), codegen


@intrinsic
def bits_of_half(typingctx: Any, x: Any, to: Any) -> Any:
    """The bits of a half-precision number held in f32."""
    result = to.instance_type if hasattr(to, "instance_type") else to.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))
    return result(types.float32, to), codegen


@intrinsic
def half_of_bits(typingctx: Any, x: Any) -> Any:
    """The half-precision number of these bits, held in f32."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())
    return types.float32(x), codegen


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
