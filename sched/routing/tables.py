"""Reservation tables, compiled: a bit for each resource and cycle."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import jit

#: A table of bits is uint64 [resource, cycle // 64].
Array = Any

#: Numbers with the type of all others: a literal would be one more type to compile for.
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)
NONE: Any = np.int64(-1)
_BIT = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
#: De Bruijn's sequence: every 6-bit window of it is different, so a product with a lone bit tells its position.
_SEQUENCE = np.uint64(0x03F79D71B4CB0A89)
_POSITION: Any = np.zeros(64, np.int64)
for _at in range(64):
    _POSITION[((0x03F79D71B4CB0A89 << _at) & 0xFFFFFFFFFFFFFFFF) >> 58] = _at


@jit
def mask(first: int, last: int) -> Any:
    """Bits `first` .. `last` (inclusive, 0..63) of a word."""
    return (_ALL << np.uint64(first)) & (_ALL >> np.uint64(63 - last))


@jit
def lowest(word: Any) -> int:
    """Position of the lowest 1 of a word that has one."""
    return _POSITION[((word & (~word + _BIT)) * _SEQUENCE) >> np.uint64(58)]


@jit
def highest(word: Any) -> int:
    """Position of the highest 1 of a word that has one."""
    for shift in (1, 2, 4, 8, 16, 32):
        word |= word >> np.uint64(shift)
    return _POSITION[((word ^ (word >> _BIT)) * _SEQUENCE) >> np.uint64(58)]


@jit
def first_busy(table: Array, row: int, start: int, end: int) -> int:
    """The first reserved cycle of a resource in [start, end), -1 if there is none."""
    last = end - 1
    for at in range(start >> 6, (last >> 6) + 1):
        word = table[row, at]
        if word:
            word &= mask(start & 63 if at == start >> 6 else 0, last & 63 if at == last >> 6 else 63)
            if word:
                return (at << 6) + lowest(word)
    return -1


@jit
def last_busy(table: Array, row: int, start: int, end: int) -> int:
    """The last reserved cycle of a resource in [start, end), -1 if there is none."""
    last = end - 1
    for at in range(last >> 6, (start >> 6) - 1, -1):
        word = table[row, at]
        if word:
            word &= mask(start & 63 if at == start >> 6 else 0, last & 63 if at == last >> 6 else 63)
            if word:
                return (at << 6) + highest(word)
    return -1


@jit
def flip(table: Array, row: int, start: int, end: int) -> None:
    """Reserves the cycles [start, end) of a resource that are all free, or frees them if they are all reserved."""
    last = end - 1
    for at in range(start >> 6, (last >> 6) + 1):
        table[row, at] ^= mask(start & 63 if at == start >> 6 else 0, last & 63 if at == last >> 6 else 63)
