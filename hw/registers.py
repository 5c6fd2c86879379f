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
    """Byte addresses of the registers."""

    ID = 0x00  #: read: 0x4D534C01
    CONFIG = 0x04  #: read: low 32 bits of the chip's digest
    CONTROL = 0x08  #: write: `CONTROL`
    STATUS = 0x0C  #: read: `STATUS`
    PROGRAM_TILE = 0x10
    PROGRAM_ADDR = 0x14
    PROGRAM_COUNT = 0x18
    WATCHDOG = 0x1C  #: cycles after which a run is a fault; 0 = never
    CYCLES = 0x20  #: read: cycles of the run, frozen at its end
    FAULT_WHO = 0x24  #: read: `FAULT_WHO`
    FAULT_VALUE = 0x28  #: read: field `value` of the report (`isa.POST`)
    STALL_LIMIT = 0x2C  #: cycles without progress after which a run is a fault; 0 = never; above any DRAM latency
    QUIET = 0x30  #: read: cycles of the run since anything went on, frozen at its end
    REPORTS = 0x34  #: read: states of tiles that have not been read yet
    REPORT_LOW = 0x38  #: read: low bits of `REPORT`
    REPORT_HIGH = 0x3C  #: read: its high bits; then the next one
    LAUNCH = (
        0x40  #: write: `LAUNCH`: queues the boot stream in PROGRAM_*; this and the following: chips with `programs`
    )
    DONE = 0x44  #: read: `COMPLETION`, the oldest that has not been taken; write: takes it
    DONE_WHO = 0x48  #: read: of a fault: as FAULT_WHO
    DONE_VALUE = 0x4C  #: read: of a fault: as FAULT_VALUE
    DONE_CYCLE = 0x50  #: read: cycle of the run in which it happened
    DONE_COUNT = 0x54  #: read: completions that have not been taken
    LAUNCH_AT = 0x58  #: cycle of the run after which the next launch may start


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
        Field("zero", 1, "0"),
        Field("slot", SLOT_BITS, "slot of the program, in which none is running"),
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
