"""While loops in maps, run for blocks of elements at a time."""
from typing import Any

import numpy as np
import pytest

import parray as pa
from parray import parallel
from parray.ir import count_ops, each_op
from parray.pipeline import stages
from parray.soacs import Screma, While


@parallel
def collatz(x: Any) -> Any:
    """Steps to 1, and the greatest number on the way; nothing for numbers below 1."""
    def one(v: Any) -> Any:
        def step(s: Any) -> Any:
            n = pa.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1)
            return n, s[1] + 1, pa.max(s[2], n)
        _, steps, top = pa.while_loop(lambda s: s[0] > 1, step, (v, 0, v))
        return steps * 2, top - v
    return pa.map(one, x)


@parallel
def newton(x: Any, loose: Any, tight: Any) -> Any:
    """Square roots, each to a tolerance of its own."""
    def one(v: Any, i: Any) -> Any:
        near = pa.where(i % 2 == 0, loose, tight)
        y, _ = pa.while_loop(lambda s: (abs(s[0] * s[0] - v) > near) & (s[1] < 60),
                             lambda s: ((s[0] + v / s[0]) * 0.5, s[1] + 1), (v * 0.5 + near, 0))
        return pa.sqrt(near) + y
    return pa.map(one, x, pa.iota(x.shape[0]))


def lanes(f: Any, *args: Any) -> bool:
    """Whether a loop of the finished program carries arrays."""
    final = dict(stages(f.program(*args).lam))["final"]
    loops = [op for op in each_op(final) if isinstance(op, While)]
    return bool(loops) and all(any(p.type.rank for p in op.lam.params) for op in loops)


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 100])
def test_every_element_has_its_own_number_of_iterations(n: int) -> None:
    rng = np.random.default_rng(n)
    numbers, roots = rng.integers(-2, 60, n), rng.uniform(0.1, 9, n)
    results = []
    for backend in ("interp", "cpu"):
        with pa.use_backend(backend):
            results.append([*collatz(numbers), newton(roots, 1e-2, 1e-9)])
    for a, b in zip(*results):
        np.testing.assert_allclose(b, a, rtol=1e-12)
    assert lanes(collatz, numbers) and lanes(newton, roots, 1e-2, 1e-9)


def test_loops_that_may_fail_or_carry_arrays_stay_as_they_are() -> None:
    """A lane that has ended must not fail on numbers that its loop never saw."""
    @parallel
    def dividing(x: Any) -> Any:
        return pa.map(lambda v: pa.while_loop(lambda s: s > 0, lambda s: 7 // s - 3, v), x)

    @parallel
    def rows(x: Any) -> Any:
        return pa.map(lambda r: pa.sum(pa.while_loop(lambda s: pa.sum(s) < 10, lambda s: s * 2, r)), x)
    small, large = np.arange(1, 41), np.ones((40, 3))
    for f, x in ((dividing, small), (rows, large)):
        assert not any(isinstance(op, Screma) and count_ops(op.lam, While) and op.n == 32
                       for op in each_op(dict(stages(f.program(x).lam))["lockstep"]))
        with pa.use_backend("cpu"):
            found = f(x)
        with pa.use_backend("interp"):
            np.testing.assert_array_equal(found, f(x))


def test_a_loop_updates_its_arrays_in_place() -> None:
    """Elementwise steps write where they read: no copy at the end of an iteration."""
    @parallel
    def decay(x: Any, v: Any) -> Any:
        return pa.loop(5, lambda _, s: (s[0] + s[1], s[1] * 0.5), (x, v))

    @parallel
    def swapped(x: Any, v: Any) -> Any:
        return pa.loop(5, lambda _, s: (s[1] * 0.5, s[0] + s[1]), (x, v))

    @parallel
    def shifted(x: Any, v: Any) -> Any:
        return pa.loop(5, lambda _, s: (s[0] + s[0][::-1], s[1] * 0.5), (x, v))
    x, v = np.arange(40.0), np.ones(40)
    for f in (decay, swapped, shifted):
        with pa.use_backend("interp"):
            expected = f(x, v)
        with pa.use_backend("cpu"):
            for a, b in zip(f(x, v), expected):
                np.testing.assert_array_equal(a, b)
