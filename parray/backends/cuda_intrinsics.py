"""What generated CUDA kernels call: typed memory, exact scalar arithmetic, libdevice functions.

The counterpart of `parray.backends.intrinsics` and `scalars`: the same names with the same meaning, so both targets
read the same scalar text.  Integer helpers and the code of plain instructions *are* the CPU's, compiled for the
device; what LLVM offers a CPU and NVVM does not (rounding, extrema, powers) goes to libdevice or to one PTX
instruction.

Everything is an intrinsic or inlined: numba-cuda can then compile with no driver present, for any architecture.
Importing this module needs numba-cuda (`parray.backends.ptx` says so where it is missing).
"""
# What mypy sees of numba.cuda depends on whether numba-cuda is installed or the older one that numba brings.
# mypy: disable-error-code="attr-defined, misc, no-any-return, no-untyped-call, untyped-decorator"
from __future__ import annotations

import math  # noqa: F401 - used by the ported source of `digamma_`
import operator
from types import FunctionType
from typing import Any

import numba
from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic, lower_builtin, models, register_model
from numba.cuda.typing.templates import AbstractTemplate, infer_global, signature

from parray.backends import intrinsics, scalars

boolean, i8, i16, i32, i64 = numba.boolean, numba.int8, numba.int16, numba.int32, numba.int64
u8, u16, u32, u64 = numba.uint8, numba.uint16, numba.uint32, numba.uint64
f32, f64 = numba.float32, numba.float64
inf, nan = float("inf"), float("nan")

SHARED = 3                                        # NVVM's number of the address space of a block's memory


# --- memory ----------------------------------------------------------------------------------------------------------

class Buffer(types.Type):
    """Pointer to ``elem``; ``constant`` memory is not written while the kernel runs."""

    def __init__(self, elem: types.Type, constant: bool = False):
        self.elem, self.constant = elem, constant
        super().__init__(name=f"CudaBuffer({elem}, {constant})")


@register_model(Buffer)
class BufferModel(models.PrimitiveModel):
    """In machine code a buffer is a plain pointer."""

    def __init__(self, dmm: Any, fe_type: Buffer):
        super().__init__(dmm, fe_type, dmm[fe_type.elem].get_data_type().as_pointer())


@infer_global(operator.getitem)
class GetBuffer(AbstractTemplate):
    """The type of ``b[i]``."""

    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], Buffer) and isinstance(args[1], types.Integer):
            return signature(args[0].elem, args[0], types.int64)
        return None


@infer_global(operator.setitem)
class SetBuffer(AbstractTemplate):
    """The type of ``b[i] = x``."""

    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], Buffer) and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.int64, args[0].elem)
        return None


@lower_builtin(operator.getitem, Buffer, types.Integer)
def _load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    buf = sig.args[0]
    value = builder.load(builder.gep(args[0], [args[1]]))
    if buf.constant:
        value.set_metadata("invariant.load", builder.module.add_metadata([]))   # read through the texture cache
    return context.data_model_manager[buf.elem].from_data(builder, value)


@lower_builtin(operator.setitem, Buffer, types.Integer, types.Any)
def _store(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    data = context.data_model_manager[sig.args[0].elem].as_data(builder, args[2])
    builder.store(data, builder.gep(args[0], [args[1]]))
    return context.get_dummy_value()


def _element(elem: Any) -> Any:
    return elem.instance_type if hasattr(elem, "instance_type") else elem.dtype


def _typed(constant: bool) -> Any:
    @intrinsic
    def op(typingctx: Any, base: Any, first: Any, count: Any, elem: Any) -> Any:
        buf = Buffer(_element(elem), constant)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            start = builder.bitcast(args[0], context.get_value_type(buf))
            return builder.gep(start, [args[1]])
        return buf(base, types.int64, types.int64, elem), codegen
    return op


buffer = _typed(False)           # (pointer, first, count, elem): ``count`` elements from number ``first`` on
constant = _typed(True)          # the same, of an array that nobody writes


@intrinsic
def at(typingctx: Any, base: Any, offset: Any, count: Any, elem: Any) -> Any:
    """``count`` elements that begin ``offset`` bytes into ``base``."""
    buf = Buffer(_element(elem))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.gep(args[0], [args[1]]), context.get_value_type(buf))
    return buf(base, types.int64, types.int64, elem), codegen


@intrinsic
def local(typingctx: Any, count: Any, elem: Any) -> Any:
    """``count`` elements of the thread's own."""
    if not isinstance(count, types.IntegerLiteral):
        return None                               # numba then tries again with the literal type
    buf = Buffer(_element(elem))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        from numba.cuda import cgutils
        data = context.get_data_type(buf.elem)
        place = cgutils.alloca_once(builder, ir.ArrayType(data, count.literal_value))
        return builder.bitcast(place, context.get_value_type(buf))
    return buf(count, elem), codegen


