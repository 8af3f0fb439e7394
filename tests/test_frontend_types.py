"""Element types and scalar functions against NumPy: promotion, weak numbers, ufuncs, comparison, conversion."""
from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
import pytest

import parray as pa
from parray import f64, parallel

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "eq", "and_", "lshift"]


def numpys(f: Any, *args: Any) -> Any:
    """What NumPy gives, or the class of its error."""
    with np.errstate(all="ignore"):
        try:
            return f(*args)
        except TypeError:
            return TypeError


def compare(f: Any, *args: Any) -> None:
    """The traced function gives NumPy's type and values, or a TypeError where NumPy has one."""
    want = numpys(f, *args)
    if want is TypeError:
        with pytest.raises(TypeError):
            parallel(f)(*args)
        return
    got = parallel(f)(*args)
    assert got.dtype == np.asarray(want).dtype
    np.testing.assert_allclose(got.astype(np.float64), np.asarray(want).astype(np.float64), rtol=1e-3)


@pytest.mark.parametrize("name", OPERATORS)
def test_promotion_of_pairs(name: str, interpreter: None) -> None:
    op = getattr(operator, name)
    for a in DTYPES:
        for b in DTYPES:
            compare(lambda x, y: op(x, y), np.array([3, 2]).astype(a), np.array([2, 1]).astype(b))


NUMBERS = [True, 2, 2.5, np.int16(3), np.float32(1.5), np.uint64(7), np.bool_(True)]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("name", ["add", "mul", "truediv", "mod"])
def test_numbers(number: Any, name: str, interpreter: None) -> None:
    op = getattr(operator, name)
    for a in DTYPES:
        x = np.array([3, 2]).astype(a)
        compare(lambda v: op(v, number), x)
        compare(lambda v: op(number, v + (v == 0)), x)


@pytest.mark.parametrize("name", [
    "sqrt", "exp", "log", "sin", "tanh", "arctan", "floor", "rint", "isnan", "square", "negative", "absolute",
    "logical_not", "invert", "cbrt", "log1p", "sign", "reciprocal", "isfinite", "fabs"])
def test_unary_ufuncs(name: str, interpreter: None) -> None:
    f = getattr(np, name)
    for a in DTYPES:
        if a == "?" and name in ("floor", "isfinite", "isnan", "reciprocal", "square"):
            continue                                                 # NumPy has its own rules there
        if a[0] in "iu" and name == "reciprocal":
            continue                                                 # NumPy has its own rules there
        compare(lambda v: f(v), np.array([1, 1]).astype(a))


@pytest.mark.parametrize("name", ["maximum", "minimum", "arctan2", "hypot", "copysign", "logical_and", "logical_xor",
                                  "fmod", "power", "greater_equal", "bitwise_or", "right_shift"])
def test_binary_ufuncs(name: str, interpreter: None) -> None:
    f = getattr(np, name)
    for a in DTYPES:
        compare(lambda v, w: f(v, w), np.array([3, 1]).astype(a), np.array([2, 1]).astype(a))


def test_numpy_scalars_on_the_left(backend: str) -> None:
    x = np.ones(3, np.float32)
    for k in (np.float64(2), np.float32(2), np.int8(2)):
        got = parallel(lambda v: k * v - k)(x)
        assert got.dtype == (k * x - k).dtype
        np.testing.assert_array_equal(got, k * x - k)


