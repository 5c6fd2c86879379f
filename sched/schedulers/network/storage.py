"""Where the tensors of a network lie: in the shared scratchpad while they are needed, or else in DRAM.

Each tensor is spread over all banks (or channels), so that a tile of it is fetched from all of them at once. A bank's
words are given to tensors for the stages from the one that makes them to the last one that reads them. Small and
short-lived tensors come first; what finds no room is *spilled*: it is made in DRAM and read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from meshloom.hw.spec.config import ChipConfig, TileKind

from ...mapping.memory.placement import Dram, Stored
from ...mapping.tiling.tiles import even
from ...workload.stages import Stages

#: Part of each bank that is usually kept for weights on their way to several cores, 1 / this; and where tensors that
#: would else not fit matter more.
STAGING_SHARE, SMALL_SHARE = 4, 16
#: Bands of rows of a tensor in each tile.
BANDS = 4


@dataclass(frozen=True)
class LiveRange:
    """A root tensor: planes of its members, rows and words of a row; stages that make it first and need it last."""

    name: str
    members: tuple[int, ...]
    rows: int
    width: int
    first: int
    last: int

    @property
    def words(self) -> int:
        return sum(self.members) * self.rows * self.width


class Between(StrEnum):
    """What of the tensors between layers may lie in the scratchpad: nothing, whole tensors, or also some of a
    tensor's planes while the others lie in DRAM."""

    DRAM = "dram"
    WHOLE = "whole"
    PLANES = "planes"


class _Cursor:
    """Hands out words of tiles from given addresses upwards."""

    def __init__(self, at: dict[int, int]) -> None:
        self.at = at

    def take(self, tile: int, words: int) -> int:
        address = self.at[tile]
        self.at[tile] += words
        return address


def staging_words(chip: ChipConfig, share: int = STAGING_SHARE) -> int:
    """Words of each bank that are kept for weights."""
    return chip.spm_words // share


def lives(cut: Stages) -> list[LiveRange]:
    """All root tensors that stages make, in order of their making."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, stage in enumerate(cut.stages):
        first.setdefault(cut.roots[stage.y][0], index)
        for name in (*stage.reads, stage.y):
            last[cut.roots[name][0]] = index
    for name in cut.graph.outputs:
        last[cut.roots[name][0]] = len(cut.stages)
    ranges: list[LiveRange] = []
    for name, begin in first.items():
        value = cut.values[name]
        ranges.append(LiveRange(name, tuple(cut.members[name]), value.height, value.width, begin, last[name]))
    return ranges


def homes(members: Sequence[int], rows: int, tiles: Sequence[int]) -> tuple[list[int], Callable[[int, int], int]]:
    """Row cuts of a tensor and the home of each (plane, segment): members' planes in equal runs over all tiles."""
    count = len(tiles)
    if sum(members) == 1:
        cuts = [low for low, _ in even(0, rows, min(count, rows))]
        return cuts, lambda _, segment: tiles[segment % count]
    banks: list[int] = []
    single = 0
    for planes in members:
        if planes < count:
            banks += [tiles[(single + index) % count] for index in range(planes)]
            single += planes
        else:
            for tile, (low, high) in zip(tiles, even(0, planes, count), strict=True):
                banks += [tile] * (high - low)
    return [0], lambda plane, _: banks[plane]


def banded(_members: Sequence[int], rows: int, tiles: Sequence[int]) -> tuple[list[int], Callable[[int, int], int]]:
    """Row cuts of a tensor and the home of each (plane, segment): bands of rows in turn over all tiles, so that those
    who begin with different rows, or with the same, find them in different tiles."""
    bands = even(0, rows, min(rows, BANDS * len(tiles)))
    return [low for low, _ in bands], lambda _, segment: tiles[segment % len(tiles)]


def _stored(life: LiveRange, tiles: Sequence[int], at: dict[int, int]) -> Stored:
    cuts, home = homes(life.members, life.rows, tiles)
    return Stored(_Cursor(at), sum(life.members), life.rows, life.width, cuts, home)


