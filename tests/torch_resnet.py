"""The residual networks in PyTorch, from the same weights: what `test_resnet` compares with.

``python tests/torch_resnet.py`` writes the losses that stand in for PyTorch where it is not installed.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.resnet.model import NETS, init  # noqa: E402
from parray import tree  # noqa: E402

FILE = Path(__file__).parent / "data" / "resnet" / "losses.json"
CASES = {"resnet20": 8, "resnet18": 8}             # images in a batch
STEPS, RATES = 20, {"resnet20": 1e-4, "resnet18": 2e-5}


def batches(net: str) -> list[tuple[Any, Any]]:
    """The images and labels of every step."""
    rng = np.random.default_rng(7)
    n = CASES[net]
    return [(rng.standard_normal((n, 3, 32, 32), dtype=np.float32), rng.integers(0, 10, n)) for _ in range(STEPS)]


def losses(net: str) -> list[float]:
    """PyTorch's losses."""
    import torch
    from torch.nn import functional as F
    params, _ = init(net, 10, 3)
    values, structure = tree.flatten(params)
    leaves = [torch.tensor(np.array(v), requires_grad=True) for v in values]
    p, depth = tree.unflatten(structure, leaves), NETS[net][1]

    def conv(x: Any, c: Any, stride: int = 1) -> Any:
        y = F.conv2d(x, c.w, stride=stride, padding=c.w.shape[2] // 2)
        return F.batch_norm(y, None, None, c.scale, c.shift, training=True)

    def forward(x: Any) -> Any:
        x = F.relu(conv(x, p.stem))
        for k, b in enumerate(p.blocks):
            stride = 2 if k and k % depth == 0 else 1
            y = conv(F.relu(conv(x, b.first, stride)), b.second)
            x = F.relu(y + (x if b.beside is None else conv(x, b.beside, stride)))
        return x.mean((2, 3)) @ p.head.T
    optimizer = torch.optim.AdamW(leaves, lr=RATES[net], weight_decay=0.01)
    out = []
    for x, y in batches(net):
        optimizer.zero_grad()
        value = F.cross_entropy(forward(torch.from_numpy(x)), torch.from_numpy(y))
        value.backward()
        optimizer.step()
        out.append(value.item())
    return out


if __name__ == "__main__":
    FILE.write_text(json.dumps({net: losses(net) for net in CASES}, indent=1) + "\n")
