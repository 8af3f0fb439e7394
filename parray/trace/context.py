"""The state of a trace: whose values are valid where, captured arrays, and sizes that were found to be equal.

Every dimension of an argument starts as a size of its own (or as the one its annotation names).  Where the function
needs two sizes equal (`unify`), the variables of arguments are made one and the function is traced anew from the start
with that knowledge, so a finished graph has one variable for each size.  Sizes that cannot be compared while tracing
are compared by an `Assert` at run time.

Sizes computed inside a lambda, and checks that depend on sizes alone, are moved out of it when it is closed (`hoist`):
the type of ``map(lambda row: row[1:], xs)`` names the size ``max(n - 1, 0)``, which must be known outside.
"""
from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from parray import builder
from parray.builder import Scope
from parray.errors import Loc, SizeMismatch, TraceError, TypeMismatch
from parray.ir import Atom, Const, Stm, Var, atoms, resolve, size_atom, size_vars
from parray.program import Position, Reason
from parray.soacs import Assert, Prim, Reshape
from parray.types import Type, bool_, i64, scalar_type


class Retrace(BaseException):
    """The trace found sizes to be equal and must start again knowing it."""


@dataclass
class Trace:
    """What one trace knows beside the graph in the builder."""
    name: str
    roots: dict[Var, Position] = field(default_factory=dict)                     # size variables of arguments
    found: list[tuple[Position, Any, Reason]] = field(default_factory=list)      # Position = Position or int
    captures: dict[int, tuple[Any, Var]] = field(default_factory=dict)           # by id of the user's array
    nonneg: set[Var] = field(default_factory=set)                                # i64 values known to be >= 0
    below: dict[Var, Any] = field(default_factory=dict)                          # ... and < this size
    counting: dict[Var, Any] = field(default_factory=dict)                       # arrays of such values
    clipped: dict[Var, Any] = field(default_factory=dict)                        # max(p, 0): p
    opened: dict[Scope, Loc | None] = field(default_factory=dict)


class _State(threading.local):
    trace: Trace | None = None


_state = _State()


def active() -> bool:
    """Whether a function is being traced on this thread."""
    return _state.trace is not None


def current(what: str = "this") -> Trace:
    """The running trace; an error for the user when there is none."""
    if _state.trace is None:
        raise TraceError(f"{what} works on traced values: call it inside a function marked @parallel", builder.here())
    return _state.trace


@contextmanager
def tracing(trace: Trace) -> Iterator[Scope]:
    """Run a trace of its own; whatever was being traced is set aside."""
    outer = _state.trace
    _state.trace = trace
    try:
        with builder.scope(root=True) as s:
            trace.opened[s] = builder.here()
            yield s
    finally:
        _state.trace = outer


# --- validity --------------------------------------------------------------------------------------------------------

def made_at(atom: Atom, scope: Scope, trace: Trace) -> str:
    """Where a value was made, for messages."""
    for stm in scope.stms:
        if atom in stm.vars:
            return f" (made at {stm.loc})" if stm.loc is not None else ""
    loc = trace.opened.get(scope)
    return f" (an argument of the function at {loc})" if loc is not None else ""


def check_valid(atom: Atom, scope: Scope, trace: Trace) -> None:
    """Raise TraceError when a value is used after or outside of the trace or the lambda it belongs to."""
    if trace is not _state.trace:
        when = "after its trace has ended" if _state.trace is None else "in the trace of another function"
        raise TraceError(f"a traced value of {trace.name}{made_at(atom, scope, trace)} is used {when}; return it from "
                         "the function instead of keeping it in a variable outside", builder.here())
    if not any(s is scope for s in builder.current().chain()):
        raise TraceError(f"a traced value{made_at(atom, scope, trace)} is used outside of the function that made it; "
                         "return it from that function", builder.here())


