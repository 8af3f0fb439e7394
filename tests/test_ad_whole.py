"""Differentiation as a whole: nesting, constants, what derivatives cost, and numbers from other systems.

What single operations' rules give is in `test_ad`.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradcheck import Case, check_gradients, jvp, vjp, vjp_graph
from test_ad import F64, add, c, cond, k, linear_monoid, monoid, mul, power, scatter, sin, total, values

from parray import ad
from parray import builder as b
from parray.ir import Const, Lambda, Monoid, count_ops, each_op, prune
from parray.soacs import Index, Loop, Scatter, Screma
from parray.types import SIZE, Type, bool_, i32


# --- nesting, captured variables, repeated pullbacks -----------------------------------------------------------------

def grad(f: Any, *xs: Any) -> Any:
    _, pullback = ad.vjp(b.make_lambda([x.type for x in xs], lambda *a: [f(*a)]), xs, [0])
    return pullback([c(1)])[0]


def test_captured_variables_are_constant() -> None:
    (g,) = vjp(lambda x: [grad(lambda y: mul(y, x), x)], [3.0], [()], [1.0])
    assert g == 1                                                   # d/dx of (d/dy (y * x) at y = x), which is x
    (h,) = vjp(lambda x: [grad(lambda y, z: mul(mul(y, y), z), x, x)], [3.0], [()], [1.0])
    assert h == 12                                                  # of 2 x^2


def test_gradient_at_a_constant() -> None:
    (g,) = vjp(lambda x: [mul(x, grad(lambda y: mul(y, y), c(3)))], [2.0], [()], [1.0])
    assert g == 6


def test_pullback_used_twice_and_in_a_nested_scope() -> None:
    def f(x: Any, us: Any) -> list[Any]:
        results, pullback = ad.vjp(b.make_lambda([x.type], lambda x: [mul(x, sin(x))]), [x], [0])
        rows = b.map1(lambda u: pullback([u])[0], us)
        return [rows, pullback([results[0]])[0]]
    check_gradients(f, [values(3), values(2, 3)], [("n",), (2, "n")])


def test_gradient_inside_map_and_loop() -> None:
    def f(x: Any, w: Any) -> list[Any]:
        each = b.map1(lambda e: grad(lambda p: total(mul(sin(w), b.map1(lambda q: mul(q, p), w))), e), x)

        def step(i: Any, v: Any) -> list[Any]:
            g = grad(lambda p: total(mul(mul(p, p), w)), v)
            return [add(v, mul(g, b.full(g.type, -0.1)))]
        return [each, b.emit1(Loop(3, b.make_lambda([SIZE, w.type], step), (w,)))]
    check_gradients(f, [values(2), values(3)], [("n",), ("m",)], order=1)


def test_hessian() -> None:
    x = values(3)

    def f(x: Any) -> Any:
        return b.reduce_(monoid("mul", 1), x)[0]

    def hessian_times(x: Any, v: Any) -> list[Any]:
        return list(ad.jvp(b.make_lambda([x.type], lambda x: [grad(f, x)]), [x], [v])[1])
    expected = np.array([[0, x[2], x[1]], [x[2], 0, x[0]], [x[1], x[0], 0]])
    for j in range(3):
        case = Case(hessian_times, [x, np.eye(3)[j]], [("n",), ("n",)])
        np.testing.assert_allclose(case.run(hessian_times, case.types, case.args)[0], expected[j])


def test_integers_are_differentiated_and_booleans_are_not() -> None:
    def f(p: Any, x: Any) -> list[Any]:
        return [cond(p, lambda: b.prim("mul", x, b.prim("mul", x, x)), lambda: x)]
    dp, dx = vjp(f, [np.bool_(True), np.int32(4)], [(), ()], [np.int32(1)])
    assert dp == np.bool_(False) and dx == 48 and dx.dtype == np.int32


def test_no_gradient_from_the_branch_not_taken() -> None:
    def f(x: Any) -> list[Any]:
        return [b.map1(lambda e: cond(b.prim("lt", c(0), e), lambda: b.prim("sqrt", e), lambda: c(0)), x)]
    (g,) = vjp(f, [np.array([0.0, 4.0])], [("n",)], [np.ones(2)])
    assert g.tolist() == [0, 0.25]


# --- the cost of derivatives -----------------------------------------------------------------------------------------

def kinds(lam: Lambda) -> dict[str, int]:
    counts: dict[str, int] = {}
    for op in each_op(lam):
        counts[op.name] = counts.get(op.name, 0) + 1
    return counts


def pruned(lam: Lambda) -> Lambda:
    return Lambda(lam.params, prune(lam.stms, lam.results), lam.results)


def test_reading_elements_makes_no_square_array() -> None:
    def f(x: Any, i: Any) -> list[Any]:
        return [total(b.map1(lambda j: b.index(x, j), i))]
    lam = pruned(vjp_graph(f, [values(6), np.arange(6)], [("n",), ("m",)], [0]))
    types = [v.type for v in (v for stm in lam.stms for v in stm.vars)]
    assert all(t.rank <= 1 for t in types) and count_ops(lam, Scatter) == 1
    by_iota = vjp_graph(lambda x: [total(b.map1(lambda j: b.index(x, j), b.iota(x.type.shape[0])))], [values(6)],
                        [("n",)], [0])
    assert count_ops(pruned(by_iota), Scatter) == 0


def test_derivatives_of_products_of_matrices_are_maps_and_reductions() -> None:
    def f(a: Any, x: Any) -> list[Any]:
        return [b.map1(lambda row: total(mul(row, x)), a)]
    lam = pruned(vjp_graph(f, [values(2, 3), values(3)], [("m", "n"), ("n",)], [0, 1]))
    assert set(kinds(lam)) <= {"screma", "prim", "replicate"}

    def g(q: Any, w: Any) -> list[Any]:
        def dot(i: Any, j: Any) -> Any:
            return total(mul(b.index(q, i), b.index(w, j)))
        return [b.map1(lambda i: b.map1(lambda j: dot(i, j), b.iota(w.type.shape[0])), b.iota(q.type.shape[0]))]
    lam = pruned(vjp_graph(g, [values(2, 3), values(4, 3)], [("m", 3), ("n", 3)], [0, 1]))
    assert "scatter" not in kinds(lam) and "cond" not in kinds(lam)
    check_gradients(g, [values(2, 3), values(4, 3)], [("m", 3), ("n", 3)], order=1)


def test_loop_reads_elements_at_constant_cost() -> None:
    """The cotangent of the array is carried and updated at one place in each iteration; nothing of its size is made."""
    def f(x: Any) -> list[Any]:
        lam = b.make_lambda([SIZE, F64], lambda i, acc: [add(acc, b.index(x, i))])
        return [b.emit1(Loop(x.type.shape[0], lam, (c(0),)))]
    lam = pruned(vjp_graph(f, [values(4)], [("n",)], [0]))
    (loop,) = [op for op in each_op(lam) if isinstance(op, Loop)]
    made = [stm.op for stm in loop.lam.stms if any(v.type.rank for v in stm.vars)]
    assert len(made) == 1 and isinstance(made[0], Scatter) and made[0].is_update
    assert not any(isinstance(op, (Screma, Index)) for op in each_op(loop.lam))


def test_loop_that_updates_an_array_keeps_elements_only() -> None:
    def f(x: Any) -> list[Any]:
        def body(i: Any, xs: Any) -> list[Any]:
            e = b.index(xs, i)
            return [b.emit1(Scatter(1, (xs,), 1, None, b.make_lambda([], lambda: [i, mul(e, e)]), ()))]
        return [b.emit1(Loop(x.type.shape[0], b.make_lambda([SIZE, x.type], body), (x,)))]
    lam = pruned(vjp_graph(f, [values(4)], [("n",)], [0]))
    assert max(v.type.rank for stm in lam.stms for v in stm.vars) == 1
    twice = vjp_graph(lambda x, u: ad.vjp(b.make_lambda([x.type], f), [x], [0])[1]([u]), [values(4), values(4)],
                      [("n",)] * 2, [0, 1])
    assert max(v.type.rank for stm in pruned(twice).stms for v in stm.vars) == 1


def test_linear_loop_keeps_no_history() -> None:
    lam = vjp_graph(lambda x, y: [power(x, 5)], [2.0, 3.0], [(), ()], [1])
    assert not any(v.type.rank for stm in lam.stms for v in stm.vars)


def test_loop_in_a_map_reads_elements_of_a_captured_array() -> None:
    def f(x: Any, y: Any) -> list[Any]:
        def one(i: Any) -> Any:
            def step(j: Any, acc: Any) -> list[Any]:
                at = b.prim("add", i, j)
                return [mul(add(acc, mul(b.index(x, at), b.index(x, i))), b.index(y, j))]
            return b.emit1(Loop(3, b.make_lambda([SIZE, F64], step), (b.index(x, i),)))
        return [b.map1(one, b.iota(4))]
    check_gradients(f, [values(6), values(3)], [("n",), (3,)])
    lam = pruned(vjp_graph(f, [values(6), values(3)], [("n",), ("m",)], [0, 1]))
    (n, _) = lam.params[:2]
    nested = [v.type for op in each_op(lam) if isinstance(op, Screma) for stm in op.lam.stms for v in stm.vars]
    assert not any(n in t.shape for t in nested)


def convolution(stride: int, padding: int) -> Any:
    """\\x[c, n] w[o, c, k] -> [o, m], written as nested maps with indices."""
    def f(x: Any, w: Any) -> list[Any]:
        (channels, _), (out, _, width) = x.type.shape, w.type.shape

        def term(o: Any, i: Any, ch: Any, d: Any) -> Any:
            at = b.prim("add", b.prim("mul", i, k(stride)), d)
            at = b.prim("sub", at, k(padding)) if padding else at
            inside = b.prim("and", b.prim("le", k(0), at), b.prim("lt", at, k(7)))
            read = cond(inside, lambda: b.index(x, ch, at), lambda: c(0)) if padding else b.index(x, ch, at)
            return mul(read, b.index(w, o, ch, d))

        def point(o: Any, i: Any) -> Any:
            return total(b.map1(lambda ch: total(b.map1(lambda d: term(o, i, ch, d), b.iota(width))), b.iota(channels)))

        return [b.map1(lambda o: b.map1(lambda i: point(o, i), b.iota(3)), b.iota(out))]
    return f


@pytest.mark.parametrize("stride,padding", [(1, 0), (2, 0), (2, 1)])
def test_convolution(stride: int, padding: int) -> None:
    args, dims = [values(2, 7), values(4, 2, 3)], [(2, 7), (4, 2, 3)]
    check_gradients(convolution(stride, padding), args, dims)
    lam = pruned(vjp_graph(convolution(stride, padding), args, dims, [0, 1]))
    assert "scatter" not in kinds(lam)


# --- numbers from other systems (the ad_* and grad_* cases) ----------------------------------------------------------

HIST_IS = np.array([4, 5, 2, 4, 5, 2, 0, 0, 4, 5, 1, 4, 1, 3, 3, 1, 8, -1])
HIST_DEST = np.array([1.0, 2, 0, 4, 5, 0, 9, 0])
HIST_VALUES = np.array([11.0, 16, 7, 0, 14, 6, 2, 1, 13, 0, 5, 0, 3, 0, 9, 4, 17, 18])
HIST_DIMS = [("m",), ("n",), ("n",)]


def test_histogram_with_an_operator_of_ones_own() -> None:
    op = Monoid(b.make_lambda([F64, F64], lambda x, y: [mul(mul(x, y), c(2))]), (c(0.5),), True)
    bars = np.arange(1.0, 9.0)
    dest, _, vs = vjp(lambda d, i, v: [scatter(d, i, v, op)], [HIST_DEST, HIST_IS, HIST_VALUES], HIST_DIMS, [bars])
    assert dest.tolist() == [8, 960, 504, 0, 0, 0, 7, 8]
    assert vs.tolist() == [0, 0, 0, 0, 0, 0, 4, 8, 0, 0, 384, 0, 640, 576, 0, 480, 0, 0]


def test_histogram_of_products_with_zeros() -> None:
    args = [HIST_DEST, HIST_IS, HIST_VALUES]
    dest, _, vs = vjp(lambda d, i, v: [scatter(d, i, v, monoid("mul", 1))], args, HIST_DIMS, [np.ones(8)])
    assert dest.tolist() == [2, 60, 42, 0, 0, 0, 1, 1]
    assert vs.tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 24, 0, 40, 36, 0, 30, 0, 0]


def test_ties_go_to_the_first() -> None:
    (g,) = vjp(lambda x: b.reduce_(monoid("min", np.inf), x), [np.array([1.0, 1.0])], [("n",)], [1.0])
    assert g.tolist() == [1, 0]
    v = np.array([0.0, 1, 2, 3, 3])
    args = [np.zeros(1), np.zeros(5, int), v]
    _, _, g = vjp(lambda d, i, v: [scatter(d, i, v, monoid("max", -np.inf))], args, HIST_DIMS, [np.ones(1)])
    assert g.tolist() == [0, 0, 0, 1, 0]
    many = np.ones(1000, np.float16)
    (g,) = vjp(lambda x: b.reduce_(Monoid(b.lift2("max", x.type.row()), (Const(-np.inf, x.type.elem),)), x), [many],
               [("n",)], [np.float16(1)])
    assert g.sum(dtype=np.float64) == 1


def test_only_the_last_writer_gets_the_cotangent() -> None:
    d, _, v = vjp(lambda d, i, v: [scatter(d, i, v)], [np.zeros(3), np.array([1, 1, -1, 0, 1]), np.ones(5)], HIST_DIMS,
                  [np.array([1.0, 2, 3])])
    assert d.tolist() == [0, 0, 3] and v.tolist() == [0, 0, 0, 1, 2]


def test_forward_derivative_of_an_integer_histogram() -> None:
    def f(i: Any, v: Any) -> list[Any]:
        return [scatter(b.full(Type(i32, (5,)), 1), i, v, monoid("mul", 1, i32))]
    is_, v = np.array([1, 1, 3, 3]), np.array([1, 2, 3, 4], np.int32)
    (dot,) = jvp(f, [is_, v], [("n",), ("n",)], [is_ * 0, v * 0 + 1])
    assert dot.tolist() == [0, 3, 0, 7, 0]


def test_true_dependency_in_a_loop() -> None:
    def body(i: Any, xs: Any) -> list[Any]:
        e = b.index(xs, i)
        to = b.prim("add", i, k(1))
        return [b.emit1(Scatter(1, (xs,), 1, None, b.make_lambda([], lambda: [to, b.prim("mul", e, e)]), ()))]
    x = np.array([1, 2, 3, 4, 5], np.int32)

    def f(x: Any) -> list[Any]:
        return list(b.emit(Loop(b.size_sub(x.type.shape[0], 1), b.make_lambda([SIZE, x.type], body), (x,))))
    rows = [vjp(f, [x], [("n",)], [np.eye(5, dtype=np.int32)[j]])[0].tolist() for j in range(5)]
    assert rows == [[1 * 2**j, 0, 0, 0, 0] for j in range(5)]


def test_scan_of_linear_functions() -> None:
    a, s = np.array([1.0, 4, 3, 4]), np.array([2.0, 3, 4, 2])
    bars = [np.array([0, 0, 0, 1.0]), np.zeros(4)]
    da, ds = vjp(lambda x, y: b.scan_(linear_monoid(), x, y), [a, s], [("n",)] * 2, bars)
    assert da.tolist() == [24, 8, 2, 1] and ds.tolist() == [0, 8, 14, 31]


def test_segmented_scan_carries_flags() -> None:
    def op(f1: Any, x1: Any, f2: Any, x2: Any) -> list[Any]:
        return [b.prim("or", f1, f2), b.select(f2, x2, mul(x1, x2))]
    m = Monoid(b.make_lambda([Type(bool_), F64] * 2, op), (b.bool_const(False), c(1)))
    flags = np.array([True, False, True, False, False])
    check_gradients(lambda f, x: b.scan_(m, f, x)[1:], [flags, values(5)], [("n",)] * 2)
    check_gradients(lambda f, x: b.reduce_(m, f, x)[1:], [flags, values(5)], [("n",)] * 2)
