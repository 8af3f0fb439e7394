"""Rules of scalar primitives.  Every law holds bit for bit in IEEE arithmetic, NaN and signed zeros included."""
from __future__ import annotations

from typing import Any, Sequence

from parray.errors import ParrayError
from parray.ir import Atom, Const, Op
from parray.prims import neutral_element
from parray.simplify.engine import Simplifier, const_like, rule
from parray.soacs import Prim
from parray.types import ScalarType, bool_, i64


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def _is(a: Atom, value: Any) -> bool:
    return isinstance(a, Const) and bool(a.value == value)


def _operand(s: Simplifier, a: Atom, prim: str) -> Prim | None:
    """The primitive operation ``a`` is the result of, if it is ``prim``."""
    made = s.producer(a)
    return made if isinstance(made, Prim) and made.prim == prim else None


@rule(Prim)
def constant(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """prim c1 c2 ..  =>  c"""
    if not all(isinstance(a, Const) for a in op.args):
        return None
    try:
        return [op.fold()]
    except ParrayError:
        return None


@rule(Prim)
def neutral(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """x * 1, x / 1, x ** 1, x - 0, max x -inf, and x True, ..  =>  x;  also x + 0 of integers, x + -0.0 of floats"""
    if len(op.args) != 2:
        return None
    x, y = op.args
    if op.prim in ("mul", "max", "min", "and", "or", "xor") or (op.prim == "add" and op.elem.is_integer):
        ne = neutral_element(op.prim, op.elem)
        for a, b in ((x, y), (y, x)):
            if ne is not None and _is(b, ne):
                return [a]
    if op.prim == "add":
        minus_zero = const_like(x, -0.0)
        return [x] if y == minus_zero else [y] if x == minus_zero else None
    if op.prim == "sub" and y == const_like(y, 0):
        return [x]
    unit = op.prim in ("div", "pow") or (op.prim in ("floordiv", "quot") and op.elem.is_integer)
    return [x] if unit and _is(y, 1) else None


@rule(Prim)
def absorbing(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """x * 0, x & 0  =>  0 of integers;  x & False  =>  False;  x | True  =>  True"""
    if len(op.args) != 2 or op.elem.is_float or op.prim not in ("mul", "and", "or"):
        return None
    absorber: Any = op.elem.is_bool if op.prim == "or" else 0
    if op.prim == "or" and not op.elem.is_bool:
        return None
    return [const_like(op.args[0], absorber)] if any(_is(a, absorber) for a in op.args) else None


@rule(Prim)
def same_operands(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """max x x, min x x, x & x, x | x  =>  x;  of integers  x - x, x ^ x  =>  0,  x == x  =>  True .."""
    if len(op.args) != 2 or op.args[0] != op.args[1]:
        return None
    x = op.args[0]
    if op.prim in ("max", "min", "and", "or"):
        return [x]
    if x.type.elem.is_float:
        return None
    if op.prim in ("sub", "xor"):
        return [const_like(x, 0)]
    if op.prim in ("eq", "le", "ge"):
        return [Const(True, bool_)]
    return [Const(False, bool_)] if op.prim in ("ne", "lt", "gt") else None


@rule(Prim)
def involution(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """neg (neg x)  =>  x;  not (not x)  =>  x"""
    if op.prim not in ("neg", "not"):
        return None
    inner = _operand(s, op.args[0], op.prim)
    return [inner.args[0]] if inner is not None else None


@rule(Prim)
def negated_comparison(op: Prim, s: Simplifier) -> Op | None:
    """not (x == y)  =>  x != y;  of integers  not (x < y)  =>  x >= y .."""
    inner = s.producer(op.args[0]) if op.prim == "not" else None
    if not isinstance(inner, Prim) or not op.elem.is_bool:
        return None
    exact = inner.prim in ("eq", "ne") or not inner.args[0].type.elem.is_float        # of NaN both < and >= are false
    return Prim.of(_OPPOSITE[inner.prim], inner.args) if exact and inner.prim in _OPPOSITE else None


@rule(Prim)
def excluded_middle(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """p | not p  =>  True;  p & not p  =>  False;  likewise  x < y | x >= y  of integers"""
    if op.prim not in ("and", "or") or not op.elem.is_bool:
        return None
    for x, y in (op.args, op.args[::-1]):
        p, q = s.producer(x), s.producer(y)
        opposite = isinstance(p, Prim) and (p.prim == "not" and p.args[0] == y or isinstance(q, Prim) and
                                            p.args == q.args and _OPPOSITE.get(p.prim) == q.prim and
                                            not p.args[0].type.elem.is_float)
        if opposite:
            return [Const(op.prim == "or", bool_)]
    return None


@rule(Prim)
def added_negation(op: Prim, s: Simplifier) -> Op | None:
    """x + neg y  =>  x - y;  x - neg y  =>  x + y"""
    if op.prim not in ("add", "sub"):
        return None
    x, y = op.args
    inner = _operand(s, y, "neg")
    if inner is not None:
        return Prim.of("sub" if op.prim == "add" else "add", (x, inner.args[0]))
    inner = _operand(s, x, "neg")
    return Prim.of("sub", (y, inner.args[0])) if inner is not None and op.prim == "add" else None


@rule(Prim)
def select(op: Prim, s: Simplifier) -> Op | Sequence[Atom] | None:
    """select c x x, select True x y  =>  x;  select c True False  =>  c;  select (not c) x y  =>  select c y x"""
    if op.prim != "select":
        return None
    c, x, y = op.args
    if isinstance(c, Const):
        return [x if c.value else y]
    if x == y:
        return [x]
    if op.elem.is_bool and _is(x, True) and _is(y, False):
        return [c]
    if op.elem.is_bool and _is(x, False) and _is(y, True):
        return Prim.of("not", (c,))
    inner = _operand(s, c, "not")
    return Prim.of("select", (inner.args[0], y, x)) if inner is not None else None


@rule(Prim)
def select_of_select(op: Prim, s: Simplifier) -> Op | None:
    """select c (select c x y) z  =>  select c x z;  select c x (select c y z)  =>  select c x z"""
    if op.prim != "select":
        return None
    c, x, y = op.args
    inner = _operand(s, x, "select")
    if inner is not None and inner.args[0] == c:
        return Prim.of("select", (c, inner.args[1], y))
    inner = _operand(s, y, "select")
    return Prim.of("select", (c, x, inner.args[2])) if inner is not None and inner.args[0] == c else None


@rule(Prim)
def identity_conversion(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """convert x to its own type  =>  x"""
    return [op.args[0]] if op.prim == "convert" and op.args[0].type.elem == op.elem else None


def _widens(a: ScalarType, b: ScalarType) -> bool:
    """Whether every value of ``a`` is one of ``b``, of a kind that converts on in the same way."""
    if a.is_bool:
        return True
    if a.is_float or b.is_float:
        return a.is_float and b.is_float and a.bits <= b.bits
    if b.is_bool:
        return False
    return a.bits <= b.bits if a.kind == b.kind else a.kind == "u" and a.bits < b.bits


@rule(Prim)
def conversion_of_widening(op: Prim, s: Simplifier) -> Op | None:
    """convert (convert x to b) to c  =>  convert x to c  where b holds every value of x's type"""
    inner = _operand(s, op.args[0], "convert") if op.prim == "convert" else None
    if inner is None:
        return None
    x = inner.args[0]
    return Prim("convert", (x,), op.elem) if _widens(x.type.elem, inner.elem) else None


# --- i64 arithmetic with what is known of ranges ---------------------------------------------------------------------

@rule(Prim)
def linear_form(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """(n + k) - k  =>  n;  n - n + 2  =>  2: i64 arithmetic whose linear form is one variable or a constant"""
    if op.elem != i64 or op.prim not in ("add", "sub", "mul"):
        return None
    form = s.ranges.ring_form(op)
    if form is None:
        return None
    if not form:
        return [Const(0, i64)]
    ((v, c), *rest) = form.items()
    if rest:
        return None
    if v is None:
        return [Const((c + 2 ** 63) % 2 ** 64 - 2 ** 63, i64)]      # modulo 2**64, as arithmetic wraps
    return [v] if c == 1 else None


@rule(Prim)
def decided_comparison(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """i < 0  =>  False,  i < n  =>  True, ..  for an index i known to be in 0..n-1"""
    if op.prim not in ("lt", "le", "gt", "ge", "eq", "ne") or op.args[0].type.elem != i64:
        return None
    a, b = op.args if op.prim in ("lt", "le", "eq", "ne") else op.args[::-1]
    at_most = s.ranges.at_most
    if op.prim in ("eq", "ne"):
        apart = at_most(a, b, 1) or at_most(b, a, 1)
        return [Const(op.prim == "ne", bool_)] if apart else None
    strict = int(op.prim in ("lt", "gt"))
    if at_most(a, b, strict):
        return [Const(True, bool_)]
    return [Const(False, bool_)] if at_most(b, a, 1 - strict) else None


@rule(Prim)
def decided_extremum(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """max n 0  =>  n, min (n - 1) n  =>  n - 1, ..  for sizes and indices"""
    if op.prim not in ("max", "min") or op.elem != i64:
        return None
    for x, y in (op.args, op.args[::-1]):
        if s.ranges.at_most(x, y):
            return [x if op.prim == "min" else y]
    return None


@rule(Prim)
def small_remainder(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """i % n  =>  i,  i // n  =>  0  where 0 <= i < n"""
    if op.prim not in ("mod", "floordiv", "quot", "fmod") or op.elem != i64 or not s.ranges.in_range(*op.args):
        return None
    return [op.args[0] if op.prim in ("mod", "fmod") else Const(0, i64)]


@rule(Prim)
def unit_remainder(op: Prim, s: Simplifier) -> Sequence[Atom] | None:
    """x % 1  =>  0 of integers"""
    unit = op.prim in ("mod", "fmod") and op.elem.is_integer and _is(op.args[1], 1)
    return [const_like(op.args[0], 0)] if unit else None


RULES = (constant, neutral, absorbing, same_operands, involution, negated_comparison, added_negation, select,
         select_of_select, identity_conversion, conversion_of_widening, linear_form, decided_comparison,
         decided_extremum, small_remainder, unit_remainder)
