"""Kernel code -> Python source that numba compiles; shared by the CPU and CUDA backends.

Both targets read the same text for scalar code; names such as ``fmax`` or ``floordiv_i`` are bound to each target's
own helpers.  Floats are written with plain operators (numba keeps f32 with f32 in f32); integers go through helpers
that keep their width, because numba would widen them.
"""
from __future__ import annotations

import math
from typing import Any

from parray.kernels import Apply, Assign, Check, Expr, For, If, Let, Lit, Load, Ref, Store, While
from parray.types import ScalarType, f16, f32, f64, i64

# Functions from numba, whose results are cast because f32 may have become f64.
_MATH = {n: f"math.{n}" for n in ("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc",
                                  "atan2", "hypot", "gamma", "lgamma")}
# Functions of each target, in the operand's own type.
_UNARY = {"round": "rint_", "abs": "fabs_"} | {
    n: f"{n}_" for n in ("sqrt", "floor", "ceil", "trunc", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
                         "tanh", "erf", "sin", "cos", "cbrt")}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGIC = {"and": "&", "or": "|", "xor": "^"}


def elem_name(t: ScalarType) -> str:
    """What generated source calls an element type."""
    return "boolean" if t.is_bool else t.name


def scalar_name(t: ScalarType) -> str:
    """The type of a value in a register: half precision is computed in f32 and rounded after every operation."""
    return "f32" if t == f16 else elem_name(t)


def typed(text: str, t: ScalarType) -> str:
    """A number of any type as one of type ``t``; truth values are what they are."""
    return text if t.is_bool else f"{t.name}({text})"


def storage_name(t: ScalarType) -> str:
    """The type of an element in memory."""
    return "half" if t == f16 else elem_name(t)


def literal(value: Any, t: ScalarType) -> str:
    """A constant as source text."""
    if t == f16:
        return literal(value, f32)
    if t.is_bool:
        return "True" if value else "False"
    if t.is_integer:
        return str(int(value)) if t == i64 else f"{t.name}({int(value)})"
    x = float(value)
    text = "nan" if math.isnan(x) else ("inf" if x > 0 else "-inf") if math.isinf(x) else repr(x)
    return text if t == f64 and text[0] not in "ni-" else f"{t.name}({text})"


def expr(e: Expr) -> str:
    """The expression as source text."""
    match e:
        case Lit(value=value, elem=elem):
            return literal(value, elem)
        case Ref(name=name):
            return name
        case Load(buf=buf, index=index):
            return f"{buf.name}[{index_text(index)}]"
        case Apply():
            return _apply(e)


def index_text(e: Expr) -> str:
    """An i64 expression without the outermost parentheses."""
    text = expr(e)
    return text[1:-1] if text.startswith("(") and _matched(text) else text


def _matched(text: str) -> bool:
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return k == len(text) - 1
    return False


def _apply(e: Apply) -> str:
    args = [expr(a) for a in e.args]
    t = e.args[0].elem
    if e.prim == "convert":
        return _convert(args[0], t, e.elem)
    if e.prim == "bitcast":
        return _bitcast(args[0], t, e.elem)
    if e.prim == "select":
        return f"select({', '.join(args)})"
    if e.prim in _COMPARE:
        if t.is_bool and e.prim not in ("eq", "ne"):
            args = [f"u8({a})" for a in args]
        return f"({args[0]} {_COMPARE[e.prim]} {args[1]})"
    if t.is_bool:
        return _bool(e.prim, args)
    return _float(e, args, t) if t.is_float else _integer(e.prim, args, t)


def _convert(x: str, source: ScalarType, to: ScalarType) -> str:
    if to.is_bool:
        return f"({x} != {literal(0, source)})"
    if to.is_float:
        return f"{to.name}({x})"
    if source.is_float:
        return f"float_to_int({x}, {to.name}, {_limits(to)})"
    return f"{to.name}({x})"


def _bitcast(x: str, source: ScalarType, to: ScalarType) -> str:
    if source == to:
        return x
    if f16 in (source, to):                                     # half precision is f32 in a register
        return f"half_of_bits({x})" if to == f16 else f"bits_of_half({x}, {to.name})"
    return f"bitcast_({x}, {to.name})"


def _limits(t: ScalarType) -> str:
    low, high = (-(1 << t.bits - 1), (1 << t.bits - 1) - 1) if t.kind == "i" else (0, (1 << t.bits) - 1)
    return f"{t.name}({low}), {t.name}({high})"


def _bool(prim: str, args: list[str]) -> str:
    if prim == "not":
        return f"(not {args[0]})"
    symbol = _LOGIC.get(prim) or {"max": "|", "min": "&"}[prim]
    return f"({args[0]} {symbol} {args[1]})"


