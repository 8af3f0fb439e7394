"""What the CUDA printer makes: kernels, and a small host program that launches them in order.

    CudaProgram ::= kernels, host statements, slots
    Host  ::= Unit launches..                           device work
            | HostLet name = Expr                       a number the host knows too
            | HostRead name                             the host waits and fetches a scalar from its slot
            | HostFor name < Expr: Host.. | HostIf Expr: Host.. else Host.. | HostWhile Host.. Expr: Host..
            | HostAlloc buf: Host..                     memory whose size is known only here

Kernels see memory by raw pointers and host numbers by value.  Scalars that one kernel makes and another needs lie in
``slots`` (8 bytes each) on the device, so launches follow each other without the host waiting; it waits only at a
`HostRead`.  ``Runner`` executes a host program on anything that is a ``Device``: the emulation in `simt`, or a GPU.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, Sequence

import numpy as np

from parray import errors
from parray.kernels import Apply, Buf, Expr, KernelProgram, Lit, Load, Ref, Stm
from parray.prims import TABLE, bitcast, convert
from parray.types import ScalarType, u8

WIDTH = 8                                         # bytes of a slot
MAX_BLOCKS = 1024                                 # blocks of a kernel that accumulates: its partial results


@dataclass(frozen=True)
class Param:
    """A kernel's parameter: ``buffer`` (pointer to elem), ``bytes`` (pointer) or ``scalar``."""
    name: str
    kind: str
    elem: ScalarType


@dataclass(frozen=True)
class Kernel:
    """A kernel's text, always launched with ``block`` threads a block.  ``lanes`` says that each of its threads has
    memory of its own in the arena, so there may be no more threads than the arena has lanes."""
    name: str
    params: tuple[Param, ...]
    text: str
    block: int
    lanes: bool = False


@dataclass(frozen=True)
class Launch:
    """Run a kernel.  ``extent`` iterations (None: unknown to the host) decide the number of blocks; ``single`` takes
    one block.  ``parts`` is the launch whose blocks and threads the kernel asks for by those names (else itself)."""
    kernel: Kernel
    extent: Expr | None = None
    single: bool = False
    parts: Launch | None = None


@dataclass
class Unit:
    """Device work: a Par, or a run of scalar statements; the printer adds the launches."""
    stms: list[Stm]
    launches: list[Launch] = field(default_factory=list)


@dataclass
class HostLet:
    """A number the host computes from others it has."""
    name: str
    value: Expr


@dataclass
class HostRead:
    """Fetch a scalar from its slot: the host waits for the device."""
    name: str
    elem: ScalarType


@dataclass
class HostFor:
    """A loop around device work; ``var`` is passed to the kernels in it."""
    var: str
    n: Expr
    body: list[Host]


@dataclass
class HostIf:
    """A branch around device work."""
    cond: Expr
    then: list[Host]
    orelse: list[Host]


@dataclass
class HostWhile:
    """``test`` runs before every iteration and leaves what ``cond`` needs."""
    test: list[Host]
    cond: Expr
    body: list[Host]


@dataclass
class HostAlloc:
    """Memory that lives while ``body`` runs."""
    buf: Buf
    size: Expr
    body: list[Host]


Host = Unit | HostLet | HostRead | HostFor | HostIf | HostWhile | HostAlloc


@dataclass
class CudaProgram:
    """A printed program.  ``slots`` numbers the scalars kept on the device."""
    program: KernelProgram
    source: str
    kernels: list[Kernel]
    host: list[Host]
    slots: dict[str, int]
    partials: int                                 # accumulators whose partial results are kept at a time


@dataclass(frozen=True)
class Limits:
    """How large launches may be.  ``lanes`` bounds the memory that threads have each for themselves."""
    blocks: int = MAX_BLOCKS
    grid: int = 1 << 16
    lanes: int = 1 << 13


class Device(Protocol):
    """Memory and launches.  Arrays are the device's own; pointers to them are what kernels take."""

    def put(self, values: Any) -> Any:
        """Device memory with these values (a flat NumPy array)."""

    def new(self, elem: ScalarType, count: int) -> Any:
        """Device memory with any values."""

    def get(self, memory: Any) -> Any:
        """The values, when all launches so far are done."""

    def launch(self, kernel: Kernel, blocks: int, args: Sequence[Any]) -> None:
        """Start a kernel; launches run one after another."""


def evaluate(e: Expr, env: dict[str, Any]) -> Any:
    """The value of an expression of host numbers; division by zero gives 0, as on the device."""
    match e:
        case Lit(value=value, elem=elem):
            return elem.dtype.type(value)
        case Ref(name=name):
            return env[name]
        case Apply(prim="convert", args=(x,), elem=elem):
            return convert(evaluate(x, env), elem)
        case Apply(prim="bitcast", args=(x,), elem=elem):
            return bitcast(evaluate(x, env), elem)
        case Apply(prim=prim, args=args):
            try:
                with np.errstate(all="ignore"):
                    return TABLE[prim].fn(*(evaluate(a, env) for a in args))
            except ZeroDivisionError:
                return e.elem.dtype.type(0)
        case Load():
            raise AssertionError("the host does not read arrays")


