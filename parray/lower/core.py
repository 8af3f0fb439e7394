"""The lowering engine: blocks of statements, scalars, buffers, and the decision to work in place.

A value is written where it is wanted: the consumer's destination (a row of an output, an accumulator) travels down to
the statement that makes it (destination passing), so results are not copied.  An operation that updates an array
(`Scatter`) reuses its memory when the array was made in the same block and is dead afterwards.
"""
from __future__ import annotations

from contextlib import contextmanager
from functools import singledispatch
from typing import Any, Callable, Iterator, Sequence

from parray import kernels as K
from parray.errors import Loc
from parray.ir import Atom, Const, Lambda, Op, Stm, Var, free_vars, lambdas
from parray.kernels import Apply, Buf, Check, Expr, For, Heap, KernelProgram, Let, Lit, Par, Ref, Result, Store
from parray.lower.rest import declare
from parray.lower.values import Arr, Dest, Lazy, Val, names, row_major
from parray.soacs import Index, Prim, Replicate, Reshape, Slice, Transpose, Windows
from parray.types import SCALAR_TYPES, ScalarType, Type, bool_

SMALL = 20_000                                    # scalar operations below which threads do not pay
TYPE_NAMES = {t.name for t in SCALAR_TYPES}
VIEWS = (Index, Replicate, Reshape, Slice, Transpose, Windows)


@singledispatch
def lower_op(op: Op, lw: Lowering, stm: Stm, dests: Sequence[Dest | None]) -> Sequence[Val]:
    """The values of an operation's results.  A result whose destination was used is that destination's ``arr``."""
    raise AssertionError(f"no lowering for {op.name}")


class Uses:
    """For one block: the last statement that may touch each variable's memory."""

    def __init__(self, stms: Sequence[Stm], results: Sequence[Atom]):
        self.count: dict[Var, int] = {}
        self.last: dict[Var, int] = {}
        root: dict[Var, Var] = {}
        for k, stm in enumerate(stms):
            for v in free_vars(stm.op):
                self.count[v] = self.count.get(v, 0) + 1
                self.last[root.get(v, v)] = k
            if isinstance(stm.op, VIEWS):
                base = next((a for a in free_vars(stm.op) if not a.type.is_scalar), None)
                if base is not None:
                    root.update({v: root.get(base, base) for v in stm.vars})
        for r in results:
            if isinstance(r, Var):
                self.count[r] = self.count.get(r, 0) + 1
                self.last[root.get(r, r)] = len(stms)

    def dead_after(self, v: Var, k: int) -> bool:
        return self.last.get(v, -1) <= k


