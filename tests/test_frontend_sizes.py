"""Sizes: one program for all shapes, unification, broadcasting of a 1, annotations, static sizes, what errors say."""
from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import parray as pa
from parray import f32, f64, i64, parallel
from parray.check import check
from parray.sizes import M, N

HERE = "test_frontend_sizes.py"


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape)


def test_new_shapes_do_not_recompile(backend: str) -> None:
    f = parallel(lambda x, y: x @ y)
    for n, m, k in ((1, 2, 3), (0, 4, 4), (5, 0, 1), (2, 2, 2)):
        assert f(zeros(n, m), zeros(m, k)).shape == (n, k)
    assert f.compiles == 1
    f(zeros(2, 2).astype(np.float32), zeros(2, 2))
    f(zeros(2), zeros(2, 2))
    assert f.compiles == 3


def test_combinators_unify_sizes(backend: str) -> None:
    @parallel
    def f(x: Any, y: Any, z: Any) -> Any:
        xy = pa.map2(pa.mul, x, y)                                   # line one
        return pa.sum(xy + z)                                        # line two
    assert f(zeros(3), zeros(3), zeros(3)) == 0
    program = f.program(zeros(3), zeros(3), zeros(3))
    assert len(program.sizes) == 1
    check(program.lam)
    with pytest.raises(pa.SizeMismatch, match="dimension 0 of y is 4, but dimension 0 of x is 3") as e:
        f(zeros(3), zeros(4), zeros(3))
    assert "line one" in str(e.value) and HERE in str(e.value) and isinstance(e.value, ValueError)
    with pytest.raises(pa.SizeMismatch, match="line"):
        f(zeros(3), zeros(3), zeros(4))


def test_a_one_is_broadcast_by_a_program_of_its_own(backend: str) -> None:
    f = parallel(lambda x, y: x + y)
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)[None]
    np.testing.assert_array_equal(f(a, a), a + a)
    np.testing.assert_array_equal(f(a, b), a + b)
    np.testing.assert_array_equal(f(a, a[:, :1]), a + a[:, :1])
    np.testing.assert_array_equal(f(b, a), a + b)
    np.testing.assert_array_equal(f(a[:, :1], b), a[:, :1] + b)
    assert f.compiles == 5
    for _ in range(2):
        np.testing.assert_array_equal(f(a, b), a + b)
        np.testing.assert_array_equal(f(np.ones((4, 7)), np.ones((1, 7))), 2 * np.ones((4, 7)))
    assert f.compiles == 5
    with pytest.raises(pa.SizeMismatch, match="dimension 1 of y is 2, but dimension 1 of x is 3"):
        f(a, a[:, :2])
    with pytest.raises(pa.SizeMismatch):
        f(a, np.ones((3, 1)))
    assert f.compiles == 5


def test_a_one_is_not_broadcast_by_map(backend: str) -> None:
    f = parallel(lambda x, y: pa.map2(pa.add, x, y))
    with pytest.raises(pa.SizeMismatch, match="pa.map takes arrays of one length"):
        f(zeros(3), zeros(1))
    assert f(zeros(1), zeros(1)).shape == (1,)


def test_captured_arrays_have_constant_sizes(backend: str) -> None:
    w = np.arange(3.0)
    f = parallel(lambda x: x * w)
    np.testing.assert_array_equal(f(np.ones(3)), w)
    np.testing.assert_array_equal(f(np.full(1, 2.0)), 2 * w)
    w[:] = 7                                                         # read at every call
    np.testing.assert_array_equal(f(np.ones(3)), [7, 7, 7])
    turned, swapped = np.ones((2, 3)).T, np.ones(3, ">i4")
    g = parallel(lambda x: (x * turned, x[:, 0] * swapped))
    for _ in range(2):
        turned += 1
        swapped += 1
        found = g(np.ones((3, 2)))
        np.testing.assert_array_equal(found[0], turned)
        np.testing.assert_array_equal(found[1], swapped)
    with pytest.raises(pa.SizeMismatch, match="dimension 0 of x is 4, but it must be 3"):
        f(np.ones(4))


