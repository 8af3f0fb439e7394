"""Reductions by name, over one axis, several or all, and products of arrays: one-liners over map and reduce.

A reduction over all axes is a nest of reductions, innermost first, so that it fuses with what made the array.  A
reduction over other axes than the last is one of a transposed view.  Sums of integers accumulate in NumPy's type.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from parray import builder, prims
from parray.errors import SizeMismatch, TypeMismatch
from parray.ir import Atom, Const, Monoid, resolve, size_atom
from parray.soacs import Assert
from parray.trace import context
from parray.trace.elementwise import apply, lift
from parray.trace.promote import convert
from parray.trace.tracer import Tracer
from parray.trace.views import permute, reshape_atom, static_int
from parray.types import ScalarType, Type, bool_, f16, f32, f64, i64, u64

_Row = Callable[[Atom], Atom]


# --- axes ------------------------------------------------------------------------------------------------------------

def axes_of(axis: Any, rank: int, what: str) -> list[int]:
    """The axes an ``axis`` argument names, in order."""
    if axis is None:
        return list(range(rank))
    out = []
    for a in (axis if isinstance(axis, tuple) else (axis,)):
        k = static_int(a, f"axis of {what}")
        if not -rank <= k < rank:
            raise TypeMismatch(f"{what}: axis {k} of an array of rank {rank}", builder.here())
        out.append(k % rank)
    if len(set(out)) != len(out):
        raise TypeMismatch(f"{what}: an axis is named twice", builder.here())
    return sorted(out)


def over_axes(xs: Any, axis: Any, keepdims: bool, what: str, row: _Row, nested: bool = True) -> Tracer:
    """``row``, a function of one-dimensional arrays, applied along axes; ``nested``: again to its own results."""
    x = lift(xs, what)
    if not x.ndim and axis is None:
        return Tracer(row(reshape_atom(x.atom, (1,))))
    axes = axes_of(axis, x.ndim, what)
    kept = [d for d in range(x.ndim) if d not in axes]
    a = permute(x.atom, kept + axes)
    if not nested and len(axes) > 1:
        front = a.type.shape[:len(kept)]
        a = reshape_atom(a, (*front, builder.size_product(a.type.shape[len(kept):])))
    out = _below(a, len(kept), row)
    if keepdims:
        sizes = iter(out.type.shape)
        out = reshape_atom(out, tuple(1 if d in axes else next(sizes) for d in range(x.ndim)))
    return Tracer(out)


def _below(a: Atom, depth: int, row: _Row) -> Atom:
    """``row`` under ``depth`` maps; of arrays of higher rank, first on the rows and then on what they gave."""
    if depth:
        return _mapped(lambda e: _below(e, depth - 1, row), a)
    if a.type.rank > 1:
        return row(_mapped(lambda e: _below(e, 0, row), a))
    return row(a)


def _mapped(f: _Row, a: Atom) -> Atom:
    """A map whose sizes and checks are moved out."""
    from parray.ir import Lambda, Var
    from parray.soacs import Screma
    n = resolve(a.type.shape[0])
    p = Var(a.type.row(), "row")
    with context.inner((p,), context.some(n)) as s:
        result = f(p)
    return builder.emit1(Screma(n, (a,), Lambda((p,), tuple(s.stms), (result,))))    # type: ignore[arg-type]


def _fold(name: str, elem: ScalarType, ne: Any) -> _Row:
    """The reduction of a one-dimensional array, converted to ``elem``, by a primitive."""
    def row(a: Atom) -> Atom:
        m = Monoid(builder.lift2(name, Type(elem)), (Const(ne, elem),), True)
        return builder.reduce_(m, convert(a, elem))[0]
    return row


def _accumulator(t: ScalarType) -> ScalarType:
    """The type in which NumPy sums."""
    return t if t.is_float else u64 if t.kind == "u" else i64


# --- sums and products -----------------------------------------------------------------------------------------------

def sum(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum; integers and bool accumulate in 64 bits."""
    elem = _accumulator(lift(xs, "pa.sum").dtype)
    return over_axes(xs, axis, keepdims, "pa.sum", _fold("add", elem, 0))


