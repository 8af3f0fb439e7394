"""``update``: a changed copy of an array, a structure of arrays, or a record.

    update(xs, i, v)              xs[i] = v                update(xs, slice(1, None), v)    xs[1:] = v
    update(xs, (i, j), v)         xs[i, j] = v             update(p, ("w", 0), v)           p.w[0] = v
"""
from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from parray import builder, tree
from parray.errors import TypeMismatch
from parray.ir import Atom, Const, resolve, size_atom
from parray.soacs import Assert, Scatter, Update
from parray.trace import context
from parray.trace.combinators import destinations
from parray.trace.elementwise import broadcast_to, lift, to_type
from parray.trace.indexing import bounds, in_range, stepped, wrap
from parray.trace.tracer import Tracer
from parray.trace.views import reshape_atom
from parray.types import Type, i64


def update(xs: Any, index: Any, value: Any) -> Any:
    """A copy of ``xs`` with ``xs[index] = value``.

    ``index`` is an integer, a slice, or a tuple of these; names in front lead through the fields of records, dicts and
    named tuples.  Raises BoundsError where an integer is outside; slices are clipped as NumPy's.
    """
    context.current("pa.update")
    entries = list(index) if isinstance(index, (tuple, list)) else [index]
    if not entries:
        return value
    if isinstance(entries[0], str):
        return _with_field(xs, entries[0], update(_field(xs, entries[0]), entries[1:], value))
    dests, structure = destinations(xs, len(entries), "pa.update")
    leaves, found = tree.flatten(value)
    if found != structure and not (structure.size == found.size == 1):
        raise TypeMismatch(f"pa.update: the value is {found}, the array is {structure}", builder.here())
    change = _slices if any(isinstance(e, slice) for e in entries) else _element
    return tree.unflatten(structure, [Tracer(o) for o in change(dests, entries, leaves)])


# --- fields ----------------------------------------------------------------------------------------------------------

def _names(x: Any) -> Sequence[str]:
    if isinstance(x, dict):
        return list(x)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return [f.name for f in dataclasses.fields(x)]
    return getattr(x, "_fields", ())


def _field(x: Any, name: str) -> Any:
    if name not in _names(x):
        raise TypeMismatch(f"pa.update: there is no field {name!r}; there are {', '.join(_names(x)) or 'none'}",
                           builder.here())
    return x[name] if isinstance(x, dict) else getattr(x, name)


def _with_field(x: Any, name: str, value: Any) -> Any:
    if isinstance(x, dict):
        return {k: value if k == name else v for k, v in x.items()}
    return x._replace(**{name: value}) if hasattr(x, "_replace") else dataclasses.replace(x, **{name: value})


# --- elements --------------------------------------------------------------------------------------------------------

def _element(dests: Sequence[Atom], entries: Sequence[Any], leaves: Sequence[Any]) -> Sequence[Atom]:
    at = [_checked(lift(i, "pa.update"), n) for i, n in zip(entries, dests[0].type.shape)]
    values = []
    for leaf, d in zip(leaves, dests):
        row = d.type.row(len(at))
        scalar = not lift(leaf, "pa.update").ndim
        values.append(broadcast_to(to_type(leaf, Type(row.elem), "the value of pa.update"), row.shape) if scalar
                      else to_type(leaf, row, "the value of pa.update"))
    lam = builder.make_lambda((), lambda: [*at, *values])
    return builder.emit(Scatter(1, tuple(dests), len(at), None, lam, ()))            # type: ignore[arg-type]


def _checked(i: Tracer, n: Any) -> Atom:
    """An index with the wrap of negative ones, and a check at run time."""
    if i.ndim or not i.dtype.is_integer:
        raise TypeMismatch(f"pa.update takes integers and slices as index, not {i!r}", builder.here())
    n = resolve(n)
    at = wrap(i.atom, n)
    if not in_range(at, n):
        size = size_atom(n)
        ok = builder.prim("and", builder.prim("ge", at, Const(0, i64)), builder.prim("lt", at, size))
        builder.emit(Assert(ok, "index {} is out of bounds for a dimension of size {}",
                            (builder.convert(i.atom, i64), size), "BoundsError"))
    return at


# --- slices ----------------------------------------------------------------------------------------------------------

def _slices(dests: Sequence[Atom], entries: Sequence[Any], leaves: Sequence[Any]) -> list[Atom]:
    """Each array with the slices replaced; an integer is a slice of one."""
    starts: list[Atom] = []
    sizes: list[Any] = []
    steps: list[Any] = []
    for e, n in zip(entries, dests[0].type.shape):
        first, size, step = _span(e, resolve(n)) if isinstance(e, slice) else (_checked(lift(e, "pa.update"), n), 1, 1)
        starts.append(size_atom(first))
        sizes.append(size)
        steps.append(step)
    kept = [n for n, e in zip(sizes, entries) if isinstance(e, slice)]
    return [_sliced(d, starts, sizes, steps, kept, leaf) for d, leaf in zip(dests, leaves)]


def _sliced(d: Atom, starts: list[Atom], sizes: list[Any], steps: list[Any], kept: list[Any], leaf: Any) -> Atom:
    row = d.type.row(len(starts))
    whole = (*kept, *row.shape)
    value = to_type(leaf, Type(row.elem, lift(leaf, "pa.update").type.shape), "the value of pa.update")
    if value.type.rank > len(whole):
        raise TypeMismatch(f"pa.update: a value of {value.type.rank} dimensions for {len(whole)}", builder.here())
    for n, size in zip(reversed(value.type.shape), reversed(whole)):
        if resolve(n) != 1:
            context.unify(n, size, "the value of pa.update has the size of the slice")
    value = reshape_atom(broadcast_to(value, whole), (*sizes, *row.shape))
    starts, steps = starts + [Const(0, i64)] * row.rank, steps + [1] * row.rank
    return builder.emit1(Update(d, value, tuple(starts), tuple(steps)))              # type: ignore[arg-type]


def _span(s: slice, n: Any) -> tuple[Any, Any, Any]:
    """First place, number and step of a slice's elements."""
    if isinstance(s.step, Tracer):
        return stepped(s, n)
    first, size, step = bounds(s, n)
    return first, resolve(size), step
