"""A run over time: what each unit, link and DRAM channel did, and how full the memories were. Cycles of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Track(NamedTuple):
    """`kind`: mover, matrix, vector, front end, channel, link. `name` is unique among the tracks of a run."""

    name: str
    kind: str
    tile: int


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices of a run, by track and start: arrays [n] of track number, first cycle, cycle after the last one, index in
    `opcodes`, and operation (-1 if lowering added the instruction)."""

    track: Ints
    start: Ints
    end: Ints
    opcode: Ints
    operation: Ints

    def __len__(self) -> int:
        return len(self.start)


class Flow(NamedTuple):
    """An operation needs words of another one: indices of slices, of the producer and of the consumer."""

    producer: int
    consumer: int


@dataclass(frozen=True, eq=False)
class RunTimeline:
    """`planned` by the model and `measured`, on the same `tracks`; a run that measured nothing has no slices there.

    `labels`, `layers`: of each operation; `layer_names`: what the latter index.
    """

    tracks: Sequence[Track]
    opcodes: Sequence[str]
    labels: Sequence[str]
    layers: Sequence[int]
    layer_names: Sequence[str]
    planned: Slices
    measured: Slices
    planned_flows: Sequence[Flow] = ()
    measured_flows: Sequence[Flow] = ()


@dataclass(frozen=True, eq=False)
class Occupancy:
    """Words that are kept in a memory for somebody who will read them: from `cycles[i]` on they are `words[i]`, until
    `cycles[i + 1]`. `room`: words that it has."""

    name: str
    room: int
    cycles: Ints
    words: Ints


class LayerPoint(NamedTuple):
    """A layer for the roofline: its products, the bytes that its operations read from and write to DRAM, and its part
    of the cycles."""

    layer: str
    macs: int
    dram_bytes: int
    cycles: float


class LinkLoad(NamedTuple):
    """An output of a router (`port`: a direction, or local), and the shares of all cycles in which a flit left by it,
    and in which one was waiting and none did."""

    tile: int
    port: str
    busy: float
    blocked: float


@dataclass(frozen=True, eq=False)
class RunPictures:
    """What a report shows besides the figures of the row."""

    timeline: RunTimeline
    memories: Sequence[Occupancy]
    points: Sequence[LayerPoint]
    links: Sequence[LinkLoad]
    #: Products a cycle of the whole chip, and bytes a cycle of all DRAM channels.
    peak_macs: int
    peak_bytes: int
