"""Simplification: small rewrite rules to a fixpoint.  A graph in, an equal and smaller graph out.

    engine.py   the walk: substitution, the rules' loop, common subexpressions, hoisting of invariant statements
    ranges.py   what is known of i64 values: proves indices in range and comparisons of sizes
    scalars.py  rules of scalar primitives            arrays.py   rules of views, constructors and indexing
    soacs.py    rules of map/scan/reduce, scatter, loops and branches
    inputs.py   indexing by an iota parameter becomes an input of the map
    dead.py     statements, results, inputs and carried values nothing uses

Each rule is a function with its law ``lhs => rhs`` as docstring, listed in the ``RULES`` of its file.  A rule gives
None (does not apply), an operation of equal result types, or the atoms that stand for the results.  Floating point
keeps its bits: nothing is re-associated.  A dead operation is dropped even if it could have failed (an index out of
range whose value nothing uses raises nothing); `Assert` is always kept.
"""
from __future__ import annotations

from parray.ir import Lambda
from parray.simplify import arrays, inputs, scalars, soacs
from parray.simplify.dead import remove_dead
from parray.simplify.engine import Simplifier

_RULES = (*scalars.RULES, *arrays.RULES, *soacs.RULES, *inputs.RULES)
_ROUNDS = 12


def simplify(lam: Lambda, keep_branches: bool = False) -> Lambda:
    """The lambda after all rules, again and again until none applies.  ``keep_branches``, for what is differentiated
    afterwards: no branch becomes a select, whose side not taken could give 0 * inf to the derivative."""
    rules = [r for r in _RULES if r is not soacs.cheap_branches] if keep_branches else _RULES
    for _ in range(_ROUNDS):
        engine = Simplifier(rules)
        new = remove_dead(engine.top(lam))
        if not engine.changed and new is lam:
            break
        lam = new
    return lam


__all__ = ["simplify"]
