"""Random numbers as functions of a key and a counter: Threefry-2x32 with 20 rounds (Salmon et al. 2011, Random123).

    key = pa.random.key(0)
    a, b = pa.random.split(key)
    x = pa.random.normal(a, (n, m))

A key is two u32; number i of a key is the cipher of i under it.  So numbers do not depend on the order in which they
are made, on threads or on the backend; uniform numbers are the same to the last bit everywhere, normal ones as far as
``log`` and ``cos`` are.  A key is used once: `split` it, or `fold_in` a number, to have more.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from parray import builder, tree
from parray.errors import TypeMismatch
from parray.trace import context
from parray.trace.combinators import map, tabulate
from parray.trace.elementwise import apply, lift, where
from parray.trace.irregular import sort_by
from parray.trace.reductions import argmax
from parray.trace.tracer import Tracer
from parray.trace.views import array, concat, reshape, static_int
from parray.types import ScalarType, f16, f32, f64, i64, scalar_type, u32, u64

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry2x32(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """The cipher of the counter ``(x0, x1)`` under the key ``(k0, k1)``; everything u32, scalars or arrays."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(_PARITY))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for r in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))
            x1 = x1 ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


# --- keys ------------------------------------------------------------------------------------------------------------

def key(seed: Any) -> Any:
    """The key ``u32[2]`` of an integer; outside a trace a NumPy array."""
    if not context.active():
        value = static_int(seed, "the seed of pa.random.key") & (1 << 64) - 1
        return np.array([value >> 32, value & 0xFFFFFFFF], np.uint32)
    high, low = _words(seed, "pa.random.key")
    return concat(reshape(high, (1,)), reshape(low, (1,)))


def _words(x: Any, what: str) -> tuple[Any, Any]:
    """The two halves of an integer of 64 bits."""
    t = lift(x, what)
    if t.ndim or not t.dtype.is_integer:
        raise TypeMismatch(f"{what} takes an integer, not {t!r}", builder.here())
    wide = t.astype(u64)
    return (wide >> 32).astype(u32), wide.astype(u32)


def _parts(k: Any, what: str) -> tuple[Any, Any]:
    t = lift(k, what)
    if t.ndim != 1 or t.dtype != u32:
        raise TypeMismatch(f"{what} takes a key, u32[2], as pa.random.key makes it; not {t!r}", builder.here())
    return t[0], t[1]


def fold_in(k: Any, number: Any) -> Any:
    """A new key for a key and an integer, such as the number of a step or of a sample."""
    a, b = threefry2x32(*_parts(k, "pa.random.fold_in"), *_words(number, "pa.random.fold_in"))
    return concat(reshape(a, (1,)), reshape(b, (1,)))


def split(k: Any, n: Any = 2) -> Any:
    """``n`` new keys, ``u32[n, 2]``."""
    return tabulate(n, lambda i: fold_in(k, i))


# --- numbers ---------------------------------------------------------------------------------------------------------

