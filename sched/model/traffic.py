"""When words arrive, as an estimate: what movers send is limited by DRAM channels and by the links into tiles.

What plays operations one by one shares it (`list_play`, and `mapping.play.replay`); each has a policy of its own for
who comes next. Contention inside the mesh is left out.
"""

from __future__ import annotations

from typing import Final

from meshloom.hw.spec.config import ChipConfig, TileKind

#: Cycles from the start of a run until the first instructions of the streams execute.
START_CYCLES: Final = 150
#: Cycles from an instruction that issues a request until the mover asked for has its first word to send.
REQUEST_CYCLES: Final = 16
#: Cycles a word is on its way between two tiles.
FLIGHT_CYCLES: Final = 8
#: Cycles from the last word of a write to its response.
WRITE_CYCLES: Final = 10


def dram_word_cycles(chip: ChipConfig) -> float:
    """Cycles of a DRAM channel per word."""
    return max(1.0, chip.lanes / chip.dram.bytes_per_cycle)


class Traffic:
    """Channels of DRAM tiles and links into tiles, in the order in which they are asked for. Tiles are named by their
    numbers."""

    def __init__(self, chip: ChipConfig) -> None:
        self._rate: float = dram_word_cycles(chip)
        self._latency: float = float(chip.dram.latency)
        self._word_flits: float = 1 + 1 / chip.packet_words  # each word with its share of a head
        count = max(chip.tiles) + 1
        self._is_dram: list[bool] = [chip.tiles.get(tile) is TileKind.DRAM for tile in range(count)]
        self._channel: list[float] = [0.0] * count  # cycle until which a DRAM channel is busy
        self._link: list[float] = [0.0] * count  # and the link into a tile

    def send(self, source: int, words: int, time: float, pause: int = 0) -> tuple[float, float, float]:
        """The mover of tile `source` takes up a MOVE of so many words in cycle `time` at the earliest: the cycle in
        which it begins, the cycles for which it is busy, and those until the first word arrives. `pause`: cycles after
        the last flit."""
        busy, flight = words * self._word_flits + pause, float(FLIGHT_CYCLES)
        if self._is_dram[source]:
            time = max(time, self._channel[source])
            read = words * self._rate
            self._channel[source] = time + read
            busy = max(busy, read)
            flight += self._latency
        return time, busy, flight

    def land(self, source: int, target: int, words: int, time: float) -> float:
        """The first word of a MOVE arrives in cycle `time`: the cycle in which the MOVE has ended."""
        end = max(time, self._link[target]) + words * self._word_flits
        self._link[target] = end
        if self._is_dram[source]:
            end = max(end, time + words * self._rate)
        if self._is_dram[target]:
            self._channel[target] = max(self._channel[target], time) + words * self._rate
            end = max(end, self._channel[target]) + WRITE_CYCLES
        return end
