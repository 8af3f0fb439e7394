"""``python -m parray``: every command does what its help says, and says what is wrong with how it was called."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
from hypothesis import given, settings

import parray as pa
from parray import cache, cli, f32, f64, i64, parallel, testing

FILE = '''
import parray as pa
from parray import f32, f64, i64, parallel

@pa.record
class Layer:
    w: f64["m", "n"]
    b: f64["m"]

@parallel
def linear(p: Layer, x: f64["n"]) -> f64["m"]:
    return p.w @ x + p.b

@parallel
def element(x: f32["n"], i: i64) -> f32:
    return x[i]

@parallel
def untyped(x):
    return x
'''
WRONG = FILE + '''
@parallel
def difference(x: f64["n"]) -> f64:
    return pa.reduce(lambda a, b: a + b + a * a * b, 0, x)
'''


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A file of functions; its modules' names differ, so that none is taken for another."""
    path = tmp_path / f"programs_{abs(hash(request.node.name))}.py"
    path.write_text(FILE)
    return str(path)


def run(capsys: Any, *args: str) -> tuple[int, str, str]:
    """Status, output and errors of a command."""
    status = cli.main(args)
    out, err = capsys.readouterr()
    return status, out, err


def test_info(capsys: Any) -> None:
    status, out, _ = run(capsys, "info")
    assert status == 0 and pa.__version__ in out and str(cache.directory()) in out and "threads" in out


def test_info_measures_the_machine(capsys: Any) -> None:
    _, out, _ = run(capsys, "info", "--measure")
    assert re.search(r"[\d.]+ GFLOP/s in f32", out) and re.search(r"GB/s in 134 MB", out)


def test_explain(capsys: Any, file: str) -> None:
    status, out, _ = run(capsys, "explain", f"{file}:linear", "--sizes", "m=100,n=30")
    assert status == 0 and "p.w: f64[m, n]" in out and re.search(r"contract .* 6(\.1)? k ", out)
    status, out, _ = run(capsys, "explain", f"{file}:untyped", "--args", "np.ones(3)", "--graph", "final")
    assert status == 0 and out.startswith("\\n: i64, x: f64[n].")
    status, out, _ = run(capsys, "explain", f"{file}:linear", "--source")
    assert status == 0 and "def kernel(frame, slots):" in out


def test_explain_profiles_and_writes_a_page(capsys: Any, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    from parray.api import explain
    monkeypatch.setattr(explain, "SECONDS", 0.01)
    page = tmp_path / "page.html"
    status, out, _ = run(capsys, "explain", f"{file}:linear", "--profile", "--html", str(page))
    assert status == 0 and "a call on" in out
    assert "<title>linear</title>" in page.read_text() and page.read_text().count("<table>") >= 3


@pytest.mark.parametrize("args, message", [
    (["explain", "FILE"], "say which function, as FILE:NAME; there are linear, element, untyped"),
    (["explain", "FILE:nothing"], "has no function 'nothing' marked @parallel; it has linear"),
    (["explain", "FILE:untyped"], "x needs an annotation such as .* or give the arguments with --args"),
    (["explain", "FILE:linear", "--sizes", "m"], "name=number, not 'm'"),
    (["explain", "FILE:linear", "--graph", "nowhere"], "there is no stage 'nowhere'"),
    (["explain", "FILE:linear", "--args", "np.aran"], "--args 'np.aran': AttributeError"),
    (["test", "nowhere.py"], "there is no file 'nowhere.py'"), (["bench", golden.__file__], "no function marked"),
])
def test_what_cannot_be_done(capsys: Any, file: str, args: list[str], message: str) -> None:
    status, _, err = run(capsys, *(a.replace("FILE", file) for a in args))
    assert status == 2 and re.search(message.replace("FILE", re.escape(file)), err)


def test_cache(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARRAY_CACHE_DIR", str(tmp_path))
    _, out, _ = run(capsys, "cache", "show")
    assert out.startswith(f"0 programs in {tmp_path}")
    cache.load("def f():\n    return 1\n", "f")
    _, out, _ = run(capsys, "cache", "show")
    assert out.startswith("1 programs") and "a kernel of" in out
    _, out, _ = run(capsys, "cache", "clear")
    assert out.startswith("1 programs removed") and not cache.entries()


def test_a_files_functions_on_all_backends(capsys: Any, file: str) -> None:
    status, out, _ = run(capsys, "test", file, "--examples", "5", "--special")
    assert status == 0
    assert "linear: 5 calls agree on interp, cpu" in out and "untyped: not tried: untyped: x needs" in out


def test_an_operator_that_is_not_associative_is_found(capsys: Any, file: str) -> None:
    Path(file).write_text(WRONG)
    status, out, _ = run(capsys, "test", f"{file}:difference")
    assert status == 1 and "difference: FAILED: AssertionFailed: the operator is not associative: with a = " in out
    line = next(k for k, text in enumerate(WRONG.splitlines(), 1) if "a * a * b" in text)
    assert f"at {file}:{line}, in difference" in out and "given_=(array(" in out


def test_bench_of_a_file(capsys: Any, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_medians", lambda calls: [1000.0 for call in calls if call() is not None])
    status, out, _ = run(capsys, "bench", file)
    assert status == 0 and re.search(r"linear +1 us +\S+ \w+ +\(64, 64\), \(64,\), \(64,\)", out)


def test_ready_made_programs_do_what_numpys_do() -> None:
    for name, (f, by_numpy, given_) in cli._ready_made().items():
        ours, theirs = parallel(f, backend="cpu")(*given_), by_numpy(*given_)
        tolerance = np.finfo(np.float32).eps * np.sqrt(np.size(given_[0])) * 20
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=tolerance, err_msg=name)


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "parray", "--help"], capture_output=True, text=True, check=True)
    for command in ("info", "bench", "explain", "cache", "test"):
        assert f"    {command} " in done.stdout


