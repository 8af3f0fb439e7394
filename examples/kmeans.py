"""k-means: centres among points, by Lloyd's rule and by Newton's method on the gradient of the cost.

The cost is the sum of squared distances to the nearest centre.  Its second derivatives in different centres are zero,
so one product of the Hessian with a vector of ones is its diagonal, and Newton's step is Lloyd's rule.

    python examples/kmeans.py --points 2000 --k 5 --plot kmeans.png
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import parray as pa  # noqa: E402
from examples.common import figure, options  # noqa: E402
from parray import f64, i64, parallel  # noqa: E402


def nearest(centres: f64["k", "d"], p: f64["d"]) -> i64:
    """The number of the nearest centre."""
    return pa.argmin(pa.map(lambda c: pa.sum((p - c) ** 2), centres))


@parallel
def lloyd(points: f64["n", "d"], centres: f64["k", "d"]) -> f64["k", "d"]:
    """One step: each centre becomes the mean of the points nearest to it."""
    k = centres.shape[0]
    owner = pa.map(lambda p: nearest(centres, p), points)
    sums = pa.reduce_by_index(pa.zeros_like(centres), pa.add, 0.0, owner, points)
    counts = pa.histogram(owner, k)
    return pa.map(lambda c, s, n: pa.where(n > 0, s / pa.max(n, 1), c), centres, sums, counts)


@parallel
def cost(centres: f64["k", "d"], points: f64["n", "d"]) -> f64:
    """The sum over points of the squared distance to the nearest centre."""
    return pa.sum(pa.map(lambda p: pa.reduce(pa.min, pa.inf, pa.map(lambda c: pa.sum((p - c) ** 2), centres)), points))


@parallel
def newton(points: f64["n", "d"], centres: f64["k", "d"]) -> f64["k", "d"]:
    """One step of Newton's method; a centre without points stays."""
    gradient, diagonal = pa.jvp(lambda c: pa.grad(cost)(c, points), (centres,), (pa.ones_like(centres),))
    return centres - pa.where(diagonal > 0, gradient / pa.where(diagonal > 0, diagonal, 1.0), 0.0)


def clusters(n: int, k: int, seed: int = 0) -> Any:
    """Points around k places."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-10, 10, (k, 2))
    return places[rng.integers(0, k, n)] + rng.normal(size=(n, 2))


def main(argv: Sequence[str] | None = None) -> Any:
    """Find centres in both ways."""
    args = options(__doc__, argv, points=2000, k=5, steps=20)
    points = clusters(args.points, args.k)
    by_lloyd = by_newton = points[:args.k].copy()
    for _ in range(args.steps):
        by_lloyd, by_newton = lloyd(points, by_lloyd), newton(points, by_newton)
    apart = float(np.abs(by_lloyd - by_newton).max())
    print(f"cost {cost(by_lloyd, points):.1f}; the two methods' centres are {apart:.1e} apart")
    if args.plot:
        figure(args.plot, lambda ax: (ax.scatter(*points.T, s=2), ax.scatter(*by_lloyd.T, marker="x", color="red")))
    return by_lloyd, by_newton


if __name__ == "__main__":
    main()