def _shape(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def _numbers(k: Any, shape: Any, f: Any, what: str) -> Any:
    """``f(word, word)`` of the two words of every counter."""
    k0, k1 = _parts(k, what)
    sizes = _shape(shape)

    def one(*at: Any) -> Any:
        i: Any = lift(0, what).astype(i64)
        for j, n in zip(at, sizes):
            i = i * n + j
        return f(*threefry2x32(k0, k1, *_words(i, what)))
    return tabulate(sizes, one) if sizes else one()


def bits(k: Any, shape: Any = (), dtype: Any = u32) -> Any:
    """Random bits as u32 or u64."""
    elem = scalar_type(dtype)
    if elem not in (u32, u64):
        raise TypeMismatch(f"pa.random.bits gives u32 or u64, not {elem}", builder.here())
    return _numbers(k, shape, lambda a, b: a if elem == u32 else _wide(a, b), "pa.random.bits")


def _wide(a: Any, b: Any) -> Any:
    return (a.astype(u64) << 32) | b.astype(u64)


def _floats(dtype: Any, what: str) -> ScalarType:
    elem = scalar_type(dtype)
    if not elem.is_float:
        raise TypeMismatch(f"{what} gives floats, not {elem}", builder.here())
    return elem


def _unit(a: Any, b: Any, elem: ScalarType) -> Any:
    """A number from 0 to below 1, a multiple of the type's 2**-p."""
    if elem == f64:
        return (_wide(a, b) >> 11).astype(f64) * 2.0 ** -53
    return ((a >> 8).astype(f32) * np.float32(2.0 ** -24)) if elem == f32 else \
        ((a >> 21).astype(f32) * np.float32(2.0 ** -11)).astype(f16)


def uniform(k: Any, shape: Any = (), dtype: Any = f32, low: Any = 0.0, high: Any = 1.0) -> Any:
    """Evenly from ``low`` to below ``high``."""
    elem = _floats(dtype, "pa.random.uniform")
    x = _numbers(k, shape, lambda a, b: _unit(a, b, elem), "pa.random.uniform")
    if isinstance(low, float) and isinstance(high, float) and (low, high) == (0.0, 1.0):
        return x
    return x * lift(high - low, "high").astype(elem) + lift(low, "low").astype(elem)


def normal(k: Any, shape: Any = (), dtype: Any = f32, mean: Any = 0.0, std: Any = 1.0) -> Any:
    """Normally distributed, by the transformation of Box and Muller."""
    elem = _floats(dtype, "pa.random.normal")
    wide = f32 if elem == f16 else elem

    def one(a: Any, b: Any) -> Any:
        if wide == f32:
            u, v = ((a >> 8) + np.uint32(1)).astype(f32) * np.float32(2.0 ** -24), _unit(b, a, f32)
        else:
            c, d = threefry2x32(a, b, a ^ a, b ^ b)                 # more bits than one block has
            u, v = 2.0 ** -53 + _unit(a, b, f64), _unit(c, d, f64)
        radius = apply("sqrt", apply("log", u) * -2)
        return (radius * apply("cos", v * lift(2 * math.pi, "").astype(wide))).astype(elem)
    x = _numbers(k, shape, one, "pa.random.normal")
    return x * lift(std, "std").astype(elem) + lift(mean, "mean").astype(elem)


def integers(k: Any, shape: Any, low: Any, high: Any, dtype: Any = i64) -> Any:
    """Evenly from ``low`` to below ``high``; of r values each is as likely as another to r in 2**64."""
    elem = scalar_type(dtype)
    if not elem.is_integer:
        raise TypeMismatch(f"pa.random.integers gives integers, not {elem}", builder.here())
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        raise TypeMismatch(f"pa.random.integers: there is no integer from {low} to below {high}", builder.here())
    first = lift(low, "pa.random.integers").astype(i64)
    span = (lift(high, "pa.random.integers").astype(i64) - first).astype(u64)
    return _numbers(k, shape, lambda a, b: ((_wide(a, b) % span).astype(i64) + first).astype(elem),
                    "pa.random.integers")


def bernoulli(k: Any, p: Any, shape: Any = ()) -> Any:
    """True with probability ``p``."""
    return uniform(k, shape) < lift(p, "pa.random.bernoulli").astype(f32)


def permutation(k: Any, xs: Any) -> Any:
    """The elements of an array (or of ``iota(n)``, for an integer) in random order."""
    t = lift(xs, "pa.random.permutation") if not isinstance(xs, (tuple, dict, list)) else None
    rows = tabulate(xs, lambda i: i) if t is not None and not t.ndim else xs
    n = array(tree.leaves(rows)[0], "pa.random.permutation").type.shape[0]
    draws = bits(k, (n if isinstance(n, int) else Tracer(n, True, True),), u64)
    _, out = sort_by(lambda t: t[0], (draws, rows))
    return out


def choice(k: Any, logits: Any) -> Any:
    """A place of ``logits``, with probability in proportion to ``exp(logit)`` (by Gumbel's maximum)."""
    x = lift(logits, "pa.random.choice")
    noise = uniform(k, (x.shape[0],), f64 if x.dtype == f64 else f32)
    gumbel = map(lambda u: -apply("log", -apply("log", where(u > 0, u, 2.0 ** -53))), noise)
    return argmax(x + gumbel.astype(x.dtype))


__all__ = ["bernoulli", "bits", "choice", "fold_in", "integers", "key", "normal", "permutation", "split",
           "threefry2x32", "uniform"]
