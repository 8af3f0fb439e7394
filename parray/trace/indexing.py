"""``x[...]`` as NumPy has it: integers, slices, ``...``, None and integer arrays.

    x[1:, ::2]   one Slice                        x[:, j]    Transpose, then Index of the leading dimension
    x[i, j]      one Index                        x[is, js]  a map of Index over the broadcast index arrays

A negative index counts from the end: the wrap is a select, left out where the index is known not to be negative.
Indices of narrow types become i64 first.  Slices are clipped, and their sizes are in one canonical form, so that
``x[1:]`` and ``x[:-1]`` have one size.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np

from parray import builder
from parray.errors import BoundsError, TraceError, TypeMismatch
from parray.ir import Atom, Const, Var, as_size, resolve, size_atom
from parray.soacs import Assert, Slice
from parray.trace import context
from parray.trace.elementwise import broadcast_shapes, broadcast_to, is_array_like, lift, note_element
from parray.trace.tracer import Tracer
from parray.trace.views import permute, reshape_atom
from parray.types import bool_, i64, u64


_FAR = 2**62                                                 # beyond every array; sums with a size fit i64


@dataclass
class _Key:
    """An index taken apart: what happens to each dimension of the array."""
    slices: dict[int, slice] = field(default_factory=dict)
    scalars: dict[int, Atom] = field(default_factory=dict)
    arrays: dict[int, Tracer] = field(default_factory=dict)
    layout: list[Any] = field(default_factory=list)         # result: dimensions of x, None, "arrays" in NumPy's place


def getitem(x: Tracer, index: Any) -> Any:
    """``x[index]``."""
    if isinstance(index, list):
        index = np.asarray(index)
    if isinstance(index, (Tracer, np.ndarray)) and index.dtype in (bool_, np.bool_) and index.ndim == 1:
        from parray.trace.irregular import compact
        mask = lift(index, "an index")
        context.unify(mask.type.shape[0], x.type.shape[0] if x.ndim else 0, "a boolean index has an entry for each row")
        return compact(mask, x)
    entries = index if isinstance(index, tuple) else (index,)
    if any(isinstance(e, slice) and isinstance(e.step, Tracer) for e in entries):
        return _with_traced_steps(x, entries)
    key = _parse(x, entries)
    a = _slice(x.atom, key.slices)
    fixed = sorted([*key.scalars, *key.arrays])
    rest = [d for d in range(x.ndim) if d not in fixed]
    if fixed:
        a = permute(a, fixed + rest)
        if key.arrays:
            a = _gather(a, [key.arrays[d] if d in key.arrays else key.scalars[d] for d in fixed])
        else:
            a = builder.index(a, *(key.scalars[d] for d in fixed),
                              safe=_in_range([key.scalars[d] for d in fixed], a))
    return Tracer(_arrange(a, key, rest))


def _arrange(a: Atom, key: _Key, rest: list[int]) -> Atom:
    """Put the dimensions (those of the index arrays come first in ``a``) into NumPy's places, with new 1s."""
    if not key.arrays and None not in key.layout:
        return a
    gathered = a.type.rank - len(rest)
    place = {d: gathered + k for k, d in enumerate(rest)}
    order: list[Any] = []
    for entry in key.layout:
        order += list(range(gathered)) if entry == "arrays" else [None if entry is None else place[entry]]
    a = permute(a, [k for k in order if k is not None])
    dims = iter(a.type.shape)
    return reshape_atom(a, tuple(1 if k is None else next(dims) for k in order))


# --- taking the index apart ------------------------------------------------------------------------------------------

def _parse(x: Tracer, index: tuple[Any, ...]) -> _Key:
    count = sum(e is not None and e is not Ellipsis for e in index)
    if count > x.ndim:
        raise TypeMismatch(f"{count} indices for {x!r}", builder.here())
    if sum(e is Ellipsis for e in index) > 1:
        raise TypeMismatch("an index can have one `...`", builder.here())
    if not any(e is Ellipsis for e in index):
        index = (*index, Ellipsis)
    key, d, advanced = _Key(), 0, []
    for e in index:
        if e is Ellipsis:
            key.layout += list(range(d, d + x.ndim - count))
            d += x.ndim - count
        elif e is None:
            key.layout.append(None)
        elif isinstance(e, slice):
            key.slices[d] = e
            key.layout.append(d)
            d += 1
        else:
            advanced.append(len(key.layout))
            key.layout.append(("index", d))
            _scalar_or_array(x, e, d, key)
            d += 1
    _place_arrays(key, advanced)
    return key


