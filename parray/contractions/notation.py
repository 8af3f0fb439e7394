"""Index notation: what a nest of maps and sums computes, as accesses of arrays by axes.

    value   ::= [axis, ..] body                 an array over these axes
    body    ::= factor | count axis | constant | sum over axes of factor * factor
    factor  ::= leaf | term
    leaf    ::= array[place, ..]
    place   ::= start + step * axis + ..        an axis alone, a constant, a slice, or windows (two axes)
    term    ::= prim body .. | leaf[body, ..]   computed from elements, on fewer axes than the maps around it have

Evaluating a map binds a new axis and gives its parameters the elements at it; a result has the axis in front.  A leaf
is an array bound in the body at hand or around it, or one bound deeper (`path`: the maps around it), whose first axes
are those of the maps; to use such a one outside, it must become a result of them.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from parray.ir import Const, Lambda, Monoid, Op, Stm, Var
from parray.soacs import Contract, Index, Iota, Prim, Replicate, Screma, Transpose

Known = Mapping[Var, Op]
_TERM = 64                      # the most operations in a term: more than indexing and padding need


class Axis:
    """An index variable and its extent."""
    __slots__ = ("size",)

    def __init__(self, size: Any):
        self.size = size


@dataclass(frozen=True)
class Place:
    """Where an element lies along a dimension of an array: ``start`` + sum of step * axis, long steps first."""
    start: int
    terms: tuple[tuple[Axis, int], ...]

    @staticmethod
    def of(axis: Axis) -> Place:
        return Place(0, ((axis, 1),))

    @property
    def is_axis(self) -> bool:
        return self.start == 0 and [s for _, s in self.terms] == [1]

    def put(self, at: Mapping[Axis, Place]) -> Place:
        """The place with places for axes."""
        start, steps = self.start, dict[Axis, int]()
        for axis, step in self.terms:
            inner = at.get(axis, Place.of(axis))
            start += step * inner.start
            for a, s in inner.terms:
                steps[a] = steps.get(a, 0) + step * s
        return Place(start, tuple(sorted(steps.items(), key=lambda t: -t[1])))


@dataclass(frozen=True)
class Leaf:
    """An element of an array; ``path``: the maps in which the array is bound; ``places``: one a dimension, those of the
    maps first."""
    var: Var
    path: tuple[Stm, ...]
    places: tuple[Place, ...]

    @staticmethod
    def of(var: Var, path: tuple[Stm, ...], axes: Sequence[Axis]) -> Leaf:
        return Leaf(var, path, tuple(map(Place.of, axes)))

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(a for p in self.places for a, _ in p.terms)

    @property
    def is_view(self) -> bool:
        """Whether it is more than the array itself by its axes."""
        return not all(p.is_axis for p in self.places)

    def put(self, at: Mapping[Axis, Place]) -> Leaf | None:
        """The leaf with places for axes, where that is still a view: a slice or windows along every dimension."""
        places = tuple(p.put(at) for p in self.places)
        fits = all(len(p.terms) <= 2 and all(s > 0 for _, s in p.terms) for p in places)
        return replace(self, places=places) if fits else None


@dataclass(frozen=True)
class Count:
    """The axis itself as a number: the parameter of an iota."""
    axis: Axis


@dataclass(frozen=True)
class Term:
    """A scalar computed from elements: a primitive, or an index whose first argument is the array."""
    op: Prim | Index
    args: tuple[Any, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Those it depends on, once each."""
        inner = (a for arg in self.args for a in axes_of(arg))
        return tuple(dict.fromkeys(inner))

    @property
    def size(self) -> int:
        return 1 + sum(arg.size for arg in self.args if isinstance(arg, Term))


Factor = Leaf | Term


def axes_of(body: Any) -> tuple[Axis, ...]:
    """The axes a leaf, term, counter or constant depends on."""
    return (body.axis,) if isinstance(body, Count) else () if isinstance(body, Const) else tuple(body.axes)


def leaves(factor: Any) -> list[Leaf]:
    """The leaves of a factor."""
    if isinstance(factor, Leaf):
        return [factor]
    return [leaf for arg in factor.args for leaf in leaves(arg)] if isinstance(factor, Term) else []


@dataclass(frozen=True)
class Product:
    """The product of two elements, summed over some axes."""
    x: Factor
    y: Factor
    summed: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class Value:
    """An array over ``dims`` (a scalar when there are none)."""
    dims: tuple[Axis, ...]
    body: Leaf | Term | Count | Const | Product


@dataclass(frozen=True)
class Found:
    """A sum of products: the variable it is bound to, the maps around that and their axes, and its value."""
    var: Var
    path: tuple[Stm, ...]
    axes: tuple[Axis, ...]
    value: Value

    @property
    def product(self) -> Product:
        assert isinstance(self.value.body, Product)
        return self.value.body

    @property
    def out(self) -> tuple[Axis, ...]:
        return self.axes + self.value.dims


