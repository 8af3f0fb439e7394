"""Trees of values: tuples, lists, dicts, NamedTuples, dataclasses and records, nested at will; all else is a leaf.

An array of tuples is a tuple of arrays, so the front end takes arguments, elements and results apart into leaves and
puts them together again by a hashable description of the structure:

    flatten((a, {"x": b}))  ->  [a, b], TreeDef

``None`` has no leaves.  Dicts are ordered by their keys.
"""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

from parray.errors import TypeMismatch, user_location


@dataclass(frozen=True)
class TreeDef:
    """``kind``: leaf, none, tuple, list, dict, named (NamedTuple) or data (dataclass); ``keys``: names of children."""
    kind: str
    cls: Any = None
    keys: tuple[Any, ...] = ()
    children: tuple[TreeDef, ...] = ()

    def __repr__(self) -> str:
        if self.kind == "leaf":
            return "*"
        inner = ", ".join(f"{k}={c!r}" if self.kind not in ("tuple", "list") else repr(c)
                          for k, c in zip(self.keys, self.children))
        name = getattr(self.cls, "__name__", "")
        return {"none": "None", "tuple": f"({inner})", "list": f"[{inner}]", "dict": f"{{{inner}}}"}.get(
            self.kind, f"{name}({inner})")

    @property
    def size(self) -> int:
        return 1 if self.kind == "leaf" else sum(c.size for c in self.children)


LEAF = TreeDef("leaf")
NONE = TreeDef("none")


def children(x: Any) -> tuple[str, Sequence[Any], Sequence[Any]] | None:
    """(kind, keys, children) of an inner node; None for a leaf."""
    t = type(x)
    if t is tuple or t is list:
        return t.__name__, range(len(x)), x
    if isinstance(x, tuple) and hasattr(t, "_fields"):
        return "named", t._fields, x
    if isinstance(x, dict):
        keys = sorted(x)
        return "dict", keys, [x[k] for k in keys]
    fields = getattr(t, "__dataclass_fields__", None)
    if fields is not None and not isinstance(x, type) and not hasattr(t, "_parray_leaf"):
        names = [f.name for f in dataclasses.fields(x)]
        return "data", names, [getattr(x, n) for n in names]
    return None


def flatten(x: Any) -> tuple[list[Any], TreeDef]:
    """Leaves in order, and the structure."""
    leaves: list[Any] = []

    def walk(x: Any) -> TreeDef:
        if x is None:
            return NONE
        node = children(x)
        if node is None:
            leaves.append(x)
            return LEAF
        kind, keys, items = node
        return TreeDef(kind, type(x), tuple(keys), tuple(walk(i) for i in items))
    return leaves, walk(x)


def unflatten(tree: TreeDef, leaves: Sequence[Any]) -> Any:
    """The value of this structure with these leaves."""
    it = iter(leaves)

    def build(t: TreeDef) -> Any:
        if t.kind == "leaf":
            return next(it)
        if t.kind == "none":
            return None
        items = [build(c) for c in t.children]
        if t.kind == "dict":
            return t.cls(zip(t.keys, items)) if t.cls is not dict else dict(zip(t.keys, items))
        if t.kind in ("named", "data"):
            return t.cls(**dict(zip(t.keys, items)))
        return t.cls(items)
    out = build(tree)
    if next(it, it) is not it:
        raise ValueError(f"more leaves than the structure {tree} has")
    return out


def paths(tree: TreeDef, prefix: str = "") -> Iterator[str]:
    """A readable name for each leaf: ``p.wte``, ``xs[0]``, ``d['k']``."""
    if tree.kind == "leaf":
        yield prefix
    for key, child in zip(tree.keys, tree.children):
        step = f".{key}" if tree.kind in ("named", "data") else f"[{key!r}]"
        yield from paths(child, prefix + step if prefix else step.lstrip("."))


def leaves(x: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    return flatten(x)[0]


def map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """``f`` on corresponding leaves of equally structured trees; raises TypeMismatch where structures differ."""
    first, shape = flatten(tree)
    others = []
    for r in rest:
        ls, s = flatten(r)
        if s != shape:
            raise TypeMismatch(f"structures differ: {shape} and {s}", user_location())
        others.append(ls)
    return unflatten(shape, [f(*xs) for xs in zip(first, *others)])


def accessors(tree: TreeDef, name: str) -> list[str]:
    """Python expressions that reach each leaf of ``name``; for generated call paths."""
    if tree.kind == "leaf":
        return [name]
    out: list[str] = []
    for key, child in zip(tree.keys, tree.children):
        step = f".{key}" if tree.kind in ("named", "data") else f"[{key!r}]"
        out += accessors(child, name + step)
    return out


def structure(x: Any) -> TreeDef:
    """The structure alone."""
    return flatten(x)[1]


def is_leaf(x: Any) -> bool:
    """Whether a value is neither None nor a container."""
    return x is not None and children(x) is None


Tree = TreeDef
