"""What a variable stands for while its graph is lowered.

    Val ::= Expr                  a scalar
          | Arr                   memory: buffer, offset, a stride for every dimension (any view is one)
          | Lazy                  elements computed where they are read (iota, replicate)

``Dest`` is where a result is wanted: memory to write, or to combine into by a primitive.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from parray.kernels import ONE, Apply, Buf, Expr, Lit, Load, Ref, add, mul
from parray.types import ScalarType


@dataclass(frozen=True)
class Arr:
    """Memory seen as an array: a buffer, an offset, a shape and strides."""
    buf: Buf
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    @property
    def elem(self) -> ScalarType:
        return self.buf.elem

    def at(self, *indices: Expr) -> Arr:
        """The leading dimensions indexed away."""
        offset = self.offset
        for i, s in zip(indices, self.strides):
            offset = add(offset, mul(i, s))
        k = len(indices)
        return Arr(self.buf, offset, self.shape[k:], self.strides[k:])

    def load(self) -> Expr:
        assert not self.shape
        return Load(self.buf, self.offset)

    @property
    def contiguous(self) -> bool:
        return self.strides == row_major(self.shape)


@dataclass(frozen=True)
class Lazy:
    """``fn(indices) -> Expr`` gives an element; it must be cheap.  ``constant``: all elements are one scalar."""
    elem: ScalarType
    shape: tuple[Expr, ...]
    fn: Callable[[tuple[Expr, ...]], Expr]
    constant: bool = False

    def at(self, *indices: Expr) -> Lazy:
        """The leading dimensions indexed away."""
        return Lazy(self.elem, self.shape[len(indices):], lambda rest: self.fn(tuple(indices) + rest), self.constant)

    def load(self) -> Expr:
        return self.fn(())


Val = Any                                            # Expr | Arr | Lazy


@dataclass(frozen=True)
class Dest:
    """``acc`` names the primitive by which values are combined into what is there; None overwrites."""
    arr: Arr
    acc: str | None = None

    def at(self, i: Expr) -> Dest:
        return Dest(self.arr.at(i), self.acc)


def row_major(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The strides of a freshly made array."""
    strides: list[Expr] = []
    step: Expr = ONE
    for s in reversed(shape):
        strides.append(step)
        step = mul(s, step)
    return tuple(reversed(strides))


def names(e: Expr) -> set[str]:
    """The names an expression refers to."""
    match e:
        case Ref(name=name):
            return {name}
        case Apply(args=args):
            return set().union(*(names(a) for a in args))
        case Load(buf=buf, index=index):
            return {buf.name + "[]"} | names(index)
        case Lit():
            return set()