@intrinsic
def shared(typingctx: Any, count: Any, elem: Any) -> Any:
    """``count`` elements for the whole block."""
    if not isinstance(count, types.IntegerLiteral):
        return None                               # numba then tries again with the literal type
    buf = Buffer(_element(elem))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        from numba.cuda import cgutils
        data = context.get_data_type(buf.elem)
        array = ir.ArrayType(data, count.literal_value)
        place = cgutils.add_global_variable(builder.module, array, "_parray_shared", SHARED)
        place.linkage, place.align = "internal", 8
        place.initializer = ir.Constant(array, ir.Undefined)
        generic = builder.addrspacecast(place, ir.PointerType(array))
        return builder.bitcast(generic, context.get_value_type(buf))
    return buf(count, elem), codegen


# --- single instructions: the CPU's code where NVVM has the instruction too ------------------------------------------

def _on_cpu(name: str) -> Any:
    return getattr(scalars if hasattr(scalars, name) else intrinsics, name)


def _same(name: str) -> Any:
    """The CPU's intrinsic of this name, for the device."""
    return intrinsic(_on_cpu(name)._defn)


select = _same("select")
sum_, product_ = _same("sum_"), _same("product_")
add_, sub_, mul_, neg_ = _same("add_"), _same("sub_"), _same("mul_"), _same("neg_")
and_, or_, xor_, invert_ = _same("and_"), _same("or_"), _same("xor_"), _same("invert_")
popcount_, clz_, ctz_ = _same("popcount_"), _same("clz_"), _same("ctz_")
bitcast_ = _same("bitcast_")
_shift, _one, _i64_of, _like = (_same(n) for n in ("_shift", "_one", "_i64_of", "_like"))
quot_i, floordiv_i, mod_i, fmod_i = (_same(n) for n in ("quot_i", "floordiv_i", "mod_i", "fmod_i"))
floordiv_u, mod_u = _same("floordiv_u"), _same("mod_u")
abs_i, sign_i, max_i, min_i = (_same(n) for n in ("abs_i", "sign_i", "max_i", "min_i"))


# --- libdevice -------------------------------------------------------------------------------------------------------

def _libdevice(name: str, arity: int) -> Any:
    """libdevice's function, in the operands' own precision."""
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        from numba.cuda import cgutils
        t = args[0].type
        symbol = f"__nv_{name}" + ("f" if isinstance(t, ir.FloatType) else "")
        return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(t, [t] * arity), symbol),
                            args)

    def one(typingctx: Any, a: Any) -> Any:
        return a(a), generate

    def two(typingctx: Any, a: Any, b: Any) -> Any:
        return a(a, a), generate

    def three(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        return a(a, a, a), generate
    return intrinsic((one, two, three)[arity - 1])


floor_, ceil_, trunc_, rint_, sqrt_, fabs_, cbrt_ = (
    _libdevice(n, 1) for n in ("floor", "ceil", "trunc", "rint", "sqrt", "fabs", "cbrt"))
exp_, exp2_, expm1_, log_, log2_, log10_, log1p_, tanh_, erf_, sin_, cos_ = (       # as in `vecmath`
    _libdevice(n, 1) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf", "sin", "cos"))
copysign_, _frem, pow_f = (_libdevice(n, 2) for n in ("copysign", "fmod", "pow"))
fma_ = _libdevice("fma", 3)
fmod_f = _frem


def _extremum(name: str) -> Any:
    """PTX orders -0 below +0; NaN propagates by ``.NaN``, which f64 lacks."""
    @intrinsic
    def op(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            t = args[0].type
            single = isinstance(t, ir.FloatType)
            text, kind = (f"{name}.NaN.f32", "f") if single else (f"{name}.f64", "d")
            asm = ir.InlineAsm(ir.FunctionType(t, [t, t]), f"{text} $0, $1, $2;", f"={kind},{kind},{kind}")
            value = builder.call(asm, args)
            if not single:
                for x in args:
                    value = builder.select(builder.fcmp_unordered("uno", x, x), x, value)
            return value
        return a(a, a), codegen
    return op


fmax, fmin = _extremum("max"), _extremum("min")


# --- composed helpers: the CPU's source text, with the names of this module ------------------------------------------

def _ported(name: str) -> Any:
    """The CPU helper of this name as an inlined device function."""
    function = FunctionType(_on_cpu(name).py_func.__code__, globals(), name)
    return cuda.jit(device=True, inline="always")(function)


pow_i, pow_u, shl_, shr_ = (_ported(n) for n in ("pow_i", "pow_u", "shl_", "shr_"))
digamma_ = _ported("digamma_")
sign_f, mod_f, floordiv_f, float_to_int = (_ported(n) for n in ("sign_f", "mod_f", "floordiv_f", "float_to_int"))


@cuda.jit(device=True, inline="always")
def share(n: int, threads: int) -> int:
    """How many of ``n`` iterations each of ``threads`` has when each has a run of its own; at least 1."""
    return max_i(quot_i(n + threads - 1, threads), 1)
