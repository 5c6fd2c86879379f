"""A network that can be trained: a chain of layers with weights, each with the ReLU and the max pool behind it.

What has a gradient on the chip: convolutions (dX and dW are convolutions too), fully connected layers, ReLU, and max
pools whose windows do not overlap. Every other operator of a `Graph` is for inference only and is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .graph import Graph, Layer, Window
from .layers import NO_CLAMP, ConvShape, WorkloadError

#: Largest side of a pool: a VEC repeats a word up to four times in each direction.
MOST_POOL = 4
#: Kinds of layers that have a gradient.
TRAINED = ("conv", "max_pool")


@dataclass(frozen=True)
class TrainedLayer:
    """A layer with weights. `shape`: of one example, its `relu` included; `pool`: side of the windows of the max pool
    behind it, 1 if there is none."""

    shape: ConvShape
    pool: int = 1

    @property
    def name(self) -> str:
        return self.shape.name

    @property
    def flat(self) -> bool:
        """Whether the kernel covers the whole input, as a fully connected layer's does."""
        s = self.shape
        return (s.kernel_h, s.kernel_w, s.out_h, s.out_w) == (s.in_h, s.in_w, 1, 1)

    @property
    def y_shape(self) -> tuple[int, int, int]:
        """Channels, rows, columns of its result before the pool."""
        return self.shape.y_shape[1:]

    @property
    def pooled_shape(self) -> tuple[int, int, int]:
        """The same behind the pool: what the next layer reads."""
        channels, height, width = self.y_shape
        return channels, height // self.pool, width // self.pool


@dataclass(frozen=True)
class TrainingNet:
    """A chain of layers; the last one's sums are the scores of the classes (logits)."""

    name: str
    layers: tuple[TrainedLayer, ...]

    @property
    def x_shape(self) -> tuple[int, int, int]:
        """Channels, rows, columns of an example."""
        return self.layers[0].shape.x_shape[1:]

    @property
    def classes(self) -> int:
        """Scores for each example."""
        return self.layers[-1].shape.out_channels

    @property
    def macs(self) -> int:
        """Products for one example: of the forward pass, of dW, and of dX of all layers but the first."""
        return sum(layer.shape.macs * (3 if index else 2) for index, layer in enumerate(self.layers))


def training_net(graph: Graph) -> TrainingNet:
    """The network of a graph in training; of its weights only the shapes count, biases must be zero.

    Raises WorkloadError, naming the layer, for whatever has no gradient here.
    """

    def no(layer: Layer, why: str) -> WorkloadError:
        return WorkloadError(f"network {graph.name}: layer {layer.output} ({layer.kind}) cannot be trained: {why}")

    layers: list[TrainedLayer] = []
    before = graph.inputs[0].name
    for layer in graph.layers:
        if layer.kind not in TRAINED:
            raise no(layer, f"it has a forward pass only; gradients are there for {', '.join(TRAINED)} and relu")
    for layer in graph.layers:
        if layer.inputs != (before,):
            raise no(layer, f"it reads {layer.inputs[0]}, must read {before}: a network in training is a chain")
        if layer.clamp != NO_CLAMP:
            raise no(layer, f"clamp = {layer.clamp}; the gradient of a clamp is not there, leave it out")
        before = layer.output
        if layer.kind == "conv":
            shape = replace(graph.conv_shape(layer), name=layer.output)
            if why := _why_not(shape, layer, first=not layers):
                raise no(layer, why)
            layers.append(TrainedLayer(shape))
            continue
        side, value = layer.window.kernel_h, graph.value(layer.inputs[0])
        window = Window(side, side, side, side)
        if layer.window != window or side > MOST_POOL or value.height % side or value.width % side:
            raise no(layer, f"its windows must be square, of at most {MOST_POOL}x{MOST_POOL}, side by side, and cover "
                     f"the {value.height}x{value.width} map exactly")  # fmt: skip
        if not layers or layers[-1].pool > 1 or not layers[-1].shape.relu:
            raise no(layer, "it must follow a convolution with relu")
        layers[-1] = replace(layers[-1], pool=side)
    last = layers[-1] if layers else None
    for layer in layers[:-1]:
        if not layer.shape.relu:
            raise WorkloadError(f"network {graph.name}: layer {layer.name} cannot be trained: it must have a relu")
    if last is None or not last.flat or last.shape.relu or last.pool > 1 or graph.outputs != (last.name,):
        raise WorkloadError(
            f"network {graph.name} cannot be trained: it must end with a fully connected layer without relu, whose "
            "sums are the scores of the classes"
        )
    return TrainingNet(graph.name, tuple(layers))


def _why_not(shape: ConvShape, layer: Layer, first: bool) -> str:
    """Why a convolution cannot be trained; empty if it can."""
    if layer.bias is not None and layer.bias.any():
        return "it has a bias, whose gradient is not there; make it zero"
    if shape.dilation > 1:
        return f"dilation = {shape.dilation}, must be 1"
    if not first and (shape.stride_h, shape.stride_w) != (1, 1):
        return f"stride = {shape.stride_h}x{shape.stride_w}; behind the first layer it must be 1"
    if shape.pad_top >= shape.kernel_h or shape.pad_left >= shape.kernel_w:
        return f"padding of {shape.pad_top} rows and {shape.pad_left} columns must be less than its kernel"
    return ""
