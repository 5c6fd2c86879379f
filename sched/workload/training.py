"""A layer in training: after Y = X·W forwards, its two gradients dX = dY·Wᵀ and dW = Xᵀ·dY.

X is M x K, W is K x N, Y and dY are M x N. A convolution is this product of its unfolded input (im2col): M counts the
pixels of the whole batch, K the input channels times the taps of the kernel. The symbols are those of J. Kim et al.,
"Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient Order for DNN Training" (MICRO 2023), table 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from meshloom.hw.spec.config import ChipConfig, near

from . import shapes
from .layers import NO_CLAMP, ConvShape, WorkloadError, gemm_shape
from .training_tables import TABLES

PREFIX = "gradient:"
#: Names that mean a small network on edge chips and a large one on servers (the paper's table 4): (edge, server).
VARIANTS = {
    "bert": ("bert_tiny", "bert_large"),
    "t5": ("t5_small", "t5_large"),
    "yolo": ("yolov2_tiny", "yolov5l"),
}
#: Examples of a batch: on an edge chip, and for each core of a server (the paper, section 6.1).
EDGE_BATCH, SERVER_BATCH = 4, 8
#: A chip whose cores have arrays of so many elements is a server.
SERVER_ARRAY = 64 * 64

SYNTAX = """\
gradient:NETWORK/LAYER[,bBATCH]   both gradients of a layer with weights
gradient:NETWORK[,bBATCH]         of each of its layers
gradient:gemm:MxNxK               of a product of M x K by K x N
gradient:conv:...                 of a convolution, unfolded (im2col)
without bBATCH the batch is the chip's: 4, or 8 for each core of a server"""


@dataclass(frozen=True)
class TrainingLayer:
    """A layer with weights, its batch included in `shape`, whose name is the workload's.

    `count`: how often its network has it; `first`: it reads the network's input, so there is no dX.
    """

    shape: ConvShape
    count: int = 1
    first: bool = False

    @property
    def name(self) -> str:
        """The workload's name; `find` returns exactly this layer for it, on every chip."""
        return self.shape.name

    @property
    def m(self) -> int:
        """Rows of X and Y: output pixels of the whole batch, or rows of a matrix product."""
        return self.shape.batch * self.shape.out_h * self.shape.out_w

    @property
    def k(self) -> int:
        """Columns of X, rows of W: input channels x kernel rows x kernel columns."""
        return self.shape.depth

    @property
    def n(self) -> int:
        """Columns of W and Y: output channels."""
        return self.shape.out_channels

    @property
    def unfolded(self) -> bool:
        """Whether X has other elements than the layer's input: those under each window, and zeros of the padding."""
        s = self.shape
        return (s.kernel_h, s.kernel_w, s.stride_h, s.stride_w) != (1, 1, 1, 1) or s.y_shape[2:] != s.x_shape[2:]

    @property
    def macs(self) -> int:
        """Products of the pair: of dW, and of dX unless this is the first layer."""
        return self.m * self.k * self.n * (1 if self.first else 2)


@dataclass(frozen=True)
class Setting:
    """What a chip trains: the size of networks that come in two sizes, and the examples of a batch."""

    server: bool
    batch: int


def setting_of(chip: ChipConfig) -> Setting:
    """Edge or server, by the size of a core's array."""
    server = chip.rows * chip.cols >= SERVER_ARRAY
    return Setting(server, SERVER_BATCH * len(chip.cores) if server else EDGE_BATCH)


def is_training(name: str) -> bool:
    """Whether a name on the command line means gradients."""
    return name.startswith(PREFIX)


def names() -> tuple[str, ...]:
    """What `gradient:` can be followed by, networks first, then their layers."""
    return (*VARIANTS, *TABLES, *(f"{network}/{layer}" for network in TABLES for layer in _rows(network)))


@cache
def _rows(network: str) -> dict[str, TrainingLayer]:
    """The layers of a network for a batch of 1, by their names within it."""
    rows = TABLES[network]()
    return {row.shape.name.partition("/")[2]: TrainingLayer(row.shape, row.count, row.first) for row in rows}


def find(name: str, setting: Setting) -> tuple[TrainingLayer, ...]:
    """The layers that `name` (see `SYNTAX`) means. Raises WorkloadError, with the nearest names, when it means none."""
    text = name.removeprefix(PREFIX)
    if text.startswith(("gemm:", "conv:")):
        shape = shapes.parse(text)
        if shape.relu or shape.clamp != NO_CLAMP:
            raise WorkloadError(f"workload {name!r}: relu and clamp belong to the forward pass; leave them out")
        return (TrainingLayer(replace(shape, name=PREFIX + shape.name)),)
    text, _, option = text.partition(",")
    batch = _batch(name, option) if option else setting.batch
    network, _, layer = text.removesuffix("/*").partition("/")
    if network in VARIANTS:
        network = VARIANTS[network][setting.server]
    if network not in TABLES:
        choices = (*VARIANTS, *TABLES)
        hint = near(network, choices) or f"there are {', '.join(choices)}"
        raise WorkloadError(f"unknown workload {name!r}: {hint}; or {PREFIX}gemm:MxNxK, {PREFIX}conv:...")
    rows = _rows(network)
    if not layer:
        return tuple(_batched(f"{network}/{one}", row, batch) for one, row in rows.items())
    if layer not in rows:
        hint = near(layer, list(rows)) or f"{network} has {', '.join(rows)}"
        raise WorkloadError(f"unknown workload {name!r}: {hint}")
    return (_batched(f"{network}/{layer}", rows[layer], batch),)


def _batch(name: str, option: str) -> int:
    match = re.fullmatch(r"b([1-9]\d{0,5})", option)
    if not match:
        raise WorkloadError(f"workload {name!r}: {option!r} is not bBATCH, such as b4")
    return int(match[1])


def _batched(name: str, row: TrainingLayer, batch: int) -> TrainingLayer:
    """A layer of a table for a whole batch, under its name; a product has the rows of all examples."""
    shape, name = row.shape, f"{PREFIX}{name},b{batch}"
    if shape.in_h == shape.kernel_h == shape.kernel_w == 1:
        return replace(row, shape=gemm_shape(name, shape.in_w * batch, shape.out_channels, shape.in_channels))
    return replace(row, shape=replace(shape, name=name, batch=batch))
