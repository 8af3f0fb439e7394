"""The engine of simplification: one walk that rebuilds a graph while rules rewrite it.

The walk keeps what rules ask for: what each variable is bound to (`producer`), how deep it is bound (`depth`), and
what it was replaced by.  Statements of a lambda that use nothing bound in it are emitted into the scope where their
operands live (hoisting), and a statement equal to an earlier one in scope is replaced by it (common subexpressions,
lambdas compared up to the names of their variables).  Neither moves what can fail; out of the branches of a `Cond`
only integer arithmetic is moved.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterable, Sequence

from parray.errors import Loc
from parray.ir import Atom, Const, Lambda, Monoid, Op, Stm, Var, as_size, atoms, field_names, free_vars, lambdas
from parray.simplify.keys import op_key
from parray.simplify.ranges import Ranges
from parray.soacs import Assert, Cond, Iota, Loop, Prim, Scatter, Screma
from parray.types import Type

Rule = Callable[..., "Op | Sequence[Atom] | None"]
_LIMIT = 200


def rule(*kinds: type[Op], early: bool = False) -> Callable[[Rule], Rule]:
    """Mark a function as a rule for these operations; ``early``: before the operation's lambdas are simplified."""
    def mark(f: Rule) -> Rule:
        f.kinds, f.early = kinds, early                             # type: ignore[attr-defined]
        return f
    return mark


class Frame:
    """The scope of a lambda being rebuilt."""

    def __init__(self, depth: int, branch: bool = False):
        self.depth = depth
        self.branch = branch                                        # a branch of a Cond: a barrier to hoisting
        self.out: list[Stm] = []
        self.known: dict[Any, tuple[Var, ...]] = {}


