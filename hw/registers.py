"""The host's registers: addresses and bits, for the gateware behind them and for whoever reads and writes them.

Behind AXI4-Lite (`host_link.host`). Nothing here needs the gateware library.
"""

from __future__ import annotations

from enum import IntEnum

from .isa import POST, STATE, Field, Format

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


def _of(layout: Format, name: str) -> Field:
    """A field of a packet as a register has it."""
    return next(field for field in layout.fields if field.name == name)


CONTROL = Format("CONTROL", (Field("start", 1, "1 = start a run"), Field("trace", 1, "with it: record traces")), WIDTH)
STATUS = Format(
    "STATUS",
    (
        Field("running", 1, "a run has been started and not ended"),
        Field("done", 1, "it has ended"),
        Field("fault", 1, "a fault or a watchdog has stopped it"),
        Field("ready", 1, "a run can be started"),
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
