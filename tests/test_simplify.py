"""Each rewrite rule before and after as text, and with the same results; dead code, sharing and hoisting likewise."""
from typing import Any, Callable

import numpy as np
import pytest
from golden import Golden
from graphs import (F32, MATMULS, assert_same, at, attention_scores, dot, graph, k, maximum, mean_variance, mlp_rows, p,
                    rmsnorm, softmax, tabulate, total)
from random_graphs import Programs

from parray import builder as B
from parray import simplify as package
from parray.check import check
from parray.errors import AssertionFailed, BoundsError
from parray.interpreter import run
from parray.ir import Atom, Const, Lambda, Monoid, Op, count_ops, refresh
from parray.pretty import text
from parray.simplify import simplify
from parray.simplify.engine import Simplifier
from parray.soacs import (Assert, Concat, Cond, Index, Loop, Prim, Replicate, Reshape, Scatter, Screma, Slice,
                          Transpose, While)
from parray.types import SIZE, Type, bool_, f32, f64, i8, i32, i64

RULES = {r.__name__: r for r in package._RULES}
X = {"x": (f32, "n")}
S = {"x": (f32, ""), "y": (f32, "")}
A = {"a": (f32, "nm")}
IJ = {"i": (i64, ""), "j": (i64, "")}

Example = tuple[dict[str, Any], Callable[..., Any]]


def fn(types: list[Type], f: Callable[..., Any]) -> Lambda:
    return B.make_lambda(types, f)


def sl(x: Any, start: int, size: Any, step: Any = 1) -> Any:
    rest = x.type.shape[1:]
    return B.emit1(Slice(x, (k(start, i64), *(k(0, i64) for _ in rest)), (size, *rest), (step, *(1 for _ in rest))))


def shape_of(x: Any) -> Any:
    return tuple(map(B.size_atom, x.type.shape))


def in_branch(x: Atom) -> Any:
    return B.emit(Cond(B.prim("lt", x, k(0.0)), fn([], lambda: (x, B.prim("exp", dot_of(x)))),
                       fn([], lambda: (x, B.prim("sin", dot_of(x))))))


def dot_of(x: Atom) -> Atom:
    (s,) = B.reduce_(B.sum_monoid(F32), B.emit1(Replicate(3, x)))
    return s