def place(
    cut: Stages,
    chip: ChipConfig,
    dram: Dram,
    between: Between = Between.WHOLE,
    staging: int = STAGING_SHARE,
    resident: Collection[str] = (),
) -> tuple[dict[str, Stored], set[str]]:
    """Every root tensor that stages make in its place, and the names of those that lie in DRAM, if only in part.
    `staging`: which part of each bank is left to weights; `resident`: tensors that have a place.

    Outputs of the network lie in DRAM, and so does what is spilled. Raises DoesNotFit when DRAM is too small.
    """
    places: dict[str, Stored] = {}
    spilled: set[str] = set()
    # of each bank: from, to, first, last stage
    occupied: dict[int, list[tuple[int, int, int, int]]] = {bank: [] for bank in chip.spms}
    outputs = {cut.roots[name][0] for name in cut.graph.outputs}
    begin = staging_words(chip, staging)
    ranges = [life for life in lives(cut) if life.name not in resident]
    for life in sorted(ranges, key=lambda life: (life.words * (life.last - life.first + 1), life.first)):
        spilled.add(life.name)
        if life.name in outputs or not chip.spms or between is Between.DRAM:
            continue
        need = dict.fromkeys(chip.spms, 0)
        _stored(life, chip.spms, need)
        # One stage more than needed, so that what takes its place need not wait for its readers; else to the stage.
        at = _fit(occupied, need, life, begin, chip, 1) or _fit(occupied, need, life, begin, chip, 0)
        if at is not None:
            _occupy(occupied, at, need, life)
            places[life.name] = _stored(life, chip.spms, dict(at))
            spilled.remove(life.name)
    there: dict[
        str, dict[int, tuple[int, int]]
    ] = {}  # where planes of spilled tensors lie in the scratchpad all the same
    if between is Between.PLANES and chip.spms:
        by_plane = sorted(ranges, key=lambda life: (life.rows * life.width * (life.last - life.first + 1), life.first))
        for life in by_plane:
            if life.name in spilled and life.name not in outputs:
                there[life.name] = _planes(occupied, life, begin, chip)
    for life in ranges:
        if life.name in spilled:
            places[life.name] = _spilled(life, chip, dram, there.get(life.name, {}))
    return places, spilled


def _occupy(
    occupied: dict[int, list[tuple[int, int, int, int]]], at: dict[int, int], need: dict[int, int], life: LiveRange
) -> None:
    for bank, words in need.items():
        if words:
            occupied[bank].append((at[bank], at[bank] + words, life.first, life.last))


def _planes(
    occupied: dict[int, list[tuple[int, int, int, int]]], life: LiveRange, begin: int, chip: ChipConfig
) -> dict[int, tuple[int, int]]:
    """How many planes of a spilled tensor each bank still has room for, and where: in all banks as many."""
    for count in range((sum(life.members) - 1) // len(chip.spms), 0, -1):
        need = dict.fromkeys(chip.spms, count * life.rows * life.width)
        if (at := _fit(occupied, need, life, begin, chip, 0)) is not None:
            _occupy(occupied, at, need, life)
            return {bank: (count, address) for bank, address in at.items()}
    return {}


def _spilled(life: LiveRange, chip: ChipConfig, dram: Dram, there: dict[int, tuple[int, int]]) -> Stored:
    """A tensor in DRAM, but for its first planes if banks have room for them: `there`, how many and where."""
    if not there:
        cuts, home = homes(life.members, life.rows, chip.drams)
        return Stored(dram, sum(life.members), life.rows, life.width, cuts, home)
    banks = [bank for bank, (count, _) in there.items() for _ in range(count)]
    _, home = homes([sum(life.members) - len(banks)], life.rows, chip.drams)
    place = _Shared(dram, {bank: address for bank, (_, address) in there.items()})
    return Stored(
        place, sum(life.members), life.rows, life.width, [0],
        lambda plane, cut: banks[plane] if plane < len(banks) else home(plane - len(banks), cut),
    )  # fmt: skip


class _Shared(_Cursor):
    """The same for a tensor of which part lies in DRAM."""

    def __init__(self, dram: Dram, at: dict[int, int]) -> None:
        super().__init__(at)
        self.dram = dram

    def take(self, tile: int, words: int) -> int:
        return super().take(tile, words) if tile in self.at else self.dram.take(tile, words)


def _fit(
    occupied: dict[int, list[tuple[int, int, int, int]]],
    need: dict[int, int],
    life: LiveRange,
    begin: int,
    chip: ChipConfig,
    margin: int,
) -> dict[int, int] | None:
    """Addresses in all banks from word `begin` up, the best fit in each; None if some bank has no room."""
    places: dict[int, int] = {}
    for bank, words in need.items():
        busy = sorted(
            (low, high)
            for low, high, first, last in occupied[bank]
            if first <= life.last + margin and life.first <= last + margin
        )
        at, best = begin, None
        for low, high in [*busy, (chip.spm_words, chip.spm_words)]:
            if low - at >= words and (best is None or low - at < best[0]):
                best = low - at, at
            at = max(at, high)
        if best is None and words:
            return None
        places[bank] = best[1] if best else 0
    return places


def kind_of(stored: Stored, chip: ChipConfig) -> TileKind:
    """Whether a tensor lies in SPM or, if only in part, in DRAM."""
    kinds = {chip.tiles[home] for home in stored.homes}
    return TileKind.SPM if kinds == {TileKind.SPM} else TileKind.DRAM
