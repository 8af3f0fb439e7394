"""The vector elementary functions: errors in ulp, special values, and that loops over them really become vectors."""
import math
import re
from fractions import Fraction
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba import njit
from scipy import special

from parray.backends import vecmath

# Largest error in ulp that each function may show, for f32 and f64.
BOUNDS = {"exp_": (1.0, 1.0), "exp2_": (1.0, 1.1), "expm1_": (1.35, 1.5), "log_": (0.9, 0.9), "log2_": (1.15, 1.05),
          "log10_": (1.0, 0.9), "log1p_": (1.6, 1.4), "tanh_": (1.45, 1.45), "erf_": (1.15, 1.15), "sin_": (1.7, 1.0),
          "cos_": (1.7, 1.0)}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, 0.5, -0.5, 89.0, -104.0, 710.0, -746.0, 1e-300]
LONG = np.longdouble
wide = pytest.mark.skipif(np.finfo(LONG).nmant < 63, reason="no float wider than f64 to compare with")
LOOPS: dict[str, Any] = {}


def loop(name: str) -> Any:
    """The function over arrays, in a loop as generated kernels have it."""
    if name not in LOOPS:
        f = getattr(vecmath, name)

        @njit(error_model="numpy")
        def run(x: Any, y: Any) -> None:
            for i in range(x.size):
                y[i] = f(x[i])
        LOOPS[name] = run
    return LOOPS[name]


def apply(name: str, x: Any) -> Any:
    y = np.empty_like(x)
    loop(name)(x, y)
    return y


def inputs(dtype: Any) -> Any:
    """Every size of number of both signs, subnormals among them, and more where the functions bend."""
    rng = np.random.default_rng(7)
    if dtype == np.float32:
        everywhere = np.arange(0, 1 << 32, 16381, dtype=np.int64).astype(np.uint32).view(np.float32)
    else:
        everywhere = rng.integers(0, 2 ** 64, 100_000, dtype=np.uint64).view(np.float64)
    tiny = np.finfo(dtype).smallest_subnormal * rng.integers(1, 1 << 20, 1000)
    dense = [rng.uniform(a, b, 30_000) for a, b in ((-1.5, 1.5), (-20, 20), (0, 2), (-110, 90), (-750, 710))]
    with np.errstate(over="ignore", under="ignore"):
        return np.concatenate([everywhere, *(np.asarray(d, dtype) for d in (SPECIAL, tiny, -tiny, *dense))])


def reference(name: str, x: Any) -> Any:
    name = name[:-1]
    with np.errstate(all="ignore"):
        if x.dtype == np.float32:
            x = x.astype(np.float64)
            return special.erf(x) if name == "erf" else getattr(np, name)(x)
        return getattr(np, name)(x.astype(LONG))


def worst(y: Any, exact: Any) -> float:
    """Largest error in ulp of the exact value; infinities, NaN and the signs of zeros must agree."""
    info = np.finfo(y.dtype)
    with np.errstate(all="ignore"):
        nearest = exact.astype(y.dtype)
        finite = np.isfinite(nearest)
        same = (nearest == y) | (np.isnan(nearest) & np.isnan(y))
        assert same[~finite].all()
        zero = exact == 0
        assert (np.signbit(exact) == np.signbit(y))[zero].all() and (y == 0)[zero].all()
        one = np.ldexp(exact.dtype.type(1), np.frexp(np.abs(exact[finite]))[1] - info.nmant - 1)
        error = np.abs(y[finite].astype(exact.dtype) - exact[finite])
        return float(np.max(error / np.maximum(one, exact.dtype.type(info.smallest_subnormal))))


@pytest.mark.parametrize("name", vecmath.__all__)
def test_f32(name: str) -> None:
    x = inputs(np.float32)
    assert worst(apply(name, x), reference(name, x)) <= BOUNDS[name][0]


