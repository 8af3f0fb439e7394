"""The Mandelbrot set: how many steps of z = z * z + c each point of the plane stays near 0.

    python examples/mandelbrot.py --plot mandelbrot.png
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


def steps(re: f64, im: f64, limit: i64) -> i64:
    """The steps of one point, ``limit`` at most."""
    def near(z: Any) -> Any:
        x, y, k = z
        return (x * x + y * y <= 4) & (k < limit)

    def step(z: Any) -> Any:
        x, y, k = z
        return x * x - y * y + re, 2 * x * y + im, k + 1
    return pa.while_loop(near, step, (0.0, 0.0, i64(0)))[2]


@parallel
def mandelbrot(re: f64["w"], im: f64["h"], limit: i64) -> i64["h", "w"]:
    """The picture: a map over rows of a map over points; points run in lock step, as vectors."""
    return pa.map(lambda y: pa.map(lambda x: steps(x, y, limit), re), im)


def main(argv: Sequence[str] | None = None) -> Any:
    """Compute, say which share of the points never left, draw."""
    args = options(__doc__, argv, width=300, height=200, limit=100)
    re, im = np.linspace(-2.2, 0.8, args.width), np.linspace(-1.0, 1.0, args.height)
    found = mandelbrot(re, im, args.limit)
    print(f"{100 * np.mean(found == args.limit):.1f} % of the points stay for {args.limit} steps")
    if args.plot:
        figure(args.plot, lambda ax: ax.imshow(np.log1p(found), extent=(-2.2, 0.8, -1, 1), cmap="magma"))
    return found


if __name__ == "__main__":
    main()
