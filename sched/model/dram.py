"""A DRAM channel with its port, to the cycle: `tb/build/verilog/dram_model.v` and `hw/memory/dram_port.py`.

Read bursts are served in order, the first beat `latency` cycles after the address, into a buffer from which the
packetiser takes them (`read_words`); words to be written wait in another buffer. At most one beat moves in a cycle; if
both kinds could, it is the kind that did not move last. A single kind is modelled as a flow, both together beat by
beat. With `dram.banks` it is `banks.BankedDram` instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import (
    ADDRESS_CYCLES,
    CREDIT_WORDS,
    DRAM_BURSTS,
    NOTICE_CYCLES,
    NOTICE_INTERVAL,
    PORT_WORDS,
    RESPONSE_CYCLES,
    read_words,
)

from .clock import Clock
from .flow import FOREVER, Buffer, Door, PacketBuffer, User, nothing

#: Announces that a burst has been written, from the given cycle on; calls back with the cycle in which that was taken.
Notice = Callable[[int, Callable[[int], None]], None]


class Read:
    """A read burst of `words`: its first word can be there in cycle `first`."""

    __slots__ = ("first", "left", "words")

    def __init__(self, first: int, words: int) -> None:
        self.first, self.left, self.words = first, words, words


class Write:
    """A burst to be written from address `word` on; `notice` is called when it has been."""

    __slots__ = ("left", "notice", "word", "words")

    def __init__(self, words: int, notice: Notice | None, word: int) -> None:
        self.left, self.notice, self.word, self.words = words, notice, word, words


class Dram(User):
    """One channel.

    Where a beat costs more bytes of credit than a cycle brings in, words still flow: at a steady rate until the credit
    is spent.
    """

    def __init__(self, clock: Clock, chip: ChipConfig) -> None:
        super().__init__()
        self.clock, self.latency = clock, chip.dram.latency
        self.read = PacketBuffer(clock, read_words(chip))  # words for the packetiser
        self.written = Buffer(clock, PORT_WORDS)  # words from the NoC
        self.read.feeder = self.written.drainer = self
        self.door = Door(True)  # for heads of bursts to be written
        self._unwritten = 0  # those that have been begun and not been acknowledged
        self.outstanding = 0  # read bursts requested that have not arrived whole
        self.ahead = 0  # their words
        self.on_done: Callable[[int], None] = nothing
        self._reads: deque[Read] = deque()  # behind `_reading`
        self._reading: Read | None = None  # the first read burst
        self._writes: deque[Write] = deque()  # behind `_writing`
        self._writing: Write | None = None
        self._responses: deque[tuple[int, Notice | None]] = deque()  # first cycle, whom to notify
        self._telling = False
        self._cost, self._gain = chip.lanes, chip.dram.bytes_per_cycle
        self._most = CREDIT_WORDS * self._cost  # bytes of credit
        self._at, self._next = 0, -1
        self._read_rate = self._write_rate = 0
        self._words_read = self._words_written = 0  # before cycle `_at`
        # at the start of cycle `_at`, and of the next: a read beat waits for room, it is a write's turn, bytes of
        # credit; `_spent`: of these, in cycle `_at` and each that is the same
        self._held = self._held_then = False
        self._turn = self._turn_then = False
        self._credit = self._credit_then = self._most
        self._spent = 0

    def ask(self, words: int, now: int, word: int = 0) -> None:
        """The mover offers a burst from address `word` on in cycle `now`."""
        self.outstanding += 1
        self.ahead += words
        burst = Read(now + ADDRESS_CYCLES + self.latency, words)
        if self._reading is not None:
            self._reads.append(burst)
            return
        self._reading = burst
        self._schedule(burst.first)

    def expect(self, words: int, notice: Notice | None, word: int = 0, now: int = 0) -> None:
        """The next `words` in `written` are a burst, to be written from address `word` on, which is on the bus in cycle
        `now`; `notice` is called when they have been written."""
        self._unwritten += 1
        if self._unwritten == DRAM_BURSTS:
            self.door.open = False  # for the next head, a cycle later at the earliest
        burst = Write(words, notice, word)
        if self._writing is None:
            self._writing = burst
        else:
            self._writes.append(burst)

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
        self._held, self._turn = self._held_then, self._turn_then
        credit = self._credit_then
        if cycles > 1:
            credit += (cycles - 1) * (self._gain - self._spent)
            if credit > self._most:
                credit = self._most
        self._credit = self._credit_then = credit
        if self._read_rate:
            self._words_read += cycles
            read = self._reading
            assert read is not None
            read.left -= cycles
            if read.left == 0:
                self._reading = self._reads.popleft() if self._reads else None
                self.outstanding -= 1
                self.ahead -= read.words
                self.on_done(now)
        if self._write_rate:
            self._words_written += cycles
            write = self._writing
            assert write is not None
            write.left -= cycles
            if write.left == 0:
                self._writing = self._writes.popleft() if self._writes else None
                self._write_ended(write, now)

    def _write_ended(self, write: Write, now: int) -> None:
        """The last word of a burst went in the previous cycle."""
        self._responses.append((now - 1 + RESPONSE_CYCLES, write.notice))
        self._answer(now)

    def _answer(self, now: int) -> None:
        """Takes the next response, from cycle `now` on, and sends its notice; one after the other."""
        if self._telling or not self._responses:
            return
        self._telling = True
        when, notice = self._responses.popleft()

        def notify(cycle: int) -> None:
            self.clock.at(cycle + NOTICE_INTERVAL - NOTICE_CYCLES, following)

        def following(cycle: int) -> None:
            self._telling = False
            self._unwritten -= 1
            self.door.turn(cycle, True)
            self._answer(cycle)

        self.clock.at(max(when, now) + NOTICE_CYCLES, notify if notice is None else lambda cycle: notice(cycle, notify))

    def evaluate(self, now: int) -> None:
        """Decides which kinds of beats move from cycle `now` on."""
        self._advance(now)
        held, turn, credit = self._held, self._turn, self._credit
        token = credit >= self._cost
        reading = self._reading is not None and self._reading.first <= now
        offered = self.written.has(now)
        due = reading and not held and token
        fresh = due and not (offered and turn)
        write = offered and token and not (due and not turn)
        read = (held or fresh) and self.read.room(now)
        if fresh:
            turn = True
        elif write:
            turn = False
        spent = self._cost if fresh or write else 0
        self._held_then = (held or fresh) and not read
        self._turn_then = turn
        self._credit_then = _least(self._most, credit - spent + self._gain)
        if int(read) != self._read_rate:
            self._read_rate = int(read)
            self.read.set_in(now, int(read))
        if int(write) != self._write_rate:
            self._write_rate = int(write)
            self.written.set_out(now, int(write))
        takes_turns = reading and offered and (read or not held)
        loosens = held and read  # the waiting beat moves; those after it pay when they arrive
        if takes_turns or loosens:
            self._spent = 0
            # until a word is taken or arrives, nothing will change
            stands = not read and not write and self._stands(held, turn, credit)
            self._look_ahead(now, reading, FOREVER if stands else 1)
            return
        if read or write:
            self._spent = spent  # in each cycle until the credit is spent
            loss = spent - self._gain
            self._look_ahead(now, reading, (credit - self._cost) // loss + 1 if loss > 0 else FOREVER)
            return
        self._spent = 0
        waits = not token and (offered or (reading and not held))
        self._look_ahead(now, reading, (self._cost - credit - 1) // self._gain + 1 if waits else FOREVER)

    def _stands(self, held: bool, turn: bool, credit: int) -> bool:
        """Whether the next cycle begins as this one did, with a beat that waits (or none), whose turn, and credit."""
        return self._held_then == held and self._turn_then == turn and self._credit_then == credit

    def busy(self, cycle: int) -> tuple[int, int]:
        """Cycles before `cycle` in which a word was read, and in which one was written, once everything before has
        happened."""
        since = cycle - self._at
        return self._words_read + self._read_rate * since, self._words_written + self._write_rate * since

    def _look_ahead(self, now: int, reading: bool, cycles: int) -> None:
        """Schedules the next decision: this one stands for so many cycles, unless a burst or a buffer ends sooner."""
        self._next = -1
        if cycles > 1:
            read, write = self._reading, self._writing
            if self._read_rate:
                assert read is not None
                cycles = _least(cycles, read.left)
                cycles = _least(cycles, self.read.fills(now))
            elif read is not None and not reading:
                cycles = _least(cycles, read.first - now)
            if self._write_rate:
                assert write is not None
                cycles = _least(cycles, write.left)
                cycles = _least(cycles, self.written.dry(now))
        if cycles < FOREVER:
            self._schedule(now + cycles)


def _least(a: int, b: int) -> int:
    """`min` of two, without making objects of them."""
    return a if a < b else b
