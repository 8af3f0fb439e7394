"""The disk cache of generated source: a program that any process compiled before is loaded, not compiled.

    load(source, "entry")  ->  the function ``entry`` of that source, compiled

Stands at the end of the pipeline: a backend prints numba source and hands it over.  The key is a hash of everything
the machine code depends on, the source text, the helper modules it imports, the versions of Python, NumPy, numba and
llvmlite, and the processor, so an entry is never stale.  Comments do not count: they name lines of the user's file,
and a line more there should not compile its programs anew.  One entry is one folder:

    <cache>/k_<key>/k_<key>.py                     the source, comments emptied
    <cache>/k_<key>/__pycache__/*.nbi, *.nbc       numba's own index and machine code

An entry that cannot be read, for whatever reason, is a miss: it is removed and made again.  A folder that cannot be
written costs one warning; the program is then compiled in memory.

Environment: PARRAY_CACHE=0 turns the cache off, PARRAY_CACHE_DIR moves it, PARRAY_CACHE_SIZE is its limit in bytes
(least recently used entries go first).
"""
from __future__ import annotations

import hashlib
import importlib.util
import linecache
import logging
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator, Sequence

import platformdirs

FORMAT = 1                                     # part of every key: raise it when the layout of an entry changes
DEFAULT_LIMIT = 1 << 30

_log = logging.getLogger("parray")
_lock = threading.RLock()
_loaded: dict[str, Any] = {}                   # by key: what this process has already
_sizes: dict[Path, int] = {}                   # by folder: bytes when last counted, plus what was made since
_unwritable: set[Path] = set()                 # folders that a warning was given for


@dataclass(frozen=True)
class Entry:
    """One program on disk."""
    path: Path
    nbytes: int
    used: float                                # when it was last loaded or made, in seconds since the epoch


# --- settings --------------------------------------------------------------------------------------------------------

def enabled() -> bool:
    """Whether programs are kept on disk."""
    return os.environ.get("PARRAY_CACHE", "1") != "0"


def directory() -> Path:
    """Where they are kept (the folder need not exist yet)."""
    return Path(os.environ.get("PARRAY_CACHE_DIR") or platformdirs.user_cache_dir("parray", appauthor=False)).absolute()


def limit() -> int:
    """How many bytes all entries together may take."""
    text = os.environ.get("PARRAY_CACHE_SIZE", "")
    try:
        return int(text) if text else DEFAULT_LIMIT
    except ValueError:
        raise ValueError(f"PARRAY_CACHE_SIZE is a number of bytes, not {text!r}") from None


# --- keys ------------------------------------------------------------------------------------------------------------

@cache
def _environment() -> str:
    """What machine code depends on besides its source."""
    import llvmlite
    import numba
    import numpy
    from numba.core.registry import cpu_target
    codegen = cpu_target.target_context.codegen()
    settings = [getattr(numba.config, name, None) for name in ("OPT", "BOUNDSCHECK", "SLP_VECTORIZE", "LOOP_VECTORIZE")]
    return repr((FORMAT, sys.implementation.cache_tag, platform.python_version(), numba.__version__,
                 llvmlite.__version__, numpy.__version__, codegen.magic_tuple(), settings))


def _imported(text: str, package: str) -> set[str]:
    """The modules of a package that source text imports."""
    return set(re.findall(rf"(?m)^[ \t]*(?:from|import) ({re.escape(package)}\b[\w.]*)", text))


@cache
def _digest(name: str) -> str:
    """The hash of a helper module's source and of every module of its package that it imports, directly or not."""
    known: dict[str, str] = {}
    todo = {name}
    while todo:
        module = todo.pop()
        spec = importlib.util.find_spec(module)                             # the module itself need not run
        known[module] = Path(str(spec.origin if spec else module)).read_text(encoding="utf-8")
        todo |= _imported(known[module], name.partition(".")[0]) - known.keys()
    return hashlib.sha256("\0".join(f"{n}\0{known[n]}" for n in sorted(known)).encode()).hexdigest()


def without_comments(source: str) -> str:
    """The source with its comment lines emptied but still there, so that line numbers stay."""
    return re.sub(r"(?m)^[ \t]*#.*$", "#", source)


