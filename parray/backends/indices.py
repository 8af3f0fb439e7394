"""Index arithmetic said once: a pass over the statements of one kernel before they are printed.

    x = a[j1 * (n * 16) + (j2 + 1) * 16 + k]        j9 = j1 * n * 16 + j2 * 16 + k
    y = a[j1 * (n * 16) + (j2 + 2) * 16 + k]   =>   x = a[j9 + 16]
                                                    y = a[j9 + 32]

LLVM would find this too, but only after numba has typed and lowered every operation: the text of an unrolled tile
compiles in half the time.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from parray import kernels as K
from parray.kernels import (Apply, Assign, Call, Check, Expr, For, Heap, If, Let, Lit, Load, Par, Place, Ref, Serial,
                            Store, While, walk)

Poly = dict[tuple[str, ...], int]


def shorten(stms: Sequence[Any]) -> list[Any]:
    """The same statements with the varying part of their indices named and used again."""
    return _Shortener({s.name for s in walk(list(stms)) if isinstance(s, Assign)}).block(stms)


def polynomial(e: Expr) -> Poly | None:
    """An index as a sum of products of names with integer factors, or None where it is something else."""
    match e:
        case Lit(value=value):
            return {(): int(value)}
        case Ref(name=name):
            return {(name,): 1}
        case Apply(prim="add" | "sub" as prim, args=(a, b)):
            x, y = polynomial(a), polynomial(b)
            if x is None or y is None:
                return None
            sign = 1 if prim == "add" else -1
            return {k: x.get(k, 0) + sign * y.get(k, 0) for k in {**x, **y}}
        case Apply(prim="mul", args=(a, b)):
            x, y = polynomial(a), polynomial(b)
            if x is None or y is None:
                return None
            out: Poly = {}
            for k, v in x.items():
                for l, w in y.items():
                    out[(*k, *l)] = out.get((*k, *l), 0) + v * w
            return out
    return None


def expression(poly: Poly) -> Expr:
    """The sum that a polynomial is."""
    total: Expr = K.ZERO
    for names, factor in poly.items():
        term = K.mul(K.product(Ref(n) for n in names), Lit(factor)) if names else Lit(factor)
        total = K.add(total, term)
    return total


class _Shortener:
    """``scopes``: what the sums computed so far are called, innermost block last."""

    def __init__(self, changing: set[str]):
        self.changing = changing
        self.scopes: list[dict[Any, Ref]] = []
        self.out: list[Any] = []
        self.count = 0

    def block(self, stms: Sequence[Any]) -> list[Any]:
        outer, self.out = self.out, []
        self.scopes.append({})
        for s in stms:
            self.stm(s)
        self.scopes.pop()
        made, self.out = self.out, outer
        return made

    def stm(self, s: Any) -> None:
        match s:
            case Let(name=name, value=value):
                new: Any = Let(name, self.expr(value))
            case Assign(name=name, value=value):
                new = Assign(name, self.expr(value))
            case Store(buf=buf, index=index, value=value):
                value = self.expr(value)
                new = Store(buf, self.index(index), value)
            case Check(bad=bad):
                new = dataclasses.replace(s, bad=self.expr(bad))
            case For(n=n, body=body):
                new = dataclasses.replace(s, n=self.expr(n), body=self.block(body))
            case If(cond=cond, then=then, orelse=orelse):
                new = If(self.expr(cond), self.block(then), self.block(orelse))
            case While(test=test, cond=cond, body=body):
                new = While(self.block([*test, Let("?", cond)]), cond, self.block(body))
                new.cond = new.test.pop().value
            case Call(args=args):
                new = dataclasses.replace(s, args=[a if isinstance(a, Place) else self.expr(a) for a in args])
            case Heap(body=body) | Serial(body=body):
                new = dataclasses.replace(s, body=self.block(body))
            case Par():
                parts: Any = {f: self.block(getattr(s, f)) for f in ("before", "body", "merge", "fold", "fold_start")}
                new = dataclasses.replace(s, **parts)
            case _:
                new = s
        self.out.append(new)

    def expr(self, e: Expr) -> Expr:
        match e:
            case Load(buf=buf, index=index):
                return Load(buf, self.index(index))
            case Apply(args=args):
                return dataclasses.replace(e, args=tuple(map(self.expr, args)))
        return e

    def index(self, e: Expr) -> Expr:
        poly = polynomial(e)
        if poly is None:
            return self.expr(e)
        constant = poly.pop((), 0)
        poly = {k: v for k, v in poly.items() if v}
        if not poly or len(poly) == 1 and next(iter(poly.items())) in [((n,), 1) for n in next(iter(poly))] or \
                any(n in self.changing for names in poly for n in names):
            return K.add(expression(poly), Lit(constant))
        key = frozenset((tuple(sorted(names)), factor) for names, factor in poly.items())
        for scope in reversed(self.scopes):
            if key in scope:
                return K.add(scope[key], Lit(constant))
        self.count += 1
        name = Ref(f"k{self.count}")
        self.scopes[-1][key] = name
        self.out.append(Let(name.name, expression(poly)))
        return K.add(name, Lit(constant))
