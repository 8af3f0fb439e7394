"""Lowering of Screma and Scatter.

Outside other loops a Screma becomes a `Par`: its iterations are shared among threads, each accumulating its own part,
and the parts are merged in order.  Inside, it is a plain loop.  Float sums run in blocks (sums of sums), so that a
million small terms keep their digits; the operator is the user's and associative, so blocks change only rounding.
Scans and scatters are done by one thread.
"""
from __future__ import annotations

from typing import Callable, Sequence

from parray import kernels as K
from parray.ir import Lambda, Monoid, Stm, Var, free_vars
from parray.kernels import ONE, Acc, Apply, Assign, Buf, Expr, For, If, Let, Lit, Par, Ref, Serial, add, mul, sub
from parray.lower.core import Lowering, combine, lower_op
from parray.lower.values import Arr, Dest, Lazy, Val, row_major
from parray.soacs import Prim, Scatter, Screma, Update
from parray.types import Type, bool_, i64

Dests = Sequence[Dest | None]
SCALAR_BLOCK = 4096                               # its sum runs in vector lanes, so a lane adds some hundreds
BLOCKS = (2048, 64)                               # of sums of arrays, and of running sums
FEW = 512


def lifted_prim(op: Lambda) -> str | None:
    """The primitive ``p`` when the operator is ``a p b``, elementwise on arrays of any rank."""
    if len(op.params) != 2 or len(op.stms) != 1 or op.results != op.stms[0].vars:
        return None
    inner = op.stms[0].op
    if isinstance(inner, Prim) and inner.args == op.params and inner.row.associative:
        return inner.prim
    if isinstance(inner, Screma) and inner.is_map and inner.xs == op.params and len(inner.lam.params) == 2:
        return lifted_prim(inner.lam)
    return None


def plain(v: Val) -> Expr:
    """A scalar value as an expression."""
    return v.load() if isinstance(v, (Arr, Lazy)) else v


# --- accumulators ----------------------------------------------------------------------------------------------------

def start(lw: Lowering, m: Monoid, into: Dests | None = None) -> list[Val]:
    """Accumulators holding the neutral element."""
    accs: list[Val] = []
    for k, ne in enumerate(m.ne):
        if ne.type.is_scalar:
            name = lw.fresh("acc")
            lw.emit(Let(name, lw.scalar(ne)))
            accs.append(Ref(name, ne.type.elem))
        else:
            arr = lw.target(ne.type, into[k] if into else None)
            lw.copy(Dest(arr), lw.val(ne))
            accs.append(arr)
    return accs


def accumulate(lw: Lowering, m: Monoid, accs: Sequence[Val], vals: Sequence[Val]) -> None:
    """``accs = op accs vals``."""
    prim = lifted_prim(m.op)
    if prim is not None:
        (acc,), (v,) = accs, vals
        if isinstance(acc, Arr):
            lw.copy(Dest(acc, prim), v)
        else:
            lw.emit(Assign(acc.name, combine(prim, acc, plain(v))))
        return
    lw.bind(m.op.params, [*accs, *vals])
    results = lw.block(m.op)
    moved: list[Val] = []
    for acc, r, t in zip(accs, results, m.op.result_types):
        if isinstance(acc, Arr):
            if r is not acc:
                fresh = lw.alloc(t)
                lw.copy(Dest(fresh), r)
                r = fresh
        elif len(accs) > 1:
            name = lw.fresh("t")
            lw.emit(Let(name, plain(r)))
            r = Ref(name, acc.elem)
        moved.append(r)
    for acc, r in zip(accs, moved):
        if isinstance(acc, Arr):
            if r is not acc:
                lw.copy(Dest(acc), r)
        else:
            lw.emit(Assign(acc.name, plain(r)))


def sums_floats(m: Monoid) -> bool:
    """Whether the operator adds floats: its sums run in blocks."""
    return lifted_prim(m.op) == "add" and m.ne[0].type.elem.is_float


