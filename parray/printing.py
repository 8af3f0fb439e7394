"""Arrays for people: ``pa.show(x)`` prints shape, type, statistics and some values; images it draws.

    x: f32[32, 3, 224, 224]  18.4 MiB
      mean 0.0012  deviation 0.998  least -4.61  greatest 4.57  3 NaN
      [[[[-0.35 0.12 ..
"""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from parray import tree
from parray.errors import TraceError, user_location
from parray.trace.elementwise import as_numpy
from parray.trace.tracer import Tracer
from parray.types import scalar_type


def text(x: Any, name: str = "") -> str:
    """What `show` prints: one paragraph for an array or number, one each for those in a tuple, dict or record."""
    leaves, structure = tree.flatten(x)
    return "\n".join(map(_paragraph, leaves, tree.paths(structure, name)))


def _paragraph(x: Any, name: str) -> str:
    if isinstance(x, Tracer):
        raise TraceError("pa.show prints values, and while a function is traced there are none: return the array and "
                         "show the result", user_location())
    a = np.asarray(x if isinstance(x, (bool, int, float, np.generic)) else as_numpy(x))
    try:
        kind = scalar_type(a.dtype).name
    except (TypeError, KeyError, ValueError):
        kind = str(a.dtype)
    head = f"{name or 'array'}: {kind}[{', '.join(map(str, a.shape))}]" + (f"  {_bytes(a.nbytes)}" if a.ndim else "")
    values = np.array2string(a, precision=4, threshold=60, edgeitems=3, separator=" ").splitlines()
    shown = values[:8] + ["..."] * (len(values) > 8)
    return "\n  ".join([head, *_statistics(a), *shown])


def _bytes(n: int) -> str:
    size, unit = float(n), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"


def _statistics(a: Any) -> list[str]:
    """Mean, deviation and extremes of what is finite, and how much is not."""
    if a.ndim == 0 or a.size == 0 or a.dtype.kind not in "biuf":
        return []
    if a.dtype.kind == "b":
        return [f"{int(a.sum())} of {a.size} are true"]
    finite = a[np.isfinite(a)] if a.dtype.kind == "f" else a
    parts = []
    if finite.size:
        wide = finite.astype(np.float64)
        parts = [f"mean {wide.mean():.4g}", f"deviation {wide.std():.4g}", f"least {finite.min():.4g}",
                 f"greatest {finite.max():.4g}"]
    if a.dtype.kind == "f":
        nans, infinite = int(np.isnan(a).sum()), int(np.isinf(a).sum())
        parts += [f"{nans} NaN"] * (nans > 0) + [f"{infinite} infinite"] * (infinite > 0)
    return ["  ".join(parts)]


def show(x: Any, name: str = "", plot: str | Path | None = None, file: TextIO | None = None) -> None:
    """Print an array, a number or a tree of them; ``plot`` names a file to draw images to.

    Images are [h, w], [3, h, w], [n, h, w] or [n, 1 or 3, h, w]; drawing needs matplotlib.  Raises TraceError on values
    that are being traced, and ValueError for what cannot be drawn.
    """
    print(text(x, name), file=file or sys.stdout)
    if plot is not None:
        _draw(np.asarray(as_numpy(x)), plot)


def memory_stats() -> dict[str, int]:
    """Bytes that this process keeps for its programs: ``arenas`` of temporaries, one a thread that calls; ``results``
    of earlier calls, whose memory is used again once nobody holds them; and how many ``programs`` there are."""
    from parray.backends import cpu
    return cpu.memory_stats()


def _draw(a: Any, plot: str | Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("drawing needs matplotlib: pip install matplotlib") from None
    if a.ndim == 2:
        images = [a]
    elif a.ndim == 3:
        images = [a.transpose(1, 2, 0)] if a.shape[0] == 3 else list(a)
    elif a.ndim == 4 and a.shape[1] in (1, 3):
        images = [i.transpose(1, 2, 0) if len(i) == 3 else i[0] for i in a]
    else:
        raise ValueError(f"an array of shape {a.shape} is no image: [h, w], [3, h, w], [n, h, w] and [n, 1 or 3, h, w] "
                         "are")
    images = images[:64]
    columns = int(np.ceil(len(images) ** 0.5))
    figure = Figure(figsize=(1.5 * columns, 1.5 * -(-len(images) // columns)), layout="constrained")
    low, high = (float(f(a)) for f in (np.nanmin, np.nanmax))
    for k, image in enumerate(images):
        axes = figure.add_subplot(-(-len(images) // columns), columns, k + 1)
        axes.imshow((image - low) / (high - low or 1), cmap="gray", vmin=0, vmax=1)
        axes.set_axis_off()
    figure.savefig(os.fspath(plot), dpi=120)
