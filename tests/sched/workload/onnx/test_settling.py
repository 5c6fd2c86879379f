"""What follows from sizes: shapes, anchors and branches become constants; the host reads outer values, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.load import bound, load_model
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.settling import settled

from ...float_models import FloatModel, decibels, integer_outputs, run_float


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type != "Constant"]


def same(model: onnx.ModelProto, other: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    """Both compute the same, to the last bit."""
    theirs, ours = (run(session(each, "model"), feeds) for each in (model, other))
    assert theirs.keys() == ours.keys()
    for name, array in theirs.items():
        assert np.array_equal(array, ours[name]), name


def near(m: FloatModel, *outputs: str, noise: float = 20, **shape: Any) -> Any:
    """A model on its way to the chip's numbers, against ONNX Runtime on the model itself."""
    model, data = m.build(*outputs), [array.reshape(1, *array.shape[1:]) for array in m.data()]
    report = quantise_with_report(model, data)
    exact = run_float(model, data[0])
    values = integer_outputs(report.graph, data[0])
    result = report.said({name: values[name] for name in report.graph.outputs})
    for name in outputs:
        assert exact[name].shape == np.asarray(result[name]).shape
        assert decibels(exact[name], result[name]) > noise
    return report


# -- sizes ------------------------------------------------------------------------------------------------------


def sizes_of(m: FloatModel, source: str, name: str, *axes: int) -> list[str]:
    """Some sizes of a tensor, each [1], as PyTorch writes them."""
    shape = m.node("Shape", source, f"{name}_shape")
    parts = [m.node("Gather", [shape, m.constant(axis, np.int64)], f"{name}_{axis}") for axis in axes]
    return [m.node("Unsqueeze", [part, m.integers(0)], f"{part}u") for part in parts]


def grid(m: FloatModel, source: str, stride: float) -> tuple[str, str]:
    """Middles of the cells of a map, [2, cells], and its stride for each of them, computed from its shape."""
    rows, columns = sizes_of(m, source, f"{source}_grid", 2, 3)
    both = m.node("Concat", [rows, columns], f"{source}_both", axis=0)
    axes: list[str] = []
    for name, count, shape in (("y", rows, (-1, 1)), ("x", columns, (1, -1))):
        scalar = m.node("Squeeze", [count, m.integers(0)], f"{source}_{name}n")
        numbers = m.node("Range", [m.constant(0, np.int64), scalar, m.constant(1, np.int64)], f"{source}_{name}r")
        middle = m.node(
            "Add", [m.node("Cast", numbers, f"{source}_{name}f", to=1), m.constant(0.5)], f"{source}_{name}m"
        )
        whole = m.node("Expand", [m.node("Reshape", [middle, m.integers(*shape)], f"{source}_{name}s"), both],
                       f"{source}_{name}e")  # fmt: skip
        axes.append(m.node("Reshape", [whole, m.integers(1, -1)], f"{source}_{name}"))
    anchors = m.node("Concat", axes[::-1], f"{source}_anchors", axis=0)
    count = m.node(
        "Concat", [m.integers(1), m.node("Mul", [rows, columns], f"{source}_count")], f"{source}_counts", axis=0
    )
    ones = m.node(
        "ConstantOfShape", count, f"{source}_ones", value=numpy_helper.from_array(np.array([stride], np.float32))
    )
    return anchors, ones


def detector(opset: int = 17) -> FloatModel:
    """The tail of YOLOv8 as it is exported with open sizes: `y` [1, 4 + classes, cells]."""
    m = FloatModel((1, 3, "height", "width"), opset=opset)
    fine = m.node("Relu", m.conv("x", "a", (8, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]), "fine")
    coarse = m.node("Relu", m.conv(fine, "b", (8, 8, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]), "coarse")
    sides = m.node("Concat", [*sizes_of(m, coarse, "c", 0, 1), *sizes_of(m, fine, "f", 2, 3)], "sides", axis=0)
    larger = m.node("Resize", [coarse, "", "", sides], "larger", mode="nearest", nearest_mode="floor",
                    coordinate_transformation_mode="asymmetric")  # fmt: skip
    fine = m.conv(m.node("Concat", [fine, larger], "joined", axis=1), "d", (8, 16, 1, 1))
    heads: list[str] = []
    for index, source in enumerate((fine, coarse)):
        head = m.conv(source, f"head{index}", (11, 8, 1, 1))
        (batch,) = sizes_of(m, head, f"h{index}", 0)
        shape = m.node("Concat", [batch, m.integers(11, -1)], f"flat_shape{index}", axis=0)
        heads.append(m.node("Reshape", [head, shape], f"flat{index}"))
    all_ = m.node("Concat", heads, "all", axis=2)
    m.nodes.append(helper.make_node("Split", [all_, m.integers(4, 7)], ["box", "classes"], "split", axis=1))
    grids = [grid(m, "d", 2.0), grid(m, "coarse", 4.0)]
    anchors = m.node("Concat", [grids[0][0], grids[1][0]], "anchors", axis=1)
    strides = m.node("Concat", [grids[0][1], grids[1][1]], "strides", axis=1)
    low = m.node("Slice", ["box", m.integers(0), m.integers(2), m.integers(1)], "low")
    high = m.node("Slice", ["box", m.integers(2), m.integers(4), m.integers(1)], "high")
    corners = [m.node("Sub", [anchors, low], "corner0"), m.node("Add", [anchors, high], "corner1")]
    boxes = m.node("Mul", [m.node("Concat", corners, "corners", axis=1), strides], "boxes")
    m.node("Concat", [boxes, m.node("Sigmoid", "classes", "scores")], "y", axis=1)
    return m


