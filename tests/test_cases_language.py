"""Cases of the language, written as a user would: combinators, irregular nests, scalars, derivatives."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cases
import parray as pa
from parray import f32, f64, i8, i32, i64

CASES = cases.load("language")
FUNCTIONS: cases.Functions = {}


def case(f: Any) -> Any:
    """A function that computes the case of its name."""
    FUNCTIONS[f.__name__] = f
    return f


@pytest.mark.parametrize("backend", ["interp", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, backend: str) -> None:
    if backend == "interp" and name in ("scan_vector_op_long", "reduce_sum_wraps", "map_of_scan_xor"):
        pytest.skip("too long for the interpreter")
    cases.run(CASES[name], FUNCTIONS[name], backend)


# --- filter, reduce, scan --------------------------------------------------------------------------------------------

@case
def filter_pairs(x: Any, keep: Any) -> Any:
    xs, flags = pa.filter(lambda t: t[1], (x, keep))
    return flags, xs


@case
def partition3_pairs(x: Any, y: Any) -> Any:
    return pa.partition([lambda t: t[0] < t[1], lambda t: t[0] == t[1]], (x, y))


@case
def reduce_empty_pair(n: Any) -> Any:
    pairs = pa.tabulate(n, lambda i: (i > 0, i32(i)))
    return pa.reduce(lambda a, b: (a[0] & b[0], b[1]), (False, i32(0)), pairs)


@case
def reduce_sum_wraps(n: Any) -> Any:
    return pa.reduce(pa.add, 0, pa.iota(n, i32))


@case
def scan_rows_product(start: Any, rows: Any) -> Any:
    squares = pa.map(lambda row: row * row + 2, rows)
    return pa.map(lambda row: start * row, pa.scan(lambda a, b: a * b, 1, squares))


@case
def scan_vector_op_long(a: Any, b: Any, m: Any) -> Any:
    sums = pa.scan(lambda x, y: x + y, 0, pa.replicate(m, b))
    return pa.reduce(pa.xor, 0, pa.flatten(pa.map(lambda row: row + a, sums)))


@case
def map_of_scan_xor(n: Any, m: Any) -> Any:
    rows = pa.tabulate((n, m), lambda i, j: i32(i + j))
    return pa.reduce(pa.xor, 0, pa.flatten(pa.map(lambda row: pa.scan(pa.add, 0, row), rows)))


def map_and_check(n: Any, m: Any) -> Any:
    a = pa.tabulate((n, m), lambda i, j: i32(i * m + j))
    return a, pa.all(pa.map(lambda i, row: row[i % m] % 2 == 0, pa.iota(n), a))


FUNCTIONS["redomap_empty_outer"] = FUNCTIONS["redomap_with_mapout"] = map_and_check


@case
def max_segment_sum(x: Any) -> Any:
    def op(a: Any, b: Any) -> Any:
        (b1, p1, s1, t1), (b2, p2, s2, t2) = a, b
        return pa.max(b1, b2, s1 + p2), pa.max(p1, t1 + p2), pa.max(s2, s1 + t2), t1 + t2
    best = pa.map(lambda v: pa.max(v, 0), x)
    return pa.reduce(op, (0, 0, 0, 0), (best, best, best, x))[0]


@case
def longest_sorted_segment(x: Any) -> Any:
    def op(a: Any, b: Any) -> Any:
        (l1, i1, c1, n1, f1, e1), (l2, i2, c2, n2, f2, e2) = a, b
        joins = (n1 == 0) | (n2 == 0) | (e1 <= f2)
        return (pa.max(l1, l2, pa.where(joins, c1 + i2, 0)), pa.where(joins & (i1 == n1), i1 + i2, i1),
                pa.where(joins & (c2 == n2), c1 + c2, c2), n1 + n2,
                pa.where(n1 == 0, f2, f1), pa.where(n2 == 0, e1, e2))
    one = pa.map(lambda v: i32(1), x)
    return pa.reduce(op, (0, 0, 0, 0, 0, 0), (one, one, one, one, x, x))[0]


# --- segments, histograms, scatter -----------------------------------------------------------------------------------

@case
def expand_irregular(counts: Any, x: Any) -> Any:
    data = pa.expand(lambda t: t[0], lambda t, j: 10 * t[1] + i32(j), (counts, x))
    starts = pa.exscan(pa.add, 0, counts)
    owner = pa.replicated_iota(counts)
    flags = pa.map(lambda o, k: k == starts[o], owner, pa.iota(owner.shape[0]))
    sums = pa.reduce_by_index(pa.map(lambda v: i32(0), x), pa.add, 0, owner, data)
    return counts, flags, starts, data, sums


@case
def segmented_scan_flags(flags: Any, x: Any) -> Any:
    return pa.segmented_scan(pa.add, 0, flags, x)


FUNCTIONS["segmented_scan_empty"] = segmented_scan_flags


@case
def hist_duplicate_bins(dest: Any, values: Any) -> Any:
    return pa.reduce_by_index(dest, pa.add, 0, values, values)


@case
def hist_2d_partly_out(dest: Any, i: Any, j: Any, values: Any) -> Any:
    return pa.reduce_by_index(dest, pa.add, 0, (i, j), values)


@case
def hist_mapped_rows(m: Any, rows: Any) -> Any:
    return pa.map(lambda row: pa.reduce_by_index(pa.replicate(m, i32(0)), pa.add, 0, row, i32(1)), rows)


@case
def scatter_3d_partly_out(x: Any) -> Any:
    return pa.scatter(x, (np.array([1, 1]), np.array([1, -1]), np.array([1, 1])), np.array([1337, 0], np.int32))


@case
def scatter_one_past_end(x: Any, i: Any) -> Any:
    return pa.scatter(x, pa.replicate(1, i), pa.replicate(1, True))


@case
def scatter_tuples(i: Any, v: Any, a: Any, b: Any) -> Any:
    return pa.scatter((a, b), i, (v, v))


@case
def scatter_nonuniform_in_map(places: Any, values: Any, sizes: Any, counts: Any) -> Any:
    def last(m: Any, n: Any) -> Any:
        return pa.scatter(pa.replicate(n, i32(0)), places[:m], values[:m])[-1]
    return pa.map(last, counts, sizes)


# --- sizes that differ by element ------------------------------------------------------------------------------------

@case
def filter_into_reduce(x: Any) -> Any:
    return pa.reduce(pa.add, 0, pa.filter(lambda v: v % 3 == 0, x))


@case
def filter_of_filter(x: Any, y: Any) -> Any:
    _, ys = pa.filter(lambda t: (t[0] % 2 == 0) | (t[1] % 3 == 0), (x, y))
    return pa.filter(lambda v: v % 2 == 0, ys)


@case
def irregular_concat(ns: Any) -> Any:
    return pa.map(lambda n: pa.sum(pa.concat(pa.replicate(n, 1), pa.iota(n), pa.iota(n))), ns)


@case
def irregular_depends_on_reduction(ns: Any) -> Any:
    return pa.map(lambda n: pa.sum(pa.iota(pa.sum(pa.iota(n)))), ns)


@case
def irregular_branch_result(ns: Any) -> Any:
    return pa.map(lambda n: pa.sum(pa.cond(n < 0, lambda: pa.iota(n * n), lambda: pa.iota(n))), ns)


@case
def irregular_strided_update(x: Any, v: Any, i: Any, j: Any, s: Any) -> Any:
    return pa.map(lambda x, v, i, j, s: pa.sum(pa.update(pa.iota(x), slice(i, j, s), pa.iota(v))), x, v, i, j, s)


@case
def irregular_slice_sum(n: Any, i: Any) -> Any:
    return pa.map(lambda n, i: pa.sum(pa.iota(n)[i:]), n, i)


@case
def irregular_strided_range(a: Any, b: Any, c: Any) -> Any:
    def one(a: Any, b: Any, c: Any) -> Any:
        return pa.sum(pa.tabulate((c - a + b - a - 1) // (b - a), lambda k: a + k * (b - a)))
    return pa.map(one, a, b, c)


@case
def irregular_2d_sum_with_zero(ns: Any) -> Any:
    return pa.map(lambda n: pa.sum(pa.tabulate((3, n), lambda i, j: i + j)), ns)


# --- slices, loops, scalars ------------------------------------------------------------------------------------------

@case
def slice_past_end(x: Any, i: Any, j: Any, s: Any) -> Any:
    return x[i:j:s]


@case
def slice_strided_copy(x: Any, y: Any) -> Any:
    return pa.update(x, slice(1, 10, 2), y[1:10:2])


@case
def loop_swap_parameters(x: Any, y: Any, z: Any, n: Any) -> Any:
    return pa.loop(n, lambda i, c: (c[1], c[0], c[2] + 1), (x, y, z))


@case
def i8_pow_wraps(x: Any, y: Any) -> Any:
    return x ** y


@case
def i32_mul_wraps(x: Any, y: Any) -> Any:
    return x * y


@case
def i32_floor_division(x: Any, y: Any) -> Any:
    return x // y


@case
def i32_truncating_quotient(x: Any, y: Any) -> Any:
    return pa.quot(x, y)


@case
def i32_to_i8_truncates(x: Any) -> Any:
    return i8(x)


@case
def float_round_half_even(x: Any) -> Any:
    return pa.round(x)


@case
def f64_to_f32_overflow(x: Any) -> Any:
    return f32(x)


@case
def float_to_int_truncates(x: Any) -> Any:
    return i32(x)


@case
def float_max_nan(x: Any, y: Any) -> Any:
    return pa.max(x, y)


@case
def float_modulo_floored(x: Any, y: Any) -> Any:
    return x % y


@case
def mixed_type_redomap(x: Any) -> Any:
    return pa.map(lambda row: pa.sum(i64(row)), x), -f64(x)


# --- derivatives -----------------------------------------------------------------------------------------------------

@case
def ad_product(x: Any) -> Any:
    return pa.grad(lambda x: pa.reduce(pa.mul, 1, x))(x)


@case
def ad_product_rows_with_zeros(x: Any) -> Any:
    return pa.grad(lambda x: pa.reduce(lambda a, b: a * b, 1, x)[0])(x)


@case
def ad_min_tie_first(x: Any) -> Any:
    return pa.grad(lambda x: pa.min(x))(x)


@case
def ad_max_abs(x: Any) -> Any:
    return pa.grad(lambda x: pa.max(abs(x)))(x)


@case
def ad_scan_product_jacobian(x: Any) -> Any:
    return pa.jacrev(lambda x: pa.scan(pa.mul, 1, x))(x)


@case
def ad_scan_linear_functions(x: Any) -> Any:
    def after(p: Any, q: Any) -> Any:
        return q[0] + q[1] * p[0], p[1] * q[1]

    def f(x: Any) -> Any:
        a, b = pa.scan(after, (0, 1), (x[:, 0], x[:, 1]))
        return pa.transpose(pa.concat(a[None], b[None]))
    return pa.jacrev(f)(x)


@case
def ad_scatter_padding(x: Any) -> Any:
    def f(x: Any) -> Any:
        n = x.shape[0]
        return pa.sum(pa.scatter(pa.replicate(n, 0.0), pa.concat(pa.iota(n), pa.replicate(n, -1)), pa.concat(x, x)))
    return pa.grad(f)(x)


@case
def ad_scatter_duplicate_index(x: Any) -> Any:
    def f(x: Any) -> Any:
        n = x.shape[0]
        places = pa.concat(pa.iota(n), pa.replicate(n, 0))
        return pa.sum(pa.scatter(x, places, pa.concat(x, pa.replicate(n, x[0])))[1:])
    return pa.grad(f)(x)


@case
def ad_hist_custom_operator(i: Any, dest: Any, v: Any, c: Any) -> Any:
    def f(dest: Any, v: Any, c: Any) -> Any:
        return pa.sum(pa.reduce_by_index(dest, lambda a, b: 2 * a * b, 0.5, i, v) * c)
    return pa.grad(f, (0, 1, 2))(dest, v, c)


@case
def ad_hist_mul_zeros(i: Any, dest: Any, v: Any) -> Any:
    return pa.grad(lambda dest, v: pa.sum(pa.reduce_by_index(dest, pa.mul, 1, i, v)), (0, 1))(dest, v)


@case
def ad_hist_add_scaled(i: Any, dest: Any, v: Any, c: Any) -> Any:
    return pa.grad(lambda dest, v, c: pa.sum(pa.reduce_by_index(dest, pa.add, 0, i, v) * c), (0, 1, 2))(dest, v, c)


@case
def ad_hist_max_tie_first_value(i: Any, v: Any) -> Any:
    return pa.grad(lambda v: pa.reduce_by_index(pa.replicate(1, f32(0)), pa.max, -pa.inf, i, v)[0])(v)


@case
def ad_hist_max_times_scalar(dest: Any, i: Any, v: Any, c: Any) -> Any:
    return pa.grad(lambda v, c: (c * pa.reduce_by_index(dest, pa.max, -pa.inf, i, v))[0], (0, 1))(v, c)


@case
def ad_hist_mul_jvp(i: Any, v: Any) -> Any:
    start = pa.replicate(5, i32(1))
    return pa.jvp(lambda v: pa.reduce_by_index(start, pa.mul, 1, i, v), (v,), (pa.ones_like(v),))[1]


@case
def ad_for_loop_power(y: Any, x: Any) -> Any:
    return pa.vjp(lambda x: pa.loop(y, lambda i, p: p * x, i32(1)), x)[1](i32(1))


@case
def ad_for_loop_in_place_square(x: Any) -> Any:
    return pa.jacrev(lambda x: pa.loop(x.shape[0], lambda i, a: pa.update(a, i, a[i] * a[i]), x))(x)


@case
def ad_loop_true_dependency(x: Any) -> Any:
    return pa.jacrev(lambda x: pa.loop(x.shape[0] - 1, lambda i, a: pa.update(a, i + 1, a[i] * a[i]), x))(x)


@case
def ad_if_division(b: Any, x: Any, y: Any) -> Any:
    return pa.vjp(lambda b, x, y: pa.cond(b, lambda: x * y, lambda: x / y), b, x, y)[1](1.0)


@case
def ad_pow_at_zero_zero(x: Any, y: Any) -> Any:
    return pa.grad(lambda x, y: x ** y, (0, 1))(x, y)


@case
def ad_third_derivative(x: Any) -> Any:
    def derivative(f: Any) -> Any:
        return lambda x: pa.vjp(f, x)[1](i32(1))
    return pa.map(derivative(derivative(derivative(lambda x: x ** 4))), x)


@case
def ad_map_input_also_free(x: Any) -> Any:
    return pa.jacrev(lambda x: pa.map(lambda a: pa.map(lambda b: a + b, x), x))(x)
