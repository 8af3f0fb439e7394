"""Contractions: every spelling of a sum of products is one node, and nothing that is none becomes one."""
from typing import Any

import pytest
from golden import Golden
from graphs import (F32, MATMULS, assert_same, at, attention_scores, dot, graph, k, linear, mlp_rows, p, rmsnorm,
                    softmax, tabulate, total)
from random_graphs import Programs

from parray import builder as B
from parray.ad import vjp
from parray.check import check
from parray.contractions import convolutions, recognise
from parray.fuse import fuse
from parray.ir import Lambda, Monoid, count_ops, each_op
from parray.pretty import text
from parray.simplify import simplify
from parray.soacs import Contract, Cond, Loop, Overlap, Scatter, Screma, Transpose, Windows
from parray.types import SIZE, Type, f32, i64

AB = {"a": (f32, "nk"), "b": (f32, "km")}
WX = {"w": (f32, "mn"), "x": (f32, "n")}
XS = {"x": (f32, "tn"), "w": (f32, "mn")}
SIZES = [dict.fromkeys("nmktdhe", 0), dict.fromkeys("nmktdhe", 1), dict(n=3, m=5, k=4, t=2, d=6, h=2, e=7)]


def contracted(args: Any, f: Any) -> Lambda:
    """The program after recognition, checked and compared."""
    before = simplify(graph(args, f))
    after = check(simplify(check(recognise(before))))
    for sizes in SIZES:
        assert_same(before, after, close=True, **sizes)
        assert_same(after, check(simplify(fuse(after))), **sizes)
    return after


def notations(lam: Lambda) -> list[str]:
    """Each contraction's axes, renamed in order of the result's, then the first operand's."""
    out = []
    for op in each_op(lam):
        if isinstance(op, Contract):
            order = dict.fromkeys([*op.out_axes, *op.x_axes, *op.y_axes])
            names = {a: "abcdefgh"[i] for i, a in enumerate(order)}
            x, y, z = ("".join(names[a] for a in axes) for axes in (op.x_axes, op.y_axes, op.out_axes))
            out.append(f"{min(x, y)},{max(x, y)}->{z}")
    return out


def scremas(lam: Lambda) -> int:
    return count_ops(lam, Screma)


# --- spellings -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("f", MATMULS, ids=lambda f: f.__name__)
def test_matmul(f: Any) -> None:
    after = contracted(AB, f)
    assert notations(after) == ["ac,cb->ab"] and scremas(after) == 0


def test_matrix_times_vector() -> None:
    after = contracted(WX, linear)
    assert notations(after) == ["ab,b->a"] and scremas(after) == 0


def test_vector_times_matrix() -> None:
    """A linear combination of rows."""
    def f(w: Any, y: Any) -> Any:
        return total(B.map1(lambda s, row: B.map1(lambda e: B.prim("mul", e, s), row), y, w))
    after = contracted({"w": (f32, "mn"), "y": (f32, "m")}, f)
    assert notations(after) == ["b,ba->a"] and scremas(after) == 0


def test_map_of_matrix_times_vector() -> None:
    after = contracted(XS, lambda x, w: B.map1(lambda r: linear(w, r), x))
    assert notations(after) == ["ac,bc->ab"] and scremas(after) == 0


def test_batched_matmul() -> None:
    def f(a: Any, b: Any) -> Any:
        return B.map1(MATMULS[0], a, b)
    after = contracted({"a": (f32, "hnk"), "b": (f32, "hkm")}, f)
    assert notations(after) == ["abd,adc->abc"] and scremas(after) == 0


def test_batch_inside() -> None:
    """Heads are the second dimension; the contraction is found across them."""
    def f(q: Any, keys: Any) -> Any:
        def scores(i: Any, h: Any) -> Any:
            return tabulate(keys.type.shape[0], lambda j: dot(at(at(q, i), h), at(at(keys, j), h)))
        return tabulate(q.type.shape[0], lambda i: tabulate(q.type.shape[1], lambda h: scores(i, h)))
    after = contracted({"q": (f32, "thd"), "k": (f32, "nhd")}, f)
    assert notations(after) == ["abd,cbd->abc"] and scremas(after) == 0


