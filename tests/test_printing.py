"""What `pa.show` prints, and what `pa.memory_stats` counts."""
import gc
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import parray as pa


def shown(x: Any, name: str = "") -> str:
    out = io.StringIO()
    pa.show(x, name, file=out)
    return out.getvalue()


def test_an_array() -> None:
    x = np.array([[1.5, np.nan, -2.0], [np.inf, 0.0, 4.5]], np.float32)
    assert shown(x, "x") == ("x: f32[2, 3]  24 B\n"
                             "  mean 1  deviation 2.372  least -2  greatest 4.5  1 NaN  1 infinite\n"
                             "  [[ 1.5  nan -2. ]\n   [ inf  0.   4.5]]\n")


def test_large_arrays_are_abbreviated() -> None:
    text = shown(np.zeros((300, 400, 3)))
    assert text.startswith("array: f64[300, 400, 3]  2.747 MiB\n  mean 0  deviation 0") and text.count("\n") <= 11
    assert "..." in text


def test_other_kinds_and_trees() -> None:
    class Pair(NamedTuple):
        a: Any
        b: Any
    assert shown(np.array([True, False, True])).splitlines()[1] == "  2 of 3 are true"
    assert shown(np.int8(3), "n") == "n: i8[]\n  3\n"
    assert shown(np.zeros((0, 2), np.int32)) == "array: i32[0, 2]  0 B\n  []\n"
    heads = [line for line in shown(Pair(np.zeros(2), {"k": 1.0}), "p").splitlines() if line[0] != " "]
    assert heads == ["p.a: f64[2]  16 B", "p.b['k']: f64[]"]


def test_values_that_are_traced_are_an_error() -> None:
    with pytest.raises(pa.TraceError, match="return the array and show the result"):
        pa.parallel(lambda x: pa.show(x))(np.ones(3))


def test_images(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for shape in ((5, 4), (3, 5, 4), (6, 5, 4), (2, 1, 5, 4), (7, 3, 5, 4)):
        file = tmp_path / f"{len(shape)}{shape[0]}.png"
        pa.show(np.random.default_rng(0).random(shape), plot=file, file=io.StringIO())
        assert file.stat().st_size > 500
    with pytest.raises(ValueError, match="is no image"):
        pa.show(np.zeros((2, 2, 3, 4)), plot=tmp_path / "x.png", file=io.StringIO())


def test_memory_is_counted() -> None:
    @pa.parallel
    def f(x: Any) -> Any:
        return pa.sort(x) * 2
    with pa.use_backend("cpu"):
        gc.collect()                                        # programs of other tests, which would go meanwhile
        before = pa.memory_stats()
        kept = f(np.random.default_rng(0).random(100_000))
        after = pa.memory_stats()
    assert after["programs"] == before["programs"] + 1
    assert after["arenas"] >= 800_000 and after["results"] - before["results"] == kept.nbytes
