"""Ends of float files that run on the host, sizes that are bound, and what is never left to the host."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from meshloom.sched.workload.onnx.errors import OnnxError, UnsupportedError
from meshloom.sched.workload.onnx.host import fold_for_units, fold_to_end
from meshloom.sched.workload.onnx.load import bound
from meshloom.sched.workload.onnx.quantise import quantise, quantise_with_report

from ...float_models import FloatModel, run_float


def detector(m: FloatModel) -> str:
    """Two heads, decoded with constants and put together."""
    a = m.node("Relu", m.conv("x", "a", (4, 3, 3, 3)), "r")
    b = m.node("Sigmoid", m.conv(a, "b", (4, 4, 1, 1)), "s")
    c = m.node("Exp", m.conv(a, "c", (4, 4, 1, 1)), "e")
    both = m.node("Concat", [b, m.node("Mul", [c, m.normal(1, 4, 6, 6)], "m")], "d", axis=1)
    return m.node("Reshape", [both, m.integers(1, 8, -1)], "y")


def test_decoding_runs_on_the_host():
    m = FloatModel()
    model, data = m.build(detector(m)), m.data()
    report = quantise_with_report(model, data)
    assert report.graph.outputs == ("b", "c")
    assert report.graph.notes == ("Sigmoid s, Exp e, Mul m, Concat d and 1 more at the end run on the host.",)
    exact = run_float(model, data[0])["y"]
    values = run_float(m.build("b", "c"), data[0])
    result = report.finish({name: values[name] for name in report.graph.outputs})["y"]
    np.testing.assert_allclose(result, exact, rtol=1e-5)


def test_what_an_exponential_is_added_to_is_the_host_s():
    """A logistic function that the file has in parts: its exponentials are far apart, and the host divides by them."""
    m = FloatModel((1, 6))
    sums = m.node("Gemm", ["x", m.normal(6, 4, scale=4.0), m.normal(4)], "sums")
    shares = m.node("Reciprocal", m.node("Add", [m.node("Exp", sums, "e"), m.constant(1.0)], "a"), "r")
    model = m.build(m.node("Div", [shares, m.node("ReduceLogSum", shares, "total", axes=[1])], "y"))
    report = quantise_with_report(model, m.data())
    assert report.graph.outputs == ("sums",)
    assert report.graph.notes == (
        "Exp e, Add a, Reciprocal r, ReduceLogSum total and 1 more at the end run on the host.",
    )


def test_the_host_stands_in_for_a_unit_that_cores_lack():
    """At the model's end alone: where others need it, too, the network has all of its layers."""
    m = FloatModel()
    a = m.node("Sigmoid", m.conv("x", "a", (4, 3, 3, 3)), "s")
    lacks = ("core.vec_table",)
    notes = quantise_with_report(m.build(a), m.data(), lacks=lacks).graph.notes
    assert notes == ("Sigmoid s at the end runs on the host.",)
    both = m.build(m.node("Tanh", m.conv(a, "b", (4, 4, 1, 1)), "y"))
    net = fold_for_units(both, "m", normalised=False, lacks=lacks)
    assert [layer.kind for layer in net.layers] == ["conv", "table", "conv", "table"]
    with pytest.raises(UnsupportedError, match=r"n_s \(Sigmoid\): needs core.vec_table, which the chip's cores lack"):
        fold_to_end(both, "m", normalised=False, lacks=lacks)
    shares = m.build(m.node("Softmax", m.conv("x", "c", (4, 3, 1, 1)), "p", axis=1))
    assert {layer.by for layer in fold_for_units(shares, "m", normalised=False, lacks=("core.vec_whole",)).layers} == {
        None
    }


def test_a_softmax_beside_what_the_host_does_is_the_host_s():
    """It is not said to be left out as well."""
    m = FloatModel()
    vector = m.node("Flatten", m.node("GlobalAveragePool", m.conv("x", "a", (5, 3, 3, 3)), "p"), "f")
    shares = m.node("Softmax", m.node("Gemm", [vector, m.normal(5, 4)], "g"), "shares", axis=1)
    report = quantise_with_report(m.build(shares, m.node("ReduceL2", vector, "norm", axes=[1])), m.data())
    assert report.graph.notes == ("Softmax shares, ReduceL2 norm at the end run on the host.",)


