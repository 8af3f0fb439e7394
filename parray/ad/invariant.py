"""Moves index arithmetic out of the lambdas that it does not depend on, before a lambda is differentiated.

    map (\\d. x[i * 2 + d])    =>    j = i * 2;  map (\\d. x[j + d])

How an index depends on each of the maps around it decides how the cotangent of the indexed array is written
(`parray.ad.places`); there is nothing to see where the parts of an index stand further in than they need to.
"""
from __future__ import annotations

from parray.ir import Lambda, Op, Stm, Var, atoms, map_op
from parray.soacs import Prim


def hoisted(lam: Lambda) -> Lambda:
    """The lambda with index arithmetic moved outwards inside it."""
    new, lifted = _lift(lam)
    return Lambda(new.params, tuple(lifted) + new.stms, new.results)


def _lift(lam: Lambda) -> tuple[Lambda, list[Stm]]:
    """The lambda without what can stand before it, and that."""
    local: set[Var] = set(lam.params)
    stms: list[Stm] = []
    outside: list[Stm] = []
    for stm in lam.stms:
        found: list[Stm] = []

        def inner(nested: Lambda) -> Lambda:
            new, lifted = _lift(nested)
            found.extend(lifted)
            return new

        op = map_op(stm.op, lambda a: a, inner)
        for s in found + [Stm(stm.vars, op, stm.loc)]:
            if _is_index_arithmetic(s.op) and not any(a in local for a in atoms(s.op)):
                outside.append(s)
            else:
                local.update(s.vars)
                stms.append(s)
    return Lambda(lam.params, tuple(stms), lam.results), outside


def _is_index_arithmetic(op: Op) -> bool:
    return isinstance(op, Prim) and op.elem.is_integer and not op.fails()
