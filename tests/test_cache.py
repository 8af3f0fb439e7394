"""The disk cache: loaded rather than compiled the second time, and never in the way when files are bad or missing."""
import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parray import cache

SOURCE = '''\
from numba import njit


@njit("void(float64[::1], float64)", cache=True, nogil=True, error_model="numpy")
def entry(x, c):
    for i in range(x.shape[0]):
        x[i] = x[i] * c + {add}
'''

CHILD = '''\
import sys
from parray import cache
f = cache.load(open(sys.argv[1]).read(), "entry")
import numpy as np
x = np.ones(3)
f(x, 2.0)
assert x.tolist() == [3.0, 3.0, 3.0], x
print(sum(f.stats.cache_hits.values()), sum(f.stats.cache_misses.values()))
'''


def source(add: float = 1.0) -> str:
    """A program of one loop; each ``add`` is another."""
    return SOURCE.format(add=add)


def check(function: object, add: float = 1.0) -> None:
    """The function does what the source says."""
    x = np.ones(4)
    function(x, 2.0)                                                    # type: ignore[operator]
    assert x.tolist() == [2.0 + add] * 4


def hits(function: object) -> tuple[int, int]:
    """How many of its signatures were loaded and how many compiled."""
    stats = function.stats                                              # type: ignore[attr-defined]
    return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())


def forget() -> None:
    """Make the next load look at the disk, as another process would."""
    cache._loaded.clear()
    cache._sizes.clear()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    path = tmp_path / "cache"
    monkeypatch.setenv("PARRAY_CACHE_DIR", str(path))
    monkeypatch.delenv("PARRAY_CACHE", raising=False)
    monkeypatch.delenv("PARRAY_CACHE_SIZE", raising=False)
    forget()
    return path


def start(tmp_path: Path) -> "subprocess.Popen[str]":
    """Another process that loads the same program."""
    program = tmp_path / "program.txt"
    program.write_text(source())
    return subprocess.Popen([sys.executable, "-W", "error", "-c", CHILD, str(program)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


# --- keys ------------------------------------------------------------------------------------------------------------

def test_key_covers_what_the_machine_code_depends_on() -> None:
    first = cache.key_of(source(), "entry")
    assert first == cache.key_of(source(), "entry")
    others = {cache.key_of(source(2.0), "entry"), cache.key_of(source(), "other"),
              cache.key_of(source(), "entry", kind="cuda")}
    assert len(others | {first}) == 4


def test_key_follows_what_the_source_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from parray.prims import TABLE\n" + source()
    first = cache.key_of(text, "entry")
    monkeypatch.setattr(cache, "_digest", lambda name: f"another {name}")
    assert cache.key_of(text, "entry") != first


def test_key_follows_helpers_and_their_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "outer.py").write_text("from helpers.inner import *\n")
    keys = {cache.key_of(source(), "entry")}
    for text in ("a = 1\n", "a = 2\n"):
        (tmp_path / "helpers" / "inner.py").write_text(text)
        for name in ("helpers", "helpers.outer", "helpers.inner"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        cache._digest.cache_clear()
        keys.add(cache.key_of(source(), "entry", depends=[importlib.import_module("helpers.outer")]))
    assert len(keys) == 3
    cache._digest.cache_clear()


def test_kernels_depend_on_few_files() -> None:
    """A change of the tracer, say, leaves what users have in their caches valid."""
    from parray.backends import launches
    files, todo = set(), cache._imported(launches.HEADER, "parray")
    while todo:
        name = todo.pop()
        files.add(name)
        todo |= cache._imported(Path(str(importlib.import_module(name).__file__)).read_text(), "parray") - files
    assert "parray.backends.scalars" in files
    assert not [f for f in files if not f.startswith("parray.backends.") and f not in {
        "parray.errors", "parray.ir", "parray.prims", "parray.types"}]


def test_comments_do_not_count() -> None:
    texts = [source().replace("    for", f"    # map  model.py:{line}\n    for") for line in (12, 13)]
    first = cache.load(texts[0], "entry")
    check(first)
    assert cache.load(texts[1], "entry") is first


# --- hits ------------------------------------------------------------------------------------------------------------

def test_one_process_loads_a_program_once() -> None:
    first = cache.load(source(), "entry")
    check(first)
    assert cache.load(source(), "entry") is first
    assert cache.load(source(2.0), "entry") is not first


def test_second_load_compiles_nothing() -> None:
    assert hits(cache.load(source(), "entry")) == (0, 1)
    forget()
    again = cache.load(source(), "entry")
    assert hits(again) == (1, 0)
    check(again)


def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert finish(start(tmp_path)) == "0 1"
    assert finish(start(tmp_path)) == "1 0"


def test_processes_at_once_compile_once(tmp_path: Path) -> None:
    results = sorted(finish(p) for p in [start(tmp_path) for _ in range(4)])
    assert results == ["0 1", "1 0", "1 0", "1 0"]


def test_numba_cache_dir_does_not_scatter_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numba import config
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "numba"))
    cache.load(source(), "entry")
    assert not (tmp_path / "numba").exists()
    assert config.CACHE_DIR == str(tmp_path / "numba")