@wide
@pytest.mark.parametrize("name", [n for n in vecmath.__all__ if n != "erf_"])
def test_f64(name: str) -> None:
    x = inputs(np.float64)
    assert worst(apply(name, x), reference(name, x)) <= BOUNDS[name][1]


def exact_erf(x: float) -> Fraction:
    """Its Taylor series in fixed point, to 50 digits (times 2/sqrt(pi) given as a plain number)."""
    two_over_root_pi = Fraction(11283791670955125738961589031215451716881012586580, 10 ** 49)
    one = 10 ** 80
    power = int(Fraction(x) * one)
    square = int(Fraction(x) ** 2 * one)
    total, k = 0, 0
    while power:
        total += power // (2 * k + 1)
        k += 1
        power = -(power * square // one) // k
        if abs(power) <= 1:
            break
    return Fraction(total, one) * two_over_root_pi


def test_f64_erf() -> None:
    rng = np.random.default_rng(8)
    x = np.concatenate([rng.uniform(-1.5, 1.5, 600), rng.uniform(-6.5, 6.5, 300), 10.0 ** rng.uniform(-300, 0, 50)])
    errors = [abs(Fraction(float(b)) - e) / Fraction(math.ulp(float(e))) for b, e in
              zip(apply("erf_", x), map(exact_erf, x.tolist())) if abs(e) > 1e-60]
    assert max(errors) <= BOUNDS["erf_"][1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", vecmath.__all__)
def test_special_values(name: str, dtype: Any) -> None:
    info = np.finfo(dtype)
    edges = [info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal]
    x = np.array([v for v in SPECIAL if v in (0, 1, -1) or not math.isfinite(v)] + edges, dtype)
    with np.errstate(all="ignore"):
        expected = special.erf(x) if name == "erf_" else getattr(np, name[:-1])(x)
    y = apply(name, x)
    np.testing.assert_allclose(y, expected, rtol=4 * info.eps, atol=float(info.smallest_subnormal))
    zero = (y == 0) & (expected == 0)
    assert (np.signbit(y) == np.signbit(expected))[zero].all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_results(dtype: Any) -> None:
    k = np.arange(-140 if dtype == np.float32 else -1070, 127 if dtype == np.float32 else 1023)
    powers = np.ldexp(dtype(1), k)
    np.testing.assert_array_equal(apply("exp2_", k.astype(dtype)), powers)
    np.testing.assert_array_equal(apply("log2_", powers), k)
    tens = np.arange(0, 10 if dtype == np.float32 else 22)
    np.testing.assert_array_equal(apply("log10_", (10 ** tens.astype(np.float64)).astype(dtype)), tens)


def vectors(dtype: str, name: str) -> Any:
    """The widths of the fused multiply-adds in a compiled loop."""
    run = loop(name)
    x = np.ones(8, dtype)
    run(x, x.copy())
    text = next(t for s, t in run.inspect_llvm().items() if str(s[0].dtype) == dtype)
    return {int(n) for n in re.findall(r"@llvm\.fma\.v(\d+)f", text)}


@pytest.mark.skipif(not llvm.get_host_cpu_features().get("avx2"), reason="the bar is set for AVX2")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", vecmath.__all__)
def test_loops_become_vectors(name: str, dtype: str) -> None:
    if dtype == "float64" and name in ("sin_", "cos_"):
        pytest.skip("calls the C library")
    assert max(vectors(dtype, name), default=1) >= (8 if dtype == "float32" and name[:3] not in ("sin", "cos") else 4)


def test_reassociation_stays_outside() -> None:
    """A reduction that may be reassociated leaves the functions next to it as accurate as they are."""
    from parray.backends.intrinsics import sum_
    exp_ = vecmath.exp_

    @njit(error_model="numpy")
    def total(x: Any) -> Any:
        s = x[0] - x[0]
        for i in range(x.size):
            s = sum_(s, exp_(x[i]))
        return s
    x = np.random.default_rng(1).uniform(-5, 5, 4096)
    assert abs(total(x) / math.fsum(map(math.exp, x)) - 1) < 1e-14