_EXACT_IN_HALF = {"neg", "abs", "max", "min", "sign", "isnan", "isinf", "isfinite", "floor", "ceil", "trunc", "round",
                  "copysign"}


def _float(e: Apply, args: list[str], t: ScalarType) -> str:
    if t == f16:
        text = _float(e, args, f32)
        return text if e.prim in _EXACT_IN_HALF else f"f16({text})"
    match e.prim:
        case "add" | "mul" if e.sum:
            return f"{'sum_' if e.prim == 'add' else 'product_'}({args[0]}, {args[1]})"
        case "add" | "sub" | "mul" | "div":
            return f"({args[0]} {dict(add='+', sub='-', mul='*', div='/')[e.prim]} {args[1]})"
        case "neg":
            return f"(-{args[0]})"
        case "max" | "min":
            return f"f{e.prim}({args[0]}, {args[1]})"
        case "rsqrt":
            return f"({literal(1, t)} / sqrt_({args[0]}))"
        case "sign":
            return f"sign_f({args[0]})"
        case "isnan":
            return f"({args[0]} != {args[0]})"
        case "isinf":
            return f"(fabs_({args[0]}) == {literal(math.inf, t)})"
        case "isfinite":
            return f"(fabs_({args[0]}) < {literal(math.inf, t)})"
        case "floordiv" | "mod" | "fmod" | "pow":
            return f"{e.prim}_f({args[0]}, {args[1]})"
        case "digamma":
            return f"{t.name}(digamma_(f64({args[0]})))"
        case "copysign" | "fma":
            return f"{e.prim}_({', '.join(args)})"
    if e.prim in _UNARY:
        return f"{_UNARY[e.prim]}({args[0]})"
    return f"{t.name}({_MATH[e.prim]}({', '.join(args)}))"


def _integer(prim: str, args: list[str], t: ScalarType) -> str:
    wide = t == i64
    match prim:
        case "add" | "sub" | "mul":
            return f"({args[0]} {dict(add='+', sub='-', mul='*')[prim]} {args[1]})" if wide else \
                f"{prim}_({args[0]}, {args[1]})"
        case "neg":
            return f"neg_({args[0]})"
        case "abs":
            return f"abs_i({args[0]})" if t.kind == "i" else args[0]
        case "sign":
            return f"sign_i({args[0]})"
        case "floordiv" | "mod" | "pow":
            return f"{prim}_{t.kind}({args[0]}, {args[1]})"
        case "quot" | "fmod":
            base = {"quot": "floordiv", "fmod": "mod"}[prim] if t.kind == "u" else prim
            return f"{base}_{t.kind}({args[0]}, {args[1]})"
        case "max" | "min":
            return f"{prim}_i({args[0]}, {args[1]})"
        case "not":
            return f"invert_({args[0]})"
        case "popcount" | "clz" | "ctz":
            return f"{prim}_({args[0]})"
        case "and" | "or" | "xor":
            return f"{prim}_({args[0]}, {args[1]})"
        case "shl":
            return f"shl_({args[0]}, {args[1]}, {t.bits})"
        case "shr":
            return f"shr_({args[0]}, {args[1]}, {t.bits}, {t.kind == 'i'})"
    raise AssertionError(f"no source for {prim} on {t}")


class Writer:
    """Lines of source at a current depth; statements common to all targets."""

    def __init__(self, depth: int = 1):
        self.lines: list[str] = []
        self.depth = depth

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def nested(self, head: str, body: Any) -> None:
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        self.stms(body)
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def stms(self, body: Any) -> None:
        for s in body:
            self.stm(s)

    def stm(self, s: Any) -> None:
        """One statement; targets override for the ones of their own."""
        match s:
            case Let(name=name, value=value) | Assign(name=name, value=value):
                self.line(f"{name} = {index_text(value)}")
            case Store(buf=buf, index=index, value=value):
                self.line(f"{buf.name}[{index_text(index)}] = {index_text(value)}")
            case Check(bad=bad, code=code):
                self.line(f"failure = select({expr(bad)}, {code}, failure)")
            case For(var=var, n=n, body=body):
                self.nested(f"for {var} in range({index_text(n)}):", body)
            case If(cond=cond, then=then, orelse=orelse):
                self.nested(f"if {index_text(cond)}:", then)
                if orelse:
                    self.nested("else:", orelse)
            case While(test=test, cond=cond, body=body):
                self.line("while True:")
                self.depth += 1
                self.stms(test)
                self.line(f"if not {expr(cond)}:")
                self.line("    break")
                self.stms(body)
                self.depth -= 1
            case _:
                raise AssertionError(f"no source for {type(s).__name__}")
