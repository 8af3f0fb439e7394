"""Bodies that attract each other: leapfrog steps, and how well they keep the energy.

    python examples/nbody.py --bodies 500 --steps 200
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


class Bodies(pa.Record):
    """Positions, velocities and masses."""
    x: f64["n", 3]
    v: f64["n", 3]
    mass: f64["n"]


SOFTENING = 1e-2                                 # keeps close encounters finite


def accelerations(x: f64["n", 3], mass: f64["n"]) -> f64["n", 3]:
    """What all bodies do to each: a map over bodies of a sum over bodies; no n x n array is made."""
    def on(a: Any) -> Any:
        def by(b: Any, m: Any) -> Any:
            d = b - a
            return m * d / (pa.sum(d * d) + SOFTENING) ** 1.5
        return pa.sum(pa.map(by, x, mass), axis=0)
    return pa.map(on, x)


@parallel
def simulate(b: Bodies, steps: i64, dt: f64) -> Bodies:
    """Leapfrog: half a kick, a drift, half a kick."""
    def step(_: Any, b: Bodies) -> Bodies:
        v = b.v + 0.5 * dt * accelerations(b.x, b.mass)
        x = b.x + dt * v
        return Bodies(x, v + 0.5 * dt * accelerations(x, b.mass), b.mass)
    return pa.loop(steps, step, b)


@parallel
def energy(b: Bodies) -> f64:
    """Kinetic and potential energy together."""
    kinetic = 0.5 * pa.sum(b.mass * pa.sum(b.v * b.v, axis=1))

    def potential(x: Any, m: Any) -> Any:
        return pa.sum(pa.map(lambda y, k: m * k * pa.rsqrt(pa.sum((y - x) ** 2) + SOFTENING), b.x, b.mass))
    own = pa.sum(b.mass ** 2) / SOFTENING ** 0.5
    return kinetic - 0.5 * (pa.sum(pa.map(potential, b.x, b.mass)) - own)


def start(n: int, seed: int = 0) -> Bodies:
    """A ball of bodies that turns about an axis."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    v = 0.3 * np.cross([0.0, 0.0, 1.0], x)
    return Bodies(x, v, np.full(n, 1 / n))


def main(argv: Sequence[str] | None = None) -> Any:
    """Simulate, and say how much of the energy was lost."""
    args = options(__doc__, argv, bodies=200, steps=100)
    before = start(args.bodies)
    after = simulate(before, args.steps, 0.01)
    lost = abs(energy(after) - energy(before)) / abs(energy(before))
    print(f"after {args.steps} steps the energy is off by {lost:.1e} of itself")
    if args.plot:
        figure(args.plot, lambda ax: (ax.scatter(*before.x[:, :2].T, s=4), ax.scatter(*after.x[:, :2].T, s=4)))
    return lost


if __name__ == "__main__":
    main()
