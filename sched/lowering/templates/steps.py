"""The operations of one core in order: tiles that come into rings of slots ahead of the steps that use them, the steps,
and what leaves behind them.

Nothing here says what waits for what: that follows from addresses and from the order of the list.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, address

from ...ir.bodies import WindowShape
from ...ir.schedule import Move, Operation
from ...mapping.memory.placement import Transfer
from ...mapping.nodes import Run
from ...mapping.tiling.arena import fewest
from ...mapping.tiling.problem import FLAT_WIDTH, MAX_IN_WIDTH
from .plans import Tile, rows_read
from .schemes import LayerShape, Scheme, SubTile, split

#: A tile is asked for so many cycles before its first use, plus so many times its words, if its slot is free by then.
LEAD = (400, 4)
#: Slots of tiles that are used once: the fewer of them are on their way, the fewer wait in a channel behind each other.
AHEAD = 3

#: Makes the operations of a visit, and the moves of what it has made, when its tiles lie at these words.
OperationsAt = Callable[[dict[str, int]], tuple[list[Operation], list[Operation]]]


@dataclass(frozen=True)
class Ring:
    """Slots of a core's memory for the tiles of one operand, in words of P bytes from word `base` on.

    `load(key, address)`: the transfers that bring tile `key` to a local address.
    """

    region: Region
    base: int
    slot: int
    slots: int
    load: Callable[[Hashable, int], list[Transfer]]

    def at(self, slot: int) -> int:
        """Word of the region where a slot begins."""
        return self.base + slot * self.slot


@dataclass(frozen=True)
class CoreVisit:
    """One visit of a core at `position` of the whole layer; positions of a core rise.

    `uses`: the tile of each ring that it reads. `make(at)`: its operations, and the moves of what it has made, when its
    tiles lie at these words.
    """

    position: int
    uses: dict[str, Hashable]
    cycles: int
    make: OperationsAt


@dataclass
class Listing:
    """Operations of all cores by position: those that bring and take away, then those that compute."""

    moves: dict[int, list[Operation]] = field(default_factory=dict[int, list[Operation]])
    work: dict[int, list[Operation]] = field(default_factory=dict[int, list[Operation]])

    def operations(self) -> list[Operation]:
        """All of them in order."""
        result: list[Operation] = []
        for position in sorted({*self.moves, *self.work}):
            result += self.moves.get(position, [])
            result += self.work.get(position, [])
        return result


def pull(core: int, transfer: Transfer, label: str) -> Move:
    """A move that a core asks a DRAM tile for."""
    return _move(core, transfer.dram, transfer.local, transfer.words, label)


def push(core: int, transfer: Transfer, label: str) -> Move:
    """A move of a core's own words to a DRAM tile."""
    return _move(core, transfer.local, transfer.dram, transfer.words, label)


def _move(core: int, source: Run, target: Run, words: int, label: str) -> Move:
    return Move(issuer=core, src=source.span(), dst=target.span(), words=words, label=label)


def window_of(shape: LayerShape, tile: Tile) -> tuple[int, WindowShape]:
    """What a GEMM or a VEC reads of its input tile, words of a plane of it first, and how much it makes of it; flat
    tiles and whole maps are rows of no height."""
    problem, (rows, top) = shape.problem, rows_read(shape, tile)
    pixels = (tile[2] - tile[1]) * problem.out_w
    in_w, out_w, plane = problem.in_w, problem.out_w, (rows[1] - rows[0]) * problem.in_w
    if problem.flat or shape.whole:
        in_w = out_w = pixels if pixels <= MAX_IN_WIDTH else FLAT_WIDTH
    return plane, {
        "in_w": in_w,
        "kernel_h": problem.kernel_h,
        "kernel_w": problem.kernel_w,
        "stride_h": problem.stride_h,
        "stride_w": problem.stride_w,
        "dilation": problem.dilation,
        "pad_top": top,
        "pad_left": max(0, problem.pad_left),  # a slice begins inside of the map
        "out_w": out_w,
        "pixels": pixels,
    }


class CoreWork(Protocol):
    """What one core does of a stage."""

    def steps(self) -> list[CoreVisit]:
        """Its visits, in order."""
        ...

    def rings(self) -> dict[str, Ring]:
        """The operands of these, by name."""
        ...


def share_out(
    shape: LayerShape,
    chip: ChipConfig,
    scheme: Scheme,
    cores: Sequence[int],
    work: Callable[[SubTile, int, int], CoreWork],
) -> list[Operation]:
    """All operations of a stage whose cores need nothing of each other, in order. `work`: of a part, on a core, with
    its number. Raises DoesNotFit."""
    listing = Listing()
    for index, part in enumerate(split(shape, scheme)):
        core = work(part, cores[index], index)
        lay_out(cores[index], core.steps(), core.rings(), listing, chip.drams, index)
    return listing.operations()


def lay_out(
    core: int, steps: list[CoreVisit], rings: dict[str, Ring], listing: Listing, drams: Sequence[int], turn: int
) -> None:
    """Adds the operations of one core to the listing. What comes for the same step is asked of one DRAM tile after the
    other, beginning with number `turn`, so that cores that begin together go round without meeting.

    Raises ValueError when a ring has too few slots for a step.
    """
    order = {dram: (number - turn) % len(drams) for number, dram in enumerate(drams)}
    starts = [0]
    for step in steps:
        starts.append(starts[-1] + step.cycles)
    where: dict[tuple[str, Hashable, int], int] = {}  # ring, tile, step -> slot
    loads: dict[int, tuple[int, list[Move]]] = {}  # step that needs them first -> position, moves
    for name, ring in rings.items():
        uses = [(index, step.uses[name]) for index, step in enumerate(steps) if name in step.uses]
        for residency in fewest(uses, ring.slots, AHEAD):
            for index in range(residency.first, residency.last + 1):
                where[name, residency.key, index] = residency.slot
            moves = [
                pull(core, transfer, f"{name} {_label(residency.key)}")
                for transfer in ring.load(residency.key, address(ring.region, ring.at(residency.slot)))
            ]
            words = sum(move.words for move in moves)
            need = starts[residency.first] - LEAD[0] - LEAD[1] * words
            early = max(0, min(bisect_right(starts, need) - 1, residency.first))
            position, others = loads.get(residency.first, (0, []))
            loads[residency.first] = max(position, early, residency.free_after + 1), others + moves
    before: list[list[Operation]] = [[] for _ in steps]
    latest = 0
    for _, (early, moves) in sorted(loads.items()):
        latest = max(latest, early)  # in the order of first use: what is needed first is never behind what is not
        before[latest] += sorted(moves, key=lambda move: order[move.src.tile])
    stores: list[Operation] = []
    at = 0
    for index, step in enumerate(steps):
        at = step.position
        listing.moves.setdefault(at, []).extend(before[index])  # short to ask for, so before what is taken away
        if stores:
            listing.moves.setdefault(steps[index - 1].position + 1, []).extend(stores)
        words = {
            name: ring.at(where[name, step.uses[name], index]) for name, ring in rings.items() if name in step.uses
        }
        work, stores = step.make(words)
        listing.work.setdefault(at, []).extend(work)
    listing.moves.setdefault(at + 1, []).extend(stores)


def _label(key: Hashable) -> str:
    return str(key)
