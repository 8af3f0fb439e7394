"""The passes together on programs as users write them, their gradients included: what is left, and equal results."""
from typing import Any

import numpy as np
import pytest

import parray as pa
from graphs import values
from parray import f32, parallel
from parray.check import check
from parray.contractions import recognise
from parray.fuse import fuse
from parray.interchange import interchange
from parray.interpreter import run
from parray.ir import Lambda, count_ops
from parray.pipeline import PASSES, stages
from parray.simplify import simplify
from parray.soacs import Contract, Index, Scatter, Screma
from random_graphs import Programs

RNG = np.random.default_rng(7)
STAGES = (simplify, recognise, simplify, fuse, interchange, simplify)


def array(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def optimised(f: Any, *args: Any, exact: bool = False) -> Lambda:
    """The graph after all passes; after each it is checked and computes the same as before (up to rounding in sums)."""
    program = parallel(f).program(*args)
    leaves = pa.tree.leaves(args)
    values = [*map(np.int64, program.bind(leaves)), *leaves, *program.captured()]
    lam = program.lam
    expected = run(lam, *values)
    for stage in STAGES:
        lam = check(stage(lam))
        results = run(lam, *values)
        for x, y in zip(expected, results, strict=True):
            if exact or stage in (fuse, simplify):
                assert np.asarray(x).tobytes() == np.ascontiguousarray(y).tobytes(), stage
            else:
                np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
        expected = results
    return lam


def counts(lam: Lambda) -> tuple[int, int, int, int]:
    """Contractions, loops, scatters and indexing."""
    return tuple(count_ops(lam, kind) for kind in (Contract, Screma, Scatter, Index))   # type: ignore[return-value]


# --- spellings of a matrix product -----------------------------------------------------------------------------------

def rows(a: Any, b: Any) -> Any:
    return pa.map(lambda x: pa.map(lambda y: pa.reduce(pa.add, 0, pa.map2(pa.mul, x, y)), pa.transpose(b)), a)


def by_index(a: f32["n", "k"], b: f32["k", "m"]) -> Any:
    (n, inner), m = a.shape, b.shape[1]
    return pa.tabulate((n, m), lambda i, j: pa.sum(pa.tabulate(inner, lambda c: a[i, c] * b[c, j])))


def by_chained_index(a: f32["n", "k"], b: f32["k", "m"]) -> Any:
    return pa.tabulate((a.shape[0], b.shape[1]), lambda i, j: pa.dot(a[i], b[:, j]))


def outer_products(a: Any, b: Any) -> Any:
    return pa.sum(pa.map2(lambda col, row: pa.map(lambda x: x * row, col), a.T, b), axis=0)


def combinations(a: Any, b: Any) -> Any:
    return pa.map(lambda x: pa.sum(pa.map2(lambda s, row: s * row, x, b), axis=0), a)


def broadcast(a: Any, b: Any) -> Any:
    return pa.sum(a[:, :, None] * b[None, :, :], axis=1)


def folded(a: Any, b: Any) -> Any:
    zero = pa.replicate(b.shape[1], f32(0))
    return pa.map(lambda x: pa.reduce(pa.add, zero, pa.map2(lambda s, row: s * row, x, b)), a)


SPELLINGS = [rows, by_index, by_chained_index, outer_products, combinations, broadcast, folded, pa.matmul]
SIZES = [(3, 4, 5), (1, 1, 1), (2, 0, 3), (0, 2, 2)]


@pytest.mark.parametrize("seed", range(30))
def test_every_stage_of_a_random_program_means_the_same(seed: int) -> None:
    """Each pass keeps types and results; so does the pipeline with any one of them left out."""
    lam = Programs(seed).program(5)
    args = values(lam, np.random.default_rng(seed), n=4, m=3)
    expected = run(lam, *args)

    def agrees(other: Lambda) -> None:
        for x, y in zip(expected, run(check(other), *args), strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-3)
    for _, after in stages(lam, checked=True):
        agrees(after)
    for left_out in PASSES:
        rest = lam
        for one in PASSES:
            rest = rest if one is left_out else one.apply(rest)
        agrees(rest)


def column_statistics(x: f32["n", "m"], w: f32["n"]) -> Any:
    return pa.sum(x, axis=0), pa.max(x * x, axis=0), pa.map(lambda c: pa.sum(c * w), x.T)


def test_columns_are_reduced_row_by_row() -> None:
    """No reduction is left inside a map."""
    lam = optimised(column_statistics, array(5, 3), array(5))
    assert not count_ops(lam, lambda op: isinstance(op, Screma) and op.is_map and count_ops(
        op.lam, lambda inner: isinstance(inner, Screma) and bool(inner.reds)) > 0)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("f", SPELLINGS, ids=lambda f: f.__name__)
def test_matmul(f: Any, sizes: tuple[int, int, int]) -> None:
    n, k, m = sizes
    lam = optimised(f, array(n, k), array(k, m))
    if 1 not in sizes:                                              # a 1 may be broadcast: another program
        assert counts(lam) == (1, 0, 0, 0)


@pytest.mark.parametrize("f", SPELLINGS, ids=lambda f: f.__name__)
def test_gradient_of_matmul_is_matmuls(f: Any) -> None:
    def gradient(a: f32["n", "k"], b: f32["k", "m"], c: Any) -> Any:
        return pa.grad(lambda a, b: pa.sum(f(a, b) * c), argnums=(0, 1))(a, b)
    contracts, loops, scatters, indexing = counts(optimised(gradient, array(3, 4), array(4, 5), array(3, 5)))
    assert (contracts, scatters, indexing) == (2, 0, 0)
    assert loops <= 2                                               # the cotangent 1 * c


# --- programs --------------------------------------------------------------------------------------------------------

def linear(w: Any, x: Any) -> Any:
    return pa.map(lambda row: pa.dot(row, x), w)


def softmax(x: Any) -> Any:
    e = pa.exp(x - pa.maximum(x))
    return e / pa.sum(e)


def rmsnorm(x: Any) -> Any:
    return x * pa.rsqrt(pa.mean(x * x) + 1e-5)


def attention(q: f32["t", "d"], k: f32["t", "d"], v: f32["t", "e"]) -> Any:
    t, d = q.shape
    scores = pa.tabulate((t, t), lambda i, j: pa.where(j <= i, pa.dot(q[i], k[j]) / pa.sqrt(f32(d)), -pa.inf))
    return pa.map(lambda a: linear(pa.transpose(v), a), pa.map(softmax, scores))


def mlp(x: Any, up: Any, down: Any) -> Any:
    return pa.map(lambda r: r + linear(down, pa.relu(linear(up, rmsnorm(r)))), x)


def test_dot_is_one_loop() -> None:
    assert counts(optimised(pa.dot, array(9), array(9))) == (0, 1, 0, 0)


def test_softmax_rows() -> None:
    assert counts(optimised(lambda x: pa.map(softmax, x), array(4, 5), exact=True)) == (0, 1 + 3, 0, 0)


def test_rmsnorm() -> None:
    assert counts(optimised(rmsnorm, array(7), exact=True)) == (0, 2, 0, 0)


def test_attention() -> None:
    lam = optimised(attention, array(5, 3), array(5, 3), array(5, 3))
    assert counts(lam)[0] == 2 and counts(lam)[2:] == (0, 0)


def test_gradient_of_attention() -> None:
    """Five matrix products backward, the scores being computed again among them."""
    def gradient(q: f32["t", "d"], k: f32["t", "d"], v: f32["t", "e"]) -> Any:
        return pa.grad(lambda *qkv: pa.sum(pa.square(attention(*qkv))), argnums=(0, 1, 2))(q, k, v)
    contracts, _, scatters, indexing = counts(optimised(gradient, array(5, 3), array(5, 3), array(5, 3)))
    assert contracts <= 2 + 5 and (scatters, indexing) == (0, 0)


def test_mlp_is_two_products() -> None:
    lam = optimised(mlp, array(6, 4), array(8, 4), array(4, 8))
    assert counts(lam)[0] == 2 and count_ops(lam, Screma, nested=False) == 3


def test_gradient_of_mlp() -> None:
    def gradient(x: Any, up: Any, down: Any) -> Any:
        return pa.grad(lambda *p: pa.sum(pa.square(mlp(*p))), argnums=(0, 1, 2))(x, up, down)
    contracts, _, scatters, _ = counts(optimised(gradient, array(6, 4), array(8, 4), array(4, 8)))
    assert contracts == 2 + 4 and scatters == 0


def test_histogram_of_computed_places() -> None:
    def f(x: Any) -> Any:
        return pa.reduce_by_index(pa.replicate(4, f32(0)), pa.add, 0, (x * 4).astype(pa.i64), pa.exp(x))
    lam = optimised(f, RNG.uniform(size=9).astype(np.float32), exact=True)
    assert counts(lam) == (0, 0, 1, 0)


def test_statistics_are_one_loop() -> None:
    lam = optimised(lambda x: (pa.sum(x), pa.minimum(x), pa.maximum(x), pa.dot(x, x)), array(9), exact=True)
    assert count_ops(lam, Screma) == 1
