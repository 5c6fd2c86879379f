"""A DRAM channel with its port, to the cycle: `tb/build/verilog/dram_model.v` and `hw/memory/dram_port.py`.

Read bursts are served in order, the first beat `latency` cycles after the address, into a buffer of two words from
which the packetiser takes them; words to be written wait in another buffer. At most one beat moves in a cycle; if both
kinds could, it is the kind that did not move last. A single kind is modelled as a flow, both together beat by beat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from meshloom.hw.config import ChipConfig
from meshloom.hw.contracts import (
    ADDRESS_CYCLES,
    CREDIT_WORDS,
    NOTICE_CYCLES,
    NOTICE_INTERVAL,
    PORT_WORDS,
    RESPONSE_CYCLES,
)

from .clock import Clock
from .flow import FOREVER, Buffer, User, nothing

#: Announces that a burst has been written, from the given cycle on; calls back with the cycle in which that was taken.
Notice = Callable[[int, Callable[[int], None]], None]


class Dram(User):
    """One channel."""

    def __init__(self, clock: Clock, chip: ChipConfig) -> None:
        super().__init__()
        self.clock, self.latency = clock, chip.dram.latency
        self.read = Buffer(clock, PORT_WORDS)  # words for the packetiser
        self.written = Buffer(clock, PORT_WORDS)  # words from the NoC
        self.read.feeder = self.written.drainer = self
        self.outstanding = 0  # read bursts requested that have not arrived whole
        self.on_done: Callable[[int], None] = nothing
        self._reads: deque[list[int]] = deque()  # first cycle, words left
        self._writes: deque[tuple[list[int], Notice | None]] = deque()  # words left, whom to notify
        self._responses: deque[tuple[int, Notice | None]] = deque()  # first cycle, whom to notify
        self._telling = False
        self._cost, self._gain = chip.lanes, chip.dram.bytes_per_cycle
        self._slow = self._gain < self._cost
        self._at, self._next = 0, -1
        self._read_rate = self._write_rate = 0
        self._words_read = self._words_written = 0  # before cycle `_at`
        # at the start of cycle `_at`, and of the next: a read beat waits for room, it is a write's turn, bytes of
        # credit
        self._state = self._then = (False, False, CREDIT_WORDS * self._cost)

    def ask(self, words: int, now: int) -> None:
        """The mover offers a burst in cycle `now`."""
        self.outstanding += 1
        self._reads.append([now + ADDRESS_CYCLES + self.latency, words])
        if len(self._reads) == 1:
            self._schedule(now + ADDRESS_CYCLES + self.latency)

    def expect(self, words: int, notice: Notice | None) -> None:
        """The next `words` in `written` are a burst; `notice` is called when they have been written."""
        self._writes.append(([words], notice))

    def plan(self, now: int) -> None:
        self._schedule(now)

    def _schedule(self, cycle: int) -> None:
        if self._next < 0 or cycle < self._next:
            self._next = cycle
            self.clock.put(cycle, self)

    def happen(self, now: int) -> None:
        if now == self._next:
            self._next = -1
            self.evaluate(now)

    def _advance(self, now: int) -> None:
        """Accounts for the beats up to cycle `now`."""
        cycles = now - self._at
        if cycles == 0:
            return
        self._at = now
        held, turn, bucket = self._then
        self._state = self._then = held, turn, min(CREDIT_WORDS * self._cost, bucket + (cycles - 1) * self._gain)
        if self._read_rate:
            self._words_read += cycles
            burst = self._reads[0]
            burst[1] -= cycles
            if burst[1] == 0:
                self._reads.popleft()
                self.outstanding -= 1
                self.on_done(now)
        if self._write_rate:
            self._words_written += cycles
            left, notice = self._writes[0]
            left[0] -= cycles
            if left[0] == 0:
                self._writes.popleft()
                self._responses.append((now - 1 + RESPONSE_CYCLES, notice))
                self._answer(now)

    def _answer(self, now: int) -> None:
        """Takes the next response, from cycle `now` on, and sends its notice; one after the other."""
        if self._telling or not self._responses:
            return
        self._telling = True
        when, notice = self._responses.popleft()

        def told(cycle: int) -> None:
            self.clock.at(cycle + NOTICE_INTERVAL - NOTICE_CYCLES, following)

        def following(cycle: int) -> None:
            self._telling = False
            self._answer(cycle)

        self.clock.at(max(when, now) + NOTICE_CYCLES, told if notice is None else lambda cycle: notice(cycle, told))

    def evaluate(self, now: int) -> None:
        """Decides which kinds of beats move from cycle `now` on."""
        self._advance(now)
        held, turn, bucket = self._state
        token = bucket >= self._cost
        wanted = bool(self._reads) and self._reads[0][0] <= now
        offered = self.written.has(now)
        due = wanted and not held and token
        fresh = due and not (offered and turn)
        write = offered and token and not (due and not turn)
        read = (held or fresh) and self.read.room(now)
        if fresh:
            turn = True
        elif write:
            turn = False
        spent = self._cost if fresh or write else 0
        self._then = (
            (held or fresh) and not read,
            turn,
            min(CREDIT_WORDS * self._cost, bucket - spent + self._gain),
        )
        if int(read) != self._read_rate:
            self._read_rate = int(read)
            self.read.set_in(now, int(read))
        if int(write) != self._write_rate:
            self._write_rate = int(write)
            self.written.set_out(now, int(write))
        takes_turns = wanted and offered and (read or not held)
        loosens = held and read  # the waiting beat moves; those after it pay when they arrive
        # until a word is taken or arrives, nothing will change
        stands = not read and not write and self._then == self._state
        changing = takes_turns or loosens or (self._slow and (wanted or offered))
        self._look_ahead(now, wanted, changing and not stands)

    def busy(self, cycle: int) -> tuple[int, int]:
        """Cycles before `cycle` in which a word was read, and in which one was written, once everything before has
        happened."""
        since = cycle - self._at
        return self._words_read + self._read_rate * since, self._words_written + self._write_rate * since

    def _look_ahead(self, now: int, wanted: bool, changing: bool) -> None:
        """Schedules the next decision: in the next cycle if things are `changing`."""
        self._next = -1
        if changing:
            self._schedule(now + 1)
            return
        end = FOREVER
        if self._read_rate:
            end = now + min(self._reads[0][1], self.read.fills(now))
        elif self._reads and not wanted:
            end = self._reads[0][0]
        if self._write_rate:
            end = min(end, now + min(self._writes[0][0][0], self.written.dry(now)))
        if end < FOREVER:
            self._schedule(end)
