"""Combinators whose results' sizes depend on values, sorting, stencils, einsum, update: laws, edges, derivatives."""
from __future__ import annotations

import itertools
from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parray as pa
from parray import i32, testing

FEW = settings(max_examples=25, deadline=None)
BACKENDS = ["interp", "cpu"]
INTS = testing.arrays("i64", ("n",))
_made: dict[Any, Any] = {}


def check(f: Callable[..., Any], args: Any, expected: Any) -> None:
    """``f`` gives what is expected on every backend; programs are kept between examples."""
    call = _made.setdefault(f.__code__, pa.parallel(f)) if not f.__closure__ else pa.parallel(f)
    for backend in BACKENDS:
        with pa.use_backend(backend):
            found = pa.tree.leaves(call(*args))
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            np.testing.assert_array_equal(a, np.asarray(b).astype(a.dtype).reshape(np.shape(a)))


# --- laws ------------------------------------------------------------------------------------------------------------

@FEW
@given(INTS)
def test_filter_and_partition(x: Any) -> None:
    check(lambda x: pa.filter(lambda v: v % 2 == 0, x), [x], [[v for v in x if v % 2 == 0]])
    check(lambda x: x[x > 0], [x], [x[x > 0]])
    parts = [[v for v in x if v < 0], [v for v in x if v == 0], [v for v in x if v > 0]]
    check(lambda x: pa.partition([lambda v: v < 0, lambda v: v <= 0], x), [x], parts)
    check(lambda x: pa.partition(lambda v: v < 0, x), [x], [parts[0], [v for v in x if v >= 0]])


@FEW
@given(testing.arrays("i32", ("n", 3)))
def test_filter_of_rows_and_structures(x: Any) -> None:
    kept = [row for row in x if row[0] > row[1]]
    check(lambda x: pa.filter(lambda t: t[1][0] > t[1][1], (pa.iota(x.shape[0]), x)), [x],
          [[k for k, row in enumerate(x) if row[0] > row[1]], np.reshape(kept, (-1, 3))])
    check(lambda x: pa.map(lambda row: pa.sum(pa.filter(lambda v: v > 0, row)), x), [x],
          [[sum(v for v in row if v > 0) for row in x]])


@FEW
@given(st.lists(st.tuples(st.booleans(), st.integers(-9, 9)), max_size=20))
def test_segments(pairs: Any) -> None:
    flags, x = np.array([p[0] for p in pairs], bool), np.array([p[1] for p in pairs], np.int64)
    groups: list[list[int]] = []
    for f, v in pairs:
        if f or not groups:
            groups.append([])
        groups[-1].append(v)
    check(lambda f, x: pa.segmented_scan(pa.add, 0, f, x), [flags, x],
          [[s for g in groups for s in itertools.accumulate(g)]])
    check(lambda f, x: pa.segmented_reduce(pa.add, 0, f, x), [flags, x], [[sum(g) for g in groups]])
    check(lambda f: pa.segmented_iota(f), [flags], [[k for g in groups for k in range(len(g))]])


@FEW
@given(testing.arrays("i64", ("n",), most=8))
def test_expansion(x: Any) -> None:
    counts = [max(0, int(v)) for v in x]
    check(lambda x: pa.replicated_iota(x), [x], [[k for k, c in enumerate(counts) for _ in range(c)]])
    flat = [v * 10 + j for v, c in zip(x, counts) for j in range(c)]
    check(lambda x: pa.expand(lambda v: v, lambda v, j: v * 10 + j, x), [x], [flat])
    check(lambda x: pa.flatmap(lambda v: v * 10 + pa.iota(pa.max(v, 0)), x), [x], [flat])


