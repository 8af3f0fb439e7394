"""The cases of ``tests/data/cases``: small inputs with right answers, and how results are compared with them.

A case is `{"id", "inputs", "expected", "dtype", "tol"}`; `dtype` gives the inputs' types before `->`; numbers that JSON
JSON has not are strings, large arrays are NumPy expressions.  A test file holds one function for each case.
"""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable

import numpy as np

import parray as pa

FOLDER = Path(__file__).parent / "data" / "cases"
WORDS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
KINDS = {"f": "float", "i": "int", "u": "uint"}
Functions = dict[str, Callable[..., Any]]


def load(name: str) -> dict[str, dict[str, Any]]:
    """The cases of a file by name."""
    return {c["id"]: c for c in map(json.loads, (FOLDER / f"{name}.jsonl").read_text().splitlines())}


def value(given: Any) -> Any:
    """A number, or a nest of lists, as NumPy has it."""
    if isinstance(given, dict):
        return eval(given["numpy"], {"np": np})
    if isinstance(given, str):
        return WORDS[given]
    return [value(v) for v in given] if isinstance(given, list) else given


def types(text: str) -> list[str]:
    """NumPy's names of the types in ``i32[n], f64 x3``."""
    out = []
    for part in re.findall(r"(bool|[iuf]\d+)(?:\[[^\]]*\])?(?: x(\d+))?", text):
        name = "bool" if part[0] == "bool" else KINDS[part[0][0]] + part[0][1:]
        out += [name] * int(part[1] or 1)
    return out


def inputs(case: dict[str, Any]) -> list[Any]:
    """The arguments in their types."""
    given = [value(v) for v in case["inputs"]]
    named = types(case["dtype"].split("->")[0])
    assert len(named) == len(given)
    return [v if isinstance(v, np.ndarray) and v.dtype == t else np.asarray(v, t)[()] for v, t in zip(given, named)]


def check(case: dict[str, Any], found: Any) -> None:
    """Compare results with the expected ones; the tolerance is relative, with 1 as the least magnitude."""
    leaves = pa.tree.leaves(found)
    expected = [value(v) for v in case["expected"]]
    assert len(leaves) == len(expected)
    named = types(case["dtype"].split("->")[1])
    for k, (f, e) in enumerate(zip(leaves, expected)):
        if len(named) == len(leaves):
            assert np.asarray(f).dtype == named[k], (np.asarray(f).dtype, named[k])
        e = np.asarray(e, np.asarray(f).dtype) if np.size(e) else np.zeros(np.shape(f), np.asarray(f).dtype)
        assert np.shape(f) == np.shape(e)
        if case["tol"] == 0:
            np.testing.assert_array_equal(f, e)
            if np.asarray(f).dtype.kind == "f":
                zero = np.asarray(e) == 0
                np.testing.assert_array_equal(np.signbit(f)[zero], np.signbit(e)[zero])
        else:
            np.testing.assert_allclose(f, e, rtol=case["tol"], atol=case["tol"])


def run(case: dict[str, Any], f: Callable[..., Any], backend: str) -> None:
    """Run a function on a case."""
    with pa.use_backend(backend):
        check(case, pa.parallel(f)(*inputs(case)))
