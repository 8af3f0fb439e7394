"""Channels and the loader: order, back-pressure, errors, ends; the same batches for any number of workers."""
from __future__ import annotations

import gc
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parray as pa
from parray.data import (Arrays, Channel, Closed, Crop, Cutout, Flip, Folder, Jitter, Loader, Normalise, cifar10,
                         select)
from parray.data import kernels

ALL = [Crop(3), Flip(), Jitter(0.2, 0.3), Normalise([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]), Cutout(4)]


def images(n: int = 23, size: int = 8) -> Arrays:
    rng = np.random.default_rng(1)
    return Arrays(rng.integers(0, 256, (n, 3, size, size), np.uint8), np.arange(n))


def workers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("parray-loader")]


# --- channels --------------------------------------------------------------------------------------------------------

def test_channel_keeps_order_and_holds_senders_back() -> None:
    c: Channel[int] = Channel(2)
    sent: list[int] = []

    def send() -> None:
        for k in range(20):
            c.send(k)
            sent.append(k)
        c.close()
    t = threading.Thread(target=send)
    t.start()
    time.sleep(0.1)
    assert len(sent) == 2 and len(c) == 2 and not c.closed
    assert list(c) == list(range(20))
    t.join()
    assert c.closed


def test_channel_timeouts_ends_and_errors() -> None:
    c: Channel[int] = Channel(1)
    with pytest.raises(TimeoutError):
        c.recv(timeout=0.01)
    c.send(1)
    with pytest.raises(TimeoutError):
        c.send(2, timeout=0.01)
    c.close(KeyError("lost"))
    c.close()                                                   # the first close counts
    with pytest.raises(Closed):
        c.send(3)
    assert c.recv() == 1
    with pytest.raises(KeyError, match="lost"):
        c.recv()
    with pytest.raises(ValueError, match="at least 1"):
        Channel(0)


def test_a_waiting_sender_learns_of_the_end() -> None:
    c: Channel[int] = Channel(1)
    c.send(1)
    found: list[BaseException] = []

    def send() -> None:
        try:
            c.send(2)
        except Closed as e:
            found.append(e)
    t = threading.Thread(target=send)
    t.start()
    time.sleep(0.05)
    c.close()
    t.join(5)
    assert len(found) == 1 and list(c) == [1]


def test_many_senders_and_receivers_lose_nothing() -> None:
    c: Channel[int] = Channel(3)
    got: list[int] = []
    lock = threading.Lock()

    def receive() -> None:
        for v in c:
            with lock:
                got.append(v)
    senders = [threading.Thread(target=lambda k=k: [c.send(k * 1000 + j) for j in range(200)]) for k in range(4)]
    receivers = [threading.Thread(target=receive) for _ in range(3)]
    for t in senders + receivers:
        t.start()
    for t in senders:
        t.join()
    c.close()
    for t in receivers:
        t.join()
    assert sorted(got) == sorted(k * 1000 + j for k in range(4) for j in range(200))


def test_select() -> None:
    a, b = Channel[int](1), Channel[int](1)
    with pytest.raises(TimeoutError):
        select(a, b, timeout=0.01)
    threading.Timer(0.05, b.send, (7,)).start()
    assert select(a, b, timeout=5) == (b, 7)
    a.send(1)
    b.send(2)
    assert select(a, b) == (a, 1) and select(a, b) == (b, 2)
    a.close()
    with pytest.raises(Closed):
        select(a, b)


# --- transforms ------------------------------------------------------------------------------------------------------

def test_random_numbers_are_those_of_the_language() -> None:
    @pa.parallel
    def numbers(key: Any, number: Any) -> Any:
        return pa.random.threefry2x32(key[0], key[1], number, pa.u32(2))
    key = kernels.epoch_key(5 << 33 | 6, 9)
    with pa.use_backend("interp"):
        expected = pa.parallel(lambda s, e: pa.random.fold_in(pa.random.key(s), e))(5 << 33 | 6, 9)
        assert key.tolist() == expected.tolist()
        assert kernels.threefry(key[0], key[1], np.uint32(17), np.uint32(2)) == tuple(numbers(key, np.uint32(17)))


