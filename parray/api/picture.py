"""Graphs as pictures: DOT text, and SVG where graphviz is installed (``pip install graphviz`` and its ``dot``)."""
from __future__ import annotations

import os

from parray.fuse import described
from parray.ir import Lambda, Var, free_vars


def dot(lam: Lambda) -> str:
    """The statements outside of any lambda, and which needs which, in graphviz's language."""
    lines = ["digraph {", '  node [shape=box, fontname="monospace", fontsize=10]', "  edge [fontsize=8]"]
    made: dict[Var, str] = {}

    def node(name: str, label: str, shape: str = "box") -> None:
        text = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'  {name} [label="{text}", shape={shape}]')
    used = {v for stm in lam.stms for v in free_vars(stm.op)} | {r for r in lam.results if isinstance(r, Var)}
    for k, p in enumerate(lam.params):
        if p in used and not (p.type.is_scalar and p.hint == "n"):
            made[p] = f"p{k}"
            node(made[p], f"{p.hint or 'v'}\n{_type(p)}", "ellipse")
    for k, stm in enumerate(lam.stms):
        if not stm.vars or not any(v in used for v in stm.vars) or all(v.type.is_scalar for v in stm.vars) and \
                stm.op.name == "prim" and not any(v in lam.results for v in stm.vars):
            continue
        name = f"s{k}"
        where = f"\n{os.path.basename(stm.loc.file)}:{stm.loc.line}" if stm.loc else ""
        node(name, f"{described(stm.op)}{where}")
        for v in dict.fromkeys(free_vars(stm.op)):
            if v in made:
                lines.append(f'  {made[v]} -> {name} [label="{_type(v)}"]')
        made.update(dict.fromkeys(stm.vars, name))
    for k, r in enumerate(lam.results):
        node(f"r{k}", f"result {k}" if len(lam.results) > 1 else "result", "ellipse")
        if isinstance(r, Var) and r in made:
            lines.append(f'  {made[r]} -> r{k} [label="{_type(r)}"]')
    return "\n".join([*lines, "}", ""])


def _type(v: Var) -> str:
    return v.type.elem.name + (f"[{', '.join(str(s) if isinstance(s, int) else s.hint or '?' for s in v.type.shape)}]"
                               if v.type.shape else "")


def svg(lam: Lambda) -> str:
    """The picture, or '' where graphviz is not installed."""
    try:
        import graphviz
        return str(graphviz.Source(dot(lam)).pipe("svg", encoding="utf-8"))
    except ImportError:
        return ""
    except graphviz.ExecutableNotFound:
        return ""
