"""Differentiation, operation by operation: both modes, second order, sizes 0, 1 and odd (see `gradcheck`)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients, vjp

from parray import builder as b
from parray.ir import Const, Monoid
from parray.prims import TABLE
from parray.soacs import Concat, Cond, Contract, Loop, Overlap, Replicate, Reshape, Scatter, Slice, Transpose, \
    While, Windows
from parray.types import SIZE, Type, f32, f64, i64

F64 = Type(f64)
SIZES = [0, 1, 5]
each_size = pytest.mark.parametrize("n", SIZES)


def c(value: Any) -> Const:
    return Const(value, f64)


def k(value: int) -> Const:
    return Const(value, i64)


def add(x: Any, y: Any) -> Any:
    return b.elementwise(lambda p, q: b.prim("add", p, q), x, y)


def mul(x: Any, y: Any) -> Any:
    return b.elementwise(lambda p, q: b.prim("mul", p, q), x, y)


def sin(x: Any) -> Any:
    return b.elementwise(lambda e: b.prim("sin", e), x)


def total(x: Any) -> Any:
    return b.reduce_(b.sum_monoid(x.type.row()), x)[0]


def monoid(name: str, ne: Any, elem: Any = f64) -> Monoid:
    return Monoid(b.lift2(name, Type(elem)), (Const(ne, elem),), True)


def linear_monoid() -> Monoid:
    """Composition of x -> a + b * x, not commutative."""
    def op(a1: Any, b1: Any, a2: Any, b2: Any) -> list[Any]:
        return [b.prim("add", a2, b.prim("mul", b2, a1)), b.prim("mul", b1, b2)]
    return Monoid(b.make_lambda([F64] * 4, op), (c(0), c(1)))


def matrix_monoid() -> Monoid:
    """The product of 2 x 2 matrices, as arrays."""
    t = Type(f64, (2, 2))

    def op(x: Any, y: Any) -> list[Any]:
        def dot(row: Any, col: Any) -> Any:
            return total(mul(row, col))
        columns = b.emit1(Transpose(y, (1, 0)))
        return [b.map1(lambda row: b.map1(lambda col: dot(row, col), columns), x)]

    rows = [b.emit1(Concat((b.full(Type(f64, (1,)), 1 - j), b.full(Type(f64, (1,)), j)), 2)) for j in (0, 1)]
    one = [b.emit1(Reshape(r, (1, 2))) for r in rows]
    return Monoid(b.make_lambda([t, t], op), (b.emit1(Concat(tuple(one), 2)),))


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def scatter(dest: Any, is_: Any, vs: Any, op: Monoid | None = None) -> Any:
    return b.emit1(Scatter(is_.type.shape[0], (dest,), 1, op, b.identity_lambda([SIZE, vs.type.row()]), (is_, vs)))


# --- primitives ------------------------------------------------------------------------------------------------------

DOMAIN = {"acosh": (1.2, 3.0), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atanh": (-0.9, 0.9), "log1p": (-0.5, 2.0)}
POSITIVE = {"sqrt", "rsqrt", "cbrt", "log", "log2", "log10", "pow", "mod", "fmod", "floordiv"}
SCALARS = [r.name for r in TABLE.values() if "bool" not in r.result and r.accepts(f64) and r.name not in
           ("select", "convert", "fma", "stop", "bitcast")]


@pytest.mark.parametrize("name", SCALARS)
def test_primitive(name: str) -> None:
    low, high = DOMAIN.get(name, (0.3, 2.7) if name in POSITIVE else (-2.0, 2.0))
    args = list(np.random.default_rng(3).uniform(low, high, size=TABLE[name].arity))
    check_gradients(lambda *xs: [b.prim(name, *xs)], args, [()] * len(args), order=3 if name in ("mul", "exp") else 2)


def test_select_and_convert() -> None:
    check_gradients(lambda x, y: [b.select(b.prim("lt", x, y), mul(x, x), mul(x, y))], [1.5, 2.0], [(), ()])

    def f(x: Any) -> list[Any]:
        z = mul(x, x)
        return [b.convert(b.convert(z, f32), f64), b.convert(b.convert(z, i64), f64)]
    assert vjp(f, [1.5], [()], [0.5, 2.0]) == (1.5,)                # rounding to an integer is constant


def test_stop_is_constant() -> None:
    assert vjp(lambda x: [mul(x, b.prim("stop", x))], [3.0], [()], [1.0]) == (3.0,)


def test_conventions_at_special_points() -> None:
    def grad(name: str, *xs: Any) -> list[float]:
        return [float(g) for g in vjp(lambda *a: [b.prim(name, *a)], xs, [()] * len(xs), [np.float64(1)])]
    assert grad("pow", np.float64(0), np.float64(0)) == [0, 0]
    assert grad("max", np.float64(2), np.float64(2)) == [1, 0]
    assert grad("min", np.float64(2), np.float64(2)) == [1, 0]
    assert grad("max", np.float64(2), np.float64(np.nan)) == [0, 1]
    assert grad("abs", np.float64(0)) == [0]
    assert grad("sqrt", np.float64(0)) == [np.inf]


# --- maps ------------------------------------------------------------------------------------------------------------

@each_size
def test_map(n: int) -> None:
    check_gradients(lambda xs, y: [b.map1(lambda x: mul(sin(x), y), xs)], [values(n), 0.7], [("n",), ()])


@each_size
def test_map_with_captured_arrays(n: int) -> None:
    def f(a: Any, x: Any, w: Any) -> list[Any]:
        return [b.map1(lambda row: total(mul(mul(row, x), w)), a)]
    check_gradients(f, [values(n, 3), values(3), values(3, seed=2)], [("n", "m"), ("m",), ("m",)])


@each_size
def test_map_input_also_captured(n: int) -> None:
    check_gradients(lambda x: [b.map1(lambda p: b.map1(lambda q: mul(mul(p, q), q), x), x)], [values(n)], [("n",)])


@each_size
def test_map_of_several_results_with_constants(n: int) -> None:
    def f(x: Any, y: Any) -> list[Any]:
        return list(b.map_(lambda e: (e, y, c(2), mul(e, y), e), x))
    check_gradients(f, [values(n), 1.2], [("n",), ()])


def test_results_that_are_arguments_or_constants() -> None:
    check_gradients(lambda x, y: [x, x, c(1), mul(x, y)], [1.5, 2.5], [(), ()])


# --- views -----------------------------------------------------------------------------------------------------------

@each_size
def test_views(n: int) -> None:
    def f(x: Any) -> list[Any]:
        t = b.emit1(Transpose(x, (1, 0)))
        flat = b.emit1(Reshape(t, (b.size_mul(x.type.shape[0], 3),)))
        both = b.emit1(Concat((flat, sin(flat)), b.size_mul(x.type.shape[0], 6)))
        many = b.emit1(Replicate(2, both))
        return [mul(many, many)]
    check_gradients(f, [values(n, 3)], [("n", 3)])


@pytest.mark.parametrize("start,size,step", [(0, 5, 1), (1, 3, 1), (4, 3, -2), (0, 3, 2), (2, 0, 1), (4, 5, -1)])
def test_slice(start: int, size: int, step: int) -> None:
    def f(x: Any, y: Any) -> list[Any]:
        part = b.emit1(Slice(x, (k(start), k(1)), (size, 2), (step, 1)))
        line = b.emit1(Slice(y, (k(start),), (size,), (step,)))
        return [mul(part, part), mul(line, line)]
    check_gradients(f, [values(5, 4), values(5)], [(5, 4), (5,)])


def test_slices_that_overlap() -> None:
    def f(x: Any) -> list[Any]:
        n = b.size_sub(x.type.shape[0], 1)
        left, right = (b.emit1(Slice(x, (k(s),), (n,), (1,))) for s in (0, 1))
        return [mul(left, right), b.index(right, 2)]
    check_gradients(f, [values(5)], [("n",)])


CASES = [(4, 3, (1, 1)), (2, 2, (2, 1)), (3, 2, (1, 2)), (0, 2, (1, 1)), (1, 1, (3, 3))]


@pytest.mark.parametrize("m,length,steps", CASES)
def test_windows_and_overlap(m: int, length: int, steps: tuple[int, int]) -> None:
    """Each is the other's transpose."""
    n = max(m - 1, 0) * steps[0] + (length - 1) * steps[1] + 2

    def f(x: Any) -> list[Any]:
        seen = b.emit1(Windows(x, 1, (m, length), steps))
        added = b.emit1(Overlap(mul(seen, seen), 1, n, steps))
        return [seen, mul(added, x)]
    check_gradients(f, [values(3, n, 2)], [(3, n, 2)])


