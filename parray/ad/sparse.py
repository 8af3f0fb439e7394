"""Cotangents of arrays that were only indexed: values with places instead of arrays full of zeros.

    Bar    ::= dense value?  Sparse ...
    Sparse ::= value [d0]..[dk-1] row,  Place ...     one place for each indexed dimension of the variable

The cotangent is the sum over all positions p in d0 x .. x dk-1 of ``value[p]`` put at the places that belong to p
(`parray.ad.places`); places out of range are dropped.  ``x[i]`` gives a Sparse without leading dimensions; each map
it is carried out of adds one in front (`parray.ad.nested`).  `densify` ends it with one operation: nothing at all where
the places just count along the dimensions, a gather where they are Along, a `Scatter` that adds otherwise.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

from parray import builder as b
from parray.ad.places import ONE, ZERO, Along, At, Place, index_array, renumbered, sliced, uses, widen
from parray.ir import Atom, Lambda
from parray.soacs import Cond, Reshape, Scatter, Transpose
from parray.soacs.scatter import in_range
from parray.types import Type


@dataclass(frozen=True)
class Sparse:
    """See the module; ``sizes`` are those of the leading dimensions."""
    value: Atom
    places: tuple[Place, ...]
    sizes: tuple[Any, ...] = ()

    def below(self, indices: Sequence[Atom]) -> Sparse:
        """The same cotangent of x where it was one of ``x[indices]``."""
        return self.at(tuple(At(widen(i)) for i in indices) + self.places)

    def at(self, places: tuple[Place, ...]) -> Sparse:
        """The same values at other places."""
        return Sparse(self.value, places, self.sizes)

    def with_places(self, rank: int) -> Sparse:
        """The same with a place for each of ``rank`` dimensions."""
        k, more = len(self.sizes), rank - len(self.places)
        along = tuple(Along(((k + d, ONE),)) for d in range(more))
        return Sparse(self.value, self.places + along, self.sizes + tuple(self.value.type.shape[k:k + more]))

    def sliced(self, starts: Sequence[Atom], steps: Sequence[Atom]) -> Sparse:
        """The same cotangent of x where it was one of ``x[start::step, ..]``."""
        full = self.with_places(len(starts))
        return full.at(tuple(map(sliced, full.places, starts, steps)))


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
        k, (dim, _) = len(s.sizes), last.terms[0]
        value = s.value
        if dim != k - 1:
            order = [d for d in range(k) if d != dim] + [dim, *range(k, value.type.rank)]
            value = b.emit1(Transpose(value, tuple(order)))         # type: ignore[arg-type]
        places = tuple(renumbered(p, dim, -1) for p in s.places[:-1])
        s = Sparse(value, places, s.sizes[:dim] + s.sizes[dim + 1:])
    return s


def _is_full(s: Sparse, place: Place, size: Any) -> bool:
    if isinstance(place, At) or place.starts or len(place.terms) > 1:
        return False
    ((dim, step),) = place.terms
    only = not any(uses(p, dim) for p in s.places if p is not place)
    return step == ONE and only and b.same_size(s.sizes[dim], size)


# --- places along dimensions: each element of the result knows which values it gets --------------------------------

def _gathers(s: Sparse) -> bool:
    """Whether places invert: every leading dimension stands in one Along, other places are single indices."""
    along = [d for p in s.places if isinstance(p, Along) for d, _ in p.terms]
    return bool(along) and sorted(along) == list(range(len(s.sizes))) and all(
        isinstance(p, Along) or not p.dims for p in s.places)


def _gather(s: Sparse, t: Type) -> Atom:
    """\\i.. -> the sum over all positions but one of each place, which then is (i - start - others) / step, of the
    value there, or 0 where that is out of range."""
    row = t.row(len(s.places))
    others = [term for p in s.places if isinstance(p, Along) for term in p.terms[1:]]

    def element(at: Sequence[Atom], known: dict[int, Atom]) -> Atom:
        for dim, _ in others:
            if dim not in known:
                terms = b.map1(lambda p: element(at, known | {dim: p}), b.iota(s.sizes[dim]))
                return b.reduce_(b.sum_monoid(row), terms)[0]
        checks: list[Atom] = []
        position = dict(known)
        for place, i, size in zip(s.places, at, t.shape):
            if isinstance(place, At):
                checks.append(b.prim("eq", i, place.index))
            elif _is_full(s, place, size):
                position[place.terms[0][0]] = i
            else:
                _solve(place, i, s.sizes, position, checks)
        read = b.make_lambda((), lambda: (b.index(s.value, *(position[d] for d in range(len(s.sizes))), safe=True),))
        ok = checks[0]
        for check in checks[1:]:
            ok = b.prim("and", ok, check)
        return b.emit1(Cond(ok, read, b.make_lambda((), lambda: (b.zeros(row),))))

    return tabulate(t.shape[:len(s.places)], lambda *at: element(at, {}))


def _solve(place: Along, i: Atom, sizes: Sequence[Any], position: dict[int, Atom], checks: list[Atom]) -> None:
    """Find where along its first dimension a place takes the value ``i``; what must hold for it goes to ``checks``."""
    (dim, step), *others = place.terms
    q = i if place.start == ZERO else b.prim("sub", i, place.start)
    for d, s in others:
        q = b.prim("sub", q, position[d] if s == ONE else b.prim("mul", s, position[d]))
    if step != ONE:
        exact = q
        q = b.prim("floordiv", exact, step)
        checks.append(b.prim("eq", b.prim("mul", q, step), exact))
    checks.append(in_range((q,), (sizes[dim],)))
    position[dim] = q


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
