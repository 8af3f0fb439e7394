"""The CUDA printer: its kernels, run by the SIMT emulation, mean what the interpreter says; and they assemble."""
from __future__ import annotations

import random
from typing import Any, Callable, Sequence

import numpy as np
import pytest

from graphs import values
from models.microgpt.model import Params, loss
from models.microgpt.train import STATIC, init_params
from parray import errors, parallel, tree, value_and_grad
from parray.api.parallel import Parallel
from parray.backends import cuda, cuda_host, ptx, simt
from parray.builder import (const, convert, emit, emit1, index, iota, make_lambda, map1, map_, prim,
                            reduce_, scan_, scope, select, sum_monoid, zeros)
from parray.errors import BackendError
from parray.interpreter import run
from parray.ir import Atom, Const, Lambda, Monoid, Var
from parray.lower import lower
from parray.pipeline import optimise
from parray.prims import TABLE
from parray.sizes import N
from parray.soacs import Cond, Contract, Loop, Scatter, Transpose, While
from parray.types import SCALAR_TYPES, SIZE, ScalarType, Type, bool_, f16, f32, f64, i32, i64, u8
from random_graphs import Programs

SCALAR = Type(f32)
rng = np.random.default_rng(1)


def program(types: Sequence[Callable[..., Type]], f: Callable[..., Sequence[Atom]], n_sizes: int = 1) -> Lambda:
    """A closed lambda; each type is given the size variables."""
    sizes = [Var(SIZE, "n") for _ in range(n_sizes)]
    params = [Var(t(*sizes)) for t in types]
    with scope(root=True) as s:
        results = tuple(f(*params))
    return Lambda((*sizes, *params), tuple(s.stms), results)


def vector(n: Any, m: Any = None) -> Type:
    return Type(f32, (n,))


def matrix(n: Any, m: Any = 7) -> Type:
    return Type(f32, (n, m))


