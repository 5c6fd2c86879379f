"""Who holds the words that a MOVE brings: every memory that has been sent them, or has made them, and keeps them still.

Words are numbered by value: each word of DRAM at the beginning, and each word of OUT or VEC that a computation writes,
has a number of its own, which a MOVE takes along. So a copy is known wherever it is, whatever tile it was part of. Sums
in ACC are not followed: they change where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig, TileKind
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, Region

from .functional import offsets
from .schedule import Move, Operation, Span, intervals, memory_words, writes

_Words = NDArray[np.int32]

_MOVE = INSTRUCTIONS[Opcode.MOVE]
#: The value of a word that nobody else can hold.
_UNKNOWN = -1


class Holders:
    """Follows the words of all memories through a list of operations, done one after the other.

    Memory: 4 bytes for each value (words of DRAM that operations use, words written to OUT and VEC) in each memory from
    which words can be taken.
    """

    def __init__(self, operations: Sequence[Operation], chip: ChipConfig) -> None:
        self._chip = chip
        sizes = _dram_words(operations, chip)
        results = sum(_results(op, chip) for op in operations)
        self._values = sum(sizes.values())  # given so far
        self._held: dict[tuple[int, int], _Words] = {}  # by memory: the value of each word
        self._places: dict[tuple[int, int], _Words] = {}  # by memory: where each value was written last; -1: never
        first = 0
        for tile, words in sizes.items():
            self._held[tile, Region.MAIN] = np.arange(first, first + words, dtype=np.int32)
            first += words
        for tile, kind in chip.tiles.items():
            for region in _sources(chip, kind):
                self._places[tile, region] = np.full(self._values + results, -1, np.int32)

    def values(self, op: Move) -> NDArray[np.int32]:
        """The number of each word that a MOVE brings; -1: one that is not followed."""
        return self._memory(op.src.tile, op.src.address >> OFFSET_BITS)[offsets(op.src, op.words)]

    def others(self, op: Move) -> Iterator[Span]:
        """From where else a MOVE could take its words: memories of other tiles than its destination and its source,
        DRAM left out, that hold all of them in an order that a MOVE can read."""
        values = self.values(op)
        if (values == _UNKNOWN).any():
            return
        for (tile, region), places in self._places.items():
            if tile in (op.dst.tile, op.src.tile):
                continue
            at = places[values]
            if (at < 0).any() or not np.array_equal(self._memory(tile, region)[at], values):
                continue
            if (span := _span(tile, region, at)) is not None:
                yield span

    def done(self, op: Operation) -> None:
        """An operation has been done."""
        if isinstance(op, Move):
            self._write(op.dst.tile, op.dst.address >> OFFSET_BITS, offsets(op.dst, op.words), self.values(op))
            return
        for tile, region, spans in writes(op, self._chip):
            at = np.concatenate([np.arange(start, stop) for start, stop in spans])
            values = np.full(len(at), _UNKNOWN, np.int32)
            if region != Region.ACC:
                values = np.arange(self._values, self._values + len(at), dtype=np.int32)
                self._values += len(at)
            self._write(tile, region, at, values)

    def _memory(self, tile: int, region: int) -> _Words:
        if (tile, region) not in self._held:
            self._held[tile, region] = np.full(memory_words(self._chip, tile, region), _UNKNOWN, np.int32)
        return self._held[tile, region]

    def _write(self, tile: int, region: int, at: NDArray[np.intp], values: _Words) -> None:
        self._memory(tile, region)[at] = values
        if (places := self._places.get((tile, region))) is not None:
            valid = values != _UNKNOWN
            places[values[valid]] = at[valid]


def _sources(chip: ChipConfig, kind: TileKind) -> tuple[Region, ...]:
    """Memories of a tile whose words are followed and can be read by its mover."""
    operands = (Region.MAIN, Region.B) if chip.core.operand_sources else ()
    return {TileKind.CORE: (*operands, Region.OUT, Region.VEC), TileKind.SPM: (Region.MAIN,)}.get(kind, ())


def _results(op: Operation, chip: ChipConfig) -> int:
    """Words that a computation writes to OUT or VEC."""
    if isinstance(op, Move):
        return 0
    written = [access.intervals for access in writes(op, chip) if access.region != Region.ACC]
    return sum(stop - start for spans in written for start, stop in spans)


def _dram_words(operations: Sequence[Operation], chip: ChipConfig) -> dict[int, int]:
    """Words of each DRAM tile up to the last one that an operation uses."""
    words = dict.fromkeys(chip.drams, 0)
    for op in operations:
        if not isinstance(op, Move):
            continue
        for span in (op.src, op.dst):
            if span.tile in words:
                words[span.tile] = max(words[span.tile], intervals(span, op.words)[-1][1])
    return words


def _span(tile: int, region: int, at: _Words) -> Span | None:
    """Words at these offsets, in this order, as a span; None if a MOVE cannot read them so."""
    first, words = int(at[0]), len(at)
    breaks = np.flatnonzero(np.diff(at) != 1)
    run = int(breaks[0]) + 1 if len(breaks) else words
    stride = int(at[run]) - first if run < words else run
    span = Span(tile=tile, address=region << OFFSET_BITS | first, run=run, stride=max(stride, 0))
    fits = run <= _MOVE.most("src_run") and 0 <= stride <= _MOVE.most("src_stride")
    return span if fits and np.array_equal(offsets(span, words), at) else None
