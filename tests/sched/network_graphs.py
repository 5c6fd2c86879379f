"""Networks for the network scheduler: one with every kind of layer, random ones, and a run of them in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import OFFSET_BITS, Region
from meshloom.sched.ir import functional
from meshloom.sched.ir.schedule import Gemm, Operation, Tensor, Vec, writes
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule
from meshloom.sched.workload.graph import PLACED, Graph, Layer, PastePlace, Value, Window
from meshloom.sched.workload.normalisation import softmax, standardise
from meshloom.sched.workload.stages import unclean, words
from meshloom.tb.devices.observe import REGIONS, Mismatch, Observed, Words, Written, compare_values, values

Arrays = dict[str, NDArray[np.int8]]
POINT = Window()


class Grower:
    """Grows a network layer by layer, with random weights and biases and scales that saturate now and then."""

    def __init__(self, seed: int, *inputs: Value) -> None:
        self.random = np.random.default_rng(seed)
        self.inputs = inputs
        self.layers: list[Layer] = []
        self.values = {value.name: value for value in inputs}

    def graph(self, name: str, *outputs: str, **more: Any) -> Graph:
        return Graph(name, self.inputs, tuple(self.layers), outputs, **more)

    def take(self, layer: Layer) -> str:
        self.layers.append(layer)
        self.values = Graph("growing", self.inputs, tuple(self.layers), ()).values
        return layer.output

    def conv(self, name: str, x: str, outputs: int, window: Window = POINT, **more: Any) -> str:
        return self._weighted("conv", name, x, (outputs, self.values[x].channels), window, more)

    def depthwise(self, name: str, x: str, window: Window, **more: Any) -> str:
        return self._weighted("depthwise", name, x, (self.values[x].channels, 1), window, more)

    def _weighted(self, kind: Any, name: str, x: str, size: tuple[int, int], window: Window, more: Any) -> str:
        w = self.random.integers(-128, 128, (*size, window.kernel_h, window.kernel_w)).astype(np.int8)
        bias = self.random.integers(-5000, 5000, size[0]).astype(np.int32)
        # sums of products of random bytes have a deviation of 5400 for each; results have one of 50
        scale = min(65535, max(1, int(50 * 2**17 / (5400 * w[0].size ** 0.5))))
        return self.take(Layer(kind, name, (x,), window, scale=scale, w=w, bias=bias, **more))

    def average(self, name: str, x: str, window: Window, **more: Any) -> str:
        scale = min(65535, int(2**17 * 1.5 / (window.kernel_h * window.kernel_w)))
        return self.take(Layer("average_pool", name, (x,), window, scale=scale, **more))

    def pool(self, name: str, x: str, window: Window, **more: Any) -> str:
        return self.take(Layer("max_pool", name, (x,), window, **more))

    def add(self, name: str, a: str, b: str, **more: Any) -> str:
        return self.take(Layer("add", name, (a, b), **more))

    def table(self, name: str, x: str, table: NDArray[np.int8] | None = None, **more: Any) -> str:
        table = self.random.integers(-128, 128, 256).astype(np.int8) if table is None else table
        return self.take(Layer("table", name, (x,), table=table, **more))

    def mul(self, name: str, a: str, b: str, scale: int, **more: Any) -> str:
        return self.take(Layer("mul", name, (a, b), scale=scale, **more))

    def upsample(self, name: str, x: str, repeat: int) -> str:
        return self.take(Layer("upsample", name, (x,), repeat=repeat))

    def concat(self, name: str, *parts: str) -> str:
        return self.take(Layer("concat", name, parts))

    def paste(self, name: str, parts: tuple[str, ...], *places: PastePlace) -> str:
        return self.take(Layer("paste", name, parts, places=places))

    def slice(self, name: str, x: str, top: int, left: int, step: tuple[int, int]) -> str:
        return self.take(Layer("slice", name, (x,), Window(1, 1, *step, top, left)))


def square(kernel: int, stride: int = 1, pad: int = 0, dilation: int = 1) -> Window:
    """A window that is the same in both directions."""
    return Window(kernel, kernel, stride, stride, pad, pad, pad, pad, dilation)


def every_kind(size: int = 14, width: int = 20) -> Graph:
    """Every kind of layer and every way in which the scheduler treats one; three inputs, five outputs.

    `width`: channels of most layers, none of them a multiple of what lies in a word.
    """
    g = Grower(7, *(Value(name, channels, size, size, 0.5) for name, channels in (("x", 3), ("side", 3), ("grey", 1))))
    g.conv("packed", "grey", 5, square(4, 3, 1))  # by the host, on every chip
    g.conv("stem", "x", width, square(3, 2, 1), relu=True)  # with the pool behind it
    g.pool("pooled", "stem", square(3, 1, 1))
    g.conv("one", "pooled", width, relu=True, clamp=90)
    g.conv("left", "one", width + 1, Window(1, 3, 1, 1, 0, 1, 0, 1))
    g.conv("right", "one", width - 3, square(3, 1, 1), relu=True)
    g.concat("fire", "left", "right")
    g.conv("wide", "fire", width, relu=False)
    g.add("residual", "wide", "one", relu=True)  # fused
    g.depthwise("dw", "residual", square(3, 2, 1), relu=True, clamp=100)
    g.depthwise("dw2", "dw", square(2, 1, 1, 2))  # dilated
    g.pool("peak", "dw2", Window(2, 3, 1, 1, 0, 1, 1, 1), relu=True)
    g.add("sum", "peak", "dw2", clamp=110)  # by itself: no convolution ends before it
    g.add("twice", "sum", "sum")
    g.concat("all", "twice", "sum", "sum")  # one operand twice
    g.slice("even", "all", 0, 0, (2, 2))
    g.slice("odd", "all", 1, 1, (2, 2))
    g.conv("entry", "side", 5, Window(3, 1, 2, 3, 1, 0, 0, 0))
    g.concat("nested", "even", "even")
    g.average("mean", "odd", square(2, 1, 1))
    g.concat("last", "nested", "even")
    g.conv("mix", "last", width - 1, square(2, 1))
    g.average("global", "mean", Window(g.values["mean"].height, g.values["mean"].width))
    g.conv("scores", "global", 10)
    g.concat("raw", "side", "x", "side")  # inputs have to be copied
    g.conv("on_raw", "raw", 7, square(5, 4, 2), relu=True)
    return g.graph("every", "scores", "mix", "entry", "on_raw", "packed")


def placed() -> Graph:
    """Maps put together from others in every way: rows and columns in turns, one map several times, one below the
    other, part of a concatenation; and slices that end before the map does."""
    g = Grower(3, Value("x", 5, 7, 6, 0.5))
    g.conv("a", "x", 6, square(3, 1, 1))
    g.conv("b", "x", 6)
    g.paste("turns", ("a", "b", "a", "b"), *(PastePlace(y, x, 2, 2, 7, 6) for y in (0, 1) for x in (0, 1)))
    g.paste("thrice", ("x", "x", "x"), *(PastePlace(0, x, 1, 3, 7, 6) for x in range(3)))
    g.paste("below", ("a", "b"), PastePlace(0, 0, 1, 1, 7, 6), PastePlace(7, 0, 1, 1, 7, 6))
    g.paste("stripes", ("a", "b"), PastePlace(0, 0, 2, 1, 7, 6), PastePlace(1, 0, 2, 1, 7, 6))
    g.take(Layer("slice", "middle", ("turns",), Window(1, 1, 1, 2, 1, 2, 3, 1)))
    g.take(Layer("slice", "first", ("a",), Window(1, 1, 1, 1, 0, 0, 6, 0)))
    g.paste("edge", ("first", "a"), PastePlace(0, 0, 1, 1, 1, 6), PastePlace(1, 0, 1, 1, 7, 6))
    g.conv("z", "turns", 3, square(3, 2, 1))
    g.concat("both", "below", "stripes")
    g.pool("peak", "middle", square(2))
    return g.graph("placed", "z", "both", "peak", "turns", "edge", "thrice")


def functions(size: int = 9, width: int = 20) -> Graph:
    """Tables, products, factors of channels and repetitions, as activation functions, squeeze-and-excitation and a
    detector's upsampling use them; two outputs."""
    steps = np.arange(-128, 128) / 16
    sigmoid = np.rint(127 / (1 + np.exp(-steps))).astype(np.int8)
    g = Grower(5, Value("x", 3, size, size, 0.5))
    g.conv("stem", "x", width, square(3, 2, 1))
    g.table("gate", "stem", sigmoid)
    g.mul("silu", "stem", "gate", 1032)  # about 1 / 127
    g.average("squeezed", "silu", Window(g.values["silu"].height, g.values["silu"].width))
    g.conv("less", "squeezed", 5, relu=True)
    g.conv("more", "less", width)
    g.table("excitation", "more", sigmoid, clamp=100)
    g.mul("excited", "silu", "excitation", 60, times16=True, relu=True)
    g.upsample("twice", "excited", 2)
    g.mul("square", "twice", "twice", 500)
    g.concat("both", "twice", "square")
    g.conv("mixed", "both", width - 1, square(3, 1, 1))
    g.table("any", "mixed")
    g.upsample("thrice", "any", 3)
    g.pool("peak", "thrice", square(3, 3))
    g.upsample("four", "gate", 4)
    return g.graph("functions", "peak", "four")


