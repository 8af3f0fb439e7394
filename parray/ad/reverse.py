"""Reverse mode: one scope's forward part and its reverse.

A scope is differentiated in two parts.  `Reverse.run` emits a lambda's statements and keeps them on a tape, with the
set of active variables; `Reverse.back` walks the tape backwards and hands each statement the cotangents of its results
(`Op.vjp`), which adds to those of its operands.  No tape crosses scopes: the reverse of a nested lambda runs the
lambda's forward part again inside the reverse lambda, and what is not needed is dead code (Futhark's way).  How
cotangents leave nested lambdas stands in `parray.ad.nested` and `loops`.

    y = map (\\x. f x) xs      =>      xs_bar += map (\\x y_bar. let z = f x in f'_x(z) y_bar) xs y_bar
"""
from __future__ import annotations

from typing import Any, Callable, Iterator, Sequence

from parray import builder as b
from parray.ad import activity, loops, nested, sparse
from parray.ad.invariant import hoisted
from parray.ad.places import ZERO, Along, At, widen
from parray.ad.sparse import Bar, Sparse
from parray.builder import Scope
from parray.ir import Atom, Const, Lambda, Stm, Substitution, Var
from parray.soacs import Replicate, Reshape

Tape = list[Stm]


class Reverse(activity.Activity):
    """The cotangents of one scope.  Scopes share what is active and what operations noted (``memo``)."""

    def __init__(self, parent: Reverse | None = None, scope: Scope | None = None, params: Sequence[Var] = ()):
        self.active: set[Var] = parent.active if parent else set()
        self.memo: dict[Var, Any] = parent.memo if parent else {}
        self.replicated: dict[Var, Atom] = parent.replicated if parent else {}
        self.producers: dict[Scope, tuple[int, dict[Var, Any]]] = parent.producers if parent else {}
        self.bars: dict[Var, Bar] = {}
        self.parent = parent
        self.counters: set[Var] = set()             # parameters that count the runs of this lambda
        self.scope = scope
        self.params = frozenset(params)
        self.in_map: bool = parent is not None and parent.in_map
        self.again = parent is not None             # a nested forward part repeats what ran before
        self.tape: Tape = []

    def child(self, scope: Scope, params: Sequence[Var] = ()) -> Reverse:
        """For a lambda that is being built in ``scope``."""
        return Reverse(self, scope, params)

    def pass_(self) -> Reverse:
        """A new reverse pass over the same forward part."""
        new = Reverse(self)
        new.again = self.again
        return new

    def chain(self) -> Iterator[Reverse]:
        """This scope and those around it."""
        scope: Reverse | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def is_local(self, a: Any) -> bool:
        """Whether an atom is bound in this lambda."""
        return isinstance(a, Var) and (a in self.params or self.producer(a, self.scope) is not None)

    def producer(self, v: Any, scope: Scope | None) -> Any:
        """The operation of a scope that gives a variable, or None."""
        if scope is None or not isinstance(v, Var):
            return None
        known, ops = self.producers.get(scope, (0, {}))
        for stm in scope.stms[known:]:
            ops.update((out, stm.op) for out in stm.vars)
        self.producers[scope] = len(scope.stms), ops
        return ops.get(v)

    # --- the forward part --------------------------------------------------------------------------------------------

    def is_active(self, a: Any) -> bool:
        return isinstance(a, Var) and a in self.active

    def run(self, lam: Lambda, args: Sequence[Atom]) -> tuple[tuple[Atom, ...], Tape]:
        """Emit the lambda applied to ``args``; its results and its tape."""
        outer, self.tape = self.tape, []
        results = self.inline(lam, args)
        tape, self.tape = self.tape, outer
        return results, tape

    def inline(self, lam: Lambda, args: Sequence[Atom]) -> tuple[Atom, ...]:
        """Emit the lambda applied to ``args`` as part of the current tape; its results."""
        sub = Substitution(dict(zip(lam.params, args, strict=True)))
        for stm in lam.stms:
            self.forward(sub.stm(stm))
        return tuple(sub.atom(r) for r in lam.results)

    def forward(self, stm: Stm) -> None:
        """Emit one statement in the form its reverse wants."""
        with b.at(stm.loc):
            if any(activity.results(stm.op, self.is_active)):
                stm.op.forward(self, stm)
            elif not (self.again and stm.op.effect):
                self.record(stm)

    def record(self, stm: Stm) -> None:
        """Emit a statement as it is and put it on the tape if it is active."""
        b.current().stms.append(stm)
        flags = activity.results(stm.op, self.is_active)
        self.active.update(v for v, on in zip(stm.vars, flags) if on and not v.type.elem.is_bool)
        if any(flags):
            self.tape.append(stm)

    # --- cotangents --------------------------------------------------------------------------------------------------

    def add(self, x: Any, bar: Atom | None) -> None:
        """Add a dense cotangent."""
        if bar is None or not self.is_active(x):
            return
        if bar.type != x.type:
            bar = b.emit1(Reshape(bar, x.type.shape))               # type: ignore[arg-type]   # sizes are equal
        known = self.bars.setdefault(x, Bar())
        known.dense = sparse.add_dense(known.dense, bar)

    def add_sparse(self, x: Any, s: Sparse) -> None:
        """Add a cotangent to some places of an array."""
        if not self.is_active(x):
            return
        s = sparse.collapse(s, x.type.shape)
        if s.places:
            self.bars.setdefault(x, Bar()).sparse.append(s)
        else:
            self.add(x, s.value)

    def add_at(self, x: Any, indices: Sequence[Atom], bar: Atom | None) -> None:
        """Add a cotangent to ``x[indices]``."""
        if bar is not None:
            self.add_sparse(x, Sparse(bar, tuple(At(widen(i)) for i in indices)))

    def add_slice(self, x: Any, starts: Sequence[Atom], steps: Sequence[Atom], bar: Atom) -> None:
        """Add a cotangent to ``x[start::step, ..]``."""
        places = tuple(Along(((d, step),), () if start == ZERO else (start,))
                       for d, (start, step) in enumerate(zip(starts, steps)))
        self.add_sparse(x, Sparse(bar, places, bar.type.shape))

    def take(self, x: Any) -> Atom | None:
        """The whole cotangent of a variable, as one dense value; forgotten here."""
        bar = self.bars.pop(x, None) if isinstance(x, Var) else None
        return sparse.densify(bar, x.type) if bar else None

    def take_or_zero(self, x: Var) -> Atom:
        bar = self.take(x)
        return b.zeros(x.type) if bar is None else bar

    def replicate(self, n: Any, bar: Atom | None) -> Atom | None:
        """n times the same cotangent; a map that takes it uses the one value."""
        if bar is None:
            return None
        out = b.emit1(Replicate(n, bar))
        self.replicated[out] = bar
        return out

    # --- nested lambdas: what operations call for theirs -------------------------------------------------------------

    map_back = nested.map_back
    cond_back = nested.cond_back
    loop_lambda = loops.loop_lambda
    loop_back = loops.loop_back

    # --- the reverse part --------------------------------------------------------------------------------------------

    def back(self, tape: Tape) -> None:
        """Walk a tape backwards."""
        for stm in reversed(tape):
            with b.at(stm.loc):
                self._pass_on_sparse(stm)
                bars = tuple(self.take(v) for v in stm.vars)
                if any(bar is not None for bar in bars):
                    stm.op.vjp(self, stm, bars)

    def _pass_on_sparse(self, stm: Stm) -> None:
        """Let a view give sparse cotangents on, so that ``x[i][j]`` costs no more than ``x[i, j]``."""
        bar = self.bars.get(stm.vars[0])
        if bar and bar.sparse:
            bar.sparse = [s for s in bar.sparse if not stm.op.vjp_sparse(self, stm, s)]

    def replay(self, lam: Lambda, args: Sequence[Atom], bars: Sequence[Atom | None]) -> None:
        """Add the cotangents of ``lam(args)``, run here for this purpose."""
        results, tape = self.run(lam, args)
        for r, bar in zip(results, bars, strict=True):
            self.add(r, bar)
        self.back(tape)


