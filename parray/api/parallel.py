"""`parallel`: a Python function that is traced once per signature, compiled, and called in microseconds.

A signature is the structure of the arguments, each leaf's element type and rank, the values of static parameters and
static sizes, and the backend.  Programs are kept by signature; of one signature there are several where a call came
with a size 1 that NumPy broadcasts (that 1 is then a constant of a program of its own).
"""
from __future__ import annotations

import functools
import inspect
import pickle
import sys
import threading
from dataclasses import dataclass
from types import MethodType
from typing import Any, Callable, Generic, ParamSpec, Sequence, TypeVar, overload

import numpy as np

from parray import builder, pretty, tree
from parray.api.choice import default_backend, use_backend
from parray.api.dispatch import MISS, Static, make_dispatcher
from parray.api.report import Report
from parray.errors import Loc, SizeMismatch, TypeMismatch, user_location
from parray.program import Position, Program, canonical
from parray.trace import hints
from parray.trace.elementwise import as_numpy, is_array_like
from parray.trace.function import Leaf, check_arguments, check_leaf, check_result, trace_program
from parray.trace.promote import fits, is_python_number, python_type
from parray.tree import Tree
from parray.types import ScalarType, scalar_type

try:
    import cloudpickle
except ImportError:
    cloudpickle = None

P = ParamSpec("P")
R = TypeVar("R")
_FAST = 16                                      # programs that the fast path tries


def _executable(program: Program, backend: str) -> Callable[[Sequence[int], list[Any]], list[Any]]:
    """The compiled program: ``executable(sizes, leaves) -> results``."""
    from parray import pipeline
    return pipeline.compile_program(program, backend)                                # type: ignore[no-any-return]


@dataclass
class _Entry:
    """A traced program and, once it was called, how to run it."""
    program: Program
    run: Any = None


@dataclass(frozen=True)
class _Call:
    """A call's arguments taken apart: structures, and leaves as the backends want them."""
    structures: tuple[Tree | Static, ...]
    leaves: list[Any]
    elems: tuple[ScalarType, ...]
    weak: tuple[bool, ...]
    dims: tuple[tuple[Any, ...], ...]           # of ints (static) and keys
    labels: dict[Position, str]
    names: list[str]


