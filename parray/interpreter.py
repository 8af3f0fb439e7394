"""The reference interpreter: runs a graph in NumPy, operation by operation.  It *defines* the semantics.

Each operation's meaning is its ``evaluate``; this file only keeps the environment.  Slow and obvious on purpose.
It runs a graph of any stage, so each stage can be tested against the one before.
"""
from __future__ import annotations

from typing import Any

from parray.errors import ParrayError
from parray.ir import Const, Lambda, Var


class Interpreter:
    """Values of variables in scope.  One instance runs one call; lambdas see the variables around them."""

    def __init__(self) -> None:
        self.env: dict[Var, Any] = {}

    def value(self, a: Any) -> Any:
        return a.value if isinstance(a, Const) else self.env[a]

    def size(self, s: Any) -> int:
        return s if isinstance(s, int) else int(self.value(s))

    def call(self, lam: Lambda, *args: Any) -> tuple[Any, ...]:
        """The lambda's results.  (A variable is bound anew at every iteration; nothing outlives its scope.)"""
        env = self.env
        env.update(zip(lam.params, args, strict=True))
        for stm in lam.stms:
            try:
                env.update(zip(stm.vars, stm.op.evaluate(self), strict=True))
            except ParrayError as e:
                raise e if e.loc is not None or stm.loc is None else type(e)(e.message, stm.loc) from None
        return tuple(self.value(r) for r in lam.results)


def run(lam: Lambda, *args: Any, free: dict[Var, Any] | None = None) -> tuple[Any, ...]:
    """Run a closed lambda on NumPy values (sizes are i64 scalars among them)."""
    interpreter = Interpreter()
    interpreter.env.update(free or {})
    return interpreter.call(lam, *args)