def _affine(index: Any) -> Place | None:
    """An index as a place, or None where it is something else."""
    match index:
        case Const(value=value):
            return Place(int(value), ())
        case Count(axis=axis):
            return Place.of(axis)
        case Term(op=Prim(prim="add" | "sub" | "mul" as prim), args=(x, y)):
            a, b = _affine(x), _affine(y)
            if a is None or b is None or prim == "mul" and a.terms and b.terms:
                return None
            if prim == "mul":
                scale, p = (a.start, b) if b.terms else (b.start, a)
                return Place(scale * p.start, tuple((axis, scale * s) for axis, s in p.terms))
            left, right = Axis(0), Axis(0)
            return Place(0, ((left, 1), (right, 1 if prim == "add" else -1))).put({left: a, right: b})
    return None


def _put(body: Any, at: Mapping[Axis, Place]) -> Any:
    """A leaf, or a product of leaves, with places for axes; None for what is neither."""
    if isinstance(body, Product):
        x, y = _put(body.x, at), _put(body.y, at)
        return Product(x, y, body.summed) if x is not None and y is not None else None
    return body.put(at) if isinstance(body, Leaf) else None


def _renamed(body: Any, names: Mapping[Axis, Axis]) -> Any:
    """The body with axes replaced."""
    def axes(values: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(names.get(a, a) for a in values)
    match body:
        case Leaf():
            return body.put({a: Place.of(b) for a, b in names.items()})
        case Count():
            return Count(names.get(body.axis, body.axis))
        case Term():
            return Term(body.op, tuple(_renamed(arg, names) for arg in body.args))
        case Const():
            return body
    return Product(_renamed(body.x, names), _renamed(body.y, names), axes(body.summed))


def _at(value: Value, *axes: Axis) -> Value:
    """The element (or row) at these axes."""
    k = len(axes)
    return Value(value.dims[k:], _renamed(value.body, dict(zip(value.dims, axes))))


def is_sum(m: Monoid, known: Known) -> bool:
    """Whether the operator is a float addition, elementwise on any rank, with neutral element 0."""
    if m.width != 1 or not m.ne[0].type.elem.is_float:
        return False
    zero: Any = m.ne[0]
    while isinstance(zero, Var):
        made = known.get(zero)
        if not isinstance(made, Replicate):
            return False
        zero = made.x
    return bool(zero.value == 0) and _adds(m.op)


def _adds(lam: Lambda) -> bool:
    """Whether the lambda adds its two parameters, elementwise on any rank."""
    if len(lam.stms) != 1 or lam.results != lam.stms[0].vars or len(lam.params) != 2:
        return False
    op = lam.stms[0].op
    if isinstance(op, Prim):
        return op.prim == "add" and set(op.args) == set(lam.params)
    return isinstance(op, Screma) and op.is_map and set(op.xs) == set(lam.params) and _adds(op.lam)


class Notation:
    """Values of the variables of a body and of the nests in it.  ``plain``: as an access of an array, however it is
    computed; ``full``: as the product it is, where it is one."""

    def __init__(self, known: Known):
        self.known = known
        self.plain: dict[Var, Value] = {}
        self.full: dict[Var, Value] = {}
        self.path: tuple[Stm, ...] = ()
        self.axes: tuple[Axis, ...] = ()
        self.found: list[Found] = []

    def plain_of(self, v: Var) -> Value:
        if v not in self.plain:                                     # bound around the body
            dims = tuple(map(Axis, v.type.shape))
            self.plain[v] = Value(dims, Leaf.of(v, (), dims))
        return self.plain[v]

    def full_of(self, v: Var) -> Value:
        return self.full.get(v) or self.plain_of(v)

    def body(self, stms: Sequence[Stm]) -> None:
        for stm in stms:
            self.stm(stm)

    def stm(self, stm: Stm) -> None:
        for v in stm.vars:
            dims = tuple(map(Axis, v.type.shape))
            self.plain[v] = Value(dims, Leaf.of(v, self.path, self.axes + dims))
        op = stm.op
        match op:
            case Screma():
                self.screma(stm, op)
            case Prim():
                self.prim(stm.vars[0], op)
            case Index() | Transpose() | Replicate():
                self.view(stm.vars[0], op)
            case Contract():
                self.contract(stm.vars[0], op)
        for v in stm.vars if isinstance(op, (Screma, Contract)) else ():
            value = self.full.get(v)
            if value is not None and isinstance(value.body, Product) and value.body.summed:
                self.found.append(Found(v, self.path, self.axes, value))

    def prim(self, v: Var, op: Prim) -> None:
        """A product of two factors; otherwise, inside a map, a term."""
        if op.prim == "mul" and op.elem.is_float:
            x, y = map(self.factor, op.args)
            if x is not None and y is not None:
                self.full[v] = Value((), Product(x, y))
        if op.prim == "add" and op.elem.is_float:                   # a sum begins with 0 anyway
            zero, of = op.args
            body = self.full_of(of).body if zero == Const(0, op.elem) and isinstance(of, Var) else None
            if isinstance(body, Product) and not body.summed:
                self.full[v] = Value((), body)
        if self.path and v not in self.full and not op.fails():
            self.term(v, op, [self.scalar(a) for a in op.args])

    def term(self, v: Var, op: Prim | Index, args: list[Any]) -> None:
        """Remember how a scalar is computed, unless that is long."""
        term = Term(op, tuple(args))
        if all(arg is not None for arg in args) and term.size <= _TERM:
            self.full[v] = Value((), term)

    def scalar(self, a: Any) -> Any:
        """A scalar as an argument of a term."""
        if isinstance(a, Const):
            return a
        body = self.full_of(a).body
        if isinstance(body, Product):                               # a term when it is one on its own
            body = self.plain_of(a).body if body.summed else Term(Prim("mul", (), a.type.elem), (body.x, body.y))
        return body

    def factor(self, a: Any) -> Factor | None:
        """A scalar as one factor of a product: a term only where that saves an axis."""
        if not isinstance(a, Var):
            return None
        body, plain = self.scalar(a), self.plain_of(a).body
        if isinstance(body, Leaf) or isinstance(body, Term) and set(body.axes) < set(axes_of(plain)):
            return body
        return plain if isinstance(plain, Leaf) else None

    def view(self, v: Var, op: Op) -> None:
        """Indexing by axes, transposition and replication, of the plain and of the full value."""
        at = [self.scalar(i) for i in op.indices] if isinstance(op, Index) else []
        for values, of in ((self.plain, self.plain_of), (self.full, self.full_of)):
            match op:
                case Index(safe=True):
                    axes = [c.axis for c in at if isinstance(c, Count)]
                    if len(axes) == len(at):
                        values[v] = _at(of(op.x), *axes)
                    elif self.path and values is self.full:
                        self.gather(v, op, at)
                case Transpose():
                    value = of(op.x)
                    values[v] = Value(tuple(value.dims[p] for p in op.perm), value.body)
                case Replicate() if isinstance(op.x, Var) and op.x.type.elem.is_float:
                    value = of(op.x)
                    if values is self.full:
                        values[v] = Value((Axis(op.n), *value.dims), value.body)

    def gather(self, v: Var, op: Index, at: list[Any]) -> None:
        """An element at computed places, of an array whose last dimensions are the indexed ones."""
        for x in (self.full_of(op.x), self.plain_of(op.x)):
            places = [_affine(i) for i in at]
            view = _put(x.body, dict(zip(x.dims, places))) if None not in places else None      # type: ignore[arg-type]
            if view is not None:
                self.full[v] = Value(x.dims[len(at):], view)
                return
        leaf = x.body
        if isinstance(leaf, Leaf) and not v.type.rank and leaf.axes[len(leaf.axes) - len(x.dims):] == x.dims:
            self.term(v, op, [replace(leaf, places=leaf.places[:len(leaf.axes) - len(x.dims)]), *at])

    def contract(self, v: Var, op: Contract) -> None:
        axes = {a: Axis(n) for a, n in op.sizes().items()}
        x, y = (self.operand(var, [axes[a] for a in names]) for var, names in ((op.x, op.x_axes), (op.y, op.y_axes)))
        summed = tuple(axes[a] for a in op.summed)
        if x is not None and y is not None:
            self.full[v] = Value(tuple(axes[a] for a in op.out_axes), Product(x, y, summed))

    def operand(self, v: Var, axes: Sequence[Axis]) -> Leaf | None:
        full = self.full_of(v)
        value = full if isinstance(full.body, Leaf) else self.plain_of(v)
        leaf = _at(value, *axes).body
        return leaf if isinstance(leaf, Leaf) else None

    def screma(self, stm: Stm, op: Screma) -> None:
        axis = Axis(op.n)
        outer = self.path, self.axes
        self.path, self.axes = (*self.path, stm), (*self.axes, axis)
        for p, x in zip(op.lam.params, op.xs):
            self.plain[p] = _at(self.plain_of(x), axis)
            made = self.known.get(x)
            counts = isinstance(made, Iota) and made.elem == p.type.elem and made.elem.bits == 64
            self.full[p] = Value((), Count(axis)) if counts else _at(self.full_of(x), axis)
        self.body(op.lam.stms)
        self.path, self.axes = outer
        sums = [is_sum(m, self.known) for m in op.scans + op.reds for _ in m.ne]
        for k, (v, r) in enumerate(zip(stm.vars, op.lam.results)):
            value = self.full_of(r) if isinstance(r, Var) else None
            if value is None or k < op.scan_width:
                continue
            if k < len(sums):
                if sums[k] and isinstance(value.body, Product):
                    product = replace(value.body, summed=(*value.body.summed, axis))
                    self.full[v] = Value(value.dims, product)
            elif isinstance(value.body, Product) or (isinstance(value.body, Leaf)
                                                     and len(value.body.path) <= len(self.path)):
                self.full[v] = Value((axis, *value.dims), value.body)
