"""Rules of constructors, views and indexing."""
from __future__ import annotations

from typing import Any, Sequence

from parray.ir import Atom, Const, Op, Var, size_atom
from parray.simplify.engine import Simplifier, rule
from parray.soacs import Assert, Concat, Index, Iota, Prim, Replicate, Reshape, Slice, Transpose
from parray.types import i64


# --- indexing --------------------------------------------------------------------------------------------------------

@rule(Index)
def index_in_range(op: Index, s: Simplifier) -> Op | None:
    """x[i]  =>  x[i] without a check  where i is proved in range"""
    if op.safe or not all(s.ranges.in_range(i, n) for i, n in zip(op.indices, op.x.type.shape)):
        return None
    return Index(op.x, op.indices, True)


@rule(Index)
def index_of_iota(op: Index, s: Simplifier) -> Op | Sequence[Atom] | None:
    """(iota n)[i]  =>  i"""
    made = s.producer(op.x)
    if not isinstance(made, Iota) or not op.safe:
        return None
    return op.indices if made.elem == i64 else Prim("convert", op.indices, made.elem)


@rule(Index)
def index_of_replicate(op: Index, s: Simplifier) -> Op | Sequence[Atom] | None:
    """(replicate n x)[i, j ..]  =>  x[j ..]"""
    made = s.producer(op.x)
    if not isinstance(made, Replicate) or not (op.safe or s.ranges.in_range(op.indices[0], made.n)):
        return None
    return Index(made.x, op.indices[1:], op.safe) if op.indices[1:] else [made.x]     # type: ignore[arg-type]


@rule(Index)
def index_of_index(op: Index, s: Simplifier) -> Op | None:
    """x[i][j]  =>  x[i, j]"""
    made = s.producer(op.x)
    return Index(made.x, made.indices + op.indices, made.safe and op.safe) if isinstance(made, Index) else None


@rule(Index)
def index_of_transpose(op: Index, s: Simplifier) -> Op | Sequence[Atom] | None:
    """(transpose p x)[i, j]  =>  x[j, i]  where the indices are of leading dimensions of x"""
    made = s.producer(op.x)
    if not isinstance(made, Transpose):
        return None
    k = len(op.indices)
    if sorted(made.perm[:k]) != list(range(k)):
        return None
    inner = Index(made.x, tuple(op.indices[made.perm.index(d)] for d in range(k)), op.safe)
    rest = tuple(p - k for p in made.perm[k:])
    if rest == tuple(range(len(rest))):
        return inner
    return Transpose(s.emit1(inner), rest)                          # type: ignore[arg-type]


@rule(Index)
def index_of_slice(op: Index, s: Simplifier) -> Op | Sequence[Atom] | None:
    """x[a:b:c][i]  =>  x[a + i*c]  where i is in range and the other dimensions are whole"""
    made = s.producer(op.x)
    if not isinstance(made, Slice) or not op.safe:
        return None
    k = len(op.indices)
    if not _whole(made, range(k, len(made.sizes))):
        return None
    indices: list[Atom] = []
    for i, start, step in zip(op.indices, made.starts, made.steps):
        (scaled,) = s.emit(Prim.of("mul", (i, size_atom(step))))
        indices += s.emit(Prim.of("add", (start, scaled)))
    return Index(made.x, tuple(indices), True)


@rule(Index)
def index_of_concat(op: Index, s: Simplifier) -> Op | None:
    """(concat x y ..)[i ..]  =>  the part's [i - start ..]  where both ends are proved"""
    made = s.producer(op.x)
    if not isinstance(made, Concat) or not op.safe:
        return None
    start: Any = 0
    for x in made.xs:
        n = x.type.shape[0]
        i = s.emit1(Prim.of("sub", (op.indices[0], size_atom(start))))
        if s.ranges.in_range(i, n):
            return Index(x, (i, *op.indices[1:]), True)
        if not (isinstance(n, int) and isinstance(start, int)):
            return None
        start += n
    return None


# --- views -----------------------------------------------------------------------------------------------------------

def _whole(op: Slice, axes: Sequence[int]) -> bool:
    """Whether the slice takes all of these dimensions."""
    return all(op.starts[a] == Const(0, i64) and op.steps[a] == 1 and op.sizes[a] == op.x.type.shape[a] for a in axes)


@rule(Slice)
def whole_slice(op: Slice, s: Simplifier) -> Sequence[Atom] | None:
    """x[:]  =>  x"""
    return [op.x] if _whole(op, range(len(op.sizes))) else None


@rule(Slice)
def slice_of_slice(op: Slice, s: Simplifier) -> Op | None:
    """x[a::c][b::d]  =>  x[a + b*c :: c*d]"""
    made = s.producer(op.x)
    if not isinstance(made, Slice):
        return None
    starts: list[Atom] = []
    steps: list[Any] = []
    for a, c, b, d in zip(made.starts, made.steps, op.starts, op.steps):
        (scaled,) = s.emit(Prim.of("mul", (b, size_atom(c))))
        starts += s.emit(Prim.of("add", (a, scaled)))
        (step,) = s.emit(Prim.of("mul", (size_atom(c), size_atom(d))))
        steps.append(int(step.value) if isinstance(step, Const) else step)
    return Slice(made.x, tuple(starts), op.sizes, tuple(steps))


@rule(Slice)
def slice_of_replicate(op: Slice, s: Simplifier) -> Op | None:
    """(replicate n x)[a:b]  =>  replicate (b - a) x"""
    made = s.producer(op.x)
    if not isinstance(made, Replicate):
        return None
    if isinstance(made.x, Var) and made.x.type.rank:
        (x,) = s.emit(Slice(made.x, op.starts[1:], op.sizes[1:], op.steps[1:]))
        return Replicate(op.sizes[0], x)
    return Replicate(op.sizes[0], made.x)


