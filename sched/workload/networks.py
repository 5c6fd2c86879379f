"""Well-known networks at their usual input sizes: shapes only, with random weights.

Layers are called conv<stage>_<block>_<index>; `shortcut` in place of the index is the 1x1 projection beside a block.
A layer that a residual addition follows has no ReLU of its own; `add<stage>_<block>` has it.
"""

from __future__ import annotations

from collections.abc import Callable

from .graph import Graph
from .layers import ConvShape, gemm_shape
from .plan import BRANCH_SPREAD, NetworkDraft


def resnet50() -> tuple[ConvShape, ...]:
    """ResNet-50, 224x224, 53 convolutions and fc (He et al. 2015, table 1, 50 layers).

    Version 1.5: the stride of stages 3 to 5 is in the 3x3 convolution (in the original it is in the first 1x1).
    """
    return _resnet50().table()


def resnet152() -> tuple[ConvShape, ...]:
    """ResNet-152, 224x224, 155 convolutions and fc (He et al. 2015, table 1, 152 layers), version 1.5 as `resnet50`."""
    return _resnet152().table()


def resnet18() -> tuple[ConvShape, ...]:
    """ResNet-18, 224x224, 20 convolutions and fc (He et al. 2015, table 1, 18 layers)."""
    return _resnet18().table()


def vgg16() -> tuple[ConvShape, ...]:
    """VGG-16, 224x224, 13 convolutions conv<stage>_<index> and 3 fully connected layers (Simonyan 2014, column D).

    fc6 stands here as the matrix product of a flattened map; in the graph it is a convolution as large as the map.
    """
    return _flattened(_vgg16())


def vgg19() -> tuple[ConvShape, ...]:
    """VGG-19, 224x224, 16 convolutions and 3 fully connected layers as those of `vgg16` (Simonyan 2014, column E)."""
    return _flattened(_vgg19())


def _flattened(plan: NetworkDraft) -> tuple[ConvShape, ...]:
    """The layers of a VGG network, fc6 as the product that it is."""
    fc6 = f"{plan.name}/fc6"
    flat = {fc6: gemm_shape(fc6, 1, 4096, 25088, relu=True)}
    return tuple(flat.get(shape.name, shape) for shape in plan.table())


def mobilenet_v1() -> tuple[ConvShape, ...]:
    """MobileNet-v1 1.0, 224x224: conv1, the pointwise layers pw1..pw13 and fc (Howard et al. 2017, table 1).

    The depthwise layers dw1..dw13 between them are no matrix products; they are in the graph only.
    """
    return _mobilenet_v1().table()


def googlenet() -> tuple[ConvShape, ...]:
    """GoogLeNet (Inception v1), 224x224, 57 convolutions and fc (Szegedy et al. 2014, table 1)."""
    return _googlenet().table()


def inception_v3() -> tuple[ConvShape, ...]:
    """Inception-v3, 299x299, 94 convolutions and fc (Szegedy et al. 2015, "Rethinking the Inception Architecture for
    Computer Vision", table 1 and figures 5 to 7, 10; the widths of its modules are those of the authors' program)."""
    return _inception_v3().table()


def yolov2() -> tuple[ConvShape, ...]:
    """YOLOv2, 416x416, 80 classes, 23 convolutions (Redmon, Farhadi 2016; layers of the authors' yolov2.cfg)."""
    return _yolov2().table()


def ncf() -> tuple[ConvShape, ...]:
    """Neural collaborative filtering as MLPerf trains it, 4 matrix products (He et al. 2017, NeuMF; layers 256, 256,
    128, 64 and 64 factors) for one pair of user and item.

    Its other two layers look embeddings up in tables of 138,493 users and 26,744 items, which is no product: the host
    does it, and the product of the two factors too.
    """
    return _ncf().table()


def transformer() -> tuple[ConvShape, ...]:
    """Transformer, base model (Vaswani et al. 2017, table 3), over `TOKENS` tokens on both sides, 97 matrix products.

    Vocabulary of 33,708 (MLPerf). The products of weights and activations alone: see `graph` for what is left out.
    """
    return _transformer().table()


def transformer_whole() -> tuple[ConvShape, ...]:
    """The products of weights and activations of the same with attention and normalisation: see `graph`."""
    return _transformer_whole().table()


