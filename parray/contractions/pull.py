"""Sums of products taken out of the nests they stand in, as contractions of a body's arrays.

    map (\\x -> map (\\w -> .. s .. where s = reduce (+) 0 (w * x)) ws) xs
        =>  c = contract xs ws "tn,mn->tm";  map (\\x cx -> map (\\w s -> .. s ..) ws cx) xs c

A sum leaves a map only where an operand does not depend on the map's axis, so that the contraction has reuse along it.
Operands bound inside an earlier nest, or in the nest whose result the sum is, become further results of that nest.  An
operand computed element by element on fewer axes than the sum has (a scaled element, a window ``x[i + k]``) is written
out by a nest of its own.  One that has every axis of the contraction would be written out for nothing, and is left
where it is.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from parray import builder as b
from parray.contractions.notation import Axis, Count, Factor, Found, Known, Leaf, Notation, Term, leaves
from parray.errors import Loc
from parray.ir import Atom, Const, Lambda, Stm, Var
from parray.soacs import Contract, Index, Prim, Screma, Slice, Transpose, Windows
from parray.types import i64


def pull(lam: Lambda, known: Known, windows: bool = False) -> Lambda:
    """The lambda with contractions in its own body where sums in it or in its nests are worth it; of ``windows`` only,
    if wanted."""
    notation = _RootedNotation(known)
    notation.body(lam.stms)
    edits = _Edits()
    whole: set[int] = set()                                         # statements whose own results were replaced
    for found in sorted(notation.found, key=lambda f: len(f.path)):
        place = found.path[0] if found.path else notation.root[found.var]
        if isinstance(place.op, Contract) or (found.path and id(place) in whole):
            continue
        if not worth_it(found) or notation.irregular(found) or windows and not has_windows(found):
            continue
        edits.replace(found, place)
        if not found.path:
            whole.add(id(place))
    return edits.apply(lam) if edits.before or edits.after else lam


class _RootedNotation(Notation):
    """Remembers which statement of the body binds what."""

    def __init__(self, known: Known):
        super().__init__(known)
        self.root: dict[Var, Stm] = {}

    def stm(self, stm: Stm) -> None:
        if not self.path:
            self.root.update(dict.fromkeys(stm.vars, stm))
        super().stm(stm)

    def irregular(self, found: Found) -> bool:
        """Whether a size is itself bound in a nest, so that the arrays cannot exist outside it."""
        sizes = [a.size for a in (*found.out, *found.product.summed) if isinstance(a.size, Var)]
        bodies = [self.plain_of(s).body for s in sizes]
        return any(isinstance(b, Leaf) and b.path for b in bodies)


def windowed(x: Var, leaf: Leaf) -> Var:
    """The leaf's array with its windows and slices as views, one after the other; it has the leaf's axes."""
    zero, d = Const(0, i64), 0                                      # d: the dimension of x that a place is about
    for place in leaf.places:
        rank, shape = x.type.rank, x.type.shape
        if not place.terms:
            turned = b.emit1(Transpose(x, (d, *(k for k in range(rank) if k != d))))
            x = b.emit1(Index(turned, (Const(place.start, i64),), True))
            continue
        (axis, step), *second = place.terms
        if not place.is_axis and (place.start or not second):
            n, stride = (b.size_sub(shape[d], place.start), 1) if second else (axis.size, step)
            x = b.emit1(Slice(x, tuple(Const(place.start, i64) if k == d else zero for k in range(rank)),
                              (*shape[:d], n, *shape[d + 1:]), tuple(stride if k == d else 1 for k in range(rank))))
        if second:
            x = b.emit1(Windows(x, d, (axis.size, second[0][0].size), (step, second[0][1])))
        d += len(place.terms)
    return x


def indices(leaf: Leaf, counters: dict[Axis, Atom]) -> list[Atom]:
    """The indices of a leaf's element."""
    at: list[Atom] = []
    for place in leaf.places:
        index: Atom = Const(place.start, i64)
        for axis, step in place.terms:
            term = counters[axis] if step == 1 else b.prim("mul", counters[axis], Const(step, i64))
            index = term if index == Const(0, i64) else b.prim("add", index, term)
        at.append(index)
    return at


def worth_it(found: Found) -> bool:
    """Whether the sum is a contraction with reuse whose operands can be had in the body."""
    x, y, summed = found.product.x, found.product.y, found.product.summed
    out = found.out
    everything = set(out) | set(summed)
    for factor in (x, y):
        axes = set(factor.axes)
        if len(axes) < len(factor.axes) or not axes <= everything or not axes >= set(summed):
            return False
        paths = [leaf.path for leaf in leaves(factor) if leaf.path]
        if found.path and any(path[0] is found.path[0] for path in paths):
            return False
        if (paths or isinstance(factor, Term)) and (axes == everything or is_matrix_product(found, out[1:])):
            return False                                            # better written out anew for each iteration
    if not set(out) <= set(x.axes) | set(y.axes) or len(set(out)) < len(out):
        return False
    return reuse(found, out[:1] if found.path else out)


def has_windows(found: Found) -> bool:
    """Whether a factor is an element of windows."""
    factors = [f for f in (found.product.x, found.product.y) if isinstance(f, Leaf)]
    return any(len(place.terms) > 1 for f in factors for place in f.places)


def is_matrix_product(found: Found, out: tuple[Axis, ...]) -> bool:
    """Whether each operand has one of these axes that the other has not."""
    x, y = set(found.product.x.axes), set(found.product.y.axes)
    return bool(x & set(out) - y) and bool(y & set(out) - x)


