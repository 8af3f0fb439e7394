"""Kernel code: loops, loads, stores and scalar code over flat buffers; what lowering makes and every backend prints.

    Program ::= buffers, statements, results
    Stm     ::= Let name = Expr | Assign name = Expr | Store buf[Expr] = Expr | Check Expr
              | For name < Expr: Stm.. | If Expr: Stm.. else Stm.. | While Stm.. Expr: Stm..
              | Par name < Expr: Stm.. with accumulators        only outside other loops' bodies of a Par
              | Serial: Stm..                                    one thread runs it, all wait
              | Tile                                             a register tile of sums of products
              | Call function                                    foreign code
    Expr    ::= Lit | Ref name | Apply prim Expr.. | Load buf[Expr]

Target-neutral: a `Par` is a range of iterations that do not depend on each other but for the accumulators, which are
merged in order.  On the CPU the threads of a call split it; on CUDA it is a grid.  Indices are i64 and linear; shapes
and strides have become arithmetic.  Buffers are disjoint memory, so loads and stores of different ones never alias.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterator

from parray.errors import Loc
from parray.prims import ON_ENTRY
from parray.types import ScalarType, bool_, i64


# --- expressions -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Lit:
    """A constant."""
    value: Any
    elem: ScalarType = i64


@dataclass(frozen=True)
class Ref:
    """The value of a name."""
    name: str
    elem: ScalarType = i64


@dataclass(frozen=True)
class Apply:
    """A primitive; ``sum`` marks an addition that belongs to a user's reduction and may be reassociated."""
    prim: str
    args: tuple[Expr, ...]
    elem: ScalarType
    sum: bool = False


@dataclass(frozen=True)
class Load:
    """An element of a buffer."""
    buf: Buf
    index: Expr

    @property
    def elem(self) -> ScalarType:
        return self.buf.elem


Expr = Lit | Ref | Apply | Load


def on_entry(e: Apply) -> bool:
    """Whether a caller gets the very number that the program will: sizes of memory come from both.

    Floats, narrow integers that wrap and whatever the caller's Python has no word for are left to the program."""
    if e.prim == "convert":
        source = e.args[0].elem
        return e.elem == i64 and not source.is_float and source.bits + (source.kind == "u") <= 64
    return e.prim in ON_ENTRY and {e.elem, *(a.elem for a in e.args)} <= {i64, bool_}


@dataclass(frozen=True)
class Buf:
    """Flat memory.  ``kind``: in, out, temp (shared by all threads), private (one a thread), heap (made and freed
    where its size is known).  ``size`` counts elements."""
    name: str
    elem: ScalarType
    kind: str
    size: Expr


# --- statements ------------------------------------------------------------------------------------------------------

@dataclass
class Let:
    """Bind a name; one bound in a loop is bound anew each time."""
    name: str
    value: Expr


@dataclass
class Assign:
    """Give a name (first bound by Let) another value."""
    name: str
    value: Expr


@dataclass
class Store:
    """Write an element of a buffer."""
    buf: Buf
    index: Expr
    value: Expr


@dataclass
class Check:
    """Record failure ``code`` when ``bad`` holds; execution goes on (later accesses are harmless)."""
    bad: Expr
    code: int


@dataclass
class For:
    """The body for ``var`` = 0, 1, .. ``n`` - 1."""
    var: str
    n: Expr
    body: list[Stm]


@dataclass
class If:
    """One of two branches.  In the ``rest`` of a block, after a check that must hold for it, what is bound is used
    outside as well (`parray.lower.rest`)."""
    cond: Expr
    then: list[Stm]
    orelse: list[Stm] = field(default_factory=list)
    rest: bool = False


@dataclass
class While:
    """``test`` computes ``cond`` before every iteration."""
    test: list[Stm]
    cond: Expr
    body: list[Stm]


@dataclass
class Heap:
    """A buffer whose size is known only here: made before ``body``, freed after it unless ``kept`` as a result."""
    buf: Buf
    body: list[Stm]
    kept: bool = False


@dataclass
class Tile:
    """Rows times lanes of sums of products, held in registers while ``loops`` (variable, extent) run:

        out[r][lane] (+)= sum over the loops of x[x_first[r] + x_step] * y[y_first + y_step + lane]

    Lanes are neighbours in ``y`` and in ``out``; ``count`` of them are wanted, all where it is None, and ``y`` is
    read beyond them only if ``padded``.  Row r goes to ``out[out_first[r]]`` where ``wanted[r]`` holds; it is added
    to what is there where ``add`` holds.  ``names``: accumulators, then two indices and a vector.
    """
    elem: ScalarType
    lanes: int
    loops: list[tuple[str, Expr]]
    x: Buf
    x_first: list[Expr]
    x_step: Expr
    y: Buf
    y_first: Expr
    y_step: Expr
    padded: bool
    out: Buf
    out_first: list[Expr]
    wanted: list[Expr | None]
    count: Expr | None
    add: Expr
    names: list[str]

    weight = 20                                # statements that it takes as much time to compile as


@dataclass(frozen=True)
class Place:
    """An array in contiguous memory, as an argument of foreign code: its first element's index, its shape."""
    buf: Buf
    index: Expr
    shape: tuple[Expr, ...]


@dataclass
class Call:
    """``name = function(args, sizes)``, or without a name for what fills its arguments.  Where ``code`` is not 0 the
    function may raise: then it records that failure."""
    function: Any
    args: list[Expr | Place]
    sizes: list[Expr]
    name: str | None
    elem: ScalarType
    code: int = 0

    weight = 5

    @property
    def places(self) -> list[Place]:
        return [a for a in self.args if isinstance(a, Place)]


