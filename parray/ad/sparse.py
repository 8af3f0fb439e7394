"""Cotangents of arrays that were only indexed: values with places instead of arrays full of zeros.

    Bar    ::= dense value?  Sparse ...
    Sparse ::= value [d0]..[dk-1] row,  Place ...     one place for each indexed dimension of the variable
    Place  ::= At index dims                          an i64 (array over some of the leading dimensions d0..dk-1)
             | Along dim start step                   start + step * (position along a leading dimension)

The cotangent is the sum over all positions p in d0 x .. x dk-1 of ``value[p]`` put at the places that belong to p;
places out of range are dropped.  ``x[i]`` gives a Sparse without leading dimensions; each map it is carried out of adds
one in front (`parray.ad.nested`); `densify` ends it with one operation: nothing at all where the places just count
along the dimensions, a gather where they are affine, a `Scatter` that adds otherwise.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Sequence

from parray import builder as b
from parray.ir import Atom, Const, Lambda, Var
from parray.soacs import Cond, Prim, Replicate, Reshape, Scatter, Transpose
from parray.soacs.scatter import in_range
from parray.types import SIZE, Type, i64

ZERO, ONE = Const(0, i64), Const(1, i64)


@dataclass(frozen=True)
class At:
    """Places given by data; ``dims`` are the leading dimensions that ``index`` has, ascending."""
    index: Atom
    dims: tuple[int, ...] = ()


@dataclass(frozen=True)
class Along:
    """Places that count along one leading dimension."""
    dim: int
    start: Atom = ZERO
    step: Atom = ONE


@dataclass(frozen=True)
class Sparse:
    """See the module; ``sizes`` are those of the leading dimensions."""
    value: Atom
    places: tuple[At | Along, ...]
    sizes: tuple[Any, ...] = ()

    def below(self, indices: Sequence[Atom]) -> Sparse:
        """The same cotangent of x where it was one of ``x[indices]``."""
        return replace(self, places=tuple(At(widen(i)) for i in indices) + self.places)

    def at(self, places: tuple[At | Along, ...]) -> Sparse:
        """The same values at other places."""
        return replace(self, places=places)

    def with_places(self, rank: int) -> Sparse:
        """The same with a place for each of ``rank`` dimensions."""
        k, more = len(self.sizes), rank - len(self.places)
        along = tuple(Along(k + d) for d in range(more))
        return Sparse(self.value, self.places + along, self.sizes + tuple(self.value.type.shape[k:k + more]))

    def sliced(self, starts: Sequence[Atom], steps: Sequence[Atom]) -> Sparse:
        """The same cotangent of x where it was one of ``x[start::step, ..]``."""
        full = self.with_places(len(starts))
        return full.at(tuple(map(_sliced, full.places, starts, steps)))

    def shifted(self, place: At | Along, by: int = 1) -> At | Along:
        """A place after ``by`` leading dimensions were put in front."""
        if isinstance(place, Along):
            return replace(place, dim=place.dim + by)
        return At(place.index, tuple(d + by for d in place.dims))


def _sliced(place: At | Along, start: Atom, step: Atom) -> At | Along:
    if start == ZERO and step == ONE:
        return place
    if isinstance(place, Along):
        return Along(place.dim, _affine(start, step, place.start), _affine(ZERO, step, place.step))
    return At(b.elementwise(lambda i: _affine(start, step, i), place.index), place.dims)


def _affine(start: Atom, step: Atom, i: Atom) -> Atom:
    """start + step * i, folded where it is constant."""
    i = _folded("mul", step, i, ONE)
    return _folded("add", start, i, ZERO)


def _folded(name: str, x: Atom, y: Atom, neutral: Const) -> Atom:
    if x == neutral:
        return y
    if y == neutral:
        return x
    if isinstance(x, Const) and isinstance(y, Const):
        return Prim.of(name, (x, y)).fold()
    return b.prim(name, x, y)


@dataclass
class Bar:
    """What is known of a variable's cotangent.  ``accumulator``: the dense value is one that a loop carries, to be
    updated in place."""
    dense: Atom | None = None
    sparse: list[Sparse] = field(default_factory=list)
    accumulator: bool = False


def add_dense(x: Atom | None, y: Atom) -> Atom:
    """The sum of two dense cotangents of which the first may be missing."""
    return y if x is None else b.elementwise(lambda p, q: b.prim("add", p, q), x, y)


def densify(bar: Bar, t: Type) -> Atom | None:
    """The cotangent of a variable of type ``t`` as one dense value, or None where it is zero."""
    dense = bar.dense
    for s in bar.sparse:
        if not s.places:
            dense = add_dense(dense, s.value)
        elif _gathers(s) and not bar.accumulator:
            dense = add_dense(dense, _gather(s, t))
        else:
            dense = _scatter(s, b.zeros(t) if dense is None else dense)
    return dense


def collapse(s: Sparse, shape: Sequence[Any]) -> Sparse:
    """Trailing places that run through their whole dimension become part of the value."""
    while s.places and _is_full(s, s.places[-1], shape[len(s.places) - 1]):
        last = s.places[-1]
        assert isinstance(last, Along)
        k, dim = len(s.sizes), last.dim
        value = s.value
        if dim != k - 1:
            order = [d for d in range(k) if d != dim] + [dim, *range(k, value.type.rank)]
            value = b.emit1(Transpose(value, tuple(order)))         # type: ignore[arg-type]
        places = tuple(_without(p, dim) for p in s.places[:-1])
        s = Sparse(value, places, s.sizes[:dim] + s.sizes[dim + 1:])
    return s


def _without(place: At | Along, dim: int) -> At | Along:
    """A place after a leading dimension it does not use is gone."""
    if isinstance(place, Along):
        return replace(place, dim=place.dim - (place.dim > dim))
    return At(place.index, tuple(d - (d > dim) for d in place.dims))


def _uses(place: At | Along, dim: int) -> bool:
    return place.dim == dim if isinstance(place, Along) else dim in place.dims


def _is_full(s: Sparse, place: At | Along, size: Any) -> bool:
    if not isinstance(place, Along) or place.start != ZERO or place.step != ONE:
        return False
    return b.same_size(s.sizes[place.dim], size) and not any(_uses(p, place.dim) for p in s.places if p is not place)


# --- affine places: each element of the result knows which value it gets --------------------------------------------

def _gathers(s: Sparse) -> bool:
    """Whether places invert: every leading dimension stands in exactly one Along, other places are single indices."""
    along = [p.dim for p in s.places if isinstance(p, Along)]
    return bool(along) and sorted(along) == list(range(len(s.sizes))) and all(
        isinstance(p, Along) or not p.dims for p in s.places)


def _gather(s: Sparse, t: Type) -> Atom:
    """\\i.. -> value[(i - start) / step ..] where that is in range, else 0."""
    row = t.row(len(s.places))

    def element(*at: Atom) -> Atom:
        checks: list[Atom] = []
        position: list[Any] = [None] * len(s.sizes)
        for place, i, size in zip(s.places, at, t.shape):
            if isinstance(place, At):
                checks.append(b.prim("eq", i, place.index))
            elif _is_full(s, place, size):
                position[place.dim] = i
            else:
                position[place.dim] = _position(place, i, s.sizes[place.dim], checks)
        read = b.make_lambda((), lambda: (b.index(s.value, *position, safe=True),))
        zero = b.make_lambda((), lambda: (b.zeros(row),))
        ok = checks[0]
        for check in checks[1:]:
            ok = b.prim("and", ok, check)
        return b.emit1(Cond(ok, read, zero))

    return tabulate(t.shape[:len(s.places)], element)


def _position(place: Along, i: Atom, size: Any, checks: list[Atom]) -> Atom:
    """Where along its dimension a place takes the value ``i``; what must hold for that is added to ``checks``."""
    q = i if place.start == ZERO else b.prim("sub", i, place.start)
    if place.step != ONE:
        exact = q
        q = b.prim("floordiv", exact, place.step)
        checks.append(b.prim("eq", b.prim("mul", q, place.step), exact))
    checks.append(in_range((q,), (size,)))
    return q


def tabulate(sizes: Sequence[Any], f: Any) -> Atom:
    """The array of ``f(i, j, ..)``."""
    if not sizes:
        return f()                                                  # type: ignore[no-any-return]
    return b.map1(lambda i: tabulate(sizes[1:], lambda *rest: f(i, *rest)), b.iota(sizes[0]))


# --- places given by data --------------------------------------------------------------------------------------------

def _scatter(s: Sparse, dest: Atom) -> Atom:
    """``dest`` with the values added at their places."""
    rank = len(s.places)
    op = b.sum_monoid(dest.type.row(rank))
    if not s.sizes:
        at = tuple(p.index for p in s.places if isinstance(p, At))
        return b.emit1(Scatter(1, (dest,), rank, op, Lambda((), (), at + (s.value,)), ()))  # type: ignore[arg-type]
    xs = [_flat(index_array(p, s.sizes), len(s.sizes)) for p in s.places] + [_flat(s.value, len(s.sizes))]
    return b.emit1(Scatter(xs[0].type.shape[0], (dest,), rank, op,      # type: ignore[arg-type]
                           b.identity_lambda(b.row_types(xs)), tuple(xs)))      # type: ignore[arg-type]


def _flat(x: Atom, k: int) -> Atom:
    """The first k dimensions made one."""
    if k == 1:
        return x
    shape = x.type.shape
    return b.emit1(Reshape(x, (b.size_product(shape[:k]),) + tuple(shape[k:])))        # type: ignore[arg-type]


def index_array(place: At | Along, sizes: Sequence[Any]) -> Atom:
    """A place's indices as an array over all leading dimensions."""
    if isinstance(place, Along):
        place = At(counted(place, sizes[place.dim]), (place.dim,))
    return _expand(place.index, place.dims, sizes, 0)


def counted(place: Along, size: Any) -> Var:
    """start + step * [0, 1, ..]"""
    positions = b.iota(size)
    if place.start == ZERO and place.step == ONE:
        return positions
    return b.map1(lambda i: b.prim("add", place.start, b.prim("mul", place.step, i)), positions)


def _expand(x: Atom, dims: tuple[int, ...], sizes: Sequence[Any], level: int) -> Atom:
    """``x``, which has the dimensions ``dims`` out of level.., repeated over the others."""
    if len(dims) == len(sizes) - level:
        return x
    if dims and dims[0] == level:
        return b.map1(lambda row: _expand(row, dims[1:], sizes, level + 1), x)
    return b.emit1(Replicate(sizes[level], _expand(x, dims, sizes, level + 1)))


def widen(index: Atom) -> Atom:
    """An index as i64."""
    return b.convert(index, i64) if index.type != SIZE else index
