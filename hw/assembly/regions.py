"""The memories of each kind of tile, by region: how many words there are, and who may get at them."""

from __future__ import annotations

from ..control.frontend import RING_REGION
from ..spec.config import ChipConfig, TileKind
from ..spec.contracts import stats_words
from ..spec.isa import Region, units_of

__all__ = ["RING_REGION", "memory_regions", "readable_regions", "writable_regions"]


def memory_regions(config: ChipConfig, kind: TileKind) -> dict[Region, int]:
    """Words of each data memory of a tile kind."""
    core = config.core
    results = {Region.VEC: core.vec_words} if core.has_vector else {}
    return {
        TileKind.CORE: {
            Region.MAIN: core.a_words,
            Region.B: core.b_words,
            Region.ACC: 4 * core.acc_words,
            Region.OUT: core.out_words,
            **results,
        },
        TileKind.SPM: {Region.MAIN: config.spm_words},
        TileKind.DRAM: {Region.MAIN: config.dram.words},
        TileKind.HOST: {},
        TileKind.DTT: {},
    }[kind]


def readable_regions(config: ChipConfig, kind: TileKind) -> dict[Region, int]:
    """Words of each region that the tile's mover can read."""
    if kind is TileKind.HOST and config.boot_host:
        return {}
    trace = {Region.STATS: stats_words(config)}
    if config.trace_records:
        trace[Region.TRACE] = config.trace_records * config.trace_words
    regions = memory_regions(config, kind)
    if kind is TileKind.CORE and not config.core.operand_sources:  # the array needs the port of operand memories
        regions = {region: regions[region] for region in (Region.ACC, Region.OUT, Region.VEC) if region in regions}
    return regions | trace


def writable_regions(config: ChipConfig, kind: TileKind) -> dict[Region, int]:
    """Words of each region that packets can be delivered to."""
    ring = config.ring(kind) * config.instruction_words
    regions = memory_regions(config, kind)
    regions.pop(Region.VEC, None)  # only the vector unit writes it
    return regions | {RING_REGION[unit]: ring for unit in units_of(config, kind)}
