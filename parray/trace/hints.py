"""What the annotations of a function say about its arguments' leaves: element types, ranks, and names of sizes.

    f32["m", "n"]  f32[M, N]  f32[16]      an array          f32           a scalar
    Params                                 a record, named tuple or dataclass of what its fields say
    tuple[f32["n"], i64]                   a tuple           anything else says nothing

Annotations of jaxtyping (``Float32[Array, "m n"]``) are read as far as they name an element type and fixed dimensions.
A parameter's element type binds.  In a record only its kind does: one record class serves f32 and f64 weights.
"""
from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, Callable

from parray.tree import Tree
from parray.types import Annotation, ScalarType, scalar_type


@dataclass(frozen=True)
class Wanted:
    """What is said of one leaf; ``dims`` None: any rank; ``elem`` None: any type.  ``strict``: the very type."""
    elem: ScalarType | None = None
    dims: tuple[str | int, ...] | None = None
    strict: bool = True


ANYTHING = Wanted()


def _evaluate(said: Any, names: dict[str, Any]) -> Any:
    """An annotation, evaluated where it is text."""
    if isinstance(said, typing.ForwardRef):                                          # as named tuples have
        said = said.__forward_arg__
    if not isinstance(said, str):
        return said
    try:
        return eval(said, names)                                                     # the user's own annotation
    except Exception:                                                                # names only a type checker knows
        return None


def _namespace(f: Any) -> dict[str, Any]:
    """What the names in a function's annotations may mean."""
    names = dict(getattr(f, "__globals__", {}))
    code = getattr(f, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), getattr(f, "__closure__", None) or ()):
        try:
            names.setdefault(name, cell.cell_contents)
        except ValueError:                                                           # not assigned yet
            continue
    return names


def of_function(f: Callable[..., Any]) -> dict[str, Any]:
    """A function's annotations by parameter, evaluated."""
    f = inspect.unwrap(f)
    found = getattr(f, "__annotations__", {})
    names = _namespace(f)
    return {k: _evaluate(v, names) for k, v in found.items() if k != "return"}


def of_result(f: Callable[..., Any]) -> Any:
    """What a function's annotations say of its result; None where they say nothing, or are another function's."""
    if hasattr(f, "__wrapped__") or "return" not in getattr(f, "__annotations__", {}):
        return None
    return _evaluate(f.__annotations__["return"], _namespace(f))


@cache
def of_class(cls: Any) -> dict[str, Any]:
    """The annotations of a class's fields."""
    out: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names = dict(vars(sys.modules.get(base.__module__, typing)))
        for k, v in base.__dict__.get("__annotations__", {}).items():
            out[k] = _evaluate(v, names)
    return out


def of_leaves(annotation: Any, structure: Tree, inside: bool = False) -> list[Wanted]:
    """What an annotation says of each leaf of an argument of this structure."""
    if structure.kind == "leaf":
        return [leaf(annotation, inside)]
    out: list[Wanted] = []
    for k, child in enumerate(structure.children):
        out += of_leaves(_part(annotation, structure, k), child, inside or structure.kind in ("named", "data"))
    return out


def misfit(annotation: Any, structure: Tree, name: str) -> str:
    """What is wrong with the structure of an argument, in words; nothing where it fits the annotation."""
    entries: tuple[Any, ...] = ()
    hint = ""
    if leaf(annotation) != ANYTHING:
        fits = structure.kind == "leaf"
        hint = "; np.array makes an array of it" if structure.kind in ("list", "tuple") else ""
    elif isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields")):
        fits = structure.kind in ("named", "data") and issubclass(structure.cls, annotation)
    elif typing.get_origin(annotation) is tuple and Ellipsis not in typing.get_args(annotation):
        entries = typing.get_args(annotation)
        fits = structure.kind in ("tuple", "named") and len(structure.children) == len(entries)
    else:
        return ""
    if not fits:
        said = getattr(annotation, "__name__", annotation) if not entries else annotation
        shown = {"leaf": "an array or a number", "none": "None", "named": f"of {structure.cls}",
                 "data": f"of {structure.cls}"}.get(structure.kind, f"a {structure.kind} of {len(structure.children)}")
        return f"{name} is {shown}, the annotation says {said}{hint}"
    found = (misfit(e, c, f"{name}[{k}]") for k, (e, c) in enumerate(zip(entries, structure.children)))
    return next(filter(None, found), "")


def _part(annotation: Any, structure: Tree, k: int) -> Any:
    """What is said of a node's k-th child."""
    if structure.kind in ("named", "data"):
        fields = of_class(structure.cls)
        return fields.get(structure.keys[k])
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple and args:
        return args[0] if len(args) == 2 and args[1] is Ellipsis else args[k] if k < len(args) else None
    if origin is list and args:
        return args[0]
    return args[1] if origin is dict and len(args) == 2 else None


def leaf(annotation: Any, inside: bool = False) -> Wanted:
    """What an annotation says of one leaf."""
    if isinstance(annotation, ScalarType):
        return Wanted(annotation, (), not inside)
    if isinstance(annotation, Annotation):
        return Wanted(annotation.elem, annotation.dims, not inside)
    if hasattr(annotation, "dim_str") and hasattr(annotation, "dtypes"):
        return _jaxtyping(annotation, inside)
    return ANYTHING


def _jaxtyping(annotation: Any, inside: bool) -> Wanted:
    elem = None
    if isinstance(annotation.dtypes, (list, tuple)) and len(annotation.dtypes) == 1:
        try:
            elem = scalar_type(annotation.dtypes[0])
        except TypeError:
            elem = None
    dims: list[str | int] = []
    for k, word in enumerate(annotation.dim_str.split()):
        if word.isidentifier() and word != "_":
            dims.append(word)
        elif word.isdecimal():
            dims.append(int(word))
        elif word == "_":
            dims.append(f"_{id(annotation)}_{k}")
        else:
            return Wanted(elem, None, not inside)
    return Wanted(elem, tuple(dims), not inside)


def names_in(wanted: list[Wanted]) -> set[str]:
    """The names of sizes that are used."""
    return {d for w in wanted for d in w.dims or () if isinstance(d, str)}
