"""Every workload by name: built-in networks, single layers of them, and shapes written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from meshloom.hw.spec.config import near

from . import networks, resnet8, shapes, topology, zoo
from .layers import ConvShape, LayerData, WorkloadError, random_data, random_scale


@dataclass(frozen=True)
class Workload:
    """One layer to run. `real`: trained weights and a real activation; otherwise random data seeded by the name."""

    shape: ConvShape
    real: bool = False
    _load: Callable[[ConvShape], LayerData] = field(default=random_data, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name under which `find` returns exactly this layer."""
        return self.shape.name

    def data(self) -> LayerData:
        """The layer's numbers, made or read anew at each call."""
        return self._load(self.shape)

    @property
    def scale(self) -> int:
        """The requantisation's multiplier: all that schedulers want of the numbers. Random data is not drawn for it."""
        return self.data().scale if self.real else random_scale(self.shape)


def _of_shape(shape: ConvShape) -> LayerData:
    """Random data of a layer from a file: that of its shape, wherever the file lies."""
    return replace(random_data(replace(shape, name=shapes.describe(shape))), shape=shape)


def _trained(shape: ConvShape) -> LayerData:
    """A layer of resnet8 with its weights. Workloads are sent to other processes, so this has a name."""
    return resnet8.layer_data(shape.name.partition("/")[2])


@cache
def _networks() -> dict[str, dict[str, Workload]]:
    tables = {"resnet8": [Workload(resnet8.shape(layer), True, _trained) for layer in resnet8.layer_names()]}
    for table in (
        networks.resnet18,
        networks.resnet50,
        networks.resnet152,
        networks.vgg16,
        networks.vgg19,
        networks.googlenet,
        networks.inception_v3,
        networks.yolov2,
        networks.mobilenet_v1,
        networks.ncf,
        networks.transformer,
        networks.transformer_whole,
    ):
        tables[table.__name__] = [Workload(shape) for shape in table()]
    return {network: {layer.name: layer for layer in layers} for network, layers in tables.items()}


@cache
def _layers(network: str) -> dict[str, Workload]:
    """The layers of a built-in network by name; empty if there is none. Of trained ones but resnet8, which no table
    lists, the convolutions of the graph, with random data."""
    if network in zoo.TRAINED and network not in _networks():
        graph = zoo.load(network)
        shapes = (graph.conv_shape(layer) for layer in graph.layers if layer.kind == "conv")
        return {shape.name: Workload(shape) for shape in shapes}
    return _networks().get(network, {})


def names() -> tuple[str, ...]:
    """The built-in names that tables list: each network, followed by its layers."""
    return tuple(name for network, layers in _networks().items() for name in (network, *layers))


def find(name: str) -> tuple[Workload, ...]:
    """The layers that `name` means.

    A network (`resnet8` or `resnet8/*`: all its layers, each by itself), a layer (`vgg16/conv4_2`), `regression` (what
    `make sim` runs), a shape (`shapes.SYNTAX`), or layers of a topology of SCALE-Sim (`alexnet.csv`,
    `alexnet.csv/Conv1`). Raises WorkloadError, with the nearest names, when it means none.
    """
    if name.startswith(("conv:", "gemm:")):
        return (Workload(shapes.parse(name)),)
    if name == "regression":
        return regression()
    name = name.removesuffix("/*")
    if (file := topology.split(name)) is not None:
        return tuple(Workload(shape, False, _of_shape) for shape in topology.layers(*file))
    network = _layers(name.partition("/")[0])
    if name in network:
        return (network[name],)
    if network and "/" not in name:
        return tuple(network.values())
    check_whole(name)
    choices = list(network) or [*zoo.names(), "regression"]
    choices_of = list(network) or list(dict.fromkeys((*zoo.names(), *names(), "regression")))
    hint = near(name, choices_of) or f"there are {', '.join(choices)}, conv: and gemm:"
    raise WorkloadError(f"unknown workload {name!r}: {hint}")


#: Layers shaped like well-known ones, some reduced so that gates are simulated in seconds; then odd sizes.
_REGRESSION = (
    # ResNet-50: a quarter of its first layer; each kind of 1x1 and 3x3; both strides; 7x7 maps; its fc
    "conv:112x112x3-64,k7,s2,p3,relu",
    "resnet50/conv2_1_1",
    "resnet50/conv3_2_1",
    "resnet50/conv3_2_2",
    "resnet50/conv3_2_3",
    "resnet50/conv4_1_shortcut",
    "resnet50/conv5_1_2",
    "resnet50/conv5_2_1",
    "resnet50/fc",
    # VGG-16: conv1_1 on a sixteenth of the picture, conv2_2 on a quarter, conv4_2 with an eighth of the products
    "conv:56x56x3-64,k3,p1,relu",
    "conv:56x56x128-128,k3,p1,relu",
    "conv:28x28x256-128,k3,p1,relu",
    # MobileNet-v1
    "mobilenet_v1/pw7",
    # odd sizes
    "conv:7x7x33-5,k5,p2",
    "conv:7x7x64-48,s2",
    "conv:9x9x33-3,b2,relu",
    "conv:13x11x5-33,k3,s2,p1,d2",
    "conv:14x14x5-33,k5,s2,p2,b2,relu,clamp96",
    "conv:15x9x3-5,k7,s2,p3,b3,relu",
    "conv:14x14x33-33,k3,p2,d2,relu",
    "conv:10x6x20-24,k3x5,s1x2,p1x2",
    "conv:32x32x16-32,k3,s2,p0x0x1x1,b2,relu",
    # matrix products, and a fully connected layer with a batch of 3
    "gemm:64x64x64",
    "gemm:256x256x256",
    "gemm:33x5x77",
    "gemm:3x10x64",
    "gemm:1x130x515",
)


@cache
def regression() -> tuple[Workload, ...]:
    """What `make sim` runs: every layer of ResNet-8 with its real activation, then `_REGRESSION`, which says why."""
    return *find("resnet8"), *(layer for name in _REGRESSION for layer in find(name))


def check_whole(name: str) -> None:
    """Raises WorkloadError for a layer of a file."""
    file, mark, layer = name.partition(".onnx/")
    if mark and layer:
        raise WorkloadError(
            f"{name}: a layer of a file cannot run by itself; run {file}.onnx (--layers lists its layers)"
        )
