"""What a candidate costs: a closed form over whole grids of tilings, and a replay of an emitted one.

The closed form bounds a schedule by its busiest resource (arrays, links into cores, movers, DRAM channels, SPM banks)
and adds what cannot overlap: the first tiles and the last store. It ranks; the `replay` of the best few, which queues
every operation behind what it waits for, decides. Both stay below what the RTL takes by the same few cycles for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.config import PACKET_WORDS, ChipConfig, TileKind
from meshloom.hw.isa import REQUEST_FLITS, Unit

if TYPE_CHECKING:
    from .nodes import Node

Grid = NDArray[np.float64]

#: Cycles from the start of a run until the first instructions of the streams execute.
START_CYCLES = 150
#: Cycles from an instruction that issues a request until the mover asked for has its first word to send.
REQUEST_CYCLES = 16
#: Cycles a word is on its way between two tiles.
FLIGHT_CYCLES = 8
#: Cycles from the last word of a write to its response.
WRITE_CYCLES = 10
#: Cycles from the last word that the vector unit reads to its last written result.
VECTOR_CYCLES = 12
#: Cycles from the last delivered word to the end of the run.
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
    `x_home`, `y_home`: where input and result lie;
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
    x_home: TileKind = TileKind.DRAM
    y_home: TileKind = TileKind.DRAM


def closed_form(loads: Loads, chip: ChipConfig) -> Grid:
    """Cycles of each candidate of a grid."""
    cores = loads.parts_m * loads.parts_n
    a_words, b_words = loads.a_fetch * loads.a_tile, loads.b_fetch * loads.b_tile
    flits = 1 + 1 / PACKET_WORDS
    link = (a_words + b_words) * flits
    requests = (REQUEST_FLITS + 1) * (loads.a_fetch + loads.b_fetch + loads.gemms)
    push = loads.out_words * flits + requests
    dram = cores * loads.out_words if loads.y_home is TileKind.DRAM else np.zeros_like(link)
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
        elif words is a_words and loads.x_home is TileKind.SPM:
            spm = spm + cores * words * flits / len(chip.spms)
        else:
            dram = dram + cores * words
    # The program comes out of the same channels: moves in, moves out, GEMMs.
    spread = len(chip.drams)
    moves = spread * (loads.a_fetch + loads.b_fetch) + loads.out_words / loads.out_tile
    dram = dram + cores * chip.instruction_words * (moves + loads.gemms)
    rate = dram_word_cycles(chip) / spread
    bound = np.maximum.reduce([loads.compute, link, push, dram * rate, spm])
    # A slot is in use or on its way: `slots - 1` fetches at most overlap; likewise results on their way out.
    hop = FLIGHT_CYCLES + REQUEST_CYCLES + chip.dram.latency
    for fetched, tile, slots in (
        (loads.a_fetch, loads.a_tile, loads.a_slots),
        (loads.b_fetch, loads.b_tile, loads.b_slots),
    ):
        late = fetched * (hop + tile * flits) / np.maximum(slots - 1, 1)
        bound = np.maximum(bound, np.where(fetched > slots, late, 0))
    results = loads.out_words / loads.out_tile
    bound = np.maximum(
        bound, results * (hop + pipeline_cycles(chip) + loads.out_tile) / np.maximum(loads.out_slots - 1, 1)
    )
    # With one slot, a fetch waits for the GEMM and the GEMM for the fetch.
    bound = bound + np.where((loads.a_slots < 2) & (loads.a_fetch > 1), loads.a_fetch * (loads.a_tile + 80), 0)
    bound = bound + np.where((loads.b_slots < 2) & (loads.b_fetch > 1), loads.b_fetch * (loads.b_tile + 80), 0)
    bound = bound + np.where((loads.out_slots < 2) & (loads.gemms > 1), loads.out_words, 0)
    # The first tiles come in pieces (see ramps): the array starts on an eighth, then waits if it is faster than they.
    first = np.maximum(loads.a_tile + loads.b_tile, cores * (loads.a_tile + loads.b_tile) * rate)
    first = first / 8 + np.maximum(0.875 * first - loads.gemm_cycles, 0)
    start = START_CYCLES + hop * (1 + 0.5 * (loads.x_spm + loads.w_spm)) + first
    last = np.maximum(loads.out_tile, cores * loads.out_tile * rate) / 2
    # Fewer, larger GEMMs if nothing else decides.
    small = 3 * loads.gemms + loads.a_fetch + loads.b_fetch
    return bound + small + start + last + pipeline_cycles(chip) + END_CYCLES


def replay(nodes: Sequence[Node], chip: ChipConfig) -> int:
    """Cycles of a run in which each resource serves operations in the order in which they reach it.

    Resources: the stream of each mover and matrix unit, the mover of each tile (one word a cycle), the channel of each
    DRAM tile, the link into each tile. Contention inside the mesh is left out.
    """
    return _Replay(nodes, chip).run()


_ISSUE, _SOURCE, _FREE, _SINK = range(4)


class _Replay:
    """Events in order of time: an operation is issued, reaches the mover of its source, reaches its destination."""

    def __init__(self, nodes: Sequence[Node], chip: ChipConfig) -> None:
        self.nodes = nodes
        self.is_dram = {tile: kind is TileKind.DRAM for tile, kind in chip.tiles.items()}
        self.rate, self.drain, self.latency = dram_word_cycles(chip), pipeline_cycles(chip), chip.dram.latency
        self.busy = dict.fromkeys(chip.tiles, False)
        self.queue: dict[int, deque[int]] = {tile: deque() for tile in chip.tiles}
        self.channel = dict.fromkeys(chip.tiles, 0.0)
        self.sink = dict.fromkeys(chip.tiles, 0.0)
        place = {id(node): index for index, node in enumerate(nodes)}
        self.waits = [[place[id(other)] for other in node.after] for node in nodes]
        self.missing = [len(wait) for wait in self.waits]
        self.wakes: list[list[int]] = [[] for _ in nodes]
        self.streams: dict[tuple[int, Unit], list[int]] = {}
        for index, node in enumerate(nodes):
            for other in self.waits[index]:
                self.wakes[other].append(index)
            self.streams.setdefault(node.stream, []).append(index)
        self.free = dict.fromkeys(self.streams, float(START_CYCLES))
        self.next = dict.fromkeys(self.streams, 0)
        self.waiting: dict[int, tuple[int, Unit]] = {}  # heads of streams that wait for others
        self.ends = [0.0] * len(nodes)
        self.events: list[tuple[float, int, int]] = []

    def run(self) -> int:
        for key in self.streams:
            self._offer(key)
        while self.events:
            time, index, kind = heappop(self.events)
            if kind == _FREE:  # `index` is the tile
                self.busy[index] = False
                self._serve(index, time)
                continue
            node = self.nodes[index]
            key = node.stream
            if kind == _ISSUE:
                if node.fields is not None:
                    self._go_on(key, time + node.cycles)
                    self._end(index, time + node.cycles + (VECTOR_CYCLES if node.vec else self.drain))
                elif node.issuer == node.source.tile:
                    heappush(self.events, (time + 2, index, _SOURCE))
                else:
                    self._go_on(key, time + REQUEST_FLITS + 1)
                    heappush(self.events, (time + REQUEST_CYCLES, index, _SOURCE))
            elif kind == _SOURCE:
                self.queue[node.source.tile].append(index)
                self._serve(node.source.tile, time)
            else:
                self._sink(index, node, time)
        return int(max(self.ends) + END_CYCLES)

    def _serve(self, tile: int, time: float) -> None:
        """The mover of a tile takes up the next operation that has reached it, if it is free."""
        if self.busy[tile] or not self.queue[tile]:
            return
        index = self.queue[tile].popleft()
        node = self.nodes[index]
        busy, flight = self._flits(node), FLIGHT_CYCLES
        if self.is_dram[tile]:
            time = max(time, self.channel[tile])
            self.channel[tile] = time + node.words * self.rate
            busy = max(busy, node.words * self.rate)
            flight += self.latency
        self.busy[tile] = True
        heappush(self.events, (time + busy, tile, _FREE))
        heappush(self.events, (time + flight, index, _SINK))
        if node.issuer == tile:
            self._go_on(node.stream, time + busy)

    def _sink(self, index: int, node: Node, time: float) -> None:
        target = node.target.tile
        landing = max(time, self.sink[target])
        self.sink[target] = end = landing + self._flits(node)
        if self.is_dram[node.source.tile]:
            end = max(end, time + node.words * self.rate)
        if self.is_dram[target]:
            self.channel[target] = max(self.channel[target], time) + node.words * self.rate
            end = max(end, self.channel[target]) + WRITE_CYCLES
        self._end(index, end)

    @staticmethod
    def _flits(node: Node) -> float:
        return node.words * (1 + 1 / PACKET_WORDS)

    def _go_on(self, key: tuple[int, Unit], time: float) -> None:
        self.free[key] = time
        self.next[key] += 1
        self._offer(key)

    def _offer(self, key: tuple[int, Unit]) -> None:
        """Issues the head of a stream as soon as what it waits for is known to end."""
        if self.next[key] < len(self.streams[key]):
            index = self.streams[key][self.next[key]]
            if self.missing[index]:
                self.waiting[index] = key
            else:
                begin = max([self.free[key], *(self.ends[other] for other in self.waits[index])])
                heappush(self.events, (begin, index, _ISSUE))

    def _end(self, index: int, time: float) -> None:
        self.ends[index] = time
        for other in self.wakes[index]:
            self.missing[other] -= 1
            if not self.missing[other] and other in self.waiting:
                self._offer(self.waiting.pop(other))
