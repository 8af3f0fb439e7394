"""Reductions and scans in reverse mode, by what their operator is.

    reduce (+):      x_bar[i] = y_bar
    reduce max/min:  the first extremum gets y_bar
    reduce op:       y = l[i] op x[i] op r[i] with exclusive prefixes l and suffixes r (two scans), so
                     x_bar[i] = pullback of (\\x. l[i] op x op r[i]) at x[i]; exact also for products with zeros
    scan (+):        x_bar = suffix sums of y_bar
    scan op:         backwards over i: (y_bar[i-1] += , x_bar[i]) = pullback of op at (y[i-1], x[i])

Only associativity is used, so operators on tuples and arrays and non-commutative ones are right.  An operator that
captures something active is a loop in disguise and is differentiated as one.  ``ad`` is the engine
(`parray.ad.reverse.Reverse`).
"""
from __future__ import annotations

from typing import Any, Sequence

from parray import builder as b
from parray.ir import Atom, Const, Lambda, Monoid, Var, refresh, size_atom
from parray.soacs.prim import Prim
from parray.types import SIZE, i64

ZERO, ONE = Const(0, i64), Const(1, i64)


def component_prims(op: Lambda) -> list[str | None]:
    """For each component of an operator the primitive that it is, element by element, or None."""
    k = len(op.results)
    return [_prim_of(op, r, op.params[j], op.params[k + j]) for j, r in enumerate(op.results)]


def _prim_of(lam: Lambda, r: Any, x: Any, y: Any) -> str | None:
    from parray.soacs.screma import Screma
    for stm in lam.stms:
        if r not in stm.vars:
            continue
        match stm.op:
            case Prim(name, (p, q)) if p is x and q is y or p is y and q is x and stm.op.row.commutative:
                return name
            case Screma(xs=xs) as op if op.is_map and x in xs and y in xs:
                at = [op.lam.params[xs.index(z)] for z in (x, y)]
                return _prim_of(op.lam, op.lam.results[stm.vars.index(r)], at[0], at[1])
    return None


def reduce_vjp(ad: Any, m: Monoid, xs: Sequence[Var], outs: Sequence[Var], bars: Sequence[Atom | None]) -> None:
    """Add the cotangents of ``outs = reduce m xs``."""
    n = xs[0].type.shape[0]
    prims = component_prims(m.op)
    if ad.captured(m.op) or any(map(ad.is_active, m.ne)):
        ad.replay(_as_loop(m, xs), (), bars)
    elif set(prims) == {"add"}:
        for x, bar in zip(xs, bars):
            ad.add(x, ad.replicate(n, bar))
    elif len(prims) == 1 and prims[0] in ("max", "min") and m.ne[0].type.is_scalar:
        assert bars[0] is not None
        ad.add(xs[0], _extremum(xs[0], outs[0], bars[0]))
    else:
        _reduce_any(ad, m, xs, bars)


def _as_loop(m: Monoid, xs: Sequence[Var]) -> Lambda:
    """The lambda without parameters that folds from the left."""
    from parray.soacs.control import Loop

    def step(i: Atom, *acc: Atom) -> Sequence[Atom]:
        return b.inline(m.op, acc + tuple(b.index(x, i, safe=True) for x in xs))

    def fold() -> Sequence[Atom]:
        types = [SIZE] + [a.type for a in m.ne]
        return b.emit(Loop(xs[0].type.shape[0], b.make_lambda(types, step), m.ne))

    return b.make_lambda((), fold)


def attains(x: Atom, y: Atom) -> Atom:
    """Whether ``x`` is the extremum ``y`` (NaN is itself)."""
    same = b.prim("eq", x, y)
    if not x.type.elem.is_float:
        return same
    return b.prim("or", same, b.prim("and", b.prim("isnan", x), b.prim("isnan", y)))


def _extremum(x: Var, y: Var, bar: Atom) -> Atom:
    """The cotangent of x where y is its first extremum: zero everywhere else."""
    n = x.type.shape[0]
    positions = b.iota(n)
    last = Const(2**63 - 1, i64)
    found = b.make_lambda((SIZE, y.type), lambda i, e: (b.select(attains(e, y), i, last),))
    (first,) = b.screma(n, (positions, x), found, reds=(Monoid(b.lift2("min", SIZE), (last,), True),))
    zero = Const(0, x.type.elem)
    return b.map1(lambda i: b.select(b.prim("eq", i, first), bar, zero), positions)


def reverse(x: Atom) -> Var:
    """``x`` from its end to its start."""
    from parray.soacs.arrays import Slice
    shape = x.type.shape
    last = b.size_sub(shape[0], 1)
    starts = (size_atom(last),) + (ZERO,) * (len(shape) - 1)
    return b.emit1(Slice(x, starts, shape, (-1,) + (1,) * (len(shape) - 1)))        # type: ignore[arg-type]


