"""The text of one CPU kernel: shares of a range, merging of accumulators, memory made and freed."""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Sequence

from parray.backends.source import Writer, expr, index_text, literal, storage_name, typed
from parray.kernels import Acc, Buf, Call, Check, Heap, Let, Par, Place, Ref, Serial, Tile, While, add
from parray.types import ScalarType

LANE = 8                                          # elements one thread's merge slot is apart from the next one's


@dataclass
class Merge:
    """What follows a `Par` whose iterations ran elsewhere: threads' accumulators become one."""
    par: Par


@dataclass
class Publish:
    """What follows a `Serial` whose body ran elsewhere: its scalars become every thread's."""
    serial: Serial


class KernelWriter(Writer):
    """The body of a kernel: shares of a range, merging of accumulators, memory made and freed."""

    def __init__(self, number: dict[str, int], total: int, merge_slots: list[Buf]):
        super().__init__()
        self.number, self.total = number, total
        self.merge_slots = list(merge_slots)
        self.heaps = 0

    def stm(self, s: Any) -> None:
        match s:
            case Par():
                self._par(s)
            case Serial():
                self._serial(s)
            case Merge(par=par):
                self._join(par)
            case Publish(serial=serial):
                self._publish(serial.scalars)
            case Heap(buf=buf, body=body):
                self.heaps += 1
                name = f"h{self.heaps}"
                self.line(f"{name} = heap_new({expr(buf.size)} * {buf.elem.nbytes})")
                self.line(f"{buf.name} = {self.buffer(buf, name)}")
                self.stms(body)
                self.line(f"heap_free({name})")
            case While(test=test, cond=cond, body=body):        # after a failure it might not end
                self.line("while True:")
                self.depth += 1
                self.stms(test)
                self.line(f"if failure != 0 or not {expr(cond)}:")
                self.line("    break")
                self.stms(body)
                self.depth -= 1
            case Check(bad=bad, code=code):
                self.line(f"failure = select({expr(bad)}, code{code}, failure)")
            case Tile():
                self._tile(s)
            case Call():
                self._call(s)
            case _:
                super().stm(s)

    def buffer(self, buf: Buf, address: str) -> str:
        return f"buffer({address}, 0, {storage_name(buf.elem)}, {self.number[buf.name]}, {self.total})"

    def _tile(self, s: Tile) -> None:
        *accs, kx, ky, v = s.names
        for a in accs:
            self.line(f"{a} = vector_zero({s.x.name}, {s.lanes})")
        for var, n in s.loops:
            self.line(f"for {var} in range({index_text(n)}):")
            self.depth += 1
        self.line(f"{kx} = {index_text(s.x_step)}")
        self.line(f"{ky} = {index_text(add(s.y_first, s.y_step))}")
        self.line(f"{v} = " + (f"vector_load({s.y.name}, {ky}, {s.lanes})" if s.count is None or s.padded else
                               f"vector_load_part({s.y.name}, {ky}, {s.lanes}, {expr(s.count)})"))
        for a, first in zip(accs, s.x_first):
            self.line(f"{a} = vector_add_product({a}, {s.x.name}[{index_text(add(first, Ref(kx)))}], {v})")
        self.depth -= len(s.loops)
        for a, first, wanted in zip(accs, s.out_first, s.wanted):
            if wanted is not None:
                self.line(f"if {index_text(wanted)}:")
            self.depth += wanted is not None
            args = f"{s.out.name}, {index_text(first)}, {a}, {expr(s.add)}"
            self.line(f"vector_store({args})" if s.count is None else f"vector_store_part({args}, {expr(s.count)})")
            self.depth -= wanted is not None

    def _call(self, s: Call) -> None:
        args = []
        for a, d in zip(s.args, s.function.parameters):
            if not isinstance(a, Place):
                args.append(typed(expr(a), d.elem))
            elif s.function.address:
                args.append(f"place({a.buf.name}, {index_text(a.index)})")
            else:
                args.append(f"array({a.buf.name}, {index_text(a.index)}, {_tuple(map(index_text, a.shape))})")
        args += [index_text(n) for n in s.sizes]
        symbol = s.function.symbol
        call = f"raising({symbol}, {_tuple(args)})" if s.code else f"{symbol}({', '.join(args)})"
        bad = f"raised{s.code}"
        given = ", ".join([*([s.name] if s.name else []), *([bad] if s.code else [])])
        self.line(f"{given} = {call}" if given else call)
        if s.name and not s.elem.is_bool:
            self.line(f"{s.name} = {typed(s.name, s.elem)}")
        if s.code:
            self.line(f"failure = select({bad}, code{s.code}, failure)")

    def _par(self, s: Par) -> None:
        v = s.var
        self.stms(s.before)
        for a in s.accs:
            self.stm(Let(a.name, a.init))
        self.line(f"{v}_n = {index_text(s.n)}")
        self.line(f"{v}_lo = part({v}_n, thread, threads)")
        self.line(f"for {v}_k in range(part({v}_n, thread + 1, threads) - {v}_lo):")
        self.depth += 1
        self.line(f"{v} = {v}_lo + {v}_k")
        self.stms(s.body)
        self.depth -= 1
        self._join(s)

    def _join(self, s: Par) -> None:
        if s.accs:
            self._merge(s.accs, s.merge)
        if s.fold:
            self.line("barrier(sync, threads)")
            self.nested("if thread == 0:", s.fold_start)
            self.depth += 1
            self.nested("for lane in range(threads):", s.fold)
            self.depth -= 1

    def _merge(self, accs: Sequence[Acc], merge: Any) -> None:
        slots = [self.merge_slots.pop(0) for _ in accs]
        self.line("if threads > 1:")
        self.depth += 1
        for a, q in zip(accs, slots):
            self.line(f"{q.name}[thread * {LANE}] = {a.name}")
        self.line("barrier(sync, threads)")
        for a in accs:
            self.stm(Let(a.name, a.init))
        self.line("for lane in range(threads):")
        self.depth += 1
        for a, q in zip(accs, slots):
            self.line(f"{a.other} = {q.name}[lane * {LANE}]")
        self.stms(merge)
        self.depth -= 2

    def _serial(self, s: Serial) -> None:
        for name, elem in s.scalars:
            self.line(f"{name} = {literal(0, elem)}")
        self.nested("if thread == 0:", s.body)
        if s.scalars:
            self._publish(s.scalars)

    def _publish(self, scalars: Sequence[tuple[str, ScalarType]]) -> None:
        slots = [self.merge_slots.pop(0) for _ in scalars]
        self.line("if threads > 1:")
        self.depth += 1
        self.line("if thread == 0:")
        for (name, _), q in zip(scalars, slots):
            self.line(f"    {q.name}[0] = {name}")
        self.line("barrier(sync, threads)")
        for (name, _), q in zip(scalars, slots):
            self.line(f"{name} = {q.name}[0]")
        self.depth -= 1


def _tuple(parts: Iterable[str]) -> str:
    return f"({''.join(f'{p}, ' for p in parts)})"


_TOKEN = re.compile(r"(?<![.\w])([a-z]+\d+)((?:_n|_lo|_k)?)\b")
_KEEP = {t for k in "iuf" for t in (f"{k}8", f"{k}16", f"{k}32", f"{k}64")}


def canonical(text: str) -> str:
    """The text with its names renamed in order of appearance."""
    names: dict[str, str] = {}

    def rename(m: re.Match[str]) -> str:
        if m[1] in _KEEP:
            return m[0]
        return names.setdefault(m[1], f"{m[1].rstrip('0123456789')[0]}{len(names)}") + m[2]
    return _TOKEN.sub(rename, text)
