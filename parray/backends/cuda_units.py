"""Kernel code -> units: which statements one launch runs, and what is left to the host.

    For i < n:                          HostFor i < n:
        t = i * 4                           HostLet t            (the host knows it; kernels compute it again)
        x = a[t]                            Unit: x = a[t]       (one thread; x goes to a slot)
        Par j < m: .. x ..                  Unit: Par j < m      (a grid; reads the slot)

A `Par` is a unit; neighbouring scalar statements between Pars are one.  Loops and branches around Pars become the
host's.  ``shared`` are the scalars that more than one unit, or the host's control, speaks of: they get slots.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable

from parray.backends.cuda_host import (Host, HostAlloc, HostFor, HostIf, HostLet, HostRead, HostWhile, Unit)
from parray.kernels import (Apply, Assign, Buf, Call, Check, Expr, For, Heap, If, KernelProgram, Let, Lit, Load, Par,
                            Place, Ref, Serial, Stm, Store, While, walk)
from parray.types import ScalarType, i64


@dataclass
class Mentions:
    """The names and buffers that statements and expressions speak of, in order."""
    names: dict[str, None] = field(default_factory=dict)
    bound: dict[str, None] = field(default_factory=dict)
    bufs: dict[str, Buf] = field(default_factory=dict)
    checks: bool = False

    def expr(self, e: Expr) -> None:
        match e:
            case Ref(name=name):
                self.names[name] = None
            case Apply(args=args):
                for a in args:
                    self.expr(a)
            case Load(buf=buf, index=index):
                self.buf(buf)
                self.expr(index)
            case Lit():
                pass

    def buf(self, buf: Buf) -> None:
        if buf.name not in self.bufs:
            self.bufs[buf.name] = buf
            self.expr(buf.size)

    def bind(self, name: str) -> None:
        self.names[name] = self.bound[name] = None

    def stms(self, stms: Iterable[Stm]) -> Mentions:
        for s in stms:
            self.stm(s)
        return self

    def stm(self, s: Stm) -> None:
        match s:
            case Let(name=name, value=value) | Assign(name=name, value=value):
                self.expr(value)
                self.bind(name)
            case Store(buf=buf, index=index, value=value):
                self.buf(buf)
                self.expr(index)
                self.expr(value)
            case Check(bad=bad):
                self.checks = True
                self.expr(bad)
            case Call(args=args, name=name):
                for a in args:
                    if not isinstance(a, Place):                # the printer refuses whole arrays
                        self.expr(a)
                if name is not None:
                    self.bind(name)
            case _:
                self.compound(s)

    def compound(self, s: Stm) -> None:
        match s:
            case For(var=var, n=n, body=body):
                self.expr(n)
                self.bind(var)
                self.stms(body)
            case If(cond=cond, then=then, orelse=orelse):
                self.expr(cond)
                self.stms(then).stms(orelse)
            case While(test=test, cond=cond, body=body):
                self.stms(test).expr(cond)
                self.stms(body)
            case Heap(buf=buf, body=body):
                self.buf(buf)
                self.stms(body)
            case Serial(body=body):
                self.stms(body)
            case Par():
                self.expr(s.n)
                self.bind(s.var)
                for a in s.accs:
                    self.expr(a.init)
                    self.bind(a.name)
                    self.bind(a.other)
                for part in (s.before, s.body, s.merge, s.fold_start, s.fold):
                    self.stms(part)


class Units:
    """The host program of a kernel program, with its units still without launches."""

    def __init__(self, program: KernelProgram):
        self.types = _types(program)
        self.fixed = {*program.sizes, *(p.name for p in program.params if isinstance(p, Ref))}
        self.known = set(self.fixed)                  # what the host has a number for
        self.lets: dict[str, Expr] = {}               # the host's derived numbers, in order
        self.changing = {s.name for s in walk(program.body) if isinstance(s, Assign)}
        self.units: list[Unit] = []
        self.reads: dict[str, None] = {}
        self.counter = 0
        self.host = self.block(program.body)
        self.shared = self._shared()

    def is_known(self, e: Expr) -> bool:
        m = Mentions()
        m.expr(e)
        return not m.bufs and all(n in self.known for n in m.names)

    def block(self, stms: Iterable[Stm]) -> list[Host]:
        out: list[Host] = []
        run: list[Stm] = []
        for s in _flat(stms):
            if isinstance(s, Let) and s.name not in self.changing and self.is_known(s.value):
                self.known.add(s.name)
                self.lets[s.name] = s.value
                out.append(HostLet(s.name, s.value))
            elif isinstance(s, Par) or _heavy([s]):
                self._host_statement(s, run, out)
            else:
                run.append(s)
        self._flush(run, out)
        return out

    def _flush(self, run: list[Stm], out: list[Host]) -> None:
        if run:
            self._unit(list(run), out)
            run.clear()

    def _unit(self, stms: list[Stm], out: list[Host]) -> None:
        unit = Unit(stms)
        self.units.append(unit)
        out.append(unit)

    def _host_statement(self, s: Stm, run: list[Stm], out: list[Host]) -> None:
        match s:
            case Par():
                self._flush(run, out)
                self._unit([s], out)
            case For(var=var, n=n, body=body):
                count = self._number(n, run, out)
                self.known.add(var)
                self.fixed.add(var)
                out.append(HostFor(var, count, self.block(body)))
            case If(cond=cond, then=then, orelse=orelse):
                out.append(HostIf(self._number(cond, run, out), self.block(then), self.block(orelse)))
            case Heap(buf=buf, body=body):
                out.append(HostAlloc(buf, self._number(buf.size, run, out), self.block(body)))
            case While(test=test, cond=cond, body=body):
                self._flush(run, out)
                name = self._fresh(cond.elem)
                tests = self.block([*test, Let(name, cond)])
                if name not in self.lets:
                    self.reads[name] = None
                    tests.append(HostRead(name, cond.elem))
                out.append(HostWhile(tests, Ref(name, cond.elem), self.block(body)))

    def _fresh(self, elem: ScalarType) -> str:
        self.counter += 1
        name = f"host{self.counter}"
        self.types[name] = elem
        return name

    def _number(self, e: Expr, run: list[Stm], out: list[Host]) -> Expr:
        """The expression in numbers the host has; what it lacks is computed on the device and read."""
        if self.is_known(e):
            self._flush(run, out)
            return e
        name = self._fresh(e.elem)
        run.append(Let(name, e))
        self._flush(run, out)
        self.reads[name] = None
        out.append(HostRead(name, e.elem))
        return Ref(name, e.elem)

    def _shared(self) -> list[str]:
        count: dict[str, int] = {}
        for unit in self.units:
            for name in Mentions().stms(unit.stms).names:
                count[name] = count.get(name, 0) + 1
        private = self.fixed | set(self.lets) | {"thread", "threads", "lane"}
        return [n for n, times in count.items() if n not in private and (times > 1 or n in self.reads)]

    def drop_unused_lets(self) -> None:
        """Keep those of the host's lets that its own control and the launches need; call it when these are there."""
        m = Mentions()
        for s in _host_statements(self.host):
            match s:
                case Unit(launches=launches):
                    for launch in launches:
                        if launch.extent is not None:
                            m.expr(launch.extent)
                case HostFor(n=n):
                    m.expr(n)
                case HostIf(cond=cond) | HostWhile(cond=cond):
                    m.expr(cond)
                case HostAlloc(size=size):
                    m.expr(size)
        for name in reversed(self.lets):
            if name in m.names:
                m.expr(self.lets[name])
        self.host = _without_lets(self.host, set(m.names))


