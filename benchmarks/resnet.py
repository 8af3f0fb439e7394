"""Milliseconds a training step of the residual networks, beside JAX and PyTorch where they are installed.

    python benchmarks/resnet.py [--net resnet20] [--batch 32] [--rounds 5] [--json FILE]
    python benchmarks/resnet.py --python jax=PATH --python torch=PATH        interpreters that have them

One step is forward, cross-entropy, backward and AdamW, f32, on a batch in memory.  Every column runs in a process of
its own and answers when asked; rounds visit the columns in turn.
"""
from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
STEPS = 5                                         # of a round


def batch(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 3, 32, 32), dtype=np.float32), rng.integers(0, 10, n)


def parray(net: str, n: int) -> Callable[[], float]:
    from models.resnet.model import init
    from models.resnet.train import step_adamw
    from parray import nn
    p, state = init(net, 10, 0)
    moments, (x, y) = nn.start_adam(p), batch(n)

    def step() -> float:
        nonlocal p, state, moments
        p, state, moments, value, _ = step_adamw(p, state, moments, x, y, np.float32(1e-4), np.float32(0.01))
        return float(value)
    return step


def _weights(net: str) -> tuple[Any, Any, int]:
    """Our weights as a tree for others: leaves, structure, blocks of a stage."""
    from models.resnet.model import NETS, init
    from parray import tree
    leaves, structure = tree.flatten(init(net, 10, 0)[0])
    return [np.asarray(v) for v in leaves], lambda xs: tree.unflatten(structure, list(xs)), NETS[net][1]


def torch(net: str, n: int) -> Callable[[], float]:
    import torch as t
    from torch.nn import functional as F
    leaves, tree_of, depth = _weights(net)
    leaves = [t.tensor(v, requires_grad=True) for v in leaves]
    p, (x, y) = tree_of(leaves), (t.from_numpy(a) for a in batch(n))
    optimizer = t.optim.AdamW(leaves, lr=1e-4, weight_decay=0.01)

    def conv(x: Any, c: Any, stride: int = 1) -> Any:
        return F.batch_norm(F.conv2d(x, c.w, stride=stride, padding=c.w.shape[2] // 2), None, None, c.scale, c.shift,
                            training=True)

    def step() -> float:
        optimizer.zero_grad()
        value = F.cross_entropy(_forward(p, x, depth, conv, F.relu, lambda z: z.mean((2, 3)) @ p.head.T), y)
        value.backward()
        optimizer.step()
        return float(value.detach())
    return step


def jax(net: str, n: int) -> Callable[[], float]:
    import jax as j
    from jax import lax
    from jax import numpy as jnp
    leaves, tree_of, depth = _weights(net)
    leaves, (x, y) = [jnp.asarray(v) for v in leaves], batch(n)

    def conv(x: Any, c: Any, stride: int = 1) -> Any:
        pad = c.w.shape[2] // 2
        y = lax.conv_general_dilated(x, c.w, (stride, stride), [(pad, pad)] * 2,
                                     dimension_numbers=("NCHW", "OIHW", "NCHW"))
        mean = y.mean((0, 2, 3), keepdims=True)
        factor = lax.rsqrt(((y - mean) ** 2).mean((0, 2, 3), keepdims=True) + 1e-5)
        return (y - mean) * factor * c.scale[None, :, None, None] + c.shift[None, :, None, None]

    def loss(leaves: Any) -> Any:
        p = tree_of(leaves)
        logits = _forward(p, x, depth, conv, j.nn.relu, lambda z: z.mean((2, 3)) @ p.head.T)
        return -jnp.take_along_axis(j.nn.log_softmax(logits), y[:, None], 1).mean()

    @j.jit
    def update(ps: Any, m: Any, v: Any, k: Any) -> Any:
        value, g = j.value_and_grad(loss)(ps)
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g)]
        ps = [p - 1e-4 * (a / (1 - 0.9 ** k) / (jnp.sqrt(b / (1 - 0.999 ** k)) + 1e-8) + 0.01 * p)
              for p, a, b in zip(ps, m, v)]
        return ps, m, v, value
    state = leaves, [0 * v for v in leaves], [0 * v for v in leaves]
    count = 0

    def step() -> float:
        nonlocal state, count
        count += 1
        *new, value = update(*state, float(count))
        state = tuple(new)
        return float(value)
    return step


def _forward(p: Any, x: Any, depth: int, conv: Any, relu: Any, head: Any) -> Any:
    """The network, with another system's functions."""
    x = relu(conv(x, p.stem))
    for k, b in enumerate(p.blocks):
        stride = 2 if k and k % depth == 0 else 1
        y = conv(relu(conv(x, b.first, stride)), b.second)
        x = relu(y + (x if b.beside is None else conv(x, b.beside, stride)))
    return head(x)


SYSTEMS: dict[str, Callable[[str, int], Callable[[], float]]] = {"parray": parray, "jax": jax, "torch": torch}


def serve(system: str, net: str, n: int) -> None:
    """One column: compiles, says so, then runs a round for every line it is sent."""
    try:
        step = SYSTEMS[system](net, n)
    except ImportError:
        print("missing", flush=True)
        return
    begun = time.perf_counter()
    loss = step()
    print(json.dumps({"first_s": round(time.perf_counter() - begun, 2), "loss": loss}), flush=True)
    step()
    for _ in sys.stdin:
        times = []
        for _ in range(STEPS):
            begun = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - begun))
        print(json.dumps(times), flush=True)


def main() -> None:
    """Print (and write) medians, minima and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--net", default="resnet20", choices=("resnet20", "resnet18"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", action="append", default=[], metavar="SYSTEM=PATH")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", choices=list(SYSTEMS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.net, args.batch)
        return
    paths = dict(p.split("=", 1) for p in args.python)
    columns, result = {}, {}
    for name in SYSTEMS:
        command = [paths.get(name, sys.executable), "-W", "ignore", "-m", "benchmarks.resnet", "--serve", name, "--net",
                   args.net, "--batch", str(args.batch)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        answer = process.stdout.readline().strip()
        if answer.startswith("{"):
            columns[name], result[name] = process, json.loads(answer)
    times: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(args.rounds):
        for name, process in columns.items():
            process.stdin.write("\n")                                       # type: ignore[union-attr]
            process.stdin.flush()                                           # type: ignore[union-attr]
            times[name] += json.loads(process.stdout.readline())            # type: ignore[union-attr]
    for name, process in columns.items():
        process.stdin.close()                                               # type: ignore[union-attr]
        process.wait()
        result[name] |= {"median_ms": round(statistics.median(times[name]), 1), "min_ms": round(min(times[name]), 1)}
        ratio = statistics.median(times["parray"]) / statistics.median(times[name])
        print(f"{name:8} {result[name]}" + ("" if name == "parray" else f"   parray / {name} = {ratio:.2f}"))
    if args.json:
        args.json.write_text(json.dumps({"net": args.net, "batch": args.batch, "columns": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
