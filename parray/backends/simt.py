"""Runs printed CUDA kernels in Python, one thread after the other up to each barrier: a check of their meaning.

The kernel's own source is executed; ``cuda.syncthreads()`` becomes a ``yield`` and every thread a generator.  It is
slow, and finds what a GPU would hide: accesses out of bounds, threads that wait at different barriers or leave the
others waiting, and races (two threads touch the same element, one of them writing, with no barrier between them).
Fresh memory holds garbage.  ``Simt`` is a `cuda_host.Device`; the tests compare its results with the interpreter's.
"""
from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from parray.backends import foreign
from parray.backends.cuda_host import Kernel
from parray.prims import TABLE, bitcast, convert
from parray.types import SCALAR_TYPES, ScalarType, f64, i64, u64

GARBAGE = 0xA5
Access = tuple[int, int, int]                     # block, thread, number of barriers passed


class SimtError(AssertionError):
    """A kernel does what would go wrong on a GPU."""


class Memory:
    """Device memory or a part of it, seen as elements of one type."""

    def __init__(self, data: Any, log: Log | None, start: int = 0):
        self.data, self.log, self.start = data, log, start

    def part(self, offset: int, count: int, dtype: Any) -> Memory:
        """``count`` elements from byte ``offset`` on (an empty part may be touched harmlessly: all there is)."""
        raw = self.data.view(np.uint8)
        nbytes = count * dtype.itemsize if count else raw.size - offset
        if offset < 0 or offset + nbytes > raw.size:
            raise SimtError(f"bytes {offset}..{offset + nbytes} of memory that has {raw.size}")
        return Memory(raw[offset:offset + nbytes].view(dtype), self.log, self.start + offset)

    def check(self, index: Any) -> int:
        i = int(index)
        if not 0 <= i < self.data.size:
            raise SimtError(f"element {i} of memory that has {self.data.size}")
        return i

    def __getitem__(self, index: Any) -> Any:
        i = self.check(index)
        if self.log is not None:
            self.log.read(self.start + i * self.data.itemsize)
        return self.data[i]

    def __setitem__(self, index: Any, value: Any) -> None:
        i = self.check(index)
        if self.log is not None:
            self.log.write(self.start + i * self.data.itemsize)
        self.data[i] = value


class Log:
    """Who touched each element of one allocation since the launch began."""

    def __init__(self, machine: Simt):
        self.machine = machine
        self.writes: dict[int, Access] = {}
        self.reads: dict[int, set[Access]] = {}

    def ordered(self, before: Access) -> bool:
        """Whether an earlier access cannot fall together with the current one: the same thread, or a barrier."""
        block, thread, passed = self.machine.now
        return before[0] == block and (before[1] == thread or before[2] < passed)

    def read(self, place: int) -> None:
        last = self.writes.get(place)
        if last is not None and not self.ordered(last):
            raise SimtError(f"race: byte {place} is read by {self.machine.now} and written by {last}")
        self.reads.setdefault(place, set()).add(self.machine.now)

    def write(self, place: int) -> None:
        last = self.writes.get(place)
        for other in ({last} if last is not None else set()) | self.reads.get(place, set()):
            if not self.ordered(other):
                raise SimtError(f"race: byte {place} is written by {self.machine.now} and touched by {other}")
        self.writes[place] = self.machine.now
        self.reads.pop(place, None)


class Simt:
    """The machine.  ``order`` gives the sequence in which the threads of a block run between two barriers."""

    def __init__(self, order: Callable[[int], Sequence[int]] = range):
        self.order = order
        self.now: Access = (0, 0, 0)
        self.launches: list[tuple[str, int]] = []
        self.logs: list[Log] = []
        self.namespace = _names(self)
        self.compiled: dict[Kernel, Callable[..., Iterator[int]]] = {}

    # --- cuda_host.Device ---

    def put(self, values: Any) -> Memory:
        return Memory(np.array(values), self.fresh_log())

    def new(self, elem: ScalarType, count: int) -> Memory:
        return Memory(np.full(count * elem.nbytes, GARBAGE, np.uint8).view(elem.dtype), self.fresh_log())

    def get(self, memory: Memory) -> Any:
        return memory.data.copy()

    def launch(self, kernel: Kernel, blocks: int, args: Sequence[Any]) -> None:
        self.launches.append((kernel.name, blocks))
        if kernel not in self.compiled:
            self.compiled[kernel] = self.compile(kernel)
        for log in self.logs:
            log.writes.clear()
            log.reads.clear()
        given = [Memory(a.data, None) if p.name == "failures" else a for p, a in zip(kernel.params, args)]
        self.blocks, self.block = blocks, kernel.block
        with np.errstate(all="ignore"):
            for b in range(blocks):
                self.run_block(b, kernel, given)

    # --- threads ---

    def fresh_log(self) -> Log:
        self.logs.append(Log(self))
        return self.logs[-1]

    def compile(self, kernel: Kernel) -> Callable[..., Iterator[int]]:
        """The kernel's source as a generator that yields the line of each barrier it comes to."""
        tree = _Barriers().visit(ast.parse(kernel.text))
        tree.body[0].body += ast.parse("if False:\n    yield 0").body
        scope = dict(self.namespace)
        scope |= {name: foreign.emulated(name) for name in foreign.used(kernel.text, "device")}
        exec(compile(ast.fix_missing_locations(tree), f"<{kernel.name}>", "exec"), scope)
        return scope[kernel.name]                                       # type: ignore[no-any-return]

    def run_block(self, b: int, kernel: Kernel, args: Sequence[Any]) -> None:
        self.shared: dict[int, Memory] = {}
        threads = [self.compiled[kernel](*args) for _ in range(kernel.block)]
        self.thread_shared = [0] * kernel.block
        passed = 0
        while True:
            waits: list[int | None] = [None] * kernel.block
            for t in self.order(kernel.block):
                self.now = (b, t, passed)
                waits[t] = next(threads[t], None)
            if all(w is None for w in waits):
                return
            if len(set(waits)) > 1:
                raise SimtError(f"{kernel.name}: threads wait at different barriers (lines {waits}; None has ended)")
            passed += 1

    def shared_memory(self, count: int, dtype: Any) -> Memory:
        """The k-th shared array a thread asks for is the k-th of its block."""
        t = self.now[1]
        k = self.thread_shared[t]
        self.thread_shared[t] += 1
        if k not in self.shared:
            self.shared[k] = Memory(np.full(count * dtype.itemsize, GARBAGE, np.uint8).view(dtype), self.fresh_log())
        return self.shared[k]


