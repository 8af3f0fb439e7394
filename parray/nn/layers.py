"""Layers: functions of an input and weights (`parray.nn`)."""
from __future__ import annotations

from typing import Any

import parray as pa


@pa.record
class BatchNorm:
    """What `batch_norm` keeps from batch to batch: mean and variance of each channel, [channels]."""
    mean: Any
    var: Any


def linear(x: Any, w: Any, b: Any = None) -> Any:
    """``w x + b`` for the last axis of ``x``: [.., n] with w [m, n] and b [m] gives [.., m]."""
    y = x @ pa.transpose(w)
    return y if b is None else y + b


# --- images ----------------------------------------------------------------------------------------------------------

def pad2d(x: Any, n: Any) -> Any:
    """``n`` zeros around every image: [.., h, w] gives [.., h + 2n, w + 2n]; ``n`` may be (rows, columns)."""
    rows, columns = n if isinstance(n, tuple) else (n, n)
    if rows == columns == 0:
        return x
    *batch, h, w = x.shape
    inside = (*(slice(None) for _ in batch), slice(rows, rows + h), slice(columns, columns + w))
    return pa.update(pa.zeros((*batch, h + 2 * rows, w + 2 * columns), x.dtype), inside, x)


def conv2d(x: Any, w: Any, stride: int = 1, padding: Any = 0, groups: int = 1) -> Any:
    """Cross-correlation of images [n, c, h, w] with filters [o, c / groups, a, b]: [n, o, h', w'].

    Zeros ``padding`` (a number, or one for rows and one for columns) around the image are seen too.
    """
    if groups > 1:
        n, c, h, wide = x.shape
        o, each, a, b = w.shape
        parts = [conv2d(part, filters, stride, padding) for part, filters in zip(
            _groups(x, groups, 1), _groups(w, groups, 0))]
        return pa.concat(*(pa.transpose(p, (1, 0, 2, 3)) for p in parts)).transpose((1, 0, 2, 3))
    x = pad2d(x, padding)
    (n, c, h, wide), (o, _, a, b) = x.shape, w.shape

    def pixel(image: Any, channel: Any, i: Any, j: Any) -> Any:
        return pa.sum(pa.tabulate((c, a, b), lambda k, u, v: x[image, k, i * stride + u, j * stride + v]
                                  * w[channel, k, u, v]))
    return pa.tabulate((n, o, (h - a) // stride + 1, (wide - b) // stride + 1), pixel)


def _groups(x: Any, groups: int, axis: int) -> list[Any]:
    """Equal shares of an axis."""
    size = x.shape[axis] // groups
    return [x[(slice(None),) * axis + (slice(g * size, (g + 1) * size),)] for g in range(groups)]


def batch_norm(x: Any, scale: Any, shift: Any, state: BatchNorm, train: bool = True, momentum: float = 0.1,
               eps: float = 1e-5) -> tuple[Any, BatchNorm]:
    """Channels (axis 1) of mean ``shift`` and deviation ``scale``, and the new state.

    Training uses the batch's own statistics and moves the state ``momentum`` towards them (with the unbiased variance);
    otherwise the state is used and stays (Ioffe and Szegedy, 2015).
    """
    shape = (1, x.shape[1], *(1,) * (x.ndim - 2))
    if not train:
        factor = scale * pa.rsqrt(state.var + eps)
        return x * factor.reshape(shape) + (shift - state.mean * factor).reshape(shape), state
    axes = (0, *range(2, x.ndim))
    mean = pa.mean(x, axis=axes)
    centred = x - mean.reshape(shape)
    var = pa.mean(centred * centred, axis=axes)
    y = centred * (scale * pa.rsqrt(var + eps)).reshape(shape) + shift.reshape(shape)
    count = var.dtype(x.size // x.shape[1])
    unbiased = pa.stop_gradient(var) * (count / pa.max(count - 1, 1))
    return y, BatchNorm(state.mean + momentum * (pa.stop_gradient(mean) - state.mean),
                        state.var + momentum * (unbiased - state.var))


def avg_pool2d(x: Any, size: int, stride: int | None = None) -> Any:
    """The mean of windows ``size`` x ``size``, ``stride`` (default: their size) apart; what is left over is cut off."""
    return _pool(x, size, stride, lambda window: pa.mean(window))


def max_pool2d(x: Any, size: int, stride: int | None = None) -> Any:
    """The maximum of windows, as in `avg_pool2d`."""
    return _pool(x, size, stride, lambda window: pa.maximum(window))


def _pool(x: Any, size: int, stride: int | None, f: Any) -> Any:
    step = stride or size
    n, c, h, w = x.shape
    return pa.map(lambda image: pa.map(lambda plane: pa.tabulate(
        ((h - size) // step + 1, (w - size) // step + 1),
        lambda i, j: f(pa.tabulate((size, size), lambda u, v: plane[i * step + u, j * step + v]))), image), x)


def global_avg_pool(x: Any) -> Any:
    """The mean of each channel: [n, c, h, w] gives [n, c]."""
    return pa.mean(x, axis=(2, 3))


# --- vectors and sequences -------------------------------------------------------------------------------------------

def layer_norm(x: Any, scale: Any = None, shift: Any = None, eps: float = 1e-5) -> Any:
    """The last axis with mean 0 and variance 1, then scaled and shifted (Ba, Kiros and Hinton, 2016)."""
    centred = x - pa.mean(x, axis=-1, keepdims=True)
    y = centred * pa.rsqrt(pa.mean(centred * centred, axis=-1, keepdims=True) + eps)
    y = y if scale is None else y * scale
    return y if shift is None else y + shift


def rms_norm(x: Any, scale: Any = None, eps: float = 1e-5) -> Any:
    """The last axis with mean square 1, then scaled (Zhang and Sennrich, 2019)."""
    y = x * pa.rsqrt(pa.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if scale is None else y * scale


def embedding(table: Any, tokens: Any) -> Any:
    """The rows of a table [v, e] that tokens name: [..] gives [.., e]."""
    return table[tokens]


def dropout(key: Any, x: Any, rate: float, train: bool = True) -> Any:
    """Each element 0 with probability ``rate``, the others scaled so that the mean stays."""
    if not train or rate == 0:
        return x
    return pa.where(pa.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def attention(q: Any, k: Any, v: Any, causal: bool = False, block: int = 64) -> Any:
    """One head: q [t, d], k [s, d], v [s, e] give [t, e], softmax(q k' / sqrt d) v; ``causal``: position i sees 0 .. i.

    Keys come in blocks, and what the softmax needs of the earlier ones is carried along as a maximum and a sum (Milakov
    and Gimelshein, 2018; Dao et al., 2022): t x s scores are never in memory at a time.
    """
    (t, d), (s, e) = q.shape, v.shape
    scale, low = d ** -0.5, -pa.inf

    def step(number: Any, state: Any) -> Any:
        top, total, out = state
        first = number * block
        places = pa.iota(block) + first
        at = pa.min(places, s - 1)
        scores = q @ pa.transpose(k[at]) * scale
        seen = (places < s)[None] & ((places[None] <= pa.iota(t)[:, None]) if causal else True)
        scores = pa.where(seen, scores, low)
        new = pa.stop_gradient(pa.max(top, pa.maximum(scores, axis=1)))         # a shift that cancels in the end
        safe = pa.where(new == low, 0, new)
        weights, keep = pa.exp(scores - safe[:, None]), pa.exp(top - safe)
        return new, total * keep + pa.sum(weights, axis=1), out * keep[:, None] + weights @ v[at]
    start = pa.full((t,), low, q.dtype), pa.zeros((t,), q.dtype), pa.zeros((t, e), q.dtype)
    _, total, out = pa.loop((s + block - 1) // block, step, start)
    return out / total[:, None]


def lstm(xs: Any, w: Any, u: Any, b: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
    """Long short-term memory over xs [t, n]: outputs [t, m] and the last h and c, both [m].

    w [4m, n], u [4m, m] and b [4m] hold the input, forget, cell and output gates, in this order (Hochreiter and
    Schmidhuber, 1997; Gers et al., 2000).
    """
    m = h.shape[0]
    inputs = linear(xs, w, b)

    def step(i: Any, state: Any) -> Any:
        h, c, out = state
        gates = inputs[i] + u @ h
        give, keep, cell, show = (gates[k * m:(k + 1) * m] for k in range(4))
        c = pa.sigmoid(keep) * c + pa.sigmoid(give) * pa.tanh(cell)
        h = pa.sigmoid(show) * pa.tanh(c)
        return h, c, pa.update(out, i, h)
    h, c, out = pa.loop(xs.shape[0], step, (h, c, pa.zeros((xs.shape[0], m), xs.dtype)))
    return out, h, c
