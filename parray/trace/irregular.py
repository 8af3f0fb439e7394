"""Arrays whose sizes depend on values: filter and its kin, segments, sorting.

All are written in terms of scans, scatters and gathers, so they have derivatives, nest, and run on every backend; the
only primitive of their own is the order of a sort (`parray.soacs.sort`).
"""
from __future__ import annotations

from typing import Any, Callable

import numpy as np

from parray import builder, tree
from parray.errors import TypeMismatch
from parray.ir import Atom, resolve
from parray.soacs import Argsort
from parray.trace import context
from parray.trace.combinators import call, exscan, gather, inputs, map, rebuild, reduce_by_index, scan, scatter
from parray.trace.control import loop, while_loop
from parray.trace.elementwise import broadcast_to, lift, where
from parray.trace.reductions import max as max_
from parray.trace.reductions import sum as sum_
from parray.trace.tracer import Tracer
from parray.trace.views import as_size, iota, nonneg, replicate
from parray.types import Type, i64


# --- filter and partition --------------------------------------------------------------------------------------------

def _arrays(xs: Any, what: str) -> tuple[Any, Any]:
    """The structure of arrays with one length, and that length."""
    leaves, structures, n = inputs([xs], what)
    return rebuild(structures, [Tracer(x) for x in leaves])[0], n


def _empty(like: Any, n: Any) -> Any:
    """Zeros like ``n`` elements of the arrays."""
    return tree.map(lambda x: Tracer(builder.zeros(Type(x.dtype, (n, *x.type.shape[1:])))), like)


def _truth(value: Any, what: str) -> Tracer:
    t = lift(value, f"the predicate of {what}")
    if t.ndim or not t.dtype.is_bool:
        raise TypeMismatch(f"the predicate of {what} gives {t!r}; it must give a truth value", builder.here())
    return t


def _count(numbers: Any) -> Any:
    """The sum of numbers that are not negative, as a size."""
    return nonneg(builder.as_size(sum_(numbers).atom))


def _size(n: Any) -> Any:
    """A size as the user sees it."""
    return n if isinstance(n, int) else Tracer(n, True, True)


def compact(flags: Tracer, xs: Any) -> Any:
    """The elements of ``xs`` at which ``flags`` hold, in order."""
    kept = map(lambda f: where(f, 1, 0), flags)
    places = where(flags, exscan(_add, 0, kept), -1)
    return scatter(_empty(xs, _count(kept)), places, xs)


def _add(a: Any, b: Any) -> Any:
    return a + b


def filter(p: Callable[..., Any], xs: Any) -> Any:
    """``[x for x in xs if p(x)]``: ``(a -> bool) -> [n]a -> [k]a``, order kept."""
    if not callable(p):
        raise TypeMismatch(f"pa.filter takes a function and an array, not {p!r}; by a mask it is xs[mask]",
                           builder.here())
    xs, _ = _arrays(xs, "pa.filter")
    return compact(map(lambda x: _truth(call(p, x), "pa.filter"), xs), xs)


def partition(p: Any, xs: Any) -> tuple[Any, ...]:
    """The elements for which ``p`` holds and the others, order kept; with a sequence of predicates one part for each
    (an element goes to the first that holds) and a last one for the rest."""
    predicates = list(p) if isinstance(p, (tuple, list)) else [p]
    xs, _ = _arrays(xs, "pa.partition")

    def part(x: Any) -> Any:
        k: Any = len(predicates)
        for j in reversed(range(len(predicates))):
            k = where(_truth(call(predicates[j], x), "pa.partition"), j, k)
        return k
    which = map(part, xs)
    return tuple(compact(map(lambda k, j=j: k == j, which), xs) for j in range(len(predicates) + 1))


# --- segments --------------------------------------------------------------------------------------------------------

def segmented_scan(op: Callable[..., Any], ne: Any, flags: Any, xs: Any) -> Any:
    """A scan that begins anew wherever ``flags`` hold: ``[n]bool -> [n]a -> [n]a``."""
    def step(a: Any, b: Any) -> Any:
        (f, x), (g, y) = a, b
        return f | g, where(g, y, call(op, x, y))
    return scan(step, (False, ne), (flags, xs))[1]


