"""The heat equation on a square whose border is cold: explicit steps, compared with the solution known by formula.

    python examples/heat.py --size 129 --steps 2000 --plot heat.png
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


CROSS = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]


@parallel
def heat(u: f64["h", "w"], steps: i64, c: f64) -> f64["h", "w"]:
    """``steps`` times u + c * laplacian(u), where c is at most 1/4; beyond the border it is 0."""
    def flow(middle: Any, *others: Any) -> Any:
        return middle + c * (sum(others) - 4 * middle)
    return pa.loop(steps, lambda _, u: pa.stencil(flow, CROSS, u, 0.0), u)


def mode(size: int) -> Any:
    """The slowest wave that is 0 just outside of the border."""
    wave = np.sin(np.pi * np.arange(1, size + 1) / (size + 1))
    return np.outer(wave, wave)


def decay(size: int, steps: int, c: float) -> float:
    """What is left of that wave: each step multiplies it by the same number."""
    return float((1 - 8 * c * np.sin(np.pi / (2 * (size + 1))) ** 2) ** steps)


def main(argv: Sequence[str] | None = None) -> Any:
    """Let a wave decay and compare."""
    args = options(__doc__, argv, size=65, steps=500)
    before = mode(args.size)
    after = heat(before, args.steps, 0.2)
    expected = before * decay(args.size, args.steps, 0.2)
    wrong = float(np.abs(after - expected).max())
    print(f"the wave fell to {after.max():.4f}; away from the formula by {wrong:.1e}")
    if args.plot:
        figure(args.plot, lambda ax: ax.imshow(after, cmap="inferno", vmin=0, vmax=1))
    return wrong


if __name__ == "__main__":
    main()
