"""The whole chip: three meshes and the tiles around them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..host_link.counters import Ask
from ..host_link.reset_unit import ResetUnit
from ..noc.link import Plane
from ..noc.mesh import Gates, VcMesh
from ..spec.config import ChipConfig, TileKind
from ..spec.contracts import COUNT_WIRES
from ..spec.isa import REQUEST_FLIT_BITS, copy_field, data_flit_bits, post_format, route_field
from ..wiring.axi import AXI4Lite, AXI4LitePort
from ..wiring.clocking import in_domain
from .core_tile import ProbePort
from .tile import Tile, dram_bus


def tile_module(kind: TileKind) -> str:
    """Name of the Verilog module of a tile kind."""
    return f"tile_{kind.value}"


def chip_ports(config: ChipConfig, observed: bool = False) -> wiring.Signature:
    """The chip's ports except clock and reset."""
    return wiring.Signature(
        {f"axi_{i}": Out(dram_bus(config)) for i in range(len(config.channels))}
        | {"bus": In(AXI4Lite(address_bits=8)), "irq": Out(1)}
        | ({f"seen_{i}": Out(ProbePort(config)) for i in range(len(config.cores))} if observed else {})
    )


class Chip(wiring.Component):
    """Ports: `axi_<i>` (AXI4 master of the i-th dram tile of the floorplan), `bus` (AXI4-Lite slave of the host) and
    `irq` (the run has ended, successfully or not). If `observed`, also `seen_<i>` (`ProbePort`: the result words of the
    i-th core of the floorplan as they are written), for benches.

    Tiles are instances of modules that `hw.assembly.verilog` emits once for each kind, because elaborating and
    simulating a core N times costs N times as much. Here are nothing but wires between tiles and meshes: all logic is
    in one of these, so that a simulator may take them one by one.
    """

    bus: AXI4LitePort
    irq: Signal

    def __init__(self, config: ChipConfig, gated: bool = False, observed: bool = False) -> None:
        self.config, self.gated, self.observed = config, gated, observed
        super().__init__(chip_ports(config, observed))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        noc, size = config.noc, (config.width, config.height)
        routing, gaps = noc.data_routing.value, config.gaps
        heads = {"routes": route_field(config), "copies": copy_field(config)}
        planes = {
            "data": Plane(*size, data_flit_bits(config), noc.data_depth, noc.data_vcs, routing, gaps=gaps, **heads),
            "request": Plane(*size, REQUEST_FLIT_BITS, noc.request_depth, gaps=gaps),
            "post": Plane(*size, post_format(config).width, noc.post_depth, gaps=gaps),
        }
        # the data plane moves flits in most cycles, requests and posts are rare
        gates = {name: Gates.EACH if name == "data" else Gates.WHOLE for name in planes}
        if not self.gated:
            gates = dict.fromkeys(planes, Gates.NONE)
        meshes = {name: VcMesh(plane, gates[name], counted=name == "data") for name, plane in planes.items()}
        # all but the unit itself is reset by it
        inner: Any = ClockDomain("inner", local=True)  # `Any`: the stubs do not know its signals
        inner.clk, inner.rst = Signal(name="clk"), Signal(name="rst")
        m.domains += inner
        m.submodules.reset_unit = reset = ResetUnit(len(config.channels), self.gated)
        m.d.comb += [inner.clk.eq(ClockSignal()), inner.rst.eq(reset.reset)]
        for plane, mesh in meshes.items():
            m.submodules[f"{plane}_plane"] = in_domain(mesh, "inner")
        clock = {"now": Signal(32), "go": Signal(), "trace": Signal(), "ask": Signal()}
        moved = Signal(len(config.tiles))  # one bit per tile
        ask = Signal(Ask.size, name="counter_ask")
        # from the last tile to the first, whose counts reach the host first; nothing comes into the last
        chain = [*(Signal(COUNT_WIRES, name=f"counter_{tile}") for tile in config.counter_chain), Const(0, COUNT_WIRES)]
        drams = {tile: index for index, tile in enumerate(config.channels)}
        cores = {tile: index for index, tile in enumerate(config.cores)}
        for number, (tile, kind) in enumerate(config.tiles.items()):
            ports: dict[str, Any] = {
                "i_clk": ClockSignal(),
                "i_rst": inner.rst,
                "i_tile": tile,
                "i_host": config.host,
                **{f"i_{name}": signal for name, signal in clock.items()},
                "o_moved": moved[number],
            }
            for plane, mesh in meshes.items():
                into, out = mesh.inject(tile), mesh.eject(tile)
                ports |= {
                    f"o_{plane}_out__payload": into.payload.as_value(),
                    f"o_{plane}_out__valid": into.valid,
                    f"i_{plane}_out__ready": into.ready,
                    f"i_{plane}_in__payload": out.payload.as_value(),
                    f"i_{plane}_in__valid": out.valid,
                    f"o_{plane}_in__ready": out.ready,
                }
            for plane, mesh in meshes.items():
                strobe, destination = mesh.fault(tile)
                ports |= {f"i_{plane}_dropped": strobe, f"i_{plane}_dropped_tile": destination}
            if config.counters:
                ports |= {"i_counting": meshes["data"].count, "i_counter_ask": ask}
                ports |= {"i_counter_in": chain[1 + config.counter_chain.index(tile)]}
                ports |= {"o_counter_out": chain[config.counter_chain.index(tile)]}
            ports["i_links"] = meshes["data"].counts(tile).as_value()
            if kind is TileKind.DRAM:
                ports |= _members("axi", dram_bus(config), getattr(self, f"axi_{drams[tile]}"))
                ports |= {"i_quiesce": reset.quiesce, "o_quiesced": reset.quiesced[drams[tile]]}
            if kind is TileKind.CORE and self.observed:
                ports |= _members("seen", ProbePort(config), getattr(self, f"seen_{cores[tile]}"))
            if kind is TileKind.HOST:
                ports |= _members("bus", AXI4Lite(address_bits=8).flip(), self.bus)
                ports |= {"o_irq": self.irq, "i_any_moved": moved, "o_count": meshes["data"].count}
                ports |= {f"o_{name}_out": signal for name, signal in clock.items()}
                ports |= {"o_reset_wanted": reset.wanted, "i_settled": reset.settled, "o_released": reset.released}
                if config.counters:
                    ports |= {"o_counter_ask_out": ask, "i_counter_data": chain[0]}
            m.submodules[f"tile_{tile}"] = Instance(tile_module(kind), **ports)
        return m


def _members(prefix: str, signature: wiring.Signature | wiring.FlippedSignature, interface: Any) -> dict[str, Any]:
    """Instance ports of an interface, named as the gateware library names flattened ports."""
    members: Any = signature.flatten(interface)  # `Any`: the stubs confuse a member with its flow
    return {
        f"{'o' if member.flow is Out else 'i'}_{prefix}__{'__'.join(str(part) for part in path)}": value
        for path, member, value in members
    }


def tiles_used(
    config: ChipConfig, gated: bool = False, observed: bool = False, loops: bool = False
) -> dict[TileKind, Tile]:
    """One tile of each kind that the floorplan uses."""
    return {kind: Tile(config, kind, gated, observed, loops) for kind in dict.fromkeys(config.tiles.values())}