def block_lengths(op: Screma) -> Sequence[int]:
    """Elements that the blocks of a float sum have, outermost first; none where no blocks are needed."""
    floats = [m for m in op.scans + op.reds if sums_floats(m)]
    if not floats or (isinstance(op.n, int) and op.n <= FEW):
        return ()
    lanes = all(ne.type.is_scalar for m in floats for ne in m.ne) and not any(m in op.scans for m in floats)
    return (SCALAR_BLOCK,) if lanes else BLOCKS


# --- Screma ----------------------------------------------------------------------------------------------------------

class Body:
    """One Screma being lowered: its outputs, and the code of an iteration for given accumulators."""

    def __init__(self, op: Screma, lw: Lowering, stm: Stm, dests: Dests):
        self.op, self.lw, self.n = op, lw, lw.size(op.n)
        self.xs = [lw.val(x) for x in op.xs]
        scans, self.red_dests, maps = op.split(list(dests))
        scan_vars, _, map_vars = op.split(stm.vars)
        self.scan_outs = [lw.target(v.type, d) for v, d in zip(scan_vars, scans)]
        self.outs = [d if d is not None else Dest(lw.alloc(v.type)) for v, d in zip(map_vars, maps)]
        self.map_dests = self.outs
        while op.is_map and self._collapse():
            pass

    def _collapse(self) -> bool:
        """map n (map m f)  as one loop over n*m, where the rows of all arrays follow each other in memory."""
        lam, lw = self.op.lam, self.lw
        inner = lam.stms[0].op if len(lam.stms) == 1 else None
        if not isinstance(inner, Screma) or not inner.is_map or lam.results != lam.stms[0].vars or \
                not isinstance(inner.n, int) and inner.n not in lw.env or not set(inner.xs) <= set(lam.params) or \
                any(p in free_vars(inner.lam) for p in lam.params):
            return False
        m = lw.size(inner.n)
        arrays = [self.xs[lam.params.index(x)] for x in inner.xs]
        arrays += [d.arr for d in self.map_dests]
        if not all(isinstance(a, Arr) and len(a.shape) >= 2 and a.strides[0] == mul(m, a.strides[1]) for a in arrays):
            return False
        self.xs = [_joined(a) for a in arrays[:len(inner.xs)]]
        self.map_dests = [Dest(_joined(d.arr), d.acc) for d in self.map_dests]
        self.op, self.n = Screma(-1, inner.xs, inner.lam), mul(self.n, m)
        return True

    def iteration(self, i: Expr, accs: list[list[Val]], bases: list[list[Val]] | None = None) -> None:
        """Element i; ``accs`` are per monoid (scans first).  ``bases``: totals of the blocks before, per scan."""
        lw, op = self.lw, self.op
        if isinstance(i, Ref):
            lw.extent[i.name] = self.n
        lw.bind(op.lam.params, [lw.element(x, i) for x in self.xs])
        dests: list[Dest | None] = [None] * op.scan_width
        for m, acc in zip(op.reds, accs[len(op.scans):]):
            prim = lifted_prim(m.op)
            dests += [Dest(a, prim) if isinstance(a, Arr) and prim else None for a in acc]
        dests += [d.at(i) for d in self.map_dests]
        groups = op.groups(lw.block(op.lam, dests))
        for k, (m, acc, vals) in enumerate(zip(op.scans + op.reds, accs, groups)):
            if k >= len(op.scans) and lifted_prim(m.op) and isinstance(acc[0], Arr):
                continue                                                # accumulated by the block itself
            accumulate(lw, m, acc, vals)
        at = 0
        for k, m in enumerate(op.scans):
            for j, a in enumerate(accs[k]):
                out = Dest(self.scan_outs[at].at(i))
                if bases is not None and bases[k]:
                    base = bases[k][j]
                    a = combine("add", base, a) if not isinstance(a, Arr) else a
                lw.copy(out, a)
                at += 1

    def loop(self, accs: list[list[Val]]) -> None:
        """All iterations, one after the other."""
        lengths = block_lengths(self.op)
        count = blocks(self.n, lengths[0]) if lengths else self.n
        i = Ref(self.lw.fresh("j"))
        body: list[K.Stm] = []
        self.lw.emit(For(i.name, count, body))
        with self.lw.into(body):
            self.share(i, accs)

    def share(self, i: Ref, accs: list[list[Val]], length: Expr | None = None) -> None:
        """What iteration i of the outermost loop does: one element, or a block of them (of ``length``)."""
        lengths = [Lit(k) for k in block_lengths(self.op)]
        if lengths:
            length = lengths[0] if length is None else length
            self.block(mul(i, length), self.n, [length, *lengths[1:]], accs)
        else:
            self.iteration(i, accs)

    def block(self, first: Expr, stop: Expr, lengths: Sequence[Expr], accs: list[list[Val]],
              bases: list[list[Val]] | None = None) -> None:
        """The block at ``first``: its own accumulators, then one step of those around it.

        Scans of scalars add the total before (``bases``) to each element.
        """
        lw, op = self.lw, self.op
        length, *finer = lengths
        inner: list[list[Val]] = []
        before: list[list[Val]] = []
        for k, (m, acc) in enumerate(zip(op.scans + op.reds, accs)):
            scalar, scan = m.ne[0].type.is_scalar, k < len(op.scans)
            fresh = sums_floats(m) and (scalar == scan or scalar and bases is None)
            inner.append(start(lw, m) if fresh else acc)
            if not (fresh and scan):
                before.append([])
            elif bases is None:
                before.append(list(acc))
            else:
                before.append([lw.let(combine("add", plain(bases[k][0]), plain(acc[0])))])
        first = lw.let(first, "j")
        end = lw.let(K.minimum(K.add(first, length), stop), "j") if finer else stop
        j = Ref(lw.fresh("j"))
        body: list[K.Stm] = []
        count = K.sub(end, first)
        lw.emit(For(j.name, blocks(count, finer[0]) if finer else K.minimum(length, count), body))
        with lw.into(body):
            if finer:
                self.block(add(first, mul(j, finer[0])), end, finer, inner, before)
            else:
                self.iteration(lw.let(add(first, j), "j"), inner, before)
        for m, acc, part in zip(op.scans + op.reds, accs, inner):
            if acc is not part:
                accumulate(lw, m, acc, part)

    def results(self, accs: list[list[Val]]) -> list[Val]:
        reds = [a for acc in accs[len(self.op.scans):] for a in acc]
        return [*self.scan_outs, *reds, *(d.arr for d in self.outs)]


