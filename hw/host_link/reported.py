"""Which faults become completions: of each tile the first, until its program is cleared away.

A program can raise faults without end (each pull that a DRAM tile refuses is one), and the host's queue ends somewhere.
What waits there are faults and ends of programs. Of faults there is at most one for each tile, and one for all tiles
that are not on the floorplan (`Reported`), whatever anybody does. Of ends there is at most one for each launch of
streams whose completion has not been taken; so a host that has no more of these in a slot than a program and its
`SUCCESSORS`, and one in the slot for clearing up, has at most (1 + `SUCCESSORS`) * `programs` + 1. Both together are
`most_completions`, for which there is room.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig, ConfigError
from ..spec.contracts import COMPLETIONS, SUCCESSORS

#: A tile, if `valid`.
TileStrobe = data.StructLayout({"valid": 1, "tile": 8})


def most_completions(config: ChipConfig) -> int:
    """Completions that can wait at once, for a host with a program and its successors in each slot. Raises ConfigError
    if there is no room for them."""
    most = len(config.tiles) + 1 + (1 + SUCCESSORS) * config.programs + 1
    if most > COMPLETIONS:
        raise ConfigError(
            f"chip {config.name}: {len(config.tiles)} tiles and {config.programs} programs can have {most} completions "
            f"at once, and the host keeps {COMPLETIONS}: draw fewer tiles, or set programs to fewer"
        )
    return most


class Reported(wiring.Component):
    """Two bits for each tile: its fault is `queued`, and it has been `told` of since a FETCH with `clear` went there.

    `fault`: a report names this tile. It is `fresh`, in the same cycle, if neither bit is set, and then both are from
    the next cycle on. `taken`: the host takes the completion of such a fault, which is no longer queued; `cleared`: the
    host's mover sends the FETCH. Tiles that the floorplan does not have share two bits. `clear_all`: a run begins.

    So the completions that are queued at any time hold at most one fault of each tile, and one of all others, whatever
    tiles report and whoever takes them when. None is kept back but behind another of its tile that is still queued, or
    that the host has not yet answered by clearing the tile; which ends all streams there, so what comes from then on is
    what was already under way, or of the next program.
    """

    clear_all: Signal
    fault: data.View  # TileStrobe, like the next two
    taken: data.View
    cleared: data.View
    fresh: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.tiles = tuple(config.tiles)
        super().__init__(
            {name: In(TileStrobe) for name in ("fault", "taken", "cleared")} | {"clear_all": In(1), "fresh": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        queued, told = Signal(len(self.tiles) + 1), Signal(len(self.tiles) + 1)
        numbers = {name: self._number(m, getattr(self, name).tile, name) for name in ("fault", "taken", "cleared")}
        is_queued, is_told = queued.bit_select(numbers["fault"], 1), told.bit_select(numbers["fault"], 1)
        m.d.comb += self.fresh.eq(self.fault.valid & ~is_queued & ~is_told)
        with m.If(self.taken.valid):
            m.d.sync += queued.bit_select(numbers["taken"], 1).eq(0)
        with m.If(self.cleared.valid):
            m.d.sync += told.bit_select(numbers["cleared"], 1).eq(0)
        with m.If(self.fresh):
            m.d.sync += [queued.bit_select(numbers["fault"], 1).eq(1), told.bit_select(numbers["fault"], 1).eq(1)]
        with m.If(self.clear_all):
            m.d.sync += [queued.eq(0), told.eq(0)]
        return m

    def _number(self, m: Module, tile: Signal, name: str) -> Signal:
        """The position of a tile's bits."""
        number = Signal(range(len(self.tiles) + 1), name=f"{name}_number")
        with m.Switch(tile):
            for position, known in enumerate(self.tiles):
                with m.Case(known):
                    m.d.comb += number.eq(position)
            with m.Default():
                m.d.comb += number.eq(len(self.tiles))
        return number
