"""Residual networks for 32 x 32 images: ResNet-20 with projections (272,464 weights) and ResNet-18 (11.2 million).

    stem:   3 x 3 convolution, batch norm, ReLU
    block:  y = bn(conv(relu(bn(conv x))));  relu(y + x), where x goes through a 1 x 1 convolution and a batch norm if
            the shape changes                                                        (He et al., 2016)
    head:   mean over the image, linear map to the classes

The functions follow in reading order; the gradient is `pa.grad` of ``loss``.
"""
from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import numpy as np

import parray as pa
from parray import nn

NETS = {"resnet20": ((16, 32, 64), 3), "resnet18": ((64, 128, 256, 512), 2)}      # widths of stages, blocks in each


class Conv(NamedTuple):
    """A convolution's filters [o, c, a, b], and scale and shift [o] of the batch norm after it."""
    w: Any
    scale: Any
    shift: Any


class Block(NamedTuple):
    """Two convolutions, and a third beside them where the shape changes."""
    first: Conv
    second: Conv
    beside: Conv | None


class Params(NamedTuple):
    """The weights; the head is [classes, c]."""
    stem: Conv
    blocks: tuple[Block, ...]
    head: Any


State = dict[str, nn.BatchNorm]                  # running statistics, by the place of the convolution


class Statistics:
    """The running statistics of a pass, as they were and as they will be."""

    def __init__(self, state: State, train: bool):
        self.old, self.train, self.new = state, train, State()

    def conv(self, name: str, x: Any, p: Conv, stride: int = 1) -> Any:
        """Convolution and batch norm; zeros around the image keep its size."""
        y = nn.conv2d(x, p.w, stride, p.w.shape[2] // 2)
        y, self.new[name] = nn.batch_norm(y, p.scale, p.shift, self.old[name], self.train)
        return y


def block(x: Any, p: Block, stride: int, name: str, s: Statistics) -> Any:
    """One residual block."""
    y = pa.relu(s.conv(f"{name}.first", x, p.first, stride))
    y = s.conv(f"{name}.second", y, p.second)
    return pa.relu(y + (x if p.beside is None else s.conv(f"{name}.beside", x, p.beside, stride)))


def forward(p: Params, state: State, x: Any, train: bool) -> tuple[Any, State]:
    """Images [n, 3, 32, 32] to logits [n, classes], and the new running statistics."""
    s = Statistics(state, train)
    x = pa.relu(s.conv("stem", x, p.stem))
    per_stage = next(depth for widths, depth in NETS.values() if widths[0] == p.stem.w.shape[0])
    for k, b in enumerate(p.blocks):
        x = block(x, b, 2 if k and k % per_stage == 0 else 1, f"block{k}", s)
    return nn.linear(nn.global_avg_pool(x), p.head), s.new


def loss(p: Params, state: State, x: Any, y: Any) -> tuple[Any, tuple[Any, State]]:
    """The mean cross-entropy of a batch; with it, how many are right and the new statistics."""
    logits, new = forward(p, state, x, True)
    return nn.cross_entropy(logits, y), (nn.accuracy(logits, y), new)


# --- weights before training -----------------------------------------------------------------------------------------

def init(net: str, classes: int, seed: int) -> tuple[Params, State]:
    """Kaiming weights for the convolutions, Xavier for the head; statistics of mean 0 and variance 1."""
    widths, depth = NETS[net]
    keys, state = (pa.random.key(seed << 16 | k) for k in count()), State()

    def conv(name: str, size: int, c: int, o: int) -> Conv:
        state[name] = nn.BatchNorm(np.zeros(o, np.float32), np.ones(o, np.float32))
        return Conv(nn.kaiming(next(keys), (o, c, size, size)), np.ones(o, np.float32),
                    np.zeros(o, np.float32))
    stem, c = conv("stem", 3, 3, widths[0]), widths[0]
    blocks: list[Block] = []
    for stage, o in enumerate(widths):
        for k in range(depth):
            name = f"block{len(blocks)}"
            change = c != o or (stage > 0 and k == 0)
            blocks.append(Block(conv(f"{name}.first", 3, c, o), conv(f"{name}.second", 3, o, o),
                                conv(f"{name}.beside", 1, c, o) if change else None))
            c = o
    return Params(stem, tuple(blocks), nn.xavier(next(keys), (classes, c))), state