def _joined(a: Arr) -> Arr:
    """The first two dimensions as one."""
    return Arr(a.buf, a.offset, (mul(a.shape[0], a.shape[1]), *a.shape[2:]), a.strides[1:])


def blocks(n: Expr, length: int | Expr) -> Expr:
    """How many blocks of a length cover ``n`` elements."""
    length = Lit(length) if isinstance(length, int) else length
    return Apply("floordiv", (add(n, sub(length, ONE)), length), i64)


def shared_length(lw: Lowering, n: Expr, length: int) -> Expr:
    """The length of blocks that threads share: shorter where there would be fewer blocks than threads."""
    if not lw.vector_bytes:                       # a GPU's threads share blocks of a fixed length
        return Lit(length)
    each = blocks(Apply("max", (n, ONE), i64), Ref("threads"))
    return lw.let(K.minimum(Lit(length), each), "j")


def split_by_width(op: Screma, values: Sequence[Dest | None]) -> list[list[Dest | None]]:
    """Destinations of reductions parted by operator."""
    out, at = [], 0
    for m in op.reds:
        out.append(list(values[at:at + m.width]))
        at += m.width
    return out


@lower_op.register
def _screma(op: Screma, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    if lw.host:
        parallel = not op.scans and all(m.width == 1 or all(a.type.is_scalar for a in m.ne) for m in op.reds)
        if parallel:
            return _parallel(op, lw, stm, dests)
        return serial(lw, stm, lambda ds: _nested(op, lw, stm, ds), dests)
    return _nested(op, lw, stm, dests)


def _nested(op: Screma, lw: Lowering, stm: Stm, dests: Dests) -> list[Val]:
    body = Body(op, lw, stm, dests)
    accs = [start(lw, m) for m in op.scans]
    accs += [start(lw, m, d) for m, d in zip(op.reds, split_by_width(op, body.red_dests))]
    body.loop(accs)
    return body.results(accs)


def serial(lw: Lowering, stm: Stm, make: Callable[[Dests], Sequence[Val]], dests: Dests = ()) -> list[Val]:
    """Code that one thread runs; scalars it makes are handed to all, and memory it makes is made by all."""
    dests = [Dest(lw.alloc(v.type)) if d is None and lw.grows(v.type) else d for v, d in zip(stm.vars, dests)]
    code: list[K.Stm] = []
    loc = lw.loc
    with lw.into(code), lw.mode(host=False, private=False):
        vals = [v if isinstance(v, (Arr, Lazy)) else lw.let(v) for v in make(dests)]
    scalars = [(v.name, v.elem) for v in vals if isinstance(v, Ref)]
    lw.emit(Serial(code, scalars, loc, stm.op.name))
    for name, _ in scalars:
        lw.known.pop(name, None)
    return vals


def _parallel(op: Screma, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    body = Body(op, lw, stm, dests)
    lengths = block_lengths(op)
    i = Ref(lw.fresh("j"))
    length = shared_length(lw, body.n, lengths[0]) if lengths else None
    par = Par(i.name, body.n if length is None else blocks(body.n, length), [], loc=stm.loc, what=describe(op))
    accs: list[list[Val]] = []
    outs: list[Val] = []
    for m, wanted in zip(op.reds, split_by_width(op, body.red_dests)):
        acc, out = _shared(lw, m, wanted, par)
        accs.append(acc)
        outs += out
    with lw.into(par.body), lw.mode(host=False, private=True):
        body.share(i, accs, length)
    lw.emit(par)
    return [*outs, *(d.arr for d in body.outs)]


def _shared(lw: Lowering, m: Monoid, wanted: list[Dest | None], par: Par) -> tuple[list[Val], list[Val]]:
    """Each thread's accumulators of one monoid, and where their merged value will be."""
    if m.ne[0].type.is_scalar:
        accs: list[Val] = []
        others: list[Val] = []
        for ne in m.ne:
            a = Acc(lw.fresh("acc"), lw.fresh("part"), lw.scalar(ne))
            par.accs.append(a)
            accs.append(Ref(a.name, ne.type.elem))
            others.append(Ref(a.other, ne.type.elem))
        with lw.into(par.merge), lw.mode(host=False, private=True):
            accumulate(lw, m, accs, others)
        return accs, list(accs)
    t = m.ne[0].type
    out = lw.target(t, wanted[0])
    mine, lane = _parts(lw, t)
    with lw.into(par.before), lw.mode(host=False, private=True):
        lw.copy(Dest(mine), lw.val(m.ne[0]))
    with lw.into(par.fold_start), lw.mode(host=False, private=True):
        lw.copy(Dest(out), lw.val(m.ne[0]))
    with lw.into(par.fold), lw.mode(host=False, private=True):
        accumulate(lw, m, [out], [lane])
    return [mine], [out]


def _parts(lw: Lowering, t: Type) -> tuple[Arr, Arr]:
    """One array a thread in shared memory: this thread's, and that of thread ``lane``."""
    shape = lw.shape(t)
    count = K.product(shape)
    lw.known.setdefault("threads", Ref("threads"))
    total = lw.expand(mul(Ref("threads"), count))
    if total is None:
        raise AssertionError("an accumulator's size is known on entry")
    buf = Buf(lw.fresh("b"), t.elem, "temp", total)
    lw.temps.append(buf)
    strides = row_major(shape)
    return (Arr(buf, mul(Ref("thread"), count), shape, strides), Arr(buf, mul(K.LANE, count), shape, strides))


def describe(op: Screma) -> str:
    """What a loop does, in words, for the comment in generated source."""
    parts = [w for w, yes in (("map", op.map_width), ("reduce", op.reds), ("scan", op.scans)) if yes]
    return "+".join(parts) or "map"


# --- Scatter ---------------------------------------------------------------------------------------------------------

@lower_op.register
def _scatter(op: Scatter, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    read = memory(lw, [*op.xs, *(free_vars(op.lam) if op.n != 1 else ())])
    arrs: list[Arr] = []
    for v, d in zip(op.dests, dests):
        old = lw.val(v)
        if isinstance(old, Arr) and d is None and lw.dead(v) and old.buf.name not in read and op.dests.count(v) == 1:
            arrs.append(old)
            continue
        arr = lw.target(v.type, d)
        lw.copy(Dest(arr), old)
        arrs.append(arr)
    if not lw.host:
        _writes(op, lw, arrs)
        return arrs

    def make(dests: Dests) -> Sequence[Val]:
        _writes(op, lw, arrs)
        return ()
    serial(lw, stm, make)
    return arrs


@lower_op.register
def _update(op: Update, lw: Lowering, stm: Stm, dests: Dests) -> Sequence[Val]:
    old, d = lw.val(op.x), dests[0]
    if isinstance(old, Arr) and d is None and lw.dead(op.x) and old.buf.name not in memory(lw, [op.value]):
        arr = old
    else:
        arr = lw.target(op.x.type, d)
        lw.copy(Dest(arr), old)
    offset, strides = arr.offset, []
    for start, step, stride in zip(op.starts, op.steps, arr.strides):
        offset = add(offset, mul(lw.scalar(start), stride))
        strides.append(mul(lw.size(step), stride))
    lw.copy(Dest(Arr(arr.buf, lw.let(offset), lw.shape(op.value.type), tuple(strides))), lw.val(op.value))
    return [arr]


def memory(lw: Lowering, vs: Sequence[Var]) -> set[str]:
    """The buffers that variables, views included, lie in."""
    values = [lw.env.get(v) for v in vs]
    return {a.buf.name for a in values if isinstance(a, Arr)}


def _writes(op: Scatter, lw: Lowering, arrs: list[Arr]) -> None:
    """The loop over writes, in order."""
    xs = [lw.val(x) for x in op.xs]
    if op.n == 1 and not xs:
        _write(op, lw, arrs)
        return
    i = Ref(lw.fresh("j"))
    lw.extent[i.name] = lw.size(op.n)
    body: list[K.Stm] = []
    lw.emit(For(i.name, lw.size(op.n), body))
    with lw.into(body):
        lw.bind(op.lam.params, [lw.element(x, i) for x in xs])
        _write(op, lw, arrs)


def _write(op: Scatter, lw: Lowering, arrs: list[Arr]) -> None:
    vals = lw.block(op.lam)
    at = [lw.let(plain(v)) for v in vals[:op.rank]]
    inside: Expr | None = None
    for i, n in zip(at, arrs[0].shape):
        test = K.both(Apply("ge", (i, K.ZERO), bool_), Apply("lt", (i, n), bool_))
        inside = test if inside is None else K.both(inside, test)
    then: list[K.Stm] = []
    with lw.into(then):
        places = [a.at(*at) for a in arrs]
        values = vals[op.rank:]
        prim = lifted_prim(op.op.op) if op.op is not None else None
        if op.op is not None and prim is None:
            lw.bind(op.op.op.params, [lw.let(p.load(), "x") if not p.shape else p for p in places] + list(values))
            values = lw.block(op.op.op)
            values = [_moved(lw, v, t) for v, t in zip(values, op.op.op.result_types)]
        for p, v in zip(places, values):
            lw.copy(Dest(p, prim), v)
    lw.emit(If(inside, then) if inside is not None else If(Lit(True, bool_), then))


def _moved(lw: Lowering, v: Val, t: Type) -> Val:
    """A value that no longer depends on the memory about to be written."""
    if not isinstance(v, Arr):
        return lw.let(plain(v))
    fresh = lw.alloc(t)
    lw.copy(Dest(fresh), v)
    return fresh