def test_sum_over_two_axes() -> None:
    def f(x: Any, w: Any) -> Any:
        def both(u: Any, v: Any) -> Any:
            return total(B.map1(dot, u, v))
        return B.map1(lambda u: B.map1(lambda v: both(u, v), w), x)
    after = contracted({"x": (f32, "tnd"), "w": (f32, "mnd")}, f)
    assert notations(after) == ["acd,bcd->ab"] and scremas(after) == 0


def test_order_of_sums_does_not_matter() -> None:
    def f(x: Any, w: Any) -> Any:
        return B.map1(lambda v: total(B.map1(lambda u, c: B.map1(lambda e: B.prim("mul", e, c), u), x, v)), w)
    after = contracted({"x": (f32, "nd"), "w": (f32, "mn")}, f)
    assert notations(after) == ["ac,cb->ab"] and scremas(after) == 0


def test_gram_matrix() -> None:
    after = contracted({"x": (f32, "tn")}, lambda x: B.map1(lambda u: B.map1(lambda v: dot(u, v), x), x))
    assert notations(after) == ["ac,bc->ab"]


def test_through_transposes() -> None:
    def f(a: Any, b: Any) -> Any:
        at_ = B.emit1(Transpose(a, (1, 0)))
        return B.emit1(Transpose(MATMULS[0](B.emit1(Transpose(at_, (1, 0))), b), (1, 0)))
    assert notations(contracted(AB, f)) == ["ac,cb->ab"]


def test_sum_of_outer_products_of_computed_rows(golden: Golden) -> None:
    """As reverse differentiation writes the gradient of weights: the rows become results of the map."""
    def f(x: Any, y: Any) -> Any:
        def outer(u: Any, v: Any) -> Any:
            bar = B.map1(p("tanh"), v)
            return B.map1(lambda s: B.map1(lambda e: B.prim("mul", s, e), rmsnorm(u)), bar)
        return total(B.map1(outer, x, y))
    after = contracted({"x": (f32, "tn"), "y": (f32, "tm")}, f)
    assert notations(after) == ["ca,cb->ab"]
    golden(text(after))


def test_fused_sum_of_outer_products() -> None:
    def f(x: Any, y: Any) -> Any:
        lam = B.make_lambda((x.type.row(), y.type.row()), lambda u, v: (B.map1(lambda s: B.map1(
            lambda e: B.prim("mul", s, e), v), B.map1(p("exp"), u)), total(u)))
        return B.screma(x.type.shape[0], (x, y), lam, (), (B.sum_monoid(Type(f32, (x.type.shape[1], y.type.shape[1]))),
                                                           B.sum_monoid(F32)))
    after = contracted({"x": (f32, "tn"), "y": (f32, "tm")}, f)
    assert notations(after) == ["ca,cb->ab"]


# --- inside larger programs ------------------------------------------------------------------------------------------

def test_attention_scores_by_index(golden: Golden) -> None:
    after = contracted({"q": (f32, "nd"), "k": (f32, "nd")}, attention_scores)
    assert notations(after) == ["ac,bc->ab"]
    golden(text(after))


def test_attention() -> None:
    def f(q: Any, keys: Any, v: Any) -> Any:
        weights = B.map1(softmax, attention_scores(q, keys))
        return B.map1(lambda a: linear(B.emit1(Transpose(v, (1, 0))), a), weights)
    after = contracted({"q": (f32, "nd"), "k": (f32, "nd"), "v": (f32, "nd")}, f)
    assert notations(after) == ["ac,bc->ab", "ac,cb->ab"]


def test_heads() -> None:
    def f(q: Any, keys: Any) -> Any:
        return B.map1(lambda a, b: B.map1(softmax, attention_scores(a, b)), q, keys)
    after = contracted({"q": (f32, "hnd"), "k": (f32, "hnd")}, f)
    assert notations(after) == ["ac,bc->ab"]


