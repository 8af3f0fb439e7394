"""What a piece of kernel code reads and binds, and which buffers it touches."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

from parray.backends.kernel_text import Merge, Publish
from parray.kernels import (ZERO, Assign, Buf, Call, Check, For, Heap, Let, Par, Serial, Tile, expressions, refs,
                            walk)
from parray.memory import touched
from parray.types import ScalarType


@dataclass
class Names:
    """Scalars a piece of code reads and binds, with their types, and the buffers it touches."""
    uses: dict[str, ScalarType] = field(default_factory=dict)
    defs: dict[str, ScalarType] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)           # loop variables and the like: never leave the kernel
    bufs: dict[str, Buf] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(stms: Sequence[Any]) -> Names:
        names = Names()
        for s in walk([_whole(s) for s in stms]):
            for e in expressions(s):
                names.uses.update((r.name, r.elem) for r in refs(e))
            names.bufs.update((b.name, b) for b in touched(s))
            match s:
                case Let(name=name, value=value) | Assign(name=name, value=value):
                    names.defs[name] = value.elem
                case For(var=var):
                    names.private.add(var)
                case Par(var=var, accs=accs):
                    names.private.update([var, "lane", *(a.other for a in accs)])
                    names.defs.update((a.name, a.init.elem) for a in accs)
                case Serial(scalars=scalars):
                    names.defs.update(scalars)
                case Heap(buf=buf):
                    names.private.add(buf.name)
                case Tile(loops=loops):
                    names.private.update(var for var, _ in loops)
                case Call(name=str(name), elem=elem):
                    names.defs[name] = elem
            match s:
                case Check(code=code) | Call(code=code) if code:
                    names.codes[f"code{code}"] = code
        for s in stms:                                          # what ran elsewhere left these
            if isinstance(s, Merge):
                names.uses.update((a.name, a.init.elem) for a in s.par.accs)
            elif isinstance(s, Publish):
                names.uses.update(s.serial.scalars)
        return names


def _whole(s: Any) -> Any:
    """A Merge or Publish as a statement with nothing else in it."""
    match s:
        case Merge(par=p):
            return Par(p.var, ZERO, [], p.accs, p.merge, [], p.fold, p.fold_start)
        case Publish(serial=p):
            return Serial([], p.scalars)
    return s