def plain(source: Arrays, numbers: Any, seed: int, epoch: int) -> Any:
    """What `ALL` does, in NumPy."""
    key, out = kernels.epoch_key(seed, epoch), []
    for n in numbers:
        words = [w for k in range(4) for w in kernels.threefry(key[0], key[1], np.uint32(n), np.uint32(k))]
        u = [np.float32(int(w) >> 8) * np.float32(2.0 ** -24) for w in words]
        x = source.images[n].astype(np.float32)
        mean = np.float32(x.mean(dtype=np.float64))
        top, left = (int(u[k] * np.float32(7)) for k in (0, 1))
        x = np.pad(x, ((0, 0), (3, 3), (3, 3)))[:, top:top + 8, left:left + 8]
        x = x[:, :, ::-1] if u[2] < 0.5 else x
        bright, contrast = 1 + 0.2 * (2 * u[3] - 1), 1 + 0.3 * (2 * u[4] - 1)
        x = (x * bright - mean) * contrast + mean
        x = (x / 255 - np.array([0.5, 0.4, 0.3])[:, None, None]) / np.array([0.2, 0.3, 0.4])[:, None, None]
        cy, cx = int(u[5] * np.float32(8)), int(u[6] * np.float32(8))
        x[:, max(0, cy - 2):cy + 2, max(0, cx - 2):cx + 2] = 0
        out.append(x)
    return np.stack(out)


def test_transforms_are_what_they_say() -> None:
    source = images()
    with Loader(source, 5, workers=0, seed=3, transforms=ALL) as loader:
        loader.restore((3, 2, 0))
        for x, y in loader:
            np.testing.assert_allclose(x, plain(source, y, 3, 2), rtol=1e-4, atol=1e-4)


def test_without_transforms_pixels_become_fractions() -> None:
    source = images()
    with Loader(source, 23, workers=1, shuffle=False) as loader:
        (batch,) = loader
        np.testing.assert_allclose(batch.images, source.images / np.float32(255), rtol=1e-6)
        assert batch.labels.tolist() == list(range(23))


def test_wrong_transforms() -> None:
    for wrong, kind, words in (([3], TypeError, "no transform"), ([Crop(1), Crop(2)], ValueError, "two"),
                               ([Normalise([0.5], [1.0])], ValueError, "3 means")):
        with pytest.raises(kind, match=words):
            Loader(images(), 2, transforms=wrong)


# --- the loader ------------------------------------------------------------------------------------------------------

def epochs(count: int = 2, **options: Any) -> list[Any]:
    with Loader(images(), 4, seed=11, transforms=ALL, **options) as loader:
        return [(x.copy(), y) for _ in range(count) for x, y in loader]


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 4}, {"workers": 3, "depth": 1}])
def test_the_stream_does_not_depend_on_workers(options: dict[str, Any]) -> None:
    for (x, y), (v, w) in zip(epochs(workers=0), epochs(**options), strict=True):
        np.testing.assert_array_equal(x, v)
        np.testing.assert_array_equal(y, w)


def test_an_epoch_has_every_sample_once_and_orders_differ() -> None:
    with Loader(images(), 4, drop_last=False, workers=2) as loader:
        orders = [np.concatenate([y for _, y in loader]) for _ in range(2)]
        assert len(loader) == 6 and loader.state() == (0, 2, 0)
    assert all(sorted(o) == list(range(23)) for o in orders) and orders[0].tolist() != orders[1].tolist()


@pytest.mark.parametrize("at", [0, 1, 4, 5, 7])
def test_three_integers_resume_it(at: int) -> None:
    whole = epochs(3, workers=0)
    with Loader(images(), 4, seed=11, transforms=ALL, workers=2) as loader:
        seen = 0
        while seen < at:
            for _ in loader:
                seen += 1
                if seen == at:
                    break
        state = loader.state()
    with Loader(images(), 4, transforms=ALL, workers=1) as other:
        other.restore(state)
        rest = [(x.copy(), y) for _ in range(3) for x, y in other][:len(whole) - at]
    for (x, y), (v, w) in zip(whole[at:], rest):
        np.testing.assert_array_equal(x, v)
        np.testing.assert_array_equal(y, w)


class Failing(Arrays):
    """Raises on one sample."""

    def gather(self, numbers: Any) -> Any:
        if 9 in numbers:
            raise RuntimeError("sample 9 is lost")
        return super().gather(numbers)


@pytest.mark.parametrize("count", [0, 3])
def test_an_error_comes_in_its_turn_with_its_traceback(count: int) -> None:
    source = Failing(images().images, np.arange(23))
    seen = []
    with Loader(source, 4, shuffle=False, workers=count) as loader:
        with pytest.raises(RuntimeError, match="sample 9 is lost") as e:
            for _, y in loader:
                seen += y.tolist()
        assert seen == list(range(8)) and any(f.name == "gather" for f in e.traceback)
        loader.restore((0, 0, 3))                               # and the loader still works
        assert [y.tolist() for _, y in loader] == [[12, 13, 14, 15], [16, 17, 18, 19]]
    assert not workers()


