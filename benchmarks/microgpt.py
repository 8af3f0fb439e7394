"""Time microgpt's training step: parray, and JAX where it is installed, interleaved in one run.

    python benchmarks/microgpt.py [--rounds 9] [--batches 1,16] [--threads 1] [--write]

Every peer makes the same steps: the same weights, the same documents, f32, Adam.  A figure is the median over rounds
that visit the peers in turn of the mean time of a step; the machine's name and the versions stand in the result.
``--write`` keeps it in benchmarks/results/.  The bound: the step at width 16 is 0.7 MFLOP a document, 6 us at one
core's 117 GFLOP/s, all in the first-level cache.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

STEPS = 200


def documents(context: int = 16) -> tuple[Any, Any]:
    """A thousand made-up names as padded tokens and lengths; 26 is the token around a name."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 10, 1000)
    tokens = np.full((1000, context + 1), 26)
    for row, n in zip(tokens, lengths):
        row[1:n + 1] = rng.integers(0, 26, n)
    return tokens, lengths + 1


def parray_steps(batch: int) -> Callable[[int], float]:
    """A function that makes ``n`` steps and gives the last loss."""
    from models.microgpt.train import init_params, start, train_step
    tokens, lengths = documents()
    begin = start(init_params(27), "f32")[:3]

    def run(n: int) -> float:
        state: Any = begin
        loss = np.float32(0)
        for step in range(n):
            at = [(step * batch + j) % 1000 for j in range(batch)]
            if batch == 1:
                doc, length = tokens[at[0], :lengths[at[0]] + 1], lengths[at[0]]
            else:
                doc, length = tokens[at, :max(lengths[at]) + 1], lengths[at]
            *state, loss = train_step(*state, doc, length, np.float64(step), np.float64(0.01 * (1 - step / 1000)), 4)
        return float(loss)
    return run


def jax_steps(batch: int) -> Callable[[int], float]:
    """The same in JAX, one jitted step over padded documents."""
    import jax
    import jax.numpy as jnp
    from models.microgpt.train import init_params
    tokens, lengths = documents()
    names = ("wte wpe lm_head attn_wq attn_wk attn_wv attn_wo mlp_fc1 mlp_fc2").split()
    weights = init_params(27)
    begin = {k: jnp.asarray(getattr(weights, k), jnp.float32) for k in names}

    def norm(x: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)

    def loss(p: Any, doc: Any, length: Any) -> Any:
        x = norm(p["wte"][doc[:-1]] + p["wpe"])
        h = norm(x)
        q, k, v = ((h @ p[f"attn_w{c}"][0].T).reshape(16, 4, 4).transpose(1, 0, 2) for c in "qkv")
        scores = jnp.where(jnp.tril(jnp.ones((16, 16), bool)), q @ k.transpose(0, 2, 1) / 2, -jnp.inf)
        x = x + (jax.nn.softmax(scores) @ v).transpose(1, 0, 2).reshape(16, 16) @ p["attn_wo"][0].T
        x = x + jax.nn.relu(norm(x) @ p["mlp_fc1"][0].T) @ p["mlp_fc2"][0].T
        nll = -jnp.take_along_axis(jax.nn.log_softmax(x @ p["lm_head"].T), doc[1:, None], 1)[:, 0]
        return jnp.where(jnp.arange(16) < length, nll, 0).sum() / length

    def mean(p: Any, docs: Any, lens: Any) -> Any:
        return jax.vmap(loss, (None, 0, 0))(p, docs, lens).mean()

    @jax.jit
    def step(p: Any, m: Any, v: Any, docs: Any, lens: Any, i: Any) -> Any:
        value, g = jax.value_and_grad(mean)(p, docs, lens)
        m = jax.tree.map(lambda a, b: 0.85 * a + 0.15 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, v, g)
        rate = 0.01 * (1 - i / 1000)
        p = jax.tree.map(lambda w, a, b: w - rate * a / (1 - 0.85 ** (i + 1)) / (
            jnp.sqrt(b / (1 - 0.99 ** (i + 1))) + 1e-8), p, m, v)
        return p, m, v, value
    zeros = jax.tree.map(jnp.zeros_like, begin)

    def run(n: int) -> float:
        p, m, v = begin, zeros, zeros
        value = jnp.float32(0)
        for i in range(n):
            at = [(i * batch + j) % 1000 for j in range(batch)]
            p, m, v, value = step(p, m, v, tokens[at], lengths[at], jnp.float32(i))
        return float(value)
    return run


PEERS = {"parray": parray_steps, "jax": jax_steps}


def measure(batches: list[int], rounds: int) -> dict[str, Any]:
    """Median microseconds a step, and the first call's seconds, by batch and peer."""
    out: dict[str, Any] = {}
    for batch in batches:
        runs, first, last = {}, {}, {}
        for name, make in PEERS.items():
            try:
                runs[name] = make(batch)
            except ImportError:
                continue
            t = time.perf_counter()
            runs[name](1)
            first[name] = round(time.perf_counter() - t, 2)
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                t = time.perf_counter()
                last[name] = run(STEPS)
                times[name].append((time.perf_counter() - t) / STEPS * 1e6)
        out[str(batch)] = {name: {"us_per_step": round(statistics.median(t), 1), "min": round(min(t), 1),
                                  "first_call_s": first[name], "loss": round(last[name], 5)}
                           for name, t in times.items()}
    return out


def start_up() -> dict[str, float]:
    """Seconds from nothing to the first step done: a process with an empty cache, then a second process."""
    code = "import benchmarks.microgpt as b; b.parray_steps(1)(1)"
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PARRAY_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
        seconds = []
        for _ in range(2):
            t = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, check=True)
            seconds.append(round(time.perf_counter() - t, 2))
    return {"empty_cache_s": seconds[0], "second_process_s": seconds[1]}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("numba", "llvmlite", "numpy", "jax"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/")
    args = parser.parse_args()
    os.environ["PARRAY_NUM_THREADS"] = str(args.threads)
    if args.threads == 1:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    result = {"machine": f"{platform.machine()} {platform.processor()}".strip(), "threads": args.threads,
              "versions": versions(), "start_up": start_up(),
              "steps": measure([int(b) for b in args.batches.split(",")], args.rounds)}
    print(json.dumps(result, indent=1))
    if args.write:
        path = ROOT / "benchmarks" / "results" / "microgpt.json"
        path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
