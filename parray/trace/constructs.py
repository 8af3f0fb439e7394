"""What in the user's source asked for a value that is not known while tracing, and what to write instead.

A traced value is asked for its truth by ``if``, ``while``, ``and``, ``max()``, ``in`` ... alike.  The instruction that
asked lies at an expression of the source; where that expression stands in the syntax tree says which of them it was.
"""
from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from typing import Any

from parray import builder
from parray.errors import Loc, ParrayError, TraceError, TypeMismatch

_GENERAL = "use pa.cond or pa.where instead of if, pa.while_loop instead of while, & | ~ instead of and, or, not"
_STORE = "return it from the function; pa.update(xs, i, v) gives a changed copy of a traced array"
_CALLS = {"max": "pa.max(a, b), or pa.max(xs) of an array", "min": "pa.min(a, b), or pa.min(xs) of an array",
          "sorted": "pa.sort(xs)", "any": "pa.any(xs)", "all": "pa.all(xs)", "sum": "pa.sum(xs)",
          "map": "pa.map(f, xs)", "filter": "pa.filter(p, xs)", "zip": "several arrays: pa.map(f, xs, ys)",
          "reversed": "pa.reverse(xs)", "list": "the array itself", "tuple": "the array itself",
          "enumerate": "pa.map(f, pa.iota(n), xs)", "abs": "pa.abs(x)", "round": "pa.round(x)", "pow": "pa.pow(x, y)"}
_MATH = {"fabs": "abs", "tgamma": "gamma", "pow": "pow", "ceil": "ceil", "floor": "floor"}


def _node(loc: Loc | None) -> tuple[Any, Any] | None:
    """The expression or statement at a place in the source and the node around it."""
    if loc is None or loc.at is None:
        return None
    code, instruction = loc.at
    where = list(code.co_positions())[instruction // 2]
    try:
        module = ast.parse("".join(linecache.getlines(loc.file)))
    except (SyntaxError, ValueError):
        return None
    for parent in ast.walk(module):
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, (ast.expr, ast.stmt)) and \
                    (child.lineno, child.end_lineno, child.col_offset, child.end_col_offset) == where:
                return child, parent
    return None


