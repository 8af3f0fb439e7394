"""Augmentation as one compiled pass over each image, without the interpreter lock.

    pixel (c, y, x)  <-  source pixel (c, y + oy - pad, x + ox - pad), mirrored or not; zeros outside
                     <-  brightness and contrast                     v = mean + (v * bright - mean) * contrast
                     <-  normalised                                  (v / 255 - mean[c]) / std[c]
                     <-  0 in the square that is cut out

Random numbers are a cipher of (seed, epoch, sample, number), those of `parray.random`: they do not depend on the order
in which samples are made, nor on threads.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np
from numba import njit

ROTATIONS = np.array([[13, 15, 26, 6], [17, 29, 16, 24]], np.uint32)
PARITY = np.uint32(0x1BD11BDA)


@dataclass(frozen=True)
class Crop:
    """A random window of the image's size from the image with ``pad`` zeros around it."""
    pad: int = 4


@dataclass(frozen=True)
class Flip:
    """Left and right exchanged with probability ``p``."""
    p: float = 0.5


@dataclass(frozen=True)
class Jitter:
    """Brightness and contrast scaled by random factors in 1 - x .. 1 + x."""
    brightness: float = 0.0
    contrast: float = 0.0


@dataclass(frozen=True)
class Normalise:
    """(v / 255 - mean) / std for every channel; without it, v / 255."""
    mean: Sequence[float]
    std: Sequence[float]


@dataclass(frozen=True)
class Cutout:
    """A square of ``size`` pixels around a random place becomes 0."""
    size: int = 8


@njit(nogil=True, cache=True, inline="always")
def threefry(k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
    """`parray.random.threefry2x32` for one counter."""
    k2 = np.uint32(k0 ^ k1 ^ PARITY)
    keys = (k0, k1, k2)
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1)
    for group in range(5):
        for r in range(4):
            s = ROTATIONS[group % 2, r]
            x0 = np.uint32(x0 + x1)
            x1 = np.uint32(np.uint32(x1 << s) | np.uint32(x1 >> np.uint32(np.uint32(32) - s)))
            x1 = np.uint32(x1 ^ x0)
        x0 = np.uint32(x0 + keys[(group + 1) % 3])
        x1 = np.uint32(x1 + keys[(group + 2) % 3] + np.uint32(group + 1))
    return x0, x1


@njit(nogil=True, cache=True)
def _unit(word: Any) -> Any:
    return np.float32(word >> np.uint32(8)) * np.float32(2.0 ** -24)


@njit(nogil=True, cache=True, error_model="numpy")
def augment(images: Any, rows: Any, samples: Any, key: Any, settings: Any, scale: Any, shift: Any, out: Any) -> None:
    """Image ``rows[k]`` becomes ``out[k]``; ``samples[k]`` is the number its random numbers come from.

    ``settings``: pad, chance of a flip, brightness, contrast, side of the square cut out (see `compiled`).
    """
    channels, height, width = out.shape[1:]
    pad, side = int(settings[0]), int(settings[4])
    for k in range(rows.shape[0]):
        number = np.uint32(samples[k])
        a, b = threefry(key[0], key[1], number, np.uint32(0))
        c, d = threefry(key[0], key[1], number, np.uint32(1))
        e, f = threefry(key[0], key[1], number, np.uint32(2))
        g, _ = threefry(key[0], key[1], number, np.uint32(3))
        top = int(_unit(a) * np.float32(2 * pad + 1)) - pad
        left = int(_unit(b) * np.float32(2 * pad + 1)) - pad
        mirrored = _unit(c) < settings[1]
        bright = np.float32(1) + settings[2] * (np.float32(2) * _unit(d) - np.float32(1))
        contrast = np.float32(1) + settings[3] * (np.float32(2) * _unit(e) - np.float32(1))
        image = images[rows[k]]
        middle = np.float32(0)
        if settings[3] > 0:
            total = np.float64(0)
            for v in image.flat:
                total += v
            middle = np.float32(total / image.size)
        y0, y1 = max(0, -top), min(height, height - top)
        x0, x1 = max(0, -left), min(width, width - left)
        for ch in range(channels):
            m = bright * contrast * scale[ch]
            n = (middle - middle * contrast) * scale[ch] + shift[ch]
            plane, target = image[ch], out[k, ch]
            lo, hi = (width - x1, width - x0) if mirrored else (x0, x1)
            for y in range(height):
                row = target[y]
                if y < y0 or y >= y1:
                    row[:] = n
                    continue
                row[:lo] = n
                row[hi:] = n
                part, given = row[lo:hi], plane[y + top, x0 + left:x1 + left]
                last = given.shape[0] - 1
                if mirrored:
                    for x in range(part.shape[0]):
                        part[x] = np.float32(given[last - x]) * m + n
                else:
                    for x in range(part.shape[0]):
                        part[x] = np.float32(given[x]) * m + n
        if side > 0:
            cy, cx = int(_unit(f) * np.float32(height)), int(_unit(g) * np.float32(width))
            for y in range(max(0, cy - side // 2), min(height, cy - side // 2 + side)):
                out[k, :, y, max(0, cx - side // 2):min(width, cx - side // 2 + side)] = np.float32(0)


@dataclass(frozen=True)
class Settings:
    """What `augment` is given for a list of transforms."""
    values: Any
    scale: Any
    shift: Any


def compiled(transforms: Sequence[Any], channels: int) -> Settings:
    """The settings of transforms; at most one of each kind, and they act in the order above."""
    found: dict[type, Any] = {}
    for t in transforms:
        if type(t) not in (Crop, Flip, Jitter, Normalise, Cutout):
            raise TypeError(f"{t!r} is no transform: there are Crop, Flip, Jitter, Normalise and Cutout")
        if type(t) in found:
            raise ValueError(f"there are two transforms {type(t).__name__}")
        found[type(t)] = t
    crop, flip = found.get(Crop, Crop(0)), found.get(Flip, Flip(0.0))
    jitter, cut = found.get(Jitter, Jitter()), found.get(Cutout, Cutout(0))
    norm = found.get(Normalise, Normalise([0.0] * channels, [1.0] * channels))
    mean, std = (np.asarray(v, np.float32) for v in (norm.mean, norm.std))
    if mean.shape != (channels,) or std.shape != (channels,):
        raise ValueError(f"Normalise needs {channels} means and deviations, one for each channel")
    values = np.array([crop.pad, flip.p, jitter.brightness, jitter.contrast, cut.size], np.float32)
    return Settings(values, 1 / (255 * std), -mean / std)


def epoch_key(seed: int, epoch: int) -> Any:
    """The key of an epoch's random numbers, ``fold_in(key(seed), epoch)`` of `parray.random`."""
    with np.errstate(over="ignore"):
        words = [np.uint32(w & 0xFFFFFFFF) for w in (seed >> 32, seed, epoch >> 32, epoch)]
        return np.array(threefry(*words), np.uint32)
