"""What a type checker sees of the element types: ``f32[M, N]`` is an array type, generic over type variables for sizes.

At run time these names are the `ScalarType`s of `parray.types`; this module is never imported then.  Inside a function
an array answers to everything (it derives from ``Any``); what is given to one must be able to subtract and negate:
arrays of any library and numbers are, text, lists, dicts and None are not.  The price is that type checkers, which do
not let protocols be called, want ``x.astype(f32)`` where ``f32(x)`` would do.
"""
from __future__ import annotations

from typing import Any, Protocol

from typing_extensions import TypeVarTuple, Unpack

Sizes = TypeVarTuple("Sizes", default=Unpack[tuple[Any, ...]])


class Array(Any, Protocol[Unpack[Sizes]]):             # type: ignore[misc]
    """A scalar, or an array of these sizes."""

    def __sub__(self, other: Any, /) -> Any: ...

    def __rsub__(self, other: Any, /) -> Any: ...

    def __neg__(self) -> Any: ...


class bool_(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """Truth values."""


class i8(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """8-bit signed integers."""


class i16(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """16-bit signed integers."""


class i32(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """32-bit signed integers."""


class i64(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """64-bit signed integers."""


class u8(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """8-bit unsigned integers."""


class u16(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """16-bit unsigned integers."""


class u32(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """32-bit unsigned integers."""


class u64(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """64-bit unsigned integers."""


class f16(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """Half precision."""


class f32(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """Single precision."""


class f64(Array[Unpack[Sizes]], Protocol[Unpack[Sizes]]):
    """Double precision."""
