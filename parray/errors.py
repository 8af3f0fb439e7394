"""The errors users see.  Every message carries the user's own file and line when there is one.

``Loc`` is a place in the user's source; ``user_location`` finds the innermost frame that is not parray's.
"""
from __future__ import annotations

import linecache
import os
import contextlib
import functools
import sys
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType
from typing import Any
from unicodedata import east_asian_width

import numpy as np

# Folders whose frames are not the user's: NumPy's functions call back into tracers.
_PACKAGES = tuple(os.path.dirname(os.path.abspath(str(f))) + os.sep for f in (__file__, np.__file__))
_RUNPY = "<frozen runpy>"
_BETWEEN = {contextlib.__file__, functools.__file__}        # whose frames may stand between ours


@dataclass(frozen=True)
class Loc:
    """A place in the user's source.  ``at``: the code and the instruction there, for the columns."""
    file: str
    line: int
    function: str = ""
    at: tuple[CodeType, int] | None = field(default=None, compare=False, repr=False)
    span: tuple[int, int] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f", in {self.function}" if self.function else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return Loc, (self.file, self.line, self.function, None, self.columns())

    def source(self) -> str:
        """The line's text, or '' when the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def columns(self) -> tuple[int, int] | None:
        """Where in its line the expression begins and ends, in characters; None where that is not known."""
        if self.at is None:
            return self.span
        code, instruction = self.at
        line, end_line, start, end = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
        text = linecache.getline(self.file, self.line).rstrip()
        if line != self.line or end_line is None or start is None or end is None or not text:
            return None
        raw = text.encode()                                     # Python counts bytes
        stop = len(raw) if end_line > line else end
        return len(raw[:start].decode(errors="ignore")), len(raw[:stop].decode(errors="ignore"))

    def quoted(self) -> list[str]:
        """The line's text and, under it, marks under the expression."""
        line = linecache.getline(self.file, self.line).rstrip()
        text = line.strip()
        columns = self.columns()
        if not text or columns is None:
            return [text] if text else []
        indent = len(line) - len(line.lstrip())
        start, end = max(columns[0], indent), columns[1]
        return [text, "".join(_width(c) for c in line[indent:start]) + "^" * len("".join(map(_width, line[start:end])))]


def _width(character: str) -> str:
    """Blanks as wide as a character is in a terminal."""
    return "\t" if character == "\t" else "  " if east_asian_width(character) in "WF" else " "


def user_location() -> Loc | None:
    """Where the user's code is now: the innermost frame outside this package and NumPy."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGES) and code.co_filename not in _BETWEEN:
            if code.co_filename == _RUNPY:                      # python -m parray: there is no code of the user's
                return None
            return Loc(code.co_filename, frame.f_lineno, code.co_name, (code, frame.f_lasti))
        frame = frame.f_back                                    # type: ignore[assignment]
    return None


def located(message: str, loc: Loc | None) -> str:
    """The message followed by the place, the text of its line and marks under the expression."""
    return message if loc is None else "\n".join([message, f"  at {loc}", *(f"    {text}" for text in loc.quoted())])


class ParrayError(Exception):
    """Base of parray's own errors."""

    def __init__(self, message: str, loc: Loc | None = None):
        self.loc = loc
        self.message = message
        super().__init__(located(message, loc))


class TraceError(ParrayError, TypeError):
    """The function cannot be traced: a construct parray has no meaning for."""


class NoAttribute(TraceError, AttributeError):
    """A traced value has no such attribute."""


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
