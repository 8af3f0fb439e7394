"""`f.explain` and `f.profile`: a program in words and tables.

    what it takes        inputs, sizes that were made one and why
    what the passes did  operations after each of them; loops that were fused, and why others were not
    what runs            kernels with the user's lines, operations, bytes, iterations side by side; memory
    how fast it was      (profile) each kernel's time, and which share of what the machine can do that is
"""
from __future__ import annotations

import statistics
import time
from collections import Counter
from typing import Any, Sequence

from parray import fuse, pipeline
from parray.api import machine
from parray.api.picture import svg
from parray.api.report import Report, Section, duration, quantity
from parray.backends.launches import Launches, split
from parray.cost import Cost, Meter
from parray.errors import BackendError, Loc, user_location
from parray.ir import Lambda, Var, each_op
from parray.kernels import KernelProgram, Ref
from parray.program import Program
from parray.types import f32, f64

SECONDS = 0.3                                    # that profiling takes
Stages = Sequence[tuple[str, Lambda]]


def place(loc: Loc | None) -> str:
    """File and line, short."""
    return f"{loc.file.rsplit('/', 1)[-1]}:{loc.line}" if loc else ""


def explain(program: Program, leaves: Sequence[Any]) -> Report:
    """The report on a program for arguments of these sizes, as the CPU backend runs it."""
    stages = pipeline.stages(program.lam)
    kernels = _lowered(program, stages)
    launches = split(kernels)
    meter = _meter(kernels, program, leaves)
    costs = [meter.measure(c.stms, c.around) for c in launches.listing]
    sections = [_inputs(program), _passes(stages), _loops(stages), _kernels(launches, costs),
                _memory(kernels, launches, meter)]
    sections.append(Section("graph, after all passes", picture=svg(stages[-1][1])))
    return Report(sections if sections[-1].picture else sections[:-1])


def profile(program: Program, run: Any, leaves: Sequence[Any]) -> Report:
    """Run the program for a while; its kernels' times and shares of the machine's limits."""
    if not hasattr(run, "timed"):
        raise BackendError("only the CPU backend has kernels to profile: give backend='cpu'", user_location())
    sizes = program.bind(leaves)
    given = [*leaves, *program.captured()]
    runs: list[tuple[list[int], int]] = []
    whole: list[int] = []
    end = time.perf_counter() + SECONDS
    run.timed(sizes, given)
    threads = run.threads(sizes)
    meter = _meter(run.program, program, leaves, threads)
    costs = [meter.measure(c.stms, c.around) for c in run.launches.listing]
    while len(runs) < 3 or time.perf_counter() < end:
        start = time.perf_counter_ns()
        run(sizes, given)
        whole.append(time.perf_counter_ns() - start)
        runs.append(run.timed(sizes, given))
    times = [statistics.median(column) for column in zip(*(r[0] for r in runs))]
    waiting = statistics.median(r[1] for r in runs)
    head = Section(f"{program.name}: {duration(statistics.median(whole))} a call on {threads} thread"
                   f"{'s' * (threads > 1)}, median of {len(runs)}",
                   [f"kernels {duration(sum(times))}, threads waiting for each other {duration(waiting)}",
                    f"the machine: {quantity(machine.flops(f32) * threads)}FLOP/s in f32, "
                    f"{quantity(machine.flops(f64) * threads)}FLOP/s in f64, "
                    f"{quantity(machine.bandwidth(1 << 30, threads), 'B')}/s of memory"])
    return Report([head, _kernels(run.launches, costs, times, threads)])


# --- sections --------------------------------------------------------------------------------------------------------

def _inputs(program: Program) -> Section:
    hints = Counter(v.hint or "n" for v in program.sizes)
    sizes = {v: v.hint if v.hint and hints[v.hint] == 1 else f"{v.hint or 'n'}{k}" for k, v in enumerate(program.sizes)}
    lines = []
    for i in program.inputs:
        dims = ", ".join(sizes[d] if isinstance(d, Var) else str(d) for d in i.dims)
        lines.append(f"{i.name}: {i.elem}[{dims}]" if i.dims else f"{i.name}: {i.elem}")
    for key, reasons in program.reasons.items():
        name = sizes[key] if isinstance(key, Var) else f"dimension {key[1]} of {program.inputs[key[0]].name}"
        lines += [f"{name}: {r.text}" + (f" ({place(r.loc)})" if r.loc else "") for r in reasons]
    if program.captures:
        lines.append(f"captured: {', '.join(f'{a.dtype}{list(a.shape)}' for a in program.captures)}")
    return Section(f"{program.name}" + (f", at {program.loc}" if program.loc else ""), lines)