def _flat(stms: Iterable[Stm]) -> Iterable[Stm]:
    """Serial work on the host level is scalar statements like any others."""
    for s in stms:
        if isinstance(s, Serial):
            yield from s.body
        else:
            yield s


def _heavy(stms: Iterable[Stm]) -> bool:
    """Whether the host must step in: a grid, or memory to allocate."""
    return any(isinstance(s, (Par, Heap)) for s in walk(list(stms)))


def _host_statements(body: Iterable[Host]) -> Iterable[Host]:
    for s in body:
        yield s
        for part in _parts(s):
            yield from _host_statements(part)


def _parts(s: Host) -> list[list[Host]]:
    match s:
        case HostFor(body=body) | HostAlloc(body=body):
            return [body]
        case HostIf(then=then, orelse=orelse):
            return [then, orelse]
        case HostWhile(test=test, body=body):
            return [test, body]
    return []


def _without_lets(body: list[Host], needed: set[str]) -> list[Host]:
    for s in body:
        for part in _parts(s):
            part[:] = _without_lets(part, needed)
    return [s for s in body if not (isinstance(s, HostLet) and s.name not in needed)]


def _types(program: KernelProgram) -> dict[str, ScalarType]:
    """The element type of every name."""
    types: dict[str, Any] = {n: i64 for n in (*program.sizes, "thread", "threads", "blocks", "lane")}
    types |= {p.name: p.elem for p in program.params if isinstance(p, Ref)}
    for s in walk(program.body):
        match s:
            case Let(name=name, value=value):
                types[name] = value.elem
            case For(var=var):
                types[var] = i64
            case Par(var=var, accs=accs):
                types[var] = i64
                for a in accs:
                    types[a.name] = types[a.other] = a.init.elem
    return types
