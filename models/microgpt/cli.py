"""The command line of microgpt: trains with a progress bar, saves a checkpoint and a loss plot, prints names.

A checkpoint holds the configuration, so ``--resume FILE`` needs no other flag and goes on exactly as if the training
had never stopped; only where to write, how far to go and on which backend may be said anew.
"""
from __future__ import annotations

import argparse
import hashlib
import sys
import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from models import MissingExtra, checkpoint, extra
from models.microgpt.data import alphabet_of, names_in, shipped_names
from models.microgpt.model import Params
from models.microgpt.train import State, init_params, sample, start, train
from parray.errors import ParrayError

SAMPLES = 20


@dataclass(frozen=True)
class Config:
    """What a training run is; part of every checkpoint."""
    layers: int = 1
    width: int = 16
    heads: int = 4
    context: int = 16
    batch: int = 1
    steps: int = 1000
    decay: int = 0                               # 0: as many as steps, but at least 1000
    lr: float = 0.01
    seed: int = 0
    dtype: str = "f32"
    names: str | None = None


HELP = {
    "layers": "number of blocks", "width": "length of a position's vector", "heads": "attention heads",
    "context": "most positions of a document", "batch": "documents a step", "steps": "train up to this step",
    "decay": "steps over which the rate falls to zero (default: steps, at least 1000)",
    "lr": "learning rate at the start", "seed": "of the weights, the order of documents and the samples",
    "dtype": "f32 or f64", "names": "text file of documents, one a line (default: those of the package names)",
}


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags; those of `Config` stay None where they are not given."""
    parser = argparse.ArgumentParser(prog="train.py", description=(__doc__ or "").partition("\n")[0])
    kinds = {"lr": float, "dtype": str, "names": str}
    for f in fields(Config):
        shown = f" (default: {f.default})" if f.default else ""
        parser.add_argument(f"--{f.name}", type=kinds.get(f.name, int), help=HELP[f.name] + shown,
                            choices=("f32", "f64") if f.name == "dtype" else None)
    parser.add_argument("--backend", help="where to run: cpu, cuda or interp")
    parser.add_argument("--out", type=Path, default=Path("microgpt-out"), help="folder for checkpoint and loss plot")
    parser.add_argument("--save-every", type=int, default=0, metavar="N", help="write the checkpoint every N steps too")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--init", type=Path, metavar="FILE", help="weights to start from: .npz or .safetensors")
    source.add_argument("--resume", type=Path, metavar="FILE", help="checkpoint to go on from")
    return parser.parse_args(argv)


# --- a run -----------------------------------------------------------------------------------------------------------

@dataclass
class Run:
    """A training run: what it is, its documents, where it stands, the generator of its samples, and its losses."""
    config: Config
    docs: list[str]
    alphabet: str
    state: State
    rng: np.random.Generator
    losses: list[float] = field(default_factory=list)

    def advance(self, state: State, loss: float) -> None:
        """Take note of a step; an interrupt between the two lines leaves a loss too many, which `save` cuts off."""
        self.losses.append(loss)
        self.state = state

    def save(self, path: Path) -> None:
        """Write the checkpoint."""
        groups = {name: dict(getattr(self.state, name)) for name in ("params", "m", "v")}
        checkpoint.save(path, groups, {
            "step": self.state.step, "config": asdict(self.config), "rng": self.rng.bit_generator.state,
            "alphabet": self.alphabet, "documents": fingerprint(self.docs), "losses": self.losses[:self.state.step]})


def fingerprint(docs: Sequence[str]) -> str:
    """What tells two sets of documents, or two orders of them, apart."""
    return hashlib.sha256("\n".join(docs).encode()).hexdigest()


def documents(config: Config) -> list[str]:
    return shipped_names(config.seed) if config.names is None else names_in(config.names, config.seed)


def new_run(given: dict[str, Any], init: Path | None) -> Run:
    """A run from random weights, or from those of ``init``, whose shapes then decide the sizes."""
    config = Config(**given)
    weights = None if init is None else Params(**checkpoint.load_weights(init))
    if weights is not None:
        (layers, _, _), (context, width) = weights.attn_wq.shape, weights.wpe.shape
        config = replace(config, layers=layers, context=context, width=width)
        refuse_changes(given, config, ("layers", "width", "context"), init)
    config = replace(config, decay=config.decay or max(config.steps, 1000))
    docs = documents(config)
    alphabet = alphabet_of(docs, None if weights is None else len(weights.wte) - 1) or ""
    if weights is None:
        weights = init_params(len(alphabet) + 1, config.layers, config.width, config.context, config.seed)
    return Run(config, docs, alphabet, start(weights, config.dtype), np.random.default_rng((config.seed, 1)))


def resumed_run(given: dict[str, Any], path: Path) -> Run:
    """The run that a checkpoint was written by, where it stood."""
    groups, saved = checkpoint.load(path)
    if "config" not in saved or not {"params", "m", "v"} <= set(groups):
        raise ValueError(f"{path} holds weights, but is no checkpoint of a training: use --init to start from them")
    config = Config(**saved["config"])
    refuse_changes(given, config, [f.name for f in fields(Config) if f.name not in ("steps", "names")], path)
    config = replace(config, **given)
    docs = documents(config)
    if fingerprint(docs) != saved["documents"]:
        raise ValueError(f"the documents are not those that {path} was trained on; give the same file to --names")
    params, m, v = (Params(**groups[name]) for name in ("params", "m", "v"))
    state = State(params, m, v, saved["step"])
    rng = np.random.default_rng()
    rng.bit_generator.state = saved["rng"]
    return Run(config, docs, saved["alphabet"], state, rng, saved["losses"])


def refuse_changes(given: dict[str, Any], config: Config, names: Sequence[str], path: Path | None) -> None:
    """Raise where a flag says something else than the file it starts from."""
    for name in names:
        if name in given and given[name] != getattr(config, name):
            raise ValueError(f"--{name} {given[name]} contradicts {path}, where it is {getattr(config, name)}")


# --- what a user sees ------------------------------------------------------------------------------------------------

def train_with_progress(run: Run, backend: str | None, save_every: int, path: Path) -> None:
    """Train to the end, showing loss and speed; a checkpoint is written there, and wherever training breaks off."""
    config, losses, first = run.config, run.losses, run.state.step
    with extra("tqdm").tqdm(total=config.steps, initial=run.state.step, unit="step", dynamic_ncols=True) as bar:
        shown = 0.0

        def on_step(state: State, loss: float) -> None:
            nonlocal shown
            run.advance(state, loss)
            bar.update()
            if (now := time.monotonic()) - shown > 0.1 or state.step == config.steps:
                shown = now
                bar.set_postfix_str(f"loss {np.mean(losses[-100:]):.4f}", refresh=False)
            if save_every and state.step % save_every == 0:
                run.save(path)
        try:
            train(run.docs, steps=config.steps, batch=config.batch, backend=backend, lr=config.lr, decay=config.decay,
                  heads=config.heads, alphabet=run.alphabet, state=run.state, on_step=on_step)
        except BaseException:
            if run.state.step > first:          # a run that never got going leaves an older checkpoint alone
                run.save(path)
            raise
    run.save(path)


def plot(losses: Sequence[float], path: Path) -> None:
    """The loss of every step and its running mean, as a picture."""
    extra("matplotlib").use("Agg")
    figure = extra("matplotlib.figure").Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss", title="microgpt: cross-entropy of the next character")
    steps, window = np.arange(1, len(losses) + 1), min(50, len(losses))
    axes.plot(steps, losses, linewidth=0.5, alpha=0.4, label="each step")
    axes.plot(steps[window - 1:], np.convolve(losses, np.full(window, 1 / window), "valid"),
              label=f"mean of {window}")
    axes.legend()
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    args = arguments(argv)
    given = {f.name: getattr(args, f.name) for f in fields(Config) if getattr(args, f.name) is not None}
    try:
        for name in ("tqdm", "safetensors", "matplotlib"):          # say what is missing before training, not after
            extra(name)
        run = resumed_run(given, args.resume) if args.resume else new_run(given, args.init)
        return work(run, args)
    except (ValueError, OSError, MissingExtra, ParrayError) as e:
        print(f"train.py: {e}", file=sys.stderr)
        return 1


def work(run: Run, args: argparse.Namespace) -> int:
    """Train, save, plot and sample."""
    weights = sum(np.size(x) for x in dict(run.state.params).values())
    print(f"{len(run.docs)} documents, {len(run.alphabet)} characters and BOS, {weights} weights, {run.config.dtype}")
    path = args.out / "checkpoint.safetensors"
    begun, first = time.perf_counter(), run.state.step
    try:
        train_with_progress(run, args.backend, args.save_every, path)
    except KeyboardInterrupt:
        kept = f"; go on with --resume {path}" if run.state.step > first else ", before its first step"
        print(f"stopped at step {run.state.step}{kept}", file=sys.stderr)
        return 130
    seconds, done = time.perf_counter() - begun, run.state.step - first
    if run.losses:
        plot(run.losses, args.out / "loss.png")
        print(f"{done} steps in {seconds:.1f} s, loss {np.mean(run.losses[-100:]):.4f} (mean of the last 100)")
        print(f"wrote {args.out / 'loss.png'}")
    print(f"wrote {path}")
    for i in range(SAMPLES):
        tokens = sample(run.state.params, run.rng, heads=run.config.heads, backend=args.backend)
        print(f"{i + 1:2d}  {''.join(run.alphabet[t] for t in tokens)}")
    return 0
