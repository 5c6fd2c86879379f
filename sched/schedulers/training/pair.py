"""The pair dX = dY·Wᵀ and dW = Xᵀ·dY of a layer: its tensors in DRAM, its tiles, and what a core's memories hold of it.

All tensors lie as activations do, [channel block][pixel][lane]. Those that come from the host (X, W, dY) have `lanes`
channels to a word, results (dX, dW) `cols`. Pixels are the rows of X, dY and dX, and the output channels of W and dW.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Literal

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig
from meshloom.hw.spec.isa import VectorOp
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy

from ...ir.schedule import Tensor
from ...mapping.memory.placement import Stored
from ...mapping.tiling.problem import MAX_IN_WIDTH, MAX_K_BLOCKS, MAX_N_BLOCKS, DoesNotFit
from ...mapping.tiling.tiles import Range, even
from ...workload.layout import ActivationLayout
from ...workload.training import TrainingLayer

#: Sums of so many products of two int8 are in int32, whatever the operands are.
MOST_PRODUCTS = ((1 << 31) - 1) // (128 * 128)


def check_sums(name: str, products: int, cure: str) -> None:
    """Raises DoesNotFit if sums of so many products of int8 may leave int32."""
    if products > MOST_PRODUCTS:
        raise DoesNotFit(
            f"{name}: sums of {products:,} products of int8 may leave int32, of {MOST_PRODUCTS:,} they do not; {cure}"
        )


@dataclass(frozen=True)
class Tiling:
    """Sizes of tiles: rows of X (`m`, pixels), columns of X (`k`, a multiple of `cols`) and columns of W (`n`, a
    multiple of `lanes`)."""

    m: int
    k: int
    n: int


def cut(end: int, step: int) -> list[Range]:
    """[0, end) in ranges of `step`; the last one holds the remainder."""
    return [(at, min(at + step, end)) for at in range(0, end, step)]


class Split(StrEnum):
    """The dimension that cores share (J. Kim et al., section 5, figure 11)."""

    M = "m"  #: rows of X and dY; all read W, and sums of dW go from core to core (the paper's weight-sharing)
    N = "n"  #: columns of dY and W; all read X, and sums of dX go from core to core (the paper's dY-sharing)
    K = "k"  #: columns of X; all read dY, and no sums are shared (the paper's ifmap-sharing)


@dataclass(frozen=True)
class Part:
    """What a core does of a pair: rows `first[0]` .. `first[0]` + `m` - 1 of X and dY, columns of X from `first[1]` on,
    columns of dY and W from `first[2]` on. `sums`: the result to whose sums all `of` parts add in turn, None if none;
    `number`: which of them this is."""

    core: int
    m: int
    k: int
    n: int
    first: tuple[int, int, int] = (0, 0, 0)
    sums: Literal["dx", "dw"] | None = None
    number: int = 0
    of: int = 1


class _TensorWords:
    """Hands out words of the DRAM tiles as if they had no end: all tensors are counted before one is refused."""

    def __init__(self, chip: ChipConfig) -> None:
        self._chip, self._used = chip, dict.fromkeys(chip.drams, 0)

    def take(self, tile: int, words: int) -> int:
        """Address of `words` fresh words of `tile`."""
        at = self._used[tile]
        self._used[tile] += words
        return at

    def check(self, name: str) -> None:
        """Raises DoesNotFit if a tile has not so many words, with how many it needs and the setting that gives them."""
        need, have, most = max(self._used.values()), self._chip.dram.words, 1 << OFFSET_BITS
        if need <= have:
            return
        enough = 1 << need.bit_length()  # a power of two, with room for the program behind the tensors
        cure = f"set words = {enough} under [dram] in the chip's TOML, or take a smaller batch"
        if enough > most:
            cure = f"no chip has more than {most:,}: take a smaller batch"
        raise DoesNotFit(
            f"{name}: its tensors need {need:,} words of each DRAM tile, and its program lies behind them; "
            f"{self._chip.name} has {have:,}; {cure}"
        )


class GradientPair:
    """A layer's pair on a chip: sizes in words of tiles, and where its tensors lie. `parts`: what each of up to `cores`
    cores does if they share it by `split`; as even as whole words (M, N) and blocks of columns (K) allow, at least one
    each. Raises DoesNotFit if DRAM is too small, or if sums may leave int32."""

    def __init__(self, layer: TrainingLayer, chip: ChipConfig, cores: int = 1, split: Split = Split.K) -> None:
        self.layer, self.chip, self.split = layer, chip, split
        self.m, self.k, self.n = layer.m, layer.k, layer.n
        check_sums(f"{layer.name} dw", self.m, "take a smaller batch")
        if not layer.first:
            check_sums(f"{layer.name} dx", self.n, "take fewer output channels")
        self.lanes, self.cols = chip.lanes, chip.cols
        dram = _TensorWords(chip)
        blocks_k, blocks_n = ceil(self.k / self.lanes), ceil(self.n / self.lanes)
        self.x = self._stored(dram, blocks_k, self.m)
        self.w = self._stored(dram, blocks_k, self.n)
        self.dy = self._stored(dram, blocks_n, self.m)
        columns = ceil(self.k / self.cols)
        self.parts = self._parts(min(cores, len(chip.cores)))
        self.dw = self._stored(dram, columns, self.n)
        self.dw_sums = self._stored(dram, columns, self.n, 4)
        if not layer.first:
            self.dx = self._stored(dram, columns, self.m)
            self.dx_sums = self._stored(dram, columns, self.m, 4)
        dram.check(layer.name)
        self._gemms: dict[tuple[int, int, int], int] = {}
        self._turns: dict[tuple[int, int], int] = {}

    def _parts(self, cores: int) -> tuple[Part, ...]:
        at, whole = "mkn".index(self.split), (self.m, self.k, self.n)
        unit = self.cols if self.split is Split.K else self.lanes
        units = ceil(whole[at] / unit)
        ranges = even(0, units, min(cores, units))
        sums: Literal["dx", "dw"] | None = None
        if len(ranges) > 1 and self.split is not Split.K:
            sums = "dw" if self.split is Split.M else "dx"
        parts: list[Part] = []
        for number, (core, (low, high)) in enumerate(zip(self.chip.cores, ranges, strict=False)):
            first, size = [0, 0, 0], list(whole)
            first[at], size[at] = low * unit, min(high * unit, whole[at]) - low * unit
            shared = None if sums == "dx" and self.layer.first else sums
            begin = first[0], first[1], first[2]
            parts.append(Part(core, size[0], size[1], size[2], begin, shared, number, len(ranges)))
        return tuple(parts)

    def _stored(self, dram: _TensorWords, planes: int, rows: int, width: int = 1) -> Stored:
        homes = self.chip.drams
        return Stored(dram, planes, rows, width, [0], lambda plane, _: homes[plane % len(homes)])

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of its schedule: x, w, dy, and the results dw and (unless it is a first layer) dx."""

        def layout(channels: int, pixels: int, block: int) -> ActivationLayout:
            return ActivationLayout(batch=1, channels=channels, height=1, width=pixels, block=block)

        tensors = [
            Tensor(name="x", role="input", layout=layout(self.k, self.m, self.lanes), pieces=self.x.pieces()),
            Tensor(name="w", role="constant", layout=layout(self.k, self.n, self.lanes), pieces=self.w.pieces()),
            Tensor(name="dy", role="input", layout=layout(self.n, self.m, self.lanes), pieces=self.dy.pieces()),
            Tensor(name="dw", role="output", layout=layout(self.k, self.n, self.cols), pieces=self.dw.pieces()),
        ]
        if not self.layer.first:
            dx = layout(self.k, self.m, self.cols)
            tensors.append(Tensor(name="dx", role="output", layout=dx, pieces=self.dx.pieces()))
        return tuple(tensors)

    # -- tiles, in words ----------------------------------------------------------------------------------------------

    def blocks(self, channels: Range) -> Range:
        """Channel blocks of `lanes` that cover a range of channels."""
        return channels[0] // self.lanes, ceil(channels[1] / self.lanes)

    def columns(self, k: Range) -> int:
        """Blocks of `cols` array columns for a range of k."""
        return ceil((k[1] - k[0]) / self.cols)

    def groups(self, pixels: Range) -> int:
        """Groups of `lanes` pixels, which TRANSPOSE turns into words."""
        return ceil((pixels[1] - pixels[0]) / self.lanes)

    def plain_words(self, channels: Range, pixels: Range) -> int:
        """Words of A for a tile as it lies in DRAM."""
        first, end = self.blocks(channels)
        return (end - first) * (pixels[1] - pixels[0])

    def turned_words(self, channels: Range, pixels: Range) -> int:
        """Words of A for a tile whose pixels have become lanes: [group of pixels][channel]."""
        first, end = self.blocks(channels)
        return self.groups(pixels) * (end - first) * self.lanes

    def column_words(self, k: Range, pixels: Range) -> int:
        """Words of B for such a tile: [block of columns][group of pixels][column]."""
        return self.columns(k) * self.groups(pixels) * self.cols

    def sums(self, k: Range, pixels: Range) -> int:
        """Rows of ACC for the partial sums of a tile of a result."""
        return self.columns(k) * (pixels[1] - pixels[0])

    # -- cycles -------------------------------------------------------------------------------------------------------

    def gemm_cycles(self, pixels: int, blocks: int, depth: int) -> int:
        """For which a product of a tile keeps the array: rows, blocks of columns, words of depth."""
        key = pixels, blocks, depth
        if key not in self._gemms:
            self._gemms[key] = gemm_occupancy(self.chip, GemmShape(pixels, blocks, k_blocks=depth))
        return self._gemms[key]

    def turn_cycles(self, blocks: int, pixels: int) -> int:
        """For which a TRANSPOSE keeps the vector unit."""
        key = blocks, pixels
        if key not in self._turns:
            self._turns[key] = vec_occupancy(self.chip, VecShape(VectorOp.TRANSPOSE, pixels, blocks))
        return self._turns[key]

    def check(self, tiling: Tiling) -> None:
        """Raises DoesNotFit for a tiling that instructions or memories cannot hold, even one step at a time."""
        core, half = self.chip.core, self.chip.core.vec_words // 2
        m, k, n = (0, min(tiling.m, self.m)), (0, min(tiling.k, self.k)), (0, min(tiling.n, self.n))
        # a range of k may begin anywhere in a block of lanes
        wide = min(ceil(self.k / self.lanes), ceil((k[1] - 1) / self.lanes) + 1)
        deep = self.blocks(n)[1]
        turned = self.turned_words(n, m)
        staged = wide * max(m[1], n[1])
        need = (
            ("VEC", max(wide, deep) * self.lanes, half - self.lanes // 2),
            ("A", (0 if self.layer.first else m[1] * deep) + turned + staged, core.a_words),
            ("B", max(self.column_words(k, m), self.column_words(k, n)), core.b_words),
            ("ACC", max(self.sums(k, m), self.sums(k, n)), core.acc_words),
            ("OUT", max(m[1], n[1]), core.out_words // 2),
            ("the width of a row", max(m[1], deep * self.lanes), MAX_IN_WIDTH),
            ("blocks of columns", self.columns(k), MAX_N_BLOCKS),
            ("blocks of channels", max(deep, self.groups(m)), MAX_K_BLOCKS),
        )
        for what, words, have in need:
            if words > have:
                raise DoesNotFit(
                    f"{self.layer.name}: tiles of {m[1]}x{k[1]}x{n[1]} (m x k x n) need {words} of {what}, "
                    f"{self.chip.name} has {max(0, have)}"
                )
