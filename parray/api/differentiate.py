"""Differentiation as functions of functions: grad, value_and_grad, vjp, jvp, stop_gradient.

Inside a trace: the function is traced to a lambda on the argument leaves, simplified, and `parray.ad` emits its
derivative into the graph that is being built.  ``grad`` and ``value_and_grad`` give functions that compile as if marked
``@parallel`` when they are called outside.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from parray import ad, builder, tree
from parray.api.parallel import P, Parallel
from parray.contractions import convolutions
from parray.errors import TypeMismatch
from parray.ir import Atom, Const, Lambda, Var
from parray.simplify import simplify
from parray.soacs import CustomVjp
from parray.trace import context
from parray.trace.combinators import call, results_of, tabulate
from parray.trace.elementwise import lift, to_type
from parray.trace.tracer import Tracer
from parray.trace.update import update
from parray.trace.views import permute
from parray.tree import Tree
from parray.types import Type, bool_


def _unwrap(f: Any) -> Any:
    if not callable(f):
        raise TypeMismatch(f"a function is needed, not {f!r}", builder.here())
    return f.f if isinstance(f, Parallel) and not f._annotations else f


def lambda_of(f: Callable[..., Any], leaves: Sequence[Tracer], structures: Sequence[Tree], what: str,
              regular: bool = False) -> tuple[Lambda, Tree]:
    """``f`` on values of these structures, as a lambda on their leaves; ``regular``: it may not find out sizes."""
    params = tuple(Var(x.type, "x") for x in leaves)
    with context.inner(params, context.always) as s:
        args, at = [], 0
        for structure in structures:
            args.append(tree.unflatten(structure, [
                Tracer(p, x.weak) for p, x in zip(params[at:at + structure.size], leaves[at:at + structure.size])]))
            at += structure.size
        results, out = results_of(call(f, *args), f"the function given to {what}")
    if regular:
        context.check_regular([r.type for r in results], s, params, what)
    context.settle()
    lam = simplify(Lambda(params, tuple(s.stms), tuple(results)), keep_branches=True)
    return convolutions(lam), out


def of_shape(bar: Tracer, t: Type, what: str) -> Tracer:
    """A cotangent, which ``what`` gave, with the sizes of its primal; that they are equal is checked."""
    for d, (given, size) in enumerate(zip(bar.atom.type.shape, t.shape)):
        context.unify(given, size, f"dimension {d} of {what}")
    return Tracer(context.fit(bar.atom, t.shape))


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
    """A function's results at some arguments, and its pullback.

    ``floats``: integer arguments of a function that gives a float are constant (their cotangents would be rounded).
    """

    def __init__(self, f: Callable[..., Any], values: Sequence[Any], what: str, floats: bool = False):
        self.what = what
        self.leaves, self.structures = _leaves(values, what)
        lam, self.out = lambda_of(f, self.leaves, self.structures, what)
        self.atoms = [x.atom for x in self.leaves]
        floats = floats and bool(lam.results) and lam.results[0].type.elem.is_float
        self.wrt = [k for k, a in enumerate(self.atoms)
                    if (a.type.elem.is_float if floats else not a.type.elem.is_bool)]
        if floats and not self.wrt:
            raise TypeMismatch(f"{what}: the function gives a float and the argument is {self.leaves[0]!r}, in which "
                               "the derivative would be rounded: convert it with pa.f32 or pa.f64", builder.here())
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
    lam, out = lambda_of(f, leaves, structures, "pa.jvp")
    atoms = [x.atom for x in leaves]
    given = [None if a.type.elem == bool_ else to_type(t, a.type, "a tangent") for t, a in zip(columns, atoms)]
    results, dots = ad.jvp(lam, atoms, given)
    dots = tuple(_zero_like(r) if r.type.elem == bool_ else d for r, d in zip(results, dots))
    return tree.unflatten(out, [Tracer(r) for r in results]), tree.unflatten(out, [Tracer(d) for d in dots])


def value_and_grad(f: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Parallel[P, Any]:
    """The function that gives ``f``'s value and its gradient in the argument (or arguments) ``argnums``.

    ``f`` gives a scalar, or with ``has_aux`` a pair of a scalar and anything, which then is ``(value, aux)``."""
    return _gradient(f, argnums, has_aux, True, "value_and_grad")


def grad(f: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Parallel[P, Any]:
    """The function that gives the gradient of ``f``, a scalar function, in the argument (or arguments) ``argnums``."""
    return _gradient(f, argnums, has_aux, False, "grad")


def _gradient(f: Callable[P, Any], argnums: Any, has_aux: bool, with_value: bool, what: str) -> Parallel[P, Any]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    inner = _unwrap(f)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = [_argument(args, k, what) for k in numbers]
        places = [k % len(args) for k in numbers]

        def of_chosen(*values: Any) -> Any:
            new = list(args)
            for k, v in zip(places, values):
                new[k] = v
            return inner(*new, **kwargs)
        made = _Vjp(of_chosen, chosen, f"pa.{what}", floats=True)
        out = made.pull(_seed(made, has_aux, what))
        value = made.value()
        grads = out[0] if isinstance(argnums, int) else tuple(out)
        if with_value:
            return value, grads
        return (grads, value[1]) if has_aux else grads
    return _derived(f, gradient, what)


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


def jacrev(f: Callable[..., Any], argnums: int = 0) -> Parallel[..., Any]:
    """The function that gives the Jacobian of ``f`` in an argument, by reverse mode: one pullback for each entry of the
    result.  For a result of shape ``s`` and an argument of shape ``t`` it has the shape ``s + t``; structures of
    results and arguments give structures of structures."""
    inner = _unwrap(f)

    def jacobian(*args: Any) -> Any:
        k = _place(args, argnums, "jacrev")
        made = _Vjp(lambda x: inner(*args[:k], x, *args[k + 1:]), [args[k]], "pa.jacrev")

        def row(j: int, at: tuple[Any, ...]) -> Any:
            bars: list[Atom | None] = [None] * len(made.results)
            bars[j] = _unit(made.results[j].type, at)
            return made.pull(bars)[0]
        rows = [_each(r.type, lambda *at, j=j: row(j, at)) for j, r in enumerate(made.results)]
        return tree.unflatten(made.out, rows)
    return _derived(f, jacobian, "jacrev")


def jacfwd(f: Callable[..., Any], argnums: int = 0) -> Parallel[..., Any]:
    """`jacrev` by forward mode: one direction for each entry of the argument."""
    inner = _unwrap(f)

    def jacobian(*args: Any) -> Any:
        k = _place(args, argnums, "jacfwd")
        leaves, structure = tree.flatten(args[k])
        atoms = [lift(x, "pa.jacfwd").atom for x in leaves]

        def column(j: int, at: tuple[Any, ...]) -> Any:
            dots = [Tracer(_unit(a.type, at) if i == j else builder.zeros(a.type)) for i, a in enumerate(atoms)]
            return jvp(lambda x: inner(*args[:k], x, *args[k + 1:]), (args[k],), (tree.unflatten(structure, dots),))[1]
        columns = [_each(a.type, lambda *at, j=j: column(j, at)) for j, a in enumerate(atoms)]
        out = tree.structure(columns[0])
        parts = [[_behind(leaf, a.type.rank) for leaf in tree.leaves(c)] for c, a in zip(columns, atoms)]
        return tree.unflatten(out, [tree.unflatten(structure, list(row)) for row in zip(*parts)])
    return _derived(f, jacobian, "jacfwd")


def hessian(f: Callable[..., Any], argnums: int = 0) -> Parallel[..., Any]:
    """The function that gives the second derivatives of a scalar ``f`` in an argument: forward over reverse mode."""
    return _derived(f, jacfwd(grad(_unwrap(f), argnums), argnums).f, "hessian")


def _place(args: Sequence[Any], k: int, what: str) -> int:
    _argument(args, k, what)
    return k % len(args)


def _unit(t: Type, at: Sequence[Any]) -> Atom:
    """A value of type ``t`` that is 1 at one place and 0 elsewhere."""
    one = Tracer(Const(1, t.elem))
    return update(Tracer(builder.zeros(t)), tuple(at), one).atom if t.rank else one.atom


def _each(t: Type, f: Callable[..., Any]) -> Any:
    """``f`` of every place of an array of type ``t``, as arrays; of a scalar, the one value."""
    if not t.rank:
        return f()
    return tabulate(tuple(s if isinstance(s, int) else Tracer(s, True, True) for s in t.shape), f)


def _behind(x: Tracer, rank: int) -> Tracer:
    """The first ``rank`` dimensions moved behind the others."""
    return Tracer(permute(x.atom, [*range(rank, x.ndim), *range(rank)]))


def _derived(f: Callable[P, Any], function: Callable[..., Any], what: str) -> Parallel[P, Any]:
    """A function made of ``f``, compiled as ``f`` would be."""
    static = f.static if isinstance(f, Parallel) else ()
    backend = f.backend if isinstance(f, Parallel) else None
    name = f.name if isinstance(f, Parallel) else getattr(f, "__name__", type(f).__name__)
    wrapped: Any = functools.wraps(f.f if isinstance(f, Parallel) else f)(function)
    made: Parallel[P, Any] = Parallel(wrapped, static, backend, f"{what}({name})")
    made.checked_inside = isinstance(f, Parallel)                # a plain function's annotations bind no caller either
    return made


def custom_vjp(f: Callable[..., Any], fwd: Callable[..., Any], bwd: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` with a reverse derivative of the user's.

    ``fwd(*args)`` gives ``(f(*args), residuals)``; ``bwd(residuals, cotangent)`` gives the tuple of the arguments'
    cotangents.  Forward mode differentiates ``f`` itself.
    """
    @functools.wraps(f)
    def custom(*args: Any) -> Any:
        what = "pa.custom_vjp"
        leaves, structures = _leaves(args, what)
        lam, out = lambda_of(f, leaves, structures, what, True)
        fwd_lam, both = lambda_of(fwd, leaves, structures, what, True)
        if both.kind != "tuple" or len(both.children) != 2 or both.children[0] != out:
            raise TypeMismatch(f"{what}: fwd gives (result, residuals) with a result like f's, not {both}",
                               builder.here())
        count = out.size
        given = [Tracer(Var(t)) for t in (*fwd_lam.result_types[count:], *lam.result_types)]
        wanted = [x.atom.type for x in leaves]

        def sized(*values: Any) -> Any:
            given, structure = tree.flatten(call(bwd, *values))
            bars = [lift(x, f"{what}: bwd") for x in given]
            if [x.atom.type.rank for x in bars] == [t.rank for t in wanted]:            # else see below
                bars = [of_shape(x, t, f"the cotangent of argument {k + 1} that bwd gives to {what}")
                        for k, (x, t) in enumerate(zip(bars, wanted))]
            return tree.unflatten(structure, bars)
        bwd_lam, bars = lambda_of(sized, given, [both.children[1], out], what, True)
        if bars != tree.structure(args) or [t.elem for t in bwd_lam.result_types] != [t.elem for t in wanted] or \
                [t.rank for t in bwd_lam.result_types] != [t.rank for t in wanted]:
            raise TypeMismatch(f"{what}: bwd gives one cotangent for each argument, {tree.structure(args)} of "
                               f"{', '.join(map(str, wanted))}; it gives {bars} of "
                               f"{', '.join(map(str, bwd_lam.result_types))}", builder.here())
        outs = builder.emit(CustomVjp(tuple(x.atom for x in leaves), lam, fwd_lam, bwd_lam, count))
        return tree.unflatten(out, [Tracer(o) for o in outs])
    return custom


def stop_gradient(x: Any) -> Any:
    """``x``, whose derivative is taken to be zero."""
    context.current("pa.stop_gradient")
    return tree.map(_stopped, x)


def _stopped(leaf: Any) -> Any:
    x = lift(leaf, "pa.stop_gradient")
    if isinstance(x.atom, Const):
        return x
    return Tracer(builder.elementwise(lambda e: builder.prim("stop", e), x.atom), x.weak)
