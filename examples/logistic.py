"""Logistic regression by Newton's method: gradient and Hessian come from the loss, the step from a linear system.

    python examples/logistic.py --points 5000
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import parray as pa  # noqa: E402
from examples.common import figure, options  # noqa: E402
from parray import bool_, f64, parallel  # noqa: E402


@parallel
def loss(weights: f64["d"], x: f64["n", "d"], y: bool_["n"], penalty: f64) -> f64:
    """Minus the mean logarithm of the chance given to what happened, and a penalty on large weights."""
    def one(row: Any, label: Any) -> Any:
        z = pa.dot(row, weights)
        return pa.softplus(pa.where(label, -z, z))
    return pa.mean(pa.map(one, x, y)) + 0.5 * penalty * pa.dot(weights, weights)


def solve(a: f64["d", "d"], b: f64["d"]) -> f64["d"]:
    """``x`` with ``a x = b`` for a symmetric, positive matrix: Gauss's elimination, which needs no pivots then."""
    def eliminate(k: Any, system: Any) -> Any:
        a, b = system
        row, value = a[k] / a[k, k], b[k] / a[k, k]

        def clear(i: Any, other: Any, v: Any) -> Any:
            factor = pa.where(i == k, 0.0, other[k])
            return pa.where(i == k, row, other - factor * row), pa.where(i == k, value, v - factor * value)
        return pa.map(clear, pa.iota(b.shape[0]), a, b)
    return pa.loop(b.shape[0], eliminate, (a, b))[1]


@parallel
def newton(weights: f64["d"], x: f64["n", "d"], y: bool_["n"], penalty: f64) -> tuple[f64["d"], f64]:
    """The next weights, and how long the gradient is at these."""
    gradient = pa.grad(loss)(weights, x, y, penalty)
    curvature = pa.hessian(loss)(weights, x, y, penalty)
    return weights - solve(curvature, gradient), pa.sqrt(pa.dot(gradient, gradient))


def data(n: int, d: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Points, what happened at each, and the weights that decided it."""
    rng = np.random.default_rng(seed)
    x, truth = rng.normal(size=(n, d)), rng.normal(size=d)
    return x, rng.random(n) < 1 / (1 + np.exp(-x @ truth)), truth


def main(argv: Sequence[str] | None = None) -> Any:
    """Fit, and say how far the weights are from the true ones."""
    args = options(__doc__, argv, points=5000, features=8)
    x, y, truth = data(args.points, args.features)
    weights, lengths = np.zeros(args.features), []
    while len(lengths) < 20 and (not lengths or lengths[-1] > 1e-12):
        weights, length = newton(weights, x, y, 1e-4)
        lengths.append(float(length))
    print(f"{len(lengths)} steps, loss {loss(weights, x, y, 1e-4):.4f}, "
          f"weights off by {np.abs(weights - truth).max():.3f} at most")
    if args.plot:
        figure(args.plot, lambda ax: ax.semilogy(lengths, marker="o"))
    return weights


if __name__ == "__main__":
    main()
