"""The overlap of a contraction as a contraction of windows, so that the gradient of a convolution is one too.

    overlap (contract y w "i.., a.. -> ia..")   =>   contract (windows (spread y)) (reverse w) "pa.., a.. -> p.."

where y has the axis i (places of windows) and w the axis a (places in a window); ``spread`` puts y's elements a step
apart into zeros, with a window's length of zeros before them.  Windows along other dimensions and earlier spreading are
looked through: what is written out is never larger than y with its zeros.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, Sequence

from parray import builder as b
from parray.ir import Atom, Const, Op, Stm, Var, size_atom
from parray.soacs import Contract, Overlap, Replicate, Slice, Update, Windows
from parray.types import Type, i64

Producers = dict[Var, Op]


def merged(stms: Sequence[Stm]) -> list[Stm]:
    """The statements with every overlap of a contraction as a contraction."""
    if not any(isinstance(s.op, Overlap) for s in stms):
        return list(stms)
    made: Producers = {}
    out: list[Stm] = []
    for stm in stms:
        new = _contraction(stm, made) if isinstance(stm.op, Overlap) else None
        for s in new or [stm]:
            made.update(dict.fromkeys(s.vars, s.op))
            out.append(s)
    return out


def _contraction(stm: Stm, made: Mapping[Var, Op]) -> list[Stm] | None:
    op = stm.op
    assert isinstance(op, Overlap)
    c = made.get(op.y)
    if not isinstance(c, Contract):
        return None
    i, a = c.out_axes[op.axis:op.axis + 2]
    x, w, x_axes, w_axes = c.x, c.y, c.x_axes, c.y_axes
    if i in w_axes:
        x, w, x_axes, w_axes = w, x, w_axes, x_axes
    if i in w_axes or a in x_axes:
        return None
    with b.scope(root=True) as s, b.at(stm.loc):
        dim, length = x_axes.index(i), c.sizes()[a]
        spread = _Spread(made)(x, dim, op, length)
        windows = b.emit1(Windows(spread, dim, (op.n, length), (1, op.steps[1])))
        back = b.emit1(_reversed(w, w_axes.index(a), length))
        axes = (*x_axes[:dim + 1], a, *x_axes[dim + 1:])
        new = Contract(windows, back, axes, w_axes, tuple(o for o in c.out_axes if o != a))
    return [*s.stms, Stm(stm.vars, new, stm.loc)]


def _reversed(w: Var, dim: int, n: Any) -> Slice:
    """``w`` from back to front along a dimension."""
    zero = Const(0, i64)
    starts: tuple[Atom, ...] = tuple(size_atom(b.size_add(n, -1)) if d == dim else zero for d in range(w.type.rank))
    return Slice(w, starts, w.type.shape, tuple(-1 if d == dim else 1 for d in range(w.type.rank)))


class _Spread:
    """``x`` with its elements ``steps[0]`` apart along a dimension, and zeros around them."""

    def __init__(self, made: Mapping[Var, Op]):
        self.made = made

    def __call__(self, x: Var, dim: int, op: Overlap, length: Any) -> Any:
        made = self.made.get(x)
        if isinstance(made, Windows) and dim not in (made.axis, made.axis + 1):
            inner = self(made.x, dim - (dim > made.axis), op, length)
            return b.emit1(replace(made, x=inner))
        before = size_atom(b.size_mul(b.size_add(length, -1), op.steps[1]))
        total = b.size_add(op.n, b.size_mul(b.size_add(length, -1), op.steps[1]))
        starts: tuple[Atom, ...] = (Const(0, i64),) * x.type.rank
        steps: tuple[Any, ...] = (1,) * x.type.rank
        shape = x.type.shape
        if isinstance(made, Update) and made.value.type.shape[dim] == x.type.shape[dim] and self.is_zero(made.x):
            x, starts, steps, shape = made.value, made.starts, made.steps, made.x.type.shape
        zeros: Any = b.zeros(Type(x.type.elem, (*shape[:dim], total, *shape[dim + 1:])))
        return b.emit1(Update(zeros, x, (*starts[:dim], before, *starts[dim + 1:]),
                              (*steps[:dim], op.steps[0], *steps[dim + 1:])))

    def is_zero(self, x: Atom) -> bool:
        """Whether an array is zeros that were just made."""
        while isinstance(x, Var):
            op = self.made.get(x)
            if not isinstance(op, Replicate):
                return False
            x = op.x
        return bool(x.value == 0)