def segmented_reduce(op: Callable[..., Any], ne: Any, flags: Any, xs: Any) -> Any:
    """The reduction of each segment, ``[n]bool -> [n]a -> [k]a``; a segment begins where ``flags`` hold (and at 0)."""
    (flags, xs), n = _arrays((flags, xs), "pa.segmented_reduce")
    totals = segmented_scan(op, ne, flags, xs)
    last = builder.size_sub(n, 1)

    def ends(i: Any) -> Any:
        following = where(i < _size(last), i + 1, i)
        return (i == _size(last)) | flags[following]
    return compact(map(ends, Tracer(builder.iota(n))), totals)


def segmented_iota(flags: Any) -> Any:
    """``[0, 1, ..]``, anew wherever ``flags`` hold."""
    flags, n = _arrays(flags, "pa.segmented_iota")
    ones = replicate(_size(n), 1)
    return segmented_scan(_add, 0, flags, ones) - 1


def replicated_iota(counts: Any) -> Any:
    """``i`` repeated ``counts[i]`` times, for every ``i``; a count that is not positive gives nothing."""
    counts, n = _arrays(counts, "pa.replicated_iota")
    counts = max_(counts.astype(i64), 0)
    total = _count(counts)
    places = where(counts > 0, exscan(_add, 0, counts), -1)
    first = scatter(Tracer(builder.zeros(Type(i64, (total,)))), places, Tracer(builder.iota(n)))
    return scan(lambda a, b: max_(a, b), 0, first)


def expand(size: Callable[..., Any], get: Callable[..., Any], xs: Any) -> Any:
    """``[get(x, j) for x in xs for j in range(size(x))]``: ``(a -> i64) -> (a -> i64 -> b) -> [n]a -> [k]b``."""
    xs, _ = _arrays(xs, "pa.expand")
    counts = map(lambda x: max_(lift(call(size, x), "the size that pa.expand asks for").astype(i64), 0), xs)
    owner = replicated_iota(counts)
    starts = exscan(_add, 0, counts)
    inside = map(lambda k, o: k - starts[o], iota(_size(owner.type.shape[0])), owner)
    return map(lambda o, j: call(get, tree.map(lambda x: x[o], xs), j), owner, inside)


def flatmap(f: Callable[..., Any], xs: Any) -> Any:
    """``[y for x in xs for y in f(x)]``: ``(a -> [k]b) -> [n]a -> [m]b``, where the size may differ by element.

    The elements are taken one after the other; `expand` works on all at once where the size is known beforehand.
    """
    xs, n = _arrays(xs, "pa.flatmap")
    found: list[Any] = []

    def size(x: Any) -> Any:
        ys, m = _arrays(call(f, x), "the result of the function given to pa.flatmap")
        found[:] = [ys]
        return _size(m) + 0
    counts = map(lambda x: lift(size(x), "a size").astype(i64), xs)
    starts = exscan(_add, 0, counts)
    total = _count(counts)
    for leaf in tree.leaves(found[0]):
        if any(not isinstance(resolve(s), int) and s not in context.current().roots for s in leaf.type.shape[1:]):
            raise TypeMismatch("pa.flatmap: rows of the arrays given must have one fixed size", builder.here())

    def step(i: Any, out: Any) -> Any:
        ys = call(f, tree.map(lambda x: x[i], xs))
        m = tree.leaves(ys)[0].type.shape[0]
        return scatter(out, iota(_size(m)) + starts[i], ys)
    return loop(_size(n), step, _empty(found[0], total))


# --- sorting ---------------------------------------------------------------------------------------------------------

def _order(keys: Any, what: str) -> Atom:
    """The order of elements by all leaves of the keys, the first the most important."""
    leaves, _, n = inputs([keys], what)
    for x in leaves:
        if x.type.rank != 1:
            raise TypeMismatch(f"{what} orders by scalars, not by {lift(Tracer(x))!r}", builder.here())
    return builder.emit1(Argsort(n, tuple(leaves)))                                  # type: ignore[arg-type]


def argsort(xs: Any) -> Any:
    """The places of the elements in ascending order (`sort`): ``[n]a -> [n]i64``."""
    return Tracer(_order(xs, "pa.argsort"))


