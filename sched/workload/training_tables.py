"""The layers with weights of the networks that the paper on interleaved gradient order trains, from published shapes.

J. Kim et al., "Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient Order for DNN Training" (MICRO
2023), table 4, names networks and millions of parameters. Where a name stands for several networks, that with the
paper's number of parameters is taken. Embedding tables are looked up by the host. Left out are depthwise convolutions
(no matrix products), normalisation, biases, and the products of two activations in attention (no weights).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from . import networks
from .layers import ConvShape, gemm_shape

#: Tokens of each sentence in `bert_*` and `t5_*`: the paper names no length; of the usual ones this is the shortest.
TOKENS = 128
#: Regions of each picture on which the heads of Faster R-CNN are trained (Ren et al. 2015; torchvision's default).
REGIONS = 512


@dataclass(frozen=True)
class Row:
    """A layer of a table: its shape for a batch of 1 (`per_image`: the rows of a product belong to one example), how
    often the network has it, and whether it reads the network's input, whose gradient nobody wants."""

    shape: ConvShape
    count: int = 1
    first: bool = False


@dataclass
class _Table:
    """Rows as they are drawn up; `channels` and `size` (rows and columns of a square map) of the last convolution."""

    name: str
    channels: int = 3
    size: int = 0
    rows: list[Row] = field(default_factory=list[Row])

    def conv(self, name: str, out: int, kernel: int = 1, stride: int = 1, *, pad: int | None = None) -> None:
        """A convolution of the last map, padded by half its kernel unless `pad` says otherwise."""
        around = kernel // 2 if pad is None else pad
        shape = ConvShape(
            f"{self.name}/{name}", 1, self.channels, self.size, self.size, out, kernel, kernel, stride, stride,
            around, around, around, around,
        )  # fmt: skip
        self.rows.append(Row(shape, first=not self.rows))
        self.channels, self.size = out, shape.out_w

    def at(self, channels: int, size: int) -> None:
        """Goes on from another map."""
        self.channels, self.size = channels, size

    def linear(self, name: str, inputs: int, outputs: int, rows: int = 1, count: int = 1, first: bool = False) -> None:
        """A fully connected layer on `rows` rows of each example."""
        self.rows.append(Row(gemm_shape(f"{self.name}/{name}", rows, outputs, inputs), count, first))


def _rows(shapes: tuple[ConvShape, ...], reads_input: bool = True) -> tuple[Row, ...]:
    return tuple(Row(replace(shape, relu=False), first=reads_input and not at) for at, shape in enumerate(shapes))


