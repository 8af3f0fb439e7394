"""Reverse mode of nested lambdas: how cotangents get out of maps, branches and loops.

A map's lambda gives cotangents of its parameters (map outputs) and of what it captures.  The latter are summed by a
reduction where they are dense; where they are sparse (`parray.ad.sparse`) values and places become map outputs, and
nothing is added up before the cotangent is needed.  A branch gives what the other branch gives as well, zeros or places
that are dropped.  Loops are in `parray.ad.loops`.

Operations' `vjp` rules call these as methods of the engine, `parray.ad.reverse.Reverse`.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

from parray import builder as b
from parray.ad import sparse
from parray.ad.places import ONE, Along, At, Place, as_at, counts, depends, line, renumbered
from parray.ad.sparse import Bar, Sparse
from parray.builder import Scope
from parray.ir import Atom, Lambda, Var, free_vars, prune
from parray.soacs import Cond, Screma

if TYPE_CHECKING:
    from parray.ad.reverse import Reverse


def close(params: Sequence[Var], scope: Scope, results: Sequence[Atom]) -> Lambda:
    """The lambda built in a scope, without dead statements."""
    return Lambda(tuple(params), prune(scope.stms, results), tuple(results))


@contextmanager
def appended(scope: Scope) -> Iterator[None]:
    """Emit at the end of a scope that was closed before."""
    with b.scope() as extra:
        yield
    scope.stms.extend(extra.stms)


class Ports:
    """Outputs of a map that is being built: those summed and those kept."""

    def __init__(self) -> None:
        self.sums: list[Atom] = []
        self.maps: list[Atom] = []
        self.outs: tuple[Var, ...] = ()
        self.then: list[Callable[[], None]] = []

    def sum(self, a: Atom) -> Callable[[], Atom]:
        self.sums.append(a)
        k = len(self.sums) - 1
        return lambda: self.outs[k]

    def map(self, a: Atom) -> Callable[[], Atom]:
        self.maps.append(a)
        k = len(self.maps) - 1
        return lambda: self.outs[len(self.sums) + k]

    def emit(self, n: Any, xs: Sequence[Any], params: Sequence[Var], scope: Scope) -> None:
        """Emit the map and do what its outputs were asked for."""
        if self.sums or self.maps:
            lam = close(params, scope, self.sums + self.maps)
            used = free_vars(Lambda((), lam.stms, lam.results))
            keep = [k for k, p in enumerate(params) if p in used]
            lam = Lambda(tuple(params[k] for k in keep), lam.stms, lam.results)
            reds = tuple(b.sum_monoid(a.type) for a in self.sums)
            self.outs = b.emit(Screma(n, tuple(xs[k] for k in keep), lam, (), reds))
        for action in self.then:
            action()


# --- maps --------------------------------------------------------------------------------------------------------


def map_back(ad: Reverse, n: Any, xs: Sequence[Var], lam: Lambda,
             bars: Sequence[Atom | None]) -> None:
    """Add the cotangents of ``map lam xs``."""
    params = [Var(x.type.row()) for x in xs]
    rows: list[Atom | None] = []
    inputs: list[Any] = list(xs)
    for bar in bars:
        if bar is None or bar in ad.replicated:
            rows.append(None if bar is None else ad.replicated[bar])
        else:
            rows.append(Var(bar.type.row()))
            inputs.append(bar)
    all_params = params + [r for bar, r in zip(bars, rows) if isinstance(r, Var) and bar not in ad.replicated]
    ports = Ports()
    with b.scope() as s:
        child = ad.child(s, all_params)
        child.in_map = True
        child.counters.update(p for p, x in zip(params, xs) if counts(ad, x))
        child.active.update(p for p, x in zip(params, xs) if ad.is_active(x))
        child.replay(lam, params, rows)
        for p, x in zip(params, xs):
            _param_out(ad, child, p, x, n, ports)
        for v in list(child.bars):
            _captured_out(ad, child, v, n, ports)
    ports.emit(n, inputs, all_params, s)


def _param_out(ad: Reverse, child: Reverse, p: Var, x: Var, n: Any, ports: Ports) -> None:
    """The cotangent of a map's element becomes that of its array."""
    bar = child.bars.get(p)
    if bar and bar.dense is None and bar.sparse and not any(
            child.is_local(size) for s in bar.sparse for size in s.sizes):
        for s in child.bars.pop(p).sparse:
            _cross(ad, child, x, Sparse(s.value, (Along(((-1, ONE),)),) + s.places, s.sizes), n, ports)
        return
    row = child.take(p)
    if row is None:
        return
    if row in ad.replicated and not child.is_local(ad.replicated[row]):
        size, inner = row.type.shape[0], ad.replicated[row]
        ports.then.append(lambda: ad.add(x, ad.replicate(n, ad.replicate(size, inner))))
    elif child.is_local(row):
        out = ports.map(row)
        ports.then.append(lambda: ad.add(x, out()))
    else:
        ports.then.append(lambda: ad.add(x, ad.replicate(n, row)))


