"""`f.explain`: a program in words: its inputs, the sizes it unified and why, and its operations stage by stage."""
from __future__ import annotations

from collections import Counter
from typing import Sequence

from parray.ir import Lambda, Var, each_op
from parray.program import Program


def explain(program: Program, stages: Sequence[tuple[str, Lambda]]) -> str:
    """The text."""
    sizes = {v: f"n{k}" for k, v in enumerate(program.sizes)}
    lines = [f"{program.name}" + (f", at {program.loc}" if program.loc else "")]
    for i in program.inputs:
        dims = ", ".join(sizes[d] if isinstance(d, Var) else str(d) for d in i.dims)
        lines.append(f"  {i.name}: {i.elem}[{dims}]" if i.dims else f"  {i.name}: {i.elem}")
    for key, reasons in program.reasons.items():
        name = sizes[key] if isinstance(key, Var) else f"dimension {key[1]} of {program.inputs[key[0]].name}"
        lines += [f"  {name}: {r.text}" + (f" ({r.loc})" if r.loc else "") for r in reasons]
    if program.captures:
        lines.append(f"  captured: {', '.join(f'{a.dtype}{list(a.shape)}' for a in program.captures)}")
    for stage, lam in stages:
        counts = Counter(op.name for op in each_op(lam))
        lines.append(f"{stage}: " + (", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "nothing"))
    return "\n".join(lines) + "\n"
