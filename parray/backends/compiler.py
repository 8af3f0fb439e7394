"""How numba compiles a kernel: its pipeline without the passes that serve what kernels never contain.

Kernels are straight loops over scalars and typed pointers: no closures, array expressions, `with` blocks, literal
unrolling or exceptions.  Leaving those passes out halves the time numba itself takes; LLVM's share stays as it is.
"""
from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import AnnotateTypes, NativeLowering, NoPythonBackend, NopythonTypeInference, \
    PreLowerStripPhis
from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode


class KernelCompiler(CompilerBase):
    """Bytecode, single assignment, types, machine code."""

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        pm = PassManager("kernel")
        for kind, name in ((TranslateByteCode, "analyzing bytecode"), (FixupArgs, "fix up args"),
                           (IRProcessing, "processing IR"), (ReconstructSSA, "ssa"),
                           (NopythonTypeInference, "nopython frontend"), (PreLowerStripPhis, "remove phis nodes"),
                           (AnnotateTypes, "annotate types"), (NativeLowering, "native lowering"),
                           (NoPythonBackend, "nopython mode backend")):
            pm.add_pass(kind, name)
        pm.finalize()
        return [pm]
