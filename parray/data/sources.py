"""Where samples come from: images as u8 [channels, rows, columns] with a label each."""
from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]


class Source(Protocol):
    """Samples by number.  ``gather`` gives images that hold those of a batch, and where each of them is: an array that
    is in memory anyway is given as it is, and nothing is copied before the transforms read it."""

    shape: tuple[int, int, int]
    labels: NDArray[np.int64]

    def __len__(self) -> int: ...

    def gather(self, numbers: NDArray[np.int64]) -> tuple[U8, NDArray[np.int64]]:
        """Images u8 [m, c, h, w], and the row of each sample among them."""


class Arrays:
    """Images u8 [n, c, h, w] (an array or a memory map) and labels [n]."""

    def __init__(self, images: Any, labels: Any):
        self.images, self.labels = np.asarray(images), np.asarray(labels, np.int64)
        if self.images.dtype != np.uint8 or self.images.ndim != 4:
            raise TypeError(f"images are u8 [n, channels, rows, columns], not {self.images.dtype} {self.images.shape}")
        if self.labels.shape != self.images.shape[:1]:
            raise ValueError(f"{len(self.images)} images with labels of shape {self.labels.shape}")
        self.shape = self.images.shape[1:]

    def __len__(self) -> int:
        return len(self.images)

    def gather(self, numbers: NDArray[np.int64]) -> tuple[U8, NDArray[np.int64]]:
        return self.images, numbers


class Folder:
    """Image files under a folder, decoded when they are needed (by Pillow); all of one size.

    The label of ``7_frog.png`` is ``frog`` (the form of the CIFAR-10 trees of PNG files); of ``frog/7.png`` as well.
    """

    def __init__(self, path: str | Path, classes: Sequence[str] | None = None):
        self.files = sorted(p for p in Path(path).rglob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg"))
        if not self.files:
            raise FileNotFoundError(f"{path} holds no .png or .jpg files")
        names = [p.stem.split("_", 1)[1] if "_" in p.stem else p.parent.name for p in self.files]
        self.classes = sorted(set(names)) if classes is None else list(classes)
        unknown = set(names) - set(self.classes)
        if unknown:
            raise ValueError(f"{path}: no class is called {sorted(unknown)[0]!r}; there are {', '.join(self.classes)}")
        self.labels = np.array([self.classes.index(n) for n in names], np.int64)
        self.shape = self._read(0).shape

    def __len__(self) -> int:
        return len(self.files)

    def _read(self, number: int) -> Any:
        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError:
            raise ImportError("decoding images needs Pillow: pip install 'parray[models]'") from None
        file = self.files[number]
        try:
            with Image.open(io.BytesIO(file.read_bytes())) as image:
                return np.asarray(image.convert("RGB"), np.uint8).transpose(2, 0, 1)
        except (UnidentifiedImageError, OSError, SyntaxError) as e:
            raise ValueError(f"{file} is not a readable image: {e}") from e

    def gather(self, numbers: NDArray[np.int64]) -> tuple[U8, NDArray[np.int64]]:
        out = np.empty((len(numbers), *self.shape), np.uint8)
        for k, number in enumerate(numbers):
            image = self._read(int(number))
            if image.shape != self.shape:
                raise ValueError(f"{self.files[int(number)]} is of shape {image.shape}, the first file {self.shape}")
            out[k] = image
        return out, np.arange(len(numbers))


# --- CIFAR-10 as it is published -------------------------------------------------------------------------------------

class _Plain(pickle.Unpickler):
    """Unpickles lists, dicts and NumPy arrays, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype", "_frombuffer"):
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a batch file")


def _batch(file: Path) -> tuple[Any, Any]:
    """Images [n, 3072] and labels of one batch file, of the binary or the Python version."""
    data = file.read_bytes()
    if file.suffix == ".bin":
        if not data or len(data) % 3073:
            raise ValueError(f"{file} has {len(data)} bytes, which is not a multiple of 3073: it is truncated")
        rows = np.frombuffer(data, np.uint8).reshape(-1, 3073)
        return rows[:, 1:], rows[:, 0]
    try:
        found = _Plain(io.BytesIO(data), encoding="bytes").load()
        return np.asarray(found[b"data"], np.uint8), found[b"labels"]
    except (pickle.UnpicklingError, EOFError, KeyError, ValueError) as e:
        raise ValueError(f"{file} is not a readable batch of CIFAR-10: {e}") from e


def cifar10(path: str | Path, train: bool = True) -> Arrays:
    """CIFAR-10 from a folder with its published batch files, binary or Python version (not downloaded)."""
    names = [f"data_batch_{k}" for k in range(1, 6)] if train else ["test_batch"]
    for end in (".bin", ""):
        files = [Path(path) / (n + end) for n in names]
        if all(f.is_file() for f in files):
            parts = [_batch(f) for f in files]
            images = np.concatenate([x for x, _ in parts]).reshape(-1, 3, 32, 32)
            return Arrays(images, np.concatenate([np.asarray(y, np.int64) for _, y in parts]))
    raise FileNotFoundError(f"{path} holds neither {names[0]}.bin nor {names[0]}: the folder of CIFAR-10's published "
                            "batch files is expected")