def sort(xs: Any) -> Any:
    """The elements in ascending order; of tuples and records the first field decides, then the next.

    Stable; NaN comes last, -0 equals 0.  `sort_by` orders by a key, so descending numbers are ``sort_by(neg, xs)``.
    """
    return gather(xs, argsort(xs))


def sort_by(key: Callable[..., Any], xs: Any) -> Any:
    """The elements in ascending order of ``key(x)``, a scalar or a structure of scalars; stable."""
    return gather(xs, Tracer(_order(map(lambda x: call(key, x), xs), "pa.sort_by")))


def searchsorted(xs: Any, values: Any, side: str = "left") -> Any:
    """Where values belong in the sorted ``xs``: before its equals, or behind them for ``side="right"``; as NumPy's."""
    if side not in ("left", "right"):
        raise TypeMismatch(f'pa.searchsorted: side is "left" or "right", not {side!r}', builder.here())
    xs, n = _arrays(xs, "pa.searchsorted")
    v = lift(values, "pa.searchsorted")

    def one(v: Any) -> Any:
        def step(span: Any) -> Any:
            low, high = span
            middle = (low + high) // 2
            behind = _precedes(xs[middle], v) if side == "left" else ~_precedes(v, xs[middle])
            return where(behind, middle + 1, low), where(behind, high, middle)
        zero = Tracer(builder.const(0, i64))
        return while_loop(lambda span: span[0] < span[1], step, (zero, zero + _size(n)))[0]

    def nested(v: Any) -> Any:
        return map(nested, v) if v.ndim else one(v)
    return nested(v)


def _precedes(x: Any, y: Any) -> Any:
    """``x`` before ``y`` in the order of `sort`."""
    less = x < y
    return less | (np.isnan(y) & ~np.isnan(x)) if x.dtype.is_float or y.dtype.is_float else less


def unique(xs: Any) -> Any:
    """The different elements in ascending order, each once; NaNs count as equal, as in NumPy."""
    xs, n = _arrays(xs, "pa.unique")
    ordered = sort(xs)

    def first(i: Any) -> Any:
        before = where(i > 0, i - 1, 0)
        same: Any = True
        for x in tree.leaves(ordered):
            equal = x[i] == x[before]
            if x.dtype.is_float:
                equal = equal | (np.isnan(x[i]) & np.isnan(x[before]))
            same = equal & same
        return (i == 0) | ~same
    return compact(map(first, Tracer(builder.iota(n))), ordered)


def hist(op: Callable[..., Any], ne: Any, n: Any, indices: Any, values: Any) -> Any:
    """`reduce_by_index` into ``n`` (or ``(n, m)``) bins that hold ``ne``, in the values' types."""
    leaves, structure = tree.flatten(values)
    rank = len(indices) if isinstance(indices, (tuple, list)) else 1
    sizes = [as_size(k, "pa.hist") for k in (n if isinstance(n, (tuple, list)) else (n,))]
    if len(sizes) != rank:
        raise TypeMismatch(f"pa.hist: {len(sizes)} sizes for indices of {rank} dimensions", builder.here())
    neutral = tree.leaves(ne)
    if len(neutral) != len(leaves):
        raise TypeMismatch(f"pa.hist: the neutral element is {tree.structure(ne)}, the values are {structure}",
                           builder.here())
    bins = []
    for leaf, e in zip(leaves, neutral):
        x = lift(leaf, "pa.hist")
        row = Type(x.dtype, (*sizes, *x.type.shape[1:]))
        filled = broadcast_to(lift(e, "the neutral element of pa.hist").astype(x.dtype).atom, row.shape)
        bins.append(Tracer(filled))
    return reduce_by_index(tree.unflatten(structure, bins), op, ne, indices, values)


def histogram(xs: Any, n: Any) -> Any:
    """How often each of ``0 .. n-1`` is among the integers ``xs``: ``[m]i64 -> [n]i64``."""
    size = as_size(n, "pa.histogram")
    return reduce_by_index(Tracer(builder.zeros(Type(i64, (size,)))), _add, 0, xs, 1)
