"""Operators, loops, branches and writes as the front end makes them: coercion, weak carries, proofs, structures."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parray as pa
from parray import f64, parallel
from parray.check import check
from parray.ir import Monoid, each_op
from parray.soacs import Screma

X = np.arange(6.0)
A = X.reshape(2, 3)


def monoids(f: Any, *args: Any) -> list[Monoid]:
    """The operators in a traced program."""
    ops = each_op(parallel(f, backend="interp").program(*args).lam)
    return [m for op in ops if isinstance(op, Screma) for m in (*op.scans, *op.reds)]


def run(f: Any, *args: Any) -> Any:
    """The function's results; the graph is checked, too."""
    g = parallel(f)
    out = g(*args)
    check(g.program(*args).lam)
    return out


# --- operators -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("op, commutative", [
    (pa.add, True), (pa.max, True), (lambda a, b: b * a, True), (lambda a, b: a - b, False), (lambda a, b: b, False),
    (lambda a, b: a + 2 * b, False)])
def test_known_commutative_operators(op: Any, commutative: bool) -> None:
    assert [m.commutative for m in monoids(lambda x: pa.reduce(op, 0, x), X)] == [commutative]
    assert [m.commutative for m in monoids(lambda x: pa.reduce_comm(op, 0, x), X)] == [True]
    assert monoids(lambda a: pa.reduce(op, 0, a), A)[0].commutative == commutative


def test_operators_on_matrices_keep_order(backend: str) -> None:
    ms = np.array([[[1.0, 1], [0, 1]], [[1, 0], [2, 1]], [[0, 1], [1, 0]]])
    got = run(lambda m: (pa.reduce(lambda a, b: a @ b, np.eye(2), m), pa.scan(pa.matmul, np.eye(2), m)), ms)
    np.testing.assert_array_equal(got[0], ms[0] @ ms[1] @ ms[2])
    np.testing.assert_array_equal(got[1][1], ms[0] @ ms[1])


def test_neutral_elements_are_coerced(backend: str) -> None:
    x = np.arange(3, dtype=np.float32)
    assert run(lambda v: pa.reduce(pa.add, 0, v), x).dtype == np.float32
    assert run(lambda v: pa.reduce(pa.min, pa.inf, v), x[:0]) == np.inf
    assert run(lambda v: pa.reduce(lambda a, b: pa.where(a > b, a, 1), 0, v), x) == 1
    assert run(lambda v: pa.reduce(pa.add, 0, v), np.ones(3, np.int8)).dtype == np.int8
    assert run(lambda a: pa.reduce(pa.add, np.zeros(3), a), A).tolist() == [3, 5, 7]


def test_dictionaries_and_records_as_elements(backend: str) -> None:
    def op(a: Any, b: Any) -> Any:
        return {"sum": a["sum"] + b["sum"], "n": a["n"] + b["n"]}
    got = run(lambda x: pa.scan(op, {"sum": 0, "n": 0}, {"sum": x, "n": pa.iota(6) * 0 + 1}), X)
    assert got["n"].tolist() == [1, 2, 3, 4, 5, 6] and got["sum"][-1] == 15


@pytest.mark.parametrize("n", [0, 1, 5])
def test_scans_of_every_length(n: int, backend: str) -> None:
    x = np.arange(float(n)) + 1
    a, b = run(lambda v: (pa.scan(pa.mul, 1, v), pa.exscan(pa.mul, 1, v)), x)
    np.testing.assert_array_equal(a, np.cumprod(x))
    np.testing.assert_array_equal(b, np.cumprod(np.concatenate([[1.0], x]))[:-1])


def test_maps_nest_and_rename_structures(backend: str) -> None:
    got = run(lambda a: pa.map(lambda r: pa.map(lambda v: {"v": v, "w": (v, None)}, r), a), A)
    np.testing.assert_array_equal(got["w"][0], A)
    assert got["w"][1] is None
    assert run(lambda a: pa.map(lambda r: (), a), A) == ()


