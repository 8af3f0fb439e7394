"""Elementary functions as straight-line code, which LLVM's loop vectoriser turns into vectors.

A call of the C library in a loop keeps it scalar; these functions have no calls and no branches (only selects), and
keep integers as wide as the float, so that generated loops stay vectors.  Each is an intrinsic that takes f32 or f64
and returns the same type.  Generated CPU kernels import them all:

    exp_ exp2_ expm1_ log_ log2_ log10_ log1p_ tanh_ erf_ sin_ cos_

(sin_ and cos_ call the C library for f64: reducing an f64 of any size takes too much code.)  Accuracy and speed are in
docs/accuracy.md.  NaN, infinities, zeros of both signs and subnormal numbers come out as they should.  The CUDA backend
binds the same names to libdevice.

Methods: argument reduction with constants split in two (Cody and Waite), a minimax polynomial, reconstruction through
the exponent's bits.  The tables of coefficients are printed by tools/minimax.py.  Operations carry no fast-math flags,
so the sums of a reduction next to them may be reassociated without touching them.
"""
from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any, Callable, Sequence

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["exp_", "exp2_", "expm1_", "log_", "log2_", "log10_", "log1p_", "tanh_", "erf_", "sin_", "cos_"]

INF, NAN = float("inf"), float("nan")
LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Tables:
    """What depends on the float type.  Polynomials start with the constant term."""
    digits: int                       # stored bits of the significand
    bias: int                         # of the exponent
    overflow: float                   # exp is infinite here, and not far below
    underflow: float                  # exp is 0 here
    minus_one: float                  # expm1 is -1 here
    tanh_one: float                   # tanh is 1 here
    erf_one: float                    # erf is 1 here
    log_2: tuple[float, float]        # hi + lo; hi times an exponent is exact
    log10_2: tuple[float, float]
    log2_e: tuple[float, float]       # hi + lo, hi rounded to the type
    log10_e: tuple[float, float]
    exp: Sequence[float]              # (e^r - 1 - r) / r^2
    log: Sequence[float]              # f32: (log(1+f) - f) / f^2;  f64: (2 atanh(s)/s - 2) / s^2 in s^2
    tanh: Sequence[float]             # (tanh(x)/x - 1) / x^2 in x^2
    erf: Sequence[float]              # erf(x)/x - 1 in x^2
    erfc: Sequence[float]             # -log(erfc(x)) in x - 1


F32 = Tables(
    digits=23, bias=127, overflow=89.0, underflow=-104.0, minus_one=-18.0, tanh_one=10.0, erf_one=4.0,
    log_2=(0.693145751953125, 1.428606765330187e-06), log10_2=(0.30103302001953125, -3.024355464731343e-06),
    log2_e=(1.4426950216293335, 1.925963033500011e-08), log10_e=(0.4342944920063019, -1.0103049952192578e-08),
    exp=(0.5, 0.166666657, 0.0416663587, 0.0083333794, 0.0013940928, 0.000198535941),
    log=(-0.499999881, 0.333333254, -0.250015825, 0.200019747, -0.166090801, 0.141818196, -0.132429987, 0.129044652,
         -0.0762178898),
    tanh=(-0.333332837, 0.133314908, -0.0537434593, 0.0206504762, -0.0057169362),
    erf=(0.128379166, -0.376126349, 0.11283733, -0.0268615838, 0.00520674745, -0.000821110269, 8.67538984e-05),
    erfc=(1.84960556, 2.63896775, 0.843106389, 0.0415496193, -0.00997367594, 0.00188629341, -0.00020099018))