def test_constant_sizes_that_differ(backend: str) -> None:
    with pytest.raises(pa.SizeMismatch, match="sizes 3 and 4 differ") as e:
        parallel(lambda: np.ones(3) + pa.iota(4))()
    assert HERE in str(e.value)
    with pytest.raises(pa.SizeMismatch, match="sizes 3 and 4 differ"):
        parallel(lambda x: x + pa.iota(3) + pa.iota(4))(zeros(3))


def test_sizes_compared_at_run_time(backend: str) -> None:
    @parallel
    def f(x: Any, y: Any) -> Any:
        return x[1:] + y                                             # this line
    assert f(zeros(3), zeros(2)).shape == (2,)
    check(f.program(zeros(3), zeros(2)).lam)
    with pytest.raises(pa.SizeMismatch, match="this line"):
        f(zeros(3), zeros(3))
    g = parallel(lambda a, y: pa.map(lambda row: pa.concat(row, row) + y, a))
    assert g(zeros(2, 3), zeros(6)).shape == (2, 6)
    check(g.program(zeros(2, 3), zeros(6)).lam)
    assert g(zeros(0, 3), zeros(5)).shape[0] == 0
    with pytest.raises(pa.SizeMismatch):
        g(zeros(2, 3), zeros(5))


# --- annotations -----------------------------------------------------------------------------------------------------

@pa.record
class Layer:
    w: f64["m", "n"]
    b: f64["m"]


class Batch(NamedTuple):
    x: f64[N]
    y: f64[N]


def test_names_are_one_size_over_all_arguments(backend: str) -> None:
    @parallel
    def f(x: f64["n"], p: Layer) -> f64["m"]:
        return p.w @ x + p.b
    assert f(zeros(3), Layer(zeros(2, 3), zeros(2))).shape == (2,)
    with pytest.raises(pa.SizeMismatch, match="f: dimension 1 of p.w is 4, but dimension 0 of x is 3 .both are 'n'"):
        f(zeros(3), Layer(zeros(2, 4), zeros(2)))
    with pytest.raises(pa.SizeMismatch, match="dimension 0 of p.b is 5, but dimension 0 of p.w is 2"):
        f(zeros(3), Layer(zeros(2, 3), zeros(5)))
    assert len(f.program(zeros(3), Layer(zeros(2, 3), zeros(2))).sizes) == 2
    # the fast path must see it, too
    with pytest.raises(pa.SizeMismatch):
        f(zeros(3), Layer(zeros(2, 4), zeros(2)))


def test_named_tuples_and_tuples(backend: str) -> None:
    @parallel
    def f(b: Batch, t: tuple[f64[N], i64]) -> f64:
        return pa.sum(b.x * b.y) + t[0][0] * t[1]
    assert f(Batch(np.ones(2), np.ones(2)), (np.ones(2), 3)) == 5
    with pytest.raises(pa.SizeMismatch, match=re.escape("dimension 0 of t[0] is 3")):
        f(Batch(np.ones(2), np.ones(2)), (np.ones(3), 3))


def test_literals(backend: str) -> None:
    @parallel
    def f(x: f64[3, "n"]) -> Any:
        return x.shape[0] + x.shape[1]
    assert f(zeros(3, 4)) == 7
    with pytest.raises(pa.SizeMismatch, match="dimension 0 of x is 2, the annotation says 3"):
        f(zeros(2, 4))


def test_types_and_ranks(backend: str) -> None:
    @parallel
    def f(x: f32["n"], k: i64) -> Any:
        return x * k
    assert f(np.ones(2, np.float32), 2).dtype == np.float32
    with pytest.raises(pa.TypeMismatch, match=r"f: x is f64\[2\], the annotation says f32\[n\]; convert"):
        f(np.ones(2), 2)
    with pytest.raises(pa.TypeMismatch, match="x is f32"):
        f(np.ones((2, 2), np.float32), 2)
    with pytest.raises(pa.TypeMismatch, match="k is the Python number 2.5, the annotation says i64"):
        f(np.ones(2, np.float32), 2.5)
    with pytest.raises(pa.TypeMismatch, match=r"x\[0\] is the Python number 1.0"):
        parallel(_wants_arrays)([1.0, 2.0])


