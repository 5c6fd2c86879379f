"""Padding before maxima, results that nobody reads, functions and names of a file's own, rearrangements that take too
much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from meshloom.sched.workload.onnx.building.views import split_into_pieces
from meshloom.sched.workload.onnx.errors import OnnxError, Refused, UnsupportedError
from meshloom.sched.workload.onnx.load import load_model
from meshloom.sched.workload.onnx.outcome import Quantised
from meshloom.sched.workload.onnx.own_names import give_own_names
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.reader import from_onnx, read
from meshloom.sched.workload.onnx.writer import save, to_onnx

from ...float_models import FloatModel, decibels, integer_outputs, run_float
from ...integer_models import IntegerModel

LOWEST = float(np.finfo(np.float32).min)


def near(m: FloatModel, model: onnx.ModelProto | None = None, layers: str = "") -> None:
    data, model = m.data(2), model or m.build("y")
    report = quantise_with_report(model, data)
    exact = run_float(model, data[0])["y"]
    values = integer_outputs(report.graph, report.sources["x"].value(data[0]))
    result = report.said({name: values[name] for name in report.graph.outputs})["y"]
    assert result.shape == exact.shape
    assert decibels(exact, result) > 22
    if layers:
        assert [layer.kind for layer in report.graph.layers] == layers.split()


# -- padding before maxima ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-np.inf, LOWEST])
def test_padding_before_maxima(value: float):
    m = FloatModel(opset=13)
    a = m.node("Pad", ["x", m.integers(0, 0, 1, 0, 0, 0, 0, 1), m.constant(value)], "a")
    m.node("MaxPool", a, "y", kernel_shape=[3, 3], pads=[1, 0, 0, 0], strides=[2, 2])
    near(m, layers="max_pool")


def test_padding_along_some_axes():
    """The axes in another order; what the window adds itself is `VALID`, or grows to whole windows."""
    m = FloatModel(opset=18)
    a = m.node("Pad", ["x", m.integers(1, 0, 0, 2), m.constant(-np.inf), m.integers(-1, 2)], "a")
    b = m.node("MaxPool", a, "b", kernel_shape=[3, 3], auto_pad="VALID", strides=[1, 2])
    c = m.node("Pad", [b, m.integers(1, 1), m.constant(-np.inf), m.integers(2)], "c")
    m.node("MaxPool", c, "y", kernel_shape=[3, 1], strides=[2, 2], ceil_mode=1)
    near(m, layers="max_pool max_pool")


def test_padding_before_an_opset_had_operands():
    m = FloatModel(opset=9)
    a = m.node("Pad", "x", "a", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=-np.inf)
    m.node("MaxPool", a, "y", kernel_shape=[2, 2])
    near(m, layers="max_pool")


def test_padding_of_channels_last():
    """As TensorFlow's converter leaves it: the axes change places between, twice, and two pools read the tensor."""
    m = FloatModel((1, 8, 8, 3), opset=13)
    a = m.node("Pad", ["x", m.integers(0, 1, 1, 0, 0, 1, 1, 0), m.constant(LOWEST)], "a")
    b = m.node("Identity", m.node("Transpose", a, "b", perm=[0, 3, 1, 2]), "c")
    first = m.node("MaxPool", b, "d", kernel_shape=[3, 3], strides=[2, 2])
    second = m.node("MaxPool", b, "e", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    m.node("Add", [first, m.node("Slice", [second, m.integers(0, 0), m.integers(4, 4), m.integers(2, 3)], "f")], "y")
    near(m, layers="max_pool max_pool slice add")


def test_zeros_before_averages_that_count_them():
    m = FloatModel(opset=13)
    a = m.node("Pad", ["x", m.integers(0, 0, 1, 0, 0, 0, 1, 1)], "a")
    m.node("AveragePool", a, "y", kernel_shape=[3, 3], pads=[0, 1, 0, 0], count_include_pad=1)
    near(m, layers="average_pool")


@pytest.mark.parametrize("shape", [(7, 1), (1, 7), (4, 1, 1)])
def test_zeros_that_meet_constants_of_their_own(shape: tuple[int, ...]) -> None:
    m = FloatModel((1, 3, 6, 6))
    padded = m.node("Pad", [m.conv("x", "a", (4, 3, 1, 1)), m.integers(0, 0, 1, 0, 0, 0, 0, 1)], "padded")
    m.conv(m.node("Mul", [padded, m.normal(*shape)], "b"), "y", (2, 4, 1, 1))
    near(m)


@pytest.mark.parametrize(
    "build",
    [
        lambda m, a: m.node("Relu", a, "y"),
        lambda m, a: m.node("Concat", [m.node("MaxPool", a, "p", kernel_shape=[1, 1]), a], "y", axis=1),
        lambda m, a: m.node("MaxPool", a, "y", kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
        lambda m, a: m.node("MaxPool", a, "y", kernel_shape=[1, 1]),  # windows of padding alone
        lambda m, a: m.node("MaxPool", m.node("Transpose", a, "t", perm=[0, 2, 1, 3]), "y", kernel_shape=[3, 3]),
    ],
)
def test_padding_that_something_else_reads(build: Any):
    m = FloatModel(opset=13)
    a = m.node("Pad", ["x", m.integers(0, 0, 1, 1, 0, 0, 1, 1), m.constant(-np.inf)], "a")
    m.conv(m.node("Sigmoid", build(m, a), "s"), "z", (2, 3, 1, 1))
    with pytest.raises(UnsupportedError, match=r"n_a \(Pad\): pads with -inf"):
        quantise_with_report(m.build("z"), m.data(1))


# -- filters that are computed --------------------------------------------------------------------------------------


def filters(m: FloatModel, *sizes: int) -> str:
    """A tensor of this shape that depends on the input."""
    means = m.node("Flatten", m.node("AveragePool", "x", "means", kernel_shape=[4, 4], strides=[4, 4]), "flat")
    numbers = m.node("MatMul", [means, m.normal(12, int(np.prod(sizes)))], "numbers")
    return m.node("Reshape", [numbers, m.integers(*sizes)], "filters")


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 3, 3, 3), {}),  # a template in a map: SiamFC
        ((3, 1, 3, 2), {"group": 3, "pads": [1, 0, 1, 1]}),  # of each channel: SiamRPN++
        ((4, 3, 2, 2), {"strides": [2, 1], "dilations": [2, 2]}),
        ((1, 3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [3, 2]}),
        ((2, 3, 1, 1), {}),
    ],
)
def test_filters_that_are_computed(sizes: tuple[int, ...], options: dict[str, Any]) -> None:
    m = FloatModel()
    m.node("Conv", ["x", filters(m, *sizes)], "y", **options)
    near(m)


