"""Reverse mode of loops: a loop from the end, which carries the cotangents of what is carried and of what is captured.

Captured variables' cotangents are accumulated: each iteration updates in place what the one before left, so reading one
element of an array costs as much backwards as forwards.  What the operations' rules put into the loop is their own
(`parray.soacs.control`, `monoids`, `scatter`).
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Sequence

from parray import builder as b
from parray.ad import sparse
from parray.ad.nested import close
from parray.ad.places import Along, At, as_at, depends, line, renumbered
from parray.ad.sparse import Bar, Sparse
from parray.ir import Atom, Lambda, Var
from parray.soacs import Loop
from parray.soacs.monoids import update
from parray.types import Type

if TYPE_CHECKING:
    from parray.ad.reverse import Reverse


@dataclass
class Captures:
    """How a reverse loop gives the cotangents of what it captures: accumulators, and histories of sparse ones."""
    accumulated: tuple[Var, ...] = ()
    blanks: list[Type] = field(default_factory=list)
    sparse: list[tuple[Var, Callable[[Sequence[Var]], Sparse]]] = field(default_factory=list)

    @property
    def types(self) -> list[Type]:
        """The types of what the loop carries for them."""
        return [v.type for v in self.accumulated] + self.blanks


def loop_lambda(ad: Reverse, n: Any, types: Sequence[Any], captured: Sequence[Var],
                body: Callable[..., Sequence[Atom]]) -> tuple[Lambda, Captures]:
    """``body(child, i, *carried) -> carried``, of a loop of n iterations, as a lambda that also carries the cotangents
    of ``captured`` variables.

    They are accumulated in place.  Only those of variables outside of a map that the loop is in, where every element
    would get an accumulator of its own, are written down instead, one for each iteration, if they are sparse."""
    params = [Var(t) for t in types]
    accumulators = {v: Var(v.type) for v in captured}
    captures = Captures()
    with b.scope() as s:
        child = ad.child(s, params + list(accumulators.values()))
        child.counters.add(params[0])
        own = [v for v in captured if not ad.in_map or ad.is_local(v)]
        child.bars.update((v, Bar(accumulators[v], accumulator=True)) for v in own)
        results = list(body(child, *params))
        written = [_write_down(child, v, n, params[0], captures) for v in captured if v not in own]
        finals = {v: _accumulated(child, v, a) for v, a in accumulators.items()}
    captures.accumulated = tuple(v for v, final in finals.items() if final is not accumulators[v])
    histories, news = zip(*[pair for pairs in written for pair in pairs]) if any(written) else ((), ())
    carried = params + [accumulators[v] for v in captures.accumulated] + list(histories)
    results += [finals[v] for v in captures.accumulated] + list(news)
    return close(carried, s, results), captures


def _accumulated(child: Reverse, v: Var, accumulator: Var) -> Atom:
    """The accumulator with what the lambda adds to it."""
    bar = child.bars.pop(v, Bar())
    dense: Atom = accumulator
    if bar.dense is not None:
        dense = bar.dense if bar.accumulator else sparse.add_dense(dense, bar.dense)
    out = sparse.densify(Bar(dense, bar.sparse, True), v.type)
    assert out is not None
    return out


def _write_down(child: Reverse, v: Var, n: Any, i: Var, captures: Captures) -> list[tuple[Var, Atom]]:
    """Write a purely sparse cotangent into histories, as the value at ``i``: (history, history with the value)."""
    bar = child.bars.get(v)
    if bar is None or bar.dense is not None or any(child.is_local(size) for s in bar.sparse for size in s.sizes):
        return []
    del child.bars[v]
    pairs: list[tuple[Var, Atom]] = []

    def keep(a: Atom) -> int:
        history = Var(a.type.array_of(n))
        captures.blanks.append(history.type)
        pairs.append((history, update(history, (i,), a)))
        return len(captures.blanks) - 1

    for s in bar.sparse:
        if not any(depends(child, p) for p in s.places):            # always the same places: the values are summed
            total = Var(s.value.type)
            captures.blanks.append(total.type)
            pairs.append((total, sparse.add_dense(total, s.value)))
            captures.sparse.append((v, _reader(len(captures.blanks) - 1, s.places, s.sizes)))
            continue
        places: list[Any] = []
        for p in s.places:
            if depends(child, p):
                at = as_at(p, s.sizes)
                found = None if at.dims else line(child, at.index)
                places.append(Along(((0, found[1]),), found[0]) if found else
                              (keep(at.index), (0,) + tuple(d + 1 for d in at.dims)))
            else:
                places.append(renumbered(p, 0, 1))
        captures.sparse.append((v, _reader(keep(s.value), places, (n,) + s.sizes)))
    return pairs


def _reader(value: int, places: Sequence[Any], sizes: tuple[Any, ...]) -> Callable[[Sequence[Var]], Sparse]:
    """Makes the cotangent of the histories; ``value`` and the places' first parts say which."""
    def read(histories: Sequence[Var]) -> Sparse:
        return Sparse(histories[value], tuple(
            At(histories[p[0]], p[1]) if isinstance(p, tuple) else p for p in places), sizes)
    return read


def loop_back(ad: Reverse, n: Any, lam: Lambda, inits: Sequence[Atom], captures: Captures, kept: bool = False
              ) -> tuple[Var, ...]:
    """Emit a loop made by `loop_lambda`; the carried results.  The accumulators go on from what is known."""
    accumulators = []
    for v in captures.accumulated:
        bar = ad.bars.setdefault(v, Bar())
        accumulators.append(b.zeros(v.type) if bar.dense is None else bar.dense)
    blanks = [b.zeros(t) for t in captures.blanks]
    outs = b.emit(Loop(n, lam, tuple(inits) + tuple(accumulators) + tuple(blanks), kept))
    k, w = len(inits), len(inits) + len(accumulators)
    for v, out in zip(captures.accumulated, outs[k:w]):
        ad.bars[v].dense = out
    for v, read in captures.sparse:
        ad.add_sparse(v, read(outs[w:]))
    return outs[:k]
