"""Fusion: neighbouring maps, scans, reductions and scatters of one size become one loop.

    vertical      ys = map f xs;  z = reduce op ne ys      =>  z = screma (f) (op) xs
    horizontal    y = reduce f xs;  z = reduce g xs        =>  y, z = screma (f, g) xs

A producer is fused into a consumer that reads its map results as inputs and in no other way; results of it that
others need stay results, so no work is done twice.  Two operations are fused only when no third one lies between them
in the order of dependences.  Independent ones are fused when they share an input.  Outer levels come first: what they
bring into one body can be fused there.  Scans may consume; what a scan gives is complete only after its loop, so
nothing is fused behind it.  Runs after contractions are recognised and is followed by simplification.
"""
from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any, Iterator, Sequence

from parray.errors import Loc
from parray.ir import Atom, Lambda, Op, Stm, Substitution, Var, free_vars, lambdas, map_op
from parray.soacs import Contract, Scatter, Screma


@dataclass(frozen=True)
class Decision:
    """Two neighbours, described and placed, that became one loop, or why they did not."""
    first: str
    first_loc: Loc | None
    second: str
    second_loc: Loc | None
    obstacle: str = ""


def fuse(lam: Lambda, log: list[Decision] | None = None) -> Lambda:
    """The lambda with everything fused, at every level; what was decided goes to ``log``."""
    body = _Body(lam, log)
    body.fuse()
    if log is not None:
        log += body.refusals()
    stms = [Stm(s.vars, map_op(s.op, lambda a: a, lambda inner: fuse(inner, log)), s.loc)
            if any(True for _ in lambdas(s.op)) else s for s in body.stms()]
    return Lambda(lam.params, tuple(stms), lam.results)


def described(op: Op) -> str:
    """What an operation is, in a word or two."""
    if isinstance(op, Screma):
        parts = ["scan"] * bool(op.scans) + ["reduce"] * bool(op.reds)
        return " and ".join(parts) or "map"
    return op.name


def _a(op: Op) -> str:
    return f"a {described(op)}"


class _Rename(Substitution):
    """Replaces parameters that fusion bound to other variables, which are renewed on the same walk."""

    def __init__(self, bound: dict[Var, Atom]):
        super().__init__()
        self.bound = bound

    def atom(self, a: Any) -> Any:
        while isinstance(a, Var) and a in self.bound:
            a = self.bound[a]
        return super().atom(a)

    def size(self, s: Any) -> Any:
        return super().size(self.atom(s))


class _Node:
    """A statement; ``inner``: what it reads other than as an input of its loop."""

    def __init__(self, stm: Stm):
        self.vars, self.op, self.loc = stm.vars, stm.op, stm.loc
        self.xs: tuple[Var, ...] = ()
        self.fused = False
        if isinstance(stm.op, (Screma, Scatter)):
            self.xs = stm.op.xs
            self.inner = _inner_reads(stm.op)
        else:
            self.inner = set(free_vars(stm.op))

    def reads(self) -> Iterator[Var]:
        yield from self.inner
        yield from self.xs


def _inner_reads(op: Screma | Scatter) -> set[Var]:
    reads = set(free_vars(replace(op, xs=())))
    if isinstance(op, Scatter):
        reads.update(op.dests)
    return reads


