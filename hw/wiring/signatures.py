"""Interfaces that several parts of a tile share."""

from __future__ import annotations

from typing import Protocol

from amaranth.hdl import Cat, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import OFFSET_BITS, ChipConfig
from ..spec.isa import (
    ADDRESS,
    DATA_HEAD,
    INSTRUCTION_BITS,
    INSTRUCTIONS,
    POST,
    REQUEST_HEAD,
    ROUTE_BODY,
    STATE,
    TRACE,
    Opcode,
)

#: A semaphore and how much to add to it.
SemPost = data.StructLayout(POST.members("sem", "n"))
#: Bits of the cycles that an instruction waited.
WAITED_BITS = TRACE.bits("wait")
#: An instruction on its way from a stream to its unit, with the cycles that it waited.
Issue = data.StructLayout({"code": INSTRUCTION_BITS, "waited": WAITED_BITS})
#: The route of a MOVE's data, as a ROUTE states it. All zero: the chip's default.
Route = data.StructLayout(ROUTE_BODY.members(*ROUTE_BODY.offsets))
#: An instruction on its way to another tile over the request plane.
Request = data.StructLayout(
    {**REQUEST_HEAD.members("dst_tile", "unit", "fetch"), "route": Route, "code": INSTRUCTION_BITS}
)
_FAULT = POST.members("cause", "tag", "value")
_ADDRESS = ADDRESS.layout()
#: Whom to notify that data has been delivered.
Notice = data.StructLayout(DATA_HEAD.members("notify_tile", "notify_sem", "notify"))
#: Bits of a number of words in a packet.
WORDS_BITS = DATA_HEAD.bits("words")
#: `words` adjacent words from word `offset` of a DRAM channel; 1 to `ChipConfig.packet_words`, never across a multiple
#: of it.
Run = data.StructLayout({"offset": OFFSET_BITS, "words": WORDS_BITS})
#: A run to be written, and whom to notify.
WriteHead = data.StructLayout({**Run.members, **Notice.members})
#: A fault, as it is inside a tile: fields of `isa.POST`; the tile adds who it is.
FaultReport = data.StructLayout({"valid": 1} | _FAULT)
PostFlit = POST.layout()
StateFlit = STATE.layout()
#: What a part of a tile waits for (`isa.BlockedOn`; 0 = for nothing), as it is inside a tile: fields of `isa.STATE`.
BlockedStatus = data.StructLayout(STATE.members("waits", "tag", "sem", "need", "has", "peer"))
TraceRecord = TRACE.layout()
MOVE, FETCH = INSTRUCTIONS[Opcode.MOVE], INSTRUCTIONS[Opcode.FETCH]
MoveLayout = MOVE.layout()
FetchLayout = FETCH.layout()
SyncLayout = INSTRUCTIONS[Opcode.SYNC].layout()


def steered(config: ChipConfig) -> bool:
    """Whether the chip has routes to choose from, and so executes ROUTEs."""
    return config.noc.data_vcs > 1 or config.noc.route_hops > 0


def requested_move(config: ChipConfig) -> data.StructLayout:
    """A MOVE that another tile has requested, with its route if the chip is `steered`."""
    return data.StructLayout({"code": INSTRUCTION_BITS, "route": Route if steered(config) else 0})


#: Bits of a requested MOVE's code that say which tile has requested it, where DRAM is shared by tile
#: (`hw.noc.arbitration`): those of its wait, which is over.
_REQUESTER = MOVE.offsets["wait_sem"][0]


def requester(code: Value) -> Value:
    """The tile that has requested a MOVE, from the MOVE's code."""
    return code[_REQUESTER : _REQUESTER + 8]


def split_address(address: Value) -> data.View:
    """`region` and `offset` of a word address."""
    return data.View(_ADDRESS, address)


def coordinates(tile: Value) -> tuple[Value, Value]:
    """Column and row of a tile address (`config.tile_address`)."""
    return tile[:4], tile[4:8]


class PortObject(Protocol):
    """An interface object: what stands at a port that has a signature. Derived classes name its members."""

    @property
    def signature(self) -> wiring.Signature: ...


class FaultPort(PortObject, Protocol):
    """A port with `FaultSignature`."""

    valid: Signal
    cause: Signal  # `isa.Cause`
    tag: Signal  # of the instruction
    value: Signal  # the offending value


class FaultSignature(wiring.Signature):
    """A strobe that reports one fault; the tile adds who it is."""

    def __init__(self) -> None:
        super().__init__({name: Out(shape) for name, shape in FaultReport.members.items()})


class TakePort(PortObject, Protocol):
    """A port with `TakeSignature`."""

    valid: Signal
    sem: Signal
    n: Signal
    grant: Signal
    value: Signal


class TakeSignature(wiring.Signature):
    """A wait on a semaphore: `grant` in the same cycle means that `n` has been subtracted. `value`: of semaphore `sem`,
    before that."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "sem": Out(6), "n": Out(6), "grant": In(1), "value": In(8)})


def detail(blocked_status: data.View) -> Cat:
    """The last four fields of a `BlockedStatus` as one number."""
    return Cat(blocked_status.sem, blocked_status.need, blocked_status.has, blocked_status.peer)


def word_write(config: ChipConfig) -> stream.Signature:
    """A stream of words, with their check bits in chips with `ecc`, for the memories of a tile."""
    return stream.Signature(data.StructLayout({**ADDRESS.members("region", "offset"), "data": config.coded_bits}))


def word_read() -> stream.Signature:
    """A stream of read requests to the memories of a tile."""
    return stream.Signature(data.StructLayout(ADDRESS.members("region", "offset")))
