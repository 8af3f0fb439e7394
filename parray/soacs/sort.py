"""Argsort: the stable order of elements by one or several keys.

    argsort (k1, k2, ..)  gives is  with  k1[is[0]], k1[is[1]], ..  ascending; k2 decides between equals of k1, etc.

NaN comes after everything else, zeros of both signs are equal, equals keep their order.  The result is integers and has
no derivative: that of sorting is the derivative of the gather that follows.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parray.ir import Atom, Op, Stm, Var, size_field
from parray.types import Type, i64


@dataclass(frozen=True)
class Argsort(Op):
    """``n`` elements; the keys are arrays of scalars, the first the most important."""
    n: Any = size_field()
    keys: tuple[Var, ...] = ()

    def infer(self) -> tuple[Type, ...]:
        for k in self.keys:
            assert k.type.rank == 1
        return (Type(i64, (self.n,)),)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        order = np.arange(ev.size(self.n))
        for k in reversed(self.keys):
            order = order[np.argsort(ev.value(k)[order], kind="stable")]
        return (order,)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """Nothing to differentiate."""