class Simplifier:
    """One walk.  ``changed`` tells whether any rule applied."""

    def __init__(self, rules: Iterable[Rule]):
        self.rules: dict[tuple[type[Op], bool], list[Rule]] = {}
        for r in rules:
            for kind in r.kinds:                                    # type: ignore[attr-defined]
                self.rules.setdefault((kind, r.early), []).append(r)    # type: ignore[attr-defined]
        self.env: dict[Var, Atom] = {}
        self.producers: dict[Var, Op] = {}
        self.depths: dict[Var, int] = {}
        self.frames: list[Frame] = []
        self.ranges = Ranges(self.producers)
        self.loc: Loc | None = None
        self.changed = False
        self.failing: dict[int, tuple[Lambda, bool]] = {}

    # --- what rules ask ----------------------------------------------------------------------------------------------

    def producer(self, a: Atom) -> Op | None:
        """The operation a variable with one binding is the result of."""
        return self.producers.get(a) if isinstance(a, Var) else None

    def outside(self, a: Any) -> bool:
        """Whether an atom or size found in a lambda of the operation at hand is bound around that operation."""
        return not isinstance(a, Var) or self.depths[a] <= self.frames[-1].depth

    def emit(self, op: Op, hint: str = "") -> tuple[Atom, ...]:
        """Add an operation before the one at hand; its results (simplified)."""
        return self.define(op, tuple(Var(t, hint) for t in op.infer()))

    def emit1(self, op: Op, hint: str = "") -> Atom:
        (out,) = self.emit(op, hint)
        return out

    def inline(self, lam: Lambda, args: Sequence[Atom]) -> tuple[Atom, ...]:
        """Emit a lambda's statements here (the lambda is used nowhere else); its results."""
        loc = self.loc
        self.env.update(zip(lam.params, args, strict=True))
        for stm in lam.stms:
            self.visit(stm)
        self.loc = loc
        return tuple(self.atom(r) for r in lam.results)

    def may_fail(self, op: Op) -> bool:
        """Whether it, or anything in it, can raise or has an effect."""
        return op.fails() or op.effect or any(map(self._lambda_may_fail, lambdas(op)))

    def _lambda_may_fail(self, lam: Lambda) -> bool:
        found = self.failing.get(id(lam))
        if found is None:
            found = (lam, any(self.may_fail(s.op) for s in lam.stms))
            self.failing[id(lam)] = found                           # the lambda is kept, so its id stays its own
        return found[1]

    # --- substitution ------------------------------------------------------------------------------------------------

    def atom(self, a: Any) -> Any:
        """What stands for an atom now."""
        while isinstance(a, Var) and a in self.env:
            a = self.env[a]
        return a

    def type(self, t: Type) -> Type:
        shape = tuple(as_size(self.atom(s)) for s in t.shape)
        return t if all(s is o for s, o in zip(shape, t.shape)) else Type(t.elem, shape)

    def bind(self, v: Var) -> Var:
        """Enter a variable into the scope at hand; a new one when its type changes."""
        t = self.type(v.type)
        new = v if t is v.type else Var(t, v.hint)
        if new is not v:
            self.env[v] = new
        self.depths[new] = self.frames[-1].depth
        self.ranges.sizes(t)
        return new

    def operands(self, op: Op) -> Op:
        """The operation with replaced operands; its lambdas as they are."""
        changes = {}
        for name, is_size in _fields(type(op)):
            old = getattr(op, name)
            new = self.value(old, is_size)
            if new is not old:
                changes[name] = new
        return dataclasses.replace(op, **changes) if changes else op   # type: ignore[type-var]

    def value(self, value: Any, is_size: bool) -> Any:
        if isinstance(value, Var):
            new = self.atom(value)
            return as_size(new) if is_size else new
        if isinstance(value, tuple):
            new = tuple(self.value(v, is_size) for v in value)
            return value if all(a is b for a, b in zip(new, value)) else new
        if isinstance(value, Monoid):
            ne = self.value(value.ne, False)
            return value if ne is value.ne else Monoid(value.op, ne, value.commutative)
        return value

    # --- the walk ----------------------------------------------------------------------------------------------------

    def top(self, lam: Lambda) -> Lambda:
        """The whole lambda; what it uses from outside counts as its outermost scope's."""
        for v in free_vars(lam):
            self.depths.setdefault(v, 0)
        return self.body(lam)

    def body(self, lam: Lambda, branch: bool = False, extents: Sequence[Any] = ()) -> Lambda:
        """A lambda rebuilt in a scope of its own; ``extents``: parameter k counts from 0 to below ``extents[k]``."""
        frame, known = Frame(len(self.frames), branch), len(self.ranges.not_negative)
        self.frames.append(frame)
        params = tuple(self.bind(p) for p in lam.params)
        for p, n in zip(params, extents):
            if n is not None:
                self.ranges.count(p, n)
        for stm in lam.stms:
            self.visit(stm)
        self.frames.pop()
        self.ranges.leave(known)
        results = tuple(self.atom(r) for r in lam.results)
        stms = tuple(frame.out)
        if _same(params, lam.params) and _same(stms, lam.stms) and _same(results, lam.results):
            return lam
        return Lambda(params, stms, results)

    def visit(self, stm: Stm) -> None:
        self.loc = stm.loc
        outs = self.define(self.operands(stm.op), stm.vars, stm)
        for v, out in zip(stm.vars, outs, strict=True):
            if v is not out:
                self.env[v] = out

    def define(self, op: Op, vs: tuple[Var, ...], stm: Stm | None = None) -> tuple[Atom, ...]:
        """Rewrite the operation, add what is left of it; the atoms that stand for its results."""
        loc = self.loc
        for _ in range(_LIMIT):
            new = self.apply(op, early=True)
            if new is None:
                op = self.inner(op)
                self.loc = loc
                new = self.apply(op, early=False)
            if new is None:
                return self.place(op, vs, stm)
            self.changed = True
            if not isinstance(new, Op):
                return tuple(new)
            op = new
        return self.place(self.inner(op), vs, stm)

    def apply(self, op: Op, early: bool) -> Op | Sequence[Atom] | None:
        """What the first rule that applies gives."""
        for r in self.rules.get((type(op), early), ()):
            new = r(op, self)
            if new is not None:
                return new
        return None

    def inner(self, op: Op) -> Op:
        """The operation with its lambdas simplified."""
        match op:
            case Screma() | Scatter():
                extents: list[Any] = [self.extent(x) for x in op.xs]
                return with_lambdas(op, lambda lam: self.body(lam, extents=extents if lam is op.lam else ()))
            case Loop():
                return with_lambdas(op, lambda lam: self.body(lam, branch=op.kept, extents=[op.n]))
            case Cond():
                return with_lambdas(op, lambda lam: self.body(lam, branch=True))
        return with_lambdas(op, self.body)

    def extent(self, x: Var) -> Any:
        """The n of an ``iota n`` of i64."""
        made = self.producer(x)
        return made.n if isinstance(made, Iota) and made.elem.bits == 64 else None

    def place(self, op: Op, vs: tuple[Var, ...], stm: Stm | None) -> tuple[Atom, ...]:
        """Add the operation where it belongs, unless an equal one is in scope."""
        key = op_key(op)
        for frame in reversed(self.frames):
            if key in frame.known:
                self.changed = True
                return frame.known[key]
        frame = self.home(op)
        types = [self.type(v.type) for v in vs]
        outs = tuple(v if t is v.type else Var(t, v.hint) for v, t in zip(vs, types))
        if stm is None or op is not stm.op or not _same(outs, stm.vars):
            stm = Stm(outs, op, self.loc)
        if frame is not self.frames[-1]:
            self.changed = True
        frame.out.append(stm)
        frame.known[key] = outs
        for v in outs:
            self.depths[v] = frame.depth
            self.ranges.sizes(v.type)
        if len(outs) == 1:
            self.producers[outs[0]] = op
        return outs

    def home(self, op: Op) -> Frame:
        """The outermost scope to which it may be moved."""
        here = self.frames[-1]
        if not here.depth or isinstance(op, Assert):
            return here
        if any(isinstance(a, Var) and self.depths[a] == here.depth for a in atoms(op)) or self.may_fail(op):
            return here
        depth = max((self.depths[v] for v in free_vars(op)), default=0)
        cheap = isinstance(op, Prim) and not op.elem.is_float
        while here.depth > depth and (cheap or not here.branch):
            here = self.frames[here.depth - 1]
        return here