def test_a_detector_with_open_sizes():
    m = detector()
    model = bound(m.build("y"), {}, {"height": 16, "width": 24}, "net")
    assert not {"Shape", "Range", "Expand", "ConstantOfShape", "Gather"} & set(operators(settled(model, "net")))
    x = np.random.default_rng(1).normal(0, 1, (1, 3, 16, 24)).astype(np.float32)
    same(model, settled(model, "net"), {"x": x})
    report = quantise_with_report(model, [x], name="net")
    exact = run_float(m.build("y"), x)["y"]
    values = integer_outputs(report.graph, x)
    result = report.said({name: values[name] for name in report.graph.outputs})["y"]
    assert result.shape == exact.shape == (1, 11, 12 * 8 + 6 * 4)
    assert decibels(exact, result) > 30


def test_the_sizes_of_the_data_decide():
    """Nothing is bound: what is calibrated with says how large inputs are."""
    m, x = detector(), np.random.default_rng(1).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)
    report = quantise_with_report(m.build("y"), [x], name="net")
    assert report.graph.inputs[0].shape == (1, 3, 8, 8)


def test_shapes_before_what_the_host_does():
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 3, 3))
    size = m.node("Concat", [sizes_of(m, a, "s", 0)[0], m.integers(-1)], "size", axis=0)
    flat = m.node("Reshape", [a, size], "flat")
    m.nodes.append(helper.make_node("TopK", [flat, m.integers(5)], ["y", "places"], axis=1))
    report = quantise_with_report(m.build("y"), m.data(), name="net")
    assert report.graph.notes[-1] == "Reshape flat, TopK y at the end run on the host."
    assert [layer.kind for layer in report.graph.layers] == ["conv"]


def test_nothing_to_settle_is_the_model_itself():
    m = FloatModel()
    m.conv("x", "y", (4, 3, 3, 3))
    model = m.build("y")
    assert settled(model, "net") is model
    m = FloatModel(("batch", 3, "rows", 8), opset=17)
    m.node("Reshape", [m.conv("x", "a", (4, 3, 1, 1)), m.node("Shape", "x", "s")], "y")
    model = m.build("y")
    assert settled(model, "net") is model  # nobody has said how many rows


def test_part_of_a_shape_and_its_size():
    m = FloatModel((1, 3, 4, 5), opset=17)
    part = m.node("Shape", "x", "part", start=1, end=-1)
    whole = m.node("Reshape", [m.node("Size", "x", "count"), m.integers(1)], "whole")
    numbers = m.node("Concat", [part, whole], "numbers", axis=0)
    m.node("Mul", ["x", m.node("ReduceSum", [m.node("Cast", numbers, "real", to=1)], "sum", keepdims=0)], "y")
    model = m.build("y")
    assert operators(settled(model, "net")) == ["Mul"]
    same(model, settled(model, "net"), {"x": m.data(1)[0]})


def test_numbers_that_a_constant_node_lists():
    m = FloatModel((1, 3, 4, 5), opset=17)
    m.nodes.append(helper.make_node("Constant", [], ["rest"], value_ints=[-1]))
    first = m.node("Shape", "x", "first", start=0, end=1)
    m.node("Reshape", ["x", m.node("Concat", [first, "rest"], "to", axis=0)], "y")
    model = m.build("y")
    assert operators(settled(model, "net")) == ["Reshape"]
    same(model, settled(model, "net"), {"x": m.data(1)[0]})


# -- branches ---------------------------------------------------------------------------------------------------


def branch(nodes: list[onnx.NodeProto], output: str, *initialisers: onnx.TensorProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, f"to_{output}", [], [helper.make_empty_tensor_value_info(output)], initialisers)


