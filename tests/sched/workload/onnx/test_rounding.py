"""Steps of tensors: each is large enough for the multipliers of all layers, wherever it is shared."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.hw.spec.isa import SCALE_SHIFT
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.layers import SCALE_LIMIT
from meshloom.sched.workload.onnx import weight_errors
from meshloom.sched.workload.onnx.calibrate import measure
from meshloom.sched.workload.onnx.float_reader import fold
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.rounding import Rounder

from ...float_models import FloatModel, decibels, integer_outputs, run_float


def inverted_residuals(tap: float) -> FloatModel:
    """MobileNet-v2: blocks of expansion, depthwise and projection, ReLU6 between them, a sum around the second.

    Batch normalisation has been folded into the depthwise weights. One channel of each of them was nearly constant in
    training: its weights are `tap`, large both ways, and it reaches both ends of the clamps before and behind, so that
    equalisation has to leave it as it is.
    """
    m = FloatModel((1, 3, 16, 16), seed=3)
    zero, six = m.constant(0.0), m.constant(6.0)

    def relu6(source: str) -> str:
        return m.node("Clip", [source, zero, six], f"{source}6")

    last = relu6(m.conv("x", "stem", (8, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    for block in ("one", "two"):
        w = m.random.normal(0, 0.3, (24, 8, 1, 1))
        w[0] *= 20  # 0 or 6 almost everywhere
        expand = relu6(m.node("Conv", [last, m.constant(w), m.normal(24)], f"{block}_expand"))
        w = m.random.normal(0, 0.3, (24, 1, 3, 3))
        w[0] = 0.0
        w[0, 0, 1, :2] = tap, -tap  # an edge
        depth = m.node("Conv", [expand, m.constant(w), m.normal(24)], f"{block}_depth", group=24, pads=[1, 1, 1, 1])
        project = m.conv(relu6(depth), f"{block}_project", (8, 24, 1, 1))
        last = m.node("Add", [last, project], f"{block}_sum")
    pool = m.node("Flatten", m.node("GlobalAveragePool", last, "pool"), "flat")
    m.node("Gemm", [pool, m.normal(8, 10), m.normal(10)], "scores")
    return m


@pytest.mark.parametrize("tap", [85.0, 150.0])
def test_a_network_with_extreme_depthwise_weights(tap: float) -> None:
    """With clamps of 6 on both sides m would be tap / 127 * 2^17: 87,726 and 154,810, whatever is equalised."""
    m = inverted_residuals(tap)
    model, data = m.build("scores"), m.data(8)
    report = quantise_with_report(model, data)
    multipliers = {layer.name: layer.scale for layer in report.layers if layer.scale}
    assert SCALE_LIMIT - 2 <= multipliers["one_depth6"] <= SCALE_LIMIT, "no coarser than it has to be"
    assert all(0 < scale <= SCALE_LIMIT for scale in multipliers.values())
    exact = np.concatenate([run_float(model, x)["scores"] for x in data])
    result = np.concatenate([integer_outputs(report.graph, x)["scores"].reshape(1, -1) for x in data])
    assert report.snr_db == pytest.approx(decibels(exact, result), abs=0.1)
    assert report.snr_db > 15
    assert report.agreement >= 7 / 8


def test_tensors_of_one_sum_still_share_a_step() -> None:
    """The step that grows is that of the whole sum; readers of it, and of what they make, follow."""
    m = FloatModel((1, 4, 8, 8))
    w = np.zeros((4, 4, 1, 1))
    w[range(4), range(4)] = 200.0
    w[:, :, 0, 0] -= 200.0 * np.eye(4)[[1, 2, 3, 0]]
    # neighbours of channels are alike but for a little, so results are small beside products
    same = np.repeat(m.random.normal(0, 1, (1, 1, 8, 8)), 4, 1)
    data = [(same + m.random.normal(0, 0.002, same.shape)).astype(np.float32)]
    a = m.node("Conv", ["x", m.constant(w)], "a")
    b = m.conv(a, "b", (4, 4, 1, 1))
    m.conv(m.node("Add", [a, b], "c"), "d", (4, 4, 1, 1))
    net = fold(m.build("d"), "model", normalised=False)
    statistics = measure(net, [{"x": x} for x in data])
    graph = Rounder(net, statistics).graph()
    (shared,) = {graph.value(name).step for name in "abc"}
    assert shared > max(statistics[name].full_step for name in "abc")
    assert next(layer.scale for layer in graph.layers if layer.output == "a") in (SCALE_LIMIT - 1, SCALE_LIMIT)
    for layer in graph.layers:
        if layer.w is not None:
            assert np.abs(layer.w).max() >= 126, "no weight is clipped for it"


def test_a_growing_step_is_followed_by_those_behind() -> None:
    """b would fit if a's step had not grown."""
    m = FloatModel((1, 2, 8, 8))
    m.node("Clip", ["x", m.constant(0.0), m.constant(6.0)], "six")
    for source, output, tap in (("six", "a", 90.0), ("a", "b", 60.0)):
        conv = m.node("Conv", [source, m.constant(np.full((2, 1, 1, 1), tap))], f"{output}_full", group=2)
        m.node("Clip", [conv, m.constant(0.0), m.constant(6.0)], output)
    m.conv("b", "y", (2, 2, 1, 1))
    net = fold(m.build("y"), "model", normalised=False)
    statistics = measure(net, [{"x": 9 * x} for x in m.data()])
    graph = Rounder(net, statistics).graph()
    scales = {layer.output: layer.scale for layer in graph.layers}
    assert scales["a"] >= SCALE_LIMIT - 1
    assert scales["b"] >= SCALE_LIMIT - 1
    a, b = (graph.value(name).step for name in "ab")
    assert a / statistics["a"].full_step > 1.3
    assert b / a == pytest.approx(60 / 127 * 2**SCALE_SHIFT / SCALE_LIMIT, rel=1e-4)


