"""Guards: checks of indices made from sizes before a program runs."""
from typing import Any

import numpy as np
import pytest

import parray as pa
from parray import f64, parallel
from parray.ir import each_op
from parray.pipeline import stages
from parray.soacs import Assert, Index


@parallel
def shifted(x: f64["n"], y: f64["m"], k: int) -> Any:
    """x[i] + y[2 i + 1], for every i."""
    return pa.tabulate(x.shape[0], lambda i: x[i] + y[2 * i + 1])


@parallel
def backwards(x: f64["n"], y: f64["m"]) -> Any:
    """Rows of pairs, from the end of the second array."""
    return pa.tabulate((x.shape[0], 2), lambda i, j: x[i] * y[x.shape[0] - i - j])


@parallel
def looped(x: f64["n"], y: f64["m"]) -> Any:
    """A sum by a loop with a counter."""
    return pa.loop(x.shape[0], lambda i, s: s + x[i] * y[i], 0.0)


def ops(f: Any, *args: Any) -> list[Any]:
    return list(each_op(dict(stages(f.program(*args).lam))["final"]))


@pytest.mark.parametrize("f", [shifted, backwards, looped])
def test_every_index_has_a_guard(f: Any) -> None:
    args = [np.ones(3), np.ones(9)] + [0] * (f is shifted)
    found = ops(f, *args)
    assert all(op.safe for op in found if isinstance(op, Index))
    made = [op.guard for op in found if isinstance(op, Assert)]
    assert made and all(made)


def outcome(f: Any, *args: Any) -> Any:
    try:
        return np.asarray(f(*args)).tolist()
    except pa.BoundsError as e:
        return e.message


@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize("m", range(9))
def test_results_and_words_are_those_of_the_interpreter(n: int, m: int) -> None:
    """Every pair of sizes: what fits is computed, else the first index outside is named; empty maps never fail."""
    x, y = np.arange(n) + 1.0, np.arange(m) * 2.0 + 1
    for f, args in ((shifted, (x, y, 0)), (backwards, (x, y)), (looped, (x, y))):
        results = []
        for backend in ("interp", "cpu"):
            with pa.use_backend(backend):
                results.append(outcome(f, *args))
        assert results[0] == results[1]


def test_indices_that_may_not_be_reached_stay_checked() -> None:
    """Behind a branch, in a while loop, and where data decides, nothing is hoisted."""
    @parallel
    def f(x: Any, y: Any, k: Any) -> Any:
        kept = pa.filter(lambda v: v > 0, x)
        return (pa.tabulate(x.shape[0], lambda i: pa.cond(i < y.shape[0], lambda: y[i], lambda: 0.0)),
                pa.tabulate(kept.shape[0], lambda i: y[i]), x[k])
    x, y = np.array([1.0, -1.0, 2.0]), np.array([5.0, 6.0])
    assert not any(op.guard for op in ops(f, x, y, 0) if isinstance(op, Assert))
    with pa.use_backend("cpu"):
        a, b, c = f(x, y, 2)
    assert a.tolist() == [5.0, 6.0, 0.0] and b.tolist() == [5.0, 6.0] and c == 2.0


def test_a_large_program_that_fails_is_not_run_by_the_reference() -> None:
    """The error then has the line, and no index."""
    with pa.use_backend("cpu"), pytest.raises(pa.BoundsError, match="out of bounds") as e:
        looped(np.ones(300_000), np.ones(299_999))
    assert e.value.loc is not None and e.value.loc.file == __file__


@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_sizes_that_differ_are_found_before_memory_is_touched(backend: str) -> None:
    """Millions of elements beyond an array's end would not go unnoticed."""
    doubled = pa.custom_vjp(lambda x: x.sum(), lambda x: (x.sum(), x), lambda x, bar: (pa.concat(x, x),))
    x = np.ones(3_000_000)
    with pa.use_backend(backend):
        with pytest.raises(pa.SizeMismatch, match="cotangent of argument 1 that bwd gives to pa.custom_vjp"):
            pa.grad(lambda x: doubled(x))(x)
        with pytest.raises(pa.SizeMismatch, match="arrays of one length"):
            pa.parallel(lambda x: pa.map2(lambda a, b: a, pa.concat(x, x), x))(x)
