"""A sparse matrix times a vector, and conjugate gradients on top: the equation of a loaded membrane.

The matrix lies in compressed rows: the values of all rows one after the other, their columns, and how many each row
has.  Its product with a vector is one multiplication for each value and a segmented sum.

    python examples/spmv.py --side 50 --plot membrane.png
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import parray as pa  # noqa: E402
from examples.common import figure, options  # noqa: E402
from parray import bool_, f64, i64, parallel  # noqa: E402


class Sparse(pa.Record):
    """Compressed rows: values and their columns; ``first`` marks where a row begins.  No row is empty."""
    values: f64["z"]
    columns: i64["z"]
    first: bool_["z"]


def times(a: Sparse, x: f64["n"]) -> f64["n"]:
    """``a x``."""
    products = pa.map(lambda v, c: v * x[c], a.values, a.columns)
    sums = pa.segmented_reduce(pa.add, 0.0, a.first, products)
    return pa.take(x.shape[0], sums)


@parallel
def product(a: Sparse, x: f64["n"]) -> f64["n"]:
    """``a x`` for a square matrix."""
    return times(a, x)


@parallel
def solve(a: Sparse, b: f64["n"], tolerance: f64) -> tuple[f64["n"], i64]:
    """``x`` with ``a x = b`` for a symmetric, positive matrix, by conjugate gradients; and how many steps it took."""
    def far(state: Any) -> Any:
        _, _, _, rr, k = state
        return (rr > tolerance ** 2 * pa.dot(b, b)) & (k < 10 * b.shape[0])

    def step(state: Any) -> Any:
        x, r, p, rr, k = state
        ap = times(a, p)
        alpha = rr / pa.dot(p, ap)
        r_next = r - alpha * ap
        rr_next = pa.dot(r_next, r_next)
        return x + alpha * p, r_next, r_next + rr_next / rr * p, rr_next, k + 1
    x, _, _, _, k = pa.while_loop(far, step, (pa.zeros_like(b), b, b, pa.dot(b, b), i64(0)))
    return x, k


def membrane(side: int) -> Sparse:
    """The Laplace operator on a square grid whose border is held fast."""
    rows = np.arange(side * side)
    i, j = np.divmod(rows, side)
    entries = [(rows, rows, 4.0)]
    for di, dj in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        inside = (0 <= i + di) & (i + di < side) & (0 <= j + dj) & (j + dj < side)
        entries.append((rows[inside], rows[inside] + di * side + dj, -1.0))
    row = np.concatenate([e[0] for e in entries])
    column = np.concatenate([e[1] for e in entries])
    value = np.concatenate([np.full(len(e[0]), e[2]) for e in entries])
    order = np.lexsort((column, row))
    return Sparse(value[order], column[order], np.diff(row[order], prepend=-1) > 0)


def main(argv: Sequence[str] | None = None) -> Any:
    """Load the membrane evenly and solve for how far it gives."""
    args = options(__doc__, argv, side=40)
    a, load = membrane(args.side), np.ones(args.side ** 2) / (args.side + 1) ** 2
    x, k = solve(a, load, 1e-10)
    wrong = float(np.abs(product(a, x) - load).max() / load.max())
    print(f"deepest point {x.max():.5f} after {k} steps; what is left of the equation: {wrong:.1e}")
    if args.plot:
        figure(args.plot, lambda ax: ax.imshow(x.reshape(args.side, args.side)))
    return x


if __name__ == "__main__":
    main()
