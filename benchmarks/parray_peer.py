"""Two dozen workloads in combinators, as a user writes them: the `parray` column of the combinator benchmark.

One function a workload, by name.  No function knows its sizes, and nothing in the compiler knows these functions.
"""
from __future__ import annotations

from typing import Any

import numpy as np

import parray as pa
from parray import f32, i32, parallel


@parallel
def dot(x: Any, y: Any) -> Any:
    """sum(x * y)"""
    return pa.reduce(pa.add, 0, pa.map2(pa.mul, x, y))


@parallel
def axpy_chain(a: Any, b: Any, c: Any, x: Any) -> Any:
    """Three elementwise steps."""
    return pa.map(lambda v: pa.tanh(a * v + b) * c + pa.exp(-v), x)


@parallel
def sumsq(x: Any) -> Any:
    """sum(x * x)"""
    return pa.sum(x * x)


@parallel
def softmax(x: Any) -> Any:
    """Row by row."""
    def row(r: Any) -> Any:
        e = pa.exp(r - pa.maximum(r))
        return e / pa.sum(e)
    return pa.map(row, x)


@parallel
def rmsnorm(x: Any) -> Any:
    """Row by row."""
    return pa.map(lambda r: r * (1 / pa.sqrt(pa.mean(r * r) + f32(1e-5))), x)


@parallel
def logsumexp(x: Any) -> Any:
    """Shifted by the maximum."""
    top = pa.maximum(x)
    return top + pa.log(pa.sum(pa.map(lambda v: pa.exp(v - top), x)))


@parallel
def scan_f32(x: Any) -> Any:
    """Running sums."""
    return pa.scan(pa.add, 0, x)


@parallel
def scan_i64(x: Any) -> Any:
    """Running sums of integers."""
    return pa.scan(pa.add, 0, x)


@parallel
def mss(x: Any) -> Any:
    """The greatest sum of neighbours, by an operator on four numbers."""
    def op(a: Any, b: Any) -> Any:
        (at, am, ap, as_), (bt, bm, bp, bs) = a, b
        return at + bt, pa.max(am, bm, as_ + bp), pa.max(ap, at + bp), pa.max(bs, bt + as_)

    def one(v: Any) -> Any:
        positive = pa.max(v, 0)
        return v, positive, positive, positive
    return pa.reduce(op, (0, 0, 0, 0), pa.map(one, x))[1]


@parallel
def hist256(k: Any) -> Any:
    """Counts."""
    return pa.reduce_by_index(pa.replicate(256, i32(0)), pa.add, 0, k, i32(1))


@parallel
def hist1m(k: Any, v: Any) -> Any:
    """Sums in a million bins."""
    return pa.reduce_by_index(pa.replicate(1_000_000, f32(0)), pa.add, 0, k, v)


@parallel
def filter_pos(x: Any) -> Any:
    """The positive ones."""
    return pa.filter(lambda v: v > 0, x)


@parallel
def segscan(flags: Any, x: Any) -> Any:
    """Running sums that begin anew at flags."""
    return pa.segmented_scan(pa.add, 0, flags, x)


@parallel
def segreduce(flags: Any, x: Any) -> Any:
    """The sum of each segment."""
    return pa.segmented_reduce(pa.add, 0, flags, x)


@parallel
def matmul(a: Any, b: Any) -> Any:
    """Rows by columns."""
    return pa.map(lambda row: pa.map(lambda col: pa.sum(row * col), b.T), a)


@parallel
def bmm16(a: Any, b: Any) -> Any:
    """A batch of small products."""
    return pa.map(pa.matmul, a, b)


@parallel
def mandelbrot(n: Any, iters: Any) -> Any:
    """A while loop in a map."""
    def pixel(row: Any, column: Any) -> Any:
        cr, ci = f32(column) * (3 / n) - f32(2.25), f32(row) * (3 / n) - f32(1.5)

        def inside(s: Any) -> Any:
            return (s[0] * s[0] + s[1] * s[1] <= 4) & (s[2] < iters)

        def step(s: Any) -> Any:
            return s[0] * s[0] - s[1] * s[1] + cr, 2 * s[0] * s[1] + ci, s[2] + 1
        return pa.while_loop(inside, step, (f32(0), f32(0), i32(0)))[2]
    return pa.tabulate((pa.i64(n), pa.i64(n)), pixel)


