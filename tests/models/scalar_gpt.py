"""A character model on plain Python floats, one scalar at a time: the independent reference for `models.microgpt`.

It shares no code with the model it checks.  `Scalar` records each operation with its local derivatives; `gradient`
walks the record backwards.  Weights are nested lists, `{"wte": [[...], ...], "attn_wq": [[[...], ...], ...], ...}`.
"""
from __future__ import annotations

import math
from typing import Any, Sequence


class Scalar:
    """A float that remembers how it was made: pairs of (operand, derivative by that operand)."""
    __slots__ = ("value", "made_of")

    def __init__(self, value: float, made_of: tuple[tuple[Scalar, float], ...] = ()):
        self.value = value
        self.made_of = made_of

    def __add__(self, other: Any) -> Scalar:
        other = lift(other)
        return Scalar(self.value + other.value, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other: Any) -> Scalar:
        other = lift(other)
        return Scalar(self.value * other.value, ((self, other.value), (other, self.value)))

    def __sub__(self, other: Any) -> Scalar:
        other = lift(other)
        return Scalar(self.value - other.value, ((self, 1.0), (other, -1.0)))

    def power(self, exponent: float) -> Scalar:
        return Scalar(self.value ** exponent, ((self, exponent * self.value ** (exponent - 1)),))

    def exp(self) -> Scalar:
        result = math.exp(self.value)
        return Scalar(result, ((self, result),))

    def log(self) -> Scalar:
        return Scalar(math.log(self.value), ((self, 1 / self.value),))

    def relu(self) -> Scalar:
        return Scalar(max(self.value, 0.0), ((self, float(self.value > 0)),))


def lift(x: Any) -> Scalar:
    return x if isinstance(x, Scalar) else Scalar(float(x))


def total(xs: Sequence[Scalar]) -> Scalar:
    return Scalar(sum(x.value for x in xs), tuple((x, 1.0) for x in xs))


def gradient(root: Scalar) -> dict[int, float]:
    """The derivative of ``root`` by every scalar it was made of, by ``id``."""
    order: list[Scalar] = []
    seen: set[int] = set()
    stack: list[tuple[Scalar, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((operand, False) for operand, _ in node.made_of)
    grads = {id(root): 1.0}
    for node in reversed(order):
        for operand, derivative in node.made_of:
            grads[id(operand)] = grads.get(id(operand), 0.0) + derivative * grads[id(node)]
    return grads


def each(f: Any, tree: Any) -> Any:
    """``f`` on every leaf of nested lists and dicts."""
    if isinstance(tree, dict):
        return {k: each(f, v) for k, v in tree.items()}
    return [each(f, v) for v in tree] if isinstance(tree, list) else f(tree)


# --- the model -------------------------------------------------------------------------------------------------------

def matvec(w: list[list[Scalar]], x: list[Scalar]) -> list[Scalar]:
    return [total([a * b for a, b in zip(row, x, strict=True)]) for row in w]


def normalise(x: list[Scalar]) -> list[Scalar]:
    scale = (total([a * a for a in x]) * (1 / len(x)) + 1e-5).power(-0.5)
    return [a * scale for a in x]


def probabilities(x: list[Scalar]) -> list[Scalar]:
    top = max(a.value for a in x)
    exps = [(a - top).exp() for a in x]
    scale = total(exps).power(-1)
    return [e * scale for e in exps]


def logits_of(w: dict[str, Any], ids: Sequence[int], heads: int) -> list[list[Scalar]]:
    """The logits after each token of ``ids``, position by position with the earlier keys and values kept."""
    layers, width = len(w["attn_wq"]), len(w["wte"][0])
    size = width // heads
    keys: list[list[list[Scalar]]] = [[] for _ in range(layers)]
    values: list[list[list[Scalar]]] = [[] for _ in range(layers)]
    out = []
    for position, token in enumerate(ids):
        x = normalise([a + b for a, b in zip(w["wte"][token], w["wpe"][position], strict=True)])
        for layer in range(layers):
            normed = normalise(x)
            query = matvec(w["attn_wq"][layer], normed)
            keys[layer].append(matvec(w["attn_wk"][layer], normed))
            values[layer].append(matvec(w["attn_wv"][layer], normed))
            mixed: list[Scalar] = []
            for start in range(0, width, size):
                part = slice(start, start + size)
                scores = [total([a * b for a, b in zip(query[part], key[part], strict=True)]) * size ** -0.5
                          for key in keys[layer]]
                weights = probabilities(scores)
                mixed += [total([weight * value[column] for weight, value in zip(weights, values[layer], strict=True)])
                          for column in range(start, start + size)]
            x = [a + b for a, b in zip(x, matvec(w["attn_wo"][layer], mixed), strict=True)]
            hidden = [a.relu() for a in matvec(w["mlp_fc1"][layer], normalise(x))]
            x = [a + b for a, b in zip(x, matvec(w["mlp_fc2"][layer], hidden), strict=True)]
        out.append(matvec(w["lm_head"], x))
    return out


def document_loss(w: dict[str, Any], ids: Sequence[int], heads: int) -> Scalar:
    """The mean cross-entropy of the next token; ``ids`` opens and closes with BOS, cut to the context."""
    n = min(len(w["wpe"]), len(ids) - 1)
    losses = [probabilities(row)[ids[i + 1]].log() * -1 for i, row in enumerate(logits_of(w, ids[:n], heads))]
    return total(losses) * (1 / n)


def loss_and_gradient(weights: dict[str, Any], documents: Sequence[Sequence[int]], heads: int
                      ) -> tuple[float, dict[str, Any]]:
    """The mean loss of the documents and its gradient, in the shape of ``weights``."""
    w = each(Scalar, weights)
    loss = total([document_loss(w, ids, heads) for ids in documents]) * (1 / len(documents))
    grads = gradient(loss)
    return loss.value, each(lambda s: grads.get(id(s), 0.0), w)


def adam_steps(weights: dict[str, Any], batches: Sequence[Sequence[Sequence[int]]], heads: int, decay: int = 1000,
               rate: float = 0.01) -> tuple[dict[str, Any], list[float]]:
    """One step of Adam for each batch, with a rate that falls to zero over ``decay`` steps; new weights and losses."""
    beta1, beta2 = 0.85, 0.99
    first, second = each(lambda _: 0.0, weights), each(lambda _: 0.0, weights)
    losses = []
    for step, documents in enumerate(batches):
        loss, grads = loss_and_gradient(weights, documents, heads)
        losses.append(loss)
        now = rate * (1 - step / decay)
        first = zipped(lambda m, g: beta1 * m + (1 - beta1) * g, first, grads)
        second = zipped(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, grads)
        correct1, correct2 = 1 - beta1 ** (step + 1), 1 - beta2 ** (step + 1)
        moves = zipped(lambda m, v: now * (m / correct1) / (math.sqrt(v / correct2) + 1e-8), first, second)
        weights = zipped(lambda p, move: p - move, weights, moves)
    return weights, losses


def zipped(f: Any, a: Any, b: Any) -> Any:
    """``f`` on the leaves of two equal trees."""
    if isinstance(a, dict):
        return {k: zipped(f, a[k], b[k]) for k in a}
    return [zipped(f, x, y) for x, y in zip(a, b, strict=True)] if isinstance(a, list) else f(a, b)
