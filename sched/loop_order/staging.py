"""Operands staged in the shared scratchpad: fetched from DRAM once, then pulled by every core that needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshloom.hw.config import ChipConfig
from meshloom.hw.isa import Region, address

from .problem import DoesNotFit
from .slots import assign

if TYPE_CHECKING:
    from .emit import Node

#: A tile is staged at most this many steps before its first pull.
AHEAD_STEPS = 6


@dataclass(eq=False)
class Stage:
    """One stay of a tile in SPM; `position`: before which step it is fetched; `previous`: what lay there before."""

    operand: str
    key: tuple
    tile: int
    address: int
    words: int
    position: int
    first: int
    last: int
    previous: Stage | None
    nodes: list[Node] = field(default_factory=list)
    readers: list[Node] = field(default_factory=list)

    def fill(self, nodes: list[Node]) -> None:
        """Its moves from DRAM."""
        self.nodes = nodes


class Staging:
    """The stays of staged tiles in the SPM banks. `x`, `w`: which operands are staged."""

    def __init__(self, chip: ChipConfig, x: bool, w: bool) -> None:
        self.x, self.w = x, w
        self._chip = chip
        self.stages: list[Stage] = []
        self._by_pull: dict[tuple[int, str, tuple, int], Stage] = {}
        self._next: dict[tuple[str, tuple, int], int] = {}

    def place(self, pulls: list[tuple[int, int, str, tuple]], words: Callable[[str, tuple], int]) -> None:
        """Assigns slots for `pulls` = (position, core, operand, key). Raises DoesNotFit when SPM is too small."""
        if not pulls:
            return
        banks = self._chip.spms
        if not banks:
            raise DoesNotFit(f"chip {self._chip.name} has no spm tile to stage operands in")
        operands = [name for name, staged in (("w", self.w), ("x", self.x)) if staged]
        for index, operand in enumerate(operands):
            mine = sorted(pull for pull in pulls if pull[2] == operand)
            size = max(words(operand, key) for _, _, _, key in mine)
            # Both operands staged: each has banks of its own if there are enough, otherwise half of every bank.
            own = banks[index :: len(operands)] if len(banks) >= len(operands) else banks
            share = self._chip.spm_words // (1 if len(banks) >= len(operands) else len(operands))
            base = 0 if len(banks) >= len(operands) else index * share
            bank_of: dict[tuple, int] = {}
            for _, _, _, key in mine:
                bank_of.setdefault(key, own[len(bank_of) % len(own)])
            for bank in own:
                here = [pull for pull in mine if bank_of[pull[3]] == bank]
                if here:
                    self._place_bank(operand, bank, base, share, size, here, words)
        self.stages.sort(key=lambda stage: (stage.position, stage.first))

    def _place_bank(
        self,
        operand: str,
        bank: int,
        base: int,
        share: int,
        size: int,
        pulls: list[tuple[int, int, str, tuple]],
        words: Callable[[str, tuple], int],
    ) -> None:
        if size > share:
            raise DoesNotFit(f"SPM tile {bank} is too small: a staged tile needs {size} words, it has {share}")
        try:
            stays = assign([(position, key) for position, _, _, key in pulls], share // size)
        except ValueError as error:
            raise DoesNotFit(f"SPM tile {bank}: {error}") from error
        in_slot: dict[int, Stage] = {}
        latest = 0
        found = []
        for stay in stays:
            latest = max(latest, stay.free_after + 1, stay.first - AHEAD_STEPS)
            stage = Stage(
                operand,
                stay.key,
                bank,
                address(Region.MAIN, base + stay.slot * size),
                words(operand, stay.key),
                latest,
                stay.first,
                stay.last,
                in_slot.get(stay.slot),
            )
            in_slot[stay.slot] = stage
            found.append(stage)
        self.stages += found
        by_key: dict[tuple, list[Stage]] = {}
        for stage in found:
            by_key.setdefault(stage.key, []).append(stage)
        for position, core, _, key in pulls:
            stage = next(s for s in by_key[key] if s.first <= position <= s.last)
            count = self._next.get((operand, key, core), 0)
            self._next[operand, key, core] = count + 1
            self._by_pull[core, operand, key, count] = stage
        self._served: dict[tuple[int, str, tuple], int] = {}

    def of(self, operand: str, key: tuple, core: int) -> Stage:
        """The stage that serves a core's next pull of `key`."""
        count = self._served.get((core, operand, key), 0)
        self._served[core, operand, key] = count + 1
        return self._by_pull[core, operand, key, count]

    def by_position(self) -> dict[int, list[Stage]]:
        """Stages by the position before which they are fetched."""
        found: dict[int, list[Stage]] = {}
        for stage in self.stages:
            found.setdefault(stage.position, []).append(stage)
        return found