class Lowering:
    """State while one program is lowered."""

    def __init__(self, vector_bytes: int = 0) -> None:
        self.vector_bytes = vector_bytes         # of the target's registers; 0 where it has no vectors
        self.env: dict[Var, Val] = {}
        self.out: list[K.Stm] = []
        self.temps: list[Buf] = []
        self.failures: list[K.Failure] = []
        self.guards: list[tuple[Expr, int]] = []
        self.known: dict[str, Expr] = {}         # names computable on entry -> their expression in entry names
        self.extent: dict[str, Expr] = {}        # loop variables -> their extent
        self.owned: set[Var] = set()             # variables whose memory belongs to the block being lowered
        self.host = True                         # outside every Par and Serial
        self.private = False                     # inside a Par: memory is one a thread
        self.counter = 0
        self.loc: Loc | None = None

    # --- names, scalars ---

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        if f"{prefix}{self.counter}" in TYPE_NAMES:                     # `i64` would hide the type
            self.counter += 1
        return f"{prefix}{self.counter}"

    def let(self, value: Expr, prefix: str = "t") -> Expr:
        """A name for a value (literals and names need none)."""
        if isinstance(value, (Lit, Ref)):
            return value
        name = self.fresh(prefix)
        self.emit(Let(name, value))
        expanded = self.expand(value)
        if expanded is not None:
            self.known[name] = expanded
        return Ref(name, value.elem)

    def expand(self, e: Expr) -> Expr | None:
        """The expression in names known on entry, or None where the caller cannot compute it."""
        match e:
            case Lit():
                return e
            case Ref(name=name):
                return self.known.get(name)
            case Apply(prim=prim, args=args, elem=elem):
                parts = [self.expand(a) for a in args]
                if any(p is None for p in parts) or not K.on_entry(e):
                    return None
                return Apply(prim, tuple(parts), elem)          # type: ignore[arg-type]
            case _:
                return None

    def emit(self, stm: K.Stm) -> None:
        self.out.append(stm)

    @contextmanager
    def into(self, body: list[K.Stm]) -> Iterator[None]:
        outer, self.out = self.out, body
        try:
            yield
        finally:
            self.out = outer

    @contextmanager
    def mode(self, *, host: bool, private: bool) -> Iterator[None]:
        old = self.host, self.private
        self.host, self.private = host, private
        try:
            yield
        finally:
            self.host, self.private = old

    def size(self, s: Any) -> Expr:
        return Lit(int(s)) if isinstance(s, int) else self.env[s]

    def val(self, a: Atom) -> Val:
        return Lit(a.value, a.elem) if isinstance(a, Const) else self.env[a]

    def scalar(self, a: Atom) -> Expr:
        v = self.val(a)
        return self.let(v.load()) if isinstance(v, (Arr, Lazy)) else v

    def shape(self, t: Type) -> tuple[Expr, ...]:
        return tuple(self.size(s) for s in t.shape)

    def fail(self, bad: Expr, message: str, error: str) -> None:
        self.emit(Check(bad, self.failure(message, error)))

    def failure(self, message: str, error: str) -> int:
        """The code of a failure that the statement being lowered may end in."""
        self.failures.append(K.Failure(message, error, self.loc))
        return len(self.failures)

    # --- memory ---

    def alloc(self, t: Type) -> Arr:
        """Fresh memory for an array of type ``t``, made once and used again by every iteration around it."""
        return self.alloc_shape(t.elem, self.shape(t))

    def alloc_shape(self, elem: ScalarType, shape: tuple[Expr, ...]) -> Arr:
        """`alloc` by element type and sizes."""
        count = K.product(s if isinstance(s, Lit) and s.value > 0 else Apply("max", (s, K.ONE), s.elem)
                          for s in shape)
        known = self.expand(count)
        if known is not None:
            buf = Buf(self.fresh("b"), elem, "private" if self.private else "temp", known)
            self.temps.append(buf)
        else:
            buf = Buf(self.fresh("b"), elem, "heap", count)
            heap = Heap(buf, [])
            self.emit(heap)
            self.out = heap.body                 # the rest of the block runs while it lives
        return Arr(buf, K.ZERO, shape, row_major(shape))

    def grows(self, t: Type) -> bool:
        """Whether an array's size is known only inside the program."""
        return not t.is_scalar and self.expand(K.product(self.shape(t))) is None

    def target(self, t: Type, dest: Dest | None) -> Arr:
        """The destination if it is to be overwritten, else fresh memory."""
        return dest.arr if dest is not None and dest.acc is None else self.alloc(t)

    def store(self, dest: Dest, value: Expr) -> None:
        """Write one element."""
        arr = dest.arr
        if dest.acc is not None:
            value = combine(dest.acc, K.Load(arr.buf, arr.offset), value)
        self.emit(Store(arr.buf, arr.offset, value))

    def copy(self, dest: Dest, v: Val) -> None:
        """Write a whole value; on the host level the work is shared among threads."""
        if not dest.arr.shape:
            self.store(dest, v if not isinstance(v, (Arr, Lazy)) else v.load())
            return
        arr = dest.arr
        if len(arr.shape) > 1 and arr.contiguous:               # one loop where the memory is one run
            n = K.product(arr.shape)
            if isinstance(v, Arr) and v.contiguous:
                self.copy(Dest(Arr(arr.buf, arr.offset, (n,), (K.ONE,)), dest.acc),
                          Arr(v.buf, v.offset, (n,), (K.ONE,)))
                return
            if isinstance(v, Lazy) and v.constant:
                self.copy(Dest(Arr(arr.buf, arr.offset, (n,), (K.ONE,)), dest.acc),
                          Lazy(v.elem, (n,), lambda at: v.fn(at), True))
                return
        body: list[K.Stm] = []
        i = Ref(self.fresh("j"))
        loop: K.Stm = Par(i.name, dest.arr.shape[0], body, loc=self.loc, what="copy") if self.host else \
            For(i.name, dest.arr.shape[0], body)
        with self.into(body), self.mode(host=False, private=self.private or self.host):
            self.copy(dest.at(i), v.at(i))
        self.emit(loop)

    def materialise(self, v: Val, t: Type) -> Arr:
        """The value in memory."""
        if isinstance(v, Arr):
            return v
        arr = self.alloc(t)
        self.copy(Dest(arr), v)
        return arr

    def contiguous(self, arr: Arr, t: Type) -> Arr:
        """The array in one run of memory: itself, or a copy."""
        if arr.contiguous:
            return arr
        copy = self.alloc(t)
        self.copy(Dest(copy), arr)
        return copy

    def bind(self, params: Sequence[Var], vals: Sequence[Val]) -> None:
        self.env.update(zip(params, vals, strict=True))

    def element(self, v: Val, i: Expr) -> Val:
        """Element ``i`` of an array: a loaded scalar or a view of a row."""
        e = v.at(i)
        return self.let(e.load(), "x") if not e.shape else e

    # --- blocks ---

    def block(self, lam: Lambda, dests: Sequence[Dest | None] | None = None, owned: Sequence[Var] = ()) -> list[Val]:
        """Lower a body whose parameters are bound; its results, written to their destinations where given."""
        dests = dests if dests is not None else [None] * len(lam.results)
        uses = Uses(lam.stms, lam.results)
        made = {v for s in lam.stms for v in s.vars}
        wanted: dict[Var, Dest] = {}
        for r, d in zip(lam.results, dests):
            if d is not None and r in made and r not in wanted and (d.acc is None or uses.count[r] == 1):
                wanted[r] = d
        through = self._through_views(lam, wanted, uses, made)
        outer_owned, self.owned = self.owned, set(owned)
        for k, stm in enumerate(lam.stms):
            self.loc = stm.loc
            self.dead = (lambda k: lambda v: v in self.owned and uses.dead_after(v, k))(k)
            vals = lower_op(stm.op, self, stm, [wanted.get(v) for v in stm.vars])
            self.bind(stm.vars, vals)
            if not isinstance(stm.op, VIEWS):
                self.owned.update(v for v, x in zip(stm.vars, vals) if isinstance(x, Arr) and v not in wanted)
        self.owned = outer_owned
        results = [self.val(r) for r in lam.results]
        for r, d, v in zip(lam.results, dests, results):
            if d is not None and not (wanted.get(r) is d and self._written(r, through, wanted)):    # type: ignore
                self.copy(d, v)
        return results

    def _through_views(self, lam: Lambda, wanted: dict[Var, Dest], uses: Uses, made: set[Var]) -> dict[Var, Var]:
        """A view that is wanted somewhere wants its base there: the destination seen through the view.  Gives the
        base of each such view."""
        through: dict[Var, Var] = {}
        for stm in reversed(lam.stms):
            d = wanted.get(stm.vars[0]) if len(stm.vars) == 1 else None
            x = getattr(stm.op, "x", None)
            if d is None or x not in made or uses.count.get(x) != 1 or x in wanted or not isinstance(x, Var):
                continue
            arr = d.arr
            match stm.op:
                case Replicate(n=1):
                    base = Arr(arr.buf, arr.offset, arr.shape[1:], arr.strides[1:])
                case Transpose(perm=perm):
                    back = [perm.index(k) for k in range(len(perm))]
                    base = Arr(arr.buf, arr.offset, tuple(arr.shape[k] for k in back),
                               tuple(arr.strides[k] for k in back))
                case Reshape() if arr.contiguous and all(s in self.env or isinstance(s, int) for s in x.type.shape):
                    shape = self.shape(x.type)
                    base = Arr(arr.buf, arr.offset, shape, row_major(shape))
                case _:
                    continue
            wanted[x] = Dest(base, d.acc)
            through[stm.vars[0]] = x
        return through

    def _written(self, v: Var, through: dict[Var, Var], wanted: dict[Var, Dest]) -> bool:
        """Whether a value was written to where it is wanted (itself, or the base it is a view of)."""
        while v in through:
            v = through[v]
        return self.env[v] is wanted[v].arr

    dead: Callable[[Var], bool] = staticmethod(lambda v: False)


