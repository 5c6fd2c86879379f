"""How arrays lie in memory: words of `lanes` bytes (P), in the orders of docs/architecture/instructions.md.

Each layout turns an array into its *packed* form, uint8 [words, P], one row per memory word in address order, and back.
Lanes that hold no channel are zero.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator

from meshloom.hw.spec.config import Exact
from meshloom.hw.spec.isa import SCALED_BIAS_WORDS
from meshloom.hw.spec.timing import weight_words

from . import int4

Bytes = NDArray[np.uint8]
Size = Annotated[int, Field(ge=1)]


class LayoutError(ValueError):
    """An array or packed form that does not fit its layout."""


class PackedWindow(NamedTuple):
    """Kernel columns packed into the channels of a few-channel first layer (dilation 1); with a `kernel_h` above 1 its
    kernel rows, too: whole windows."""

    kernel_w: Size
    stride_w: Size
    pad_left: Annotated[int, Field(ge=0)]
    pad_right: Annotated[int, Field(ge=0)]
    kernel_h: Size = 1
    stride_h: Size = 1
    pad_top: Annotated[int, Field(ge=0)] = 0
    pad_bottom: Annotated[int, Field(ge=0)] = 0

    @property
    def taps(self) -> int:
        """Values of one channel that lie in a window."""
        return self.kernel_h * self.kernel_w


class _Layout(Exact):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the array."""
        return np.dtype(np.int8)

    def words(self, lanes: int) -> int:
        """Memory words of the packed form."""
        raise NotImplementedError

    def pack(self, array: NDArray[Any], lanes: int) -> Bytes:
        """The packed form, uint8 [words, lanes]. Raises LayoutError when the array is not of `shape` and `dtype`."""
        raise NotImplementedError

    def unpack(self, packed: Bytes) -> NDArray[Any]:
        """The array of a packed form; lanes that hold no channel are ignored. Raises LayoutError on a wrong size."""
        raise NotImplementedError

    def _check(self, lanes: int, widest: int, what: str) -> None:
        if widest > lanes:
            raise LayoutError(f"{self._kind} layout: {what} = {widest} exceeds the {lanes} lanes of a word")

    def _take(self, array: NDArray[Any]) -> None:
        if array.shape != self.shape or array.dtype != self.dtype:
            raise LayoutError(
                f"{self._kind} layout: array is {array.dtype}{list(array.shape)}, "
                f"must be {self.dtype}{list(self.shape)}"
            )

    def _lanes(self, packed: Bytes) -> int:
        if packed.ndim != 2 or packed.dtype != np.uint8:
            raise LayoutError(
                f"{self._kind} layout: packed form is {packed.dtype}, {packed.ndim}-d; must be uint8, 2-d"
            )
        words, lanes = packed.shape
        if words != self.words(lanes):
            raise LayoutError(f"{self._kind} layout: packed form has {words} words, must have {self.words(lanes)}")
        return lanes

    @property
    def _kind(self) -> str:
        return str(getattr(self, "kind"))  # noqa: B009  (every subclass has it, as its discriminator)


