"""A layer as the array sees it: blocks, rows and windows, after the two rewritings that make it cheaper.

* A 1x1 layer of stride 1 has no neighbourhood: its map is *flattened* into rows of one pixel, so that tiles may end
  anywhere and not just at the end of a row.
* A layer of very few channels is *packed*: the host writes the window of each output column side by side into words
  (`packed_kw` of the activation layout), which turns a `kernel_h x kernel_w` layer into a `kernel_h x 1` one. With the
  window's rows, too (`whole`), it becomes a 1x1 one, with fewer lanes left empty, and maybe more words to fetch.
* Rows that a one-row kernel strides over are never fetched (`row_step`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, gcd

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode
from meshloom.hw.spec.timing import weight_words

from ...workload.layers import ConvShape

#: Layers of at most this many input channels may be packed by the host.
PACKED_CHANNELS = 4
#: Limits of the GEMM instruction that a tiling can run into.
_GEMM = INSTRUCTIONS[Opcode.GEMM]
MAX_PIXELS = _GEMM.most("pixels")
MAX_IN_WIDTH = _GEMM.most("in_w")
MAX_N_BLOCKS = _GEMM.most("n_blocks")
MAX_K_BLOCKS = _GEMM.most("k_blocks")
MAX_PLANE = _GEMM.most("a_plane")
MAX_PAD = min(_GEMM.most("pad_top"), _GEMM.most("pad_left"))
#: Rows and columns of a kernel, each (first, end).
Taps = tuple[tuple[int, int], tuple[int, int]]
#: Row width given to the pixels of a flattened map that are too many for one row.
FLAT_WIDTH = 512


class DoesNotFit(ValueError):
    """A layer (or one tiling of it) that this chip cannot run; the message says which limit and by how much."""


@dataclass(frozen=True)
class Problem:
    """One layer in blocks and rows. `in_rows`, `out_rows` count rows of one image; `k_blocks`, `n_blocks` words.

    With `int4` a block of input channels is a pair of words of channels (`depth`): what the array takes in two windows,
    of which B has a word of scales and one for each column.

    `in_rows` counts the rows that are fetched: row r of them is row `r * row_step` of the `stored_rows` in DRAM.
    """

    images: int
    k_blocks: int
    n_blocks: int
    in_rows: int
    in_w: int
    out_rows: int
    out_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation: int
    pad_top: int
    pad_left: int
    row_step: int
    stored_rows: int
    packed: bool
    flat: bool
    lanes: int
    rows: int
    cols: int
    int4: bool = False

    @property
    def depth(self) -> int:
        """Words of channels of an input block, and windows of the array for each of its taps."""
        return 2 if self.int4 else 1

    @property
    def tap_words(self) -> int:
        """Words of B for a tap of an input block and an output block."""
        return weight_words(self.depth, self.cols, self.int4)

    @property
    def taps(self) -> int:
        """Windows of one channel block."""
        return self.kernel_h * self.kernel_w

    def part(self, taps: Taps) -> Problem:
        """The same with some rows and columns of the kernel alone. Its padding may be below 0."""
        (ky0, ky1), (kx0, kx1) = taps
        return replace(
            self,
            kernel_h=ky1 - ky0,
            kernel_w=kx1 - kx0,
            pad_top=self.pad_top - ky0 * self.dilation,
            pad_left=self.pad_left - kx0 * self.dilation,
        )

    @property
    def quantum(self) -> int:
        """Fewest output rows whose pixels fill the array's rows without a remainder."""
        return self.rows // gcd(self.out_w, self.rows)

    @property
    def ideal_cycles(self) -> float:
        """Cycles of one core that wastes no window."""
        pixels = self.images * self.out_rows * self.out_w
        return pixels / self.rows * self.n_blocks * self.k_blocks * self.depth * self.taps * self.lanes

    def input_rows(self, first: int, last: int) -> tuple[int, int, int]:
        """(first row, end row, zero rows above) of the input that output rows [first, last) read."""
        return _reach(first, last, self.stride_h, self.pad_top, self.kernel_h, self.dilation, self.in_rows)

    def input_columns(self, first: int, last: int) -> tuple[int, int, int]:
        """The same for columns."""
        return _reach(first, last, self.stride_w, self.pad_left, self.kernel_w, self.dilation, self.in_w)


def _reach(first: int, last: int, stride: int, pad: int, kernel: int, dilation: int, size: int) -> tuple[int, int, int]:
    begin = first * stride - pad
    end = (last - 1) * stride - pad + (kernel - 1) * dilation + 1
    if begin >= size or end <= 0:  # nothing but padding, which only a part of a kernel reads: all of it lies above
        return 0, 1, end - begin
    return max(begin, 0), min(end, size), max(-begin, 0)


