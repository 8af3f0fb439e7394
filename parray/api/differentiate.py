"""Differentiation as functions of functions: grad, value_and_grad, vjp, jvp, stop_gradient.

Inside a trace: the function is traced to a lambda on the argument leaves, simplified, and `parray.ad` emits its
derivative into the graph that is being built.  ``grad`` and ``value_and_grad`` give functions that compile as if marked
``@parallel`` when they are called outside.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from parray import ad, builder, tree
from parray.api.parallel import Parallel
from parray.errors import TypeMismatch
from parray.ir import Atom, Const, Lambda, Var
from parray.simplify import simplify
from parray.trace import context
from parray.trace.combinators import call, results_of
from parray.trace.elementwise import lift, to_type
from parray.trace.tracer import Tracer
from parray.tree import Tree
from parray.types import bool_


def _unwrap(f: Any) -> Any:
    return f.f if isinstance(f, Parallel) and not f._annotations else f


def _lambda(f: Callable[..., Any], leaves: Sequence[Tracer], structures: Sequence[Tree], what: str
            ) -> tuple[Lambda, Tree]:
    """``f`` on values of these structures, as a lambda on their leaves."""
    params = tuple(Var(x.type, "x") for x in leaves)
    with context.inner(params, context.always) as s:
        args, at = [], 0
        for structure in structures:
            args.append(tree.unflatten(structure, [
                Tracer(p, x.weak) for p, x in zip(params[at:at + structure.size], leaves[at:at + structure.size])]))
            at += structure.size
        results, out = results_of(call(f, *args), f"the function given to {what}")
    context.check_regular([r.type for r in results], s, params, what)
    context.settle()
    return simplify(Lambda(params, tuple(s.stms), tuple(results)), keep_branches=True), out


def _leaves(values: Sequence[Any], what: str) -> tuple[list[Tracer], list[Tree]]:
    context.current(what)
    leaves: list[Tracer] = []
    structures = []
    for value in values:
        column, structure = tree.flatten(value)
        leaves += [lift(x, what) for x in column]
        structures.append(structure)
    return leaves, structures


def _zero_like(a: Atom) -> Atom:
    return builder.zeros(a.type)


class _Vjp:
    """A function's results at some arguments, and its pullback."""

    def __init__(self, f: Callable[..., Any], values: Sequence[Any], what: str):
        self.what = what
        self.leaves, self.structures = _leaves(values, what)
        lam, self.out = _lambda(f, self.leaves, self.structures, what)
        self.atoms = [x.atom for x in self.leaves]
        self.wrt = [k for k, a in enumerate(self.atoms) if a.type.elem != bool_]
        self.results, self._pull = ad.vjp(lam, self.atoms, self.wrt)

    def value(self) -> Any:
        """The results in their structure."""
        return tree.unflatten(self.out, [Tracer(r) for r in self.results])

    def pull(self, bars: Sequence[Atom | None]) -> list[Any]:
        """Cotangents of the arguments from those of the results."""
        found = dict(zip(self.wrt, self._pull(bars)))
        leaves = [Tracer(found[k] if k in found else _zero_like(a)) for k, a in enumerate(self.atoms)]
        out, at = [], 0
        for s in self.structures:
            out.append(tree.unflatten(s, leaves[at:at + s.size]))
            at += s.size
        return out


