"""Scalar functions on anything: scalars, arrays (with NumPy's broadcasting), records and other structures.

    apply "add" x y     promote, broadcast, and one primitive on the scalars inside nested maps

A dimension of static size 1 and missing leading dimensions are repeated; two symbolic sizes must be equal (`unify`;
when a call then comes with a 1, `parray.api` traces anew with that 1 as a constant).
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Sequence

import numpy as np

from parray import builder, prims, tree
from parray.errors import TraceError, TypeMismatch, user_location
from parray.ir import Atom, Const, Var, resolve
from parray.trace import constructs, context
from parray.trace.promote import (common_type, constant, convert, fits, float_type, is_python_number, python_type)
from parray.trace.tracer import Tracer, size_value
from parray.types import ScalarType, Type, bool_, f64, i8, i64, scalar_type

_SIZE_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": builder.size_add, "sub": builder.size_sub, "mul": builder.size_mul,
    **{name: partial(builder.size_prim, name) for name in ("floordiv", "mod", "max", "min")}}
_BOOL_MEANING = {"add": "or", "mul": "and"}
_INTEGRAL = ("floor", "ceil", "trunc", "round")
_COMPARISONS = {"eq": False, "ne": True, "lt": None, "le": None, "gt": None, "ge": None}
_SYMBOLS = {row.name: row.symbol or row.name for row in prims.TABLE.values()}


def is_operand(value: Any) -> bool:
    """Whether a value may stand in arithmetic with a tracer (structures may not)."""
    return isinstance(value, (Tracer, int, float, np.generic, np.ndarray)) or is_array_like(value)


def is_array_like(value: Any) -> bool:
    """Whether a foreign object gives a NumPy array."""
    return hasattr(value, "__array__") and not isinstance(value, type) or hasattr(value, "__dlpack__")


def as_numpy(value: Any) -> np.ndarray[Any, Any]:
    """The NumPy array of a foreign array, without a copy where possible."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeMismatch("a masked array has a second array beside its values: give x.filled(...), or x.data and "
                           "x.mask as two arguments", user_location())
    try:
        return np.from_dlpack(value) if not hasattr(value, "__array__") else np.asarray(value)
    except TraceError:                                          # a traced value of parray's
        raise
    except Exception as e:                                      # each library has its own for arrays on a device
        raise TypeMismatch(f"an array of {type(value).__module__}.{type(value).__name__} cannot be read as one of "
                           f"NumPy's: {e}", user_location()) from None


def lift(value: Any, what: str = "", hint: str = "") -> Tracer:
    """A tracer for whatever may stand for a value: tracers, Python numbers (weak), NumPy scalars and arrays."""
    if isinstance(value, Tracer):
        value.atom
        return value
    if is_python_number(value):
        return Tracer(constant(value, python_type(value)), weak=True)
    if isinstance(value, np.generic):
        return Tracer(Const(value, _elem(value.dtype, what)))
    if is_array_like(value) and (not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray)):
        value = as_numpy(value)
    if isinstance(value, np.ndarray):
        elem = _elem(value.dtype, what)
        return Tracer(context.capture(value, what or "an array") if value.ndim else Const(value[()], elem))
    where = f"{what}: " if what else ""
    hint = hint or constructs.form(what)
    raise TypeMismatch(f"{where}a number or an array is needed, not {_shown(value)}{hint}", builder.here())


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} (np.stack makes an array of it)"
    if callable(value):
        return f"the function {getattr(value, '__name__', value)}"
    return "None" if value is None else f"{value!r} of type {type(value).__name__}"


def _elem(dtype: Any, what: str) -> ScalarType:
    try:
        return scalar_type(dtype)
    except TypeError as e:
        raise TypeMismatch(f"{what}: {e}" if what else str(e), builder.here()) from None


# --- broadcasting ----------------------------------------------------------------------------------------------------

