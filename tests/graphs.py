"""Small programs built straight with the builder, for tests of single passes; comparison of what they compute."""
from __future__ import annotations

from typing import Any, Callable

import numpy as np

from parray import builder as B
from parray.check import check
from parray.interpreter import run
from parray.ir import Atom, Const, Lambda, Monoid, Var
from parray.types import SIZE, ScalarType, Type, f32, i64

Make = Callable[..., Any]
F32, I64 = Type(f32), SIZE


def graph(args: dict[str, tuple[ScalarType, str]], f: Make) -> Lambda:
    """The lambda of ``f`` on arguments given as name -> (element type, its dimensions' names or digits)."""
    names = sorted({d for _, dims in args.values() for d in dims if not d.isdigit()})
    sizes = {d: Var(SIZE, d) for d in names}
    params = [Var(Type(elem, tuple(sizes[d] if d in sizes else int(d) for d in dims)), name)
              for name, (elem, dims) in args.items()]
    with B.scope(root=True) as s:
        out = f(*params)
    results = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    return check(Lambda((*sizes.values(), *params), tuple(s.stms), results))


def values(lam: Lambda, rng: np.random.Generator, **sizes: int) -> list[Any]:
    """Random arguments: small integers in f32 stay exact in sums, so spellings can be compared bit for bit."""
    out: list[Any] = []
    for p in lam.params:
        if p.hint in sizes and p.type == SIZE:
            out.append(np.int64(sizes[p.hint]))
            continue
        shape = tuple(s if isinstance(s, int) else sizes[s.hint] for s in p.type.shape)
        if p.type.elem.is_float:
            out.append(p.type.elem(np.asarray(rng.normal(size=shape))))
        else:
            out.append(p.type.elem(np.asarray(rng.integers(0, 4, size=shape))))
    return out


def assert_same(before: Lambda, after: Lambda, close: bool = False, **sizes: int) -> None:
    """Both give the same bits on random arguments (``close``: the same up to rounding)."""
    args = values(before, np.random.default_rng(sum(sizes.values())), **sizes)
    for x, y in zip(run(before, *args), run(after, *args), strict=True):
        if close:
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)
        else:
            x, y = np.asarray(x), np.asarray(y)
            assert x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == np.ascontiguousarray(y).tobytes()


# --- pieces ----------------------------------------------------------------------------------------------------------

def p(name: str) -> Callable[..., Atom]:
    """A primitive as a function."""
    return lambda *args: B.prim(name, *args)


def k(value: Any, elem: ScalarType = f32) -> Const:
    return Const(value, elem)


def total(xs: Any) -> Var:
    """The sum of an array's rows."""
    (out,) = B.reduce_(B.sum_monoid(xs.type.row()), xs)
    return out


def maximum(xs: Any) -> Var:
    (out,) = B.reduce_(Monoid(B.lift2("max", F32), (k(-np.inf),), True), xs)
    return out


def dot(x: Any, y: Any) -> Var:
    return total(B.map1(p("mul"), x, y))


def at(x: Any, i: Any) -> Atom:
    """NumPy's ``x[i]``: a negative index counts from the end."""
    n = B.size_atom(x.type.shape[0])
    return B.index(x, B.select(B.prim("lt", i, k(0, i64)), B.prim("add", i, n), i))


def tabulate(n: Any, f: Callable[[Atom], Atom]) -> Var:
    return B.map1(f, B.iota(n))


# --- programs --------------------------------------------------------------------------------------------------------

def softmax(x: Any) -> Atom:
    top = maximum(x)
    e = B.map1(lambda a: B.prim("exp", B.prim("sub", a, top)), x)
    s = total(e)
    return B.map1(lambda a: B.prim("div", a, s), e)


def rmsnorm(x: Any) -> Atom:
    n = B.convert(B.size_atom(x.type.shape[0]), f32)
    ms = B.prim("div", total(B.map1(lambda a: B.prim("mul", a, a), x)), n)
    scale = B.prim("rsqrt", B.prim("add", ms, k(1e-5)))
    return B.map1(lambda a: B.prim("mul", a, scale), x)


def linear(w: Any, x: Any) -> Atom:
    return B.map1(lambda row: dot(row, x), w)


def matmul_rows(a: Any, b: Any) -> Atom:
    from parray.soacs import Transpose
    bt = B.emit1(Transpose(b, (1, 0)))
    return B.map1(lambda x: B.map1(lambda y: dot(x, y), bt), a)


def matmul_tabulate(a: Any, b: Any) -> Atom:
    (n, inner), m = a.type.shape, b.type.shape[1]
    return tabulate(n, lambda i: tabulate(m, lambda j: total(tabulate(inner, lambda c: B.prim(
        "mul", at(at(a, i), c), at(at(b, c), j))))))


def matmul_outer(a: Any, b: Any) -> Atom:
    """The sum over c of outer products of a's columns and b's rows."""
    from parray.soacs import Transpose
    at_ = B.emit1(Transpose(a, (1, 0)))
    products = B.map1(lambda col, row: B.map1(lambda x: B.map1(lambda y: B.prim("mul", x, y), row), col), at_, b)
    return total(products)


def matmul_axpy(a: Any, b: Any) -> Atom:
    """Each row is a linear combination of b's rows."""
    return B.map1(lambda x: total(B.map1(lambda s, row: B.map1(lambda y: B.prim("mul", s, y), row), x, b)), a)


def matmul_fused(a: Any, b: Any) -> Atom:
    """One screma per element."""
    from parray.soacs import Transpose
    bt = B.emit1(Transpose(b, (1, 0)))
    f = B.make_lambda((F32, F32), lambda x, y: (B.prim("mul", x, y),))
    plus = B.sum_monoid(F32)
    from parray.ir import refresh
    return B.map1(lambda x: B.map1(lambda y: B.screma(x.type.shape[0], (x, y), refresh(f), (), (
        Monoid(refresh(plus.op), plus.ne, True),))[0], bt), a)


MATMULS = [matmul_rows, matmul_tabulate, matmul_outer, matmul_axpy, matmul_fused]


def attention_scores(q: Any, keys: Any) -> Atom:
    """Masked, scaled scores by index."""
    n, d = q.type.shape
    root = B.prim("sqrt", B.convert(B.size_atom(d), f32))
    return tabulate(n, lambda i: tabulate(n, lambda j: B.select(
        B.prim("le", j, i), B.prim("div", dot(at(q, i), at(keys, j)), root), k(-np.inf))))


def mlp_rows(x: Any, w1: Any, w2: Any) -> Atom:
    """A block for each row: normalise, linear, relu, linear, add."""
    def block(row: Any) -> Atom:
        h = linear(w1, rmsnorm(row))
        r = B.map1(lambda a: B.prim("max", a, k(0.0)), h)
        return B.map1(p("add"), row, linear(w2, r))
    return B.map1(block, x)


def mean_variance(x: Any) -> tuple[Atom, Atom]:
    n = B.convert(B.size_atom(x.type.shape[0]), f32)
    mean = B.prim("div", total(x), n)
    var = total(B.map1(lambda a: B.prim("mul", B.prim("sub", a, mean), B.prim("sub", a, mean)), x))
    return mean, var
