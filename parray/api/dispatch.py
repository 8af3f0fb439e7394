"""The fast path of a call: for each program a function that recognises the arguments it was made for and runs it.

    def dispatch(args):
        try:
            a0, a1 = args
            if type(a0) is not Params: return MISS
            x0 = a0.w
            if type(x0) is not ndarray or x0.dtype is not d0: return MISS
            if x0.flags.num & 257 != 257: x0 = canonical(x0)
            n0, n1 = x0.shape
            ...
        except ValueError: return MISS                  # another rank
        r = run((n0, n1), [x0, x1])
        return r[0]

It asks nothing of the arguments that the program does not depend on, and gives MISS whenever something is not as it
was; the slow path in `parray.api.parallel` then converts, traces or says what is wrong.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from parray.program import Input, Program, canonical
from parray.tree import Tree
from parray.types import ScalarType

MISS = object()
_FLAGS = 0x101                                  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED


class Static:
    """A parameter that is a Python value known while tracing: declared static, or left at its default."""

    def __init__(self, value: Any):
        self.value = value
        self.key = (type(value), value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class _Writer:
    """Source of a dispatcher and the values it names."""

    def __init__(self, program: Program, run: Callable[..., Any]):
        self.program = program
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"MISS": MISS, "ndarray": np.ndarray, "canonical": canonical, "run": run}
        self.inputs = iter(program.inputs)
        self.leaves: list[str] = []
        self.sizes: dict[Any, str] = {}
        self.count = 0

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def constant(self, value: Any) -> str:
        name = self.fresh("K")
        self.names[name] = value
        return name

    def miss_if(self, test: str) -> None:
        self.lines.append(f"if {test}: return MISS")

    # --- arguments ---------------------------------------------------------------------------------------------------

    def argument(self, name: str, structure: Tree | Static) -> None:
        if isinstance(structure, Static):
            kind, value = structure.key
            same = f"type({name}) is {self.constant(kind)} and {name} == {self.constant(value)}"
            self.miss_if(f"{name} is not {self.constant(structure)} and not ({same})")
        else:
            self.node(name, structure)

    def node(self, name: str, t: Tree) -> None:
        if t.kind == "leaf":
            self.leaf(name, next(self.inputs))
            return
        if t.kind == "none":
            self.miss_if(f"{name} is not None")
            return
        size = f" or len({name}) != {len(t.children)}" if t.kind in ("tuple", "list", "dict") else ""
        self.miss_if(f"type({name}) is not {self.constant(t.cls)}{size}")
        for k, child in enumerate(t.children):
            inner = self.fresh("x")
            match t.kind:
                case "dict":
                    self.lines.append(f"{inner} = {name}.get({self.constant(t.keys[k])}, MISS)")
                case "data":
                    self.lines.append(f"{inner} = {name}.{t.keys[k]}")
                case _:
                    self.lines.append(f"{inner} = {name}[{k}]")
            self.node(inner, child)

    def leaf(self, name: str, given: Input) -> None:
        self.leaves.append(name)
        if given.weak:
            self.weak(name, given.elem)
        elif not given.dims:
            self.miss_if(f"type({name}) is not {self.constant(given.elem.dtype.type)}")
        else:
            self.miss_if(f"type({name}) is not ndarray or {name}.dtype is not {self.constant(given.elem.dtype)}")
            self.lines.append(f"if {name}.flags.num & {_FLAGS} != {_FLAGS}: {name} = canonical({name})")
            self.shape(name, given.dims)

    def weak(self, name: str, elem: ScalarType) -> None:
        """A Python number: its own type decides the program, too."""
        kind = {"b": "bool", "f": "float"}.get(elem.kind, "int")
        self.miss_if(f"type({name}) is not {kind}")
        if elem.is_integer:
            info = np.iinfo(elem.dtype)
            self.miss_if(f"not {info.min} <= {name} <= {info.max}")

    def capture(self, array: Any, now: Any) -> str:
        """A captured array: itself, or what is in it when the call is made."""
        return self.constant(array) if now is array else \
            f"canonical({self.constant(array)}, {self.constant(now.dtype)})"

    def shape(self, name: str, dims: Sequence[Any]) -> None:
        new = [d for d in dict.fromkeys(dims) if not isinstance(d, int) and d not in self.sizes]
        if not new:
            self.miss_if(f"{name}.shape != ({''.join(self.dim(d) + ', ' for d in dims)})")
            return
        targets, checks = [], []
        for d in dims:
            target = self.fresh("n")
            targets.append(target)
            if d in self.sizes or isinstance(d, int):
                checks.append(f"{target} != {self.dim(d)}")
            else:
                self.sizes[d] = target
        self.lines.append(f"{''.join(t + ', ' for t in targets)} = {name}.shape")      # ValueError: another rank
        if checks:
            self.miss_if(" or ".join(checks))

    def dim(self, d: Any) -> str:
        return str(d) if isinstance(d, int) else self.sizes[d]

    # --- results -----------------------------------------------------------------------------------------------------

    def result(self, t: Tree) -> str:
        """An expression for the value of this structure, taking leaves of ``r`` in order."""
        if t.kind == "leaf":
            self.taken += 1
            return f"r[{self.taken - 1}]"
        parts = [self.result(c) for c in t.children]
        match t.kind:
            case "none":
                return "None"
            case "tuple":
                return f"({''.join(p + ', ' for p in parts)})"
            case "list":
                return f"[{', '.join(parts)}]"
            case "dict":
                return "{" + ", ".join(f"{self.constant(k)}: {p}" for k, p in zip(t.keys, parts)) + "}"
            case "named":
                return f"{self.constant(t.cls)}({', '.join(parts)})"
        make = getattr(t.cls, "_make", None)
        if make is not None:
            return f"{self.constant(make)}(({''.join(p + ', ' for p in parts)}))"
        return f"{self.constant(t.cls)}({', '.join(f'{k}={p}' for k, p in zip(t.keys, parts))})"

    taken = 0


def make_dispatcher(program: Program, structures: Sequence[Tree | Static], run: Callable[..., Any]
                    ) -> Callable[[tuple[Any, ...]], Any]:
    """The function ``dispatch(args)``: see the module."""
    w = _Writer(program, run)
    arguments = [f"a{k}" for k in range(len(structures))]
    w.miss_if(f"len(args) != {len(arguments)}")
    if arguments:
        w.lines.append(f"{''.join(a + ', ' for a in arguments)} = args")
    for name, structure in zip(arguments, structures):
        w.argument(name, structure)
    sizes = "".join(w.sizes[s] + ", " for s in program.sizes)
    leaves = [*w.leaves, *(w.capture(a, now) for a, now in zip(program.captures, program.captured()))]
    text = ("def dispatch(args):\n    try:\n        pass\n" + "".join(f"        {line}\n" for line in w.lines)
            + "    except ValueError: return MISS\n"
            f"    r = run(({sizes}), [{', '.join(leaves)}])\n    return {w.result(program.out_tree)}\n")
    exec(compile(text, f"<call of {program.name}>", "exec"), w.names)
    return w.names["dispatch"]                                                       # type: ignore[no-any-return]