# --- what the commands stand on --------------------------------------------------------------------------------------

@pa.record
class Pair:
    x: f32["n"]
    k: i64


@parallel
def typed(p: Pair, t: tuple[f64["n"], f32], n: int, flag: bool = False) -> f64["n"]:
    return t[0] * n


def test_example_arguments() -> None:
    p, t, n = testing.example(typed, {"n": 7})
    assert p.x.shape == t[0].shape == (7,) and p.x.dtype == np.float32 and t[0].dtype == np.float64
    assert type(n) is int and 0 <= p.k < 7 and t[1].dtype == np.float32
    again = testing.example(typed, {"n": 7})
    np.testing.assert_array_equal(again[1][0], t[0])
    assert typed(p, t, n).shape == (7,)


@settings(max_examples=10, deadline=None)
@given(testing.arguments(typed))
def test_drawn_arguments(drawn: Any) -> None:
    assert drawn[0].x.shape == drawn[1][0].shape and typed(*drawn).shape == drawn[0].x.shape


def test_operators_are_checked_on_what_they_meet() -> None:
    def best(a: Any, b: Any) -> Any:                         # associative on such elements only
        return pa.max(a[0], b[0], a[2] + b[1]), pa.max(a[1], a[3] + b[1]), pa.max(b[2], a[2] + b[3]), a[3] + b[3]

    def f(x: Any) -> Any:
        up = pa.map(lambda v: pa.max(v, 0), x)
        return pa.reduce(best, (0, 0, 0, 0), (up, up, up, x))
    testing.check_operators(f, np.array([1, -2, 3, 4, -1, 5, -6, 1]))
    testing.check_operators(lambda x: pa.map(lambda row: pa.scan(pa.mul, 1.0, row), x), np.ones((3, 4)) / 3)
    with pytest.raises(pa.AssertionFailed, match="10.0 is not neutral: with x = 1.0, op of both is 11.0"):
        testing.check_operators(lambda x: pa.reduce(pa.add, 10.0, x), np.ones(3))
    with pytest.raises(pa.AssertionFailed, match="not associative|not neutral") as e:
        testing.check_operators(lambda x: pa.scan(lambda a, b: a / b, 1.0, x), np.arange(1.0, 5.0))
    assert "pa.scan(lambda a, b: a / b" in str(e.value)
