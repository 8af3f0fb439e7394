"""What a failed check leaves unbound: the last step of lowering.

    check n == m; if n == m: x = sum(..);  out[0] = x     =>     x = 0;  check n == m;  if n == m: x = sum(..); ..

The rest of a block whose sizes turn out to differ does not run, for it would use memory of another size; but blocks
around it read what it binds.  They get zeros, which are sizes of nothing, and the failure is raised in the end.
"""
from __future__ import annotations

from collections import Counter
from typing import Container

from parray.kernels import Assign, Call, Heap, If, Let, Lit, Par, Serial, Stm, blocks, expressions, refs, walk
from parray.types import ScalarType


def declare(body: list[Stm]) -> None:
    """Bind what is used outside the rests of blocks, before them."""
    if any(isinstance(s, If) and s.rest for s in walk(body)):
        _block(body, _used(body))


def _block(stms: list[Stm], everywhere: Counter[str]) -> None:
    for k in reversed(range(len(stms))):
        s = stms[k]
        for block in blocks(s):
            _block(block, everywhere)
        if isinstance(s, If) and s.rest:
            inside = _used(s.then)
            escaping = {n: elem for n, elem in _bound(s.then).items() if everywhere[n] > inside[n]}
            _assign(s.then, escaping)
            stms[k:k] = [Let(n, Lit(elem.dtype.type(0).item(), elem)) for n, elem in escaping.items()]


def _assign(stms: list[Stm], names: Container[str]) -> None:
    for k, s in enumerate(stms):
        if isinstance(s, Let) and s.name in names:
            stms[k] = Assign(s.name, s.value)
        elif isinstance(s, Heap):
            _assign(s.body, names)


def _used(stms: list[Stm]) -> Counter[str]:
    return Counter(r.name for s in walk(stms) for e in expressions(s) for r in refs(e))


def _bound(stms: list[Stm]) -> dict[str, ScalarType]:
    """The names that a block leaves, with their types."""
    names: dict[str, ScalarType] = {}
    for s in stms:
        match s:
            case Let(name=name, value=value):
                names[name] = value.elem
            case Call(name=str(name), elem=elem):
                names[name] = elem
            case Par(accs=accs):
                names.update((a.name, a.init.elem) for a in accs)
            case Serial(scalars=scalars):
                names.update(scalars)
            case Heap(body=body):
                names.update(_bound(body))
    return names
