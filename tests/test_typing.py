"""What a static type checker says of users' programs: right ones pass, wrong calls are found."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

PROGRAM = '''
import numpy as np
import parray as pa
from parray import f32, f64, i64, parallel
from parray.sizes import M, N

class Layer(pa.Record):
    w: f32[M, N]
    b: f32[M]

@parallel
def linear(p: Layer, x: f32[N], scale: f32 = 1.0) -> f32[M]:
    y = p.w @ x + p.b
    return y.reshape(-1)[::2].T * scale

@parallel(static="k", backend="interp")
def summed(x: f64[N], k: int, i: i64) -> f64:
    return pa.map(lambda v: v[0], x) * k if k > 2 else pa.sum(x)

p = Layer(np.ones((2, 3), np.float32), np.ones(2, np.float32))
x = np.ones(3, np.float32)
a = linear(p, x)
b = linear(p, x, 2.0)
c = linear(p - 0.1 * p, x, scale=np.float32(2))
d = summed(np.ones(3), 3, 0)
e = pa.grad(summed)(x, k=2, i=np.int64(1))
f = parallel(lambda x: x + 1)(x)
u, v = p
print(a.shape, d + 1, b[0], (-p)._replace(w=x), a.astype(f64), len(summed.explain(x, 2, 1)))
'''
WRONG = '''
linear(x, p)
linear(p)
linear(p, x, scal=2)
linear(p, "a")
linear(p, None)
linear(p, [1.0])
linear(p, {"x": x})
summed(x, "3", 1)
pa.grad(summed)(x, 1)
Layer(np.ones(3))
parallel(3)
parallel(linear.f, statics="x")
'''


@pytest.mark.slow
@pytest.mark.parametrize("program, lines", [(PROGRAM, set()), (PROGRAM + WRONG, set(range(1, 13)))])
def test_mypy(program: str, lines: set[int], tmp_path: Path) -> None:
    """``lines``: those of WRONG that must be errors."""
    api = pytest.importorskip("mypy.api")
    file = tmp_path / "program.py"
    file.write_text(program)
    out, err, status = api.run([str(file), "--strict", "--no-warn-return-any", "--follow-imports=silent",
                                "--cache-dir", str(tmp_path / "cache"), "--config-file="])
    before = PROGRAM.count("\n")
    found = {int(n) - before for n in re.findall(r"program\.py:(\d+): error", out)}
    assert not err and found == {n + 1 for n in lines}, out
