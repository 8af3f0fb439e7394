"""Losses and scores of a batch (`parray.nn`)."""
from __future__ import annotations

from typing import Any

import parray as pa


def cross_entropy(logits: Any, targets: Any) -> Any:
    """The mean of ``-log softmax(logits)[target]``: logits [n, classes], targets [n] integers."""
    def one(row: Any, target: Any) -> Any:
        return pa.logsumexp(row) - row[target]
    return pa.mean(pa.map(one, logits, targets))


def mse(x: Any, y: Any) -> Any:
    """The mean squared difference."""
    return pa.mean((x - y) ** 2)


def accuracy(logits: Any, targets: Any) -> Any:
    """How many rows have their maximum at the target."""
    return pa.sum(pa.argmax(logits, axis=1) == targets)