def capture(array: np.ndarray[Any, Any], what: str) -> Var:
    """The variable of an array of the user's that the function refers to; its contents are read at every call."""
    trace = current(what)
    known = trace.captures.get(id(array))
    if known is None:
        try:
            elem = scalar_type(array.dtype)
        except TypeError as e:
            raise TypeMismatch(str(e), builder.here()) from None
        known = (array, Var(Type(elem, array.shape), "captured"))
        trace.captures[id(array)] = known                       # which holds the array, so its id stays its own
    return known[1]


# --- sizes -----------------------------------------------------------------------------------------------------------

def show(size: Any) -> str:
    """A size in a message; of different sizes with one name, the later ones have a number, as in `parray.pretty`."""
    size = resolve(size)
    if isinstance(size, int):
        return str(size)
    if not size.hint:
        return "a size known at run time"
    alike = [v for v in _state.trace.roots if v.hint == size.hint and resolve(v) is v] if _state.trace else []
    number = next((k for k, v in enumerate(alike) if v is size), 0)
    return f"{size.hint}_{number}" if number else str(size.hint)


def unify(a: Any, b: Any, text: str, broadcast: bool = False) -> None:
    """Two sizes must be equal; ``text`` says why."""
    a, b = first, second = resolve(a), resolve(b)
    if a is b or builder.same_size(a, b):
        return
    loc = builder.here()
    if isinstance(a, int) and isinstance(b, int):
        raise SizeMismatch(f"sizes {a} and {b} differ: {text}", loc)
    trace = current()
    if a not in trace.roots or not (isinstance(b, int) or b in trace.roots):
        a, b = b, a
    if a in trace.roots and (isinstance(b, int) or b in trace.roots):
        a.alias = b
        trace.found.append((trace.roots[a], b if isinstance(b, int) else trace.roots[b], Reason(text, loc, broadcast)))
        return
    equal = builder.prim("eq", size_atom(a), size_atom(b))
    builder.emit(Assert(equal, "sizes {} and {} differ: " + text.replace("{", "{{").replace("}", "}}"),
                        (size_atom(first), size_atom(second)), "SizeMismatch"))


def settle() -> None:
    """Start again now if sizes were unified: what follows needs a graph without aliases."""
    if current().found:
        raise Retrace()


def fit(x: Atom, shape: Sequence[Any]) -> Atom:
    """``x`` with its sizes renamed to ``shape``, which they are known to equal."""
    if all(resolve(a) is resolve(b) or a == b for a, b in zip(x.type.shape, shape, strict=True)):
        return x
    out = builder.emit1(Reshape(x, tuple(shape)))                                    # type: ignore[arg-type]
    trace = current()
    if x in trace.counting:
        trace.counting[out] = trace.counting[x]
    return out


def is_nonneg(size: Any) -> bool:
    """Whether an i64 value is known not to be negative."""
    if isinstance(size, int):
        return size >= 0
    if isinstance(size, Const):
        return bool(size.value >= 0)
    nonneg = current().nonneg
    return size in nonneg or all(c >= 0 and all(v in nonneg for v in mono)
                                 for mono, c in builder._poly(size).items())


def at_least_zero(size: Any) -> Any:
    """``max(size, 0)``, as a size."""
    if is_nonneg(size):
        return size
    size = _unclipped(size)
    out = builder.size_prim("max", size, 0)
    if isinstance(out, Var):
        current().nonneg.add(out)
        current().clipped[out] = size
    return out


def _unclipped(size: Any) -> Any:
    """``p - k`` for ``max(p, 0) - k``, k >= 0: clipped at 0 they are equal, and this form is the canonical one."""
    poly = dict(builder._poly(size))
    k = -poly.pop((), 0)
    clipped = current().clipped
    if k < 0 or len(poly) != 1:
        return size
    ((mono, coefficient),) = poly.items()
    if coefficient != 1 or len(mono) != 1 or mono[0] not in clipped:
        return size
    return builder.size_sub(clipped[mono[0]], k)