class Parallel(Generic[P, R]):
    """A function marked ``@parallel``: see the module."""

    def __init__(self, f: Callable[P, R], static: Any = (), backend: str | None = None, name: str | None = None):
        if not callable(f):
            raise TypeMismatch(f"parallel marks a function, not {f!r}")
        functools.update_wrapper(self, f)
        self.f = f
        self.backend = backend
        self.name = name or str(getattr(f, "__name__", type(f).__name__))
        self.static = static
        self._all_static = static is True
        names = () if isinstance(static, bool) else (static,) if isinstance(static, str) else static or ()
        if not isinstance(names, (tuple, list, set, frozenset)) or not all(isinstance(n, str) for n in names):
            raise TypeMismatch(f"static is a name, several names or True, not {static!r}", user_location())
        self._static = frozenset(names)
        code = getattr(inspect.unwrap(f), "__code__", None)
        self.loc = Loc(code.co_filename, code.co_firstlineno, self.name) if code else None
        self._read_parameters(f)
        self._fast: dict[str, tuple[Callable[..., Any], ...]] = {}
        self._programs: dict[Any, dict[frozenset[Position], _Entry]] = {}
        self._wanted: dict[Any, list[hints.Wanted]] = {}
        self._lock = threading.RLock()
        self.compiles = 0
        self.checked_inside = True               # whether annotations bind calls from functions that are traced

    def _read_parameters(self, f: Callable[..., Any]) -> None:
        try:
            self.signature: inspect.Signature | None = inspect.signature(f)
        except (TypeError, ValueError):
            self.signature = None
        parameters = list(self.signature.parameters.values()) if self.signature else []
        self._parameters = [p.name for p in parameters] if self.signature else ["args"]
        self._plain = self.signature is not None and all(
            p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        self._count = len(parameters) if self._plain else -1
        self._defaults = {p.name: () if p.kind is p.VAR_POSITIONAL else {} if p.kind is p.VAR_KEYWORD else
                          _default(p.default) for p in parameters}
        self._annotations = hints.of_function(f)
        self._result = hints.of_result(f)

    def __repr__(self) -> str:
        return f"<parallel {self.name}>"

    def __reduce__(self) -> Any:
        """Pickled by name where that leads to it, as Python's own functions are; else, and from a script that other
        processes do not import, by content.  Programs stay where they were compiled; the disk cache has them."""
        module, path = getattr(self, "__module__", ""), str(getattr(self, "__qualname__", ""))
        known: Any = sys.modules.get(module)
        for part in path.split("."):
            known = getattr(known, part, None)
        if known is self and (module != "__main__" or cloudpickle is None):
            return path
        if cloudpickle is None:
            raise pickle.PicklingError(f"{self.name} cannot be found by its name, and pickling a function by content "
                                       "needs cloudpickle: pip install cloudpickle")
        return _from_content, (cloudpickle.dumps(self.f), self.static, self.backend, self.name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    # --- the call ----------------------------------------------------------------------------------------------------

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if builder._state.scope is not None:
            return self._inline(args, kwargs)                                        # type: ignore[no-any-return]
        values: tuple[Any, ...] = args if not kwargs and len(args) == self._count else self._values(args, kwargs)
        for dispatch in self._fast.get(self.backend or default_backend(), ()):
            out = dispatch(values)
            if out is not MISS:
                return out                                                           # type: ignore[no-any-return]
        return self._slow(values)                                                    # type: ignore[no-any-return]

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """One value for each parameter (a tuple for ``*args``, a dict for ``**kwargs``); defaults are `Static`."""
        if self.signature is None:
            return (args,)
        try:
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError as e:
            raise TypeMismatch(f"{self.name}: {e}", user_location()) from None
        return tuple(given[p] if p in given else self._defaults[p] for p in self._parameters)

    def _apply(self, *values: Any) -> Any:
        """The Python function on one value for each parameter."""
        f: Callable[..., Any] = self.f
        values = tuple(v.value if isinstance(v, Static) else v for v in values)
        if self._plain:
            value = f(*values)
        elif self.signature is None:
            value = f(*values[0])
        else:
            bound = inspect.BoundArguments(self.signature, dict(zip(self._parameters, values)))
            value = f(*bound.args, **bound.kwargs)
        if self._result is None:
            return value
        return check_result(self.name, value, self._result, self._named_sizes(values))

    def _named_sizes(self, values: Sequence[Any]) -> dict[str, Any]:
        """The sizes of traced arguments that the annotations name."""
        sizes: dict[str, Any] = {}
        for p, value in zip(self._parameters, values):
            if p not in self._static and self._annotations.get(p) is not None:
                leaves, structure = tree.flatten(value)
                for leaf, w in zip(leaves, hints.of_leaves(self._annotations[p], structure)):
                    for dim, size in zip(w.dims or (), getattr(getattr(leaf, "type", None), "shape", ())):
                        if isinstance(dim, str):
                            sizes.setdefault(dim, size)
        return sizes

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As part of the function that is being traced."""
        if not self.checked_inside or not any(a is not None for a in self._annotations.values()):
            return self.f(*args, **kwargs)
        values = tuple(v.value if isinstance(v, Static) else v for v in self._values(args, kwargs))
        traced = [k for k, p in enumerate(self._parameters) if p not in self._static]
        structures: list[Tree] = []
        leaves: list[Any] = []
        names: list[str] = []
        for k in traced:
            column, structure = tree.flatten(values[k])
            structures.append(structure)
            leaves += column
            names += tree.paths(structure, self._parameters[k])
        wanted = self._leaf_annotations(tuple(zip(traced, structures)))
        leaves = check_arguments(self.name, names, leaves, wanted)
        new, at = list(values), 0
        for k, s in zip(traced, structures):
            new[k] = tree.unflatten(s, leaves[at:at + s.size])
            at += s.size
        return self._apply(*new)

    def _leaf_annotations(self, structures: tuple[tuple[int, Tree], ...]) -> list[hints.Wanted]:
        """What the annotations say of the leaves of the parameters with these numbers."""
        if structures not in self._wanted:
            for k, s in structures:
                wrong = hints.misfit(self._annotations.get(self._parameters[k]), s, self._parameters[k])
                if wrong:
                    raise TypeMismatch(f"{self.name}: {wrong}", user_location())
            self._wanted[structures] = [w for k, s in structures for w in
                                        hints.of_leaves(self._annotations.get(self._parameters[k]), s)]
        return self._wanted[structures]

    def _slow(self, args: tuple[Any, ...]) -> Any:
        call = self._take_apart(args)
        backend = self.backend or default_backend()
        with self._lock:
            entry = self._ready(self._entry(call, backend), call, backend)
        program = entry.program
        results = entry.run(program.bind(call.leaves), [*call.leaves, *program.captured()])
        return tree.unflatten(program.out_tree, results)

    def _ready(self, entry: _Entry, call: _Call, backend: str) -> _Entry:
        """The entry, compiled."""
        if entry.run is None:
            entry.run = _executable(entry.program, backend)
            self.compiles += 1
            dispatch = make_dispatcher(entry.program, call.structures, entry.run)
            self._fast[backend] = (dispatch, *self._fast.get(backend, ())[:_FAST - 1])
        return entry

    # --- signatures --------------------------------------------------------------------------------------------------

    def _take_apart(self, values: Sequence[Any]) -> _Call:
        structures: list[Tree | Static] = []
        raw: list[Any] = []
        names: list[str] = []
        traced: list[tuple[int, Tree]] = []
        for k, value in enumerate(values):
            parameter = self._parameters[k]
            if isinstance(value, Static):
                structures.append(value)
                continue
            if parameter in self._static:
                structures.append(self._static_value(parameter, value))
                continue
            leaves, structure = tree.flatten(value)
            structures.append(structure)
            traced.append((k, structure))
            raw += leaves
            names += tree.paths(structure, parameter)
        wanted = self._leaf_annotations(tuple(traced))
        taken = [self._leaf(leaf, name, w) for leaf, name, w in zip(raw, names, wanted)]
        dims, labels = self._dims(names, [np.shape(leaf) for leaf, _, _ in taken], wanted)
        return _Call(tuple(structures), [t[0] for t in taken], tuple(t[1] for t in taken), tuple(t[2] for t in taken),
                     dims, labels, names)

    def _static_value(self, parameter: str, value: Any) -> Static:
        try:
            hash(value)
        except TypeError:
            raise TypeMismatch(f"{self.name}: the static parameter {parameter} must be hashable, not {value!r}",
                               user_location()) from None
        return Static(value)

    def _leaf(self, x: Any, name: str, wanted: hints.Wanted) -> tuple[Any, ScalarType, bool]:
        """An argument leaf as the backends want it, its element type, and whether it is a Python number."""
        weak = is_python_number(x)
        if not weak and (not isinstance(x, (np.ndarray, np.generic)) or isinstance(x, np.ma.MaskedArray)):
            if not is_array_like(x):
                raise TypeMismatch(f"{self.name}: {name} is {x!r} of type {type(x).__name__}; arguments are arrays, "
                                   "numbers and structures of them (other values are static parameters: "
                                   f"@parallel(static={name!r}))", user_location())
            x = as_numpy(x)
        try:
            elem = python_type(x) if weak else scalar_type(x.dtype)
        except TypeError as e:
            raise TypeMismatch(f"{self.name}: {name}: {e}", user_location()) from None
        shape = np.shape(x)
        shown = f"{elem.name}{list(shape) if shape else ''}" if not weak else f"the Python number {x!r}"
        elem = check_leaf(self.name, name, wanted, elem, len(shape), weak, shown, user_location())
        if type(x) is int and elem.is_integer and not fits(x, elem):
            raise TypeMismatch(f"{self.name}: {name} is the integer {x}, which is out of bounds for {elem}",
                               user_location())
        if isinstance(x, np.ndarray):
            x = canonical(np.asarray(x, elem.dtype)) if shape else elem.dtype.type(x[()])
        elif not weak:
            x = elem.dtype.type(x)
        return x, elem, weak and type(x) is not bool or weak

    def _dims(self, names: Sequence[str], shapes: Sequence[tuple[int, ...]], wanted: Sequence[hints.Wanted]
              ) -> tuple[tuple[tuple[Any, ...], ...], dict[Position, str]]:
        """Every dimension as a constant or a key (the annotation's name or the position), and names by position."""
        unknown = self._static - set(self._parameters) - hints.names_in(list(wanted))
        if unknown:
            raise TypeMismatch(f"{self.name}: static={sorted(unknown)} names neither a parameter nor a size in the "
                               "annotations", self.loc)
        labels: dict[Position, str] = {}
        first: dict[str, tuple[int, str]] = {}
        out = []
        for leaf, (shape, w) in enumerate(zip(shapes, wanted)):
            dims: list[Any] = []
            for d, value in enumerate(shape):
                said = w.dims[d] if w.dims is not None else (leaf, d)
                if isinstance(said, int) and said != value:
                    raise SizeMismatch(f"{self.name}: dimension {d} of {names[leaf]} is {value}, the annotation says "
                                       f"{said}", user_location())
                if isinstance(said, str):
                    labels[leaf, d] = said
                    known, where = first.setdefault(said, (value, f"dimension {d} of {names[leaf]}"))
                    if known != value:
                        raise SizeMismatch(f"{self.name}: dimension {d} of {names[leaf]} is {value}, but {where} is "
                                           f"{known} (both are {said!r})", user_location())
                fixed = self._all_static or said in self._static
                dims.append(value if fixed or isinstance(said, int) else said)
            out.append(tuple(dims))
        return tuple(out), labels

    def _entry(self, call: _Call, backend: str) -> _Entry:
        """The program for a call: traced if it is the first of its kind."""
        key = (backend, call.structures, call.elems, call.weak, call.dims)
        variants = self._programs.setdefault(key, {})
        shapes = [np.shape(leaf) for leaf in call.leaves]
        ones: frozenset[Position] = frozenset()
        while True:
            if ones not in variants:
                variants[ones] = _Entry(self._trace(call, ones))
            entry = variants[ones]
            conflict = entry.program.conflict(shapes)
            if conflict is None:
                return entry
            new = _broadcast_ones(entry.program, conflict, shapes) - ones
            if not new:
                raise _placed(conflict.error())
            ones |= new

    def _trace(self, call: _Call, ones: frozenset[Position]) -> Program:
        leaves = [Leaf(name, elem, tuple(1 if (k, d) in ones else dim for d, dim in enumerate(dims)), weak)
                  for k, (name, elem, dims, weak) in enumerate(zip(call.names, call.elems, call.dims, call.weak))]
        structures = [s for s in call.structures if isinstance(s, Tree)]

        def f(*traced: Any) -> Any:
            rest = iter(traced)
            return self._apply(*(s.value if isinstance(s, Static) else next(rest) for s in call.structures))
        return trace_program(f, self.name, structures, leaves, call.labels, self.loc)

    # --- looking inside ----------------------------------------------------------------------------------------------

    def _program_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Entry:
        with self._lock:
            return self._entry(self._take_apart(self._values(args, kwargs)), self.backend or default_backend())

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """The traced program for these arguments."""
        return self._program_for(args, kwargs).program

    def graph(self, *args: Any, stage: str = "trace", **kwargs: Any) -> str:
        """The graph as text, as it is after a stage of the pipeline; each statement with the line that made it."""
        lam = self.program(*args, **kwargs).lam
        if stage != "trace":
            from parray import pipeline
            stages = dict(pipeline.stages(lam))
            if stage not in stages:
                raise TypeMismatch(f"there is no stage {stage!r}; there are {', '.join(stages)}", user_location())
            lam = stages[stage]
        return pretty.text(lam, locs=True)

    def source(self, *args: Any, **kwargs: Any) -> str:
        """The code that the backend generates for these arguments."""
        _, entry = self._compiled(args, kwargs)
        return str(getattr(entry.run, "source", ""))

    def explain(self, *args: Any, **kwargs: Any) -> Report:
        """What the program is and what was done with it: inputs, passes, loops that were fused and why others were not,
        kernels with their operations and bytes, memory.  The report is text; notebooks show it as HTML."""
        from parray.api.explain import explain
        call = self._take_apart(self._values(args, kwargs))
        backend = self.backend or default_backend()
        with self._lock:
            return explain(self._entry(call, backend).program, call.leaves)

    def profile(self, *args: Any, **kwargs: Any) -> Report:
        """Run the program for a third of a second: each kernel's time, and which share of what the machine can do that
        is.  Raises BackendError on backends without kernels."""
        from parray.api.explain import profile
        call, entry = self._compiled(args, kwargs)
        return profile(entry.program, entry.run, call.leaves)

    def _compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Call, _Entry]:
        """The call and its program, compiled."""
        call = self._take_apart(self._values(args, kwargs))
        backend = self.backend or default_backend()
        with self._lock:
            return call, self._ready(self._entry(call, backend), call, backend)


def _from_content(f: bytes, static: Any, backend: str | None, name: str) -> Parallel[..., Any]:
    return Parallel(pickle.loads(f), static, backend, name)


def _default(value: Any) -> Any:
    """A parameter's default: known while tracing where it is hashable."""
    try:
        hash(value)
    except TypeError:
        return value
    return Static(value)


def _placed(error: SizeMismatch) -> SizeMismatch:
    """The error with the caller's line where it has none."""
    return error if error.loc is not None else SizeMismatch(error.message, user_location())


def _broadcast_ones(program: Program, conflict: Any, shapes: Sequence[tuple[int, ...]]) -> frozenset[Position]:
    """Dimensions of size 1 of this call that NumPy would broadcast in the conflict: constants of the next trace."""
    inputs = program.inputs
    dim = inputs[conflict.at[0]].dims[conflict.at[1]]
    if isinstance(dim, int):
        reasons, places = program.reasons.get(conflict.at, []), [conflict.at]
    else:
        reasons = program.reasons.get(dim, [])
        places = [(k, d) for k, given in enumerate(inputs) for d, size in enumerate(given.dims) if size is dim]
    if not any(r.broadcast for r in reasons):
        return frozenset()
    return frozenset(p for p in places if shapes[p[0]][p[1]] == 1)


@overload
def parallel(f: Callable[P, R], *, static: Any = (), backend: str | None = None, name: str | None = None
             ) -> Parallel[P, R]: ...


@overload
def parallel(f: None = None, *, static: Any = (), backend: str | None = None, name: str | None = None
             ) -> Callable[[Callable[P, R]], Parallel[P, R]]: ...


def parallel(f: Callable[..., Any] | None = None, *, static: Any = (), backend: str | None = None,
             name: str | None = None) -> Any:
    """Mark a function: NumPy arrays in, NumPy arrays out, compiled once for each signature.

    ``static`` names sizes of the annotations, or parameters, that are compile-time constants (True: all sizes);
    ``backend`` is "cpu" or "interp"."""
    if f is None:
        return lambda g: Parallel(g, static, backend, name)
    return Parallel(f, static, backend, name)


__all__ = ["P", "Parallel", "default_backend", "parallel", "use_backend"]
