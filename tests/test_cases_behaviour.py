"""Faults that users of array systems have met, as kinds: exact integers, empty arrays, ties, views, derivatives."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cases
import parray as pa
from parray import f32, f64, i64, u64

CASES = cases.load("behaviour")
FUNCTIONS: cases.Functions = {}
SLOW = {"sum_past_2_31"}                             # needs 2 GiB
LONG = {"sum_f32_million_tenths", "sum_f32_checksum", "bincount_65536_distinct", "hist_i16_index_into_70000",
        "grad_max_many_ties_f16", "argmax_rows_of_width_one"}       # for the interpreter


def case(f: Any) -> Any:
    """A function that computes the case of its name."""
    FUNCTIONS[f.__name__] = f
    return f


@pytest.mark.parametrize("backend", ["interp", "cpu"])
@pytest.mark.parametrize("name", sorted(set(CASES) - SLOW))
def test_case(name: str, backend: str) -> None:
    if backend == "interp" and name in LONG:
        pytest.skip("too long for the interpreter")
    cases.run(CASES[name], FUNCTIONS[name], backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW))
def test_large_case(name: str) -> None:
    cases.run(CASES[name], FUNCTIONS[name], "cpu")


def test_min_of_nothing_by_name_is_an_error() -> None:
    """The other half of ``min_with_neutral_of_empty``."""
    for backend in ("interp", "cpu"):
        with pa.use_backend(backend), pytest.raises(pa.SizeMismatch, match="empty"):
            pa.parallel(lambda x: pa.min(x))(np.zeros(0))


def test_cases_are_complete() -> None:
    assert set(FUNCTIONS) == set(CASES)


# --- integers and remainders -----------------------------------------------------------------------------------------

@case
def abs_difference_of_bytes(x: Any, y: Any) -> Any:
    return pa.sum(abs(i64(x) - i64(y)))


@case
def floor_mod_i16_exact(x: Any, y: Any) -> Any:
    return x % y


@case
def floor_div_product_overflows(x: Any, y: Any) -> Any:
    return x // y


@case
def floor_div_fold(x: Any) -> Any:
    return pa.foldl(lambda acc, v: acc // v, x[0], x[1:])


@case
def fmod_sign_of_dividend(x: Any, y: Any) -> Any:
    return np.fmod(x, y)


@case
def float_floor_div_and_mod_agree(x: Any, y: Any) -> Any:
    return x // y, x % y


@case
def u64_exact_trailing_digits(u: Any) -> Any:
    return (u64(10 ** 15) + u % 10 ** 6) * 1000


# --- extremes --------------------------------------------------------------------------------------------------------

for _name in ("argmax_of_minus_inf", "argmax_all_identity_u32"):
    FUNCTIONS[_name] = lambda x: pa.argmax(x)


@case
def argmin_all_f64_max(x: Any) -> Any:
    return pa.argmin(x)


@case
def argmax_of_inverted(x: Any) -> Any:
    return pa.argmax(~x)


@case
def argmax_rows_of_width_one(x: Any) -> Any:
    return pa.argmax(x, axis=1)


@case
def max_of_negatives(x: Any) -> Any:
    return pa.max(x)


@case
def min_with_neutral_of_empty(x: Any) -> Any:
    return pa.reduce(pa.min, pa.inf, x)


# --- empty arrays, sums ----------------------------------------------------------------------------------------------

@case
def row_sum_zero_rows(x: Any) -> Any:
    return pa.sum(x, axis=1)


@case
def column_sum_zero_rows(x: Any) -> Any:
    return pa.sum(x, axis=0)


@case
def map_and_fold_of_empty(x: Any) -> Any:
    return pa.map(lambda v: v * v, x), pa.foldl(lambda a, v: a + v, 7.0, x)


@case
def update_empty_slice(x: Any) -> Any:
    return pa.update(x, slice(None, 0), 2.0)


for _name in CASES:
    if _name.startswith("sum_of_first") or _name in ("sum_past_2_31", "sum_f32_million_tenths",
                                                     "sum_of_two_floats_one_block"):
        FUNCTIONS[_name] = lambda x: pa.sum(x)


@case
def sum_of_two(x: Any) -> Any:
    return pa.reduce(pa.add, 0, x)


@case
def scan_affine_700(a: Any, b: Any) -> Any:
    return pa.scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (1, 0), (a, b))


@case
def sum_f32_checksum(x: Any) -> Any:
    return pa.sum(f32(x) / f32(255))


# --- histograms, writing ---------------------------------------------------------------------------------------------

@case
def bincount_65536_distinct(x: Any) -> Any:
    return pa.histogram(x, 65536)


@case
def hist_min_with_payload_pairs(n: Any, i: Any, x: Any, y: Any) -> Any:
    def smaller(a: Any, b: Any) -> Any:
        right = (a[0] == -1) | ((b[0] != -1) & (b[0] < a[0]))
        return pa.where(right, b[0], a[0]), pa.where(right, b[1], a[1])
    none = pa.replicate(n, pa.i32(-1))
    return pa.reduce_by_index((none, none), smaller, (-1, -1), i, (x, y))


@case
def hist_adds_array_to_itself(x: Any) -> Any:
    return pa.reduce_by_index(x, pa.add, 0, pa.iota(x.shape[0]), x)


@case
def hist_i16_index_into_70000(x: Any, i: Any, v: Any) -> Any:
    return pa.reduce_by_index(x, pa.add, 0, i, v)


@case
def scatter_leaves_source_alone(x: Any, i: Any, j: Any, v: Any) -> Any:
    a = pa.scatter(x, i, v)
    return a, pa.scatter(a, j, v)


@case
def shift_columns(x: Any) -> Any:
    return pa.update(x, (slice(None), slice(1, None)), x[:, :-1])


@case
def row_fill_then_increment_first(n: Any, k: Any) -> Any:
    rows = pa.tabulate((n, k), lambda i, j: i)
    return pa.map(lambda row: pa.update(row, 0, row[0] + 1), rows)


@case
def outer_product_in_chunks(x: Any, y: Any) -> Any:
    def write(c: Any, out: Any) -> Any:
        return pa.update(out, (slice(None), slice(4 * c, 4 * c + 4)), pa.outer(y, x[4 * c:4 * c + 4]))
    return pa.loop(3, write, pa.zeros((y.shape[0], x.shape[0])))


@case
def private_copies_per_thread(x: Any, beta: Any) -> Any:
    def row(y: Any, b: Any) -> Any:
        return pa.loop(y.shape[0] - 1, lambda i, y: pa.update(y, i + 1, y[i + 1] - b * y[i]), y)
    return pa.map(lambda b: pa.map(lambda y: row(y, b), x), beta)


# --- views and results -----------------------------------------------------------------------------------------------

@case
def sum_of_reversed_view(x: Any) -> Any:
    return pa.scan(pa.add, 0, x)


@case
def sum_broadcast_view(x: Any) -> Any:
    return pa.sum(x, axis=0)


@case
def outputs_of_different_rank(x: Any, y: Any) -> Any:
    return x, x + y


# --- derivatives -----------------------------------------------------------------------------------------------------

@case
def cross_entropy_huge_logits(x: Any, k: Any) -> Any:
    def loss(x: Any) -> Any:
        top = pa.stop_gradient(pa.max(x))
        return pa.log(pa.sum(pa.exp(x - top))) + top - x[k]
    return pa.value_and_grad(loss)(x)


@case
def grad_cumprod_of_zero(x: Any) -> Any:
    return pa.grad(lambda x: pa.sum(pa.cumprod(x)))(x)


@case
def grad_binary_max_tie(x: Any, y: Any) -> Any:
    return pa.grad(lambda x, y: pa.max(x, y), (0, 1))(x, y)


@case
def grad_max_many_ties_f16(x: Any) -> Any:
    return pa.sum(f64(pa.grad(lambda x: pa.max(x))(x)))


@case
def grad_sqrt_branch_not_taken(x: Any) -> Any:
    return pa.map(pa.grad(lambda v: pa.cond(v > 0, lambda: pa.sqrt(v), lambda: 0.0)), x)


@case
def grad_segment_product(x: Any, bins: Any, w: Any) -> Any:
    return pa.grad(lambda x: pa.sum(w * pa.reduce_by_index(pa.ones_like(w), pa.mul, 1, bins, x)))(x)


@case
def grad_gather_repeated(x: Any) -> Any:
    def f(x: Any) -> Any:
        v = x * np.array([0.0, 1.0, 2.0])
        return pa.sum(v[pa.iota(30) // 10])
    return pa.value_and_grad(f)(x)


@case
def grad_uses_old_value(x: Any, b: Any) -> Any:
    def f(x: Any) -> Any:
        loss = x[1] * b
        return pa.stop_gradient(b + 100) * 0 + loss
    return pa.grad(f)(x)


@case
def grad_repeated_accumulation(x: Any) -> Any:
    return pa.grad(lambda x: pa.sum(pa.map(lambda a: pa.loop(5, lambda i, f: f + a, 0.0), x)))(x)


@case
def grad_self_update(t: Any, x: Any) -> Any:
    return pa.grad(lambda t, x: pa.cos(t) * x, (0, 1))(t, x)


# --- sorting ---------------------------------------------------------------------------------------------------------

@case
def sort_nan_last(x: Any) -> Any:
    return pa.sort(x)


@case
def argsort_signed_zeros_stable(x: Any) -> Any:
    return pa.argsort(x)


@case
def argsort_denormals_f32(x: Any) -> Any:
    return pa.argsort(x)
