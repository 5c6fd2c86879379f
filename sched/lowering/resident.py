"""A program whose state lies further on in its region of DRAM: every address there moves, nothing else.

A cache is a view of a region (`workload.graph.Cache`) that begins a pixel further with each pixel that is appended. All
views of a schedule begin with their regions, so one number says where they begin in a run. What the checker has proved
stays true: words of state meet words of state alone, and all of them move by as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from meshloom.hw.spec.isa import Opcode

from ..ir.schedule import Move, Schedule, Span
from ..program.program import Instruction, Program, Stream
from ..workload.graph import Cache


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

    def holds(self, tile: int, address: int) -> bool:
        """Whether a word is part of state."""
        return any(first <= address < end for first, end in self.words.get(tile, ()))


def moved_schedule(schedule: Schedule, regions: Regions, by: int) -> Schedule:
    """The schedule with its state `by` words further on."""

    def span(side: Span) -> Span:
        here = regions.holds(side.tile, side.address)
        return side.model_copy(update={"address": side.address + by}) if here else side

    operations = tuple(
        op.model_copy(update={"src": span(op.src), "dst": span(op.dst)})
        if isinstance(op, Move) and any(regions.holds(side.tile, side.address) for side in (op.src, op.dst))
        else op
        for op in schedule.operations
    )
    tensors = tuple(
        tensor.model_copy(
            update={
                "pieces": tuple(
                    piece.model_copy(update={"address": piece.address + by})
                    if regions.holds(piece.tile, piece.address)
                    else piece
                    for piece in tensor.pieces
                )
            }
        )
        for tensor in schedule.tensors
    )
    return schedule.model_copy(update={"operations": operations, "tensors": tensors})


def moved_program(program: Program, regions: Regions, by: int) -> Program:
    """The program with its state `by` words further on; instructions that touch none are the same objects."""

    def moved(one: Instruction) -> Instruction:
        if one.opcode is not Opcode.MOVE:
            return one
        sides = [side for side in ("src", "dst") if regions.holds(one.fields[f"{side}_tile"], one.fields[side])]
        return Instruction(one.opcode, one.fields | {side: one.fields[side] + by for side in sides}) if sides else one

    streams: list[Stream] = [
        replace(stream, instructions=tuple(moved(one) for one in stream.instructions)) for stream in program.streams
    ]
    return replace(program, streams=tuple(streams))
