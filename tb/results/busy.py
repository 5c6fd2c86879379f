"""How busy the parts of a chip were in a run: cycles and shares, as results hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, computed_field, model_validator

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.registers import Counted
from meshloom.hw.spec.routes import ports_at
from meshloom.sched.model.busy import Snapshot

from .record import Record

#: What kinds of tiles have besides a mover and links.
_OWN = {
    TileKind.CORE: (Counted.MATRIX, Counted.VECTOR),
    TileKind.DRAM: (Counted.DRAM_READ, Counted.DRAM_WRITE),
}
_LINKS = {counted.name.lower(): counted for counted in Counted if counted >= Counted.NORTH}


class BusyRow(Record):
    """A part of a tile (`part`: name of a counter, `hw.spec.registers.Counted`): `busy` of the first `cycles` cycles of
    a run. `model_busy`: the same in the timeline model, null if the row is the model's own."""

    tile: Annotated[int, Field(ge=0)]
    kind: str
    part: str
    busy: Annotated[int, Field(ge=0)]
    cycles: Annotated[int, Field(ge=0)]
    model_busy: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.busy > self.cycles:
            raise ValueError(f"{self.part} of tile {self.tile:#04x}: busy in {self.busy} of {self.cycles} cycles")
        return self

    @computed_field
    @property
    def share(self) -> float:
        """Part of the cycles in which it was busy."""
        return self.busy / self.cycles if self.cycles else 0.0


def counters_of(
    chip: ChipConfig, snapshots: Mapping[Counted, Snapshot], model: Mapping[Counted, Snapshot] | None = None
) -> tuple[BusyRow, ...]:
    """The rows of a run that began with reset, from its counters: tiles in the order of the floorplan, and of each the
    parts that it has. A run of more than 2^32 cycles wraps, which is a ValidationError or a share too small.
    `model`: counters of the same run in the timeline model."""
    return tuple(
        BusyRow(
            tile=tile,
            kind=kind.value,
            part=counted.name.lower(),
            busy=snapshots[counted].counts[tile],
            cycles=snapshots[counted].cycle,
            model_busy=None if model is None else model[counted].counts[tile],
        )
        for tile, kind in chip.tiles.items()
        for counted in _parts(chip, tile, kind)
    )


def _parts(chip: ChipConfig, tile: int, kind: TileKind) -> tuple[Counted, ...]:
    ports = ports_at(tile % 16, tile // 16, chip.width, chip.height)
    return (Counted.MOVER, *_OWN.get(kind, ()), *(counted for name, counted in _LINKS.items() if name in ports))


def busiest_link(rows: tuple[BusyRow, ...]) -> BusyRow | None:
    """The link that was busy for the greatest share; None without rows."""
    return max((row for row in rows if row.part in _LINKS), key=lambda row: row.share, default=None)
