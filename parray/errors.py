"""The errors users see.  Every message carries the user's own file and line when there is one.

``Loc`` is a place in the user's source; ``user_location`` finds the innermost frame that is not parray's.
"""
from __future__ import annotations

import linecache
import os
import contextlib
import functools
import sys
from dataclasses import dataclass

import numpy as np

# Folders whose frames are not the user's: NumPy's functions call back into tracers.
_PACKAGES = tuple(os.path.dirname(os.path.abspath(str(f))) + os.sep for f in (__file__, np.__file__))
_BETWEEN = {contextlib.__file__, functools.__file__}        # whose frames may stand between ours


@dataclass(frozen=True)
class Loc:
    """A place in the user's source."""
    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f", in {self.function}" if self.function else "")

    def source(self) -> str:
        """The line's text, or '' when the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()


def user_location() -> Loc | None:
    """Where the user's code is now: the innermost frame outside this package and NumPy."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGES) and code.co_filename not in _BETWEEN:
            return Loc(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back                                    # type: ignore[assignment]
    return None


def located(message: str, loc: Loc | None) -> str:
    """The message followed by the place and the text of its line."""
    if loc is None:
        return message
    text = loc.source()
    return f"{message}\n  at {loc}" + (f"\n    {text}" if text else "")


class ParrayError(Exception):
    """Base of parray's own errors."""

    def __init__(self, message: str, loc: Loc | None = None):
        self.loc = loc
        self.message = message
        super().__init__(located(message, loc))


class TraceError(ParrayError, TypeError):
    """The function cannot be traced: a construct parray has no meaning for."""


class TypeMismatch(ParrayError, TypeError):
    """An element type, a rank or a structure is not what is needed."""


class SizeMismatch(ParrayError, ValueError):
    """Two sizes that must be equal differ."""


class BoundsError(ParrayError, IndexError):
    """An index is outside its array."""


class DivisionError(ParrayError, ZeroDivisionError):
    """An integer was divided by zero."""


class AssertionFailed(ParrayError, AssertionError):
    """A run-time check of the user's (`pa.assert_`) failed."""


class ForeignError(ParrayError, RuntimeError):
    """A foreign function raised an exception."""


class BackendError(ParrayError, RuntimeError):
    """A backend cannot run here, or cannot run this program."""