def key_of(source: str, entry: str, kind: str = "cpu", depends: Sequence[ModuleType] = ()) -> str:
    """The name of the entry this source has: equal keys, equal machine code."""
    helpers = sorted({m.__name__ for m in depends} | _imported(source, "parray"))
    parts = [_environment(), kind, entry, *map(_digest, helpers), without_comments(source)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


# --- loading ---------------------------------------------------------------------------------------------------------

def load(source: str, entry: str, *, kind: str = "cpu", depends: Sequence[ModuleType] = (),
         keep: bool = True) -> Any:
    """The compiled function ``entry`` of a generated module.

    ``source`` decorates its entry points with ``njit`` or ``cfunc`` of ``(signature, cache=True, ...)``, so they are
    compiled when the module is made.  The modules whose functions it compiles in are part of the
    program: those of parray that it imports, those in ``depends``, and what these import of their package.  ``keep``:
    whether it may be on disk; what calls functions that only this process has may not.
    """
    source = without_comments(source)
    with _lock:
        key = key_of(source, entry, kind, depends)
        if key not in _loaded:
            _loaded[key] = (_load if keep else _in_memory)(source, entry, "k_" + key)
        return _loaded[key]


def _load(source: str, entry: str, name: str) -> Any:
    if not enabled():
        return _in_memory(source, entry, name)
    from numba.core.errors import NumbaError
    folder = directory() / name
    for attempt in (1, 2):                                  # the second time after a bad entry was removed
        try:
            with _one_process(folder):
                _write(folder, name, source)
                return _from_folder(source, entry, name, folder)
        except NumbaError:                                  # the program itself is at fault, not the cache
            _remove(folder)
            raise
        except Exception as error:                          # whatever a damaged file or a full disk makes numba raise
            _log.info("attempt %d at cache entry %s failed: %r", attempt, folder, error)
            _remove(folder)
            failure = error
    function = _in_memory(source, entry, name)
    _warn(folder.parent, failure)
    return function


def _from_folder(source: str, entry: str, name: str, folder: Path) -> Any:
    """Run the module kept in ``folder``; numba loads its machine code or compiles and keeps it."""
    known = (folder / "__pycache__").exists()
    with _numba_files_beside_source():
        function = _run(source, entry, name, str(folder / f"{name}.py"))
    if known:
        with suppress(OSError):
            os.utime(folder)
    else:
        _account(folder)
    return function


def _in_memory(source: str, entry: str, name: str) -> Any:
    """Compile without leaving anything on disk."""
    filename = f"<parray {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    return _run(source.replace("cache=True", "cache=False"), entry, name, filename)


def _run(source: str, entry: str, name: str, filename: str) -> Any:
    """Execute the source as module ``name``.  numba finds the module by its name while it loads machine code, so the
    name must be known, and hold no dot, before the first decorator runs."""
    module = ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
        function = module.__dict__[entry]
    except BaseException:
        del sys.modules[name]
        raise
    return function


@contextmanager
def _numba_files_beside_source() -> Iterator[None]:
    """Keep NUMBA_CACHE_DIR from moving numba's files out of the entry, where neither repair nor eviction finds them."""
    from numba import config
    moved = config.CACHE_DIR                                            # type: ignore[attr-defined]
    config.CACHE_DIR = ""                                               # type: ignore[attr-defined]
    try:
        yield
    finally:
        config.CACHE_DIR = moved                                        # type: ignore[attr-defined]


# --- files -----------------------------------------------------------------------------------------------------------

def _write(folder: Path, name: str, source: str) -> None:
    """Put the source in its folder, at once or not at all; what an interrupted write left is replaced."""
    folder.mkdir(exist_ok=True)                             # a process may have removed it since it was locked
    target = folder / f"{name}.py"
    text = source.encode()
    with suppress(FileNotFoundError):
        if target.read_bytes() == text:
            return
    descriptor, temporary = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def _one_process(folder: Path) -> Iterator[None]:
    """While an entry is being made, other processes that want it wait for it instead of making it too.

    The lock belongs to the open file, so it ends with the process however that ends.  It only saves work: where
    there is none (Windows, some network file systems) every process compiles, and each write is atomic anyway.
    """
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)        # machine code: nobody else may put any here
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "ab") as file:
        with suppress(ImportError, OSError):
            import fcntl
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(folder: Path) -> None:
    """Take an entry away: first its name, in one step, so that no process sees half of it."""
    grave = folder.with_name(f"removed_{uuid.uuid4().hex}")
    with suppress(OSError):
        os.rename(folder, grave)
    shutil.rmtree(grave, ignore_errors=True)


def _warn(folder: Path, error: Exception) -> None:
    if folder not in _unwritable:
        _unwritable.add(folder)
        _log.warning("the cache folder %s cannot be used (%r); programs are compiled in memory. "
                     "PARRAY_CACHE_DIR names another folder, PARRAY_CACHE=0 turns the cache off.", folder, error)


# --- upkeep ----------------------------------------------------------------------------------------------------------

def entries() -> list[Entry]:
    """What is on disk, least recently used first."""
    found = []
    with suppress(OSError):
        for folder in directory().glob("k_*"):
            with suppress(OSError):                         # another process may remove it under our eyes
                found.append(Entry(folder, _nbytes(folder), folder.stat().st_mtime))
    return sorted(found, key=lambda e: e.used)


def _account(folder: Path) -> None:
    """A new entry was made: evict where that takes the cache over its limit.

    Counting every entry for each new one would be quadratic, so a process counts once and then adds up what it makes
    itself; what others make meanwhile is found when the sum reaches the limit.
    """
    root = folder.parent
    if root in _sizes:
        _sizes[root] += _nbytes(folder)
    if _sizes.get(root, limit() + 1) > limit():
        evict(keep=folder)
        _sizes[root] = sum(e.nbytes for e in entries())


def _nbytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def evict(keep: Path | None = None) -> int:
    """Remove least recently used entries until the rest fit the limit; how many went."""
    _sweep()
    found = entries()
    excess = sum(e.nbytes for e in found) - limit()
    removed = 0
    for e in found:
        if excess <= 0:
            break
        if e.path != keep:
            _remove(e.path)
            excess -= e.nbytes
            removed += 1
    return removed


def clear() -> int:
    """Remove every entry; how many there were.  Programs this process has loaded stay loaded."""
    _sweep()
    found = entries()
    for e in found:
        _remove(e.path)
    return len(found)


def _sweep() -> None:
    """Finish removals that were interrupted."""
    with suppress(OSError):
        for grave in directory().glob("removed_*"):
            shutil.rmtree(grave, ignore_errors=True)