# --- damage ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("pattern", ["*.py", "*.nbi", "*.nbc"])
@pytest.mark.parametrize("damage", ["empty", "half", "garbage", "missing"])
def test_damaged_entry_is_a_miss(folder: Path, pattern: str, damage: str) -> None:
    cache.load(source(), "entry")
    (file,) = folder.rglob(pattern)
    data = file.read_bytes()
    match damage:
        case "empty":
            file.write_bytes(b"")
        case "half":
            file.write_bytes(data[:len(data) // 2])
        case "garbage":
            file.write_bytes(b"\x80\x05garbage")
        case "missing":
            file.unlink()
    forget()
    check(cache.load(source(), "entry"))
    forget()
    whole = cache.load(source(), "entry")
    assert hits(whole) == (1, 0)
    check(whole)


def test_interrupted_write_leaves_no_half_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*names: object) -> None:
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            cache.load(source(), "entry")
    assert not list(folder.rglob("*.py"))
    check(cache.load(source(), "entry"))


def test_interrupted_removal_is_finished(folder: Path) -> None:
    (folder / "removed_1").mkdir(parents=True)
    (folder / "removed_1" / "file").write_text("")
    cache.load(source(), "entry")
    assert not list(folder.glob("removed_*"))


# --- folders that do not work ----------------------------------------------------------------------------------------

def test_unusable_folder_costs_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PARRAY_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING, "parray"):
        check(cache.load(source(), "entry"))
        check(cache.load(source(2.0), "entry"), 2.0)
    assert len(caplog.records) == 1
    assert "PARRAY_CACHE_DIR" in caplog.text
    assert cache.entries() == [] and cache.clear() == 0


def test_full_disk_costs_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(*names: object) -> None:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", full)
    with caplog.at_level(logging.WARNING, "parray"):
        check(cache.load(source(), "entry"))
    assert len(caplog.records) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the administrator may write anywhere")
def test_read_only_folder_costs_one_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir()
    folder.chmod(0o500)
    with caplog.at_level(logging.WARNING, "parray"):
        check(cache.load(source(), "entry"))
    assert len(caplog.records) == 1


def test_switched_off_leaves_no_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARRAY_CACHE", "0")
    check(cache.load(source(), "entry"))
    assert not folder.exists()


def test_error_in_the_program_is_not_a_miss(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    from numba.core.errors import TypingError
    with pytest.raises(TypingError), caplog.at_level(logging.INFO, "parray"):
        cache.load(source().replace("* c", "* 'c'"), "entry")
    assert cache.entries() == [] and not caplog.records


# --- upkeep ----------------------------------------------------------------------------------------------------------

def test_entries_and_clear(folder: Path) -> None:
    assert cache.entries() == []
    for add in (1.0, 2.0):
        cache.load(source(add), "entry")
    found = cache.entries()
    assert len(found) == 2 and all(e.nbytes > 1000 for e in found)
    assert cache.clear() == 2
    assert cache.entries() == [] and folder.exists()


def test_least_recently_used_entry_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for age, add in ((300, 1.0), (200, 2.0)):
        cache.load(source(add), "entry")
        (path,) = (e.path for e in cache.entries() if e.path not in paths)
        paths.append(path)
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    forget()
    cache.load(source(1.0), "entry")                        # used again: now the second is the oldest
    monkeypatch.setenv("PARRAY_CACHE_SIZE", str(int(2.5 * cache.entries()[0].nbytes)))
    cache.load(source(3.0), "entry")
    left = [e.path for e in cache.entries()]
    assert len(left) == 2 and paths[0] in left and paths[1] not in left


def test_growth_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.load(source(1.0), "entry")
    monkeypatch.setenv("PARRAY_CACHE_SIZE", str(int(2.5 * cache.entries()[0].nbytes)))
    for add in (2.0, 3.0, 4.0):
        cache.load(source(add), "entry")
    assert len(cache.entries()) == 2


def test_newest_entry_stays_however_small_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARRAY_CACHE_SIZE", "1")
    for add in (1.0, 2.0):
        check(cache.load(source(add), "entry"), add)
        assert len(cache.entries()) == 1


def test_limit_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARRAY_CACHE_SIZE", "1G")
    with pytest.raises(ValueError, match="number of bytes"):
        cache.limit()
