"""Places: which elements of an array a sparse cotangent belongs to (`parray.ad.sparse`).

    Place ::= At index dims         given by data: an i64 array over some of the leading dimensions
            | Along starts terms    starts + sum of step * (position along a leading dimension)

``x[i + d]`` in a map over i around a map over d is Along: the cotangent of x is then a sum of shifted values, which
needs no scatter.  `line` finds out how an index depends on the index of the map that it is in.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from parray import builder as b
from parray.ir import Atom, Const, Var
from parray.soacs import Iota, Prim, Replicate
from parray.types import SIZE, i64

if TYPE_CHECKING:
    from parray.ad.reverse import Reverse

ZERO, ONE = Const(0, i64), Const(1, i64)


@dataclass(frozen=True)
class At:
    """Places given by data; ``dims`` are the leading dimensions that ``index`` has, ascending."""
    index: Atom
    dims: tuple[int, ...] = ()


@dataclass(frozen=True)
class Along:
    """Places that count along leading dimensions, each (dimension, step)."""
    terms: tuple[tuple[int, Atom], ...]
    starts: tuple[Atom, ...] = ()

    @property
    def start(self) -> Atom:
        """The sum of the starts."""
        total: Atom = ZERO
        for s in self.starts:
            total = folded("add", total, s, ZERO)
        return total


Place = At | Along


def folded(name: str, x: Atom, y: Atom, neutral: Const | None = None) -> Atom:
    """A primitive on indices, folded where it is constant."""
    if x == neutral:
        return y
    if y == neutral:
        return x
    if isinstance(x, Const) and isinstance(y, Const):
        return Prim.of(name, (x, y)).fold()
    return b.prim(name, x, y)


def uses(place: Place, dim: int) -> bool:
    """Whether a place depends on the position along a leading dimension."""
    return dim in place.dims if isinstance(place, At) else any(d == dim for d, _ in place.terms)


def renumbered(place: Place, first: int, by: int) -> Place:
    """A place after the leading dimensions from ``first`` on got other numbers."""
    def new(d: int) -> int:
        return d + by if d >= first else d
    if isinstance(place, At):
        return At(place.index, tuple(map(new, place.dims)))
    return Along(tuple((new(d), step) for d, step in place.terms), place.starts)


def sliced(place: Place, start: Atom, step: Atom) -> Place:
    """start + step * place"""
    if start == ZERO and step == ONE:
        return place
    if isinstance(place, Along):
        terms = tuple((d, folded("mul", step, s, ONE)) for d, s in place.terms)
        starts = tuple(folded("mul", step, s, ONE) for s in place.starts)
        return Along(terms, starts if start == ZERO else (*starts, start))
    return At(b.elementwise(lambda i: folded("add", start, folded("mul", step, i, ONE), ZERO), place.index), place.dims)


def depends(child: Reverse, place: Place) -> bool:
    """Whether a place differs between the runs of the lambda that ``child`` is for."""
    if isinstance(place, At):
        return child.is_local(place.index)
    return any(d < 0 for d, _ in place.terms) or any(map(child.is_local, (*place.starts, *(s for _, s in place.terms))))


# --- places as arrays ------------------------------------------------------------------------------------------------

def as_at(place: Place, sizes: Sequence[Any]) -> At:
    """The place as data."""
    if isinstance(place, At):
        return place
    dims = tuple(sorted(d for d, _ in place.terms))
    steps, start = dict(place.terms), place.start

    def array(rest: tuple[int, ...], index: Atom) -> Atom:
        if not rest:
            return index
        positions = b.iota(sizes[rest[0]])
        if index == ZERO and len(rest) == 1 and steps[rest[0]] == ONE:
            return positions
        return b.map1(lambda i: array(rest[1:], folded("add", index, folded("mul", steps[rest[0]], i, ONE), ZERO)),
                      positions)

    return At(array(dims, start), dims)


def index_array(place: Place, sizes: Sequence[Any]) -> Atom:
    """A place's indices as an array over all leading dimensions."""
    at = as_at(place, sizes)
    return _expand(at.index, at.dims, sizes, 0)


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


# --- how an index depends on a map's own index -----------------------------------------------------------------------

def line(child: Reverse, a: Any) -> tuple[tuple[Atom, ...], Atom] | None:
    """(starts, step) of an index that is starts + step * (the index of the map or loop ``child`` is for), or None."""
    if a in child.counters:
        return (), ONE
    match child.producer(a, child.scope):
        case Prim("add", (x, y)):
            return _moved(child, x, y) or _moved(child, y, x)
        case Prim("sub", (x, y)) if isinstance(y, Const):
            return _moved(child, x, Const(-y.value, i64))
        case Prim("sub", (x, y)) if not child.is_local(x):
            return _moved_line(_scaled(child, y, Const(-1, i64)), x)
        case Prim("mul", (x, y)):
            return _scaled(child, x, y) or _scaled(child, y, x)
        case Prim("select", (test, _, x)):                          # a negative index counts from the end
            match child.producer(test, child.scope):
                case Prim("lt", (z, Const(value=0))) if z is x and nonnegative(child, x):
                    return line(child, x)
    return None


def _moved(child: Reverse, x: Any, by: Atom) -> tuple[tuple[Atom, ...], Atom] | None:
    return None if child.is_local(by) else _moved_line(line(child, x), by)


def _moved_line(found: tuple[tuple[Atom, ...], Atom] | None, by: Atom) -> tuple[tuple[Atom, ...], Atom] | None:
    return None if found is None else ((*found[0], by), found[1])


def _scaled(child: Reverse, x: Any, by: Atom) -> tuple[tuple[Atom, ...], Atom] | None:
    found = None if child.is_local(by) else line(child, x)
    if found is None or not all(isinstance(a, Const) for a in (*found[0], found[1])):
        return None
    starts, step = found
    if isinstance(by, Const):
        return tuple(folded("mul", s, by) for s in starts), folded("mul", step, by)
    return ((), by) if not starts and step == ONE else None


def nonnegative(ad: Reverse, a: Any) -> bool:
    """Whether an index is known not to be negative: built from counters of maps and loops."""
    if isinstance(a, Const):
        return bool(a.value >= 0)
    if any(a in scope.counters for scope in ad.chain()):
        return True
    for op in producers(ad, a):
        match op:
            case Prim("add" | "mul" | "min", (x, y)):
                return nonnegative(ad, x) and nonnegative(ad, y)
            case Prim("max", (x, y)):
                return nonnegative(ad, x) or nonnegative(ad, y)
            case Prim("select", (_, x, y)):
                return nonnegative(ad, x) and nonnegative(ad, y)
    return False


def producers(ad: Reverse, a: Any) -> Iterator[Any]:
    """The operation that gives a variable, wherever in sight it stands."""
    for scope in ad.chain():
        yield scope.producer(a, scope.scope)
    for outer in b.current().chain():
        yield ad.producer(a, outer)


def counts(ad: Reverse, x: Var) -> bool:
    """Whether an array is 0, 1, 2 .."""
    return any(isinstance(op, Iota) and op.elem == i64 for op in producers(ad, x))
