"""One plane of the network: a mesh of routers."""

from __future__ import annotations

from enum import Enum
from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..clocking import gated_domain, in_domain
from ..config import tile_address
from .router import LOCAL, NEIGHBOURS, OPPOSITE, Flit, Router


class Gates(Enum):
    """Which clock gates a mesh has: none, one for all of it (seldom used planes), one for each router."""

    NONE = 0
    WHOLE = 1
    EACH = 2


class Mesh(wiring.Component):
    """A `width` x `height` mesh of `Router`s with buffers of `depth` flits of `bits` data bits.

    Ports, for each tile address (y * 16 + x): `inject_<tile>` (in) and `eject_<tile>` (out), streams of `Flit(bits)`;
    `fault_<tile>` (1 bit, for one cycle) and `fault_destination_<tile>` (8 bits): the tile has injected a packet for
    a tile outside the mesh, which has been dropped.

    Latency: over H = |dx| + |dy| hops, a head injected in cycle t is offered for ejection in cycle t + H + 1, the
    last flit of an unhindered packet of L flits in cycle t + H + L. Throughput: one flit per cycle and link.
    Ordering, stalls, fairness and faults: see `Router`. Raises ValueError as `Router` does.
    """

    def __init__(self, width: int, height: int, bits: int, depth: int, gated: Gates = Gates.NONE) -> None:
        self.gated = gated
        self.width, self.height, self.bits, self.depth = width, height, bits, depth
        #: Tile addresses, row by row.
        self.tiles = tuple(tile_address(x, y) for y in range(height) for x in range(width))
        self._routers = {(x, y): Router(x, y, width, height, bits, depth) for y in range(height) for x in range(width)}
        flits = stream.Signature(Flit(bits))
        members: dict[str, wiring.Member] = {}
        for tile in self.tiles:
            members[f"inject_{tile}"] = In(flits)
            members[f"eject_{tile}"] = Out(flits)
            members[f"fault_{tile}"] = Out(1)
            members[f"fault_destination_{tile}"] = Out(8)
        super().__init__(members)

    def inject(self, tile: int) -> Any:
        """The stream by which `tile` sends."""
        return getattr(self, f"inject_{tile}")

    def eject(self, tile: int) -> Any:
        """The stream by which `tile` receives."""
        return getattr(self, f"eject_{tile}")

    def fault(self, tile: int) -> tuple[Signal, Signal]:
        """(strobe, bad destination) of `tile`."""
        return getattr(self, f"fault_{tile}"), getattr(self, f"fault_destination_{tile}")

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
        for (x, y), router in self._routers.items():
            tile = tile_address(x, y)
            strobe, destination = self.fault(tile)
            wiring.connect(m, wiring.flipped(self.inject(tile)), router.input(LOCAL))
            wiring.connect(m, router.output(LOCAL), wiring.flipped(self.eject(tile)))
            m.d.comb += [strobe.eq(router.fault), destination.eq(router.fault_tile)]
            for port in router.ports:
                if port != LOCAL:
                    dx, dy = NEIGHBOURS[port]
                    neighbour = self._routers[x + dx, y + dy]
                    wiring.connect(m, router.output(port), neighbour.input(OPPOSITE[port]))
        return m
