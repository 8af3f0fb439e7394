"""Random numbers: the published vectors of Threefry-2x32-20, equality over backends, and distributions."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import parray as pa
from parray import f16, f32, f64, i32, u32, u64
from parray.random import threefry2x32

VECTORS = [((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
           ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
           ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0))]
BACKENDS = ["interp", "cpu"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key, counter, expected", VECTORS)
def test_published_vectors(key: Any, counter: Any, expected: Any, backend: str) -> None:
    with pa.use_backend(backend):
        found = pa.parallel(threefry2x32)(*map(np.uint32, (*key, *counter)))
    assert tuple(found) == expected


@pytest.mark.parametrize("f", [
    lambda k: pa.random.bits(k, (3, 5)), lambda k: pa.random.bits(k, 4, u64), lambda k: pa.random.uniform(k, 9),
    lambda k: pa.random.uniform(k, 9, f64, -2.0, 5.0), lambda k: pa.random.uniform(k, 9, f16),
    lambda k: pa.random.integers(k, 9, -3, 4, i32), lambda k: pa.random.permutation(k, 7),
    lambda k: pa.random.bernoulli(k, 0.3, (4, 4)), lambda k: pa.random.split(k, 3), lambda k: pa.random.bits(k),
    lambda k: pa.random.fold_in(k, 2 ** 40 + 3), lambda k: pa.random.choice(k, pa.iota(5, f32))])
def test_equal_bits_on_every_backend(f: Any) -> None:
    results = []
    for backend in BACKENDS:
        with pa.use_backend(backend):
            results.append(pa.parallel(f)(pa.random.key(7)))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", [f16, f32, f64], ids=str)
def test_distributions(dtype: Any) -> None:
    n = 200_000
    f = pa.parallel(lambda k: (pa.random.uniform(k, n, dtype), pa.random.normal(k, n, dtype, 1.0, 2.0)))
    u, z = (np.asarray(x, np.float64) for x in f(pa.random.key(3)))
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 3e-3 and abs(u.var() - 1 / 12) < 2e-3
    assert abs(z.mean() - 1) < 0.02 and abs(z.std() - 2) < 0.02
    inside = np.mean(np.abs(z - 1) < 2)
    assert abs(inside - 0.6827) < 5e-3


def test_integers_and_permutations() -> None:
    f = pa.parallel(lambda k: (pa.random.integers(k, 60_000, -1, 5), pa.random.permutation(k, 1000)))
    x, p = f(pa.random.key(11))
    counts = np.bincount(x + 1, minlength=6)
    assert len(counts) == 6 and np.abs(counts - 10_000).max() < 500
    assert sorted(p) == list(range(1000)) and not np.array_equal(p, np.arange(1000))


def test_keys() -> None:
    """Keys inside and outside a trace are the same; split and folded ones are all different."""
    outside = pa.random.key(-5)
    inside = pa.parallel(lambda: pa.random.key(-5))()
    np.testing.assert_array_equal(inside, outside)
    many = pa.parallel(lambda k: (pa.random.split(k, 100), pa.tabulate(100, lambda i: pa.random.fold_in(k, i + 1000))))
    keys = np.concatenate(many(outside))
    assert len({tuple(k) for k in keys}) == 200


def test_what_is_no_key_is_an_error() -> None:
    with pytest.raises(pa.TypeMismatch, match="takes a key"):
        pa.parallel(lambda x: pa.random.bits(x, 3))(np.zeros(2))
    with pytest.raises(pa.TypeMismatch, match="u32 or u64"):
        pa.parallel(lambda k: pa.random.bits(k, 3, f32))(pa.random.key(0))
    assert pa.random.key(1).dtype == u32.dtype
