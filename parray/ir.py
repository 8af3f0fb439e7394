"""The graph: A-normal form, single assignment, nested lambdas.

    Lambda ::= "\\" Var ... "." Body               functions of one or more values; may use variables around them
    Body   ::= Stm ... "in" Atom ...               statements in order, then the results
    Stm    ::= Var ... "=" Op                      one operation, one place in the user's source
    Atom   ::= Var | Const
    Op     ::= Prim | Iota | Replicate | ... | Screma | Scatter | Loop | While | Cond | Contract   (`parray.soacs`)
    Program::= Lambda plus what the caller's arguments must satisfy

Everything is immutable; a stage takes a graph and gives a new one.  Operands of an operation are found by walking its
fields (`atoms`, `lambdas`, `map_op`), so no stage needs to know every operation.  `parray.builder` makes graphs.
"""
from __future__ import annotations

import dataclasses
import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Iterable, Iterator

import numpy as np

from parray.errors import Loc
from parray.types import ScalarType, Type, i64

_ids = itertools.count()


class Var:
    """A variable: bound once, compared by identity.  ``hint`` is only for printing.

    ``alias`` is set while tracing on an argument's size variable that was unified with another size; the finished
    graph holds no aliased variable (`resolve`, `parray.trace`).
    """
    __slots__ = ("type", "hint", "id", "alias")

    def __init__(self, type: Type, hint: str = ""):
        self.type = type
        self.hint = hint
        self.id = next(_ids)
        self.alias: Any = None

    def __repr__(self) -> str:
        return f"{self.hint or 'v'}_{self.id}"


def resolve(size: Any) -> Any:
    """The size a unified size variable stands for."""
    while isinstance(size, Var) and size.alias is not None:
        size = size.alias
    return size


@dataclass(frozen=True)
class Const:
    """A scalar constant of a definite type; equal when type and bits are (so 0.0 is not -0.0 and NaN equals NaN)."""
    value: Any = field(compare=False)
    elem: ScalarType = i64
    bits: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        value = self.elem.dtype.type(self.value)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "bits", value.tobytes())

    @property
    def type(self) -> Type:
        return Type(self.elem)

    def __repr__(self) -> str:
        return str(self.value) if self.elem in (i64,) else f"{self.value}{self.elem.name}"


Atom = Var | Const


@dataclass(frozen=True)
class Stm:
    """``vars = op``; ``loc`` is the user's line that made it."""
    vars: tuple[Var, ...]
    op: Op
    loc: Loc | None = None


@dataclass(frozen=True)
class Lambda:
    """Parameters, statements, results.  Variables neither bound here nor parameters are free."""
    params: tuple[Var, ...]
    stms: tuple[Stm, ...]
    results: tuple[Atom, ...]

    @property
    def result_types(self) -> tuple[Type, ...]:
        return tuple(r.type for r in self.results)


@dataclass(frozen=True)
class Monoid:
    """An associative operator on k values, ``op: (a1..ak, b1..bk) -> k values``, and its neutral element."""
    op: Lambda
    ne: tuple[Atom, ...]
    commutative: bool = False

    @property
    def width(self) -> int:
        return len(self.ne)


class Op(ABC):
    """One operation.  Subclasses are frozen dataclasses whose fields hold atoms, sizes, lambdas and plain data."""
    name: ClassVar[str] = ""
    effect: ClassVar[bool] = False            # must be kept although nothing uses its results

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = cls.__name__.lower()

    @abstractmethod
    def infer(self) -> tuple[Type, ...]:
        """The types of the results; raises TypeMismatch/SizeMismatch/AssertionError where operands do not fit."""

    @abstractmethod
    def evaluate(self, ev: Any, *args: Any) -> tuple[Any, ...]:
        """Reference semantics in NumPy.  ``ev``, the interpreter, has ``value(atom)`` and ``call(lambda, *values)``."""

    @abstractmethod
    def jvp(self, ad: Any, stm: Stm) -> None:
        """Emit this operation and its tangents (`parray.ad.forward`)."""

    def forward(self, ad: Any, stm: Stm) -> None:
        """Emit this operation in reverse mode's forward part, in the form that its ``vjp`` wants."""
        ad.record(stm)

    @abstractmethod
    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """Add to the operands' cotangents what ``bars``, the results' cotangents, give (`parray.ad.reverse`)."""

    def vjp_sparse(self, ad: Any, stm: Stm, sparse: Any) -> bool:
        """Pass a sparse cotangent of a view on to what it views; False when it must become dense first."""
        return False

    def fails(self) -> bool:
        """Whether it can raise at run time (an index, a division): such work is not moved to where it might not run."""
        return False