def test_index_of_views() -> None:
    def f(x: Any, i: Any) -> list[Any]:
        row = b.index(x, i)
        column = b.index(b.emit1(Transpose(x, (1, 0))), i)
        part = b.emit1(Slice(x, (k(1), k(2)), (2, 2), (1, -1)))
        picked = b.map1(lambda j: b.index(part, j, j), b.iota(2))
        one = b.index(part, 1)
        return [mul(b.index(row, 2), b.index(column, i)), b.index(x, i, 0), picked, one, mul(row, row)]
    check_gradients(f, [values(4, 3), 2], [("n", 3), ()])


# --- indexing inside maps --------------------------------------------------------------------------------------------

@each_size
def test_gather(n: int) -> None:
    is_ = np.arange(n) * 3 % max(n, 1)

    def f(x: Any, i: Any) -> list[Any]:
        return [b.map1(lambda j: mul(b.index(x, j), b.index(x, j)), i)]
    check_gradients(f, [values(n), is_], [("n",), ("n",)])


def test_gather_of_rows_in_nested_maps() -> None:
    def f(x: Any, i: Any, w: Any) -> list[Any]:
        def one(j: Any) -> Any:
            return b.map1(lambda h, v: mul(b.index(x, j, h), mul(v, b.index(w, j))), b.iota(3), b.index(x, j))
        return [b.map1(lambda js: b.map1(one, js), i)]
    check_gradients(f, [values(4, 3), np.array([[0, 1], [1, 3], [3, 3]]), values(4)], [("n", 3), ("k", 2), ("n",)])