def test_filters_of_a_line_with_offsets() -> None:
    m = FloatModel((1, 3, 16))
    w = m.node("Conv", ["x", m.normal(3, 3, 8), m.normal(3)], "a", strides=[4])
    m.node("Conv", ["x", w, m.normal(1)], "y", pads=[1, 1])
    near(m)


def test_filters_that_are_part_of_a_map() -> None:
    m = FloatModel()
    w = m.node("Slice", ["x", m.integers(2, 2), m.integers(5, 5), m.integers(2, 3)], "w")
    m.node("Conv", ["x", w], "y")
    near(m)


def test_filters_of_too_many_taps_are_refused() -> None:
    m = FloatModel((1, 3, 20, 64))
    w = m.node("Slice", ["x", m.integers(0, 0), m.integers(17, 62), m.integers(2, 3)], "w")
    m.node("Conv", ["x", w], "y")
    with pytest.raises(UnsupportedError, match=r"n_y \(Conv\): its weights \('w'\) is computed, must be a constant"):
        quantise_with_report(m.build(m.conv("y", "z", (2, 1, 1, 1))), m.data(1))


def test_filters_of_three_axes_that_are_computed_are_refused() -> None:
    m = FloatModel((1, 2, 3, 3, 3))
    m.node("Conv", ["x", m.node("Tanh", "x", "w")], "y")
    with pytest.raises(UnsupportedError, match=r"n_y \(Conv\): its weights \('w'\) is computed, must be a constant"):
        quantise_with_report(m.build(m.node("Relu", "y", "z")), m.data(1))


# -- results that nobody reads ----------------------------------------------------------------------------------------


def indices(m: FloatModel) -> onnx.NodeProto:
    m.node("MaxPool", m.conv("x", "a", (4, 3, 3, 3)), "y", kernel_shape=[2, 2])
    m.nodes[-1].output.append("places")
    return m.nodes[-1]


