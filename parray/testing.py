"""Property tests for users' functions: strategies for arrays and records, backends compared, operators and gradients
checked.

    from hypothesis import given
    from parray import testing

    @given(testing.arrays("f32", ("n",)))
    def test_norm(x):
        testing.assert_backends_agree(norm, x)

    testing.check_associative(op, neutral, testing.values("i64"))
    testing.check_gradients(loss, params, x, order=2)

The strategies need hypothesis (``pip install hypothesis``); everything else works without.
"""
from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np

from parray import errors, tree
from parray.api import Parallel, jvp, parallel, use_backend, vjp
from parray.interpreter import Interpreter
from parray.ir import Lambda, Monoid, each_op
from parray.trace import hints
from parray.types import SCALAR_TYPES, ScalarType, bool_, f64, i64, scalar_type

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

BACKENDS = ("interp", "cpu")


def _hypothesis() -> Any:
    try:
        from hypothesis import strategies
    except ImportError:
        raise ImportError("parray.testing's strategies need hypothesis: pip install hypothesis") from None
    return strategies


# --- strategies ------------------------------------------------------------------------------------------------------

def sizes(most: int = 20) -> SearchStrategy[int]:
    """Sizes of dimensions, 0 and 1 often."""
    st = _hypothesis()
    return st.one_of(st.sampled_from([0, 1]), st.integers(0, most))          # type: ignore[no-any-return]


def _elem(elem: Any) -> ScalarType:
    """An element type: ours, NumPy's, or its name."""
    named = {t.name: t for t in SCALAR_TYPES}
    return named[elem] if isinstance(elem, str) and elem in named else scalar_type(elem)


def values(elem: Any, special: bool = False) -> SearchStrategy[Any]:
    """Scalars of an element type: small numbers, and with ``special`` also NaN, infinities, -0 and extreme integers."""
    st = _hypothesis()
    t = _elem(elem)
    if t.is_bool:
        return st.booleans().map(np.bool_)                                   # type: ignore[no-any-return]
    if t.is_integer:
        info = np.iinfo(t.dtype)
        small = st.integers(max(-10, int(info.min)), 10)
        wide = st.integers(int(info.min), int(info.max))
        return (st.one_of(small, wide) if special else small).map(t.dtype.type)   # type: ignore[no-any-return]
    small = st.integers(-64, 64).map(lambda k: k / 8)
    odd = st.sampled_from([np.nan, np.inf, -np.inf, -0.0, float(np.finfo(t.dtype).max), float(np.finfo(t.dtype).tiny)])
    return (st.one_of(small, odd) if special else small).map(t.dtype.type)   # type: ignore[no-any-return]


def arrays(elem: Any, shape: Sequence[Any] = ("n",), special: bool = False, most: int = 20) -> SearchStrategy[Any]:
    """Arrays of an element type.  Entries of ``shape`` are numbers, strategies, or names: equal names, equal sizes.

    Arrays come contiguous, reversed, with gaps and in column order, as users pass them.
    """
    def build(draw: DrawFn) -> Any:
        return _array(draw, _elem(elem), shape, {}, special, most)
    return _hypothesis().composite(build)()                                  # type: ignore[no-any-return]


