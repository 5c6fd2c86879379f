"""A program whose state lies elsewhere in its regions of DRAM: every address there moves, nothing else.

A cache is a view of a region (`workload.regions.Cache`) that begins a pixel further with each pixel that is appended.
All views of a schedule begin with their regions, so one number says where they begin in a run. What the checker has
proved stays true: words of state meet words of state alone, and all of them move by as much.

So do weights of experts, which lie side by side in regions of their own: each of a schedule's views moves to the expert
that a run wants there, by a number of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import INSTRUCTION_BYTES, ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from ..ir.schedule import Move, Piece, Schedule, Span
from ..program.program import EncodedStream, Instruction, Program, Stream
from ..workload.regions import Cache

Words = NDArray[np.uint64]
T = TypeVar("T", Span, Piece)
_WORD = (1 << 64) - 1


def _address_of(side: str) -> tuple[int, int]:
    """The 64-bit word of a MOVE that holds the address of a side, and its lowest bit there."""
    low, bits = INSTRUCTIONS[Opcode.MOVE].offsets[side]
    assert low // 64 == (low + bits - 1) // 64, side
    return low // 64, low % 64


_ADDRESSES = {side: _address_of(side) for side in ("src", "dst")}


class _Spans:
    """Words of a tile in some spans (first, end), which may overlap."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in sorted(pairs):
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._firsts.append(first)
                self._ends.append(end)

    def meet(self, first: int, end: int) -> bool:
        """Whether any word from `first` to before `end` is one of them."""
        before = bisect_left(self._firsts, end) - 1  # the last that begins before the end
        return before >= 0 and self._ends[before] > first


@dataclass(frozen=True)
class Regions:
    """Where state lies: (first, end) words of each DRAM tile."""

    words: dict[int, tuple[tuple[int, int], ...]]

    @classmethod
    def of(cls, schedule: Schedule, caches: Iterable[Cache]) -> Regions:
        """Those of a schedule whose views begin with their regions."""
        words: dict[int, list[tuple[int, int]]] = {}
        for cache in caches:
            for piece in schedule.tensor(cache.past).pieces:  # one for each plane: they lie apart
                words.setdefault(piece.tile, []).append((piece.address, piece.address + cache.positions))
        return cls({tile: tuple(sorted(pairs)) for tile, pairs in words.items()})

    @classmethod
    def of_views(cls, schedule: Schedule, names: Iterable[str]) -> Regions:
        """Where these tensors of a schedule lie, and nothing else of their regions."""
        words: dict[int, list[tuple[int, int]]] = {}
        for name in names:
            for piece in schedule.tensor(name).pieces:
                words.setdefault(piece.tile, []).append((piece.address, piece.address + piece.words))
        return cls({tile: tuple(sorted(pairs)) for tile, pairs in words.items()})

    def holds(self, tile: int, address: int) -> bool:
        """Whether a word is part of state."""
        return tile in self._spans and self._spans[tile].meet(address, address + 1)

    @cached_property
    def _spans(self) -> dict[int, _Spans]:
        return {tile: _Spans(pairs) for tile, pairs in self.words.items()}


def moved_schedule(schedule: Schedule, *moves: tuple[Regions, int]) -> Schedule:
    """The schedule with the state of each of these regions so many words further on."""

    def moved(place: T) -> T:
        by = next((by for regions, by in moves if regions.holds(place.tile, place.address)), 0)
        return place.model_copy(update={"address": place.address + by}) if by else place

    operations = tuple(
        op.model_copy(update={"src": src, "dst": dst})
        if isinstance(op, Move) and ((src := moved(op.src)) is not op.src) | ((dst := moved(op.dst)) is not op.dst)
        else op
        for op in schedule.operations
    )
    tensors = tuple(
        tensor.model_copy(update={"pieces": tuple(map(moved, tensor.pieces))}) for tensor in schedule.tensors
    )
    return schedule.model_copy(update={"operations": operations, "tensors": tensors})


