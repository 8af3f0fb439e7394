"""The only way to make graphs: a stack of scopes into which operations are emitted.

``emit(op)`` appends a statement to the innermost scope and gives its variables.  ``make_lambda(types, f)`` opens a
scope, calls ``f`` on fresh parameters and closes it into a `Lambda`.  The rest are conveniences on atoms used by the
tracer and by differentiation alike: ``prim("add", x, y)``, ``map_``, ``reduce_``, size arithmetic.

Sizes are ordinary i64 values.  The builder remembers for each derived size the polynomial it stands for, so that
``(n + 1) - 1`` *is* ``n`` and equal expressions are one variable: types can then be compared by their sizes.
"""
from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Sequence

from parray.errors import Loc, user_location
from parray.ir import Atom, Const, Lambda, Monoid, Op, Stm, Substitution, Var, as_size, resolve, size_atom
from parray.types import ScalarType, Type, bool_, i64


class Scope:
    """Statements of a lambda being built."""

    def __init__(self, parent: Scope | None):
        self.parent = parent
        self.stms: list[Stm] = []
        self.sizes: dict[Any, Any] = {}               # what a size expression is called here
        self.polys: dict[Var, dict[tuple[Var, ...], int]] = {}

    def chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class _State(threading.local):
    scope: Scope | None = None
    loc: Loc | None = None


_state = _State()


def current() -> Scope:
    """The innermost scope."""
    if _state.scope is None:
        raise AssertionError("no graph is being built")
    return _state.scope


def tracing() -> bool:
    """Whether a graph is being built on this thread."""
    return _state.scope is not None


@contextmanager
def scope(root: bool = False) -> Iterator[Scope]:
    """Open a scope; ``root`` starts a graph of its own."""
    outer = _state.scope
    inner = Scope(None if root else outer)
    _state.scope = inner
    try:
        yield inner
    finally:
        _state.scope = outer


@contextmanager
def at(loc: Loc | None) -> Iterator[None]:
    """Give statements emitted here this place instead of the user's current line."""
    outer = _state.loc
    _state.loc = loc
    try:
        yield
    finally:
        _state.loc = outer


def here() -> Loc | None:
    """The place that statements emitted now belong to."""
    return _state.loc if _state.loc is not None else user_location()


def emit(op: Op, hint: str = "") -> tuple[Var, ...]:
    """Append ``op`` to the innermost scope; its result variables."""
    outs = tuple(Var(t, hint) for t in op.infer())
    current().stms.append(Stm(outs, op, here()))
    return outs


def emit1(op: Op, hint: str = "") -> Var:
    """`emit` of an operation with one result."""
    (out,) = emit(op, hint)
    return out


def make_lambda(types: Sequence[Type], f: Callable[..., Sequence[Atom]], hint: str = "") -> Lambda:
    """The lambda ``\\params. f(params)``."""
    params = tuple(Var(t, hint) for t in types)
    with scope() as s:
        results = tuple(f(*params))
    return Lambda(params, tuple(s.stms), results)


def inline(lam: Lambda, args: Sequence[Atom]) -> tuple[Atom, ...]:
    """Emit the lambda's body here with its parameters replaced by ``args``; its results."""
    sub = Substitution(dict(zip(lam.params, args, strict=True)))
    current().stms.extend(sub.stm(s) for s in lam.stms)
    return tuple(sub.atom(r) for r in lam.results)


# --- scalars ---------------------------------------------------------------------------------------------------------

def const(value: Any, elem: ScalarType) -> Const:
    """A constant of a definite type."""
    return Const(value, elem)


def prim(name: str, *args: Atom, to: ScalarType | None = None) -> Atom:
    """A scalar primitive; ``to`` is the result type of a conversion."""
    from parray.soacs.prim import Prim
    if name == "convert" and args[0].type.elem == to:
        return args[0]
    return emit1(Prim.of(name, args, to))


def convert(x: Atom, to: ScalarType) -> Atom:
    """The scalar as another type; a constant is converted here and now."""
    if isinstance(x, Const):
        from parray.prims import convert as convert_value
        return Const(convert_value(x.value, to), to)
    return prim("convert", x, to=to)


