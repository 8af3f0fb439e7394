"""Forward mode: every operation is emitted together with its tangents.

    y = map (\\x. sin x) xs     =>      y, y_dot = map (\\x x_dot. (sin x, cos x * x_dot)) xs xs_dot

Lambdas become dual lambdas: active parameters and results get a tangent each, after the values.  A reduction's operator
works on pairs; nothing but the primal's structure is needed.
"""
from __future__ import annotations

from typing import Any, Sequence

from parray import builder as b
from parray.ad import activity
from parray.ad.reverse import distinct
from parray.ir import Atom, Lambda, Monoid, Op, Stm, Substitution, Var
from parray.soacs import Prim, Reshape
from parray.soacs.monoids import component_prims
from parray.types import SIZE


class Forward(activity.Activity):
    """Tangents of variables; those without have none (zero)."""

    def __init__(self) -> None:
        self.tangents: dict[Var, Atom] = {}

    def is_active(self, a: Any) -> bool:
        return isinstance(a, Var) and a in self.tangents

    def tangent(self, a: Any) -> Any:
        """The tangent of an atom, or None where it is zero."""
        return self.tangents.get(a) if isinstance(a, Var) else None

    def tangent_or_zero(self, a: Any) -> Any:
        t = self.tangent(a)
        return b.zeros(a.type) if t is None else t

    def set(self, v: Var, tangent: Atom | None) -> None:
        """Note the tangent of a variable just bound."""
        if tangent is not None and not v.type.elem.is_bool:
            if tangent.type != v.type:
                tangent = b.emit1(Reshape(tangent, v.type.shape))   # type: ignore[arg-type]   # sizes are equal
            self.tangents[v] = tangent

    def alias(self, v: Var, a: Atom) -> None:
        """Bind ``v`` to the value of ``a``, tangent included."""
        array = isinstance(a, Var) and a.type.rank
        self.bind((v,), Reshape(a, a.type.shape) if array else Prim("convert", (a,), a.type.elem))     # type: ignore
        self.set(v, self.tangent(a))

    def emit(self, stm: Stm) -> None:
        """Emit a statement as it is."""
        b.current().stms.append(stm)

    def bind(self, vars: Sequence[Var], op: Op) -> None:
        """Emit ``vars = op``."""
        b.current().stms.append(Stm(tuple(vars), op, b.here()))

    def run(self, lam: Lambda, args: Sequence[Atom]) -> tuple[Atom, ...]:
        """Emit the lambda applied to ``args`` with the tangents they have; its results."""
        sub = Substitution(dict(zip(lam.params, args, strict=True)))
        for old in lam.stms:
            stm = sub.stm(old)
            with b.at(stm.loc):
                if any(activity.results(stm.op, self.is_active)):
                    stm.op.jvp(self, stm)
                else:
                    self.emit(stm)
        return tuple(sub.atom(r) for r in lam.results)

    # --- tangents of several results -------------------------------------------------------------------------------

    def tangent_vars(self, vars: Sequence[Var], wanted: Sequence[bool]) -> list[Var | None]:
        """Fresh variables for the tangents of active results, None for the others."""
        new = [Var(v.type) if on else None for v, on in zip(vars, wanted, strict=True)]
        self.tangents.update((v, t) for v, t in zip(vars, new) if t is not None)
        return new

    def tangents_of(self, vars: Sequence[Var], wanted: Sequence[bool]) -> tuple[Var, ...]:
        """The fresh variables alone."""
        return tuple(t for t in self.tangent_vars(vars, wanted) if t is not None)

    def paired(self, results: Sequence[Atom], wanted: Sequence[bool]) -> list[tuple[Any, Any]]:
        """(result, tangent or None) of a dual lambda's results."""
        tangents = iter(results[len(wanted):])
        return [(r, next(tangents) if on else None) for r, on in zip(results, wanted)]

    # --- lambdas -----------------------------------------------------------------------------------------------------

    def dual(self, lam: Lambda, xs: Sequence[Var], wanted: Sequence[bool]) -> tuple[Lambda, tuple[Var, ...]]:
        """The lambda on elements of ``xs`` and of their tangents, with tangents of wanted results; its inputs."""
        on = [k for k, x in enumerate(xs) if self.is_active(x)]
        inputs = tuple(xs) + tuple(self.tangent(xs[k]) for k in on)
        return b.make_lambda(b.row_types(inputs), lambda *ps: self._dual_body(lam, ps, on, wanted)), inputs

    def _dual_body(self, lam: Lambda, params: Sequence[Any], on: Sequence[int], wanted: Sequence[bool]) -> list[Atom]:
        """``params``: the lambda's, then the tangents of those in ``on``."""
        k = len(lam.params)
        self.tangents.update((params[j], t) for j, t in zip(on, params[k:], strict=True))
        results = self.run(lam, params[:k])
        return list(results) + [self.tangent_or_zero(r) for r, f in zip(results, wanted, strict=True) if f]

    def dual_loop(self, lam: Lambda, inits: Sequence[Atom], flags: Sequence[bool], first: int
                  ) -> tuple[Lambda, tuple[Atom, ...]]:
        """A loop's body that carries tangents too, and its initial values; ``first`` parameters are not carried."""
        on = [k for k, f in enumerate(flags) if f]
        carried = tuple(inits) + tuple(self.tangent_or_zero(inits[k]) for k in on)
        types = [SIZE] * first + [a.type for a in carried]
        return b.make_lambda(types, lambda *ps: self._dual_body(lam, ps, [k + first for k in on], flags)), carried

    def dual_monoid(self, m: Monoid, flags: Sequence[bool]) -> Monoid:
        """The operator on values and tangents of the components in ``flags``."""
        on = [k for k, f in enumerate(flags) if f]
        types = [a.type for a in m.ne]
        types += [types[k] for k in on]

        def body(*ab: Any) -> list[Atom]:
            w, width = m.width, len(types)
            x, y = ab[:width], ab[width:]
            return self._dual_body(m.op, x[:w] + y[:w] + x[w:] + y[w:], on + [w + k for k in on], flags)

        ne = m.ne + tuple(self.tangent_or_zero(m.ne[k]) for k in on)
        return Monoid(b.make_lambda(types + types, body), ne, m.commutative)

    def dual_monoids(self, m: Monoid, flags: Sequence[bool]) -> list[tuple[Monoid, list[tuple[int, int]]]]:
        """Operators for the values and tangents of a reduction or scan, each with what it works on: components, as
        (k, 0) for the value and (k, 1) for the tangent.  Sums of tangents are sums of their own."""
        if not any(flags):
            return [(m, [(k, 0) for k in range(m.width)])]
        if component_prims(m.op) == ["add"]:
            tangents = b.sum_monoid(m.ne[0].type)
            if self.is_active(m.ne[0]):
                tangents = Monoid(tangents.op, (self.tangent(m.ne[0]),), True)
            return [(m, [(0, 0)]), (tangents, [(0, 1)])]
        picks = [(k, 0) for k in range(m.width)] + [(k, 1) for k, f in enumerate(flags) if f]
        return [(self.dual_monoid(m, flags), picks)]


def jvp(lam: Lambda, args: Sequence[Atom], tangents: Sequence[Atom | None]
        ) -> tuple[tuple[Atom, ...], tuple[Atom, ...]]:
    """Emit ``lam(args)`` and its derivative in the direction of ``tangents`` (None is zero); the results and their
    tangents.  What the lambda captures is constant."""
    wrt = [k for k, t in enumerate(tangents) if t is not None and not args[k].type.elem.is_bool]
    args = distinct(lam, args, wrt)
    engine = Forward()
    engine.tangents.update((args[k], tangents[k]) for k in wrt)     # type: ignore[misc]
    results = engine.run(lam, args)
    return results, tuple(engine.tangent_or_zero(r) for r in results)
