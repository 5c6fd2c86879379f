"""A controller for SDRAM with a bus of 16 bits, as small boards have it: words in, words out, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple, Protocol

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..wiring.signatures import PortObject

#: Bits of the bus, and of the addresses of rows, columns and banks.
BUS_BITS, ROW_BITS, COLUMN_BITS, BANK_BITS = 16, 13, 9, 2
#: Bytes in all: 32 MiB.
SDRAM_BYTES = (BUS_BITS // 8) << (ROW_BITS + COLUMN_BITS + BANK_BITS)
#: Clocks in MHz between which the controller works: slower, refreshes come too late behind a wide word; faster, half a
#: cycle is too short for the way to the part and back.
SDRAM_CLOCKS = (10.0, 50.0)
#: CAS latency in cycles, which all parts have at these clocks, and refreshes before the first access.
CAS, FIRST_REFRESHES = 2, 8
#: Of the mode register: CAS latency, and a burst is a single column.
MODE = CAS << 4
#: Bit 10 of an address: PRECHARGE means all banks.
_ALL = 1 << 10


class SdramTimes(NamedTuple):
    """The least that parts ask for, in nanoseconds, named as in their data sheets: the slowest of those that ULX3S
    boards have had (IS42S16160G-7, AS4C16M16SA-7, MT48LC16M16A2-75, W9825G6KH-6). `refi`: between two refreshes, at
    most. `start`: from power-up to the first command."""

    rcd: float = 21.0
    rp: float = 21.0
    ras: float = 45.0
    rfc: float = 70.0
    wr: float = 15.0
    refi: float = 7812.5
    start: float = 200_000.0


class SdramPins(wiring.Signature):
    """The pins of a part, all of them active when high but those whose data sheet's name is barred, which are inverted
    at the pin. `drive`: the board drives `dq_out` in the cycle."""

    def __init__(self) -> None:
        commands = {name: Out(1) for name in ("cke", "cs", "ras", "cas", "we")}
        super().__init__(
            commands
            | {"ba": Out(BANK_BITS), "a": Out(ROW_BITS), "dqm": Out(BUS_BITS // 8)}
            | {"dq_out": Out(BUS_BITS), "drive": Out(1), "dq_in": In(BUS_BITS)}
        )


class SdramPinsPort(PortObject, Protocol):
    """A port with `SdramPins`."""

    cke: Signal
    cs: Signal
    ras: Signal
    cas: Signal
    we: Signal
    ba: Signal
    a: Signal
    dqm: Signal
    dq_out: Signal
    drive: Signal
    dq_in: Signal


#: What any of them can do.
SLOWEST = SdramTimes()


def request_layout(columns: int, tags: int) -> data.StructLayout:
    """An access to the word `address` of `columns` columns: `store` are the bytes of `data` to write, none to read;
    `tag` (below `tags`) comes back with what is read."""
    bits = BUS_BITS * columns
    address = ROW_BITS + BANK_BITS + COLUMN_BITS - (columns - 1).bit_length()
    return data.StructLayout(
        {"address": address, "store": bits // 8, "data": bits, "tag": max(1, (tags - 1).bit_length())}
    )


class Sdram(wiring.Component):
    """Reads and writes words of `columns` columns (a power of two) of a part, at a clock of `clock` MHz.

    A `request` (`request_layout`) is taken in the cycle of its last column; requests are served in their order. What is
    read is `word`, with its `tag`, in the one cycle of `answers`: nothing holds it back. A word is a row's neighbour of
    the one before; rows stay open, so that words of one row, read or written one after the other, take `columns` cycles
    each. A refresh is due every `refi` and goes between two words.

    What `pins` says in a cycle reaches the part by a register: it is on the pins in the next cycle, and the part,
    whose clock is the inverse of ours, sees it in the middle of that. `dq_in` comes by a register, too. So a column's
    data are in `dq_in` `READ_CYCLES` after its command. Raises ValueError for a clock outside `SDRAM_CLOCKS`, and for a
    word that is none.
    """

    #: From a command to the cycle in which `dq_in` has its data: to the pins, CAS latency, from the pins.
    READ_CYCLES = CAS + 1

    request: stream.Interface
    answers: Signal
    word: Signal
    tag: Signal
    pins: SdramPinsPort

    def __init__(self, columns: int, clock: float, tags: int = 1, times: SdramTimes = SLOWEST) -> None:
        least, most = SDRAM_CLOCKS
        if not least <= clock <= most:
            raise ValueError(f"a clock of {clock:g} MHz: SDRAM works with {least:g} to {most:g} MHz")
        if columns < 2 or columns & (columns - 1) or columns > 1 << COLUMN_BITS:
            raise ValueError(f"a word of {columns} columns: it must be a power of two, 2 to {1 << COLUMN_BITS}")
        self._columns, self._clock, self._times = columns, clock, times
        layout = request_layout(columns, tags)
        super().__init__(
            {
                "request": In(stream.Signature(layout)),
                "answers": Out(1),
                "word": Out(BUS_BITS * columns),
                "tag": Out(layout["tag"].shape),
                "pins": Out(SdramPins()),
            }
        )

    def _cycles(self, time: float) -> int:
        """Of nanoseconds, rounded up."""
        return ceil(time * self._clock / 1000 - 1e-9)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        times, pins, columns = self._times, self.pins, self._columns
        interval = int(times.refi * self._clock / 1000)
        start = self._cycles(times.start)
        clock, due = Signal(range(interval), init=interval - 1), Signal(4)
        hold = Signal(range(max(start, self._cycles(times.rfc)) + 1), init=start)  # no command for so many cycles
        ras_left, wr_left = (
            Signal(range(self._cycles(times.ras) + 1)),
            Signal(range(max(2, self._cycles(times.wr)) + 1)),
        )
        refreshing = Signal()
        m.d.sync += [
            clock.eq(Mux(clock == 0, interval - 1, clock - 1)),
            due.eq(due + ((clock == 0) & (due != 15)) - refreshing),
            hold.eq(Mux(hold == 0, 0, hold - 1)),
            ras_left.eq(Mux(ras_left == 0, 0, ras_left - 1)),
            wr_left.eq(Mux(wr_left == 0, 0, wr_left - 1)),
        ]
        m.d.comb += pins.cke.eq(1)

        # where the word lies: row, bank, column
        item, below = self.request.payload, COLUMN_BITS - (columns - 1).bit_length()
        bank = item.address[below : below + BANK_BITS]
        row = item.address[below + BANK_BITS :]
        at = Signal(range(columns))  # the column of the word
        rows = [Signal(ROW_BITS, name=f"row_{number}") for number in range(1 << BANK_BITS)]
        open_banks = Signal(1 << BANK_BITS)
        same = Cat(*(each == row for each in rows))
        hit = open_banks.bit_select(bank, 1) & same.bit_select(bank, 1)
        writes = item.store.any()
        reading = Signal(self.READ_CYCLES)  # a column that is read is on its way
        may_close = (ras_left == 0) & (wr_left == 0)

        def command(*names: str) -> Iterator[object]:
            yield pins.cs.eq(1)
            for name in names:
                yield getattr(pins, name).eq(1)

        go, last = Signal(), Signal()  # a column's command goes; it is the word's last
        m.d.comb += [last.eq(at == columns - 1), self.request.ready.eq(go & last)]
        closed, left = Signal(), Signal(range(FIRST_REFRESHES + 1), init=FIRST_REFRESHES)
        with m.FSM():
            with m.State("serve"):
                with m.If(hold != 0):
                    pass
                with m.Elif(~closed | ((due != 0) & (at == 0))):  # all rows are closed, for a refresh
                    with m.If(may_close):
                        m.d.comb += [*command("ras", "we"), pins.a.eq(_ALL)]
                        m.d.sync += [open_banks.eq(0), hold.eq(self._cycles(times.rp) - 1), closed.eq(1)]
                        m.next = "refresh"
                with m.Elif(self.request.valid & hit):
                    m.d.comb += go.eq(~writes | ~reading.any())
                    with m.If(go):
                        m.d.comb += [
                            *command("cas"),
                            pins.we.eq(writes),
                            pins.a.eq(Cat(at, item.address[:below])),
                            pins.ba.eq(bank),
                            pins.dq_out.eq(item.data.word_select(at, BUS_BITS)),
                            pins.drive.eq(writes),
                            pins.dqm.eq(Mux(writes, ~item.store.word_select(at, BUS_BITS // 8), 0)),
                        ]
                        m.d.sync += at.eq(at + 1)
                        with m.If(writes):
                            m.d.sync += wr_left.eq(max(2, self._cycles(times.wr)) - 1)
                with m.Elif(self.request.valid & open_banks.bit_select(bank, 1)):
                    with m.If(may_close):
                        m.d.comb += [*command("ras", "we"), pins.ba.eq(bank)]
                        m.d.sync += [
                            open_banks.bit_select(bank, 1).eq(0), hold.eq(self._cycles(times.rp) - 1),
                        ]  # fmt: skip
                with m.Elif(self.request.valid):
                    m.d.comb += [*command("ras"), pins.a.eq(row), pins.ba.eq(bank)]
                    m.d.sync += [
                        open_banks.bit_select(bank, 1).eq(1),
                        hold.eq(self._cycles(times.rcd) - 1),
                        ras_left.eq(self._cycles(times.ras) - 1),
                    ]
                    with m.Switch(bank):
                        for number, each in enumerate(rows):
                            with m.Case(number):
                                m.d.sync += each.eq(row)
            with m.State("refresh"), m.If(hold == 0):
                m.d.comb += [*command("ras", "cas"), refreshing.eq(due != 0)]
                m.d.sync += hold.eq(self._cycles(times.rfc) - 1)
                m.next = "serve"
                with m.If(left > 1):
                    m.next = "refresh"
                with m.Elif(left == 1):
                    m.next = "mode"
                with m.If(left != 0):
                    m.d.sync += left.eq(left - 1)
            with m.State("mode"), m.If(hold == 0):
                m.d.comb += [*command("ras", "cas", "we"), pins.a.eq(MODE)]
                m.d.sync += hold.eq(1)  # the next but one cycle's may be another command
                m.next = "serve"
        self._collect(m, reading, go & ~writes, last)
        return m

    def _collect(self, m: Module, reading: Signal, read: Value, last: Value) -> None:
        """Puts the columns of a word together as they come: its first is the lowest."""
        tags = [Signal.like(self.tag, name=f"tag_{stage}") for stage in range(self.READ_CYCLES)]
        ends = Signal(self.READ_CYCLES)
        before = Signal(BUS_BITS * (self._columns - 1))
        m.d.sync += [
            reading.eq(Cat(read, reading[:-1])),
            ends.eq(Cat(read & last, ends[:-1])),
            tags[0].eq(self.request.payload.tag),
            *(later.eq(earlier) for earlier, later in zip(tags, tags[1:], strict=False)),
        ]
        with m.If(reading[-1]):
            m.d.sync += before.eq(Cat(before, self.pins.dq_in)[BUS_BITS:])
        m.d.comb += [
            self.word.eq(Cat(before, self.pins.dq_in)),
            self.answers.eq(ends[-1]),
            self.tag.eq(tags[-1]),
        ]