def graph(name: str) -> Graph:
    """The whole network `name` (one of GRAPHS) with random weights: one picture in, its scores (yolov2: its map) out.

    What differs from the originals: googlenet has neither local response normalisation nor the auxiliary heads of
    training, nor has inception_v3 its one; yolov2 has ReLU instead of leaky ReLU; batch normalisation is part of
    weights and biases; dropout and the final softmax are left out. transformer has neither embedding nor layer
    normalisation, and of attention only the four projections: what weighs the values by queries and keys (two products
    of activations and a softmax) is left out, so that the output projection reads the values, and queries and keys are
    outputs. transformer_whole has all that: attention in eight heads, softmax, layer normalisation with factors and
    offsets; of the original it lacks the embedding, the mask of the decoder's own attention (which hides later words)
    and the final softmax. The largest, vgg19, takes 2 s and 140 MiB to draw.
    """
    return GRAPHS[name]().graph()


def size(name: str) -> int:
    """Rows (and columns) of the picture that network `name` takes; 0 if it takes none."""
    return GRAPHS[name]().size


def inputs(name: str) -> dict[str, tuple[int, int, int]]:
    """The inputs of network `name`: channels, rows, columns of each."""
    return GRAPHS[name]().inputs


def _resnet50() -> NetworkDraft:
    return _bottlenecks("resnet50", (3, 4, 6, 3))


def _resnet152() -> NetworkDraft:
    return _bottlenecks("resnet152", (3, 8, 36, 3))


def _bottlenecks(name: str, counts: tuple[int, ...]) -> NetworkDraft:
    """A residual network with so many blocks of three convolutions in stages 2 to 5."""
    plan = _resnet_stem(name)
    for stage, (blocks, width) in enumerate(zip(counts, (64, 128, 256, 512), strict=True), start=2):
        for block in range(1, blocks + 1):
            source, name = plan.last, f"conv{stage}_{block}_"
            stride = 2 if block == 1 and stage > 2 else 1
            plan.conv(name + "1", width)
            plan.conv(name + "2", width, 3, stride)
            branch = plan.conv(name + "3", 4 * width, relu=False, spread=BRANCH_SPREAD)
            if block == 1:
                source = plan.conv(name + "shortcut", 4 * width, 1, stride, source=source, relu=False)
            plan.add(f"add{stage}_{block}", source, branch)
    return _classifier(plan)


def _resnet18() -> NetworkDraft:
    plan = _resnet_stem("resnet18")
    for stage, width in enumerate((64, 128, 256, 512), start=2):
        for block in (1, 2):
            source, name = plan.last, f"conv{stage}_{block}_"
            stride = 2 if block == 1 and stage > 2 else 1
            plan.conv(name + "1", width, 3, stride)
            branch = plan.conv(name + "2", width, 3, relu=False, spread=BRANCH_SPREAD)
            if stride == 2:
                source = plan.conv(name + "shortcut", width, 1, stride, source=source, relu=False)
            plan.add(f"add{stage}_{block}", source, branch)
    return _classifier(plan)


def _resnet_stem(name: str) -> NetworkDraft:
    plan = NetworkDraft(name, 224)
    plan.conv("conv1", 64, 7, 2)
    plan.max_pool("pool1", 3, 2, (1, 1))
    return plan


def _classifier(plan: NetworkDraft) -> NetworkDraft:
    plan.global_average("pool")
    plan.conv("fc", 1000, relu=False)
    return plan


def _vgg16() -> NetworkDraft:
    return _vgg("vgg16", (2, 2, 3, 3, 3))


def _vgg19() -> NetworkDraft:
    return _vgg("vgg19", (2, 2, 4, 4, 4))


def _vgg(name: str, counts: tuple[int, ...]) -> NetworkDraft:
    plan = NetworkDraft(name, 224)
    for stage, (count, width) in enumerate(zip(counts, (64, 128, 256, 512, 512), strict=True), start=1):
        for index in range(1, count + 1):
            plan.conv(f"conv{stage}_{index}", width, 3)
        plan.max_pool(f"pool{stage}", 2, 2)
    plan.conv("fc6", 4096, 7, pad=0)
    plan.conv("fc7", 4096)
    plan.conv("fc8", 1000, relu=False)
    return plan


