"""The programs in examples/: each against a calculation of its own in NumPy, on every backend, and as a script."""
from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr

from examples import black_scholes, equalise, heat, kmeans, life, line_of_sight, logistic, mandelbrot, nbody, spmv

ROOT = Path(__file__).parent.parent
NAMES = sorted(p.stem for p in (ROOT / "examples").glob("*.py") if p.stem not in ("__init__", "common"))
SMALL = {"mandelbrot": "--width 24 --height 16 --limit 20", "nbody": "--bodies 12 --steps 10", "heat": "--size 17 "
         "--steps 20", "kmeans": "--points 60 --k 3 --steps 5", "equalise": "--size 40", "black_scholes":
         "--options 50", "life": "--size 20 --steps 5", "spmv": "--side 6", "line_of_sight": "--size 30 --rays 16",
         "logistic": "--points 80 --features 3"}
SAYS = {"mandelbrot": "stay for 20 steps", "nbody": "energy is off by", "heat": "away from the formula by",
        "kmeans": "centres are", "equalise": "became 0..255", "black_scholes": "calls cost", "life": "are left after 5",
        "spmv": "deepest point", "line_of_sight": "is seen", "logistic": "weights off by"}


@pytest.mark.parametrize("name", NAMES)
def test_as_a_script(name: str, backend: str, tmp_path: Path, capsys: Any) -> None:
    picture = tmp_path / "picture.png"
    importlib.import_module(f"examples.{name}").main([*SMALL[name].split(), "--plot", str(picture)])
    assert SAYS[name] in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_mandelbrot(backend: str) -> None:
    re, im = np.linspace(-2, 1, 13), np.linspace(-1, 1, 9)
    expected = np.zeros((9, 13), int)
    for i, y in enumerate(im):
        for j, x in enumerate(re):
            z, k = 0j, 0
            while abs(z) <= 2 and k < 30:
                z, k = z * z + complex(x, y), k + 1
            expected[i, j] = k
    assert_array_equal(mandelbrot.mandelbrot(re, im, 30), expected)


def test_nbody(backend: str) -> None:
    b = nbody.start(7)

    def pull(x: Any) -> Any:
        d = x[None] - x[:, None]
        return np.sum(b.mass[None, :, None] * d / (np.sum(d * d, axis=2) + nbody.SOFTENING)[..., None] ** 1.5, axis=1)
    x, v = b.x, b.v
    for _ in range(4):
        v = v + 0.005 * pull(x)
        x = x + 0.01 * v
        v = v + 0.005 * pull(x)
    after = nbody.simulate(b, 4, 0.01)
    assert_allclose(after.x, x, rtol=1e-10)
    assert_allclose(after.v, v, rtol=1e-9)
    r = np.sqrt(np.sum((b.x[:, None] - b.x[None]) ** 2, axis=2) + nbody.SOFTENING)
    pairs = np.sum(np.triu(np.outer(b.mass, b.mass) / r, 1))
    assert_allclose(nbody.energy(b), 0.5 * np.sum(b.mass[:, None] * b.v ** 2) - pairs, rtol=1e-10)


def test_kmeans(backend: str) -> None:
    points = kmeans.clusters(90, 4)
    centres = np.vstack([points[:4], [[100.0, 100.0]]])                  # the last one has no points
    owner = np.argmin(((points[:, None] - centres[None]) ** 2).sum(axis=2), axis=1)
    expected = np.array([points[owner == k].mean(axis=0) if k < 4 else centres[4] for k in range(5)])
    assert_allclose(kmeans.lloyd(points, centres), expected, rtol=1e-12)
    assert_allclose(kmeans.newton(points, centres), expected, rtol=1e-9)
    assert_allclose(kmeans.cost(centres, points), ((points - centres[owner]) ** 2).sum(), rtol=1e-12)


def test_equalise(backend: str) -> None:
    image = equalise.picture(48)
    below = np.cumsum(np.bincount(image.ravel(), minlength=256))
    first = below[below > 0].min()
    table = np.round((below - first) / (image.size - first) * 255)
    assert_array_equal(equalise.equalise(image), np.clip(table, 0, 255).astype(np.uint8)[image])
    assert equalise.flatness(equalise.equalise(image)) < equalise.flatness(image) / 3
    assert_array_equal(equalise.equalise(np.full((3, 4), 9, np.uint8)), 0)          # one level only