def _either(c: Atom, xs: Sequence[Var], i: Atom, otherwise: Sequence[Atom]) -> tuple[Var, ...]:
    """``if c then xs[i] else otherwise``."""
    from parray.soacs.control import Cond
    read = b.make_lambda((), lambda: [b.index(x, i, safe=True) for x in xs])
    return b.emit(Cond(c, read, Lambda((), (), tuple(otherwise))))


def _reduce_any(ad: Any, m: Monoid, xs: Sequence[Var], bars: Sequence[Atom | None]) -> None:
    """The rule for any operator."""
    k, n = m.width, xs[0].type.shape[0]
    types = b.row_types(xs)
    flipped = b.make_lambda(types + types, lambda *ab: b.inline(m.op, ab[k:] + ab[:k]))
    prefixes = b.scan_(Monoid(refresh(m.op), m.ne, m.commutative), *xs)
    suffixes = b.scan_(Monoid(flipped, m.ne, m.commutative), *map(reverse, xs))
    before_last = size_atom(b.size_sub(n, 1))
    active = [j for j, x in enumerate(xs) if ad.is_active(x)]

    def element(i: Atom, *x: Any) -> Sequence[Atom]:
        left = _either(b.prim("lt", ZERO, i), prefixes, b.prim("sub", i, ONE), m.ne)
        after = b.prim("sub", b.prim("sub", before_last, ONE), i)
        right = _either(b.prim("le", ZERO, after), suffixes, after, m.ne)
        child = ad.child(b.current(), (i,) + x)
        child.active.update(x[j] for j in active)
        whole = b.make_lambda(types, lambda *e: b.inline(m.op, b.inline(m.op, left + e) + right))
        child.replay(whole, x, bars)
        return [child.take_or_zero(x[j]) for j in active]

    for j, bar in zip(active, b.map_(element, b.iota(n), *xs)):
        ad.add(xs[j], bar)


def scan_vjp(ad: Any, m: Monoid, xs: Sequence[Var], outs: Sequence[Var], bars: Sequence[Atom | None]) -> None:
    """Add the cotangents of ``outs = scan m xs``."""
    plain = not ad.captured(m.op) and not any(map(ad.is_active, m.ne))
    if plain and set(component_prims(m.op)) == {"add"}:
        for x, bar in zip(xs, bars):
            if bar is not None:
                (sums,) = b.scan_(b.sum_monoid(x.type.row()), reverse(bar))
                ad.add(x, reverse(sums))
    else:
        _scan_any(ad, m, xs, outs, bars)


def _scan_any(ad: Any, m: Monoid, xs: Sequence[Var], outs: Sequence[Var], bars: Sequence[Atom | None]) -> None:
    """The rule for any operator: a loop from the end, which carries y_bar[i] and the array x_bar."""
    n = xs[0].type.shape[0]
    on_y = [j for j, y in enumerate(outs) if ad.is_active(y)]
    on_x = [j for j, x in enumerate(xs) if ad.is_active(x)]
    last = size_atom(b.size_sub(n, 1))

    def step(child: Any, k: Atom, *carried: Atom) -> Sequence[Atom]:
        i = b.prim("sub", last, k)
        previous = _either(b.prim("lt", ZERO, i), outs, b.prim("sub", i, ONE), m.ne)
        x = tuple(b.index(x, i, safe=True) for x in xs)
        child.active.update([previous[j] for j in on_y] + [x[j] for j in on_x])
        total: list[Atom | None] = [None] * m.width
        for j, bar in zip(on_y, carried):
            ys = bars[j]
            total[j] = bar if ys is None else b.elementwise(
                lambda p, q: b.prim("add", p, q), bar, b.index(ys, i, safe=True))
        child.replay(m.op, previous + x, total)
        new_x = [update(a, (i,), child.take_or_zero(x[j])) for j, a in zip(on_x, carried[len(on_y):])]
        return [child.take_or_zero(previous[j]) for j in on_y] + new_x

    inits = [b.zeros(outs[j].type.row()) for j in on_y] + [b.zeros(xs[j].type) for j in on_x]
    lam, captures = ad.loop_lambda(n, [SIZE] + [a.type for a in inits], ad.captured(m.op), step)
    results = ad.loop_back(n, lam, inits, captures)
    for j, bar in zip(on_y, results):
        ad.add(m.ne[j], bar)
    for j, bar in zip(on_x, results[len(on_y):]):
        ad.add(xs[j], bar)


def update(x: Any, at: Sequence[Atom], value: Atom) -> Var:
    """``x`` with ``x[at]`` replaced."""
    from parray.soacs.scatter import Scatter
    return b.emit1(Scatter(1, (x,), len(at), None, Lambda((), (), tuple(at) + (value,)), ()))
