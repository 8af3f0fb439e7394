"""parray: a data-parallel array language inside Python.

    import parray as pa
    from parray import f32, parallel

    @parallel
    def linear(x: f32["n"], w: f32["m", "n"]) -> f32["m"]:
        return pa.map(lambda row: pa.reduce(pa.add, 0, pa.map2(pa.mul, row, x)), w)

The way of a program, each stage a file or folder, in reading order:

    types errors ir prims builder soacs    the graph: words, operations, meanings
    tree record sizes program trace        Python functions become graphs
    ad                                     derivatives, as graphs
    simplify guards contractions fuse      graphs become better graphs
    interchange lockstep
    kernels lower backends cache           graphs become machine code
    pipeline api                           the passes in order; what users call
    prelude random nn                      derived functions, layers and optimizers, in the language itself
    data                                   batches from threads
    printing testing                       arrays for people; property tests for users' functions
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from parray import errors, random, sizes, tree
from parray.api import (Parallel, custom_vjp, foreign, grad, hessian, jacfwd, jacrev, jvp, parallel, stop_gradient,
                        use_backend, value_and_grad, vjp)
from parray.errors import (AssertionFailed, BackendError, BoundsError, DivisionError, ForeignError, ParrayError,
                           SizeMismatch, TraceError, TypeMismatch)
from parray.prelude import (broadcast_to, clip, cumprod, cumsum, e, expand_dims, eye, full, gelu, inf, log_softmax,
                            logsumexp, nan, one_hot, ones, ones_like, outer, pi, reciprocal, relu, sigmoid, silu,
                            softmax, softplus, square, zeros, zeros_like)
from parray.printing import memory_stats, show
from parray.record import Record, record
from parray.trace import Tracer
from parray.trace.combinators import (assert_, exscan, gather, map, map2, map3, map4, map5, reduce, reduce_by_index,
                                      reduce_comm, scan, scatter, tabulate, unzip)
from parray.trace.combinators import zip_ as zip
from parray.trace.control import checkpoint, cond, foldl, foldr, loop, while_loop
from parray.trace.einsum import contract
from parray.trace.elementwise import where
from parray.trace.functions import (abs, acos, acosh, add, and_, asin, asinh, atan, atan2, atanh, bitcast, cbrt, ceil,
                                    clz, copysign, cos, cosh, ctz, digamma, div, eq, erf, erfc, exp, exp2, expm1,
                                    floor, floordiv, fma, fmod, gamma, ge, gt, hypot, isfinite, isinf, isnan, le,
                                    lgamma, log, log10, log1p, log2, lt, mod, mul, ne, neg, not_, or_, popcount, pow,
                                    quot, round, rsqrt, shl, shr, sign, sin, sinh, sqrt, sub, tan, tanh, trunc, xor)
from parray.trace.irregular import (argsort, expand, filter, flatmap, hist, histogram, partition, replicated_iota,
                                    searchsorted, segmented_iota, segmented_reduce, segmented_scan, sort, sort_by,
                                    unique)
from parray.trace.reductions import all, any, argmax, argmin, dot, matmul, max, mean, min, prod, std, sum, var
from parray.trace.stencil import stencil
from parray.trace.update import update
from parray.trace.views import (concat, drop, flatten, iota, replicate, reshape, reverse, rotate, split, take,
                                transpose, unflatten)

if TYPE_CHECKING:
    from parray.annotations import bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
else:
    from parray.types import bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

maximum, minimum = max, min

__version__ = "0.1.0"

__all__ = ["abs", "acos", "acosh", "add", "all", "and_", "any", "argmax", "argmin", "argsort", "asin", "asinh",
           "assert_", "AssertionFailed", "atan", "atan2", "atanh", "BackendError", "bitcast", "bool_", "BoundsError",
           "broadcast_to", "cbrt", "ceil", "checkpoint", "clip", "clz", "concat", "cond", "contract", "copysign",
           "cos", "cosh", "ctz", "cumprod", "cumsum", "custom_vjp", "digamma", "div", "DivisionError", "dot", "drop",
           "e", "eq", "erf", "erfc", "errors", "exp", "exp2", "expand", "expand_dims", "expm1", "exscan", "eye", "f16",
           "f32", "f64", "filter", "flatmap", "flatten", "floor", "floordiv", "fma", "fmod", "foldl", "foldr",
           "foreign", "ForeignError", "full", "gamma", "gather", "ge", "gelu", "grad", "gt", "hessian", "hist",
           "histogram", "hypot", "i16", "i32", "i64", "i8", "inf", "iota", "isfinite", "isinf", "isnan", "jacfwd",
           "jacrev", "jvp", "le", "lgamma", "log", "log10", "log1p", "log2", "log_softmax", "logsumexp", "loop", "lt",
           "map", "map2", "map3", "map4", "map5", "matmul", "max", "maximum", "mean", "memory_stats", "min", "minimum",
           "mod", "mul", "nan", "ne", "neg", "not_", "one_hot", "ones", "ones_like", "or_", "outer", "Parallel",
           "parallel", "ParrayError", "partition", "pi", "popcount", "pow", "prod", "quot", "random", "reciprocal",
           "Record", "record", "reduce", "reduce_by_index", "reduce_comm", "relu", "replicate", "replicated_iota",
           "reshape", "reverse", "rotate", "round", "rsqrt", "scan", "scatter", "searchsorted", "segmented_iota",
           "segmented_reduce", "segmented_scan", "shl", "show", "shr", "sigmoid", "sign", "silu", "sin", "sinh",
           "SizeMismatch", "sizes", "softmax", "softplus", "sort", "sort_by", "split", "sqrt", "square", "std",
           "stencil", "stop_gradient", "sub", "sum", "tabulate", "take", "tan", "tanh", "TraceError", "Tracer",
           "transpose", "tree", "trunc", "TypeMismatch", "u16", "u32", "u64", "u8", "unflatten", "unique", "unzip",
           "update", "use_backend", "value_and_grad", "var", "vjp", "where", "while_loop", "xor", "zeros",
           "zeros_like", "zip"]

_ELSEWHERE = {"vmap": "pa.map(f, xs)", "pmap": "pa.map(f, xs)", "jit": "pa.parallel(f)",
              "array": "np.stack or np.array",
              "asarray": "np.stack or np.array", "arange": "pa.iota(n)", "concatenate": "pa.concat(xs, ys)",
              "stack": "np.stack", "nonzero": "pa.filter(p, xs) or xs[mask]", "norm": "pa.sqrt(pa.dot(x, x))",
              "einsum": "pa.contract(spec, ..)", "fori_loop": "pa.loop(n, body, init)", "bool": "pa.bool_",
              "int": "pa.i64", "float": "pa.f64", "append": "pa.concat(xs, ys)", "repeat": "pa.replicate(n, x)",
              "fold": "pa.foldl(f, init, xs)", "accumulate": "pa.scan(op, ne, xs)", "if_": "pa.cond",
              "switch": "pa.cond"}


def __getattr__(name: str) -> object:
    import difflib
    near = difflib.get_close_matches(name, __all__, 1)
    hint = f"use {_ELSEWHERE[name]}" if name in _ELSEWHERE else f"did you mean pa.{near[0]}?" if near else ""
    raise AttributeError(f"parray has no {name!r}" + (f": {hint}" if hint and not name.startswith("__") else ""))