def choose(m: FloatModel, condition: str, output: str, then: onnx.GraphProto, otherwise: onnx.GraphProto) -> str:
    m.nodes.append(
        helper.make_node("If", [condition], [output], f"n_{output}", then_branch=then, else_branch=otherwise)
    )
    return output


def either(m: FloatModel, condition: str, output: str, source: str, *, deep: bool = False) -> str:
    """A convolution of the source with weights of the branch, or the source negated; names are the same in both."""
    w = numpy_helper.from_array(m.random.normal(0, 0.3, (4, 4, 1, 1)).astype(np.float32), "w")
    inner = [helper.make_node("Conv", [source, "w"], ["t"]), helper.make_node("Relu", ["t"], ["r"])]
    then, otherwise = branch(inner, "r", w), branch([helper.make_node("Neg", [source], ["t"])], "t")
    if deep:
        nested = helper.make_node("If", [condition], ["u"], then_branch=then, else_branch=otherwise)
        then = branch([nested, helper.make_node("Abs", ["u"], ["v"])], "v")
    return choose(m, condition, output, then, otherwise)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("deep", [True, False])
def test_a_branch_is_taken(condition: bool, deep: bool):
    """Twice, so that names meet; also branches inside branches."""
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 3, 3))
    known = m.constant(condition, np.bool_)
    either(m, known, "y", either(m, known, "b", a, deep=deep), deep=deep)
    model, x = m.build("y"), m.data(1)[0]
    assert "If" not in operators(settled(model, "net"))
    same(model, settled(model, "net"), {"x": x})
    report = near(m, "y")
    assert {layer.kind for layer in report.graph.layers} <= {"conv", "table", "depthwise"}


def test_a_branch_chosen_by_a_size():
    """As PyTorch exports `squeeze`: an axis goes if it is 1."""
    m = FloatModel((1, 3, 6, 1), opset=17)
    a = m.conv("x", "a", (4, 3, 1, 1))
    size = m.node("Gather", [m.node("Shape", a, "s"), m.constant(3, np.int64)], "n")
    is_one = m.node("Equal", [size, m.constant(1, np.int64)], "is_one")
    axes = numpy_helper.from_array(np.array([3]), "axes")
    then = branch([helper.make_node("Squeeze", [a, "axes"], ["t"])], "t", axes)
    b = choose(m, is_one, "b", then, branch([helper.make_node("Identity", [a], ["t"])], "t"))
    m.node("Relu", b, "y")
    near(m, "y")


def test_results_that_a_branch_does_not_make_itself():
    """One of its constants, a tensor from outside."""
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 1, 1))
    gain = numpy_helper.from_array(np.array(2, np.float32), "gain")
    names = ["t", "u", "gain"]
    both = helper.make_graph(
        [helper.make_node("Relu", [a], ["t"]), helper.make_node("Identity", [a], ["u"])], "both", [],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names], [gain],
    )  # fmt: skip
    m.nodes.append(
        helper.make_node("If", [m.constant(True, np.bool_)], ["b", "c", "d"], then_branch=both, else_branch=both)
    )
    m.node("Add", ["b", m.node("Mul", ["c", "d"], "e")], "y")
    model, x = m.build("y"), m.data(1)[0]
    same(model, settled(model, "net"), {"x": x})
    near(m, "y")


def by_value(m: FloatModel, a: str) -> str:
    """Whether the largest number of a tensor is above 0."""
    largest = m.node("ReduceMax", a, "largest", keepdims=0)
    return m.node("Greater", [largest, m.constant(0.0)], "is_above")


def test_a_condition_that_is_computed_is_refused():
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 1, 1))
    m.conv(either(m, by_value(m, a), "b", a), "y", (2, 4, 1, 1))
    with pytest.raises(
        UnsupportedError, match=r"n_b \(If\): its condition \('is_above'\) depends on the input's values"
    ):
        quantise_with_report(m.build("y"), m.data())


def test_a_computed_condition_at_the_end_is_the_hosts():
    """The branches read what the chip computes."""
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 1, 1))
    then, otherwise = (branch([helper.make_node(name, [a], ["t"])], "t") for name in ("Relu", "Neg"))
    choose(m, by_value(m, a), "y", then, otherwise)
    near(m, "y", noise=25)


def test_branches_with_work_are_not_the_hosts():
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 1, 1))
    either(m, by_value(m, a), "y", a)
    with pytest.raises(UnsupportedError, match=r"n_y \(If\): its condition"):
        quantise_with_report(m.build("y"), m.data())


