"""Foreign: a call of a function that is not parray's.

    y = foreign f x             f stays what it is: the graph knows its types, and its derivative where it was given

The function is taken to be pure: calls with equal arguments are one call, an unused result is never computed, and
iterations of a map call it in any order, on any thread.  ``bwd`` is its reverse derivative while a program is traced;
once everything is differentiated it is gone (`parray.pipeline`).
"""
from __future__ import annotations

import ctypes
import itertools
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Sequence

import numpy as np

from parray import builder as b
from parray.errors import ForeignError, TypeMismatch
from parray.ir import Atom, Const, Lambda, Op, Stm, size_field
from parray.types import ScalarType, Type

_numbers = itertools.count(1)
FUNCTIONS: weakref.WeakValueDictionary[str, Function] = weakref.WeakValueDictionary()     # by symbol


@dataclass(frozen=True)
class Declared:
    """The type of an argument or result; ``dims`` are numbers and names of sizes."""
    elem: ScalarType
    dims: tuple[str | int, ...] = ()


_C_TYPES = {"i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
            "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
            "f32": ctypes.c_float, "f64": ctypes.c_double, "bool": ctypes.c_bool}


def _c_type(d: Declared) -> Any:
    return ctypes.c_void_p if d.dims else _C_TYPES[d.elem.name]


@dataclass(frozen=True, eq=False)
class Function:
    """A foreign function.

    ``python``: what numba compiles for the CPU; ``address``: that of a C function, which also gets the sizes named in
    ``names``; ``device``: what numba.cuda compiles.  ``symbol`` is its name in generated source.
    """
    name: str
    args: tuple[Declared, ...]
    results: tuple[Declared, ...]
    python: Any = None
    address: int = 0
    device: Any = None
    names: tuple[str, ...] = ()
    symbol: str = field(init=False)

    def __post_init__(self) -> None:
        tail = "".join(c if c.isascii() and c.isalnum() else "_" for c in self.name)
        object.__setattr__(self, "symbol", f"foreign_{next(_numbers)}_{tail}")
        FUNCTIONS[self.symbol] = self

    def __call__(self, *values: Any) -> Any:
        """What it returns for NumPy values: arguments, memory of array results and, in C, sizes."""
        if not self.address:
            return self.python(*values)
        return self.in_c(*(v.ctypes.data if isinstance(v, np.ndarray) else v.item() if isinstance(v, np.generic) else v
                           for v in values))

    @cached_property
    def in_c(self) -> Any:
        """The C function with the types declared for it, as ctypes and numba call it."""
        kind = ctypes.CFUNCTYPE(_c_type(self.results[0]) if self.returns else None, *map(_c_type, self.parameters),
                                *[ctypes.c_int64] * len(self.names))
        return kind(self.address)

    def __repr__(self) -> str:
        return self.name

    @property
    def on_scalars(self) -> bool:
        """Whether it takes and gives scalars only."""
        return not any(d.dims for d in (*self.args, *self.results))

    @property
    def parameters(self) -> tuple[Declared, ...]:
        """What it is called with: its arguments, then the memory of the results that it fills."""
        return self.args if self.returns else (*self.args, *self.results)

    @property
    def returns(self) -> bool:
        """Whether it returns a scalar; else it fills the memory of its results."""
        return not self.results[0].dims

    def result_types(self, extents: Sequence[Any]) -> tuple[Type, ...]:
        """The results' types where the named sizes have these values."""
        sizes: dict[Any, Any] = dict(zip(self.names, extents, strict=True))
        return tuple(Type(r.elem, tuple(sizes.get(d, d) for d in r.dims)) for r in self.results)


@dataclass(frozen=True)
class Foreign(Op):
    """``function args``; ``extents`` are the values of its named sizes."""
    function: Function
    args: tuple[Atom, ...]
    extents: tuple[Any, ...] = size_field()
    bwd: Lambda | None = None

    def infer(self) -> tuple[Type, ...]:
        return self.function.result_types(self.extents)

    def fails(self) -> bool:
        """C functions cannot raise."""
        return not self.function.address

    def evaluate(self, ev: Any) -> tuple[Any, ...]:
        f = self.function
        values = [np.array(ev.value(a)) if a.type.shape else ev.value(a) for a in self.args]
        types = f.result_types([ev.size(s) for s in self.extents])
        outs = [np.zeros(t.shape, t.elem.dtype) for t in types if t.shape or not f.returns]
        sizes = [int(ev.size(s)) for s in self.extents] if f.address else []
        try:
            returned = f(*values, *outs, *sizes)
        except Exception as error:
            raise ForeignError(f"{f.name} raised {type(error).__name__}: {error}") from error
        return (f.results[0].elem.dtype.type(returned),) if f.returns else tuple(outs)

    # --- derivatives -------------------------------------------------------------------------------------------------

    def _backward(self) -> Lambda:
        if self.bwd is None:
            raise TypeMismatch(f"{self.function.name} is a foreign function without a derivative: give pa.foreign a "
                               "vjp, or its arguments pa.stop_gradient", b.here())
        return self.bwd

    def jvp(self, ad: Any, stm: Stm) -> None:
        """Of a function on scalars: each tangent times what the reverse derivative makes of 1."""
        ad.emit(stm)
        dots = [ad.tangent(a) for a in self.args]
        if all(d is None for d in dots) or not self.function.results[0].elem.is_float:
            return
        bwd = self._backward()
        if not self.function.on_scalars:
            raise TypeMismatch(f"{self.function.name} is a foreign function on arrays: it has a reverse derivative "
                               "only (pa.grad, pa.vjp)", b.here())
        out = stm.vars[0]
        factors = b.inline(bwd, (*self.args, out, Const(1, out.type.elem)))
        total: Atom | None = None
        for dot, factor in zip(dots, factors):
            if dot is not None:
                part = b.prim("mul", factor, dot)
                total = part if total is None else b.prim("add", total, part)
        ad.set(out, total)

    def vjp(self, ad: Any, stm: Stm, bars: tuple[Atom | None, ...]) -> None:
        """What the user's derivative says."""
        given = [b.zeros(v.type) if bar is None else bar for v, bar in zip(stm.vars, bars)]
        found = b.inline(self._backward(), (*self.args, *stm.vars, *given))
        for a, bar in zip(self.args, found, strict=True):
            if ad.is_active(a):
                ad.add(a, bar)