def test_what_the_chip_does_generously_is_no_reason_against_the_host():
    """A mean of squares, which the host could do, stands before a product, and the host does what is behind."""
    m = FloatModel((1, 6), opset=17)
    squares = m.node("ReduceSumSquare", "x", "s", axes=[1], keepdims=1)
    sums = m.node("Add", [m.node("Gemm", ["x", m.normal(6, 4)], "g"), squares], "d")
    model = m.build(m.node("ArgMin", sums, "y", axis=1))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    report = quantise_with_report(model, m.data())
    assert report.graph.notes == ("ArgMin y at the end runs on the host.",)


def test_what_the_host_could_do_is_no_reason_for_a_refusal():
    m = FloatModel((1, 6))
    made = m.node("MatMul", [m.node("Hardmax", "x", "h"), m.normal(6, 4)], "p")
    with pytest.raises(UnsupportedError) as caught:
        quantise_with_report(m.build(m.node("Hardmax", made, "y")), m.data())
    assert [problem.node for problem in caught.value.problems] == ["n_h"]


def test_a_part_of_what_no_picture_can_be_made_of_is_the_host_s():
    """Masks, of which a decoder gives some: products of two tensors, seen as pictures."""
    m = FloatModel((1, 4, 256))
    pixels = m.node("Reshape", [m.node("MatMul", [m.normal(7, 4), "x"], "p"), m.integers(1, 1, 7, 256)], "pixels")
    filters = m.node("MatMul", ["x", m.normal(256, 7)], "f")
    filters = m.node("Reshape", [filters, m.integers(1, 1, 4, 7)], "filters")
    masks = m.node("Reshape", [m.node("MatMul", [filters, pixels], "m"), m.integers(1, 1, 4, 16, 16)], "masks")
    model = m.build(m.node("Slice", [masks, m.integers(1), m.integers(4), m.integers(2)], "some"))
    report = quantise_with_report(model, m.data())
    assert report.graph.notes == ("Reshape masks, Slice some at the end run on the host.",)
    assert report.snr_db > 25


def test_numbers_of_classes():
    m = FloatModel()
    a = m.node("Flatten", m.node("GlobalAveragePool", m.conv("x", "a", (5, 3, 3, 3)), "p"), "f")
    model = m.build(m.node("ArgMax", a, "y", axis=1, keepdims=0))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    report = quantise_with_report(model, m.data())
    scores = np.array([0, 3, 9, 1, 2], np.float32).reshape(1, 5, 1, 1)
    assert report.finish({"p": scores})["y"].tolist() == [2]


def test_numbers_that_are_cut_at_the_end_are_the_host_s():
    """A Cast of real numbers to whole ones changes values; it isn't left out as one to half precision is."""
    m = FloatModel()
    a = m.node("GlobalAveragePool", m.conv("x", "a", (3, 3, 3, 3)), "p")
    y = m.node("Cast", m.node("Cast", a, "whole", to=TensorProto.INT64), "y", to=TensorProto.FLOAT)
    report = quantise_with_report(m.build(y), m.data())
    assert report.graph.notes == ("Cast whole, Cast y at the end run on the host.",)
    scores = np.array([1.7, -0.6, 2.2], np.float32).reshape(1, 3, 1, 1)
    assert report.finish({"p": scores})["y"].ravel().tolist() == [1, 0, 2]


def test_an_output_that_the_chip_makes_stays_one_where_the_host_reads_it_too():
    m = FloatModel()
    a = m.node("Sigmoid", m.conv("x", "a", (3, 3, 3, 3)), "s")
    report = quantise_with_report(m.build(a, m.node("ReduceL2", a, "y", axes=[1])), m.data())
    assert report.graph.outputs == ("s",)
    assert report.graph.notes == ("ReduceL2 y at the end runs on the host.",)


@pytest.mark.parametrize(("training", "notes"), [(True, ("Dropout y at the end runs on the host.",)), (False, ())])
def test_a_dropout_in_training_at_the_end_is_the_host_s(training, notes):
    m = FloatModel()
    a = m.node("GlobalAveragePool", m.conv("x", "a", (3, 3, 3, 3)), "p")
    model = m.build(m.node("Dropout", [a, m.constant(0.5), m.constant(training, bool)], "y"))
    assert quantise_with_report(model, m.data()).graph.notes == notes


