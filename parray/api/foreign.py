"""`pa.foreign`: functions that are not parray's, with declared types, as operations of the language."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Sequence

from parray import builder, tree
from parray.api.differentiate import lambda_of, of_shape
from parray.errors import TypeMismatch
from parray.ir import Atom, Const, Lambda, Var
from parray.soacs import Foreign
from parray.soacs.foreign import Declared, Function
from parray.trace import context, hints
from parray.trace.elementwise import elementwise, lift, to_type
from parray.trace.promote import convert
from parray.trace.tracer import Tracer
from parray.types import Type, f16

WHAT = "pa.foreign"
_CFUNCTION: Any = ctypes.CFUNCTYPE(None).__mro__[1]          # what all functions of ctypes are


def foreign(function: Any, args: Sequence[Any], result: Any, *, vjp: Callable[..., Any] | None = None,
            cuda: Any = None, name: str | None = None) -> Callable[..., Any]:
    """``function`` as an operation that parray programs may call.

    ``function`` is a Python function that numba can compile, one compiled by ``numba.njit`` or
    ``numba.cuda.jit(device=True)``, or a C function of ctypes or cffi.  ``args`` are the types of its arguments and
    ``result`` that of its result, or a tuple of them: scalar types (``f32``) and arrays of named or fixed sizes
    (``f64["n", 3]``).  Equal names are equal sizes; every size of a result is an argument's.

    A scalar result is what the function returns; array results it fills: their memory follows the arguments.  A C
    function takes arrays as pointers to contiguous memory, and last, as i64, the named sizes in order of appearance.
    A function on scalars alone is applied elementwise.  It must be pure and must not write its arguments; on the CPU
    it is called by several threads at once.

    ``vjp(*arguments, *results, *cotangents)`` is its reverse derivative, written in parray: the cotangent of the
    argument, or a tuple with one for each, None for those that are not floats.  ``cuda`` is the device function that
    stands for it in CUDA kernels (Python functions need none).

    Raises TypeMismatch where numba cannot compile the function for these types or a declaration makes no sense, and,
    from a call, ForeignError when the function raises.
    """
    taken = [_declared(t, f"argument {k + 1}") for k, t in enumerate(args)]
    several = isinstance(result, (tuple, list))
    given = [_declared(t, "the result") for t in (result if several else [result])]
    shown = name or getattr(function, "__name__", None) or type(function).__name__
    names = tuple(dict.fromkeys(d for t in taken for d in t.dims if isinstance(d, str)))
    loose = [d for t in given for d in t.dims if isinstance(d, str) and d not in names]
    if loose:
        raise _error(f"the size {loose[0]!r} of a result of {shown} is no argument's")
    if not given or len(given) > 1 and not all(t.dims for t in given):
        raise _error(f"{shown} gives one scalar, or arrays: several scalars cannot be returned")
    f = _resolved(function, shown, tuple(taken), tuple(given), names, cuda)

    def call(*values: Any) -> Any:
        context.current(WHAT)
        if len(values) != len(taken):
            raise TypeMismatch(f"{shown} takes {len(taken)} arguments, not {len(values)}", builder.here())
        atoms = [_argument(v, t, f"argument {k + 1} of {shown}", not f.on_scalars)
                 for k, (v, t) in enumerate(zip(values, taken))]
        if f.on_scalars:
            return Tracer(elementwise(lambda *es: _emit(f, es, (), vjp)[0], atoms, shown))
        atoms, extents = _sizes(f, atoms)
        outs = [Tracer(v) for v in _emit(f, atoms, extents, vjp)]
        return tuple(outs) if several else outs[0]
    call.__name__ = call.__qualname__ = shown
    call.__doc__ = getattr(function, "__doc__", None) or f"The foreign function {shown}."
    return call


def _error(message: str) -> TypeMismatch:
    return TypeMismatch(f"{WHAT}: {message}", builder.here())


# --- what is declared ------------------------------------------------------------------------------------------------

def _declared(annotation: Any, what: str) -> Declared:
    said = hints.leaf(annotation)
    if said.elem is None or said.dims is None:
        raise _error(f"the type of {what} is one like f32 or f64[\"n\", 3], not {annotation!r}")
    if said.elem == f16:
        raise _error(f"{what} is of f16, which numba and C do not share; declare f32")
    return Declared(said.elem, said.dims)


def _resolved(function: Any, shown: str, taken: tuple[Declared, ...], given: tuple[Declared, ...],
              names: tuple[str, ...], cuda: Any) -> Function:
    from parray.backends import foreign as backend
    address = _address(function)
    if address is not None:
        return Function(shown, taken, given, None, address, cuda, names)
    if not callable(function):
        raise _error(f"a Python function, one of numba's, or a C function of ctypes or cffi is needed, not "
                     f"{function!r}")
    from numba import njit
    from numba.core.dispatcher import Dispatcher
    from numba.core.errors import NumbaError
    if type(function).__module__.startswith("numba.cuda"):
        function, cuda = function.py_func, cuda or function
    compiled: Any = function if isinstance(function, Dispatcher) else njit(nogil=True)(function)
    f = Function(shown, taken, given, compiled, 0, cuda, names)
    types = backend.signature(f)
    try:
        compiled.compile(types)
    except NumbaError as error:
        raise _error(f"numba cannot compile {shown} for {', '.join(map(str, types))}: {error}") from None
    if types in compiled.overloads:
        _check_returned(f, compiled.overloads[types].signature.return_type)
    return f


def _check_returned(f: Function, returned: Any) -> None:
    from numba import types
    if not f.returns and returned != types.none:
        raise _error(f"{f.name} fills its results, which come after its arguments, and returns nothing; this one "
                     f"returns {returned}")
    rank = {"b": 0, "i": 1, "u": 1, "f": 2}
    kinds = (types.Boolean, types.Integer, types.Float)
    if f.returns and not any(isinstance(returned, t) for t in kinds[:rank[f.results[0].elem.kind] + 1]):
        raise _error(f"{f.name} is declared to return {f.results[0].elem} and returns {returned}")


def _address(function: Any) -> int | None:
    """Where a C function is; None for what is none."""
    if isinstance(function, _CFUNCTION):
        return ctypes.cast(function, ctypes.c_void_p).value
    kind = type(function)
    if kind.__module__ == "_cffi_backend" or kind.__name__ in ("FFILibraryFunction", "CompiledLibFunction"):
        import cffi
        ffi = cffi.FFI()
        try:
            return int(ffi.cast("uintptr_t", function))
        except TypeError:
            raise _error(f"{function!r} has no address: give ffi.addressof(lib, {function.__name__!r})") from None
    return None


# --- a call ----------------------------------------------------------------------------------------------------------

def _argument(value: Any, t: Declared, what: str, whole: bool) -> Atom:
    """The argument in its declared type; ``whole``: of its declared rank, too."""
    x = lift(value, what)
    rank = len(t.dims) if whole else x.ndim
    return to_type(value, Type(t.elem, x.atom.type.shape if x.ndim == rank else (1,) * rank), what)


def _sizes(f: Function, atoms: list[Atom]) -> tuple[list[Atom], tuple[Any, ...]]:
    """The arguments with their sizes made equal, and the sizes in order of their names."""
    sizes: dict[Any, Any] = {}
    for a, t in zip(atoms, f.args):
        for k, (d, n) in enumerate(zip(t.dims, a.type.shape)):
            known = sizes.setdefault(d, d if isinstance(d, int) else n)
            context.unify(known, n, f"dimension {k} of an argument of {f.name}, declared {d!r}")
    context.settle()
    fitted = [context.fit(a, [sizes[d] for d in t.dims]) if t.dims else a for a, t in zip(atoms, f.args)]
    return fitted, tuple(sizes[n] for n in f.names)


def _emit(f: Function, atoms: Sequence[Atom], extents: tuple[Any, ...], vjp: Callable[..., Any] | None) -> Any:
    return builder.emit(Foreign(f, tuple(atoms), extents, None if vjp is None else _backward(f, atoms, extents, vjp)))


def _backward(f: Function, atoms: Sequence[Atom], extents: tuple[Any, ...], vjp: Callable[..., Any]) -> Lambda:
    """The user's derivative as a lambda: arguments, results, cotangents -> a cotangent for each argument."""
    results = f.result_types(extents)
    leaves = [Tracer(Var(t)) for t in (*(a.type for a in atoms), *results, *results)]
    wanted = [a.type for a in atoms]

    def whole(*values: Any) -> Any:
        bars = vjp(*values)
        bars = bars if isinstance(bars, (tuple, list)) else (bars,)
        if len(bars) != len(wanted):
            raise TypeMismatch(f"the vjp of {f.name} gives {len(bars)} cotangents for {len(wanted)} arguments",
                               builder.here())
        return tuple(one(bar, k) for k, bar in enumerate(bars))

    def one(bar: Any, k: int) -> Tracer:
        t, what = wanted[k], f"the vjp of {f.name}"
        if not t.elem.is_float:                                 # what it says of those is not asked
            return Tracer(Const(0, t.elem))
        if bar is None:
            raise TypeMismatch(f"{what} gives None for argument {k + 1}, a float: zeros say that its derivative is 0",
                               builder.here())
        x = lift(bar, what)
        if x.atom.type.rank != t.rank or not x.dtype.is_float:
            raise TypeMismatch(f"{what} gives {x.atom.type} for argument {k + 1}, which is {t}", builder.here())
        return of_shape(Tracer(convert(x.atom, t.elem)), t, f"what {what} gives for argument {k + 1}")
    lam, _ = lambda_of(whole, leaves, [tree.structure(x) for x in leaves], f"the vjp of {f.name}")
    return lam