@FEW
@given(testing.arrays("i64", ("n",)), testing.arrays("i64", ("n",)))
def test_histograms(i: Any, v: Any) -> None:
    m = min(len(i), len(v))
    i, v = i[:m] % 7 - 1, v[:m]
    expected = [max((int(x) for k, x in zip(i, v) if k == b), default=-99) for b in range(5)]
    check(lambda i, v: (pa.hist(pa.max, -99, 5, i, v), pa.histogram(i, 5)), [i, v],
          [expected, [int(np.sum(i == b)) for b in range(5)]])
    pairs = np.zeros((5, 3, 2), np.int64)
    for a, b, x in zip(i, v % 3, v):
        if 0 <= a < 5:
            pairs[a, b] += (x, 1)
    check(lambda i, j, v: pa.hist(lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0), (5, 3), (i, j),
                                  (v, pa.ones_like(v))), [i, v % 3, v], [pairs[..., 0], pairs[..., 1]])


@FEW
@given(testing.arrays("f64", ("n",), special=True), testing.arrays("f64", ("m",), special=True))
def test_sorting(x: Any, y: Any) -> None:
    check(lambda x: (pa.sort(x), pa.argsort(x), pa.unique(x)), [x],
          [np.sort(x), np.argsort(x, kind="stable"), np.unique(x)])
    check(lambda x: pa.sort_by(lambda v: -v, x), [x], [x[np.argsort(-x, kind="stable")]])
    s = np.sort(x)
    check(lambda s, y: (pa.searchsorted(s, y), pa.searchsorted(s, y, "right")), [s, y],
          [np.searchsorted(s, y), np.searchsorted(s, y, "right")])


@FEW
@given(st.sampled_from(["bool", "i8", "u8", "i32", "u64", "f16", "f32"]), st.data())
def test_keys_of_every_type(elem: str, data: Any) -> None:
    x = data.draw(testing.arrays(elem, ("n",), special=True))
    k = data.draw(testing.arrays("i64", (len(x),)))
    order = np.lexsort((k, x))
    check(lambda x, k: pa.sort((x, k)), [x, k], [x[order], k[order]])