def _captured_out(ad: Reverse, child: Reverse, v: Var, n: Any, ports: Ports) -> None:
    """The cotangent of a variable that a map's lambda captures."""
    bar = child.bars.pop(v)
    kept = []
    for s in bar.sparse:
        if bar.dense is not None or any(child.is_local(size) for size in s.sizes):
            kept.append(s)
        else:
            _cross(ad, child, v, s, n, ports)
    dense = sparse.densify(Bar(bar.dense, kept), v.type)
    if dense is not None:
        total = ports.sum(dense)
        ports.then.append(lambda: ad.add(v, total()))


def _cross(ad: Reverse, child: Reverse, v: Var, s: Sparse, n: Any, ports: Ports) -> None:
    """Carry a sparse cotangent of ``v`` out of a map over n."""
    if not any(depends(child, p) for p in s.places):
        value = ports.sum(s.value)                              # the same places always: only values are summed
        ports.then.append(lambda: ad.add_sparse(v, Sparse(value(), s.places, s.sizes)))
        return
    value = ports.map(s.value)
    places = [_place_out(child, s, p, ports) for p in s.places]
    ports.then.append(lambda: ad.add_sparse(v, Sparse(value(), tuple(p() for p in places), (n,) + s.sizes)))


def _place_out(child: Reverse, s: Sparse, place: Place, ports: Ports) -> Callable[[], Place]:
    """A place outside of the map, whose dimension is put in front."""
    if isinstance(place, Along):
        if place.terms[0][0] < 0:
            return lambda: Along(((0, ONE),))
        moving = [a for a in place.starts if child.is_local(a)]
        found = line(child, moving[0]) if len(moving) == 1 else None
        if found and not any(child.is_local(step) for _, step in place.terms):
            terms = ((0, found[1]),) + tuple((d + 1, step) for d, step in place.terms)
            moved = Along(terms, found[0] + tuple(a for a in place.starts if a not in moving))
            return lambda: moved
    if not depends(child, place):
        return lambda: renumbered(place, 0, 1)
    at = as_at(place, s.sizes)
    found = None if at.dims else line(child, at.index)
    if found:
        along = Along(((0, found[1]),), found[0])
        return lambda: along
    index, dims = ports.map(at.index), (0,) + tuple(d + 1 for d in at.dims)
    return lambda: At(index(), dims)


# --- branches ----------------------------------------------------------------------------------------------------


def cond_back(ad: Reverse, op: Cond, bars: Sequence[Atom | None]) -> None:
    """Add the cotangents of a Cond: a Cond of the same predicate gives them."""
    captured = ad.captured(op.then, op.orelse)
    before = {v: ad.bars[v].dense for v in captured if v in ad.bars and ad.bars[v].dense is not None}
    sides: list[tuple[Scope, Reverse]] = []
    for lam in (op.then, op.orelse):
        with b.scope() as s:
            child = ad.child(s)
            child.bars.update((v, Bar(dense, accumulator=True)) for v, dense in before.items())
            child.replay(lam, (), bars)
        sides.append((s, child))
    outs: list[list[Atom]] = [[], []]
    then: list[Callable[[tuple[Var, ...]], None]] = []
    for v in captured:
        _branch_out(ad, sides, v, before.get(v), outs, then)
    if then:
        lams = [close((), s, out) for (s, _), out in zip(sides, outs)]
        results = b.emit(Cond(op.pred, lams[0], lams[1]))
        for action in then:
            action(results)


def _branch_out(ad: Reverse, sides: list[tuple[Scope, Reverse]], v: Var, before: Atom | None,
                outs: list[list[Atom]], then: list[Callable[[tuple[Var, ...]], None]]) -> None:
    """The cotangent of one captured variable: both branches get results of equal types."""
    bars = [child.bars.get(v, Bar()) for _, child in sides]
    if all(bar.dense is before and not bar.sparse for bar in bars):
        return
    movable = not any(child.is_local(size) for (_, child), bar in zip(sides, bars)
                      for s in bar.sparse for size in s.sizes)
    if movable and not any(bar.dense is not None for bar in bars):
        for side, bar in enumerate(bars):
            for s in bar.sparse:
                _branch_sparse(ad, sides, side, v, s, outs, then)
        return
    at = len(outs[0])
    for (scope, child), out in zip(sides, outs):
        with appended(scope):
            out.append(child.take_or_zero(v))

    def put(results: tuple[Var, ...]) -> None:
        if before is not None:
            ad.bars[v].dense = results[at]
        else:
            ad.add(v, results[at])
    then.append(put)


def _branch_sparse(ad: Reverse, sides: list[tuple[Scope, Reverse]], side: int, v: Var,
                   s: Sparse, outs: list[list[Atom]], then: list[Callable[[tuple[Var, ...]], None]]) -> None:
    """A sparse cotangent of one branch; the other gives zeros at places that are dropped."""
    (scope, child), (other, _) = sides[side], sides[1 - side]

    def give(a: Atom, otherwise: Any) -> int:
        outs[side].append(a)
        with appended(other):
            outs[1 - side].append(b.full(a.type, otherwise))
        return len(outs[side]) - 1

    places: list[Any] = []
    for p in s.places:
        if depends(child, p):
            with appended(scope):
                at = as_at(p, s.sizes)
            places.append((give(at.index, -1), at.dims))
        else:
            places.append(p)
    value = give(s.value, 0)
    then.append(lambda results: ad.add_sparse(v, Sparse(results[value], tuple(
        At(results[p[0]], p[1]) if isinstance(p, tuple) else p for p in places), s.sizes)))
