"""How numba compiles a kernel: its pipeline without the passes that serve what kernels never contain.

Kernels are straight loops over scalars and typed pointers: no closures, array expressions, `with` blocks, literal
unrolling or exceptions.  Leaving those passes out halves the time numba itself takes; LLVM's share stays as it is.

LLVM unrolls loops of few, constant iterations before its loop vectoriser sees them, so vectors for those must come
from its superword vectoriser, which numba leaves off: `superwords` turns it on while kernels compile (microgpt's
step with static sizes: 44 us without, 35 with).
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

from numba import config
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import global_compiler_lock
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


@contextmanager
def superwords() -> Iterator[None]:
    """Compile with LLVM's superword vectoriser; no other thread compiles meanwhile, so only kernels are affected."""
    with global_compiler_lock:
        before = config.SLP_VECTORIZE                           # type: ignore[attr-defined]
        config.SLP_VECTORIZE = 1                                # type: ignore[attr-defined]
        try:
            yield
        finally:
            config.SLP_VECTORIZE = before                       # type: ignore[attr-defined]
