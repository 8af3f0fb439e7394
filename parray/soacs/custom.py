"""CustomVjp: a function whose reverse derivative is the user's.

    y = custom f fwd bwd x     =>     y, r = fwd x;   x_bar += bwd r y_bar

It stands in the graph while a program is traced; once everything is differentiated it is ``f x`` (`parray.pipeline`).
Forward mode differentiates ``f`` itself.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from parray import builder as b
from parray.ir import Atom, Lambda, Op, Stm, Var
from parray.types import Type


@dataclass(frozen=True)
class CustomVjp(Op):
    """``lam: args -> results``, ``fwd: args -> results, residuals``, ``bwd: residuals, bars of results -> bars``.

    ``count`` is the number of results of ``f``; in a reverse pass ``lam`` is ``fwd`` and gives residuals too.
    """
    args: tuple[Atom, ...]
    lam: Lambda
    fwd: Lambda
    bwd: Lambda
    count: int

    def infer(self) -> tuple[Type, ...]:
        return self.lam.result_types

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        return ev.call(self.lam, *(ev.value(a) for a in self.args))     # type: ignore[no-any-return]

    def jvp(self, ad: Any, stm: Stm) -> None:
        """``f`` itself, with its tangents."""
        for v, r in zip(stm.vars, ad.run(self.lam, self.args)):
            ad.alias(v, r)

    def forward(self, ad: Any, stm: Stm) -> None:
        """Emit ``fwd``, whose residuals are further results."""
        residuals = tuple(Var(t) for t in self.fwd.result_types[len(stm.vars):])
        ad.record(Stm(stm.vars + residuals, replace(self, lam=self.fwd), stm.loc))

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """See the module."""
        outs, residuals = stm.vars[:self.count], stm.vars[self.count:]
        given = [b.zeros(v.type) if bar is None else bar for v, bar in zip(outs, bars)]
        for a, bar in zip(self.args, b.inline(self.bwd, (*residuals, *given))):
            ad.add(a, bar)
