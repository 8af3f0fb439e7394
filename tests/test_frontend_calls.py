"""Calls: arguments of every form, structures, the fast path, backends, threads, introspection; derivatives."""
from __future__ import annotations

import dataclasses
import threading
import timeit
from typing import Any, NamedTuple

import numpy as np
import pytest

import parray as pa
from parray import f64, parallel
from parray.api.dispatch import MISS

X = np.arange(6.0)


@pa.record
class Params:
    w: f64["m", "n"]
    b: f64["m"]
    inner: Any = None


@dataclasses.dataclass
class Plain:
    x: Any
    y: Any = None


class Named(NamedTuple):
    x: Any
    y: Any


def fast(f: pa.Parallel, *args: Any) -> bool:
    """Whether the fast path takes these arguments."""
    return any(d(args) is not MISS for ds in f._fast.values() for d in ds)


STRUCTURES: list[Any] = [
    X, 2, 2.5, True, np.float32(3), (X, 1), [X, [2.0]], {"b": X, "a": (1, None)}, Named(X, 1), Plain(X, [X]),
    Params(np.ones((2, 3)), np.ones(2)), Params(np.ones((2, 3)), np.ones(2), {"k": Plain(1, None)}), None, (), {},
]


@pytest.mark.parametrize("value", STRUCTURES, ids=lambda v: type(v).__name__)
def test_structures_come_back(value: Any, backend: str) -> None:
    f = parallel(lambda v: pa.tree.map(lambda leaf: leaf + leaf, v))
    for _ in range(2):
        out = f(value)
        assert pa.tree.structure(out) == pa.tree.structure(value)
        for a, b in zip(pa.tree.leaves(out), pa.tree.leaves(value)):
            np.testing.assert_array_equal(a, np.add(b, b))
            assert isinstance(a, (np.ndarray, np.generic))
    assert f.compiles == 1 and fast(f, value)


def test_arrays_of_every_layout(backend: str) -> None:
    f = parallel(lambda x: x * 2 + 1)
    base = np.arange(24.0).reshape(4, 6)
    read_only = base.copy()
    read_only.setflags(write=False)
    for x in (base, base.T, base[::2, ::-1], np.asfortranarray(base), read_only, np.broadcast_to(base[0], (4, 6)),
              base.astype(">f8"), np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.float64).reshape(4, 6)):
        before = x.copy()
        np.testing.assert_array_equal(f(x), x * 2 + 1)
        np.testing.assert_array_equal(x, before)
    assert f.compiles == 1
    assert f(np.array(3.0)) == 7 and f(np.float64(3)) == 7 and f.compiles == 2