def _called(node: Any) -> str:
    """The name of a called function, with its module's."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def truth(loc: Loc | None) -> tuple[str, str]:
    """What asked for a truth value, and what to write."""
    child, parent = _node(loc) or (None, None)
    if isinstance(child, ast.Call) and _called(child) in _CALLS:
        return f"{_called(child)}()", f"use {_CALLS[_called(child)]}"
    if isinstance(child, ast.Call) and _called(child) == "bool":
        return "bool()", "convert with pa.bool_(x)"
    if isinstance(child, ast.BoolOp) or isinstance(parent, ast.BoolOp):
        both: Any = child if isinstance(child, ast.BoolOp) else parent
        word = "and" if isinstance(both.op, ast.And) else "or"
        return f"`{word}`", f"write (a) {'&' if word == 'and' else '|'} (b), with the parentheses"
    if isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not):
        return "`not`", "write ~a"
    if isinstance(child, ast.Compare) and len(child.ops) > 1:
        return "a chain of comparisons", "write (a < b) & (b < c)"
    if isinstance(child, ast.Compare) and isinstance(child.ops[0], (ast.In, ast.NotIn)):
        return "`in`", "use pa.any(xs == value)"
    match child if isinstance(child, ast.stmt) else parent:
        case ast.If() | ast.IfExp():
            return "`if`", "use pa.cond(test, lambda: a, lambda: b), or pa.where(test, a, b), which computes both"
        case ast.While():
            return "`while`", "use pa.while_loop(test, body, init)"
        case ast.Assert():
            return "`assert`", "use pa.assert_(test, message)"
        case ast.comprehension():
            return "`if`", "use pa.filter(p, xs)"
        case _:
            return "", _GENERAL


def number(kind: str, loc: Loc | None) -> tuple[str, str]:
    """What asked for a Python number, and what to write."""
    child, parent = _node(loc) or (None, None)
    if isinstance(child, ast.Subscript) and isinstance(parent, (ast.Assign, ast.AugAssign)):
        return "storing it in an array of NumPy's", _STORE
    module, _, name = _called(child).rpartition(".")
    if module == "math":
        from parray.prims import TABLE
        name = _MATH.get(name, name)
        return f"math.{name}()", f"use pa.{name}" if name in TABLE else "use the functions of pa"
    if module in ("np", "numpy", "np.random", "numpy.random"):
        return f"{module}.{name}()", f"use pa.{name}" if hasattr(_package(), name) else "use the functions of pa"
    return f"{kind}()", f"convert with pa.{'i64' if kind == 'int' else 'f64'}(x) or x.astype"


def size(loc: Loc | None) -> tuple[str, str]:
    """What asked for the number in a size, which is one already."""
    return "int() or float()", "leave it out: a size is a number, and arithmetic on it is arithmetic on sizes"


def index(loc: Loc | None) -> tuple[str, str]:
    """What asked for a Python index, and what to write."""
    child, _ = _node(loc) or (None, None)
    module, _, name = _called(child).rpartition(".")
    if name == "range":
        return "range()", "use pa.iota(n) as an array of indices, pa.loop(n, body, init) for a loop"
    if module in ("np", "numpy") and hasattr(_package(), name):
        return f"{module}.{name}()", f"use pa.{name}"
    if isinstance(child, ast.Subscript):
        return "an index of a Python list", "np.stack makes an array of a list, and that can be indexed"
    return "a Python index", "use pa.loop, pa.iota or pa.tabulate"


def iteration(loc: Loc | None) -> tuple[str, str]:
    """What iterated, and what to write."""
    child, parent = _node(loc) or (None, None)
    if isinstance(child, ast.Call) and _called(child) in _CALLS:
        return f"{_called(child)}()", f"use {_CALLS[_called(child)]}"
    if isinstance(parent, ast.For) or isinstance(child, ast.For):
        return "`for`", "use pa.map(f, xs), or pa.foldl(f, init, xs) where each step needs the one before"
    if isinstance(parent, ast.comprehension):
        return "a comprehension", "use pa.map(f, xs)"
    if isinstance(parent, ast.Starred) or isinstance(child, ast.Starred):
        return "`*`", "pass the array itself"
    return "iteration", "use pa.map, pa.reduce, pa.scan, pa.foldl or pa.loop"


def translated(error: Exception) -> ParrayError | None:
    """Our error for one of Python's or NumPy's that the user's code met while it was traced; None where it speaks for
    itself."""
    chain: BaseException | None = error
    while chain is not None:                                    # NumPy puts errors of its own over ours
        if isinstance(chain, ParrayError):
            return chain
        chain = chain.__cause__ or chain.__context__
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    if isinstance(error, RecursionError):
        return TraceError("a function calls itself without end: what decides whether it goes on is not known while "
                          "tracing; use pa.while_loop, or pa.loop", builder.here())
    if tb is None or not isinstance(error, (TypeError, ValueError)):
        return None
    code = tb.tb_frame.f_code
    loc = Loc(code.co_filename, tb.tb_lineno, code.co_name, (code, tb.tb_lasti))
    wrong = re.match(r"(\w+)\(\) (missing .*|takes .*|got .*)", str(error))
    function = getattr(_package(), wrong[1], None) if wrong else None
    if wrong and callable(function):
        signature = _signature(function)
        hint = "; ne is the neutral element, op(ne, x) == x" if "(op, ne," in signature else ""
        return TypeMismatch(f"pa.{wrong[1]}{signature}: {wrong[2]}{hint}", loc)
    child, parent = _node(loc) or (None, None)
    if "traced " in str(error) and _called(child):              # np.zeros(x.shape[0])
        asked, hint = index(loc)
        return TraceError(f"the number in a traced value is not known while tracing, and {asked} asks for it: {hint}",
                          loc)
    if isinstance(child, ast.Subscript) and isinstance(parent, (ast.Assign, ast.AugAssign)):
        return TraceError(f"a traced value cannot be stored in an array of NumPy's: {_STORE}", loc)
    return None


def form(what: str) -> str:
    """How the function of ours that ``what`` names is called, to be added to a message about its arguments."""
    named = re.search(r"\bpa\.([\w.]+)", what)
    function: Any = _package()
    for part in named[1].split(".") if named else ():
        function = getattr(function, part, None)
    return f"; it is pa.{named[1]}{_signature(function)}" if named and inspect.isfunction(function) else ""


def _signature(function: Any) -> str:
    return "(" + ", ".join(("*" if p.kind is p.VAR_POSITIONAL else "") + p.name +
                           ("" if p.default is p.empty else f"={p.default!r}")
                           for p in inspect.signature(function).parameters.values()) + ")"


def _package() -> Any:
    return sys.modules["parray"]
