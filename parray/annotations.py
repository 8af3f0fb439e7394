"""What a type checker sees of the element types: ``f32[M, N]`` is an array type, generic over type variables for sizes.

At run time these names are the `ScalarType`s of `parray.types`; this module is never imported then.  A traced value
answers to everything an array does, which is why the types derive from ``Any``.
"""
from __future__ import annotations

from typing import Any, Generic, TypeVarTuple, Unpack

Sizes = TypeVarTuple("Sizes")


class Array(Any, Generic[Unpack[Sizes]]):              # type: ignore[misc]
    """A scalar, or an array of these sizes."""


class bool_(Array[Unpack[Sizes]]):
    """Truth values."""


class i8(Array[Unpack[Sizes]]):
    """8-bit signed integers."""


class i16(Array[Unpack[Sizes]]):
    """16-bit signed integers."""


class i32(Array[Unpack[Sizes]]):
    """32-bit signed integers."""


class i64(Array[Unpack[Sizes]]):
    """64-bit signed integers."""


class u8(Array[Unpack[Sizes]]):
    """8-bit unsigned integers."""


class u16(Array[Unpack[Sizes]]):
    """16-bit unsigned integers."""


class u32(Array[Unpack[Sizes]]):
    """32-bit unsigned integers."""


class u64(Array[Unpack[Sizes]]):
    """64-bit unsigned integers."""


class f16(Array[Unpack[Sizes]]):
    """Half precision."""


class f32(Array[Unpack[Sizes]]):
    """Single precision."""


class f64(Array[Unpack[Sizes]]):
    """Double precision."""
