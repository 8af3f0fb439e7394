"""Images a second of the loader, beside PyTorch's with the same transform a sample.

    python benchmarks/loader.py [--seconds S] [--json FILE]          PyTorch's column needs torch

u8 images of 32 x 32 x 3 in memory are cropped, mirrored and normalised to f32 in batches of 128.
"""
from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np

from parray.data import Arrays, Crop, Flip, Loader, Normalise

BATCH, MEAN, STD = 128, (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def images(n: int = 50_000) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, 3, 32, 32), np.uint8)


def rate(batches: Callable[[], Iterator[Any]], seconds: float) -> float:
    """Images a second, after a first batch."""
    for _ in batches():
        break
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in batches():
            count += BATCH
            if time.perf_counter() - begun > seconds:
                break
    return count / (time.perf_counter() - begun)


def parray(workers: int, data: Any) -> Callable[[], Iterator[Any]]:
    loader = Loader(Arrays(data, np.zeros(len(data))), BATCH, workers=workers,
                    transforms=[Crop(4), Flip(), Normalise(MEAN, STD)])

    def batches() -> Iterator[Any]:
        loader.restore((0, loader.epoch + 1, 0))
        return iter(loader)
    return batches


def torch(workers: int, data: Any) -> Callable[[], Iterator[Any]] | None:
    try:
        from torch.utils.data import DataLoader, Dataset
    except ImportError:
        return None
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (MEAN, STD))

    class Images(Dataset[Any]):
        """The same transform, in NumPy."""

        def __len__(self) -> int:
            return len(data)

        def __getitem__(self, k: int) -> Any:
            rng = np.random.default_rng((0, k))
            x = np.pad(data[k], ((0, 0), (4, 4), (4, 4)))
            top, left = rng.integers(0, 9, 2)
            x = x[:, top:top + 32, left:left + 32]
            x = x[:, :, ::-1] if rng.random() < 0.5 else x
            return (x / np.float32(255) - mean) / std
    loader = DataLoader(Images(), BATCH, shuffle=True, num_workers=workers, drop_last=True,
                        persistent_workers=workers > 0)
    return lambda: iter(loader)


def main() -> None:
    """Print (and write) the medians of interleaved rounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    data = images()
    makers = {f"{f.__name__}, {n} workers": f(n, data) for f in (parray, torch) for n in (0, 1, 2)}
    runs = {name: batches for name, batches in makers.items() if batches is not None}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, batches in runs.items():
            found[name].append(rate(batches, args.seconds))
    result = {name: round(statistics.median(v)) for name, v in found.items()}
    for name, value in result.items():
        print(f"{name:20} {value:>10,} images/s")
    if args.json:
        args.json.write_text(json.dumps({"images_per_second": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
