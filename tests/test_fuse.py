"""Fusion: how many loops remain, and that results keep their bits."""
from typing import Any

import numpy as np
import pytest
from golden import Golden
from graphs import (F32, MATMULS, assert_same, attention_scores, dot, graph, k, maximum, mean_variance, mlp_rows, p,
                    rmsnorm, softmax, total)
from random_graphs import Programs

from parray import builder as B
from parray.check import check
from parray.fuse import fuse
from parray.interpreter import run
from parray.ir import Lambda, Monoid, count_ops
from parray.pretty import text
from parray.simplify import simplify
from parray.soacs import Cond, Loop, Scatter, Screma, Transpose
from parray.types import SIZE, Type, f32, i64

X = {"x": (f32, "n")}
XY = {"x": (f32, "n"), "y": (f32, "n")}
A = {"a": (f32, "nm")}
SIZES = [dict(n=0, m=1, k=2, d=1), dict(n=1, m=0, k=1, d=2), dict(n=7, m=5, k=3, d=4)]


def prim1(name: str) -> Any:
    return lambda x: B.map1(p(name), x)


def scan(x: Any) -> Any:
    return B.scan_(B.sum_monoid(F32), x)[0]


def put(dest: Any, i: Any, v: Any, monoid: Any = None) -> Any:
    lam = B.make_lambda((SIZE, F32), lambda a, b: (a, b))
    return B.emit1(Scatter(v.type.shape[0], (dest,), 1, monoid, lam, (i, v)))


def fused(before: Lambda, nested: bool = True) -> tuple[Lambda, int]:
    """The program after fusion, checked and compared, and how many Scremas and Scatters it has."""
    simple = simplify(before)
    after = simplify(check(fuse(simple)))
    check(after)
    for sizes in SIZES:
        assert_same(simple, after, **sizes)
    return after, count_ops(after, lambda op: isinstance(op, (Screma, Scatter)), nested)


def loops(args: Any, f: Any, nested: bool = True) -> int:
    return fused(graph(args, f), nested)[1]


# --- vertical --------------------------------------------------------------------------------------------------------

def test_map_into_map() -> None:
    assert loops(X, lambda x: prim1("exp")(prim1("sin")(prim1("neg")(x)))) == 1


def test_map_into_reduce(golden: Golden) -> None:
    after, count = fused(graph(XY, dot))
    assert count == 1
    golden(text(after))


def test_map_into_scan() -> None:
    assert loops(X, lambda x: scan(prim1("exp")(x))) == 1


def test_scan_is_complete_before_it_is_read() -> None:
    assert loops(X, lambda x: prim1("exp")(scan(x))) == 2
    assert loops(X, lambda x: scan(scan(x))) == 2


def test_reduction_is_complete_before_it_is_read() -> None:
    assert loops(X, softmax) == 3
    assert loops(X, mean_variance) == 2


def test_map_with_other_uses_stays_a_result(golden: Golden) -> None:
    def f(x: Any) -> Any:
        e = prim1("exp")(x)
        return e, total(e), prim1("neg")(e)
    after, count = fused(graph(X, f))
    assert count == 1
    golden(text(after))


def test_two_uses_compute_once() -> None:
    def f(x: Any) -> Any:
        e = prim1("exp")(x)
        return B.map1(p("mul"), e, B.map1(p("sin"), e))
    after, count = fused(graph(X, f))
    assert count == 1
    assert count_ops(after, lambda op: getattr(op, "prim", "") == "exp") == 1


def test_free_use_stops_fusion() -> None:
    """The consumer reads the whole array in each iteration."""
    def f(x: Any) -> Any:
        e = prim1("exp")(x)
        return B.map1(lambda a: B.prim("add", a, total(B.map1(lambda b: B.prim("mul", a, b), e))), e)
    assert loops(X, f, nested=False) == 2


def test_third_operation_between_stops_fusion() -> None:
    def f(x: Any) -> Any:
        e = prim1("exp")(x)
        return B.map1(p("sub"), e, B.emit1(Transpose(scan(e), (0,))))
    assert loops(X, f) == 2


def test_other_size_stops_fusion() -> None:
    assert loops(A, lambda a: total(B.map1(total, B.emit1(Transpose(prim2("exp", a), (1, 0))))), nested=False) == 2


def prim2(name: str, a: Any) -> Any:
    return B.elementwise(p(name), a)


def test_map_into_scatter() -> None:
    def f(x: Any, y: Any) -> Any:
        i = B.map1(lambda a: B.convert(a, i64), x)
        return put(y, i, prim1("exp")(x))
    assert loops(XY, f) == 1


def test_map_into_histogram() -> None:
    def f(x: Any, y: Any) -> Any:
        i = B.map1(lambda a: B.convert(a, i64), x)
        return put(y, i, prim1("exp")(x), B.sum_monoid(F32))
    assert loops(XY, f) == 1


def test_map_that_others_need_does_not_go_into_scatter() -> None:
    def f(x: Any, y: Any) -> Any:
        e = prim1("exp")(x)
        return put(y, B.map1(lambda a: B.convert(a, i64), x), e), e
    assert loops(XY, f) == 2


def test_destination_is_not_an_input() -> None:
    def f(x: Any, y: Any) -> Any:
        return put(prim1("exp")(x), B.iota(x.type.shape[0]), y)
    assert loops(XY, f) == 2