F64 = Tables(
    digits=52, bias=1023, overflow=710.0, underflow=-746.0, minus_one=-38.0, tanh_one=20.0, erf_one=6.0,
    log_2=(0.6931471805601177, -1.7239444525614835e-13), log10_2=(0.3010299956640665, -8.532344317057107e-14),
    log2_e=(1.4426950408889634, 2.0355273740931033e-17), log10_e=(0.4342944819032518, 1.098319650216765e-17),
    exp=(0.5, 0.16666666666666677, 0.04166666666666653, 0.008333333333321447, 0.0013888888888949525,
         0.00019841269886671, 2.480158720228065e-05, 2.75572435888364e-06, 2.755737360713907e-07,
         2.5109276478547816e-08, 2.088538678834662e-09),
    log=(0.6666666666666734, 0.3999999999941465, 0.2857142874239157, 0.2222219857288442, 0.18183564340693906,
         0.15314050150210706, 0.14795954266258526),
    tanh=(-0.33333333333332876, 0.1333333333326489, -0.05396825393247263, 0.021869487601774193, -0.008863221317063548,
          0.0035919915547467205, -0.0014549704011102382, 0.0005863522564889087, -0.00022863280950770662,
          7.721871461115743e-05, -1.610732937788886e-05),
    erf=(0.1283791670955126, -0.37612638903183737, 0.11283791670954303, -0.026866170644932626, 0.005223977622956296,
         -0.0008548326839456539, 0.00012055324326598388, -1.49253815024335e-05, 1.645651878579833e-06,
         -1.6288382752669086e-07, 1.4118070745439546e-08, -8.655145304392682e-10),
    erfc=(1.8496055099332482, 2.6389675142347917, 0.8431072563584988, 0.041561098046421434, -0.010033825435629388,
          0.0019779030339774186, -0.00023732470832734152, -2.6270765875364323e-05, 2.7143285222197115e-05,
          -9.583609742865558e-06, 2.030221696280581e-06, -1.1736979945960517e-07, -1.1385076756314872e-07,
          5.971289453511448e-08, -1.753135974474941e-08, 3.493292678549071e-09, -4.688642394262621e-10,
          3.8412572519085844e-11, -1.4515145092555094e-12))

# Of f32 only, for |r| <= pi/4.
SIN = (-0.166666552, 0.00833217334, -0.00019516662)            # (sin(r)/r - 1) / r^2 in r^2
COS = (0.0416666456, -0.00138873106, 2.44324947e-05)           # (cos(r) - 1 + r^2/2) / r^4 in r^2
TANH_EDGE, ERF_EDGE = 0.625, 0.875
SIN_IS_X = 2.0 ** -12                                          # below, f32 cannot tell sin(x) from x


