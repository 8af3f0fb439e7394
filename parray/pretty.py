"""Graphs as text: what `f.graph` shows, what golden tests compare and what internal errors quote.

    \\n: i64, x: f32[n].
      y: f32[n] = map n (x) \\e: f32. mul e e
      in y

Variables are named by their hints and numbered anew for every print, so equal graphs have equal texts.
"""
from __future__ import annotations

import dataclasses
import os
from typing import Any

from parray.ir import Const, Lambda, Monoid, Op, Stm, Var
from parray.soacs import Assert, Cond, Contract, Foreign, Index, Loop, Prim, Scatter, Screma, While
from parray.types import Type

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def text(lam: Lambda, locs: bool = False) -> str:
    """The lambda as text; ``locs`` adds the user's file and line to each statement."""
    printer = _Printer(locs)
    return "\n".join(printer.lam(lam, nested=False)) + "\n"


def stm_text(stm: Stm) -> str:
    """One statement as text, for messages."""
    return "\n".join(_Printer(True).stm(stm))


class _Printer:
    """Names of variables so far, and the statement forms."""

    def __init__(self, locs: bool):
        self.locs = locs
        self.names: dict[Var, str] = {}
        self.used: dict[str, int] = {}

    # --- names and types ---------------------------------------------------------------------------------------------

    def name(self, v: Var) -> str:
        if v not in self.names:
            hint = v.hint or "v"
            count = self.used.get(hint, 0)
            new = f"{hint}_{count}" if count else hint
            while count and new in self.used:
                count += 1
                new = f"{hint}_{count}"
            self.used[hint] = count + 1
            self.used.setdefault(new, 1)
            self.names[v] = new
        return self.names[v]

    def atom(self, a: Any) -> str:
        return self.name(a) if isinstance(a, Var) else repr(a) if isinstance(a, Const) else str(a)

    def atoms(self, values: Any) -> str:
        return "(" + ", ".join(self.atom(a) for a in values) + ")"

    def type(self, t: Type) -> str:
        return t.elem.name + (f"[{', '.join(self.atom(s) for s in t.shape)}]" if t.shape else "")

    def binders(self, vs: tuple[Var, ...]) -> str:
        return ", ".join(f"{self.name(v)}: {self.type(v.type)}" for v in vs)

    # --- lambdas and statements --------------------------------------------------------------------------------------

    def lam(self, lam: Lambda, nested: bool = True) -> list[str]:
        """Its lines; a short one (at most one primitive) is one line when nested."""
        head = f"\\{self.binders(lam.params)}."
        if nested and not lam.stms:
            return [f"{head} {', '.join(map(self.atom, lam.results))}"]
        if nested and len(lam.stms) == 1 and isinstance(lam.stms[0].op, Prim) and lam.results == lam.stms[0].vars:
            return [f"{head} {self.op(lam.stms[0].op)[0]}"]
        lines = [head]
        for stm in lam.stms:
            lines += ["  " + line for line in self.stm(stm)]
        return lines + [f"  in {', '.join(map(self.atom, lam.results))}"]

    def stm(self, stm: Stm) -> list[str]:
        lines = self.op(stm.op)
        if stm.vars:
            lines[0] = f"{self.binders(stm.vars)} = {lines[0]}"
        if self.locs and stm.loc is not None:
            lines[0] += f"  -- {os.path.basename(stm.loc.file)}:{stm.loc.line}"
        return lines

    def block(self, head: str, parts: list[tuple[str, Lambda]]) -> list[str]:
        """A head and labelled lambdas; all on one line where there is one short lambda."""
        texts = [(label, self.lam(lam)) for label, lam in parts]
        if len(texts) == 1 and len(texts[0][1]) == 1:
            return [" ".join(filter(None, (head, texts[0][0], texts[0][1][0])))]
        lines = [head]
        for label, body in texts:
            body = [f"{label} {body[0]}".strip(), *body[1:]]
            lines += ["  " + line for line in body]
        return lines

    def monoid(self, label: str, m: Monoid) -> tuple[str, Lambda]:
        return (f"{label}{'_comm' if m.commutative else ''} {self.atoms(m.ne)}", m.op)

    # --- operations --------------------------------------------------------------------------------------------------

    def op(self, op: Op) -> list[str]:
        match op:
            case Prim(prim="convert" | "bitcast"):
                return [f"{op.prim} {self.atom(op.args[0])} to {op.elem}"]
            case Prim():
                return [" ".join([op.prim, *map(self.atom, op.args)])]
            case Foreign():
                return [" ".join(["foreign", op.function.name, *map(self.atom, op.args)])]
            case Index():
                inside = ", ".join(map(self.atom, op.indices))
                return [f"index{'' if op.safe else '?'} {self.atom(op.x)}[{inside}]"]
            case Assert():
                word = "guard" if op.guard else "assert"
                return [f"{word} {self.atom(op.cond)} {op.error} {op.message!r} {self.atoms(op.values)}"]
            case Contract():
                return [self.contract(op)]
            case Screma() if op.is_map:
                return self.block(f"map {self.atom(op.n)} {self.atoms(op.xs)}", [("", op.lam)])
            case Screma():
                parts = [("", op.lam)] + [self.monoid("scan", m) for m in op.scans]
                return self.block(f"screma {self.atom(op.n)} {self.atoms(op.xs)}",
                                  parts + [self.monoid("reduce", m) for m in op.reds])
            case Scatter():
                parts = [("", op.lam)] + ([self.monoid("combine", op.op)] if op.op is not None else [])
                return self.block(f"scatter {self.atom(op.n)} into {self.atoms(op.dests)} rank {op.rank} "
                                  f"{self.atoms(op.xs)}", parts)
            case Loop():
                return self.block(f"loop {self.atom(op.n)} {self.atoms(op.inits)}", [("", op.lam)])
            case While():
                return self.block(f"while {self.atoms(op.inits)}", [("cond", op.cond), ("do", op.lam)])
            case Cond():
                return self.block(f"if {self.atom(op.pred)}", [("then", op.then), ("else", op.orelse)])
        return [self.plain(op)]

    def contract(self, op: Contract) -> str:
        axes = ["".join(_LETTERS[a] if a < 26 else f"({a})" for a in axes)
                for axes in (op.x_axes, op.y_axes, op.out_axes)]
        return f"contract {self.atom(op.x)} {self.atom(op.y)} {axes[0]},{axes[1]}->{axes[2]}"

    def plain(self, op: Op) -> str:
        """Name and fields in order."""
        def show(value: Any) -> str:
            return self.atoms(value) if isinstance(value, tuple) else self.atom(value)
        return " ".join([op.name, *(show(getattr(op, f.name)) for f in dataclasses.fields(op))])  # type: ignore
