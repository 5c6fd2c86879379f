"""Where tensors lie in the DRAM tiles, and the MOVEs that carry a box of one to or from a tile in another memory.

Every tensor is seen as [plane][row][column] words: activations have a plane for each image and channel block, weights
a plane for each output block, whose rows are windows of `cols` words. Planes are cut into segments of whole rows;
each segment of each plane has a home among the DRAM tiles.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import NamedTuple, Protocol

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from ...ir.schedule import Piece
from ...workload.graph import PastePlace
from ...workload.regions import ConstantPlace
from ..nodes import Node, Run
from ..tiling.problem import DoesNotFit

MAX_WORDS = INSTRUCTIONS[Opcode.MOVE].most("words")
MAX_STRIDE = INSTRUCTIONS[Opcode.MOVE].most("src_stride")


class Transfer(NamedTuple):
    """Words between an array in DRAM and a tile elsewhere."""

    dram: Run
    local: Run
    words: int

    def load(self, issuer: int, label: str, after: Iterable[Node] = ()) -> Node:
        """The MOVE from DRAM. `issuer`: the tile whose mover stream has it; `after`: what it waits for."""
        return Node(issuer, list(after), label, self.dram, self.local, self.words)

    def store(self, issuer: int, label: str, after: Iterable[Node] = ()) -> Node:
        """The MOVE to DRAM."""
        return Node(issuer, list(after), label, self.local, self.dram, self.words)


class DramFull(DoesNotFit):
    """A DRAM tile has fewer words than tensors need. What comes behind those that were placed is not counted."""


class Dram:
    """Hands out words of the DRAM tiles, from address 0 upwards."""

    def __init__(self, chip: ChipConfig) -> None:
        self._words = chip.dram.words
        self._used = dict.fromkeys(chip.drams, 0)

    def take(self, tile: int, words: int) -> int:
        """Address of `words` fresh words of `tile`. Raises DramFull when the tile is full."""
        at = self._used[tile]
        if at + words > self._words:
            raise DramFull(
                f"DRAM tile {tile} is too small: tensors need at least {at + words} words, "
                f"it has {self._words} ({at + words - self._words} too few); raise dram.words, or take a smaller batch"
            )
        self._used[tile] = at + words
        return at

    def skip(self, words: int) -> None:
        """The first `words` words of each tile are not handed out. Raises DramFull where a tile is smaller."""
        for tile, used in self._used.items():
            if used < words:
                self.take(tile, words - used)

    def mark(self) -> tuple[int, ...]:
        """How many words of each tile have been handed out."""
        return tuple(self._used.values())

    def reset(self, mark: tuple[int, ...]) -> None:
        """Goes to where a `mark` was taken."""
        self._used = dict(zip(self._used, mark, strict=True))


class Allocator(Protocol):
    """Hands out words of tiles."""

    def take(self, tile: int, words: int) -> int:
        """Address of `words` fresh words of `tile`."""
        ...


class Anywhere:
    """Hands out no words at all: for whoever wants to know how large an array is."""

    def take(self, tile: int, words: int) -> int:
        return 0


class Stored:
    """An array of `planes` x `rows` x `width` words.

    `cuts` are the row boundaries of the segments, 0 and `rows` included; `home(plane, segment)` is a DRAM tile.
    Segments of one index and one home lie plane after plane, so that equal steps between planes are one MOVE.
    """

    def __init__(
        self, dram: Allocator, planes: int, rows: int, width: int, cuts: Sequence[int], home: Callable[[int, int], int]
    ) -> None:
        self.planes, self.rows, self.width = planes, rows, width
        self.cuts = tuple(sorted({0, rows, *cuts}))
        self._place: dict[tuple[int, int], tuple[int, int]] = {}
        for segment in range(len(self.cuts) - 1):
            words = (self.cuts[segment + 1] - self.cuts[segment]) * width
            homes: dict[int, list[int]] = {}
            for plane in range(planes):
                homes.setdefault(home(plane, segment), []).append(plane)
            for tile in sorted(homes):
                base = dram.take(tile, words * len(homes[tile]))
                for index, plane in enumerate(homes[tile]):
                    self._place[plane, segment] = (tile, base + index * words)

    def lying(self, places: Sequence[ConstantPlace]) -> Stored:
        """An array of the same size that lies in these places, which are whole rows."""
        ordered, view = sorted(places, key=lambda place: place.first), copy(self)
        assert sum(place.words for place in ordered) == self.planes * self.rows * self.width
        firsts = [place.first for place in ordered]
        view.cuts = tuple(sorted({0, self.rows, *(first // self.width % self.rows for first in firsts)}))
        view._place = {}
        for plane in range(self.planes):
            for segment, row in enumerate(view.cuts[:-1]):
                word = (plane * self.rows + row) * self.width
                place = ordered[bisect_right(firsts, word) - 1]
                view._place[plane, segment] = place.tile, place.address + word - place.first
        return view

    @property
    def homes(self) -> set[int]:
        """The tiles that it lies in."""
        return {tile for tile, _ in self._place.values()}

    @property
    def key(self) -> tuple[object, ...]:
        """What decides where each of its words lies."""
        return self.planes, self.rows, self.width, self.cuts, frozenset(self._place.items())

    def flattened(self) -> Stored:
        """The same words seen as rows of one word each."""
        view = copy(self)
        view.rows, view.width = self.rows * self.width, 1
        view.cuts = tuple(cut * self.width for cut in self.cuts)
        return view

    def part(self, first: int, planes: int) -> Stored:
        """The same words, `planes` planes from `first` on alone."""
        view = copy(self)
        view.planes = planes
        view._place = {
            (plane - first, segment): place
            for (plane, segment), place in self._place.items()
            if first <= plane < first + planes
        }
        return view

    def columns(self, first: int, width: int) -> Stored:
        """The same words, `width` columns from `first` on alone, of an array of one row."""
        view = copy(self)
        view.width = width
        view._place = {key: (tile, at + first) for key, (tile, at) in self._place.items()}
        return view

    def word(self, plane: int, row: int, column: int) -> tuple[int, int]:
        """Tile and address of a word."""
        segment = bisect_right(self.cuts, row) - 1
        home, at = self._place[plane, segment]
        return home, at + (row - self.cuts[segment]) * self.width + column

    def pieces(self) -> tuple[Piece, ...]:
        """Where each part of the packed word array lies, in order; neighbours are merged."""
        pieces: list[list[int]] = []
        for plane in range(self.planes):
            for segment, first_row in enumerate(self.cuts[:-1]):
                tile, at = self._place[plane, segment]
                first = (plane * self.rows + first_row) * self.width
                words = (self.cuts[segment + 1] - first_row) * self.width
                last = pieces[-1] if pieces else None
                if last and last[0] == tile and last[1] + last[3] == at:
                    last[3] += words
                else:
                    pieces.append([tile, at, first, words])
        return tuple(Piece(tile=t, address=a, first=f, words=w) for t, a, f, w in pieces)

    def transfers(
        self,
        planes: tuple[int, int],
        rows: tuple[int, int, int],
        columns: tuple[int, int],
        tile: int,
        address: int,
        local_plane: int = 0,
    ) -> Iterator[Transfer]:
        """Transfers between the box planes x rows (first, end, step) x columns and [plane][row][column] at `address`.

        `local_plane`: words from one plane to the next on the local side (0: as many as the box has).
        """
        first, end, step = rows
        wide = columns[1] - columns[0]
        count = -(-(end - first) // step)
        local_plane = local_plane or count * wide
        for segment, low in enumerate(self.cuts[:-1]):
            high = self.cuts[segment + 1]
            skip = max(0, -(-(low - first) // step))  # rows of the box before this segment
            here = max(0, -(-(min(end, high) - first) // step)) - skip
            if here <= 0:
                continue
            within = (first + skip * step - low) * self.width + columns[0]
            inner = step == 1 and wide == self.width
            for home, start, planes_here, apart in self._groups(planes, segment):
                local = address + (start - planes[0]) * local_plane + skip * wide
                at = self._place[start, segment][1] + within
                box = _Box(planes_here, here, wide, apart, local_plane, step * self.width, inner)
                yield from _pieces(home, at, tile, local, box)

    def _groups(self, planes: tuple[int, int], segment: int) -> Iterator[tuple[int, int, int, int]]:
        """(home, first plane, planes, words between their addresses): planes side by side, equally far apart."""
        plane = planes[0]
        while plane < planes[1]:
            home, at = self._place[plane, segment]
            count, apart = 1, 0
            while plane + count < planes[1]:
                other, address = self._place[plane + count, segment]
                if other != home or (count > 1 and address - at != count * apart):
                    break
                apart = apart or address - at
                count += 1
            yield home, plane, count, apart
            plane += count


class Placed:
    """The rows and columns of an array that one operand of a paste has (`workload.graph.Place`), as an array of
    `planes` x `rows` x `width` words to write."""

    def __init__(self, whole: Stored, place: PastePlace) -> None:
        self.planes, self.rows, self.width = whole.planes, place.rows, place.columns
        self._whole, self._at = whole, place

    @property
    def key(self) -> tuple[object, ...]:
        """What decides where each of its words lies."""
        return self._whole.key, self._at

    def transfers(
        self, planes: tuple[int, int], rows: tuple[int, int, int], columns: tuple[int, int], tile: int, address: int
    ) -> Iterator[Transfer]:
        """As `Stored.transfers`; `rows` one by one."""
        place, (first, end, _), wide = self._at, rows, columns[1] - columns[0]
        if place.step_w == 1:
            there = place.top + first * place.step_h, place.top + (end - 1) * place.step_h + 1, place.step_h
            yield from self._whole.transfers(
                planes, there, (place.left + columns[0], place.left + columns[1]), tile, address
            )
            return
        for plane in range(*planes):
            for row in range(first, end):
                home, at = self._whole.word(
                    plane, place.top + row * place.step_h, place.left + columns[0] * place.step_w
                )
                local = address + ((plane - planes[0]) * (end - first) + row - first) * wide
                yield Transfer(Run(home, at, 1, place.step_w), Run(tile, local, wide, wide), wide)


class _Box(NamedTuple):
    """Planes of `rows` rows of `wide` words. `apart`, `local_plane`: words from one plane to the next in their home and
    on the local side; `row_step`: from one row to the next. `inner`: whole rows, all of them, as they lie."""

    planes: int
    rows: int
    wide: int
    apart: int
    local_plane: int
    row_step: int
    inner: bool


def _pieces(home: int, at: int, tile: int, local: int, box: _Box) -> Iterator[Transfer]:
    """One transfer if two loops on both sides can say it, otherwise one a plane (or, for giant planes, one a row)."""
    planes, rows, wide, apart, local_plane, row_step, inner = box
    size = rows * wide
    if planes > 1 and apart == size and inner:  # whole planes, side by side in DRAM
        if planes * size <= MAX_WORDS:
            yield _transfer(home, at, (planes * size, 0), tile, local, (size, local_plane), planes * size)
            return
    elif planes > 1 and planes * size <= MAX_WORDS and max(apart, local_plane) <= MAX_STRIDE:
        if inner:
            yield _transfer(home, at, (size, apart), tile, local, (size, local_plane), planes * size)
            return
        if apart == rows * row_step and row_step <= MAX_STRIDE:
            yield _transfer(home, at, (wide, row_step), tile, local, (size, local_plane), planes * size)
            return
    for plane in range(planes):
        here, there = at + plane * apart, local + plane * local_plane
        if size <= MAX_WORDS and (inner or row_step <= MAX_STRIDE):
            yield _transfer(home, here, (size, 0) if inner else (wide, row_step), tile, there, (size, 0), size)
        else:
            for row in range(rows):
                yield _transfer(home, here + row * row_step, (wide, 0), tile, there + row * wide, (wide, 0), wide)


def _transfer(
    home: int, at: int, runs: tuple[int, int], tile: int, local: int, local_runs: tuple[int, int], words: int
) -> Transfer:
    """`runs`: words of a run, and from the beginning of one to that of the next. One run is as long as all of it."""
    run, stride = runs
    if run >= words:
        run, stride = words, words
    local_run, local_stride = local_runs
    if local_run >= words or local_stride == local_run:
        local_run, local_stride = words, words
    return Transfer(Run(home, at, run, stride), Run(tile, local, local_run, local_stride), words)