@dataclass(frozen=True)
class _Sites:
    """A stream whose state can move: its code, uint64 [instructions, 4], and the rows whose address lies in state, by
    number of the regions and side of a MOVE."""

    words: Words
    rows: dict[tuple[int, str], NDArray[np.intp]]

    @classmethod
    def of(cls, stream: Stream, regions: Sequence[Regions]) -> _Sites | None:
        """Those of a stream; None if it touches no state."""
        moves = [(row, one.fields) for row, one in enumerate(stream.instructions) if one.opcode is Opcode.MOVE]
        rows = {
            (number, side): np.array(
                [row for row, fields in moves if some.holds(fields[f"{side}_tile"], fields[side])], np.intp
            )
            for number, some in enumerate(regions)
            for side in _ADDRESSES
        }
        if not any(map(len, rows.values())):
            return None
        raw = b"".join(one.encode() for one in stream.instructions)
        return cls(np.frombuffer(raw, np.uint64).reshape(-1, INSTRUCTION_BYTES // 8), rows)

    def moved(self, by: Sequence[int]) -> Words:
        """The code with its state so many words further on. No address leaves its field: the regions lie in DRAM."""
        words = self.words.copy()
        for (number, side), rows in self.rows.items():
            word, low = _ADDRESSES[side]
            words[rows, word] += np.uint64((by[number] << low) & _WORD)
        return words

    @property
    def changing(self) -> list[int]:
        """Instructions that change when state moves."""
        return sorted({number for rows in self.rows.values() for number in rows.tolist()})


class ResidentProgram:
    """A program whose state may lie anywhere in its regions: a number is added to some words of its code, one for each
    of the `regions`."""

    def __init__(self, program: Program, *regions: Regions) -> None:
        self.program = program
        self._sites = [_Sites.of(stream, regions) for stream in program.streams]

    def code(self, *by: int) -> list[Words | None]:
        """By stream, its code with its state so many words further on, uint64 [instructions, 4]; None: it is as it was.
        This is all that a launch has to do."""
        return [sites and sites.moved(by) for sites in self._sites]

    def moved(self, *by: int) -> Program:
        """The program with its state so many words further on; instructions that touch none are the same objects."""
        streams: list[Stream] = []
        for stream, sites, words in zip(self.program.streams, self._sites, self.code(*by), strict=True):
            if sites is None or words is None:
                streams.append(stream)
                continue
            instructions = list(stream.instructions)
            for (regions, side), rows in sites.rows.items():
                numbers: list[int] = rows.tolist()
                for number in numbers:
                    one = instructions[number]
                    instructions[number] = Instruction(one.opcode, one.fields | {side: one.fields[side] + by[regions]})
            streams.append(
                EncodedStream(
                    stream.tile, stream.unit, stream.dram_tile, stream.address, tuple(instructions),
                    words.view(np.uint8).reshape(-1),
                )
            )  # fmt: skip
        return replace(self.program, streams=tuple(streams))

    @property
    def changing(self) -> int:
        """How many instructions change when state moves."""
        return sum(len(sites.changing) for sites in self._sites if sites)

    def unchanged(self, chip: ChipConfig) -> list[tuple[int, int, int]]:
        """The code that does not change when state moves: DRAM tile, first word, words."""
        size = chip.instruction_words
        ranges: list[tuple[int, int, int]] = []
        for stream, sites in zip(self.program.streams, self._sites, strict=True):
            edges = [-1, *(sites.changing if sites else ()), len(stream.instructions)]
            ranges += [
                (stream.dram_tile, stream.address + (low + 1) * size, (high - low - 1) * size)
                for low, high in pairwise(edges)
                if high - low > 1
            ]
        boot = self.program.boot
        return [*ranges, (boot.dram_tile, boot.address, len(boot.instructions) * size)]


def lasting(schedule: Schedule, chip: ChipConfig) -> list[tuple[int, int, int]]:
    """Constants that are in DRAM after a run as before it: DRAM tile, first word, words."""
    drams = set(chip.drams)
    written: dict[int, list[tuple[int, int]]] = {}
    for op in schedule.operations:
        if isinstance(op, Move) and op.dst.tile in drams:
            dst = op.dst
            rows, rest = divmod(op.words - 1, dst.run)
            end = dst.address + (rows * dst.stride + dst.run if rows else rest + 1)
            written.setdefault(dst.tile, []).append((dst.address, end))
    spans = {tile: _Spans(pairs) for tile, pairs in written.items()}
    return [
        (piece.tile, piece.address, piece.words)
        for tensor in schedule.tensors
        if tensor.role == "constant"
        for piece in tensor.pieces
        if piece.tile not in spans or not spans[piece.tile].meet(piece.address, piece.address + piece.words)
    ]