# --- walking -------------------------------------------------------------------------------------------------------

def atoms_of(value: Any) -> Iterator[Atom]:
    """Atoms in a field, lambdas not entered."""
    if isinstance(value, (Var, Const)):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from atoms_of(v)
    elif isinstance(value, Monoid):
        yield from value.ne


def lambdas_of(value: Any) -> Iterator[Lambda]:
    """Lambdas in a field."""
    if isinstance(value, Lambda):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from lambdas_of(v)
    elif isinstance(value, Monoid):
        yield value.op


_FIELD_NAMES: dict[type[Op], tuple[str, ...]] = {}


def field_names(kind: type[Op]) -> tuple[str, ...]:
    """The names of an operation's fields, looked up once: every walk asks for them."""
    if kind not in _FIELD_NAMES:
        _FIELD_NAMES[kind] = tuple(f.name for f in dataclasses.fields(kind))    # type: ignore[arg-type]
    return _FIELD_NAMES[kind]


def fields(op: Op) -> list[Any]:
    """The values of an operation's fields, in order."""
    return [getattr(op, name) for name in field_names(type(op))]


def atoms(op: Op) -> Iterator[Atom]:
    """The atoms an operation names directly."""
    for value in fields(op):
        yield from atoms_of(value)


def lambdas(op: Op) -> Iterator[Lambda]:
    """The lambdas an operation holds."""
    for value in fields(op):
        yield from lambdas_of(value)


def map_value(value: Any, on_atom: Callable[[Any], Any], on_lambda: Callable[[Lambda], Lambda]) -> Any:
    """A field's value with every atom and lambda in it replaced."""
    if isinstance(value, (Var, Const)):
        return on_atom(value)
    if isinstance(value, Lambda):
        return on_lambda(value)
    if isinstance(value, Monoid):
        return Monoid(on_lambda(value.op), tuple(on_atom(a) for a in value.ne), value.commutative)
    if isinstance(value, tuple):
        new = tuple(map_value(v, on_atom, on_lambda) for v in value)
        return value if all(a is b for a, b in zip(value, new)) else new
    return value


def map_op(op: Op, on_atom: Callable[[Any], Any], on_lambda: Callable[[Lambda], Lambda]) -> Op:
    """The same operation with every atom and lambda replaced.  A size variable may become an int."""
    changes = {}
    for name in field_names(type(op)):
        old = getattr(op, name)
        new = map_value(old, on_atom, on_lambda)
        if new is not old:
            changes[name] = new
    return dataclasses.replace(op, **changes) if changes else op        # type: ignore[type-var]


def size_vars(type: Type) -> Iterator[Var]:
    """The variables among a type's sizes."""
    for s in type.shape:
        if isinstance(s, Var):
            yield s


def free_vars(lam: Lambda | Op, bound: frozenset[Var] = frozenset()) -> dict[Var, None]:
    """Variables used but not bound inside, in order of first use; sizes in types count as uses."""
    free: dict[Var, None] = {}
    local: set[Var] = set(bound)

    def use(v: Any) -> None:
        if isinstance(v, Var):
            if v not in local:
                free.setdefault(v)

    def walk_op(op: Op) -> None:
        for a in atoms(op):
            use(a)
        for l in lambdas(op):
            walk(l)

    def walk(l: Lambda) -> None:
        local.update(l.params)
        for p in l.params:
            for s in size_vars(p.type):
                use(s)
        for stm in l.stms:
            walk_op(stm.op)
            local.update(stm.vars)
        for r in l.results:
            use(r)

    walk(lam) if isinstance(lam, Lambda) else walk_op(lam)
    return free


