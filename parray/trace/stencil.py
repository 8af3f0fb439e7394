"""``stencil``: a function of each element's neighbours.

The array is extended once on every side that some offset reaches over; the neighbours are then slices of it, which are
views, so the work is one loop along memory.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from parray import builder, tree
from parray.errors import TypeMismatch
from parray.ir import Atom, resolve, size_atom
from parray.trace import context
from parray.trace.combinators import call, map
from parray.trace.elementwise import lift, to_type
from parray.trace.tracer import Tracer
from parray.trace.views import concat_atoms, permute, slice_at, static_int
from parray.types import Type


def stencil(f: Callable[..., Any], offsets: Sequence[Any], xs: Any, boundary: Any = "edge") -> Any:
    """``out[i] = f(xs[i + o] for o in offsets)``: ``f`` takes one argument for each offset.

    An offset is an integer for the first dimension, or a tuple of them for as many leading dimensions.  Beyond the
    array is what ``boundary`` says: ``"edge"`` the nearest element, ``"wrap"`` the other end, or a value.
    """
    context.current("pa.stencil")
    places = [tuple(static_int(e, "an offset of pa.stencil") for e in (o if isinstance(o, tuple) else (o,)))
              for o in offsets]
    if not places or len({len(p) for p in places}) != 1:
        raise TypeMismatch("pa.stencil takes one or more offsets, all integers or all tuples of one length",
                           builder.here())
    if isinstance(boundary, str) and boundary not in ("edge", "wrap"):
        raise TypeMismatch(f'pa.stencil: boundary is "edge", "wrap" or a value, not {boundary!r}', builder.here())
    rank = len(places[0])
    low = [max(0, *(-p[d] for p in places)) if places else 0 for d in range(rank)]
    high = [max(0, *(p[d] for p in places)) for d in range(rank)]

    def shifted(x: Any) -> list[Tracer]:
        t = lift(x, "pa.stencil")
        if t.ndim < rank:
            raise TypeMismatch(f"pa.stencil: offsets of {rank} dimensions for {t!r}", builder.here())
        sizes = t.type.shape[:rank]
        a = t.atom
        for d in range(rank):
            a = _extended(a, d, low[d], high[d], boundary)
        out = []
        for p in places:
            view = a
            for d in range(rank):
                if low[d] or high[d]:
                    view = slice_at(view, d, low[d] + p[d], resolve(sizes[d]))
            out.append(Tracer(view))
        return out
    leaves, structure = tree.flatten(xs)
    columns = [shifted(x) for x in leaves]
    neighbours = [tree.unflatten(structure, [c[k] for c in columns]) for k in range(len(places))]

    def nested(depth: int, *args: Any) -> Any:
        return map(lambda *es: nested(depth - 1, *es), *args) if depth else call(f, *args)
    return nested(rank, *neighbours)


def _extended(x: Atom, axis: int, low: int, high: int, boundary: Any) -> Atom:
    """``x`` with ``low`` more elements in front and ``high`` behind along an axis."""
    if not low and not high:
        return x
    order = [axis, *(k for k in range(x.type.rank) if k != axis)]
    moved = permute(x, order)
    n = resolve(moved.type.shape[0])
    if isinstance(boundary, str):
        total = context.at_least_zero(builder.size_prim("select", builder.size_prim("gt", n, 0),
                                                        builder.size_add(n, low + high), 0))

        def place(i: Atom) -> Atom:
            at = builder.prim("sub", i, builder.const(low, i.type.elem))
            size = size_atom(n)
            if boundary == "wrap":
                return builder.prim("mod", at, builder.prim("max", size, builder.const(1, i.type.elem)))
            last = builder.prim("sub", size, builder.const(1, i.type.elem))
            return builder.prim("max", builder.prim("min", at, last), builder.const(0, i.type.elem))
        out: Atom = builder.map1(lambda i: builder.index(moved, place(i), safe=True), builder.iota(total))
    else:
        row = moved.type.row()
        value = to_type(boundary, Type(row.elem), "the boundary of pa.stencil")

        def ends(count: int) -> Tracer:
            from parray.trace.elementwise import broadcast_to
            return Tracer(broadcast_to(value, (count, *row.shape)))
        out = concat_atoms([ends(low), Tracer(moved), ends(high)])
    return permute(out, [order.index(k) for k in range(x.type.rank)])
