"""The passes, in order, from a traced program to something that can be called.

    trace -> settle -> simplify -> guard -> recognise contractions -> simplify -> fuse -> interchange -> simplify
          -> lower -> print -> compile

Differentiation is not a pass: `pa.grad` and its kin transform a lambda while it is traced, so derivatives go through
everything below like any other code.  Contractions are recognised before fusion, because fusion would bury their
products in larger bodies; simplification runs after each because both leave copies and dead parameters.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Sequence

from parray import contractions, fuse, guards, interchange, lockstep
from parray.check import check
from parray.errors import BackendError, user_location
from parray.interpreter import run
from parray.ir import Lambda, Stm, Substitution
from parray.program import Program
from parray.simplify import simplify
from parray.simplify.dead import remove_dead
from parray.soacs import CustomVjp, Foreign, Prim


@dataclass(frozen=True)
class Pass:
    """A named, pure function from graph to graph."""
    name: str
    summary: str
    apply: Callable[[Lambda], Lambda]


class _Settled(Substitution):
    """stop x  =>  x;    custom f fwd bwd x  =>  f x;    foreign f without its derivative"""

    def lam(self, lam: Lambda) -> Lambda:
        params = tuple(self.fresh(p) for p in lam.params)
        stms = self.block(lam.stms)
        return Lambda(params, tuple(stms), tuple(self.atom(r) for r in lam.results))

    def block(self, given: Sequence[Stm]) -> list[Stm]:
        stms: list[Stm] = []
        for s in given:
            if isinstance(s.op, Prim) and s.op.prim == "stop":
                self.env[s.vars[0]] = self.atom(s.op.args[0])
            elif isinstance(s.op, CustomVjp):
                self.env.update(zip(s.op.lam.params, map(self.atom, s.op.args)))
                stms += self.block(s.op.lam.stms)
                self.env.update(zip(s.vars, map(self.atom, s.op.lam.results)))
            elif isinstance(s.op, Foreign):
                stms.append(self.stm(replace(s, op=replace(s.op, bwd=None))))
            else:
                stms.append(self.stm(s))
        return stms


def settled(lam: Lambda) -> Lambda:
    """The graph without what means nothing once everything is differentiated."""
    return _Settled().lam(lam)


PASSES: tuple[Pass, ...] = (
    Pass("settle", "stop_gradient and custom derivatives are gone", settled),
    Pass("simplify", "rewrite rules, common subexpressions, dead code, hoisting", simplify),
    Pass("guard", "indices that depend on sizes alone are checked beforehand", guards.hoist),
    Pass("contract", "map nests around sums of products become contractions", contractions.recognise),
    Pass("resimplify", "what recognition left dead", simplify),
    Pass("fuse", "neighbouring maps, reductions and scans become one loop", fuse.fuse),
    Pass("interchange", "reductions down columns become reductions of rows", interchange.interchange),
    Pass("lockstep", "while loops in maps run for blocks of elements at a time", lockstep.lockstep),
    Pass("final", "what fusion made equal or dead", simplify),
)

BACKENDS = ("interp", "cpu")


def stages(lam: Lambda, checked: bool = False) -> list[tuple[str, Lambda]]:
    """The graph after each pass; ``checked`` runs the type checker on every one."""
    out = [("trace", lam)]
    for p in PASSES:
        lam = p.apply(lam)
        if checked:
            check(lam)
        out.append((p.name, lam))
    return out


def optimise(lam: Lambda) -> Lambda:
    """The graph after all passes."""
    for p in PASSES:
        lam = p.apply(lam)
    return lam


class InterpreterExecutable:
    """Runs the graph as it was traced, but for what nothing uses: the reference."""

    source = "# the interpreter runs the graph itself: see f.graph(...)"

    def __init__(self, program: Program):
        self.lam = remove_dead(program.lam)             # what nothing uses is not part of a program's meaning
        self.elems = [i.elem.dtype.type for i in program.inputs]

    def __call__(self, sizes: Sequence[int], leaves: Sequence[Any]) -> list[Any]:
        import numpy as np
        values = [a if isinstance(a, np.ndarray) else elem(a) for a, elem in zip(leaves, self.elems)]
        values += leaves[len(values):]
        results = run(self.lam, *(np.int64(s) for s in sizes), *values)
        return [np.array(r) if isinstance(r, np.ndarray) else r for r in results]


def compile_program(program: Program, backend: str) -> Any:
    """An executable ``(sizes, leaves) -> results`` for a traced program; raises BackendError for unknown backends."""
    if backend == "interp":
        return InterpreterExecutable(program)
    if backend == "cpu":
        from parray.backends import cpu
        from parray.lower import lower
        kernels = lower(optimise(program.lam), len(program.sizes), program.name, cpu.vector_bytes())
        return cpu.compile_program(kernels, InterpreterExecutable(program))
    if backend == "cuda":
        raise BackendError("programs do not run on a GPU yet (docs/gpu.md); the backends are "
                           f"{', '.join(BACKENDS)}", user_location())
    raise BackendError(f"there is no backend {backend!r}; there are {', '.join(BACKENDS)}", user_location())
