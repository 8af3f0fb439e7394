"""What kernel code costs: floating-point operations and bytes, counted from the code itself for given sizes.

A statement counts as often as the loops around it run; loops whose length only the running program knows count once,
and the cost is then a lower bound (``exact`` is False).  A loop that depends on long ones around it counts at the
middle of their ranges.  Bytes are what must move between a kernel and memory at least: of each buffer its size at most,
however often its elements are used.  Memory of one thread's own stays in the cache and counts nothing.  Operations are
in additions: elementary functions and divisions count as many as they take.

Used by `f.explain` and `f.profile`; nothing is decided by it.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np

from parray.kernels import (Apply, Assign, Buf, Call, Check, Expr, For, Heap, If, Let, Lit, Load, Par, Ref, Serial,
                            Store, Tile, While, walk)
from parray.prims import TABLE

WEIGHTS = {"div": 4, "sqrt": 4, "rsqrt": 4, "floor": 1, "ceil": 1, "trunc": 1, "round": 1, "copysign": 1, "select": 1,
           "isnan": 1, "isinf": 1, "isfinite": 1, "convert": 0, "bitcast": 0, "fma": 2, "abs": 1, "neg": 1, "sign": 1,
           "max": 1, "min": 1, "not": 0, "mod": 6, "fmod": 6, "floordiv": 6, "cbrt": 20, "pow": 40, "gamma": 60,
           "lgamma": 60, "digamma": 60, "erfc": 30}
FEW = 4                                          # iterations that count one by one
ELEMENTARY = 15                                  # a function that is not listed


@dataclass(frozen=True)
class Around:
    """A loop around a kernel: its variable, its length (None: unknown) and, where its iterations are shared among
    threads, the name of the first one's number."""
    var: str = ""
    n: Expr | None = None
    first: str = ""


@dataclass
class Cost:
    """Of one kernel: operations, bytes read and written, iterations that may run side by side."""
    flops: float = 0
    read: float = 0
    written: float = 0
    extent: int = 1
    exact: bool = True
    narrow: bool = True                          # no operation is wider than 32 bits

    @property
    def nbytes(self) -> float:
        """Bytes moved."""
        return self.read + self.written


@dataclass
class Meter:
    """Counts kernels of one program in the order in which they run; ``env`` holds the scalars known so far."""
    env: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.env = {"thread": 0, "threads": 1} | self.env

    def measure(self, stms: Sequence[Any], around: Sequence[Around] = ()) -> Cost:
        """The cost of a kernel with these loops around it."""
        self.cost = Cost()
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self.bufs: dict[str, Buf] = {}
        times = 1.0
        for loop in around:
            length = self._length(loop.n)
            times *= length
            self.env.update({loop.var: int(length) // 2, loop.first: 0})
            if loop.first:
                self.cost.extent = max(self.cost.extent, int(length))
        self._block(stms, times)
        for name, buf in self.bufs.items():
            size = self._value(buf.size)
            whole = (size if size is not None else float("inf")) * buf.elem.nbytes
            self.cost.read += min(self.reads[name] * buf.elem.nbytes, whole)
            self.cost.written += min(self.writes[name] * buf.elem.nbytes, whole)
        return self.cost

    def value(self, e: Expr) -> Any:
        """The value of an expression of sizes and scalars; None where it depends on data."""
        match e:
            case Lit(value=v):
                return v
            case Ref(name=name):
                return self.env.get(name)
            case Apply(prim=prim, args=args, elem=elem):
                values = [self.value(a) for a in args]
                if any(v is None for v in values):
                    return None
                with np.errstate(all="ignore"):
                    try:
                        typed = [a.elem.dtype.type(v) for a, v in zip(args, values)]
                        return elem.dtype.type(typed[0] if prim == "convert" else TABLE[prim].fn(*typed))
                    except (ArithmeticError, OverflowError, ValueError):
                        return None
            case _:
                return None

    def _value(self, e: Expr) -> float | None:
        v = self.value(e)
        return None if v is None else max(0.0, float(v))

    def _length(self, n: Expr | None) -> float:
        v = None if n is None else self._value(n)
        self.cost.exact = self.cost.exact and v is not None
        return 1.0 if v is None else v

    def _block(self, stms: Sequence[Any], times: float) -> None:
        for s in stms:
            self._stm(s, times)

    def _loop(self, var: str, n: Expr, body: Sequence[Any], times: float) -> None:
        length = self._length(n)
        if length <= FEW and any(isinstance(s, (For, Tile)) for s in walk([*body])):      # blocks, the last cut
            for k in range(int(length)):
                self.env[var] = k
                self._block(body, times)
        else:
            self.env[var] = int(length) // 2
            self._block(body, times * length)

    def _stm(self, s: Any, times: float) -> None:
        match s:
            case Let(name=name, value=e) | Assign(name=name, value=e):
                self._expr(e, times)
                self.env[name] = self.value(e)
            case Store(buf=buf, index=index, value=e):
                self._expr(e, times)
                self._expr(index, times)
                self._touch(self.writes, buf, times)
            case Check(bad=e):
                self._expr(e, times)
            case For(var=var, n=n, body=body):
                self._loop(var, n, body, times)
            case Par(var=var, n=n, body=body):
                self._block(s.before, 1)
                for a in s.accs:
                    self.env[a.name] = None
                self.cost.extent = max(self.cost.extent, int(self._length(n)))
                self._loop(var, n, body, times)
            case If(cond=cond, then=then, orelse=orelse, rest=rest):
                known = True if rest else self.value(cond)
                self._expr(cond, times)
                if known is None or known:
                    self._block(then, times if known is not None or not orelse else times / 2)
                if not known:
                    self._block(orelse, times if known is not None else times / 2)
            case While(test=test, body=body):
                self.cost.exact = False
                self._block([*test, *body], times)
            case Heap(body=body) | Serial(body=body):
                self._block(body, times)
            case Tile():
                self._tile(s, times)
            case Call():
                for p in s.places:
                    self._touch(self.reads, p.buf, float("inf"))
                self.cost.exact = False

    def _tile(self, s: Tile, times: float) -> None:
        steps = times
        for _, n in s.loops:
            steps *= self._length(n)
        count = self._length(s.count) if s.count is not None else s.lanes
        rows = sum(w is None or self.value(w) in (None, True) for w in s.wanted)
        self.cost.flops += 2 * steps * rows * count
        self.cost.narrow = self.cost.narrow and s.elem.bits <= 32
        self._touch(self.reads, s.x, steps * rows)
        self._touch(self.reads, s.y, steps * count)
        self._touch(self.writes, s.out, times * rows * count)

    def _expr(self, e: Expr, times: float) -> None:
        match e:
            case Apply(prim=prim, args=args):
                if any(a.elem.is_float for a in args):
                    self.cost.narrow = self.cost.narrow and all(a.elem.bits <= 32 for a in args)
                    self.cost.flops += times * WEIGHTS.get(
                        prim, 1 if TABLE[prim].arity == 2 and prim not in ("atan2", "hypot") else ELEMENTARY)
                for a in args:
                    self._expr(a, times)
            case Load(buf=buf, index=index):
                self._touch(self.reads, buf, times)
                self._expr(index, times)

    def _touch(self, kind: Counter[str], buf: Buf, count: float) -> None:
        if buf.kind != "private":
            kind[buf.name] += count                             # type: ignore[assignment]
            self.bufs[buf.name] = buf
