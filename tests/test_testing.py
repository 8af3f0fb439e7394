"""The kit for users' own property tests finds planted bugs and passes what is right."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parray as pa
from parray import f32, f64, i32, testing


@pa.record
class Layer:
    """A record with sizes in common."""
    w: f32["m", "n"]
    b: f32["m"]
    rate: f64


@settings(max_examples=20, deadline=None)
@given(testing.records(Layer), st.data())
def test_records_have_fitting_sizes(p: Layer, data: Any) -> None:
    assert p.w.shape[0] == p.b.shape[0] and p.w.dtype == np.float32 and np.shape(p.rate) == ()
    x = data.draw(testing.arrays(f32, (p.w.shape[1],)))
    testing.assert_backends_agree(layer, p, x)


@pa.parallel
def layer(p: Layer, x: Any) -> Any:
    """A linear function."""
    return (p.w @ x + p.b) * f32(p.rate)


@settings(max_examples=25, deadline=None)
@given(testing.arrays("f64", ("n", "m"), special=True))
def test_special_values_of_all_layouts(x: Any) -> None:
    testing.assert_backends_agree(extremes, x)


@pa.parallel
def extremes(x: Any) -> Any:
    """Extremes with NaN, along both axes."""
    return (pa.map(lambda row: pa.reduce(pa.max, -pa.inf, row), x),
            pa.map(lambda row: pa.reduce(pa.min, pa.inf, row), x.T), pa.map(pa.sort, x))


def test_errors_are_compared() -> None:
    testing.assert_backends_agree(lambda x, i: x[i], np.arange(3), np.array([5]))
    with pytest.raises(AssertionError, match="interp and cpu differ"):
        testing._equal(np.zeros(2), np.ones(2), "result 0 of interp and cpu differ", 0, 0)


def test_an_operator_that_is_not_associative_is_found() -> None:
    testing.check_associative(lambda a, b: a + b, 0, testing.values(i32, special=True))
    testing.check_associative(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1, 0),
                              st.tuples(testing.values("i64"), testing.values("i64")), examples=30)
    with pytest.raises(AssertionError, match="not associative"):
        testing.check_associative(lambda a, b: a - b, 0, testing.values(i32), examples=50)
    with pytest.raises(AssertionError, match="is not neutral"):
        testing.check_associative(lambda a, b: pa.max(a, b), 0, [np.float64(-1), np.float64(2)])


def test_gradients_are_checked() -> None:
    x = np.array([0.3, -0.2, 1.1])
    testing.check_gradients(lambda x: pa.sum(pa.sin(x) * x), x, order=2)
    testing.check_gradients(lambda p, x: (p.w @ x + p.b, p.rate * pa.prod(x)),
                            Layer(np.ones((2, 3), np.float32), np.zeros(2, np.float32), np.float64(2)), x)
    wrong = pa.custom_vjp(lambda x: x * x, lambda x: (x * x, x), lambda r, bar: (r * bar,))
    with pytest.raises(AssertionError, match="derivatives disagree"):
        testing.check_gradients(lambda x: pa.sum(wrong(x)), x)
    with pytest.raises(pa.TypeMismatch, match="no float argument"):
        testing.check_gradients(lambda x: x, np.arange(3))