def _wants_arrays(x: list[f64["n"]]) -> Any:
    return x


def test_weak_arguments_take_the_annotated_type(backend: str) -> None:
    @parallel
    def f(x: f32) -> Any:
        return x / 3
    assert f(1).dtype == np.float32 and f(2.5).dtype == np.float32


def test_records_serve_every_float(backend: str) -> None:
    @parallel
    def f(p: Layer) -> Any:
        return p * 2
    assert f(Layer(np.ones((1, 1), np.float32), np.ones(1, np.float32))).w.dtype == np.float32
    with pytest.raises(pa.TypeMismatch, match="p.w is i64"):
        f(Layer(np.ones((1, 1), np.int64), np.ones(1)))


def test_annotations_hold_inside_of_traces(backend: str) -> None:
    @parallel
    def inner(x: f64["n"], y: f64["n"]) -> f64["n"]:
        return x * y

    @parallel
    def outer(x: Any, y: Any) -> Any:
        return inner(x, y)
    assert outer(np.ones(2), np.ones(2)).tolist() == [1, 1]
    with pytest.raises(pa.SizeMismatch, match="both are 'n' in the annotations of inner"):
        outer(np.ones(2), np.ones(3))
    with pytest.raises(pa.TypeMismatch, match="inner: x is"):
        outer(np.ones(2, np.float32), np.ones(2))


# --- static ----------------------------------------------------------------------------------------------------------

def test_static_sizes(backend: str) -> None:
    @parallel(static="n")
    def f(x: f64["m", "n"]) -> Any:
        assert isinstance(x.shape[1], int) and not isinstance(x.shape[0], int)
        return sum(x[:, k] for k in range(x.shape[1]))
    np.testing.assert_array_equal(f(np.ones((4, 3))), 3 * np.ones(4))
    np.testing.assert_array_equal(f(np.ones((2, 3))), 3 * np.ones(2))
    assert f.compiles == 1
    np.testing.assert_array_equal(f(np.ones((2, 2))), 2 * np.ones(2))
    assert f.compiles == 2


def test_all_sizes_static(backend: str) -> None:
    f = parallel(lambda x: [row * 2 for row in x], static=True)
    assert len(f(np.ones((3, 2)))) == 3 and len(f(np.ones((4, 2)))) == 4 and f.compiles == 2


def test_static_parameters(backend: str) -> None:
    @parallel(static=("mode", "k"))
    def f(x: Any, mode: str, k: int = 2) -> Any:
        return x + k if mode == "add" else x * k
    x = np.ones(2)
    assert f(x, "add").tolist() == [3, 3] and f(x, "mul", k=5).tolist() == [5, 5] and f(x, mode="add", k=2)[0] == 3
    assert f.compiles == 2
    with pytest.raises(pa.TypeMismatch, match="mode must be hashable"):
        f(x, ["add"])


def test_unknown_static_names(backend: str) -> None:
    with pytest.raises(pa.TypeMismatch, match="names neither a parameter nor a size"):
        parallel(lambda x: x, static="n")(np.ones(2))


def test_type_variables(backend: str) -> None:
    @parallel(static="M")
    def f(a: f64[M, N], x: f64[N]) -> Any:
        assert isinstance(a.shape[0], int)
        return a @ x
    assert f(zeros(2, 3), zeros(3)).shape == (2,)
    with pytest.raises(pa.SizeMismatch, match="'N'"):
        f(zeros(2, 3), zeros(4))


def test_equal_shapes_compare_equal(backend: str) -> None:
    @parallel
    def f(x: f64["n", "m"], y: f64["n", "m"]) -> Any:
        return x + y if x.shape == y.shape else x
    assert f(np.ones((2, 2)), np.ones((2, 2)))[0, 0] == 2
    with pytest.raises(pa.TraceError, match="pa.cond"):
        parallel(lambda x: x if x.shape[0] == 3 else -x)(np.ones(3))
