"""The memory of a tile: what is delivered to it, and what its mover reads."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal

from ..core.matrix import MatrixUnit
from ..memory.bank import Bank
from ..spec.config import TileKind
from ..spec.isa import Region, units_of
from ..wiring.clocking import gated_domain, in_domain
from ..wiring.ecc import Code
from .regions import RING_REGION
from .tile_parts import TileParts, TilePorts


def connect_memories(m: Module, tile: TilePorts, parts: TileParts) -> MatrixUnit | Bank | None:
    """Connects delivered words to rings and memories, and the mover's reads to memories and trace. Returns the tile's
    memory, if it has one."""
    fronts, delivery, mover, tracer, core = parts.fronts, parts.delivery, parts.mover, parts.tracer, parts.core
    word = delivery.write.payload
    is_ring = Signal()
    for unit, front in zip(units_of(tile.config, tile.kind), fronts, strict=True):
        hit = Signal(name=f"ring_hit_{unit.name.lower()}")
        m.d.comb += [
            hit.eq(word.region == RING_REGION[unit]),
            front.ring.valid.eq(delivery.write.valid & hit),
            front.ring.offset.eq(word.offset),
            front.ring.data.eq(word.data),
        ]
        is_ring = is_ring | hit

    wanted = mover.read.payload
    of_trace = Signal()
    m.d.comb += of_trace.eq((wanted.region == Region.TRACE) | (wanted.region == Region.STATS))
    m.d.comb += [
        tracer.read.valid.eq(mover.read.valid & of_trace),
        tracer.read.region.eq(wanted.region),
        tracer.read.offset.eq(wanted.offset),
    ]
    record = Code(tile.config.word_bits, tile.config.ecc).encode(tracer.read_data)
    memory: MatrixUnit | Bank | None = core.matrix if core is not None else None
    if tile.kind is TileKind.SPM:
        memory = Bank(tile.config)
        used = gated_domain(m, "bank", memory.write.valid | memory.read.valid, tile.gated)
        m.submodules.bank = in_domain(memory, used)
    if memory is None:
        m.d.comb += [delivery.write.ready.eq(1), mover.read.ready.eq(1), mover.read_data.eq(record)]
        return None
    was_trace = Signal()
    found = Signal(tile.config.coded_bits)
    elsewhere = Signal()
    m.d.comb += [
        memory.write.valid.eq(delivery.write.valid & ~is_ring),
        memory.write.payload.eq(word),
        delivery.write.ready.eq(is_ring | memory.write.ready),
        memory.read.valid.eq(mover.read.valid & ~elsewhere),
        memory.read.payload.eq(wanted),
        mover.read.ready.eq(elsewhere | memory.read.ready),
        mover.read_data.eq(Mux(was_trace, record, found)),
    ]
    with m.If(mover.read.valid & mover.read.ready):
        m.d[parts.moving] += was_trace.eq(of_trace)
    if core is None or core.vector is None:
        m.d.comb += [elsewhere.eq(of_trace), found.eq(memory.read_data)]
        return memory
    vector = core.vector
    of_vec = Signal()
    was_vec = Signal()
    m.d.comb += [
        of_vec.eq(wanted.region == Region.VEC),
        elsewhere.eq(of_trace | of_vec),
        vector.read.en.eq(mover.read.valid & of_vec),
        vector.read.offset.eq(wanted.offset),
        found.eq(Mux(was_vec, vector.read_data, memory.read_data)),
    ]
    with m.If(mover.read.valid & mover.read.ready):
        m.d[parts.moving] += was_vec.eq(of_vec)
    return memory
