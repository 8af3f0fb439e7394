"""What every example's command line shares: its sizes as options, and ``--plot FILE``."""
from __future__ import annotations

import argparse
from typing import Any, Sequence


def options(doc: str | None, argv: Sequence[str] | None, **sizes: int) -> Any:
    """The parsed command line; ``sizes`` are options with these defaults."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--plot", metavar="FILE", help="draw a picture to this file")
    return parser.parse_args(argv)


def figure(file: str, draw: Any) -> None:
    """A picture: ``draw`` is called with matplotlib's axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install matplotlib") from None
    made = Figure(layout="constrained")
    draw(made.add_subplot())
    made.savefig(file)
