"""How full the memories are over time: words that somebody will still read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import TileKind
from meshloom.hw.spec.isa import Region
from meshloom.sched.ir.schedule import memory_words, reads, writes
from meshloom.sched.program.names import region_name, tile_name

from ..results.tracks import Occupancy
from .finished import Entry, FinishedRun
from .records import InstructionPlace

Ints = NDArray[np.int64]


class _Memory:
    """The words of a region: since when each holds what somebody reads, and until when; lives that have ended."""

    def __init__(self, words: int) -> None:
        self.since: Ints = np.full(words, -1, dtype=np.int64)
        self.until: Ints = np.full(words, -1, dtype=np.int64)
        self.lives: list[Ints] = []

    def write(self, start: int, stop: int, cycle: int) -> None:
        """Words [start, stop) are written from `cycle` on: what they held ends."""
        self._end(start, stop, cycle)
        self.since[start:stop], self.until[start:stop] = cycle, -1

    def read(self, start: int, stop: int, cycle: int) -> None:
        """Words [start, stop) have been read when `cycle` begins."""
        np.maximum(self.until[start:stop], cycle, out=self.until[start:stop])

    def close(self) -> Ints:
        """All lives, int64 [n, 3]: first cycle, the one after the last, words."""
        self._end(0, len(self.since), np.iinfo(np.int64).max)
        return np.concatenate(self.lives) if self.lives else np.zeros((0, 3), dtype=np.int64)

    def _end(self, start: int, stop: int, cycle: int) -> None:
        since, until = self.since[start:stop], np.minimum(self.until[start:stop], cycle)
        alive = (since >= 0) & (until > since)
        if alive.any():
            lives, count = np.unique(np.stack((since[alive], until[alive]), axis=1), axis=0, return_counts=True)
            self.lives.append(np.column_stack((lives, count)))


def occupancy(run: FinishedRun, records: Mapping[InstructionPlace, Entry]) -> list[Occupancy]:
    """Each memory of cores and scratchpads that the run writes and reads, in floorplan order.

    A word counts from the start of the operation that writes it to the end of the last one that reads it, or to the
    start of the one that overwrites it. Operations without a record are left out.
    """
    times = _times(run, records)
    memories: dict[tuple[int, Region], _Memory] = {}
    for number, op in enumerate(run.schedule.operations):
        if number not in times:
            continue
        start, end = times[number]
        for accesses, reading in ((reads(op, run.chip), True), (writes(op, run.chip), False)):
            for tile, region, intervals in accesses:
                if run.chip.tiles[tile] is TileKind.DRAM:
                    continue
                memory = memories.get((tile, region))
                if memory is None:
                    memory = memories[tile, region] = _Memory(memory_words(run.chip, tile, region))
                for first, stop in intervals:
                    (memory.read if reading else memory.write)(first, stop, end if reading else start)
    occupancies: list[Occupancy] = []
    for (tile, region), memory in sorted(memories.items()):
        cycles, words = _steps(memory.close())
        if len(cycles):
            name = tile_name(run.chip, tile)
            if run.chip.tiles[tile] is TileKind.CORE:
                name += f" {'A' if region == Region.MAIN else region_name(region)}"
            occupancies.append(Occupancy(name, memory_words(run.chip, tile, region), cycles, words))
    return occupancies


def _times(run: FinishedRun, records: Mapping[InstructionPlace, Entry]) -> dict[int, tuple[int, int]]:
    """First and last cycle of each operation; those of a pull begin with its execution."""
    pairs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for place, entry in records.items():
        number = run.number(place)
        if number is not None:
            pairs[number].append((entry.start, entry.end))
    return {number: max(spans) for number, spans in pairs.items()}


def _steps(lives: Ints) -> tuple[Ints, Ints]:
    """Cycles at which the sum of words changes, and the sums from then on."""
    cycles = np.concatenate((lives[:, 0], lives[:, 1]))
    change = np.concatenate((lives[:, 2], -lives[:, 2]))
    at, where = np.unique(cycles, return_inverse=True)
    by_cycle: Ints = np.zeros(len(at), dtype=np.int64)
    np.add.at(by_cycle, where, change)
    return at, np.cumsum(by_cycle)


def thinned(occupancies: Sequence[Occupancy], cycles: int, most: int) -> list[Occupancy]:
    """The same in at most `most` points each: the largest sum of each of so many equal pieces of the run."""
    return [each if len(each.cycles) <= most else _thinned(each, cycles, most) for each in occupancies]


def _thinned(result: Occupancy, cycles: int, most: int) -> Occupancy:
    piece = -(-max(cycles, 1) // most)
    first = np.arange(0, cycles, piece)
    carried = np.searchsorted(result.cycles, first, side="right") - 1
    largest = np.where(carried >= 0, result.words[np.maximum(carried, 0)], 0)
    np.maximum.at(largest, np.minimum(result.cycles // piece, len(first) - 1), result.words)
    return Occupancy(result.name, result.room, first, largest)
