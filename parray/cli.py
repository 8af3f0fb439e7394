"""The command line.

    python -m parray info                          versions, processor, threads, cache; --measure: its limits
    python -m parray bench [FILE[:FUNC]]           times: of ready-made programs beside NumPy's, or of your functions
    python -m parray explain FILE:FUNC             what a function becomes; --profile, --graph STAGE, --source,
                                                   --html OUT
    python -m parray cache show | clear            programs kept on disk
    python -m parray test FILE[:FUNC]              your functions on all backends against the interpreter

Functions are those marked ``@parallel`` in a file.  Their arguments are made from their annotations, with sizes by
``--sizes n=1000,m=20`` or 64; ``--args`` gives them as Python, in which ``np`` and ``pa`` are known.
"""
from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import statistics
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np

import parray as pa
from parray import cache, testing
from parray.api import Parallel, machine
from parray.api.parallel import default_backend
from parray.api.report import Report, Section, duration, quantity
from parray.backends import cpu, vectors
from parray.errors import ParrayError
from parray.pipeline import BACKENDS
from parray.types import f32, f64


LATEST = 20                                      # programs that `cache show` lists


class UsageError(Exception):
    """The command cannot be carried out as it was given."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0 well, 1 a function failed, 2 it could not be carried out."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args) or 0)
    except BrokenPipeError:                                  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UsageError, ParrayError) as e:
        print(f"parray: {e}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m parray", description="Look into parray, its programs and its cache.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Any], Any], help: str) -> argparse.ArgumentParser:
        p = commands.add_parser(name, help=help, description=help)
        p.set_defaults(run=run)
        return p

    def with_arguments(p: argparse.ArgumentParser) -> None:
        p.add_argument("--sizes", default="", metavar="n=1000,m=20", help="sizes of made-up arguments, by name")
        p.add_argument("--args", default="", metavar="PYTHON", help="the arguments, as in 'np.ones(9), 2.0'")
        p.add_argument("--seed", type=int, default=0, help="of made-up arguments")
    p = command("info", info, "versions, processor, threads and cache")
    p.add_argument("--measure", action="store_true", help="measure what the machine can do as well")
    p = command("bench", bench, "time ready-made programs beside NumPy's, or your functions")
    p.add_argument("target", nargs="?", metavar="FILE[:FUNC]")
    with_arguments(p)
    p = command("explain", explain, "what a function becomes, and why")
    p.add_argument("target", metavar="FILE:FUNC")
    with_arguments(p)
    p.add_argument("--profile", action="store_true", help="run it, and say how long each kernel takes")
    p.add_argument("--graph", metavar="STAGE", help="the graph after a stage: trace, simplify, .. final")
    p.add_argument("--source", action="store_true", help="the generated code")
    p.add_argument("--html", metavar="OUT", help="write the report to this file as a page")
    p = command("cache", _cache, "programs kept on disk")
    p.add_argument("what", choices=["show", "clear"])
    p = command("test", test, "run a file's functions on all backends against the interpreter")
    p.add_argument("target", metavar="FILE[:FUNC]")
    p.add_argument("--examples", type=int, default=25, help="how many arguments each function is tried on")
    p.add_argument("--special", action="store_true", help="NaN, infinities and extreme integers as well")
    return top


# --- files and functions ---------------------------------------------------------------------------------------------

def functions(target: str) -> dict[str, Parallel[..., Any]]:
    """The functions marked ``@parallel`` that FILE[:FUNC] names, in the order of the file."""
    path, _, name = target.partition(":") if not Path(target).exists() else (target, "", "")
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"there is no file {path!r}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)                # records look their annotations up there
    sys.path.insert(0, str(file.parent.absolute()))
    spec.loader.exec_module(module)
    found = {k: v for k, v in vars(module).items()
             if isinstance(v, Parallel) and getattr(v, "__module__", "") == module.__name__}
    if name and name not in found:
        raise UsageError(f"{path} has no function {name!r} marked @parallel; it has {', '.join(found) or 'none'}")
    if not found:
        raise UsageError(f"{path} has no function marked @parallel")
    return {name: found[name]} if name else found


def arguments(f: Parallel[..., Any], args: Any) -> tuple[Any, ...]:
    """What to call a function with: as given, or made from its annotations."""
    if args.args:
        try:
            given = eval(args.args, {"np": np, "pa": pa, **getattr(f.f, "__globals__", {})})
        except Exception as e:
            raise UsageError(f"--args {args.args!r}: {type(e).__name__}: {e}") from None
        return given if isinstance(given, tuple) else (given,)
    sizes = {}
    for part in filter(None, args.sizes.split(",")):
        name, _, value = part.partition("=")
        if not value.isdecimal():
            raise UsageError(f"--sizes is a list of name=number, not {part!r}")
        sizes[name.strip()] = int(value)
    try:
        return testing.example(f, sizes, seed=args.seed)
    except pa.TypeMismatch as e:
        raise UsageError(f"{e.message}; or give the arguments with --args") from None


# --- commands --------------------------------------------------------------------------------------------------------

def info(args: Any) -> None:
    """Versions, processor, threads and cache."""
    def found(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"
    entries = cache.entries()
    optional = ["hypothesis", "rich", "graphviz", "matplotlib", "mpi4py", "numba-cuda"]
    rows: list[tuple[str, ...]] = [
            ("parray", f"{pa.__version__} on Python {platform.python_version()}, {platform.system()}"),
            ("numba, numpy", f"{found('numba')}, {found('numpy')}"),
            ("optional", ", ".join(f"{p} {found(p)}" for p in optional)),
            ("processor", f"{_processor()}, vectors of {vectors.width()} bytes"),
            ("threads", f"{cpu.thread_limit()} of {os.cpu_count()} processors"),
            ("backends", f"{', '.join(BACKENDS)}; {default_backend()} by default"),
            ("cache", f"{cache.directory()}: {len(entries)} programs, {quantity(sum(e.nbytes for e in entries), 'B')} "
                      f"of {quantity(cache.limit(), 'B')}" + ("" if cache.enabled() else ", off"))]
    if args.measure:
        n = cpu.thread_limit()
        rows += [("operations", f"{quantity(machine.flops(f32) * n)}FLOP/s in f32, "
                                f"{quantity(machine.flops(f64) * n)}FLOP/s in f64, on {n} threads")]
        rows += [("bytes", ", ".join(f"{quantity(machine.bandwidth(k * n, n), 'B')}/s in {quantity(k, 'B')} a thread"
                                     for k in machine.LEVELS))]
    Report([Section("parray", [], ("", ""), rows)]).show()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def explain(args: Any) -> None:
    """What a function becomes, and why."""
    if ":" not in args.target:
        names = ", ".join(functions(args.target))
        raise UsageError(f"say which function, as {args.target}:NAME; there are {names}")
    ((_, f),) = functions(args.target).items()
    given = arguments(f, args)
    if args.graph:
        print(f.graph(*given, stage=args.graph), end="")
    if args.source:
        print(f.source(*given), end="")
    reports = []
    if not args.graph and not args.source or args.profile or args.html:
        reports.append(f.explain(*given))
    if args.profile:
        f(*given)
        reports.append(f.profile(*given))
    for report in reports:
        report.show()
    if args.html:
        page = "".join(r.html() for r in reports)
        title = f"<!doctype html><meta charset='utf-8'><title>{f.name}</title>"
        Path(args.html).write_text(title + page, encoding="utf-8")


def _cache(args: Any) -> None:
    """Programs kept on disk."""
    if args.what == "clear":
        print(f"{cache.clear()} programs removed from {cache.directory()}")
        return
    entries = cache.entries()[::-1]
    rows: list[tuple[str, ...]] = [
        (e.path.name[2:12], quantity(e.nbytes, "B"), time.strftime("%Y-%m-%d %H:%M", time.localtime(e.used)), _title(e))
        for e in entries[:LATEST]]
    total = quantity(sum(e.nbytes for e in entries), "B")
    title = f"{len(entries)} programs in {cache.directory()}, {total} of {quantity(cache.limit(), 'B')}"
    if len(entries) > LATEST:
        title += f"; the {LATEST} used last"
    Report([Section(title, [], ("key", "bytes", "last used", "is") if rows else (), rows)]).show()


def _title(entry: cache.Entry) -> str:
    """The first line of an entry's source that says something."""
    try:
        text = next(entry.path.glob("*.py")).read_text()
    except (OSError, StopIteration):
        return "incomplete"
    return "the way into programs" if "def enter(" in text else f"a kernel of {text.count(chr(10))} lines"


