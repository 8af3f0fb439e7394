"""A channel between threads, as in Go: a bounded queue that can be closed and that carries errors."""
from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Callable, Generic, Iterator, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """The channel is closed: nothing can be sent any more, or nothing is left to receive."""


class Channel(Generic[T]):
    """Up to ``capacity`` values on their way from senders to receivers.

    ``send`` waits while the channel is full, ``recv`` while it is empty; both raise TimeoutError after ``timeout``
    seconds.  After ``close``, what was sent can still be received; then ``recv`` raises Closed, or the error that the
    channel was closed with.  Iteration receives until the end.
    """

    def __init__(self, capacity: int = 1):
        if capacity < 1:
            raise ValueError(f"the capacity of a channel is at least 1, not {capacity}")
        self.capacity = capacity
        self._values: deque[T] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None
        self._watchers: set[threading.Event] = set()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def closed(self) -> bool:
        """Whether `close` was called; values may still be left."""
        return self._closed

    def send(self, value: T, timeout: float | None = None) -> None:
        """Put a value in; raises Closed if the channel is, or becomes so while this waits."""
        with self._change:
            self._wait(lambda: self._closed or len(self._values) < self.capacity, timeout)
            if self._closed:
                raise Closed("send on a closed channel")
            self._values.append(value)
            self._changed()

    def recv(self, timeout: float | None = None) -> T:
        """Take the oldest value out."""
        with self._change:
            self._wait(lambda: self._closed or bool(self._values), timeout)
            if self._values:
                value = self._values.popleft()
                self._changed()
                return value
            raise self._error if self._error is not None else Closed("the channel is closed and empty")

    def close(self, error: BaseException | None = None) -> None:
        """No more values will come; with ``error``, receivers get it after the last value.  The first close counts."""
        with self._change:
            if not self._closed:
                self._closed, self._error = True, error
                self._changed()

    def __iter__(self) -> Iterator[T]:
        while True:
            try:
                value = self.recv()
            except Closed:
                return
            yield value

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        if not self._change.wait_for(ready, timeout):
            raise TimeoutError(f"the channel did not become ready within {timeout} s")

    def _changed(self) -> None:
        self._change.notify_all()
        for event in self._watchers:
            event.set()

    def _ready(self) -> bool:
        return bool(self._values) or self._closed


def select(*channels: Channel[Any], timeout: float | None = None) -> tuple[Channel[Any], Any]:
    """The first channel that has a value (of several, the one named first), and the value.

    A closed, empty channel raises as its ``recv`` does; TimeoutError after ``timeout`` seconds.
    """
    event = threading.Event()
    end = None if timeout is None else time.monotonic() + timeout
    for c in channels:
        with c._change:
            c._watchers.add(event)
    try:
        while True:
            event.clear()
            for c in channels:
                with c._change:
                    if c._ready():
                        return c, c.recv(0)
            if not event.wait(None if end is None else max(0.0, end - time.monotonic())):
                raise TimeoutError(f"no channel became ready within {timeout} s")
    finally:
        for c in channels:
            with c._change:
                c._watchers.discard(event)
