"""The CPU backend against the interpreter: random programs, threads, contractions of every layout, memory of results.
"""
from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parray as pa
from graphs import values
from parray import contractions, fuse, interpreter
from parray.backends import cpu, launches
from parray.ir import Lambda, Stm, Var
from parray.lower import lower
from parray.simplify import simplify
from parray.soacs import Contract
from parray.types import SIZE, Type, f64
from random_graphs import Programs

SIZES = [(3, 2), (1, 1), (0, 2), (7, 5), (2, 0), (17, 9)]


def optimised(lam: Lambda) -> Lambda:
    return simplify(fuse.fuse(simplify(contractions.recognise(simplify(lam)))))


def compare(lam: Lambda, seed: int, sizes: Any = SIZES, rtol: float = 2e-3) -> None:
    """The compiled program's results are the interpreter's."""
    count = sum(p.type == SIZE for p in lam.params)
    executable = cpu.compile_program(lower(lam, count, vector_bytes=cpu.vector_bytes()))
    for n, m in sizes:
        given = values(lam, np.random.default_rng(seed), n=n, m=m)
        expected = interpreter.run(lam, *given)
        found = executable([int(s) for s in given[:count]], given[count:])
        for e, f in zip(expected, found, strict=True):
            assert np.shape(e) == np.shape(f) and np.asarray(e).dtype == np.asarray(f).dtype
            np.testing.assert_allclose(f, e, rtol=rtol, atol=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_random_program(seed: int) -> None:
    """As it was drawn."""
    compare(Programs(seed).program(6), seed)


@pytest.mark.parametrize("seed", range(100, 112))
def test_random_program_optimised(seed: int) -> None:
    """After all passes."""
    compare(optimised(Programs(seed).program(6)), seed)


@pytest.mark.parametrize("seed", range(200, 208))
def test_random_program_on_three_threads(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine code, shared among threads however small the work is."""
    monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1)
    monkeypatch.setenv("PARRAY_NUM_THREADS", "3")
    lam = Programs(seed).program(6)
    compare(lam if seed % 2 else optimised(lam), seed)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", range(300, 308))
def test_random_program_in_pieces(seed: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops cut into many kernels that the table runs through, as long ones are."""
    monkeypatch.setattr(launches, "LONG", 6)
    monkeypatch.setattr(launches, "SHORT", 3)
    monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1)
    monkeypatch.setenv("PARRAY_NUM_THREADS", str(threads))
    lam = Programs(seed).program(6)
    compare(lam if seed % 2 else optimised(lam), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of the three tests above."""
    if seed % 3 == 0:
        monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1)
        monkeypatch.setenv("PARRAY_NUM_THREADS", "2")
    if seed % 4 == 0:
        monkeypatch.setattr(launches, "LONG", 6)
        monkeypatch.setattr(launches, "SHORT", 3)
    lam = Programs(seed).program(8)
    compare(optimised(lam) if seed % 2 else lam, seed)


def test_rows_of_a_map_that_also_reads_their_scalar() -> None:
    """The inner loop of this nest cannot be joined with the outer one."""
    with pa.use_backend("cpu"):
        f = pa.parallel(lambda x, m: pa.map(lambda a, row: pa.map(lambda e: e * a, row), x, m))
        np.testing.assert_array_equal(f(np.arange(3), np.ones((3, 2), np.int64)), [[0, 0], [1, 1], [2, 2]])


def test_scatter_of_an_array_into_itself() -> None:
    """The destination is dead afterwards, but it is read while it is written, also through a view."""
    def f(x: Any) -> Any:
        y = x * 2
        a = pa.scatter(y, pa.iota(y.shape[0]) + 1, y)
        z = x * 3
        w = pa.reverse(z)
        b = pa.scatter(z, pa.iota(z.shape[0]), w)
        u = x * 5
        v = pa.reverse(u)
        c = pa.scatter(u, pa.iota(u.shape[0]), pa.map(lambda i: v[i] + 0.0, pa.iota(u.shape[0])))
        return a, b, c
    x = np.arange(6.0)
    with pa.use_backend("cpu"):
        a, b, c = pa.parallel(f)(x)
    assert list(a) == [0, 0, 2, 4, 6, 8] and list(b) == list(3 * x[::-1]) and list(c) == list(5 * x[::-1])


AXES = [((0, 1), (1, 2), (0, 2)), ((0, 1), (2, 1), (0, 2)), ((1, 0), (1, 2), (0, 2)), ((1, 0), (2, 1), (0, 2)),
        ((3, 0, 1), (3, 1, 2), (3, 0, 2)), ((0, 3, 1), (2, 3, 1), (0, 3, 2)), ((0, 1, 2), (1, 2), (0,)),
        ((0, 1), (0, 1), ()), ((0,), (1,), (0, 1)), ((0, 1), (1,), (0,)), ((1, 0), (1,), (0,)),
        ((0, 1, 4), (4, 1, 2), (2, 0)), ((0, 3), (3, 2), (2, 0)), ((0, 1), (0, 2), (0, 1, 2))]


@settings(max_examples=40, deadline=None)
@given(axes=st.sampled_from(AXES), fixed=st.booleans(), threads=st.booleans(),
       sizes=st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 8, 9, 17]), min_size=5, max_size=5))
def test_contraction(axes: Any, sizes: list[int], fixed: bool, threads: bool) -> None:
    """Every layout of a sum of products, with constant and with symbolic sizes, is einsum's."""
    used = sorted({a for part in axes[:2] for a in part})
    names = {a: sizes[a] if fixed else Var(SIZE, f"n{a}") for a in used}
    x, y = (Var(Type(f64, tuple(names[a] for a in part)), "x") for part in axes[:2])
    op = Contract(x, y, *axes)
    out = Var(op.infer()[0])
    params = [] if fixed else [names[a] for a in used]
    lam = Lambda((*params, x, y), (Stm((out,), op),), (out,))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal([sizes[k] for k in part]) for part in axes[:2])
    before = cpu.WORK_PER_THREAD
    try:
        cpu.WORK_PER_THREAD = 1 if threads else before
        program = cpu.compile_program(lower(lam, len(params), vector_bytes=cpu.vector_bytes()))
        (found,) = program([] if fixed else [sizes[k] for k in used], [a, b])
    finally:
        cpu.WORK_PER_THREAD = before
    np.testing.assert_allclose(found, np.einsum(a, axes[0], b, axes[1], axes[2]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(8, 700, 10), (3, 600, 40), (1, 700, 33), (70, 600, 5)])
@pytest.mark.parametrize("static", [False, True])
def test_threads_share_contractions_of_few_rows(shape: tuple[int, int, int], static: bool,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in several panels, where one block of rows is all there is: no part is added twice."""
    monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1)
    monkeypatch.setenv("PARRAY_NUM_THREADS", "3")
    n, k, m = shape
    f = pa.parallel(lambda a, b: pa.tanh(a @ b.T * 0.01) * 2, static=static)
    a, b = (np.random.default_rng(0).standard_normal(s) for s in ((n, k), (m, k)))
    with pa.use_backend("cpu"):
        for _ in range(30):
            np.testing.assert_allclose(f(a, b), np.tanh(a @ b.T * 0.01) * 2, rtol=1e-10, atol=1e-12)


@pa.parallel
def twice(x: Any) -> Any:
    """Two arrays and a scalar."""
    return x + 1, x * 2, pa.sum(x)


def test_results_that_are_kept_stay_as_they_are() -> None:
    """Memory of results is used again only when nobody holds it, views included."""
    kept, views = [], []
    for k in range(20):
        a, b, s = twice(np.full(5, float(k)))
        if k % 3 == 0:
            kept.append((k, a, b))
        elif k % 3 == 1:
            views.append((k, a[1:3], memoryview(b)))
    for k, a, b in kept:
        assert (a == k + 1).all() and (b == 2 * k).all()
    for k, a, view in views:
        assert (a == k + 1).all() and list(view) == [2.0 * k] * 5


def test_threads_calling_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls from several threads, of which some use several threads themselves, do not disturb each other."""
    monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1000)
    monkeypatch.setenv("PARRAY_NUM_THREADS", "2")
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for k in range(50):
            n = 1 + (seed * 37 + k * 101) % 3000
            x = np.arange(n, dtype=np.float64) + seed
            a, b, s = twice(x)
            if not ((a == x + 1).all() and (b == x * 2).all() and np.isclose(s, x.sum())):
                wrong.append((seed, n))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pa.parallel
def layers(x: Any, a: Any, b: Any, c: Any) -> Any:
    """Three equal layers."""
    for w in (a, b, c):
        x = pa.tanh(x @ w)
    return x


def test_equal_work_is_one_kernel() -> None:
    """Equal layers share their kernels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 8), dtype=np.float32)
    ws = [rng.standard_normal((8, 8), dtype=np.float32) for _ in range(3)]
    with pa.use_backend("cpu"):
        layers(x, *ws)
        source = layers.source(x, *ws)
    calls = [line.split()[2] for line in source.splitlines() if line.startswith("#   kernel")]
    assert len(calls) == 9 and len(set(calls)) == 5       # pack, multiply, tanh; the first product is of another width


def test_large_sums_keep_their_digits() -> None:
    """Sums of many floats go in blocks: whole arrays, rows, columns, running sums."""
    tenth = np.full(1_000_000, 0.1, np.float32)
    with pa.use_backend("cpu"):
        whole = pa.parallel(lambda x: pa.sum(x))
        column = pa.parallel(lambda x: pa.sum(x, axis=0))
        running = pa.parallel(lambda x: pa.scan(pa.add, 0, x))
        assert abs(whole(tenth) - 100000) < 0.2
        assert np.abs(column(tenth.reshape(-1, 2)) - 50000).max() < 1
        assert abs(running(tenth)[-1] - 100000) < 1
        ones = running(np.ones((1 << 24) + 4096, np.float32))
        assert ones[-1] == (1 << 24) + 4096


FORKED = """
import os, threading
import numpy as np
import parray as pa
f = pa.parallel(lambda x: pa.map(pa.exp, x).sum())
x = np.linspace(0, 1, 2_000_000)
want = f(x)                                             # on two threads, which a fork does not copy

def child():
    pid = os.fork()
    if pid == 0:
        os._exit(0 if f(x) == want else 1)
    assert os.waitpid(pid, 0)[1] == 0

child()
busy = threading.Thread(target=lambda: [f(x) for _ in range(20)])
busy.start()
for _ in range(5):                                      # while another thread's call holds the team
    child()
busy.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_makes_threads_of_its_own() -> None:
    environment = os.environ | {"PARRAY_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", FORKED], env=environment, check=True, timeout=300)
