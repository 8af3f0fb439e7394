"""Line of sight: what can be seen from a tower in the hills, by running maxima along rays.

A point is seen if it stands at a steeper angle than everything before it on its ray: an exclusive scan, of maxima.

    python examples/line_of_sight.py --plot seen.png
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


def seen_on_ray(angles: f64["n"]) -> bool_["n"]:
    """Which points of a ray are seen, from the slopes at which they stand, near ones first."""
    before = pa.exscan(pa.max, -pa.inf, angles)
    return pa.map(lambda a, b: a > b, angles, before)


def height_at(land: f64["h", "w"], y: f64, x: f64) -> f64:
    """The height between four points of the grid."""
    i, j = pa.floor(y).astype(pa.i64), pa.floor(x).astype(pa.i64)
    i, j = pa.clip(i, 0, land.shape[0] - 2), pa.clip(j, 0, land.shape[1] - 2)
    fy, fx = y - i, x - j
    upper = land[i, j] * (1 - fx) + land[i, j + 1] * fx
    lower = land[i + 1, j] * (1 - fx) + land[i + 1, j + 1] * fx
    return upper * (1 - fy) + lower * fy


@parallel
def seen(land: f64["h", "w"], tower: f64[2], height: f64, directions: f64["r"], distances: f64["n"]) -> bool_["r", "n"]:
    """For each direction and distance, whether the ground there is seen from ``height`` above ``tower``."""
    eye = height_at(land, tower[0], tower[1]) + height

    def ray(angle: Any) -> Any:
        def slope(d: Any) -> Any:
            y, x = tower[0] + d * pa.sin(angle), tower[1] + d * pa.cos(angle)
            return (height_at(land, y, x) - eye) / d
        return seen_on_ray(pa.map(slope, distances))
    return pa.map(ray, directions)


def hills(size: int, seed: int = 0) -> Any:
    """Some waves on top of each other."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    waves = (rng.normal() * np.sin(2 * np.pi * (a * x + b * y) + rng.uniform(0, 6)) / (a * a + b * b)
             for a in range(1, 5) for b in range(1, 5))
    return 10 * np.sum(list(waves), axis=0)


def main(argv: Sequence[str] | None = None) -> Any:
    """Look around."""
    args = options(__doc__, argv, size=200, rays=720)
    land, middle = hills(args.size), np.array([args.size / 2, args.size / 2])
    directions = np.linspace(0, 2 * np.pi, args.rays, endpoint=False)
    distances = np.arange(1.0, args.size / 2 - 1)
    found = seen(land, middle, 2.0, directions, distances)
    print(f"{100 * found.mean():.1f} % of the land around is seen")
    if args.plot:
        d, a = distances[None], directions[:, None]
        figure(args.plot, lambda ax: (ax.imshow(land), ax.scatter((middle[1] + d * np.cos(a))[found],
                                                                  (middle[0] + d * np.sin(a))[found], s=0.2, c="w")))
    return found


if __name__ == "__main__":
    main()
