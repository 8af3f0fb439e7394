"""`f.explain`, `f.profile`, `f.graph`: what they say is so, and every line leads to the user's."""
from __future__ import annotations

import io
import re
import sys
from typing import Any

import numpy as np
import pytest

import parray as pa
from parray import parallel
from parray.api import picture
from parray.api.report import Report, Section, duration, quantity
from parray.backends import cpu
from parray.cost import Meter

X = np.ones((40, 30))
HERE = "test_explain.py"


def line(text: str) -> int:
    """The number of this file's line with a text."""
    with open(__file__) as file:
        return next(k for k, found in enumerate(file, 1) if text in found)


@parallel(backend="cpu")
def normalised(w: Any, x: Any) -> Any:
    y = x @ w                                                    # the product
    return pa.map(lambda row: row / pa.sum(row), y)              # the rows


def costs(f: Any, *args: Any) -> list[Any]:
    """What each kernel of a program costs."""
    call, entry = f._compiled(args, {})
    sizes = entry.program.bind(call.leaves)
    meter = Meter(dict(zip(entry.run.program.sizes, sizes)))
    return [meter.measure(c.stms, c.around) for c in entry.run.launches.listing]


def test_explain_names_lines_loops_and_kernels() -> None:
    text = normalised.explain(X.T.copy(), X)
    product, rows = f"{HERE}:{line('the product')}", f"{HERE}:{line('the rows')}"
    assert re.search(rf"contract +{product} +map +{rows} +a contract is made as a whole", text)
    assert re.search(rf"\d+ +contract +{product} +\d+ +96 k +\d", text)              # 2 * 40 * 30 * 40 operations
    assert re.search(rf"\d+ +map +{rows} +40 ", text)
    assert "1 contract" in text and "temporar" in text
    f = parallel(lambda x: pa.sum(pa.map(lambda v: v * v, x)), backend="cpu")
    assert re.search(r"map +\S+ +reduce +\S+ +one loop", f.explain(X[0]))
    assert "captured: float64[30]" in parallel(lambda x: x + X[0], backend="cpu").explain(X[0])
    assert "kernels: 1 call of 1 kernel" in parallel(lambda x: x + 1, backend="interp").explain(X)


@pytest.mark.parametrize("f, obstacle", [
    (lambda x: pa.map(lambda v: v / pa.sum(x), x), "a reduce is complete only after its loop"),
    (lambda x: pa.map(lambda v: pa.sum(v * pa.map(pa.sqrt, x)), x), "more of the first's result than one element"),
])
def test_what_was_not_fused_and_why(f: Any, obstacle: str) -> None:
    assert obstacle in parallel(f, backend="cpu").explain(X[0])


