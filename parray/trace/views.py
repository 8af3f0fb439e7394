"""Arrays rearranged: transpose, reshape, concatenation, slices.  All but concatenation are views and cost nothing.

The functions on whole arrays take structures of arrays as well (an array of records is a record of arrays).
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from parray import builder, tree
from parray.errors import SizeMismatch, TypeMismatch
from parray.ir import Atom, Const, Var, resolve, size_atom
from parray.soacs import Assert, Concat, Iota, Replicate, Reshape, Slice, Transpose
from parray.trace import constructs, context
from parray.trace.elementwise import broadcast_to, lift
from parray.trace.promote import common_type, convert
from parray.trace.tracer import Tracer
from parray.types import ScalarType, i64, scalar_type


def array(value: Any, what: str, rank: int = 1) -> Atom:
    """The atom of an array of at least this rank."""
    x = lift(value, what)
    if x.ndim < rank:
        needed = "an array" if rank == 1 else f"an array of rank {rank} or more"
        raise TypeMismatch(f"{what} takes {needed}, not {x!r}", builder.here())
    return x.atom


def on_arrays(f: Callable[[Atom], Atom], value: Any, what: str, rank: int = 1) -> Any:
    """``f`` on every array of a structure."""
    context.current(what)
    return tree.map(lambda x: Tracer(f(array(x, what, rank))), value)


def static_int(value: Any, what: str) -> int:
    """A Python integer; a traced one is an error."""
    if hasattr(value, "__index__") and not isinstance(value, (Tracer, bool)):
        return int(value)
    raise TypeMismatch(f"{what} must be a Python integer, not {value!r}{constructs.form(what)}", builder.here())


def as_size(value: Any, what: str) -> Any:
    """A size the user gave: an int, or an i64 variable (made non-negative, as ``range`` does)."""
    if isinstance(value, Tracer):
        atom = value.atom
        if not atom.type.is_scalar or not atom.type.elem.is_integer:
            raise TypeMismatch(f"{what} takes an integer as size, not {value!r}{constructs.form(what)}",
                               builder.here())
        size = builder.as_size(builder.convert(atom, i64))
    else:
        size = static_int(value, f"a size in {what}")
    if isinstance(size, int) and size < 0:
        raise SizeMismatch(f"{what}: the size {size} is negative", builder.here())
    return context.at_least_zero(size)


# --- transpose and reshape -------------------------------------------------------------------------------------------

def permute(x: Atom, perm: Sequence[int]) -> Atom:
    """Dimension k of the result is dimension ``perm[k]`` of ``x``."""
    if list(perm) == list(range(len(perm))):
        return x
    return builder.emit1(Transpose(x, tuple(perm)))                                  # type: ignore[arg-type]


def transpose(x: Any, perm: Sequence[int] | None = None) -> Any:
    """Dimension k of the result is dimension ``perm[k]`` of ``x``; without ``perm``, dimensions are reversed."""
    def one(a: Atom) -> Atom:
        rank = a.type.rank
        order = [static_int(p, "perm") for p in (reversed(range(rank)) if perm is None else perm)]
        order = [p + rank if p < 0 else p for p in order]
        if sorted(order) != list(range(rank)):
            raise TypeMismatch(f"{tuple(order)} does not permute the {rank} dimensions of {lift(Tracer(a))!r}",
                               builder.here())
        return permute(a, order)
    return on_arrays(one, x, "pa.transpose", 0)


def reshape_atom(x: Atom, shape: tuple[Any, ...]) -> Atom:
    """``x`` in a shape of the same number of elements."""
    if not shape:
        return builder.index(x, *([0] * x.type.rank), safe=True) if x.type.rank else x
    if not x.type.rank:
        return broadcast_to(x, shape)
    if all(resolve(a) is resolve(b) or a == b for a, b in zip(x.type.shape, shape)) and len(shape) == x.type.rank:
        return x
    return builder.emit1(Reshape(x, shape))                                          # type: ignore[arg-type]


def reshape(x: Any, shape: Any) -> Any:
    """The elements of ``x`` in row-major order under another shape; one size may be -1."""
    entries = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    return on_arrays(lambda a: _reshape(a, entries), x, "pa.reshape", 0)


def _reshape(a: Atom, entries: list[Any]) -> Atom:
    total = builder.size_product(a.type.shape)
    free = [k for k, e in enumerate(entries) if type(e) is int and e == -1]
    if len(free) > 1:
        raise SizeMismatch("pa.reshape can find one size (-1), not several", builder.here())
    sizes = [1 if k in free else as_size(e, "pa.reshape") for k, e in enumerate(entries)]
    rest = builder.size_product(sizes)
    if free:
        sizes[free[0]] = _quotient(total, rest)
    else:
        _same_total(total, rest)
    return reshape_atom(a, tuple(resolve(s) for s in sizes))


def _quotient(total: Any, rest: Any) -> Any:
    """``total / rest``, checked."""
    if isinstance(total, int) and isinstance(rest, int):
        if rest == 0 or total % rest:
            raise SizeMismatch(f"{total} elements cannot be divided into parts of {rest}", builder.here())
        return total // rest
    if isinstance(rest, int) and rest == 1:
        return total
    exact = builder._exact_quotient(total, rest)
    if exact is None:
        remainder = builder.size_prim("mod", total, rest)
        _check(builder.prim("eq", size_atom(remainder), Const(0, i64)),
               "{} elements cannot be divided into parts of {}", total, rest)
        exact = builder.size_prim("floordiv", total, rest)
    return context.at_least_zero(exact)


def _same_total(total: Any, rest: Any) -> None:
    if builder.same_size(total, rest):
        return
    roots = context.current().roots
    if isinstance(total, int) and isinstance(rest, int) or resolve(total) in roots or resolve(rest) in roots:
        context.unify(total, rest, "pa.reshape keeps the number of elements")
    else:
        _check(builder.prim("eq", size_atom(total), size_atom(rest)),
               "pa.reshape keeps the number of elements: there are {}, the shape has {}", total, rest)


def _check(ok: Atom, message: str, *sizes: Any) -> None:
    """A check of sizes at run time, or now where they are constants."""
    builder.emit(Assert(ok, message, tuple(size_atom(s) for s in sizes), "SizeMismatch"))


def flatten(x: Any) -> Any:
    """``[n][m]a -> [n*m]a``: the first two dimensions as one."""
    def one(a: Atom) -> Atom:
        n, m, *rest = a.type.shape
        return reshape_atom(a, (nonneg(builder.size_mul(n, m)), *rest))
    return on_arrays(one, x, "pa.flatten", 2)


def unflatten(x: Any, shape: Any) -> Any:
    """``[n*m]a -> [n][m]a``: the first dimension as several; one size may be -1."""
    entries = list(shape) if isinstance(shape, (tuple, list)) else [shape]

    def one(a: Atom) -> Atom:
        free = [k for k, e in enumerate(entries) if type(e) is int and e == -1]
        rest = [Tracer(s, True, True) if isinstance(s, Var) else s for s in map(resolve, a.type.shape[1:])]
        if free:
            sizes = [1 if k in free else as_size(e, "pa.unflatten") for k, e in enumerate(entries)]
            sizes[free[0]] = _quotient(a.type.shape[0], builder.size_product(sizes))
            return reshape_atom(a, (*sizes, *a.type.shape[1:]))
        return _reshape(a, [*entries, *rest])
    return on_arrays(one, x, "pa.unflatten")


def nonneg(size: Any) -> Any:
    """Note that a size computed from sizes is not negative."""
    if isinstance(size, Var):
        context.current().nonneg.add(size)
    return size


# --- slices ----------------------------------------------------------------------------------------------------------

def slice_first(x: Atom, start: Any, size: Any, step: int = 1) -> Atom:
    """``x[start], x[start + step], ..``: a slice of the first dimension that is known to be in range."""
    return slice_at(x, 0, start, size, step)


def slice_at(x: Atom, axis: int, start: Any, size: Any, step: int = 1) -> Atom:
    """The same in dimension ``axis``."""
    rank = x.type.rank
    starts = [Const(0, i64)] * axis + [size_atom(start)] + [Const(0, i64)] * (rank - axis - 1)
    sizes = list(x.type.shape)
    sizes[axis] = size
    return builder.emit1(Slice(x, tuple(starts), tuple(map(resolve, sizes)),         # type: ignore[arg-type]
                               tuple(step if k == axis else 1 for k in range(rank))))


def _part(n: Any, x: Atom, what: str) -> tuple[Any, Any]:
    """The sizes n and len(x) - n, checked."""
    size = as_size(n, what)
    length = resolve(x.type.shape[0])
    if isinstance(size, int) and isinstance(length, int):
        if size > length:
            raise SizeMismatch(f"{what} of {size} elements of an array of {length}", builder.here())
    elif not builder.same_size(size, length) and not is_part(size, length):
        _check(builder.prim("le", size_atom(size), size_atom(length)), what + " of {} elements of an array of {}",
               size, length)
    return size, nonneg(builder.size_sub(length, size))


def is_part(size: Any, length: Any) -> bool:
    """Whether ``size <= length`` for certain."""
    rest = builder.size_sub(length, size)
    return context.is_nonneg(rest)


def take(n: Any, xs: Any) -> Any:
    """The first ``n`` elements; there must be as many."""
    return _front(n, xs, "pa.take")


def drop(n: Any, xs: Any) -> Any:
    """All but the first ``n`` elements; there must be as many."""
    return on_arrays(lambda x: slice_first(x, *_part(n, x, "pa.drop")), xs, "pa.drop")


def _front(n: Any, xs: Any, what: str) -> Any:
    return on_arrays(lambda x: slice_first(x, 0, _part(n, x, what)[0]), xs, what)


def split(n: Any, xs: Any) -> tuple[Any, Any]:
    """The first ``n`` elements and the rest."""
    return _front(n, xs, "pa.split"), drop(n, xs)


def reverse(xs: Any) -> Any:
    """The elements in reverse order."""
    return on_arrays(lambda x: slice_first(x, builder.size_sub(x.type.shape[0], 1), x.type.shape[0], -1), xs,
                     "pa.reverse")


def rotate(xs: Any, k: Any) -> Any:
    """The array that starts with element ``k`` and goes round: ``xs[k:] + xs[:k]``; any integer ``k``."""
    def one(x: Atom) -> Atom:
        n = resolve(x.type.shape[0])
        shift = builder.convert(lift(k, "pa.rotate").atom, i64)
        if isinstance(n, int) and isinstance(shift, Const):
            at: Any = int(shift.value) % n if n else 0
        else:
            at = nonneg(builder.as_size(builder.prim("mod", shift, size_atom(builder.size_prim("max", n, 1)))))
        rest = nonneg(builder.size_sub(n, at))
        return builder.emit1(Concat((slice_first(x, at, rest), slice_first(x, 0, at)), n))   # type: ignore[arg-type]
    return on_arrays(one, xs, "pa.rotate")


# --- putting together ------------------------------------------------------------------------------------------------

def concat(*xs: Any) -> Any:
    """Arrays one after the other along the first dimension; also one list or tuple of arrays."""
    context.current("pa.concat")
    parts = list(xs[0]) if len(xs) == 1 and isinstance(xs[0], (list, tuple)) else list(xs)
    if not parts:
        raise TypeMismatch("pa.concat takes at least one array", builder.here())
    columns = [tree.leaves(p) for p in parts]
    shape = tree.structure(parts[0])
    if any(tree.structure(p) != shape for p in parts):
        raise TypeMismatch("pa.concat takes arrays of one structure", builder.here())
    return tree.unflatten(shape, [Tracer(concat_atoms([lift(x, "pa.concat") for x in column]))
                                  for column in zip(*columns)])


def concat_atoms(parts: Sequence[Tracer], axis: int = 0) -> Atom:
    """Concatenation of arrays of one rank along an axis, promoted to one element type."""
    rank = parts[0].ndim
    if any(p.ndim != rank or p.ndim < 1 for p in parts):
        raise TypeMismatch(f"arrays to concatenate must have one rank, these are {', '.join(map(repr, parts))}",
                           builder.here())
    elem = common_type([p.dtype for p in parts], [False] * len(parts))
    perm = [axis, *(k for k in range(rank) if k != axis)]
    atoms = [permute(convert(p.atom, elem), perm) for p in parts]
    row = list(atoms[0].type.shape[1:])
    for a in atoms[1:]:
        for k, (s, t) in enumerate(zip(row, a.type.shape[1:])):
            context.unify(s, t, "concatenated arrays agree in all other dimensions")
            row[k] = resolve(s)
    total: Any = 0
    for a in atoms:
        total = builder.size_add(total, a.type.shape[0])
    atoms = [context.fit(a, (a.type.shape[0], *row)) for a in atoms]
    out = builder.emit1(Concat(tuple(atoms), nonneg(total)))                         # type: ignore[arg-type]
    return permute(out, [perm.index(k) for k in range(rank)])


def iota(n: Any, dtype: Any = i64) -> Any:
    """``[0, 1, ... n-1]``."""
    trace = context.current("pa.iota")
    elem: ScalarType = scalar_type(dtype)
    size = as_size(n, "pa.iota")
    out = builder.emit1(Iota(size, elem), "i")
    if elem == i64:
        trace.counting[out] = size
    return Tracer(out)


def replicate(n: Any, x: Any) -> Any:
    """``n`` copies of a scalar, an array or a structure of these."""
    context.current("pa.replicate")
    size = as_size(n, "pa.replicate")
    return tree.map(lambda leaf: Tracer(builder.emit1(Replicate(size, lift(leaf, "pa.replicate").atom))), x)
