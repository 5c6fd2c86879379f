"""A DRAM channel with banks, to the cycle: `tb/build/verilog/dram_banks.v`, whose head says what a row takes, and what
`dram_model.v` adds to it.

The controller's decisions are events; what follows from one, when data come or have been written, is known at once.
Words flow between the controller's buffers and the port at one a cycle, in both directions at the same time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import ADDRESS_CYCLES, RESPONSE_CYCLES

from .clock import Clock, Event
from .dram import Dram, Notice, Read, Write
from .flow import FOREVER

#: Activates of which five may not be closer than `faw`.
_ACTIVATES: Final = 4
#: Decisions come after all that follows from registers (`clock.py`).
_LATER: Final = 1


class Banks:
    """The banks and the data bus. Cycles count from the first in which a burst is offered.

    `hits`, `misses`, `conflicts`, `turns`, `refreshes`: how many there have been.
    """

    def __init__(self, chip: ChipConfig) -> None:
        banks, times = chip.dram.banks, chip.bank_cycles
        if banks is None or times is None:
            raise ValueError(f"{chip.name}'s DRAM has no banks")
        self.cl, self.cwl, self.rcd, self.rp, self.ras = times.cl, times.cwl, times.rcd, times.rp, times.ras
        self.rtp, self.wr, self.wtr, self.rtw = times.rtp, times.wr, times.wtr, times.rtw
        self.rrd, self.faw, self.refi, self.rfc = times.rrd, times.faw, times.refi, times.rfc
        self.block, self.window, self.row_words = times.block, times.window, times.row_words
        self.lanes, self.rate = chip.lanes, chip.dram.bytes_per_cycle
        self.count, self.access, self.turn_after = banks.count, banks.access_bytes, banks.turn_after
        self.rows = [-1] * self.count  # the open row of each bank; -1: it is closed
        self.col_ok = [0] * self.count  # first cycle of the next command of each kind
        self.pre_ok = [0] * self.count
        self.act_ok = [0] * self.count
        self.rrd_ok = 0
        self.faw_ok = [0] * _ACTIVATES
        self.oldest = 0
        self.bus = 0  # first cycle in which it is free
        self.last = False  # the burst before was a write
        self.run = 0  # bursts of its kind since the last turn, at most `turn_after`
        self.due = self.refi  # cycle of the next refresh
        self.hits = self.misses = self.conflicts = self.turns = self.refreshes = 0

    def writes(self, read: bool, write: bool) -> bool:
        """Whether it is a write's turn, if bursts of these kinds wait."""
        if read and write:
            return self.last != (self.run == self.turn_after)
        return write

    def refreshed(self, now: int) -> bool:
        """Carries out all refreshes that are due by cycle `now`; whether one is in that cycle, which then takes no
        burst."""
        while self.due < now:
            self._refresh()
        if self.due > now:
            return False
        self._refresh()
        return True

    def _refresh(self) -> None:
        ready = self.due
        for bank in range(self.count):
            own = self.act_ok[bank]
            if self.rows[bank] >= 0:
                own = _most(self.pre_ok[bank], self.due) + self.rp
            if own > ready:
                ready = own
        for bank in range(self.count):
            self.rows[bank], self.act_ok[bank] = -1, ready + self.rfc
        self.refreshes += 1
        self.due += self.refi

    def take(self, word: int, words: int, write: bool, now: int) -> int:
        """A burst is taken in cycle `now`; the cycle after its last data on the bus, whose first are `length` before
        that."""
        line = word // self.row_words
        row, bank = line // self.count, line % self.count
        col_at = _most(self.col_ok[bank], now)
        if self.rows[bank] == row:
            self.hits += 1
        else:
            if self.rows[bank] < 0:
                self.misses += 1
                act_at = _most(self.act_ok[bank], now)
            else:
                self.conflicts += 1
                act_at = _most(self.pre_ok[bank], now) + self.rp
            act_at = _most(act_at, _most(self.rrd_ok, self.faw_ok[self.oldest]))
            self.rows[bank] = row
            col_at = self.col_ok[bank] = act_at + self.rcd
            self.pre_ok[bank] = act_at + self.ras
            self.rrd_ok = act_at + self.rrd
            self.faw_ok[self.oldest] = act_at + self.faw
            self.oldest = (self.oldest + 1) % _ACTIVATES
        free_at = self.bus
        if write == self.last:
            self.run = self.run + 1 if self.run < self.turn_after else self.run
        else:
            free_at += self.rtw if write else self.wtr + self.cl
            self.last, self.run = write, 1
            self.turns += 1
        end_at = _most(col_at + (self.cwl if write else self.cl), free_at) + self.length(word, words)
        self.bus = end_at
        used_at = end_at + self.wr if write else end_at - self.cl - self.block + self.rtp
        self.pre_ok[bank] = _most(self.pre_ok[bank], used_at)
        return end_at

    def length(self, word: int, words: int) -> int:
        """Cycles of the data bus for a burst of `words` words from `word` on."""
        first, last = word * self.lanes // self.access, ((word + words) * self.lanes - 1) // self.access
        return ((last - first + 1) * self.access + self.rate - 1) // self.rate