def test_an_iterator_dropped_midway_does_no_harm() -> None:
    expected = epochs(1, workers=0)
    with Loader(images(), 4, seed=11, transforms=ALL, workers=3) as loader:
        for _ in range(20):
            next(iter(loader))
            loader.restore((11, 0, 0))
        for (x, y), (v, w) in zip(loader, expected, strict=True):
            np.testing.assert_array_equal(x, v)
            np.testing.assert_array_equal(y, w)
    with pytest.raises(RuntimeError, match="closed"):
        next(iter(loader))


def test_a_loader_that_is_forgotten_ends_its_threads() -> None:
    loader = Loader(images(), 4, workers=3)
    next(iter(loader))
    assert len(workers()) == 3
    del loader
    gc.collect()
    end = time.monotonic() + 10
    while workers() and time.monotonic() < end:
        time.sleep(0.01)
    assert not workers()


@pytest.mark.slow
def test_ten_thousand_loaders_leave_nothing_behind() -> None:
    import resource
    source = images(8)
    for k in range(10_000):
        with Loader(source, 4, workers=2) as loader:
            next(iter(loader))
        if k == 1_000:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert not workers()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000          # KiB


def test_wrong_loaders() -> None:
    with pytest.raises(ValueError, match="do not fill"):
        Loader(images(3), 4)
    with pytest.raises(ValueError, match="at least"):
        Loader(images(), 0)
    with pytest.raises(TypeError, match="u8"):
        Arrays(np.zeros((2, 3, 4, 4)), [0, 1])
    with pytest.raises(ValueError, match="labels"):
        Arrays(np.zeros((2, 3, 4, 4), np.uint8), [0])


# --- files -----------------------------------------------------------------------------------------------------------

def test_cifar_in_both_published_forms(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    binary, python = tmp_path / "binary", tmp_path / "python"
    binary.mkdir(), python.mkdir()
    names = [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]
    for name in names:
        rows, labels = rng.integers(0, 256, (4, 3072), np.uint8), rng.integers(0, 10, 4)
        (binary / f"{name}.bin").write_bytes(np.c_[labels.astype(np.uint8), rows].tobytes())
        (python / name).write_bytes(pickle.dumps({b"data": rows, b"labels": labels.tolist()}))
    for train, n in ((True, 20), (False, 4)):
        a, b = cifar10(binary, train), cifar10(python, train)
        assert a.images.shape == (n, 3, 32, 32)
        np.testing.assert_array_equal(a.images, b.images)
        np.testing.assert_array_equal(a.labels, b.labels)
    file = binary / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="data_batch_3.bin has 12291 bytes.*truncated"):
        cifar10(binary)
    (python / "data_batch_2").write_bytes((python / "data_batch_2").read_bytes()[:100])
    with pytest.raises(ValueError, match="data_batch_2 is not a readable batch"):
        cifar10(python)
    (python / "data_batch_2").write_bytes(pickle.dumps({b"data": Path("x"), b"labels": []}))
    with pytest.raises(ValueError, match="does not belong"):
        cifar10(python)
    with pytest.raises(FileNotFoundError, match="neither"):
        cifar10(tmp_path)


def test_folders_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 5, 4, 3), np.uint8)
    for k, p in enumerate(pixels):
        image.fromarray(p).save(tmp_path / f"{k}_{'frog' if k % 2 else 'cat'}.png")
    source = Folder(tmp_path)
    assert source.classes == ["cat", "frog"] and source.shape == (3, 5, 4)
    with Loader(source, 3, shuffle=False, workers=2) as loader:
        found = np.concatenate([x.copy() for x, _ in loader])
    np.testing.assert_allclose(found, pixels.transpose(0, 3, 1, 2) / np.float32(255), rtol=1e-6)
    (tmp_path / "4_cat.png").write_bytes(b"\\x89PNG no image")
    with Loader(source, 3, shuffle=False, workers=2) as loader, pytest.raises(ValueError, match="4_cat.png is not"):
        list(loader)
    image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(tmp_path / "4_cat.png")
    with Loader(source, 3, shuffle=False, workers=0) as loader, pytest.raises(ValueError, match="the first file"):
        list(loader)
    with pytest.raises(FileNotFoundError, match="holds no"):
        Folder(tmp_path / "none")
    with pytest.raises(ValueError, match="no class is called 'frog'"):
        Folder(tmp_path, ["cat"])
