"""One plane of the NoC with virtual channels: a mesh of routers."""

from __future__ import annotations

from enum import Enum

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import tile_address
from ..spec.routes import LOCAL, NEIGHBOURS, OPPOSITE
from ..wiring.clocking import gated_domain, in_domain
from ..wiring.link_counters import LinkCounters, link_counts
from .link import Link, LinkPort, Plane
from .router import Router


class Gates(Enum):
    """Which clock gates a mesh has: none, one for the whole mesh (rarely used planes), or one per router."""

    NONE = 0
    WHOLE = 1
    EACH = 2


class VcMesh(wiring.Component):
    """A mesh of `Router`s.

    Ports, for each tile address (y * 16 + x): `inject_<tile>` (in) and `eject_<tile>` (out), `Link`s; `fault_<tile>` (1
    bit, for one cycle) and `fault_destination_<tile>` (8 bits): the router there has dropped a packet that it could not
    route; for each output `busy_<tile>_<port>` and `blocked_<tile>_<port>`. If `counted`, these are counted while
    `count` is set: `counts_<tile>` (`link_counters`).

    Latency: over H hops (|dx| + |dy|, or the hops of the source route) on an idle mesh, a head injected in cycle t is
    offered for ejection in cycle t + H + 1, the last of L flits in cycle t + H + L (`timing.noc_arrival`). Throughput:
    one flit per cycle and link. Ordering, stalls, fairness and faults: see `Router`.

    Packets without a source route cannot deadlock, whatever `vcs` is. Source routes can: their sender must give each
    channel a set of routes whose channel dependences have no cycle.
    """

    count: Signal  # if counted

    def __init__(self, plane: Plane, gated: Gates = Gates.NONE, counted: bool = False) -> None:
        self.plane, self.gated, self.counted = plane, gated, counted
        places = [(x, y) for y in range(plane.height) for x in range(plane.width)]
        #: Tile addresses, row by row.
        self.tiles = tuple(tile_address(x, y) for x, y in places)
        self._routers = {(x, y): Router(x, y, plane) for x, y in places}
        link = Link(plane.bits, plane.vcs)
        members: dict[str, wiring.Member] = {}
        for tile, router in zip(self.tiles, self._routers.values(), strict=True):
            members[f"inject_{tile}"] = In(link)
            members[f"eject_{tile}"] = Out(link)
            members[f"fault_{tile}"] = Out(1)
            members[f"fault_destination_{tile}"] = Out(8)
            for port in router.ports:
                members[f"busy_{tile}_{port}"] = Out(1)
                members[f"blocked_{tile}_{port}"] = Out(1)
            if counted:
                members |= {"count": In(1), f"counts_{tile}": Out(link_counts())}
        super().__init__(members)

    def inject(self, tile: int) -> LinkPort:
        """The link on which `tile` injects."""
        return getattr(self, f"inject_{tile}")

    def eject(self, tile: int) -> LinkPort:
        """The link on which flits are ejected to `tile`."""
        return getattr(self, f"eject_{tile}")

    def fault(self, tile: int) -> tuple[Signal, Signal]:
        """(strobe, destination) of packets dropped at `tile`."""
        return getattr(self, f"fault_{tile}"), getattr(self, f"fault_destination_{tile}")

    def counters(self, tile: int, port: str) -> tuple[Signal, Signal]:
        """(busy, blocked) of the output `port` of the router at `tile`."""
        return getattr(self, f"busy_{tile}_{port}"), getattr(self, f"blocked_{tile}_{port}")

    def counts(self, tile: int) -> data.View:
        """Counts at the outputs of the router at `tile`."""
        return getattr(self, f"counts_{tile}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        awake = Signal()
        m.d.comb += awake.eq(Cat([router.active for router in self._routers.values()]).any())
        whole = gated_domain(m, "plane", awake, self.gated is Gates.WHOLE)
        for (x, y), router in self._routers.items():
            domain = whole
            if self.gated is Gates.EACH:
                domain = gated_domain(m, f"clk_{x}_{y}", router.active, True)
            m.submodules[f"router_{x}_{y}"] = in_domain(router, domain)
            if self.counted:
                counters = LinkCounters(router.ports)
                m.submodules[f"counters_{x}_{y}"] = in_domain(counters, domain)
                m.d.comb += [counters.count.eq(self.count), self.counts(tile_address(x, y)).eq(counters.counts)]
                for port in router.ports:
                    strobes = zip(counters.strobes(port), router.counters(port), strict=True)
                    m.d.comb += [counted.eq(strobe) for counted, strobe in strobes]
        for (x, y), router in self._routers.items():
            tile = tile_address(x, y)
            strobe, destination = self.fault(tile)
            wiring.connect(m, wiring.flipped(self.inject(tile)), router.input(LOCAL))
            wiring.connect(m, router.output(LOCAL), wiring.flipped(self.eject(tile)))
            m.d.comb += [strobe.eq(router.fault), destination.eq(router.fault_tile)]
            for port in router.ports:
                for outside, inside in zip(self.counters(tile, port), router.counters(port), strict=True):
                    m.d.comb += outside.eq(inside)
                if port != LOCAL:
                    dx, dy = NEIGHBOURS[port]
                    neighbour = self._routers[x + dx, y + dy]
                    wiring.connect(m, router.output(port), neighbour.input(OPPOSITE[port]))
        return m
