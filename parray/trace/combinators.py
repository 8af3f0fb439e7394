"""map, reduce, scan, scatter and their kin: the second-order combinators, on arrays of scalars, arrays and structures.

An array of tuples or records is a tuple or record of arrays of one length: each combinator flattens its inputs,
traces the function it is given on elements, and rebuilds the structure of the results.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from parray import builder, tree
from parray.errors import ParrayError, TypeMismatch
from parray.ir import Atom, Const, Lambda, Monoid, Var, resolve
from parray.prims import TABLE
from parray.soacs import Assert, Iota, Prim, Scatter, Screma
from parray.trace import context
from parray.trace.elementwise import broadcast_to, describe, lift, note_element, to_type
from parray.trace.promote import can_coerce, constant, convert, is_python_number
from parray.trace.tracer import Tracer
from parray.trace.views import array, as_size
from parray.tree import Tree
from parray.types import Type, bool_, i64


def call(f: Callable[..., Any], *args: Any) -> Any:
    """The user's function on tracers; what is not callable, or takes another number of them, is a clear error."""
    if not callable(f):
        hint = "; a value is the function lambda: value" if isinstance(f, Tracer) else ""
        raise TypeMismatch(f"a function is needed, not {f!r}{hint}", builder.here())
    try:
        return f(*args)
    except TypeError as e:
        inside = e.__traceback__ is not None and e.__traceback__.tb_next is not None
        if inside or isinstance(e, ParrayError) or "argument" not in str(e):
            raise
        name = getattr(f, "__name__", "it")
        raise TypeMismatch(f"a function of {len(args)} argument{'s' * (len(args) != 1)} is needed, for as many are "
                           f"given to it: {str(e).replace(getattr(f, '__qualname__', name), name)}",
                           builder.here()) from None


def inputs(xs: Sequence[Any], what: str) -> tuple[list[Atom], list[Tree], Any]:
    """Leaves of the arrays, their structures and their common length."""
    context.current(what)
    leaves: list[Atom] = []
    structures = []
    for x in xs:
        columns, structure = tree.flatten(x)
        structures.append(structure)
        leaves += [array(c, what) for c in columns]
    if not leaves:
        raise TypeMismatch(f"{what} needs at least one array", builder.here())
    n = resolve(leaves[0].type.shape[0])
    for x in leaves[1:]:
        context.unify(n, x.type.shape[0], f"{what} takes arrays of one length")
        n = resolve(n)
    for x in leaves:                                # a static length is the better name
        n = resolve(x.type.shape[0]) if isinstance(resolve(x.type.shape[0]), int) else n
    return [context.fit(x, (n, *x.type.shape[1:])) for x in leaves], structures, n


def rebuild(structures: Sequence[Tree], leaves: Sequence[Any]) -> list[Any]:
    """Values of these structures from all their leaves."""
    out, at = [], 0
    for s in structures:
        out.append(tree.unflatten(s, leaves[at:at + s.size]))
        at += s.size
    return out


def results_of(value: Any, what: str) -> tuple[list[Atom], Tree]:
    """Atoms and structure of what the user's function returned."""
    leaves, structure = tree.flatten(value)
    return [lift(leaf, f"{what} returns", "; a function returns arrays, numbers and structures of them").atom
            for leaf in leaves], structure


# --- map -------------------------------------------------------------------------------------------------------------

def map(f: Callable[..., Any], *xs: Any) -> Any:
    """``[f(x, y, ..) for x, y, .. in zip(xs, ys, ..)]``: arrays, or structures of arrays, of one length."""
    if not xs:
        raise TypeMismatch("pa.map takes a function and at least one array", builder.here())
    leaves, structures, n = inputs(xs, "pa.map")
    params = tuple(Var(x.type.row(), "e") for x in leaves)
    for x, p in zip(leaves, params):
        note_element(x, p)

    def body() -> Any:
        return call(f, *rebuild(structures, [Tracer(p) for p in params]))
    return _map(body, params, leaves, n, "pa.map")


def _map(body: Callable[[], Any], params: Sequence[Var], leaves: Sequence[Any], n: Any, what: str) -> Any:
    with context.inner(params, context.some(n)) as s:
        results, structure = results_of(body(), f"the function given to {what}")
    context.check_regular([r.type for r in results], s, params, what)
    lam = Lambda(tuple(params), tuple(s.stms), tuple(results))
    outs = builder.emit(Screma(n, tuple(leaves), lam)) if results else ()
    return tree.unflatten(structure, [Tracer(o) for o in outs])