def test_indices_that_nobody_reads():
    m = FloatModel(opset=13)
    indices(m)
    near(m, layers="conv max_pool")


def test_indices_that_are_read():
    m = FloatModel(opset=13)
    indices(m)
    m.conv(m.node("Cast", "places", "real", to=1), "z", (2, 4, 1, 1))
    with pytest.raises(UnsupportedError, match="the indices of the maxima are not computed"):
        quantise_with_report(m.build("y", "z"), m.data(1))


@pytest.mark.parametrize("read", [False, True])
def test_indices_of_integers(read: bool):
    m = IntegerModel()
    m.node("MaxPool", [m.conv("x", "a", np.ones((3, 2, 1, 1), np.int8))], "y", kernel_shape=[2, 2])
    m.nodes[-1].output.append("places")
    if not read:
        assert from_onnx(m.build("y"), "net").layers[-1].kind == "max_pool"
        return
    model = m.build("y", "places")
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(UnsupportedError, match="the indices of the maxima are not computed"):
        from_onnx(model, "net")


# -- functions of a file's own ----------------------------------------------------------------------------------------


def function(name: str, text: str, domain: str = "own") -> onnx.FunctionProto:
    head = f'<opset_import: ["" : 17, "own" : 1], domain: "{domain}"> {name} '
    return parser.parse_function(head + text)


def calling(tmp_path: Path, *functions: onnx.FunctionProto, call: str = "Outer") -> Path:
    """A file whose second node calls a function of its own, with a weight."""
    m = FloatModel(opset=17)
    m.conv("x", "a", (4, 3, 1, 1))
    m.nodes.append(helper.make_node(call, ["a", m.normal(4, 4, 1, 1)], ["y"], "call", domain="own", slope=0.25))
    model = m.build("y")
    model.functions.extend(functions)
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


INNER = function("Inner", "<s> (v) => (w) { w = LeakyRelu <alpha : float = @s> (v) }")
OUTER = function("Outer", "<slope> (v, k) => (w) { t = Conv (v, k) w = own.Inner <s : float = @slope> (t) }")


def test_functions_are_put_in_place(tmp_path: Path):
    path = calling(tmp_path, INNER, OUTER)
    model = load_model(path)
    assert [node.op_type for node in model.graph.node] == ["Conv", "Conv", "LeakyRelu"]
    x = FloatModel().data(1)[0]
    assert np.array_equal(run_float(onnx.load(path), x)["y"], run_float(model, x)["y"])
    report = quantise_with_report(path, FloatModel().data(2))
    assert "conv" in {layer.kind for layer in report.graph.layers}


def test_functions_in_a_branch(tmp_path: Path):
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 1, 1))
    call = helper.make_node("Inner", [a], ["t"], domain="own", s=0.5)
    both = helper.make_graph([call], "both", [], [helper.make_empty_tensor_value_info("t")])
    m.nodes.append(helper.make_node("If", [m.constant(True, np.bool_)], ["y"], then_branch=both, else_branch=both))
    model = m.build("y")
    model.functions.append(INNER)
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, tmp_path / "net.onnx")
    near(m, load_model(tmp_path / "net.onnx"), "conv table")


def test_functions_of_integer_layers_stay(tmp_path: Path):
    """What Meshloom writes has functions, which are layers."""
    m = FloatModel((1, 6, 1, 5))
    m.node("Softmax", m.conv("x", "a", (6, 6, 1, 1)), "b", axis=1)
    m.conv("b", "y", (2, 6, 1, 1))
    graph = quantise_with_report(m.build("y"), m.data(2)).graph
    onnx.save(to_onnx(graph), tmp_path / "net.onnx")
    model = load_model(tmp_path / "net.onnx")
    assert {item.domain for item in model.functions} == {"meshloom"}
    assert [layer.kind for layer in from_onnx(model, "net").layers] == [layer.kind for layer in graph.layers]


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([function("Outer", "<slope> (v, k) => (w) { w = own.Outer (v, k) }")], "must not be recursive"),
        ([function("Outer", "<slope> (v, k) => (w) { t = Strange (v) w = own.Outer (t, k) }")],
         "its function 'Outer' calls itself; export it without functions"),
        ([function("Outer", "<slope> (v, k) => (w) { w = own.B (v, k) }"),
          function("B", "(v, k) => (w) { w = own.Outer (v, k) }")], "must not be recursive"),
        ([function("Outer", "<slope> (v, k) => (w) { w = own.F0 (v) }"),
          *(function(f"F{i}", f"(v) => (w) {{ t = own.F{i + 1} (v) w = own.F{i + 1} (t) }}") for i in range(40)),
          function("F40", "(v) => (w) { w = Relu (v) }")],
         "its own functions become 1,099,511,627,777 nodes; 100,000 at most"),
        ([function("Outer", "<slope> (v, k) => (w) { w = own.F0 (v) }"),
          *(function(f"F{i}", f"(v) => (w) {{ w = own.F{i + 1} (v) }}") for i in range(120)),
          function("F120", "(v) => (w) { w = Relu (v) }")], "call each other more than 100 deep"),
    ],
)  # fmt: skip
def test_functions_without_end(functions: list[onnx.FunctionProto], message: str, tmp_path: Path):
    with pytest.raises(OnnxError, match=message):
        load_model(calling(tmp_path, *functions))