def _place_arrays(key: _Key, advanced: list[int]) -> None:
    """Where the dimensions of index arrays stand: in place if the indices are adjacent, else in front."""
    first = None
    if key.arrays:
        adjacent = advanced == list(range(advanced[0], advanced[0] + len(advanced)))
        first = advanced[0] if adjacent else None
    layout: list[Any] = [] if first is not None or not key.arrays else ["arrays"]
    for k, entry in enumerate(key.layout):
        if k == first:
            layout.append("arrays")
        if not isinstance(entry, tuple):
            layout.append(entry)
    key.layout = layout


def _scalar_or_array(x: Tracer, e: Any, d: int, key: _Key) -> None:
    n = resolve(x.type.shape[d])
    if isinstance(e, (list, tuple)):
        e = np.asarray(e)
    if isinstance(e, bool) or getattr(e, "dtype", None) in (np.bool_,) or isinstance(e, Tracer) and e.dtype.is_bool:
        raise TraceError("a boolean index has one dimension and goes alone, as x[mask]; pa.where(mask, x, 0) keeps "
                         "the size", builder.here())
    if isinstance(e, np.ndarray) and e.ndim == 0:
        e = e[()]
    if isinstance(e, np.ndarray) and e.size == 0 and e.dtype.kind == "f":
        e = e.astype(np.int64)                                       # np.asarray([]) is of floats
    if not isinstance(e, (Tracer, np.ndarray)) and hasattr(e, "__index__") and not is_array_like(e):
        e = int(e)
    elif isinstance(e, np.integer):
        e = int(e)
    if isinstance(e, int):
        key.scalars[d] = _constant_index(e, n)
        return
    at = lift(e, "an index")
    if not at.dtype.is_integer:
        raise TypeMismatch(f"an index is an integer, a slice or an integer array, not {e if at.weak else at!r}",
                           builder.here())
    if at.ndim:
        key.arrays[d] = at
    else:
        key.scalars[d] = wrap(at.atom, n)


def _constant_index(i: int, n: Any) -> Atom:
    if isinstance(n, int):
        if not -n <= i < n:
            raise BoundsError(f"index {i} is out of bounds for a dimension of size {n}", builder.here())
        return Const(i % n, i64)
    if not -_FAR <= i <= _FAR:
        raise BoundsError(f"index {i} is out of bounds for every array", builder.here())
    return Const(i, i64) if i >= 0 else size_atom(builder.size_add(n, i))


def wrap(i: Atom, n: Any) -> Atom:
    """A scalar index as i64, counted from the end where it is negative."""
    unsigned = i.type.elem.kind == "u"
    if i.type.elem == u64:                                                           # stays outside as an i64
        i = builder.prim("min", i, Const(np.uint64(2**63 - 1), u64))
    i = builder.convert(i, i64)
    if isinstance(i, Const):
        return size_atom(builder.size_add(n, int(i.value))) if i.value < 0 and not unsigned else i
    if unsigned or context.is_nonneg(i):
        return i
    at_end = builder.prim("add", i, size_atom(n))
    return builder.select(builder.prim("lt", i, Const(0, i64)), at_end, i)


def _in_range(at: Sequence[Atom], x: Atom) -> bool:
    """Whether every index is known to be in range."""
    return all(in_range(i, n) for i, n in zip(at, x.type.shape))


def in_range(i: Atom, n: Any) -> bool:
    """Whether an i64 index is known to be at least 0 and below the size ``n``."""
    n = resolve(n)
    if isinstance(i, Const):
        return isinstance(n, int) and bool(0 <= i.value < n)
    below = context.current().below
    return context.is_nonneg(i) and i in below and builder.same_size(below[i], n)