def _rcnn() -> tuple[Row, ...]:
    """Faster R-CNN (Ren et al. 2015) with 19M parameters: MobileNetV3-Large (Howard et al. 2019, "Searching for
    MobileNetV3", table 1) with a feature pyramid at 320x320, as torchvision's `fasterrcnn_mobilenet_v3_large_320_fpn`,
    91 classes."""
    table = _Table("rcnn", size=320)
    table.conv("conv1", 16, 3, 2)
    # kernel of the depthwise layer, expansion, output, width of squeeze and excitation, stride
    blocks = (
        (3, 16, 16, 0, 1), (3, 64, 24, 0, 2), (3, 72, 24, 0, 1), (5, 72, 40, 24, 2), (5, 120, 40, 32, 1),
        (5, 120, 40, 32, 1), (3, 240, 80, 0, 2), (3, 200, 80, 0, 1), (3, 184, 80, 0, 1), (3, 184, 80, 0, 1),
        (3, 480, 112, 120, 1), (3, 672, 112, 168, 1), (5, 672, 160, 168, 2), (5, 960, 160, 240, 1),
        (5, 960, 160, 240, 1),
    )  # fmt: skip
    for index, (_, wide, out, squeeze, stride) in enumerate(blocks, start=1):
        if wide != table.channels:
            table.conv(f"block{index}_expand", wide)
        table.at(wide, -(-table.size // stride))
        if squeeze:
            table.linear(f"block{index}_squeeze", wide, squeeze)
            table.linear(f"block{index}_excite", squeeze, wide)
        table.conv(f"block{index}_project", out)
    table.conv("conv2", 960)
    for level, channels in enumerate((160, 960)):
        table.at(channels, table.size)
        table.conv(f"fpn{level}_inner", 256)
        table.conv(f"fpn{level}_layer", 256, 3)
    for level, size in enumerate((table.size, table.size, table.size // 2)):
        for name, out, kernel in (("conv", 256, 3), ("score", 15, 1), ("box", 60, 1)):
            table.at(256, size)
            table.conv(f"rpn{level}_{name}", out, kernel)
    for name, inputs, outputs in (
        ("fc6", 256 * 7 * 7, 1024),
        ("fc7", 1024, 1024),
        ("score", 1024, 91),
        ("box", 1024, 364),
    ):
        table.linear(name, inputs, outputs, REGIONS)
    return tuple(table.rows)


def _dlrm() -> tuple[Row, ...]:
    """DLRM (Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and Recommendation Systems")
    as MLPerf trains it on Criteo's terabyte: 13 numbers and 26 embeddings of 128, 25B parameters with their tables."""
    table = _Table("dlrm")
    for part, widths in (("bottom", (13, 512, 256, 128)), ("top", (479, 1024, 1024, 512, 256, 1))):
        for index, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False), start=1):
            table.linear(f"{part}{index}", inputs, outputs, first=part == "bottom" and index == 1)
    return tuple(table.rows)


def _yolov2_tiny() -> tuple[Row, ...]:
    """Tiny YOLOv2, 416x416, 80 classes, 11M parameters (Redmon and Farhadi 2016; the authors' yolov2-tiny.cfg)."""
    table = _Table("yolov2_tiny", size=416)
    for index, width in enumerate((16, 32, 64, 128, 256, 512, 1024, 512), start=1):
        table.conv(f"conv{index}", width, 3)
        if index <= 5:
            table.at(width, table.size // 2)
    table.conv("detect", 425)
    return tuple(table.rows)


def _yolov5l() -> tuple[Row, ...]:
    """YOLOv5 large, 640x640, 80 classes, 47M parameters (Ultralytics, release 6.0, yolov5l.yaml)."""
    table = _Table("yolov5l", size=640)

    def c3(name: str, out: int, repeats: int) -> None:
        """Cross-stage partial block: two 1x1 branches, bottlenecks of 1x1 and 3x3 on one, and a 1x1 of both."""
        inputs, half = table.channels, out // 2
        table.conv(f"{name}_cv1", half)
        for index in range(1, repeats + 1):
            table.conv(f"{name}_m{index}_cv1", half)
            table.conv(f"{name}_m{index}_cv2", half, 3)
        table.at(inputs, table.size)
        table.conv(f"{name}_cv2", half)
        table.at(out, table.size)
        table.conv(f"{name}_cv3", out)

    table.conv("conv1", 64, 6, 2, pad=2)
    for stage, (width, repeats) in enumerate(((128, 3), (256, 6), (512, 9), (1024, 3)), start=2):
        table.conv(f"conv{stage}", width, 3, 2)
        c3(f"c3_{stage}", width, repeats)
    table.conv("sppf_cv1", 512)
    table.at(2048, table.size)
    table.conv("sppf_cv2", 1024)
    table.conv("up1", 512)
    table.at(1024, 40)
    c3("c3_up1", 512, 3)
    table.conv("up2", 256)
    table.at(512, 80)
    c3("c3_up2", 256, 3)
    for stage, width in enumerate((256, 512), start=1):
        table.conv(f"down{stage}", width, 3, 2)
        table.at(2 * width, table.size)
        c3(f"c3_down{stage}", 2 * width, 3)
    for width, size in ((256, 80), (512, 40), (1024, 20)):
        table.at(width, size)
        table.conv(f"detect{size}", 255)
    return tuple(table.rows)


def _bert(name: str, layers: int, hidden: int, inner: int) -> tuple[Row, ...]:
    table = _Table(name)
    for part, inputs, outputs in (
        ("qkv", hidden, 3 * hidden),
        ("out", hidden, hidden),
        ("ff1", hidden, inner),
        ("ff2", inner, hidden),
    ):
        table.linear(part, inputs, outputs, TOKENS, layers)
    table.linear("pooler", hidden, hidden)
    return tuple(table.rows)


def _t5(name: str, layers: int, model: int, heads: int, inner: int) -> tuple[Row, ...]:
    """T5 (Raffel et al. 2019, section 3.1.1 and 3.7): heads of 64, as many layers in the encoder as in the decoder."""
    table = _Table(name)
    joint = 64 * heads
    table.linear("self_qkv", model, 3 * joint, TOKENS, 2 * layers)
    table.linear("self_out", joint, model, TOKENS, 2 * layers)
    table.linear("cross_q", model, joint, TOKENS, layers)
    table.linear("cross_kv", model, 2 * joint, TOKENS, layers)
    table.linear("cross_out", joint, model, TOKENS, layers)
    table.linear("ff1", model, inner, TOKENS, 2 * layers)
    table.linear("ff2", inner, model, TOKENS, 2 * layers)
    table.linear("vocabulary", model, 32128, TOKENS)
    return tuple(table.rows)


#: Every network by name. BERT: Devlin et al. 2018, section 3 (large); 14M parameters are those of TinyBERT with
#: 4 layers (Jiao et al. 2019, section 4.2).
TABLES: dict[str, Callable[[], tuple[Row, ...]]] = {
    "rcnn": _rcnn,
    "goo": lambda: _rows(networks.googlenet()),
    "ncf": lambda: _rows(networks.ncf(), reads_input=False),
    "res": lambda: _rows(networks.resnet50()),
    "dlrm": _dlrm,
    "mob": lambda: _rows(networks.mobilenet_v1()),
    "yolov2_tiny": _yolov2_tiny,
    "yolov5l": _yolov5l,
    "bert_tiny": lambda: _bert("bert_tiny", 4, 312, 1200),
    "bert_large": lambda: _bert("bert_large", 24, 1024, 4096),
    "t5_small": lambda: _t5("t5_small", 6, 512, 8, 2048),
    "t5_large": lambda: _t5("t5_large", 24, 1024, 16, 4096),
}
