"""Models written in parray, each a folder: ``model.py`` reads like the paper, ``train.py`` runs from the command line.

They stand at the end of the pipeline, as users of `parray`.  What they need beyond it are the extras ``[models]``.
"""
from __future__ import annotations

import importlib
from types import ModuleType


class MissingExtra(ImportError):
    """A package of the extras ``[models]`` is not installed."""


def extra(name: str) -> ModuleType:
    """Import a package of the extras ``[models]``; where it is missing, say what to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name != name.partition(".")[0]:
            raise
        raise MissingExtra(f"{e.name} is not installed: pip install 'parray[models]' (or pip install {e.name})",
                           name=e.name) from None