def _gather(x: Atom, at: list[Any]) -> Atom:
    """Rows of ``x`` at places given by arrays (and scalars) for its leading dimensions."""
    sizes = x.type.shape[:len(at)]
    places = [a.atom if isinstance(a, Tracer) else a for a in at]
    shape = broadcast_shapes([a.type.shape for a in places], "an index")

    def rows(indices: list[Atom], shape: tuple[Any, ...]) -> Atom:
        if not shape:
            wrapped = [wrap(i, n) for i, n in zip(indices, sizes)]
            return builder.index(x, *wrapped, safe=_in_range(wrapped, x))
        indices = [broadcast_to(i, shape) if i.type.rank else i for i in indices]
        mapped = [k for k, i in enumerate(indices) if i.type.rank]

        def body(*elements: Atom) -> Atom:
            inner = list(indices)
            for k, e in zip(mapped, elements):
                note_element(indices[k], e)
                inner[k] = e
            return rows(inner, shape[1:])
        return builder.map1(body, *(indices[k] for k in mapped), n=shape[0])
    return rows(places, shape)


# --- slices ----------------------------------------------------------------------------------------------------------

def _slice(x: Atom, slices: dict[int, slice]) -> Atom:
    starts: list[Atom] = []
    sizes: list[Any] = []
    steps: list[int] = []
    for d, n in enumerate(x.type.shape):
        start, size, step = bounds(slices.get(d, slice(None)), resolve(n))
        starts.append(size_atom(start))
        sizes.append(size)
        steps.append(step)
    plain = all(isinstance(s, Const) and s.value == 0 and k == 1 and size == resolve(n)
                for s, size, k, n in zip(starts, sizes, steps, x.type.shape))
    if plain:
        return x
    return builder.emit1(Slice(x, tuple(starts), tuple(sizes), tuple(steps)))        # type: ignore[arg-type]


def bounds(s: slice, n: Any) -> tuple[Any, Any, int]:
    """Start, number and step of the elements that a slice of a dimension of size ``n`` has."""
    step = 1 if s.step is None else _slice_entry(s.step, "step")
    if not isinstance(step, int):
        raise TraceError("the step of a slice must be a Python integer", builder.here())
    if step == 0:
        raise TypeMismatch("the step of a slice cannot be 0", builder.here())
    start, stop = (None if e is None else _slice_entry(e, "bound") for e in (s.start, s.stop))
    if isinstance(n, int) and all(e is None or isinstance(e, int) for e in (start, stop)):
        known = range(n)[slice(start, stop, step)]
        return (known.start if len(known) else 0), len(known), step
    if step > 0:
        first, length = _ahead(start, stop, n)
    else:
        first, length = _back(start, stop, n)
    return first, _steps(length, abs(step)), step


def _slice_entry(e: Any, what: str) -> Any:
    """A slice's entry as a size."""
    if isinstance(e, Tracer):
        if not e.dtype.is_integer or e.ndim:
            raise TypeMismatch(f"a slice's {what} is an integer, not {e!r}", builder.here())
        return as_size(builder.convert(e.atom, i64))
    if hasattr(e, "__index__"):
        return max(-_FAR, min(int(e), _FAR))
    raise TypeMismatch(f"a slice's {what} is an integer, not {e!r}", builder.here())


def _steps(length: Any, step: int) -> Any:
    """``ceil(length / step)``."""
    if step == 1:
        return length
    out = builder.size_prim("floordiv", builder.size_add(length, step - 1), step)
    if isinstance(out, Var):
        context.current().nonneg.add(out)
    return out


def _clip(e: Any, n: Any) -> Any:
    """A bound of a slice as a place from 0 to n."""
    if isinstance(e, int):
        return context.smaller(n, e) if e >= 0 else context.at_least_zero(builder.size_add(n, e))
    if context.is_nonneg(e):
        return e if _is_part(e, n) else context.smaller(n, e)
    backwards = _backwards(e)
    if backwards is not None:                                        # as -k is for a size k
        return context.at_least_zero(builder.size_sub(n, backwards))
    negative = builder.prim("lt", size_atom(e), Const(0, i64))
    wrapped = builder.select(negative, builder.prim("add", size_atom(e), size_atom(n)), size_atom(e))
    return context.smaller(n, context.at_least_zero(as_size(wrapped)))


def _is_part(size: Any, n: Any) -> bool:
    return context.is_nonneg(builder.size_sub(n, size))


def _backwards(e: Any) -> Any:
    """``k`` where ``e`` is ``-k`` for a size k, else None."""
    poly = builder._poly(e)
    negated = builder.size_sub(0, e)
    return negated if all(c < 0 for c in poly.values()) and context.is_nonneg(negated) else None