@dataclass
class Acc:
    """A scalar accumulator of a Par: its name, start value and, for merging, the name the other part goes by."""
    name: str
    other: str
    init: Expr


@dataclass
class Par:
    """``before``: per-thread set-up; ``merge`` makes ``acc = acc op other``; ``arrays`` are (private, shared) pairs of
    accumulating buffers whose merging code is ``fold`` (shared op= private of thread ``lane``)."""
    var: str
    n: Expr
    body: list[Stm]
    accs: list[Acc] = field(default_factory=list)
    merge: list[Stm] = field(default_factory=list)
    before: list[Stm] = field(default_factory=list)
    fold: list[Stm] = field(default_factory=list)
    fold_start: list[Stm] = field(default_factory=list)
    loc: Loc | None = None
    what: str = ""


@dataclass
class Serial:
    """Work that one thread does; ``scalars`` are names it leaves for all (with their types)."""
    body: list[Stm]
    scalars: list[tuple[str, ScalarType]] = field(default_factory=list)
    loc: Loc | None = None
    what: str = ""


Stm = Let | Assign | Store | Check | For | If | While | Heap | Par | Serial | Tile | Call


@dataclass
class Result:
    """A result: an out buffer with its shape, or a scalar (left in element 0 of a one-element out buffer).

    The shape is in terms of what is known on entry; that of a ``kept`` buffer is names the program leaves.
    """
    buf: Buf
    shape: tuple[Expr, ...]
    scalar: bool

    @property
    def kept(self) -> bool:
        return self.buf.kind == "heap"


@dataclass
class Failure:
    """What failure code k means."""
    message: str
    error: str
    loc: Loc | None


@dataclass
class KernelProgram:
    """A lowered program: parameters in order, temporaries, code, results."""
    name: str
    sizes: list[str]
    params: list[Buf | Ref]                    # a buffer for an array, a name for a scalar
    temps: list[Buf]
    body: list[Stm]
    results: list[Result]
    failures: list[Failure]
    guards: list[tuple[Expr, int]]             # what must hold of the sizes, and the failure where it does not
    work: Expr                                 # estimated scalar operations that can be shared among threads
    ranks: dict[str, int] = field(default_factory=dict)        # of the arrays among the parameters


# --- arithmetic on indices -------------------------------------------------------------------------------------------

ZERO, ONE = Lit(0), Lit(1)
LANE = Ref("lane")                             # the part being merged, in Par.fold


def add(a: Expr, b: Expr) -> Expr:
    """``a + b``, simplified."""
    if isinstance(a, Lit) and isinstance(b, Lit):
        return Lit(int(a.value) + int(b.value))
    if a == ZERO:
        return b
    if b == ZERO:
        return a
    return Apply("add", (a, b), i64)


def sub(a: Expr, b: Expr) -> Expr:
    """``a - b``, simplified."""
    if isinstance(a, Lit) and isinstance(b, Lit):
        return Lit(int(a.value) - int(b.value))
    return a if b == ZERO else Apply("sub", (a, b), i64)


def mul(a: Expr, b: Expr) -> Expr:
    """``a * b``, simplified."""
    if isinstance(a, Lit) and isinstance(b, Lit):
        return Lit(int(a.value) * int(b.value))
    if ZERO in (a, b):
        return ZERO
    if a == ONE:
        return b
    if b == ONE:
        return a
    return Apply("mul", (a, b), i64)


def product(xs: Any) -> Expr:
    """The product of index expressions; 1 for none."""
    total: Expr = ONE
    for x in xs:
        total = mul(total, x)
    return total


def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller of two index expressions."""
    return a if a == b else Apply("min", (a, b), i64)


def both(a: Expr, b: Expr) -> Expr:
    """``a and b``, both computed."""
    return Apply("and", (a, b), bool_)


def either(a: Expr, b: Expr) -> Expr:
    """``a or b``, both computed."""
    return Apply("or", (a, b), bool_)


def blocks(s: Stm) -> list[list[Stm]]:
    """The blocks of a statement, in order."""
    match s:
        case For(body=body) | Heap(body=body) | Serial(body=body):
            return [body]
        case If(then=then, orelse=orelse):
            return [then, orelse]
        case While(test=test, body=body):
            return [test, body]
        case Par():
            return [s.before, s.body, s.merge, s.fold_start, s.fold]
        case _:
            return []


def walk(stms: list[Stm]) -> Iterator[Stm]:
    """Every statement, outer ones first."""
    for s in stms:
        yield s
        for block in blocks(s):
            yield from walk(block)


def refs(e: Expr) -> Iterator[Ref]:
    """The names an expression reads."""
    match e:
        case Ref():
            yield e
        case Apply(args=args):
            for a in args:
                yield from refs(a)
        case Load(index=index):
            yield from refs(index)
        case Lit():
            return


def expressions(s: Any) -> Iterator[Expr]:
    """The expressions of a statement itself, not of its blocks."""
    match s:
        case Let(value=e) | Assign(value=e) | Check(bad=e) | For(n=e) | If(cond=e) | While(cond=e):
            yield e
        case Store(index=i, value=v):
            yield from (i, v)
        case Par(n=n, accs=accs):
            yield n
            yield from (a.init for a in accs)
        case Heap(buf=buf):
            yield buf.size
        case Tile():
            yield from (n for _, n in s.loops)
            yield from (*s.x_first, s.x_step, s.y_first, s.y_step, *s.out_first, s.add)
            yield from (e for e in (*s.wanted, s.count) if e is not None)
        case Call():
            yield from s.sizes
            for a in s.args:
                yield from (a.index, *a.shape) if isinstance(a, Place) else (a,)