class _Body:
    """The statements of a lambda as a graph of dependences.  ``before[k]``: bit mask of all that node k needs."""

    def __init__(self, lam: Lambda, log: list[Decision] | None = None):
        self.log = log
        self.nodes: dict[int, _Node] = {k: _Node(s) for k, s in enumerate(lam.stms)}
        self.results = {r for r in lam.results if isinstance(r, Var)}
        self.maker: dict[Var, int] = {v: k for k, node in self.nodes.items() for v in node.vars}
        self.readers: dict[Var, set[int]] = {}
        self.before: dict[int, int] = {}
        self.bound: dict[Var, Atom] = {}
        for k, node in self.nodes.items():
            mask = 0
            for v in node.reads():
                self.readers.setdefault(v, set()).add(k)
                if v in self.maker:
                    mask |= self.before[self.maker[v]] | 1 << self.maker[v]
            self.before[k] = mask

    def fuse(self) -> None:
        """Everything vertical first; then one level after another of horizontal and what it enables."""
        while self.vertical() or self.horizontal():
            pass

    def stms(self) -> list[Stm]:
        """The statements in an order that respects dependences and else changes little."""
        waiting = {k: {self.maker[v] for v in node.reads() if v in self.maker} for k, node in self.nodes.items()}
        after: dict[int, list[int]] = {}
        for k, needs in waiting.items():
            for p in needs:
                after.setdefault(p, []).append(k)
        ready = [k for k, needs in waiting.items() if not needs]
        heapq.heapify(ready)
        out = []
        while ready:
            k = heapq.heappop(ready)
            node = self.nodes[k]
            op = map_op(node.op, lambda a: a, _Rename(self.bound).lam) if node.fused else node.op
            out.append(Stm(node.vars, op, node.loc))
            for q in after.get(k, ()):
                waiting[q].discard(k)
                if not waiting[q]:
                    heapq.heappush(ready, q)
        assert len(out) == len(self.nodes), "fusion made a cycle"
        return out

    # --- which -------------------------------------------------------------------------------------------------------

    def vertical(self) -> bool:
        """Fuse producers into consumers until none is left; whether any was."""
        any_fused = False
        for k in list(self.nodes):
            again = True
            while again and k in self.nodes:
                again = False
                for x in self.nodes[k].xs:
                    p = self.maker.get(x)
                    if p is not None and self.fits(p, k):
                        self.join(p, k)
                        any_fused = again = True
                        break
        return any_fused

    def fits(self, p: int, q: int) -> bool:
        """Whether producer p may be fused into consumer q."""
        return not self.obstacle(p, q)

    def obstacle(self, p: int, q: int) -> str:
        """Why producer p cannot be fused into consumer q, in words; nothing where it can."""
        producer, consumer = self.nodes[p], self.nodes[q]
        if not isinstance(producer.op, Screma):
            return f"{_a(producer.op)} is made as a whole"
        if not isinstance(consumer.op, (Screma, Scatter)):
            return f"{_a(consumer.op)} is no loop over its elements"
        if producer.op.n != consumer.op.n:
            return "they run over different numbers of elements"
        first_map = producer.op.scan_width + producer.op.red_width
        whole = set(producer.vars[:first_map])
        if not whole.isdisjoint(consumer.reads()):
            return f"{_a(producer.op)} is complete only after its loop"
        if not consumer.inner.isdisjoint(producer.vars):
            return "the second needs more of the first's result than one element at a time"
        if isinstance(consumer.op, Scatter) and (first_map or self.needed_besides(p, q)):
            return "something else needs the first's results, and a scatter gives its own only"
        return "a third operation stands between them" if self.path_between(p, q) else ""

    def refusals(self) -> Iterator[Decision]:
        """The neighbours that are left, and why they are."""
        for q, consumer in self.nodes.items():
            if isinstance(consumer.op, (Screma, Scatter)):
                for p in sorted({self.maker[v] for v in consumer.reads() if v in self.maker}):
                    if isinstance(self.nodes[p].op, (Screma, Scatter, Contract)):
                        yield self.decision(p, q, self.obstacle(p, q) or "the loop is complete without it")

    def decision(self, p: int, q: int, obstacle: str = "") -> Decision:
        first, second = self.nodes[p], self.nodes[q]
        return Decision(described(first.op), first.loc, described(second.op), second.loc, obstacle)

    def needed_besides(self, p: int, q: int) -> list[Var]:
        """The results of p that something other than q needs."""
        return [v for v in self.nodes[p].vars if v in self.results or self.readers.get(v, set()) - {q}]

    def path_between(self, p: int, q: int) -> bool:
        """Whether q needs p through a third node."""
        others = {self.maker[v] for v in self.nodes[q].reads() if v in self.maker} - {p}
        return any(self.before[d] >> p & 1 for d in others)

    def horizontal(self) -> bool:
        """Fuse independent operations that share an input; whether any were."""
        any_fused = False
        for x in list(self.readers):
            group = sorted(k for k in self.readers[x] if isinstance(self.nodes[k].op, Screma) and x in self.nodes[k].xs)
            for i, p in enumerate(group):
                for q in group[i + 1:]:
                    if p in self.nodes and q in self.nodes and self.beside(p, q):
                        self.join(p, q)
                        any_fused = True
        return any_fused

    def beside(self, p: int, q: int) -> bool:
        """Whether two operations that share an input are independent and alike."""
        a, b = self.nodes[p].op, self.nodes[q].op
        assert isinstance(a, Screma) and isinstance(b, Screma)
        if a.n != b.n or bool(a.scans) != bool(b.scans):
            return False
        return not (self.before[p] >> q & 1 or self.before[q] >> p & 1)

    # --- how ---------------------------------------------------------------------------------------------------------

    def join(self, p: int, q: int) -> None:
        """Put node p into node q."""
        producer, consumer = self.nodes[p], self.nodes[q]
        if self.log is not None:
            self.log.append(self.decision(p, q))
        needed = self.needed_besides(p, q)
        if isinstance(consumer.op, Scatter):
            op, outs = self.into_scatter(producer, consumer), consumer.vars
        else:
            op, outs = self.into_screma(producer, consumer, set(needed))
        for k in (p, q):
            for v in set(self.nodes[k].reads()):
                self.readers[v].discard(k)
        inner = producer.inner | consumer.inner
        del self.nodes[p]
        consumer.op, consumer.vars, consumer.xs, consumer.inner, consumer.fused = op, outs, op.xs, inner, True
        for v in set(consumer.reads()):
            self.readers[v].add(q)
        self.maker.update(dict.fromkeys(outs, q))
        self.before[q] |= self.before.pop(p)
        mask, both = self.before[q] | 1 << q, 1 << p | 1 << q
        for k, m in self.before.items():
            if k != q and m & both:
                self.before[k] = m | mask
        self.before[q] &= ~(1 << q)

    def joined_inputs(self, producer: _Node, consumer: _Node) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        """Inputs and parameters of both; parameters for the producer's results are bound to what it computes."""
        a, b = producer.op, consumer.op
        xs, params = list(a.xs), list(a.lam.params)                 # type: ignore[attr-defined]
        computed = dict(zip(producer.vars, a.lam.results))          # type: ignore[attr-defined]
        known = dict(zip(xs, params))
        for x, param in zip(b.xs, b.lam.params):                    # type: ignore[attr-defined]
            if x in computed:
                self.bound[param] = computed[x]
            elif x in known:
                self.bound[param] = known[x]
            else:
                xs.append(x)
                params.append(param)
                known[x] = param
        return tuple(xs), tuple(params)

    def into_scatter(self, producer: _Node, consumer: _Node) -> Any:
        a, b = producer.op, consumer.op
        assert isinstance(a, Screma) and isinstance(b, Scatter)
        xs, params = self.joined_inputs(producer, consumer)
        return replace(b, xs=xs, lam=Lambda(params, a.lam.stms + b.lam.stms, b.lam.results))

    def into_screma(self, producer: _Node, consumer: _Node, needed: set[Var]) -> tuple[Any, tuple[Var, ...]]:
        a, b = producer.op, consumer.op
        assert isinstance(a, Screma) and isinstance(b, Screma)
        xs, params = self.joined_inputs(producer, consumer)
        first_map = a.scan_width + a.red_width
        kept = [k >= first_map and v in needed for k, v in enumerate(producer.vars)]

        def merged(of_a: Sequence[Any], of_b: Sequence[Any]) -> tuple[Any, ...]:
            scans_a, reds_a, _ = a.split(of_a)
            scans_b, reds_b, maps_b = b.split(of_b)
            maps_a = [v for v, k in zip(of_a, kept) if k]
            return (*scans_a, *scans_b, *reds_a, *reds_b, *maps_a, *maps_b)

        lam = Lambda(params, a.lam.stms + b.lam.stms, merged(a.lam.results, b.lam.results))
        op = Screma(b.n, xs, lam, a.scans + b.scans, a.reds + b.reds)
        return op, merged(producer.vars, consumer.vars)
