"""Every scalar primitive on every element type: the CPU against the reference, ordinary and extreme operands."""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import parray as pa
from parray import builder as b
from parray.ir import Lambda, Var
from parray.prims import INTEGER_DIVISIONS, TABLE
from parray.backends import cpu
from parray.interpreter import run
from parray.lower import lower
from parray.types import SCALAR_TYPES, SIZE, ScalarType, Type, f16, f32, f64, i16, i32, u16, u32, u64
from scipy import special

ELEMENTS = [t for t in SCALAR_TYPES if not t.is_bool]
ULPS = {"f16": 2, "f32": 4, "f64": 8}                       # of the worst function; docs/accuracy.md has each


def operands(t: ScalarType, arity: int) -> list[Any]:
    """All combinations of values worth trying, and ordinary ones."""
    rng = np.random.default_rng(1)
    if t.is_float:
        few = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 7.25, np.inf, -np.inf, np.nan, float(np.finfo(t.dtype).max)]
        ordinary = rng.uniform(-4, 4, (40, 3))
    else:
        info = np.iinfo(t.dtype)
        few = [v for v in (0, 1, 2, 3, 7, -1, -2, -5, info.min, info.max, info.max - 1) if info.min <= v <= info.max]
        ordinary = rng.integers(max(-50, info.min), 50, (40, 3))
    rows = list(itertools.product(few, repeat=arity)) + [tuple(r[:arity]) for r in ordinary]
    with np.errstate(all="ignore"):
        return [np.array([r[k] for r in rows], t.dtype) for k in range(arity)]


def rows_of(t: ScalarType) -> list[Any]:
    return [r for r in TABLE.values() if r.accepts(t) and r.name not in ("select", "convert", "stop", "bitcast")]


@pytest.mark.parametrize("t", ELEMENTS, ids=str)
@pytest.mark.parametrize("arity", [1, 2, 3])
def test_cpu_is_the_reference(t: ScalarType, arity: int) -> None:
    rows = [r for r in rows_of(t) if r.arity == arity]
    if not rows:
        pytest.skip("no such primitive")
    n = Var(SIZE, "n")
    params = [Var(Type(t, (n,))) for _ in range(arity)]
    with b.scope(root=True) as s:
        safe = [b.map1(lambda v: b.select(b.prim("eq", v, b.const(0, t)), b.const(1, t), v), p) for p in params[1:]]
        outs = [b.map1(lambda *xs, r=r: b.prim(r.name, *xs), params[0],
                       *(safe if r.name in INTEGER_DIVISIONS and t.is_integer else params[1:])) for r in rows]
    lam = Lambda((n, *params), tuple(s.stms), tuple(outs))
    args = operands(t, arity)
    expected = run(lam, np.int64(len(args[0])), *args)
    found = cpu.compile_program(lower(lam, 1))([len(args[0])], args)
    for r, e, f in zip(rows, expected, found):
        e, f = np.asarray(e), np.asarray(f)
        assert e.dtype == f.dtype
        if e.dtype.kind != "f":
            np.testing.assert_array_equal(f, e, err_msg=r.name)
            continue
        np.testing.assert_array_equal(np.isnan(f), np.isnan(e), err_msg=r.name)
        with np.errstate(all="ignore"):
            eps = np.finfo(e.dtype).eps * ULPS[t.name] * (16 if "gamma" in r.name else 1)
            np.testing.assert_allclose(np.float64(f), np.float64(e), rtol=eps, atol=np.finfo(e.dtype).tiny * 4 + (
                eps if r.name in ("sin", "cos", "tan", "fma", "lgamma", "digamma") else 0), err_msg=r.name)


@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_bits(backend: str) -> None:
    with pa.use_backend(backend):
        for source, to in [(f32, u32), (f64, u64), (u32, f32), (f16, u16), (i16, f16), (i32, u32)]:
            x = np.arange(-3, 4).astype(source.dtype) if source.is_float else np.arange(7).astype(source.dtype)
            f = pa.parallel(lambda x, to=to: pa.bitcast(x, to), static="to")
            np.testing.assert_array_equal(f(x), x.view(to.dtype))
        g = pa.parallel(lambda x: (pa.popcount(x), pa.clz(x), pa.ctz(x)))
        assert [int(v) for v in g(np.uint32(0x00F0))] == [4, 24, 4]
        assert [int(v) for v in g(np.int8(-1))] == [8, 0, 0] and [int(v) for v in g(np.int8(0))] == [0, 8, 8]
    with pytest.raises(pa.TypeMismatch, match="same number of bits"):
        pa.parallel(lambda x: pa.bitcast(x, pa.u64))(np.float32(1))


def test_gamma_functions_and_their_derivatives() -> None:
    x = np.concatenate([np.linspace(-4.7, -0.3, 12), np.linspace(0.1, 30, 40)])
    for f, g, rtol in ((pa.gamma, special.gamma, 1e-13), (pa.lgamma, special.gammaln, 1e-12),
                       (pa.digamma, special.digamma, 1e-12)):
        np.testing.assert_allclose(pa.parallel(f)(x), g(x), rtol=rtol, atol=1e-13)

    def derivative(f: Any, k: int) -> Any:
        return f if not k else pa.grad(derivative(f, k - 1))
    for k in (1, 2, 3):
        found = pa.parallel(lambda x, k=k: pa.map(derivative(pa.lgamma, k), x), static="k")(x)
        np.testing.assert_allclose(found, special.polygamma(k - 1, x), rtol=1e-10, atol=1e-11)
    assert math.isclose(pa.grad(pa.gamma)(3.0), 2 * special.digamma(3.0), rel_tol=1e-13)