def test_black_scholes(backend: str) -> None:
    m = black_scholes.market(40)
    s, k, t, v, r = m
    d1 = (np.log(s / k) + (r + v * v / 2) * t) / (v * np.sqrt(t))
    d2, discount = d1 - v * np.sqrt(t), np.exp(-r * t)
    calls, puts = black_scholes.prices(m)
    assert_allclose(calls, s * ndtr(d1) - k * discount * ndtr(d2), rtol=1e-9, atol=1e-10)
    assert_allclose(puts, k * discount * ndtr(-d2) - s * ndtr(-d1), rtol=1e-9, atol=1e-9)
    density = np.exp(-d1 * d1 / 2) / math.sqrt(2 * math.pi)
    found = black_scholes.greeks(m)
    assert_allclose(found.spot, ndtr(d1), rtol=1e-9, atol=1e-10)
    assert_allclose(found.volatility, s * density * np.sqrt(t), rtol=1e-8, atol=1e-8)
    assert_allclose(found.rate, k * t * discount * ndtr(d2), rtol=1e-8, atol=1e-8)
    assert_allclose(black_scholes.gamma(m), density / (s * v * np.sqrt(t)), rtol=1e-7, atol=1e-9)


def test_life(backend: str) -> None:
    walker = life.glider(10)
    assert_array_equal(life.play(walker, 4), np.roll(walker, (1, 1), (0, 1)))
    assert_array_equal(life.play(walker, 40), walker)                    # once around the torus
    cells = np.random.default_rng(1).random((9, 11)) < 0.4
    around = sum(np.roll(cells, (i, j), (0, 1)).astype(int) for i, j in life.AROUND) - cells
    assert_array_equal(life.play(cells, 1), (around == 3) | (cells & (around == 2)))


def test_heat(backend: str) -> None:
    assert_allclose(heat.heat(heat.mode(21), 50, 0.2), heat.mode(21) * heat.decay(21, 50, 0.2), atol=1e-13)
    u = np.pad(np.random.default_rng(0).random((6, 8)), 1)
    expected = u[1:-1, 1:-1] + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    assert_allclose(heat.heat(u[1:-1, 1:-1].copy(), 1, 0.1), expected, rtol=1e-13)


def test_spmv(backend: str) -> None:
    a = spmv.membrane(5)
    dense = np.zeros((25, 25))
    dense[np.cumsum(a.first) - 1, a.columns] = a.values
    x = np.random.default_rng(0).normal(size=25)
    assert_allclose(spmv.product(a, x), dense @ x, rtol=1e-12, atol=1e-12)
    solution, steps = spmv.solve(a, x, 1e-12)
    assert_allclose(solution, np.linalg.solve(dense, x), rtol=1e-8)
    assert 0 < steps <= 30


def test_line_of_sight(backend: str) -> None:
    flat = np.zeros((40, 40))
    flat[:, 30] = 5.0                                                     # a wall
    found = line_of_sight.seen(flat, np.array([20.0, 20.0]), 2.0, np.array([0.0, np.pi]), np.arange(1.0, 19.0))
    assert_array_equal(found[0], np.arange(1, 19) <= 10)                  # nothing behind the wall
    assert found[1].all()
    land = line_of_sight.hills(40)
    angles, distances = np.array([0.7, 2.0, 4.0]), np.arange(1.0, 19.0)
    found = line_of_sight.seen(land, np.array([20.0, 20.0]), 2.0, angles, distances)

    def ground(y: float, x: float) -> float:
        i, j = int(y), int(x)
        rows = [land[k, j] * (1 - x + j) + land[k, j + 1] * (x - j) for k in (i, i + 1)]
        return float(rows[0] * (1 - y + i) + rows[1] * (y - i))
    for k, angle in enumerate(angles):
        steepest = -math.inf
        for d, seen in zip(distances, found[k]):
            slope = (ground(20 + d * math.sin(angle), 20 + d * math.cos(angle)) - ground(20, 20) - 2) / d
            assert seen == (slope > steepest)
            steepest = max(steepest, slope)


def test_logistic(backend: str) -> None:
    x, y, truth = logistic.data(200 if backend == "interp" else 3000, 4)
    weights = np.zeros(4)
    for _ in range(12):
        weights, length = logistic.newton(weights, x, y, 1e-3)
    chance = 1 / (1 + np.exp(-x @ weights))
    assert_allclose(x.T @ (chance - y) / len(y) + 1e-3 * weights, 0, atol=1e-12)
    assert length < 1e-10 and np.abs(weights - truth).max() < (1.0 if backend == "interp" else 0.3)
    assert_allclose(logistic.loss(weights, x, y, 1e-3), -np.mean(np.log(np.where(y, chance, 1 - chance)))
                    + 0.5e-3 * weights @ weights, rtol=1e-12)