# For every rule a program to which it applies.
EXAMPLES: dict[str, Example] = {
    "constant": (S, lambda x, y: B.prim("add", x, B.prim("mul", k(3.0), k(0.5)))),
    "neutral": (S, lambda x, y: [B.prim("mul", x, k(1.0)), B.prim("sub", x, k(0.0)), B.prim("div", k(1.0), x),
                                 B.prim("div", x, k(1.0)), B.prim("add", x, k(0.0)), B.prim("add", k(-0.0), y),
                                 B.prim("max", x, k(-np.inf)), B.prim("pow", y, k(1.0))]),
    "excluded_middle": (IJ, lambda i, j: [
        B.prim("or", B.prim("lt", i, j), B.prim("ge", i, j)), B.prim("and", B.prim("gt", i, j), B.prim("le", i, j)),
        B.prim("or", B.prim("lt", i, j), B.prim("gt", i, j))]),
    "absorbing": (IJ, lambda i, j: [B.prim("mul", i, k(0, i64)), B.prim("and", k(0, i64), j),
                                    B.prim("or", B.prim("lt", i, j), k(True, bool_))]),
    "same_operands": ({**S, **IJ}, lambda x, y, i, j: [
        B.prim("max", x, x), B.prim("sub", x, x), B.prim("sub", i, i), B.prim("eq", x, x), B.prim("le", j, j),
        B.prim("lt", i, i)]),
    "involution": ({**S, **IJ}, lambda x, y, i, j: [
        B.prim("neg", B.prim("neg", x)), B.prim("not", B.prim("not", B.prim("lt", i, j)))]),
    "negated_comparison": ({**S, **IJ}, lambda x, y, i, j: [
        B.prim("not", B.prim("eq", x, y)), B.prim("not", B.prim("lt", x, y)), B.prim("not", B.prim("lt", i, j))]),
    "added_negation": (S, lambda x, y: [B.prim("add", x, B.prim("neg", y)), B.prim("sub", x, B.prim("neg", y)),
                                        B.prim("add", B.prim("neg", y), x)]),
    "select": ({**S, **IJ}, lambda x, y, i, j: [
        B.select(k(True, bool_), x, y), B.select(B.prim("lt", i, j), x, x),
        B.select(B.prim("lt", i, j), k(True, bool_), k(False, bool_)),
        B.select(B.prim("not", B.prim("lt", x, y)), x, y)]),
    "select_of_select": (S, lambda x, y: [
        B.select(B.prim("lt", x, y), B.select(B.prim("lt", x, y), x, k(1.0)), y),
        B.select(B.prim("lt", x, y), x, B.select(B.prim("lt", x, y), k(1.0), y))]),
    "identity_conversion": (S, lambda x, y: B.emit1(Prim("convert", (x,), f32))),
    "conversion_of_widening": ({"i": (i32, ""), "x": (f32, "")}, lambda i, x: [
        B.convert(B.convert(i, i64), i32), B.convert(B.convert(i, i64), i8), B.convert(B.convert(x, f64), i32),
        B.convert(B.convert(i, f64), i8)]),
    "linear_form": (X, lambda x: tabulate(B.prim("sub", B.prim("add", shape_of(x)[0], k(2, i64)), k(2, i64)),
                                          lambda i: B.prim("sub", B.prim("add", i, i), B.prim("mul", i, k(2, i64))))),
    "decided_comparison": (X, lambda x: tabulate(x.type.shape[0], lambda i: B.convert(B.prim(
        "and", B.prim("lt", i, shape_of(x)[0]), B.prim("ge", B.prim("add", i, k(1, i64)), k(1, i64))), i64))),
    "decided_extremum": (X, lambda x: tabulate(B.prim("max", shape_of(x)[0], k(0, i64)), lambda i: B.prim(
        "min", i, B.prim("sub", shape_of(x)[0], k(1, i64))))),
    "small_remainder": (X, lambda x: tabulate(x.type.shape[0], lambda i: B.prim(
        "add", B.prim("mod", i, shape_of(x)[0]), B.prim("floordiv", i, shape_of(x)[0])))),
    "unit_remainder": (IJ, lambda i, j: B.prim("mod", i, k(1, i64))),
    "index_in_range": (X, lambda x: tabulate(x.type.shape[0], lambda i: at(x, B.prim(
        "sub", B.prim("sub", shape_of(x)[0], k(1, i64)), i)))),
    "index_of_iota": (X, lambda x: tabulate(x.type.shape[0], lambda i: at(B.iota(x.type.shape[0], i32), i))),
    "index_of_replicate": (A, lambda a: tabulate(a.type.shape[1], lambda i: at(B.emit1(
        Replicate(a.type.shape[1], B.prim("convert", i, to=f32))), i))),
    "index_of_index": (A, lambda a: B.emit1(Loop(a.type.shape[0], fn([SIZE, F32], lambda i, s: (
        total(tabulate(a.type.shape[1], lambda j: at(at(a, i), B.prim("mod", j, k(1, i64))))),)), (k(0.0),)))),
    "index_of_transpose": ({"a": (f32, "nmk"), "i": (i64, "")}, lambda a, i: [
        at(B.emit1(Transpose(a, (0, 2, 1))), i), at(at(B.emit1(Transpose(a, (1, 0, 2))), i), i)]),
    "index_of_slice": ({"x": (f32, "9")}, lambda x: tabulate(3, lambda i: at(sl(x, 2, 3, 2), i))),
    "index_of_unit_reshape": (A, lambda a: [
        tabulate(a.type.shape[0], lambda i: at(at(B.emit1(Reshape(a, (1, *a.type.shape, 1))), k(0, i64)), i))]),
    "input_of_unit_reshape": (A, lambda a: B.map1(lambda r: B.map1(lambda q: B.prim("exp", at(q, k(0, i64))), r),
                                                  B.emit1(Reshape(a, (*a.type.shape, 1))))),
    "index_of_concat": ({"x": (f32, "3"), "y": (f32, "4")}, lambda x, y: [
        at(B.emit1(Concat((x, y), 7)), k(i, i64)) for i in (1, 5)]),
    "whole_slice": (A, lambda a: sl(a, 0, a.type.shape[0])),
    "slice_of_slice": ({"x": (f32, "9")}, lambda x: sl(sl(x, 1, 4, 2), 1, 2, 2)),
    "slice_of_replicate": ({"x": (f32, "n")}, lambda x: sl(B.emit1(Replicate(5, x)), 1, 3)),
    "identity_transpose": (A, lambda a: B.emit1(Transpose(a, (0, 1)))),
    "transpose_of_transpose": ({"a": (f32, "nmk")}, lambda a: B.emit1(
        Transpose(B.emit1(Transpose(a, (1, 2, 0))), (0, 2, 1)))),
    "transpose_of_replicate": (A, lambda a: [
        B.emit1(Transpose(B.emit1(Replicate(2, a)), (0, 2, 1))),
        B.emit1(Transpose(B.emit1(Replicate(2, B.emit1(Replicate(3, k(1.0))))), (1, 0)))]),
    "identity_reshape": (A, lambda a: B.emit1(Reshape(a, a.type.shape))),
    "reshape_of_reshape": (A, lambda a: B.emit1(Reshape(B.emit1(Reshape(
        a, (B.size_product(a.type.shape),))), a.type.shape[::-1]))),
    "reshape_of_constant": (A, lambda a: B.emit1(Reshape(B.zeros(a.type), (B.size_product(a.type.shape),)))),
    "concat_of_one": (X, lambda x: B.emit1(Concat((B.zeros(Type(f32, (0,))), x), x.type.shape[0]))),
    "concat_of_concat": ({"x": (f32, "3")}, lambda x: B.emit1(Concat((x, B.emit1(Concat((x, x), 6))), 9))),
    "certain_assertion": (S, lambda x, y: (B.emit(Assert(k(True, bool_), "never")), x)[1]),
    "input_of_replicate": (X, lambda x: B.map1(p("mul"), x, B.emit1(Replicate(x.type.shape[0], k(2.0))))),
    "input_twice": (X, lambda x: B.map1(p("mul"), x, x)),
    "trivial_result": (X, lambda x: B.map_(lambda e: (B.prim("exp", e), e, k(1.0), B.prim("exp", e)), x)),
    "operator_twice": (X, lambda x: B.screma(
        x.type.shape[0], (x,), fn([F32], lambda e: (e, e, e, B.prim("exp", e))),
        (B.sum_monoid(F32),), (B.sum_monoid(F32), B.sum_monoid(F32), B.sum_monoid(F32)))),
    "empty_map": ({"x": (f32, "0")}, lambda x: [B.map1(p("exp"), x), total(x), *B.scan_(B.sum_monoid(F32), x)]),
    "single_map": ({"a": (f32, "1m")}, lambda a: [B.map1(total, a), total(a), *B.scan_(
        B.sum_monoid(a.type.row()), a)]),
    "empty_scatter": ({"x": (f32, "n"), "y": (f32, "0")}, lambda x, y: B.emit1(
        Scatter(0, (x,), 1, None, fn([F32], lambda v: (k(0, i64), v)), (y,)))),
    "empty_loop": (S, lambda x, y: B.emit1(Loop(0, fn([SIZE, F32], lambda i, s: (B.prim("exp", s),)), (x,)))),
    "single_loop": (S, lambda x, y: B.emit1(Loop(1, fn([SIZE, F32], lambda i, s: (
        B.prim("add", s, B.convert(i, f32)),)), (x,)))),
    "constant_carried": (S, lambda x, y: B.emit(Loop(5, fn([SIZE, F32, F32], lambda i, s, t: (
        s, B.prim("add", B.prim("exp", s), t))), (x, y)))),
    "constant_carried_while": (S, lambda x, y: B.emit(While(
        fn([F32, F32], lambda s, t: (B.prim("lt", t, k(9.0)),)),
        fn([F32, F32], lambda s, t: (s, B.prim("add", B.prim("exp", s), B.prim("add", t, k(1.0))))), (x, y)))),
    "decided_branch": (S, lambda x, y: B.emit1(Cond(k(False, bool_), fn([], lambda: (B.prim("exp", x),)),
                                                    fn([], lambda: (B.prim("sin", x),))))),
    "cheap_branches": (S, lambda x, y: B.emit1(Cond(B.prim("lt", x, y), fn([], lambda: (B.prim("exp", x),)),
                                                    fn([], lambda: (y,))))),
    "equal_results": (S, lambda x, y: in_branch(x)),
    "index_by_iota": ({"q": (f32, "nd"), "k": (f32, "nd")}, attention_scores),
    "column_of_input": ({"a": (f32, "nk"), "b": (f32, "km")}, MATMULS[1]),
}