def prune(stms: Iterable[Stm], results: Iterable[Any]) -> tuple[Stm, ...]:
    """The statements that ``results`` need."""
    results = tuple(results)
    used = {r for r in results if isinstance(r, Var)}
    used.update(s for r in results for s in r.type.shape if isinstance(s, Var))
    kept = []
    for stm in reversed(tuple(stms)):
        if stm.op.effect or any(v in used for v in stm.vars):
            kept.append(stm)
            used.update(free_vars(stm.op))
            used.update(s for v in stm.vars for s in v.type.shape if isinstance(s, Var))
    return tuple(reversed(kept))


class Substitution:
    """Replaces variables by atoms, refreshing every variable bound on the way (so a lambda can be used twice)."""

    def __init__(self, env: dict[Var, Any] | None = None):
        self.env: dict[Var, Any] = dict(env or {})

    def atom(self, a: Any) -> Any:
        return self.env.get(a, a) if isinstance(a, Var) else a

    def size(self, s: Any) -> Any:
        new = self.env.get(s, s) if isinstance(s, Var) else s
        return int(new.value) if isinstance(new, Const) else new

    def type(self, t: Type) -> Type:
        if not t.shape:
            return t
        return Type(t.elem, tuple(self.size(s) for s in t.shape))

    def fresh(self, v: Var) -> Var:
        new = Var(self.type(v.type), v.hint)
        self.env[v] = new
        return new

    def op(self, op: Op) -> Op:
        return normal_sizes(map_op(op, self.atom, self.lam))

    def stm(self, stm: Stm) -> Stm:
        op = self.op(stm.op)
        return Stm(tuple(self.fresh(v) for v in stm.vars), op, stm.loc)

    def lam(self, lam: Lambda) -> Lambda:
        params = tuple(self.fresh(p) for p in lam.params)
        stms = tuple(self.stm(s) for s in lam.stms)
        return Lambda(params, stms, tuple(self.atom(r) for r in lam.results))


def normal_sizes(op: Op) -> Op:
    """Sizes that a substitution turned into constants become plain ints again."""
    changes = {}
    for f in dataclasses.fields(op):                                    # type: ignore[arg-type]
        if f.metadata.get("size"):
            old = getattr(op, f.name)
            new = tuple(map(as_size, old)) if isinstance(old, tuple) else as_size(old)
            if new != old:
                changes[f.name] = new
    return dataclasses.replace(op, **changes) if changes else op        # type: ignore[type-var]


def size_field() -> Any:
    """A dataclass field that holds a size or a tuple of sizes."""
    return field(metadata={"size": True})


def as_size(a: Any) -> Any:
    """An atom as a size: an int when it is a constant."""
    return int(a.value) if isinstance(a, Const) else a


def size_atom(s: Any) -> Atom:
    """A size as an atom."""
    return Const(s, i64) if isinstance(s, (int, np.integer)) else s


def refresh(lam: Lambda) -> Lambda:
    """A copy of the lambda that binds fresh variables."""
    return Substitution().lam(lam)


def count_ops(lam: Lambda, kind: type[Op] | Callable[[Op], bool], nested: bool = True) -> int:
    """How many operations of a kind a lambda holds; the test of fusion."""
    test = (lambda op: isinstance(op, kind)) if isinstance(kind, type) else kind
    total = 0
    for stm in lam.stms:
        total += bool(test(stm.op))
        if nested:
            total += sum(count_ops(l, kind) for l in lambdas(stm.op))
    return total


def each_op(lam: Lambda) -> Iterable[Op]:
    """Every operation, nested ones after the one that holds them."""
    for stm in lam.stms:
        yield stm.op
        for l in lambdas(stm.op):
            yield from each_op(l)