def _passes(stages: Stages) -> Section:
    summaries = {p.name: p.summary for p in pipeline.PASSES}
    rows: list[tuple[str, ...]] = []
    last = ""
    for stage, lam in stages:
        counts = Counter(op.name for op in each_op(lam))
        found = ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "nothing"
        if found != last:
            rows.append((stage, found, summaries.get(stage, "what was written")))
        last = found
    return Section("operations after the passes that changed them", [], ("pass", "operations", "what it does"), rows)


def _loops(stages: Stages) -> Section:
    """Fusion's decisions: the pass runs once more, writing them down."""
    before = dict(stages)["resimplify"]
    log: list[fuse.Decision] = []
    fuse.fuse(before, log)
    rows: list[tuple[str, ...]] = [(d.first, place(d.first_loc), d.second, place(d.second_loc),
                                    d.obstacle or "one loop") for d in log]
    return Section("neighbouring loops", [] if rows else ["none"],
                   ("first", "at", "second", "at", "what became of them") if rows else (), list(dict.fromkeys(rows)))


def _kernels(launches: Launches, costs: Sequence[Cost], times: Sequence[float] = (), threads: int = 1) -> Section:
    rows: list[tuple[str, ...]] = []
    total = sum(times) or 1.0
    for k, (call, cost) in enumerate(zip(launches.listing, costs)):
        least = "" if cost.exact else "≥ "
        row: tuple[str, ...] = (str(call.kernel), call.what, place(call.loc), quantity(cost.extent),
                                least + quantity(cost.flops), least + quantity(cost.nbytes, "B"))
        if times:
            row += (duration(times[k]), f"{100 * times[k] / total:.0f} %", _share(cost, times[k], threads, call.stms))
        rows.append(row)
    header: tuple[str, ...] = ("kernel", "what", "at", "side by side", "operations", "bytes")
    if times:
        header += ("time", "of all", "of the limit")
    calls = f"{len(launches.listing)} call{'s' * (len(launches.listing) != 1)} of {len(launches.kernels)} kernel" \
            f"{'s' * (len(launches.kernels) != 1)}"
    return Section(f"kernels: {calls}", [], header, rows)


def _share(cost: Cost, ns: float, threads: int, stms: Sequence[Any]) -> str:
    """Which share of the time the machine needs at least, and for what."""
    if not ns or not cost.flops and not cost.nbytes:
        return ""
    threads = max(1, min(threads, cost.extent))
    compute = cost.flops / (machine.flops(f32 if cost.narrow else f64) * threads)
    memory = cost.nbytes / machine.bandwidth(cost.nbytes, threads)
    return f"{100 * max(compute, memory) / (ns * 1e-9):.0f} % {'operations' if compute > memory else 'bytes'}"


def _memory(kernels: KernelProgram, launches: Launches, meter: Meter) -> Section:
    lines = []
    places = launches.memory
    shared = sum(len(s.bufs) for s in places)
    sizes = [meter.value(s.nbytes) for s in places]
    if places:
        lines.append(f"{shared} temporar{'y' if shared == 1 else 'ies'} in {len(places)} "
                     f"place{'s' * (len(places) != 1)}, {quantity(sum(int(s or 0) for s in sizes), 'B')} on one thread")
    grown = [r for r in kernels.results if r.kept]
    if grown:
        lines.append(f"{len(grown)} result{'s' * (len(grown) != 1)} of a size that the program finds out")
    return Section("memory", lines or ["arguments and results alone"])


# --- helpers ---------------------------------------------------------------------------------------------------------

def _lowered(program: Program, stages: Stages) -> KernelProgram:
    from parray.backends import cpu
    from parray.lower import lower
    return lower(stages[-1][1], len(program.sizes), program.name, cpu.vector_bytes())


def _meter(kernels: KernelProgram, program: Program, leaves: Sequence[Any], threads: int = 1) -> Meter:
    """A meter that knows the sizes and scalars of a call."""
    env: dict[str, Any] = dict(zip(kernels.sizes, program.bind(leaves)), threads=threads)
    for p, leaf in zip(kernels.params, leaves):
        if isinstance(p, Ref):
            env[p.name] = leaf
    return Meter(env)