@pytest.mark.parametrize("order", ["ij", "ji", "ii", "shift"])
def test_index_by_loop_variables(order: str) -> None:
    def f(x: Any) -> list[Any]:
        def element(i: Any, j: Any) -> Any:
            at = {"ij": (i, j), "ji": (j, i), "ii": (i, i), "shift": (b.prim("add", i, k(1)), j)}[order]
            return mul(b.index(x, *at), b.index(x, *at))
        return [b.map1(lambda i: b.map1(lambda j: element(i, j), b.iota(3)), b.iota(3))]
    check_gradients(f, [values(4, 4)], [(4, 4)])


def test_stencil_reads_neighbours() -> None:
    def f(x: Any, w: Any) -> list[Any]:
        n = b.size_sub(x.type.shape[0], 2)
        return [b.map1(lambda i: total(b.map1(lambda d, e: mul(e, b.index(x, b.prim("add", i, d))), b.iota(3), w)),
                       b.iota(n))]
    check_gradients(f, [values(6), values(3)], [("n",), (3,)])


# --- reductions and scans --------------------------------------------------------------------------------------------

@each_size
def test_sums(n: int) -> None:
    check_gradients(lambda x: [total(sin(x)), b.scan_(b.sum_monoid(F64), sin(x))[0]], [values(n)], [("n",)])
    check_gradients(lambda x: [total(mul(x, x)), *b.scan_(b.sum_monoid(x.type.row()), mul(x, x))], [values(n, 2)],
                    [("n", 2)])