def test(args: Any) -> int:
    """Run a file's functions on all backends against the interpreter, on generated arguments."""
    from hypothesis import HealthCheck, Phase, given, settings
    failed = 0
    for name, f in functions(args.target).items():
        quiet = settings(max_examples=args.examples, deadline=None, database=None, derandomize=True,
                         phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck))
        tried = 0

        def check(given_: Any) -> None:
            nonlocal tried
            tried += 1
            try:
                testing.check_operators(f, *given_)
            except pa.AssertionFailed as e:
                if "is not associative" in e.message or "is not neutral" in e.message:       # others are its own
                    raise
            except ParrayError:
                pass                                         # which all backends must raise
            testing.assert_backends_agree(f, *given_)
        try:
            quiet(given(testing.arguments(f, args.special))(check))()
            print(f"{name}: {tried} calls agree on {', '.join(testing.BACKENDS)}")
        except pa.TypeMismatch as e:
            print(f"{name}: not tried: {e.message}")
        except Exception as e:
            failed += 1
            shown = "\n  ".join([str(e), *getattr(e, "__notes__", [])])
            print(f"{name}: FAILED: {type(e).__name__}: {shown}")
    return 1 if failed else 0


# --- timing ----------------------------------------------------------------------------------------------------------

def _ready_made() -> dict[str, tuple[Any, Callable[..., Any], tuple[Any, ...]]]:
    """Programs, what NumPy users write for them, arguments."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 1_000_000)).astype(np.float32)
    a, b = rng.normal(size=(2, 384, 384)).astype(np.float32)
    rows = rng.normal(size=(2000, 500)).astype(np.float32)
    bins = rng.integers(0, 256, 1_000_000)

    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    return {"dot product": (lambda x, y: pa.sum(x * y), lambda x, y: np.sum(x * y), (x, y)),
            "arithmetic": (lambda x, y: pa.tanh(2 * x + 1) * y, lambda x, y: np.tanh(2 * x + 1) * y, (x, y)),
            "softmax of rows": (lambda x: pa.map(pa.softmax, x), softmax, (rows,)),
            "matrix product": (lambda a, b: a @ b, lambda a, b: a @ b, (a, b)),
            "running sum": (lambda x: pa.cumsum(x), lambda x: np.cumsum(x), (x,)),
            "histogram": (lambda i: pa.histogram(i, 256), lambda i: np.bincount(i, minlength=256), (bins,)),
            "filter": (lambda x: x[x > 0], lambda x: x[x > 0], (x,)),
            "sort": (lambda x: pa.sort(x), lambda x: np.sort(x), (x,))}


def _medians(calls: Sequence[Callable[[], Any]], seconds: float = 0.5) -> list[float]:
    """Median nanoseconds of each call, visited in turn."""
    times: list[list[int]] = [[] for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + seconds * len(calls)
    while len(times[0]) < 3 or time.perf_counter() < end:
        for call, column in zip(calls, times):
            start = time.perf_counter_ns()
            call()
            column.append(time.perf_counter_ns() - start)
    return [statistics.median(t) for t in times]


def bench(args: Any) -> None:
    """Time ready-made programs beside NumPy's, or a file's functions."""
    rows: list[tuple[str, ...]] = []
    if args.target is None:
        for name, (f, by_numpy, given) in _ready_made().items():
            call = pa.parallel(f, backend="cpu")
            ours, theirs = _medians([lambda: call(*given), lambda: by_numpy(*given)])
            rows.append((name, duration(ours), duration(theirs), f"{theirs / ours:.2g}"))
        Report([Section(f"medians on {cpu.thread_limit()} threads", [], ("", "parray", "NumPy", "times as fast"),
                        rows)]).show()
        return
    for name, f in functions(args.target).items():
        try:
            given = arguments(f, args)
        except UsageError as e:
            if ":" in args.target:
                raise
            rows.append((name, "", "", str(e)))
            continue
        start = time.perf_counter_ns()
        f(*given)
        first = time.perf_counter_ns() - start
        (median,) = _medians([lambda: f(*given)])
        shapes = ", ".join(str(np.shape(leaf)) for leaf in pa.tree.leaves(given))
        rows.append((name, duration(median), duration(first), shapes))
    Report([Section("medians", [], ("function", "a call", "the first", "shapes of the arguments"), rows)]).show()
