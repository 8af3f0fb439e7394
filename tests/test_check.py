"""The checker accepts what the builder makes and refuses, with the statement, each kind of broken graph."""
from dataclasses import replace
from typing import Any

import pytest
from graphs import F32, MATMULS, graph, k, linear, p

from parray import builder as B
from parray.check import check
from parray.ir import Const, Lambda, Monoid, Op, Stm, Var
from parray.soacs import (Assert, Concat, Cond, Contract, Index, Iota, Loop, Prim, Replicate, Reshape, Scatter, Screma,
                          Slice, Transpose, While)
from parray.types import SIZE, Type, bool_, f32, f64, i32, i64

N, M = Var(SIZE, "n"), Var(SIZE, "m")
X, A = Var(Type(f32, (N,)), "x"), Var(Type(f32, (N, M)), "a")
FREE = (N, M, X, A)


def one(op: Op, *types: Type) -> Lambda:
    """A lambda of one statement."""
    outs = tuple(Var(t) for t in types or op.infer())
    return Lambda((), (Stm(outs, op),), outs)


def fn(f: Any, *types: Type) -> Lambda:
    with B.scope(root=True):
        return B.make_lambda(types, f)


NEG = fn(lambda x: (B.prim("neg", x),), F32)
PLUS = Monoid(fn(lambda x, y: (B.prim("add", x, y),), F32, F32), (k(0.0),))


@pytest.mark.parametrize("f", MATMULS, ids=lambda f: f.__name__)
def test_accepts_built_graphs(f: Any) -> None:
    check(graph({"a": (f32, "nk"), "b": (f32, "km")}, f))


def test_gives_the_lambda_back() -> None:
    lam = one(Screma(N, (X,), NEG))
    assert check(lam, FREE) is lam


BROKEN = {
    "operand out of scope": one(Transpose(Var(Type(f32, (3,))), (0,))),
    "type of the result": one(Transpose(A, (1, 0)), A.type),
    "permutation": one(Transpose(A, (0, 0))),
    "primitive on different types": one(Prim("add", (k(1.0), Const(1, i64)), f32)),
    "primitive's result type": one(Prim("add", (k(1.0), k(1.0)), f64)),
    "primitive on arrays": one(Prim("neg", (X,), f32), F32),
    "too many indices": one(Index(X, (Const(0, i64),) * 2), F32),
    "index type": one(Index(X, (Const(0, i32),))),
    "size type": one(Iota(Var(Type(i32)), i64)),
    "size is a variable of i64": one(Replicate(k(2.0), k(1.0)), Type(f32, (2,))),
    "reshape to another count": one(Reshape(Var(Type(f32, (6,))), (2, 2))),
    "slice rank": one(Slice(A, (Const(0, i64),), (N,), (1,))),
    "slice step": one(Slice(X, (Const(0, i64),), (N,), (0,))),
    "concat row types": one(Concat((X, A), N)),
    "concat size": one(Concat((Var(Type(f32, (2,))),) * 2, 5)),
    "assert on a number": one(Assert(k(1.0), "")),
    "contract axis sizes": one(Contract(A, X, (0, 1), (1,), (0,))),
    "contract repeated axis": one(Contract(A, X, (0, 0), (0,), ())),
    "contract unknown axis": one(Contract(A, X, (0, 1), (0,), (0, 1)), Type(f32, (N, N))),
    "input of another size": one(Screma(M, (X,), NEG)),
    "lambda of another type": one(Screma(N, (A,), NEG)),
    "operator of another type": one(Screma(N, (X,), NEG, (), (replace(PLUS, ne=(Const(0, f64),)),))),
    "operator of another arity": one(Screma(N, (X,), NEG, (), (Monoid(NEG, (k(0.0),)),))),
    "scatter index type": one(Scatter(N, (X,), 1, None, fn(lambda v: (v, v), F32), (X,))),
    "scatter value type": one(Scatter(N, (A,), 1, None, fn(lambda v: (Const(0, i64), v), F32), (X,))),
    "loop result type": one(Loop(3, fn(lambda i, x: (i,), SIZE, F32), (k(0.0),))),
    "loop counter": one(Loop(3, fn(lambda i, x: (x,), F32, F32), (k(0.0),))),
    "while condition": one(While(NEG, NEG, (k(0.0),))),
    "branches of two types": one(Cond(Const(True, bool_), fn(lambda: (k(0.0),)), fn(lambda: (Const(0, i64),)))),
    "branch predicate": one(Cond(k(0.0), fn(lambda: (k(0.0),)), fn(lambda: (k(0.0),)))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_refuses(name: str) -> None:
    free = [*FREE]
    if name == "concat size":
        free += BROKEN[name].stms[0].op.xs                          # type: ignore[attr-defined]
    if name.startswith("reshape"):
        free.append(BROKEN[name].stms[0].op.x)                      # type: ignore[attr-defined]
    if name == "size type":
        free.append(BROKEN[name].stms[0].op.n)                      # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="(?s).*in: "):
        check(BROKEN[name], dict.fromkeys(free))


def test_refuses_a_variable_bound_twice() -> None:
    stm = one(Screma(N, (X,), NEG)).stms[0]
    with pytest.raises(AssertionError, match="bound twice"):
        check(Lambda((), (stm, stm), ()), FREE)


def test_refuses_a_lambda_used_twice() -> None:
    twice = tuple(one(Screma(N, (X,), NEG)).stms[0] for _ in range(2))
    with pytest.raises(AssertionError, match="bound twice"):
        check(Lambda((), twice, ()), FREE)


def test_refuses_use_before_binding() -> None:
    lam = graph({"w": (f32, "mn"), "x": (f32, "n")}, linear)
    inner = graph({"x": (f32, "n")}, lambda x: B.map1(p("neg"), B.map1(p("exp"), x)))
    with pytest.raises(AssertionError, match="not in scope"):
        check(Lambda(inner.params, inner.stms[::-1], inner.results))
    with pytest.raises(AssertionError, match="not in scope"):
        check(Lambda(lam.params[2:], lam.stms, lam.results))
