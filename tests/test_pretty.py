"""Graphs as text: every operation, stable numbering, places in the source."""
from golden import Golden
from graphs import F32, at, graph, k, linear, p, softmax

from parray import builder as B
from parray.ir import Lambda, refresh
from parray.pretty import stm_text, text
from parray.soacs import Assert, Concat, Cond, Contract, Loop, Reshape, Scatter, Slice, Transpose, While
from parray.types import SIZE, f32, i64


def test_nested_lambdas(golden: Golden) -> None:
    lam = graph({"w": (f32, "mn"), "x": (f32, "n")}, lambda w, x: softmax(linear(w, x)))
    golden(text(lam))


def test_every_operation(golden: Golden) -> None:
    def f(x, a):                                                    # type: ignore[no-untyped-def]
        n, m = a.type.shape
        B.emit(Assert(B.prim("lt", B.size_atom(n), k(9, i64)), "n is {}", (n,), "BoundsError"))
        t = B.emit1(Transpose(a, (1, 0)))
        B.emit1(Reshape(t, (n, m)))
        B.emit1(Slice(x, (k(1, i64),), (3,), (2,)))
        B.emit1(Concat((x, x), B.size_add(n, n)))
        B.emit1(Contract(a, t, (0, 1), (1, 2), (0, 2)))
        first = at(x, k(0, i64))
        count = B.convert(first, i64)
        step = B.make_lambda((SIZE, F32), lambda i, y: (B.prim("mul", y, B.convert(i, f32)),), "y")
        B.emit(Loop(n, step, (first,)))
        B.emit(While(B.make_lambda((F32,), lambda y: (B.prim("lt", y, k(9.0)),)),
                     B.make_lambda((F32,), lambda y: (B.prim("add", y, k(1.0)),)), (first,)))
        B.emit(Cond(B.prim("eq", count, k(0, i64)), Lambda((), (), (first,)), Lambda((), (), (k(0.0),))))
        put = B.make_lambda((F32,), lambda v: (B.convert(v, i64), v))
        B.emit(Scatter(n, (x,), 1, None, put, (x,)))
        B.emit(Scatter(n, (x,), 1, B.sum_monoid(F32), refresh(put), (x,)))
        B.scan_(B.sum_monoid(F32), x)
        return B.map1(p("neg"), x)
    golden(text(graph({"x": (f32, "n"), "a": (f32, "nm")}, f)))


def test_numbering_does_not_depend_on_what_was_built_before() -> None:
    def make() -> Lambda:
        return graph({"w": (f32, "mn"), "x": (f32, "n")}, linear)
    assert text(make()) == text(make()) == text(refresh(make()))


def test_hints_that_look_like_numbered_names_stay_apart() -> None:
    def f(x, x_1):                                                  # type: ignore[no-untyped-def]
        return B.emit1(Transpose(x, (0,)), "x"), x_1
    first, *_ = text(graph({"x": (f32, "n"), "x_1": (f32, "n")}, f)).splitlines()
    names = [part.split(":")[0] for part in first.strip("\\.").split(", ")]
    assert len(set(names)) == len(names)


def test_places_in_the_source() -> None:
    lam = graph({"x": (f32, "n")}, lambda x: B.map1(p("exp"), x))
    assert "-- test_pretty.py:" in text(lam, locs=True) and "--" not in text(lam)
    assert "test_pretty.py:" in stm_text(lam.stms[0])
