"""Reverse mode of nested lambdas: how cotangents get out of maps, branches and loops.

A map's lambda gives cotangents of its parameters (map outputs) and of what it captures.  The latter are summed by a
reduction where they are dense; where they are sparse (`parray.ad.sparse`) values and places become map outputs, and
nothing is added up before the cotangent is needed.  A branch gives what the other branch gives as well, zeros or places
that are dropped.  A loop carries the cotangents of what it captures and updates them in place.

Operations' `vjp` rules call these as methods of the engine, `parray.ad.reverse.Reverse`.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

from parray import builder as b
from parray.ad import activity, sparse
from parray.ad.sparse import Along, At, Bar, Sparse
from parray.builder import Scope
from parray.ir import Atom, Const, Lambda, Stm, Var, free_vars
from parray.soacs import Cond, Iota, Loop, Prim, Screma
from parray.types import i64

if TYPE_CHECKING:
    from parray.ad.reverse import Reverse


def prune(stms: Sequence[Stm], results: Sequence[Any]) -> tuple[Stm, ...]:
    """The statements that ``results`` need."""
    used = {r for r in results if isinstance(r, Var)}
    used.update(s for r in results for s in r.type.shape if isinstance(s, Var))
    kept = []
    for stm in reversed(stms):
        if stm.op.effect or any(v in used for v in stm.vars):
            kept.append(stm)
            used.update(free_vars(stm.op))
            used.update(s for v in stm.vars for s in v.type.shape if isinstance(s, Var))
    return tuple(reversed(kept))


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
            rows.append(None if bar is None else ad.replicated[bar])      # type: ignore[index]
        else:
            rows.append(Var(bar.type.row()))
            inputs.append(bar)
    all_params = params + [r for bar, r in zip(bars, rows) if isinstance(r, Var) and bar not in ad.replicated]
    ports = Ports()
    with b.scope() as s:
        child = ad.child(s, all_params)
        child.active.update(p for p, x in zip(params, xs) if ad.is_active(x))
        child.replay(lam, params, rows)
        for p, x in zip(params, xs):
            _param_out(ad, child, p, x, n, ports)
        for v in list(child.bars):
            _captured_out(ad, child, v, n, dict(zip(params, xs)), ports)
    ports.emit(n, inputs, all_params, s)


def _param_out(ad: Reverse, child: Reverse, p: Var, x: Var, n: Any, ports: Ports) -> None:
    """The cotangent of a map's element becomes that of its array."""
    bar = child.bars.get(p)
    if bar and bar.dense is None and bar.sparse and not any(
            child.is_local(size) for s in bar.sparse for size in s.sizes):
        for s in child.bars.pop(p).sparse:
            _cross(ad, child, x, Sparse(s.value, (Along(-1),) + s.places, s.sizes), n, {}, ports)
        return
    row = child.take(p)
    if row is None:
        return
    if child.is_local(row):
        out = ports.map(row)
        ports.then.append(lambda: ad.add(x, out()))
    else:
        ports.then.append(lambda: ad.add(x, ad.replicate(n, row)))


def _captured_out(ad: Reverse, child: Reverse, v: Var, n: Any, inputs: dict[Var, Var],
                  ports: Ports) -> None:
    """The cotangent of a variable that a map's lambda captures."""
    bar = child.bars.pop(v)
    kept = []
    for s in bar.sparse:
        if bar.dense is not None or any(child.is_local(size) for size in s.sizes):
            kept.append(s)
        else:
            _cross(ad, child, v, s, n, inputs, ports)
    dense = sparse.densify(Bar(bar.dense, kept), v.type)
    if dense is not None:
        total = ports.sum(dense)
        ports.then.append(lambda: ad.add(v, total()))


def _cross(ad: Reverse, child: Reverse, v: Var, s: Sparse, n: Any, inputs: dict[Var, Var],
           ports: Ports) -> None:
    """Carry a sparse cotangent of ``v`` out of a map over n."""
    if not any(_depends(ad, child, p) for p in s.places):
        value = ports.sum(s.value)                              # the same places always: only values are summed
        ports.then.append(lambda: ad.add_sparse(v, Sparse(value(), s.places, s.sizes)))
        return
    value = ports.map(s.value)
    places = [_place_out(ad, child, s, p, inputs, ports) for p in s.places]
    ports.then.append(lambda: ad.add_sparse(v, Sparse(value(), tuple(p() for p in places), (n,) + s.sizes)))


def _depends(ad: Reverse, child: Reverse, place: At | Along) -> bool:
    """Whether a place differs between iterations."""
    if isinstance(place, Along):
        return place.dim < 0 or child.is_local(place.start) or child.is_local(place.step)
    return child.is_local(place.index)