def test_a_model_whose_end_runs_on_the_chip_leaves_nothing_to_the_host():
    m = FloatModel()
    report = quantise_with_report(m.build(m.conv("x", "y", (4, 3, 3, 3))), m.data())
    assert report.host is None
    assert report.finish({}) == {}


def test_channels_last_at_the_end_of_the_chip():
    """The host's nodes get tensors in the shapes that they have in the file."""
    m = FloatModel((1, 8, 8, 3))
    a = m.conv(m.node("Transpose", "x", "t", perm=[0, 3, 1, 2]), "a", (4, 3, 3, 3))
    u = m.node("Relu", m.node("Transpose", a, "t2", perm=[0, 2, 3, 1]), "u")
    model = m.build(m.node("CumSum", [u, m.constant(1, np.int64)], "y"))
    report, x = quantise_with_report(model, m.data()), m.data()[0]
    exact = run_float(m.build("u", "y"), x)
    (end,) = report.graph.outputs
    np.testing.assert_allclose(report.finish({end: report.ends[end].value(exact["u"])})["y"], exact["y"], rtol=1e-5)


@pytest.mark.parametrize("behind", ["Conv", "MaxPool", "MatMul"])
def test_work_is_not_left_to_the_host(behind):
    m = FloatModel()
    a = m.node("Hardmax", m.conv("x", "a", (4, 3, 3, 3)), "s", axis=1)
    match behind:
        case "Conv":
            a = m.conv(a, "y", (4, 4, 1, 1))
        case "MaxPool":
            a = m.node("MaxPool", a, "y", kernel_shape=[2, 2])
        case _:
            a = m.node("MatMul", [a, a], "y")
    with pytest.raises(UnsupportedError, match=r"n_s \(Hardmax\)"):
        fold_to_end(m.build(a), "net", normalised=False)


def test_what_no_host_knows_is_not_left_to_it():
    """An operator of somebody's own domain: ONNX Runtime would refuse it."""
    m = FloatModel()
    m.nodes.append(helper.make_node("Foo", [m.conv("x", "a", (4, 3, 3, 3))], ["y"], "n_y", domain="com.example"))
    model = m.build("y")
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedError, match=r"n_y \(com\.example\.Foo\): no layer does that"):
        fold_to_end(model, "m", normalised=False)


def test_nothing_but_the_end_is_no_network():
    m = FloatModel()
    with pytest.raises(UnsupportedError, match=r"n_y \(Hardmax\)"):
        quantise(m.build(m.node("Hardmax", "x", "y", axis=1)), m.data())


def test_sizes_are_bound():
    m = FloatModel(("batch", 3, "rows", "columns"))
    model = m.build(m.conv("x", "y", (4, 3, 3, 3)))
    data = [np.ones((1, 3, 9, 7), np.float32)]
    assert quantise(model, data).inputs[0].shape == (1, 3, 9, 7), "by the data"
    fixed = bound(model, {}, {"rows": 5, "x:3": 6}, "net")
    assert fold_to_end(fixed, "net", normalised=False).inputs["x"].size == (3, 5, 6)
    with pytest.raises(OnnxError, match=r"no input has a size 'height' to bind; sizes are batch, x:1, rows, columns"):
        bound(model, {}, {"height": 5}, "net")


def test_a_batch_is_one_picture_after_the_other():
    """Also in the shapes that the model reshapes to."""
    m = FloatModel((4, 3, 6, 6))
    a = m.node("Reshape", [m.conv("x", "a", (2, 3, 6, 6)), m.integers(4, 2)], "r")
    model = bound(m.build(m.node("Relu", a, "y")), {}, {}, "net")
    assert quantise(model, [np.ones((1, 3, 6, 6), np.float32)]).value("y").shape == (1, 2, 1, 1)


def test_channels_last_are_bound_by_a_picture():
    m = FloatModel((1, "rows", "columns", 3))
    model = m.build(m.conv(m.node("Transpose", "x", "t", perm=[0, 3, 1, 2]), "y", (4, 3, 3, 3)))
    assert quantise(model, [np.ones((1, 3, 9, 7), np.float32)]).inputs[0].shape == (1, 3, 9, 7)
