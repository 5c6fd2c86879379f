"""The host's registers: addresses and bits, for the gateware behind them and for whoever reads and writes them.

Behind AXI4-Lite (`host_link.host`). Nothing here needs the gateware library.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from .isa import INSTRUCTIONS, POST, SLOT_BITS, STATE, Field, Format, Opcode

if TYPE_CHECKING:
    from .config import ChipConfig

#: Bits of a register.
WIDTH = 32
#: What ID reads.
ID_VALUE = 0x4D534C01


class Register(IntEnum):
    """Byte addresses of the registers; `MEANINGS` says what each is."""

    ID = 0x00
    CONFIG = 0x04
    CONTROL = 0x08
    STATUS = 0x0C
    PROGRAM_TILE = 0x10
    PROGRAM_ADDR = 0x14
    PROGRAM_COUNT = 0x18
    WATCHDOG = 0x1C
    CYCLES = 0x20
    FAULT_WHO = 0x24
    FAULT_VALUE = 0x28
    STALL_LIMIT = 0x2C
    QUIET = 0x30
    REPORTS = 0x34
    REPORT_LOW = 0x38
    REPORT_HIGH = 0x3C
    LAUNCH = 0x40  #: this and the following: chips with `programs` only
    DONE = 0x44
    DONE_WHO = 0x48
    DONE_VALUE = 0x4C
    DONE_CYCLE = 0x50
    DONE_COUNT = 0x54
    LAUNCH_AT = 0x58
    COUNT = 0x5C  #: this and the following two: chips with `counters` only
    COUNT_CYCLE = 0x60
    COUNT_VALUE = 0x64
    IRQ_ENABLE = 0x68
    IRQ_STATUS = 0x6C


class Counted(IntEnum):
    """What is counted in every tile, in cycles, while a run counts (`CONTROL`); 0 in tiles without such a part. Counts
    go from reset on, modulo 2^32."""

    MOVER = 0  #: the mover has begun to send a MOVE, or the code of a stream, and has not ended (stalls included)
    MATRIX = 1  #: operands are fed to the array
    VECTOR = 2  #: the vector unit walks over its operands
    DRAM_READ = 3  #: the channel hands over a word that was read
    DRAM_WRITE = 4  #: it takes a word that is to be written
    NORTH = 5  #: a flit of the data plane leaves the tile's router northwards
    EAST = 6
    SOUTH = 7
    WEST = 8
    LOCAL = 9  #: ... into the tile


#: Of each register: what it is, after how it is used (r, w, or both; one that is only w reads 0). Writing one that is
#: only r, and any access at other addresses, is answered with SLVERR.
MEANINGS = {
    Register.ID: ("r", f"{ID_VALUE:#010x}"),
    Register.CONFIG: ("r", "low 32 bits of the chip's digest"),
    Register.CONTROL: ("w", "`CONTROL`"),
    Register.STATUS: ("r", "`STATUS`"),
    Register.PROGRAM_TILE: ("rw", "dram tile of the boot stream of a run, or of the next launch"),
    Register.PROGRAM_ADDR: ("rw", "word address there of its first instruction"),
    Register.PROGRAM_COUNT: ("rw", "its instructions; a run of 0 is a fault, a launch of 0 is refused"),
    Register.WATCHDOG: ("rw", "cycles after which a run is a fault, also if it is past them already; 0 = never"),
    Register.CYCLES: ("r", "cycles of the run, frozen at its end"),
    Register.FAULT_WHO: ("r", "`FAULT_WHO` of the fault that has ended the run"),
    Register.FAULT_VALUE: ("r", "field `value` of its report (`POST`)"),
    Register.STALL_LIMIT: (
        "rw",
        "cycles without progress after which a run is a fault; 0 = never; must be above any latency of DRAM",
    ),
    Register.QUIET: ("r", "cycles of the run since anything went on, frozen at its end"),
    Register.REPORTS: ("r", "states of tiles that have not been read yet"),
    Register.REPORT_LOW: ("r", "low bits of `REPORT`, the first of them; 0 if there is none"),
    Register.REPORT_HIGH: ("r", "its high bits; then the next one"),
    Register.LAUNCH: (
        "w",
        "`LAUNCH`: queues the boot stream that PROGRAM_* name, to start after LAUNCH_AT; refused outside a run that "
        "serves, for a slot that is not there, and without room",
    ),
    Register.DONE: ("rw", "`COMPLETION`, the oldest that has not been taken; writing takes it"),
    Register.DONE_WHO: ("r", "of a fault: `FAULT_WHO`"),
    Register.DONE_VALUE: ("r", "of a fault: field `value` of its report (`POST`)"),
    Register.DONE_CYCLE: ("r", "cycle of the run in which it happened"),
    Register.DONE_COUNT: ("r", "completions that have not been taken"),
    Register.LAUNCH_AT: ("rw", "cycle of the run after which the next launch may start"),
    Register.COUNT: ("rw", "`COUNT`; writing `which` takes a snapshot of that counter in all tiles, if `ready`"),
    Register.COUNT_CYCLE: ("r", "cycle of the run of the snapshot: it holds the counts of the cycles before"),
    Register.COUNT_VALUE: ("r", "count of the next tile, in the order of `ChipConfig.counter_chain`; 0 after the last"),
    Register.IRQ_ENABLE: ("rw", "`IRQ`: what sets the pin `irq`; all of it after reset"),
    Register.IRQ_STATUS: (
        "rw",
        "`IRQ`: what has happened; writing 1 to `done` or `fault` acknowledges that",
    ),
}


def _of(layout: Format, name: str) -> Field:
    """A field of a packet as a register has it."""
    return next(field for field in layout.fields if field.name == name)


CONTROL = Format(
    "CONTROL",
    (
        Field("start", 1, "1 = start a run"),
        Field("trace", 1, "with it: record traces"),
        Field("serve", 1, "with it: no program yet; programs are launched, and `stop` ends the run"),
        Field("stop", 1, "1 = end such a run"),
        Field("count", 1, "with `start`: busy cycles are counted (`Counted`); with `trace` they are in any case"),
        Field("reset", 1, "1 = end whatever goes on, let DRAM finish, and reset the chip; goes before `start`"),
    ),
    WIDTH,
)
STATUS = Format(
    "STATUS",
    (
        Field("running", 1, "a run has been started and not ended"),
        Field("done", 1, "it has ended"),
        Field("fault", 1, "a fault or a watchdog has stopped it"),
        Field("ready", 1, "a run can be started"),
        Field("full", 1, "the launch queue takes no more"),
        Field("lost", 1, "completions have been lost"),
        Field("refused", 1, "a write has been answered with SLVERR since the last start of a run"),
        Field("resetting", 1, "`CONTROL`.reset has been written, and DRAM has not finished its bursts"),
    ),
    WIDTH,
)
IRQ = Format(
    "IRQ",
    (
        Field("done", 1, "the run has ended"),
        Field("fault", 1, "a fault or a watchdog has stopped it"),
        Field("completion", 1, "there is a completion that has not been taken"),
    ),
    WIDTH,
)
LAUNCH = Format(
    "LAUNCH",
    (
        Field("streams", 7, "streams of the program, each of which adds 1 to the host's semaphore `slot` at its end"),
        Field(
            "follows",
            1,
            "1 = a successor, to begin when the slot's program has ended; without `streams`: withdraws them",
        ),
        Field("slot", SLOT_BITS, "slot of the program, in which no other one is running"),
    ),
    WIDTH,
)
COMPLETION = Format(
    "COMPLETION",
    (
        Field("valid", 1, "1 = there is one"),
        Field("fault", 1, "1 = a fault, raised by the tile in DONE_WHO; 0 = a program has ended"),
        Field("zero", 6, "0"),
        Field("slot", SLOT_BITS, "its slot; 0 for a fault"),
    ),
    WIDTH,
)
COUNT = Format(
    "COUNT",
    (
        Field("which", 4, "`Counted`"),
        Field("ready", 1, "read: all counts of the last snapshot are there, and another can be taken"),
        Field("zero", 3, "0"),
        Field("left", 9, "read: counts that have not been read"),
    ),
    WIDTH,
)
#: Who raised the fault that has stopped the run: fields of its report.
FAULT_WHO = Format(
    "FAULT_WHO",
    (_of(POST, "cause"), _of(POST, "unit"), Field("zero", 1, "0"), _of(POST, "tile"), _of(POST, "tag")),
    WIDTH,
)
#: What a part of a tile waits for: fields of its report.
REPORT = Format(
    "REPORT",
    tuple(_of(STATE, name) for name in ("sem", "need", "has", "peer", "part", "waits", "unit", "tile", "tag")),
    2 * WIDTH,
)
#: The formats above, in the order of their registers.
FORMATS = (CONTROL, STATUS, FAULT_WHO, REPORT, LAUNCH, COMPLETION, COUNT, IRQ)
#: Registers with fields, and which.
LAYOUTS = {
    Register.CONTROL: CONTROL,
    Register.STATUS: STATUS,
    Register.FAULT_WHO: FAULT_WHO,
    Register.LAUNCH: LAUNCH,
    Register.DONE: COMPLETION,
    Register.DONE_WHO: FAULT_WHO,
    Register.COUNT: COUNT,
    Register.IRQ_ENABLE: IRQ,
    Register.IRQ_STATUS: IRQ,
}
_FETCH = INSTRUCTIONS[Opcode.FETCH]
#: Bits of the registers that keep fewer than `WIDTH`; a value that does not fit is refused.
WIDTHS = {
    Register.PROGRAM_TILE: _FETCH.bits("dram"),
    Register.PROGRAM_ADDR: _FETCH.bits("addr"),
    Register.PROGRAM_COUNT: _FETCH.bits("count"),
    Register.IRQ_ENABLE: IRQ.used,
    Register.IRQ_STATUS: IRQ.used,
}
#: Registers that take something when they are read.
TAKING = (Register.REPORT_HIGH, Register.COUNT_VALUE)
_OF_PROGRAMS = range(Register.LAUNCH, Register.COUNT)
_OF_COUNTERS = range(Register.COUNT, Register.IRQ_ENABLE)


def registers_of(config: ChipConfig) -> tuple[Register, ...]:
    """The registers that a chip has, by address."""
    return tuple(
        register
        for register in Register
        if (config.programs or register not in _OF_PROGRAMS) and (config.counters or register not in _OF_COUNTERS)
    )
