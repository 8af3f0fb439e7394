"""What runs a program on the CPU: a frame of named values, and a loop that calls kernels in order.

A *frame* is one thread's array of 64-bit slots holding everything kernels share by name: sizes, scalars, addresses of
buffers.  A *table* is the program: calls, barriers and jumps as integers.  ``drive`` executes it; it is compiled once
and serves every program, so that a new program costs the compilation of its new kernels only.

    CALL kernel slots      BARRIER      LOOP var n end / NEXT var n start      UNLESS slot target      GOTO target
    SHARE first n: this thread's part of n      LEADER target: on for thread 0      END
    FAILED target: on there if a thread has failed      FAILED_HERE target: if this one has
    NEW slot bytes / FREE slot: memory of one thread's      NEW_ALL / FREE_ALL: of all threads'

``slots`` says where in the frame a kernel's own parameters lie, so one kernel serves many places of many programs.
"""
from __future__ import annotations

import time
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from parray.backends.intrinsics import ALWAYS, atomic_load, atomic_store, barrier, heap_free, heap_new, part, pointer

CALL, BARRIER, LOOP, NEXT, UNLESS, GOTO, NEW, FREE, NEW_ALL, FREE_ALL, SHARE, LEADER, FAILED, FAILED_HERE, \
    END = range(15)
LENGTH = (3, 1, 4, 4, 3, 2, 3, 2, 3, 2, 3, 2, 2, 2, 1)                      # of each operation with its operands
NO_MEMORY = -1                                            # a failure that is not of the program's making
SHARED = 4                                                # the word of the threads' own memory that passes a slot on
ANY_FAILURE = 5                                           # ... and the one that says whether some thread has failed
CLOCK = getattr(time, "CLOCK_MONOTONIC", -1)              # -1 where the system has no such clock
FAILURE, THREAD, THREADS, SYNC, FIRST = range(5)           # reserved slots; arguments begin at FIRST

_I64, _I32, _I8P = ir.IntType(64), ir.IntType(32), cgutils.voidptr_t


def _place(builder: Any, frame: Any, slots: Any, k: Any) -> Any:
    """The address of parameter ``k``'s slot."""
    index = builder.load(builder.gep(builder.bitcast(slots, _I32.as_pointer()), [k]))
    wide = builder.zext(index, _I64)
    return builder.gep(frame, [builder.shl(wide, ir.Constant(_I64, 3))])


def _typed(context: Any, elem: Any) -> Any:
    return context.data_model_manager[elem].get_data_type().as_pointer()


@intrinsic
def get(typingctx: Any, frame: Any, slots: Any, k: Any, elem: Any) -> Any:
    """Parameter ``k`` of a kernel as a scalar of type ``elem``."""
    result = elem.instance_type if hasattr(elem, "instance_type") else elem.dtype

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p = builder.bitcast(_place(builder, *args[:3]), _typed(context, result))
        return context.data_model_manager[result].from_data(builder, builder.load(p))
    return result(types.voidptr, types.voidptr, types.int64, elem), codegen