# -- rearrangements --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "axis", "message"),
    [
        ((1, 2, 600, 2), 2, r"from \[2, 600, 2\] to \[2, 600, 2\] channels, rows and columns it takes more than "
         r"256 copies of parts of a map, since its rows are of \d+ parts"),
        ((1, 2, 2, 600), 3, r"its columns are of \d+ parts that do not move together; fewer columns"),
    ],
)  # fmt: skip
def test_too_many_copies_name_what_to_change(shape: Any, axis: int, message: str):
    m = FloatModel(shape, opset=13)
    picked = np.random.default_rng(0).permutation(shape[axis])
    m.conv(m.node("Gather", ["x", m.integers(*picked)], "a", axis=axis), "y", (2, 2, 1, 1))
    with pytest.raises(UnsupportedError, match=message):
        quantise_with_report(m.build("y"), m.data(1))


@pytest.mark.parametrize(("count", "parts"), [(256, None), (257, 257)])
def test_as_many_copies_as_there_may_be(count: int, parts: int | None):
    """Rows backwards: each is a copy."""
    index = np.arange(count)[::-1].reshape(1, count, 1)
    if parts is None:
        assert len(split_into_pieces(index, (1, count, 1))[0]) == count
    else:
        with pytest.raises(Refused, match=f"its rows are of {parts} parts"):
            split_into_pieces(index, (1, count, 1))


def test_copies_of_channels_and_pixels():
    """Each channel shifted by one more than the one before; each pixel from other channels."""
    shifted = np.stack([np.roll(np.arange(300), by) + by * 300 for by in range(300)]).reshape(300, 300, 1)
    with pytest.raises(Refused, match="its channels are of 300 parts"):
        split_into_pieces(shifted, (300, 300, 1))
    spread = (np.arange(300) * 300 + np.arange(300)).reshape(1, 300, 1)
    with pytest.raises(Refused, match="its pixels are of 300 parts"):
        split_into_pieces(spread, (300, 300, 1))


# -- names of a file that ours could be -----------------------------------------------------------------------------


def of_two_tensors(operator: str, a: str, b: str) -> FloatModel:
    """A node that others take the place of, or layers, and two tensors of these names."""
    m = FloatModel((1, 1, 4, 4), opset=17)
    gains = (4, 4) if operator == "ReduceProd" else 4
    m.initialisers.append(numpy_helper.from_array(np.full(gains, 1.5, np.float32), a))
    if operator == "ReduceProd":
        m.node("ReduceProd", "x", "z", axes=[-1], keepdims=1)
        m.node("MatMul", [a, "z"], b)
    else:
        m.node("LayerNormalization", ["x", a], "z", axis=-1)
        m.node("MatMul", [m.normal(4, 4), "z"], b)
    m.node("Tanh", b, "y")
    return m


@pytest.mark.parametrize(
    ("operator", "a", "b"), [("ReduceProd", "z//0", "z//1"), ("LayerNormalization", "z/less", "z/even")]
)
def test_names_as_layers_and_nodes_in_between_have(tmp_path: Path, operator: str, a: str, b: str):
    reports: list[Quantised] = []
    for names in (("a", "b"), (a, b)):
        m = of_two_tensors(operator, *names)
        onnx.save(m.build("y"), tmp_path / "m.onnx")
        reports.append(quantise_with_report(tmp_path / "m.onnx", m.data()))
    first, second = reports
    assert first.snr_db == second.snr_db
    assert [layer.kind for layer in first.graph.layers] == [layer.kind for layer in second.graph.layers]
    assert first.graph.outputs == second.graph.outputs


