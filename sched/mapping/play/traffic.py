"""When words arrive: what movers send is limited by DRAM channels and by the links into tiles.

What plays operations one by one shares it (`replay`, `interleave`); each has a policy of its own for who comes next.
"""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig, TileKind

from ..nodes import Node

#: Cycles a word is on its way between two tiles.
FLIGHT_CYCLES = 8
#: Cycles from the last word of a write to its response.
WRITE_CYCLES = 10


def dram_word_cycles(chip: ChipConfig) -> float:
    """Cycles of a DRAM channel per word."""
    return max(1.0, chip.lanes / chip.dram.bytes_per_cycle)


class Traffic:
    """Channels of DRAM tiles and links into tiles, in the order in which they are asked for. Contention inside the mesh
    is left out."""

    def __init__(self, chip: ChipConfig) -> None:
        self.rate, self.latency = dram_word_cycles(chip), chip.dram.latency
        self._word_flits = 1 + 1 / chip.packet_words  # each word with its share of a head
        self._is_dram = {tile: kind is TileKind.DRAM for tile, kind in chip.tiles.items()}
        self._channel = dict.fromkeys(chip.tiles, 0.0)  # cycle until which a DRAM channel is busy
        self._link = dict.fromkeys(chip.tiles, 0.0)  # and the link into a tile

    def send(self, node: Node, time: float, pause: int = 0) -> tuple[float, float, float]:
        """The mover of its source takes up a move in cycle `time` at the earliest: the cycle in which it begins, the
        cycles for which it is busy, and those until the first word arrives. `pause`: cycles after the last flit."""
        tile, busy, flight = node.source.tile, node.words * self._word_flits + pause, float(FLIGHT_CYCLES)
        if self._is_dram[tile]:
            time = max(time, self._channel[tile])
            words = node.words * self.rate
            self._channel[tile] = time + words
            busy = max(busy, words)
            flight += self.latency
        return time, busy, flight

    def land(self, node: Node, time: float) -> float:
        """The first word of a move arrives in cycle `time`: the cycle in which the move has ended."""
        target = node.target.tile
        self._link[target] = end = max(time, self._link[target]) + node.words * self._word_flits
        if self._is_dram[node.source.tile]:
            end = max(end, time + node.words * self.rate)
        if self._is_dram[target]:
            self._channel[target] = max(self._channel[target], time) + node.words * self.rate
            end = max(end, self._channel[target]) + WRITE_CYCLES
        return end
