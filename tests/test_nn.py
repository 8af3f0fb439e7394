"""Layers against NumPy, their gradients against differences, optimizers against their formulas."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import signal, special

import parray as pa
from parray import f64, nn
from parray.testing import check_gradients


def rand(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def on(f: Any, *args: Any, static: Any = True) -> Any:
    """The compiled function's results, which are the interpreter's."""
    compiled = pa.parallel(f, static=static)
    with pa.use_backend("interp"):
        expected = compiled(*args)
    with pa.use_backend("cpu"):
        found = compiled(*args)
    for a, b in zip(pa.tree.leaves(found), pa.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    return found


# --- images ----------------------------------------------------------------------------------------------------------

def correlated(x: Any, w: Any, stride: int, padding: int, groups: int = 1) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    each = x.shape[1] // groups
    out = [[sum(signal.correlate(image[g * each + c], f[c], "valid") for c in range(each))[::stride, ::stride]
            for f, g in ((f, o // (len(w) // groups)) for o, f in enumerate(w))] for image in x]
    return np.array(out)


@pytest.mark.parametrize("stride,padding,size,groups", [(1, 1, 3, 1), (2, 1, 3, 1), (1, 0, 1, 1), (2, 2, 5, 1),
                                                        (1, 1, 3, 2), (2, 0, 2, 4)])
def test_conv2d(stride: int, padding: int, size: int, groups: int) -> None:
    x, w = rand(2, 4, 7, 6), rand(8, 4 // groups, size, size)
    found = on(lambda x, w: nn.conv2d(x, w, stride, padding, groups), x, w)
    np.testing.assert_allclose(found, correlated(x, w, stride, padding, groups), rtol=1e-9, atol=1e-11)


def test_conv2d_of_any_size_is_one_program() -> None:
    f = pa.parallel(lambda x, w: nn.conv2d(x, w, 2, 1))
    for n, h in ((1, 5), (3, 8)):
        x, w = rand(n, 3, h, h), rand(4, 3, 3, 3)
        np.testing.assert_allclose(f(x, w), correlated(x, w, 2, 1), rtol=1e-9, atol=1e-11)


def test_gradient_of_conv2d() -> None:
    check_gradients(lambda x, w: nn.conv2d(x, w, 2, 1), rand(1, 2, 5, 4), rand(3, 2, 3, 3))


def test_a_convolution_written_by_hand_compiles_to_the_same_kernels() -> None:
    """The layer has no secret: a sum of products of windows is a contraction, whoever writes it."""
    def mine(x: Any, w: Any) -> Any:
        x = nn.pad2d(x, 1)

        def out(image: Any, f: Any, i: Any, j: Any) -> Any:
            return pa.sum(pa.map(lambda plane, g: pa.sum(pa.tabulate((3, 3), lambda a, b: plane[i + a, j + b]
                                                                     * g[a, b])), image, f))
        return pa.map(lambda image: pa.map(lambda f: pa.tabulate((6, 6), lambda i, j: out(image, f, i, j)), w), x)
    x, w = rand(2, 3, 6, 6), rand(4, 3, 3, 3)
    both = mine, lambda x, w: nn.conv2d(x, w, 1, 1)
    sources = [pa.parallel(f, static=True, name="same").source(x, w) for f in both]
    kernels = [[part.split("\n", 1)[1] for part in s.split("\n# kernel ")[1:]] for s in sources]
    assert kernels[0] == kernels[1]


@pytest.mark.parametrize("size,stride", [(2, None), (3, 2), (2, 1)])
def test_pooling(size: int, stride: int | None) -> None:
    x, step = rand(2, 3, 7, 6), stride or size
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[:, :, ::step, ::step]
    np.testing.assert_allclose(on(lambda x: nn.max_pool2d(x, size, stride), x), windows.max((4, 5)))
    np.testing.assert_allclose(on(lambda x: nn.avg_pool2d(x, size, stride), x), windows.mean((4, 5)))
    np.testing.assert_allclose(on(nn.global_avg_pool, x), x.mean((2, 3)))
    check_gradients(lambda x: (nn.max_pool2d(x, size, stride), nn.avg_pool2d(x, size, stride)), rand(1, 1, 5, 4))


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 2, 5)])
def test_batch_norm(shape: tuple[int, ...]) -> None:
    x, scale, shift = rand(*shape) + 2, rand(3, seed=1), rand(3, seed=2)
    state = nn.BatchNorm(rand(3, seed=3), rand(3, seed=4) ** 2)
    axes, across = (0, *range(2, len(shape))), (1, 3, *(1,) * (len(shape) - 2))
    y, new = on(lambda x, a, b, s: nn.batch_norm(x, a, b, s), x, scale, shift, state)
    mean, var, n = x.mean(axes), x.var(axes), x.size // 3
    expected = (x - mean.reshape(across)) / np.sqrt(var + 1e-5).reshape(across) * scale.reshape(across)
    np.testing.assert_allclose(y, expected + shift.reshape(across), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(new.mean, 0.9 * state.mean + 0.1 * mean)
    np.testing.assert_allclose(new.var, 0.9 * state.var + 0.1 * var * n / (n - 1))
    y, same = on(lambda x, a, b, s: nn.batch_norm(x, a, b, s, train=False), x, scale, shift, state)
    expected = (x - state.mean.reshape(across)) / np.sqrt(state.var + 1e-5).reshape(across) * scale.reshape(across)
    np.testing.assert_allclose(y, expected + shift.reshape(across), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(same.mean, state.mean)
    check_gradients(lambda x, a, b: nn.batch_norm(x, a, b, state)[0], x[:3], scale, shift)


# --- vectors and sequences -------------------------------------------------------------------------------------------

def test_linear_norms_embedding() -> None:
    x, w, b, g = rand(2, 3, 5), rand(4, 5), rand(4, seed=1), rand(5, seed=2)
    np.testing.assert_allclose(on(nn.linear, x, w, b), x @ w.T + b)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    np.testing.assert_allclose(on(nn.layer_norm, x, g, g), (x - mean) / np.sqrt(var + 1e-5) * g + g)
    np.testing.assert_allclose(on(nn.rms_norm, x, g), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g)
    tokens = np.array([[1, 0], [3, 1]])
    np.testing.assert_array_equal(on(nn.embedding, w, tokens), w[tokens])
    check_gradients(lambda x, g: (nn.layer_norm(x, g, g), nn.rms_norm(x)), x[0], g)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("t,s,block", [(5, 5, 2), (3, 7, 4), (4, 4, 64), (1, 1, 1)])
def test_attention_by_blocks(causal: bool, t: int, s: int, block: int) -> None:
    """What blocks give is the softmax of all scores at once."""
    q, k, v = rand(t, 4), rand(s, 4, seed=1), rand(s, 3, seed=2)
    scores = q @ k.T / 2
    if causal:
        scores = np.where(np.arange(s) <= np.arange(t)[:, None], scores, -np.inf)
    expected = special.softmax(scores, axis=1) @ v
    np.testing.assert_allclose(on(lambda q, k, v: nn.attention(q, k, v, causal, block), q, k, v), expected, rtol=1e-9)
    if t == 5:
        check_gradients(lambda q, k, v: nn.attention(q, k, v, causal, block), q, k, v)


def test_lstm() -> None:
    xs, w, u, b, h, c = rand(4, 3), rand(8, 3), rand(8, 2, seed=1), rand(8, seed=2), rand(2, seed=3), rand(2, seed=4)
    found = on(nn.lstm, xs, w, u, b, h, c)
    out = []
    for x in xs:
        i, f, g, o = np.split(w @ x + u @ h + b, 4)
        c = special.expit(f) * c + special.expit(i) * np.tanh(g)
        h = special.expit(o) * np.tanh(c)
        out.append(h)
    for a, e in zip(found, (np.array(out), h, c)):
        np.testing.assert_allclose(a, e, rtol=1e-9)
    check_gradients(lambda xs, w, u: nn.lstm(xs, w, u, b, h, c)[0], xs[:3], w, u)


def test_dropout() -> None:
    key, x = pa.random.key(3), np.ones((40, 50))
    y = on(lambda k, x: nn.dropout(k, x, 0.25), key, x)
    assert set(np.unique(y)) == {0.0, 1 / 0.75} and abs(y.mean() - 1) < 0.05
    np.testing.assert_array_equal(on(lambda k, x: nn.dropout(k, x, 0.25, train=False), key, x), x)


def test_losses() -> None:
    logits, targets = rand(6, 4), np.array([0, 3, 2, 2, 1, 0])
    expected = -special.log_softmax(logits, axis=1)[np.arange(6), targets].mean()
    np.testing.assert_allclose(on(nn.cross_entropy, logits, targets), expected)
    assert on(nn.accuracy, logits, targets) == (logits.argmax(1) == targets).sum()
    np.testing.assert_allclose(on(nn.mse, logits, logits * 2), (logits ** 2).mean())
    check_gradients(lambda x: nn.cross_entropy(x, targets), logits)


# --- weights and optimizers ------------------------------------------------------------------------------------------

def test_initial_weights() -> None:
    key = pa.random.key(1)
    a, b, c = nn.gauss(key, (200, 100), 0.5), nn.kaiming(key, (64, 32, 3, 3)), nn.xavier(key, (100, 300), f64)
    assert a.dtype == np.float32 and c.dtype == np.float64
    assert abs(a.std() - 0.5) < 0.02 and abs(b.std() - (2 / (32 * 9)) ** 0.5) < 0.002
    assert abs(c).max() <= (6 / 400) ** 0.5 and abs(c.mean()) < 0.002
    inside = pa.parallel(lambda k: nn.gauss(k, (200, 100), 0.5))(key)
    np.testing.assert_allclose(inside, a, rtol=1e-6)


def test_sgd_and_adam_are_their_formulas() -> None:
    params = {"w": rand(3, 2), "b": (rand(2, seed=1),)}
    grads = [pa.tree.map(lambda p: rand(*p.shape, seed=k), params) for k in range(3)]

    def run(step: Any, state: Any) -> Any:
        compiled, p = pa.parallel(lambda p, g, s: step(p, g, s, 0.1)), params
        for g in grads:
            p, state = compiled(p, g, state)
        return p["w"], state
    p, v = params["w"], 0.0
    for g in grads:
        v = 0.9 * v + g["w"] + 0.01 * p
        p = p - 0.1 * v
    found, _ = run(lambda *a: nn.sgd(*a, momentum=0.9, decay=0.01), nn.start_sgd(params))
    np.testing.assert_allclose(found, p, rtol=1e-6)
    for decay, step in ((0.0, nn.adam), (0.01, nn.adamw)):
        p, m, v = params["w"], 0.0, 0.0
        for t, g in enumerate(grads, 1):
            m, v = 0.9 * m + 0.1 * g["w"], 0.999 * v + 0.001 * g["w"] ** 2
            p = p - 0.1 * (m / (1 - 0.9 ** t) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8) + decay * p)
        found, state = run(step, nn.start_adam(params))
        np.testing.assert_allclose(found, p, rtol=1e-4)
        assert state.step == 3


def test_clipping() -> None:
    g = {"a": np.full(4, 3.0), "b": np.full((2, 2), 4.0)}                # of norm 10
    clipped = pa.parallel(lambda g: nn.clip_by_norm(g, 5.0))(g)
    np.testing.assert_allclose(clipped["a"], 1.5)
    np.testing.assert_allclose(pa.parallel(lambda g: nn.clip_by_norm(g, 20.0))(g)["b"], 4.0)


def test_schedules() -> None:
    assert nn.cosine(0, 100, 2.0) == 2.0 and abs(nn.cosine(50, 100, 2.0) - 1) < 1e-12
    assert nn.cosine(100, 100, 2.0) == 0 and nn.cosine(0, 100, 2.0, warmup=4) == 0.5
    cycle = [nn.one_cycle(k, 100, 1.0) for k in range(100)]
    assert cycle[0] == pytest.approx(1 / 25) and max(cycle) == cycle[29] == 1.0 and abs(cycle[-1] - 4e-6) < 1e-12
    assert [nn.steps(k, 1.0, (2, 4)) for k in (1, 2, 5)] == pytest.approx([1, 0.1, 0.01])
