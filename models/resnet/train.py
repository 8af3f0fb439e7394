"""Training for the residual networks: ``python models/resnet/train.py`` (see README.md).

A step is one compiled function: loss, gradient and optimizer.  Images come from a loader whose threads cut, mirror and
normalise them meanwhile.  A checkpoint holds weights, statistics, optimizer and the loader's place, so that a run goes
on as if it had not stopped.
"""
from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np

if __package__ in (None, ""):                   # run as a script: the repository's root is two folders up
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import parray as pa
from models import MissingExtra, checkpoint, extra
from models.resnet import data
from models.resnet.model import NETS, forward, init, loss
from parray import nn, tree
from parray.data import Crop, Flip, Loader, Normalise
from parray.errors import ParrayError

GROUPS = ("params", "state", "moments")       # of arrays in a checkpoint
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.262)         # of CIFAR-10's channels


@dataclass(frozen=True)
class Config:
    """What a run is; part of every checkpoint."""
    net: str = "resnet20"
    data: str = "photos"
    cifar: str = ""
    steps: int = 800
    batch: int = 32
    optimizer: str = "adamw"
    lr: float = 1e-3
    schedule: str = "cosine"
    decay: float = 0.01
    augment: bool = True
    seed: int = 0


RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "seed": {"steps": 20_000, "lr": 1e-4, "schedule": "constant", "augment": False},
    "he": {"steps": 64_000, "batch": 128, "optimizer": "sgd", "lr": 0.1, "schedule": "steps", "decay": 1e-4},
}


class Point(NamedTuple):
    """Where training stands after some steps; ``place`` is the loader's state."""
    params: Any
    state: Any
    moments: Any
    place: tuple[int, int, int]
    step: int = 0


@dataclass
class Run:
    """A training run.  ``at`` changes in one assignment: an interrupt finds it whole, with at most a loss too many."""
    config: Config
    at: Point
    losses: list[float]

    def save(self, path: Path) -> None:
        """Write the checkpoint."""
        groups = {name: {f"{k:04}": np.asarray(x) for k, x in enumerate(tree.leaves(getattr(self.at, name)))}
                  for name in GROUPS}
        checkpoint.save(path, groups, {"config": asdict(self.config), "loader": self.at.place,
                                       "losses": self.losses[:self.at.step]})


def new_run(config: Config, classes: int) -> Run:
    """A run before its first step."""
    params, state = init(config.net, classes, config.seed)
    moments = nn.start_sgd(params) if config.optimizer == "sgd" else nn.start_adam(params)
    return Run(config, Point(params, state, moments, (config.seed, 0, 0)), [])


def resumed(path: Path, classes: int, given: dict[str, Any]) -> Run:
    """The run that a checkpoint was written by; only how far to go may be said anew."""
    groups, saved = checkpoint.load(path)
    if "loader" not in saved:
        raise ValueError(f"{path} is no checkpoint of a residual network")
    config = Config(**saved["config"])
    for name, value in given.items():
        if name != "steps" and value != getattr(config, name):
            raise ValueError(f"--{name} {value} contradicts {path}, where it is {getattr(config, name)}")
    run = new_run(replace(config, **given), classes)
    params, state, moments = (
        tree.unflatten(tree.flatten(getattr(run.at, name))[1], [groups[name][k] for k in sorted(groups[name])])
        for name in GROUPS)
    run.losses = saved["losses"]
    run.at = Point(params, state, moments, tuple(saved["loader"]), len(run.losses))
    return run


# --- a step ----------------------------------------------------------------------------------------------------------

@pa.parallel(static=True)
def step_adamw(p: Any, state: Any, moments: Any, x: Any, y: Any, rate: Any, decay: Any) -> Any:
    """New weights, statistics and moments, and the loss and the number of right answers before the step."""
    (value, (right, state)), g = pa.value_and_grad(loss, has_aux=True)(p, state, x, y)
    p, moments = nn.adamw(p, g, moments, rate, decay=decay)
    return p, state, moments, value, right


@pa.parallel(static=True)
def step_sgd(p: Any, state: Any, moments: Any, x: Any, y: Any, rate: Any, decay: Any) -> Any:
    """As `step_adamw`, with momentum 0.9 and gradients clipped at a norm of 10."""
    (value, (right, state)), g = pa.value_and_grad(loss, has_aux=True)(p, state, x, y)
    p, moments = nn.sgd(p, nn.clip_by_norm(g, 10.0), moments, rate, momentum=0.9, decay=decay)
    return p, state, moments, value, right


@pa.parallel(static=True)
def classify(p: Any, state: Any, x: Any) -> Any:
    """The class of every image."""
    return pa.argmax(forward(p, state, x, False)[0], axis=1)