def _array(draw: Any, t: ScalarType, shape: Sequence[Any], known: dict[Any, int], special: bool, most: int) -> Any:
    dims = []
    for s in shape:
        if isinstance(s, int):
            dims.append(s)
        elif hasattr(s, "example"):
            dims.append(draw(s))
        else:
            if s not in known:
                known[s] = draw(sizes(most))
            dims.append(known[s])
    st = _hypothesis()
    count = int(np.prod(dims, dtype=np.int64))
    if count <= 64:
        flat = np.array(draw(st.lists(values(t, special), min_size=count, max_size=count)), t.dtype)
    else:                                                   # large ones are drawn by a seed, which shrinks as well
        rng = np.random.default_rng(draw(st.integers(0, 2 ** 32 - 1)))
        flat = (rng.integers(-64, 64, count) / (8 if t.is_float else 4)).astype(t.dtype)
    x = flat.reshape(dims)
    if not x.ndim:
        return x[()]
    layout = draw(st.sampled_from(["rows", "rows", "columns", "reversed", "gaps"]))
    if layout == "columns":
        return np.asfortranarray(x)
    if layout == "reversed":
        return x[::-1].copy()[::-1]
    if layout == "gaps":
        wide = np.zeros((*dims[:-1], 2 * dims[-1]), t.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    return x


def records(cls: Any, special: bool = False, most: int = 8) -> SearchStrategy[Any]:
    """Records of a class by the annotations of its fields; a size's name is one size in all of them."""
    def build(draw: DrawFn) -> Any:
        known: dict[str, int] = {}
        return built(cls, lambda t, dims: _array(draw, t, dims, known, special, most), cls.__name__)
    return _hypothesis().composite(build)()                                  # type: ignore[no-any-return]


def arguments(f: Any, special: bool = False, most: int = 8) -> SearchStrategy[tuple[Any, ...]]:
    """Arguments for a function by its annotations: a size's name is one size in all of them."""
    def build(draw: DrawFn) -> Any:
        known: dict[str, int] = {}
        return of_parameters(f, lambda t, dims: _array(draw, t, dims, known, special, most))
    return _hypothesis().composite(build)()                                  # type: ignore[no-any-return]


def example(f: Any, sizes: dict[str, int] | None = None, size: int = 64, seed: int = 0) -> tuple[Any, ...]:
    """Arguments for a function by its annotations, with random numbers: sizes by name, ``size`` for the others.

    Floats are normal, integers below the smallest size (so that they can be indices).
    """
    rng = np.random.default_rng(seed)
    sizes = sizes or {}
    least = max(1, min([size, *sizes.values()]))

    def leaf(t: ScalarType, dims: Sequence[Any]) -> Any:
        shape = [d if isinstance(d, int) else sizes.get(d, size) for d in dims]
        if t.is_bool:
            return (rng.integers(0, 2, shape) > 0)[()]
        made = rng.normal(size=shape) if t.is_float else rng.integers(0, min(least, int(np.iinfo(t.dtype).max)), shape)
        return np.asarray(made).astype(t.dtype)[()]
    return of_parameters(f, leaf)


def of_parameters(f: Any, leaf: Callable[[ScalarType, Sequence[Any]], Any]) -> tuple[Any, ...]:
    """A value for each parameter of a function that has no default, by its annotation.

    Raises TypeMismatch for a parameter whose annotation does not say what it is.
    """
    call = f if isinstance(f, Parallel) else parallel(f)
    parameters = call.signature.parameters.values() if call.signature else []
    return tuple(built(call._annotations.get(p.name), leaf, f"{call.name}: {p.name}")
                 for p in parameters if p.default is p.empty)


def built(annotation: Any, leaf: Callable[[ScalarType, Sequence[Any]], Any], what: str) -> Any:
    """A value by an annotation, its leaves from ``leaf(element type, sizes)``."""
    if annotation in (int, float, bool):                    # a Python number
        return annotation(leaf({int: i64, float: f64, bool: bool_}[annotation], ()))
    if typing.get_origin(annotation) is tuple and Ellipsis not in typing.get_args(annotation):
        return tuple(built(a, leaf, f"{what}[{k}]") for k, a in enumerate(typing.get_args(annotation)))
    if isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields")):
        return annotation(**{name: built(a, leaf, f"{what}.{name}") for name, a in hints.of_class(annotation).items()})
    said = hints.leaf(annotation)
    if said.elem is None or said.dims is None:
        raise errors.TypeMismatch(f'{what} needs an annotation such as f32["n"], f64, a record or a tuple of them, '
                                  f"not {annotation!r}")
    return leaf(said.elem, said.dims)


# --- checks ----------------------------------------------------------------------------------------------------------

def assert_backends_agree(f: Callable[..., Any], *args: Any, backends: Sequence[str] = BACKENDS, rtol: float = 1e-5,
                          atol: float = 1e-6) -> Any:
    """Run ``f`` on every backend and compare structures, dtypes, shapes, values (NaN equals NaN) and errors.

    Gives the first backend's results.  Raises AssertionError naming the backends and the result that differ.
    """
    call = f if hasattr(f, "compiles") else parallel(f)
    outcomes: list[Any] = []
    for backend in backends:
        with use_backend(backend):
            try:
                outcomes.append(tree.flatten(call(*args)))
            except errors.ParrayError as error:
                outcomes.append(error)
    first = outcomes[0]
    for backend, other in zip(backends[1:], outcomes[1:]):
        pair = f"{backends[0]} and {backend}"
        if isinstance(first, Exception) or isinstance(other, Exception):
            if type(first) is not type(other):
                raise AssertionError(f"{pair} differ: {_outcome(first)} and {_outcome(other)}")
            continue
        if first[1] != other[1]:
            raise AssertionError(f"{pair} differ in structure: {first[1]} and {other[1]}")
        for k, (a, b) in enumerate(zip(first[0], other[0])):
            _equal(a, b, f"result {k} of {pair}", rtol, atol)
    if isinstance(first, Exception):
        return None
    return tree.unflatten(first[1], first[0])


def _outcome(x: Any) -> str:
    return f"{type(x).__name__} ({x})" if isinstance(x, Exception) else "a result"


def _equal(a: Any, b: Any, what: str, rtol: float, atol: float) -> None:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        raise AssertionError(f"{what} differ: {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}")
    exact = a.dtype.kind != "f"
    if a.dtype == np.float16:
        rtol, atol = max(rtol, 2e-3), max(atol, 2e-3)
    np.testing.assert_allclose(a, b, rtol=0 if exact else rtol, atol=0 if exact else atol, err_msg=what)


def check_associative(op: Callable[..., Any], neutral: Any, elements: Any, examples: int = 200, rtol: float = 1e-5
                      ) -> None:
    """Check ``op(op(a, b), c) == op(a, op(b, c))`` and ``op(neutral, a) == a == op(a, neutral)`` on drawn elements.

    ``elements`` is a strategy (of scalars, or tuples of them) or a sequence of examples.  Raises AssertionError with
    the operands of the smallest counterexample.
    """
    left = parallel(lambda a, b, c: op(op(a, b), c))
    right = parallel(lambda a, b, c: op(a, op(b, c)))
    sides = parallel(lambda a, ne: (op(ne, a), op(a, ne)))

    def law(a: Any, b: Any, c: Any) -> None:
        ne = tree.map(lambda n, x: np.asarray(n, np.asarray(x).dtype)[()], neutral, a)
        with use_backend("interp"):
            _same(left(a, b, c), right(a, b, c), f"not associative: a = {a}, b = {b}, c = {c}", rtol)
            for side, name in zip(sides(a, ne), ("op(neutral, a)", "op(a, neutral)")):
                _same(side, a, f"{neutral} is not neutral: {name} for a = {a}", rtol)
    if not hasattr(elements, "example"):
        for a in elements:
            for b in elements:
                for c in elements:
                    law(a, b, c)
        return
    from hypothesis import HealthCheck, given, settings
    quiet = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    quiet(given(elements, elements, elements)(law))()


def check_operators(f: Callable[..., Any], *args: Any, rtol: float = 1e-4) -> None:
    """Run ``f`` on the interpreter and check the operators of its reductions and scans on the very elements they meet:
    that they are associative, ``op(op(a, b), c) == op(a, op(b, c))``, and their neutral elements neutral.  Raises
    AssertionFailed with the elements and the line.
    """
    call = f if isinstance(f, Parallel) else parallel(f)
    program = call.program(*args)
    leaves = call._take_apart(call._values(args, {})).leaves
    values = [np.int64(s) for s in program.bind(leaves)] + [*leaves, *program.captured()]
    _Checked(program.lam, rtol).call(program.lam, *values)


class _Checked(Interpreter):
    """The interpreter, checking an operator whenever what it gave last is its next first operand."""

    def __init__(self, lam: Lambda, rtol: float):
        super().__init__()
        self.rtol = rtol
        self.last: dict[int, Any] = {}
        self.operators: dict[int, Monoid] = {id(m.op): m for op in each_op(lam) for m in
                                             (*getattr(op, "scans", ()), *getattr(op, "reds", ()))}

    def call(self, lam: Lambda, *args: Any) -> tuple[Any, ...]:
        out = super().call(lam, *args)
        m = self.operators.get(id(lam))
        if m is not None:
            a, b, between = self.last.get(id(lam), (None, None, (None,)))
            accumulated, c = args[:m.width], args[m.width:]
            ne = [self.value(x) for x in m.ne]
            if all(x is y for x, y in zip(accumulated, ne)):
                for side in (out, super().call(lam, *c, *ne)):
                    if not all(map(self.equal, side, c)):
                        e, x, y = (", ".join(map(str, map(np.asarray, v))) for v in (ne, c, side))
                        raise errors.AssertionFailed(f"{e} is not neutral: with x = {x}, op of both is {y}")
            if all(x is y for x, y in zip(accumulated, between)):
                other = super().call(lam, *a, *super().call(lam, *b, *c))
                if not all(map(self.equal, out, other)):
                    shown = [", ".join(map(str, map(np.asarray, v))) for v in (a, b, c, out, other)]
                    raise errors.AssertionFailed("the operator is not associative: with a = {}, b = {} and c = {}, "
                                                 "op(op(a, b), c) = {}, but op(a, op(b, c)) = {}".format(*shown))
            self.last[id(lam)] = accumulated, c, out
        return out

    def equal(self, x: Any, y: Any) -> bool:
        x, y = np.asarray(x), np.asarray(y)
        close = np.allclose(x, y, rtol=self.rtol, atol=self.rtol, equal_nan=True)
        return bool(close if x.dtype.kind == "f" else np.array_equal(x, y))


def _same(x: Any, y: Any, message: str, rtol: float) -> None:
    for a, b in zip(tree.leaves(x), tree.leaves(y), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        close = np.allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True) if a.dtype.kind == "f" else np.array_equal(a, b)
        if not close:
            raise AssertionError(f"{message}: {x} and {y}")


def check_gradients(f: Callable[..., Any], *args: Any, order: int = 1, seed: int = 0, eps: float = 1e-6,
                    tol: float = 1e-5, static: bool = False) -> None:
    """Check both modes of differentiation against central differences and each other, in f64, along random directions.

    For a direction v and a cotangent u it compares ``<u, (f(x + e v) - f(x - e v)) / 2e>``, ``<u, jvp f x v>`` and
    ``<vjp f x u, v>``; ``order=2`` checks the derivatives in the same way.  Float arguments are converted to f64,
    others are constant; ``static`` makes all sizes constants too.  Raises AssertionError with the three numbers.
    """
    leaves, structure = tree.flatten(tuple(args))
    on = [k for k, x in enumerate(leaves) if np.asarray(x).dtype.kind == "f"]
    if not on:
        raise errors.TypeMismatch("check_gradients: there is no float argument")
    point = [np.asarray(leaves[k], np.float64) for k in on]

    def of_floats(*xs: Any) -> Any:
        new = list(leaves)
        for k, x in zip(on, xs):
            new[k] = x
        return function(*tree.unflatten(structure, new))
    function: Any = getattr(f, "f", f) if hasattr(f, "compiles") else f
    static = static or isinstance(f, Parallel) and bool(f.static)
    _check_gradients(of_floats, point, order, np.random.default_rng(seed), eps, tol, static)


def _check_gradients(f: Callable[..., Any], point: list[Any], order: int, rng: Any, eps: float, tol: float,
                     static: bool) -> None:
    call = parallel(lambda *xs: [y for y in tree.leaves(f(*xs)) if y.dtype.is_float], static=static)
    y = [np.asarray(a, np.float64) for a in call(*point)]
    v = [np.asarray(rng.normal(size=np.shape(x))) for x in point]
    u = [np.asarray(rng.normal(size=np.shape(a))) for a in y]
    ahead, behind = (call(*[x + e * d for x, d in zip(point, v)]) for e in (eps, -eps))
    numeric = sum(float(np.sum(w * (np.asarray(p, np.float64) - q))) / (2 * eps) for w, p, q in zip(u, ahead, behind))
    forward = parallel(lambda xs, dots: jvp(lambda *zs: _floats(f, zs), tuple(xs), tuple(dots))[1],
                       static=static)

    def pulled(xs: Any, bars: Any) -> Any:
        out = vjp(lambda *zs: _floats(f, zs), *xs)[1](bars)
        return (out,) if len(xs) == 1 else out
    by_jvp = sum(float(np.sum(w * d)) for w, d in zip(u, forward(tuple(point), tuple(v))))
    by_vjp = sum(float(np.sum(g * d)) for g, d in zip(parallel(pulled, static=static)(tuple(point), u), v))
    scale = max(1.0, abs(numeric), abs(by_jvp))
    if abs(by_jvp - by_vjp) > 1e-9 * scale or abs(by_jvp - numeric) > tol * scale:
        raise AssertionError(f"derivatives disagree: differences {numeric}, jvp {by_jvp}, vjp {by_vjp}")
    if order > 1:
        k = len(point)
        _check_gradients(lambda *zs: pulled(zs[:k], list(zs[k:])), point + u, order - 1, rng, eps, 10 * tol,
                         static)
        _check_gradients(lambda *zs: jvp(lambda *xs: _floats(f, xs), zs[:k], zs[k:])[1], point + v, order - 1, rng, eps,
                         10 * tol, static)


def _floats(f: Callable[..., Any], xs: Any) -> list[Any]:
    """The float results."""
    return [y for y in tree.leaves(f(*xs)) if y.dtype.is_float]