# --- control ---------------------------------------------------------------------------------------------------------

def test_weak_carries_widen(backend: str) -> None:
    x = np.ones(4, np.float32)
    assert run(lambda v: pa.foldl(lambda acc, e: acc + e, 0.0, v), x).dtype == np.float32
    assert run(lambda v: pa.foldl(lambda acc, e: acc + e, 0, v), x).dtype == np.float32
    assert run(lambda v: pa.loop(3, lambda i, c: c * 0.5, 8), x) == 1.0
    assert run(lambda v: pa.loop(3, lambda i, c: c + i, v[0]), x).dtype == np.float32
    a, b = run(lambda v: pa.loop(v.shape[0], lambda i, c: (c[1], c[0] + c[1]), (0, 1)), x)
    assert (a, b) == (3, 5) and a.dtype == np.int64
    assert run(lambda v: v * pa.loop(3, lambda i, c: c + 1, 0), x).dtype == np.float32


@pytest.mark.parametrize("n", [-2, 0, 3])
def test_loops_run_as_often_as_range(n: int, backend: str) -> None:
    want = sum(range(n))
    assert run(lambda k: pa.loop(k, lambda i, c: c + i, 0), n) == want
    assert run(lambda x: pa.loop(n, lambda i, c: c + i, 0), X) == want


def test_while_and_cond(backend: str) -> None:
    assert run(lambda x: pa.while_loop(lambda c: c[0] < 10, lambda c: (c[0] * 2, c[1] + 1), (x[1], 0)), X) == (16.0, 4)
    f = parallel(lambda x, k: pa.cond(k > 0, lambda v: (v * 2, 1), lambda v: (v, 0.5), x))
    assert f(X, 1)[0][1] == 2 and f(X, -1)[1] == 0.5 and f(X, 1)[1].dtype == np.float64
    assert run(lambda x: pa.cond(True, lambda: x, lambda: "unused"), X)[1] == 1


def test_only_the_chosen_branch_runs(backend: str) -> None:
    f = parallel(lambda x, i: pa.cond(i < x.shape[0], lambda: x[i], lambda: 0.0))
    assert f(X, 2) == 2 and f(X, 100) == 0
    g = parallel(lambda x, k: pa.cond(k > 0, lambda: pa.max(x), lambda: 0.0))
    assert g(X[:0], 0) == 0
    with pytest.raises(ValueError, match="empty"):
        g(X[:0], 1)


def test_sizes_unify_in_branches_and_loops(backend: str) -> None:
    f = parallel(lambda x, y, k: pa.cond(k > 0, lambda: x, lambda: y))
    assert f(X, X, 1).shape == (6,)
    with pytest.raises(pa.SizeMismatch, match="branches of pa.cond give arrays of one shape"):
        f(X, X[:2], 1)
    g = parallel(lambda x, y: pa.loop(2, lambda i, c: y, x))
    with pytest.raises(pa.SizeMismatch, match="must keep its shape"):
        g(X, X[:2])


def test_indices_known_to_be_in_range_are_not_checked(backend: str) -> None:
    for f in (lambda x: pa.tabulate(x.shape[0], lambda i: x[i]), lambda x: pa.map(lambda i: x[i], pa.iota(x.shape[0])),
              lambda x: pa.loop(x.shape[0], lambda i, c: c + x[i], 0.0), lambda x: pa.foldr(pa.sub, 0.0, x),
              lambda x: pa.tabulate((2, x.shape[0]), lambda i, j: x[j])):
        text = parallel(f).graph(X)
        assert "select" not in text and "index?" not in text
    text = parallel(lambda x: pa.tabulate(3, lambda i: x[i + 1])).graph(X)
    assert "select" not in text and "index?" in text
    assert "select" in parallel(lambda x: pa.tabulate(3, lambda i: x[i - 1])).graph(X)


# --- writes ----------------------------------------------------------------------------------------------------------

