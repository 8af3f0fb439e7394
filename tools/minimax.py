"""Computes the coefficient tables of parray/backends/vecmath.py and prints them (needs mpmath).

Each table is the polynomial p that minimises max |w (p - g)| on an interval, found by Remez's exchange algorithm.
The printed error is that of the table rounded to the float type; it is relative to the function that the table serves,
in units of 2^-24 (f32) or 2^-53 (f64).
"""
from __future__ import annotations

import struct
from typing import Any, Callable

from mpmath import cos, erf, erfc, expm1, log, log1p, matrix, lu_solve, mp, mpf, pi, sin, sqrt, tanh

mp.dps = 60
Fn = Callable[[Any], Any]
SAMPLES = 40                                              # points a coefficient when looking for extrema


def rounded(x: Any, bits: int) -> float:
    """The float nearest to ``x`` (for 32 bits by way of 64: harmless here)."""
    return float(x) if bits == 64 else float(struct.unpack("f", struct.pack("f", float(x)))[0])


def remez(g: Fn, w: Fn, a: Any, b: Any, n: int) -> list[Any]:
    """Coefficients c0..c(n-1) of the best polynomial."""
    points = [(a + b) / 2 - (b - a) / 2 * cos(pi * (k + mpf(1) / 2) / (n + 1)) for k in range(n + 1)]
    coefficients: list[Any] = []
    for _ in range(12):
        rows = matrix(n + 1, n + 1)
        right = matrix(n + 1, 1)
        for i, t in enumerate(points):
            for j in range(n):
                rows[i, j] = t ** j
            rows[i, n] = (-1) ** i / w(t)
            right[i] = g(t)
        solved = lu_solve(rows, right)
        coefficients = [solved[j] for j in range(n)]
        grid = [(a + b) / 2 - (b - a) / 2 * cos(pi * k / (SAMPLES * n)) for k in range(SAMPLES * n + 1)]
        errors = [w(t) * (value(coefficients, t) - g(t)) for t in grid]
        peaks = alternating(grid, errors)
        if len(peaks) < n + 1:
            break
        points = best_run(peaks, n + 1)
        sizes = [abs(e) for _, e in peaks]
        if max(sizes) < 1.01 * abs(solved[n]):
            break
    return coefficients


def alternating(grid: list[Any], errors: list[Any]) -> list[tuple[Any, Any]]:
    """The largest error of each stretch of one sign."""
    peaks: list[tuple[Any, Any]] = []
    for t, e in zip(grid, errors):
        if peaks and (peaks[-1][1] > 0) == (e > 0):
            if abs(e) > abs(peaks[-1][1]):
                peaks[-1] = t, e
        else:
            peaks.append((t, e))
    return peaks


def best_run(peaks: list[tuple[Any, Any]], n: int) -> list[Any]:
    starts = range(len(peaks) - n + 1)
    k = max(starts, key=lambda k: min(abs(e) for _, e in peaks[k:k + n]))
    return [t for t, _ in peaks[k:k + n]]


def value(coefficients: list[Any], t: Any) -> Any:
    total = mpf(0)
    for c in reversed(coefficients):
        total = total * t + c
    return total


def table(name: str, bits: int, g: Fn, w: Fn, a: Any, b: Any, n: int) -> list[float]:
    """Fit, round and print."""
    done = [rounded(c, bits) for c in remez(g, w, a, b, n)]
    unit = mpf(2) ** (-24 if bits == 32 else -53)
    grid = [a + (b - a) * (k + mpf(1) / 2) / 999 for k in range(999)]
    worst = max(abs(w(t) * (value([mpf(c) for c in done], t) - g(t))) for t in grid)
    shown = ", ".join(f"{c:.9g}" if bits == 32 else repr(c) for c in done)
    print(f"{name} f{bits}: {float(worst / unit):.3f} units\n    [{shown}]")
    return done


def split(name: str, x: Any, bits: int, keep: int) -> None:
    """``x`` as hi + lo, hi with ``keep`` significant bits, so that its product with a small integer is exact."""
    scale = mpf(2) ** (keep - 1 - int(mp.floor(mp.log(x, 2))))
    hi = mp.nint(x * scale) / scale
    print(f"{name} f{bits}: {float(hi)!r}, {rounded(x - hi, bits)!r}")


def main() -> None:
    # Not quite symmetric, so that no point of the first guess is 0, where the weight vanishes.
    h = log(mpf(2)) / 2 * mpf("1.001")
    for bits, n in ((32, 6), (64, 11)):
        table("exp: (e^r - 1 - r)/r^2", bits, lambda r: (expm1(r) - r) / r ** 2 if r else mpf(1) / 2,
              lambda r: r ** 2 / abs(expm1(r)) if r else mpf(0), -h, h * mpf("1.003"), n)
    low, high = sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1
    table("log: (log(1+f) - f)/f^2", 32, lambda f: (log1p(f) - f) / f ** 2 if f else -mpf(1) / 2,
          lambda f: f ** 2 / abs(log1p(f)) if f else mpf(0), low, high, 9)
    top = (high / (2 + high)) ** 2
    table("log: (2 atanh(s)/s - 2)/s^2 in s^2", 64, lambda z: (log((1 + sqrt(z)) / (1 - sqrt(z))) / sqrt(z) - 2) / z,
          lambda z: z / 2, mpf(10) ** -8, top, 7)
    for bits, n, edge in ((32, 5, mpf("0.625")), (64, 11, mpf("0.625"))):
        table(f"tanh below {edge}: (tanh(x)/x - 1)/x^2 in x^2", bits, lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z,
              lambda z: z, mpf(10) ** -8, edge ** 2, n)
    quarter = (pi / 4 * mpf("1.001")) ** 2
    table("sin: (sin(r)/r - 1)/r^2 in r^2", 32, lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z, lambda z: z,
          mpf(10) ** -8, quarter, 3)
    table("cos: (cos(r) - 1 + r^2/2)/r^4 in r^2", 32, lambda z: (cos(sqrt(z)) - 1 + z / 2) / z ** 2,
          lambda z: z ** 2 / cos(sqrt(z)), mpf(10) ** -8, quarter, 3)
    edge, one = mpf("0.875"), mpf(1)
    for bits, low_n, high_n, top in ((32, 7, 7, 4), (64, 12, 19, 6)):
        table("erf below 0.875: erf(x)/x - 1 in x^2", bits, lambda z: erf(sqrt(z)) / sqrt(z) - 1,
              lambda z: sqrt(z) / erf(sqrt(z)), mpf(10) ** -8, edge ** 2, low_n)
        table("erf above: -log(erfc(x)) in x - 1", bits, lambda u: -log(erfc(one + u)),
              lambda u: erfc(one + u) / erf(one + u), edge - 1, top - one, high_n)
    for bits, keep in ((32, 16), (64, 41)):
        split("log 2", log(mpf(2)), bits, keep)
        split("log10 2", log(mpf(2)) / log(mpf(10)), bits, keep)
        split("1/log 2", 1 / log(mpf(2)), bits, 24 if bits == 32 else 53)
        split("1/log 10", 1 / log(mpf(10)), bits, 24 if bits == 32 else 53)


if __name__ == "__main__":
    main()
