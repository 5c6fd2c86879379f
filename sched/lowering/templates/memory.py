"""Where an instance of a network lies in DRAM: one window of pages, the same in all DRAM tiles, and every tensor in it
striped over all tiles, so that any set of cores reads from all channels at once. Tensors of one shape are striped
alike, so that layers of one form differ in nothing but where their tensors begin.

Activations of several images are *stacked*: a channel block is one plane whose rows are those of all images. So a layer
without neighbourhood sees one tall map, whose pixels fill the array where those of one image would not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from math import ceil
from typing import TypeVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS

from ...ir.schedule import Piece
from ...mapping.memory.placement import MAX_STRIDE, MAX_WORDS, Transfer
from ...mapping.nodes import Run
from ...mapping.tiling.problem import DoesNotFit
from ...mapping.tiling.tiles import even
from ...workload.graph import PastePlace

T = TypeVar("T")

#: Tensors begin at multiples of so many words, where packets are cut anyway.
ALIGNED = 64
#: Planes are not cut into segments of fewer words.
LEAST_SEGMENT = 64


class Window:
    """Hands out words of all DRAM tiles at once, from 0 upwards."""

    def __init__(self, chip: ChipConfig) -> None:
        self.chip = chip
        self.words = 0

    def take(self, words: int) -> int:
        """Address of `words` fresh words of every tile. Raises DoesNotFit when the tiles are full."""
        at = self.words
        if at + words > self.chip.dram.words:
            raise DoesNotFit(
                f"each DRAM tile of {self.chip.name} is too small: the network needs at least {at + words} words of "
                f"it, it has {self.chip.dram.words}; raise dram.words or serve a smaller batch"
            )
        self.words = ceil((at + words) / ALIGNED) * ALIGNED
        return at

    @property
    def pages(self) -> int:
        """Pages that hold what has been handed out."""
        return ceil(self.words / PAGE_WORDS)


class Striped:
    """An array of `planes` x `rows` x `width` words, plane after plane in turn over the DRAM tiles.

    Where there are fewer planes than tiles, each is cut into segments of whole rows. The pieces of one tile lie one
    after the other, equally far apart. `across`: every plane is cut into as many segments as there are tiles, if they
    are not too short, so that the same rows of all planes lie in one tile.
    """

    def __init__(self, window: Window, planes: int, rows: int, width: int, *, across: bool = False) -> None:
        self.planes, self.rows, self.width = planes, rows, width
        self.drams = window.chip.drams
        count = len(self.drams)
        most = min(rows, max(1, rows * width // LEAST_SEGMENT))
        segments = count if across and most >= count else min(ceil(count / planes), most)
        self.cuts = [0] + [high for _, high in even(0, rows, segments)]
        self._segment = max(b - a for a, b in zip(self.cuts[:-1], self.cuts[1:], strict=True)) * width
        self.extent = ceil(planes * (len(self.cuts) - 1) / count) * self._segment
        self.start = window.take(self.extent)
        self._turn = (planes + rows + width) % count  # other shapes begin in other tiles
        self._first = 0

    @property
    def form(self) -> tuple[object, ...]:
        """All that decides where its words lie, but for `start`."""
        return self.planes, self.rows, self.width, tuple(self.cuts), self._turn, self._first, self._segment

    def part(self, first: int, planes: int) -> Striped:
        """The same words, `planes` planes from `first` on alone."""
        view = copy(self)
        view.planes, view._first = planes, self._first + first
        return view

    def flattened(self) -> Striped:
        """The same words seen as rows of one word each."""
        view = copy(self)
        view.rows, view.width = self.rows * self.width, 1
        view.cuts = [cut * self.width for cut in self.cuts]
        return view

    def _home(self, plane: int, segment: int) -> tuple[int, int]:
        """(tile, address) of a segment of a plane."""
        turn = (self._first + plane) * (len(self.cuts) - 1) + segment + self._turn
        return self.drams[turn % len(self.drams)], self.start + (turn - self._turn) // len(self.drams) * self._segment

    def word(self, plane: int, row: int, column: int) -> tuple[int, int]:
        """(tile, address) of one word."""
        segment = bisect_right(self.cuts, row) - 1
        home, at = self._home(plane, segment)
        return home, at + (row - self.cuts[segment]) * self.width + column

    def pieces(self) -> tuple[Piece, ...]:
        """Where each part of the packed word array lies, in order."""
        pieces: list[Piece] = []
        for plane in range(self.planes):
            for segment, (low, high) in enumerate(zip(self.cuts[:-1], self.cuts[1:], strict=True)):
                tile, at = self._home(plane, segment)
                first = (plane * self.rows + low) * self.width
                pieces.append(Piece(tile=tile, address=at, first=first, words=(high - low) * self.width))
        return tuple(pieces)

    def transfers(
        self, planes: tuple[int, int], rows: tuple[int, int, int], tile: int, address: int, plane_words: int = 0
    ) -> Iterator[Transfer]:
        """Transfers between planes x rows (first, end, step) and [plane][row][column] at `address` of `tile`.

        `plane_words`: words from one plane to the next there (0: as many as the box has).
        """
        first, end, step = rows
        count = ceil((end - first) / step)
        plane_words = plane_words or count * self.width
        if len(self.cuts) == 2 and step == 1:
            yield from self._whole(planes, first, end, tile, address, plane_words)
            return
        if len(self.cuts) - 1 == len(self.drams) and step == 1 and planes[1] - planes[0] > 1:
            yield from self._across(planes, first, end, tile, address, plane_words)
            return
        for plane in range(*planes):
            for segment, (low, high) in enumerate(zip(self.cuts[:-1], self.cuts[1:], strict=True)):
                skip = max(0, ceil((low - first) / step))
                here = max(0, ceil((min(end, high) - first) / step)) - skip
                if here <= 0:
                    continue
                home, at = self._home(plane, segment)
                at += (first + skip * step - low) * self.width
                local = address + (plane - planes[0]) * plane_words + skip * self.width
                if step == 1 or here == 1:
                    yield from _run(home, at, tile, local, here * self.width)
                else:
                    words = here * self.width
                    yield Transfer(Run(home, at, self.width, step * self.width), Run(tile, local, words, words), words)

    def _across(
        self, planes: tuple[int, int], first: int, end: int, tile: int, address: int, plane_words: int
    ) -> Iterator[Transfer]:
        """The rows of all planes that one DRAM tile holds at once."""
        for segment, (low, high) in enumerate(zip(self.cuts[:-1], self.cuts[1:], strict=True)):
            begin, size = max(first, low), (min(end, high) - max(first, low)) * self.width
            if size <= 0:
                continue
            fits = max(self._segment, plane_words) <= MAX_STRIDE
            together = max(1, MAX_WORDS // size) if fits else 1
            for start in range(planes[0], planes[1], together):
                here = min(together, planes[1] - start)
                home, at = self._home(start, segment)
                at += (begin - low) * self.width
                local = address + (start - planes[0]) * plane_words + (begin - first) * self.width
                if here == 1:
                    yield from _run(home, at, tile, local, size)
                else:
                    yield Transfer(Run(home, at, size, self._segment), Run(tile, local, size, plane_words), here * size)

    def _whole(
        self, planes: tuple[int, int], first: int, end: int, tile: int, address: int, plane_words: int
    ) -> Iterator[Transfer]:
        """All planes that one DRAM tile holds at once."""
        count, size = len(self.drams), (end - first) * self.width
        for start in range(planes[0], min(planes[0] + count, planes[1])):
            home, at = self._home(start, 0)
            at += first * self.width
            local, many = address + (start - planes[0]) * plane_words, ceil((planes[1] - start) / count)
            together = max(1, MAX_WORDS // size) if max(self._segment, count * plane_words) <= MAX_STRIDE else 1
            for index in range(0, many, together):
                here = min(together, many - index)
                there, mine = at + index * self._segment, local + index * count * plane_words
                if here == 1:
                    yield from _run(home, there, tile, mine, size)
                else:
                    yield Transfer(
                        Run(home, there, size, self._segment), Run(tile, mine, size, count * plane_words), here * size
                    )


class PlacedPart(Striped):
    """The rows and columns of an array that one operand of a paste has in each image, as an array to write. `image`:
    rows of an image of the whole array."""

    def __init__(self, whole: Striped, place: PastePlace, image: int) -> None:
        vars(self).update(vars(whole))
        self._whole_array, self._place, self._image = whole, place, image
        self.rows, self.width = whole.rows // image * place.rows, place.columns

    @property
    def form(self) -> tuple[object, ...]:
        return *self._whole_array.form, self._place, self._image

    def pieces(self) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        for transfer in self.transfers((0, self.planes), (0, self.rows, 1), 0, 0):
            home, count = transfer.dram, transfer.words // transfer.dram.run
            for number in range(count):
                first = transfer.local.address + number * home.run
                pieces.append(
                    Piece(tile=home.tile, address=home.address + number * home.stride, first=first, words=home.run)
                )
        return tuple(pieces)

    def transfers(
        self, planes: tuple[int, int], rows: tuple[int, int, int], tile: int, address: int, plane_words: int = 0
    ) -> Iterator[Transfer]:
        """As `Striped.transfers`, of rows one by one."""
        first, end, _ = rows
        plane_words = plane_words or (end - first) * self.width
        for plane in range(*planes):
            row = first
            while row < end:
                count = self._together(row, end)
                local = address + (plane - planes[0]) * plane_words + (row - first) * self.width
                yield self._rows(plane, row, count, tile, local)
                row += count

    def _there(self, row: int) -> int:
        """The row of the whole array that a row is."""
        return row // self._place.rows * self._image + self._place.top + row % self._place.rows * self._place.step_h

    def _together(self, row: int, end: int) -> int:
        """How many rows from this one on are equally far apart in one tile, in as many words as a transfer has."""
        place, whole = self._place, self._whole_array
        if place.step_w > 1 or place.step_h * whole.width > MAX_STRIDE:
            return 1
        there = self._there(row)
        segment = whole.cuts[bisect_right(whole.cuts, there)]
        inside = ceil((segment - there) / place.step_h)
        return max(1, min(end - row, place.rows - row % place.rows, inside, MAX_WORDS // self.width))

    def _rows(self, plane: int, row: int, count: int, tile: int, local: int) -> Transfer:
        place, wide, words = self._place, self.width, count * self.width
        home, at = self._whole_array.word(plane, self._there(row), place.left)
        stride = place.step_h * self._whole_array.width
        run = (1, place.step_w) if place.step_w > 1 and wide > 1 else (wide, stride) if count > 1 else (words, words)
        return Transfer(Run(home, at, *run), Run(tile, local, words, words), words)


def _run(home: int, at: int, tile: int, local: int, words: int) -> Iterator[Transfer]:
    """Words in one run on both sides."""
    for first in range(0, words, MAX_WORDS):
        size = min(MAX_WORDS, words - first)
        yield Transfer(Run(home, at + first, size, size), Run(tile, local + first, size, size), size)


def turned(values: Sequence[T], turn: int) -> list[T]:
    """The values beginning with another one: cores that need the same tiles ask different channels first."""
    at = turn % len(values) if values else 0
    return [*values[at:], *values[:at]]
