"""How numba compiles a kernel: its pipeline without the passes that serve what kernels never contain.

Kernels are straight loops over scalars and typed pointers: no closures, array expressions, `with` blocks, literal
unrolling or exceptions.  Leaving those passes out halves the time numba itself takes; LLVM's share stays as it is.

LLVM unrolls loops of few, constant iterations before its loop vectoriser sees them, so vectors for those must come
from its superword vectoriser, which numba leaves off: `tuned` turns it on while kernels compile (microgpt's
step with static sizes: 44 us without, 35 with).
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

from numba import config, types
from numba.core import registry
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import AnnotateTypes, NativeLowering, NoPythonBackend, NopythonTypeInference, \
    PreLowerStripPhis
from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode


_SCALARS = (types.Number, types.Boolean, types.RawPointer)


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


def _remembered(resolve: Any) -> Any:
    """Overload resolution that answers the same question about scalars once; numba tries every template each time."""
    known: dict[Any, Any] = {}

    def resolved(func: Any, args: Any, kws: Any) -> Any:
        if not isinstance(func, types.Function) or kws or not all(isinstance(a, _SCALARS) for a in args):
            return resolve(func, args, kws)
        key = (func, tuple(args))
        if key not in known:
            known[key] = resolve(func, args, kws)
        return known[key]
    return resolved


def _optimise_once(library: Any) -> None:
    """LLVM's pipeline once.  numba runs it twice, to prune reference counts in between; kernels have none."""
    passes, builder = library._codegen._module_pass_manager()
    passes.run(library._final_module, builder)


@contextmanager
def tuned() -> Iterator[None]:
    """numba as kernels want it; no other thread compiles meanwhile, so only kernels are affected."""
    context: Any = registry.cpu_target.typing_context
    library: Any = CPUCodeLibrary
    with global_compiler_lock:
        before = config.SLP_VECTORIZE                           # type: ignore[attr-defined]
        config.SLP_VECTORIZE = 1                                # type: ignore[attr-defined]
        context.resolve_function_type = _remembered(context.resolve_function_type)
        optimise, library._optimize_final_module = library._optimize_final_module, _optimise_once
        try:
            yield
        finally:
            library._optimize_final_module = optimise
            config.SLP_VECTORIZE = before                       # type: ignore[attr-defined]
            del context.resolve_function_type
