"""Tracing: running a Python function on tracers writes down its graph.

    context.py       the state of a trace: validity, captures, unification of sizes, scopes of lambdas
    tracer.py        the value that stands for a node, with Python's operators and NumPy's protocols
    promote.py       element types of results       elementwise.py   scalar functions on arrays and structures
    indexing.py      x[...]                         views.py         reshape, transpose, slices, concat
    combinators.py   map, reduce, scan, scatter     control.py       cond, loops, folds
    reductions.py    sum, max, argmax, matmul       numpy_names.py   NumPy's ufuncs and functions
    hints.py         what f32["n"] says             function.py      a whole function: arguments, results, Program

The same emitters make every graph, so what the user wrote, its derivatives and its optimised form are one language.
"""
from __future__ import annotations

from parray.trace.tracer import Tracer

__all__ = ["Tracer"]