def _mobilenet_v1() -> NetworkDraft:
    plan = NetworkDraft("mobilenet_v1", 224)
    plan.conv("conv1", 32, 3, 2)
    outputs = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for index, width in enumerate(outputs, start=1):
        plan.depthwise(f"dw{index}", 3, 2 if index in (2, 4, 6, 12) else 1)
        plan.conv(f"pw{index}", width)
    return _classifier(plan)


#: Inception modules: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
_INCEPTION = {
    "3_a": (64, 96, 128, 16, 32, 32),
    "3_b": (128, 128, 192, 32, 96, 64),
    "4_a": (192, 96, 208, 16, 48, 64),
    "4_b": (160, 112, 224, 24, 64, 64),
    "4_c": (128, 128, 256, 24, 64, 64),
    "4_d": (112, 144, 288, 32, 64, 64),
    "4_e": (256, 160, 320, 32, 128, 128),
    "5_a": (256, 160, 320, 32, 128, 128),
    "5_b": (384, 192, 384, 48, 128, 128),
}


def _googlenet() -> NetworkDraft:
    # Pools of stride 2 count a part of a window at the far edges as a window (112 -> 56, not 55): hence padding there
    plan = NetworkDraft("googlenet", 224)
    plan.conv("conv1", 64, 7, 2)
    plan.max_pool("pool1", 3, 2, (0, 1))
    plan.conv("conv2_1", 64)
    plan.conv("conv2_2", 192, 3)
    plan.max_pool("pool2", 3, 2, (0, 1))
    for name, (one, reduce3, three, reduce5, five, projection) in _INCEPTION.items():
        source, conv = plan.last, f"conv{name}_"
        parts = [plan.conv(conv + "1x1", one, source=source)]
        plan.conv(conv + "3x3_reduce", reduce3, source=source)
        parts.append(plan.conv(conv + "3x3", three, 3))
        plan.conv(conv + "5x5_reduce", reduce5, source=source)
        parts.append(plan.conv(conv + "5x5", five, 5))
        plan.max_pool(f"pool{name}", 3, 1, (1, 1), source=source)
        parts.append(plan.conv(conv + "projection", projection))
        plan.concat(f"concat{name}", *parts)
        if name in ("3_b", "4_e"):
            plan.max_pool(f"pool{name[0]}", 3, 2, (0, 1))
    return _classifier(plan)


#: A convolution of a branch: channels, and (rows, columns) of its kernel.
_Step = tuple[int, tuple[int, int]]
_ONE, _THREE, _FIVE = (1, 1), (3, 3), (5, 5)
#: Modules of Inception-v3 that keep the size of the map, by name: branches of convolutions one behind the other, and
#: the channels of the projection behind the average pool.
_MIXED: dict[str, tuple[tuple[tuple[_Step, ...], ...], int]] = {
    **{
        name: (
            (((64, _ONE),), ((48, _ONE), (64, _FIVE)), ((64, _ONE), (96, _THREE), (96, _THREE))),
            projection,
        )
        for name, projection in (("5_b", 32), ("5_c", 64), ("5_d", 64))
    },
    **{
        name: (
            (
                ((192, _ONE),),
                ((width, _ONE), (width, (1, 7)), (192, (7, 1))),
                ((width, _ONE), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7))),
            ),
            192,
        )
        for name, width in (("6_b", 128), ("6_c", 160), ("6_d", 160), ("6_e", 192))
    },
}


def _inception_v3() -> NetworkDraft:
    plan = NetworkDraft("inception_v3", 299)
    plan.conv("conv1_1", 32, 3, 2, pad=0)
    plan.conv("conv1_2", 32, 3, pad=0)
    plan.conv("conv1_3", 64, 3)
    plan.max_pool("pool1", 3, 2)
    plan.conv("conv2_1", 80)
    plan.conv("conv2_2", 192, 3, pad=0)
    plan.max_pool("pool2", 3, 2)
    for name in ("5_b", "5_c", "5_d"):
        _mixed(plan, name)
    _reduction(plan, "6_a", ((384, _THREE),), ((64, _ONE), (96, _THREE), (96, _THREE)))
    for name in ("6_b", "6_c", "6_d", "6_e"):
        _mixed(plan, name)
    wide = ((192, _ONE), (192, (1, 7)), (192, (7, 1)), (192, _THREE))
    _reduction(plan, "7_a", ((192, _ONE), (320, _THREE)), wide)
    for name in ("7_b", "7_c"):
        _expanded(plan, name)
    return _classifier(plan)


