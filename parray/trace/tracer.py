"""Tracer: what a traced function computes with.  It stands for a value in the graph, a scalar or an array.

Operators, methods and NumPy's functions on tracers emit operations; what needs the value itself while tracing (``if``,
``int()``, iteration, assignment) is an error that says what to write instead.  The meanings stand in the other files of
this folder; they are looked up when used, because they in turn make tracers.
"""
from __future__ import annotations

import difflib
import importlib
import sys
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Callable, Iterator, NoReturn

import numpy as np

from parray import builder
from parray.errors import Loc, NoAttribute, TraceError, TypeMismatch
from parray.ir import Atom, Const, Var, resolve
from parray.trace import constructs, context
from parray.types import ScalarType, Type

if TYPE_CHECKING:
    from parray.builder import Scope


_METHODS = {"append": "pa.concat(xs, ys) joins arrays", "extend": "pa.concat(xs, ys) joins arrays",
            "fill": "pa.full(xs.shape, v) makes a new array", "view": "use pa.bitcast(x, dtype)",
            "squeeze": "use x.reshape(...)", "swapaxes": "use x.transpose(...)",
            "numpy": "return it: NumPy arrays come out", "cpu": "return it: NumPy arrays come out",
            "at": "xs = pa.update(xs, i, v) gives a changed copy"}
STATIC = ", or make the size static with @parallel(static=...)"


def unknown(what: str, construct: Callable[[Loc | None], tuple[str, str]], more: str = "") -> TraceError:
    """The error for Python code that asks for what is not known while tracing."""
    loc = builder.here()
    asked, hint = construct(loc)
    return TraceError(f"{what} is not known while tracing" + (f", and {asked} asks for it" if asked else "") +
                      f": {hint}{more}", loc)


class Tracer:
    """A value in the graph.  ``weak``: it takes the element type of what it meets.  ``is_size``: computed from sizes
    alone, so that its arithmetic is size arithmetic."""
    __slots__ = ("_atom", "weak", "is_size", "trace", "scope")

    def __init__(self, atom: Atom, weak: bool = False, is_size: bool = False):
        self._atom = atom
        self.weak = weak
        self.is_size = is_size
        self.trace = context.current()
        self.scope: Scope = builder.current()

    @property
    def atom(self) -> Atom:
        """The graph's variable or constant; checks that it may be used here."""
        if self.scope is not builder._state.scope or self.trace is not context._state.trace:
            if not isinstance(self._atom, Const) or self.trace is not context._state.trace:
                context.check_valid(self._atom, self.scope, self.trace)
        return self._atom

    # --- what it is ------------------------------------------------------------------------------------------------

    @property
    def type(self) -> Type:
        """Element type and sizes in the graph."""
        return self._atom.type

    @property
    def dtype(self) -> ScalarType:
        """The element type."""
        return self._atom.type.elem

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._atom.type.shape)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes: ints where they are static, else weak i64 values."""
        return tuple([size_value(s) for s in self._atom.type.shape])

    @property
    def size(self) -> Any:
        """The number of elements."""
        return size_value(builder.size_product(self._atom.type.shape))

    def __repr__(self) -> str:
        t = self._atom.type
        return f"traced {t.elem.name}" + (f"[{', '.join(map(context.show, t.shape))}]" if t.shape else "")

    # --- what it cannot do -------------------------------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise unknown("the truth of a traced value", constructs.truth)

    def __int__(self) -> NoReturn:
        raise unknown("the number in a traced value", constructs.size if self.is_size else
                      partial(constructs.number, "int"))

    def __float__(self) -> NoReturn:
        raise unknown("the number in a traced value", partial(constructs.number, "float"))

    def __index__(self) -> NoReturn:
        raise unknown("the number in a traced value", constructs.index, STATIC)

    def __hash__(self) -> int:
        raise TraceError("a traced value cannot be the key of a dict or an element of a set: pa.where chooses between "
                         "values, and indexing an array looks one up", builder.here())

    def __format__(self, spec: str) -> str:
        if spec:
            raise TraceError("the digits of a traced value are not known while tracing: format what the function gives",
                             builder.here())
        return repr(self)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):                          # protocols that Python and libraries look for
            raise AttributeError(name)
        package = sys.modules["parray"]                    # complete by the time anything is traced
        hint = f"use pa.{name}(x, ...)" if callable(getattr(package, name, None)) else _METHODS.get(name, "")
        if not hint:
            near = difflib.get_close_matches(name, [n for n in dir(Tracer) if not n.startswith("_")], 1)
            hint = f"did you mean x.{near[0]}?" if near else ""
        raise NoAttribute(f"a traced value has no attribute {name!r}" + (f": {hint}" if hint else ""), builder.here())

    def __complex__(self) -> NoReturn:
        raise TraceError("complex numbers are not available", builder.here())

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeMismatch("a scalar has no len()", builder.here())
        n = resolve(self.type.shape[0])
        if isinstance(n, int):
            return n
        raise TraceError("len() of an array whose size is not static: use x.shape[0], or make the size static with "
                         "@parallel(static=...)", builder.here())

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeMismatch("a traced scalar cannot be iterated over", builder.here())
        n = resolve(self.type.shape[0])
        if not isinstance(n, int):
            raise unknown("the length of a traced array", constructs.iteration, STATIC)
        return (self[i] for i in range(n))

    def __contains__(self, value: Any) -> NoReturn:
        raise TraceError("`in` is not known while tracing: use pa.any(xs == value)", builder.here())

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TraceError("arrays are never changed: xs = pa.update(xs, i, v) gives a changed copy, pa.scatter changes "
                         "many elements", builder.here())

    def __delitem__(self, index: Any) -> NoReturn:
        raise TraceError("arrays are never changed: pa.filter leaves elements out, pa.concat joins what is kept",
                         builder.here())

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TraceError("a traced value cannot become a NumPy array while tracing: use the pa. function of that name "
                         "(np.stack for a list of traced values), or call this outside of the function marked "
                         "@parallel", builder.here())

    # --- NumPy's protocols -------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from parray.trace.numpy_names import call_ufunc
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from parray.trace.numpy_names import call_function
        return call_function(function, args, kwargs)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        """The Python array API's functions for traced values."""
        return importlib.import_module("parray.array_api")             # made of this class, so imported when asked for

    # --- methods -----------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        from parray.trace.indexing import getitem
        return getitem(self, index)

    @property
    def T(self) -> Any:
        """The transpose: dimensions in reverse order."""
        from parray.trace.views import transpose
        return transpose(self)

    def astype(self, dtype: Any) -> Any:
        """Converted to another element type."""
        from parray.trace.elementwise import astype
        return astype(self, dtype)

    def reshape(self, *shape: Any) -> Any:
        """The same elements, row-major, in another shape; one size may be -1."""
        from parray.trace.views import reshape
        return reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *perm: Any) -> Any:
        """Dimensions permuted."""
        from parray.trace.views import transpose
        return transpose(self, (perm[0] if len(perm) == 1 else perm) or None)

    def flatten(self) -> Any:
        """All elements in one dimension."""
        return self.reshape(-1)

    ravel = flatten

    def copy(self) -> Tracer:
        """Itself: values are never changed."""
        return self

    def item(self) -> NoReturn:
        """An error: the value is not known while tracing."""
        raise TraceError("item() of a traced value is not known while tracing: index it with x[i]", builder.here())

    tolist = item

    def dot(self, other: Any) -> Any:
        """The dot product."""
        from parray.trace.reductions import dot
        return dot(self, other)