class Runner:
    """Executes one program on one device."""

    def __init__(self, cuda: CudaProgram, device: Device, limits: Limits = Limits()):
        self.cuda, self.device, self.limits = cuda, device, limits

    def __call__(self, sizes: Sequence[int], leaves: Sequence[Any]) -> list[Any]:
        """Results as NumPy arrays and scalars; raises the error of a check that failed."""
        program, new = self.cuda.program, self.device.new
        self.env: dict[str, Any] = {n: np.int64(s) for n, s in zip(program.sizes, sizes)}
        self.memory: dict[str, Any] = {
            "failures": self.device.put(np.zeros(1, np.int64)),
            "slots": new(u8, WIDTH * max(1, len(self.cuda.slots))),
            "partials": new(u8, WIDTH * max(1, self.cuda.partials) * MAX_BLOCKS)}
        for p, leaf in zip(program.params, leaves):
            if isinstance(p, Ref):
                self.env[p.name] = p.elem.dtype.type(leaf)
            else:
                self.memory[p.name] = self.device.put(_filled(np.asarray(leaf)))
        entry = self.env | {"threads": np.int64(self.limits.lanes)}
        for e, code in program.guards:
            if not evaluate(e, entry):
                self.fail(code)
        shapes = [tuple(max(0, int(evaluate(s, entry))) for s in r.shape) for r in program.results]
        for r, shape in zip(program.results, shapes):
            self.memory[r.buf.name] = new(r.buf.elem, int(np.prod([max(1, d) for d in shape])))
        for buf in program.temps:
            count = max(1, int(evaluate(buf.size, entry)))
            self.memory[buf.name] = new(buf.elem, count * (self.limits.lanes if buf.kind == "private" else 1))
        self.run(self.cuda.host)
        code = int(self.device.get(self.memory["failures"])[0])
        if code:
            self.fail(code)
        values = [self.device.get(self.memory[r.buf.name]) for r in program.results]
        return [v[0] if r.scalar else v[:int(np.prod(shape))].reshape(shape)
                for v, r, shape in zip(values, program.results, shapes)]

    def fail(self, code: int) -> NoReturn:
        failure = self.cuda.program.failures[code - 1]
        raise getattr(errors, failure.error)(failure.message, failure.loc)

    def run(self, body: Sequence[Host]) -> None:
        """Statements in order."""
        for s in body:
            match s:
                case Unit(launches=launches):
                    for launch in launches:
                        self.launch(launch)
                case HostLet(name=name, value=value):
                    self.env[name] = evaluate(value, self.env)
                case HostRead(name=name, elem=elem):
                    at = WIDTH * self.cuda.slots[name]
                    data = self.device.get(self.memory["slots"])[at:at + elem.nbytes]
                    self.env[name] = data.view(elem.dtype)[0]
                case _:
                    self.control(s)

    def control(self, s: Host) -> None:
        """A statement that has others in it."""
        match s:
            case HostFor(var=var, n=n, body=body):
                for i in range(int(evaluate(n, self.env))):
                    self.env[var] = np.int64(i)
                    self.run(body)
            case HostIf(cond=cond, then=then, orelse=orelse):
                self.run(then if evaluate(cond, self.env) else orelse)
            case HostWhile(test=test, cond=cond, body=body):
                self.run(test)
                while evaluate(cond, self.env):
                    self.run(body)
                    self.run(test)
            case HostAlloc(buf=buf, size=size, body=body):
                self.memory[buf.name] = self.device.new(buf.elem, max(1, int(evaluate(size, self.env))))
                self.run(body)
                del self.memory[buf.name]

    def blocks(self, launch: Launch) -> int:
        """How many blocks a launch has."""
        kernel, limits = launch.kernel, self.limits
        if launch.single:
            return 1
        most = limits.blocks if any(p.name == "partials" for p in kernel.params) else limits.grid
        if kernel.lanes:
            most = min(most, max(1, limits.lanes // kernel.block))
        if launch.extent is None:
            return most
        return max(1, min(most, -(-int(evaluate(launch.extent, self.env)) // kernel.block)))

    def launch(self, launch: Launch) -> None:
        """Gather a kernel's arguments and start it."""
        parts = launch.parts or launch
        blocks = self.blocks(parts)
        self.env["blocks"] = np.int64(blocks)
        self.env["threads"] = np.int64(blocks * parts.kernel.block)
        args = [self.env[p.name] if p.kind == "scalar" else self.memory[p.name] for p in launch.kernel.params]
        self.device.launch(launch.kernel, self.blocks(launch), args)


def _filled(values: Any) -> Any:
    """A flat array; one that is empty gets memory that harmless accesses may touch."""
    if values.size:
        return np.ascontiguousarray(values).reshape(-1)
    return np.zeros(int(np.prod([max(1, d) for d in values.shape])), values.dtype)