class Foreign:
    """An array of another library."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(3.0)


class ForeignDlpack:
    def __dlpack__(self, **kwargs: Any) -> Any:
        return np.arange(3.0).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return np.arange(3.0).__dlpack_device__()


def test_foreign_arrays(backend: str) -> None:
    for x in (Foreign(), ForeignDlpack()):
        np.testing.assert_array_equal(parallel(lambda v: v + 1)(x), np.arange(3.0) + 1)
        np.testing.assert_array_equal(parallel(lambda v: v + x)(np.ones(3)), np.arange(3.0) + 1)


def test_keywords_defaults_and_variadic(backend: str) -> None:
    @parallel
    def f(x: Any, *rest: Any, scale: Any = 2, **more: Any) -> Any:
        return (x + sum(rest, 0.0) + more.get("bias", 0)) * scale
    assert f(X)[1] == 2 and f(X, X)[1] == 4 and f(X, X, X, scale=1)[1] == 3 and f(x=X, bias=1)[1] == 4

    @parallel
    def g(x: Any, axis: int = -1) -> Any:
        return pa.sum(x, axis=axis)
    for _ in range(2):
        assert g(np.ones((2, 3))).tolist() == [3, 3]
    assert g.compiles == 1


def test_methods(backend: str) -> None:
    class Model:
        @parallel(static="self")
        def double(self, x: Any) -> Any:
            return x * 2
    assert Model().double(X)[1] == 2


def test_decorated_functions_are_part_of_their_caller(backend: str) -> None:
    inner = parallel(lambda x: x + 1)
    outer = parallel(lambda x: inner(inner(x)) + pa.map(inner, x))
    np.testing.assert_array_equal(outer(X), 2 * X + 3)
    assert inner.compiles == 0


def test_constants_come_back_as_numpy_scalars(backend: str) -> None:
    a, b, c, d, e = parallel(lambda x: (1, 2.5, True, np.float32(3), np.ones(2)))(X)
    assert (type(a), type(b), type(c), type(d)) == (np.int64, np.float64, np.bool_, np.float32)
    assert e.tolist() == [1, 1]


def test_backends(backend: str) -> None:
    f = parallel(lambda x: x + 1, backend="interp")
    with pa.use_backend("nowhere"):
        assert f(X)[0] == 1
    g = parallel(lambda x: x)
    with pa.use_backend("nowhere"), pytest.raises(pa.BackendError):
        g(X)


def test_threads(backend: str) -> None:
    f = parallel(lambda x: x @ x)
    outs: list[Any] = []

    def work() -> None:
        with pa.use_backend(backend):
            outs.extend(float(f(np.full(k, 1.0))) for k in range(5))
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(outs) == sorted(list(map(float, range(5))) * 8) and f.compiles == 1


def test_looking_inside(backend: str) -> None:
    f = parallel(lambda x, y: pa.sum(x * y))
    text = f.graph(X, X)
    assert text.startswith("\\n: i64, x: f64[n], y: f64[n].")
    assert "fuse" in f.explain(X, X) and "equal shape" in f.explain(X, X)
    assert f.graph(X, X, stage="fuse").count("screma") == 1
    assert f.source(X, X)
    with pytest.raises(pa.TypeMismatch, match="there is no stage"):
        f.graph(X, X, stage="nowhere")


def test_the_fast_path_is_fast() -> None:
    """Python's own work for a call with a record of nine arrays, without the program's."""
    names = [f"w{k}" for k in range(9)]
    cls = pa.record(type("Nine", (), {"__annotations__": {n: f64[f"a{n}", f"b{n}"] for n in names}}))
    f = parallel(lambda p, q: (p, q), backend="interp")
    p = cls(*[np.ones((2, 3)) for _ in names])
    f(p, X)
    (dispatch,) = f._fast["interp"]
    dispatch.__globals__["run"] = lambda sizes, leaves: leaves
    seconds = min(timeit.repeat(lambda: f(p, X), number=200, repeat=9)) / 200
    assert seconds < 50e-6                                           # a few microseconds where nothing else runs


# --- derivatives -----------------------------------------------------------------------------------------------------

def loss(p: Params, x: Any) -> Any:
    return pa.sum(pa.tanh(p.w @ x + p.b) ** 2)


def test_gradients_of_records_outside(backend: str) -> None:
    p, x = Params(np.arange(6.0).reshape(2, 3) / 10, np.array([0.5, -0.5])), np.ones(3)
    value, g = pa.value_and_grad(loss)(p, x)
    assert type(g) is Params and g.inner is None
    t = np.tanh(p.w @ x + p.b)
    bar = 2 * t * (1 - t * t)
    assert value == pytest.approx((t * t).sum())
    np.testing.assert_allclose(g.b, bar)
    np.testing.assert_allclose(g.w, np.outer(bar, x))
    gp, gx = pa.grad(loss, argnums=(0, 1))(p, x)
    np.testing.assert_allclose(gx, p.w.T @ bar)
    np.testing.assert_allclose(gp.w, g.w)


def test_decorators_and_annotations(backend: str) -> None:
    @parallel
    def linear(x: f64["n"], w: f64["m", "n"]) -> f64["m"]:
        return pa.map(lambda row: pa.dot(row, x), w)

    @pa.grad
    def dloss(x: f64["n"], w: f64["m", "n"], y: f64["m"]) -> f64:
        return pa.sum((linear(x, w) - y) ** 2)
    w = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(dloss(np.ones(3), w, np.zeros(2)), 2 * w.T @ w.sum(1))
    with pytest.raises(pa.SizeMismatch):
        dloss(np.ones(2), w, np.zeros(2))


def test_static_parameters_of_gradients(backend: str) -> None:
    @parallel(static="k")
    def f(x: Any, k: int) -> Any:
        return pa.sum(x ** k)
    np.testing.assert_allclose(pa.grad(f)(X, 3), 3 * X ** 2)
    np.testing.assert_allclose(parallel(lambda x: pa.grad(f)(x, k=2))(X), 2 * X)


def test_aux(backend: str) -> None:
    def f(x: Any) -> Any:
        return pa.sum(x * x), {"twice": x * 2, "size": x.shape[0]}
    (value, aux), g = pa.value_and_grad(f, has_aux=True)(X)
    assert value == 55 and aux["size"] == 6
    np.testing.assert_array_equal(aux["twice"], g)
    g, aux = pa.grad(f, has_aux=True)(X)
    np.testing.assert_array_equal(g, 2 * X)


def test_nested_derivatives(backend: str) -> None:
    third = pa.grad(pa.grad(pa.grad(lambda x: x ** 4)))
    assert third(2.0) == pytest.approx(48)
    hvp = parallel(lambda x, v: pa.jvp(pa.grad(lambda y: pa.sum(y * y * y)), (x,), (v,))[1])
    np.testing.assert_allclose(hvp(X, X), 6 * X * X)
    rows = parallel(lambda a: pa.map(pa.grad(lambda r: pa.sum(r * r)), a))
    np.testing.assert_allclose(rows(X.reshape(2, 3)), 2 * X.reshape(2, 3))


def test_derivatives_of_integers_and_bool(backend: str) -> None:
    def f(x: Any, k: Any, m: Any) -> Any:
        return pa.sum(pa.where(m, x * k, 0.0))
    k, m = np.array([1, 2, 3]), np.array([True, False, True])
    gx, gm = pa.grad(f, argnums=(0, 2))(np.ones(3), k, m)
    assert gx.tolist() == [1, 0, 3] and gm.tolist() == [False] * 3 and gm.dtype == bool
    assert pa.grad(lambda n: pa.sum(n * n))(k).tolist() == [2, 4, 6]


def test_unification_inside_of_gradients(backend: str) -> None:
    f = parallel(lambda x, y: pa.grad(lambda v: pa.sum(v * y[1:] * x[1:]))(x[1:]))
    np.testing.assert_allclose(f(X, X), X[1:] * X[1:])


def test_stop_gradient(backend: str) -> None:
    g = pa.grad(lambda x: pa.sum(x * pa.stop_gradient(x)))
    np.testing.assert_array_equal(g(X), X)
    tangent = parallel(lambda x: pa.jvp(lambda v: v * pa.stop_gradient({"a": v})["a"], (x,), (x,))[1])
    np.testing.assert_array_equal(tangent(X), X * X)


def test_vjp_of_several(backend: str) -> None:
    @parallel
    def f(x: Any, w: Any) -> Any:
        (y, z), pull = pa.vjp(lambda a, b: (b @ a, a), x, w)
        return (y, z), pull((pa.ones_like(y), pa.zeros_like(z)))
    w = np.arange(12.0).reshape(2, 6)
    (y, z), (gx, gw) = f(X, w)
    np.testing.assert_allclose(y, w @ X)
    np.testing.assert_allclose(gx, w.sum(0))
    np.testing.assert_allclose(gw, np.stack([X, X]))


# --- records ---------------------------------------------------------------------------------------------------------

def test_records_outside() -> None:
    p = Params(np.ones((2, 3)), np.ones(2))
    q = 2 * p + p / 2 - np.float64(1) * p
    np.testing.assert_array_equal(q.w, 1.5 * p.w)
    np.testing.assert_array_equal((-p).b, -p.b)
    w, b, inner = p
    assert w is p.w and b is p.b and inner is None
    assert p._replace(b=3).b == 3 and dataclasses.replace(p, b=4).b == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.w = 3                                                                      # type: ignore[misc]
    with pytest.raises((TypeError, ValueError), match="different structure"):
        p + Params(1, 2, 3)


def test_functions_on_records(backend: str) -> None:
    @parallel
    def adam(p: Params, g: Params, rate: Any) -> Params:
        return p - rate * g / (pa.sqrt(g * g) + 1e-8) + pa.maximum(p, 0) + pa.where(True, p, g)
    p = Params(np.ones((2, 3)), np.ones(2))
    np.testing.assert_allclose(adam(p, p, 0.5).w, 2.5 * np.ones((2, 3)))