def combine(prim: str, a: Expr, b: Expr) -> Expr:
    """``a prim b`` inside a user's reduction."""
    return Apply(prim, (a, b), a.elem, sum=prim in ("add", "mul") and a.elem.is_float)


@lower_op.register
def _prim(op: Prim, lw: Lowering, stm: Stm, dests: Sequence[Dest | None]) -> Sequence[Val]:
    args = tuple(lw.scalar(a) for a in op.args)
    if op.prim == "stop":                                       # its meaning ended with differentiation
        return [args[0]]
    if op.fails():
        lw.fail(Apply("eq", (args[1], Lit(0, op.elem)), bool_), "integer division by zero", "DivisionError")
    return [lw.let(Apply(op.prim, args, op.elem))]


def work(lam: Lambda, lw: Lowering) -> Expr:
    """Estimated scalar operations of a body; sizes not known on entry count as 8."""
    total: Expr = K.ZERO
    count = 0
    for stm in lam.stms:
        n: Expr = K.ONE
        size = getattr(stm.op, "n", None)
        if size is not None:
            n = Lit(size) if isinstance(size, int) else (lw.expand(lw.env[size]) if size in lw.env else None) or Lit(8)
        inner: Expr = K.ZERO
        for l in lambdas(stm.op):
            inner = K.add(inner, work(l, lw))
        sizes = getattr(stm.op, "sizes", None)
        if callable(sizes):
            inner = K.product(Lit(s) if isinstance(s, int) else (lw.expand(lw.env[s]) if s in lw.env else None)
                              or Lit(8) for s in sizes().values())
        if inner == K.ZERO:
            count += 1
            if size is None:
                continue
            inner = K.ONE
        total = K.add(total, K.mul(n, inner))
    return K.add(total, Lit(count))