def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def broadcast_shapes(shapes: Sequence[tuple[Any, ...]], what: str) -> tuple[Any, ...]:
    """The common shape; sizes that must be equal are unified."""
    rank = max(len(s) for s in shapes)
    out = []
    for d in range(-rank, 0):
        chosen: Any = 1
        for s in shapes:
            size = resolve(s[d]) if len(s) >= -d else 1
            if _is_one(size):
                continue
            if _is_one(chosen):
                chosen = size
            elif size is not chosen:
                context.unify(chosen, size, f"{what} takes arrays of equal shape", broadcast=True)
                chosen = resolve(chosen)
                chosen = size if isinstance(size, int) else chosen
        out.append(chosen)
    return tuple(out)


def elementwise(f: Callable[..., Atom], xs: Sequence[Atom], what: str = "arithmetic") -> Atom:
    """``f`` on scalars, mapped over broadcast arrays."""
    if not any(x.type.shape for x in xs):
        return f(*xs)
    return _nest(f, list(xs), broadcast_shapes([x.type.shape for x in xs], what))


def _nest(f: Callable[..., Atom], xs: list[Atom], shape: tuple[Any, ...]) -> Atom:
    if not shape:
        return f(*xs)
    rank, n = len(shape), shape[0]
    mapped = []
    for k, x in enumerate(xs):
        if x.type.rank == rank:
            if _is_one(resolve(x.type.shape[0])) and not _is_one(n):
                xs[k] = builder.index(x, 0, safe=True)
            else:
                xs[k] = context.fit(x, (n, *x.type.shape[1:]))
                mapped.append(k)

    def body(*elements: Atom) -> Atom:
        inner = list(xs)
        for k, e in zip(mapped, elements):
            inner[k] = e
            note_element(xs[k], e)
        return _nest(f, inner, shape[1:])
    return builder.map1(body, *(xs[k] for k in mapped), n=n)


def note_element(xs: Atom, element: Atom) -> None:
    """Pass on what is known about the elements of an array of indices."""
    trace = context.current()
    if xs in trace.counting and isinstance(element, Var):
        trace.nonneg.add(element)
        if trace.counting[xs] is not None:
            trace.below[element] = trace.counting[xs]


def broadcast_to(x: Atom, shape: tuple[Any, ...]) -> Atom:
    """An array repeated to ``shape`` (which its own shape fits, 1s and missing dimensions aside)."""
    from parray.soacs import Replicate
    if not shape:
        return x
    if x.type.rank < len(shape):
        return builder.emit1(Replicate(shape[0], broadcast_to(x, shape[1:])))
    if _is_one(resolve(x.type.shape[0])) and not _is_one(resolve(shape[0])):
        return builder.emit1(Replicate(shape[0], broadcast_to(builder.index(x, 0, safe=True), shape[1:])))
    if all(resolve(a) is resolve(b) or a == b for a, b in zip(x.type.shape[1:], shape[1:])):
        return context.fit(x, shape)
    return builder.map1(lambda e: broadcast_to(e, shape[1:]), context.fit(x, (shape[0], *x.type.shape[1:])))


# --- primitives ------------------------------------------------------------------------------------------------------

def apply(name: str, *args: Any) -> Any:
    """The scalar primitive ``name`` on operands of any structure."""
    context.current(f"pa.{name}")
    if not all(isinstance(a, Tracer) or is_operand(a) for a in args):
        return leafwise(lambda *leaves: apply(name, *leaves), args)
    if any(isinstance(a, Tracer) and a.is_size for a in args):
        sized = _size_arithmetic(name, args)
        if sized is not None:
            return sized
    if name == "pow":
        special = _power(*args)
        if special is not None:
            return special
    literal = _literal_comparison(name, args)
    if literal is not None:
        return literal
    operands = [a if is_python_number(a) else lift(a) for a in args]
    weak = [not isinstance(a, Tracer) or a.weak for a in operands]
    elems = [a.dtype if isinstance(a, Tracer) else python_type(a) for a in operands]
    common = common_type(elems, weak)
    if common.is_integer and name in _INTEGRAL:
        return lift(operands[0])
    name, elem = _meaning(name, common)
    atoms = [a.atom if isinstance(a, Tracer) else constant(a, elem) for a in operands]
    return Tracer(_emit(name, atoms, elem), weak=all(weak))