def _place_out(ad: Reverse, child: Reverse, s: Sparse, place: At | Along,
               inputs: dict[Var, Var], ports: Ports) -> Callable[[], At | Along]:
    """A place outside of the map, whose dimension is put in front."""
    if isinstance(place, Along) and place.dim < 0:
        return lambda: Along(0)
    if not _depends(ad, child, place):
        return lambda: s.shifted(place)
    if isinstance(place, Along):
        place = At(sparse.counted(place, s.sizes[place.dim]), (place.dim,))
    affine = None if place.dims else _affine(ad, child, place.index, inputs)
    if affine:
        return lambda: Along(0, *affine)
    index, dims = ports.map(place.index), (0,) + tuple(d + 1 for d in place.dims)
    return lambda: At(index(), dims)


def _affine(ad: Reverse, child: Reverse, a: Any, inputs: dict[Var, Var]
            ) -> tuple[Atom, Atom] | None:
    """(start, step) of an index that is start + step * (the map's own index), or None."""
    if a in inputs:
        ops = (ad.producer(inputs[a], scope) for scope in b.current().chain())
        return (Const(0, i64), Const(1, i64)) if any(isinstance(op, Iota) for op in ops) else None
    match child.producer(a, child.scope):
        case Prim("add", (x, y)):
            return _moved(ad, child, x, y, inputs) or _moved(ad, child, y, x, inputs)
        case Prim("sub", (x, Const() as c)):
            return _moved(ad, child, x, Const(-c.value, i64), inputs)
        case Prim("select", (_, _, x)) as op:                   # a negative index counts from the end
            inner = _affine(ad, child, x, inputs)
            counts = inner and isinstance(inner[0], Const) and inner[0].value >= 0 and inner[1] == Const(1, i64)
            match child.producer(op.args[0], child.scope):
                case Prim("lt", (z, Const(value=0))) if counts and z is x:
                    return inner
    return None


def _moved(ad: Reverse, child: Reverse, x: Any, by: Any, inputs: dict[Var, Var]
           ) -> tuple[Atom, Atom] | None:
    """An affine index plus something the map does not change."""
    inner = None if child.is_local(by) else _affine(ad, child, x, inputs)
    if inner is None:
        return None
    start, step = inner
    if isinstance(start, Const) and isinstance(by, Const):
        return Const(start.value + by.value, i64), step
    return (by, step) if start == sparse.ZERO else None

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
        if _depends(ad, child, p):
            if isinstance(p, Along):
                with appended(scope):
                    p = At(sparse.counted(p, s.sizes[p.dim]), (p.dim,))
            places.append((give(p.index, -1), p.dims))
        else:
            places.append(p)
    value = give(s.value, 0)
    then.append(lambda results: ad.add_sparse(v, Sparse(results[value], tuple(
        At(results[p[0]], p[1]) if isinstance(p, tuple) else p for p in places), s.sizes)))

# --- loops -------------------------------------------------------------------------------------------------------


def loop_lambda(ad: Reverse, types: Sequence[Any], captured: Sequence[Var],
                body: Callable[..., Sequence[Atom]]) -> tuple[Lambda, tuple[Var, ...]]:
    """``body(child, *params) -> carried`` as a lambda that also carries the cotangents of ``captured`` variables;
    those of them that it changes."""
    params = [Var(t) for t in types]
    accumulators = {v: Var(v.type) for v in captured}
    with b.scope() as s:
        child = ad.child(s, params + list(accumulators.values()))
        child.bars.update((v, Bar(a, accumulator=True)) for v, a in accumulators.items())
        results = list(body(child, *params))
        finals = {v: child.take(v) for v in captured}
    changed = tuple(v for v in captured if finals[v] is not accumulators[v])
    results += [finals[v] for v in changed]
    return close(params + [accumulators[v] for v in changed], s, results), changed


def loop_back(ad: Reverse, n: Any, lam: Lambda, inits: Sequence[Atom],
              changed: Sequence[Var]) -> tuple[Var, ...]:
    """Emit a loop made by `loop_lambda`; the carried results.  The accumulators go on from what is known."""
    accumulators = []
    for v in changed:
        bar = ad.bars.setdefault(v, Bar())
        accumulators.append(b.zeros(v.type) if bar.dense is None else bar.dense)
    outs = b.emit(Loop(n, lam, tuple(inits) + tuple(accumulators)))
    for v, out in zip(changed, outs[len(inits):]):
        ad.bars[v].dense = out
    return outs[:len(inits)]
