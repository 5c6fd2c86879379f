"""What a tile sees of wrong bits, in a chip with `ecc`."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Value

from ..control.error_watch import ErrorWatch
from ..core.matrix import MEMORIES, MatrixUnit
from ..memory.bank import Bank
from ..spec.isa import Region, address, units_of
from ..wiring.ecc import ErrorPorts
from .regions import RING_REGION
from .tile_parts import TileParts, TilePorts


def watch_errors(m: Module, tile: TilePorts, parts: TileParts, memory: MatrixUnit | Bank | None) -> ErrorWatch:
    """Watches everything in the tile whose words have a code: what arrives, its `memory`, its rings, and what goes to
    DRAM."""
    watched: list[tuple[ErrorPorts, list[Value | int]]] = [(parts.delivery, [parts.delivery.packet_address])]
    for unit, front in zip(units_of(tile.config, tile.kind), parts.fronts, strict=True):
        watched.append((front, [address(RING_REGION[unit], 0)]))
    if isinstance(memory, MatrixUnit):
        watched.append((memory, [address(region, 0) for region in MEMORIES]))
    elif memory is not None:
        watched.append((memory, [address(Region.MAIN, 0)]))
    if parts.core is not None and parts.core.vector is not None:
        watched.append((parts.core.vector, [address(Region.VEC, 0)]))
    if parts.dram is not None:
        watched.append((parts.dram.port, [address(Region.MAIN, 0)]))
    addresses = [each for _, some in watched for each in some]
    watch = parts.sleepers.add("errors", ErrorWatch(len(addresses)))
    m.d.comb += [
        watch.corrected.eq(Cat(of.corrected for of, _ in watched)),
        watch.lost.eq(Cat(of.lost for of, _ in watched)),
        *(watch.address(source).eq(value) for source, value in enumerate(addresses)),
    ]
    return watch
