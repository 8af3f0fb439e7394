"""Batches from threads: in order, the same for any number of workers, resumable.

    consumer: for every free slot, the next batch's number  --jobs-->  workers: gather, augment into the slot
              <--done--  (batch, slot or error); what comes early waits for its turn

The consumer gives out a batch only together with a slot to put it in, so a late batch never finds all slots taken by
later ones.  A slot belongs to one batch from then until the consumer asks for the batch after it.  Order, augmentation
and labels depend on (seed, epoch, sample) alone.  Workers run serial compiled kernels; they live as long as the loader
and hold nothing that would keep it alive.
"""
from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from parray.data.channel import Channel
from parray.data.kernels import augment, compiled, epoch_key
from parray.data.sources import Source


class Batch(NamedTuple):
    """Images f32 [n, c, h, w] and labels i64 [n]; valid until the next batch is asked for."""
    images: Any
    labels: Any


@dataclass
class _Job:
    number: int
    slot: Any
    samples: Any
    key: Any


_Early = dict[int, tuple[_Job, BaseException | None]]           # batches that are there before their turn


class _Work:
    """What workers share: it does not know the loader."""

    def __init__(self, source: Source, transforms: Sequence[Any], slots: int):
        self.source, self.settings = source, compiled(transforms, source.shape[0])
        self.jobs: Channel[_Job] = Channel(slots)
        self.done: Channel[tuple[_Job, BaseException | None]] = Channel(slots)

    def run(self, job: _Job) -> None:
        images, rows = self.source.gather(job.samples)
        s = self.settings
        augment(images, rows, job.samples, job.key, s.values, s.scale, s.shift, job.slot[:len(job.samples)])

    def loop(self) -> None:
        for job in self.jobs:
            error: BaseException | None = None
            try:
                self.run(job)
            except BaseException as e:
                e.add_note(f"in batch {job.number} of the loader")
                error = e
            self.done.send((job, error))


class Loader:
    """Iterate over it for one epoch of batches.

    ``workers`` threads (0: none, batches are made when asked for) work ahead by ``depth`` batches besides.  ``shuffle``
    draws a new order each epoch; ``drop_last`` leaves out a last batch that is not full.  `state` gives three integers
    (seed, epoch, next batch) from which `restore` goes on exactly.  ``wait`` counts seconds spent waiting for batches.
    """

    def __init__(self, source: Source, batch: int, *, workers: int = 2, seed: int = 0, shuffle: bool = True,
                 drop_last: bool = True, transforms: Sequence[Any] = (), depth: int = 2):
        if batch < 1 or workers < 0 or depth < 1:
            raise ValueError(f"batch and depth are at least 1 and workers at least 0, not {batch}, {depth}, {workers}")
        if drop_last and len(source) < batch:
            raise ValueError(f"{len(source)} samples do not fill one batch of {batch}; drop_last=False gives them")
        self.source, self.batch, self.workers, self.seed = source, batch, workers, seed
        self.shuffle, self.drop_last, self.depth = shuffle, drop_last, depth
        self.epoch = self.next = 0
        self.wait = 0.0
        self._work = _Work(source, transforms, workers + depth)
        self._threads: list[threading.Thread] = []
        self._slots: list[Any] = []
        self._out = 0                                           # jobs that have not come back
        self._stop = weakref.finalize(self, self._work.jobs.close)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.source) // self.batch if self.drop_last else -(-len(self.source) // self.batch)

    def state(self) -> tuple[int, int, int]:
        """(seed, epoch, number of the next batch)."""
        return self.seed, self.epoch, self.next

    def restore(self, state: Sequence[int]) -> None:
        """Go on where `state` was taken."""
        self.seed, self.epoch, self.next = map(int, state)

    def close(self) -> None:
        """End the workers and wait for them."""
        self._work.jobs.close()
        while self._out:
            self._work.done.recv()
            self._out -= 1
        for t in self._threads:
            t.join()
        self._threads.clear()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    # --- an epoch ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        self._begin()
        order = self._order()
        key, given, early = epoch_key(self.seed, self.epoch), self.next, _Early()
        free = list(self._slots)
        while self.next < len(self):
            while free and given < len(self):
                samples = order[given * self.batch:(given + 1) * self.batch]
                self._give(_Job(given, free.pop(), samples, key))
                given += 1
            job = self._take(self.next, early)
            self.next += 1
            yield Batch(job.slot[:len(job.samples)], self.source.labels[job.samples])
            free.append(job.slot)
        self.epoch, self.next = self.epoch + 1, 0

    def _begin(self) -> None:
        """Threads and slots, and nothing left of an iterator that was dropped midway."""
        if self._work.jobs.closed:
            raise RuntimeError("the loader is closed")
        while self._out:
            self._work.done.recv()
            self._out -= 1
        if not self._slots:
            shape = (self.batch, *self.source.shape)
            self._slots = [np.empty(shape, np.float32) for _ in range(self.workers + self.depth if self.workers else 1)]
        while len(self._threads) < self.workers:
            t = threading.Thread(target=self._work.loop, daemon=True, name=f"parray-loader-{len(self._threads)}")
            self._threads.append(t)
            t.start()

    def _order(self) -> Any:
        """The samples of this epoch, in order."""
        n = len(self.source)
        return np.random.default_rng((self.seed, self.epoch)).permutation(n) if self.shuffle else np.arange(n)

    def _give(self, job: _Job) -> None:
        if self.workers:
            self._out += 1
            self._work.jobs.send(job)
        else:
            self._work.run(job)
            self._ready = job

    def _take(self, number: int, early: _Early) -> _Job:
        """The batch of this number, when it is there."""
        if not self.workers:
            return self._ready
        begun = time.perf_counter()
        try:
            while number not in early:
                job, error = self._work.done.recv()
                self._out -= 1
                early[job.number] = job, error
        finally:
            self.wait += time.perf_counter() - begun
        job, error = early.pop(number)
        if error is not None:
            raise error
        return job
