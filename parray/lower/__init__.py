"""Lowering: graph -> kernel code.

Reading order: `values` (what a variable is while lowering), `core` (blocks, scalars, buffers, in-place decisions),
then one file for each family of operations: `arrays`, `soacs` (Screma, Scatter), `control`, `contract`, `sort`,
`foreign`; last, `rest` (what a failed check leaves unbound).
"""
from parray.lower import arrays, contract, control, foreign, soacs, sort
from parray.lower.core import Lowering, lower

__all__ = ["Lowering", "arrays", "contract", "control", "foreign", "lower", "soacs", "sort"]
