"""``contract``: sums of products in the notation of einsum.

    contract("ij,jk->ik", a, b)     the matrix product: for i, k the sum over j of a[i, j] * b[j, k]

It is a nest of maps around a sum of products, as one would write it, which `parray.contractions` recognises.  Three or
more operands are taken two at a time from the left, summing an axis as soon as no later operand has it.
"""
from __future__ import annotations

from typing import Any, Sequence

from parray import builder
from parray.errors import SizeMismatch, TypeMismatch
from parray.ir import resolve
from parray.trace import context
from parray.trace.combinators import tabulate
from parray.trace.elementwise import apply, lift
from parray.trace.reductions import sum as sum_
from parray.trace.tracer import Tracer


def contract(spec: str, *operands: Any) -> Any:
    """Einstein's summation: ``contract("ij,j->i", a, x)``; without ``->`` the letters that occur once, in order.

    A letter twice in one operand is its diagonal.  Raises TypeMismatch for a malformed specification and SizeMismatch
    where a letter would have two sizes.
    """
    context.current("pa.contract")
    xs = [lift(x, "pa.contract") for x in operands]
    inputs, output = _parse(spec, xs)
    sizes: dict[str, Any] = {}
    for letters, x in zip(inputs, xs):
        for c, n in zip(letters, x.type.shape):
            if c in sizes:
                if isinstance(resolve(n), int) and isinstance(resolve(sizes[c]), int) and resolve(n) != sizes[c]:
                    raise SizeMismatch(f"pa.contract: {c} is {sizes[c]} and {resolve(n)}", builder.here())
                context.unify(sizes[c], n, f"the axis {c} of pa.contract has one size")
            sizes[c] = resolve(n)
    context.settle()
    left, x = inputs[0], xs[0]
    for k in range(1, len(xs)):
        later = set(output).union(*inputs[k + 1:])
        kept = "".join(dict.fromkeys(c for c in left + inputs[k] if c in later))
        x = _pair([left, inputs[k]], [x, xs[k]], output if k + 1 == len(xs) else kept, sizes)
        left = output if k + 1 == len(xs) else kept
    return x if len(xs) > 1 else _pair([left], [x], output, sizes)


def _parse(spec: str, xs: Sequence[Tracer]) -> tuple[list[str], str]:
    text = spec.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    letters = "".join(inputs)
    if not arrow:
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(inputs) != len(xs) or not (letters + output).isalpha() and letters + output or \
            len(set(output)) != len(output) or not set(output) <= set(letters):
        raise TypeMismatch(f'pa.contract: "{spec}" does not describe {len(xs)} arrays; it is like "ij,jk->ik"',
                           builder.here())
    for part, x in zip(inputs, xs):
        if len(part) != x.ndim:
            raise TypeMismatch(f'pa.contract: "{part}" names {len(part)} axes of {x!r}', builder.here())
    return inputs, output


def _pair(parts: Sequence[str], xs: Sequence[Tracer], output: str, sizes: dict[str, Any]) -> Any:
    """For each index of the output the sum over all other letters of the product."""
    summed = [c for c in dict.fromkeys("".join(parts)) if c not in output]

    def n(c: str) -> Any:
        return sizes[c] if isinstance(sizes[c], int) else Tracer(sizes[c], True, True)

    def element(at: dict[str, Any]) -> Any:
        values = [x[tuple(at[c] for c in part)] if part else x for part, x in zip(parts, xs)]
        return values[0] if len(values) == 1 else apply("mul", *values)

    def total(rest: Sequence[str], at: dict[str, Any]) -> Any:
        if not rest:
            return element(at)
        row = tabulate(n(rest[0]), lambda i: total(rest[1:], at | {rest[0]: i}))
        return sum_(row).astype(row.dtype)
    if not output:
        return total(summed, {})
    return tabulate(tuple(n(c) for c in output), lambda *i: total(summed, dict(zip(output, i))))
