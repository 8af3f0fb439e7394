"""Scalar types, array types and sizes: the words in which every later stage speaks.

    Type ::= ScalarType "[" Size, ... "]"        a scalar is an array of rank 0
    Size ::= int | Var                           a constant, or an i64 variable in scope

First stage of the pipeline: nothing here imports anything else of parray.  The scalar types are also what users
write: ``f32`` converts (``f32(x)``), ``f32["m", "n"]`` annotates an argument, ``f32[M, N]`` does the same with
type variables.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from parray.ir import Var
    Size = int | Var
else:
    Size = Any


@dataclass(frozen=True)
class Annotation:
    """What ``f32["m", "n"]`` means: an element type and, for each dimension, a name or a number."""
    elem: ScalarType
    dims: tuple[str | int, ...]

    def __repr__(self) -> str:
        return f"{self.elem.name}[{', '.join(map(repr, self.dims))}]"


def _dim(dim: Any) -> str | int:
    """One dimension of an annotation: a name, a number, or a type variable (its name)."""
    if isinstance(dim, str) and dim.isidentifier():
        return dim
    if isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0:
        return dim
    name = getattr(dim, "__name__", None)
    if isinstance(name, str):
        return name
    raise TypeError(f"a dimension is a name, a number or a type variable, not {dim!r}; each is an entry of its own: "
                    "f32[\"m\", \"n\"]")


@dataclass(frozen=True)
class ScalarType:
    """An element type: ``kind`` is one of b(ool), i(nteger), u(nsigned), f(loat)."""
    name: str
    kind: str
    bits: int
    dtype: np.dtype[Any]

    def __repr__(self) -> str:
        return self.name

    def __getitem__(self, dims: Any) -> Annotation:
        dims = dims if isinstance(dims, tuple) else (dims,)
        return Annotation(self, tuple(_dim(d) for d in dims))

    def __call__(self, value: Any) -> Any:
        """Convert a traced value, an array or a number to this type."""
        if hasattr(value, "astype"):
            return value.astype(self if hasattr(value, "atom") else self.dtype)
        return self.dtype.type(value)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize


def _make(name: str, kind: str, bits: int, dtype: Any) -> ScalarType:
    return ScalarType(name, kind, bits, np.dtype(dtype))


bool_ = _make("bool", "b", 8, np.bool_)
i8, i16, i32, i64 = (_make(f"i{b}", "i", b, f"int{b}") for b in (8, 16, 32, 64))
u8, u16, u32, u64 = (_make(f"u{b}", "u", b, f"uint{b}") for b in (8, 16, 32, 64))
f16, f32, f64 = (_make(f"f{b}", "f", b, f"float{b}") for b in (16, 32, 64))

SCALAR_TYPES = (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64)
_BY_DTYPE = {t.dtype: t for t in SCALAR_TYPES}


def scalar_type(dtype: Any) -> ScalarType:
    """The ScalarType of a NumPy dtype (native byte order); raises TypeError for any other."""
    if isinstance(dtype, ScalarType):
        return dtype
    dtype = np.dtype(dtype)
    try:
        return _BY_DTYPE[dtype.newbyteorder("=")]
    except KeyError:
        raise TypeError(f"parray has no element type for dtype {dtype}") from None


@dataclass(frozen=True)
class Type:
    """The type of a value: element type and shape; rank 0 is a scalar."""
    elem: ScalarType
    shape: tuple[Any, ...] = ()                     # of Size

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    def row(self, depth: int = 1) -> Type:
        """The type of an element: the first ``depth`` dimensions taken off."""
        return Type(self.elem, self.shape[depth:])

    def array_of(self, *sizes: Any) -> Type:
        """The type of an array of these: dimensions put in front."""
        return Type(self.elem, tuple(sizes) + self.shape)

    def __repr__(self) -> str:
        return self.elem.name + (f"[{', '.join(map(str, self.shape))}]" if self.shape else "")


SIZE = Type(i64)
