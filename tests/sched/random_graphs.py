"""Random small networks with every kind of layer, and what their layers mean by definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload import int4
from meshloom.sched.workload.graph import By, Graph, Layer, Picture, Value, Window, scalable

#: Kinds of layers that every scheduler of networks knows, and all that random graphs have.
PLAIN = ("conv", "depthwise", "max_pool", "average_pool", "add", "concat", "slice")
KINDS = (*PLAIN, "table", "mul", "upsample", "normalise", "product", "transpose")


def random_graph(seed: int, layers: int = 9, kinds: Sequence[str] = KINDS) -> Graph:
    """A network of one or two inputs, with layers of `kinds`; weights over all of int8, scales and biases so that some
    results saturate."""
    random = np.random.default_rng(seed)
    size = (int(random.integers(1, 6)), int(random.integers(4, 10)), int(random.integers(4, 10)))
    inputs = tuple(Value(f"in{index}", *size, 0.25) for index in range(random.integers(1, 3)))
    graph = Graph(f"random{seed}", inputs, (), ())
    for index in range(layers):
        layer = _layer(random, graph, f"l{index}", kinds)
        graph = Graph(graph.name, inputs, (*graph.layers, layer), ())
    used = {name for layer in graph.layers for name in layer.inputs}
    ends = tuple(layer.output for layer in graph.layers if layer.output not in used)
    return Graph(
        graph.name,
        inputs,
        graph.layers,
        ends,
        steps={layer.output: 0.5 + index for index, layer in enumerate(graph.layers)},
        real=bool(random.integers(2)),
        labels=("a", "ü"),
        picture=Picture("RGB", (1.0, 2.5, 3.0), (0.5, 1 / 3, 7.0)),
        notes=("from nowhere",),
    )


def random_inputs(graph: Graph, seed: int) -> dict[str, NDArray[np.int8]]:
    """Inputs over all of int8."""
    random = np.random.default_rng(seed)
    return {value.name: random.integers(-128, 128, value.shape).astype(np.int8) for value in graph.inputs}


def _layer(random: np.random.Generator, graph: Graph, name: str, kinds: Sequence[str]) -> Layer:
    """A layer that fits the tensors there are, on a recent one."""
    values = list(graph.values.values())
    x = values[-int(random.integers(1, min(3, len(values)) + 1))]
    mates = [value for value in values if value.shape == x.shape]
    factors = [value for value in values if value.shape in (x.shape, (1, x.channels, 1, 1))]
    level = [value for value in values if value.shape[2:] == x.shape[2:]]
    relu, clamp = bool(random.integers(2)), int(random.choice([127, 127, 90]))
    k = kernel_h, kernel_w = [int(random.integers(1, min(3, side) + 1)) for side in (x.height, x.width)]
    top, left, bottom, right = [int(random.integers(0, k[index % 2])) for index in range(4)]
    stride_h, stride_w = random.integers(1, 3, 2).tolist()
    dilation = 2 if max(k) > 1 and min(x.height, x.width) > 4 and random.integers(4) == 0 else 1
    window = Window(kernel_h, kernel_w, stride_h, stride_w, top, left, bottom, right, dilation)
    kind = random.choice(kinds)
    match kind:
        case "conv" | "depthwise":
            outputs = int(random.integers(1, 7)) if kind == "conv" or x.channels == 1 else x.channels
            inputs = 1 if kind == "depthwise" and x.channels > 1 else x.channels
            w = random.integers(-128, 128, (outputs, inputs, *k)).astype(np.int8)
            bias = random.integers(-30000, 30000, outputs).astype(np.int32)
            scale = int(2**17 / (100 * w[0].size ** 0.5) * random.uniform(0.5, 2))
            kind = "conv" if x.channels == 1 else kind  # a depthwise layer of one channel is a convolution
            return Layer(kind, name, (x.name,), window, relu, clamp, scale, w, bias)
        case "average_pool":
            scale = max(1, min(65535, int(2**17 / (k[0] * k[1]) * random.uniform(0.4, 1.5))))
            return Layer(kind, name, (x.name,), window, relu, clamp, scale)
        case "max_pool":
            return Layer(kind, name, (x.name,), window, relu, clamp)
        case "add":
            other = mates[random.integers(len(mates))]
            return Layer(kind, name, (x.name, other.name), relu=relu, clamp=clamp)
        case "concat":
            chosen = [level[random.integers(len(level))].name for _ in range(random.integers(1, 4))]
            return Layer(kind, name, tuple(chosen))
        case "table":
            table = random.integers(-128, 128, 256).astype(np.int8)
            return Layer(kind, name, (x.name,), relu=relu, clamp=clamp, table=table)
        case "mul":
            other, times16 = factors[random.integers(len(factors))], bool(random.integers(2))
            scale = int(random.integers(4096, 1 << 16) if times16 else random.integers(500, 5000))
            return Layer(kind, name, (x.name, other.name), relu=relu, clamp=clamp, scale=scale, times16=times16)
        case "normalise":
            by: By = random.choice(["max", "mean", "sum", "root"])
            times16 = bool(random.integers(2)) and by in ("sum", "root")
            scale = int(2**17 / (x.height * x.width)) if by == "mean" else 254
            scale = 0 if by == "max" else max(1, min(65535, int(scale * random.uniform(0.5, 4))))
            return Layer(kind, name, (x.name,), relu=relu, clamp=clamp, scale=scale, times16=times16, by=by)
        case "product" | "transpose":
            mates = [value for value in values if value.channels == x.channels]
            other = mates[random.integers(len(mates))]
            groups = random.choice([g for g in range(1, x.channels + 1) if x.channels % g == 0])
            if groups * other.height * other.width > 64 or (kind == "transpose" and x.height * x.width * groups > 64):
                return Layer("max_pool", name, (x.name,), window, relu, clamp)
            if kind == "transpose":
                pixels = x.channels // int(groups)
                rows = random.choice([r for r in range(1, pixels + 1) if pixels % r == 0])
                return Layer(kind, name, (x.name,), groups=int(groups), rows=int(rows))
            scale = max(1, int(2**17 / (70 * (x.channels // groups) ** 0.5) * random.uniform(0.3, 2)))
            return Layer(kind, name, (x.name, other.name), relu=relu, clamp=clamp, scale=scale, groups=int(groups))
        case "upsample" if x.height * x.width < 200:
            return Layer(kind, name, (x.name,), relu=relu, clamp=clamp, repeat=int(random.integers(2, 4)))
        case _:
            top, left = int(random.integers(0, min(2, x.height))), int(random.integers(0, min(2, x.width)))
            return Layer("slice", name, (x.name,), Window(1, 1, stride_h, stride_w, top, left))


def by_channel(graph: Graph, share: float = 1.0) -> Graph:
    """The network with a multiplier for each channel in a share of the layers that may have them."""
    random = np.random.default_rng(len(graph.layers))

    def scaled(layer: Layer) -> Layer:
        if not scalable(layer) or layer.w is None or random.random() >= share:
            return layer
        factors = random.uniform(0.25, 4, len(layer.w))
        return replace(layer, scale=0, scales=np.clip(layer.scale * factors, 1, 65535).astype(np.int32))

    return replace(graph, layers=tuple(map(scaled, graph.layers)))


def in_groups(graph: Graph, group: int = int4.GROUP) -> Graph:
    """The network with the weights of its convolutions rounded to four bits and a scale for each group."""

    def rounded(layer: Layer) -> Layer:
        if layer.kind != "conv" or layer.w is None:
            return layer
        return replace(layer, w=int4.in_groups(layer.w * (int4.LARGEST / 128), group), group=group)

    return replace(graph, layers=tuple(map(rounded, graph.layers)))


def defined_values(graph: Graph, inputs: dict[str, NDArray[np.int8]]) -> dict[str, NDArray[np.int64]]:
    """All tensors by the definitions in sched/workload/graph.py, in int64, window by window."""
    result = {name: array.astype(np.int64) for name, array in inputs.items()}
    for layer in graph.layers:
        x, window = result[layer.inputs[0]], layer.window
        if layer.kind == "add":
            y = np.clip(x + result[layer.inputs[1]], -128, 127)
        elif layer.kind == "concat":
            y = np.concatenate([result[name] for name in layer.inputs], axis=1)
        elif layer.kind == "slice":
            end_h, end_w = x.shape[2] - window.pad_bottom, x.shape[3] - window.pad_right
            y = x[:, :, window.pad_top : end_h : window.stride_h, window.pad_left : end_w : window.stride_w]
        elif layer.kind == "paste":
            y = np.zeros(graph.value(layer.output).shape, np.int64)
            for name, place in zip(layer.inputs, layer.places, strict=True):
                rows = slice(place.top, place.end[0], place.step_h)
                y[:, :, rows, place.left : place.end[1] : place.step_w] = result[name]
        elif layer.table is not None:
            y = layer.table.astype(np.int64)[x + 128]
        elif layer.kind == "mul":
            y = np.clip(_rounded(x * result[layer.inputs[1]] * layer.scale, 13 if layer.times16 else 17), -128, 127)
        elif layer.by is not None:
            y = normalised(layer, x)
        elif layer.kind in ("product", "transpose"):
            y = _grouped(graph, layer, result)
        elif layer.kind == "upsample":
            y = x.repeat(layer.repeat, axis=2).repeat(layer.repeat, axis=3)
        else:
            y = _windows(graph, layer, x)
        if layer.kind not in ("concat", "slice", "paste", "transpose"):
            y = np.clip(y, 0 if layer.relu else -128, layer.clamp)
        result[layer.output] = y
    return result


def _grouped(graph: Graph, layer: Layer, found: dict[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """A `product` or `transpose`, channel by channel."""
    y = np.zeros(graph.value(layer.output).shape, np.int64)
    x = found[layer.inputs[0]][0]
    depth, count = len(x) // layer.groups, len(y[0]) // layer.groups
    other = found[layer.inputs[-1]][0].reshape(len(x), -1)
    for group, n in np.ndindex(layer.groups, count):
        mine = slice(group * depth, (group + 1) * depth)
        if layer.kind == "transpose":
            y[0, group * count + n] = other[mine, n].reshape(y.shape[2:])
        else:
            sums = (x[mine] * other[mine, n][:, None, None]).sum(axis=0)
            y[0, group * count + n] = np.clip(_rounded(sums * layer.scale, 17), -128, 127)
    return y


def normalised(layer: Layer, x: NDArray[np.int64]) -> NDArray[np.int64]:
    """A `normalise` layer of [1, C, H, W], before it is clamped to less than int8."""
    y, shift = np.zeros_like(x), 13 if layer.times16 else 17
    for channel in range(x.shape[1]):
        values = x[0, channel]
        total = int(values.sum())
        if layer.by in ("max", "mean"):
            less = int(np.clip(_rounded(np.array(total * layer.scale), shift), -128, 127))
            y[0, channel] = values - (values.max() if layer.by == "max" else less)
            continue
        d = total if layer.by == "sum" else isqrt(256 * int((values * values).sum()))
        m = min(65535, layer.scale * 4096 // d) if d > 0 else 65535
        y[0, channel] = _rounded(values * m, shift)
    return np.clip(y, -128, 127)


def _windows(graph: Graph, layer: Layer, x: NDArray[np.int64]) -> NDArray[np.int64]:
    y, w = np.zeros(graph.value(layer.output).shape, np.int64), layer.window
    for oy, ox in np.ndindex(y.shape[2:]):
        taps = [
            (ky, kx, oy * w.stride_h + ky * w.dilation - w.pad_top, ox * w.stride_w + kx * w.dilation - w.pad_left)
            for ky, kx in np.ndindex(w.kernel_h, w.kernel_w)
        ]
        taps = [tap for tap in taps if 0 <= tap[2] < x.shape[2] and 0 <= tap[3] < x.shape[3]]
        if layer.kind == "max_pool":
            y[0, :, oy, ox] = np.max([x[0, :, iy, ix] for _, _, iy, ix in taps], axis=0)
            continue
        sums = np.zeros(y.shape[1], np.int64)
        for ky, kx, iy, ix in taps:
            if layer.w is None:
                sums += x[0, :, iy, ix]
            elif layer.kind == "depthwise":
                sums += layer.w[:, 0, ky, kx].astype(np.int64) * x[0, :, iy, ix]
            else:
                sums += layer.w[:, :, ky, kx].astype(np.int64) @ x[0, :, iy, ix]
        sums = sums if layer.bias is None else sums + layer.bias
        y[0, :, oy, ox] = np.clip(
            _rounded(sums * (layer.scale if layer.scales is None else layer.scales), 17), -128, 127
        )
    return y


def _rounded(products: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """Half to even of integers over 2^shift, exactly."""
    whole, rest = np.divmod(products, 1 << shift)
    half = 1 << (shift - 1)
    return whole + ((rest > half) | ((rest == half) & (whole % 2 == 1)))