@each_size
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_products(n: int, zeros: int) -> None:
    x = values(n)
    x[1:1 + zeros] = 0
    check_gradients(lambda x: b.reduce_(monoid("mul", 1), x), [x], [("n",)])
    check_gradients(lambda x: b.scan_(monoid("mul", 1), x), [x], [("n",)])


@each_size
def test_extrema(n: int) -> None:
    for name in ("max", "min"):
        ne = -np.inf if name == "max" else np.inf
        check_gradients(lambda x: [mul(e, e) for e in b.reduce_(monoid(name, c(ne).value), x) if n], [values(n)],
                        [("n",)])
        check_gradients(lambda x: b.scan_(monoid(name, c(ne).value), x), [values(n)], [("n",)])


@pytest.mark.parametrize("n", [0, 1, 4])
def test_tuple_and_array_operators(n: int) -> None:
    check_gradients(lambda x, y: b.reduce_(linear_monoid(), x, y), [values(n), values(n, seed=1)], [("n",)] * 2)
    check_gradients(lambda x, y: b.scan_(linear_monoid(), x, y), [values(n), values(n, seed=1)], [("n",)] * 2)
    x = values(n, 2, 2)
    check_gradients(lambda x: b.reduce_(matrix_monoid(), x), [x], [("n", 2, 2)], order=1)
    check_gradients(lambda x: b.scan_(matrix_monoid(), x), [x], [("n", 2, 2)], order=1)
    product = [x[:, 0] * (np.arange(n)[:, None] != 1)]
    check_gradients(lambda x: b.reduce_(b.sum_monoid(x.type.row(), "mul", 1), x), product, [("n", 2)])


def test_operator_that_captures() -> None:
    def op(y: Any) -> Monoid:
        return Monoid(b.make_lambda([F64, F64], lambda p, q: [mul(mul(p, q), y)]), (b.prim("div", c(1), y),))
    check_gradients(lambda x, y: b.reduce_(op(y), x), [values(4), 1.3], [("n",), ()])
    check_gradients(lambda x, y: b.scan_(op(y), x), [values(4), 1.3], [("n",), ()])


def test_argmax_pair_passes_the_value_on() -> None:
    def op(v: Any, i: Any, w: Any, j: Any) -> list[Any]:
        first = b.prim("ge", v, w)
        return [b.select(first, v, w), b.select(first, i, j)]
    m = Monoid(b.make_lambda([F64, SIZE, F64, SIZE], op), (c(-np.inf), k(0)))

    def f(x: Any) -> list[Any]:
        value, at = b.reduce_(m, x, b.iota(x.type.shape[0]))
        return [mul(value, value), b.index(x, at)]
    check_gradients(f, [values(5)], [("n",)], order=1)


def test_fused_screma() -> None:
    def f(x: Any, y: Any) -> list[Any]:
        lam = b.make_lambda([F64, F64], lambda p, q: [mul(p, q), sin(p), q, mul(p, p)])
        return list(b.screma(x.type.shape[0], (x, y), lam, (b.sum_monoid(F64),),
                             (monoid("mul", 1), monoid("max", -np.inf))))
    check_gradients(f, [values(5), values(5, seed=1)], [("n",)] * 2)


# --- scatters --------------------------------------------------------------------------------------------------------

IS = np.array([1, 0, -1, 1, 7, 2, 1])


@pytest.mark.parametrize("name,ne", [("", 0), ("add", 0), ("mul", 1), ("max", -np.inf), ("min", np.inf)])
def test_scatter(name: str, ne: float) -> None:
    def f(d: Any, i: Any, v: Any) -> list[Any]:
        out = scatter(mul(d, d), i, mul(v, v), monoid(name, ne) if name else None)
        return [sin(out)]
    check_gradients(f, [values(4), IS, values(7, seed=5)], [("m",), ("n",), ("n",)])
    check_gradients(f, [values(0), IS, values(7)], [("m",), ("n",), ("n",)], order=1)
    check_gradients(f, [values(3), IS[:0], values(0)], [("m",), ("n",), ("n",)], order=1)