def smaller(a: Any, b: Any) -> Any:
    """``min(a, b)`` of non-negative sizes."""
    if builder.same_size(a, b):
        return a
    out = builder.size_prim("min", a, b)
    if isinstance(out, Var):
        current().nonneg.add(out)
    return out


# --- lambdas ---------------------------------------------------------------------------------------------------------

@contextmanager
def inner(params: Sequence[Var], guard: Callable[[], Atom] | None = None) -> Iterator[Scope]:
    """The scope of a lambda.  ``guard`` gives, outside, whether the lambda runs at all (None: do not move checks)."""
    trace = current()
    with builder.scope() as s:
        trace.opened[s] = builder.here()
        yield s
    hoist(s, params, guard)


def hoist(s: Scope, params: Sequence[Var], guard: Callable[[], Atom] | None) -> None:
    """Move sizes, and checks that depend on nothing inside, out of a closed scope into the current one."""
    sizes = {v for v in (*s.sizes.values(), *s.polys) if isinstance(v, Var)}
    if not sizes and not any(isinstance(stm.op, Assert) for stm in s.stms):
        return
    bound: set[Any] = set(params)
    free: dict[Var, Stm] = {}                       # scalar statements that use nothing of the inside
    checks: list[Stm] = []
    for stm in s.stms:
        outside = not any(a in bound for a in atoms(stm.op))
        if outside and isinstance(stm.op, Prim) and (stm.vars[0] in sizes or not stm.op.fails()):
            free[stm.vars[0]] = stm
        elif outside and guard is not None and isinstance(stm.op, Assert):
            checks.append(stm)
        else:
            bound.update(stm.vars)
    needed: set[Any] = sizes & set(free)
    for stm in checks:
        needed.update(a for a in atoms(stm.op) if a in free)
    for v in reversed(free):
        if v in needed:
            needed.update(a for a in atoms(free[v].op) if a in free)
    moved = {id(free[v]) for v in needed} | {id(stm) for stm in checks}
    _emit_outside([stm for stm in s.stms if id(stm) in moved], guard)
    s.stms = [stm for stm in s.stms if id(stm) not in moved]
    outer = builder.current()
    for key, v in s.sizes.items():
        if not isinstance(v, Var) or v in needed:
            outer.sizes.setdefault(key, v)
    outer.polys.update((v, poly) for v, poly in s.polys.items() if v in needed)


def _emit_outside(stms: Sequence[Stm], guard: Callable[[], Atom] | None) -> None:
    """Statements moved out of a lambda; a check must pass only where the lambda would have run."""
    runs: Atom | None = None
    for stm in stms:
        if isinstance(stm.op, Assert) and guard is not None:
            with builder.at(stm.loc):
                runs = guard() if runs is None else runs
                cond = stm.op.cond
                if not (isinstance(runs, Const) and runs.value):
                    cond = builder.prim("or", builder.prim("not", runs), cond)
                builder.emit(Assert(cond, stm.op.message, stm.op.values, stm.op.error))
        else:
            builder.current().stms.append(stm)


def always() -> Atom:
    """The guard of a lambda that runs exactly once."""
    return Const(True, bool_)


def some(n: Any) -> Callable[[], Atom]:
    """The guard of a lambda that runs for each of ``n`` elements."""
    if isinstance(n, int):
        return lambda: Const(n > 0, bool_)
    return lambda: builder.prim("gt", n, Const(0, i64))


def check_regular(types: Sequence[Type], s: Scope, params: Sequence[Var], what: str) -> None:
    """The result types of a closed lambda may not depend on its parameters or values inside."""
    bound = set(params) | {v for stm in s.stms for v in stm.vars}
    for t in types:
        if any(resolve(v) in bound for v in size_vars(t)):
            raise SizeMismatch(f"the arrays that {what} gives would have different sizes: a size depends on the "
                               "element; reduce them inside, or join them with pa.flatmap or pa.expand", builder.here())
