"""The cost of reverse mode: time of a gradient over that of its function, at two sizes (the ratio must not grow).

    python benchmarks/gradients.py [--rounds 5] [--write]

Each row is a construct as a user writes it.  A figure is the median over rounds of one call on one thread; functions
and gradients take turns.  ``--write`` keeps the table in benchmarks/results/.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("PARRAY_NUM_THREADS", "1")

import numpy as np  # noqa: E402

import parray as pa  # noqa: E402


def affine(p: Any, q: Any) -> Any:
    """Composition of linear functions."""
    return p[0] * q[0], p[1] * q[0] + q[1]


CASES: dict[str, Callable[[Any], Any]] = {
    "map": lambda x: pa.sum(pa.map(lambda v: pa.sin(v) * v, x)),
    "product": lambda x: pa.reduce(pa.mul, 1, x),
    "maximum": lambda x: pa.max(x * x),
    "reduce, any operator": lambda x: pa.reduce(affine, (1, 0), (x, x))[1],
    "running sum": lambda x: pa.sum(pa.scan(pa.add, 0, x) ** 2),
    "running product": lambda x: pa.sum(pa.scan(pa.mul, 1, x)),
    "scan, any operator": lambda x: pa.sum(pa.scan(affine, (1, 0), (x, x))[1]),
    "gather": lambda x: pa.sum(x[pa.reverse(pa.iota(x.shape[0]))] * x),
    "scatter": lambda x: pa.sum(pa.scatter(x, pa.iota(x.shape[0]) // 2, x * x)),
    "histogram": lambda x: pa.sum(pa.reduce_by_index(pa.zeros(100), pa.add, 0, pa.iota(x.shape[0]) % 100, x) ** 2),
    "histogram, any operator": lambda x: pa.sum(pa.reduce_by_index(
        pa.ones(100), pa.mul, 1, pa.iota(x.shape[0]) % 100, x)),
    "filter": lambda x: pa.sum(pa.filter(lambda v: v > 1, x) ** 2),
    "sort": lambda x: pa.sum(pa.sort(x) * x),
    "segmented scan": lambda x: pa.sum(pa.segmented_scan(pa.add, 0, x > 1.01, x) ** 2),
    "loop": lambda x: pa.loop(x.shape[0], lambda i, c: pa.sin(c) + x[i], 0.0),
    "loop, checkpoints": lambda x: pa.loop(x.shape[0], lambda i, c: pa.sin(c) + x[i], 0.0, checkpoint=100),
    "loop that fills an array": lambda x: pa.sum(pa.loop(x.shape[0] - 1, lambda i, a: pa.update(
        a, i + 1, pa.sin(a[i]) + a[i + 1]), x)),
    "nested map": lambda x: pa.sum(pa.map(lambda row: pa.prod(row), pa.unflatten(x, (-1, 10)))),
    "stencil": lambda x: pa.sum(pa.stencil(lambda a, b, c: a * b + c, [-1, 0, 1], x) ** 2),
}


def timed(f: Callable[[Any], Any], x: Any) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    f(x)
    return time.perf_counter() - start


def main() -> None:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows = {}
    print(f"{'construct':28} {'n':>8} {'function':>12} {'gradient':>12} {'ratio':>7}")
    for name, f in CASES.items():
        function, gradient = pa.parallel(f), pa.grad(f)
        for n in (20_000, 320_000):
            x = 1 + 1e-6 * np.random.default_rng(0).standard_normal(n)
            function(x), gradient(x)
            pairs = [(timed(function, x), timed(gradient, x)) for _ in range(args.rounds)]
            primal, reverse = (statistics.median(p[k] for p in pairs) for k in (0, 1))
            rows[f"{name}, n={n}"] = {"function_us": round(1e6 * primal, 1), "gradient_us": round(1e6 * reverse, 1),
                                      "ratio": round(reverse / primal, 2)}
            print(f"{name:28} {n:8} {1e6 * primal:9.1f} us {1e6 * reverse:9.1f} us {reverse / primal:7.2f}", flush=True)
    if args.write:
        target = ROOT / "benchmarks" / "results" / "gradients.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps({"processor": platform.processor() or platform.machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
