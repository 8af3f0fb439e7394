"""What users call: `parallel`, backends, differentiation.

    parallel.py       the decorator: signatures, programs, the call
    choice.py         which backend runs it
    dispatch.py       the call's fast path, generated for each program
    differentiate.py  grad, value_and_grad, vjp, jvp, stop_gradient
    foreign.py        functions of numba and C as operations
    explain.py        what became of a program (report.py, picture.py, machine.py)
"""
from __future__ import annotations

from parray.api.differentiate import (custom_vjp, grad, hessian, jacfwd, jacrev, jvp, stop_gradient, value_and_grad,
                                      vjp)
from parray.api.foreign import foreign
from parray.api.parallel import Parallel, parallel, use_backend

__all__ = ["Parallel", "custom_vjp", "foreign", "grad", "hessian", "jacfwd", "jacrev", "jvp", "parallel",
           "stop_gradient", "use_backend", "value_and_grad", "vjp"]