def _ahead(start: Any, stop: Any, n: Any) -> tuple[Any, Any]:
    """First place and number of places of ``start:stop``; constants give canonical sizes."""
    if start is None or isinstance(start, int) and start >= 0:
        first: Any = start or 0
        end = n if stop is None else _clip(stop, n)
        return first, context.at_least_zero(builder.size_sub(end, first))
    if isinstance(start, int) and stop is None:
        return context.at_least_zero(builder.size_add(n, start)), context.smaller(n, -start)
    first = _clip(start, n)
    end = n if stop is None else _clip(stop, n)
    length = builder.size_sub(end, first)
    if stop is None or _is_part(first, end):
        if isinstance(length, Var):
            context.current().nonneg.add(length)
        return first, length
    return first, context.at_least_zero(length)


def _back(start: Any, stop: Any, n: Any) -> tuple[Any, Any]:
    """The same for a negative step: places from ``start`` down to ``stop``, which is excluded."""
    last = builder.size_sub(n, 1)
    first = last if start is None else _clip_back(start, n, last)
    if stop is None:
        length = builder.size_add(first, 1)
    else:
        length = builder.size_sub(first, _clip_back(stop, n, last))
    return first, context.at_least_zero(length)


def _clip_back(e: Any, n: Any, last: Any) -> Any:
    """A bound of a backward slice as a place from -1 to n - 1."""
    if isinstance(e, int):
        return builder.size_prim("min", e, last) if e >= 0 else builder.size_prim("max", builder.size_add(n, e), -1)
    negative = builder.prim("lt", size_atom(e), Const(0, i64))
    at = as_size(builder.select(negative, builder.prim("add", size_atom(e), size_atom(n)), size_atom(e)))
    return builder.size_prim("max", builder.size_prim("min", at, last), -1)


# --- steps that are known at run time --------------------------------------------------------------------------------

def _with_traced_steps(x: Tracer, entries: tuple[Any, ...]) -> Any:
    """``x[a:b:s]`` for a traced ``s``, dimension by dimension."""
    if any(e is None or e is Ellipsis for e in entries):
        raise TraceError("a slice with a traced step goes with integers and other slices only", builder.here())
    for d, e in enumerate(entries):
        if isinstance(e, slice) and isinstance(e.step, Tracer):
            first, size, step = stepped(e, resolve(x.type.shape[d]))
            sizes = list(x.type.shape)
            sizes[d] = size
            starts = tuple(size_atom(first) if k == d else Const(0, i64) for k in range(x.ndim))
            steps = tuple(step if k == d else 1 for k in range(x.ndim))
            x = Tracer(builder.emit1(Slice(x.atom, starts, tuple(sizes), steps)))    # type: ignore[arg-type]
    return getitem(x, tuple(slice(None) if isinstance(e, slice) and isinstance(e.step, Tracer) else e for e in entries))


def stepped(s: slice, n: Any) -> tuple[Any, Any, Any]:
    """First place, number and step of the elements of a slice whose step is known at run time."""
    step = size_atom(_slice_entry(s.step, "step"))
    zero, one, size = Const(0, i64), Const(1, i64), size_atom(n)
    builder.emit(Assert(builder.prim("ne", step, zero), "the step of a slice cannot be 0", (), "TypeMismatch"))
    back = builder.prim("lt", step, zero)
    low = builder.select(back, Const(-1, i64), zero)
    high = builder.select(back, builder.prim("sub", size, one), size)

    def place(e: Any, default: Atom) -> Atom:
        if e is None:
            return default
        at = size_atom(_slice_entry(e, "bound"))
        at = builder.select(builder.prim("lt", at, zero), builder.prim("add", at, size), at)
        return builder.prim("min", builder.prim("max", at, low), high)
    start = place(s.start, builder.select(back, high, low))
    stop = place(s.stop, builder.select(back, low, high))
    span = builder.select(back, builder.prim("sub", start, stop), builder.prim("sub", stop, start))
    stride = builder.prim("max", builder.prim("abs", step), one)
    count = builder.prim("floordiv", builder.prim("sub", builder.prim("add", span, stride), one), stride)
    return as_size(start), context.at_least_zero(as_size(count)), as_size(step)
