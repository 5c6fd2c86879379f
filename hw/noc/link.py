"""Links with virtual channels, and the parameters that all routers of a mesh share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from amaranth.hdl import Signal, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..spec.routes import DESTINATION_BITS, ROUTINGS, CopyField, RouteField, ports_at
from ..wiring.signatures import PortObject

#: How a packet gets its virtual channel on the next link: it keeps its channel, or takes any free one.
ALLOCATIONS = ("same", "free")
MOST_VCS = 4


@dataclass(frozen=True)
class Plane:
    """The parameters that all routers of a mesh share.

    `bits`: data bits of a flit. `depth`: flits that each virtual channel of each input buffers. `vcs`: virtual channels
    of every link. `routing`: dimension order of packets without a source route (`ROUTINGS`). `allocate`: with "same" a
    packet keeps the virtual channel on which it was injected; with "free" each hop takes any free channel, which
    carries more traffic but lets packets overtake each other. `routes`: where heads hold source routes; None if there
    are none. `copies`: where heads say which tiles on the way take the packet, too; None if each is for one tile: one
    virtual channel, and no source routes. `gaps`: addresses of routers without a tile; a packet for one of them is
    dropped where it is injected.

    Raises ValueError for a mesh beyond 16 x 16, a `depth` below 2, `vcs` outside 1..4, an unknown routing or
    allocation, copies beside several channels or source routes, or heads that do not fit into `bits`.
    """

    width: int
    height: int
    bits: int
    depth: int
    vcs: int = 1
    routing: str = "xy"
    allocate: str = "same"
    routes: RouteField | None = None
    gaps: tuple[int, ...] = ()
    copies: CopyField | None = None

    def __post_init__(self) -> None:
        if not (1 <= self.width <= 16 and 1 <= self.height <= 16):
            raise ValueError(f"mesh of {self.width}x{self.height}: tile addresses reach 1x1 to 16x16")
        if self.depth < 2:
            raise ValueError(f"buffer depth {self.depth} cannot sustain a flit per cycle; use at least 2")
        if not 1 <= self.vcs <= MOST_VCS:
            raise ValueError(f"{self.vcs} virtual channels: use 1 to {MOST_VCS}")
        if self.routing not in ROUTINGS:
            raise ValueError(f"unknown routing {self.routing!r}: use {' or '.join(ROUTINGS)}")
        if self.allocate not in ALLOCATIONS:
            raise ValueError(f"unknown allocation {self.allocate!r}: use {' or '.join(ALLOCATIONS)}")
        if self.bits < DESTINATION_BITS:
            raise ValueError(f"a flit of {self.bits} bits cannot hold the 8-bit destination; use at least 8")
        if self.routes is not None and self.bits < (needed := max(self.routes.end, self.routes.flag_bit + 1)):
            raise ValueError(f"a flit of {self.bits} bits cannot hold {self.routes}; use at least {needed}")
        if self.copies is None:
            return
        if self.vcs > 1 or self.routes is not None:
            raise ValueError(f"copies with {self.vcs} virtual channels, routes {self.routes}: use 1 and None")
        if self.bits < self.copies.end:
            raise ValueError(f"a flit of {self.bits} bits cannot hold {self.copies}; use at least {self.copies.end}")


@dataclass(frozen=True)
class Position:
    """The position of a router: column `x` and row `y` of the mesh that `plane` describes.

    Raises ValueError for a position outside the mesh.
    """

    x: int
    y: int
    plane: Plane

    def __post_init__(self) -> None:
        width, height = self.plane.width, self.plane.height
        if not (0 <= self.x < width and 0 <= self.y < height):
            raise ValueError(f"router at ({self.x}, {self.y}) is outside the {width}x{height} mesh")

    @property
    def ports(self) -> tuple[str, ...]:
        """Its ports: to each neighbour, and to the tile."""
        return ports_at(self.x, self.y, self.plane.width, self.plane.height)


class FlitView(data.View):
    """A flit's fields, see `VcFlit`."""

    data: Signal
    last: Signal
    vc: Signal


class VcFlit(data.StructLayout):
    """One flit: `data` (`bits` wide), `last`, set on the last flit of a packet, and `vc`, its virtual channel.

    The first flit of a packet is its head; the low 8 bits of its data are the destination tile (y * 16 + x). With one
    virtual channel `vc` has no bits.
    """

    def __init__(self, bits: int, vcs: int) -> None:
        super().__init__({"data": bits, "last": 1, "vc": ceil_log2(vcs)})

    def __call__(self, target: ValueLike) -> FlitView:
        return FlitView(self, target)


class Flit(VcFlit):
    """A flit of a plane with one virtual channel."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits, 1)


class LinkPort(PortObject, Protocol):
    """A port with the signature `Link`, or a stream of `Flit`s."""

    valid: Signal
    payload: FlitView
    ready: Signal


class Link(wiring.Signature):
    """A link, seen from its sender: `valid` and `payload` (`VcFlit`) forward, `ready` back, one bit per channel.

    A flit moves in a cycle in which `valid` and the bit of `ready` for its `vc` are set; a `vc` that does not exist is
    never ready. With several channels `ready` must not depend on `valid`, because routers choose a channel by it. A
    router's `ready` depends on registers only (the channel's buffer has room) and, once set, stays set until a flit of
    that channel moves. With one channel this is a stream.
    """

    def __init__(self, bits: int, vcs: int) -> None:
        super().__init__({"valid": Out(1), "payload": Out(VcFlit(bits, vcs)), "ready": In(vcs)})