def select(c: Atom, x: Atom, y: Atom) -> Atom:
    """``x if c else y`` on scalars, both computed."""
    return prim("select", c, x, y)


# --- arrays ----------------------------------------------------------------------------------------------------------

def row_types(xs: Sequence[Atom]) -> list[Type]:
    """The types of arrays' elements."""
    return [x.type.row() for x in xs]


def screma(n: Any, xs: Sequence[Any], lam: Lambda, scans: Sequence[Monoid] = (), reds: Sequence[Monoid] = ()
           ) -> tuple[Var, ...]:
    """Emit a `Screma`."""
    from parray.soacs.screma import Screma
    return emit(Screma(n, tuple(xs), lam, tuple(scans), tuple(reds)))


def map_(f: Callable[..., Any], *xs: Any, n: Any = None) -> tuple[Var, ...]:
    """``map f xs``: ``f`` takes elements (atoms) and gives a sequence of atoms."""
    n = xs[0].type.shape[0] if n is None else n
    return screma(n, xs, make_lambda(row_types(xs), f))


def map1(f: Callable[..., Atom], *xs: Any, n: Any = None) -> Var:
    """`map_` of a function with one result."""
    (out,) = map_(lambda *es: (f(*es),), *xs, n=n)
    return out


def identity_lambda(types: Sequence[Type]) -> Lambda:
    """The lambda that gives its parameters."""
    params = tuple(Var(t) for t in types)
    return Lambda(params, (), params)


def reduce_(monoid: Monoid, *xs: Any) -> tuple[Var, ...]:
    """``reduce op ne xs`` on arrays."""
    return screma(xs[0].type.shape[0], xs, identity_lambda(row_types(xs)), reds=(monoid,))


def scan_(monoid: Monoid, *xs: Any) -> tuple[Var, ...]:
    """``scan op ne xs`` on arrays."""
    return screma(xs[0].type.shape[0], xs, identity_lambda(row_types(xs)), scans=(monoid,))


def lift2(name: str, t: Type) -> Lambda:
    """``\\a b. a op b``, elementwise on type ``t`` (nested maps for arrays)."""
    return make_lambda((t, t), lambda a, b: (elementwise(lambda x, y: prim(name, x, y), a, b),))


def elementwise(f: Callable[..., Atom], *xs: Atom) -> Atom:
    """``f`` on scalars, applied to every element of equally shaped arrays."""
    if xs[0].type.is_scalar:
        return f(*xs)
    return map1(lambda *es: elementwise(f, *es), *xs)


def zeros(t: Type) -> Atom:
    """A value of type ``t`` full of zeros."""
    return full(t, 0)


def full(t: Type, value: Any) -> Atom:
    """A value of type ``t`` full of one constant."""
    from parray.soacs.arrays import Replicate
    x: Atom = Const(value, t.elem)
    for n in reversed(t.shape):
        x = emit1(Replicate(n, x))
    return x


def sum_monoid(t: Type, name: str = "add", ne: Any = 0) -> Monoid:
    """The monoid (op, ne), elementwise on ``t``."""
    return Monoid(lift2(name, t), (full(t, ne),), commutative=True)


def iota(n: Any, elem: ScalarType = i64) -> Var:
    """``[0, 1, .. n-1]``."""
    from parray.soacs.arrays import Iota
    return emit1(Iota(n, elem))


def index(x: Any, *indices: Any, safe: bool = False) -> Atom:
    """``x[i, j, ...]``: leading dimensions, indices already non-negative; ``safe`` when proved in range."""
    from parray.soacs.arrays import Index
    return emit1(Index(x, tuple(size_atom(i) for i in indices), safe))


# --- sizes -----------------------------------------------------------------------------------------------------------

def _poly(s: Any) -> dict[tuple[Var, ...], int]:
    """The polynomial a size stands for."""
    s = resolve(as_size(s))
    if isinstance(s, int):
        return {(): s} if s else {}
    for sc in current().chain():
        if s in sc.polys:
            return sc.polys[s]
    return {(s,): 1}


