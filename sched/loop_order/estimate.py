"""What a candidate costs: a closed form over whole grids of tilings, and a replay of an emitted one.

The closed form bounds a schedule by its busiest resource (arrays, links into cores, movers, DRAM channels, SPM banks)
and adds what cannot overlap: the first tiles and the last store. It ranks; the `replay` of the best few, which queues
every operation behind what it waits for, decides. Both stay below what the RTL takes by the same few cycles for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.config import PACKET_WORDS, ChipConfig, TileKind
from meshloom.hw.isa import REQUEST_FLITS
from meshloom.sched.schedule import Move, Prediction

if TYPE_CHECKING:
    from .emit import Node

Grid = NDArray[np.float64]

#: Cycles from the start of a run until the first instructions of the streams execute.
START_CYCLES = 90
#: Cycles from an instruction that issues a request until the mover asked for has its first word to send.
REQUEST_CYCLES = 16
#: Cycles a word is on its way between two tiles.
FLIGHT_CYCLES = 8
#: Cycles from the last word of a write to its response.
WRITE_CYCLES = 10
#: Cycles from the last landed word to the end of the run.
END_CYCLES = 20


def pipeline_cycles(chip: ChipConfig) -> int:
    """Cycles from the end of a GEMM's last window to its last written result."""
    return chip.lanes + chip.rows + 10


def dram_word_cycles(chip: ChipConfig) -> float:
    """Cycles of a DRAM channel per word."""
    return max(1.0, chip.lanes / chip.dram.bytes_per_cycle)


@dataclass(frozen=True)
class Loads:
    """What the busiest core does in a grid of candidates: cycles, tiles and words (arrays), and who shares them.

    `*_tile`: words of a tile; `*_fetch`: tiles that a core fetches; `*_slots`: tiles that its memory holds;
    `out_words`: words that it stores; `x_words`, `w_words`: words of its inputs and weights, each counted once.
    """

    parts_m: int
    parts_n: int
    compute: Grid
    gemms: Grid
    gemm_cycles: Grid
    a_tile: Grid
    b_tile: Grid
    out_tile: Grid
    a_fetch: Grid
    b_fetch: Grid
    a_slots: Grid
    b_slots: Grid
    out_slots: Grid
    out_words: Grid
    x_words: Grid
    w_words: Grid
    x_spm: bool
    w_spm: bool
    taps: int


def closed_form(loads: Loads, chip: ChipConfig) -> Grid:
    """Cycles of each candidate of a grid."""
    cores = loads.parts_m * loads.parts_n
    a_words, b_words = loads.a_fetch * loads.a_tile, loads.b_fetch * loads.b_tile
    flits = 1 + 1 / PACKET_WORDS
    link = (a_words + b_words) * flits
    requests = (REQUEST_FLITS + 1) * (loads.a_fetch + loads.b_fetch + loads.gemms)
    push = loads.out_words * flits + requests
    dram = cores * loads.out_words
    spm = np.zeros_like(link)
    room = chip.spm_words * len(chip.spms)
    for staged, words, own, sharers in (
        (loads.x_spm, a_words, loads.x_words, loads.parts_n),
        (loads.w_spm, b_words, loads.w_words, loads.parts_m),
    ):
        if staged:
            # Everything once if it fits; otherwise once for each time that the sharers, side by side, ask for it.
            whole = own * (cores / sharers)
            dram = dram + np.where(whole <= room, whole, words * (cores / sharers))
            spm = spm + cores * words * flits / len(chip.spms)
        else:
            dram = dram + cores * words
    rate = dram_word_cycles(chip) / len(chip.drams)
    bound = np.maximum.reduce([loads.compute, link, push, dram * rate, spm])
    # With one slot, a fetch waits for the GEMM and the GEMM for the fetch.
    bound = bound + np.where((loads.a_slots < 2) & (loads.a_fetch > 1), loads.a_fetch * (loads.a_tile + 80), 0)
    bound = bound + np.where((loads.b_slots < 2) & (loads.b_fetch > 1), loads.b_fetch * (loads.b_tile + 80), 0)
    bound = bound + np.where((loads.out_slots < 2) & (loads.gemms > 1), loads.out_words, 0)
    # The first tiles come in pieces (see ramps), so that only about a third of them delays the array.
    hop = FLIGHT_CYCLES + REQUEST_CYCLES + chip.dram.latency
    first = np.maximum(loads.a_tile + loads.b_tile, cores * (loads.a_tile + loads.b_tile) * rate) / 3
    start = START_CYCLES + hop * (1 + 0.5 * (loads.x_spm + loads.w_spm)) + first
    last = np.maximum(loads.out_tile, cores * loads.out_tile * rate) / 3
    return bound + start + last + pipeline_cycles(chip) + END_CYCLES


