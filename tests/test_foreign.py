"""pa.foreign: functions of numba, numba.cuda and C in programs, on every backend."""
from __future__ import annotations

import ctypes
import ctypes.util
import gc
import math
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parray as pa
from parray import cache, f16, f32, f64, i32, i64, parallel, u8
from parray.backends import cuda, cuda_host, ptx, simt
from parray.errors import BackendError, SizeMismatch, TypeMismatch
from parray.lower import lower
from parray.pipeline import optimise, stages
from parray.soacs.foreign import FUNCTIONS

both = pytest.mark.parametrize("backend", ["interp", "cpu"])


def logit(x: Any) -> Any:
    return math.log(x / (1 - x))


Logit = pa.foreign(logit, (f64,), f64, vjp=lambda x, y, bar: bar / (x * (1 - x)))


@numba.njit
def row_sums(a: Any, b: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        out[i] = b[i] / a[i].sum()


Divided = pa.foreign(row_sums, (f64["n", "k"], f64["n"]), f64["n"],
                     vjp=lambda a, b, out, bar: (pa.map2(lambda row, w: pa.zeros_like(row) + w, a,
                                                         -bar * out / a.sum(1)), bar / a.sum(1)))


@both
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5000,), (3, 7), (2, 0)])
def test_on_scalars_is_elementwise(backend: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).uniform(0.1, 0.9, shape)
    with pa.use_backend(backend):
        assert np.allclose(parallel(lambda x: Logit(x) * 2)(x), 2 * np.log(x / (1 - x)), rtol=1e-14, atol=1e-14)


@both
def test_broadcasts_and_fuses(backend: str) -> None:
    lerp = pa.foreign(lambda a, b, t: a + t * (b - a), (f64, f64, f64), f64, name="lerp")
    a, b = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    with pa.use_backend(backend):
        assert np.array_equal(parallel(lambda a, b: lerp(a, b, 1))(a, b), a + 1.0 * (b - a))
        assert parallel(lambda a, b: lerp(a, b, 0.5).sum())(a, b) == (a + 0.5 * (b - a)).sum()


@both
def test_in_an_operator_and_a_loop(backend: str) -> None:
    larger = pa.foreign(lambda a, b: max(a, b), (i64, i64), i64, name="larger")
    x = np.array([3, -1, 9, 2])
    with pa.use_backend(backend):
        assert parallel(lambda x: pa.reduce(larger, -100, x))(x) == 9
        assert np.array_equal(parallel(lambda x: pa.scan(larger, -100, x))(x), [3, 3, 9, 9])
        assert parallel(lambda n: pa.while_loop(lambda c: larger(c, n) == n, lambda c: c + 3, 0))(np.int64(7)) == 9


