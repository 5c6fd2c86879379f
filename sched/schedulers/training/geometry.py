"""The sizes of a layer in training, in words.

Maps lie as [image][block][row][column], a block of `cols` channels to a word. A fully connected layer reads its input's
words as blocks of an input of one pixel: 1x1 kernel, one row, one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from meshloom.hw.spec.config import ChipConfig

from ...workload.training_net import TrainedLayer


@dataclass(frozen=True)
class Geometry:
    """Blocks of X and Y (`kb`, `nb`), their rows and columns, and the kernel, as the array sees them."""

    layer: TrainedLayer
    cols: int
    kb: int
    nb: int
    in_h: int
    in_w: int
    out_h: int
    out_w: int
    kernel_h: int
    kernel_w: int
    pad_top: int
    pad_left: int

    @property
    def flat(self) -> bool:
        return self.layer.flat

    @property
    def taps(self) -> int:
        return self.kernel_h * self.kernel_w

    @property
    def x_pixels(self) -> int:
        return self.in_h * self.in_w

    @property
    def y_pixels(self) -> int:
        return self.out_h * self.out_w

    @property
    def x_words(self) -> int:
        """Words of X for an image."""
        return self.kb * self.x_pixels

    @property
    def y_words(self) -> int:
        """Words of Y for an image, before the pool."""
        return self.nb * self.y_pixels

    @property
    def pooled_words(self) -> int:
        """Words of the result for an image, behind the pool."""
        return self.y_words // self.layer.pool**2

    @property
    def w_words(self) -> int:
        """Words of W: [n block][k block][tap][column]."""
        return self.nb * self.kb * self.taps * self.cols

    def channels(self, block: int) -> int:
        """Channels of X in a block; those of a fully connected layer are `cols`, some of them zero."""
        left = self.layer.shape.in_channels - block * self.cols
        return self.cols if self.flat else min(self.cols, left)

    @property
    def sums(self) -> int:
        """Rows of int32 of dW: [channel][n block][tap]; of a fully connected layer [n block][k block][channel]."""
        return self.kb * self.cols * self.nb if self.flat else self.layer.shape.in_channels * self.nb * self.taps


def geometry(layer: TrainedLayer, chip: ChipConfig) -> Geometry:
    """The sizes of a layer on a chip."""
    s, cols = layer.shape, chip.cols
    kb, nb = ceil(s.in_channels / cols), ceil(s.out_channels / cols)
    if layer.flat:
        return Geometry(layer, cols, kb * s.in_h * s.in_w, nb, 1, 1, 1, 1, 1, 1, 0, 0)
    return Geometry(
        layer, cols, kb, nb, s.in_h, s.in_w, s.out_h, s.out_w, s.kernel_h, s.kernel_w, s.pad_top, s.pad_left
    )  # fmt: skip