def replay(nodes: Sequence[Node], chip: ChipConfig) -> Prediction:
    """Start and end of every operation; resources serve operations in the order in which they ask.

    Resources: the stream of each mover and matrix unit, the mover of each tile (one word a cycle), the channel of each
    DRAM tile, the link into each tile. Contention inside the mesh is left out.
    """
    streams: dict[tuple[int, bool], list[int]] = {}
    place = {id(node): index for index, node in enumerate(nodes)}
    waits = [[place[id(other)] for other in node.after] for node in nodes]
    missing = [len(wait) for wait in waits]
    wakes: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for other in waits[index]:
            wakes[other].append(index)
        op = node.op
        key = (op.issuer, True) if isinstance(op, Move) else (op.core, False)
        streams.setdefault(key, []).append(index)
    resources = _Resources(chip)
    starts, ends = [0.0] * len(nodes), [0.0] * len(nodes)
    free = dict.fromkeys(streams, float(START_CYCLES))
    at_head: dict[int, tuple[int, bool]] = {}
    heads = dict.fromkeys(streams, 0)
    heap: list[tuple[float, int]] = []

    def offer(key: tuple[int, bool]) -> None:
        if heads[key] < len(streams[key]):
            index = streams[key][heads[key]]
            at_head[index] = key
            if not missing[index]:
                heappush(heap, (max([free[key], *(ends[other] for other in waits[index])]), index))

    for key in streams:
        offer(key)
    while heap:
        begin, index = heappop(heap)
        key = at_head.pop(index)
        free[key], ends[index] = resources.serve(nodes[index], begin)
        starts[index] = begin
        heads[key] += 1
        offer(key)
        for other in wakes[index]:
            missing[other] -= 1
            if not missing[other] and other in at_head:
                offer(at_head[other])
    cycles = int(max(ends) + END_CYCLES)
    return Prediction(cycles=cycles, start=tuple(map(int, starts)), end=tuple(map(int, ends)))


class _Resources:
    """When movers, channels and links are free again."""

    def __init__(self, chip: ChipConfig) -> None:
        self.kinds = chip.tiles
        self.rate, self.drain, self.latency = dram_word_cycles(chip), pipeline_cycles(chip), chip.dram.latency
        self.mover = dict.fromkeys(chip.tiles, 0.0)
        self.channel = dict.fromkeys(chip.tiles, 0.0)
        self.sink = dict.fromkeys(chip.tiles, 0.0)

    def serve(self, node: Node, begin: float) -> tuple[float, float]:
        """(when the stream goes on, when the results are there) of an operation that begins at `begin`."""
        op = node.op
        if not isinstance(op, Move):
            return begin + node.cycles, begin + node.cycles + self.drain
        source, target = op.src.tile, op.dst.tile
        own = op.issuer == source
        at = max(begin + (2 if own else REQUEST_CYCLES), self.mover[source])
        words = op.words * (1 + 1 / PACKET_WORDS)
        busy, flight = words, FLIGHT_CYCLES
        if self.kinds[source] is TileKind.DRAM:
            at = max(at, self.channel[source])
            busy = max(busy, op.words * self.rate)
            self.channel[source] = at + op.words * self.rate
            flight += self.latency
        self.mover[source] = at + busy
        landing = max(at + flight, self.sink[target])
        end = max(landing + words, at + flight + busy)
        self.sink[target] = landing + words
        if self.kinds[target] is TileKind.DRAM:
            self.channel[target] = max(self.channel[target], at + flight) + op.words * self.rate
            end = max(end, self.channel[target]) + WRITE_CYCLES
        return (at + busy if own else begin + REQUEST_FLITS + 1), end