def floats(*shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


def total(x: Atom) -> Atom:
    return reduce_(sum_monoid(Type(x.type.elem)), x)[0]


def greatest(x: Atom) -> Atom:
    return reduce_(sum_monoid(SCALAR, "max", -np.inf), x)[0]


def softmax(x: Atom) -> Atom:
    top = greatest(x)
    e = map1(lambda a: prim("exp", prim("sub", a, top)), x)
    s = total(e)
    return map1(lambda a: prim("div", a, s), e)


def rmsnorm(x: Atom) -> Atom:
    n = convert(Const(x.type.shape[0], i64) if isinstance(x.type.shape[0], int) else x.type.shape[0], f32)
    mean = prim("div", total(map1(lambda a: prim("mul", a, a), x)), n)
    scale = prim("rsqrt", prim("add", mean, const(1e-5, f32)))
    return map1(lambda a: prim("mul", a, scale), x)


def linear(xs: Var, w: Var) -> Var:
    """``out[i, o] = sum over e of w[o, e] xs[i, e]``."""
    return emit1(Contract(xs, w, (0, 2), (1, 2), (0, 1)))


def affine(x: Atom, y: Atom) -> Sequence[Atom]:
    """Composition of maps ``t -> a t + b``: associative, not commutative."""
    pair = (Type(f64), Type(f64))

    def after(a: Atom, b: Atom, c: Atom, d: Atom) -> Sequence[Atom]:
        return prim("mul", a, c), prim("add", prim("mul", b, c), d)
    return reduce_(Monoid(make_lambda(pair * 2, after), (const(1, f64), const(0, f64))), x, y)


def matrix_product(xs: Atom) -> Sequence[Atom]:
    """The product of 2 by 2 matrices in order: an operator on arrays that is not elementwise."""
    t = Type(f32, (2, 2))
    op = make_lambda((t, t), lambda a, b: (emit1(Contract(a, b, (0, 2), (2, 1), (0, 1))),))
    one = map1(lambda i: map1(lambda j: convert(prim("eq", i, j), f32), iota(2)), iota(2))
    return reduce_(Monoid(op, (one,)), xs)


def histogram(x: Var, at: Var) -> Sequence[Atom]:
    lam = make_lambda((SIZE, SCALAR), lambda i, v: (i, v))
    dest = zeros(Type(f32, (5,)))
    return [emit1(Scatter(x.type.shape[0], (dest,), 1, sum_monoid(SCALAR), lam, (at, x)))]


def power_iteration(w: Var, x: Var) -> Sequence[Atom]:
    """A loop of the host's around grids, with scalars that stay on the device."""
    def step(i: Atom, v: Atom, scale: Atom) -> Sequence[Atom]:
        y = emit1(Contract(w, v, (0, 1), (1,), (0,)))
        norm = prim("sqrt", total(map1(lambda a: prim("mul", a, a), y)))
        weight = prim("add", norm, convert(i, f32))
        return map1(lambda a: prim("div", a, weight), y), prim("add", scale, norm)
    lam = make_lambda((SIZE, x.type, SCALAR), step)
    return emit(Loop(4, lam, (x, const(0, f32))))


def halve_until_small(x: Var) -> Sequence[Atom]:
    """A loop whose end depends on a sum."""
    cond = make_lambda((x.type,), lambda v: (prim("gt", total(v), const(1, f32)),))
    lam = make_lambda((x.type,), lambda v: (map1(lambda a: prim("mul", a, const(0.5, f32)), v),))
    return [emit1(While(cond, lam, (x,)))]


def branch(x: Var, limit: Var) -> Sequence[Atom]:
    pred = prim("gt", total(x), limit)
    then = make_lambda((), lambda: (map1(lambda a: prim("neg", a), x), total(x)))
    orelse = make_lambda((), lambda: (map1(lambda a: prim("exp", a), x), greatest(x)))
    return emit(Cond(pred, then, orelse))


def integers(x: Var, y: Var) -> Sequence[Atom]:
    ops = ("add", "mul", "floordiv", "mod", "quot", "max", "shl", "xor")
    return map_(lambda a, b: [prim(op, a, b) for op in ops], x, y)


def rounded(x: Var) -> Sequence[Atom]:
    return map_(lambda a: [prim("floor", a), prim("round", a), prim("sign", a), convert(a, i32),
                           prim("mod", a, const(0.75, f32)), select(prim("isnan", a), a, prim("min", a, a))], x)


def big_rows(x: Var) -> Sequence[Atom]:
    """Each iteration needs an array too large for registers."""
    return [map1(lambda row: total(softmax(row)), x)]


def column_sums(x: Var) -> Sequence[Atom]:
    return reduce_(sum_monoid(Type(f32, x.type.shape[1:])), x)


def column_maxima(x: Var) -> Sequence[Atom]:
    return reduce_(sum_monoid(Type(f32, x.type.shape[1:]), "max", -np.inf), x)


def squares_below(x: Var) -> Sequence[Atom]:
    """Arrays whose size is an element of another."""
    def below(i: int) -> Atom:
        squares = map1(lambda k: prim("mul", k, k), iota(index(x, const(i, i64))))
        return reduce_(sum_monoid(SIZE), map1(lambda k: prim("add", k, const(1, i64)), squares))[0]
    return [prim("sub", below(0), below(1))]


def attention(q: Var, k: Var) -> Sequence[Atom]:
    """Causal scores of one head, as probabilities."""
    n = q.type.shape[0]
    scores = emit1(Contract(q, k, (0, 2), (1, 2), (0, 1)))

    def row(i: Atom, s: Atom) -> Atom:
        masked = map1(lambda j, a: select(prim("le", j, i), prim("mul", a, const(0.25, f32)), const(-np.inf, f32)),
                      iota(n), s)
        return softmax(masked)
    return [map1(row, iota(n), scores)]


def mean_loss(logits: Var, targets: Var) -> Sequence[Atom]:
    def one(row: Atom, t: Atom) -> Atom:
        top = greatest(row)
        s = total(map1(lambda a: prim("exp", prim("sub", a, top)), row))
        return prim("sub", prim("log", s), prim("sub", index(row, t), top))
    losses = map1(one, logits, targets)
    return [prim("div", total(losses), convert(logits.type.shape[0], f32))]


def scaled(x: Var, a: Var) -> Sequence[Atom]:
    return [map1(lambda e: prim("add", prim("mul", e, a), prim("exp", e)), x)]


Case = tuple[Lambda, list[int], list[Any]]


def cases() -> dict[str, Case]:
    x, m = floats(29), floats(13, 7)
    ints = [rng.integers(-9, 9, 17).astype(np.int32) for _ in range(2)]
    ints[1][ints[1] == 0] = 4
    at = rng.integers(-1, 6, 29)
    vec2 = (vector, vector)
    pairs = (lambda n: Type(f64, (n,)),) * 2
    return {
        "map": (program((vector, lambda n: SCALAR), scaled), [29], [x, np.float32(2)]),
        "sum": (program((vector,), lambda v: [total(v)]), [29], [x]),
        "long sum": (program((vector,), lambda v: [total(v)]), [9000], [np.ones(9000, np.float32)]),
        "maximum": (program((vector,), lambda v: [greatest(v)]), [29], [x]),
        "empty": (program((vector,), lambda v: [greatest(v), map1(lambda a: a, v)]), [0], [floats(0)]),
        "fixed size": (program((lambda: Type(f32, (3,)),), lambda v: [greatest(v)], 0), [], [floats(3)]),
        "affine": (program(pairs, affine), [29], [rng.normal(size=29), rng.normal(size=29)]),
        "softmax rows": (program((matrix,), lambda a: [map1(softmax, a)]), [13], [m]),
        "rmsnorm rows": (program((matrix,), lambda a: [map1(rmsnorm, a)]), [13], [m]),
        "big rows": (program((lambda n: Type(f32, (n, 300)),), big_rows), [11], [floats(11, 300)]),
        "rows of any length": (program((lambda n, k: Type(f32, (n, k)),), big_rows, 2), [9, 5], [floats(9, 5)]),
        "column sums": (program((matrix,), column_sums), [13], [m]),
        "column maxima": (program((matrix,), column_maxima), [13], [m]),
        "sizes from data": (program((lambda n: Type(i64, (n,)),), squares_below), [2], [np.array([9, 4])]),
        "matrix product": (program((lambda n: Type(f32, (n, 2, 2)),), matrix_product), [13], [floats(13, 2, 2)]),
        "linear": (program((matrix, lambda n: Type(f32, (4, 7))), lambda a, w: [linear(a, w)]), [13],
                   [m, floats(4, 7)]),
        "vector by matrix": (program((vector, matrix), lambda v, w: [emit1(Contract(v, w, (0,), (0, 1), (1,)))]), [13],
                             [floats(13), m]),
        "dot": (program(vec2, lambda a, b: [emit1(Contract(a, b, (0,), (0,), ()))]), [29], [x, floats(29)]),
        "transpose": (program((matrix,), lambda a: [emit1(Transpose(a, (1, 0)))]), [13], [m]),
        "gather": (program((vector, lambda n: Type(i64, (9,))), lambda v, i: [map1(lambda k: index(v, k), i)]), [29],
                   [x, rng.integers(0, 29, 9)]),
        "histogram": (program((vector, lambda n: Type(i64, (n,))), histogram), [29], [x, at]),
        "scan": (program((vector,), lambda v: scan_(sum_monoid(SCALAR), v)), [29], [x]),
        "loop": (program((lambda n: Type(f32, (n, n)), vector), power_iteration), [6], [floats(6, 6), floats(6)]),
        "while": (program((vector,), halve_until_small), [29], [np.abs(x)]),
        "then": (program((vector, lambda n: SCALAR), branch), [29], [x, np.float32(-1e9)]),
        "else": (program((vector, lambda n: SCALAR), branch), [29], [x, np.float32(1e9)]),
        "integers": (program((lambda n: Type(i32, (n,)),) * 2, integers), [17], ints),
        "rounding": (program((vector,), rounded), [5], [np.array([-2.5, -0.3, 0, 1.5, 2e10], np.float32)]),
        "attention": (program((matrix, matrix), attention), [13], [m, floats(13, 7)]),
        "loss": (program((matrix, lambda n: Type(i64, (n,))), mean_loss), [13], [m, rng.integers(0, 7, 13)]),
    }


CASES = cases()
LIMITS = cuda_host.Limits(blocks=3, grid=2, lanes=8)


def shuffled(seed: int) -> Callable[[int], Sequence[int]]:
    source = random.Random(seed)
    return lambda n: source.sample(range(n), n)


def emulate(lam: Lambda, sizes: list[int], args: list[Any], block: int = 4, order: Any = range) -> list[Any]:
    printed = cuda.print_program(lower(lam, len(sizes)), block)
    return cuda_host.Runner(printed, simt.Simt(order), LIMITS)(sizes, args)


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_kernels_mean_what_the_interpreter_says(name: str, block: int) -> None:
    lam, sizes, args = CASES[name]
    got = emulate(lam, sizes, args, block, shuffled(block))
    for a, b in zip(got, run(lam, *(np.int64(s) for s in sizes), *args), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def primitives(t: ScalarType) -> tuple[Lambda, list[Any]]:
    """Every primitive that takes elements of type ``t``, and conversions to every other type."""
    typed = ("select", "convert", "stop", "bitcast")
    rows = [row for row in TABLE.values() if row.accepts(t) and row.name not in typed]

    def every(x: Atom, y: Atom, z: Atom) -> Sequence[Atom]:
        out = [prim(row.name, *(x, y, z)[:row.arity]) for row in rows]
        other = {"i8": u8, "i32": f32, "f32": i32, "f64": i64, "i64": f64}.get(t.name)
        out += [prim("bitcast", x, to=other)] if other else []
        return [*out, select(prim("lt", x, y), x, y), *(convert(x, to) for to in SCALAR_TYPES if to not in (t, f16))]
    lam = program((lambda n: Type(t, (n,)),) * 3, lambda *xs: map_(every, *xs))
    source = np.random.default_rng(3)
    return lam, [t(source.uniform(0.1, 5, 9) if t.is_float else source.integers(1, 5, 9)) for _ in range(3)]


ELEMENTS = [t for t in SCALAR_TYPES if t != f16]


@pytest.mark.parametrize("t", ELEMENTS, ids=str)
def test_every_primitive(t: ScalarType) -> None:
    lam, args = primitives(t)
    with np.errstate(all="ignore"):
        want = run(lam, np.int64(9), *args)
    for a, b in zip(emulate(lam, [9], args), want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_failed_check_is_raised() -> None:
    lam, sizes, args = CASES["gather"]
    with pytest.raises(errors.BoundsError, match="out of bounds"):
        emulate(lam, sizes, [args[0], args[1] + 29])


def test_scalars_stay_on_the_device() -> None:
    """The loop's host program has no reads; the while loop's has one."""
    def reads(name: str) -> int:
        host = cuda.print_program(lower(CASES[name][0], 1)).host
        return repr(host).count("HostRead(")
    assert (reads("loop"), reads("while"), reads("then")) == (0, 1, 1)


def test_an_array_sized_inside_a_parallel_operation_is_refused() -> None:
    def ragged(x: Atom) -> Sequence[Atom]:
        return [map1(lambda i: total(softmax(map1(lambda k: convert(k, f32), iota(i)))), x)]
    lam = program((lambda n: Type(i64, (n,)),), ragged)
    with pytest.raises(BackendError, match="size is known only inside"):
        cuda.print_program(lower(lam, 1))


def test_a_result_of_unknown_size_is_refused() -> None:
    lam = program((lambda n: Type(i64, (n,)),), lambda x: [iota(index(x, const(0, i64)))])
    with pytest.raises(BackendError, match="shape of a result depends"):
        cuda.print_program(lower(lam, 1))


def test_f16_is_refused() -> None:
    lam = program((lambda n: Type(f16, (n,)),), lambda x: [map1(lambda a: a, x)])
    with pytest.raises(BackendError, match="f16"):
        cuda.print_program(lower(lam, 1))


# --- the emulation itself --------------------------------------------------------------------------------------------

def launch(text: str, *args: Any, block: int = 4, blocks: int = 1) -> None:
    machine = simt.Simt()
    params = tuple(cuda_host.Param(f"p{k}", "bytes", f32) for k in range(len(args)))
    kernel = cuda_host.Kernel("k", params, text, block)
    machine.launch(kernel, blocks, [machine.put(a) for a in args])


WRONG = {
    "element 3 of memory that has 3": "def k(p):\n    p[cuda.grid(1)] = f32(1)\n",
    "different barriers": "def k(p):\n    if cuda.threadIdx.x < 2:\n        cuda.syncthreads()\n    else:\n"
                          "        cuda.syncthreads()\n",
    "None has ended": "def k(p):\n    if cuda.threadIdx.x < 2:\n        cuda.syncthreads()\n",
    "race": "def k(p):\n    p[0] = f32(cuda.threadIdx.x)\n",
    "race: byte 0 is read": "def k(p):\n    p[cuda.threadIdx.x % 2] = p[0]\n",
}


@pytest.mark.parametrize("message", WRONG)
def test_the_emulation_finds_what_is_wrong(message: str) -> None:
    with pytest.raises(simt.SimtError, match=message):
        launch(WRONG[message], np.zeros(3, np.float32))


def test_a_barrier_orders_accesses() -> None:
    launch("def k(p):\n    p[cuda.threadIdx.x] = f32(1)\n    cuda.syncthreads()\n    p[0] if cuda.threadIdx.x else 0\n",
           np.zeros(4, np.float32))
    with pytest.raises(simt.SimtError, match="race"):
        launch("def k(p):\n    p[0] = f32(1)\n    cuda.syncthreads()\n", np.zeros(4, np.float32), block=1, blocks=2)


# --- assembly --------------------------------------------------------------------------------------------------------

def missing() -> str:
    try:
        ptx.require()
    except BackendError as error:
        return error.message
    return ""


needs_ptx = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def with_gradient(p: Params, tokens: i64[N], length: i64, heads: int) -> Any:
    """The loss and its gradient."""
    return value_and_grad(loss)(p, tokens, length, heads)


def weights(width: int) -> Params:
    """Random ones, in the precision of a GPU's model."""
    return tree.map(lambda x: f32(8 * x), init_params(27, 1, width, 16))    # type: ignore[no-any-return]


def printed(f: Parallel, *args: Any, block: int = cuda.BLOCK) -> cuda_host.CudaProgram:
    traced = f.program(*args)
    return cuda.print_program(lower(optimise(traced.lam), len(traced.sizes), traced.name), block)


@needs_ptx
@pytest.mark.parametrize("cc", [(8, 0), (9, 0)])
def test_forward_kernels_of_microgpt_assemble(cc: tuple[int, int]) -> None:
    f = parallel(lambda p, tokens, length: loss(p, tokens, length, 4), static=True)
    program = printed(f, weights(16), np.arange(17), np.int64(16))
    assert all(f"# {what}  model.py" in program.source for what in ("map", "reduce", "contract"))
    for a in ptx.assemble(program, cc).values():
        assert f".target sm_{cc[0]}{cc[1]}" in a.ptx and a.cubin.startswith(b"\x7fELF") and a.entry
        # one thread has a whole head of attention, which NVVM unrolls to the last register; all others must not spill
        assert a.spill_stores + a.spill_loads <= (0 if a.stack < 1024 else 512) and a.registers


def test_microgpt_with_its_gradient_on_emulated_threads() -> None:
    f = parallel(with_gradient, static=STATIC)
    args = (weights(4), np.array([26, 1, 2, 1, 26]), np.int64(3), 2)
    traced, program = f.program(*args), printed(f, *args, block=4)
    leaves = [*tree.flatten(args[:3])[0], *traced.captured()]
    sizes = traced.bind(leaves)
    got = cuda_host.Runner(program, simt.Simt(shuffled(0)), LIMITS)(sizes, leaves)
    for a, b in zip(got, run(traced.lam, *map(np.int64, sizes), *leaves), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", [*range(6), 7, 9, 10, 571])
def test_random_programs(seed: int) -> None:
    lam = Programs(seed).program(6)
    lam = optimise(lam) if seed % 2 else lam
    of = {"n": 5, "m": 3}
    args = values(lam, np.random.default_rng(seed), **of)
    printed = cuda.print_program(lower(lam, 2), 4)
    got = cuda_host.Runner(printed, simt.Simt(shuffled(seed)), LIMITS)([int(a) for a in args[:2]], args[2:])
    for a, b in zip(got, run(lam, *args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@needs_ptx
@pytest.mark.parametrize("name", ["affine", "column maxima", "matrix product", "histogram", "scan", "integers",
                                  "rounding", "then", "big rows"])
def test_every_kind_of_kernel_assembles(name: str) -> None:
    lam, sizes, _ = CASES[name]
    assert all(a.registers for a in ptx.assemble(cuda.print_program(lower(lam, len(sizes)))).values())


@needs_ptx
@pytest.mark.parametrize("t", [bool_, i32, u8, f32], ids=str)
def test_every_primitive_assembles(t: ScalarType) -> None:
    assert ptx.assemble(cuda.print_program(lower(primitives(t)[0], 1)))


@needs_ptx
def test_arrays_that_are_only_read_use_the_read_only_path() -> None:
    (kernel,) = ptx.assemble(cuda.print_program(lower(CASES["map"][0], 1))).values()
    assert "ld.global.nc" in kernel.ptx and "st.global" in kernel.ptx


def test_bool_results() -> None:
    lam = program((vector,), lambda x: [map1(lambda a: prim("gt", a, const(0, f32)), x)])
    (got,) = emulate(lam, [29], [floats(29)])
    assert got.dtype == bool_.dtype
