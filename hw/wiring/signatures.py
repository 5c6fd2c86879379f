"""Interfaces that several parts of a tile share."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..spec.isa import INSTRUCTION_BITS, INSTRUCTIONS, POST, ROUTE_BODY, STATE, TRACE, Opcode

#: A semaphore and how much to add to it.
SemPost = data.StructLayout({name: POST.offsets[name][1] for name in ("sem", "n")})
#: Bits of the cycles that an instruction waited.
WAITED_BITS = TRACE.offsets["wait"][1]
#: An instruction on its way from a stream to its unit, with the cycles that it waited.
Issue = data.StructLayout({"code": INSTRUCTION_BITS, "waited": WAITED_BITS})
#: The route of a MOVE's data, as a ROUTE states it. All zero: the chip's default.
Route = data.StructLayout({name: width for name, (_, width) in ROUTE_BODY.offsets.items()})
#: An instruction on its way to another tile over the request plane.
Request = data.StructLayout({"dst_tile": 8, "unit": 2, "fetch": 1, "route": Route, "code": INSTRUCTION_BITS})
_FAULT = {name: POST.offsets[name][1] for name in ("cause", "tag", "value")}
#: A fault, as it is inside a tile: fields of `isa.POST`; the tile adds who it is.
FaultReport = data.StructLayout({"valid": 1} | _FAULT)
PostFlit = POST.layout()
StateFlit = STATE.layout()
#: What a part of a tile waits for (`isa.BlockedOn`; 0 = for nothing), as it is inside a tile: fields of `isa.STATE`.
BlockedStatus = data.StructLayout(
    {name: STATE.offsets[name][1] for name in ("waits", "tag", "sem", "need", "has", "peer")}
)
TraceRecord = TRACE.layout()
MoveLayout = INSTRUCTIONS[Opcode.MOVE].layout()
FetchLayout = INSTRUCTIONS[Opcode.FETCH].layout()
SyncLayout = INSTRUCTIONS[Opcode.SYNC].layout()


def steered(config: ChipConfig) -> bool:
    """Whether the chip has routes to choose from, and so executes ROUTEs."""
    return config.noc.data_vcs > 1 or config.noc.route_hops > 0


def requested_move(config: ChipConfig) -> data.StructLayout:
    """A MOVE that another tile has requested, with its route if the chip is `steered`."""
    return data.StructLayout({"code": INSTRUCTION_BITS, "route": Route if steered(config) else 0})


def notify_layout() -> data.StructLayout:
    """Whom to tell that data has been delivered."""
    return data.StructLayout({"notify_tile": 8, "notify_sem": 6, "notify": 1})


class FaultSignature(wiring.Signature):
    """A strobe that reports one fault; the tile adds who it is."""

    def __init__(self) -> None:
        super().__init__({name: Out(shape) for name, shape in FaultReport.members.items()})


class TakeSignature(wiring.Signature):
    """A wait on a semaphore: `grant` in the same cycle means that `n` has been subtracted. `value`: of semaphore `sem`,
    before that."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "sem": Out(6), "n": Out(6), "grant": In(1), "value": In(8)})


def detail(blocked_status: Any) -> Cat:
    """The last four fields of a `BlockedStatus` as one number."""
    return Cat(blocked_status.sem, blocked_status.need, blocked_status.has, blocked_status.peer)


def word_write(lanes: int) -> stream.Signature:
    """A stream of words for the memories of a tile."""
    return stream.Signature(data.StructLayout({"region": 4, "offset": 24, "data": 8 * lanes}))


def word_read() -> stream.Signature:
    """A stream of read requests to the memories of a tile."""
    return stream.Signature(data.StructLayout({"region": 4, "offset": 24}))