def test_operations_and_bytes_are_counted_from_the_code() -> None:
    n, m, k = 64, 48, 80
    a, b = np.ones((n, k), np.float32), np.ones((k, m), np.float32)
    found = costs(parallel(lambda a, b: a @ b, backend="cpu"), a, b)
    assert sum(c.flops for c in found) == 2 * n * m * k
    (total,) = [c for c in costs(parallel(lambda x: pa.sum(x * x), backend="cpu"), np.ones(5000)) if c.flops > 1000]
    assert 10_000 <= total.flops < 10_100 and total.read >= 40_000 and total.written < 1000 and total.exact
    (mapped,) = [c for c in costs(parallel(lambda x: pa.map(lambda v: v + 1, x), backend="cpu"), np.ones(5000))
                 if c.flops]
    assert (mapped.flops, mapped.read, mapped.written, mapped.extent) == (5000, 40_000, 40_000, 5000)
    triangle = costs(parallel(lambda x: pa.map(lambda i: pa.loop(i, lambda j, s: s + x[j], 0.0), pa.iota(100)),
                              backend="cpu"), np.ones(100))
    assert sum(c.flops for c in triangle) == pytest.approx(5000, rel=0.1)
    until = costs(parallel(lambda x: pa.while_loop(lambda s: s < 10, lambda s: s + x[0], 0.0), backend="cpu"), X[0])
    assert not all(c.exact for c in until)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_profile_times_every_kernel(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from parray.api import explain
    monkeypatch.setattr(explain, "SECONDS", 0.02)
    monkeypatch.setattr(cpu, "WORK_PER_THREAD", 1000)
    monkeypatch.setenv("PARRAY_NUM_THREADS", threads)
    f = parallel(normalised.f, backend="cpu")
    x = np.random.default_rng(0).normal(size=(200, 100)).astype(np.float32)
    w = np.ones((100, 50), np.float32)
    report = f.profile(w, x)
    assert f"a call on {threads} thread" in report and "FLOP/s" in report
    assert re.search(rf"map +{HERE}:\d+ .* \d+ % +\d+ % (operations|bytes)", report)
    call, entry = f._compiled((w, x), {})
    times, waiting = entry.run.timed(entry.program.bind(call.leaves), list(call.leaves))
    assert len(times) == len(entry.run.launches.listing) and all(t > 0 for t in times) and waiting >= 0
    np.testing.assert_array_equal(f(w, x), f(w, x))


def test_profile_needs_kernels() -> None:
    with pytest.raises(pa.BackendError, match="only the CPU backend has kernels"):
        parallel(lambda x: x + 1, backend="interp").profile(X)


def test_profile_of_what_fails_raises() -> None:
    with pytest.raises(pa.BoundsError):
        parallel(lambda x, i: pa.map(lambda v: x[i[0]] + v, x), backend="cpu").profile(X[0], np.array([99]))


def test_every_statement_of_a_graph_has_its_line() -> None:
    text = normalised.graph(X.T.copy(), X, stage="final")
    statements = [s for s in text.split("\n") if " = " in s]
    assert statements and all(re.search(rf"-- {HERE}:\d+$", s) for s in statements)


# --- forms -----------------------------------------------------------------------------------------------------------

REPORT = Report([Section("a <title>", ["a line"], ("name", "size"), [("x", "1 k"), ("yy", "23")])])


def test_forms_of_a_report() -> None:
    assert REPORT == "a <title>\n  a line\n  name  size\n  x      1 k\n  yy      23\n"
    page = REPORT._repr_html_()
    assert "<h4>a &lt;title&gt;</h4>" in page and page.count("<tr>") == 3 and "<td>23</td>" in page
    out = io.StringIO()
    REPORT.show(out)
    assert out.getvalue() == REPORT


def test_colours_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    REPORT.show(out)
    assert "\x1b[1m" in out.getvalue() and "yy" in out.getvalue()


def test_without_rich_a_report_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    out = io.StringIO()
    REPORT.show(out)
    assert out.getvalue() == REPORT


def test_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    lam = normalised.program(X.T.copy(), X).lam
    text = picture.dot(lam)
    assert text.startswith("digraph {") and text.rstrip().endswith("}")
    assert f"{HERE}:{line('the rows')}" in text and "-> r0" in text
    assert len(re.findall(r"^  (\w+) \[label", text, re.M)) == len(set(re.findall(r"^  (\w+) \[label", text, re.M)))
    monkeypatch.setitem(sys.modules, "graphviz", None)
    assert picture.svg(lam) == ""


def test_pictures_by_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    """What graphviz gives goes into the page as it is; without its programs there is no picture."""
    class ExecutableNotFound(Exception):
        pass

    class Source:
        def __init__(self, text: str):
            self.text = text

        def pipe(self, form: str, encoding: str) -> str:
            if "digraph" not in self.text:
                raise ExecutableNotFound
            return "<svg/>"
    module = type(sys)("graphviz")
    module.Source, module.ExecutableNotFound = Source, ExecutableNotFound            # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "graphviz", module)
    assert normalised.explain(X.T.copy(), X).html().endswith("<svg/></div>")
    monkeypatch.setattr(picture, "dot", lambda lam: "")
    assert "<svg/>" not in normalised.explain(X.T.copy(), X).html()


@pytest.mark.parametrize("value, text", [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1.25e6, "1.25 MB"),
                                         (999_900, "1 MB"), (3e9, "3 GB"), (0.5, "0.5 B")])
def test_quantities(value: float, text: str) -> None:
    assert quantity(value, "B") == text


@pytest.mark.parametrize("ns, text", [(5, "5 ns"), (1500, "1.5 us"), (2e6, "2 ms"), (3.2e9, "3.2 s")])
def test_durations(ns: float, text: str) -> None:
    assert duration(ns) == text
