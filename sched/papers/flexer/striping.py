"""Where tiles lie: in the DRAM tiles, in the banks of the scratchpad, and the MOVEs between these and the cores.

The scratchpad is one space of rows: a block of rows is the same range of words in every bank, and each tile is cut into
as many parts as there are banks, so that all banks serve it at the same time. In DRAM each tile is cut among the
channels in the same way. Partial sums that are spilled have a place of their own there.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Region, address

from ...ir.schedule import Tensor
from ...mapping.memory.placement import Allocator, Dram, Stored, Transfer
from ...mapping.memory.tensors import tensors_of
from ...mapping.nodes import Run
from ...mapping.tiling.tiles import Range
from ...workload.layers import ConvShape
from .tiles import Tiles, split


@dataclass(frozen=True)
class Part:
    """Part of a tile, in one bank: `words` words side by side there, `at` words behind the first row of the block.

    In a core's memory the part begins `offset` words behind the tile's first word, in runs of `run` words that are
    `stride` words apart.
    """

    bank: int
    at: int
    words: int
    offset: int
    run: int
    stride: int

    def there(self, row: int) -> Run:
        """Its words in the scratchpad, for a tile whose block begins with `row`."""
        return Run(self.bank, address(Region.MAIN, row + self.at), self.words, self.words)

    def local(self, core: int, base: int) -> Run:
        """Its words in a core whose slot begins at address `base`."""
        if self.run >= self.words or self.run == self.stride:
            return Run(core, base + self.offset, self.words, self.words)
        return Run(core, base + self.offset, self.run, self.stride)


def _spread(banks: tuple[int, ...], parts: list[tuple[int, int, int, int]]) -> list[Part]:
    """Parts (words, offset, run, stride), one in each bank.

    Part and channel have the same number: each channel serves one bank's requests, in the bank's order.
    """
    return [
        Part(bank, 0, words, offset, run, stride)
        for bank, (words, offset, run, stride) in zip(banks, parts, strict=False)
    ]


class Places:
    """The tensors of a layer in DRAM, cut for `tiles`. Raises DoesNotFit when a DRAM tile is too small.

    In a network input and result have their places already: `x` and `y`; `dram` has room for the rest.
    """

    def __init__(
        self,
        tiles: Tiles,
        chip: ChipConfig,
        dram: Allocator | None = None,
        x: Stored | None = None,
        y: Stored | None = None,
    ) -> None:
        self.tiles, self.chip = tiles, chip
        self._banks, self._homes = chip.spms, chip.drams
        self._dram = dram or Dram(chip)
        self._sums: dict[int, list[tuple[int, int, int, int]]] = {}
        p = tiles.problem
        self.x = x or self._place_x()
        self.y = y or self._place_y()
        self.w = self._place_w()
        self.bias = Stored(self._dram, 1, p.n_blocks, 4, [0], lambda _, __: self._homes[-1])

    def _place_w(self) -> Stored:
        """By the windows of each tile, or (if there are fewer of them than channels) by its output blocks."""
        p, tiles, homes = self.tiles.problem, self.tiles, self._homes
        share = [  # of each output block: its tile, and its part of that, or None if it is all of it
            (index, number if high - low > 1 else None)
            for index, (low, high) in enumerate(tiles.n)
            for number, (first, end) in enumerate(split(low, high, len(homes)))
            for _ in range(first, end)
        ]
        parts: dict[int, tuple[int, int | None]] = {}  # by first window: tile, and part of that, or None
        for index, (k0, k1) in enumerate(tiles.k):
            if (k1 - k0) * p.taps < len(homes):
                parts[k0 * p.taps] = index, None
                continue
            for number, (low, _) in enumerate(split(k0 * p.taps, k1 * p.taps, len(homes))):
                parts[low] = index, number
        of_cut = [parts[low] for low in sorted(parts)]

        def home(plane: int, cut: int) -> int:
            (k_tile, window), (n_tile, block) = of_cut[cut], share[plane]
            if window is None:  # a tile of one block lies in one channel: tiles take turns
                window = block if block is not None else n_tile + k_tile
            return homes[window % len(homes)]

        return Stored(self._dram, p.n_blocks, p.k_blocks * p.taps, p.cols, sorted(parts), home)

    def _halves(self, ranges: list[Range]) -> dict[int, int]:
        """A channel for each block: each range cut among the channels; ranges of one block take turns."""
        homes: dict[int, int] = {}
        for index, (low, high) in enumerate(ranges):
            turn = index if high - low == 1 else 0
            for number, (first, end) in enumerate(split(low, high, len(self._homes))):
                homes |= dict.fromkeys(range(first, end), self._homes[(turn + number) % len(self._homes)])
        return homes

    def _place_x(self) -> Stored:
        """By input blocks, or (if a tile has fewer than there are channels) by the rows of each tile: not if tiles
        overlap, but for a single block."""
        p, tiles, count = self.tiles.problem, self.tiles, len(self._homes)
        cuts = [0]
        if count > 1 and (p.k_blocks == 1 or (tiles.k_most < count and p.kernel_h == 1)):
            rows = {tiles.box(index)[0] for index in range(len(tiles.m))}
            cuts = sorted({0, *(low * p.row_step for span in rows for low, _ in split(*span, count))})
            planes = p.images * p.k_blocks
            return Stored(self._dram, planes, p.stored_rows, p.in_w, cuts, lambda _, cut: self._homes[cut % count])
        home = self._halves(tiles.k)
        return Stored(
            self._dram, p.images * p.k_blocks, p.stored_rows, p.in_w, cuts, lambda plane, _: home[plane % p.k_blocks]
        )

    def _place_y(self) -> Stored:
        """By output blocks, or (if there is one only) by the rows of each tile."""
        p, tiles, count = self.tiles.problem, self.tiles, len(self._homes)
        if p.n_blocks == 1 and count > 1:
            cuts = sorted({tile.r0 for tile in tiles.m})
            return Stored(self._dram, p.images, p.out_rows, p.out_w, cuts, lambda _, cut: self._homes[cut % count])
        home = self._halves(tiles.n)
        return Stored(
            self._dram, p.images * p.n_blocks, p.out_rows, p.out_w, [0], lambda plane, _: home[plane % p.n_blocks]
        )

    # -- tiles between DRAM, scratchpad and cores -------------------------------------------------------------------

    def input_parts(self, m: int, k: int) -> list[tuple[Part, list[Transfer]]]:
        """Parts of an input tile, and how each comes from DRAM into row 0 of the scratchpad."""
        p, tiles = self.tiles.problem, self.tiles
        (i0, i1), (j0, j1), _, _ = tiles.box(m)
        (k0, k1), wide, banks = tiles.k[k], j1 - j0, len(self._banks)
        plane, image = (i1 - i0) * wide, tiles.m[m].image * p.k_blocks
        if k1 - k0 >= banks:
            boxes = [((low, high), (i0, i1)) for low, high in split(k0, k1, banks)]
        else:
            boxes = [((k0, k1), rows) for rows in split(i0, i1, banks)]
        parts = _spread(
            self._banks,
            [
                ((b - a) * (r1 - r0) * wide, (a - k0) * plane + (r0 - i0) * wide, (r1 - r0) * wide, plane)
                for (a, b), (r0, r1) in boxes
            ],
        )
        return [
            (
                part,
                list(
                    self.x.transfers(
                        (image + a, image + b),
                        (r0 * p.row_step, (r1 - 1) * p.row_step + 1, p.row_step),
                        (j0, j1),
                        part.bank,
                        address(Region.MAIN, part.at),
                    )
                ),
            )
            for part, ((a, b), (r0, r1)) in zip(parts, boxes, strict=True)
        ]

    def weight_parts(self, n: int, k: int) -> list[tuple[Part, list[Transfer]]]:
        """The same for a weight tile."""
        p, (n0, n1), (k0, k1) = self.tiles.problem, self.tiles.n[n], self.tiles.k[k]
        first, last, banks = k0 * p.taps, k1 * p.taps, len(self._banks)
        plane = (last - first) * p.cols
        if last - first >= banks:
            boxes = [((n0, n1), some) for some in split(first, last, banks)]
        else:
            boxes = [(some, (first, last)) for some in split(n0, n1, banks)]
        parts = _spread(
            self._banks,
            [
                (
                    (b - a) * (high - low) * p.cols,
                    (a - n0) * plane + (low - first) * p.cols,
                    (high - low) * p.cols,
                    plane,
                )
                for (a, b), (low, high) in boxes
            ],
        )
        return [
            (
                part,
                list(self.w.transfers(blocks, (*some, 1), (0, p.cols), part.bank, address(Region.MAIN, part.at))),
            )
            for part, (blocks, some) in zip(parts, boxes, strict=True)
        ]

    def sum_parts(self, m: int, n: int) -> list[Part]:
        """Parts of a tile of partial sums, whole rows of ACC each."""
        rows = int(self.tiles.out_words[m, n])
        ranges = split(0, rows, len(self._banks))
        return _spread(self._banks, [(4 * (b - a), 4 * a, 4 * (b - a), 0) for a, b in ranges])

    def spilled(self, m: int, n: int) -> list[tuple[Run, int, int]]:
        """Where a tile of partial sums lies in DRAM when it is spilled: (words there, first word, how many)."""
        pair = m * len(self.tiles.n) + n
        if pair not in self._sums:
            ranges = split(0, int(self.tiles.out_words[m, n]), len(self._homes))
            homes = self._homes[: len(ranges)]
            self._sums[pair] = [
                (home, self._dram.take(home, 4 * (b - a)), 4 * a, 4 * (b - a))
                for home, (a, b) in zip(homes, ranges, strict=True)
            ]
        return [(Run(home, at, words, words), first, words) for home, at, first, words in self._sums[pair]]

    def spill_moves(self, m: int, n: int, row: int) -> list[tuple[Run, Run, int]]:
        """(in the scratchpad, in DRAM, words) of spilled sums whose block begins with `row`."""
        moves: list[tuple[Run, Run, int]] = []
        for dram, first, words in self.spilled(m, n):
            for part in self.sum_parts(m, n):
                low, high = max(first, part.offset), min(first + words, part.offset + part.words)
                if low < high:
                    at = address(Region.MAIN, row + part.at + low - part.offset)
                    size = high - low
                    moves.append(
                        (
                            Run(part.bank, at, size, size),
                            Run(dram.tile, dram.address + low - first, size, size),
                            size,
                        )
                    )
        return moves

    def result(self, m: int, n: int, core: int, at: int) -> list[Transfer]:
        """How a finished result at word `at` of OUT comes to its place in DRAM."""
        tile, first = self.tiles.m[m], self.tiles.m[m].image * self.tiles.problem.n_blocks
        n0, n1 = self.tiles.n[n]
        return list(
            self.y.transfers(
                (first + n0, first + n1), (tile.r0, tile.r1, 1), (tile.c0, tile.c1), core, address(Region.OUT, at)
            )
        )

    def biases(self, n: Range, core: int, at: int) -> list[Transfer]:
        """How the biases of output blocks come to ACC word `at`."""
        return list(self.bias.transfers((0, 1), (*n, 1), (0, 4), core, address(Region.ACC, 4 * at)))

    def tensors(self, shape: ConvShape) -> tuple[Tensor, ...]:
        """The schedule's tensors."""
        pieces = {"x": self.x.pieces(), "w": self.w.pieces(), "bias": self.bias.pieces(), "y": self.y.pieces()}
        return tensors_of(shape, self.chip, self.tiles.problem.packed, pieces)
