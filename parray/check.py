"""The graph's rules of scope and type, verified: run after every pass in the tests.

Each variable is bound once and used after its binding; an operation's inferred types are the types of the variables it
is bound to (sizes by identity); lambdas fit the operations that hold them.  A violation is a fault of parray's own, so
it is an AssertionError that quotes the statement.
"""
from __future__ import annotations

from typing import Any, Iterable, Sequence

from parray.ir import Lambda, Monoid, Op, Stm, Var, atoms, size_vars
from parray.pretty import stm_text
from parray.soacs import (Argsort, Assert, Concat, Cond, Contract, CustomVjp, Foreign, Index, Iota, Loop, Prim,
                          Replicate, Overlap, Reshape, Scatter, Screma, Slice, Transpose, Update, While, Windows)
from parray.types import Type, bool_, i64

_I64 = Type(i64)
_BOOL = Type(bool_)


def check(lam: Lambda, free: Iterable[Var] = ()) -> Lambda:
    """Verify a lambda whose free variables are ``free``; the lambda itself, for use in a chain."""
    _Checker(free).lam(lam)
    return lam


class _Checker:
    def __init__(self, free: Iterable[Var]):
        self.scope: set[Var] = set(free)
        self.bound: set[Var] = set(self.scope)

    # --- scopes ------------------------------------------------------------------------------------------------------

    def bind(self, v: Var) -> None:
        assert v not in self.bound, f"{v} is bound twice"
        self.bound.add(v)
        self.scope.add(v)

    def use(self, a: Any) -> None:
        if isinstance(a, Var):
            assert a in self.scope, f"{a} is not in scope"

    def lam(self, lam: Lambda) -> None:
        outer = set(self.scope)
        for p in lam.params:
            self.bind(p)
        for p in lam.params:
            self.sizes(p.type)
        for stm in lam.stms:
            try:
                self.stm(stm)
            except AssertionError as e:
                if "\nin: " in str(e):
                    raise
                raise AssertionError(f"{e}\nin: {stm_text(stm)}") from e
        for r in lam.results:
            self.use(r)
        self.scope = outer

    def sizes(self, t: Type) -> None:
        for s in t.shape:
            assert isinstance(s, (int, Var)), f"{s!r} is not a size"
        for v in size_vars(t):
            self.use(v)
            assert v.type == _I64, f"size {v} has type {v.type}"

    def stm(self, stm: Stm) -> None:
        for a in atoms(stm.op):
            self.use(a)
        inferred = tuple(stm.op.infer())
        found = tuple(v.type for v in stm.vars)
        assert inferred == found, f"{stm.vars} have types {found}, the operation gives {inferred}"
        self.op(stm.op)
        for v in stm.vars:
            self.sizes(v.type)
            self.bind(v)

    def fits(self, lam: Lambda, params: Sequence[Type], results: Sequence[Type] | None, what: str) -> None:
        """The lambda takes ``params``, gives ``results``; check its body."""
        found = tuple(p.type for p in lam.params)
        assert found == tuple(params), f"{what} takes {found}, is given {tuple(params)}"
        self.lam(lam)
        if results is not None:
            assert lam.result_types == tuple(results), f"{what} gives {lam.result_types}, not {tuple(results)}"

    def monoid(self, m: Monoid, types: Sequence[Type], what: str) -> None:
        ne = tuple(a.type for a in m.ne)
        assert ne == tuple(types), f"{what} has a neutral element of type {ne}, operands {tuple(types)}"
        self.fits(m.op, [*types, *types], types, what)

    def size(self, s: Any) -> None:
        assert isinstance(s, (int, Var)) and not isinstance(s, bool), f"{s!r} is not a size"
        if isinstance(s, Var):
            assert s.type == _I64, f"size {s} has type {s.type}"

    # --- operations --------------------------------------------------------------------------------------------------

    def op(self, op: Op) -> None:
        match op:
            case Prim():
                assert Prim.of(op.prim, op.args, op.elem) == op, f"{op.prim} does not give {op.elem}"
            case Iota() | Replicate():
                self.size(op.n)
            case CustomVjp():
                for l in (op.lam, op.fwd):
                    self.fits(l, [a.type for a in op.args], list(l.result_types), "a function with its own derivative")
            case Foreign(function=f):
                for s in op.extents:
                    self.size(s)
                for a, d in zip(op.args, f.args, strict=True):
                    assert (a.type.elem, a.type.rank) == (d.elem, len(d.dims)), f"{f} takes {d}, not {a.type}"
            case Argsort():
                self.size(op.n)
                assert all(k.type.shape == (op.n,) for k in op.keys), "keys of one length"
            case Index():
                self.index(op)
            case Transpose():
                assert sorted(op.perm) == list(range(op.x.type.rank)), f"{op.perm} is no permutation"
            case Reshape():
                self.reshape(op)
            case Slice():
                self.slice(op)
            case Concat():
                self.concat(op)
            case Update():
                assert op.x.type.elem == op.value.type.elem and len(op.starts) == op.x.type.rank, "an update that fits"
            case Windows(x=x, sizes=shape) | Overlap(y=x, n=shape):
                assert 0 <= op.axis < x.type.rank - isinstance(op, Overlap), f"axis {op.axis} of {x.type}"
                assert len(op.steps) == 2 and min(op.steps) > 0, f"steps {op.steps}"
                for s in shape if isinstance(shape, tuple) else (shape,):
                    self.size(s)
            case Assert():
                assert op.cond.type == _BOOL, f"condition of type {op.cond.type}"
            case Contract():
                self.contract(op)
            case Screma():
                self.screma(op)
            case Scatter():
                self.scatter(op)
            case Loop():
                self.size(op.n)
                types = [a.type for a in op.inits]
                self.fits(op.lam, [_I64, *types], types, "the loop's body")
            case While():
                types = [a.type for a in op.inits]
                self.fits(op.cond, types, [_BOOL], "the loop's condition")
                self.fits(op.lam, types, types, "the loop's body")
            case Cond():
                assert op.pred.type == _BOOL, f"condition of type {op.pred.type}"
                self.fits(op.then, [], None, "then")
                self.fits(op.orelse, [], op.then.result_types, "else")
            case _:
                raise AssertionError(f"unknown operation {op.name}")

    def index(self, op: Index) -> None:
        assert 0 < len(op.indices) <= op.x.type.rank, f"{len(op.indices)} indices of rank {op.x.type.rank}"
        for i in op.indices:
            assert i.type == _I64, f"index of type {i.type}"

    def reshape(self, op: Reshape) -> None:
        for s in op.shape:
            self.size(s)
        if all(isinstance(s, int) for s in (*op.shape, *op.x.type.shape)):
            old, new = 1, 1
            for s in op.x.type.shape:
                old *= s
            for s in op.shape:
                new *= s
            assert old == new, f"{op.x.type.shape} cannot be {op.shape}"

    def slice(self, op: Slice) -> None:
        rank = op.x.type.rank
        assert len(op.starts) == len(op.sizes) == len(op.steps) == rank, f"slices of rank {rank}"
        for s in op.sizes:
            self.size(s)
        for a in op.starts:
            assert a.type == _I64, f"start of type {a.type}"
        for s in op.steps:
            assert s != 0 if isinstance(s, int) else s.type == _I64, f"step {s}"

    def concat(self, op: Concat) -> None:
        self.size(op.n)
        assert op.xs, "nothing to concatenate"
        row = op.xs[0].type.row()
        for x in op.xs:
            assert x.type.row() == row, f"rows of type {x.type.row()} and {row}"
        sizes = [x.type.shape[0] for x in op.xs]
        if all(isinstance(s, int) for s in (op.n, *sizes)):
            assert op.n == sum(sizes), f"{sizes} do not sum to {op.n}"

    def contract(self, op: Contract) -> None:
        assert op.x.type.elem == op.y.type.elem, f"{op.x.type} with {op.y.type}"
        sizes: dict[int, Any] = {}
        for x, axes in ((op.x, op.x_axes), (op.y, op.y_axes)):
            assert len(axes) == x.type.rank and len(set(axes)) == len(axes), f"axes {axes} of {x.type}"
            for a, s in zip(axes, x.type.shape):
                assert sizes.setdefault(a, s) == s, f"axis {a} has sizes {sizes[a]} and {s}"
        assert len(set(op.out_axes)) == len(op.out_axes) and set(op.out_axes) <= set(sizes), f"axes {op.out_axes}"

    def rows(self, n: Any, xs: Sequence[Any]) -> list[Type]:
        self.size(n)
        for x in xs:
            assert isinstance(x, Var) and x.type.rank and x.type.shape[0] == n, f"{x}: {x.type} is no input of size {n}"
        return [x.type.row() for x in xs]

    def screma(self, op: Screma) -> None:
        rows = self.rows(op.n, op.xs)
        self.fits(op.lam, rows, None, "the map's lambda")
        assert op.map_width >= 0, "too few results for the operators"
        for m, types in zip(op.scans + op.reds, op.groups(op.lam.result_types), strict=True):
            self.monoid(m, types, "the operator")

    def scatter(self, op: Scatter) -> None:
        rows = self.rows(op.n, op.xs)
        values = []
        for d in op.dests:
            assert d.type.shape[:op.rank] == op.dests[0].type.shape[:op.rank], f"destinations differ: {d.type}"
            assert 0 < op.rank <= d.type.rank, f"rank {op.rank} of {d.type}"
            values.append(d.type.row(op.rank))
        self.fits(op.lam, rows, [_I64] * op.rank + values, "the scatter's lambda")
        if op.op is not None:
            self.monoid(op.op, values, "the scatter's operator")
