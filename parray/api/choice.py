"""Which backend runs a call: the function's own, `use_backend`'s, the environment's, or the CPU."""
from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator

_backend: ContextVar[str] = ContextVar("parray_backend", default="")


def default_backend() -> str:
    """The backend of calls that name none: `use_backend`'s, PARRAY_BACKEND's or "cpu"."""
    return _backend.get() or os.environ.get("PARRAY_BACKEND") or "cpu"


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run what is called inside on this backend, unless the function names its own."""
    token = _backend.set(name)
    try:
        yield
    finally:
        _backend.reset(token)