def size_value(size: Any) -> Any:
    """A size as users see it: an int, or a weak i64 tracer."""
    size = resolve(size)
    return Tracer(size, True, True) if isinstance(size, Var) else int(size)


_NO_OPERANDS = (str, bytes, complex, list, tuple, dict, set, range, NoneType)


def _binary(name: str, reflected: bool = False) -> Any:
    def method(self: Tracer, other: Any) -> Any:
        from parray.trace.elementwise import apply, is_operand, lift
        self.atom
        if not is_operand(other):
            if isinstance(other, _NO_OPERANDS):
                lift(other)                                # says so
            return NotImplemented
        return apply(name, other, self) if reflected else apply(name, self, other)
    return method


def _unary(name: str) -> Any:
    def method(self: Tracer) -> Any:
        from parray.trace.elementwise import apply
        self.atom
        return apply(name, self)
    return method


def _reduction(name: str) -> Any:
    def method(self: Tracer, axis: Any = None, keepdims: bool = False) -> Any:
        from parray.trace import reductions
        return getattr(reductions, name)(self, axis=axis, keepdims=keepdims)
    return method


for _operator, _prim in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv",
                         "mod": "mod", "pow": "pow", "and": "and", "or": "or", "xor": "xor", "lshift": "shl",
                         "rshift": "shr"}.items():
    setattr(Tracer, f"__{_operator}__", _binary(_prim))
    setattr(Tracer, f"__r{_operator}__", _binary(_prim, True))
for _operator in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Tracer, f"__{_operator}__", _binary(_operator))
for _operator, _prim in {"neg": "neg", "abs": "abs", "invert": "not"}.items():
    setattr(Tracer, f"__{_operator}__", _unary(_prim))
for _operator in ("sum", "prod", "min", "max", "mean", "argmin", "argmax", "any", "all"):
    setattr(Tracer, _operator, _reduction(_operator))


def _matmul(self: Tracer, other: Any) -> Any:
    from parray.trace.reductions import matmul
    return matmul(self, other)


def _rmatmul(self: Tracer, other: Any) -> Any:
    from parray.trace.reductions import matmul
    return matmul(other, self)


setattr(Tracer, "__pos__", lambda self: self)
setattr(Tracer, "__matmul__", _matmul)
setattr(Tracer, "__rmatmul__", _rmatmul)
setattr(Tracer, "__divmod__", lambda self, other: (self // other, self % other))
setattr(Tracer, "__rdivmod__", lambda self, other: (other // self, other % self))
setattr(Tracer, "__round__", lambda self, digits=None: np.round(self))
