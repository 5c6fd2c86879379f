"""What the parts of the mover share: its ports, and what they hand to each other."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..noc.link import Link, LinkPort
from ..spec.config import Arbitration, ChipConfig, TileKind
from ..spec.contracts import DRAM_BURSTS, read_words
from ..spec.isa import COPIES_BITS, Region, data_flit_bits
from ..spec.routes import TURN_BITS
from ..wiring.rights import Pages, Rights
from ..wiring.signatures import (
    MOVE,
    WAITED_BITS,
    BlockedStatus,
    FaultPort,
    FaultSignature,
    Issue,
    MoveLayout,
    Request,
    Route,
    Run,
    SemPost,
    TraceRecord,
    coordinates,
    requested_move,
    word_read,
)


def descriptor(config: ChipConfig) -> data.StructLayout:
    """What the packetiser must know about a MOVE; `turns`: a source route as stored in heads."""
    return data.StructLayout(
        {
            **MOVE.members("dst_tile", "dst", "dst_run", "dst_stride", "words"),
            **MOVE.members("notify_tile", "notify_sem", "notify", "tag", "post_sem", "post_n"),
            "start": 32,
            "waited": WAITED_BITS,
            "from_dram": 1,
            "vc": ceil_log2(config.noc.data_vcs),
            "routed": 1 if config.noc.route_hops else 0,
            "turns": _turn_bits(config),
            "copies": COPIES_BITS if config.noc.multicast else 0,
            "to_dram": int(config.programs > 0),
            "pages": Pages if config.programs else 0,
        }
    )


def _turn_bits(config: ChipConfig) -> int:
    return TURN_BITS * (config.noc.route_hops + 1) if config.noc.route_hops else 0


class Engine:
    """A MOVE handed from `Dispatch` to `SourceGenerator`, which takes it when `valid` and `ready`."""

    def __init__(self) -> None:
        self.move: data.View = Signal(MoveLayout, name="engine_move")
        self.route: data.View = Signal(Route, name="engine_route")
        self.waited = Signal(WAITED_BITS, name="engine_waited")
        self.pages: data.View = Signal(Pages, name="engine_pages")
        # of its tiles some do not exist; it has no words, or runs without any; its tiles are not the program's
        self.stray, self.shapeless = Signal(name="engine_stray"), Signal(name="engine_shapeless")
        self.foreign = Signal(name="engine_foreign")
        self.requester = Signal(8, name="engine_requester")  # the tile whose program it is, in chips with `programs`
        self.valid = Signal(name="engine_valid")
        self.ready = Signal(name="engine_ready")


class PendingRecord:
    """A trace record of half `name`, `pending` until the strobe `traced` signals that it has been taken."""

    def __init__(self, name: str) -> None:
        self.record: data.View = Signal(TraceRecord, name=f"{name}_record")
        self.pending = Signal(name=f"{name}_pending")
        self.traced = Signal(name=f"{name}_traced")


class Queues(NamedTuple):
    """Between the two halves: MOVEs, and words of local memory."""

    descriptors: fifo.SyncFIFO
    words: fifo.SyncFIFO


class MoverPorts(wiring.Component):
    """Mover of one tile of kind `kind`; `depths` are the words of each region it can read.

    `blocked_status`: what the MOVE being sent waits for, for the host when it asks. `rights`: of the tile's stream,
    which `clear` ends. `heard`: a fault that is raised now is reported; `offender`: for whom it is, if a request caused
    it.
    """

    tile: Signal
    now: Signal
    own: stream.Interface
    remote: stream.Interface
    forward: stream.Interface
    read: stream.Interface
    read_data: Signal
    data: LinkPort
    post: stream.Interface
    record: stream.Interface
    fault: FaultPort
    ended: Signal
    busy: Signal
    net_stall: Signal
    mem_stall: Signal
    blocked_status: data.View  # BlockedStatus
    active: Signal
    clear: Signal  # this and the next three: chips with `programs` only
    rights: data.View  # Rights
    heard: Signal
    offender: data.View
    run: stream.Interface  # DRAM tiles only, like `run_data` and `run_level`
    run_data: stream.Interface
    run_level: Signal
    run_ahead: Signal  # if DRAM is shared by tile, too

    def __init__(self, config: ChipConfig, kind: TileKind, depths: dict[Region, int]) -> None:
        self.config, self.kind, self.depths = config, kind, depths
        self.has_dram = kind is TileKind.DRAM
        self.boots = kind is TileKind.HOST and config.boot_host  # it sends requests, and no words
        members = {
            "tile": In(8),
            "now": In(32),
            "own": In(stream.Signature(Issue)),
            "remote": In(stream.Signature(requested_move(config))),
            "forward": Out(stream.Signature(Request)),
            "read": Out(word_read()),
            "read_data": In(config.coded_bits),
            "data": Out(Link(data_flit_bits(config), config.noc.data_vcs)),
            "post": Out(stream.Signature(SemPost)),
            "record": Out(stream.Signature(TraceRecord)),
            "fault": Out(FaultSignature()),
            "ended": Out(1),
            "active": Out(1),
            "busy": Out(1),
            "net_stall": Out(1),
            "mem_stall": Out(1),
            "blocked_status": Out(BlockedStatus),
        }
        if self.has_dram:
            members["run"] = Out(stream.Signature(Run))
            members["run_data"] = In(stream.Signature(config.coded_bits))
            members["run_level"] = In(range(read_words(config) + 1))
        self.shared = self.has_dram and config.dram.arbitration is not Arbitration.FIFO
        if self.shared:
            members["run_ahead"] = In(range(DRAM_BURSTS * config.packet_words + 1))
        if config.programs:
            members |= {"clear": In(1), "rights": In(Rights), "heard": In(1)}
            members["offender"] = Out(data.StructLayout({"valid": 1, "tile": 8}))
        super().__init__(members)

    @staticmethod
    def _shapeless(move: data.View) -> Value:
        """Whether a MOVE has no words, or runs without any."""
        return (move.words == 0) | (move.src_run == 0) | (move.dst_run == 0)

    def _stray(self, move: data.View) -> Value:
        """Whether a MOVE goes to a tile that does not exist, or notifies one."""
        return ~self._exists(move.dst_tile) | (move.notify & ~self._exists(move.notify_tile))

    def _exists(self, tile: Value) -> Value:
        """Whether a tile address is on the floorplan."""
        x, y = coordinates(tile)
        inside = (x < self.config.width) & (y < self.config.height)
        for gap in self.config.gaps:
            inside &= tile != gap
        return inside
