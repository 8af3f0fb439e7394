"""Conway's game of life on a torus: a stencil, and a loop around it.

    python examples/life.py --size 256 --steps 500 --plot life.png
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import parray as pa  # noqa: E402
from examples.common import figure, options  # noqa: E402
from parray import bool_, i64, parallel  # noqa: E402


AROUND = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


def generation(cells: bool_["h", "w"]) -> bool_["h", "w"]:
    """A cell lives next if three of the nine cells here live, or four and it is one of them."""
    def rule(*nine: Any) -> Any:
        living = sum(v.astype(pa.i32) for v in nine)
        return (living == 3) | (living == 4) & nine[4]
    return pa.stencil(rule, AROUND, cells, "wrap")


@parallel
def play(cells: bool_["h", "w"], steps: i64) -> bool_["h", "w"]:
    """Many generations."""
    return pa.loop(steps, lambda _, c: generation(c), cells)


def glider(size: int) -> Any:
    """The five cells that walk diagonally, one square in four generations."""
    cells = np.zeros((size, size), bool)
    cells[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = True
    return cells


def main(argv: Sequence[str] | None = None) -> Any:
    """Play from a random start."""
    args = options(__doc__, argv, size=128, steps=200)
    cells = np.random.default_rng(0).random((args.size, args.size)) < 0.3
    after = play(cells, args.steps)
    print(f"of {cells.sum()} living cells {after.sum()} are left after {args.steps} generations")
    if args.plot:
        figure(args.plot, lambda ax: ax.imshow(after, cmap="binary"))
    return after


if __name__ == "__main__":
    main()