def test_map_is_parted_at_contractions(golden: Golden) -> None:
    after = contracted({"x": (f32, "tn"), "w1": (f32, "mn"), "w2": (f32, "nm")}, mlp_rows)
    assert notations(after) == ["ac,bc->ab"] * 2
    golden(text(after))


def test_several_contractions_of_one_row_are_parted_at_once() -> None:
    def f(x: Any, a: Any, b: Any, c: Any) -> Any:
        def row(u: Any) -> Any:
            h = rmsnorm(u)
            s = dot(linear(a, h), linear(b, h))
            return B.map1(lambda e: B.prim("mul", e, s), linear(c, h)), s
        return B.map_(row, x)
    after = contracted({"x": (f32, "tn"), "a": (f32, "mn"), "b": (f32, "mn"), "c": (f32, "kn")}, f)
    assert notations(after) == ["ac,bc->ab"] * 3
    assert count_ops(after, Screma, nested=False) == 2


def test_parted_map_keeps_its_reduction() -> None:
    def f(x: Any, w: Any) -> Any:
        lam = B.make_lambda((x.type.row(),), lambda u: (total(softmax(linear(w, rmsnorm(u)))),))
        return B.screma(x.type.shape[0], (x,), lam, (), (B.sum_monoid(F32),))
    after = contracted(XS, f)
    assert notations(after) == ["ac,bc->ab"]


def test_matrix_product_in_a_map_stays_in_it() -> None:
    """It has its reuse already; each iteration works on its own small arrays."""
    def f(x: Any, w: Any) -> Any:
        return B.map1(lambda a: B.map1(softmax, B.map1(lambda r: linear(w, rmsnorm(r)), a)), x)
    after = contracted({"x": (f32, "htn"), "w": (f32, "mn")}, f)
    assert notations(after) == ["ac,bc->ab"] and count_ops(after, Contract, nested=False) == 0


def test_in_loops_and_branches() -> None:
    def f(w: Any, x: Any) -> Any:
        step = B.make_lambda((SIZE, x.type), lambda i, y: (B.map1(p("tanh"), linear(w, y)),))
        y = B.emit1(Loop(3, step, (x,)))
        return B.emit1(Cond(B.prim("lt", total(y), k(0.0)), B.make_lambda((), lambda: (linear(w, y),)),
                            B.make_lambda((), lambda: (linear(B.emit1(Transpose(w, (1, 0))), y),))))
    after = contracted({"w": (f32, "nn"), "x": (f32, "n")}, f)
    assert sorted(notations(after)) == ["ab,b->a"] * 2 + ["b,ba->a"]


# --- computed operands -----------------------------------------------------------------------------------------------

def test_scaled_operand_is_written_out_as_written(golden: Golden) -> None:
    def f(w: Any, x: Any) -> Any:
        return B.map1(lambda row: total(B.map1(lambda a, b: B.prim("mul", a, B.prim("mul", b, k(0.5))), row, x)), w)
    after = contracted(WX, f)
    assert notations(after) == ["ab,b->a"]
    golden(text(after))


def test_elements_computed_in_the_innermost_map() -> None:
    """Computed once for each place instead of once for each product."""
    def f(a: Any, b: Any) -> Any:
        inner, m = b.type.shape
        return B.map1(lambda row: tabulate(m, lambda j: total(tabulate(inner, lambda c: B.prim(
            "mul", B.prim("exp", at(row, c)), at(at(b, c), j))))), a)
    after = contracted(AB, f)
    assert notations(after) == ["ac,cb->ab"] and count_ops(after, Contract, nested=False) == 1


def test_rows_by_index() -> None:
    """An embedding times a matrix: the rows are gathered once."""
    def f(e: Any, w: Any, i: Any) -> Any:
        return B.map1(lambda t: linear(w, at(e, B.prim("mod", t, k(3, i64)))), i)
    before = graph({"e": (f32, "3n"), "w": (f32, "mn"), "i": (i64, "t")}, f)
    after = check(simplify(recognise(simplify(before))))
    assert notations(after) == ["ac,bc->ab"]
    assert_same(before, after, close=True, t=4, n=3, m=2)


