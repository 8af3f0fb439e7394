"""Contract: a sum of products over shared axes (an einsum of two operands), however it was spelled.

    contract x y : out[o..] = sum over the axes not in out of x[x_axes..] * y[y_axes..]

Axes are small ints; one that stands in both operands has one size.  Made by `parray.contractions` from map nests
around a product; never written by the tracer, so differentiation sees maps and reductions only (and gives products
and sums again, which are recognised in their turn).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parray import builder as b
from parray.ir import Atom, Op, Stm, Var
from parray.types import Type


@dataclass(frozen=True)
class Contract(Op):
    """See the module.  Every axis of the result stands in an operand."""
    x: Var
    y: Var
    x_axes: tuple[int, ...]
    y_axes: tuple[int, ...]
    out_axes: tuple[int, ...]

    def sizes(self) -> dict[int, Any]:
        """The size of each axis."""
        return dict(zip(self.y_axes, self.y.type.shape)) | dict(zip(self.x_axes, self.x.type.shape))

    @property
    def summed(self) -> tuple[int, ...]:
        return tuple(a for a in self.sizes() if a not in self.out_axes)

    def infer(self) -> tuple[Type, ...]:
        sizes = self.sizes()
        return (Type(self.x.type.elem, tuple(sizes[a] for a in self.out_axes)),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        x, y = ev.value(self.x), ev.value(self.y)
        out = np.einsum(x, list(self.x_axes), y, list(self.y_axes), list(self.out_axes), dtype=x.dtype)
        return (np.asarray(out, dtype=x.dtype) if self.out_axes else x.dtype.type(out),)

    def jvp(self, ad: Any, stm: Stm) -> None:
        """The product rule."""
        ad.emit(stm)
        total: Any = None
        for x, y in ((ad.tangent(self.x), self.y), (self.x, ad.tangent(self.y))):
            if x is not None and y is not None:
                part = b.emit1(Contract(x, y, self.x_axes, self.y_axes, self.out_axes))
                total = part if total is None else b.elementwise(lambda p, q: b.prim("add", p, q), total, part)
        ad.set(stm.vars[0], total)

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """Each operand gets the contraction of the other with the result's cotangent."""
        x, y = (self.x, self.x_axes), (self.y, self.y_axes)
        for (z, axes), other in ((x, y), (y, x)):
            if ad.is_active(z):
                ad.add(z, self._bar(bars[0], axes, *other))

    def _bar(self, bar: Any, axes: tuple[int, ...], y: Var, y_axes: tuple[int, ...]) -> Atom:
        """The cotangent of an operand with ``axes``; along an axis that only it has, and that is summed, it repeats."""
        from parray.soacs.arrays import Replicate, Transpose
        known = tuple(a for a in axes if a in self.out_axes or a in y_axes)
        out: Any = self._times(bar, y, y_axes, known)
        for a in axes:
            if a not in known:
                out, known = b.emit1(Replicate(self.sizes()[a], out)), (a,) + known
        return out if known == axes else b.emit1(Transpose(out, tuple(known.index(a) for a in axes)))

    def _times(self, bar: Any, y: Var, y_axes: tuple[int, ...], known: tuple[int, ...]) -> Atom:
        """sum of bar * y over the axes not in ``known``; a scalar cotangent is an array of one."""
        if self.out_axes:
            return b.emit1(Contract(bar, y, self.out_axes, y_axes, known))
        (one,) = b.map_(lambda: (bar,), n=1)
        return b.emit1(Contract(one, y, (max(self.sizes()) + 1,), y_axes, known))
