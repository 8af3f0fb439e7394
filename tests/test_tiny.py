"""A smoke test of everything public: each feature once, on every backend."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import parray as pa
from parray import f32, f64, i64, parallel
from parray.check import check
from parray.sizes import M, N

X = np.arange(6, dtype=np.float64)
A = X.reshape(2, 3)


@pa.record
class Point:
    x: f64["n"]
    y: f64["n"]


class Pair(NamedTuple):
    first: Any
    second: Any


@parallel
def linear(x: f32["n"], w: f32["m", "n"]) -> f32["m"]:
    return pa.map(lambda row: pa.reduce(pa.add, 0, pa.map2(pa.mul, row, x)), w)


def test_linear(backend: str) -> None:
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = linear(np.ones(3, np.float32), w)
    assert out.dtype == np.float32 and out.tolist() == [3.0, 12.0]


CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "map": (lambda x: pa.map(lambda v: v * 2 + 1, x), (X,), X * 2 + 1),
    "map of pairs": (lambda x: pa.map(lambda p: p[0] - p[1], (x, x[::-1])), (X,), X - X[::-1]),
    "map3": (lambda x: pa.map3(lambda a, b, c: a + b * c, x, x, x), (X,), X + X * X),
    "reduce": (lambda x: pa.reduce(pa.max, -pa.inf, x), (X,), 5.0),
    "reduce of rows": (lambda a: pa.reduce(pa.add, 0, a), (A,), A.sum(0)),
    "reduce of pairs": (lambda x: pa.reduce(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1.0, 0.0), (x, x)), (X,),
                        (0.0, 325.0)),
    "scan": (lambda x: pa.scan(pa.add, 0, x), (X,), np.cumsum(X)),
    "exscan": (lambda x: pa.exscan(pa.add, 0, x), (X,), np.cumsum(X) - X),
    "iota": (lambda x: pa.iota(x.shape[0]), (X,), np.arange(6)),
    "replicate": (lambda x: pa.replicate(2, x), (X,), np.stack([X, X])),
    "tabulate": (lambda x: pa.tabulate((2, 3), lambda i, j: x[i] * 10 + j), (X,), [[0, 1, 2], [10, 11, 12]]),
    "zip": (lambda x: pa.unzip(pa.zip(x, x + 1)), (X,), (X, X + 1)),
    "transpose": (lambda a: pa.transpose(a), (A,), A.T),
    "reshape": (lambda a: pa.reshape(a, (3, -1)), (A,), A.reshape(3, 2)),
    "flatten": (lambda a: pa.flatten(a), (A,), X),
    "unflatten": (lambda x: pa.unflatten(x, (2, -1)), (X,), A),
    "concat": (lambda x: pa.concat(x, x), (X,), np.concatenate([X, X])),
    "reverse": (lambda x: pa.reverse(x), (X,), X[::-1]),
    "rotate": (lambda x: pa.rotate(x, 2), (X,), np.roll(X, -2)),
    "take": (lambda x: pa.take(2, x), (X,), X[:2]),
    "drop": (lambda x: pa.drop(2, x), (X,), X[2:]),
    "split": (lambda x: pa.split(2, x), (X,), (X[:2], X[2:])),
    "gather": (lambda x: pa.gather(x, np.array([1, -1])), (X,), [1.0, 5.0]),
    "scatter": (lambda x: pa.scatter(x, np.array([1, 9, -1]), np.array([7.0, 8.0, 9.0])), (X,), [0, 7, 2, 3, 4, 5]),
    "reduce_by_index": (lambda x: pa.reduce_by_index(x, pa.add, 0, np.array([1, 1, 9]), np.ones(3)), (X,),
                        [0, 3, 2, 3, 4, 5]),
    "update": (lambda x: pa.update(x, -1, 0), (X,), [0, 1, 2, 3, 4, 0]),
    "where": (lambda x: pa.where(x > 2, x, 0), (X,), np.where(X > 2, X, 0)),
    "cond": (lambda x: pa.cond(x[0] > 0, lambda: x, lambda: -x), (X,), -X),
    "loop": (lambda x: pa.loop(3, lambda i, c: c + x[i], 0.0), (X,), 3.0),
    "while_loop": (lambda x: pa.while_loop(lambda c: c < 100, lambda c: c * 2, x[1]), (X,), 128.0),
    "foldl": (lambda x: pa.foldl(lambda a, v: a * 0.5 + v, 0.0, x), (X,), 8.0625),
    "foldr": (lambda x: pa.foldr(lambda v, a: v - a, 0.0, x), (X,), -3.0),
    "sum": (lambda x: (x.sum(), pa.prod(x), pa.mean(x)), (X,), (15.0, 0.0, 2.5)),
    "extremes": (lambda x: (pa.minimum(x), pa.maximum(x), pa.argmin(x), pa.argmax(x)), (X,), (0.0, 5.0, 0, 5)),
    "any": (lambda x: (pa.any(x > 4), pa.all(x > 4)), (X,), (True, False)),
    "dot": (lambda x: pa.dot(x, x), (X,), 55.0),
    "matmul": (lambda a: a @ a.T, (A,), A @ A.T),
    "indexing": (lambda a: a[1, ::-1], (A,), A[1, ::-1]),
    "numpy": (lambda x: np.sum(np.exp(-x) + np.where(x > 1, x, 1)), (X,), np.sum(np.exp(-X) + np.where(X > 1, X, 1))),
    "named tuple": (lambda p: Pair(p.second, p.first), (Pair(X, A),), Pair(A, X)),
    "dict": (lambda d: {"sum": d["b"] + d["a"]}, ({"b": X, "a": 1},), {"sum": X + 1}),
    "none": (lambda p: (None, p[1]), ((None, X),), (None, X)),
}


def assert_equal(got: Any, want: Any) -> None:
    """Equal structure, close values."""
    if isinstance(want, (tuple, dict)):
        assert type(got) is type(want) and len(got) == len(want)
        for a, b in zip(got.values() if isinstance(got, dict) else got,
                        want.values() if isinstance(want, dict) else want):
            assert_equal(a, b)
    elif want is None:
        assert got is None
    else:
        assert isinstance(got, (np.ndarray, np.generic))
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_each_construct(name: str, backend: str) -> None:
    f, args, want = CASES[name]
    g = parallel(f)
    assert_equal(g(*args), want)
    check(g.program(*args).lam)


def test_records(backend: str) -> None:
    @parallel
    def step(p: Point, g: Point, rate: f64) -> Point:
        return p - rate * g
    p = step(Point(X, X), Point(X, X + 1), 0.5)
    assert type(p) is Point
    np.testing.assert_array_equal(p.x, X / 2)
    np.testing.assert_array_equal(p.y, X - (X + 1) / 2)


def test_annotations_with_type_variables(backend: str) -> None:
    @parallel
    def f(a: f64[M, N], i: i64) -> f64[N]:
        return a[i]
    assert f(A, 1).tolist() == [3.0, 4.0, 5.0]


def test_gradients(backend: str) -> None:
    @parallel
    def f(x: Any) -> Any:
        return pa.value_and_grad(lambda v: pa.sum(v * v))(x)
    value, g = f(X)
    assert value == 55.0
    np.testing.assert_array_equal(g, 2 * X)
    np.testing.assert_array_equal(pa.grad(lambda v: pa.sum(pa.sin(v)))(X), np.cos(X))


def test_vjp_and_jvp(backend: str) -> None:
    @parallel
    def f(x: Any) -> Any:
        y, pull = pa.vjp(lambda v: v * v, x)
        z, dot = pa.jvp(lambda v: v * v, (x,), (pa.ones_like(x),))
        return y, pull(y), z, dot
    y, bar, z, dot = f(X)
    assert_equal((y, bar, z, dot), (X * X, 2 * X ** 3, X * X, 2 * X))