def test_an_output_keeps_its_name_where_another_tensor_can_have_another(tmp_path: Path):
    m = FloatModel()
    m.conv("x", "a", (4, 3, 1, 1))
    m.node("Relu", "a", "a//full")
    onnx.save(m.build("a//full"), tmp_path / "m.onnx")
    report = quantise_with_report(tmp_path / "m.onnx", m.data())
    assert list(report.origins.values()) == ["a//full"]
    assert report.snr_db > 30


def test_names_in_bodies_and_of_sparse_weights_change_together():
    condition = helper.make_tensor("t", TensorProto.BOOL, [1], [1])
    value = helper.make_tensor_value_info("r", TensorProto.FLOAT, [1])
    then = helper.make_graph([helper.make_node("Mul", ["x//w", "x//a"], ["r"])], "then", [], [value])
    nodes = [helper.make_node("Relu", ["x"], ["x//a"]), helper.make_node("If", ["t"], ["y"], then_branch=then)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    values, places = helper.make_tensor("x//w", TensorProto.FLOAT, [1], [2.0]), helper.make_tensor("", 7, [1], [0])
    sparse = helper.make_sparse_tensor(values, places, [1])
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [condition], sparse_initializer=[sparse])
    annotation = graph.quantization_annotation.add(tensor_name="x//a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="x//w")
    model = helper.make_model(graph)
    give_own_names(model, "m")
    graph, annotation = model.graph, model.graph.quantization_annotation[0]
    assert list(graph.node[0].output) == ["x_/a"]
    assert list(graph.node[1].attribute[0].g.node[0].input) == ["x_/w", "x_/a"]
    assert graph.sparse_initializer[0].values.name == annotation.quant_parameter_tensor_names[0].value == "x_/w"
    assert annotation.tensor_name == "x_/a"


def test_an_output_named_as_a_node_in_between_of_an_input(tmp_path: Path):
    m = FloatModel()
    m.node("Neg", "x", "x//0")
    onnx.save(m.build("x//0"), tmp_path / "m.onnx")
    with pytest.raises(OnnxError, match="what stands between would be named 'x//0', as an output is"):
        load_model(tmp_path / "m.onnx")


def test_an_output_named_as_a_node_in_between_of_another_output(tmp_path: Path):
    m = FloatModel()
    m.node("LRN", m.conv("x", "a", (4, 3, 1, 1)), "y", size=3)
    m.conv("y", "y//1", (2, 4, 1, 1))
    onnx.save(m.build("y", "y//1"), tmp_path / "m.onnx")
    report = quantise_with_report(tmp_path / "m.onnx", m.data())
    assert list(report.origins.values()) == ["y", "y//1"]
    exact = run_float(m.build("y", "y//1"), m.data()[0])
    steps = integer_outputs(report.graph, m.data()[0])
    assert all(decibels(exact[origin], steps[name]) > 25 for name, origin in report.origins.items())


def test_networks_of_meshloom_keep_their_names(tmp_path: Path):
    m = FloatModel()
    m.conv("x", "a", (4, 3, 1, 1))
    m.node("Transpose", "a", "y", perm=[0, 1, 3, 2])
    graph = quantise_with_report(m.build("y"), m.data()).graph
    save(graph, tmp_path / "m.onnx")
    assert list(read(tmp_path / "m.onnx").values) == list(graph.values)


def test_an_output_named_as_the_weights_of_another_output(tmp_path: Path):
    """Both keep their names for who asks; inside of the network one has another."""
    m = FloatModel()
    m.node("HardSwish", m.conv("x", "a", (4, 3, 1, 1)), "a/w")
    m.opset = 14
    onnx.save(m.build("a", "a/w"), tmp_path / "m.onnx")
    report = quantise_with_report(load_model(tmp_path / "m.onnx"), m.data())
    assert report.graph.outputs == ("a", "a_w")
    assert report.origins == {"a": "a", "a_w": "a/w"}
    exact = run_float(m.build("a", "a/w"), m.data()[0])
    steps = integer_outputs(report.graph, m.data()[0])
    assert all(decibels(exact[origin], steps[name]) > 25 for name, origin in report.origins.items())