SIZES = [dict(n=0, m=2, k=1, d=1), dict(n=1, m=3, k=2, d=2), dict(n=5, m=4, k=3, d=3)]


def applied(lam: Lambda, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the rules that apply while the lambda is simplified."""
    names: set[str] = set()
    apply = Simplifier.apply

    def recorded(self: Simplifier, op: Op, early: bool) -> Any:
        for r in self.rules.get((type(op), early), ()):
            new = r(op, self)
            if new is not None:
                names.add(r.__name__)
                return new
        return None
    monkeypatch.setattr(Simplifier, "apply", recorded)
    simplify(lam)
    monkeypatch.setattr(Simplifier, "apply", apply)
    return names


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    args, f = EXAMPLES[name]
    before = graph(args, f)
    after = check(simplify(before))
    law = " ".join((RULES[name].__doc__ or "").split())
    assert "=>" in law
    golden(f"{law}\n\n{text(before)}\n=>\n\n{text(after)}")
    assert name in applied(before, monkeypatch)
    indexed = name == "index_of_transpose"                          # by any i below 4, so not in small arrays
    for sizes in [dict.fromkeys("nmkd", 5)] if indexed else SIZES:
        assert_same(before, after, **sizes)


def test_simplify_is_stable() -> None:
    for args, f in EXAMPLES.values():
        once = simplify(graph(args, f))
        assert simplify(once) is once


# --- what is not a rule ----------------------------------------------------------------------------------------------

def test_float_zero_is_not_neutral_for_addition() -> None:
    lam = graph(S, lambda x, y: [B.prim("add", x, k(0.0)), B.prim("mul", x, k(0.0)), B.prim("sub", x, x)])
    assert len(simplify(lam).stms) == 3


def test_bounds_respect_wrapping() -> None:
    def f(i: Any, j: Any) -> Any:
        above = B.prim("add", i, k(1, i64))
        return B.prim("lt", above, i), B.prim("sub", above, k(1, i64)), B.prim("max", above, i)
    lam = graph(IJ, f)
    after = check(simplify(lam))
    top = np.int64(2 ** 63 - 1)
    with np.errstate(over="ignore"):
        assert run(lam, top, np.int64(0)) == run(after, top, np.int64(0)) == (True, top, top)


def test_an_array_in_a_branch_says_nothing_outside_it() -> None:
    def f(i: Any, j: Any) -> Any:
        def then() -> Any:
            return total(B.map1(lambda e: B.convert(e, f32), B.iota(i))),
        s = B.emit(Cond(B.prim("lt", k(0, i64), i), fn([], then), fn([], lambda: (k(0.0),))))
        return [*s, B.prim("max", i, k(0, i64))]
    lam = graph(IJ, f)
    for i in (-3, 0, 3):
        assert run(lam, np.int64(i), np.int64(0)) == run(simplify(lam), np.int64(i), np.int64(0))


def test_equal_subexpressions_with_lambdas_are_shared() -> None:
    lam = graph(A, lambda a: [B.map1(lambda r: total(B.map1(p("exp"), r)), a),
                              B.map1(lambda r: total(B.map1(p("exp"), r)), a)])
    after = simplify(lam)
    assert count_ops(after, Screma, nested=False) == 1 and after.results[0] is after.results[1]
    assert_same(lam, after, n=3, m=2)


def test_operands_of_commutative_primitives_are_in_no_order() -> None:
    after = simplify(graph(S, lambda x, y: [B.prim("mul", x, y), B.prim("mul", y, x), B.prim("sub", x, y),
                                            B.prim("sub", y, x)]))
    assert len(after.stms) == 3


def test_equal_sizes_become_one() -> None:
    def f(x: Any, a: Any) -> Any:
        n = B.size_atom(x.type.shape[0])
        first = B.map1(p("exp"), tabulate(B.prim("add", n, n), lambda i: B.convert(i, f32)))
        second = B.map1(p("exp"), tabulate(B.prim("add", n, n), lambda i: B.convert(i, f32)))
        return first, second
    lam = graph({**X, **A}, f)
    after = check(simplify(lam))
    assert after.results[0] is after.results[1]


def test_invariant_statements_leave_the_loop() -> None:
    def f(x: Any, y: Any) -> Any:
        return B.emit(Loop(9, fn([SIZE, F32], lambda i, s: (B.prim("add", s, total(B.map1(p("exp"), x))),)), (k(0.0),)))
    after = simplify(graph({"x": (f32, "n"), "y": (f32, "n")}, f))
    (loop,) = [s.op for s in after.stms if isinstance(s.op, Loop)]
    assert [type(s.op) for s in loop.lam.stms] == [Prim]


def test_what_can_fail_stays_in_its_loop() -> None:
    def f(x: Any, i: Any) -> Any:
        return B.map1(lambda e: B.prim("add", e, B.index(x, i)), x)
    lam = graph({**X, "i": (i64, "")}, f)
    after = simplify(lam)
    assert count_ops(after, Index, nested=False) == 0
    run(after, np.int64(0), np.zeros(0, np.float32), np.int64(7))
    with pytest.raises(BoundsError):
        run(after, np.int64(2), np.zeros(2, np.float32), np.int64(7))


def test_nothing_but_integer_arithmetic_leaves_a_branch() -> None:
    def f(x: Any, i: Any) -> Any:
        def then() -> Any:
            return total(B.map1(lambda e: B.prim("mul", e, B.convert(B.prim("add", i, i), f32)), x)),
        return B.emit(Loop(3, fn([SIZE, F32], lambda j, s: B.emit(Cond(
            B.prim("lt", s, k(1.0)), fn([], then), fn([], lambda: (s,))))), (k(0.0),)))
    after = simplify(graph({**X, "i": (i64, "")}, f))
    assert count_ops(after, Screma, nested=False) == 0
    assert [s.op.prim for s in after.stms if isinstance(s.op, Prim)] == ["add"]


def test_dead_code(golden: Golden) -> None:
    def f(x: Any, y: Any) -> Any:
        top, best = B.screma(x.type.shape[0], (x, y), fn([F32, F32], lambda a, b: (a, b)), (), (
            B.sum_monoid(F32), Monoid(B.lift2("max", F32), (k(-np.inf),))))
        B.map1(p("exp"), y)
        carried = B.emit(Loop(3, fn([SIZE, F32, F32, F32], lambda i, a, b, c: (
            B.prim("add", a, b), B.prim("exp", b), B.prim("add", c, a))), (top, best, k(0.0))))
        one, two = B.emit(Cond(B.prim("lt", top, best), fn([], lambda: (dot(x, y), dot(x, x))),
                               fn([], lambda: (total(y), maximum(y)))))
        d, e = B.emit(Scatter(x.type.shape[0], (x, y), 1, None, fn(
            [F32, SIZE], lambda v, i: (i, v, B.prim("exp", v))), (y, B.iota(x.type.shape[0]))))
        return carried[0], two, d
    before = graph({"x": (f32, "n"), "y": (f32, "n")}, f)
    after = check(simplify(before))
    golden(f"{text(before)}\n=>\n\n{text(after)}")
    for sizes in SIZES:
        assert_same(before, after, **sizes)


def test_an_operator_keeps_the_components_it_needs() -> None:
    def f(x: Any) -> Any:
        def later(a: Atom, i: Atom, b: Atom, j: Atom) -> Any:
            c = B.prim("ge", a, b)
            return B.select(c, a, b), B.select(c, i, j)
        op = Monoid(fn([F32, SIZE, F32, SIZE], later), (k(-np.inf), k(-1, i64)))
        n = x.type.shape[0]
        best, place = B.screma(n, (x, B.iota(n)), B.identity_lambda([F32, SIZE]), (), (op,))
        best_only, _ = B.screma(n, (x, B.iota(n)), B.identity_lambda([F32, SIZE]), (), (
            Monoid(refresh(op.op), op.ne),))
        return place, B.prim("neg", best_only)
    before = graph(X, f)
    after = check(simplify(before))
    for sizes in SIZES:
        assert_same(before, after, **sizes)
    alone = simplify(Lambda(before.params, before.stms, before.results[1:]))
    (op,) = [s.op for s in alone.stms if isinstance(s.op, Screma)]
    assert op.reds[0].width == 1


def test_assertions_stay_and_dead_failures_go() -> None:
    def f(x: Any, i: Any) -> Any:
        B.index(x, i)
        B.map1(lambda e: (B.emit(Assert(B.prim("lt", e, k(9.0)), "too big")), e)[1], x)
        return B.size_atom(x.type.shape[0])
    after = simplify(graph({**X, "i": (i64, "")}, f))
    assert count_ops(after, Index) == 0 and count_ops(after, Assert) == 1
    with pytest.raises(AssertionFailed):
        run(after, np.int64(1), np.full(1, 10, np.float32), np.int64(7))


def test_sizes_in_types_are_kept() -> None:
    def f(x: Any) -> Any:
        n = B.prim("mul", B.size_atom(x.type.shape[0]), k(2, i64))
        return B.map1(lambda i: B.zeros(Type(f32, (n,))), B.iota(3))
    lam = graph(X, f)
    after = check(simplify(lam))
    assert_same(lam, after, n=2)


def test_tabulate_over_two_arrays_indexes_nothing() -> None:
    for f, args in ((MATMULS[1], {"a": (f32, "nk"), "b": (f32, "km")}),
                    (attention_scores, {"q": (f32, "nd"), "k": (f32, "nd")})):
        assert count_ops(simplify(graph(args, f)), Index) == 0


# --- whole programs --------------------------------------------------------------------------------------------------

PROGRAMS: dict[str, Example] = {
    "softmax": (A, lambda a: B.map1(softmax, a)),
    "rmsnorm": (X, rmsnorm),
    "mean_variance": (X, mean_variance),
    "scores": ({"q": (f32, "nd"), "k": (f32, "nd")}, attention_scores),
    "mlp": ({"x": (f32, "nm"), "v": (f32, "km"), "w": (f32, "mk")}, mlp_rows),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_keep_their_results(name: str) -> None:
    args, f = PROGRAMS[name]
    before = graph(args, f)
    after = check(simplify(before))
    for sizes in SIZES:
        assert_same(before, after, **sizes)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_keep_their_results(seed: int) -> None:
    before = Programs(seed).program()
    after = check(simplify(before))
    for sizes in SIZES:
        assert_same(before, after, **sizes)


def test_work_grows_with_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with its square: four times the layers are four times the statements visited."""
    visits = 0
    visit = Simplifier.visit

    def counted(self: Any, stm: Any) -> None:
        nonlocal visits
        visits += 1
        visit(self, stm)
    monkeypatch.setattr(Simplifier, "visit", counted)

    def layers(count: int) -> int:
        nonlocal visits

        def f(x: Any, v: Any, w: Any) -> Any:
            for _ in range(count):
                x = mlp_rows(x, v, w)
            return x
        lam = graph({"x": (f32, "nm"), "v": (f32, "km"), "w": (f32, "mk")}, f)
        visits = 0
        simplify(lam)
        return visits
    assert layers(32) <= 5 * layers(8)


def test_reshape_is_not_confused_with_transposition() -> None:
    lam = graph(A, lambda a: B.emit1(Reshape(B.emit1(Transpose(a, (1, 0))), a.type.shape)))
    assert len(simplify(lam).stms) == 2


def test_constants_keep_their_bits() -> None:
    lam = graph({}, lambda: [B.prim("add", k(0.1), k(0.2)), B.prim("neg", k(0.0)), B.prim("div", k(0.0), k(0.0))])
    after = simplify(lam)
    assert not after.stms and all(isinstance(r, Const) for r in after.results)
    assert np.signbit(after.results[1].value) and np.isnan(after.results[2].value)