class _Barriers(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if ast.unparse(node.value) == "cuda.syncthreads()":
            node.value = ast.Yield(ast.Constant(node.lineno))
        return node


# --- the names that kernels use --------------------------------------------------------------------------------------

def _elem(value: Any) -> Any:
    """A Python number as the NumPy scalar the kernel means."""
    if isinstance(value, (bool, np.generic)):
        return np.bool_(value) if isinstance(value, bool) else value
    if isinstance(value, int):
        return (i64 if value < 1 << 63 else u64).dtype.type(value)
    return f64.dtype.type(value)


def _prim(name: str) -> Callable[..., Any]:
    fn = TABLE[name].fn

    def apply(*args: Any) -> Any:
        values = [_elem(a) for a in args]
        if name in ("floordiv", "mod", "quot", "fmod") and values[1] == 0 and values[1].dtype.kind != "f":
            return values[0].dtype.type(0) if name in ("floordiv", "quot") else values[0]
        return fn(*values)
    return apply


class _Cast:
    """An element type, and the conversion to it."""

    def __init__(self, elem: ScalarType):
        self.elem, self.dtype = elem, elem.dtype

    def __call__(self, value: Any) -> Any:
        return convert(_elem(value), self.elem)


_HELPERS = {"sum_": "add", "product_": "mul", "fmax": "max", "fmin": "min", "select": "select", "fabs_": "abs",
            "rint_": "round", "invert_": "not", "copysign_": "copysign", "fma_": "fma"}
_HELPERS |= {f"{n}_": n for n in ("sqrt", "floor", "ceil", "trunc", "cbrt", "neg", "add", "sub", "mul", "and", "or",
                                  "xor", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh",
                                  "erf", "sin", "cos", "digamma", "popcount", "clz", "ctz")}
_HELPERS |= {f"{n}_{k}": n for n in ("floordiv", "mod", "quot", "fmod", "pow", "max", "min", "abs", "sign")
             for k in "iuf"}


def _names(machine: Simt) -> dict[str, Any]:
    """What `cuda_intrinsics` offers, in Python."""
    casts = {"boolean" if t.is_bool else t.name: _Cast(t) for t in SCALAR_TYPES}
    shift = {"shl_": _prim("shl"), "shr_": _prim("shr")}

    def buffer(memory: Memory, first: Any, count: Any, cast: _Cast) -> Memory:
        return memory.part(int(first) * cast.dtype.itemsize, int(count), cast.dtype)

    def local(count: int, cast: _Cast) -> Memory:
        return Memory(np.full(count * cast.dtype.itemsize, GARBAGE, np.uint8).view(cast.dtype), None)
    cuda = SimpleNamespace(
        grid=lambda _: np.int64(machine.now[0] * machine.block + machine.now[1]),
        gridsize=lambda _: np.int64(machine.blocks * machine.block),
        threadIdx=_Axis(lambda: machine.now[1]), blockIdx=_Axis(lambda: machine.now[0]))
    return {**casts, **{n: _prim(p) for n, p in _HELPERS.items()},
            **{n: (lambda f: lambda a, b, *_: f(a, b))(f) for n, f in shift.items()},
            "cuda": cuda, "math": SimpleNamespace(**{n: _prim(n) for n in TABLE}), "buffer": buffer,
            "constant": buffer, "local": local, "inf": np.inf, "nan": np.nan,
            "shared": lambda count, cast: machine.shared_memory(count, cast.dtype),
            "at": lambda memory, offset, count, cast: memory.part(int(offset), int(count), cast.dtype),
            "share": lambda n, threads: max(np.int64(1), -(-n // threads)),
            "range": lambda n: (np.int64(i) for i in range(int(n))),
            "bitcast_": lambda x, cast: bitcast(_elem(x), cast.elem),
            "float_to_int": lambda x, cast, low, high: cast(x)}


class _Axis:
    """An index that is asked for while a thread runs."""

    def __init__(self, value: Callable[[], int]):
        self.value = value

    @property
    def x(self) -> int:
        return self.value()
