"""Windows: an array seen as overlapping runs along a dimension; Overlap: its transpose, which adds them up again.

    windows x:   out[.., i, j, ..] = x[.., i*step + j*dilation, ..]
    overlap y:   out[.., p, ..]    = sum of y[.., i, j, ..] over i*step + j*dilation = p

Windows cost nothing, they are strides.  `parray.contractions` sees a sum of products of windows as one contraction (a
convolution), and the overlap of a contraction as a contraction of windows: so is the gradient of a convolution.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parray import builder as b
from parray.ir import Atom, Op, Stm, Var, size_field
from parray.types import Type


def _places(sizes: tuple[int, int], steps: tuple[int, int]) -> Any:
    """Where element (i, j) of the windows lies."""
    return np.arange(sizes[0])[:, None] * steps[0] + np.arange(sizes[1]) * steps[1]


@dataclass(frozen=True)
class Windows(Op):
    """``sizes``: (how many, how long); ``steps``: from one to the next, and within one.  In range by construction."""
    x: Var
    axis: int
    sizes: tuple[Any, ...] = size_field()
    steps: tuple[int, int] = (1, 1)

    def infer(self) -> tuple[Type, ...]:
        t = self.x.type
        return (Type(t.elem, (*t.shape[:self.axis], *self.sizes, *t.shape[self.axis + 1:])),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        m, k = (ev.size(s) for s in self.sizes)
        return (np.take(ev.value(self.x), _places((m, k), self.steps), axis=self.axis),)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Windows(ad.tangent(self.x), self.axis, self.sizes, self.steps)))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """Every element gets the sum of its copies' cotangents."""
        n = self.x.type.shape[self.axis]
        ad.add(self.x, b.emit1(Overlap(bars[0], self.axis, n, self.steps)))     # type: ignore[arg-type]


@dataclass(frozen=True)
class Overlap(Op):
    """``axis`` and the one after it become one of ``n`` elements."""
    y: Var
    axis: int
    n: Any = size_field()
    steps: tuple[int, int] = (1, 1)

    def infer(self) -> tuple[Type, ...]:
        t = self.y.type
        return (Type(t.elem, (*t.shape[:self.axis], self.n, *t.shape[self.axis + 2:])),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        y = np.moveaxis(ev.value(self.y), (self.axis, self.axis + 1), (0, 1))
        out = np.zeros((ev.size(self.n), *y.shape[2:]), y.dtype)
        np.add.at(out, _places(y.shape[:2], self.steps), y)
        return (np.moveaxis(out, 0, self.axis),)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Overlap(ad.tangent(self.y), self.axis, self.n, self.steps)))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """Every copy gets its element's cotangent."""
        sizes = self.y.type.shape[self.axis:self.axis + 2]
        ad.add(self.y, b.emit1(Windows(bars[0], self.axis, sizes, self.steps)))     # type: ignore[arg-type]
