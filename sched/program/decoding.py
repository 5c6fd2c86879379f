"""Many instructions decoded at once: field by field on arrays of 64-bit words, several times as fast as one by one."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INSTRUCTION_BYTES, INSTRUCTIONS, Format, IsaError

from .program import Instruction

Words = NDArray[np.uint64]
_WORDS = INSTRUCTION_BYTES // 8


def decoded(words: Words) -> list[Instruction]:
    """Instructions from their code, uint64 [instructions, 4], low words first: what `hw.spec.isa.decode` says of each.

    Raises IsaError for code that is none.
    """
    numbers = words[:, 0] & np.uint64(0xF)
    instructions: list[Instruction | None] = [None] * len(words)
    left = len(words)
    for opcode, layout in INSTRUCTIONS.items():
        rows = np.flatnonzero(numbers == int(opcode))
        if not len(rows):
            continue
        left -= len(rows)
        _check(layout, words[rows])
        names = [name for name in layout.offsets if name != "opcode"]
        columns = [_column(layout, name, words[rows]) for name in names]
        for row, values in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            instructions[row] = Instruction(opcode, dict(zip(names, values, strict=True)))
    if left:
        opcodes = [int(opcode) for opcode in INSTRUCTIONS]
        raise IsaError(f"illegal opcode {int(numbers[~np.isin(numbers, opcodes)][0])}")
    return cast("list[Instruction]", instructions)


def _column(layout: Format, name: str, words: Words) -> list[int]:
    """A field of each of these instructions."""
    low, bits = layout.offsets[name]
    word, shift = divmod(low, 64)
    if bits > 64:
        return [_number(row) >> low & (1 << bits) - 1 for row in words]
    values = words[:, word] >> np.uint64(shift)
    if shift + bits > 64:
        values = values | (words[:, word + 1] << np.uint64(64 - shift))
    return cast("list[int]", (values & np.uint64((1 << bits) - 1)).tolist())


def _number(row: Words) -> int:
    """An instruction as one number."""
    return sum(int(each) << 64 * at for at, each in enumerate(row))


def _check(layout: Format, words: Words) -> None:
    """Raises IsaError if a reserved bit is set."""
    for word in range(_WORDS):
        reserved = ~((1 << min(64, max(0, layout.used - 64 * word))) - 1) & (1 << 64) - 1
        if (wrong := np.flatnonzero(words[:, word] & np.uint64(reserved))).size:
            raise IsaError(f"{layout.name}: reserved bits are set in {_number(words[wrong[0]]):#x}")
