"""A layer: its shape, and the arrays that make it concrete.

Everything the array computes is a convolution. A matrix product of M x K by K x N, and likewise a fully connected
layer with a batch of M, is a 1x1 convolution over a picture of one row and M columns with K input channels.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import INSTRUCTIONS, SCALE_SHIFT, Opcode

#: Largest multiplier m of the requantisation acc * m / 2**17.
SCALE_LIMIT = (1 << 16) - 1
#: `clamp` of a layer that is not clamped.
NO_CLAMP = 127


class WorkloadError(ValueError):
    """A layer that cannot be, or a name that means none; the message says which field and how to fix it."""


@dataclass(frozen=True)
class ConvShape:
    """Shape of one convolution, batch x in_channels x in_h x in_w to batch x out_channels x out_h x out_w.

    Sizes are in elements, padding in rows and columns of zeros, `dilation` is the distance of kernel taps in both
    directions. After requantisation the result is clamped below at 0 if `relu` and above at `clamp` (127: not clamped).
    Raises WorkloadError for a shape that has no output or whose kernel, stride, dilation or padding no GEMM
    instruction can express.
    """

    name: str
    batch: int
    in_channels: int
    in_h: int
    in_w: int
    out_channels: int
    kernel_h: int = 1
    kernel_w: int = 1
    stride_h: int = 1
    stride_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0
    dilation: int = 1
    relu: bool = False
    clamp: int = NO_CLAMP

    def __post_init__(self) -> None:
        for name, least, limit in _limits():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise WorkloadError(f"layer {self.name}: {name} = {value!r} must be an integer >= {least}")
            if limit is not None and value > limit:
                raise WorkloadError(f"layer {self.name}: {name} = {value}, a GEMM instruction holds at most {limit}")
        if self.out_h < 1 or self.out_w < 1:
            raise WorkloadError(
                f"layer {self.name}: a {self.kernel_h}x{self.kernel_w} kernel (dilation {self.dilation}) does not fit "
                f"the padded input of {self.in_h + self.pad_top + self.pad_bottom}"
                f"x{self.in_w + self.pad_left + self.pad_right}"
            )

    @property
    def out_h(self) -> int:
        """Output rows."""
        reach = (self.kernel_h - 1) * self.dilation + 1
        return (self.in_h + self.pad_top + self.pad_bottom - reach) // self.stride_h + 1

    @property
    def out_w(self) -> int:
        """Output columns."""
        reach = (self.kernel_w - 1) * self.dilation + 1
        return (self.in_w + self.pad_left + self.pad_right - reach) // self.stride_w + 1

    @property
    def depth(self) -> int:
        """Products that are summed for one output (K of the matrix product)."""
        return self.in_channels * self.kernel_h * self.kernel_w

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole layer, those with padding included."""
        return self.batch * self.out_channels * self.out_h * self.out_w * self.depth

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        """Shape of the input: batch, channels, rows, columns."""
        return self.batch, self.in_channels, self.in_h, self.in_w

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        """Shape of the weights: output channels, input channels, kernel rows, kernel columns."""
        return self.out_channels, self.in_channels, self.kernel_h, self.kernel_w

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        """Shape of the output: batch, channels, rows, columns."""
        return self.batch, self.out_channels, self.out_h, self.out_w


@cache
def _limits() -> tuple[tuple[str, int, int | None], ...]:
    """The fields of a shape that are numbers, with the least that each may be, and the most if there is one."""
    offsets = INSTRUCTIONS[Opcode.GEMM].offsets
    limits: list[tuple[str, int, int | None]] = []
    for field in fields(ConvShape):
        name = field.name
        if name in ("name", "relu"):
            continue
        # The sizes of a layer are cut into tiles by schedulers; these fields go into instructions as they are.
        cut = name.startswith(("in_", "out_")) or name not in offsets
        least = 0 if name.startswith("pad") or name == "clamp" else 1
        limits.append((name, least, None if cut else (1 << offsets[name][1]) - 1))
    return tuple(limits)


def gemm_shape(name: str, m: int, n: int, k: int, *, relu: bool = False, clamp: int = NO_CLAMP) -> ConvShape:
    """The matrix product of M x K by K x N: rows of the left matrix are columns of the picture."""
    return ConvShape(name, 1, k, 1, m, n, relu=relu, clamp=clamp)


@dataclass(frozen=True, eq=False)
class LayerData:
    """A layer with its numbers; y = clamp(sat8(RNE((conv(x, w) + bias) * scale / 2**17))), zero points 0.

    `x` int8 [B, C, H, W], `w` int8 [O, C, KH, KW], `bias` int32 [O], `scale` 0..65535. The arrays are made read-only.
    Raises WorkloadError when an array's type or shape is not the one that `shape` asks for.
    """

    shape: ConvShape
    x: NDArray[np.int8]
    w: NDArray[np.int8]
    bias: NDArray[np.int32]
    scale: int

    def __post_init__(self) -> None:
        shape = self.shape
        expected = (
            ("x", self.x, np.int8, shape.x_shape),
            ("w", self.w, np.int8, shape.w_shape),
            ("bias", self.bias, np.int32, (shape.out_channels,)),
        )
        for name, array, dtype, size in expected:
            if array.dtype != dtype or array.shape != size:
                raise WorkloadError(
                    f"layer {shape.name}: {name} is {array.dtype}{list(array.shape)}, "
                    f"must be {np.dtype(dtype)}{list(size)}"
                )
            array.setflags(write=False)
        if not 0 <= self.scale <= SCALE_LIMIT:
            raise WorkloadError(f"layer {shape.name}: scale = {self.scale} must be in 0..{SCALE_LIMIT}")


def _deviation(shape: ConvShape) -> float:
    """Standard deviation of the sums of random data."""
    # A uniform int8 has a mean square of (256**2 + 2) / 12, products of two independent ones its square.
    return (256**2 + 2) / 12 * shape.depth**0.5


def random_scale(shape: ConvShape) -> int:
    """`random_data(shape).scale`: it follows from the shape alone."""
    # sums and biases together have a variance of deviation**2 * (1 + 1/3)
    return max(1, round(42 * 2**SCALE_SHIFT / (_deviation(shape) * (4 / 3) ** 0.5)))


def random_data(shape: ConvShape) -> LayerData:
    """Data over the full int8 range, the same for the same name on every machine and NumPy version.

    Seeded by a hash of the name. The scale spreads the outputs (standard deviation about a third of the int8 range,
    so that a few saturate), and biases are as large as a typical sum.
    """
    # random_raw, because only the raw stream of a bit generator is guaranteed not to change between versions.
    seed = int.from_bytes(hashlib.sha256(shape.name.encode()).digest()[:16], "little")
    generator = np.random.PCG64(seed)

    def draw(size: tuple[int, ...], dtype: str) -> NDArray[np.generic]:
        count = int(np.prod(size))
        raw = generator.random_raw(-(-count * np.dtype(dtype).itemsize // 8))
        return np.asarray(raw).astype("<u8").view(dtype)[:count].reshape(size)

    x = draw(shape.x_shape, "<i1").astype(np.int8)
    w = draw(shape.w_shape, "<i1").astype(np.int8)
    bias = draw((shape.out_channels,), "<i4").astype(np.int64) * int(_deviation(shape) * 2) >> 32
    bias[bias == 0] = 1
    return LayerData(shape, x, w, bias.astype(np.int32), random_scale(shape))
