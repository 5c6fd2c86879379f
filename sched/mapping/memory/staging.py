"""Operands staged in the shared scratchpad: fetched from DRAM once, then pulled by every core that needs them.

A chunk is split among the banks, so that cores that want the same one at the same time have all banks to pull from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, address

from ..nodes import Node, Run, issuer_for
from ..tiling.arena import assign
from ..tiling.problem import DoesNotFit
from .tensors import Box, Chunk, Tensors

#: A chunk is staged at most this many steps before its first pull.
AHEAD_STEPS = 6


@dataclass(eq=False)
class Stage:
    """One stay of a chunk in a bank; `position`: before which step it is fetched; `previous`: what lay there before."""

    chunk: Chunk
    tile: int
    address: int
    position: int
    first: int
    last: int
    previous: Stage | None
    nodes: list[Node]
    readers: list[Node] = field(default_factory=list[Node])

    def pull(self, core: int, slot: int, chunk: Chunk, after: list[Node]) -> Node:
        """The pull of a core that keeps the tile in a slot at address `slot`, where `chunk` says."""
        words = chunk.words
        inner, stride = chunk.plane_words, chunk.plane
        if inner in (words, stride):
            inner = stride = words
        target = Run(core, slot + chunk.offset, inner, stride)
        node = Node(
            core,
            [*after, *self.nodes],
            f"{chunk.label} from spm",
            Run(self.tile, self.address, words, words),
            target,
            words,
        )
        self.readers.append(node)
        return node


@dataclass(frozen=True)
class Pull:
    """A core asks for a chunk before step `position`."""

    position: int
    core: int
    chunk: Chunk


class Staging:
    """The stays of staged chunks in the SPM banks. Raises DoesNotFit when the banks are too small for them.

    `pulls`: everything that cores will ask for, each core's in the order of asking. `first`: word of each bank from
    which on its `spm_words` may be used.
    """

    def __init__(self, chip: ChipConfig, tensors: Tensors, pulls: list[Pull], first: int = 0) -> None:
        self.stages: list[Stage] = []
        self._banks = chip.spms
        self._issuers = {bank: issuer_for(chip, bank) for bank in chip.spms}
        # The same box may lie in several banks, as different parts of different chunks.
        self._serving: dict[tuple[int, int, Box], list[Stage]] = {}
        names = sorted({pull.chunk.tensor for pull in pulls})
        if names and not chip.spms:
            raise DoesNotFit(f"chip {chip.name} has no spm tile to stage operands in")
        share = chip.spm_words // max(len(names), 1)
        for index, name in enumerate(names):
            for number, bank in enumerate(chip.spms):
                mine = [
                    Pull(pull.position, pull.core, part)
                    for pull in pulls
                    if pull.chunk.tensor == name
                    for part in pull.chunk.split(len(chip.spms))[number : number + 1]
                ]
                if mine:
                    self._place(tensors, bank, first + index * share, share, mine)
        self.stages.sort(key=lambda stage: (stage.position, stage.first))

    def _place(self, tensors: Tensors, bank: int, base: int, room: int, pulls: list[Pull]) -> None:
        pulls.sort(key=lambda pull: (pull.position, pull.core))
        size = max(pull.chunk.words for pull in pulls)
        if size > room:
            raise DoesNotFit(f"SPM tile {bank} is too small: a staged tile needs {size} words, it has {room}")
        try:
            residencies = assign([(pull.position, pull.chunk.box) for pull in pulls], room // size)
        except ValueError as error:
            raise DoesNotFit(f"SPM tile {bank}: {error}") from error
        chunks = {pull.chunk.box: pull.chunk for pull in pulls}
        in_slot: dict[int, Stage] = {}
        by_box: dict[Box, list[Stage]] = {}
        latest = 0
        for residency in residencies:
            latest = max(latest, residency.free_after + 1, residency.first - AHEAD_STEPS)
            chunk, at = chunks[residency.key], address(Region.MAIN, base + residency.slot * size)
            issuer = self._issuers[bank]
            nodes = [t.load(issuer, f"{chunk.label} to spm") for t in tensors.transfers(chunk, bank, at)]
            stage = Stage(chunk, bank, at, latest, residency.first, residency.last, in_slot.get(residency.slot), nodes)
            in_slot[residency.slot] = stage
            by_box.setdefault(residency.key, []).append(stage)
            self.stages.append(stage)
        for pull in pulls:
            stage = next(s for s in by_box[pull.chunk.box] if s.first <= pull.position <= s.last)
            self._serving.setdefault((bank, pull.core, pull.chunk.box), []).append(stage)

    def pull(self, core: int, slot: int, chunk: Chunk, after: list[Node]) -> list[Node]:
        """A core's next pulls of a chunk, part by part, into the tile slot at address `slot`."""
        return [
            self._serving[bank, core, part.box].pop(0).pull(core, slot, part, after)
            for bank, part in zip(self._banks, chunk.split(len(self._banks)), strict=False)
        ]

    def by_position(self) -> dict[int, list[Stage]]:
        """Stages by the position before which they are fetched; their moves then wait for what lay there before."""
        stages: dict[int, list[Stage]] = {}
        for stage in self.stages:
            for node in stage.nodes:
                node.after += stage.previous.readers if stage.previous else []
            stages.setdefault(stage.position, []).append(stage)
        return stages
