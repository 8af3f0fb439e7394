"""Branches and loops: cond, loop, while_loop, foldl, foldr.

Branches must agree in structure and types, and so must what a loop carries before and after each turn; weak values take
the type of the other side.  A loop's weak initial value may be widened by the body (``foldl(f, 0.0, xs)`` carries what
``f`` gives); the body is then traced again.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import numpy as np

from parray import builder, tree
from parray.errors import TypeMismatch
from parray.ir import Atom, Lambda, Stm, Var, refresh, resolve, size_atom
from parray.soacs import Cond, Loop, While
from parray.trace import context
from parray.trace.combinators import call, inputs, rebuild
from parray.trace.elementwise import describe, lift, to_type, where
from parray.trace.promote import can_coerce, common_type, convert
from parray.trace.tracer import Tracer
from parray.trace.views import as_size
from parray.types import ScalarType, Type, bool_, i64

_Branch = tuple[list[Tracer], Any, list[Stm]]


# --- cond ------------------------------------------------------------------------------------------------------------

def cond(pred: Any, then: Callable[..., Any], orelse: Callable[..., Any], *operands: Any) -> Any:
    """``then(*operands)`` if ``pred`` holds, else ``orelse(*operands)``; only the chosen function runs."""
    context.current("pa.cond")
    if isinstance(pred, (bool, np.bool_)):
        return call(then if pred else orelse, *operands)
    p = lift(pred, "pa.cond")
    if p.ndim or not p.dtype.is_bool:
        raise TypeMismatch(f"pa.cond takes a truth value, not {p!r}", builder.here())
    test = p.atom
    a, structure, a_scope = _branch(then, operands, lambda: test)
    b, other, b_scope = _branch(orelse, operands, lambda: builder.prim("not", test))
    if structure != other:
        raise TypeMismatch(f"the branches of pa.cond differ: {structure} and {other}", builder.here())
    bodies = (list(a_scope.stms), list(b_scope.stms))
    types = [_joint_type(test, bodies, x, y) for x, y in zip(a, b)]
    outs = builder.emit(Cond(test, _finish(a, types, a_scope), _finish(b, types, b_scope)))
    return tree.unflatten(structure, [Tracer(o, x.weak and y.weak) for o, x, y in zip(outs, a, b)])


def _branch(f: Callable[..., Any], operands: Sequence[Any], guard: Callable[[], Atom]) -> tuple[list[Tracer], Any, Any]:
    with context.inner((), guard) as s:
        leaves, structure = tree.flatten(call(f, *operands))
        values = [lift(leaf, "a branch of pa.cond returns") for leaf in leaves]
    return values, structure, s


def _joint_type(test: Atom, bodies: tuple[list[Stm], list[Stm]], x: Tracer, y: Tracer) -> Type:
    a, b = x.type, y.type
    if a.rank != b.rank or a.elem != b.elem and not (x.weak or y.weak):
        raise TypeMismatch(f"the branches of pa.cond give {describe(a)} and {describe(b)}; they must have one type",
                           builder.here())
    elem = common_type([a.elem, b.elem], [x.weak, y.weak])
    if elem != a.elem and not x.weak or elem != b.elem and not y.weak:
        raise TypeMismatch(f"the branches of pa.cond give {describe(a)} and {describe(b)}; they must have one type",
                           builder.here())
    return Type(elem, tuple(_joint_size(test, bodies, s, t) for s, t in zip(a.shape, b.shape)))


def _joint_size(test: Atom, bodies: tuple[list[Stm], list[Stm]], s: Any, t: Any) -> Any:
    """The size of a dimension after the branches: theirs, or where it is computed, that of the one that is taken.

    A size that only the branch itself finds out is computed first, by a branch that gives the size alone.
    """
    s, t = resolve(s), resolve(t)
    if any(v in (s, t) for body in bodies for stm in body for v in stm.vars):
        size_of = [refresh(Lambda((), tuple(body), (size_atom(n),))) for body, n in zip(bodies, (s, t))]
        found = builder.emit1(Cond(test, *size_of))
        context.current().nonneg.add(found)
        return found
    known = context.current().roots
    if builder.same_size(s, t) or all(isinstance(k, int) or k in known for k in (s, t)):
        context.unify(s, t, "the branches of pa.cond give arrays of one shape")
        return resolve(s)
    out = builder.size_prim("select", test, size_atom(s), size_atom(t))
    if context.is_nonneg(s) and context.is_nonneg(t) and isinstance(out, Var):
        context.current().nonneg.add(out)
    return out


def _finish(values: Sequence[Tracer], types: Sequence[Type], s: Any) -> Lambda:
    """Close a branch: its values converted to the joint types."""
    with builder.scope() as extra:
        results = tuple(context.fit(convert(v._atom, t.elem), t.shape) for v, t in zip(values, types))
    return Lambda((), (*s.stms, *extra.stms), results)


# --- loops -----------------------------------------------------------------------------------------------------------

def _initial(init: Any, what: str) -> tuple[list[Tracer], Any]:
    leaves, structure = tree.flatten(init)
    return [lift(leaf, f"the initial value of {what}") for leaf in leaves], structure


def _carry(start: Sequence[Tracer], structure: Any, turn: Callable[..., Any], extra: Sequence[Var], n: Any, what: str
           ) -> tuple[list[Atom], tuple[Var, ...], Lambda, list[bool]]:
    """Trace a loop's body until the carried types are those it gives: initial atoms, parameters, body, weakness."""
    elems = [x.dtype for x in start]
    weak = [x.weak for x in start]
    guard = context.some(n) if n is not None else None
    while True:
        atoms = [convert(x.atom, t) for x, t in zip(start, elems)]
        params = tuple(Var(a.type, "acc") for a in atoms)
        with context.inner((*extra, *params), guard) as s:
            carried = tree.unflatten(structure, [Tracer(p, w) for p, w in zip(params, weak)])
            value = turn(carried)
            found = tree.structure(value)
            if found != structure:
                raise TypeMismatch(f"{what} carries {structure}, its body gives {found}", builder.here())
            leaves = tree.leaves(value)
            wider = _wider(leaves, elems, weak, f"the body of {what} gives")
            if wider is None:
                results = tuple(to_type(leaf, p.type, f"what the body of {what} gives")
                                for leaf, p in zip(leaves, params))
        if wider is None:
            return atoms, (*extra, *params), Lambda((*extra, *params), tuple(s.stms), results), weak
        elems, weak = wider