def test_a_branch_without_the_results_is_named(tmp_path: Path):
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 1, 1))
    both = branch([helper.make_node("Relu", [a], ["t"])], "t")
    m.nodes.append(helper.make_node("If", [m.constant(True, np.bool_)], ["y", "z"], "n_y", then_branch=both))
    with pytest.raises(OnnxError, match=r"net: n_y \(If\): its then_branch does not make its 2 results"):
        settled(m.build("y"), "net")


# -- loops on the host --------------------------------------------------------------------------------------------


def loop(m: FloatModel, source: str, output: str, outer: str, *, deep: bool = False) -> str:
    """source + outer * 3, in a Loop that asks its state in each step whether it goes on; `deep`: an If in its body
    reads the outer value."""
    add: list[onnx.NodeProto] = [helper.make_node("Add", ["v", outer], ["w"])]
    if deep:
        inner = branch([helper.make_node("Add", ["v", outer], ["t"])], "t")
        add = [helper.make_node("If", ["go"], ["w"], then_branch=inner, else_branch=inner)]
    body = helper.make_graph(
        [
            helper.make_node("ReduceMax", ["v"], ["most"], keepdims=0),
            helper.make_node("Less", ["most", m.constant(1e9)], ["on"]),
            *add,
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_empty_tensor_value_info("w")],
    )  # fmt: skip
    body.output[1].type.tensor_type.elem_type = TensorProto.FLOAT
    inputs = [m.constant(3, np.int64), m.constant(True, np.bool_), source]
    m.nodes.append(helper.make_node("Loop", inputs, [output], f"n_{output}", body=body))
    return output


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("goes_on", ["passed", "constant", "always"])
def test_a_loop_of_constant_steps_is_their_nodes(opset: int, goes_on: str) -> None:
    """A state, of which each step is a row, too; its weights lie in the body."""
    m = FloatModel((1, 8), opset=opset)
    ends = {
        "passed": [helper.make_node("Identity", ["go"], ["on"])],
        "constant": [helper.make_node("Constant", [], ["on"], value=numpy_helper.from_array(np.array(True)))],
        "always": [helper.make_node("Identity", ["go"], ["on"])],
    }
    nodes = [helper.make_node("MatMul", ["v", "w"], ["t"]), helper.make_node("Tanh", ["t"], ["s"])]
    body = helper.make_graph(
        [*ends[goes_on], *nodes, helper.make_node("Identity", ["s"], ["row"])], "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [1, 8]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("s", "row")),
        ],
        [numpy_helper.from_array(m.random.normal(0, 0.5, (8, 8)).astype(np.float32), "w")],
    )  # fmt: skip
    inputs = [m.constant(3, np.int64), "" if goes_on == "always" else m.constant(True, np.bool_), "x"]
    m.nodes.append(helper.make_node("Loop", inputs, ["last", "rows"], "n_loop", body=body))
    model, x = m.build("last", "rows"), m.data()[0]
    flat = settled(model, "net")
    assert [node.op_type for node in flat.graph.node].count("MatMul") == 3
    assert "Loop" not in {node.op_type for node in flat.graph.node}
    exact, result = run_float(model, x), run_float(flat, x)
    assert result["rows"].shape == (3, 1, 8)
    for name in ("last", "rows"):
        np.testing.assert_allclose(result[name], exact[name], rtol=1e-6)


def counting(m: FloatModel, condition: list[onnx.NodeProto], most: str = "") -> onnx.ModelProto:
    """A Loop as TensorFlow writes a recurrence: a number of its own counts, and `condition` makes `on` of it."""
    nodes = [
        helper.make_node("Gather", ["x", "n"], ["now"]),
        helper.make_node("Add", ["v", "now"], ["t"]),
        helper.make_node("Tanh", ["t"], ["s"], name="tanh"),
        helper.make_node("Add", ["n", m.constant(1, np.int64)], ["next"]),
        helper.make_node("Identity", ["s"], ["row"]),
    ]
    kinds = [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("n", TensorProto.INT64, []),
             ("v", TensorProto.FLOAT, [8])]  # fmt: skip
    results = [("on", TensorProto.BOOL, []), ("next", TensorProto.INT64, []), ("s", TensorProto.FLOAT, [8]),
               ("row", TensorProto.FLOAT, [8])]  # fmt: skip
    body = helper.make_graph(
        [*nodes, *condition], "body", [helper.make_tensor_value_info(*each) for each in kinds],
        [helper.make_tensor_value_info(*each) for each in results],
    )  # fmt: skip
    inputs = [most, m.constant(True, np.bool_), m.constant(0, np.int64), m.constant(np.zeros(8))]
    m.nodes.append(helper.make_node("Loop", inputs, ["count", "last", "rows"], "n_loop", body=body))
    return m.build("last", "rows")


