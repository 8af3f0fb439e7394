"""Memory planning: which temporaries may lie in the same place.

Runs on kernel code, just before it is printed.  A temporary is alive from the first statement that touches it to the
last, seen from the innermost block that holds every touch; so one made in a loop's body is alive within one iteration,
and one carried around a loop is alive for all of it.  Temporaries whose lives do not overlap share a slot when their
sizes are constants or the same expression.

    lives of b1, b2, b3:  |--b1--|         slots:  0: b1, b3
                              |--b2--|             1: b2
                                  |--b3--|
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

from parray.kernels import (Apply, Assign, Buf, Call, Check, Expr, For, Heap, If, KernelProgram, Let, Lit, Load, Par,
                            Ref, Store, Tile, While, blocks, mul)

Path = tuple[int, ...]                            # statement numbers from the outermost block to a touch


@dataclass
class Slot:
    """A place in the arena: ``kind`` as a buffer's, its size in bytes, who lies there."""
    kind: str
    nbytes: Expr
    bufs: list[Buf]
    free_from: int = 0


def plan(program: KernelProgram) -> list[Slot]:
    """Slots for the program's temporaries."""
    touches: dict[str, list[Path]] = {}
    numbering = _Numbering(touches)
    numbering.block(program.body, ())
    lives = {b.name: numbering.life(touches.get(b.name, [])) for b in program.temps}
    slots: list[Slot] = []
    for buf in sorted(program.temps, key=lambda b: lives[b.name]):
        first, last = lives[buf.name]
        nbytes = mul(buf.size, Lit(buf.elem.nbytes))
        slot = _fitting(slots, buf.kind, nbytes, first)
        if slot is None:
            slot = Slot(buf.kind, nbytes, [])
            slots.append(slot)
        elif isinstance(nbytes, Lit) and isinstance(slot.nbytes, Lit):
            slot.nbytes = Lit(max(nbytes.value, slot.nbytes.value))
        slot.bufs.append(buf)
        slot.free_from = last + 1
    return slots


def _fitting(slots: list[Slot], kind: str, nbytes: Expr, first: int) -> Slot | None:
    """A free slot: of equal size, else (constants) the one nearest in size."""
    free = [s for s in slots if s.kind == kind and s.free_from <= first]
    equal = [s for s in free if s.nbytes == nbytes]
    if equal:
        return max(equal, key=lambda s: s.free_from)            # the warmest in cache
    if not isinstance(nbytes, Lit):
        return None
    constant = [s for s in free if isinstance(s.nbytes, Lit)]
    return min(constant, key=lambda s: abs(s.nbytes.value - nbytes.value), default=None)    # type: ignore[union-attr]


class _Numbering:
    """Numbers statements in the order they are written, and records where each buffer is touched."""

    def __init__(self, touches: dict[str, list[Path]]):
        self.touches = touches
        self.count = 0
        self.ends: dict[int, int] = {}             # the last number inside each statement

    def life(self, paths: list[Path]) -> tuple[int, int]:
        if not paths:
            return 0, 0
        depth = 0
        while all(len(p) > depth + 1 for p in paths) and len({p[depth] for p in paths}) == 1:
            depth += 1
        return min(p[depth] for p in paths), max(self.ends[p[depth]] for p in paths)

    def block(self, stms: list[Any], path: Path) -> None:
        for s in stms:
            number = self.count
            self.count += 1
            here = (*path, number)
            for buf in touched(s):
                self.touches.setdefault(buf.name, []).append(here)
            for part in _parts(s):
                if len(_parts(s)) > 1:             # the parts of one statement are blocks of their own, in order
                    inner = self.count
                    self.count += 1
                    self.block(part, (*here, inner))
                    self.ends[inner] = self.count - 1
                else:
                    self.block(part, here)
            self.ends[number] = self.count - 1


def _parts(s: Any) -> list[list[Any]]:
    return [[*s.test, *s.body]] if isinstance(s, While) else blocks(s)


def touched(s: Any) -> Iterator[Buf]:
    """Buffers a statement touches itself (not in its blocks)."""
    match s:
        case Let(value=value) | Assign(value=value):
            yield from _loads(value)
        case Store(buf=buf, index=index, value=value):
            yield buf
            yield from _loads(index)
            yield from _loads(value)
        case Check(bad=e) | For(n=e) | If(cond=e):
            yield from _loads(e)
        case While(cond=e):
            yield from _loads(e)
        case Par(n=e, accs=accs):
            yield from _loads(e)
            for a in accs:
                yield from _loads(a.init)
        case Heap(buf=buf):
            yield from _loads(buf.size)
        case Tile():
            yield from (s.x, s.y, s.out)
        case Call():
            yield from (p.buf for p in s.places)


def _loads(e: Expr) -> Iterator[Buf]:
    match e:
        case Load(buf=buf, index=index):
            yield buf
            yield from _loads(index)
        case Apply(args=args):
            for a in args:
                yield from _loads(a)
        case Lit() | Ref():
            return