def _same(xs: Sequence[Any], ys: Sequence[Any]) -> bool:
    return len(xs) == len(ys) and all(x is y for x, y in zip(xs, ys))


_FIELDS: dict[type[Op], list[tuple[str, bool]]] = {}


def _fields(kind: type[Op]) -> list[tuple[str, bool]]:
    """Names of an operation's fields, and whether each holds sizes."""
    if kind not in _FIELDS:
        _FIELDS[kind] = [(f.name, bool(f.metadata.get("size")))
                         for f in dataclasses.fields(kind)]         # type: ignore[arg-type]
    return _FIELDS[kind]


def with_lambdas(op: Op, f: Callable[[Lambda], Lambda]) -> Op:
    """The operation with ``f`` of its lambdas; the same object when ``f`` changes none."""
    def replaced(value: Any) -> Any:
        if isinstance(value, Lambda):
            return f(value)
        if isinstance(value, Monoid):
            new = f(value.op)
            return value if new is value.op else Monoid(new, value.ne, value.commutative)
        if isinstance(value, tuple) and value and isinstance(value[0], (Lambda, Monoid)):
            news = tuple(replaced(v) for v in value)
            return value if _same(news, value) else news
        return value

    changes = {}
    for name in field_names(type(op)):
        old = getattr(op, name)
        new = replaced(old)
        if new is not old:
            changes[name] = new
    return dataclasses.replace(op, **changes) if changes else op    # type: ignore[type-var]


def const_like(a: Atom, value: Any) -> Const:
    """A constant of an atom's element type."""
    return Const(value, a.type.elem)
