"""Beside other libraries: their arrays, the array API's names, pickles, processes and threads."""
from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import numpy as np
import pytest

import parray as pa
from parray import array_api, parallel

X = np.arange(6.0)


@parallel
def doubled(x: Any) -> Any:
    return 2 * x


# --- arrays ----------------------------------------------------------------------------------------------------------

class OnDevice:
    """An array that refuses to be read, as those on a device do."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("implicit conversion is not allowed, use .get()")


class Shared:
    """An array of another library, by DLPack alone; it counts how often it is read."""

    def __init__(self, x: Any):
        self.x, self.read = x, 0

    def __dlpack__(self, **how: Any) -> Any:
        self.read += 1
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()


@pytest.mark.parametrize("elem", ["f4", "f8", "i4", "u1", "bool"])
def test_dlpack_is_read_without_a_copy(elem: str, backend: str) -> None:
    x = Shared(np.ones((3, 4), elem))
    f = parallel(lambda x: pa.map(lambda row: pa.sum(pa.f64(row)), x))
    for _ in range(3):
        np.testing.assert_array_equal(f(x), [4, 4, 4])
        x.x[0, 0] = 1
    assert x.read == 3 and f.compiles == 1


def test_arrays_on_a_device_say_how_to_copy_them(backend: str) -> None:
    with pytest.raises(pa.TypeMismatch, match=r"test_interop.OnDevice cannot be read .*: .* use .get\(\)") as e:
        doubled(OnDevice())
    assert e.value.loc is not None and e.value.loc.file == __file__
    with pytest.raises(pa.TypeMismatch, match="OnDevice cannot be read"):
        parallel(lambda x: x + OnDevice())(X)


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_arrays_of_other_libraries(library: str, backend: str) -> None:
    module = pytest.importorskip(library)
    x = module.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    found = doubled(x)
    assert type(found) is np.ndarray and found.dtype == np.float32
    np.testing.assert_array_equal(found, 2 * np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(module.asarray(found) + x, 3 * np.arange(6).reshape(2, 3))


# --- the array API ---------------------------------------------------------------------------------------------------

def softmax(x: Any) -> Any:
    xp = x.__array_namespace__()
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


API: list[Callable[[Any, Any], Any]] = [
    lambda xp, x: xp.zeros(x.shape) + x, lambda xp, x: xp.ones((2, x.shape[1]), dtype=xp.float32),
    lambda xp, x: xp.full(x.shape, 2.5), lambda xp, x: xp.eye(x.shape[0]), lambda xp, x: xp.eye(2, 4, k=1),
    lambda xp, x: xp.arange(x.shape[1]), lambda xp, x: xp.arange(2, 12, 3), lambda xp, x: xp.arange(5, 0, -2),
    lambda xp, x: xp.linspace(0.0, 1.0, 5), lambda xp, x: xp.linspace(0.0, 1.0, 5, endpoint=False),
    lambda xp, x: xp.asarray([[x[0, 0], x[1, 1]], [x[0, 1], x[1, 0]]]), lambda xp, x: xp.asarray(3.0) + x,
    lambda xp, x: xp.take(x, xp.asarray(np.array([1, 0])), axis=1), lambda xp, x: xp.matrix_transpose(x),
    lambda xp, x: xp.cumulative_sum(x, axis=1), lambda xp, x: xp.cumulative_prod(x, axis=0),
    lambda xp, x: xp.vecdot(x, x), lambda xp, x: xp.concat([x, x], axis=1), lambda xp, x: xp.permute_dims(x, (1, 0)),
    lambda xp, x: xp.where(x > xp.mean(x), xp.pow(x, 2), xp.acos(x / 10)), lambda xp, x: x + xp.finfo(x.dtype).eps,
    lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)), lambda xp, x: x[:, xp.newaxis, :] * xp.pi,
    lambda xp, x: xp.astype(x, xp.int32), lambda xp, x: xp.expand_dims(xp.sort(x, axis=-1), axis=0),
    lambda xp, x: xp.iinfo(xp.int8).max + x,
]


@pytest.mark.parametrize("k", range(len(API)))
def test_names_of_the_array_api(k: int, backend: str) -> None:
    x = np.array([[0.5, 2.0, 1.0], [3.0, 1.5, 4.0]])
    f = API[k]
    found = parallel(lambda x: f(x.__array_namespace__(), x))(x)
    expected = np.asarray(f(np, x))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.dtype == expected.dtype


def test_a_function_that_knows_no_library(backend: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(parallel(softmax)(x), softmax(x), rtol=1e-12)


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="has no 'nowhere'"):
        array_api.nowhere
    with pytest.raises(pa.TraceError, match="broadcast"):
        parallel(lambda x: x.__array_namespace__().meshgrid(x, x))(X)


# --- pickles and processes -------------------------------------------------------------------------------------------

def test_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def test_functions_without_a_name_are_pickled_by_content() -> None:
    pytest.importorskip("cloudpickle")
    scale = np.array([1.0, 2.0])

    @parallel(static="k", backend="interp", name="scaled")
    def inner(x: Any, k: int) -> Any:
        return k * x * scale
    again = pickle.loads(pickle.dumps(inner))
    np.testing.assert_array_equal(again(np.ones(2), 3), [3, 6])
    assert again.name == "scaled" and again.backend == "interp" and again.static == "k" and again is not inner
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(pa.grad(lambda x: pa.sum(x * x))))(X), 2 * X)


def test_without_cloudpickle_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["parray.api.parallel"]
    monkeypatch.setattr(module, "cloudpickle", None)
    with pytest.raises(pickle.PicklingError, match="pip install cloudpickle"):
        pickle.dumps(parallel(lambda x: x))
    assert pickle.loads(pickle.dumps(doubled)) is doubled


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_other_processes(method: str) -> None:
    """A pool of processes is given the function; each finds its program in the disk cache."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {method}")
    doubled(X)
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map(doubled, [X + k for k in range(4)])
    for k, y in enumerate(found):
        np.testing.assert_array_equal(y, 2 * (X + k))


def test_a_scripts_functions_travel_by_content(tmp_path: Any) -> None:
    """What a process that never saw the script gets is the function itself."""
    pytest.importorskip("cloudpickle")
    script, kept = tmp_path / "script.py", tmp_path / "f.pickle"
    script.write_text(textwrap.dedent(f"""
        import pickle
        from parray import parallel
        factor = 3
        @parallel
        def scaled(x):
            return factor * x
        open({str(kept)!r}, "wb").write(pickle.dumps(scaled))
    """))
    subprocess.run([sys.executable, str(script)], check=True)
    np.testing.assert_array_equal(pickle.loads(kept.read_bytes())(X), 3 * X)


def test_many_threads_trace_compile_and_run_at_once() -> None:
    """New programs, old ones and gradients from eight threads; nobody sees another's trace."""
    ready = threading.Barrier(8)
    shared = parallel(lambda x, k: pa.sum(x * k), backend="cpu")

    def work(k: int) -> None:
        ready.wait()
        own = parallel(lambda x: pa.map(lambda v: v * k + 1, x), backend="cpu")
        for n in range(1, 6):
            x = np.arange(n, dtype=float)
            np.testing.assert_array_equal(own(x), x * k + 1)
            assert shared(x, float(k)) == x.sum() * k
            np.testing.assert_array_equal(pa.grad(shared)(x, float(k)), np.full(n, k))
    with ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(work, k) for k in range(8)]:
            job.result()