@both
@pytest.mark.parametrize("elem", [u8, i32, i64, f32, f64, pa.bool_])
def test_every_type_goes_in_and_out_as_it_is(backend: str, elem: Any) -> None:
    same = pa.foreign(lambda x: x, (elem,), elem, name="same")

    def flip(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[x.size - 1 - i] = x[i]
    flipped = pa.foreign(flip, (elem["n"],), elem["n"])
    x = np.array([0, 1, 1, 0, 1], elem.dtype)
    if not elem.is_bool:
        x[-1] = np.iinfo(elem.dtype).min if elem.is_integer else np.inf
    with pa.use_backend(backend):
        for got, want in ((parallel(lambda x: same(x))(x), x), (parallel(lambda x: flipped(x))(x), x[::-1])):
            assert got.dtype == elem.dtype and np.array_equal(got, want)


@both
def test_whole_arrays_views_and_maps(backend: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.uniform(1, 2, (5, 3, 7)), rng.uniform(1, 2, (5, 7))
    with pa.use_backend(backend):
        got = parallel(lambda a, b: pa.map2(lambda r, s: Divided(r.T, s), a, b))(a, b)
        assert np.allclose(got, b / a.sum(1), rtol=1e-14)
        assert np.allclose(parallel(lambda a, b: Divided(a.T, b[::-1]) + 1)(a[0], b[0]), 1 + b[0, ::-1] / a[0].sum(0))


@both
def test_several_results_and_a_returned_scalar(backend: str) -> None:
    def split(x: Any, low: Any, high: Any) -> None:
        for i in range(x.size):
            low[i], high[i] = min(x[i], 0.0), max(x[i], 0.0)
    parts = pa.foreign(split, (f64["n"],), (f64["n"], f64["n"]))
    norm = pa.foreign(lambda x: np.sqrt((x * x).sum()), (f64["n"],), f64, name="norm")
    x = np.array([3.0, -4.0])
    with pa.use_backend(backend):
        low, high = parallel(lambda x: parts(x))(x)
        assert np.array_equal(low, [0, -4]) and np.array_equal(high, [3, 0])
        assert parallel(lambda x: norm(x) + 1)(x) == 6
        assert np.array_equal(parallel(lambda m: pa.map(norm, m))(np.stack([x, 2 * x])), [5, 10])


# --- C ---------------------------------------------------------------------------------------------------------------

def libm() -> str:
    return ctypes.util.find_library("m") or pytest.skip("no C library of mathematics here")


@both
def test_c_through_ctypes(backend: str) -> None:
    cbrt = pa.foreign(ctypes.CDLL(libm()).cbrt, (f64,), f64, vjp=lambda x, y, bar: bar / (3 * y * y))
    x = np.array([8.0, -27.0, 0.5])
    with pa.use_backend(backend):
        assert np.allclose(parallel(lambda x: cbrt(x))(x), np.cbrt(x), rtol=1e-15)
        assert np.allclose(pa.grad(lambda x: cbrt(x).sum())(x), np.cbrt(x) ** -2 / 3)


@both
def test_c_through_cffi(backend: str) -> None:
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    ffi.cdef("double erf(double);")
    lib = ffi.dlopen(libm())
    x = np.array([0.0, 0.5, -2.0])
    with pa.use_backend(backend):
        for function in (lib.erf, ffi.addressof(lib, "erf")):
            erf = pa.foreign(function, (f64,), f64, name="erf")
            assert np.allclose(parallel(lambda x: erf(x))(x), [math.erf(v) for v in x], rtol=1e-15)


@both
def test_c_gets_pointers_then_sizes(backend: str) -> None:
    pointer = ctypes.POINTER(ctypes.c_double)

    @ctypes.CFUNCTYPE(None, pointer, ctypes.c_double, pointer, ctypes.c_int64, ctypes.c_int64)
    def scaled(x: Any, by: float, out: Any, rows: int, columns: int) -> None:
        for k in range(rows * columns):
            out[k] = x[k] * by + rows
    scale = pa.foreign(scaled, (f64["m", "n"], f64), f64["n", "m"], name="scale")
    x = np.arange(6.0).reshape(2, 3)
    with pa.use_backend(backend):
        assert np.array_equal(parallel(lambda x: scale(x, 10))(x), (x * 10 + 2).reshape(3, 2))


# --- derivatives -----------------------------------------------------------------------------------------------------

SQUARED = pa.grad(lambda x: (Logit(x) ** 2).sum())
TANGENT = parallel(lambda x, t: pa.jvp(lambda x: Logit(x), (x,), (t,))[1])
SECOND = pa.grad(lambda x: pa.grad(lambda x: Logit(x).sum())(x).sum())


@both
@settings(deadline=None)
@given(st.lists(st.floats(0.05, 0.95), min_size=1, max_size=5))
def test_both_modes_on_scalars(backend: str, values: list[float]) -> None:
    x = np.array(values)
    with pa.use_backend(backend):
        exact = 1 / (x * (1 - x))
        assert np.allclose(SQUARED(x), 2 * np.log(x / (1 - x)) * exact)
        assert np.allclose(TANGENT(x, x), x * exact)
        assert np.allclose(SECOND(x), (2 * x - 1) * exact ** 2)


@both
def test_reverse_mode_on_arrays(backend: str) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(1, 2, (4, 3)), rng.uniform(1, 2, 4)
    with pa.use_backend(backend):
        da, db = pa.grad(lambda a, b: (Divided(a, b) ** 2).sum(), (0, 1))(a, b)
        q = b / a.sum(1)
        assert np.allclose(db, 2 * q / a.sum(1))
        assert np.allclose(da, np.repeat((-2 * q * q / a.sum(1))[:, None], 3, 1))
        with pytest.raises(TypeMismatch, match="reverse derivative only"):
            parallel(lambda a, b: pa.jvp(lambda b: Divided(a, b), (b,), (b,)))(a, b)


@both
def test_integers_have_no_cotangent(backend: str) -> None:
    power = pa.foreign(lambda x, n: x ** n, (f64, i64), f64, vjp=lambda x, n, y, bar: (bar * n * y / x, None))
    with pa.use_backend(backend):
        assert pa.grad(lambda x: power(x, 3))(np.float64(2)) == 12


def test_without_a_derivative() -> None:
    plain = pa.foreign(lambda x: x * 2, (f64,), f64, name="plain")
    with pytest.raises(TypeMismatch, match="plain is a foreign function without a derivative") as e:
        pa.grad(lambda x: plain(x))(np.float64(1))
    assert "test_foreign.py" in str(e.value)
    assert pa.grad(lambda x: x * plain(pa.stop_gradient(x)))(np.float64(3)) == 6


def test_a_vjp_that_does_not_fit() -> None:
    for vjp, words in ((lambda x, y, bar: (bar, bar), "2 cotangents for 1"), (lambda x, y, bar: None, "None for"),
                       (lambda x, y, bar: pa.replicate(3, bar), r"f64\[3\]")):
        wrong = pa.foreign(lambda x: x, (f64,), f64, vjp=vjp, name="wrong")
        with pytest.raises(TypeMismatch, match=words):
            pa.grad(lambda x: wrong(x))(np.float64(1))


# --- faults ----------------------------------------------------------------------------------------------------------

@both
@pytest.mark.parametrize("n", [1, 2, 150_000])
def test_an_exception_is_raised_with_the_users_line(backend: str, n: int) -> None:
    def checked(x: Any) -> Any:
        if x < 0:
            raise ValueError("negative")
        return x
    f = pa.foreign(checked, (f32,), f32)
    x = np.ones(n, np.float32)
    with pa.use_backend(backend):
        g = parallel(lambda x: f(x))
        assert np.array_equal(g(x), x)
        x[-1] = -1
        with pytest.raises(pa.ForeignError, match="checked raised") as e:
            g(x)
        assert "test_foreign.py" in str(e.value)
        x[-1] = 1
        assert np.array_equal(g(x), x)                  # and the next call is as good as ever


def test_declarations_that_make_no_sense() -> None:
    for args, result, words in (((float,), f64, "argument 1"), ((f16,), f64, "f16"), ((f64["n"],), f64["m"], "'m'"),
                                ((f64,), (f64, f64), "several scalars"), ((f64,), (), "one scalar, or arrays")):
        with pytest.raises(TypeMismatch, match=words):
            pa.foreign(lambda x: x, args, result)
    with pytest.raises(TypeMismatch, match="cannot compile"):
        pa.foreign(lambda x: x.no_such_thing, (f64,), f64)
    with pytest.raises(TypeMismatch, match="returns nothing"):
        pa.foreign(lambda x, out: x, (f64["n"],), f64["n"])
    with pytest.raises(TypeMismatch, match="declared to return"):
        pa.foreign(lambda x: (x, x), (f64,), f64)
    for elem, f in ((i64, lambda x: x / 2), (pa.bool_, lambda x: x)):
        with pytest.raises(TypeMismatch, match="declared to return"):
            pa.foreign(f, (i64,), elem)
    with pytest.raises(TypeMismatch, match="is needed, not 'sin'"):
        pa.foreign("sin", (f64,), f64)


def test_calls_that_do_not_fit() -> None:
    x = np.ones(3)
    with pytest.raises(TypeMismatch, match="takes 1 arguments, not 2"):
        parallel(lambda x: Logit(x, x))(x)
    with pytest.raises(TypeMismatch, match="argument 1 of logit"):
        parallel(lambda x: Logit(x))(x.astype(np.float32))
    with pytest.raises(TypeMismatch, match="argument 1 of row_sums"):
        parallel(lambda x: Divided(x, x))(x)
    with pytest.raises(SizeMismatch, match="row_sums"):
        parallel(lambda a, b: Divided(a, b))(np.ones((2, 3)), x)
    with pytest.raises(pa.TraceError):
        Logit(0.5)


# --- the compiler ----------------------------------------------------------------------------------------------------

@both
def test_a_cotangent_of_another_size(backend: str) -> None:
    wrong = pa.foreign(row_sums, (f64["n", "k"], f64["n"]), f64["n"], name="wrong",
                       vjp=lambda a, b, out, bar: (a, pa.concat(bar, bar)))
    with pa.use_backend(backend), pytest.raises(SizeMismatch, match="the vjp of wrong gives for argument 2"):
        pa.grad(lambda a, b: wrong(a, b).sum(), 1)(np.ones((2, 3)), np.ones(2))


def test_truth_values_on_emulated_threads() -> None:
    either = pa.foreign(lambda a, b: a or b, (pa.bool_, pa.bool_), pa.bool_, name="either")
    a, b = np.array([True, False, False]), np.array([False, True, False])
    traced, program = printed(lambda a, b: either(a, b), a, b)
    device, limits = simt.Simt(), cuda_host.Limits(blocks=3, grid=2, lanes=8)
    got, = cuda_host.Runner(program, device, limits)(traced.bind([a, b]), [a, b])
    assert np.array_equal(got, a | b)


def test_it_is_pure() -> None:
    lam = parallel(lambda x: (Logit(x) + Logit(x)).sum()).program(np.ones(4)).lam
    for _, stage in stages(lam, checked=True):
        pass
    text = str(stage)
    assert "bwd=None" in text and text.count("bwd=None") == 1


def test_kernels_that_call_it_stay_off_the_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARRAY_CACHE_DIR", str(tmp_path))
    parallel(lambda x: Logit(x) * 7 + 3)(np.full(3, 0.5))
    assert not any("foreign_" in p.read_text() for e in cache.entries() for p in e.path.glob("*.py"))


def test_functions_nobody_has_any_more_are_forgotten() -> None:
    before = len(FUNCTIONS)
    for _ in range(3):
        pa.foreign(lambda x: x, (f64,), f64)
    gc.collect()
    assert len(FUNCTIONS) <= before


def printed(f: Any, *args: Any) -> tuple[Any, Any]:
    traced = parallel(f).program(*args)
    return traced, cuda.print_program(lower(optimise(traced.lam), len(traced.sizes), traced.name), 4)


def halved(x: Any) -> Any:
    return x / 2 + 1


@pytest.mark.parametrize("source", ["python", "njit", "device", "c"])
def test_on_emulated_and_assembled_cuda_threads(source: str) -> None:
    if source == "device":
        device = pytest.importorskip("numba.cuda").jit(device=True)(halved)
        f = pa.foreign(device, (f32,), f32)
    elif source == "c":
        f = pa.foreign(ctypes.CDLL(libm()).cbrtf, (f32,), f32, cuda=halved)
    else:
        f = pa.foreign(halved if source == "python" else numba.njit(halved), (f32,), f32)
    x = np.arange(11, dtype=np.float32)
    traced, program = printed(lambda x: f(x) * 3, x)
    got, = cuda_host.Runner(program, simt.Simt(), cuda_host.Limits(blocks=3, grid=2, lanes=8))(traced.bind([x]), [x])
    assert np.array_equal(got, (x / 2 + 1) * 3)
    if source != "c":
        assert np.array_equal(parallel(lambda x: f(x) * 3)(x), got)
    try:
        ptx.require()
    except BackendError:                                        # without the toolchain
        return
    assert all(a.registers for a in ptx.assemble(program).values())


def test_what_cuda_cannot_call() -> None:
    cbrt = pa.foreign(ctypes.CDLL(libm()).cbrt, (f64,), f64)
    with pytest.raises(BackendError, match="needs cuda="):
        printed(lambda x: cbrt(x), np.ones(3))
    with pytest.raises(BackendError, match="whole arrays"):
        printed(lambda a, b: Divided(a, b), np.ones((2, 3)), np.ones(2))