def distinct(lam: Lambda, args: Sequence[Atom], wrt: Sequence[int]) -> tuple[Atom, ...]:
    """Arguments such that those in ``wrt`` are variables used for nothing else (they are copied where needed)."""
    from parray.ir import free_vars
    captured = free_vars(lam)
    out: list[Atom] = list(args)
    for k in wrt:
        a = args[k]
        if isinstance(a, Const) or a in captured or sum(a is other for other in args) > 1:
            out[k] = copy(a)
    return tuple(out)


def copy(a: Atom) -> Atom:
    """The same value under another name."""
    from parray.soacs import Prim
    if a.type.is_scalar:
        return b.emit1(Prim("convert", (a,), a.type.elem))
    return b.emit1(Reshape(a, a.type.shape))                        # type: ignore[arg-type]


def vjp(lam: Lambda, args: Sequence[Atom], wrt: Sequence[int]
        ) -> tuple[tuple[Atom, ...], Callable[[Sequence[Atom | None]], tuple[Atom, ...]]]:
    """Emit ``lam(args)`` here; its results and the pullback, which emits the cotangents of ``args[k] for k in wrt`` for
    given cotangents of the results (None is zero).  What the lambda captures is constant."""
    args = distinct(lam, args, wrt)
    engine = Reverse()
    engine.active.update(args[k] for k in wrt if not args[k].type.elem.is_bool)     # type: ignore[misc]
    results, tape = engine.run(hoisted(lam), args)

    def pullback(bars: Sequence[Atom | None]) -> tuple[Atom, ...]:
        back = engine.pass_()
        for r, bar in zip(results, bars, strict=True):
            back.add(r, bar)
        back.back(tape)
        return tuple(back.take_or_zero(args[k]) for k in wrt)       # type: ignore[arg-type]

    return results, pullback
