"""check_gradients: both modes of differentiation against central differences and each other, in the interpreter.

A function is given on atoms (built with `parray.builder`), its arguments as NumPy values with the names of their
dimensions.  For random directions v and cotangents u:

    <u, (f(x + e v) - f(x - e v)) / 2e>  =  <u, jvp f x v>  =  <vjp f x u, v>

``order=2`` checks vjp f and jvp f, as functions of (x, u) and (x, v), in the same way.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from parray import ad
from parray import builder as b
from parray.check import check
from parray.interpreter import run
from parray.ir import Lambda, Var
from parray.types import SIZE, Type, scalar_type

Function = Callable[..., Sequence[Any]]


class Case:
    """A function on atoms with example arguments; sizes with a name are variables, others are numbers."""

    def __init__(self, f: Function, args: Sequence[Any], dims: Sequence[Sequence[Any]], outer: Case | None = None):
        self.f = f
        self.args = [np.asarray(a) for a in args]
        self.sizes: dict[str, Var] = dict(outer.sizes) if outer else {}
        self.values: dict[str, int] = dict(outer.values) if outer else {}
        self.types = [self.type_of(a, d) for a, d in zip(self.args, dims, strict=True)]

    def type_of(self, a: Any, dims: Sequence[Any]) -> Type:
        shape = []
        for name, n in zip(dims, a.shape, strict=True):
            if isinstance(name, str):
                shape.append(self.sizes.setdefault(name, Var(SIZE, name)))
                assert self.values.setdefault(name, n) == n
            else:
                shape.append(name)
        return Type(scalar_type(a.dtype), tuple(shape))

    def lam(self) -> Lambda:
        """The function as a lambda of its arguments that captures the sizes."""
        with b.scope(root=True), b.at(None):
            return b.make_lambda(self.types, self.f)

    def run(self, f: Function, types: Sequence[Type], args: Sequence[Any]) -> tuple[Any, ...]:
        """Run a function on atoms in the interpreter."""
        lam = self.graph(f, types)
        sizes = [np.int64(self.values[name]) for name in self.sizes]
        values = [a if t.shape else t.elem.dtype.type(a) for a, t in zip(args, types, strict=True)]
        with np.errstate(all="ignore"):
            return run(lam, *sizes, *values)

    def graph(self, f: Function, types: Sequence[Type]) -> Lambda:
        with b.scope(root=True):
            lam = b.make_lambda(types, f)
        return check(Lambda(tuple(self.sizes.values()) + lam.params, lam.stms, lam.results))

    @property
    def result_types(self) -> list[Type]:
        """The results' types; sizes that the function computes are numbers."""
        known = set(self.sizes.values())
        samples = self.run(self.f, self.types, self.args)
        return [Type(r.type.elem, tuple(d if d in known else n for d, n in zip(r.type.shape, np.shape(s))))
                for r, s in zip(self.lam().results, samples)]


def vjp_function(case: Case, wrt: Sequence[int]) -> Function:
    """\\args.. bars.. -> cotangents of the arguments in ``wrt``"""
    k = len(case.args)

    def f(*xs: Any) -> Sequence[Any]:
        results, pullback = ad.vjp(b.make_lambda(case.types, case.f), xs[:k], wrt)
        return pullback(xs[k:])
    return f


def jvp_function(case: Case, wrt: Sequence[int]) -> Function:
    """\\args.. tangents.. -> tangents of the results"""
    k = len(case.args)

    def f(*xs: Any) -> Sequence[Any]:
        tangents: list[Any] = [None] * k
        for j, t in zip(wrt, xs[k:]):
            tangents[j] = t
        return ad.jvp(b.make_lambda(case.types, case.f), xs[:k], tangents)[1]
    return f


def vjp(f: Function, args: Sequence[Any], dims: Sequence[Sequence[Any]], bars: Sequence[Any],
        wrt: Sequence[int] | None = None) -> tuple[Any, ...]:
    """The cotangents of the arguments in ``wrt`` (all)."""
    case = Case(f, args, dims)
    wrt = range(len(args)) if wrt is None else wrt
    return case.run(vjp_function(case, wrt), case.types + case.result_types, list(case.args) + list(bars))


def jvp(f: Function, args: Sequence[Any], dims: Sequence[Sequence[Any]], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The tangents of the results."""
    case = Case(f, args, dims)
    return case.run(jvp_function(case, range(len(args))), case.types * 2, list(case.args) + list(tangents))


def vjp_graph(f: Function, args: Sequence[Any], dims: Sequence[Sequence[Any]], wrt: Sequence[int]) -> Lambda:
    """The graph of `vjp`."""
    case = Case(f, args, dims)
    return case.graph(vjp_function(case, wrt), case.types + case.result_types)


def check_gradients(f: Function, args: Sequence[Any], dims: Sequence[Sequence[Any]], order: int = 2, seed: int = 0,
                    eps: float = 1e-5, tol: float = 1e-6, outer: Case | None = None) -> None:
    """See the module; f64 arguments are differentiated, others are constant."""
    rng = np.random.default_rng(seed)
    case = Case(f, args, dims, outer)
    wrt = [k for k, a in enumerate(case.args) if a.dtype == np.float64]
    outs = case.result_types
    sample = case.run(f, case.types, case.args)
    v = [np.asarray(rng.normal(size=case.args[k].shape)) for k in wrt]
    u = [np.asarray(rng.normal(size=np.shape(s))).astype(t.elem.dtype) for s, t in zip(sample, outs)]
    on = [k for k, t in enumerate(outs) if t.elem.is_float]

    def moved(e: float) -> tuple[Any, ...]:
        new = list(case.args)
        for k, d in zip(wrt, v):
            new[k] = new[k] + e * d
        return case.run(f, case.types, new)

    numeric = sum(np.sum(u[k] * (hi - lo)) / (2 * eps) for k, (hi, lo) in enumerate(zip(moved(eps), moved(-eps)))
                  if k in on)
    forward = case.run(jvp_function(case, wrt), case.types + [case.types[k] for k in wrt], case.args + v)
    backward = case.run(vjp_function(case, wrt), case.types + outs, case.args + u)
    by_jvp = sum(np.sum(u[k] * forward[k]) for k in on)
    by_vjp = sum(np.sum(a * d) for a, d in zip(backward, v))
    scale = tol * max(1.0, abs(float(numeric)))
    assert abs(by_jvp - by_vjp) <= 1e-9 * max(1.0, abs(float(by_jvp))), f"order {order}: jvp {by_jvp}, vjp {by_vjp}"
    assert abs(by_jvp - numeric) <= scale, f"order {order}: jvp {by_jvp}, differences {numeric}"
    if order > 1:
        more = [_named(case, t) for t in outs]
        check_gradients(vjp_function(case, wrt), case.args + u, list(dims) + more, order - 1, seed + 1, eps, tol,
                        case)
        more = [dims[k] for k in wrt]
        check_gradients(jvp_function(case, wrt), case.args + v, list(dims) + more, order - 1, seed + 2,
                        eps, tol, case)


def _named(case: Case, t: Type) -> list[Any]:
    names = {v: name for name, v in case.sizes.items()}
    return [names[s] if s in names else s for s in t.shape]