indices = st.lists(st.integers(-3, 8), max_size=8)


@parallel
def writes(x: Any, at: Any, vs: Any) -> Any:
    return (pa.scatter(x, at, vs), pa.reduce_by_index(x, pa.add, 0, at, vs), pa.scatter((x, x), at, (vs, 1)),
            pa.reduce_by_index((x, x), lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0), at, (vs, vs)))


@settings(max_examples=40, deadline=None)
@given(indices, st.sampled_from(["i1", "i4", "i8"]))
def test_writes(at: list[int], dtype: str) -> None:
    vs = np.arange(1.0, len(at) + 1)
    plain, added, first, second = X.copy(), X.copy(), X.copy(), X.copy()
    ones = X.copy()
    for i, v in zip(at, vs):
        if 0 <= i < 6:
            plain[i], ones[i] = v, 1
            added[i] += v
            first[i], second[i] = first[i] * v, second[i] * v + v
    with pa.use_backend("interp"):
        got = writes(X, np.array(at, dtype), vs)
    for a, b in zip((got[0], got[1], got[2][0], got[2][1], got[3][0], got[3][1]),
                    (plain, added, plain, ones, first, second)):
        np.testing.assert_array_equal(a, b)


def test_writes_in_two_dimensions(backend: str) -> None:
    i, j = np.array([0, 1, 1, -1]), np.array([2, 0, 3, 0])
    want = A.copy()
    want[0, 2], want[1, 0] = 7, 8
    np.testing.assert_array_equal(run(lambda a: pa.scatter(a, (i, j), np.array([7.0, 8, 9, 9])), A), want)
    np.testing.assert_array_equal(run(lambda a: pa.scatter(a, np.array([1]), np.ones((1, 3))), A)[1], np.ones(3))
    np.testing.assert_array_equal(run(lambda a: pa.scatter(a, np.array([1, 5]), 2), A)[1], [2, 2, 2])


def test_update(backend: str) -> None:
    want = A.copy()
    want[1, -1] = 9
    np.testing.assert_array_equal(run(lambda a: pa.update(a, (1, -1), 9), A), want)
    np.testing.assert_array_equal(run(lambda a: pa.update(a, 0, a[1]), A)[0], A[1])
    f = parallel(lambda a, i: pa.update(a, i, 0))                    # this line
    assert f(A, -2)[0].tolist() == [0, 0, 0]
    for i in (2, -3):
        with pytest.raises(pa.BoundsError, match="this line"):
            f(A, i)
    assert "assert" not in parallel(lambda x: pa.loop(x.shape[0], lambda i, c: pa.update(c, i, 0), x)).graph(X)


# --- annotations of other libraries ----------------------------------------------------------------------------------

class Jaxtyped:
    """What a jaxtyping annotation looks like from outside."""

    def __init__(self, dtype: str, dims: str):
        self.dtypes, self.dim_str = [dtype], dims


def test_jaxtyping(backend: str) -> None:
    def f(x, y):                                                                     # type: ignore[no-untyped-def]
        return x + y[0]
    f.__annotations__ = {"x": Jaxtyped("float64", "n"), "y": Jaxtyped("float64", "2 n")}
    assert parallel(f)(np.ones(3), np.ones((2, 3))).shape == (3,)
    with pytest.raises(pa.SizeMismatch, match="both are 'n'"):
        parallel(f)(np.ones(3), np.ones((2, 4)))
    with pytest.raises(pa.SizeMismatch, match="the annotation says 2"):
        parallel(f)(np.ones(3), np.ones((3, 3)))
    with pytest.raises(pa.TypeMismatch):
        parallel(f)(np.ones(3, np.float32), np.ones((2, 3)))


def test_annotations_that_cannot_be_read(backend: str) -> None:
    def f(x: "NoSuchName[f64]", y: f64) -> "Elsewhere":                              # type: ignore # noqa: F821
        return x + y
    assert parallel(f)(np.ones(3), 1.0)[0] == 2
