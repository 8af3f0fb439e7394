"""Training and sampling for microgpt: ``train(docs, ...)``, or ``python models/microgpt/train.py`` (see ``cli.py``).

A step is one compiled function: loss, gradient and Adam.  A batch is one outer map over padded documents.
"""
from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np

if __package__ in (None, ""):                   # run as a script: the repository's root is two folders up
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import parray as pa
from models.microgpt.data import Documents, alphabet_of, batch_of, encode
from models.microgpt.model import Params, gpt, loss, softmax

BETA1, BETA2, EPSILON = 0.85, 0.99, 1e-8
STATIC = ("V", "T", "L", "E", "F", "heads")     # compiled in; a document may have any length


class State(NamedTuple):
    """Where training stands: the weights and Adam's two moments after ``step`` steps."""
    params: Params
    m: Params
    v: Params
    step: int = 0


def init_params(vocabulary: int, layers: int = 1, width: int = 16, context: int = 16, seed: int = 0) -> Params:
    """Gaussian weights of standard deviation 0.08, the same for every dtype."""
    v, t, n, e = vocabulary, context, layers, width
    shapes = {"wte": (v, e), "wpe": (t, e), "lm_head": (v, e), "attn_wq": (n, e, e), "attn_wk": (n, e, e),
              "attn_wv": (n, e, e), "attn_wo": (n, e, e), "mlp_fc1": (n, 4 * e, e), "mlp_fc2": (n, e, 4 * e)}
    rng = np.random.default_rng(seed)
    return Params(**{name: rng.normal(0, 0.08, shape) for name, shape in shapes.items()})


def start(params: Any, dtype: str = "f32") -> State:
    """Training from these weights (a record or a dict): they are copied as ``dtype``, the moments are zero."""
    elem = {"f32": np.float32, "f64": np.float64}[dtype]
    params = Params(**{name: np.array(params[name], dtype=elem) for name in Params.__annotations__})
    return State(params, pa.tree.map(np.zeros_like, params), pa.tree.map(np.zeros_like, params))


def mean_loss(p: Params, tokens: Any, lengths: Any, heads: int) -> Any:
    """The loss of one document, or the mean over a batch."""
    if tokens.ndim == 1:
        return loss(p, tokens, lengths, heads)
    return pa.mean(pa.map(lambda document, length: loss(p, document, length, heads), tokens, lengths))


@pa.parallel(static=STATIC)
def train_step(p: Params, m: Params, v: Params, tokens: Any, lengths: Any, step: Any, rate: Any, heads: int) -> Any:
    """One step of Adam: the new weights and moments, and the loss before the step."""
    value, g = pa.value_and_grad(mean_loss)(p, tokens, lengths, heads)
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * (g * g)
    number = value.dtype                        # step and rate come as f64; the weights keep their own type
    m_hat = m / number(1 - BETA1 ** (step + 1))
    v_hat = v / number(1 - BETA2 ** (step + 1))
    return p - number(rate) * m_hat / (pa.sqrt(v_hat) + EPSILON), m, v, value


def train(docs: Documents, *, params: Any = None, steps: int = 1000, batch: int = 1, dtype: str = "f32", seed: int = 0,
          backend: str | None = None, lr: float = 0.01, decay: int | None = None, layers: int = 1, width: int = 16,
          heads: int = 4, context: int = 16, alphabet: str | None = None, state: State | None = None,
          on_step: Callable[[State, float], None] | None = None) -> tuple[Params, list[float]]:
    """Train on documents (strings, or lists of tokens) up to step ``steps``; the weights and the loss of every step.

    ``params`` are weights to start from, whose shapes then decide the sizes; ``state`` goes on from where an earlier
    training stood.  The rate falls from ``lr`` to zero over ``decay`` steps: 1000, or ``steps`` if that is more.
    ``on_step`` is called after every step with the state there and the step's loss.
    """
    decay = max(steps, 1000) if decay is None else decay
    if steps > decay:
        raise ValueError(f"the rate is zero from step {decay} on: steps={steps} needs a larger decay")
    if not len(docs):
        raise ValueError("there are no documents to train on")
    if state is None:
        known = None if params is None else len(params["wte"]) - 1
        alphabet = alphabet_of(docs, known) if alphabet is None else alphabet
        if params is None:
            size = max(max(map(int, d), default=0) for d in docs) + 1 if alphabet is None else len(alphabet)
            params = init_params(size + 1, layers, width, context, seed)
        state = start(params, dtype)
    vocabulary, (context, width) = len(state.params.wte), state.params.wpe.shape
    if alphabet is None:
        alphabet = alphabet_of(docs, vocabulary - 1)
    if width % heads:
        raise ValueError(f"the width {width} is not a multiple of the number of heads {heads}")
    encoded = encode(docs, alphabet, context, vocabulary - 1)
    losses: list[float] = []
    with nullcontext() if backend is None else pa.use_backend(backend):
        for step in range(state.step, steps):
            tokens, lengths = batch_of(encoded, step, batch, vocabulary - 1)
            if batch == 1:
                tokens, lengths = tokens[0], lengths[0]
            rate = np.float64(lr * (1 - step / decay))
            p, m, v, value = train_step(state.params, state.m, state.v, tokens, lengths, np.float64(step), rate, heads)
            state = State(p, m, v, step + 1)
            losses.append(float(value))
            if on_step is not None:
                on_step(state, losses[-1])
    return state.params, losses


@pa.parallel(static=STATIC)
def next_token(p: Params, tokens: Any, temperature: Any, heads: int) -> Any:
    """How probable each token is after these."""
    logits = gpt(p, tokens, heads)[-1]
    return softmax(logits / logits.dtype(temperature))


def sample(params: Params, rng: np.random.Generator, *, heads: int = 4, temperature: float = 0.5,
           backend: str | None = None) -> list[int]:
    """One document drawn from the model: tokens up to BOS, at most as many as the context."""
    context, bos = len(params.wpe), len(params.wte) - 1
    tokens = [bos]
    with nullcontext() if backend is None else pa.use_backend(backend):
        while len(tokens) <= context:
            weights = np.asarray(next_token(params, np.array(tokens), np.float64(temperature), heads), np.float64)
            token = int(rng.choice(bos + 1, p=weights / weights.sum()))
            if token == bos:
                break
            tokens.append(token)
    return tokens[1:]


if __name__ == "__main__":
    from models.microgpt.cli import main
    sys.exit(main())