def _wider(leaves: Sequence[Any], elems: Sequence[ScalarType], weak: Sequence[bool], what: str
           ) -> tuple[list[ScalarType], list[bool]] | None:
    """Element types and weakness of the carried values when the body changes weak ones, else None."""
    new, still = list(elems), list(weak)
    for k, leaf in enumerate(leaves):
        x = lift(leaf, what)
        if not weak[k]:
            continue
        if not x.weak:
            if not can_coerce(elems[k], x.dtype):
                raise TypeMismatch(f"{what} {x.dtype}, the initial value is {elems[k]}", builder.here())
            new[k], still[k] = x.dtype, False
        elif x.dtype != elems[k]:
            new[k] = common_type([elems[k], x.dtype], [True, True])
    return None if (new, still) == (list(elems), list(weak)) else (new, still)


def loop(n: Any, body: Callable[..., Any], init: Any, checkpoint: Any = None) -> Any:
    """``for i in range(n): carry = body(i, carry)``; the last carry, ``init`` when n <= 0.

    In reverse mode every iteration's carry is written down.  With ``checkpoint=k`` only every k-th is, and the others
    are computed again: n/k + k of them in memory at a time, for one more run of the loop.
    """
    trips = _trips(n)
    if checkpoint is None:
        return _loop(trips, body, init, "pa.loop")
    length = as_size(checkpoint, "the checkpoint of pa.loop")
    blocks = builder.size_prim("floordiv", builder.size_sub(builder.size_add(trips, length), 1), length)

    def block(o: Any, carry: Any) -> Any:
        first = o * _visible(length)
        left = where(_visible(trips) - first < _visible(length), _visible(trips) - first, _visible(length))
        return loop(left, lambda i, c: call(body, first + i, c), carry)
    return _loop(context.at_least_zero(blocks), block, init, "pa.loop")