def leafwise(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """``f`` on the leaves of structures; operands that are leaves stand for themselves at each."""
    structures = [a for a in args if not tree.is_leaf(a)]
    if not structures:
        for a in args:
            lift(a)                                         # says what is wrong with it
    columns, found = tree.flatten(structures[0])
    rows = []
    for a in args:
        leaves, structure = tree.flatten(a)
        if tree.is_leaf(a):
            leaves = [a] * len(columns)
        elif structure != found:
            raise TypeMismatch(f"structures differ: {found} and {structure}", builder.here())
        rows.append(leaves)
    return tree.unflatten(found, [f(*row) for row in zip(*rows)])


def _meaning(name: str, common: ScalarType) -> tuple[str, ScalarType]:
    """The primitive and element type that ``name`` means on operands that meet in ``common``."""
    row = prims.TABLE[name]
    if name == "div" and not common.is_float:
        return name, f64
    if row.operands == "float":
        return name, float_type(common)
    if common.is_bool and row.operands in ("num", "int"):
        if name in _BOOL_MEANING:
            return _BOOL_MEANING[name], common
        if name == "abs":
            return "or", common
        if name in ("neg", "sub", "sign"):
            raise TypeMismatch(f"{_SYMBOLS[name]} is not defined on bool: use ^ or ~, or convert with pa.i64(x)",
                               builder.here())
        return name, i8
    if not row.accepts(common):
        wanted = {"int": "integers", "logic": "bool and integers"}[row.operands]
        raise TypeMismatch(f"{_SYMBOLS[name]} is defined on {wanted}, not on {common}", builder.here())
    return name, common


def _emit(name: str, atoms: list[Atom], elem: ScalarType) -> Atom:
    if name == "or" and len(atoms) == 1:                    # abs of a bool
        return atoms[0]

    def scalar(*xs: Atom) -> Atom:
        out = builder.prim(name, *(builder.convert(x, elem) for x in xs))
        if elem == i64:
            _note_sign(name, xs, out)
        return out
    return elementwise(scalar, atoms, _SYMBOLS[name])


def _note_sign(name: str, xs: Sequence[Atom], out: Atom) -> None:
    """Remember that a result is not negative where its operands are not."""
    trace = context.current()
    known = [isinstance(x, Const) and bool(x.value >= 0) or x in trace.nonneg for x in xs]
    if name in ("add", "mul", "floordiv", "min") and all(known) or name == "max" and any(known) \
            or name == "mod" and known[1]:
        trace.nonneg.add(out)                                                        # type: ignore[arg-type]
    if name == "mod" and known[1] and isinstance(out, Var):
        divisor = xs[1]
        trace.below[out] = int(divisor.value) if isinstance(divisor, Const) else divisor


def _size_arithmetic(name: str, args: Sequence[Any]) -> Any:
    """Arithmetic and comparison of sizes alone stay sizes; None when this is something else."""
    if not all(isinstance(a, Tracer) and a.is_size or type(a) is int for a in args):
        return None
    sizes = [a.atom if isinstance(a, Tracer) else a for a in args]
    if name in _SIZE_FUNCTIONS:
        if name in ("floordiv", "mod") and sizes[1] == 0:
            return None
        out = _SIZE_FUNCTIONS[name](*sizes)
        if isinstance(out, Var):
            _note_sign(name, [builder.size_atom(s) for s in sizes], out)
        return size_value(out)
    if name == "neg":
        return size_value(builder.size_sub(0, sizes[0]))
    if name in ("eq", "ne") and builder.same_size(*sizes):
        return name == "eq"
    return None


def _power(x: Any, y: Any) -> Any:
    """``x ** c`` for the constants NumPy treats specially, too."""
    if type(y) not in (int, float) or not isinstance(x, Tracer) or x.dtype.is_bool:
        return None
    if not (x.dtype.is_float or type(y) is int):
        return None
    if y == 2:
        return apply("mul", x, x)
    if y == 1:
        return x
    if y == 0.5:
        return apply("sqrt", x)
    return apply("div", 1, x) if y == -1 and x.dtype.is_float else None


def _literal_comparison(name: str, args: Sequence[Any]) -> Any:
    """``x < 300`` for x of type u8 is True, as in NumPy: a literal need not fit the other operand's type."""
    if name not in _COMPARISONS or len(args) != 2:
        return None
    for k, literal in enumerate(args):
        x = args[1 - k]
        if type(literal) is int and isinstance(x, Tracer) and x.dtype.is_integer and not fits(literal, x.dtype):
            answer = _COMPARISONS[name]
            if answer is None:
                answer = (literal > 0) == (name in ("lt", "le")) if k == 1 else (literal > 0) == (name in ("gt", "ge"))
            return Tracer(elementwise(lambda e: Const(answer, bool_), [x.atom]))
    return None


# --- conversion and choice -------------------------------------------------------------------------------------------

def astype(x: Any, dtype: Any) -> Any:
    """``x`` with elements of another type; structures leaf by leaf."""
    elem = _elem(dtype, "astype")
    if not tree.is_leaf(x):
        return tree.map(lambda leaf: astype(leaf, elem), x)
    return Tracer(convert(lift(x).atom, elem))


def where(condition: Any, x: Any, y: Any) -> Any:
    """Elementwise ``x`` where the condition holds, else ``y``.  Both are computed; `cond` computes only one."""
    context.current("pa.where")
    if not (tree.is_leaf(x) and tree.is_leaf(y)):
        return leafwise(lambda a, b: where(condition, a, b), (x, y)) if tree.is_leaf(condition) \
            else leafwise(where, (condition, x, y))
    c = lift(condition, "pa.where")
    operands = [v if is_python_number(v) else lift(v, "pa.where") for v in (x, y)]
    weak = [not isinstance(a, Tracer) or a.weak for a in operands]
    elem = common_type([a.dtype if isinstance(a, Tracer) else python_type(a) for a in operands], weak)
    atoms = [a.atom if isinstance(a, Tracer) else constant(a, elem) for a in operands]

    def choose(p: Atom, a: Atom, b: Atom) -> Atom:
        a, b = builder.convert(a, elem), builder.convert(b, elem)
        out = builder.select(builder.convert(p, bool_), a, b)
        if elem == i64 and context.is_nonneg(a) and context.is_nonneg(b):
            context.current().nonneg.add(out)                                        # type: ignore[arg-type]
        return out
    return Tracer(elementwise(choose, [c.atom, *atoms], "pa.where"), weak=all(weak))


def logical(name: str, *args: Any) -> Any:
    """``and``, ``or``, ``xor``, ``not`` of truth values: what is not 0 is true."""
    return apply(name, *(a if isinstance(a, bool) else astype(a, bool_) for a in args))


def to_type(value: Any, t: Type, what: str) -> Atom:
    """A value coerced to a type: weak values and sizes are, other element types or ranks are errors."""
    from parray.trace.promote import can_coerce
    x = lift(value, what)
    atom = x.atom
    if atom.type.rank != t.rank:
        raise TypeMismatch(f"{what} is {x!r} where {describe(t)} is needed", builder.here())
    if atom.type.elem != t.elem:
        if not (x.weak and can_coerce(atom.type.elem, t.elem)):
            raise TypeMismatch(f"{what} is {x!r} where {describe(t)} is needed; convert with "
                               f"pa.{t.elem}(...) or .astype", builder.here())
        atom = constant(value, t.elem) if is_python_number(value) else convert(atom, t.elem)
    for a, b in zip(atom.type.shape, t.shape):
        context.unify(a, b, f"{what} must keep its shape")
    return context.fit(atom, t.shape)


def describe(t: Type) -> str:
    """A type in a message."""
    return t.elem.name + (f"[{', '.join(map(context.show, t.shape))}]" if t.shape else "")
