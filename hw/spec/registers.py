"""The host's registers: addresses and bits, for the gateware behind them and for whoever reads and writes them.

Behind AXI4-Lite (`host_link.host`). Nothing here needs the gateware library.
"""

from __future__ import annotations

from enum import IntEnum

from .isa import POST, SLOT_BITS, STATE, Field, Format

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
    LAUNCH = 0x40  #: this and the following: chips with `programs` only, others read 0
    DONE = 0x44
    DONE_WHO = 0x48
    DONE_VALUE = 0x4C
    DONE_CYCLE = 0x50
    DONE_COUNT = 0x54
    LAUNCH_AT = 0x58
    COUNT = 0x5C  #: this and the following: chips with `counters` only, others read 0
    COUNT_CYCLE = 0x60
    COUNT_VALUE = 0x64


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


#: Of each register: what it is, after how it is used (r, w, or both; one that is only w reads 0).
MEANINGS = {
    Register.ID: ("r", f"{ID_VALUE:#010x}"),
    Register.CONFIG: ("r", "low 32 bits of the chip's digest"),
    Register.CONTROL: ("w", "`CONTROL`"),
    Register.STATUS: ("r", "`STATUS`"),
    Register.PROGRAM_TILE: ("rw", "dram tile of the boot stream of a run, or of the next launch"),
    Register.PROGRAM_ADDR: ("rw", "word address there of its first instruction"),
    Register.PROGRAM_COUNT: ("rw", "its instructions"),
    Register.WATCHDOG: ("rw", "cycles after which a run is a fault; 0 = never"),
    Register.CYCLES: ("r", "cycles of the run, frozen at its end"),
    Register.FAULT_WHO: ("r", "`FAULT_WHO` of the fault that has ended the run"),
    Register.FAULT_VALUE: ("r", "field `value` of its report (`POST`)"),
    Register.STALL_LIMIT: (
        "rw",
        "cycles without progress after which a run is a fault; 0 = never; must be above any latency of DRAM",
    ),
    Register.QUIET: ("r", "cycles of the run since anything went on, frozen at its end"),
    Register.REPORTS: ("r", "states of tiles that have not been read yet"),
    Register.REPORT_LOW: ("r", "low bits of `REPORT`, the first of them"),
    Register.REPORT_HIGH: ("r", "its high bits; then the next one"),
    Register.LAUNCH: ("w", "`LAUNCH`: queues the boot stream that PROGRAM_* name, to start after LAUNCH_AT"),
    Register.DONE: ("rw", "`COMPLETION`, the oldest that has not been taken; writing takes it"),
    Register.DONE_WHO: ("r", "of a fault: `FAULT_WHO`"),
    Register.DONE_VALUE: ("r", "of a fault: field `value` of its report (`POST`)"),
    Register.DONE_CYCLE: ("r", "cycle of the run in which it happened"),
    Register.DONE_COUNT: ("r", "completions that have not been taken"),
    Register.LAUNCH_AT: ("rw", "cycle of the run after which the next launch may start"),
    Register.COUNT: ("rw", "`COUNT`; writing `which` takes a snapshot of that counter in all tiles, if `ready`"),
    Register.COUNT_CYCLE: ("r", "cycle of the run of the snapshot: it holds the counts of the cycles before"),
    Register.COUNT_VALUE: ("r", "count of the next tile, in the order of `ChipConfig.counter_chain`; 0 after the last"),
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
FORMATS = (CONTROL, STATUS, FAULT_WHO, REPORT, LAUNCH, COMPLETION, COUNT)