def _visible(n: Any) -> Any:
    """A size as the user sees it."""
    return n if isinstance(n, int) else Tracer(n, True, True)


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, of which a reverse pass remembers the arguments only: what it needs of the inside is computed again."""
    @functools.wraps(f)
    def again(*args: Any) -> Any:
        context.current("pa.checkpoint")
        with context.inner((), context.always) as s:
            leaves, structure = tree.flatten(call(f, *args))
            results = [lift(leaf, "the function given to pa.checkpoint returns") for leaf in leaves]
        context.check_regular([r.type for r in results], s, (), "the function given to pa.checkpoint")
        counter = Var(Type(i64), "i")
        carried = tuple(Var(r.type, "acc") for r in results)
        lam = Lambda((counter, *carried), tuple(s.stms), tuple(r._atom for r in results))
        outs = builder.emit(Loop(1, lam, tuple(builder.zeros(r.type) for r in results), True))
        return tree.unflatten(structure, [Tracer(o) for o in outs])
    return again


def _trips(n: Any) -> Any:
    if isinstance(n, int) and not isinstance(n, bool):
        return max(n, 0)
    return as_size(n, "pa.loop")


def _loop(n: Any, body: Callable[..., Any], init: Any, what: str) -> Any:
    trace = context.current(what)
    start, structure = _initial(init, what)
    i = Var(Type(i64), "i")
    trace.nonneg.add(i)
    trace.below[i] = n
    atoms, _, lam, weak = _carry(start, structure, lambda c: call(body, Tracer(i, weak=True), c), (i,), n, what)
    outs = builder.emit(Loop(n, lam, tuple(atoms)))
    return tree.unflatten(structure, [Tracer(o, w) for o, w in zip(outs, weak)])


def while_loop(test: Callable[..., Any], body: Callable[..., Any], init: Any) -> Any:
    """``while test(carry): carry = body(carry)``; the last carry."""
    context.current("pa.while_loop")
    start, structure = _initial(init, "pa.while_loop")
    atoms, params, lam, weak = _carry(start, structure, lambda c: call(body, c), (), None, "pa.while_loop")
    tests = tuple(Var(p.type, "acc") for p in params)
    with context.inner(tests) as s:
        p = lift(call(test, tree.unflatten(structure, [Tracer(v, w) for v, w in zip(tests, weak)])),
                 "the test of pa.while_loop gives")
        if p.ndim or not p.dtype.is_bool:
            raise TypeMismatch(f"the test of pa.while_loop gives {p!r}, not a truth value", builder.here())
        result = builder.convert(p.atom, bool_)
    outs = builder.emit(While(Lambda(tests, tuple(s.stms), (result,)), lam, tuple(atoms)))
    return tree.unflatten(structure, [Tracer(o, w) for o, w in zip(outs, weak)])


def _fold(f: Callable[[Any, Any], Any], init: Any, xs: Any, what: str, backward: bool) -> Any:
    leaves, structures, n = inputs([xs], what)

    def turn(i: Tracer, acc: Any) -> Any:
        at = i.atom
        if backward:
            last = builder.size_sub(n, 1)
            at = builder.prim("sub", size_atom(last), at)
        (x,) = rebuild(structures, [Tracer(builder.index(leaf, at, safe=True)) for leaf in leaves])
        return call(f, acc, x)
    return _loop(n, turn, init, what)


def foldl(f: Callable[[Any, Any], Any], init: Any, xs: Any) -> Any:
    """``acc = f(acc, x)`` for each element from left to right, one after the other."""
    return _fold(f, init, xs, "pa.foldl", False)


def foldr(f: Callable[[Any, Any], Any], init: Any, xs: Any) -> Any:
    """``acc = f(x, acc)`` for each element from right to left, one after the other."""
    return _fold(lambda acc, x: f(x, acc), init, xs, "pa.foldr", True)
