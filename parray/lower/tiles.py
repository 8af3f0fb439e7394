"""Lowering of Contract in register tiles: the form for every contraction with reuse in both operands.

    for each outer place, block of lanes j.., panel of summed axes k:    x[r, k]  rows: broadcast scalars
        for 8 rows r:  out[r, j..] (+)= sum over k of x[r, k] * y[k, j..]   y[k, j]  lanes: vectors

A tile of rows times one vector of lanes stays in registers while the summed axes run (`kernels.Tile`): an element of
``y`` is loaded once for all rows, nothing is written until the panel ends, and a sum over several panels is a sum of
sums.  Either operand may have the lanes, and the lanes may be any axis of the result: the choice weighs how full the
vectors are and whether the operand or the result must be turned around for it.  An operand that many rows use is first
packed, block of lanes by block of lanes, so that tiles read it from one end to the other.

Without vectors (another target) a tile is plain statements with one lane.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

from parray import kernels as K
from parray.kernels import Apply, Assign, Expr, For, If, Let, Lit, Load, Par, Ref, Store, Tile
from parray.lower.core import Lowering, combine
from parray.lower.values import Arr, Dest
from parray.soacs import Contract
from parray.types import bool_, f32, f64, i64

At = dict[int, Expr]
Range = tuple[int, Expr, Expr]                    # of a summed axis: the axis, where it begins, how many
ROWS = 8                                          # the most rows of a tile
SOME = 4                                          # its rows where their number is not known: half the code to compile
BLOCK = 64                                        # rows that a thread works through with one block of lanes
PANEL = 256                                       # summed elements added one after the other
FEW = 16                                          # uses of an operand that do not repay packing it
COMPACT = 256                                     # elements from one row of lanes to the next that need no packing


@dataclass(frozen=True)
class Plan:
    """The axes of the tiles.  ``swapped``: the first operand has the lanes; ``packs``: it is packed."""
    row: int
    lane: int
    swapped: bool
    packs: bool
    moves: bool                                   # the lanes are not neighbours in the result


def known(n: Expr) -> int | None:
    """A size where it is a constant."""
    return int(n.value) if isinstance(n, Lit) else None


def covering(n: Expr, length: int) -> Expr:
    """How many blocks of a length cover ``n`` elements."""
    if isinstance(n, Lit):
        return Lit(-(-int(n.value) // length))
    return Apply("floordiv", (K.add(n, Lit(length - 1)), Lit(length)), i64)


def overlaps(v: Arr) -> bool:
    """Whether elements stand for several places, as in windows."""
    strides = [s for s, n in zip(v.strides, v.shape) if n != K.ONE]
    return K.ZERO in strides or len(set(strides)) < len(strides)


class Tiles:
    """One contraction; ``x`` has the rows and ``y`` the lanes once `plan` is known."""

    def __init__(self, op: Contract, lw: Lowering, out: Arr):
        self.op, self.lw, self.out = op, lw, out
        self.elem = op.x.type.elem
        self.vector = max(1, lw.vector_bytes // self.elem.nbytes)
        self.size = {a: lw.size(s) for a, s in op.sizes().items()}
        self.plan = self.choose() if self.elem in (f32, f64) and op.summed else None

    # --- the choice --------------------------------------------------------------------------------------------------

    def choose(self) -> Plan | None:
        """The best lanes and rows, or None where one operand has no rows for the other's lanes."""
        plans: list[tuple[float, Plan]] = []
        for lane in reversed(self.op.out_axes):
            for swapped in (False, True):
                own, other = self.op.y_axes, self.op.x_axes
                if swapped:
                    own, other = other, own
                rows = [a for a in self.op.out_axes if a in other and a not in own and known(self.size[a]) != 1]
                if lane in own and lane not in other and rows:
                    found = self.weigh(lane, swapped, rows)
                    plans += [found] if found is not None else []
        return max(plans, key=lambda p: p[0])[1] if plans else None     # of equals the first: the last axis

    def weigh(self, lane: int, swapped: bool, rows: Sequence[int]) -> tuple[float, Plan] | None:
        """How full the vectors and tiles are, less what turning arrays around costs."""
        op = self.op
        var, axes = (op.x, op.x_axes) if swapped else (op.y, op.y_axes)
        y = self.lw.val(var)
        straight = isinstance(y, Arr) and y.strides[axes.index(lane)] == K.ONE
        twisted = isinstance(y, Arr) and overlaps(y)
        if twisted and not straight:
            return None
        moves = self.out.strides[op.out_axes.index(lane)] != K.ONE
        row = max(rows, key=lambda a: (self.full(a, ROWS) > 0.7, op.out_axes.index(a)))
        packs = not straight or not twisted and self.repays(lane, axes, y)
        score = self.full(lane, self.vector) * min(1.0, 0.5 + self.full(row, ROWS))
        return score - 0.2 * moves - 0.05 * (not straight), Plan(row, lane, swapped, packs, moves)

    def full(self, axis: int, length: int) -> float:
        """The part of blocks of a length that an axis fills."""
        n = known(self.size[axis])
        return 0.9 if n is None else n / (-(-n // length) * length) if n else 1.0

    def repays(self, lane: int, axes: tuple[int, ...], y: Any) -> bool:
        """Whether packing an operand whose lanes are neighbours is worth it: many uses, rows far apart."""
        uses = [known(self.size[a]) for a in self.op.out_axes if a not in axes]
        far = [known(y.strides[axes.index(a)]) for a in self.op.summed if a in axes]
        count = 1
        for n in uses:
            count *= n if n is not None else 1 << 20
        return count > FEW and any(s is None or s > COMPACT for s in far)

    # --- loops -------------------------------------------------------------------------------------------------------

    def loop(self, n: Expr, body: Callable[[Expr], None], host: bool = False) -> None:
        """``body`` for 0 .. n - 1; shared among threads when ``host``."""
        lw = self.lw
        if n == K.ONE and not host:
            body(K.ZERO)
            return
        i = Ref(lw.fresh("j"))
        lw.extent[i.name] = n
        code: list[K.Stm] = []
        lw.emit(Par(i.name, n, code, loc=lw.loc, what="contract") if host else For(i.name, n, code))
        with lw.into(code), lw.mode(host=False, private=lw.private or host):
            body(i)

    def nest(self, sizes: Sequence[Expr], body: Callable[[list[Expr]], None], host: bool = False) -> None:
        """Loops over several extents; as one where threads share it."""
        if not host or len(sizes) < 2:
            self._loops(sizes, [], body, host)
            return

        def parts(i: Expr) -> None:
            at: list[Expr] = []
            for n in reversed(sizes[1:]):
                at.append(self.lw.let(Apply("mod", (i, n), i64), "j"))
                i = self.lw.let(Apply("floordiv", (i, n), i64), "j")
            body([i, *reversed(at)])
        self.loop(K.product(sizes), parts, True)

    def _loops(self, sizes: Sequence[Expr], at: list[Expr], body: Callable[[list[Expr]], None], host: bool) -> None:
        if sizes:
            self.loop(sizes[0], lambda i: self._loops(sizes[1:], [*at, i], body, False), host)
        else:
            body(at)

    # --- the contraction ---------------------------------------------------------------------------------------------

    def run(self, dest: Dest) -> None:
        """All of it, to (or added to) the destination."""
        plan, op, lw = self.plan, self.op, self.lw
        assert plan is not None
        names, axes = [op.x, op.y], [op.x_axes, op.y_axes]
        if plan.swapped:
            names, axes = names[::-1], axes[::-1]
        (self.x, self.y), (self.x_axes, self.y_axes) = (lw.materialise(lw.val(v), v.type) for v in names), axes
        self.batch = [a for a in op.out_axes if a in self.y_axes and a != plan.lane]
        self.outer = [a for a in op.out_axes if a not in self.y_axes and a != plan.row]
        self.sums = self.order_of_sums()
        lanes = known(self.size[plan.lane])
        self.lanes = self.vector
        while lanes is not None and self.lanes >= 2 * max(lanes, 1):
            self.lanes //= 2
        self.ragged = lanes is None or lanes % self.lanes != 0
        if not plan.moves:
            self.write(dest)
            return
        order = [a for a in op.out_axes if a != plan.lane] + [plan.lane]
        moved = lw.alloc_shape(self.elem, tuple(self.size[a] for a in order))
        self.write(Dest(self.turned(moved, order)))
        lw.copy(dest, self.turned(moved, order))

    def turned(self, v: Arr, order: Sequence[int]) -> Arr:
        """An array with these axes, with the result's."""
        at = [order.index(a) for a in self.op.out_axes]
        return Arr(v.buf, v.offset, tuple(v.shape[k] for k in at), tuple(v.strides[k] for k in at))

    def order_of_sums(self) -> list[int]:
        """Summed axes, outermost first: those of constant size innermost, where panels hold them whole."""
        return sorted(self.op.summed, key=lambda a: known(self.size[a]) is not None)

    def write(self, dest: Dest) -> None:
        plan, lw = self.plan, self.lw
        assert plan is not None
        n = self.size[plan.row]
        block = self.block_of_rows(n)
        blocks = [covering(n, block)] if known(n) is None or known(n) != block else []

        def batch(at: list[Expr]) -> None:
            here = dict(zip(self.batch, at))
            y = self.packed(here) if plan.packs else self.y

            def rows(at: list[Expr]) -> None:
                places = here | dict(zip(self.outer, at))
                first = lw.let(K.mul(at[-1], Lit(block)), "j") if blocks else K.ZERO
                count = lw.let(K.minimum(Lit(block), K.sub(n, first)), "j") if blocks else n
                if blocks and known(n) is not None and known(n) % block == 0:       # type: ignore[operator]
                    count = Lit(block)
                self.loop(covering(self.size[plan.lane], self.lanes),           # threads share it if nothing before
                          lambda jb: self.panels(dest, y, places, jb, first, count), lw.host)
            self.nest([*(self.size[a] for a in self.outer), *blocks], rows, lw.host)
        self.nest([self.size[a] for a in self.batch], batch, lw.host and bool(self.batch))

    def block_of_rows(self, n: Expr) -> int:
        """Rows that go together: fewer where all rows are few, so that threads can share them."""
        size = known(n)
        if size is None or size >= 4 * BLOCK:
            return BLOCK
        if self.lw.host and not self.batch and not self.outer:
            return self.tile_rows(n) * max(1, -(-size // (4 * ROWS)))
        return max(1, size)

    def tile_rows(self, n: Expr) -> int:
        """Rows of a tile."""
        size = known(n)
        return SOME if size is None else 1 if size == 0 else -(-size // -(-size // ROWS))

    def packed(self, here: At) -> Arr:
        """The lanes' operand as [block of lanes, summed axes.., lane], zeros after the last lane."""
        plan, lw = self.plan, self.lw
        assert plan is not None
        n = self.size[plan.lane]
        own = [a for a in self.sums if a in self.y_axes]
        shape = (covering(n, self.lanes), *(self.size[a] for a in own), Lit(self.lanes))
        out = lw.alloc_shape(self.elem, shape)

        def block(jb: Expr) -> None:
            first = lw.let(K.mul(jb, Lit(self.lanes)), "j")
            count = lw.let(K.minimum(Lit(self.lanes), K.sub(n, first)), "j") if self.ragged else Lit(self.lanes)

            def row(at: list[Expr]) -> None:
                places = here | dict(zip(own, at))

                def element(l: Expr) -> None:
                    source = self.y.at(*((places | {plan.lane: K.add(first, l)})[a] for a in self.y_axes))
                    lw.store(Dest(out.at(jb, *at, l)), source.load())

                def nothing(l: Expr) -> None:
                    lw.store(Dest(out.at(jb, *at, K.add(count, l))), Lit(0, self.elem))
                self.loop(count, element)
                if self.ragged:
                    self.loop(K.sub(Lit(self.lanes), count), nothing)
            self.nest([self.size[a] for a in own], row)
        self.loop(shape[0], block, lw.host)
        steps = dict(zip(own, out.strides[1:]))
        strides = tuple(K.ONE if a == plan.lane else steps.get(a, K.ZERO) for a in self.y_axes)
        self.block_stride = out.strides[0]
        return Arr(out.buf, out.offset, self.y.shape, strides)

    def length(self, axis: int) -> int:
        """A summed axis's part in the length of a panel; more than any where its size is not known."""
        n = known(self.size[axis])
        return PANEL + 1 if n is None else max(1, n)

    # --- panels and tiles --------------------------------------------------------------------------------------------

    def panels(self, dest: Dest, y: Arr, here: At, jb: Expr, first: Expr, count: Expr) -> None:
        """A block of rows and a block of lanes: the summed axes in panels, each over all rows."""
        inner: list[int] = []
        length = 1
        sums = list(self.sums)
        while sums and length * self.length(sums[-1]) <= PANEL:
            inner.insert(0, sums.pop())
            length *= self.length(inner[0])
        if not sums:
            self.tiles(dest, y, here, jb, first, count, [(a, K.ZERO, self.size[a]) for a in inner], K.ZERO)
            return
        *outer, split = sums
        step, n = max(1, PANEL // length), self.size[split]
        some: Expr = K.ONE                                              # an empty sum is 0: one panel of nothing
        for a in outer:
            some = K.minimum(some, self.size[a])

        def at_least_one(e: Expr) -> Expr:
            return Apply("max", (e, K.ONE), i64) if not isinstance(e, Lit) else Lit(max(1, e.value))

        def panel(at: list[Expr]) -> None:
            *places, p = at
            begin = self.lw.let(K.mul(p, Lit(step)), "j")
            left = self.lw.let(K.mul(K.minimum(Lit(step), K.sub(n, begin)), some), "j")
            begun: Expr = K.ZERO
            for i in at:
                begun = K.add(begun, i)
            ranges: list[Range] = [(a, i, K.ONE) for a, i in zip(outer, places)]
            ranges += [(split, begin, left), *((a, K.ZERO, self.size[a]) for a in inner)]
            self.tiles(dest, y, here, jb, first, count, ranges, begun)
        self.nest([*(at_least_one(self.size[a]) for a in outer), at_least_one(covering(n, step))], panel)

    def tiles(self, dest: Dest, y: Arr, here: At, jb: Expr, first: Expr, count: Expr,
              ranges: Sequence[Range], begun: Expr) -> None:
        """Tiles for a block of rows; ``ranges``: of the summed axes."""
        plan, lw = self.plan, self.lw
        assert plan is not None
        height = self.tile_rows(self.size[plan.row])
        exact = known(count) is not None and known(count) % height == 0         # type: ignore[operator]
        size = self.size[plan.lane]
        lane = lw.let(K.mul(jb, Lit(self.lanes)), "j")
        starts = {a: begin for a, begin, _ in ranges}
        loops = [(Ref(lw.fresh("j")), a, n) for a, _, n in ranges if n != K.ONE]

        def offset(v: Arr, axes: Sequence[int], at: At) -> Expr:
            return v.at(*(at.get(a, K.ZERO) for a in axes)).offset

        def step(v: Arr, axes: Sequence[int]) -> Expr:
            total: Expr = K.ZERO
            for i, a, _ in loops:
                if a in axes:
                    total = K.add(total, K.mul(i, v.strides[axes.index(a)]))
            return total

        def tile(t: Expr) -> None:
            top = lw.let(K.add(first, K.mul(t, Lit(height))), "j")
            rows = [K.add(top, Lit(r)) for r in range(height)]
            last = K.sub(self.size[plan.row], K.ONE)
            inside = rows if exact else [rows[0], *(K.minimum(r, last) for r in rows[1:])]
            at = here | starts | {plan.lane: lane}
            place = K.add(offset(y, self.y_axes, starts), K.mul(jb, self.block_stride)) if plan.packs else \
                offset(y, self.y_axes, at)
            wanted: list[Expr | None] = [None if exact or r == 0 else Apply(
                "lt", (rows[r], self.size[plan.row]), bool_) for r in range(height)]
            left = lw.let(K.minimum(Lit(self.lanes), K.sub(size, lane)), "j") if self.ragged else None
            self.emit(Tile(
                self.elem, self.lanes, [(i.name, n) for i, _, n in loops],
                self.x.buf, [lw.let(offset(self.x, self.x_axes, at | {plan.row: r}), "j") for r in inside],
                step(self.x, self.x_axes), y.buf, lw.let(place, "j"), step(y, self.y_axes), plan.packs,
                dest.arr.buf, [offset(dest.arr, self.op.out_axes, at | {plan.row: r}) for r in rows], wanted, left,
                Lit(True, bool_) if dest.acc else Lit(False, bool_) if begun == K.ZERO else
                Apply("ne", (begun, K.ZERO), bool_),
                [*(lw.fresh("acc") for _ in rows), lw.fresh("k"), lw.fresh("k"), lw.fresh("v")]))
        self.loop(covering(count, height), tile)

    def emit(self, tile: Tile) -> None:
        """The tile, or plain statements where there are no vectors."""
        if self.vector > 1:
            self.lw.emit(tile)
        else:
            for s in plain(tile):
                self.lw.emit(s)


def plain(tile: Tile) -> list[K.Stm]:
    """A tile of one lane in scalar statements."""
    *accs, kx, ky, v = tile.names
    body: list[K.Stm] = [Let(kx, tile.x_step), Let(ky, K.add(tile.y_first, tile.y_step)),
                         Let(v, Load(tile.y, Ref(ky)))]
    for a, first in zip(accs, tile.x_first):
        product = Apply("mul", (Load(tile.x, K.add(first, Ref(kx))), Ref(v, tile.elem)), tile.elem, sum=True)
        body.append(Assign(a, combine("add", Ref(a, tile.elem), product)))
    for var, n in reversed(tile.loops):
        body = [For(var, n, body)]
    out: list[K.Stm] = [*(Let(a, Lit(0, tile.elem)) for a in accs), *body]
    for a, first, wanted in zip(accs, tile.out_first, tile.wanted):
        value: Expr = Ref(a, tile.elem)
        more: Any = Store(tile.out, first, combine("add", Load(tile.out, first), value))
        store: Any = Store(tile.out, first, value)
        store = more if tile.add == Lit(True, bool_) else store if tile.add == Lit(False, bool_) else \
            If(tile.add, [more], [store])
        out.append(store if wanted is None else If(wanted, [store]))
    return out


__all__ = ["Tiles"]