def is_small(lam: Lambda, lw: Lowering) -> bool:
    """Whether a body's work is a constant too small to share among threads."""
    total = work(lam, lw)
    return isinstance(total, Lit) and total.value < SMALL


def lower(lam: Lambda, n_sizes: int, name: str = "program", vector_bytes: int = 0) -> KernelProgram:
    """Kernel code of a whole program: ``lam``'s first ``n_sizes`` parameters are sizes."""
    lw = Lowering(vector_bytes)
    sizes, params = _parameters(lam, n_sizes, lw)
    outs: list[Arr | None] = []
    body: list[K.Stm] = []
    with lw.into(body):
        _leading_sizes(lam, lw)
        outs = [_out(k, r.type, lw) for k, r in enumerate(lam.results)]
        values = lw.block(lam, [Dest(arr) if arr is not None else None for arr in outs])
        results = [_result(k, r.type, arr, v, lw) for k, (r, arr, v) in enumerate(zip(lam.results, outs, values))]
    declare(body)
    ranks = {b.name: p.type.rank for b, p in zip(params, lam.params[n_sizes:])}
    return KernelProgram(name, sizes, params, lw.temps, body, results, lw.failures, lw.guards, work(lam, lw), ranks)


def _parameters(lam: Lambda, n_sizes: int, lw: Lowering) -> tuple[list[str], list[Buf | Ref]]:
    sizes, params = [], []
    for k, p in enumerate(lam.params[:n_sizes]):
        name = f"n{k}"
        sizes.append(name)
        lw.env[p] = lw.known[name] = Ref(name)
    for k, p in enumerate(lam.params[n_sizes:]):
        if p.type.is_scalar:
            ref = Ref(f"s{k}", p.type.elem)
            params.append(ref)
            lw.env[p] = lw.known[ref.name] = ref
        else:
            shape = lw.shape(p.type)
            buf = Buf(f"a{k}", p.type.elem, "in", K.product(shape))
            params.append(buf)                                          # type: ignore[arg-type]
            lw.env[p] = Arr(buf, K.ZERO, shape, row_major(shape))
    return sizes, params                                                # type: ignore[return-value]


def _leading_sizes(lam: Lambda, lw: Lowering) -> None:
    """Sizes of results may be computed by the body; compute those that depend on the arguments alone beforehand."""
    for stm in lam.stms:
        if isinstance(stm.op, Prim):
            args = [lw.env[a] if isinstance(a, Var) and a in lw.env else Lit(a.value, a.elem) if isinstance(a, Const)
                    else None for a in stm.op.args]
            if all(isinstance(a, (Lit, Ref)) for a in args):
                e = lw.expand(Apply(stm.op.prim, tuple(args), stm.op.elem))  # type: ignore[arg-type]
                if e is not None:
                    name = lw.fresh("t")
                    lw.emit(Let(name, Apply(stm.op.prim, tuple(args), stm.op.elem)))    # type: ignore[arg-type]
                    lw.known[name] = e
                    lw.env[stm.vars[0]] = Ref(name, stm.op.elem)


def _out(k: int, t: Type, lw: Lowering) -> Arr | None:
    """Memory of the caller's for a result, where its size is known on entry."""
    if not all(isinstance(s, int) or s in lw.env for s in t.shape):
        return None
    shape = lw.shape(t)
    count = lw.expand(K.product(shape))
    return Arr(Buf(f"r{k}", t.elem, "out", count), K.ZERO, shape, row_major(shape)) if count is not None else None


def _result(k: int, t: Type, arr: Arr | None, v: Val, lw: Lowering) -> Result:
    """What the caller gets: its own memory, or memory made for a size that came out of the program."""
    if arr is not None:
        return Result(arr.buf, tuple(lw.expand(s) for s in arr.shape), t.is_scalar)      # type: ignore[misc]
    shape: tuple[Expr, ...] = ()
    for s in lw.shape(t):
        name = lw.fresh("d")
        lw.emit(Let(name, s))
        shape += (Ref(name),)
    buf = Buf(f"r{k}", t.elem, "heap", K.product(shape))
    heap = Heap(buf, [], kept=True)
    lw.emit(heap)
    lw.out = heap.body
    lw.copy(Dest(Arr(buf, K.ZERO, shape, row_major(shape))), v)
    return Result(buf, shape, False)


__all__ = ["Lowering", "combine", "lower", "lower_op", "names", "ScalarType"]