def whole_windows(shape: ConvShape, chip: ChipConfig) -> bool:
    """Whether a layer whose input the host packs is better off with whole windows than with kernel columns: by the
    larger of what the arrays and the DRAM channels take, and then by both."""

    def cost(words: int, windows: int) -> tuple[float, float]:
        blocks = ceil(shape.out_channels / chip.cols)
        groups = shape.batch * shape.out_h * shape.out_w / chip.rows / len(chip.cores)
        compute = groups * blocks * windows * chip.lanes
        fetch = shape.batch * words * max(1.0, chip.lanes / chip.dram.bytes_per_cycle) / len(chip.drams)
        return max(compute, fetch), compute + fetch

    across = ceil(shape.kernel_w * shape.in_channels / chip.lanes)
    whole = ceil(shape.kernel_h * shape.kernel_w * shape.in_channels / chip.lanes)
    rows = cost(shape.in_h * shape.out_w * across, shape.kernel_h * across)
    return shape.kernel_h > 1 and cost(shape.out_h * shape.out_w * whole, whole) < rows


def pose(
    shape: ConvShape,
    chip: ChipConfig,
    packed: bool | None = None,
    flatten: bool = True,
    whole: bool = False,
    int4: bool = False,
) -> Problem:
    """The layer on this chip. `packed`: whether the host packs its input (None: if that is cheaper), with `whole`
    windows or kernel columns; `flatten`: whether a map without neighbourhood may be flattened; `int4`: with weights of
    four bits, which it must be able to have.

    Raises DoesNotFit when a field of the GEMM instruction is too narrow for it.
    """
    lanes = chip.lanes
    for name, value, limit in (
        ("kernel_h", shape.kernel_h, 15),
        ("kernel_w", shape.kernel_w, 15),
        ("stride_h", shape.stride_h, 7),
        ("stride_w", shape.stride_w, 7),
        ("dilation", shape.dilation, 7),
        ("pad_top", shape.pad_top, 15),
        ("pad_left", shape.pad_left, 15),
    ):
        if value > limit:
            raise DoesNotFit(f"layer {shape.name}: {name} = {value} exceeds what a GEMM instruction holds ({limit})")
    for side, pad, kernel in (
        ("top", shape.pad_top, shape.kernel_h),
        ("bottom", shape.pad_bottom, shape.kernel_h),
        ("left", shape.pad_left, shape.kernel_w),
        ("right", shape.pad_right, shape.kernel_w),
    ):
        if pad > (kernel - 1) * shape.dilation:
            raise DoesNotFit(
                f"layer {shape.name}: pad_{side} = {pad} makes windows of zeros only; "
                f"a window of {(kernel - 1) * shape.dilation + 1} allows {(kernel - 1) * shape.dilation} at most"
            )
    k_blocks = ceil(shape.in_channels / lanes)
    kernel_w, stride_w, dilation, pad_left, in_w = (
        shape.kernel_w,
        shape.stride_w,
        shape.dilation,
        shape.pad_left,
        shape.in_w,
    )
    packed_blocks = ceil(shape.kernel_w * shape.in_channels / lanes)
    if packed is None:
        packed = (
            shape.in_channels <= PACKED_CHANNELS
            and shape.kernel_w > 1
            and dilation == 1
            and packed_blocks < k_blocks * shape.kernel_w
        )
    if packed:
        k_blocks, kernel_w, stride_w, pad_left, in_w = packed_blocks, 1, 1, 0, shape.out_w
    kernel_h, pad_top, stored_rows = shape.kernel_h, shape.pad_top, shape.in_h
    in_rows, out_rows, out_w, stride_h, row_step = shape.in_h, shape.out_h, shape.out_w, shape.stride_h, 1
    if packed and whole:
        k_blocks = ceil(shape.kernel_h * shape.kernel_w * shape.in_channels / lanes)
        kernel_h, pad_top, stride_h, in_rows, stored_rows = 1, 0, 1, out_rows, out_rows
    if kernel_h == 1 and stride_h > 1:  # pads are 0 by now
        row_step, stride_h, in_rows = stride_h, 1, out_rows
    flat = flatten and kernel_h == kernel_w == stride_w == stride_h == row_step == 1 and in_w == out_w
    if flat:
        in_rows = stored_rows = out_rows = out_rows * out_w
        in_w = out_w = 1
    return Problem(
        images=shape.batch,
        k_blocks=k_blocks // 2 if int4 else k_blocks,
        n_blocks=ceil(shape.out_channels / chip.cols),
        in_rows=in_rows,
        in_w=in_w,
        out_rows=out_rows,
        out_w=out_w,
        kernel_h=kernel_h,
        kernel_w=kernel_w,
        stride_h=stride_h,
        stride_w=stride_w,
        dilation=dilation,
        pad_top=pad_top,
        pad_left=pad_left,
        row_step=row_step,
        stored_rows=stored_rows,
        packed=packed,
        flat=flat,
        lanes=lanes,
        rows=chip.rows,
        cols=chip.cols,
        int4=int4,
    )
