"""Histogram equalisation: the grey levels of a picture, spread so that each is as common as any other.

    python examples/equalise.py --plot equalise.png
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Sequence

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import parray as pa  # noqa: E402
from examples.common import figure, options  # noqa: E402
from parray import f64, parallel, u8  # noqa: E402


LEVELS = 256


@parallel
def equalise(image: u8["h", "w"]) -> u8["h", "w"]:
    """A histogram, a running sum of it, and a look-up of every pixel in that."""
    levels = pa.flatten(image).astype(pa.i64)
    counts = pa.histogram(levels, LEVELS)
    below = pa.scan(pa.add, 0, counts)
    first = pa.reduce(pa.min, levels.shape[0], pa.map(lambda b: pa.where(b > 0, b, levels.shape[0]), below))
    span = pa.max(levels.shape[0] - first, 1)
    table = pa.map(lambda b: pa.round((b - first) / span * (LEVELS - 1)), below)
    return pa.map(lambda row: pa.map(lambda v: u8(pa.clip(table[v.astype(pa.i64)], 0.0, LEVELS - 1.0)), row), image)


def picture(size: int, seed: int = 0) -> Any:
    """A dim landscape: smooth hills of noise between the levels 60 and 120."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, size))
    for axis in (0, 1):
        kernel = np.hanning(size // 8 + 3)
        x = np.apply_along_axis(lambda v: np.convolve(v, kernel, "same"), axis, x)
    x = (x - x.min()) / (x.max() - x.min())
    return (60 + 60 * x).astype(np.uint8)


@parallel
def flatness(image: u8["h", "w"]) -> f64:
    """How far the shares of the levels up to each are from a straight line, at most."""
    counts = pa.histogram(pa.flatten(image).astype(pa.i64), LEVELS)
    shares = pa.scan(pa.add, 0.0, counts / pa.sum(counts))
    return pa.max(pa.map(lambda k, s: pa.abs(s - (k + 1) / LEVELS), pa.iota(LEVELS), shares))


def main(argv: Sequence[str] | None = None) -> Any:
    """Equalise a picture and say what it did to the levels."""
    args = options(__doc__, argv, size=256)
    before = picture(args.size)
    after = equalise(before)
    print(f"levels {before.min()}..{before.max()} became {after.min()}..{after.max()}; "
          f"away from even: {flatness(before):.2f}, then {flatness(after):.2f}")
    if args.plot:
        figure(args.plot, lambda ax: ax.imshow(np.hstack([before, after]), cmap="gray", vmin=0, vmax=255))
    return after


if __name__ == "__main__":
    main()