@rule(Transpose)
def identity_transpose(op: Transpose, s: Simplifier) -> Sequence[Atom] | None:
    """transpose (0, 1, ..) x  =>  x"""
    return [op.x] if op.perm == tuple(range(len(op.perm))) else None


@rule(Transpose)
def transpose_of_transpose(op: Transpose, s: Simplifier) -> Op | None:
    """transpose p (transpose q x)  =>  transpose (q . p) x"""
    made = s.producer(op.x)
    return Transpose(made.x, tuple(made.perm[p] for p in op.perm)) if isinstance(made, Transpose) else None


@rule(Transpose)
def transpose_of_replicate(op: Transpose, s: Simplifier) -> Op | None:
    """transpose (0, p ..) (replicate n x)  =>  replicate n (transpose p x);  of scalars twice replicated: swap sizes"""
    made = s.producer(op.x)
    if not isinstance(made, Replicate):
        return None
    if op.perm[0] == 0 and isinstance(made.x, Var):
        (x,) = s.emit(Transpose(made.x, tuple(p - 1 for p in op.perm[1:])))
        return Replicate(made.n, x)
    inner = s.producer(made.x)
    if op.perm[:2] == (1, 0) and len(op.perm) == 2 and isinstance(inner, Replicate):
        (x,) = s.emit(Replicate(made.n, inner.x))
        return Replicate(inner.n, x)
    return None


@rule(Reshape)
def identity_reshape(op: Reshape, s: Simplifier) -> Sequence[Atom] | None:
    """reshape x to its own shape  =>  x"""
    return [op.x] if op.shape == op.x.type.shape else None


@rule(Reshape)
def reshape_of_reshape(op: Reshape, s: Simplifier) -> Op | None:
    """reshape (reshape x)  =>  reshape x"""
    made = s.producer(op.x)
    return Reshape(made.x, op.shape) if isinstance(made, Reshape) else None


@rule(Reshape)
def reshape_of_constant(op: Reshape, s: Simplifier) -> Op | None:
    """reshape (replicate n (.. c))  =>  replicate .. c  for a scalar c"""
    made = s.producer(op.x)
    while isinstance(made, Replicate) and made.x.type.rank:
        made = s.producer(made.x)
    if not isinstance(made, Replicate) or not op.shape:
        return None
    x = made.x
    for n in reversed(op.shape[1:]):
        (x,) = s.emit(Replicate(n, x))
    return Replicate(op.shape[0], x)


def _without_ones(shape: Sequence[Any]) -> list[Any]:
    return [n for n in shape if n != 1]


@rule(Index)
def index_of_unit_reshape(op: Index, s: Simplifier) -> Op | Sequence[Atom] | None:
    """(reshape x to [1, n, 1, m])[0, i]  =>  reshape x[i] to [1, m]  where only dimensions of size 1 come and go"""
    made = s.producer(op.x)
    if not isinstance(made, Reshape) or not op.safe or _without_ones(made.shape) != _without_ones(made.x.type.shape):
        return None
    k = len(op.indices)
    wanted = [i for i, n in zip(op.indices, made.shape) if n != 1]
    indices: list[Atom] = []
    shape = made.x.type.shape
    while len(indices) < len(shape) and (wanted or shape[len(indices)] == 1):
        indices.append(Const(0, i64) if shape[len(indices)] == 1 else wanted.pop(0))
    row: Atom = s.emit1(Index(made.x, tuple(indices), True)) if indices else made.x
    return [reshaped(row, made.shape[k:], s)]


def reshaped(x: Atom, shape: tuple[Any, ...], s: Simplifier) -> Atom:
    """``x``, which may be a scalar, with dimensions of size 1 put in or taken out."""
    if x.type.shape == shape:
        return x
    if not shape:
        return s.emit1(Index(x, (Const(0, i64),) * x.type.rank, True))      # type: ignore[arg-type]
    if x.type.is_scalar:
        for n in reversed(shape):
            x = s.emit1(Replicate(n, x))
        return x
    return s.emit1(Reshape(x, shape))                               # type: ignore[arg-type]


@rule(Concat)
def concat_of_one(op: Concat, s: Simplifier) -> Op | Sequence[Atom] | None:
    """concat x  =>  x;  empty parts are dropped"""
    xs = tuple(x for x in op.xs if x.type.shape[0] != 0) or op.xs[:1]
    if len(xs) == 1 and xs[0].type == op.infer()[0]:
        return xs
    return Concat(xs, op.n) if len(xs) < len(op.xs) else None


@rule(Concat)
def concat_of_concat(op: Concat, s: Simplifier) -> Op | None:
    """concat x (concat y z)  =>  concat x y z"""
    xs: list[Var] = []
    for x in op.xs:
        made = s.producer(x)
        xs += made.xs if isinstance(made, Concat) else (x,)
    return Concat(tuple(xs), op.n) if len(xs) > len(op.xs) else None


@rule(Assert)
def certain_assertion(op: Assert, s: Simplifier) -> Sequence[Atom] | None:
    """assert True  =>  nothing"""
    return () if isinstance(op.cond, Const) and op.cond.value else None


RULES = (index_in_range, index_of_iota, index_of_replicate, index_of_index, index_of_transpose, index_of_slice,
         index_of_unit_reshape, index_of_concat, whole_slice, slice_of_slice, slice_of_replicate, identity_transpose,
         transpose_of_transpose, transpose_of_replicate, identity_reshape, reshape_of_reshape, reshape_of_constant,
         concat_of_one, concat_of_concat, certain_assertion)