@parallel
def nbody(x: Any, y: Any, z: Any, m: Any) -> Any:
    """Each body is pulled by all."""
    def body(xi: Any, yi: Any, zi: Any) -> Any:
        def pull(xj: Any, yj: Any, zj: Any, mj: Any) -> Any:
            dx, dy, dz = xj - xi, yj - yi, zj - zi
            r2 = dx * dx + dy * dy + dz * dz + f32(0.01)
            w = mj / (r2 * pa.sqrt(r2))
            return dx * w, dy * w, dz * w
        return tuple(map(pa.sum, pa.map(pull, x, y, z, m)))
    a, b, c = pa.map(body, x, y, z)
    return pa.concat(a[None], b[None], c[None])


@parallel
def blackscholes(s: Any, k: Any, t: Any, r: Any, v: Any) -> Any:
    """Call and put."""
    def cnd(x: Any) -> Any:
        u = 1 / (1 + f32(0.2316419) * abs(x))
        p = u * (0.319381530 + u * (-0.356563782 + u * (1.781477937 + u * (-1.821255978 + u * 1.330274429))))
        p = 0.3989422804 * pa.exp(-0.5 * x * x) * p
        return pa.where(x > 0, 1 - p, p)

    def price(s: Any, k: Any, t: Any) -> Any:
        q = v * pa.sqrt(t)
        d1 = (pa.log(s / k) + (r + 0.5 * v * v) * t) / q
        a, b, e = cnd(d1), cnd(d1 - q), k * pa.exp(-r * t)
        return s * a - e * b, e * (1 - b) - s * (1 - a)
    return pa.map(price, s, k, t)


@parallel
def kmeans(points: Any, centres: Any) -> Any:
    """The nearest centre."""
    half = pa.map(lambda c: 0.5 * pa.sum(c * c), centres)
    return pa.map(lambda p: i32(pa.argmin(pa.map(lambda c, h: h - pa.dot(p, c), centres, half))), points)


@parallel
def stencil(a: Any) -> Any:
    """A hundred steps of a five-point stencil; the edge stays."""
    def step(_: Any, a: Any) -> Any:
        mean = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[1:-1, 1:-1]) * f32(0.2)
        return pa.update(a, (slice(1, -1), slice(1, -1)), mean)
    return pa.loop(100, step, a)


@parallel
def sort_u32(x: Any) -> Any:
    """Ascending."""
    return pa.sort(x)


@parallel
def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal, for each head."""
    scale = 1 / pa.sqrt(f32(q.shape[2]))

    def head(q: Any, k: Any, v: Any) -> Any:
        def row(i: Any) -> Any:
            scores = pa.map(lambda j, key: pa.where(j <= i, pa.dot(q[i], key) * scale, -np.inf), pa.iota(k.shape[0]), k)
            return pa.softmax(scores)
        return pa.tabulate(q.shape[0], row) @ v
    return pa.map(head, q, k, v)


@parallel
def conv3x3(x: Any, w: Any) -> Any:
    """Three by three, zeros around."""
    c, h = x.shape[1], x.shape[2]

    def image(im: Any) -> Any:
        def plane(p: Any) -> Any:
            wide = pa.concat(pa.zeros((1, h), f32), p, pa.zeros((1, h), f32))
            side = pa.zeros((h + 2, 1), f32)
            return np.concatenate([side, wide, side], axis=1)
        padded = pa.map(plane, im)

        def out(wo: Any) -> Any:
            return pa.tabulate((h, h), lambda i, j: pa.sum(pa.tabulate(
                (c, 3, 3), lambda k, a, b: padded[k, i + a, j + b] * wo[k, a, b])))
        return pa.map(out, w)
    return pa.map(image, x)