def reuse(found: Found, axes: tuple[Axis, ...]) -> bool:
    """Whether one of these axes is missing in an operand."""
    return any(a not in found.product.x.axes or a not in found.product.y.axes for a in axes)


@dataclass
class _Changes:
    """What a statement of a nest gets: further inputs, further results; which of its variables are replaced."""
    inputs: list[tuple[Var, Var]] = field(default_factory=list)     # (array, parameter)
    results: list[tuple[Var, Var]] = field(default_factory=list)    # (inside, outside)


class _Edits:
    """The changes to a body, made in one go at the end."""

    def __init__(self) -> None:
        self.changes: dict[int, _Changes] = {}
        self.before: dict[int, list[Stm]] = {}
        self.after: dict[int, list[Stm]] = {}
        self.gone: set[Var] = set()
        self.lifted: dict[Var, Var] = {}

    def of(self, stm: Stm) -> _Changes:
        return self.changes.setdefault(id(stm), _Changes())

    def replace(self, found: Found, place: Stm) -> None:
        """Bind the variable of the sum to a contraction (or to an element of one) instead."""
        written = [a for f in (found.product.x, found.product.y) if isinstance(f, Leaf) for a in f.axes]
        order = dict.fromkeys([*found.out, *written, *found.product.summed])
        names = {a: k for k, a in enumerate(order)}
        new = (self.before if found.path else self.after).setdefault(id(place), [])
        (x, x_axes), (y, y_axes) = (self.operand(f, list(names), new, place.loc)
                                    for f in (found.product.x, found.product.y))
        op = Contract(x, y, tuple(names[a] for a in x_axes), tuple(names[a] for a in y_axes),
                      tuple(names[a] for a in found.out))
        self.gone.add(found.var)
        if not found.path:
            new.append(Stm((found.var,), op, place.loc))
            return
        (t,) = op.infer()
        array = Var(t, found.var.hint)
        new.append(Stm((array,), op, place.loc))
        for stm in found.path:
            last = stm is found.path[-1]
            row = found.var if last else Var(array.type.row(), found.var.hint)
            self.of(stm).inputs.append((array, row))
            array = row

    def operand(self, factor: Factor, order: list[Axis], new: list[Stm], loc: Loc | None
                ) -> tuple[Var, tuple[Axis, ...]]:
        """The factor as an array, and its axes; a term is written out by new statements."""
        if isinstance(factor, Leaf) and not factor.is_view:
            return self.array(factor), factor.axes
        if isinstance(factor, Leaf):
            with b.scope(root=True) as s, b.at(loc):
                view = windowed(self.array(factor), factor)
            new += s.stms
            return view, factor.axes
        axes = tuple(a for a in order if a in factor.axes)
        with b.scope(root=True) as s, b.at(loc):
            out = self.written(factor, axes, {})
        new += s.stms
        assert isinstance(out, Var)
        return out, axes

    def written(self, factor: Any, axes: tuple[Axis, ...], counters: dict[Axis, Atom]) -> Atom:
        """Emit the factor, under maps over these axes."""
        if axes:
            return b.map1(lambda i: self.written(factor, axes[1:], {**counters, axes[0]: i}), b.iota(axes[0].size))
        match factor:
            case Count():
                return counters[factor.axis]
            case Leaf():
                at = indices(factor, counters)
                return b.index(self.array(factor), *at, safe=True) if at else self.array(factor)
            case Term(op=Index()):
                array, *places = factor.args
                at = [counters[a] for a in array.axes] + [self.written(p, (), counters) for p in places]
                return b.index(self.array(array), *at, safe=True)
            case Term(op=Prim() as op):
                return b.emit1(Prim(op.prim, tuple(self.written(arg, (), counters) for arg in factor.args), op.elem))
        assert isinstance(factor, Const)
        return factor

    def array(self, leaf: Leaf) -> Var:
        """The leaf's array in the body; one bound deeper becomes a result of the maps around it."""
        v = leaf.var
        if leaf.path and v in self.lifted:
            return self.lifted[v]
        for stm in reversed(leaf.path):
            outside = Var(v.type.array_of(stm.op.n), v.hint)        # type: ignore[attr-defined]
            self.of(stm).results.append((v, outside))
            v = outside
        self.lifted[leaf.var] = v
        return v

    # --- the new body ------------------------------------------------------------------------------------------------

    def apply(self, lam: Lambda) -> Lambda:
        return Lambda(lam.params, self.stms(lam.stms), lam.results)

    def stms(self, stms: tuple[Stm, ...]) -> tuple[Stm, ...]:
        out: list[Stm] = []
        for stm in stms:
            out += self.before.get(id(stm), ())
            out.append(self.stm(stm))
            out += self.after.get(id(stm), ())
        return tuple(out)

    def stm(self, stm: Stm) -> Stm:
        """The statement with its changes, and those inside it; a replaced variable gives way to a new, dead one."""
        op: Any = stm.op
        new_vars = tuple(Var(v.type, v.hint) if v in self.gone else v for v in stm.vars)
        if not isinstance(op, Screma):
            return stm if new_vars == stm.vars else Stm(new_vars, op, stm.loc)
        changes = self.changes.get(id(stm), _Changes())
        lam = Lambda(op.lam.params + tuple(p for _, p in changes.inputs), self.stms(op.lam.stms),
                     op.lam.results + tuple(v for v, _ in changes.results))
        op = replace(op, xs=op.xs + tuple(x for x, _ in changes.inputs), lam=lam)
        return Stm(new_vars + tuple(v for _, v in changes.results), op, stm.loc)
