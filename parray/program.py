"""Program: a traced function, closed, with what its arguments must satisfy.

    Program ::= Lambda (sizes.. leaves.. captures..)   plus   inputs, structure of the results, reasons

``sizes`` are the size variables that are left after unification; each argument leaf says which of them, or which
constant, each of its dimensions is.  `Program.bind` reads the sizes off a call's arguments and raises a `SizeMismatch`
that says which arguments disagree and, where the function itself made two sizes equal, on which line.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np

from parray.errors import Loc, SizeMismatch, TypeMismatch
from parray.ir import Lambda, Var
from parray.tree import Tree
from parray.types import ScalarType

Position = tuple[int, int]                      # a dimension of an argument: (leaf, dimension)


def canonical(x: np.ndarray[Any, Any], dtype: Any = None) -> np.ndarray[Any, Any]:
    """An array as the backends take it: C order and aligned."""
    return np.require(x, dtype, ("C", "A"))


@dataclass(frozen=True)
class Input:
    """An argument leaf: what it is called, its element type and its dimensions.  ``weak``: a Python number."""
    name: str
    elem: ScalarType
    dims: tuple[Any, ...]                       # of int | Var
    weak: bool = False


@dataclass(frozen=True)
class Reason:
    """Why two sizes were made equal; ``broadcast`` when NumPy would also take a 1."""
    text: str
    loc: Loc | None
    broadcast: bool = False


@dataclass(frozen=True)
class Conflict:
    """Two dimensions of a call that must be equal and are not; ``first`` is None where a constant is wanted."""
    name: str
    inputs: tuple[Input, ...]
    at: Position
    value: int
    first: Position | None
    wanted: int
    reasons: tuple[Reason, ...]
    label: str = ""

    def error(self) -> SizeMismatch:
        """The error that says so."""
        place = f"{self.name}: dimension {self.at[1]} of {self.inputs[self.at[0]].name} is {self.value}"
        if self.first is None:
            other = f"but it must be {self.wanted}"
        else:
            other = f"but dimension {self.first[1]} of {self.inputs[self.first[0]].name} is {self.wanted}"
        label = f" (both are {self.label!r})" if self.label else ""
        why = "".join(f"; {r.text}" for r in self.reasons[:1])
        loc = self.reasons[0].loc if self.reasons else None
        return SizeMismatch(f"{place}, {other}{label}{why}", loc)


@dataclass(frozen=True)
class Program:
    """See the module.  ``lam`` takes the sizes, then the leaves, then the captures (arrays the function refers to)."""
    name: str
    lam: Lambda
    sizes: tuple[Var, ...]
    inputs: tuple[Input, ...]
    captures: tuple[np.ndarray[Any, Any], ...]
    out_tree: Tree
    reasons: dict[Any, list[Reason]] = field(default_factory=dict)       # by size variable, or by Position
    labels: dict[Position, str] = field(default_factory=dict)            # sizes named in annotations
    loc: Loc | None = None

    def captured(self) -> list[np.ndarray[Any, Any]]:
        """What is in the captured arrays now, as the backends take it."""
        return [canonical(a, v.type.elem.dtype) for a, v in
                zip(self.captures, self.lam.params[len(self.sizes) + len(self.inputs):])]

    def conflict(self, shapes: Sequence[tuple[int, ...]]) -> Conflict | None:
        """The first two dimensions that disagree in a call with these shapes."""
        seen: dict[Any, tuple[int, Position]] = {}
        for leaf, (given, shape) in enumerate(zip(self.inputs, shapes)):
            for d, (dim, value) in enumerate(zip(given.dims, shape)):
                at = (leaf, d)
                if isinstance(dim, int):
                    if dim != value:
                        return Conflict(self.name, self.inputs, at, value, None, dim,
                                        tuple(self.reasons.get(at, ())), self.labels.get(at, ""))
                    continue
                wanted, first = seen.setdefault(dim, (value, at))
                if wanted != value:
                    label = self.labels.get(at, "")
                    same = label if label == self.labels.get(first) else ""
                    reasons = () if same else tuple(self.reasons.get(dim, ()))
                    return Conflict(self.name, self.inputs, at, value, first, wanted, reasons, same)
        return None

    def bind(self, leaves: Sequence[Any]) -> list[int]:
        """The values of the sizes for these leaves; raises TypeMismatch or SizeMismatch when they do not fit."""
        for given, leaf in zip(self.inputs, leaves, strict=True):
            a = np.asarray(leaf)
            if a.ndim != len(given.dims) or a.dtype != given.elem.dtype and not given.weak:
                raise TypeMismatch(f"{self.name}: {given.name} is {a.dtype} of rank {a.ndim}, the program was made for "
                                   f"{given.elem.dtype} of rank {len(given.dims)}", self.loc)
        shapes = [np.shape(leaf) for leaf in leaves]
        conflict = self.conflict(shapes)
        if conflict is not None:
            raise conflict.error()
        values: dict[Any, int] = {}
        for given, shape in zip(self.inputs, shapes):
            values.update(zip(given.dims, shape))
        return [values[v] for v in self.sizes]
