"""A DRAM channel with banks in plain Python: every command with its cycle, each in the first that a data sheet allows,
which is searched for among all commands before.

What is open, what may be next and when are looked up in the list of commands; nothing is carried along. It is written
from the head of `dram_banks.v`, and shares no code with it or with `sched/model/banks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig


class Command(NamedTuple):
    """`kind`: ACT, PRE, RD, WR (the first or the last column command of a burst), REF; `bank` is -1 for REF."""

    cycle: int
    kind: str
    bank: int
    row: int


class Taken(NamedTuple):
    """A burst that the controller took in cycle `at`: its data are on the bus in cycles `first` to before `end`."""

    write: bool
    number: int
    at: int
    first: int
    end: int


class Reference:
    """One channel. Cycles count from the first in which a burst is offered."""

    def __init__(self, chip: ChipConfig) -> None:
        banks, times = chip.dram.banks, chip.bank_cycles
        assert banks is not None
        assert times is not None
        self.chip, self.banks, self.t = chip, banks, times
        self.commands: list[Command] = []
        self.taken: list[Taken] = []
        self.kinds = {"hit": 0, "miss": 0, "conflict": 0}

    def _last(self, *kinds: str, bank: int | None = None) -> Iterator[Command]:
        """Commands of these kinds, the latest first."""
        for command in sorted(self.commands, reverse=True):
            if command.kind in kinds and bank in (None, command.bank):
                yield command

    def _open(self, bank: int) -> int | None:
        """The open row of a bank, by the latest command that opened or closed one."""
        order = [command for command in self.commands if command.kind == "REF" or command.bank == bank]
        for command in reversed(order):
            if command.kind in ("PRE", "REF"):
                return None
            if command.kind == "ACT":
                return command.row
        return None

    def earliest(self, kind: str, bank: int, after: int) -> int:
        """The first cycle from `after` on in which a command may go, by the data sheet."""
        t = self.t
        rules = {
            "ACT": [("PRE", bank, t.rp), ("REF", None, t.rfc), ("ACT", None, t.rrd)],
            "PRE": [("ACT", bank, t.ras), ("RD", bank, t.rtp), ("WR", bank, t.cwl + t.block + t.wr)],
            "RD": [("ACT", bank, t.rcd)],
            "WR": [("ACT", bank, t.rcd)],
            "REF": [("PRE", None, t.rp), ("REF", None, t.rfc)],
        }[kind]
        cycle = after
        for before, scope, least in rules:
            for command in self.commands:
                if command.kind == before and scope in (None, command.bank):
                    cycle = max(cycle, command.cycle + least)
        if kind == "ACT" and len(activates := list(self._last("ACT"))) >= 4:
            cycle = max(cycle, activates[3].cycle + t.faw)
        return cycle

    def _command(self, kind: str, bank: int, after: int, row: int = -1) -> int:
        cycle = self.earliest(kind, bank, after)
        self.commands.append(Command(cycle, kind, bank, row))
        return cycle

    def refresh(self, now: int) -> None:
        """All banks are closed, each as soon as it can be, and then refreshed."""
        for bank in range(self.banks.count):
            if self._open(bank) is not None:
                self._command("PRE", bank, now)
        self._command("REF", -1, now)

    def place(self, word: int) -> tuple[int, int]:
        """Bank and row of a word."""
        line = word * self.chip.lanes // self.banks.row_bytes
        return line % self.banks.count, line // self.banks.count

    def length(self, word: int, words: int) -> int:
        """Cycles of the data bus for a burst."""
        lanes, access = self.chip.lanes, self.banks.access_bytes
        touched = {byte // access for byte in range(word * lanes, (word + words) * lanes)}
        return -(-len(touched) * access // self.chip.dram.bytes_per_cycle)

    def take(self, now: int, write: bool, number: int, word: int, words: int) -> Taken:
        """The controller takes a burst."""
        t, (bank, row), length = self.t, self.place(word), self.length(word, words)
        opened = self._open(bank)
        self.kinds["hit" if opened == row else "miss" if opened is None else "conflict"] += 1
        if opened != row:
            ready = now if opened is None else self._command("PRE", bank, now) + t.rp
            self._command("ACT", bank, ready, row)
        kind, delay = ("WR", t.cwl) if write else ("RD", t.cl)
        first = self.earliest(kind, bank, now) + delay
        if self.taken:
            before = self.taken[-1]
            gap = 0 if before.write == write else t.rtw if write else t.wtr + t.cl
            first = max(first, before.end + gap)
        elif write:
            first = max(first, t.rtw)  # as after a read that ends in cycle 0
        for cycle in (first - delay, first + length - t.block - delay):
            self.commands.append(Command(cycle, kind, bank, row))
        self.taken.append(Taken(write, number, now, first, first + length))
        return self.taken[-1]

    def play(self, reads: Sequence[tuple[int, int, int]], writes: Sequence[tuple[int, int, int]]) -> list[Taken]:
        """Reads and writes by the cycle from which they can be taken, first word and words; as the controller takes
        them."""
        queues, run, last, now, due = (list(reads), list(writes)), 0, False, 0, self.t.refi
        numbers = [0, 0]
        while queues[0] or queues[1]:
            there = [bool(queue) and queue[0][0] <= now for queue in queues]
            bus = self.taken[-1].end if self.taken else 0
            if now == due:
                self.refresh(now)
                due += self.t.refi
            elif any(there) and bus <= now + self.t.rp + self.t.rcd + self.t.cl:
                write = there[1] and (not there[0] or last != (run >= self.banks.turn_after))
                run = run + 1 if write == last else 1
                last = write
                _, word, words = queues[write].pop(0)
                self.take(now, write, numbers[write], word, words)
                numbers[write] += 1
            now += 1
        return self.taken

    def beats(self, reads: Sequence[tuple[int, int, int]], ready: Callable[[int], bool]) -> list[int]:
        """Cycles in which words go to the chip, which takes one in each cycle that is `ready`; after `play`."""
        cycle, went = 0, list[int]()
        for taken in self.taken:
            if taken.write:
                continue
            words = reads[taken.number][2]
            cycle = max(cycle, taken.end - words + self.chip.dram.latency - 1)
            for _ in range(words):
                while not ready(cycle):
                    cycle += 1
                went.append(cycle)
                cycle += 1
        return went