def convolution(x: Any, w: Any, pad: bool = False) -> Any:
    """out[o, y, x] = sum over c, i, j of w[o, c, i, j] * x[c, y + i, x + j]; ``pad``: as if zeros stood around x."""
    (channels, rows, columns), (_, _, height, width) = x.type.shape, w.type.shape
    if pad:
        out_rows, out_columns = rows, columns
    else:
        out_rows = B.size_add(B.size_sub(rows, height), 1)
        out_columns = B.size_add(B.size_sub(columns, width), 1)

    def element(c: Any, i: Any, j: Any) -> Any:
        if not pad:
            return B.index(x, c, i, j)
        inside = B.prim("ge", i, k(0, i64))
        for v, n in ((i, rows), (j, columns)):
            inside = B.prim("and", inside, B.prim("lt", v, B.size_atom(n)))
            inside = B.prim("and", inside, B.prim("ge", v, k(0, i64)))

        def clip(v: Any, n: Any) -> Any:
            return B.prim("max", k(0, i64), B.prim("min", v, B.prim("sub", B.size_atom(n), k(1, i64))))
        return B.select(inside, B.index(x, c, clip(i, rows), clip(j, columns)), k(0.0))

    def out(f: Any, r: Any, s: Any) -> Any:
        half = k(1 if pad else 0, i64)
        return total(tabulate(channels, lambda c: total(tabulate(height, lambda i: total(tabulate(
            width, lambda j: B.prim("mul", B.index(f, c, i, j), element(
                c, B.prim("sub", B.prim("add", r, i), half), B.prim("sub", B.prim("add", s, j), half)))))))))
    return B.map1(lambda f: tabulate(out_rows, lambda r: tabulate(out_columns, lambda s: out(f, r, s))), w)


def convolved(args: Any, pad: bool, **sizes: int) -> Lambda:
    before = graph(args, lambda x, w: convolution(x, w, pad))
    after = check(simplify(recognise(simplify(before))))
    assert_same(before, after, close=True, **sizes)
    return after


def test_convolution(golden: Golden) -> None:
    after = convolved({"x": (f32, "crs"), "w": (f32, "ochk")}, False, c=2, r=5, s=4, o=3, h=3, k=2)
    assert notations(after) == ["adef,dbecf->abc"]
    golden(text(after))


def test_convolution_with_padding() -> None:
    after = convolved({"x": (f32, "c54"), "w": (f32, "oc33")}, True, c=2, o=3)
    assert notations(after) == ["adef,bcdef->abc"]


def test_convolution_of_a_batch_is_one() -> None:
    """Windows are strides: nothing is written out for them."""
    before = graph({"x": (f32, "bc54"), "w": (f32, "oc32")}, lambda x, w: B.map1(lambda v: convolution(v, w), x))
    after = check(simplify(recognise(simplify(before))))
    assert_same(before, after, close=True, b=2, c=2, o=3)
    assert notations(after) == ["aecfdg,befg->abcd"] and count_ops(after, Windows, nested=False) == 2


@pytest.mark.parametrize("step,near,tall", [(1, 1, 3), (2, 1, 3), (1, 2, 2), (3, 1, 1), (2, 3, 2)])
def test_strided_convolution_and_its_gradient(step: int, near: int, tall: int) -> None:
    """Values and both cotangents are contractions, with any step and dilation; nothing is scattered."""
    m = 3
    size = (m - 1) * step + (tall - 1) * near + 2
    args = {"x": (f32, f"2{size}"), "w": (f32, f"32{tall}")}

    def f(x: Any, w: Any) -> Any:
        def at(i: Any, j: Any) -> Any:
            return B.prim("add", B.prim("mul", i, k(step, i64)), B.prim("mul", j, k(near, i64)))
        return B.map1(lambda row: tabulate(m, lambda i: total(tabulate(tall, lambda j: total(B.map1(
            lambda u, v: B.prim("mul", B.index(u, at(i, j)), B.index(v, j)), x, row))))), w)

    def both(lam: Lambda) -> Any:
        def made(x: Any, w: Any) -> Any:
            (y,), pull = vjp(lam, (x, w), (0, 1))
            return [y, *pull([y])]
        return graph(args, made)
    plain = simplify(graph(args, f))
    after = check(simplify(recognise(simplify(both(convolutions(plain))))))
    assert count_ops(after, Contract) == 3 and count_ops(after, Overlap) == 0
    assert not any(isinstance(op, Scatter) for op in each_op(after))
    assert_same(both(plain), after, close=True)


