"""What cannot be traced says so, with the user's line and what to write instead; leaks are found."""
from __future__ import annotations

import pickle
from typing import Any, Callable

import numpy as np
import pytest

import parray as pa
from parray import f32, f64, parallel

X = np.arange(4.0)


def _if(x: Any) -> Any:
    return x if x[0] > 0 else -x


def _while(x: Any) -> Any:
    while pa.sum(x) > 0:
        x = x - 1
    return x


def _for(x: Any) -> Any:
    return [v for v in x]


def _assign(x: Any) -> Any:
    x[0] = 1
    return x


def _in(x: Any) -> Any:
    return 3 in x


CANNOT: list[tuple[Callable[[Any], Any], str]] = [
    (_if, "use pa.cond"), (_while, "pa.while_loop"), (_for, "use pa.map"), (_assign, "pa.update"),
    (lambda x: x[0] and x[1], "instead of and"), (lambda x: int(x[0]), "pa.i64"), (lambda x: float(x[0]), "pa.f64"),
    (lambda x: range(x.shape[0]), "pa.loop"), (lambda x: len(x), "x.shape"), (_in, "pa.any"),
    (lambda x: np.asarray(x), "cannot become a NumPy array"), (lambda x: x.item(), "item"),
    (lambda x: np.linalg.norm(x), "norm is not available"), (lambda x: np.add(x, x, where=x > 0), "where=..."),
]


@pytest.mark.parametrize("f, message", CANNOT)
def test_what_cannot_be_traced(f: Callable[[Any], Any], message: str, backend: str) -> None:
    with pytest.raises(pa.TraceError, match=message) as e:
        parallel(f)(X)
    code = f.__code__
    assert e.value.loc is not None and e.value.loc.file == code.co_filename
    assert e.value.loc.line >= code.co_firstlineno
    assert isinstance(e.value, TypeError)


MISMATCHES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: pa.cond(x[0] > 0, lambda: x[0], lambda: x[1] > 0), r"f64 and bool"),
    (lambda x: pa.cond(x[0] > 0, lambda: x, lambda: (x, x)), "branches of pa.cond differ"),
    (lambda x: pa.cond(x[0] > 0, lambda: x, lambda: x[0]), "must have one type"),
    (lambda x: pa.cond(x, lambda: x, lambda: x), "takes a truth value"),
    (lambda x: pa.loop(3, lambda i, c: (c, c), 0.0), "carries"),
    (lambda x: pa.loop(3, lambda i, c: pa.f32(c), x[0]), "what the body of pa.loop gives is"),
    (lambda x: pa.loop(3, lambda i, c: x, x[0]), "is needed"),
    (lambda x: pa.while_loop(lambda c: c, lambda c: c, x[0]), "not a truth value"),
    (lambda x: pa.reduce(lambda a, b: a > b, 0, x), "result of the operator of pa.reduce"),
    (lambda x: pa.reduce(lambda a, b: (a, b), 0, x), "the operator of pa.reduce gives"),
    (lambda x: pa.reduce(pa.add, (0, 0), x), "the neutral element of pa.reduce is"),
    (lambda x: pa.reduce(pa.add, 0.5, pa.iota(3)), "neutral element 0.5"),
    (lambda x: pa.scan(pa.add, x, x), "neutral element"),
    (lambda x: pa.map(lambda v: v, x[0]), "pa.map takes an array"),
    (lambda x: pa.map(lambda v: "text", x), "the function given to pa.map returns"),
    (lambda x: pa.map(3, x), "a function is needed"),
    (lambda x: pa.map2(pa.add, x), "pa.map2 takes 2 arrays"),
    (lambda x: pa.scatter(x, x, x), "integer arrays"),
    (lambda x: pa.scatter(x, pa.iota(4), (x, x)), "the values are"),
    (lambda x: pa.scatter(x, pa.iota(4), pa.f32(x)), "a value of pa.scatter"),
    (lambda x: x + "a", "unsupported operand|number or an array"),
    (lambda x: x + [1.0], "unsupported operand|number or an array"),
    (lambda x: pa.add(x, "a"), "number or an array is needed"),
    (lambda x: pa.add(x), "takes 2 arguments"),
    (lambda x: x & x, "defined on bool and integers, not on f64"),
    (lambda x: x << 1, "defined on integers"),
    (lambda x: -(x > 1), "not defined on bool"),
    (lambda x: pa.transpose(x, (1,)), "does not permute"),
    (lambda x: pa.sum(x, axis=1), "axis 1"),
    (lambda x: pa.concat(x, x[None]), "must have one rank"),
    (lambda x: x.astype("complex128"), "no element type"),
    (lambda x: x @ 3, "not scalars"),
    (lambda x: pa.grad(lambda v: v)(x), "scalar result"),
    (lambda x: pa.grad(lambda v: pa.sum(v), argnums=1)(x), "argnums=1"),
    (lambda x: pa.vjp(lambda v: v, x)[1]((x, x)), "the cotangent is"),
    (lambda x: pa.jvp(lambda v: v, (x,), (x, x)), "the tangents are"),
    (lambda x: pa.value_and_grad(lambda v: pa.sum(v), has_aux=True)(x), "pair"),
    (lambda x: x.foo, "foo"),
]