def rate(config: Config, step: int) -> float:
    """The learning rate of a step."""
    if config.schedule == "cosine":
        return nn.cosine(step, config.steps, config.lr)
    if config.schedule == "one-cycle":
        return nn.one_cycle(step, config.steps, config.lr)
    if config.schedule == "steps":
        return nn.steps(step, config.lr, (config.steps // 2, config.steps * 3 // 4))
    return config.lr


def train(run: Run, images: data.Images, path: Path | None, workers: int = 2, save_every: int = 0) -> None:
    """Train to the end, with a progress bar; a checkpoint is written there, and wherever training breaks off."""
    config, step = run.config, step_sgd if run.config.optimizer == "sgd" else step_adamw
    transforms = [*([Crop(4), Flip()] if config.augment else []), Normalise(MEAN, STD)]
    first, right, begun = run.at.step, list[float](), 0.0
    with Loader(images.train, config.batch, workers=workers, seed=config.seed, transforms=transforms) as loader, \
            extra("tqdm").tqdm(total=config.steps, initial=first, unit="step", dynamic_ncols=True) as bar:
        loader.restore(run.at.place)
        try:
            while run.at.step < config.steps:
                for x, y in loader:
                    params, state, moments, value, good = step(*run.at[:3], x, y,
                                                               np.float32(rate(config, run.at.step)),
                                                               np.float32(config.decay))
                    run.losses.append(float(value))
                    run.at = Point(params, state, moments, loader.state(), run.at.step + 1)
                    right.append(int(good) / config.batch)
                    begun = begun or time.monotonic()           # the first step compiles
                    speed = (len(right) - 1) * config.batch / max(time.monotonic() - begun, 1e-9)
                    bar.set_postfix_str(f"loss {np.mean(run.losses[-50:]):.3f}, right {np.mean(right[-50:]):.1%}, "
                                        f"{speed:.0f} images/s, waited {loader.wait:.1f} s", refresh=False)
                    bar.update()
                    if path is not None and save_every and run.at.step % save_every == 0:
                        run.save(path)
                    if run.at.step == config.steps:
                        break
        finally:
            if path is not None and run.at.step > first:
                run.save(path)


def confusion(run: Run, images: data.Images, batch: int = 100) -> Any:
    """How often class i of the test images was taken for class j: [classes, classes]."""
    n = len(images.classes)
    out = np.zeros((n, n), np.int64)
    with Loader(images.test, batch, shuffle=False, drop_last=False, workers=1,
                transforms=[Normalise(MEAN, STD)]) as loader:
        for x, y in loader:
            np.add.at(out, (y, classify(run.at.params, run.at.state, x)), 1)
    return out


def plots(run: Run, table: Any, classes: Sequence[str], folder: Path) -> None:
    """The loss of every step, and the confusion matrix, as pictures."""
    extra("matplotlib")
    from matplotlib.figure import Figure
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    curve, matrix = figure.subplots(1, 2)
    curve.plot(run.losses, linewidth=0.6)
    curve.set(xlabel="step", ylabel="loss", yscale="log")
    matrix.imshow(table / np.maximum(table.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    matrix.set_xticks(range(len(classes)), classes, rotation=60, ha="right", fontsize=7)
    matrix.set_yticks(range(len(classes)), classes, fontsize=7)
    figure.savefig(folder / "training.png", dpi=120)


# --- the command line ------------------------------------------------------------------------------------------------

def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The flags; those of `Config` stay None where they are not given."""
    parser = argparse.ArgumentParser(prog="train.py", description=(__doc__ or "").partition("\n")[0])
    choices = {"net": list(NETS), "data": list(data.SETS), "optimizer": ["adamw", "sgd"],
               "schedule": ["cosine", "one-cycle", "steps", "constant"]}
    for f in fields(Config):
        if f.name == "augment":
            parser.add_argument("--augment", action=argparse.BooleanOptionalAction, default=None)
        else:
            parser.add_argument(f"--{f.name}", type=type(f.default), choices=choices.get(f.name))
    parser.add_argument("--recipe", choices=list(RECIPES), default="default", help="values for flags not given")
    parser.add_argument("--out", type=Path, default=Path("resnet-out"), help="folder for checkpoint and plots")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="checkpoint to go on from")
    parser.add_argument("--workers", type=int, default=2, help="threads that load images")
    parser.add_argument("--save-every", type=int, default=0, metavar="N")
    parser.add_argument("--backend", help="where to run: cpu, cuda or interp")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Train, test, and leave a checkpoint and plots."""
    given = vars(arguments(argv))
    flags = {f.name: given[f.name] for f in fields(Config) if given[f.name] is not None}
    try:
        if given["backend"]:
            pa.use_backend(given["backend"]).__enter__()
        saved = Config(**checkpoint.load(given["resume"])[1]["config"]) if given["resume"] else None
        config = saved or replace(Config(**RECIPES[given["recipe"]]), **flags)
        images = data.cifar(config.cifar) if config.cifar else data.SETS[config.data]()
        run = resumed(given["resume"], len(images.classes), flags) if given["resume"] else \
            new_run(config, len(images.classes))
        train(run, images, given["out"] / "checkpoint.safetensors", given["workers"], given["save_every"])
        table = confusion(run, images)
        print(f"{np.trace(table)} of {table.sum()} test images are right: {np.trace(table) / table.sum():.2%}")
        plots(run, table, images.classes, given["out"])
    except (MissingExtra, ParrayError, ValueError, OSError) as e:
        print(f"train.py: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
