"""Foreign functions in generated kernels: ``from parray.backends.foreign import foreign_3_name, device_3_name``.

A kernel's source names a function by the symbol it has in this process (`parray.soacs.foreign`), so such kernels are
compiled in memory and never kept on disk.  On the CPU a function of numba's is linked into the kernel, where LLVM may
inline it, and is called by `raising`, which turns an exception into a flag; a C function is called at its address.
On CUDA its Python source is part of the kernel.
"""
from __future__ import annotations

import re
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from parray.errors import BackendError
from parray.soacs.foreign import FUNCTIONS, Declared, Function
from parray.types import bool_


def used(text: str, kind: str = "foreign") -> list[str]:
    """The names of foreign functions in generated source."""
    return sorted(set(re.findall(rf"\b{kind}_\d+_\w+", text)))


def imports(text: str, kind: str = "foreign") -> str:
    """The line that kernels which call foreign functions need."""
    names = used(text, kind)
    helpers = ["array", "place", "raising"] if kind == "foreign" else []
    return f"from parray.backends.foreign import {', '.join(helpers + names)}\n" if names else ""


def named(name: str) -> Function | None:
    """The function a name in generated source stands for."""
    return FUNCTIONS.get("_".join(["foreign", *name.split("_")[1:]]))


def __getattr__(name: str) -> Any:
    function = named(name)
    if function is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name.startswith("device_"):
        return on_device(function)
    return function.in_c if function.address else function.python


# --- CUDA ------------------------------------------------------------------------------------------------------------

def device_source(f: Function) -> Any:
    """The Python function that is f on a GPU; raises BackendError where there is none."""
    if not f.on_scalars:
        raise BackendError(f"{f.name} is a foreign function on whole arrays, which the cuda backend cannot call")
    source = f.device or f.python
    if source is None:
        raise BackendError(f"{f.name} is a C function: pa.foreign needs cuda=, a device function, for the cuda backend")
    return getattr(source, "py_func", source)


def emulated(name: str) -> Any:
    """The Python function itself, for emulated threads."""
    function = named(name)
    assert function is not None, name
    return device_source(function)


def on_device(f: Function) -> Any:
    """What kernels of numba.cuda call; inlined, since numba compiles a device function by itself only for a card."""
    from numba import cuda
    return cuda.jit(device=True, inline="always")(device_source(f))


# --- the CPU ---------------------------------------------------------------------------------------------------------

def numba_type(d: Declared) -> Any:
    """The type that numba's functions are compiled for."""
    elem = types.boolean if d.elem == bool_ else getattr(types, str(d.elem.dtype))
    return types.Array(elem, len(d.dims), "C") if d.dims else elem


def signature(f: Function) -> tuple[Any, ...]:
    """The argument types of a function of numba's."""
    return tuple(map(numba_type, f.parameters))


@intrinsic
def raising(typingctx: Any, function: Any, args: Any) -> Any:
    """``function(*args)``, where it returns something, and whether it raised."""
    called = function.get_call_type(typingctx, tuple(map(types.unliteral, args)), {})
    nothing = called.return_type == types.none

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        compiled = function.dispatcher.overloads[called.args]
        context.active_code_library.add_linking_library(compiled.library)
        given = [context.cast(builder, v, t, to) for v, t, to in
                 zip(cgutils.unpack_tuple(builder, values[1]), sig.args[1], called.args)]
        status, value = context.call_internal_no_propagate(builder, compiled.fndesc, called, given)
        return status.is_error if nothing else context.make_tuple(builder, sig.return_type, (value, status.is_error))
    return (types.boolean if nothing else types.Tuple((called.return_type, types.boolean)))(function, args), codegen


@intrinsic
def place(typingctx: Any, b: Any, index: Any) -> Any:
    """The address of ``b[index]``."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = builder.gep(args[0], [context.cast(builder, args[1], sig.args[1], types.int64)])
        return builder.bitcast(at, ir.IntType(8).as_pointer())
    return types.voidptr(b, index), codegen


@intrinsic
def array(typingctx: Any, b: Any, index: Any, shape: Any) -> Any:
    """The array of this shape in ``b`` from ``index`` on."""
    kind = types.Array(b.elem, len(shape), "C")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        item = context.get_abi_sizeof(context.get_data_type(b.elem))
        dims = [context.cast(builder, d, t, types.intp)
                for d, t in zip(cgutils.unpack_tuple(builder, args[2]), sig.args[2])]
        strides = [context.get_constant(types.intp, item)]
        for d in dims[:0:-1]:
            strides.insert(0, builder.mul(strides[0], d))
        at = builder.gep(args[0], [context.cast(builder, args[1], sig.args[1], types.int64)])
        out = make_array(kind)(context, builder)
        populate_array(out, builder.bitcast(at, context.get_data_type(b.elem).as_pointer()),
                       cgutils.pack_array(builder, dims), cgutils.pack_array(builder, strides),
                       context.get_constant(types.intp, item), None)
        return out._getvalue()
    return kind(b, index, shape), codegen