def test_sizes_are_weak(backend: str) -> None:
    f = parallel(lambda x: (x / x.shape[0], x * x.shape[0] ** 0.5, x.shape[0] // 2, x.size))
    a, b, half, size = f(np.ones(4, np.float32))
    assert a.dtype == b.dtype == np.float32 and b[0] == 2.0 and half == 2 and size == 4
    assert isinstance(half, np.int64)


def test_python_arguments_are_weak(backend: str) -> None:
    f = parallel(lambda x, k: x * k)
    assert f(np.ones(2, np.float32), 2).dtype == np.float32
    assert f(np.ones(2, np.float32), 2.5).dtype == np.float32
    assert f(np.ones(2, np.int32), 2.5).dtype == np.float64
    assert f(np.ones(2, np.float32), np.float64(2)).dtype == np.float64
    assert isinstance(f(2, 3), np.int64)


@pytest.mark.parametrize("f", [lambda x: x + 300, lambda x: 300 * x, lambda x: x + -1,
                               lambda x: pa.where(x > 1, x, 256)])
def test_integers_that_do_not_fit(f: Any, backend: str) -> None:
    with pytest.raises(pa.TypeMismatch, match="out of bounds for u8"):
        parallel(f)(np.ones(2, np.uint8))


def test_comparisons_with_integers_that_do_not_fit(backend: str) -> None:
    x = np.array([0, 255], np.uint8)
    for f in (lambda v: v < 300, lambda v: v > -1, lambda v: 300 <= v, lambda v: -1 == v, lambda v: v != 256,
              lambda v: -5 >= v, lambda v: 1000 > v):
        np.testing.assert_array_equal(parallel(f)(x), f(x))


def test_integers_wrap(backend: str) -> None:
    x = np.array([127, -128], np.int8)
    np.testing.assert_array_equal(parallel(lambda v: (v + v, v * v, -v))(x)[0], x + x)


def test_conversion(backend: str) -> None:
    x = np.array([1.9, -1.9, np.nan, 300.0])
    f = parallel(lambda v: (pa.i32(v), v.astype(np.int8), v.astype(pa.bool_), pa.f32(v)))
    a, b, c, d = f(x)
    assert a.tolist() == [1, -1, 0, 300] and b.tolist() == [1, -1, 0, 127] and c.tolist() == [True] * 4
    assert d.dtype == np.float32


def test_division_by_zero_has_the_line(backend: str) -> None:
    @parallel
    def f(x: Any, y: Any) -> Any:
        return x // y                                                # this line
    with pytest.raises(ZeroDivisionError, match="this line"):
        f(np.array([1, 2]), np.array([1, 0]))


REDUCTIONS = ["sum", "prod", "mean", "max", "min", "argmax", "argmin", "any", "all"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_reductions(name: str, axis: Any, backend: str) -> None:
    f = getattr(np, name)
    for a in DTYPES if backend == "interp" else ["i4", "f4"]:        # compiling takes longer
        x = np.array([[3, 1, 2], [0, 3, 3]]).astype(a)
        compare(lambda v: f(v, axis=axis), x)
    compare(lambda v: f(v, axis=axis, keepdims=True), x)
    nan = np.array([[1.0, np.nan, 2.0, np.nan], [np.inf, -np.inf, -0.0, 0.0]])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(parallel(lambda v: f(v, axis=axis))(nan), f(nan, axis=axis))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extremes_of_nothing(name: str, backend: str) -> None:
    f = parallel(lambda v: getattr(pa, name)(v))
    with pytest.raises(ValueError, match="empty"):
        f(np.zeros(0))
    with pytest.raises(ValueError, match="empty"):
        parallel(lambda v: getattr(pa, name)(v), static=True)(np.zeros(0))
    rows = parallel(lambda a: pa.map(lambda row: getattr(pa, name)(row), a))
    assert rows(np.zeros((0, 0))).shape == (0,)
    with pytest.raises(ValueError, match="empty"):
        rows(np.zeros((2, 0)))


SHAPES = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3,)), ((5, 2, 3), (3, 4)),
          ((5, 2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4))]


def _products(a: Any, b: Any, dtypes: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 3, a).astype(dtypes[0]), rng.integers(0, 3, b).astype(dtypes[1])
    compare(lambda v, w: v @ w, x, y)
    if y.ndim <= 2:
        compare(lambda v, w: np.dot(v, w), x, y)


@pytest.mark.parametrize("a, b", SHAPES)
def test_matmul(a: Any, b: Any, backend: str) -> None:
    _products(a, b, ("f8", "f8"))


@pytest.mark.parametrize("a, b", SHAPES)
@pytest.mark.parametrize("dtypes", [("i4", "i4"), ("f4", "i8"), ("?", "?")])
def test_types_of_matmul(a: Any, b: Any, dtypes: tuple[str, str], interpreter: None) -> None:
    _products(a, b, dtypes)


