"""A DRAM channel with its port: when the words of bursts come, when writes are answered.

Reads and writes share the channel: whoever is alone has its whole rate, two take turns beat by beat. Bursts of reads
are served in order, the first word at the earliest `latency` cycles after the address, and only as fast as the
packetiser takes words. A packet that begins while one of the other kind is under way delays that one as much as itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from meshloom.hw.config import ChipConfig

from .network import Clock, Packet

_READ, _WRITE = 0, 1
#: Cycles from a run offered by the mover to its address on the bus, and from a beat to the word at the packetiser.
_TO_ADDRESS = 1
_FROM_BEAT = 1
#: Bursts that the port keeps under way.
OUTSTANDING = 16
#: Words that the port holds between the bus and the packetiser.
_AHEAD = 3
#: Cycles from a word taken by the port to its beat, and from the last word taken to the notify (beat 1, response 4,
#: notice 1).
_TO_BEAT = 1
WRITTEN = 6


class Reading:
    """The bursts of a MOVE: word at which each ends, and first cycle in which the channel can serve those asked for."""

    def __init__(self, bursts: list[int]) -> None:
        self.ends = list(accumulate(bursts))
        self.ready: list[int] = []

    def of(self, word: int) -> int:
        """First cycle in which a word can be on the bus (of words not asked for yet: as the last one asked for)."""
        return self.ready[min(bisect_right(self.ends, word), len(self.ready) - 1)]


class Dram:
    """One channel."""

    def __init__(self, clock: Clock, chip: ChipConfig) -> None:
        self.clock = clock
        self.outstanding = 0  # bursts asked for that have not come whole
        self.on_done: Callable[[int], None] = lambda _: None
        self.latency = chip.dram.latency
        self.word_cycles = chip.lanes / chip.dram.bytes_per_cycle
        self._until = [-1000.0, -1000.0]  # last beat of reads and of writes, as far as they are known
        self._packets: list[Packet | None] = [None, None]  # that those beats belong to

    def ask(self, reading: Reading, cycle: int) -> None:
        """The mover offers the next burst in `cycle`."""
        self.outstanding += 1
        reading.ready.append(cycle + _TO_ADDRESS + self.latency)

    def first(self, reading: Reading, word: int) -> int:
        """Cycle from which the packetiser can have a word, if it has had all words before it."""
        return int(max(reading.of(word), self._until[_READ] + self.word_cycles)) + _FROM_BEAT

    def take(self, reading: Reading, word: int, words: int, cycle: int) -> int:
        """The packetiser takes a packet of `words` from `word` on, its head in `cycle`.

        Returns the cycle from which the last word can be had.
        """
        begin = max(reading.of(word), self._until[_READ] + self.word_cycles, cycle - _AHEAD)
        end = self._share(_READ, begin, words)
        return int(max(end, reading.of(word + words - 1))) + _FROM_BEAT

    def carried_by(self, packet: Packet) -> None:
        """The packet that carries the words last taken; it is slowed when a write takes its turns."""
        self._packets[_READ] = packet

    def taken(self, reading: Reading, word: int, words: int, cycle: int) -> None:
        """The packet of `words` from `word` on has been injected in `cycle`: bursts that end in it have come whole."""
        for _ in range(bisect_right(reading.ends, word), bisect_right(reading.ends, word + words)):
            self.clock.at(cycle, self._done)

    def _done(self, cycle: int) -> None:
        """A burst has come whole."""
        self.outstanding -= 1
        self.on_done(cycle)

    def write(self, head: int, packet: Packet, words: int) -> int:
        """A packet whose head is delivered in cycle `head`; returns the cycle in which its last word is taken."""
        begin = max(head + 1 + _TO_BEAT, self._until[_WRITE] + self.word_cycles)
        last = int(self._share(_WRITE, begin, words))
        self._packets[_WRITE] = packet
        return last - _TO_BEAT

    def _share(self, kind: int, begin: float, words: int) -> float:
        """Beats of one kind from `begin` on; returns the cycle of the last. The other kind, if busy, is delayed."""
        other = 1 - kind
        alone = words * self.word_cycles
        contested = min(alone, max(0.0, self._until[other] + self.word_cycles - begin))
        end = begin + alone + contested - self.word_cycles
        if contested:
            self._until[other] += contested
            if (packet := self._packets[other]) is not None:
                packet.delay(int(contested))
        self._until[kind] = end
        return end