class ActivationLayout(_Layout):
    """int8 [batch, channels, height, width] as `[image][block][row][column][lane]`, `block` channels to a word.

    With `packed_kw` the channels of a word are bytes of a window instead: output column ox of
    `[image][block][row][out column][lane]` holds the kernel_w * channels bytes under the kernel row, kernel column
    outermost, zero where padded. The convolution is then kernel_h x 1, with horizontal stride 1 and no horizontal
    padding. If that window has kernel rows, there is such a word for each output pixel, with kernel_h * kernel_w *
    channels bytes, kernel row outermost: the convolution is then 1x1.
    """

    kind: Literal["activation"] = "activation"
    batch: Size
    channels: Size
    height: Size
    width: Size
    block: Size
    packed_kw: PackedWindow | None = None

    @model_validator(mode="after")
    def _has_columns(self) -> Self:
        if self.columns < 1:
            columns = self.packed_kw.kernel_w if self.packed_kw else 1
            raise ValueError(f"packed_kw: a window of {columns} columns does not fit {self.width}")
        if self.packed_kw and self.rows < 1:
            raise ValueError(f"packed_kw: a window of {self.packed_kw.kernel_h} rows does not fit {self.height}")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch, self.channels, self.height, self.width

    @property
    def columns(self) -> int:
        """Words of one row: the width, or the output columns if kernel columns are packed."""
        if (window := self.packed_kw) is None:
            return self.width
        return (self.width + window.pad_left + window.pad_right - window.kernel_w) // window.stride_w + 1

    @property
    def rows(self) -> int:
        """Rows of words: the height, or the output rows if whole windows are packed."""
        if (window := self.packed_kw) is None:
            return self.height
        return (self.height + window.pad_top + window.pad_bottom - window.kernel_h) // window.stride_h + 1

    @property
    def depth(self) -> int:
        """Channels as the array sees them: true ones, or as many for each tap that is packed."""
        return self.channels * (self.packed_kw.taps if self.packed_kw else 1)

    @property
    def blocks(self) -> int:
        """Channel blocks."""
        return -(-self.depth // self.block)

    def words(self, lanes: int) -> int:
        self._check(lanes, self.block, "block")
        return self.batch * self.blocks * self.rows * self.columns

    def coordinates(self, word: int, lane: int) -> tuple[int, int | None, int, int]:
        """(image, channel, row, column) of a byte of the packed form; channel None in a lane that holds none. With
        `packed_kw`, channel, row and column are those that the array sees (`depth`, `rows`, `columns`)."""
        rest, column = divmod(word, self.columns)
        rest, row = divmod(rest, self.rows)
        image, block = divmod(rest, self.blocks)
        channel = block * self.block + lane
        return image, channel if lane < self.block and channel < self.depth else None, row, column

    def pack(self, array: NDArray[Any], lanes: int) -> Bytes:
        self._take(array)
        words = self.words(lanes)
        if self.packed_kw is not None:
            array = _windows(array, self.packed_kw, self.rows, self.columns)
        channels = np.zeros((self.batch, self.blocks * self.block, self.rows, self.columns), np.int8)
        channels[:, : self.depth] = array
        packed = np.zeros((self.batch, self.blocks, self.rows, self.columns, lanes), np.int8)
        packed[..., : self.block] = channels.reshape(
            self.batch, self.blocks, self.block, self.rows, self.columns
        ).transpose(0, 1, 3, 4, 2)
        return packed.reshape(words, lanes).view(np.uint8)

    def unpack(self, packed: Bytes) -> NDArray[np.int8]:
        """As `_Layout.unpack`. With `packed_kw`, pixels that no window covers come back as zeros, and LayoutError is
        raised when two windows disagree about a pixel or a padded byte is not zero."""
        lanes = self._lanes(packed)
        words = np.ascontiguousarray(packed).view(np.int8)
        words = words.reshape(self.batch, self.blocks, self.rows, self.columns, lanes)[..., : self.block]
        channels = words.transpose(0, 1, 4, 2, 3).reshape(self.batch, -1, self.rows, self.columns)
        channels = np.ascontiguousarray(channels[:, : self.depth])
        if (window := self.packed_kw) is None:
            return channels
        array = np.zeros(self.shape, np.int8)
        taps = channels.reshape(self.batch, window.taps, self.channels, self.rows, self.columns)
        for tap in range(window.taps):
            ky, kx = divmod(tap, window.kernel_w)
            y, rows = _covered(ky - window.pad_top, window.stride_h, self.rows, self.height)
            x, columns = _covered(kx - window.pad_left, window.stride_w, self.columns, self.width)
            array[..., y, x] = taps[:, tap, :, rows, columns]
        if not np.array_equal(_windows(array, window, self.rows, self.columns), channels):
            raise LayoutError("activation layout: packed windows disagree with each other")
        return array


def _covered(offset: int, stride: int, windows: int, size: int) -> tuple[slice, slice]:
    """Pixels, of `size` along an axis, that one tap covers of windows in steps of `stride`, and which windows these
    are. `offset`: the tap's pixel in the first window, maybe outside."""
    first = max(0, -(offset // stride))
    end = max(first, min(windows, (size - 1 - offset) // stride + 1))
    at = offset + first * stride
    return slice(at, at + (end - first) * stride, stride), slice(first, end)


def _windows(array: NDArray[np.int8], window: PackedWindow, rows: int, columns: int) -> NDArray[np.int8]:
    """[batch, taps * channels, rows, columns]: the bytes of each window, kernel row outermost, then kernel column."""
    batch, channels = array.shape[:2]
    pads = (window.pad_top, window.pad_bottom), (window.pad_left, window.pad_right)
    padded = np.pad(array, ((0, 0), (0, 0), *pads))
    down, across = (rows - 1) * window.stride_h + 1, (columns - 1) * window.stride_w + 1
    taps = [
        padded[..., ky : ky + down : window.stride_h, kx : kx + across : window.stride_w]
        for ky in range(window.kernel_h)
        for kx in range(window.kernel_w)
    ]
    return np.stack(taps, axis=1).reshape(batch, window.taps * channels, rows, columns)


class WeightLayout(_Layout):
    """int8 [out, in, kernel rows, kernel columns], for operand memory B.

    `[n block][k block][kernel row][kernel column][array column][lane]`: an n block is `cols` output channels, a k block
    `block` input channels. With `packed_kw` the kernel columns belong to the channels, kernel column outermost:
    `[n block][k block][kernel row][array column][lane]`; with `packed_kh` as well, so do the kernel rows, outermost:
    `[n block][k block][array column][lane]`. With `int4` two windows of the array have a word of scales and a word for
    each column (`int4.packed`).
    """

    kind: Literal["weights"] = "weights"
    out_channels: Size
    in_channels: Size
    kernel_h: Size
    kernel_w: Size
    cols: Size
    block: Size
    packed_kw: bool = False
    packed_kh: bool = False
    int4: bool = False

    @model_validator(mode="after")
    def _has_columns(self) -> Self:
        if self.int4 and self.k_blocks * self._taps_h * self._taps_w % 2:
            raise ValueError("int4: weights of four bits lie in pairs of windows, which are odd in number here")
        if self.packed_kh and not self.packed_kw:
            raise ValueError("packed_kh: kernel rows are packed only with kernel columns; set packed_kw, too")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.out_channels, self.in_channels, self.kernel_h, self.kernel_w

    @property
    def n_blocks(self) -> int:
        """Blocks of output channels."""
        return -(-self.out_channels // self.cols)

    @property
    def k_blocks(self) -> int:
        """Blocks of input channels."""
        return -(-self._depth // self.block)

    @property
    def _depth(self) -> int:
        return self.in_channels * (self.kernel_w if self.packed_kw else 1) * (self.kernel_h if self.packed_kh else 1)

    @property
    def _taps_w(self) -> int:
        return 1 if self.packed_kw else self.kernel_w

    @property
    def _taps_h(self) -> int:
        return 1 if self.packed_kh else self.kernel_h

    def words(self, lanes: int) -> int:
        self._check(lanes, self.block, "block")
        self._check(lanes, self.cols, "cols")
        return self.n_blocks * weight_words(self.k_blocks * self._taps_h * self._taps_w, self.cols, self.int4)

    def pack(self, array: NDArray[Any], lanes: int) -> Bytes:
        self._take(array)
        words = self.words(lanes)
        if self.packed_kw:
            order = (0, 2, 3, 1) if self.packed_kh else (0, 3, 1, 2)
            array = array.transpose(order).reshape(self.out_channels, self._depth, self._taps_h, 1)
        blocks = (self.n_blocks, self.cols, self.k_blocks, self.block, self._taps_h, self._taps_w)
        full = np.zeros((self.n_blocks * self.cols, self.k_blocks * self.block, self._taps_h, self._taps_w), np.int8)
        full[: self.out_channels, : self._depth] = array
        taps = self.k_blocks * self._taps_h * self._taps_w
        packed = np.zeros((self.n_blocks, taps, self.cols, lanes), np.int8)
        packed[..., : self.block] = full.reshape(blocks).transpose(0, 2, 4, 5, 1, 3).reshape(*packed.shape[:-1], -1)
        if self.int4:
            try:
                return int4.packed(packed)
            except ValueError as error:
                raise LayoutError(f"weights layout: {error}") from error
        return packed.reshape(words, lanes).view(np.uint8)

    def unpack(self, packed: Bytes) -> NDArray[np.int8]:
        self._lanes(packed)
        if self.int4:
            packed = int4.unpacked(np.ascontiguousarray(packed).view(np.int8), self.cols).view(np.uint8)
        words = np.ascontiguousarray(packed[:, : self.block]).view(np.int8)
        words = words.reshape(self.n_blocks, self.k_blocks, self._taps_h, self._taps_w, self.cols, self.block)
        full = words.transpose(0, 4, 1, 5, 2, 3).reshape(
            self.n_blocks * self.cols, self.k_blocks * self.block, self._taps_h, self._taps_w
        )
        weights = full[: self.out_channels, : self._depth]
        if self.packed_kh:
            weights = weights.reshape(self.out_channels, self.kernel_h, self.kernel_w, self.in_channels)
            weights = weights.transpose(0, 3, 1, 2)
        elif self.packed_kw:
            weights = weights.reshape(self.out_channels, self.kernel_w, self.in_channels, self.kernel_h)
            weights = weights.transpose(0, 2, 3, 1)
        return np.ascontiguousarray(weights)


class DepthwiseLayout(_Layout):
    """int8 [channels, kernel rows, kernel columns], the filters of a depthwise convolution, for operand memory B.

    `[block][kernel row][kernel column][lane]`, lane = channel inside the block of `block` channels.
    """

    kind: Literal["depthwise"] = "depthwise"
    channels: Size
    kernel_h: Size
    kernel_w: Size
    block: Size

    @property
    def shape(self) -> tuple[int, ...]:
        return self.channels, self.kernel_h, self.kernel_w

    @property
    def blocks(self) -> int:
        """Channel blocks."""
        return -(-self.channels // self.block)

    def words(self, lanes: int) -> int:
        self._check(lanes, self.block, "block")
        return self.blocks * self.kernel_h * self.kernel_w

    def pack(self, array: NDArray[Any], lanes: int) -> Bytes:
        self._take(array)
        words = self.words(lanes)
        full = np.zeros((self.blocks * self.block, self.kernel_h, self.kernel_w), np.int8)
        full[: self.channels] = array
        packed = np.zeros((words, lanes), np.int8)
        taps = full.reshape(self.blocks, self.block, self.kernel_h, self.kernel_w).transpose(0, 2, 3, 1)
        packed[:, : self.block] = taps.reshape(words, self.block)
        return packed.view(np.uint8)

    def unpack(self, packed: Bytes) -> NDArray[np.int8]:
        self._lanes(packed)
        words = np.ascontiguousarray(packed[:, : self.block]).view(np.int8)
        words = words.reshape(self.blocks, self.kernel_h, self.kernel_w, self.block).transpose(0, 3, 1, 2)
        return np.ascontiguousarray(words.reshape(-1, self.kernel_h, self.kernel_w)[: self.channels])


class BiasLayout(_Layout):
    """int32 [out] as one accumulator word (P int32, little-endian: four words of P bytes) for each `cols` channels.

    `scaled`: int32 [2, out], biases and multipliers: two accumulator words for each, the biases first.
    """

    kind: Literal["bias"] = "bias"
    out_channels: Size
    cols: Size
    scaled: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (SCALED_BIAS_WORDS, self.out_channels) if self.scaled else (self.out_channels,)

    @property
    def block_words(self) -> int:
        """Words of P bytes of a block."""
        return 4 * (SCALED_BIAS_WORDS if self.scaled else 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    @property
    def n_blocks(self) -> int:
        """Blocks of output channels."""
        return -(-self.out_channels // self.cols)

    def words(self, lanes: int) -> int:
        self._check(lanes, self.cols, "cols")
        return self.block_words * self.n_blocks

    def pack(self, array: NDArray[Any], lanes: int) -> Bytes:
        self._take(array)
        words = self.words(lanes)
        full = np.zeros((self.block_words // 4, self.n_blocks * self.cols), "<i4")
        full[:, : self.out_channels] = array
        packed = np.zeros((self.n_blocks, len(full), lanes), "<i4")
        packed[..., : self.cols] = full.reshape(len(full), self.n_blocks, self.cols).transpose(1, 0, 2)
        return packed.view(np.uint8).reshape(words, lanes)

    def unpack(self, packed: Bytes) -> NDArray[np.int32]:
        lanes = self._lanes(packed)
        kinds = self.block_words // 4
        sums = np.ascontiguousarray(packed).reshape(self.n_blocks, kinds, 4 * lanes).view("<i4")
        full = sums[..., : self.cols].transpose(1, 0, 2).reshape(kinds, -1)[:, : self.out_channels]
        return full.reshape(self.shape).astype(np.int32)


#: How the packed word array of a tensor is made from its array.
Layout = Annotated[ActivationLayout | WeightLayout | DepthwiseLayout | BiasLayout, Field(discriminator="kind")]