@pytest.mark.parametrize("k", range(len(MISMATCHES)))
def test_mismatches(k: int, backend: str) -> None:
    f, message = MISMATCHES[k]
    with pytest.raises((TypeError, AttributeError), match=message) as e:
        parallel(f)(X)
    if isinstance(e.value, pa.ParrayError) and "arguments" not in message:
        assert e.value.loc is not None and e.value.loc.file == __file__


def test_a_leak_after_the_trace(backend: str) -> None:
    kept: list[Any] = []

    @parallel
    def f(x: Any) -> Any:
        kept.append(x * 2)                                           # made here
        return x
    f(X)
    with pytest.raises(pa.TraceError, match="after its trace has ended") as e:
        kept[0] + 1
    assert f"{__file__}:" in str(e.value)
    with pytest.raises(pa.TraceError, match="in the trace of another function"):
        parallel(lambda x: x + kept[0])(X)


def test_a_leak_out_of_a_map(backend: str) -> None:
    @parallel
    def f(x: Any) -> Any:
        kept: list[Any] = []
        pa.map(lambda v: kept.append(v * 2) or v, x)
        return kept[0]
    with pytest.raises(pa.TraceError, match="used outside of the function that made it"):
        f(X)


def test_outside_of_a_trace() -> None:
    for f in (lambda: pa.map(pa.sqrt, X), lambda: pa.sum(X), lambda: pa.sqrt(2.0), lambda: pa.iota(3)):
        with pytest.raises(pa.TraceError, match="inside a function marked @parallel"):
            f()


@pytest.mark.parametrize("value", ["text", object(), 1j, np.ones(2, complex), np.array(["a"]), 2 ** 70])
def test_arguments_that_are_none(value: Any, backend: str) -> None:
    with pytest.raises(pa.TypeMismatch):
        parallel(lambda x: x)(value)


def test_wrong_calls(backend: str) -> None:
    f = parallel(lambda x, y: x)
    for call in (lambda: f(X), lambda: f(X, X, X), lambda: f(X, z=X)):
        with pytest.raises(pa.TypeMismatch, match="<lambda>"):
            call()
    with pytest.raises(pa.BackendError, match="no backend 'nowhere'"), pa.use_backend("nowhere"):
        f(X, X)


def test_assertions(backend: str) -> None:
    @parallel
    def f(x: Any) -> Any:
        pa.assert_(x[0] < 1, "x starts with {}", x[0])               # this line
        return x
    f(X)
    with pytest.raises(AssertionError, match="x starts with 5.0") as e:
        f(X + 5)
    assert "this line" in str(e.value)


def test_failing_functions_leave_no_trace_behind(backend: str) -> None:
    @parallel
    def f(x: Any) -> Any:
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        f(X)
    assert parallel(lambda x: x + 1)(X)[0] == 1


# --- places and words ------------------------------------------------------------------------------------------------