@pytest.mark.parametrize(("kernel", "scale"), [(1, SCALE_LIMIT), (2, SCALE_LIMIT)])
def test_an_average_of_few_pixels_fits(kernel: int, scale: int) -> None:
    """One pixel's average has m = 2^17 with an equal step; peaks average to less than half of themselves."""
    m = FloatModel((1, 2, 8, 8))
    a = m.node("Relu", m.conv("x", "a", (2, 2, 1, 1)), "r")
    m.node("AveragePool", a, "y", kernel_shape=[kernel] * 2, strides=[kernel] * 2)
    data = [np.zeros((1, 2, 8, 8), np.float32)]
    data[0][:, :, ::4, ::4] = m.random.normal(0, 3, (1, 2, 2, 2))
    net = fold(m.build("y"), "model", normalised=False)
    graph = Rounder(net, measure(net, [{"x": x} for x in data])).graph()
    assert graph.layers[-1].scale == scale


@pytest.mark.parametrize("by_channel", [False, True])
def test_large_layers_in_blocks_get_the_same_weights(by_channel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one filter, of some, and of all at once."""
    m = inverted_residuals(85.0)
    model, data = m.build("scores"), m.data(2)
    whole = quantise_with_report(model, data, by_channel=by_channel).graph
    for block in (1, 500):
        monkeypatch.setattr(weight_errors, "_BLOCK", block)
        graph = quantise_with_report(model, data, by_channel=by_channel).graph
        for one, other in zip(whole.layers, graph.layers, strict=True):
            assert one.scale == other.scale
            for name in ("w", "bias", "scales"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), f"{one.output} {name}")


def test_of_drawn_weights_one_choice_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    m = inverted_residuals(85.0)
    model, data = m.build("scores"), m.data(2)
    graphs: list[bool] = []
    make = Rounder.graph

    def graph(self: Rounder) -> Graph:
        graphs.append(self.by_channel)
        return make(self)

    monkeypatch.setattr(Rounder, "graph", graph)
    report = quantise_with_report(model, data, by_channel=True, real=False)
    assert graphs == [True]
    assert (report.equalised, report.graph.real) == (0.0, False)
    quantise_with_report(model, data, by_channel=True)
    assert len(graphs) > 8


@pytest.mark.parametrize("tail", [0.0, 3.0])
@pytest.mark.parametrize("by_channel", [False, True])
def test_the_multiplier_of_least_error_of_all(tail: float, by_channel: bool) -> None:
    """What is left out (weights that are 0 for whole channels, multipliers that clip too much) changes no choice.
    `tail`: how much larger than the others some weights are."""
    m = FloatModel((1, 24, 6, 6), seed=5)
    w = m.random.normal(0, 0.3, (24, 8, 3, 3))
    w[::5, 0, 0, 0] *= 1 + 10 * tail
    grouped = m.node("Conv", ["x", m.constant(w), m.normal(24)], "grouped", group=3, pads=[1, 1, 1, 1])
    dense = m.random.standard_t(3, (40, 24, 3, 3)) * 0.1 if tail else m.random.normal(0, 0.1, (40, 24, 3, 3))
    m.node("Conv", [grouped, m.constant(dense), m.normal(40)], "dense")
    net = fold(m.build("dense"), "model", normalised=False)
    statistics = measure(net, [{"x": x} for x in m.data(2)])
    rounder = Rounder(net, statistics, by_channel=by_channel)
    for layer, float_layer in zip(rounder.graph().layers, net.layers, strict=True):
        weights, power = float_layer.w, statistics[float_layer.inputs[0]].square[None, :, None, None]
        assert weights is not None
        assert layer.w is not None
        unit = rounder.step(layer.output) / rounder.step(layer.inputs[0]) / 2**SCALE_SHIFT
        rows = weights if by_channel else weights[None]
        for row, (own, rounded) in enumerate(zip(rows, layer.w if by_channel else layer.w[None], strict=True)):
            full = np.abs(own).max() / 127 / unit
            top = np.ceil(full)
            low = max(1, full / 2)
            if by_channel:
                tries = [np.rint(top + (low - top) * share) for share in np.linspace(0, 1, 48)]
            else:
                tries = sorted({round(m) for m in np.linspace(low, top, 48)}, reverse=True)

            values = [np.clip(np.rint(own / (m * unit)), -127, 127) for m in tries]
            errors = [float((power[0] * (q * m * unit - own) ** 2).sum()) for q, m in zip(values, tries, strict=True)]
            best = int(np.argmin(errors))
            chosen = int(layer.scales[row]) if layer.scales is not None else layer.scale
            assert chosen == tries[best]
            assert np.array_equal(rounded, values[best])