def _branch(plan: NetworkDraft, name: str, steps: tuple[_Step, ...], source: str, stride: int = 1) -> str:
    """Convolutions one behind the other; the last one has the stride, and no padding if that is not 1."""
    for index, (width, kernel) in enumerate(steps, start=1):
        last = index == len(steps) and stride > 1
        source = plan.conv(
            f"{name}_{index}", width, kernel, stride if last else 1, source=source, pad=0 if last else None
        )
    return source


def _pooled(plan: NetworkDraft, name: str, width: int, source: str) -> str:
    """An average pool and a projection."""
    plan.average_pool(f"pool{name}", 3, source=source)
    return plan.conv(f"conv{name}_projection", width)


def _mixed(plan: NetworkDraft, name: str) -> None:
    """A module with one concatenation (figures 5 and 6)."""
    source, (branches, projection) = plan.last, _MIXED[name]
    parts = [_branch(plan, f"conv{name}_{index}", steps, source) for index, steps in enumerate(branches, start=1)]
    plan.concat(f"concat{name}", *parts, _pooled(plan, name, projection, source))


def _reduction(plan: NetworkDraft, name: str, *branches: tuple[_Step, ...]) -> None:
    """A module that halves the map (figure 10)."""
    source = plan.last
    parts = [_branch(plan, f"conv{name}_{index}", steps, source, 2) for index, steps in enumerate(branches, start=1)]
    plan.concat(f"concat{name}", *parts, plan.max_pool(f"pool{name}", 3, 2, source=source))


def _expanded(plan: NetworkDraft, name: str) -> None:
    """A module whose branches end in a row and a column side by side (figure 7)."""
    source, conv = plan.last, f"conv{name}"
    parts = [plan.conv(f"{conv}_1_1", 320, source=source)]
    for index, steps in ((2, ((384, _ONE),)), (3, ((448, _ONE), (384, _THREE)))):
        middle = _branch(plan, f"{conv}_{index}", steps, source)
        parts += [plan.conv(f"{conv}_{index}_{a}x{b}", 384, (a, b), source=middle) for a, b in ((1, 3), (3, 1))]
    plan.concat(f"concat{name}", *parts, _pooled(plan, name, 192, source))