def _counted(count: int) -> Callable[..., Any]:
    def mapped(f: Callable[..., Any], *xs: Any) -> Any:
        if len(xs) != count:
            raise TypeMismatch(f"pa.map{count} takes {count} arrays, not {len(xs)}", builder.here())
        return map(f, *xs)
    mapped.__name__ = mapped.__qualname__ = f"map{count}"
    mapped.__doc__ = f"`map` with {count} arrays."
    return mapped


map2, map3, map4, map5 = (_counted(k) for k in (2, 3, 4, 5))


def tabulate(shape: Any, f: Callable[..., Any]) -> Any:
    """``[f(i) for i in range(n)]``; for sizes ``(n, m, ..)`` nested, with ``f(i, j, ..)``.  Indices are weak."""
    trace = context.current("pa.tabulate")
    sizes = [as_size(n, "pa.tabulate") for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    if not sizes:
        raise TypeMismatch("pa.tabulate needs at least one size", builder.here())

    def level(sizes: Sequence[Any], indices: tuple[Any, ...]) -> Any:
        if not sizes:
            return call(f, *indices)
        i = Var(Type(i64), "i")
        trace.nonneg.add(i)
        trace.below[i] = sizes[0]
        numbers = builder.emit1(Iota(sizes[0], i64))
        return _map(lambda: level(sizes[1:], (*indices, Tracer(i, weak=True))), (i,), (numbers,), sizes[0],
                    "pa.tabulate")
    return level(sizes, ())


# --- operators -------------------------------------------------------------------------------------------------------

def monoid(op: Callable[..., Any], ne: Any, types: Sequence[Type], structure: Tree, what: str,
           commutative: bool = False) -> Monoid:
    """The operator traced on elements of these types, with its neutral element coerced to them."""
    neutral = neutral_element(ne, types, structure, what)
    params = tuple(Var(t, hint) for hint in "ab" for t in types)
    with context.inner(params) as s:
        a, b = rebuild([structure, structure], [Tracer(p) for p in params])
        value = call(op, a, b)
        found = tree.structure(value)
        if found != structure:
            raise TypeMismatch(f"the operator of {what} gives {found} where its operands are {structure}; a step that "
                               "carries one thing and takes another is pa.foldl(f, init, xs)", builder.here())
        results = tuple(to_type(leaf, t, f"a result of the operator of {what}")
                        for leaf, t in zip(tree.leaves(value), types))
    lam = Lambda(params, tuple(s.stms), results)
    return Monoid(lam, tuple(neutral), commutative or is_commutative(lam))


def neutral_element(ne: Any, types: Sequence[Type], structure: Tree, what: str) -> list[Atom]:
    """``ne`` as atoms of the elements' types; a scalar stands for an array full of it."""
    leaves, found = tree.flatten(ne)
    if found != structure:
        raise TypeMismatch(f"the neutral element of {what} is {found}, the elements are {structure}", builder.here())
    out = []
    for leaf, t in zip(leaves, types):
        x = lift(leaf, f"the neutral element of {what}")
        if not can_coerce(x.dtype, t.elem):
            raise TypeMismatch(f"the neutral element {leaf!r} of {what} is of type {x.dtype}, the elements are "
                               f"{describe(t)}: give a neutral element of their type", builder.here())
        if x.ndim not in (0, t.rank):
            raise TypeMismatch(f"the neutral element of {what} is {x!r}, the elements are {describe(t)}",
                               builder.here())
        atom = constant(leaf, t.elem) if is_python_number(leaf) else convert(x.atom, t.elem)
        for s, size in zip(atom.type.shape, t.shape):
            context.unify(s, size, f"the neutral element of {what} is like an element")
        out.append(broadcast_to(atom, t.shape) if atom.type.rank < t.rank else context.fit(atom, t.shape))
    return out


def is_commutative(lam: Lambda) -> bool:
    """Whether an operator is, component by component, a primitive known to be commutative."""
    width = len(lam.results)
    made = {v: stm.op for stm in lam.stms for v in stm.vars}
    for k, r in enumerate(lam.results):
        operands = [lam.params[k], lam.params[k + width]]
        op = made.get(r) if isinstance(r, Var) else None
        if isinstance(op, Prim):
            if not TABLE[op.prim].commutative or set(op.args) != set(operands):
                return False
        elif not (isinstance(op, Screma) and op.is_map and len(op.xs) == 2 and set(op.xs) == set(operands)
                  and is_commutative(op.lam)):
            return False
    return True


def _with_operator(xs: Any, op: Any, ne: Any, what: str, commutative: bool = False
                   ) -> tuple[list[Atom], Tree, Any, Monoid]:
    leaves, (structure,), n = inputs([xs], what)
    m = monoid(op, ne, [x.type.row() for x in leaves], structure, what, commutative)
    return leaves, structure, n, m


def reduce(op: Callable[..., Any], ne: Any, xs: Any) -> Any:
    """``functools.reduce(op, xs, ne)`` for an associative ``op`` with neutral element ``ne``; order is kept."""
    leaves, structure, n, m = _with_operator(xs, op, ne, "pa.reduce")
    return tree.unflatten(structure, [Tracer(o) for o in builder.reduce_(m, *leaves)])


def reduce_comm(op: Callable[..., Any], ne: Any, xs: Any) -> Any:
    """`reduce` for a commutative ``op``: the elements may be combined in any order."""
    leaves, structure, n, m = _with_operator(xs, op, ne, "pa.reduce_comm", True)
    return tree.unflatten(structure, [Tracer(o) for o in builder.reduce_(m, *leaves)])


def scan(op: Callable[..., Any], ne: Any, xs: Any) -> Any:
    """Inclusive prefixes: ``ys[i] = xs[0] op ... op xs[i]``."""
    leaves, structure, n, m = _with_operator(xs, op, ne, "pa.scan")
    return tree.unflatten(structure, [Tracer(o) for o in builder.scan_(m, *leaves)])


def exscan(op: Callable[..., Any], ne: Any, xs: Any) -> Any:
    """Exclusive prefixes: ``ys[0] = ne``, ``ys[i] = xs[0] op ... op xs[i-1]``."""
    leaves, structure, n, m = _with_operator(xs, op, ne, "pa.exscan")

    def shifted(i: Atom) -> list[Atom]:
        first = builder.prim("eq", i, Const(0, i64))
        before = builder.prim("max", builder.prim("sub", i, Const(1, i64)), Const(0, i64))
        rows = [builder.index(x, before, safe=True) for x in leaves]
        return [builder.elementwise(lambda a, b: builder.select(first, a, b), e, row) for e, row in zip(m.ne, rows)]
    moved = builder.map_(shifted, builder.iota(n))
    return tree.unflatten(structure, [Tracer(o) for o in builder.scan_(m, *moved)])


# --- writing at computed places --------------------------------------------------------------------------------------

def _places(indices: Any, what: str) -> list[Atom]:
    """The index arrays: one, or a tuple of them for several dimensions."""
    entries = list(indices) if isinstance(indices, (tuple, list)) else [indices]
    out = []
    for entry in entries:
        x = lift(entry, what)
        if x.ndim != 1 or not x.dtype.is_integer:
            raise TypeMismatch(f"{what} takes integer arrays of rank 1 as indices, not {x!r}", builder.here())
        out.append(x.atom)
    return out


def destinations(dest: Any, rank: int, what: str) -> tuple[list[Atom], Tree]:
    """The arrays to write to, of one size in their first ``rank`` dimensions."""
    leaves, structure = tree.flatten(dest)
    atoms = [array(leaf, what, rank) for leaf in leaves]
    if not atoms:
        raise TypeMismatch(f"{what} needs a destination", builder.here())
    for a in atoms[1:]:
        for s, size in zip(a.type.shape[:rank], atoms[0].type.shape[:rank]):
            context.unify(s, size, f"the destinations of {what} have one size")
    front = atoms[0].type.shape[:rank]
    return [context.fit(a, (*front, *a.type.shape[rank:])) for a in atoms], structure


def _write(dest: Any, indices: Any, values: Any, what: str,
           operator: Callable[[Sequence[Type], Tree], Monoid] | None = None) -> Any:
    """Scatter ``values`` into ``dest``; an array of values, or one value for all places."""
    context.current(what)
    places = _places(indices, what)
    dests, structure = destinations(dest, len(places), what)
    leaves, found = tree.flatten(values)
    if found != structure:
        raise TypeMismatch(f"{what}: the values are {found}, the destination is {structure}", builder.here())
    n = resolve(places[0].type.shape[0])
    for p in places[1:]:
        context.unify(n, p.type.shape[0], f"{what} takes indices and values of one length")
    places = [context.fit(p, (n,)) for p in places]
    rows = [d.type.row(len(places)) for d in dests]
    arrays: list[Atom] = []
    fixed: list[Atom | None] = []
    for leaf, row in zip(leaves, rows):
        value = lift(leaf, what)
        if value.ndim and value.ndim == row.rank + 1:
            context.unify(value.type.shape[0], n, f"{what} takes indices and values of one length")
            arrays.append(to_type(leaf, row.array_of(n), f"a value of {what}"))
            fixed.append(None)
        else:
            fixed.append(broadcast_to(to_type(leaf, Type(row.elem), f"a value of {what}"), row.shape)
                         if not value.ndim else to_type(leaf, row, f"a value of {what}"))
    combine = operator(rows, structure) if operator is not None else None

    def body(*elements: Atom) -> list[Atom]:
        given = iter(elements[len(places):])
        at = [_as_place(e) for e in elements[:len(places)]]
        return at + [next(given) if v is None else v for v in fixed]
    lam = builder.make_lambda([x.type.row() for x in (*places, *arrays)], body)
    outs = builder.emit(Scatter(n, tuple(dests), len(places), combine, lam, (*places, *arrays)))   # type: ignore
    return tree.unflatten(structure, [Tracer(o) for o in outs])


def _as_place(i: Atom) -> Atom:
    """An index as i64; u64 beyond it is out of range, as it becomes negative."""
    return builder.convert(i, i64)


def scatter(dest: Any, indices: Any, values: Any) -> Any:
    """A copy of ``dest`` with ``out[indices[j]] = values[j]``; places outside are dropped, the last of equals stays.

    For two or more dimensions ``indices`` is a tuple of arrays."""
    return _write(dest, indices, values, "pa.scatter")


def reduce_by_index(dest: Any, op: Callable[..., Any], ne: Any, indices: Any, values: Any) -> Any:
    """A generalised histogram: ``out[indices[j]] = out[indices[j]] op values[j]``; places outside are dropped."""
    what = "pa.reduce_by_index"
    return _write(dest, indices, values, what, lambda types, structure: monoid(op, ne, types, structure, what))


# --- several arrays --------------------------------------------------------------------------------------------------

def zip_(*xs: Any) -> tuple[Any, ...]:
    """The array of tuples that a tuple of arrays of one length is."""
    leaves, structures, _ = inputs(xs, "pa.zip")
    return tuple(rebuild(structures, [Tracer(x) for x in leaves]))


def unzip(xs: Any) -> Any:
    """The tuple of arrays that an array of tuples is: itself, checked."""
    if not isinstance(xs, tuple):
        raise TypeMismatch(f"pa.unzip takes an array of tuples, that is a tuple of arrays, not {xs!r}", builder.here())
    return zip_(*xs)


def gather(xs: Any, indices: Any) -> Any:
    """``[xs[i] for i in indices]``."""
    context.current("pa.gather")
    return tree.map(lambda x: Tracer(array(x, "pa.gather"))[lift(indices, "pa.gather")], xs)


def assert_(condition: Any, message: str = "assertion failed", *values: Any) -> None:
    """A check at run time; ``{}`` in the message stand for ``values`` (scalars)."""
    ok = lift(condition, "pa.assert_")
    if ok.ndim or not ok.dtype.is_bool:
        raise TypeMismatch(f"pa.assert_ takes a truth value, not {ok!r}", builder.here())
    atoms = tuple(lift(v, "pa.assert_").atom for v in values)
    if any(a.type.rank for a in atoms):
        raise TypeMismatch("pa.assert_ shows scalars only", builder.here())
    try:
        message.format(*(a.type.elem.dtype.type(0) for a in atoms))
    except (IndexError, KeyError, ValueError) as e:
        raise TypeMismatch(f"pa.assert_: the message {message!r} does not go with {len(values)} values: {e}",
                           builder.here()) from None
    builder.emit(Assert(builder.convert(ok.atom, bool_), message, atoms, "AssertionFailed"))
