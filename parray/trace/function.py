"""From a Python function to a `Program`: run it once on tracers.

Argument leaves become parameters whose dimensions are size variables (or constants, where they are static); when the
trace finds sizes to be equal it runs again with these as one variable.  A function that is called while another one is
being traced is not traced by itself: it becomes part of the caller's graph (`check_arguments` then applies its
annotations).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

from parray import builder, tree
from parray.errors import Loc, SizeMismatch, TypeMismatch
from parray.ir import Atom, Lambda, Var, resolve
from parray.program import Input, Position, Program, Reason
from parray.trace import constructs, context, hints
from parray.trace.hints import Wanted
from parray.trace.combinators import results_of
from parray.trace.context import Retrace, Trace
from parray.trace.elementwise import lift
from parray.trace.tracer import Tracer
from parray.tree import Tree
from parray.types import SIZE, ScalarType, Type

_ROUNDS = 100


@dataclass(frozen=True)
class Leaf:
    """An argument leaf to trace with: ``dims`` are ints, or keys; equal keys are one size."""
    name: str
    elem: ScalarType
    dims: tuple[Any, ...]
    weak: bool = False


def trace_program(f: Callable[..., Any], name: str, structures: Sequence[Tree], leaves: Sequence[Leaf],
                  labels: dict[Position, str], loc: Loc | None) -> Program:
    """Trace ``f(*arguments)``, the arguments having these structures and leaves."""
    found: list[tuple[Position, Any, Reason]] = []
    for _ in range(_ROUNDS):
        program = _attempt(f, name, structures, leaves, labels, loc, found)
        if program is not None:
            return program
    raise AssertionError(f"the sizes of {name} do not settle")


def _classes(leaves: Sequence[Leaf], found: Sequence[tuple[Position, Any, Reason]]
             ) -> tuple[dict[Position, Any], dict[Any, list[Reason]]]:
    """The size (a variable or an int) of every position, and the reasons by size variable or position."""
    parent: dict[Any, Any] = {}

    def root(k: Any) -> Any:
        while parent.get(k, k) != k:
            k = parent[k]
        return k

    keys: dict[Position, Any] = {}
    for at, leaf in enumerate(leaves):
        for d, dim in enumerate(leaf.dims):
            keys[at, d] = dim if isinstance(dim, int) else ("key", dim)
    for a, b, _ in found:
        x, y = root(keys[a]), root(b if isinstance(b, int) else keys[b])
        if x != y:
            if isinstance(x, int):
                x, y = y, x
            parent[x] = y
    names: dict[Any, Any] = {}
    sizes: dict[Position, Any] = {}
    for p, key in keys.items():
        r = root(key)
        if not isinstance(r, int) and r not in names:
            names[r] = Var(SIZE, _hint(r[1]))
        sizes[p] = r if isinstance(r, int) else names[r]
    reasons: dict[Any, list[Reason]] = {}
    for a, b, reason in found:
        size = sizes[a]
        where = [size] if isinstance(size, Var) else [p for p in keys if root(keys[p]) == size and (
            p == a or p == b or keys[p] == keys[a])]
        for key in where:
            reasons.setdefault(key, []).append(reason)
    return sizes, reasons


def _hint(key: Any) -> str:
    return key if isinstance(key, str) else "n"


def _attempt(f: Callable[..., Any], name: str, structures: Sequence[Tree], leaves: Sequence[Leaf],
             labels: dict[Position, str], loc: Loc | None, found: list[Any]) -> Program | None:
    """One trace; None when it found sizes to be equal (they are added to ``found``)."""
    sizes, reasons = _classes(leaves, found)
    trace = Trace(name)
    roots = tuple(dict.fromkeys(s for s in sizes.values() if isinstance(s, Var)))
    for p, s in sizes.items():
        if isinstance(s, Var):
            trace.roots.setdefault(s, p)
    trace.nonneg.update(roots)
    inputs = tuple(Input(leaf.name, leaf.elem, tuple(sizes[k, d] for d in range(len(leaf.dims))), leaf.weak)
                   for k, leaf in enumerate(leaves))
    params = tuple(Var(Type(i.elem, i.dims), i.name.split(".")[-1] if i.name.isidentifier() else "x") for i in inputs)
    try:
        with context.tracing(trace) as scope:
            results, structure = _run(f, name, structures, params, inputs)
    except Retrace:
        pass
    except Exception as error:
        if not trace.found:                         # with sizes unified, the error may be one of the unfinished graph
            ours = constructs.translated(error)
            if ours is None or ours is error:
                raise
            raise ours from None
    if trace.found:
        found += trace.found
        return None
    captures = trace.captures.values()
    lam = Lambda((*roots, *params, *(v for _, v in captures)), tuple(scope.stms), tuple(map(resolve, results)))
    return Program(name, lam, roots, inputs, tuple(a for a, _ in captures), structure, reasons, labels, loc)


def _run(f: Callable[..., Any], name: str, structures: Sequence[Tree], params: Sequence[Var], inputs: Sequence[Input]
         ) -> tuple[list[Atom], Tree]:
    args, at = [], 0
    for s in structures:
        args.append(tree.unflatten(s, [Tracer(p, i.weak) for p, i in
                                       zip(params[at:at + s.size], inputs[at:at + s.size])]))
        at += s.size
    value = f(*args)
    if value is None and params and not any(stm.op.effect for stm in builder.current().stms):
        raise TypeMismatch(f"{name} gives None: is a `return` missing?", builder.here())
    return results_of(value, name)


# --- annotations -----------------------------------------------------------------------------------------------------

def check_leaf(function: str, name: str, wanted: Wanted, elem: ScalarType, rank: int, weak: bool, shown: str,
               loc: Loc | None) -> ScalarType:
    """The element type a leaf has under its annotation; raises TypeMismatch where they do not fit."""
    dims = "" if not wanted.dims else f"[{', '.join(map(str, wanted.dims))}]"
    if wanted.dims is not None and len(wanted.dims) != rank:
        raise TypeMismatch(f"{function}: {name} is {shown}, the annotation says {_said(wanted)}{dims}", loc)
    if wanted.elem is None or wanted.elem == elem:
        return elem
    if weak and (wanted.elem.is_float or elem.is_integer and wanted.elem.is_integer or elem.is_bool):
        return wanted.elem
    if not wanted.strict and wanted.elem.is_float == elem.is_float and wanted.elem.is_bool == elem.is_bool:
        return elem
    raise TypeMismatch(f"{function}: {name} is {shown}, the annotation says {_said(wanted)}{dims}; convert with "
                       f"x.astype(np.{wanted.elem.dtype})", loc)


def _said(wanted: Wanted) -> str:
    return wanted.elem.name if wanted.elem is not None else "any type of"


def check_result(function: str, value: Any, annotation: Any, sizes: dict[str, Any]) -> Any:
    """Apply the annotation of a function's result while it is traced; ``sizes`` are those its arguments named."""
    leaves, structure = tree.flatten(value)
    wrong = hints.misfit(annotation, structure, "the result")
    if wrong:
        raise TypeMismatch(f"{function}: {wrong}", builder.here())
    out = []
    for name, leaf, w in zip(tree.paths(structure, "the result"), leaves, hints.of_leaves(annotation, structure)):
        if w.elem is None and w.dims is None:
            out.append(leaf)
            continue
        x = lift(leaf, f"{function}: {name}")
        elem = check_leaf(function, name, w, x.dtype, x.ndim, x.weak, repr(x).removeprefix("traced "), builder.here())
        for dim, size in zip(w.dims or (), x.type.shape):
            other = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
            context.unify(size, other, f"a dimension of {name} of {function} is {dim!r} in its annotations")
        out.append(x.astype(elem) if x.weak and not x.is_size else x)
    return tree.unflatten(structure, out)


def check_arguments(function: str, names: Sequence[str], leaves: Sequence[Any], wanted: Sequence[Wanted]) -> list[Any]:
    """Apply a function's annotations to its arguments inside of a trace; the leaves, weak ones converted."""
    sizes: dict[str, Any] = {}
    out = []
    for name, leaf, w in zip(names, leaves, wanted):
        if w.elem is None and w.dims is None:
            out.append(leaf)
            continue
        x = lift(leaf, f"{function}: {name}")
        elem = check_leaf(function, name, w, x.dtype, x.ndim, x.weak, repr(x), builder.here())
        for dim, size in zip(w.dims or (), x.type.shape):
            other = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
            if isinstance(other, int) and isinstance(resolve(size), int) and other != resolve(size):
                raise SizeMismatch(f"{function}: a dimension {dim!r} of {name} is {size}, not {other}", builder.here())
            context.unify(size, other, f"both are {dim!r} in the annotations of {function}")
        out.append(x.astype(elem) if x.weak and not x.is_size else x)
    return out
