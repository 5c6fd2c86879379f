"""Weights with a scale for each filter: float files, files of integer operators, and pairs in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.quantise import quantise, quantise_with_report
from meshloom.sched.workload.onnx.reader import as_it_is, from_onnx
from meshloom.sched.workload.onnx.writer import to_onnx
from meshloom.tb.inputs.golden.graph import golden_values

from ...float_models import FloatModel, decibels, integer_outputs, run_float
from ...network_graphs import every_kind, inputs_of
from ...random_graphs import by_channel, defined_values
from .test_dequantised import noise, written
from .test_pairs import statically_quantised


def ranges_apart() -> FloatModel:
    """A depthwise layer and a convolution whose filters differ in range by 300; a ReLU6 keeps them from being
    equalised."""
    m = FloatModel((1, 6, 8, 8), seed=3)
    factors = np.geomspace(1, 300, 6)[:, None, None, None]
    w = m.random.normal(0, 0.05, (6, 1, 3, 3)) * factors
    a = m.node("Conv", ["x", m.constant(w), m.constant(np.zeros(6))], "a", group=6, pads=[1, 1, 1, 1])
    back = m.random.normal(0, 1, (6, 6, 1, 1)) / factors.reshape(1, 6, 1, 1)
    m.node("Conv", [m.node("Tanh", a, "t"), m.constant(back), m.normal(6)], "y")
    return m


def test_float_files_get_a_step_for_each_filter_where_it_is_better() -> None:
    m = ranges_apart()
    model, data = m.build("a", "y"), m.data(4)
    one, each = (quantise_with_report(model, data, by_channel=flag) for flag in (False, True))
    assert all(layer.scales is None for layer in one.graph.layers)
    assert each.by_channel
    assert not one.by_channel
    assert each.snr_db > one.snr_db
    scaled = [layer for layer in each.graph.layers if layer.w is not None]
    assert all(layer.scales is not None and layer.scale == 0 for layer in scaled)
    depthwise = scaled[0].scales
    assert depthwise is not None
    assert depthwise.max() > 30 * depthwise.min()
    assert each.layers[0].scale == depthwise.max()
    # the steps are the chip's: sx * sw / sy = m / 2**17, and no weight is far from its float
    x_step, y_step = each.graph.inputs[0].step, each.graph.steps["a"]
    step = depthwise * y_step / x_step / 2**17
    w = numpy_helper.to_array(model.graph.initializer[0])
    assert scaled[0].w is not None
    assert np.all(np.abs(scaled[0].w * step[:, None, None, None] - w) <= 0.51 * step[:, None, None, None])


def test_a_depthwise_layer_of_one_tap_has_one_scale() -> None:
    m = FloatModel((1, 4, 5, 5))
    m.node("Conv", ["x", m.normal(4, 1, 1, 1), m.normal(4)], "y", group=4)
    graph = quantise(m.build("y"), m.data(2), by_channel=True)
    assert [layer.scales for layer in graph.layers if layer.kind == "depthwise"] == [None]


def test_written_networks_are_read_again() -> None:
    """And ONNX Runtime computes them as the definition says."""
    graph = by_channel(every_kind(14, 9))
    model = to_onnx(graph)
    again = as_it_is(model, "m", by_channel=True)
    assert again is not None
    for ours, theirs in zip(graph.layers, again.layers, strict=True):
        if ours.scales is None or theirs.scales is None:
            assert ours.scales is theirs.scales
        else:
            np.testing.assert_array_equal(ours.scales, theirs.scales)
    assert as_it_is(model, "m") is None  # a chip without
    inputs = inputs_of(graph)
    golden, defined = golden_values(graph, inputs), defined_values(graph, inputs)
    for name, result in golden.items():
        np.testing.assert_array_equal(result, defined[name], name)


def test_filters_whose_scales_are_equal_have_one_and_run_on_a_chip_without() -> None:
    """Quantisers write a scale for each filter even where all are the same."""
    graph = every_kind(14, 9)
    model = to_onnx(graph)
    sizes = {item.name: item.dims for item in model.graph.initializer}
    repeated = {node.input[4]: sizes[node.input[3]][0] for node in model.graph.node if node.op_type == "QLinearConv"}
    assert repeated
    for item in model.graph.initializer:
        if (count := repeated.get(item.name)) is not None:
            scales = np.repeat(numpy_helper.to_array(item).ravel(), count)
            item.CopyFrom(numpy_helper.from_array(scales, item.name))
    again = as_it_is(model, "m")
    assert again is not None
    assert [(layer.scale, layer.scales) for layer in again.layers] == [(layer.scale, None) for layer in graph.layers]


def test_wrong_scales_of_filters_are_refused() -> None:
    graph = by_channel(every_kind(14, 9))
    for change, error in ((lambda w: w[:-1], "weight scales for"), (lambda w: w * 1.3, "must be a whole number of")):
        model = to_onnx(graph)
        node = next(node for node in model.graph.node if node.op_type == "QLinearConv")
        for item in model.graph.initializer:
            if item.name == node.input[4]:
                item.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(item)), item.name))
        with pytest.raises(UnsupportedError, match=error):
            from_onnx(model, "m")


@pytest.mark.parametrize("pairs", [False, True])
def test_files_of_onnx_runtimes_quantiser_keep_their_weights(pairs: bool, tmp_path: Path) -> None:
    """QOperator and QDQ files with a scale for each filter: the weights are the file's, byte for byte."""
    model, data = statically_quantised(tmp_path, True, True) if pairs else written(tmp_path, True, True, True)
    report = quantise_with_report(model, data, by_channel=True)
    assert any("tensors have the file's own scale" in note for note in report.graph.notes), report.graph.notes
    assert not any("other scales than in the file" in note for note in report.graph.notes)
    theirs = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    bytes_ = [array for array in theirs.values() if array.dtype == np.int8 and array.ndim == 4]
    ours = [layer.w for layer in report.graph.layers if layer.w is not None and layer.scales is not None]
    for array in bytes_:
        assert any(w is not None and w.shape == array.shape and np.array_equal(w, array) for w in ours)
    if not pairs:
        assert noise(model, report, data) > 33
    else:
        (end,) = report.graph.outputs
        exact = np.stack([next(iter(run_float(model, x).values())).ravel() for x in data])
        assert decibels(exact, np.stack([integer_outputs(report.graph, x)[end].ravel() for x in data])) > 20
