"""Differentiation of random programs: nests of maps, reductions, scans, scatters, loops, branches (see `gradcheck`)."""
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from gradcheck import check_gradients, vjp_graph
from test_ad import F64, add, c, cond, k, linear_monoid, monoid, mul, sin, total

from parray import builder as b
from parray.backends import cpu
from parray.interpreter import run
from parray.ir import Lambda
from parray.lower import lower
from parray.pipeline import optimise
from parray.soacs import Concat, Loop, Replicate, Reshape, Scatter, Slice, Transpose
from parray.types import SIZE, Type, f64

N = 4
VECTOR, MATRIX = Type(f64, (N,)), Type(f64, (N, N))
Env = list[Any]                                                     # scalars, vectors, matrices and indices below N


class Programs:
    """Random expressions of each type over the variables of an environment, ``d`` levels deep."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def any(self, env: Env, t: Type) -> Any:
        """A variable of a type, or None."""
        found = [a for a in env if a.type == t]
        return self.random.choice(found) if found else None

    def index(self, env: Env) -> Any:
        return self.any(env, SIZE) or k(self.random.randrange(N))

    def operator(self) -> Any:
        return self.random.choice([b.sum_monoid(F64), monoid("mul", 1), monoid("max", -np.inf)])

    def condition(self, env: Env) -> Any:
        return b.prim("lt", self.scalar(env, 1), c(self.random.uniform(-1, 1)))

    def count(self) -> int:
        return self.random.randrange(1, N + 1)

    def scalar(self, env: Env, d: int) -> Any:
        if d <= 0:
            return self.any(env, F64) or b.index(self.vector(env, 0), self.index(env))

        def sub() -> Any:
            return self.scalar(env, d - 1)

        def inner(*more: Any) -> Any:
            return [self.scalar(env + list(more), d - 1)]
        match self.random.randrange(9):
            case 0:
                return mul(sub(), sub())
            case 1:
                return sin(sub())
            case 2:
                return add(sub(), self.scalar(env, d - 2))
            case 3:
                return b.reduce_(self.operator(), self.vector(env, d - 1))[0]
            case 4:
                return b.index(self.vector(env, d - 1), self.index(env))
            case 5:
                return cond(self.condition(env), sub, sub)
            case 6:
                return b.emit1(Loop(self.count(), b.make_lambda([SIZE, F64], inner), (sub(),)))
            case 7:
                lam = b.make_lambda([F64, F64], lambda p, q: [self.scalar(env + [p, q], d - 2), mul(p, q)])
                xs = [self.vector(env, d - 1), self.vector(env, d - 1)]
                return self.random.choice(b.screma(N, xs, lam, (), (b.sum_monoid(F64), self.operator())))
        return total(self.vector(env, d - 1))

    def vector(self, env: Env, d: int) -> Any:
        if d <= 0:
            return self.any(env, VECTOR) or b.index(self.matrix(env, 0), self.index(env))

        def sub() -> Any:
            return self.vector(env, d - 1)

        def element(x: Any) -> Any:
            return self.scalar(env + [x], d - 1)
        match self.random.randrange(13):
            case 0:
                return b.map1(element, b.iota(N))
            case 1:
                return b.map1(element, sub())
            case 2:
                return b.scan_(self.operator(), sub())[0]
            case 3:
                n = self.random.randrange(1, N)
                left = b.emit1(Slice(sub(), (k(self.random.randrange(N - n + 1)),), (n,), (1,)))
                right = b.emit1(Slice(self.vector(env, d - 2), (k(N - 1),), (N - n,), (-1,)))
                return b.emit1(Concat((left, right), N))
            case 4:
                return b.emit1(Replicate(N, self.scalar(env, d - 1)))
            case 5:
                return b.index(self.matrix(env, d - 1), self.index(env))
            case 6:
                return b.map1(element, self.matrix(env, d - 1))
            case 7:
                return self.scatter(sub(), sub())
            case 8:
                x, i, value = sub(), self.index(env), self.scalar(env, d - 1)
                op = self.random.choice([None, b.sum_monoid(F64)])
                return b.emit1(Scatter(1, (x,), 1, op, b.make_lambda([], lambda: [i, value]), ()))
            case 9:
                lam = b.make_lambda([SIZE, VECTOR], lambda i, a: [self.vector(env + [i, a], d - 1)])
                return b.emit1(Loop(self.count(), lam, (sub(),)))
            case 10:
                return cond(self.condition(env), sub, sub)
            case 11:
                op = self.random.choice([b.sum_monoid(VECTOR), b.sum_monoid(VECTOR, "mul", 1)])
                return b.reduce_(op, self.matrix(env, d - 1))[0]
        return self.random.choice(b.scan_(linear_monoid(), sub(), sub()))

    def scatter(self, dest: Any, values: Any) -> Any:
        step, start = self.random.choice([0, 1, 1, 2]), self.random.randrange(-1, 3)
        op = self.random.choice([None, self.operator()])
        lam = b.make_lambda([SIZE, F64], lambda i, v: [b.prim("add", b.prim("mul", i, k(step)), k(start)), v])
        return b.emit1(Scatter(N, (dest,), 1, op, lam, (b.iota(N), values)))

    def matrix(self, env: Env, d: int) -> Any:
        if d <= 0:
            return self.any(env, MATRIX)

        def row(x: Any) -> Any:
            return self.vector(env + [x], d - 1)
        match self.random.randrange(6):
            case 0:
                return b.emit1(Transpose(self.matrix(env, d - 1), (1, 0)))
            case 1:
                return b.map1(row, b.iota(N))
            case 2:
                return b.map1(row, self.matrix(env, d - 1))
            case 3:
                return b.map1(lambda i: b.map1(lambda j: self.scalar(env + [i, j], d - 1), b.iota(N)), b.iota(N))
            case 4:
                op = self.random.choice([b.sum_monoid(VECTOR), b.sum_monoid(VECTOR, "mul", 1)])
                return b.scan_(op, self.matrix(env, d - 1))[0]
        flat = b.emit1(Reshape(self.matrix(env, d - 1), (N * N,)))
        return b.emit1(Reshape(flat, (N, N)))


def check_program(seed: int, depth: int, order: int) -> None:
    def f(x: Any, y: Any, z: Any) -> list[Any]:
        programs = Programs(seed)
        return [programs.scalar([x, y, z], depth), programs.vector([x, y, z], depth)]

    rng = np.random.default_rng(seed)
    args = [rng.normal(), rng.normal(size=N), rng.normal(size=(N, N))]
    check_gradients(f, args, [(), (N,), (N, N)], order=order, seed=seed, tol=1e-4)


@pytest.mark.parametrize("seed", range(40))
def test_random_program(seed: int) -> None:
    check_program(seed, depth=3, order=1)


@pytest.mark.parametrize("seed", range(100, 110))
def test_random_program_twice(seed: int) -> None:
    check_program(seed, depth=3, order=2)


@pytest.mark.parametrize("seed", range(200, 206))
def test_random_program_three_times(seed: int) -> None:
    check_program(seed, depth=2, order=3)


def gradient_program(seed: int, depth: int) -> tuple[Lambda, list[Any]]:
    """The graph of a random program's results and cotangents, with arguments."""
    def f(x: Any, y: Any, z: Any) -> list[Any]:
        programs = Programs(seed)
        return [programs.scalar([x, y, z], depth), programs.vector([x, y, z], depth)]
    rng = np.random.default_rng(seed)
    args = [rng.normal(), rng.normal(size=N), rng.normal(size=(N, N))]
    dims: list[Any] = [(), (N,), (N, N)]
    bars = [rng.normal(), rng.normal(size=N)]
    return vjp_graph(f, args, dims, range(3)), [np.float64(a) if np.ndim(a) == 0 else a for a in (*args, *bars)]


@pytest.mark.parametrize("seed", range(300, 312))
def test_gradients_of_random_programs_compiled(seed: int) -> None:
    """The compiled derivative is the interpreter's, as it was made and after all passes."""
    lam, args = gradient_program(seed, 3)
    expected = run(lam, *args)
    for graph in (lam, optimise(lam)):
        found = cpu.compile_program(lower(graph, 0, vector_bytes=cpu.vector_bytes()))([], list(args))
        for e, f in zip(expected, found, strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_many_random_programs(seed: int) -> None:
    check_program(seed, depth=4, order=1)
