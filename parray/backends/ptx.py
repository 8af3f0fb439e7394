"""Printed CUDA kernels -> PTX -> machine code, with no GPU and no driver.

    assemble(print_program(kernels), cc=(9, 0))  ->  {"k0": Assembled(ptx, cubin, registers=14, ...), ...}

numba-cuda compiles the kernels (NVVM) and ptxas assembles them, so what a card would be given is checked anywhere, and
its register use and spills are known.  Needs the packages of ``pip install parray[cuda]``; BackendError says which are
missing.
"""
# What mypy sees of numba.cuda depends on whether numba-cuda is installed or the older one that numba brings.
# mypy: disable-error-code="attr-defined, no-untyped-call"
from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from parray.backends.cuda_host import CudaProgram, Kernel, Param
from parray.errors import BackendError

ADVICE = "install it by `pip install parray[cuda]`"


@dataclass(frozen=True)
class Assembled:
    """One kernel for one architecture, and what ptxas says about it (memory in bytes)."""
    ptx: str
    cubin: bytes
    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int

    @property
    def entry(self) -> str:
        """The kernel's name in the machine code."""
        return _first(r"\.entry\s+(\w+)", self.ptx)


@cache
def require() -> None:
    """Raise BackendError where a kernel cannot be compiled and assembled here."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise BackendError(f"the cuda backend needs the package numba-cuda; {ADVICE}")
    ptxas()
    to_ptx(lambda: None, Kernel("nothing", (), "", 1), (9, 0))          # needs its libraries, found only when used


@cache
def ptxas() -> str:
    """The assembler: PARRAY_PTXAS, the one of the package nvidia-cuda-nvcc, or one on the path."""
    given = os.environ.get("PARRAY_PTXAS")
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or []) if spec is not None else []
    packaged = [str(p) for root in roots for p in sorted(Path(root).glob("*/bin/ptxas"), reverse=True)]
    found = given or next((p for p in packaged if os.access(p, os.X_OK)), None) or shutil.which("ptxas")
    if found is None:
        raise BackendError(f"the cuda backend needs ptxas (package nvidia-cuda-nvcc, or the CUDA toolkit); {ADVICE}")
    return found


def assemble(cuda: CudaProgram, cc: tuple[int, int] = (9, 0)) -> dict[str, Assembled]:
    """All kernels of a program for compute capability ``cc``; raises BackendError where that is impossible."""
    require()
    module = _module(cuda)
    return {k.name: _assemble(to_ptx(getattr(module, k.name), k, cc), cc) for k in cuda.kernels}


def _module(cuda: CudaProgram) -> ModuleType:
    """The source, executed."""
    module = ModuleType("parray_kernels")
    exec(compile(cuda.source, f"<kernels of {cuda.program.name}>", "exec"), module.__dict__)
    return module


def to_ptx(function: Any, kernel: Kernel, cc: tuple[int, int]) -> str:
    """A kernel's PTX."""
    from numba import cuda
    from numba.cuda.cudadrv.error import CudaSupportError, NvvmError
    try:
        text, _ = cuda.compile(function, tuple(numba_type(p) for p in kernel.params), cc=cc, device=False, abi="numba",
                               launch_bounds=kernel.block)
    except (CudaSupportError, NvvmError, OSError, ImportError, RuntimeError) as error:
        if "DynamicLib" not in type(error).__name__ and not isinstance(error, (CudaSupportError, ImportError, OSError)):
            raise
        raise BackendError(f"the cuda backend cannot compile here ({str(error).strip()}); it needs the packages "
                           "nvidia-nvvm and "
                           f"nvidia-cuda-nvrtc: {ADVICE}") from error
    return str(text)


def numba_type(p: Param) -> Any:
    """A parameter's type: raw pointers for memory, so a kernel has one parameter for each buffer."""
    from numba import types
    if p.kind == "scalar":
        return types.boolean if p.elem.is_bool else getattr(types, str(p.elem.dtype))
    return types.CPointer(types.uint8 if p.elem.is_bool else getattr(types, str(p.elem.dtype)))


def _assemble(ptx: str, cc: tuple[int, int]) -> Assembled:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        done = subprocess.run([ptxas(), "-v", f"-arch=sm_{cc[0]}{cc[1]}", str(source), "-o", str(target)],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise BackendError(f"ptxas refuses a kernel: {done.stderr.strip()}")
        cubin = target.read_bytes()
    report = done.stdout + done.stderr
    counts = [int(_first(pattern, report) or 0) for pattern in (
        r"Used (\d+) registers", r"(\d+) bytes smem", r"(\d+) bytes stack", r"(\d+) bytes spill stores",
        r"(\d+) bytes spill loads")]
    return Assembled(ptx, cubin, *counts)


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1) if found else ""