@pytest.mark.parametrize("elem", ["bool", "i8", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64"])
def test_many_keys_of_every_type(elem: str) -> None:
    """Enough for digits instead of merging; special values included."""
    t = testing._elem(elem)
    rng = np.random.default_rng(2)
    with np.errstate(all="ignore"):
        x = (rng.standard_normal(1500) * 50 if t.is_float else rng.integers(-1000, 1000, 1500)).astype(t.dtype)
    if t.is_float:
        x[:6] = [np.nan, -np.inf, np.inf, -0.0, 0.0, -np.nan]
    k = rng.integers(0, 3, 1500)
    for backend in BACKENDS:
        with pa.use_backend(backend):
            one, two = pa.parallel(lambda x, k: (pa.argsort(x), pa.argsort((k, x))))(x, k)
        np.testing.assert_array_equal(one, np.argsort(x, kind="stable"))
        np.testing.assert_array_equal(two, np.lexsort((x, k)))


@FEW
@given(testing.arrays("i64", ("n", "m")), st.sampled_from(["edge", "wrap", 7]))
def test_stencils(x: Any, boundary: Any) -> None:
    offsets = [(0, 0), (-1, 0), (2, 1), (0, -2)]
    n, m = x.shape

    def at(i: int, j: int) -> int:
        if boundary == "wrap":
            return int(x[i % n, j % m])
        if boundary == "edge":
            return int(x[min(max(i, 0), n - 1), min(max(j, 0), m - 1)])
        return int(x[i, j]) if 0 <= i < n and 0 <= j < m else 7
    expected = [[sum(c * at(i + a, j + b) for c, (a, b) in enumerate(offsets, 1)) for j in range(m)] for i in range(n)]
    check(lambda x: pa.stencil(lambda a, b, c, d: a + 2 * b + 3 * c + 4 * d, offsets, x, boundary), [x],
          [np.reshape(expected, (n, m))])


@pytest.mark.parametrize("spec", ["ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "ij,ij->", "ii->i", "ii", "ij->ji",
                                  "i,j->ij", "ij,jk,kl->il", "ijk->j", "i,i", ",i->i"])
def test_contract_is_einsum(spec: str) -> None:
    rng = np.random.default_rng(0)
    sizes = dict(zip("bijkl", (2, 4, 4, 3, 5) if "ii" in spec else (2, 4, 3, 6, 5)))
    args = [rng.integers(-5, 5, [sizes[c] for c in part]) for part in spec.split("->")[0].split(",")]
    check(lambda *xs: pa.contract(spec, *xs), args, [np.einsum(spec, *args)])


@FEW
@given(testing.arrays("i64", ("n", 4)), st.integers(-25, 25), st.integers(-25, 25), st.sampled_from([1, 2, -1, -3]))
def test_update_of_slices(x: Any, a: int, b: int, step: int) -> None:
    z = np.array(x)
    z[a:b:step, 1:3] = 9
    check(lambda x: pa.update(x, (slice(a, b, step), slice(1, 3)), 9), [x], [z])
    z = np.array(x)
    z[a:b, 2] = np.arange(len(z[a:b]))
    check(lambda x, a, b: pa.update(x, (slice(a, b), 2), pa.iota(x[a:b].shape[0])), [x, a, b], [z])
    check(lambda x, a, b, s: x[a:b:s], [x, a, b, step], [x[a:b:step]])


def test_update_of_fields() -> None:
    x = {"a": np.arange(3), "b": (np.zeros(2), np.ones(2))}
    for backend in BACKENDS:
        with pa.use_backend(backend):
            out = pa.parallel(lambda x: pa.update(x, ("a", 1), 7))(x)
    assert list(out["a"]) == [0, 7, 2] and list(x["a"]) == [0, 1, 2]
    with pytest.raises(pa.TypeMismatch, match="no field 'c'; there are a, b"):
        pa.parallel(lambda x: pa.update(x, "c", 1))(x)


def test_branches_of_different_sizes() -> None:
    check(lambda x: pa.cond(x[0] > 0, lambda: pa.filter(lambda v: v > 0, x), lambda: x[1:]), [np.array([1, -1, 2])],
          [[1, 2]])
    check(lambda x: pa.cond(x[0] > 0, lambda: pa.filter(lambda v: v > 0, x), lambda: x[1:]), [np.array([-1, -1, 2])],
          [[-1, 2]])


def test_results_of_sizes_found_inside() -> None:
    def f(x: Any, k: Any) -> Any:
        small = pa.filter(lambda v: v < 3, x)
        return small, pa.sum(x), pa.replicate(k[0], small), pa.map(lambda v: (v, i32(v) + 1), small)
    x, k = np.array([5, 1, 4, 2, 0]), np.array([2])
    s = np.array([1, 2, 0])
    check(f, [x, k], [s, 12, np.stack([s, s]), s, s + 1])


def test_large_filter_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory made inside a program on several threads is one memory."""
    from parray.backends import cpu
    monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1000)
    monkeypatch.setenv("PARRAY_NUM_THREADS", "3")
    x = np.random.default_rng(0).standard_normal(20_000)
    f = pa.parallel(lambda x: pa.map(lambda v: v * 2, pa.filter(lambda v: v > 0, x)))
    with pa.use_backend("cpu"):
        for _ in range(5):
            np.testing.assert_array_equal(f(x), x[x > 0] * 2)


NESTS: dict[str, tuple[Callable[..., Any], Callable[[Any, int], int]]] = {
    "scan": (lambda x: pa.map(lambda n: pa.sum(pa.scan(pa.add, 0, pa.iota(n))), x),
             lambda x, n: sum(itertools.accumulate(range(n)))),
    "loop": (lambda x: pa.map(lambda n: pa.loop(n, lambda i, s: s + pa.sum(pa.iota(i)), 0), x),
             lambda x, n: sum(sum(range(i)) for i in range(n))),
    "carried array": (lambda x: pa.map(lambda n: pa.sum(pa.loop(3, lambda i, c: c + pa.iota(n), pa.iota(n))), x),
                      lambda x, n: 4 * sum(range(n))),
    "three levels": (lambda x: pa.map(lambda n: pa.sum(pa.map(lambda m: pa.sum(pa.map(lambda k: pa.sum(
        pa.iota(k)), pa.iota(m))), pa.iota(n))), x),
        lambda x, n: sum(sum(k) for m in range(n) for k in map(range, range(m)))),
    "unique": (lambda x: pa.map(lambda n: pa.unique(x[:n]).shape[0] + 0, x), lambda x, n: len(set(x[:n]))),
    "histogram": (lambda x: pa.map(lambda n: pa.max(pa.histogram(x, n + 1)), x),
                  lambda x, n: max(np.bincount(x, minlength=n + 1)[:n + 1])),
    "branch": (lambda x: pa.map(lambda n: pa.sum(pa.cond(n > 3, lambda: pa.filter(lambda v: v < n, x),
                                                         lambda: pa.iota(n))), x),
               lambda x, n: sum(v for v in x if v < n) if n > 3 else sum(range(n))),
    "operator on arrays": (lambda x: pa.map(lambda n: pa.sum(pa.reduce(lambda a, b: a + b, 0, pa.tabulate(
        (4, n), lambda i, j: i * j))), x), lambda x, n: 6 * sum(range(n))),
    "flatmap of filter": (lambda x: pa.map(lambda n: pa.sum(pa.flatmap(lambda m: pa.filter(lambda v: v < m, x), x[:n])),
                                           x), lambda x, n: sum(v for m in x[:n] for v in x if v < m)),
}


@pytest.mark.parametrize("name", NESTS)
def test_sizes_that_differ_by_element(name: str) -> None:
    f, one = NESTS[name]
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    check(f, [x], [[one(x.tolist(), int(n)) for n in x]])


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_may_not_change_the_size_it_carries(backend: str, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails in the loop, which then ends although its condition never changes."""
    from parray.backends import cpu
    monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1)
    monkeypatch.setenv("PARRAY_NUM_THREADS", threads)
    x = np.arange(5)
    with pa.use_backend(backend):
        for f in (lambda x: pa.while_loop(lambda c: c.shape[0] > 2, lambda c: c[1:], x),
                  lambda x: pa.loop(3, lambda i, c: pa.filter(lambda v: v > i, c), x),
                  lambda x: pa.map(lambda n: pa.while_loop(lambda c: pa.sum(c) < 1, lambda c: c[:n], x * 0), x)):
            with pytest.raises(pa.SizeMismatch, match="must keep its shape"):
                pa.parallel(f)(x)


def positive(x: Any) -> Any:
    return pa.filter(lambda v: v > 0, x)


def paired(x: Any, y: Any) -> Any:
    return pa.map(lambda a, b: a + b, positive(x), positive(y))


def branched(x: Any, y: Any) -> Any:
    return pa.sum(pa.cond(x[0] > 0, lambda: paired(x, y), lambda: x)) + y[0]


MISFITS: dict[str, Callable[..., Any]] = {
    "map": paired, "dot": lambda x, y: pa.sum(positive(x) * positive(y)),
    "scalars after it": lambda x, y: (pa.sum(paired(x, y)) * 2 + pa.sum(x), x[0] + 1),
    "rows": lambda x, y: pa.map(lambda t: pa.sum(paired(x * t, y * t)), pa.iota(3) - 1.0),
    "loop": lambda x, y: pa.loop(3, lambda i, s: s + pa.sum(paired(x * (i + 1), y)), 0.0),
    "branch": branched, "branch in rows": lambda x, y: pa.map(lambda t: branched(x * t, y), pa.iota(3) * 1.0),
    "reverse": lambda x, y: pa.grad(lambda x: pa.sum(paired(x * x, y)))(x),
    "empty maximum": lambda x, y: (pa.max(positive(-y)), paired(x, x)),
}


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("name", MISFITS)
def test_nothing_runs_on_sizes_that_differ(name: str, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One side is far longer: using the other by its size would leave the memory of the program."""
    from parray.backends import cpu
    monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1)
    monkeypatch.setenv("PARRAY_NUM_THREADS", threads)
    f = pa.parallel(MISFITS[name])
    for n in (3, 3_000_000):
        with pa.use_backend("cpu"), pytest.raises(pa.SizeMismatch):
            f(np.ones(n), np.ones(2))
    if name != "empty maximum":
        fits = np.ones(5), np.ones(5)
        check(MISFITS[name], fits, pa.tree.leaves(pa.parallel(MISFITS[name], backend="interp")(*fits)))


# --- derivatives -----------------------------------------------------------------------------------------------------

X = np.array([0.3, -1.2, 2.5, 0.7, -0.4, 1.9])
FLAGS = np.array([1, 0, 1, 0, 0, 1], bool)
DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
    "filter": lambda x: pa.filter(lambda v: v > 0, x * x * x),
    "filter then sum": lambda x: pa.sum(pa.sin(pa.filter(lambda v: v > 0, x))),
    "partition": lambda x: pa.partition(lambda v: v > 0.5, x * x),
    "sort": lambda x: pa.sort(x * x) * pa.iota(6),
    "sort_by": lambda x: pa.sort_by(lambda t: -t[0], (x, x * x))[1],
    "segmented_scan": lambda x: pa.segmented_scan(pa.mul, 1.0, FLAGS, x),
    "segmented_reduce": lambda x: pa.segmented_reduce(pa.mul, 1.0, FLAGS, x),
    "expand": lambda x: pa.expand(lambda v: pa.where(v > 0, 2, 1), lambda v, j: v * v * (j + 1), x),
    "flatmap": lambda x: pa.flatmap(lambda v: v * v * pa.iota(pa.where(v > 0, 2, 1)), x),
    "stencil": lambda x: pa.stencil(lambda a, b, c: a * b + c * c, [-1, 0, 2], x),
    "wrapped stencil": lambda x: pa.stencil(lambda a, b: a * b, [-1, 1], x, "wrap"),
    "contract": lambda x: pa.contract("ij,jk->ik", pa.reshape(x, (2, 3)), pa.reshape(pa.sin(x), (3, 2))),
    "update of a slice": lambda x: pa.update(x * x, slice(1, None, 2), x[:3] * 3),
    "branches of different sizes": lambda x: pa.sum(pa.cond(x[0] > 0, lambda: pa.filter(lambda v: v > 0, x) ** 2,
                                                            lambda: x[1:])),
    "unique": lambda x: pa.unique(x * x),
    "nested filter": lambda x: pa.map(lambda a: pa.sum(pa.filter(lambda b: b > a, x * x) * a), x),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_derivatives(name: str, backend: str) -> None:
    with pa.use_backend(backend):
        testing.check_gradients(DIFFERENTIABLE[name], X, order=2 if backend == "interp" else 1)


# --- errors ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("f, message", [
    (lambda x: pa.filter(lambda v: v + 1, x), "must give a truth value"),
    (lambda x: pa.sort(pa.reshape(x, (2, 3))), "orders by scalars"),
    (lambda x: pa.stencil(lambda a: a, [0], x, "mirror"), '"edge", "wrap" or a value'),
    (lambda x: pa.stencil(lambda a: a, [], x), "one or more offsets"),
    (lambda x: pa.contract("ij->i", x), "names 2 axes"),
    (lambda x: pa.contract("i,j", x), "does not describe"),
    (lambda x: pa.searchsorted(x, x, "middle"), '"left" or "right"'),
    (lambda x: pa.update(x, (slice(0, 2), 1), 0.0), "array of rank 2"),
    (lambda x: pa.flatmap(lambda v: v, x), "pa.flatmap"),
])
def test_mistakes(f: Any, message: str) -> None:
    with pytest.raises(pa.ParrayError, match=message) as caught:
        pa.parallel(f)(X)
    assert "test_irregular.py" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_of_zero(backend: str) -> None:
    with pa.use_backend(backend), pytest.raises(pa.TypeMismatch, match="step of a slice cannot be 0"):
        pa.parallel(lambda x, s: x[::s])(X, np.int64(0))
