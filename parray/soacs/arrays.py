"""Arrays without computation: constructors, views and indexing.

    Iota n            [0, 1, ... n-1]                    Reshape x shape    row-major reinterpretation
    Replicate n x     [x, x, ... x]                      Slice x            start, size, step for every dimension
    Index x is        x[i, j, ..], leading dimensions    Concat xs          along the first dimension
    Transpose x perm  dimensions permuted                Assert             a run-time check

All but Concat are free: a view costs nothing until something must be written out.  They are linear: the tangent goes
through the same operation, the cotangent through its transpose.  The cotangent of Index and Slice is sparse
(`parray.ad.sparse`).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from parray import builder as b
from parray.errors import AssertionFailed, BoundsError
from parray.ir import Atom, Const, Op, Stm, Var, size_atom, size_field
from parray.types import ScalarType, Type, i64


@dataclass(frozen=True)
class Iota(Op):
    """``iota n : [n]elem``."""
    n: Any = size_field()
    elem: ScalarType = None                                         # type: ignore[assignment]

    def infer(self) -> tuple[Type, ...]:
        return (Type(self.elem, (self.n,)),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        return (np.arange(ev.size(self.n)).astype(self.elem.dtype),)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """Nothing to differentiate."""


@dataclass(frozen=True)
class Replicate(Op):
    """``replicate n x``: n copies of a scalar or array."""
    n: Any = size_field()
    x: Atom = None                                                  # type: ignore[assignment]

    def infer(self) -> tuple[Type, ...]:
        return (self.x.type.array_of(self.n),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        x = np.asarray(ev.value(self.x))
        return (np.broadcast_to(x, (ev.size(self.n),) + x.shape).copy(),)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Replicate(self.n, ad.tangent(self.x))))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """The sum over the copies."""
        (total,) = b.reduce_(b.sum_monoid(self.x.type), bars[0])
        ad.add(self.x, total)


@dataclass(frozen=True)
class Index(Op):
    """``x[indices]``: leading dimensions; out of range (negative too) is a BoundsError.  ``safe``: proved in range."""
    x: Var
    indices: tuple[Atom, ...]
    safe: bool = False

    def infer(self) -> tuple[Type, ...]:
        return (self.x.type.row(len(self.indices)),)

    def fails(self) -> bool:
        return not self.safe

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        x = ev.value(self.x)
        at = tuple(int(ev.value(i)) for i in self.indices)
        for i, n in zip(at, x.shape):
            if not 0 <= i < n:
                given = tuple(k if k >= 0 else k - m for k, m in zip(at, x.shape))       # the size was added before
                raise BoundsError(f"index {given[0] if len(at) == 1 else given} is out of bounds for an array of shape "
                                  f"{x.shape}")
        out = x[at]
        return (out.copy() if isinstance(out, np.ndarray) else out,)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Index(ad.tangent(self.x), self.indices, True)))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        ad.add_at(self.x, self.indices, bars[0])

    def vjp_sparse(self, ad: Any, stm: Stm, sparse: Any) -> bool:
        """x[i][j] is x[i, j]."""
        ad.add_sparse(self.x, sparse.below(self.indices))
        return True


@dataclass(frozen=True)
class Transpose(Op):
    """Dimension k of the result is dimension ``perm[k]`` of ``x``."""
    x: Var
    perm: tuple[int, ...]

    def infer(self) -> tuple[Type, ...]:
        t = self.x.type
        return (Type(t.elem, tuple(t.shape[p] for p in self.perm)),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        return (np.transpose(ev.value(self.x), self.perm),)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Transpose(ad.tangent(self.x), self.perm)))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """The inverse permutation."""
        inverse = tuple(sorted(range(len(self.perm)), key=lambda k: self.perm[k]))
        ad.add(self.x, b.emit1(Transpose(bars[0], inverse)))        # type: ignore[arg-type]

    def vjp_sparse(self, ad: Any, stm: Stm, sparse: Any) -> bool:
        full = sparse.with_places(len(self.perm))
        places = tuple(full.places[self.perm.index(k)] for k in range(len(self.perm)))
        ad.add_sparse(self.x, full.at(places))
        return True


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in row-major order under another shape; the products of the shapes are equal."""
    x: Var
    shape: tuple[Any, ...] = size_field()

    def infer(self) -> tuple[Type, ...]:
        return (Type(self.x.type.elem, self.shape),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        return (np.reshape(ev.value(self.x), tuple(ev.size(s) for s in self.shape)),)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Reshape(ad.tangent(self.x), self.shape)))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        ad.add(self.x, b.emit1(Reshape(bars[0], self.x.type.shape)))        # type: ignore[arg-type]


@dataclass(frozen=True)
class Slice(Op):
    """``result[i, j, ..] = x[start0 + i*step0, start1 + j*step1, ..]``; in range by construction (sizes are clipped
    where the slice is written).  Steps are non-zero ints or i64 atoms."""
    x: Var
    starts: tuple[Atom, ...]
    sizes: tuple[Any, ...] = size_field()
    steps: tuple[Any, ...] = size_field()

    def infer(self) -> tuple[Type, ...]:
        return (Type(self.x.type.elem, self.sizes),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        x = ev.value(self.x)
        for axis, (start, size, step) in enumerate(zip(self.starts, self.sizes, self.steps)):
            at = int(ev.value(start)) + np.arange(ev.size(size)) * ev.size(step)
            x = np.take(x, at, axis=axis)
        return (x,)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Slice(ad.tangent(self.x), self.starts, self.sizes, self.steps)))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        ad.add_slice(self.x, self.starts, tuple(size_atom(s) for s in self.steps), bars[0])

    def vjp_sparse(self, ad: Any, stm: Stm, sparse: Any) -> bool:
        ad.add_sparse(self.x, sparse.sliced(self.starts, tuple(size_atom(s) for s in self.steps)))
        return True


@dataclass(frozen=True)
class Concat(Op):
    """Arrays of equal row type, one after the other along the first dimension; ``n`` is the sum of their sizes."""
    xs: tuple[Var, ...]
    n: Any = size_field()

    def infer(self) -> tuple[Type, ...]:
        return (self.xs[0].type.row().array_of(self.n),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        return (np.concatenate([ev.value(x) for x in self.xs]),)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Concat(tuple(ad.tangent_or_zero(x) for x in self.xs), self.n)))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """Each operand gets its slice."""
        start: Any = 0
        for x in self.xs:
            inner = x.type.shape[1:]
            if ad.is_active(x):
                starts = (size_atom(start),) + (Const(0, i64),) * len(inner)
                ad.add(x, b.emit1(Slice(bars[0], starts, x.type.shape, (1,) * x.type.rank)))    # type: ignore[arg-type]
            start = b.size_add(start, x.type.shape[0])


@dataclass(frozen=True)
class Assert(Op):
    """Raises at run time when ``cond`` is false.  ``message`` is a format string for ``values``; ``error`` names the
    class in `parray.errors` to raise.  A ``guard`` depends on sizes alone and is checked before anything runs."""
    effect: ClassVar[bool] = True
    cond: Atom
    message: str
    values: tuple[Atom, ...] = ()
    error: str = "AssertionFailed"
    guard: bool = False

    def infer(self) -> tuple[Type, ...]:
        return ()

    def fails(self) -> bool:
        return True

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        if not ev.value(self.cond):
            from parray import errors
            kind = getattr(errors, self.error, AssertionFailed)
            raise kind(self.message.format(*(ev.value(v) for v in self.values)))
        return ()

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """Nothing to differentiate."""