def wide(x: Any) -> Any:
    return ("äöü", "世界", pa.map(lambda v: v, x[0]))[2]


def split_in_lines(x: Any) -> Any:
    return 1 + pa.map(
        lambda v: v, x[0])


def marked(error: BaseException) -> str:
    """What the marks under the line stand under."""
    place = str(error).split("\n")
    line, marks = place[-2][4:], place[-1][4:]
    cells = "".join(c * (2 if c in "世界" else 1) for c in line)
    return "".join(c for c, m in zip(cells, marks) if m == "^")


@pytest.mark.parametrize("f, text", [
    (wide, "pa.map(lambda v: v, x[0])"), (split_in_lines, "pa.map("), (_if, "x[0] > 0"),
    (lambda x: pa.sum(x) + pa.map(lambda v: v, 1.0) + x, "pa.map(lambda v: v, 1.0)")])
def test_marks_stand_under_the_expression(f: Any, text: str) -> None:
    with pytest.raises(pa.ParrayError) as e:
        parallel(f)(X)
    assert marked(e.value) == text
    again = pickle.loads(pickle.dumps(e.value))
    assert type(again) is type(e.value) and str(again) == str(e.value) and again.loc == e.value.loc


def test_marks_of_what_fails_while_it_runs(backend: str) -> None:
    with pytest.raises(pa.BoundsError) as e:
        parallel(lambda x: pa.map(lambda i: x[i] + x[i + 1], pa.iota(4)))(X)
    assert marked(e.value) == "x[i + 1]"


def test_source_that_cannot_be_read() -> None:
    names: dict[str, Any] = {"pa": pa}
    exec(compile("def f(x):\n    return x if x[0] > 0 else -x", "nowhere.py", "exec"), names)
    with pytest.raises(pa.TraceError, match="instead of if, pa.while_loop") as e:
        parallel(names["f"])(X)
    assert str(e.value).endswith("at nowhere.py:2, in f")


def _asserting(x: Any) -> Any:
    assert x[0] > 0
    return x


def _storing(x: Any) -> Any:
    np.zeros(2)[0] = x[0]
    return x


@pytest.mark.parametrize("f, message", [
    (lambda x: x if x[0] > 0 or x[1] > 0 else x, r"`or` asks for it: write \(a\) \| \(b\)"),
    (lambda x: not x[0], "`not` asks for it: write ~a"), (_asserting, "`assert` asks for it: use pa.assert_"),
    (lambda x: bool(x[0]), r"bool\(\) asks for it: convert with pa.bool_"), (lambda x: sorted(x), "use pa.sort"),
    (lambda x: min(x[0], x[1]), "use pa.min"), (lambda x: [v for v in x], "a comprehension asks for it: use pa.map"),
    (lambda x: [v for v in (1.0, 2.0) if x[0] > v], "use pa.filter"), (lambda x: pa.max(*x), "is not known"),
    (lambda x: list(x), r"list\(\) asks for it: use the array itself"),
    (lambda x: [0, 1][pa.i64(x[0])], "a Python list"),
    (lambda x: np.arange(x.shape[0]), "not known while tracing"), (_storing, "storing it in an array of NumPy's"),
    (lambda x: pa.scan(pa.add, x), r"pa.scan\(op, ne, xs\): missing 1 .*; ne is the neutral element"),
    (lambda x: pa.iota(3, 4, 5), r"pa.iota\(n, dtype=.*takes from 1 to 2"), (lambda x: {x}, "the key of a dict"),
    (lambda x: x.meen(), r"did you mean x.mean\?"), (lambda x: x.softmax(), r"use pa.softmax\(x"),
    (lambda x: pa.map(lambda: 1, x), "a function of 1 argument is needed"), (lambda x: x == "a", "of type str"),
    (lambda x: "a" + x, "of type str"), (lambda x: x * None, "not None"), (lambda x: None, "is a `return` missing"),
])
def test_words(f: Any, message: str) -> None:
    with pytest.raises(pa.ParrayError, match=message) as e:
        parallel(f)(X)
    assert e.value.loc is not None and e.value.loc.file == __file__


