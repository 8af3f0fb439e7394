"""Names for sizes that a type checker accepts: ``f32[M, N]`` says what ``f32["M", "N"]`` says.

Any type variable serves; these are here so that models need not declare their own.
"""
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
H = TypeVar("H")
K = TypeVar("K")
L = TypeVar("L")
M = TypeVar("M")
N = TypeVar("N")
P = TypeVar("P")
T = TypeVar("T")
V = TypeVar("V")
W = TypeVar("W")
