"""Optimizers as functions (parameters, gradients, state, rate) -> (parameters, state), for any tree of arrays."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

import parray as pa
from parray import tree


@pa.record
class Sgd:
    """The state of `sgd`: the velocity, like the parameters."""
    velocity: Any


@pa.record
class Adam:
    """The state of `adam`: steps done, and the two moments, like the parameters."""
    step: Any
    m: Any
    v: Any


def start_sgd(params: Any) -> Sgd:
    """The state before the first step."""
    return Sgd(tree.map(np.zeros_like, params))


def start_adam(params: Any) -> Adam:
    """The state before the first step."""
    return Adam(np.float32(0), tree.map(np.zeros_like, params), tree.map(np.zeros_like, params))


def sgd(params: Any, grads: Any, state: Sgd, rate: Any, momentum: float = 0.0, decay: float = 0.0) -> tuple[Any, Sgd]:
    """Gradient descent: v = momentum v + g + decay p, p = p - rate v."""
    velocity = tree.map(lambda p, g, v: momentum * v + g + decay * p, params, grads, state.velocity)
    return tree.map(lambda p, v: p - p.dtype(rate) * v, params, velocity), Sgd(velocity)


def adam(params: Any, grads: Any, state: Adam, rate: Any, beta1: float = 0.9, beta2: float = 0.999,
         eps: float = 1e-8, decay: float = 0.0) -> tuple[Any, Adam]:
    """Adam (Kingma and Ba, 2015); with ``decay``, weights shrink by rate * decay besides (`adamw`)."""
    step = state.step + 1
    m = tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.m, grads)
    v = tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state.v, grads)
    first, second = 1 - beta1 ** step, 1 - beta2 ** step
    shrinks = not isinstance(decay, (int, float)) or decay != 0

    def moved(p: Any, m: Any, v: Any) -> Any:
        change = m / p.dtype(first) / (pa.sqrt(v / p.dtype(second)) + eps)
        return p - p.dtype(rate) * (change + decay * p if shrinks else change)
    return tree.map(moved, params, m, v), Adam(step, m, v)


def adamw(params: Any, grads: Any, state: Adam, rate: Any, beta1: float = 0.9, beta2: float = 0.999,
          eps: float = 1e-8, decay: float = 0.01) -> tuple[Any, Adam]:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""
    return adam(params, grads, state, rate, beta1, beta2, eps, decay)


def clip_by_norm(grads: Any, most: float) -> Any:
    """The gradients scaled down where the norm of all of them together is greater than ``most``."""
    total = sum(pa.sum(g * g) for g in tree.leaves(grads))
    norm = pa.sqrt(total)
    factor = pa.where(norm > most, most / norm, 1)
    return tree.map(lambda g: g * g.dtype(factor), grads)


# --- learning rates: plain numbers -----------------------------------------------------------------------------------

def cosine(step: int, total: int, rate: float, warmup: int = 0) -> float:
    """From ``rate`` down to 0 along half a cosine, after a linear rise over ``warmup`` steps."""
    if step < warmup:
        return rate * (step + 1) / warmup
    return 0.5 * rate * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, total - warmup))))


def one_cycle(step: int, total: int, rate: float, rise: float = 0.3, start: float = 25, end: float = 1e4) -> float:
    """From rate / start up to ``rate`` in the first ``rise`` of the steps and down to rate / start / end, along cosines
    (Smith, 2018)."""
    peak = rise * total - 1
    a, b, t = (rate / start, rate, step / max(1, peak)) if step <= peak else \
        (rate, rate / start / end, (step - peak) / max(1, total - 1 - peak))
    return b + (a - b) * 0.5 * (1 + math.cos(math.pi * min(1.0, t)))


def steps(step: int, rate: float, milestones: tuple[int, ...], factor: float = 0.1) -> float:
    """``rate`` times ``factor`` for every milestone reached."""
    return rate * factor ** sum(step >= m for m in milestones)