class _Burst:
    """A burst that the controller can take from cycle `there` on: a read, or a write with its notice."""

    __slots__ = ("notice", "read", "there", "word", "words")

    def __init__(self, word: int, words: int, there: int, read: Read | None, notice: Notice | None) -> None:
        self.word, self.words, self.there, self.read, self.notice = word, words, there, read, notice


class BankedDram(Dram):
    """One channel with banks. `offered`: if it has been set to a list, each burst that the controller can take, in the
    order in which they come: from which cycle on, whether it is a write, first word, words."""

    def __init__(self, clock: Clock, chip: ChipConfig) -> None:
        super().__init__(clock, chip)
        self.banks = Banks(chip)
        self.offered: list[tuple[int, bool, int, int]] | None = None
        self._begun = -1  # the cycle from which the banks count
        self._read_queue: deque[_Burst] = deque()  # those that the controller has not taken
        self._write_queue: deque[_Burst] = deque()
        self._taken = -1  # the cycle in which it took the latest
        self._decides = -1  # the cycle for which a decision is planned
        self._controller = _Controller(self)

    def ask(self, words: int, now: int, word: int = 0) -> None:
        self.outstanding += 1
        self.ahead += words
        self._begin(now + ADDRESS_CYCLES)
        burst = Read(-1, words)
        if self._reading is None:
            self._reading = burst
        else:
            self._reads.append(burst)
        self._offer(self._read_queue, _Burst(word, words, now + ADDRESS_CYCLES + 1, burst, None), now)

    def expect(self, words: int, notice: Notice | None, word: int = 0, now: int = 0) -> None:
        self._begin(now)
        super().expect(words, notice, word, now)

    def _begin(self, cycle: int) -> None:
        """An address is on the bus in `cycle`."""
        if self._begun < 0 or cycle < self._begun:
            self._begun = cycle

    def _write_ended(self, write: Write, now: int) -> None:
        self._offer(self._write_queue, _Burst(write.word, write.words, now, None, write.notice), now)

    def _offer(self, queue: deque[_Burst], burst: _Burst, now: int) -> None:
        queue.append(burst)
        if self.offered is not None:
            self.offered.append((burst.there, burst.read is None, burst.word, burst.words))
        self._plan_decision(now)

    def _plan_decision(self, now: int) -> None:
        """Plans the next decision, if a burst waits."""
        there = FOREVER
        if self._read_queue:
            there = self._read_queue[0].there
        if self._write_queue:
            there = _least(there, self._write_queue[0].there)
        if there == FOREVER:
            return
        banks = self.banks
        cycle = _most(there, self._begun + banks.bus - banks.window)
        cycle = _most(_most(cycle, self._taken + 1), now)
        if self._decides < 0 or cycle < self._decides:
            self._decides = cycle
            self.clock.put(cycle, self._controller, _LATER)

    def decide(self, now: int) -> None:
        """The controller takes a burst, or refreshes."""
        if now != self._decides:
            return
        self._decides = -1
        self._taken = now
        banks, since = self.banks, now - self._begun
        if not banks.refreshed(since):
            read = bool(self._read_queue) and self._read_queue[0].there <= now
            write = bool(self._write_queue) and self._write_queue[0].there <= now
            self._take(banks.writes(read, write), now)
        self._plan_decision(now + 1)

    def _take(self, write: bool, now: int) -> None:
        burst = self._write_queue.popleft() if write else self._read_queue.popleft()
        end = self._begun + self.banks.take(burst.word, burst.words, write, now - self._begun)
        if write:
            self._responses.append((end - 1 + RESPONSE_CYCLES, burst.notice))
            self._answer(now)
            return
        assert burst.read is not None
        burst.read.first = end - burst.words + self.latency - 1
        if burst.read is self._reading:
            self._schedule(burst.read.first)

    def evaluate(self, now: int) -> None:
        self._advance(now)
        reading = self._reading
        read = reading is not None and 0 <= reading.first <= now and self.read.room(now)
        write = self._writing is not None and self.written.has(now)
        if int(read) != self._read_rate:
            self._read_rate = int(read)
            self.read.set_in(now, int(read))
        if int(write) != self._write_rate:
            self._write_rate = int(write)
            self.written.set_out(now, int(write))
        self._next = -1
        cycles = FOREVER
        if reading is not None:
            if read:
                cycles = _least(reading.left, self.read.fills(now))
            elif reading.first > now:
                cycles = reading.first - now
        if write:
            assert self._writing is not None
            cycles = _least(cycles, _least(self._writing.left, self.written.dry(now)))
        if cycles < FOREVER:
            self._schedule(now + cycles)


class _Controller(Event):
    """The controller of a channel decides."""

    __slots__ = ("_dram",)

    def __init__(self, dram: BankedDram) -> None:
        self._dram = dram

    def happen(self, now: int) -> None:
        self._dram.decide(now)


def _most(a: int, b: int) -> int:
    """`max` of two, without making objects of them."""
    return a if a > b else b


def _least(a: int, b: int) -> int:
    return a if a < b else b
