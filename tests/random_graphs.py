"""Random programs, for tests that a pass keeps what a graph computes."""
from __future__ import annotations

from typing import Any

import numpy as np

from graphs import F32, at, graph, k, p
from parray import builder as B
from parray.ir import Atom, Const, Lambda, Monoid, Var
from parray.soacs import Argsort, Concat, Cond, Loop, Overlap, Replicate, Reshape, Scatter, Transpose, Update, Windows
from parray.types import SIZE, Type, bool_, f32, i64


class Programs:
    """Draws programs over f32 arrays of sizes n and m; everything drawn stays usable by what follows."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.pool: list[Var] = []

    def pick(self, xs: Any) -> Any:
        return xs[self.rng.integers(len(xs))]

    def arrays(self, rank: int | None = None, n: Any = None) -> list[Var]:
        return [x for x in self.pool if x.type.rank and (rank is None or x.type.rank == rank) and x.type.elem == f32
                and (n is None or x.type.shape[0] == n)]

    def scalars(self) -> list[Atom]:
        return [x for x in self.pool if x.type == F32] + [k(0.0), k(1.0), k(2.0)]

    def program(self, statements: int = 8) -> Lambda:
        def body(x: Var, y: Var, a: Var, b: Var) -> list[Atom]:
            self.pool = [x, y, a, b]
            self.keys = [x, y]                                      # exact on every backend, to sort and filter by
            self.n, self.m = a.type.shape
            self.body(statements, 2)
            keep = [self.pool[-1], *(v for v in self.pool[4:] if self.rng.random() < 0.3)]
            return list(dict.fromkeys(keep))
        return graph({"x": (f32, "n"), "y": (f32, "n"), "a": (f32, "nm"), "b": (f32, "nm")}, body)

    def body(self, statements: int, depth: int) -> None:
        for _ in range(statements):
            made = self.statement(depth)
            self.pool += [v for v in made if isinstance(v, Var)]

    def nested(self, params: Any, depth: int, results: int = 1) -> list[Atom]:
        """A body over the parameters; the last values drawn are its results."""
        outer = list(self.pool)
        self.pool += params
        self.body(int(self.rng.integers(1, 4)), depth - 1)
        out = [v for v in self.pool[len(outer):] if v.type.elem == f32 and v.type.rank < 3]
        self.pool = outer
        return out[-results:] or [k(1.0)]

    def statement(self, depth: int) -> Any:
        kinds = ["prim", "prim", "arithmetic", "arithmetic", "scalar_map", "scalar_map", "sum", "transpose", "row",
                 "scan", "ones"]
        if depth:
            kinds += ["map", "map", "map", "tabulate", "loop", "cond", "scatter", "product", "product", "order", "kept",
                      "reversed", "windows"]
        if depth == 2:                                              # a new size, in scope everywhere
            kinds += ["concat"]
        return getattr(self, self.pick(kinds))(depth)

    def prim(self, depth: int) -> Any:
        xs = self.scalars()
        name = self.pick(["add", "mul", "sub", "max", "neg", "tanh", "select"])
        if name in ("neg", "tanh"):
            return [B.prim(name, self.pick(xs))]
        if name == "select":
            return [B.select(B.prim("lt", self.pick(xs), self.pick(xs)), self.pick(xs), self.pick(xs))]
        return [B.prim(name, self.pick(xs), self.pick(xs))]

    def integer(self, depth: int = 3) -> Atom:
        """Arithmetic on sizes and counters."""
        leaves = [v for v in self.pool if v.type == SIZE] + [B.size_atom(self.n), B.size_atom(self.m), k(
            int(self.rng.integers(-2, 4)), i64)]
        if depth == 0 or self.rng.random() < 0.3:
            return self.pick(leaves)                                # type: ignore[no-any-return]
        name = self.pick(["add", "sub", "mul", "max", "min", "mod", "floordiv", "neg", "select"])
        x, y = self.integer(depth - 1), self.integer(depth - 1)
        if name == "neg":
            return B.prim("neg", x)
        if name == "select":
            return B.select(B.prim(self.pick(["lt", "le", "eq", "ne", "ge"]), x, y), y, x)
        if name in ("mod", "floordiv"):
            y = B.prim("max", y, k(1, i64))
        return B.prim(name, x, y)

    def arithmetic(self, depth: int) -> Any:
        """An integer as a number, or an element at it where it is in range."""
        i = self.integer()
        x = self.pick(self.arrays())
        n = B.size_atom(x.type.shape[0])
        if self.rng.random() < 0.5:
            return [B.convert(i, f32)]
        fits = B.prim("and", B.prim("lt", i, n), B.prim("le", B.prim("neg", n), i))
        return [B.emit1(Cond(fits, B.make_lambda((), lambda: (at(x, i),)),
                             B.make_lambda((), lambda: (B.zeros(x.type.row()),))))]

    def scalar_map(self, depth: int) -> Any:
        x = self.pick(self.arrays())
        y = self.pick([z for z in self.arrays() if z.type == x.type])
        name, s = self.pick(["add", "mul", "max"]), self.pick(self.scalars())
        return [B.elementwise(lambda u, v: B.prim(name, u, B.prim("mul", v, s)), x, y)]

    def product(self, depth: int) -> Any:
        """A sum of products: rows with a vector, rows with rows."""
        matrices = self.arrays(2)
        if not matrices:
            return []
        x, y = self.pick(matrices), self.pick(self.arrays(1) + matrices)
        rows = [r for r in [y] if y.type.shape[-1] == x.type.shape[1]] or [x]

        def dot(u: Var, v: Var) -> Any:
            return self.total(B.map1(p("mul"), u, v))
        if rows[0].type.rank == 1:
            return [B.map1(lambda r: dot(r, rows[0]), x)]
        return [B.map1(lambda r: B.map1(lambda q: dot(r, q), rows[0]), x)]

    def total(self, x: Var) -> Any:
        return B.reduce_(B.sum_monoid(x.type.row()), x)[0]

    def sum(self, depth: int) -> Any:
        x = self.pick(self.arrays())
        if x.type.rank == 1 and self.rng.random() < 0.3:
            return B.reduce_(Monoid(B.lift2("max", F32), (k(-np.inf),), True), x)
        return [self.total(x)]

    def scan(self, depth: int) -> Any:
        x = self.pick(self.arrays())
        return B.scan_(B.sum_monoid(x.type.row()), x)

    def transpose(self, depth: int) -> Any:
        xs = self.arrays(2)
        return [B.emit1(Transpose(self.pick(xs), (1, 0)))] if xs else []

    def row(self, depth: int) -> Any:
        """Rows by the counter around, where there is one; else by a clipped constant."""
        counters = [v for v in self.pool if v.type == SIZE]
        x = self.pick(self.arrays())
        n = B.size_atom(x.type.shape[0])
        if not counters:
            return [B.emit1(Replicate(x.type.shape[0], self.pick(self.scalars())))]
        i = B.prim("mod", self.pick(counters), B.prim("max", n, k(1, i64)))
        fits = B.prim("lt", i, n)
        return [B.emit1(Cond(fits, B.make_lambda((), lambda: (at(x, i),)),
                             B.make_lambda((), lambda: (B.zeros(x.type.row()),))))]

    def ones(self, depth: int) -> Any:
        """Dimensions of size 1 put in, and taken out again by a map that indexes them."""
        x = self.pick(self.arrays())
        place = int(self.rng.integers(x.type.rank + 1))
        made = B.emit1(Reshape(x, (*x.type.shape[:place], 1, *x.type.shape[place:])))

        def element(y: Any, at_rank: int) -> Any:
            if at_rank == 0:
                return at(y, k(0, i64))
            return B.map1(lambda r: element(r, at_rank - 1), y)
        return [element(made, place)]

    def map(self, depth: int) -> Any:
        x = self.pick(self.arrays())
        xs = [x] + [y for y in self.arrays(n=x.type.shape[0]) if self.rng.random() < 0.3]
        return B.map_(lambda *es: self.nested(es, depth, int(self.rng.integers(1, 3))), *xs)

    def tabulate(self, depth: int) -> Any:
        n = self.pick([self.n, self.m])

        def f(i: Atom) -> Any:
            rows = [at(x, i) for x in self.arrays(n=n) if self.rng.random() < 0.5]
            return self.nested([i, *rows, B.convert(i, f32)], depth)
        return B.map_(f, B.iota(n))

    def loop(self, depth: int) -> Any:
        init = self.pick([*self.arrays(), *self.scalars()])
        n = self.pick([0, 1, 3, self.m])

        def f(i: Atom, x: Any) -> Any:
            same = [v for v in self.nested([i, x], depth, 9) if v.type == x.type]
            return [(same or [x])[-1]]
        lam = B.make_lambda((SIZE, init.type), f)
        return B.emit(Loop(n, lam, (init,)))

    def cond(self, depth: int) -> Any:
        t = self.pick(self.pool).type

        def branch() -> Any:
            same = [v for v in [*self.pool, *self.nested([], depth, 9)] if v.type == t]
            return [same[-1]]
        test = B.prim("lt", self.pick(self.scalars()), self.pick(self.scalars()))
        pred = self.pick([test, Const(True, bool_), test])
        return B.emit(Cond(pred, B.make_lambda((), branch), B.make_lambda((), branch)))

    def scatter(self, depth: int) -> Any:
        dest, values = self.pick(self.arrays(1)), self.pick(self.arrays(1))
        n = values.type.shape[0]

        def f(v: Atom, i: Atom) -> Any:
            return B.prim("sub", B.prim("mul", i, k(2, i64)), k(1, i64)), v
        lam = B.make_lambda((F32, SIZE), f)
        monoid = B.sum_monoid(F32) if self.rng.random() < 0.5 else None
        return B.emit(Scatter(n, (dest,), 1, monoid, lam, (values, B.iota(n))))

    def order(self, depth: int) -> Any:
        """An array in the order of another."""
        xs = self.arrays(n=self.n)
        x, key = self.pick(xs), self.pick(self.keys)
        return [B.map1(lambda i: B.index(x, i, safe=True), B.emit1(Argsort(self.n, (key,))))]    # type: ignore

    def reversed(self, depth: int) -> Any:
        """An array overwritten from its end, perhaps with itself."""
        x = self.pick(self.arrays())
        value = self.pick([y for y in self.arrays() if y.type == x.type])
        rest = x.type.rank - 1
        last = B.prim("sub", B.size_atom(x.type.shape[0]), k(1, i64))
        return B.emit(Update(x, value, (last, *[k(0, i64)] * rest), (-1, *[1] * rest)))

    def windows(self, depth: int) -> Any:
        """Pairs of neighbours, changed and added up again."""
        x = self.pick(self.arrays())
        axis = int(self.rng.integers(x.type.rank))
        n = x.type.shape[axis]
        many = B.size_prim("max", B.size_sub(n, 1), 0)
        pairs = B.emit1(Windows(x, axis, (many, 2)))
        made = B.elementwise(lambda v: B.prim("mul", v, v), pairs)
        return [B.emit1(Overlap(made, axis, n))]                                    # type: ignore[arg-type]

    def kept(self, depth: int) -> Any:
        """The sum of the elements at which another is positive, gathered in an array of that size."""
        x, key = self.pick(self.arrays(1, n=self.n)), self.pick(self.keys)
        flags = B.map1(lambda v: B.convert(B.prim("lt", k(0.0), v), i64), key)
        ends = B.scan_(B.sum_monoid(SIZE), flags)[0]
        count = B.reduce_(B.sum_monoid(SIZE), flags)[0]
        lam = B.make_lambda((SIZE, SIZE, F32), lambda f, e, v: (
            B.prim("sub", B.prim("mul", f, e), k(1, i64)), v))
        made = B.emit(Scatter(self.n, (B.zeros(Type(f32, (count,))),), 1, None, lam, (flags, ends, x)))  # type: ignore
        return [self.total(made[0])]

    def concat(self, depth: int) -> Any:
        x = self.pick(self.arrays())
        y = self.pick([z for z in self.arrays() if z.type.row() == x.type.row()])
        n = B.size_add(x.type.shape[0], y.type.shape[0])
        made = B.emit1(Concat((x, y), n))
        return [made]