def test_scatter_of_rows_pairs_and_products_with_zeros() -> None:
    def rows(d: Any, i: Any, v: Any) -> list[Any]:
        return [scatter(d, i, mul(v, v)), scatter(d, i, v, b.sum_monoid(v.type.row())),
                scatter(d, i, v, b.sum_monoid(v.type.row(), "mul", 1))]
    check_gradients(rows, [values(4, 2), IS, values(7, 2)], [("m", 2), ("n",), ("n", 2)], order=1)

    def pairs(d: Any, e: Any, i: Any, v: Any) -> list[Any]:
        lam = b.make_lambda([SIZE, F64], lambda at, x: [at, x, mul(x, x)])
        return list(b.emit(Scatter(i.type.shape[0], (d, e), 1, linear_monoid(), lam, (i, v))))
    check_gradients(pairs, [values(4), values(4, seed=1), IS, values(7)], [("m",), ("m",), ("n",), ("n",)])
    v = values(7)
    v[[0, 3]] = 0
    check_gradients(lambda d, i, v: [scatter(d, i, v, monoid("mul", 1))], [values(4), IS, v], [("m",), ("n",), ("n",)])


def test_scatter_in_two_dimensions() -> None:
    def f(d: Any, i: Any, j: Any, v: Any, op: Monoid | None) -> list[Any]:
        return [b.emit1(Scatter(i.type.shape[0], (d,), 2, op, b.identity_lambda([SIZE, SIZE, F64]), (i, j, v)))]
    args = [values(3, 2), np.array([0, 2, 0, 1, 2]), np.array([1, 1, 1, 2, -1]), values(5)]
    dims = [("m", 2), ("n",), ("n",), ("n",)]
    check_gradients(lambda *xs: f(*xs, None), args, dims)
    check_gradients(lambda *xs: f(*xs, b.sum_monoid(F64)), args, dims)
    check_gradients(lambda *xs: f(*xs, monoid("max", -np.inf)), args, dims)


@pytest.mark.parametrize("at", [-1, 0, 2, 3])
@pytest.mark.parametrize("name,ne", [("", 0), ("add", 0), ("mul", 1)])
def test_update(at: int, name: str, ne: float) -> None:
    def f(x: Any, i: Any, y: Any) -> list[Any]:
        lam = b.make_lambda([], lambda: [i, mul(y, y)])
        return [sin(b.emit1(Scatter(1, (x,), 1, monoid(name, ne) if name else None, lam, ())))]
    check_gradients(f, [values(3), at, 0.8], [("n",), (), ()])


# --- control ---------------------------------------------------------------------------------------------------------

def power(x: Any, n: Any) -> Any:
    return b.emit1(Loop(n, b.make_lambda([SIZE, F64], lambda i, acc: [mul(acc, x)]), (c(1),)))


@pytest.mark.parametrize("n", [-1, 0, 1, 4])
def test_loop(n: int) -> None:
    check_gradients(lambda x, n: [power(x, n)], [1.3, n], [(), ()], order=3)


@each_size
def test_loop_over_captured_array(n: int) -> None:
    def f(x: Any, y: Any) -> list[Any]:
        lam = b.make_lambda([SIZE, F64, F64], lambda i, p, q: [add(mul(p, b.index(x, i)), q), mul(sin(q), y)])
        return list(b.emit(Loop(x.type.shape[0], lam, (y, c(0.5)))))
    check_gradients(f, [values(n), 0.4], [("n",), ()])


@each_size
def test_loop_with_updates_in_place(n: int) -> None:
    def body(i: Any, xs: Any) -> list[Any]:
        e = b.index(xs, i)
        return [b.emit1(Scatter(1, (xs,), 1, None, b.make_lambda([], lambda: [i, mul(e, e)]), ()))]
    check_gradients(lambda x: b.emit(Loop(x.type.shape[0], b.make_lambda([SIZE, x.type], body), (x,))), [values(n)],
                    [("n",)])