def vjp(f: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], Any]]:
    """``(f(*args), pullback)``; ``pullback(cotangent)`` gives a cotangent for each argument (one alone for one)."""
    made = _Vjp(f, args, "pa.vjp")

    def pullback(cotangent: Any) -> Any:
        leaves, structure = tree.flatten(cotangent)
        if structure != made.out:
            raise TypeMismatch(f"the cotangent is {structure}, the function gives {made.out}", builder.here())
        bars = [None if r.type.elem == bool_ else to_type(leaf, r.type, "a cotangent")
                for leaf, r in zip(leaves, made.results)]
        out = made.pull(bars)
        return out[0] if len(out) == 1 else tuple(out)
    return made.value(), pullback


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """``(value, tangent)`` of ``f(*primals)`` in the direction ``tangents``."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeMismatch("pa.jvp takes a tuple of arguments and a tuple of tangents", builder.here())
    leaves, structures = _leaves(primals, "pa.jvp")
    columns, found = [], []
    for t in tangents:
        column, structure = tree.flatten(t)
        columns += column
        found.append(structure)
    if found != structures:
        raise TypeMismatch(f"the tangents are {found}, the arguments {structures}", builder.here())
    lam, out = _lambda(f, leaves, structures, "pa.jvp")
    atoms = [x.atom for x in leaves]
    given = [None if a.type.elem == bool_ else to_type(t, a.type, "a tangent") for t, a in zip(columns, atoms)]
    results, dots = ad.jvp(lam, atoms, given)
    dots = tuple(_zero_like(r) if r.type.elem == bool_ else d for r, d in zip(results, dots))
    return tree.unflatten(out, [Tracer(r) for r in results]), tree.unflatten(out, [Tracer(d) for d in dots])


def value_and_grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Parallel:
    """The function that gives ``f``'s value and its gradient in the argument (or arguments) ``argnums``.

    ``f`` gives a scalar, or with ``has_aux`` a pair of a scalar and anything, which then is ``(value, aux)``."""
    return _gradient(f, argnums, has_aux, True, "value_and_grad")


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Parallel:
    """The function that gives the gradient of ``f``, a scalar function, in the argument (or arguments) ``argnums``."""
    return _gradient(f, argnums, has_aux, False, "grad")


def _gradient(f: Callable[..., Any], argnums: Any, has_aux: bool, with_value: bool, what: str) -> Parallel:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    inner = _unwrap(f)

    @functools.wraps(f.f if isinstance(f, Parallel) else f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = [_argument(args, k, what) for k in numbers]
        places = [k % len(args) for k in numbers]

        def of_chosen(*values: Any) -> Any:
            new = list(args)
            for k, v in zip(places, values):
                new[k] = v
            return inner(*new, **kwargs)
        made = _Vjp(of_chosen, chosen, f"pa.{what}")
        out = made.pull(_seed(made, has_aux, what))
        value = made.value()
        grads = out[0] if isinstance(argnums, int) else tuple(out)
        if with_value:
            return value, grads
        return (grads, value[1]) if has_aux else grads
    static = f.static if isinstance(f, Parallel) else ()
    backend = f.backend if isinstance(f, Parallel) else None
    name = f.name if isinstance(f, Parallel) else getattr(f, "__name__", type(f).__name__)
    return Parallel(gradient, static, backend, f"{what}({name})")


def _argument(args: Sequence[Any], k: int, what: str) -> Any:
    if not isinstance(k, int) or not -len(args) <= k < len(args):
        raise TypeMismatch(f"pa.{what}: argnums={k} of a call with {len(args)} positional arguments", builder.here())
    return args[k]


def _seed(made: _Vjp, has_aux: bool, what: str) -> list[Atom | None]:
    """The cotangent 1 of the scalar result, nothing for the rest."""
    if has_aux:
        if made.out.kind != "tuple" or len(made.out.children) != 2:
            raise TypeMismatch(f"with has_aux=True the function given to pa.{what} gives a pair (value, aux), not "
                               f"{made.out}", builder.here())
        first = made.out.children[0]
    else:
        first = made.out
    r = made.results[0] if made.results else None
    if first.kind != "leaf" or r is None or r.type.rank or r.type.elem == bool_:
        shown = repr(Tracer(r)) if first.kind == "leaf" and r is not None else repr(first)
        raise TypeMismatch(f"pa.{what} takes a function with a scalar result; this one gives {shown}",
                           builder.here())
    return [Const(1, r.type.elem), *([None] * (len(made.results) - 1))]


def stop_gradient(x: Any) -> Any:
    """``x``, whose derivative is taken to be zero."""
    context.current("pa.stop_gradient")
    return tree.map(_stopped, x)


def _stopped(leaf: Any) -> Any:
    x = lift(leaf, "pa.stop_gradient")
    if isinstance(x.atom, Const):
        return x
    return Tracer(builder.elementwise(lambda e: builder.prim("stop", e), x.atom), x.weak)