def prod(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The product; integers and bool accumulate in 64 bits."""
    elem = _accumulator(lift(xs, "pa.prod").dtype)
    return over_axes(xs, axis, keepdims, "pa.prod", _fold("mul", elem, 1))


def mean(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum over the number of elements; NaN when there are none.  Integers give f64."""
    x = lift(xs, "pa.mean")
    elem = x.dtype if x.dtype.is_float else f64
    inner = f32 if elem == f16 else elem
    total = over_axes(x, axis, keepdims, "pa.mean", _fold("add", inner, 0))
    count = builder.size_product([x.type.shape[d] for d in axes_of(axis, x.ndim, "pa.mean")])
    mean_ = apply("div", total, Tracer(builder.convert(size_atom(count), inner)))
    return mean_ if inner == elem else Tracer(convert(mean_.atom, elem))


def var(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean squared distance from the mean."""
    x = lift(xs, "pa.var")
    centred = apply("sub", x, mean(x, axis, keepdims=x.ndim > 0))
    return mean(apply("mul", centred, centred), axis, keepdims)


def std(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The square root of `var`."""
    return apply("sqrt", var(xs, axis, keepdims))


def any(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether some element is true (not 0)."""
    return over_axes(xs, axis, keepdims, "pa.any", _fold("or", bool_, False))


def all(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether every element is true (not 0)."""
    return over_axes(xs, axis, keepdims, "pa.all", _fold("and", bool_, True))


# --- extremes --------------------------------------------------------------------------------------------------------

def _nonempty(x: Tracer, axis: Any, what: str) -> None:
    """Extremes of nothing are an error, as in NumPy."""
    for d in axes_of(axis, x.ndim, what):
        n = resolve(x.type.shape[d])
        if isinstance(n, int):
            if n == 0:
                raise SizeMismatch(f"{what} of an empty array", builder.here())
        else:
            builder.emit(Assert(builder.prim("gt", n, Const(0, i64)), f"{what} of an empty array", (), "SizeMismatch"))


def _extreme(name: str, xs: Any, axis: Any, keepdims: bool) -> Any:
    x = lift(xs, f"pa.{name}")
    _nonempty(x, axis, f"pa.{name}")
    ne = prims.neutral_element(name, x.dtype)
    return over_axes(x, axis, keepdims, f"pa.{name}", _fold(name, x.dtype, ne))


def max(xs: Any, *others: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The greatest element of one array (an empty one is an error), or elementwise the greater of two or more."""
    return _choose("max", xs, others, axis, keepdims)


def min(xs: Any, *others: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The least element of one array (an empty one is an error), or elementwise the lesser of two or more."""
    return _choose("min", xs, others, axis, keepdims)


def _choose(name: str, xs: Any, others: Sequence[Any], axis: Any, keepdims: bool) -> Any:
    context.current(f"pa.{name}")
    if not others:
        return _extreme(name, xs, axis, keepdims)
    if axis is not None or keepdims:
        raise TypeMismatch(f"pa.{name} of several values has no axis", builder.here())
    for other in others:
        xs = apply(name, xs, other)
    return xs


def argmax(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The place of the greatest element: the first of equals, a NaN if there is one."""
    return _arg("argmax", "max", xs, axis, keepdims)


def argmin(xs: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The place of the least element: the first of equals, a NaN if there is one."""
    return _arg("argmin", "min", xs, axis, keepdims)


def _arg(what: str, best: str, xs: Any, axis: Any, keepdims: bool) -> Any:
    """The extreme, then the first place that has it: two reductions that vectors do, where one on pairs would not.  NaN
    is an extreme."""
    x = lift(xs, f"pa.{what}")
    _nonempty(x, axis, f"pa.{what}")
    elem = x.dtype
    never = Const(2**63 - 1, i64)

    def row(a: Atom) -> Atom:
        worst = Const(prims.neutral_element(best, elem), elem)
        (top,) = builder.reduce_(Monoid(builder.lift2(best, Type(elem)), (worst,), True), a)

        def place(v: Atom, i: Atom) -> Atom:
            here = builder.prim("eq", v, top)
            if elem.is_float:
                both = builder.prim("and", builder.prim("isnan", v), builder.prim("isnan", top))
                here = builder.prim("or", here, both)
            return builder.select(here, i, never)
        places = builder.map1(place, a, builder.iota(a.type.shape[0]))
        return builder.reduce_(Monoid(builder.lift2("min", Type(i64)), (never,), True), places)[0]
    return over_axes(x, axis, keepdims, f"pa.{what}", row, nested=False)


# --- products of arrays ----------------------------------------------------------------------------------------------

def _inner(x: Atom, y: Atom) -> Atom:
    """The sum of products of two vectors of one element type."""
    products = builder.map1(lambda a, b: _times(a, b), x, y)
    elem = x.type.elem
    add = "or" if elem.is_bool else "add"
    m = Monoid(builder.lift2(add, Type(elem)), (Const(0, elem),), True)
    return builder.reduce_(m, products)[0]


def _times(a: Atom, b: Atom) -> Atom:
    return builder.prim("and" if a.type.elem.is_bool else "mul", a, b)


def _pair(x: Any, y: Any, what: str) -> tuple[Atom, Atom]:
    """Two operands in their common element type."""
    from parray.trace.promote import common_type
    a, b = lift(x, what), lift(y, what)
    elem = common_type([a.dtype, b.dtype], [a.weak, b.weak])
    return convert(a.atom, elem), convert(b.atom, elem)


def _joined(x: Atom, dx: int, y: Atom, dy: int, what: str) -> Atom:
    """``y`` with its size in dimension ``dy`` made that of ``x`` in ``dx``."""
    n = x.type.shape[dx]
    context.unify(n, y.type.shape[dy], f"{what} sums over a shared dimension")
    sizes = list(y.type.shape)
    sizes[dy] = n
    return context.fit(y, sizes)


def dot(x: Any, y: Any) -> Any:
    """NumPy's dot: of vectors ``sum(x * y)``, of matrices the matrix product, with a scalar the product."""
    a, b = _pair(x, y, "pa.dot")
    if not a.type.rank or not b.type.rank:
        return apply("mul", Tracer(a), Tracer(b))
    if b.type.rank == 1:
        b = _joined(a, a.type.rank - 1, b, 0, "pa.dot")
        return Tracer(_below(a, a.type.rank - 1, lambda row: _inner(row, b)))
    if b.type.rank == 2 or a.type.rank == 1:
        b = _joined(a, a.type.rank - 1, b, b.type.rank - 2, "pa.dot")
        columns = permute(b, [*range(b.type.rank - 2), b.type.rank - 1, b.type.rank - 2])
        return Tracer(_below(a, a.type.rank - 1, lambda row: _below(
            columns, b.type.rank - 1, lambda column: _inner(row, column))))
    raise TypeMismatch("pa.dot of arrays of these ranks is not available: use pa.matmul or pa.map", builder.here())


def matmul(x: Any, y: Any) -> Any:
    """``x @ y``: the matrix product; leading dimensions are batches, with broadcasting."""
    a, b = _pair(x, y, "pa.matmul")
    if not a.type.rank or not b.type.rank:
        raise TypeMismatch("pa.matmul takes arrays, not scalars: use *", builder.here())
    if a.type.rank <= 2 and b.type.rank <= 2:
        return dot(Tracer(a), Tracer(b))
    if b.type.rank == 1:
        return dot(Tracer(a), Tracer(b))
    if a.type.rank == 1:
        return Tracer(_batched(lambda m: dot(Tracer(a), Tracer(m)).atom, [b], [2]))
    return Tracer(_batched(lambda m, k: dot(Tracer(m), Tracer(k)).atom, [a, b], [2, 2]))


def _batched(f: Callable[..., Atom], xs: list[Atom], ranks: list[int]) -> Atom:
    """``f`` on arrays of these ranks, mapped over what dimensions are in front."""
    from parray.trace.elementwise import broadcast_shapes
    front = broadcast_shapes([x.type.shape[:x.type.rank - r] for x, r in zip(xs, ranks)], "pa.matmul")
    if not front:
        return f(*xs)
    rest, n, mapped = list(xs), front[0], []
    for k, (x, r) in enumerate(zip(xs, ranks)):
        if x.type.rank - r == len(front):
            size = resolve(x.type.shape[0])
            if size == 1 and n != 1:
                rest[k] = builder.index(x, 0, safe=True)
            else:
                rest[k] = context.fit(x, (n, *x.type.shape[1:]))
                mapped.append(k)

    def body(*elements: Atom) -> Sequence[Atom]:
        inner = list(rest)
        for k, e in zip(mapped, elements):
            inner[k] = e
        return (_batched(f, inner, ranks),)
    return builder.map_(body, *(rest[k] for k in mapped), n=n)[0]


def cumulative(name: str, xs: Any, axis: Any) -> Any:
    """Running sums (``add``) or products (``mul``) along an axis; without one, of all elements."""
    x = lift(xs, "a running sum")
    elem = _accumulator(x.dtype)
    a = convert(x.atom, elem)
    if axis is None:
        a, axis = reshape_atom(a, (builder.size_product(a.type.shape),)), 0
    rank = a.type.rank
    (k,) = axes_of(axis, rank, "a running sum")
    perm = [d for d in range(rank) if d != k] + [k]
    m = Monoid(builder.lift2(name, Type(elem)), (Const(0 if name == "add" else 1, elem),), True)
    out = _below(permute(a, perm), rank - 1, lambda row: builder.scan_(m, row)[0])
    return Tracer(permute(out, [perm.index(d) for d in range(rank)]))