class Code:
    """Emits arithmetic on one float type; Python numbers among the operands become constants."""

    def __init__(self, builder: Any, t: Any):
        self.builder, self.t = builder, t
        self.double = isinstance(t, ir.DoubleType)
        self.tables = F64 if self.double else F32
        self.int = ir.IntType(64 if self.double else 32)
        # Adding this rounds to an integer and leaves it, plus the exponent's bias, in the lowest bits.
        self.magic = 1.5 * 2.0 ** self.tables.digits + self.tables.bias

    def value(self, x: Any) -> Any:
        return ir.Constant(self.t, x) if isinstance(x, float) else x

    def call(self, name: str, *args: Any) -> Any:
        fn = self.builder.module.declare_intrinsic(name, [self.t], ir.FunctionType(self.t, [self.t] * len(args)))
        return self.builder.call(fn, [self.value(a) for a in args])

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(self.value(a), self.value(b))

    def sub(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(self.value(a), self.value(b))

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(self.value(a), self.value(b))

    def div(self, a: Any, b: Any) -> Any:
        return self.builder.fdiv(self.value(a), self.value(b))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c``, rounded once."""
        return self.call("llvm.fma", a, b, c)

    def abs(self, a: Any) -> Any:
        return self.call("llvm.fabs", a)

    def signed(self, a: Any, sign: Any) -> Any:
        """``a`` with the sign of ``sign``."""
        return self.call("llvm.copysign", a, sign)

    def test(self, a: Any, op: str, b: Any) -> Any:
        """A comparison, false for NaN."""
        return self.builder.fcmp_ordered(op, self.value(a), self.value(b))

    def select(self, c: Any, a: Any, b: Any) -> Any:
        return self.builder.select(c, self.value(a), self.value(b))

    def at_most(self, a: Any, limit: float) -> Any:
        return self.select(self.test(a, ">", limit), limit, a)           # a NaN stays

    def at_least(self, a: Any, limit: float) -> Any:
        return self.select(self.test(a, "<", limit), limit, a)

    def poly(self, coefficients: Sequence[float], x: Any) -> Any:
        """Horner's rule."""
        total = self.value(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total

    def bits(self, a: Any) -> Any:
        return self.builder.bitcast(self.value(a), self.int)

    def number(self, bits: Any) -> Any:
        return self.builder.bitcast(bits, self.t)

    def whole(self, k: int) -> Any:
        return ir.Constant(self.int, k)

    def exponent(self, biased: Any) -> Any:
        """Bits of the float whose exponent is the low bits of ``biased`` (the others fall out)."""
        return self.builder.shl(biased, self.whole(self.tables.digits))


def as_bits(x: float, double: bool) -> int:
    """The bits of ``x`` as f64 or f32."""
    kinds = ("<d", "<q") if double else ("<f", "<i")
    return int(struct.unpack(kinds[1], struct.pack(kinds[0], x))[0])


# --- exponentials: e^x = 2^k e^r with |r| <= log(2)/2 ----------------------------------------------------------------

def _reduce(c: Code, x: Any) -> tuple[Any, Any, Any]:
    """k with the bias in its low bits, k as a float, and r."""
    hi, lo = c.tables.log_2
    t = c.fma(x, LOG2_E, c.magic)
    k = c.sub(t, c.magic)
    return c.bits(t), k, c.fma(k, -lo, c.fma(k, -hi, x))


def _expm1_small(c: Code, r: Any) -> Any:
    return c.fma(c.mul(r, r), c.poly(c.tables.exp, r), r)


def _scale(c: Code, p: Any, biased: Any, k: Any) -> Any:
    """p 2^k in two steps, so that only the last multiplication rounds a subnormal result, or overflows."""
    half = c.exponent(c.bits(c.fma(k, 0.5, c.magic)))
    rest = c.builder.sub(c.builder.add(c.exponent(biased), c.whole(c.tables.bias << c.tables.digits)), half)
    return c.mul(c.mul(p, c.number(half)), c.number(rest))


def _exp_inside(c: Code, x: Any) -> Any:
    """e^x where neither x nor the result is extreme."""
    biased, _, r = _reduce(c, x)
    return c.mul(c.add(_expm1_small(c, r), 1.0), c.number(c.exponent(biased)))


def _exp(c: Code, x: Any) -> Any:
    nothing = c.test(x, "<", c.tables.underflow)      # a masked row's -inf: a product that underflows takes 100 cycles
    x = c.at_most(c.select(nothing, 0.0, x), c.tables.overflow)
    biased, k, r = _reduce(c, x)
    return c.select(nothing, 0.0, _scale(c, c.add(_expm1_small(c, r), 1.0), biased, k))


def _exp2(c: Code, x: Any) -> Any:
    top = float(c.tables.bias + 1)
    nothing = c.test(x, "<", -top - c.tables.digits)
    x = c.at_most(c.select(nothing, 0.0, x), top)
    t = c.add(x, c.magic)
    k = c.sub(t, c.magic)
    r = c.mul(c.sub(x, k), sum(c.tables.log_2))
    return c.select(nothing, 0.0, _scale(c, c.add(_expm1_small(c, r), 1.0), c.bits(t), k))


def _expm1(c: Code, original: Any) -> Any:
    """2^k (e^r - 1) + (2^k - 1), halved meanwhile because 2^k may overflow where the result does not.

    The larger part of e^r - 1, which is r, joins first: that sum is exact where the rest could cancel it.
    """
    x = c.at_least(c.at_most(original, c.tables.overflow), c.tables.minus_one)
    biased, _, r = _reduce(c, x)
    half = c.number(c.exponent(c.builder.sub(biased, c.whole(1))))
    small = c.mul(c.mul(r, r), c.poly(c.tables.exp, r))
    return c.signed(c.mul(c.fma(half, small, c.fma(half, r, c.sub(half, 0.5))), 2.0), original)


def _tanh(c: Code, x: Any) -> Any:
    a = c.at_most(c.abs(x), c.tables.tanh_one)
    z = c.mul(a, a)
    small = c.fma(c.mul(a, z), c.poly(c.tables.tanh, z), a)
    large = c.sub(1.0, c.div(2.0, c.add(_exp_inside(c, c.add(a, a)), 1.0)))
    return c.signed(c.select(c.test(a, "<", TANH_EDGE), small, large), x)


def _erf(c: Code, x: Any) -> Any:
    a = c.at_most(c.abs(x), c.tables.erf_one)
    small = c.fma(c.poly(c.tables.erf, c.mul(a, a)), a, a)
    minus = c.builder.fneg(c.poly(c.tables.erfc, c.sub(a, 1.0)))
    large = c.sub(1.0, _exp_inside(c, minus))
    return c.signed(c.select(c.test(a, "<", ERF_EDGE), small, large), x)


# --- logarithms: x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2) ---------------------------------------------------

def _split(c: Code, x: Any) -> tuple[Any, Any, Any]:
    """Of a normal x: k with the bias as an integer, k + bias as a float, and f."""
    root = as_bits(0.5 ** 0.5, c.double)
    digits = c.tables.digits
    shifted = c.builder.add(c.bits(x), c.whole(as_bits(1.0, c.double) - root))
    biased = c.builder.lshr(shifted, c.whole(digits))
    fraction = c.builder.and_(shifted, c.whole((1 << digits) - 1))
    m = c.number(c.builder.add(fraction, c.whole(root)))
    float_k = c.number(c.builder.or_(biased, c.whole(as_bits(2.0 ** digits, c.double))))
    return biased, c.sub(float_k, 2.0 ** digits), c.sub(m, 1.0)


def _split_any(c: Code, x: Any) -> tuple[Any, Any]:
    """k as a float and f; subnormal numbers are scaled first."""
    tiny = c.test(x, "<", 2.0 ** (1 - c.tables.bias))
    scale = c.tables.digits
    _, k, f = _split(c, c.select(tiny, c.mul(x, 2.0 ** scale), x))
    return c.sub(k, c.select(tiny, float(c.tables.bias + scale), float(c.tables.bias))), f


def _tail(c: Code, f: Any) -> Any:
    """log(1 + f) - f; f64 goes through s = f / (2 + f), which takes far fewer terms."""
    if not c.double:
        return c.mul(c.mul(f, f), c.poly(c.tables.log, f))
    s = c.div(f, c.add(f, 2.0))
    z = c.mul(s, s)
    half = c.mul(c.mul(f, f), 0.5)
    return c.fma(s, c.fma(c.poly(c.tables.log, z), z, half), c.builder.fneg(half))


def _natural(c: Code, k: Any, f: Any) -> Any:
    """k log(2) + log(1 + f), with what rounding took from the first sum."""
    hi, lo = c.tables.log_2
    top = c.fma(k, hi, f)
    lost = c.sub(f, c.fma(k, -hi, top))
    return c.add(top, c.add(c.fma(k, lo, _tail(c, f)), lost))


def _other_base(c: Code, k: Any, f: Any, of_2: tuple[float, float], of_e: tuple[float, float]) -> Any:
    """The same in another base, whose logarithms of 2 and e are given as hi + lo."""
    head = c.mul(f, of_e[0])
    rest = c.fma(f, of_e[1], c.fma(f, of_e[0], c.builder.fneg(head)))
    top = c.fma(k, of_2[0], head)
    lost = c.sub(head, c.fma(k, -of_2[0], top))
    small = c.fma(_tail(c, f), of_e[0], rest)
    return c.add(top, c.add(c.fma(k, of_2[1], small), lost))


def _log_limits(c: Code, x: Any, result: Any) -> Any:
    """-inf at 0, NaN below and for NaN, inf at inf."""
    outside = c.select(c.test(x, "<", 0.0), NAN, c.select(c.test(x, "==", 0.0), -INF, x))
    inside = c.builder.and_(c.test(x, ">", 0.0), c.test(x, "<", INF))
    return c.select(inside, result, outside)


def _log(c: Code, x: Any) -> Any:
    return _log_limits(c, x, _natural(c, *_split_any(c, x)))


def _log2(c: Code, x: Any) -> Any:
    return _log_limits(c, x, _other_base(c, *_split_any(c, x), (1.0, 0.0), c.tables.log2_e))


def _log10(c: Code, x: Any) -> Any:
    return _log_limits(c, x, _other_base(c, *_split_any(c, x), c.tables.log10_2, c.tables.log10_e))


def _log1p(c: Code, x: Any) -> Any:
    """log(u) for u = 1 + x, with what rounding took from u put back into f."""
    u = c.add(x, 1.0)
    part = c.sub(u, x)
    lost = c.add(c.sub(x, c.sub(u, part)), c.sub(1.0, part))
    biased, k, f = _split(c, u)
    shrink = c.number(c.exponent(c.builder.sub(c.whole(2 * c.tables.bias), biased)))     # 2^-k, nonsense if k is large
    f = c.select(c.test(u, "<", 4.0 * 2.0 ** c.tables.digits), c.fma(lost, shrink, f), f)
    return c.signed(_log_limits(c, u, _natural(c, c.sub(k, float(c.tables.bias)), f)), x)


# --- sine and cosine of f32: a table of 2/pi by exponent, so that any size is reduced exactly ------------------------

@cache
def two_over_pi() -> tuple[list[float], list[float]]:
    """For each exponent field e of f32, 2^(e-150) 2/pi modulo 4, as hi with 29 bits and lo."""
    scale = 400
    pi = 16 * _arctan_inverse(5, scale) - 4 * _arctan_inverse(239, scale)        # Machin's formula
    ratio = (2 << 2 * scale) // pi
    hi, lo = [], []
    for e in range(255):
        x = (ratio << e) & ((4 << scale + 150) - 1)                     # in units of 2^-(scale + 150)
        drop = max(x.bit_length() - 29, 0)
        top = x >> drop << drop
        hi.append(top / (1 << scale + 150))
        lo.append((x - top) / (1 << scale + 150))
    return hi + [NAN], lo + [NAN]


def _arctan_inverse(n: int, scale: int) -> int:
    """arctan(1/n) in units of 2^-scale, to a few dozen units."""
    term = total = (1 << scale) // n
    k = 1
    while term:
        term //= -n * n
        k += 2
        total += term // k
    return total


def _entry(c: Code, name: str, values: list[float], index: Any) -> Any:
    """``values[index]`` from a constant array of the module."""
    module, double = c.builder.module, ir.DoubleType()
    table = module.globals.get(name)
    if table is None:
        kind = ir.ArrayType(double, len(values))
        table = ir.GlobalVariable(module, kind, name)
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(kind, values)
    return c.builder.load(c.builder.gep(table, [c.whole(0), index], inbounds=True))


def _sin_or_cos(c: Code, x: Any, cosine: bool) -> Any:
    if c.double:
        return c.call("llvm.cos" if cosine else "llvm.sin", x)
    b, wide = c.builder, Code(c.builder, ir.DoubleType())
    bits = c.bits(c.abs(x))
    e = b.lshr(bits, c.whole(23))
    m = c.number(b.or_(b.and_(bits, c.whole((1 << 23) - 1)), c.whole(as_bits(2.0 ** 23, False))))         # whole
    m = b.fpext(m, wide.t)
    hi, lo = two_over_pi()
    turns = wide.mul(m, _entry(c, "parray.two_over_pi.hi", hi, e))               # exact, in quarter turns
    small = _entry(c, "parray.two_over_pi.lo", lo, e)
    t = wide.add(wide.fma(m, small, turns), wide.magic)
    r = wide.fma(m, small, wide.sub(turns, wide.sub(t, wide.magic)))
    r = b.fptrunc(wide.mul(r, 1.5707963267948966), c.t)
    quadrant = b.add(b.trunc(wide.bits(t), c.int), c.whole(-wide.tables.bias % 4 + cosine))
    z = c.mul(r, r)
    odd = c.fma(c.mul(r, z), c.poly(SIN, z), r)
    even = c.fma(c.mul(z, z), c.poly(COS, z), c.fma(z, -0.5, 1.0))
    result = c.select(b.icmp_unsigned("!=", b.and_(quadrant, c.whole(1)), c.whole(0)), even, odd)
    sign = b.shl(b.and_(quadrant, c.whole(2)), c.whole(30))
    if cosine:
        return c.number(b.xor(c.bits(result), sign))
    sign = b.xor(sign, b.and_(c.bits(x), c.whole(-1 << 31)))
    return c.select(c.test(c.abs(x), "<", SIN_IS_X), x, c.number(b.xor(c.bits(result), sign)))


# --- as numba functions ----------------------------------------------------------------------------------------------

def _function(emit: Callable[[Code, Any], Any]) -> Any:
    @intrinsic
    def op(typingctx: Any, x: Any) -> Any:
        if not isinstance(x, types.Float):
            return None

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(Code(builder, args[0].type), args[0])
        return x(x), codegen
    return op


exp_, exp2_, expm1_ = _function(_exp), _function(_exp2), _function(_expm1)
log_, log2_, log10_, log1p_ = _function(_log), _function(_log2), _function(_log10), _function(_log1p)
tanh_, erf_ = _function(_tanh), _function(_erf)
sin_ = _function(lambda c, x: _sin_or_cos(c, x, False))
cos_ = _function(lambda c, x: _sin_or_cos(c, x, True))
