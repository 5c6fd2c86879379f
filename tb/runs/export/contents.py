"""What an exported workload consists of: DRAM before its run, and what must be in it afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...devices.interface import FILL, Job
from ..outputs import OutputWords


class Words(NamedTuple):
    """Words uint8 [n, P] from word `address` of a DRAM channel on."""

    address: int
    words: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Contents:
    """`channels`: what is in each DRAM channel, in floorplan order, before the run: ranges that neither overlap nor
    touch, in the order of their addresses. `outputs`: what must be there after it."""

    chip: ChipConfig
    job: Job
    channels: tuple[tuple[Words, ...], ...]
    outputs: tuple[OutputWords, ...]

    @property
    def expected(self) -> NDArray[np.uint8]:
        """The words of all outputs, one after the other."""
        return np.concatenate([output.words for output in self.outputs])

    @property
    def compared(self) -> NDArray[np.uint8] | None:
        """Their bits that count; None if all do."""
        count = np.concatenate([output.compared for output in self.outputs])
        return None if count.all() else np.where(count, np.uint8(0xFF), np.uint8(0))


def contents(job: Job, outputs: Iterable[OutputWords], chip: ChipConfig) -> Contents:
    """The images of a job. Where an output is to come stands `FILL`, so that a missing write shows."""
    loads: dict[int, list[Words]] = {tile: [] for tile in chip.channels}
    for tile, at, count in job.outputs:
        loads[tile].append(Words(at, np.full((count, chip.lanes), FILL, np.uint8)))
    for tile, at, words in [*job.memory, *job.program.image(chip)]:
        loads[tile].append(Words(at, words))
    return Contents(chip, job, tuple(tuple(merged(loads[tile])) for tile in chip.channels), tuple(outputs))


def merged(loads: Iterable[Words]) -> Iterator[Words]:
    """The same memory as ranges that neither overlap nor touch; later loads win where they overlap."""
    some = [load for load in loads if len(load.words)]
    spans: list[list[int]] = []
    for first, stop in sorted((load.address, load.address + len(load.words)) for load in some):
        if spans and first <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], stop)
        else:
            spans.append([first, stop])
    for first, stop in spans:
        words = np.zeros((stop - first, some[0].words.shape[1]), np.uint8)
        for load in some:
            if first <= load.address < stop:
                words[load.address - first : load.address - first + len(load.words)] = load.words
        yield Words(first, words)
