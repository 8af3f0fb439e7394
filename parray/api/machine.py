"""What this machine can do at most, measured: bytes per second by how much memory is in use, operations per second.

Both are measured with what parray itself does best, so a kernel's share of them says what could still be won: a copy of
arrays, and a product of matrices that lie in the cache.
"""
from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Callable

import numpy as np

from parray.api.parallel import parallel
from parray.cost import Meter
from parray.types import ScalarType, f32

LEVELS = (1 << 18, 1 << 22, 1 << 24, 1 << 27)     # bytes in use, of one thread: from the second cache to memory
SIDE = 256                                       # of the matrices


def _fastest(f: Callable[[], Any], seconds: float = 0.02) -> float:
    """The shortest time of a call, in seconds."""
    f()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        f()
        best = min(best, time.perf_counter() - start)
    return best


@cache
def _copy_rate(level: int, threads: int) -> float:
    """Bytes read and written per second by threads that each copy within ``level`` bytes."""
    def work(_: int) -> float:
        a, b = np.zeros(level // 2, np.uint8), np.zeros(level // 2, np.uint8)
        return level / _fastest(lambda: np.copyto(b, a))
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(work, range(threads)))


def bandwidth(nbytes: float, threads: int) -> float:
    """Bytes per second that ``threads`` threads can move between them while they use ``nbytes`` of memory."""
    level = next((k for k in LEVELS if nbytes / threads <= k), LEVELS[-1])
    return _copy_rate(level, threads)


@cache
def flops(elem: ScalarType = f32) -> float:
    """Multiplications and additions per second of one thread."""
    from parray.trace.einsum import contract
    product = parallel(lambda a, b: contract("ij,jk->ik", a, b), backend="cpu", name="limit")
    a = np.ones((SIDE, SIDE), elem.dtype)
    product(a, a)
    entry = product._program_for((a, a), {})
    sizes = entry.program.bind([a, a])
    meter = Meter(dict(zip(entry.run.program.sizes, sizes)))
    costs = [meter.measure(c.stms, c.around).flops for c in entry.run.launches.listing]
    best = 0.0
    for _ in range(10):
        times, _ = entry.run.timed(sizes, [a, a])
        best = max(best, *(c / (ns * 1e-9 * entry.run.threads(sizes)) for c, ns in zip(costs, times) if c and ns))
    return best
