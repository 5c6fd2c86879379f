"""Operations on their way into a schedule: light, and with what they wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Unit, units_of

from ..ir.schedule import Box, Gemm, Move, Operation, Span, Vec


class Run(NamedTuple):
    """A strided set of words in one tile (address includes the region), before it becomes a Span."""

    tile: int
    address: int
    run: int
    stride: int

    def moved(self, words: int) -> Run:
        """The same, so many words further up."""
        return Run(self.tile, self.address + words, self.run, self.stride)

    def span(self) -> Span:
        return Span(tile=self.tile, address=self.address, run=self.run, stride=self.stride)


_NOWHERE = Run(0, 0, 1, 0)


def issuer_for(chip: ChipConfig, tile: int) -> int:
    """Whose stream has what that of a tile would have: the tile's own or, where memories have none
    (`ChipConfig.memory_streams`), that of a core, another one for each."""
    if units_of(chip, chip.tiles[tile]):
        return tile
    return chip.cores[list(chip.tiles).index(tile) % len(chip.cores)]


@dataclass(eq=False, slots=True)
class Node:
    """A move, or (`fields`) a GEMM of core `issuer`, or (`vec` too) a VEC.

    `after`: the nodes it waits for; `cycles`: of the GEMM or VEC; `result`: what it computes; `site`: see
    `Schedule.sites`.
    """

    issuer: int
    after: list[Node]
    label: str
    source: Run = _NOWHERE
    target: Run = _NOWHERE
    words: int = 0
    fields: dict[str, int] | None = None
    cycles: int = 0
    vec: bool = False
    result: Box | None = None
    site: str = ""

    @property
    def stream(self) -> tuple[int, Unit]:
        """The stream that issues it."""
        return self.issuer, Unit.MOVER if self.fields is None else Unit.VECTOR if self.vec else Unit.MATRIX

    def operation(self) -> Operation:
        """The operation of the schedule."""
        if self.fields is not None:
            return (Vec if self.vec else Gemm)(
                core=self.issuer, fields=self.fields, label=self.label, result=self.result
            )
        return Move(
            issuer=self.issuer, src=self.source.span(), dst=self.target.span(), words=self.words, label=self.label
        )


def sites_of(nodes: Iterable[Node]) -> tuple[str, ...] | None:
    """`Schedule.sites` of nodes in the order of the schedule; None if no line is known of any."""
    sites = tuple(node.site for node in nodes)
    return sites if any(sites) else None