def test_nested_loops_and_maps() -> None:
    def f(x: Any, w: Any) -> list[Any]:
        def inner(i: Any, acc: Any) -> list[Any]:
            return [b.emit1(Loop(2, b.make_lambda([SIZE, F64], lambda j, a: [mul(a, b.index(w, i))]), (sin(acc),)))]

        def one(e: Any) -> Any:
            return b.emit1(Loop(3, b.make_lambda([SIZE, F64], inner), (e,)))
        return [b.map1(one, x)]
    check_gradients(f, [values(4), values(3)], [("n",), (3,)])


def test_loop_carrying_rows_and_mapping() -> None:
    def f(x: Any, a: Any) -> list[Any]:
        def body(i: Any, v: Any) -> list[Any]:
            return [b.map1(lambda row: sin(total(mul(row, v))), a)]
        return [b.emit1(Loop(3, b.make_lambda([SIZE, x.type], body), (x,)))]
    check_gradients(f, [values(3), values(3, 3)], [(3,), (3, 3)])


def test_while() -> None:
    def f(x: Any, y: Any) -> list[Any]:
        cond = b.make_lambda([F64, SIZE], lambda p, i: [b.prim("lt", p, c(20))])
        step = b.make_lambda([F64, SIZE], lambda p, i: [mul(p, y), b.prim("add", i, k(1))])
        return list(b.emit(While(cond, step, (x, k(0)))))
    check_gradients(f, [1.1, 1.7], [(), ()])
    check_gradients(f, [30.0, 1.7], [(), ()])
    check_gradients(lambda xs, y: [b.map1(lambda x: f(x, y)[0], xs)], [np.array([1.1, 3, 25]), 1.7], [("n",), ()])


def cond(p: Any, then: Any, orelse: Any) -> Any:
    return b.emit1(Cond(p, b.make_lambda([], lambda: [then()]), b.make_lambda([], lambda: [orelse()])))


@pytest.mark.parametrize("p", [False, True])
def test_cond(p: bool) -> None:
    def f(p: Any, x: Any, y: Any, i: Any) -> list[Any]:
        return [cond(p, lambda: mul(x, y), lambda: sin(x)),
                cond(p, lambda: mul(b.index(y, i), b.index(x, i)), lambda: total(x)),
                cond(p, lambda: b.index(y, i), lambda: c(1)),
                cond(p, lambda: b.map1(lambda j: b.index(y, j), b.iota(2)), lambda: b.full(Type(f64, (2,)), 0))]
    check_gradients(f, [p, values(3), values(3, seed=1), 1], [(), ("n",), ("n",), ()])


def test_cond_inside_map_and_loop() -> None:
    def f(x: Any, y: Any) -> list[Any]:
        def element(e: Any) -> Any:
            return cond(b.prim("lt", c(0), e), lambda: mul(e, b.index(y, 0)), lambda: mul(b.index(y, 1), sin(e)))

        def body(i: Any, a: Any) -> list[Any]:
            return [cond(b.prim("lt", i, k(2)), lambda: mul(a, b.index(x, i)), lambda: add(a, b.index(y, 1)))]
        return [b.map1(element, x), b.emit1(Loop(4, b.make_lambda([SIZE, F64], body), (c(1),)))]
    check_gradients(f, [values(5), values(2)], [("n",), (2,)])


def test_contract() -> None:
    def f(x: Any, y: Any) -> list[Any]:
        return [b.emit1(Contract(x, y, (0, 1), (1, 2), (0, 2))), b.emit1(Contract(x, y, (0, 1), (1, 2), (2,))),
                b.emit1(Contract(x, y, (0, 1), (1, 2), ())), b.emit1(Contract(x, x, (0, 1), (2, 1), (2, 0)))]
    check_gradients(f, [values(2, 3), values(3, 4)], [("n", 3), (3, 4)])
