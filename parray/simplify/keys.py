"""Keys of operations: equal exactly when two operations do the same to the same operands.

A key is a nested tuple; variables bound inside are numbered in order, so lambdas are equal up to the names of their
variables, and free variables stand for themselves.  Operands of commutative primitives are put in order.
"""
from __future__ import annotations

from typing import Any

from parray.ir import Const, Lambda, Monoid, Op, Var, field_names
from parray.soacs import Prim
from parray.types import ScalarType, Type


def op_key(op: Op) -> Any:
    """The key of an operation."""
    return _op(op, {})


def _op(op: Op, names: dict[Var, Any]) -> Any:
    if isinstance(op, Prim):
        args = tuple(_value(a, names) for a in op.args)
        if op.row.commutative and repr(args[1]) < repr(args[0]):
            args = (args[1], args[0])
        return ("prim", op.prim, op.elem.name, args)
    return (op.name, *(_value(getattr(op, name), names) for name in field_names(type(op))))


def _value(value: Any, names: dict[Var, Any]) -> Any:
    if isinstance(value, Var):
        return names.get(value, value)
    if isinstance(value, Const):
        return ("const", value.elem.name, value.bits)
    if isinstance(value, tuple):
        return tuple(_value(v, names) for v in value)
    if isinstance(value, Lambda):
        return lambda_key(value, names)
    if isinstance(value, Monoid):
        return ("monoid", _value(value.op, names), _value(value.ne, names), value.commutative)
    if isinstance(value, ScalarType):
        return value.name
    return value


def lambda_key(lam: Lambda, names: dict[Var, Any] | None = None) -> Any:
    """The key of a lambda; ``names`` holds numbers of variables bound around it."""
    names = {} if names is None else names

    def bind(v: Var) -> Any:
        names[v] = ("bound", len(names))
        return _type(v.type, names)

    params = tuple(bind(p) for p in lam.params)
    stms = []
    for stm in lam.stms:
        key = _op(stm.op, names)
        stms.append((key, tuple(bind(v) for v in stm.vars)))
    return ("lambda", params, tuple(stms), tuple(_value(r, names) for r in lam.results))


def _type(t: Type, names: dict[Var, Any]) -> Any:
    return (t.elem.name, tuple(names.get(s, s) if isinstance(s, Var) else s for s in t.shape))
