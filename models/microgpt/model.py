"""The model: Karpathy's microgpt, for one document, position by position.

Sizes: V vocabulary (the last token is BOS), T context, L layers, E width, F feed-forward, N positions of the document,
D width of a head.  The functions follow in reading order; the gradient is `pa.grad` of ``loss``.
"""
from __future__ import annotations

from typing import Any

import parray as pa
from parray import f32, i64
from parray.sizes import D, E, F, H, L, M, N, T, V


class Params(pa.Record):
    """The weights, layers stacked on the first axis; there are no biases."""
    wte: f32[V, E]
    wpe: f32[T, E]
    lm_head: f32[V, E]
    attn_wq: f32[L, E, E]
    attn_wk: f32[L, E, E]
    attn_wv: f32[L, E, E]
    attn_wo: f32[L, E, E]
    mlp_fc1: f32[L, F, E]
    mlp_fc2: f32[L, E, F]

    def keys(self) -> list[str]:
        """The names of the weights; with ``p[name]``, a record reads like a dict: ``np.savez(file, **p)``."""
        return list(type(self).__annotations__)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def linear(x: f32[N], w: f32[M, N]) -> f32[M]:
    """``w x``."""
    return pa.map(lambda wo: pa.reduce(pa.add, 0, pa.map2(pa.mul, wo, x)), w)


def rmsnorm(x: f32[N]) -> f32[N]:
    """``x`` scaled to a mean square of 1."""
    return x * pa.rsqrt(pa.mean(x * x) + 1e-5)


def softmax(x: f32[N]) -> f32[N]:
    """Positive numbers that sum to 1; the shift by the maximum cancels, so it has no gradient."""
    e = pa.exp(x - pa.stop_gradient(pa.maximum(x)))
    return e / pa.sum(e)


def attention(q: f32[N, D], k: f32[N, D], v: f32[N, D]) -> f32[N, D]:
    """One head: each position mixes the values of those up to its own, weighted by how well the keys fit its query."""
    n, d = q.shape

    def look(i: i64, query: f32[D]) -> f32[D]:
        scores = pa.map(lambda j, key: pa.where(j <= i, pa.dot(query, key) / d ** 0.5, -pa.inf), pa.iota(n), k)
        return linear(softmax(scores), pa.transpose(v))
    return pa.map(look, pa.iota(n), q)


def multi_head(q: f32[N, E], k: f32[N, E], v: f32[N, E], heads: int) -> f32[N, E]:
    """Attention by every head on its own share of the width."""
    n, e = q.shape

    def split(x: f32[N, E]) -> f32[H, N, D]:
        return pa.transpose(pa.reshape(x, (n, heads, e // heads)), (1, 0, 2))
    mixed = pa.map(attention, split(q), split(k), split(v))
    return pa.reshape(pa.transpose(mixed, (1, 0, 2)), (n, e))


def mlp(x: f32[E], fc1: f32[F, E], fc2: f32[E, F]) -> f32[E]:
    """Two linear maps with a ReLU between."""
    return linear(pa.relu(linear(x, fc1)), fc2)


def gpt(p: Params, tokens: i64[N], heads: int) -> f32[N, V]:
    """The logits of the next token, at every position."""
    x = pa.map(lambda token, position: rmsnorm(p.wte[token] + position), tokens, pa.take(tokens.shape[0], p.wpe))
    for layer in range(p.attn_wq.shape[0]):
        wq, wk, wv, wo = p.attn_wq[layer], p.attn_wk[layer], p.attn_wv[layer], p.attn_wo[layer]
        fc1, fc2 = p.mlp_fc1[layer], p.mlp_fc2[layer]
        normed = pa.map(rmsnorm, x)
        q, k, v = (pa.map(lambda xi: linear(xi, w), normed) for w in (wq, wk, wv))
        x = pa.map(lambda xi, a: xi + linear(a, wo), x, multi_head(q, k, v, heads))
        x = pa.map(lambda xi: xi + mlp(rmsnorm(xi), fc1, fc2), x)
    return pa.map(lambda xi: linear(xi, p.lm_head), x)


def cross_entropy(logits: f32[V], target: i64) -> f32:
    """``-log softmax(logits)[target]``, without overflow."""
    shifted = logits - pa.stop_gradient(pa.maximum(logits))
    return pa.log(pa.sum(pa.exp(shifted))) - shifted[target]


def loss(p: Params, tokens: i64[N], length: i64, heads: int) -> f32:
    """The mean cross-entropy of the first ``length`` positions of a document; what follows them is padding."""
    losses = pa.map(cross_entropy, gpt(p, tokens[:-1], heads), tokens[1:])
    counted = pa.map(lambda i, x: pa.where(i < length, x, 0), pa.iota(losses.shape[0]), losses)
    return pa.sum(counted) / losses.dtype(length)
