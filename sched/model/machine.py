"""The interfaces between the parts of the model: the machine that holds them, and what they request of each other.

The first classes are abstract (mypyc calls their methods as directly as those of the parts that implement them), so
that no part has to import another one, or whoever assembles them.
"""

from __future__ import annotations

from collections.abc import Callable

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import clear_cycles
from meshloom.hw.spec.isa import Opcode, Unit

from .banks import BankedDram
from .clock import Clock
from .drain import DrainPath
from .dram import Dram
from .flow import OPEN, Door, Place
from .noc_flit import FlitPlane
from .noc_flow import Packet, Plane
from .posts import DELIVERED_POST, PLANE_POST, PostSender, Semaphores, Trace
from .records import Executed
from .sender import Sender


class Executes:
    """A part that executes instructions issued by a front end."""

    def own(
        self, opcode: Opcode, fields: dict[str, int], waited: int, cycle: int, accept: Callable[[int], None]
    ) -> None:
        """An instruction of the tile's own stream, offered in `cycle`; `accept` is called when it is accepted."""
        raise NotImplementedError


class Works(Executes):
    """A unit that moves or computes, whose busy cycles are counted (`hw.spec.registers.Counted`)."""

    def busy(self, cycle: int) -> int:
        """Cycles before `cycle` in which it worked, once everything before has happened."""
        raise NotImplementedError


class Requested(Works):
    """A mover, of which other tiles can request MOVEs.

    `idle_from`: first cycle in which its packetiser has nothing to send; `source_free`: first cycle in which its source
    generator can take a MOVE (None: not before the current one is done).
    """

    idle_from: int
    source_free: int | None

    def request(self, fields: dict[str, int], requester: int, cycle: int) -> None:
        """The taker holds a MOVE that tile `requester` requests in `cycle`."""
        raise NotImplementedError

    def gate(self, cycle: int, proceed: Callable[[int], None]) -> None:
        """Calls `proceed` when the taker can take another request, in `cycle` (now) or later."""
        raise NotImplementedError


class Fed:
    """A front end: it is started, then fed with code. `whole`: cycle from which all code delivered is in the ring."""

    whole: int

    def start(self, cycle: int) -> None:
        """The FETCH has been taken: from `cycle` on the stream requests its code."""
        raise NotImplementedError

    def arrived(self, cycle: int) -> None:
        """An instruction is in the ring from `cycle` on."""
        raise NotImplementedError


class PacketMaker:
    """Makes the packets of a run."""

    def of(self, fields: dict[str, int], address: int, words: int, final: bool) -> Packet:
        """A packet of a MOVE (`fields` include those of its ROUTE) of `words` words to `address`; `final`: the last."""
        raise NotImplementedError


class Machine(Clock):
    """The parts of a chip, and the events of a run.

    `timeline.assemble` adds `movers`, `arrays`, `controllers`, `streams` and `packets`.
    """

    packets: PacketMaker

    def __init__(self, chip: ChipConfig) -> None:
        super().__init__()
        self.chip = chip
        noc = chip.noc
        if noc.data_vcs == 1:
            self.data: Plane | FlitPlane = Plane(self, noc.data_depth, noc.data_routing)
        else:
            self.data = FlitPlane(self, noc.data_depth, noc.data_vcs, noc.data_routing)
        self.requests = Plane(self, noc.request_depth)
        self.posts = Plane(self, noc.post_depth)
        self.executed: list[Executed] = []
        #: By tile, where the instructions of its streams are recorded; None: nowhere.
        self.logs: dict[int, list[Executed] | None] = dict.fromkeys(chip.tiles, self.executed)
        self.cycles: int | None = None
        #: Cycles of computing instructions, by the fields on which they depend.
        self.lengths: dict[tuple[int, ...], tuple[int, int, int]] = {}
        clearing = clear_cycles(chip)
        self.semaphores = {tile: Semaphores(self, clearing) for tile in chip.tiles}
        self.traces = {tile: Trace(self, chip.trace_records > 0) for tile in chip.tiles}
        self.post_senders = {tile: PostSender(self, self.posts, tile) for tile in chip.tiles}
        self.doors = {tile: Door(True) for tile in chip.tiles}  # into the memories
        channel: type[Dram] = Dram if chip.dram.banks is None else BankedDram
        self.drams: dict[int, Dram] = {tile: channel(self, chip) for tile in chip.channels}
        self.drains = {tile: DrainPath(chip) for tile in chip.cores}
        self.ports: dict[tuple[int, int], Place] = {
            (tile, region): port for tile, drain in self.drains.items() for region, port in drain.writes.items()
        }
        self.senders = {tile: Sender(self, self.requests, tile) for tile in chip.tiles}
        self.movers: dict[int, Requested] = {}
        self.arrays: dict[tuple[int, Unit], Works] = {}
        self.controllers: dict[int, Executes] = {}
        self.streams: dict[tuple[int, Unit], Fed] = {}

    def record(
        self, owner: int, tile: int, unit: Unit, opcode: Opcode, tag: int, wait: int, start: int, end: int
    ) -> None:  # fmt: skip
        """Records an instruction executed by `tile` (see `Executed`) for a stream of tile `owner`."""
        log = self.logs[owner]
        if log is not None:
            log.append(Executed(tile, unit, opcode, tag, wait, start, end))

    # -- posts and deliveries ---------------------------------------------------------------------------------------

    def send_post(
        self, source: int, number: int, target: int, semaphore: int, count: int, cycle: int,
        accept: Callable[[int], None],
    ) -> None:  # fmt: skip
        """A post over the post plane, offered in `cycle`; `accept` is called when the NoC takes it."""

        def gate(now: int, proceed: Callable[[int], None]) -> None:
            self.semaphores[target].post(now, PLANE_POST, semaphore, count, proceed)

        self.post_senders[source].offer(cycle, number, target, Packet([(1, OPEN, None)], gate), accept)

    def delivered(self, tile: int, fields: dict[str, int], cycle: int, accepted: Callable[[int], None]) -> None:
        """The last word of a MOVE has been written; its notify is offered in `cycle`."""
        target = fields["notify_tile"]
        if target == tile:
            self.semaphores[tile].post(cycle, DELIVERED_POST, fields["notify_sem"], 1, accepted)
        else:
            self.send_post(tile, 0, target, fields["notify_sem"], 1, cycle, accepted)