def _named(poly: dict[tuple[Var, ...], int]) -> Any:
    """The size a polynomial is called by here, or None."""
    poly = {k: v for k, v in poly.items() if v}
    if not poly:
        return 0
    if set(poly) == {()}:
        return poly[()]
    if len(poly) == 1:
        ((mono, coef),) = poly.items()
        if coef == 1 and len(mono) == 1:
            return mono[0]
    key = _key(poly)
    for sc in current().chain():
        if key in sc.sizes:
            return sc.sizes[key]
    return None


def _key(poly: dict[tuple[Var, ...], int]) -> Any:
    return ("poly", frozenset((tuple(v.id for v in k), c) for k, c in poly.items() if c))


def _define(poly: dict[tuple[Var, ...], int], make: Callable[[], Atom]) -> Any:
    poly = {k: v for k, v in poly.items() if v}
    known = _named(poly)
    if known is not None:
        return known
    new = make()
    if isinstance(new, Var):
        current().sizes[_key(poly)] = new
        current().polys[new] = poly
    return as_size(new)


def size_add(a: Any, b: Any) -> Any:
    """``a + b`` of sizes."""
    pa, pb = _poly(a), _poly(b)
    total = dict(pa)
    for k, v in pb.items():
        total[k] = total.get(k, 0) + v
    return _define(total, lambda: prim("add", size_atom(a), size_atom(b)))


def size_sub(a: Any, b: Any) -> Any:
    """``a - b`` of sizes."""
    total = dict(_poly(a))
    for k, v in _poly(b).items():
        total[k] = total.get(k, 0) - v
    return _define(total, lambda: prim("sub", size_atom(a), size_atom(b)))


def size_mul(a: Any, b: Any) -> Any:
    """``a * b`` of sizes."""
    total: dict[tuple[Var, ...], int] = {}
    for ka, va in _poly(a).items():
        for kb, vb in _poly(b).items():
            k = tuple(sorted(ka + kb, key=lambda v: v.id))
            total[k] = total.get(k, 0) + va * vb
    return _define(total, lambda: prim("mul", size_atom(a), size_atom(b)))


def size_prim(name: str, *args: Any) -> Any:
    """Any other size arithmetic (max, min, floordiv, select ...), one variable for equal expressions."""
    from parray.soacs.prim import Prim
    if all(isinstance(a, (int, Const)) for a in args):
        return as_size(Prim.of(name, tuple(size_atom(a) for a in args)).fold())
    if name == "floordiv":
        exact = _exact_quotient(args[0], args[1])
        if exact is not None:
            return exact
    key = (name,) + tuple(_key(_poly(a)) if not isinstance(a, Const) else repr(a) for a in args)
    for sc in current().chain():
        if key in sc.sizes:
            return sc.sizes[key]
    new = as_size(prim(name, *(size_atom(a) for a in args)))
    current().sizes[key] = new
    return new


def _exact_quotient(a: Any, b: Any) -> Any:
    """``a / b`` when b is a single monomial that divides every monomial of a (so ``(n*m) // m`` is ``n``)."""
    pa, pb = _poly(a), _poly(b)
    if len(pb) != 1 or not pa:
        return None
    ((mono, coef),) = pb.items()
    out: dict[tuple[Var, ...], int] = {}
    for k, v in pa.items():
        rest = list(k)
        for var in mono:
            if var not in rest:
                return None
            rest.remove(var)
        if v % coef:
            return None
        out[tuple(rest)] = v // coef
    return _built(out)


def _built(poly: dict[tuple[Var, ...], int]) -> Any:
    """The size that a polynomial is, computed from its variables where it has no name yet."""
    known = _named(poly)
    if known is not None:
        return known
    total: Any = 0
    for mono, coef in poly.items():
        term: Any = coef
        for v in mono:
            term = size_mul(term, v)
        total = size_add(total, term)
    return total


def size_product(sizes: Sequence[Any]) -> Any:
    """The product of sizes; 1 for none."""
    total: Any = 1
    for s in sizes:
        total = size_mul(total, s)
    return total


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are equal for certain."""
    return a is b or _key(_poly(a)) == _key(_poly(b))


def bool_const(value: bool) -> Const:
    """True or False."""
    return Const(value, bool_)