def test_functions_of_numpy(backend: str) -> None:
    x = np.arange(6.0).reshape(2, 3)
    for f in (lambda v: np.clip(v, 1, 3), lambda v: np.cumsum(v), lambda v: np.cumsum(v, axis=0),
              lambda v: np.outer(v[0], v[1]), lambda v: np.cumprod(v + 1, axis=1),
              lambda v: np.zeros_like(v), lambda v: np.full_like(v, 3),
              lambda v: np.where(v > 1, v, 0), lambda v: np.round(v / 2), lambda v: np.roll(v[0], 1),
              lambda v: np.ravel(v), lambda v: np.add.reduce(v), lambda v: np.maximum.reduce(v, axis=1),
              lambda v: np.sum(v, axis=(0, 1)),
              lambda v: divmod(v, 2)[1], lambda v: abs(-v), lambda v: np.diff(v), lambda v: np.diff(v, axis=0),
              lambda v: np.sinc(v - 2), lambda v: np.logaddexp(v, v[::-1]), lambda v: np.heaviside(v - 1, 0.5),
              lambda v: np.signbit(v - 3), lambda v: np.fmax(v, np.nan), lambda v: np.fmin(v, 2.0),
              lambda v: np.degrees(v), lambda v: np.radians(v), lambda v: np.sort(v, axis=0),
              lambda v: np.argsort(-v), lambda v: np.unique(v[0]), lambda v: np.einsum("ij,kj->ik", v, v),
              lambda v: np.searchsorted(v[0], v[1])):
        compare(f, x)
    with pytest.raises(pa.TraceError, match="np.histogram is not available"):
        parallel(lambda v: np.histogram(v))(x)
    with pytest.raises(pa.TraceError, match="np.spacing is not available"):
        parallel(lambda v: np.spacing(v))(x)


def test_prelude(backend: str) -> None:
    from scipy import special
    x = np.linspace(-3, 3, 12).reshape(3, 4)
    pairs = [(pa.softmax, lambda v: special.softmax(v, -1)), (pa.log_softmax, lambda v: special.log_softmax(v, -1)),
             (pa.logsumexp, special.logsumexp), (pa.sigmoid, special.expit), (pa.var, np.var), (pa.std, np.std),
             (pa.relu, lambda v: np.maximum(v, 0)), (pa.softplus, lambda v: np.log1p(np.exp(v))),
             (pa.square, np.square), (pa.gelu, lambda v: v * special.ndtr(v)), (pa.silu,
             lambda v: v * special.expit(v)), (pa.erf, special.erf),
             (lambda v: pa.logsumexp(v, 0), lambda v: special.logsumexp(v, 0)), (lambda v: pa.eye(3) @ v, lambda v: v),
             (lambda v: pa.one_hot(pa.argmax(v, axis=1), 4), lambda v: np.eye(4)[v.argmax(1)]),
             (lambda v: pa.clip(v, -1, 1), lambda v: np.clip(v, -1, 1))]
    for f, want in pairs:
        np.testing.assert_allclose(parallel(f)(x), want(x), rtol=1e-12)
    assert parallel(lambda: (pa.zeros((2, 3)), pa.ones(2, pa.f32)))()[0].shape == (2, 3)


@pytest.mark.parametrize("f, slope", [(pa.softplus, 0.5), (pa.sigmoid, 0.25), (pa.silu, 0.5), (pa.gelu, 0.5),
                                      (pa.relu, 0.0), (lambda x: pa.logsumexp(pa.concat(x[None], -x[None])), 0.0)])
def test_slopes_at_zero(f: Any, slope: float) -> None:
    """Where a formula has a corner, the function may have none."""
    assert pa.grad(lambda x: f(x))(0.0) == slope


class Pair(NamedTuple):
    """A named tuple for annotations."""
    a: Any
    b: Any


@pytest.mark.parametrize("annotation, value, words", [
    (f64["n"], [1.0, 2.0], r"x is a list of 2, .*np.array makes an array of it"),
    (f64, None, "x is None, the annotation says f64"),
    (Pair, np.ones(3), "x is an array or a number, the annotation says Pair"),
    (Pair, (1.0, 2.0), "x is a tuple of 2, the annotation says Pair"),
    (tuple[f64["n"], f64], (np.ones(2),), "x is a tuple of 1"),
    (tuple[f64["n"], Pair], (np.ones(2), 3.0), r"x\[1\] is an array or a number, the annotation says Pair"),
])
def test_an_argument_of_another_structure(annotation: Any, value: Any, words: str) -> None:
    def f(x: Any) -> Any:
        return x
    f.__annotations__["x"] = annotation
    with pytest.raises(pa.TypeMismatch, match=words) as e:
        parallel(f)(value)
    assert "test_frontend_types.py" in str(e.value)
