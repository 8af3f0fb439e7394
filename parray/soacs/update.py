"""Update: a copy of an array with a slice of it replaced.

    out = x;  out[start0 + i*step0, start1 + j*step1, ..] = value[i, j, ..]

In range by construction, as a slice is; the values are an array like the slice.  Linear: the cotangent of ``value`` is
the slice of the result's, that of ``x`` is the result's with the slice set to zero.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parray import builder as b
from parray.ir import Atom, Op, Stm, Var, size_field
from parray.soacs.arrays import Slice
from parray.types import Type


@dataclass(frozen=True)
class Update(Op):
    """See the module; ``steps`` are non-zero ints or i64 atoms."""
    x: Var
    value: Var
    starts: tuple[Atom, ...]
    steps: tuple[Any, ...] = size_field()

    def infer(self) -> tuple[Type, ...]:
        assert self.x.type.rank == self.value.type.rank == len(self.starts) == len(self.steps)
        return (self.x.type,)

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        out, value = ev.value(self.x).copy(), ev.value(self.value)
        places = [int(ev.value(start)) + np.arange(n) * ev.size(step)
                  for start, step, n in zip(self.starts, self.steps, value.shape)]
        out[np.ix_(*places)] = value
        return (out,)

    def jvp(self, ad: Any, stm: Stm) -> None:
        ad.emit(stm)
        ad.set(stm.vars[0], b.emit1(Update(ad.tangent_or_zero(self.x), ad.tangent_or_zero(self.value), self.starts,
                                           self.steps)))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        bar: Any = bars[0]
        if ad.is_active(self.value):
            ad.add(self.value, b.emit1(Slice(bar, self.starts, self.value.type.shape, self.steps)))
        if ad.is_active(self.x):
            ad.add(self.x, b.emit1(Update(bar, b.zeros(self.value.type), self.starts, self.steps)))   # type: ignore