# --- results ---------------------------------------------------------------------------------------------------------

def test_annotations_of_results_bind(backend: str) -> None:
    @parallel
    def sizes(x: f64["n"], y: f64["m"]) -> f64["m"]:
        return x
    assert sizes(X, X).shape == (4,)
    with pytest.raises(pa.SizeMismatch, match="result of sizes is 'm' in its annotations"):
        sizes(X, X[:2])

    @parallel
    def element(x: f64["n"]) -> f32["n"]:
        return x
    with pytest.raises(pa.TypeMismatch, match=r"the result is f64\[n\], the annotation says f32\[n\]; convert"):
        element(X)

    @parallel
    def parts(x: f64["n"]) -> tuple[f64, f64["k"], f32]:
        return 1, pa.filter(lambda v: v > 1, x), 2.5
    one, some, half = parts(X)
    assert one.dtype == np.float64 and some.tolist() == [2, 3] and half.dtype == np.float32

    @parallel
    def rank(x: f64["n"]) -> f64:
        return x

    @parallel
    def structure(x: f64["n"]) -> tuple[f64["n"], f64["n"]]:
        return x
    for f, words in ((rank, "the annotation says f64"), (structure, "the result is an array or a number")):
        with pytest.raises(pa.TypeMismatch, match=words):
            f(X)
    assert pa.grad(parallel(lambda x: pa.sum(x * x)))(X).tolist() == [0, 2, 4, 6]      # not those of what it is made of

    @parallel
    def outer(x: f64["n"]) -> f64["n"]:
        return sizes(x, x[:1])
    with pytest.raises(pa.SizeMismatch):
        outer(X)


def test_what_nothing_uses_raises_nothing(backend: str) -> None:
    f = parallel(lambda x, i: (x[i], 3 // i, pa.map(lambda v: x[i + 9], x), x + 1)[3])
    np.testing.assert_array_equal(f(X, 0), X + 1)


def _without_end(n: Any) -> Any:
    return pa.cond(n < 2, lambda: n, lambda: _without_end(n - 1))


@pytest.mark.parametrize("f, message", [
    (lambda x: pa.sum([x[0], x[1]]), r"np.stack makes an array of it\); it is pa.sum\(xs, axis=None"),
    (lambda x: pa.reduce_by_index(pa.add, 0.0, x, pa.iota(4), x), r"the function add; it is pa.reduce_by_index\(dest, op"),
    (lambda x: pa.random.normal((6,)), r"it is pa.random.normal\(k, shape"),
    (lambda x: _without_end(x[0]), "calls itself"),
    (lambda x: pa.loop(0, 3, lambda i, c: c, x), r"it is pa.loop\(n, body, init"),
    (lambda x: pa.scan(lambda c, v: (c, v), 0.0, x), "pa.foldl"), (lambda x: int(x.shape[0]), "a size is a number"),
    (lambda x: pa.cond(x[0] > 0, x, -x), "the function lambda: value"), (lambda x: pa.filter(x > 0, x), r"xs\[mask\]"),
    (lambda x: pa.random.integers(pa.random.key(0), (3,), 5, 5), "no integer from 5"),
    (lambda x: np.vstack([x, x]), "use np.concatenate"), (lambda x: np.linalg.inv(x), "np.linalg.inv is not"),
    (lambda x: np.ma.masked_less(x, 2), "NumPy array"), (lambda x: pa.sum(np.ma.masked_less(X, 2)), "masked array"),
])
def test_more_words(f: Any, message: str) -> None:
    with pytest.raises(pa.ParrayError, match=message) as e:
        parallel(f)(X)
    assert e.value.loc is not None and e.value.loc.file == __file__


def test_masked_arguments_and_names_of_other_libraries(backend: str) -> None:
    with pytest.raises(pa.TypeMismatch, match="masked array"):
        parallel(lambda x: x)(np.ma.masked_less(X, 2))
    for name, hint in (("vmap", "use pa.map"), ("softmx", "did you mean pa.softmax"), ("qqq", "no 'qqq'$")):
        with pytest.raises(AttributeError, match=hint):
            getattr(pa, name)