def normalised(size: int = 8, width: int = 20) -> Graph:
    """A softmax and a layer normalisation with factors and offsets, over the pixels of each channel, and each way to
    normalise, clamped; three outputs."""
    g = Grower(7, Value("x", 3, size, size, 0.5))
    g.conv("scores", "x", width, square(3, 1, 1))
    for layer in (*softmax("shares", "scores", 0.1), *standardise("even", "scores", size * size, 1 / 32)):
        g.take(layer)
    g.depthwise("scaled", "even", Window())
    g.conv("mixed", "shares", width)
    g.take(Layer("normalise", "less", ("mixed",), by="max", clamp=90))
    g.take(Layer("normalise", "centred", ("mixed",), by="mean", scale=2500, relu=True))
    g.take(Layer("normalise", "shared", ("centred",), by="sum", scale=9000, clamp=100))
    return g.graph("normalised", "scaled", "less", "shared")


def attention(tokens: int = 9, heads: int = 2, depth: int = 8, features: int = 12) -> Graph:
    """An encoder's attention with heads of `depth` channels, from its input to a layer normalisation of the sum; two
    outputs."""
    g, width = Grower(11, Value("x", features, 1, tokens, 0.5)), heads * depth
    for name in ("q", "k", "v"):
        g.conv(name, "x", width)
    g.take(Layer("product", "scores", ("k", "q"), scale=max(1, 2400 // depth), groups=heads, clamp=120))  # [query][key]
    for layer in softmax("shares", "scores", 0.1):
        g.take(layer)
    g.take(Layer("transpose", "by_key", ("shares",), groups=heads))
    g.take(Layer("transpose", "values", ("v",), groups=heads))
    g.take(Layer("product", "context", ("by_key", "values"), scale=2000, groups=heads))
    g.conv("out", "context", features)
    g.take(Layer("transpose", "turned", ("out",)))
    for layer in standardise("even", "turned", features, 1 / 32):
        g.take(layer)
    g.take(Layer("transpose", "back", ("even",), rows=3 if tokens % 3 == 0 else 1))
    g.depthwise("scaled", "back", POINT)
    return g.graph("attention", "scaled", "values")


def random_network(seed: int, layers: int = 12) -> Graph:
    """A random network of up to 40 channels; what nobody reads, and some of what is read too, are its outputs."""
    random = np.random.default_rng(seed)
    size = int(random.integers(5, 17)), int(random.integers(5, 17))
    names = ("x", "z")[: random.integers(1, 3)]
    g = Grower(seed, *(Value(name, int(random.integers(1, 12)), *size) for name in names))
    for index in range(layers):
        _grow(g, random, f"l{index}")
    used = {name for layer in g.layers for name in layer.inputs}
    outputs = [layer.output for layer in g.layers if layer.output not in used or random.random() < 0.1]
    return g.graph(f"random{seed}", *outputs)


def _grow(g: Grower, random: np.random.Generator, name: str) -> None:
    recent = list(g.values.values())[-5:]
    x = recent[random.integers(len(recent))]
    top = {"relu": bool(random.integers(2)), "clamp": int(random.choice([127, 127, 70]))}
    k = kernel_h, kernel_w = [int(random.integers(1, min(5, side) + 1)) for side in (x.height, x.width)]
    pads = [int(random.integers(0, k[index % 2])) for index in range(4)]
    strides = [int(random.choice([1, 1, 2])) for _ in range(2)]
    window = Window(kernel_h, kernel_w, strides[0], strides[1], pads[0], pads[1], pads[2], pads[3])
    if max(k) <= 3 and min(x.height, x.width) > 5 and random.random() < 0.2:
        window = replace(window, dilation=2)
    kinds = ("conv", "point", "pooled", "residual", "depthwise", "max", "average", "add", "concat", "concat", "slice")
    match random.choice(kinds):
        case "conv":
            g.conv(name, x.name, int(random.integers(1, 41)), window, **top)
        case "pooled":
            g.conv(name, x.name, int(random.integers(1, 41)), replace(window, dilation=1), **top)
            y = g.values[name]
            kernel = min(3, y.height, y.width)
            pad = int(random.integers(0, kernel))
            g.pool(f"{name}p", name, square(kernel, int(random.integers(1, 3)), pad), **top)
        case "residual":
            g.conv(f"{name}a", x.name, x.channels, Window(3, 1, 1, 1, 1, 0, 1, 0))
            if random.random() < 0.5:
                g.conv(f"{name}b", x.name, x.channels)
                g.add(name, f"{name}a", f"{name}b", **top)
            else:
                g.conv(name, x.name, 1 + x.channels // 2, **top)
        case "depthwise":
            g.depthwise(name, x.name, window, **top)
        case "max":
            g.pool(name, x.name, replace(window, dilation=1), **top)
        case "average":
            g.average(name, x.name, window, **top)
        case "add":
            g.add(name, x.name, x.name, **top)
        case "concat":
            level = [v.name for v in g.values.values() if v.shape[2:] == x.shape[2:] and v.channels < 60]
            g.concat(name, x.name, *(random.choice(level) for _ in range(random.integers(0, 3)) if level))
        case "slice":
            first = int(random.integers(0, min(2, x.height))), int(random.integers(0, min(2, x.width)))
            g.slice(name, x.name, *first, (strides[0], strides[1]))
        case _:
            g.conv(name, x.name, int(random.integers(1, 41)), **top)


def inputs_of(graph: Graph, seed: int = 0) -> Arrays:
    """Inputs over all of int8."""
    random = np.random.default_rng(seed)
    return {value.name: random.integers(-128, 128, value.shape).astype(np.int8) for value in graph.inputs}


def perform(made: NetworkSchedule, chip: ChipConfig, inputs: Arrays) -> tuple[Arrays, Observed]:
    """Executes a schedule in NumPy: the network's outputs, and every word that the cores write as the bench logs it."""
    schedule, memories = made.schedule, functional.Memories(chip)
    for name, array in made.arrays(inputs).items():
        memories.write_tensor(schedule.tensor(name), array)
    log: dict[tuple[int, Region], list[tuple[NDArray[np.int32], Words]]] = {
        (core, region): [] for core in chip.cores for region in REGIONS
    }

    def watch(index: int, op: Operation) -> None:
        if isinstance(op, Gemm | Vec):
            (access,) = writes(op, chip)
            if access.region in REGIONS:
                ((start, stop),) = access.intervals
                result = memories.region(op.core, access.region)[start:stop].copy()
                log[op.core, access.region].append((np.arange(start, stop, dtype=np.int32), result))

    functional.execute(schedule.operations, memories, watch)
    empty = np.zeros(0, np.int32), np.zeros((0, chip.lanes), np.uint8)
    observed = {
        place: Written(*(np.concatenate(parts) for parts in zip(*([empty] + entries), strict=True)))
        for place, entries in log.items()
    }
    outputs = {
        tensor.name: made.output(tensor.name, memories.read_tensor(tensor))
        for tensor in schedule.tensors
        if tensor.role == "output"
    }
    return outputs, observed


def mismatches(
    made: NetworkSchedule, chip: ChipConfig, observed: Observed, golden: dict[str, NDArray[Any]]
) -> list[Mismatch]:
    """Words that cores computed and that are not golden; AssertionError if nothing was seen of some layer."""
    computed = values(made.schedule, observed, chip)
    layers = {layer.output for layer in made.graph.layers if layer.kind not in PLACED}
    assert computed.keys() == layers
    right = {}
    for name, result in computed.items():
        expected = words(golden[name][0].astype(np.int8), made.lanes[name], chip.lanes)
        right[name] = expected.reshape(len(expected), *result.words.shape[1:3], chip.lanes)
        if name in unclean(made.graph):
            idle = (made.lanes[name] < 0).reshape(len(expected), 1, 1, chip.lanes)
            right[name] = np.where(idle, result.words, right[name])
    return compare_values(computed, right)


def places(tensor: Tensor) -> list[tuple[int, int, int]]:
    """(tile, first word, end) of each piece of a tensor."""
    result = [(piece.tile, piece.address & ((1 << OFFSET_BITS) - 1), piece.words) for piece in tensor.pieces]
    return [(tile, first, first + count) for tile, first, count in result]
