"""Differentiation as a graph-to-graph transformation, applied while a program is traced.

    vjp lam args wrt        results and pullback: reverse mode     (`parray.ad.reverse`, `nested`, `loops`, `sparse`)
    jvp lam args tangents   results and tangents: forward mode     (`parray.ad.forward`)

Both emit ordinary operations, so they nest in any order and later stages treat derivatives like anything else.  An
operation's own rules are its methods ``jvp`` and ``vjp`` (`parray.soacs`), a primitive's are in `parray.prims`.
Cotangents and tangents have the type of their primal, integers included; booleans have none.
"""
from parray.ad.forward import jvp
from parray.ad.reverse import vjp

__all__ = ["jvp", "vjp"]