def test_producer_with_a_reduction() -> None:
    """The sum and the rows come out of one loop when the consumer reads only the rows."""
    def f(x: Any) -> Any:
        lam = B.make_lambda((F32,), lambda a: (a, B.prim("exp", a)))
        s, e = B.screma(x.type.shape[0], (x,), lam, (), (B.sum_monoid(F32),))
        return s, prim1("neg")(e)
    assert loops(X, f) == 1


# --- horizontal ------------------------------------------------------------------------------------------------------

def test_reductions_of_one_array() -> None:
    assert loops(X, lambda x: [total(x), maximum(x), dot(x, x)]) == 1


def test_maps_of_one_array() -> None:
    assert loops(XY, lambda x, y: [prim1("exp")(x), B.map1(p("mul"), x, y)]) == 1


def test_nothing_shared_nothing_fused() -> None:
    assert loops(XY, lambda x, y: [prim1("exp")(x), prim1("exp")(y)]) == 2


def test_scans_stay_apart_from_maps() -> None:
    assert loops(X, lambda x: [scan(x), prim1("exp")(x)]) == 2
    assert loops(X, lambda x: [scan(x), B.scan_(Monoid(B.lift2("max", F32), (k(-np.inf),)), x)[0]]) == 1


def test_dependent_operations_are_not_beside_each_other() -> None:
    def f(x: Any) -> Any:
        s = total(x)
        return B.map1(lambda a: B.prim("mul", a, s), x)
    assert loops(X, f) == 2


def test_no_cycle_through_two_pairs() -> None:
    """a -> b and c -> d with b, c sharing and a, d sharing: one of the two pairs only."""
    def f(x: Any, y: Any) -> Any:
        a, c = total(x), total(y)
        b = B.map1(lambda e: B.prim("mul", e, a), y)
        d = B.map1(lambda e: B.prim("mul", e, c), x)
        return b, d
    assert loops(XY, f) == 3


# --- nests -----------------------------------------------------------------------------------------------------------

def test_inside_maps() -> None:
    assert loops(A, lambda a: B.map1(softmax, a)) == 1 + 3
    assert loops(A, lambda a: B.map1(rmsnorm, a)) == 1 + 2


def test_outer_fusion_enables_inner() -> None:
    def f(a: Any) -> Any:
        e = prim2("exp", a)
        return prim2("neg", e), B.map1(total, e)
    assert loops(A, f) == 2


def test_inside_loops_and_branches() -> None:
    def f(x: Any) -> Any:
        lam = B.make_lambda((SIZE, x.type), lambda i, y: (prim1("exp")(prim1("neg")(y)),))
        y = B.emit1(Loop(3, lam, (x,)))
        return B.emit1(Cond(B.prim("lt", k(0.0), total(y)), B.make_lambda((), lambda: (prim1("exp")(prim1("sin")(y)),)),
                            B.make_lambda((), lambda: (prim1("sin")(prim1("exp")(y)),))))
    assert loops(X, f) == 1 + 1 + 2


def test_reduction_of_rows() -> None:
    """The sum of outer products writes no outer product."""
    def f(a: Any) -> Any:
        return total(B.map1(lambda r: B.map1(lambda e: B.map1(lambda g: B.prim("mul", e, g), r), r), a))
    assert loops(A, f, nested=False) == 1


@pytest.mark.parametrize("f", MATMULS, ids=lambda f: f.__name__)
def test_matmul_without_contractions(f: Any) -> None:
    fused(graph({"a": (f32, "nk"), "b": (f32, "km")}, f))


def test_attention() -> None:
    def f(q: Any, keys: Any) -> Any:
        return B.map1(softmax, attention_scores(q, keys))
    assert loops({"q": (f32, "nd"), "k": (f32, "nd")}, f, nested=False) == 1


def test_mlp() -> None:
    args = {"x": (f32, "nm"), "v": (f32, "km"), "w": (f32, "mk")}
    assert loops(args, mlp_rows, nested=False) == 1


# --- in general ------------------------------------------------------------------------------------------------------

def test_fusion_is_stable() -> None:
    once = simplify(fuse(simplify(graph(A, lambda a: B.map1(softmax, prim2("exp", a))))))
    again = fuse(once)
    assert text(again) == text(once)


def test_order_of_statements_respects_sizes() -> None:
    def f(x: Any) -> Any:
        e = prim1("exp")(x)
        count = B.convert(total(e), i64)
        return B.zeros(Type(f32, (B.prim("max", count, k(0, i64)),))), prim1("neg")(e)
    fused(graph(X, f))


def test_parameters_may_be_sizes() -> None:
    def f(x: Any) -> Any:
        n = x.type.shape[0]
        lengths = B.map1(lambda i: B.prim("add", i, i), B.iota(n))
        return B.map1(lambda i: total(B.map1(lambda j: B.convert(j, f32), B.iota(i))), lengths)
    after, _ = fused(graph(X, f))
    (sums,) = run(after, np.int64(3), np.zeros(3, np.float32))
    assert list(sums) == [0, 1, 6]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_keep_their_results(seed: int) -> None:
    before = simplify(Programs(seed + 1000).program(12))
    after = check(fuse(before))
    last = check(simplify(after))
    for sizes in SIZES:
        assert_same(before, after, **sizes)
        assert_same(before, last, **sizes)