# --- what is none ----------------------------------------------------------------------------------------------------

def no_contraction(args: Any, f: Any) -> None:
    assert notations(contracted(args, f)) == []


def test_dot_product_has_no_reuse() -> None:
    no_contraction({"x": (f32, "n"), "y": (f32, "n")}, dot)
    no_contraction({"x": (f32, "tn"), "y": (f32, "tn")}, lambda x, y: B.map1(dot, x, y))


def test_outer_product_without_a_sum() -> None:
    no_contraction({"x": (f32, "n"), "y": (f32, "m")}, lambda x, y: B.map1(
        lambda a: B.map1(lambda b: B.prim("mul", a, b), y), x))


def test_three_factors() -> None:
    def f(w: Any, x: Any) -> Any:
        return B.map1(lambda row: total(B.map1(lambda a, b: B.prim("mul", B.prim("mul", a, b), b), row, x)), w)
    no_contraction(WX, f)


def test_scale_inside_the_sum_is_not_pulled_out() -> None:
    def f(w: Any, x: Any) -> Any:
        return B.map1(lambda row: total(B.map1(lambda a, b: B.prim("mul", B.prim("mul", a, b), k(0.5)), row, x)), w)
    no_contraction(WX, f)


def test_computed_elements_with_every_axis_are_not_written_out() -> None:
    def f(w: Any, x: Any) -> Any:
        return B.map1(lambda row: total(B.map1(lambda a, b: B.prim("mul", B.prim("exp", a), b), row, x)), w)
    no_contraction(WX, f)


def test_integers() -> None:
    def f(w: Any, x: Any) -> Any:
        plus = B.sum_monoid(SIZE)
        return B.map1(lambda row: B.reduce_(plus, B.map1(p("mul"), row, x))[0], w)
    no_contraction({"w": (i64, "mn"), "x": (i64, "n")}, f)


def test_other_operators_and_neutral_elements() -> None:
    for name, ne in (("max", 0.0), ("add", 1.0)):
        def f(w: Any, x: Any) -> Any:
            monoid = Monoid(B.lift2(name, F32), (k(ne),))
            return B.map1(lambda row: B.reduce_(monoid, B.map1(p("mul"), row, x))[0], w)
        no_contraction(WX, f)


def test_diagonal() -> None:
    def f(a: Any, x: Any) -> Any:
        return tabulate(a.type.shape[0], lambda i: total(B.map1(lambda e: B.prim("mul", at(at(a, i), i), e), x)))
    no_contraction({"a": (f32, "nn"), "x": (f32, "m")}, f)


def test_sizes_bound_in_the_map_stay_there() -> None:
    def f(x: Any, w: Any) -> Any:
        def triangle(i: Any, row: Any) -> Any:
            u = tabulate(i, lambda j: B.convert(j, f32))
            return total(B.map1(lambda c: total(B.map1(lambda e: B.prim("mul", e, c), u)), row))
        return B.map1(triangle, B.iota(x.type.shape[0]), x)
    no_contraction(XS, f)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_keep_their_results(seed: int) -> None:
    before = simplify(Programs(seed + 2000).program(12))
    after = check(recognise(before))
    for sizes in ({"n": 0, "m": 2}, {"n": 3, "m": 1}, {"n": 4, "m": 5}):
        assert_same(before, after, close=True, **sizes)
