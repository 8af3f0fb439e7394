"""The scalar functions by name: one for each row of `parray.prims`, polymorphic over scalars, arrays and structures."""
from __future__ import annotations

from typing import Any, Callable

from parray import builder, tree
from parray.errors import TypeMismatch
from parray.prims import TABLE
from parray.trace.elementwise import apply, lift
from parray.trace.tracer import Tracer
from parray.types import scalar_type


def _function(name: str, shown: str = "") -> Callable[..., Any]:
    row = TABLE[name]

    def function(*args: Any) -> Any:
        if len(args) != row.arity:
            raise TypeMismatch(f"pa.{shown or name} takes {row.arity} arguments, not {len(args)}")
        return apply(name, *args)
    function.__name__ = function.__qualname__ = shown or name
    symbol = f" ``{row.symbol}``" if row.symbol else ""
    function.__doc__ = f"The scalar primitive {name}{symbol}, elementwise on arrays and structures."
    return function


add, sub, mul, div = (_function(n) for n in ("add", "sub", "mul", "div"))
floordiv, mod, quot, fmod = (_function(n) for n in ("floordiv", "mod", "quot", "fmod"))
neg, abs, sign, pow, fma = (_function(n) for n in ("neg", "abs", "sign", "pow", "fma"))
sqrt, rsqrt, cbrt = (_function(n) for n in ("sqrt", "rsqrt", "cbrt"))
exp, exp2, expm1 = (_function(n) for n in ("exp", "exp2", "expm1"))
log, log2, log10, log1p = (_function(n) for n in ("log", "log2", "log10", "log1p"))
sin, cos, tan, asin, acos, atan = (_function(n) for n in ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh, asinh, acosh, atanh = (_function(n) for n in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
atan2, hypot = (_function(n) for n in ("atan2", "hypot"))
erf, erfc = (_function(n) for n in ("erf", "erfc"))
gamma, lgamma, digamma = (_function(n) for n in ("gamma", "lgamma", "digamma"))
popcount, clz, ctz = (_function(n) for n in ("popcount", "clz", "ctz"))
floor, ceil, trunc, round, copysign = (_function(n) for n in ("floor", "ceil", "trunc", "round", "copysign"))
eq, ne, lt, le, gt, ge = (_function(n) for n in ("eq", "ne", "lt", "le", "gt", "ge"))
isnan, isinf, isfinite = (_function(n) for n in ("isnan", "isinf", "isfinite"))
not_, and_, or_, xor = (_function(n, s) for n, s in (("not", "not_"), ("and", "and_"), ("or", "or_"), ("xor", "xor")))
shl, shr = (_function(n) for n in ("shl", "shr"))


def bitcast(x: Any, dtype: Any) -> Any:
    """The bits of every element as another type of the same width: ``bitcast(f32(1), u32)`` is 0x3f800000."""
    to = scalar_type(dtype)

    def one(leaf: Any) -> Any:
        t = lift(leaf, "pa.bitcast")
        if t.dtype.bits != to.bits or t.dtype.is_bool or to.is_bool:
            raise TypeMismatch(f"pa.bitcast of {t.dtype} to {to}: both must have the same number of bits",
                               builder.here())
        return Tracer(builder.elementwise(lambda e: builder.prim("bitcast", e, to=to), t.atom))
    return tree.map(one, x)


__all__ = [n for n in ("add sub mul div floordiv mod quot fmod neg abs sign pow fma sqrt rsqrt cbrt exp exp2 expm1 log "
                       "log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh atan2 hypot erf "
                       "erfc floor ceil trunc round copysign eq ne lt le gt ge isnan isinf isfinite not_ and_ or_ xor "
                       "shl shr gamma lgamma digamma popcount clz ctz bitcast").split()]
