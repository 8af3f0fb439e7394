"""Records: named groups of arrays, with the arithmetic of a vector space.

    @pa.record
    class Params:
        w: f32["m", "n"]
        b: f32["m"]

    class Params(pa.Record): ..                      the same, and type checkers know the arithmetic

    p - 0.1 * g            leaf by leaf, for records of one structure and for scalars

A record is a frozen dataclass; its fields may be arrays, scalars, other records or any tree.
"""
from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Any, Callable, Iterator, Self, Sequence, TypeVar, dataclass_transform

from parray import tree

C = TypeVar("C", bound=type)

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")


def is_record(x: Any) -> bool:
    """Whether a value is a record."""
    return getattr(type(x), "_parray_record", False) is True


def leafwise(f: Callable[..., Any], *args: Any) -> Any:
    """``f`` on the leaves of records; arguments that are no records go to every leaf."""
    first = next(a for a in args if is_record(a))
    _, shape = tree.flatten(first)
    columns = []
    for a in args:
        if is_record(a):
            leaves, s = tree.flatten(a)
            if s != shape:
                raise TypeError(f"records of different structure: {shape} and {s}")
            columns.append(leaves)
        else:
            columns.append([a] * shape.size)
    return tree.unflatten(shape, [f(*xs) for xs in zip(*columns)])


def _operator(name: str, swap: bool) -> Callable[[Any, Any], Any]:
    op = getattr(operator, name)

    def method(self: Any, other: Any) -> Any:
        return leafwise(lambda a, b: op(b, a) if swap else op(a, b), self, other)
    method.__doc__ = f"Leaf by leaf ``{name}``."
    return method


def _make(cls: Any, values: Sequence[Any]) -> Any:
    """The record with these fields, in order; faster than its constructor."""
    made = object.__new__(cls)
    made.__dict__.update(zip(cls._fields_, values))
    return made


@dataclass_transform(frozen_default=True)
def record(cls: C) -> C:
    """Make a class with annotated fields a record."""
    made: Any = dataclasses.dataclass(frozen=True, eq=False)(cls)
    made._parray_record = True
    names = tuple(f.name for f in dataclasses.fields(made))
    for name in _BINARY:
        setattr(made, f"__{name}__", _operator(name, False))
        setattr(made, f"__r{name}__", _operator(name, True))
    made.__neg__ = lambda self: leafwise(operator.neg, self)
    made._replace = lambda self, **changes: dataclasses.replace(self, **changes)
    made.__iter__ = lambda self: iter([getattr(self, n) for n in names])
    made._make = classmethod(_make)
    made._fields_ = names
    made.__class_getitem__ = classmethod(lambda cls, sizes: cls)        # ``Params[V, E]`` in an annotation
    made.__array_ufunc__ = None                       # so that NumPy scalars leave arithmetic to the record
    return made                                       # type: ignore[no-any-return]


@dataclass_transform(frozen_default=True, eq_default=False)
class Record:
    """A base class whose subclasses are records, as `record` makes them; type checkers then know their arithmetic."""

    def __init_subclass__(cls) -> None:
        record(cls)

    if TYPE_CHECKING:
        def __add__(self, other: Any, /) -> Self: ...
        def __radd__(self, other: Any, /) -> Self: ...
        def __sub__(self, other: Any, /) -> Self: ...
        def __rsub__(self, other: Any, /) -> Self: ...
        def __mul__(self, other: Any, /) -> Self: ...
        def __rmul__(self, other: Any, /) -> Self: ...
        def __truediv__(self, other: Any, /) -> Self: ...
        def __rtruediv__(self, other: Any, /) -> Self: ...
        def __floordiv__(self, other: Any, /) -> Self: ...
        def __mod__(self, other: Any, /) -> Self: ...
        def __pow__(self, other: Any, /) -> Self: ...
        def __neg__(self) -> Self: ...
        def __iter__(self) -> Iterator[Any]: ...
        def _replace(self, **changes: Any) -> Self: ...
        @classmethod
        def _make(cls, values: Sequence[Any]) -> Self: ...