def _yolov2() -> NetworkDraft:
    plan = NetworkDraft("yolov2", 416)
    # Darknet-19 without its classifier: 3x3 and 1x1 convolutions take turns, the latter with half the channels
    passthrough = ""
    for stage, (count, width) in enumerate(((1, 32), (1, 64), (3, 128), (3, 256), (5, 512), (5, 1024)), start=1):
        for index in range(1, count + 1):
            plan.conv(f"conv{stage}_{index}", width if index % 2 else width // 2, 3 if index % 2 else 1)
        if stage == 5:
            passthrough = plan.last
        if stage < 6:
            plan.max_pool(f"pool{stage}", 2, 2)
    plan.conv("conv7_1", 1024, 3)
    deep = plan.conv("conv7_2", 1024, 3)
    shallow = plan.conv("conv8_passthrough", 64, source=passthrough)
    quarters = [plan.slice(f"slice{y}{x}", y, x, 2, source=shallow) for y in (0, 1) for x in (0, 1)]
    plan.concat("concat8", *quarters, deep)
    plan.conv("conv8_1", 1024, 3)
    plan.conv("detect", 425, relu=False)
    return plan


def _ncf() -> NetworkDraft:
    plan = NetworkDraft("ncf", inputs={"embeddings": (256, 1, 1), "factors": (64, 1, 1)})
    for index, width in enumerate((256, 128, 64), start=1):
        plan.conv(f"mlp{index}", width)
    plan.concat("concat", plan.last, "factors")
    plan.conv("predict", 1, relu=False)
    return plan


#: Tokens of a sentence that the transformer translates, on either side.
TOKENS = 32
#: Width of its layers and of what is between the two products of a feed-forward layer; words that it knows.
_MODEL, _INNER, _VOCABULARY = 512, 2048, 33708


def _transformer() -> NetworkDraft:
    plan = NetworkDraft("transformer", inputs={"source": (_MODEL, 1, TOKENS), "target": (_MODEL, 1, TOKENS)})
    encoded = "source"
    for index in range(1, 7):
        encoded = _attention(plan, f"encoder{index}_self", encoded, encoded)
        encoded = _feed_forward(plan, f"encoder{index}", encoded)
    decoded = "target"
    for index in range(1, 7):
        decoded = _attention(plan, f"decoder{index}_self", decoded, decoded)
        decoded = _attention(plan, f"decoder{index}_cross", decoded, encoded)
        decoded = _feed_forward(plan, f"decoder{index}", decoded)
    plan.conv("vocabulary", _VOCABULARY, source=decoded, relu=False)
    return plan


#: Heads of its attentions, and the steps that its scores and what layer normalisation makes are taken to have.
_HEADS, _SCORE_STEP, _EVEN_STEP = 8, 1 / 32, 1 / 32


def _transformer_whole() -> NetworkDraft:
    plan = NetworkDraft("transformer_whole", inputs={"source": (_MODEL, 1, TOKENS), "target": (_MODEL, 1, TOKENS)})
    encoded = "source"
    for index in range(1, 7):
        encoded = _whole_attention(plan, f"encoder{index}_self", encoded, encoded)
        encoded = _even(plan, f"encoder{index}_norm", _feed_forward(plan, f"encoder{index}", encoded))
    decoded = "target"
    for index in range(1, 7):
        decoded = _whole_attention(plan, f"decoder{index}_self", decoded, decoded)
        decoded = _whole_attention(plan, f"decoder{index}_cross", decoded, encoded)
        decoded = _even(plan, f"decoder{index}_norm", _feed_forward(plan, f"decoder{index}", decoded))
    plan.conv("vocabulary", _VOCABULARY, source=decoded, relu=False)
    return plan


def _whole_attention(plan: NetworkDraft, name: str, queries: str, values: str) -> str:
    """An attention from its projections to the normalised residual sum."""
    for part, source in (("q", queries), ("k", values), ("v", values)):
        plan.conv(f"{name}_{part}", _MODEL, source=source, relu=False)
    scores = plan.product(f"{name}_scores", f"{name}_k", f"{name}_q", _HEADS)
    by_query = plan.softmax(f"{name}_shares", scores, _SCORE_STEP)
    by_key = plan.transpose(f"{name}_by_key", by_query, _HEADS)
    by_token = plan.transpose(f"{name}_by_token", f"{name}_v", _HEADS)
    plan.product(f"{name}_context", by_key, by_token, _HEADS)
    branch = plan.conv(f"{name}_out", _MODEL, relu=False, spread=BRANCH_SPREAD)
    return _even(plan, f"{name}_norm", plan.add(f"{name}_add", queries, branch, relu=False))


def _even(plan: NetworkDraft, name: str, source: str) -> str:
    """A layer normalisation over the channels of each pixel, with factors and offsets."""
    turned = plan.transpose(f"{name}_turned", source)
    plan.transpose(f"{name}_back", plan.standardise(f"{name}_even", turned, _EVEN_STEP))
    return plan.depthwise(name, 1, relu=False)


def _attention(plan: NetworkDraft, name: str, queries: str, values: str) -> str:
    """The projections of one attention, and its residual sum."""
    for part, source in (("q", queries), ("k", values), ("v", values)):
        plan.conv(f"{name}_{part}", _MODEL, source=source, relu=False)
    branch = plan.conv(f"{name}_out", _MODEL, relu=False, spread=BRANCH_SPREAD)
    return plan.add(f"{name}_add", queries, branch, relu=False)


def _feed_forward(plan: NetworkDraft, name: str, source: str) -> str:
    """Two products with ReLU between them, and their residual sum."""
    plan.conv(f"{name}_ff1", _INNER, source=source)
    branch = plan.conv(f"{name}_ff2", _MODEL, relu=False, spread=BRANCH_SPREAD)
    return plan.add(f"{name}_ff_add", source, branch, relu=False)


#: Every network here by name, and what draws it up.
GRAPHS: dict[str, Callable[[], NetworkDraft]] = {
    "resnet18": _resnet18,
    "resnet50": _resnet50,
    "resnet152": _resnet152,
    "vgg16": _vgg16,
    "vgg19": _vgg19,
    "googlenet": _googlenet,
    "inception_v3": _inception_v3,
    "yolov2": _yolov2,
    "mobilenet_v1": _mobilenet_v1,
    "ncf": _ncf,
    "transformer": _transformer,
    "transformer_whole": _transformer_whole,
}
