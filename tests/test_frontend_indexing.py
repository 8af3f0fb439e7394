"""Indexing, slices and views against NumPy: every key on static and on symbolic sizes, traced and constant indices."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parray as pa
from parray import parallel
from parray.check import check

A = np.arange(24.0).reshape(2, 3, 4)
I = np.array([[0, -1], [1, 0]])

KEYS: list[Any] = [
    0, -1, (0, 1), (1, -1, -2), (slice(None), 1), (slice(None), slice(None), -1), (..., 0), (0, ..., 1), ...,
    slice(1, None), slice(None, -1), (slice(None), slice(None, None, -1)), (slice(None), slice(None), slice(1, 4, 2)),
    None, (None, 0), (slice(None), None, 1), (..., None), (0, None, slice(1, None), None, 2),
    np.array([1, 0, 0]), (slice(None), np.array([2, -1])), (slice(None), slice(None), I), (np.array([0, 1]), I),
    (0, slice(None), np.array([0, 3])), (np.array([0, 1]), slice(None), np.array([1, 2])),
    (I, slice(1, None), 0), (slice(None), 1, np.array([3, 3])), np.array([], np.int64), [1, 0],
    (np.int8(-1), np.uint8(2)),
]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_keys(key: Any, static: bool, backend: str) -> None:
    f = parallel(lambda x: x[key], static=static)
    got = f(A)
    want = A[key]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    check(f.program(A).lam)


bounds = st.none() | st.integers(-7, 7)
steps = st.none() | st.integers(-3, 3).filter(bool)


@settings(max_examples=120, deadline=None)
@given(bounds, bounds, steps, st.integers(0, 5), st.booleans())
def test_slices_are_numpys(start: Any, stop: Any, step: Any, n: int, static: bool) -> None:
    x = np.arange(float(n))
    with pa.use_backend("interp"):
        got = parallel(lambda v: v[start:stop:step], static=static)(x)
    np.testing.assert_array_equal(got, x[start:stop:step])


@parallel
def traced_slice(x: Any, start: Any, stop: Any) -> Any:
    return x[start:stop], x[start:stop:2], x[start:stop:-1], x[start:], x[:stop]


@settings(max_examples=60, deadline=None)
@given(st.integers(-7, 7), st.integers(-7, 7), st.integers(0, 5))
def test_traced_slices_are_numpys(start: int, stop: int, n: int) -> None:
    x = np.arange(float(n))
    with pa.use_backend("interp"):
        got = traced_slice(x, start, stop)
    want = x[start:stop], x[start:stop:2], x[start:stop:-1], x[start:], x[:stop]
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u8", "i8"])
def test_traced_indices_of_every_type_wrap(dtype: str, backend: str) -> None:
    f = parallel(lambda x, i: (x[i], x[i[0]], x[:, i[1]]))
    for i in ([1, 0], [-1, -2])[:1 if dtype[0] == "u" else 2]:
        at = np.array(i, dtype)
        rows, row, column = f(A, at)
        np.testing.assert_array_equal(rows, A[at])
        np.testing.assert_array_equal(row, A[at[0]])
        np.testing.assert_array_equal(column, A[:, at[1]])


@pytest.mark.parametrize("index", [2, -3, 100])
def test_out_of_bounds_is_an_index_error_with_the_line(index: int, backend: str) -> None:
    @parallel
    def f(x: Any, i: Any) -> Any:
        return x[i] + 0                                              # this line
    with pytest.raises(IndexError, match="this line"):
        f(A, index)
    with pytest.raises(pa.BoundsError, match="this line"):
        f(A, np.array([0, index]))


def test_large_unsigned_index_is_out_of_bounds(backend: str) -> None:
    with pytest.raises(pa.BoundsError):
        parallel(lambda x, i: x[i])(A, np.uint64(2 ** 64 - 1))


def test_a_constant_index_out_of_a_static_size_is_found_while_tracing(backend: str) -> None:
    with pytest.raises(pa.BoundsError, match="index 2 is out of bounds for a dimension of size 2"):
        parallel(lambda x: x[2], static=True)(A)


@pytest.mark.parametrize("f, message", [
    (lambda x: x[x > 1], "pa.filter is not available yet"),
    (lambda x: x[True], "boolean"),
    (lambda x: x[0, 0, 0, 0], "4 indices"),
    (lambda x: x[1.5], "an index is an integer"),
    (lambda x: x[::0], "cannot be 0"),
    (lambda x: x[..., ...], "one `...`"),
])
def test_wrong_keys(f: Any, message: str) -> None:
    with pa.use_backend("interp"), pytest.raises(TypeError, match=message):
        parallel(f)(A)


def test_neighbours_have_one_size(backend: str) -> None:
    f = parallel(lambda x: (x[1:] - x[:-1], pa.map2(pa.add, x[2:], x[:-2]), x[1:-1] * x[2:], x[::2] + x[::2]))
    x = np.arange(5.0) ** 2
    got = f(x)
    for a, b in zip(got, (x[1:] - x[:-1], x[2:] + x[:-2], x[1:-1] * x[2:], 2 * x[::2])):
        np.testing.assert_array_equal(a, b)
    assert "assert" not in f.graph(x)


def test_sizes_inside_of_maps_are_known_outside(backend: str) -> None:
    f = parallel(lambda a: pa.map(lambda row: row[1:] - row[:-1], a))
    a = np.arange(12.0).reshape(3, 4) ** 2
    np.testing.assert_array_equal(f(a), np.diff(a, axis=1))
    check(f.program(a).lam)
    assert f(np.zeros((0, 4))).shape == (0, 3) and f(np.zeros((2, 0))).shape == (2, 0)


def test_irregular_arrays_are_an_error(backend: str) -> None:
    with pytest.raises(pa.SizeMismatch, match="different sizes"):
        parallel(lambda x: pa.map(lambda i: x[:i], pa.iota(3)))(np.arange(5.0))


# --- views -----------------------------------------------------------------------------------------------------------

VIEWS: list[tuple[Any, Any]] = [
    (lambda x: x.reshape(4, 6), A.reshape(4, 6)), (lambda x: x.reshape((-1, 4)), A.reshape(-1, 4)),
    (lambda x: x.reshape(x.shape[0], -1), A.reshape(2, -1)), (lambda x: x.reshape(-1), A.ravel()),
    (lambda x: pa.reshape(x, (x.shape[1], x.shape[0], 4)), A.reshape(3, 2, 4)), (lambda x: x.T, A.T),
    (lambda x: pa.transpose(x, (1, 2, 0)), A.transpose(1, 2, 0)),
    (lambda x: x.transpose(-1, 0, 1), A.transpose(-1, 0, 1)),
    (lambda x: np.swapaxes(x, 0, -1), np.swapaxes(A, 0, -1)), (lambda x: np.moveaxis(x, 0, 2), np.moveaxis(A, 0, 2)),
    (lambda x: pa.flatten(x), A.reshape(6, 4)), (lambda x: pa.unflatten(pa.flatten(x), x.shape[:2]), A),
    (lambda x: np.concatenate([x, x[:, :1]], axis=1), np.concatenate([A, A[:, :1]], axis=1)),
    (lambda x: np.stack([x, x], axis=-1), np.stack([A, A], axis=-1)), (lambda x: np.flip(x, 1), np.flip(A, 1)),
    (lambda x: np.squeeze(x[0][None]), A[0]), (lambda x: np.expand_dims(x, 1), A[:, None]),
    (lambda x: pa.broadcast_to(x[:, 0][:, None], (2, 3, 4)), np.broadcast_to(A[:, :1], (2, 3, 4))),
    (lambda x: pa.reverse(x), A[::-1]), (lambda x: pa.rotate(x, -1), np.roll(A, 1, 0)),
    (lambda x: x[0, 0, 0].reshape(1), A[0, 0, :1]),
    (lambda x: x[:1, 0, 0].reshape(()), A[0, 0, 0]),
]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("k", range(len(VIEWS)))
def test_views(k: int, static: bool, backend: str) -> None:
    f, want = VIEWS[k]
    g = parallel(f, static=static)
    got = g(A)
    assert got.shape == np.shape(want)
    np.testing.assert_array_equal(got, want)
    check(g.program(A).lam)


@pytest.mark.parametrize("f", [lambda x: x.reshape(5, 5), lambda x: x.reshape(7, -1), lambda x: pa.take(3, x),
                               lambda x: pa.drop(x.shape[1], x), lambda x: pa.unflatten(x, (2, 2)),
                               lambda x: pa.take(-1, x)])
@pytest.mark.parametrize("static", [False, True])
def test_sizes_that_do_not_fit(f: Any, static: bool, backend: str) -> None:
    with pytest.raises(pa.SizeMismatch):
        parallel(f, static=static)(A)


def test_results_do_not_share_memory(backend: str) -> None:
    x = np.arange(4.0)
    f = parallel(lambda v: (v, v, v[:2], v.reshape(2, 2)))
    outs = f(x)
    for out in outs:
        assert not np.shares_memory(out, x)
    outs[0][0] = 7
    assert outs[1][0] == 0