@pytest.mark.parametrize("most", [9, 3, None])
def test_a_loop_whose_condition_counts_is_the_nodes_of_its_steps(most: int | None) -> None:
    m = FloatModel((6, 8), opset=17)
    number = "" if most is None else m.constant(most, np.int64)
    condition = [helper.make_node("Less", ["next", m.constant(5, np.int64)], ["less"]),
                 helper.make_node("And", ["less", "go"], ["on"])]  # fmt: skip
    model, x = counting(m, condition, number), m.data()[0]
    flat = settled(model, "net")
    names = [node.name for node in flat.graph.node if node.op_type == "Tanh"]
    assert names == [f"tanh/{step}" for step in range(min(5, most or 9))]
    exact, result = run_float(model, x), run_float(flat, x)
    for name in ("last", "rows"):
        np.testing.assert_allclose(result[name], exact[name], rtol=1e-6)


@pytest.mark.parametrize("what", ["the state", "an outer one", "drawn", "always"])
def test_a_loop_whose_steps_are_not_constant_stays(what: str) -> None:
    m = FloatModel((6, 8), opset=17)
    condition = {
        "the state": [helper.make_node("ReduceMax", ["s"], ["top"], keepdims=0),
                      helper.make_node("Less", ["top", m.constant(0.5)], ["on"])],
        "an outer one": [helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
                         helper.make_node("Less", ["top", m.constant(0.5)], ["on"])],
        "drawn": [helper.make_node("RandomUniform", [], ["top"], shape=[1]),
                  helper.make_node("Less", ["top", m.constant(0.5)], ["on"])],
        "always": [helper.make_node("Identity", ["go"], ["on"])],
    }[what]  # fmt: skip
    model = counting(m, condition)
    assert settled(model, "net") is model


def test_a_loop_of_more_nodes_than_are_written_down_stays() -> None:
    m = FloatModel((6, 8), opset=17)
    idle = [helper.make_node("Identity", ["x"], [f"idle/{at}"]) for at in range(53)]
    always = helper.make_node("Identity", ["go"], ["on"])
    model = counting(m, [*idle, always], m.constant(339, np.int64))  # 59 nodes in each step are 20,001
    assert settled(model, "net") is model


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("outer", ["initialiser", "computed", "chip", "constant node"])
def test_a_loop_at_the_end_reads_outer_values(deep: bool, outer: str):
    m = FloatModel(opset=17)
    a = m.conv("x", "a", (4, 3, 1, 1))
    name = {
        "initialiser": lambda: m.constant(0.5),
        "computed": lambda: m.node("Sqrt", m.node("Abs", a, "abs"), "root"),
        "chip": lambda: m.conv("x", "other", (4, 3, 1, 1)),
        "constant node": lambda: m.node(
            "Constant", [], "half", value=numpy_helper.from_array(np.array(0.5, np.float32))
        ),
    }[outer]()
    loop(m, a, "y", name, deep=deep)
    report = near(m, "y", noise=15)
    assert "Loop y" in report.graph.notes[-1]


@pytest.mark.parametrize("deep", [False, True])
def test_a_loop_at_the_beginning_reads_outer_values(deep: bool):
    """Behind tables, before the first layer; it also reads what another node of the beginning makes."""
    m = FloatModel((1, 6), opset=17)
    m.element = TensorProto.INT64
    vectors = m.node("Gather", [m.normal(10, 8), "x"], "vectors")
    places = m.node("Gather", [m.normal(6, 8), m.integers(*range(6))], "places")
    m.node("MatMul", [loop(m, vectors, "summed", places, deep=deep), m.normal(8, 8)], "y")
    data: Any = [np.arange(6).reshape(1, 6) % 10, (np.arange(6) * 7).reshape(1, 6) % 10]
    model = m.build("y")
    report = quantise_with_report(model, data)
    assert report.start is not None
    exact = run_float(model, data[0])["y"]
    begun = report.start.run({"x": data[0]})
    (value,) = report.graph.inputs
    (tensor,) = begun.values()
    values = integer_outputs(report.graph, report.sources[value.name].value(tensor))
    assert decibels(exact, report.said({name: values[name] for name in report.graph.outputs})["y"]) > 25


def test_settled_files_are_read_from_disk(tmp_path: Path):
    m = detector()
    onnx.save(m.build("y"), tmp_path / "net.onnx")
    model = bound(load_model(tmp_path / "net.onnx"), {}, {"height": 8, "width": 8}, "net")
    assert "Range" not in operators(settled(model, "net"))