@intrinsic
def put(typingctx: Any, frame: Any, slots: Any, k: Any, value: Any) -> Any:
    """Leave a scalar in the slot of parameter ``k``."""
    value = types.unliteral(value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p = builder.bitcast(_place(builder, *args[:3]), _typed(context, value))
        builder.store(context.data_model_manager[value].as_data(builder, args[3]), p)
        return context.get_dummy_value()
    return types.void(types.voidptr, types.voidptr, types.int64, value), codegen


@intrinsic
def at(typingctx: Any, frame: Any, slots: Any, k: Any) -> Any:
    """The address in the slot of parameter ``k``."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p = builder.bitcast(_place(builder, *args), _I8P.as_pointer())
        return builder.load(p)
    return types.voidptr(types.voidptr, types.voidptr, types.int64), codegen


@intrinsic
def set_slot(typingctx: Any, frame: Any, slot: Any, value: Any) -> Any:
    """Put a value of any scalar type into a slot given by its number."""
    value = types.unliteral(value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p = builder.gep(args[0], [builder.shl(args[1], ir.Constant(_I64, 3))])
        data = context.data_model_manager[value].as_data(builder, args[2])
        builder.store(data, builder.bitcast(p, data.type.as_pointer()))
        return context.get_dummy_value()
    return types.void(types.voidptr, types.int64, value), codegen


@intrinsic
def slot(typingctx: Any, frame: Any, k: Any) -> Any:
    """The integer in slot ``k``."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p = builder.gep(args[0], [builder.shl(args[1], ir.Constant(_I64, 3))])
        return builder.load(builder.bitcast(p, _I64.as_pointer()))
    return types.int64(types.voidptr, types.int64), codegen


@intrinsic
def _slot_bool(typingctx: Any, frame: Any, k: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p = builder.gep(args[0], [builder.shl(args[1], ir.Constant(_I64, 3))])
        return builder.zext(builder.load(p), _I64)
    return types.int64(types.voidptr, types.int64), codegen


@intrinsic
def offset(typingctx: Any, base: Any, nbytes: Any) -> Any:
    """An address some bytes further on."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])
    return types.voidptr(types.voidptr, types.int64), codegen


@intrinsic
def word(typingctx: Any, address: Any) -> Any:
    """The 64 bits at an address."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _I64.as_pointer()))
    return types.int64(types.int64), codegen


@intrinsic
def _integer(typingctx: Any, p: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], _I64)
    return types.int64(types.voidptr), codegen


@intrinsic
def _address(typingctx: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _I8P)
    return types.voidptr(types.int64), codegen


@intrinsic
def _call(typingctx: Any, kernel: Any, frame: Any, slots: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = ir.FunctionType(ir.VoidType(), [_I8P, _I8P]).as_pointer()
        builder.call(builder.inttoptr(args[0], t), [args[1], args[2]])
        return context.get_dummy_value()
    return types.void(types.int64, types.voidptr, types.voidptr), codegen


@intrinsic
def now(typingctx: Any) -> Any:
    """Nanoseconds on a clock that never goes back."""
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        t = ir.FunctionType(_I32, [_I32, _I64.as_pointer()])
        clock = cgutils.get_or_insert_function(builder.module, t, "clock_gettime")
        place = cgutils.alloca_once(builder, ir.ArrayType(_I64, 2))
        parts = builder.bitcast(place, _I64.as_pointer())
        builder.call(clock, [ir.Constant(_I32, CLOCK), parts])
        seconds, rest = builder.load(parts), builder.load(builder.gep(parts, [ir.Constant(_I32, 1)]))
        return builder.add(builder.mul(seconds, ir.Constant(_I64, 10**9)), rest)
    return types.int64(), codegen


@njit(**ALWAYS)
def begin(frame: Any, base: Any, template: Any, strides: Any, thread: int, threads: int, sync: Any) -> None:
    """Fill a frame: constants and sizes as they are, temporaries (``strides`` >= 0) as addresses in the arena."""
    start = _integer(base)
    for k in range(template.shape[0]):
        value = template[k]
        if strides[k] >= 0:
            value += start + thread * strides[k]
        set_slot(frame, k, value)
    set_slot(frame, THREAD, thread)
    set_slot(frame, THREADS, threads)
    set_slot(frame, SYNC, _integer(sync))


@njit(**ALWAYS)
def share(frame: Any, k: int, sync: Any, threads: int) -> None:
    """Slot ``k`` of thread 0 becomes every thread's."""
    if threads > 1:
        if slot(frame, THREAD) == 0:
            atomic_store(sync, SHARED, slot(frame, k))
        barrier(sync, threads)
        set_slot(frame, k, atomic_load(sync, SHARED, 0))
        barrier(sync, threads)


@njit(**ALWAYS)
def drive(table: Any, slots: Any, frame: Any, sync: Any, threads: int, times: Any) -> None:
    """Execute a table.  ``times``, unless it is None, gets the nanoseconds of each CALL and BARRIER, by thread and
    place in the table."""
    where = pointer(slots)
    pc = 0
    while True:
        op = table[pc]
        start = 0
        if times is not None:
            start = now()
        at = pc
        if op == CALL:
            _call(table[pc + 1], frame, offset(where, 4 * table[pc + 2]))
            pc += 3
        elif op == BARRIER:
            barrier(sync, threads)
            pc += 1
        elif op == LOOP:
            set_slot(frame, table[pc + 1], 0)
            pc = pc + 4 if slot(frame, table[pc + 2]) > 0 else table[pc + 3]
        elif op == NEXT:
            i = slot(frame, table[pc + 1]) + 1
            set_slot(frame, table[pc + 1], i)
            pc = table[pc + 3] if i < slot(frame, table[pc + 2]) else pc + 4
        elif op == UNLESS:
            pc = table[pc + 2] if _slot_bool(frame, table[pc + 1]) & 1 == 0 else pc + 3
        elif op == GOTO:
            pc = table[pc + 1]
        elif op == NEW or op == NEW_ALL:
            if op == NEW or slot(frame, THREAD) == 0:
                set_slot(frame, table[pc + 1], _integer(heap_new(max(slot(frame, table[pc + 2]), 64))))
            if op == NEW_ALL:
                share(frame, table[pc + 1], sync, threads)
            if slot(frame, table[pc + 1]) == 0:
                set_slot(frame, FAILURE, NO_MEMORY)
                break
            pc += 3
        elif op == FREE or op == FREE_ALL:
            if op == FREE_ALL:
                barrier(sync, threads)
            if op == FREE or slot(frame, THREAD) == 0:
                heap_free(_address(slot(frame, table[pc + 1])))
            pc += 2
        elif op == SHARE:
            n, thread = slot(frame, table[pc + 2]), slot(frame, THREAD)
            first = part(n, thread, threads)
            set_slot(frame, table[pc + 1], first)
            set_slot(frame, table[pc + 2], part(n, thread + 1, threads) - first)
            pc += 3
        elif op == FAILED or op == FAILED_HERE:
            failed = slot(frame, FAILURE)
            if op == FAILED and threads > 1:                # all must go the same way
                if failed != 0:
                    atomic_store(sync, ANY_FAILURE, failed)
                barrier(sync, threads)
                failed = atomic_load(sync, ANY_FAILURE, 0)
                barrier(sync, threads)
            pc = table[pc + 1] if failed != 0 else pc + 2
        elif op == LEADER:
            pc = pc + 2 if slot(frame, THREAD) == 0 else table[pc + 1]
        else:
            break
        if times is not None:
            times[slot(frame, THREAD), at] += now() - start


@njit(**ALWAYS)
def finish(frame: Any, failures: Any) -> None:
    """Hand a recorded failure to the caller."""
    if slot(frame, FAILURE) != 0:
        failures[0] = slot(frame, FAILURE)


@njit("void(int64)", cache=True)
def release(address: int) -> None:
    """Free memory that a program kept for its caller."""
    heap_free(_address(address))
