"""Where CPython and NumPy keep what compiled code reads of a call's arguments: data of arrays, values of scalars.

A call hands over one list of arrays and NumPy scalars.  Unpacking them through numba would mean compiling a way in
for every signature (a second and more for the parameters of a model); instead one function reads the list as the C
structures say (PyListObject, PyArrayObject, numpy/arrayscalars.h).  The places are looked up here,
"""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_WORD = 8


def _word(address: int) -> int:
    return int(ctypes.c_uint64.from_address(address).value)


def _find(x: Any, wanted: int) -> list[int]:
    """The offsets in an object at which a word stands."""
    return [k for k in range(0, type(x).__basicsize__ - _WORD + 1, _WORD) if _word(id(x) + k) == wanted]


def _layout() -> tuple[int, int]:
    """(offset of an array's data pointer and of a scalar's value, offset of a list's pointer to its items)."""
    pattern = 0x7edcba9876543210                                            # no address, no count
    array, scalar = np.zeros(3), np.uint64(pattern)
    items: list[Any] = [array, scalar, array]
    heads = [k for k in _find(array, array.ctypes.data) if k in _find(scalar, pattern)]
    small: list[Any] = [np.float32(1.5), np.float64(-2.5), np.int8(-3), np.uint16(77), np.int64(-5), np.bool_(True)]
    heads = [k for k in heads if all(ctypes.string_at(id(s) + k, s.nbytes) == s.tobytes() for s in small)]
    lists = [k for k in range(2 * _WORD, list.__basicsize__, _WORD)
             if _word(id(items) + k) % _WORD == 0 and _word(id(items) + k) > 1 << 16
             and [_word(_word(id(items) + k) + _WORD * j) for j in range(3)] == list(map(id, items))]
    if len(heads) != 1 or len(lists) != 1:
        raise RuntimeError("the memory layout of Python's or NumPy's objects is not one that parray knows")
    return heads[0], lists[0]


HEAD, ITEMS = _layout()
