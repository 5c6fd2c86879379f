"""Which layers of a network go with a convolution: an addition or a max pool behind it, convolutions before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from meshloom.hw.spec.config import ChipConfig

from .graph import Graph, Layer, Window


@dataclass
class Fusion:
    """By the output of a convolution: the layer `behind` it, with the other operand of an addition ("": none), the
    depthwise convolution `before` it, and the convolution before that, `expand`. `gone`: outputs of layers that have no
    stage of their own."""

    behind: dict[str, tuple[Layer, str]] = field(default_factory=dict[str, tuple[Layer, str]])
    before: dict[str, Layer] = field(default_factory=dict[str, Layer])
    expand: dict[str, Layer] = field(default_factory=dict[str, Layer])
    gone: set[str] = field(default_factory=set[str])


def fuse(  # what `stages.cut` takes
    graph: Graph,
    chip: ChipConfig,
    apart: Collection[str],
    tight: bool,
    whole_inputs: Collection[str],
    expanded: Collection[str],
) -> Fusion:
    """What goes together; the arguments are those of `stages.cut`."""
    fusion = Fusion()
    # layers that one layer alone reads, and whose result is no output, by that result
    users = Counter((*graph.outputs, *(name for layer in graph.layers for name in layer.inputs)))
    single = {
        layer.output: layer
        for layer in graph.layers
        if layer.kind in ("conv", "depthwise") and users[layer.output] == 1
    }
    convs = {name: layer for name, layer in single.items() if layer.kind == "conv" and name not in apart}
    _fuse_additions(fusion, graph, convs)
    _fuse_pools(fusion, graph, chip, convs, tight)
    for layer in graph.layers:
        source = single.get(layer.inputs[0])
        if layer.kind != "conv" or layer.window != Window() or layer.output in apart or layer.output in whole_inputs:
            continue
        if source and source.kind == "depthwise":
            fusion.before[layer.output] = source
            fusion.gone.add(source.output)
    _expand(fusion, convs, expanded)
    return fusion


def _fuse_additions(fusion: Fusion, graph: Graph, convs: dict[str, Layer]) -> None:
    """Each addition goes with the later of its operands, if that is a convolution."""
    position = {layer.output: index for index, layer in enumerate(graph.layers)}
    for layer in graph.layers:
        if layer.kind != "add":
            continue
        late, early = sorted(layer.inputs, key=lambda name: position.get(name, -1), reverse=True)
        if late in convs and late != early:
            fusion.behind[late] = layer, early
            fusion.gone.add(layer.output)


def _fuse_pools(fusion: Fusion, graph: Graph, chip: ChipConfig, convs: dict[str, Layer], tight: bool) -> None:
    """A max pool goes with its convolution if all rows of that are needed, and enough of them fit OUT."""
    values = graph.values
    for layer in graph.layers:
        conv = convs.get(layer.inputs[0]) if layer.kind == "max_pool" else None
        if conv is None:
            continue
        w, value = layer.window, values[conv.output]
        read = (values[layer.output].height - 1) * w.stride_h + w.kernel_h - w.pad_top  # rows of the convolution
        whole = read >= value.height and w.stride_h <= w.kernel_h  # all are computed, as some window has them
        tall = w.kernel_h if tight else w.kernel_h + w.stride_h
        if whole and w.dilation == 1 and tall * value.width <= chip.core.out_words // 2:
            fusion.behind[conv.output] = layer, ""
            fusion.gone.add(layer.output)


def _expand(fusion: Fusion, convs: dict[str, Layer], expanded: Collection[str]) -> None:
    """The convolutions before depthwise ones that go with the convolutions `expanded`."""
    for name, source in list(fusion.before.items()):
        conv = convs.get(source.inputs[0])
        if name not in expanded or name not in fusion.before or conv is None:
            continue
        if conv.output not in (*fusion.behind, *fusion.expand):
            fusion.expand[name] = conv
            fusion.gone.add(conv.output)
            if own := fusion.before.pop(conv.output, None):
                fusion.gone.remove(own.output)
