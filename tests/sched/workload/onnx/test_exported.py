"""Forms that exporters give to what networks usually have: choices, named axes, places, broadcasting, groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.float_reader import fold
from meshloom.sched.workload.onnx.host import fold_to_end
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.start import examples

from ...float_models import FloatModel, integer_outputs, run_float
from .test_attention import keeps_its_meaning, kinds

Build = Callable[[FloatModel], str]


def refused(m: FloatModel, output: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        fold_to_end(m.build(output), "net", normalised=False)


# -- choices --------------------------------------------------------------------------------------------------------


def test_a_function_that_chooses_by_its_argument():
    """Softplus as torch.onnx writes it, and a truth of two truths."""
    m = FloatModel(opset=18)
    a = m.conv("x", "a", (4, 3, 1, 1))
    soft = m.node("Log", m.node("Add", [m.node("Exp", a, "e"), m.constant(1.0)], "p"), "soft")
    b = m.node("Where", [m.node("Greater", [a, m.constant(20.0)], "large"), a, soft], "b")
    inside = m.node("And", [m.node("Less", [b, m.constant(1.0)], "l"), m.node("Not", "large", "n")], "inside")
    m.conv(m.node("Where", [inside, b, m.constant(1.0)], "c"), "y", (4, 4, 1, 1))
    assert kinds(keeps_its_meaning(m, "y")) == "conv table conv"


def test_a_truth_at_the_end_is_the_host_s():
    m = FloatModel()
    m.node("Greater", [m.node("Sigmoid", m.conv("x", "a", (1, 3, 1, 1)), "s"), m.constant(0.5)], "y")
    model = m.build("y")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    report = quantise_with_report(model, m.data())
    assert report.graph.outputs == ("a",)
    assert report.graph.notes == ("Sigmoid s, Greater y at the end run on the host.",)


def test_a_choice_by_other_tensors_is_the_host_s_with_what_it_chooses_by():
    """The first attempt leaves the Where alone to the host, which then reads a truth; the second one that, too."""
    m = FloatModel()
    a, b = m.conv("x", "a", (4, 3, 1, 1)), m.conv("x", "b", (4, 3, 1, 1))
    m.node("Where", [m.node("Greater", [a, m.constant(0.1)], "g"), b, m.constant(0.0)], "y")
    report = quantise_with_report(m.build("y"), m.data())
    assert report.graph.notes == ("Greater g, Where y at the end run on the host.",)


def test_choices_inside_the_network_that_are_refused():
    m = FloatModel()
    a, b = m.conv("x", "a", (4, 3, 1, 1)), m.conv("x", "b", (4, 3, 1, 1))
    c = m.node("Where", [m.node("Greater", [a, m.constant(0.1)], "g"), b, m.constant(0.0)], "c")
    m.node("Less", [a, b], "l")
    d = m.node("Where", ["l", c, m.constant(1.0)], "d")
    m.conv(d, "y", (4, 4, 1, 1))
    refused(m, "y", r"n_c \(Where\): its condition \('g'\) is computed of other tensors than what it chooses between")
    refused(m, "y", r"n_l \(Less\): compares several tensors, or with constants that differ")
    m = FloatModel()
    truth = m.node("Greater", [m.conv("x", "a", (4, 3, 1, 1)), m.constant(0.1)], "g")
    m.conv(m.node("Cast", m.node("Identity", truth, "i"), "c", to=1), "y", (4, 4, 1, 1))
    refused(m, "y", r"n_g \(Greater\): no layer does that; only a Where may choose by it, or a Cast make numbers of it")


def test_a_truth_as_numbers_is_a_table_where_the_host_cannot_make_it():
    m = FloatModel()
    a = m.conv("x", "a", (4, 3, 1, 1))
    numbers = m.node("Cast", m.node("Greater", [a, m.constant(0.1)], "g"), "c", to=1)
    at_the_end = quantise_with_report(m.build(numbers), m.data())
    assert at_the_end.graph.notes == ("Greater g, Cast c at the end run on the host.",)
    m.conv(m.node("Mul", [a, numbers], "kept"), "y", (4, 4, 1, 1))
    assert kinds(keeps_its_meaning(m, "y")) == "conv table conv"


@pytest.mark.parametrize("other", ["constant", "constant first", "tensor", "nothing", "all"])
def test_a_constant_chooses_between_tensors(other: str):
    """Masks of sequences and windows: torch.masked_fill, torch.where."""
    m = FloatModel()
    a = m.conv("x", "a", (4, 3, 1, 1))
    condition = np.ones((8, 8), bool) if other == "all" else np.tri(8, dtype=bool)
    second = m.conv("x", "b", (4, 3, 1, 1)) if other == "tensor" else m.constant(0.0 if other == "nothing" else 0.5)
    pair = [second, a] if other == "constant first" else [a, second]
    m.conv(m.node("Where", [m.constant(condition, bool), *pair], "w"), "y", (4, 4, 1, 1))
    report = keeps_its_meaning(m, "y")
    assert ("add" in kinds(report).split()) == (other not in ("nothing", "all"))


def test_a_constant_chooses_in_no_tensor_of_the_result_s_shape():
    m = FloatModel((1, 4, 1, 8))
    condition = m.constant(np.tri(8, dtype=bool), bool)
    a = m.node("Where", [condition, m.node("Relu", "x", "r"), m.constant(0.0)], "w")
    refused(m, m.conv(a, "y", (4, 4, 1, 1)), r"chooses between tensors of which none has the result's shape \[1, 4, 8")


# -- axes by names --------------------------------------------------------------------------------------------------

Shape = tuple[int, ...]


@pytest.mark.parametrize(
    ("equation", "shape", "weights"),
    [
        ("bij,jk->bik", (1, 5, 6), (6, 4)),
        ("kj,bij->bki", (1, 5, 6), (4, 6)),
        ("...j,jk", (1, 5, 6), (6, 4)),
        ("bhid,bhjd->bhij", (1, 2, 5, 4), None),
        ("bhid,bhjd->bhji", (1, 2, 5, 4), None),
        ("bchw,kc->bkhw", (1, 3, 4, 4), (5, 3)),
        ("big,iog->bo", (1, 6, 5), (6, 4, 5)),
        ("bgi,gio->bgo", (1, 3, 6), (3, 6, 4)),
        ("bcij->bcji", (1, 3, 4, 5), ()),
        ("bcij->bc", (1, 3, 4, 5), ()),
        ("bcij,bcij->bcij", (1, 3, 4, 5), None),
        ("bc,bd->bcd", (1, 6), (1, 4)),
        ("bcii->bci", (1, 3, 4, 4), ()),
        ("bcij,ck->bk", (1, 3, 4, 5), (3, 6)),
        ("bcij,bcij->bci", (1, 3, 4, 5), None),
    ],
)
def test_sums_over_named_axes(equation: str, shape: Shape, weights: Shape | None):
    m = FloatModel(shape, opset=18)
    a = m.node("Tanh", "x", "a")
    if weights is None:
        operands = [a, m.node("Sigmoid", "x", "b")]
    elif not weights:
        operands = [a]
    else:
        operands = [a, m.normal(*weights)]
        if equation.split("->")[0].split(",")[0].count("k"):
            operands.reverse()
    keeps_its_meaning(m, m.node("Relu", m.node("Einsum", operands, "e", equation=equation), "y"))


@pytest.mark.parametrize("equation", ["bi,bi->", "bi->"])
def test_a_sum_over_all_axes_is_a_single_number(equation: str):
    m = FloatModel((1, 5), opset=18)
    operands = [m.node("Tanh", "x", "a"), m.node("Sigmoid", "x", "b")][: 1 + equation.count(",")]
    model = m.build(m.node("Einsum", operands, "e", equation=equation))
    imported = quantise_with_report(model, [{"x": np.linspace(-1, 2, 5, dtype=np.float32)[None]}])
    assert [imported.graph.value(name).shape for name in imported.graph.outputs] == [(1, 1, 1, 1)]


@pytest.mark.parametrize("shape", [(1, 7), (1, 4, 6, 5), (1, 1, 3, 5)])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"])
@pytest.mark.parametrize("reader", ["", "Mul", "Sub"])
def test_a_reduction_over_all_axes_is_a_single_number(shape: Shape, operator: str, reader: str):
    m = FloatModel(shape, opset=13)
    end = m.node(operator, m.node("Softplus", "x", "a"), "r", keepdims=0)
    if reader:
        operands = [end, m.constant(2.0)] if reader == "Mul" else ["x", end]
        end = m.node(reader, operands, "y")
    model, (x, *more) = m.build(end), m.data()
    imported = quantise_with_report(model, [x, *more])
    values = integer_outputs(imported.graph, imported.sources["x"].value(x))
    said, exact = imported.said({name: values[name] for name in imported.graph.outputs})[end], run_float(model, x)[end]
    assert said.shape == exact.shape
    np.testing.assert_allclose(said, exact, atol=0.04 * np.abs(exact).max())


@pytest.mark.parametrize(
    ("equation", "kind"), [("bc,bcij->bcij", "mul"), ("bcij,bc->bcij", "mul"), ("bc,bij->bcij", "product")]
)
def test_of_axes_that_are_not_summed_a_factor_is_no_matrix(equation: str, kind: str):
    """Unless both operands have some of their own."""
    m = FloatModel((1, 3, 4, 5), opset=18)
    terms = equation.partition("->")[0].split(",")
    parts = [m.node("Einsum", m.node("Tanh", "x", f"t{term}"), term, equation=f"bcij->{term}") for term in terms]
    layers = kinds(keeps_its_meaning(m, m.node("Relu", m.node("Einsum", parts, "e", equation=equation), "y"))).split()
    assert {"mul", "product"} & set(layers) == {kind}


@pytest.mark.parametrize("result", ["bhij", "bhji", "bihj", "jbhi"])
def test_a_softmax_over_the_last_of_named_axes_moves_none(result: str):
    """Whichever operand has it: it lies along columns of the product."""
    m = FloatModel((1, 2, 5, 4), opset=18)
    both = [m.node("Tanh", "x", "a"), m.node("Sigmoid", "x", "b")]
    product = m.node("Einsum", both, "e", equation=f"bhid,bhjd->{result}")
    layers = kinds(keeps_its_meaning(m, m.node("Relu", m.node("Softmax", product, "s", axis=-1), "y"))).split()
    assert "transpose" not in layers[layers.index("product") :]


@pytest.mark.parametrize(
    ("equation", "operands", "message"),
    [
        ("bcij,bcij,bcij->bc", 3, "of 3 tensors; multiply two at a time"),
        ("bcij->bc", 2, "has 1 terms for 2 operands"),
        ("bc,bcij->bc", 2, "does not fit an operand of 4 axes"),
        ("bcij,bicj->bcj", 2, "axes of 8 and 3 have one name"),
    ],
)
def test_named_axes_that_are_refused(equation: str, operands: int, message: str):
    m = FloatModel(opset=18)
    a = m.node("Relu", "x", "a")
    m.node("Einsum", [a] * operands, "e", equation=equation)
    m.node("MatMul", ["e", m.normal(8, 8)], "y")
    with pytest.raises(UnsupportedError, match=message):
        fold_to_end(m.build("y"), "net", normalised=False)


def test_matrices_of_weights_for_each_head():
    m = FloatModel((1, 3, 5, 8))
    keeps_its_meaning(m, m.node("Relu", m.node("MatMul", ["x", m.normal(3, 8, 4)], "m"), "y"))
    m = FloatModel((1, 5, 8))
    keeps_its_meaning(m, m.node("Relu", m.node("MatMul", ["x", m.normal(3, 8, 4)], "m"), "y"))


# -- places and shapes ----------------------------------------------------------------------------------------------


def test_elements_at_places():
    m = FloatModel((1, 3, 6, 6), opset=18)
    a = m.conv("x", "a", (4, 3, 1, 1))
    rows = m.constant([[[0], [2], [2]]], np.int64)
    b = m.node("Transpose", m.node("GatherND", [a, rows], "g", batch_dims=1), "t", perm=[0, 1, 2, 3])
    c = m.node("GatherND", [b, m.constant([[[0, 1], [0, 0]]], np.int64)], "c")
    d = m.node("GatherElements", [c, m.constant(np.tile([5, 0, 3, 3, 1], (1, 2, 6, 1)), np.int64)], "d", axis=3)
    keeps_its_meaning(m, m.conv(d, "y", (4, 2, 1, 1)))


def test_places_of_other_shapes():
    m = FloatModel((1, 3, 6, 6), opset=18)
    m.node("GatherND", ["x", m.constant(np.zeros((2, 1)), np.int64)], "g", batch_dims=1)
    with pytest.raises(UnsupportedError, match=r"indices of shape \[2, 1\] for an operand of shape"):
        fold_to_end(m.build(m.node("Relu", "g", "y")), "net", normalised=False)


@pytest.mark.parametrize(
    ("shape", "constant", "channels"),
    [((1, 1), (1, 8), 8), ((1, 6, 1), (5,), 6), ((1, 4, 3, 1), (1, 4, 3, 6), 4), ((2, 1), (3, 1, 4), 4)],
)
def test_a_number_beside_several_constants(shape: Shape, constant: Shape, channels: int):
    """Embeddings of a time, bases of splines: a tensor that a constant is larger than. Channels are those of a picture,
    or the last axis."""
    m = FloatModel(shape)
    a = m.node("Mul", [m.node("Tanh", "x", "a"), m.normal(*constant, scale=2)], "m")
    graph = keeps_its_meaning(m, m.node("Sin", m.node("Sub", [a, m.normal(*constant)], "s"), "y")).graph
    assert graph.value(*graph.outputs).channels == channels


@pytest.mark.parametrize(("first", "second"), [((1, 8), (1, 1)), ((3, 8), (8,)), ((1, 2, 3, 2, 4), (2, 1, 2, 1))])
def test_tensors_of_other_shapes_than_pictures(first: Shape, second: Shape):
    """Rows over their lengths, gates of a cell, heads."""
    m = FloatModel(first)
    a = m.node("Tanh", "x", "a")
    axes = [axis - len(second) for axis, size in enumerate(second) if size == 1]
    if axes:
        b = m.node("ReduceMean", m.node("Sigmoid", "x", "s"), "b", axes=axes)
    else:
        b = m.node("Gather", [m.node("Sigmoid", "x", "s"), m.constant(0, np.int64)], "b", axis=0)
    keeps_its_meaning(m, m.node("Mul", [a, b], "y"))


def test_gates_of_a_cell_that_is_called_step_by_step():
    """Parts of vectors beside whole ones."""
    m = FloatModel((1, 8))
    gates = m.node("Gemm", ["x", m.normal(8, 16)], "gates")
    kept, fresh = (
        m.node("Slice", [gates, *(m.integers(n) for n in (first, first + 8, 1))], f"g{first}") for first in (0, 8)
    )
    c = m.node("Tanh", m.node("Gemm", ["x", m.normal(8, 8)], "c"), "t")
    s = m.node("Add", [m.node("Mul", [m.node("Sigmoid", kept, "sk"), c], "m"), m.node("Tanh", fresh, "tf")], "s")
    keeps_its_meaning(m, m.node("Gemm", [s, m.normal(8, 4)], "y"))


@pytest.mark.parametrize(("channels", "groups", "side"), [(16, 4, 16), (24, 2, 9), (24, 3, 33)])
def test_a_convolution_behind_a_normalisation_of_groups(channels: int, groups: int, side: int):
    """GroupNormalization as PyTorch writes it: maps of a group one after the other."""
    m = FloatModel((1, 3, side, side))
    a = m.conv("x", "a", (channels, 3, 1, 1))
    a = m.node("Reshape", [a, m.integers(0, groups, -1)], "r")
    ones, zeros = m.constant(np.ones(groups)), m.constant(np.zeros(groups))
    a = m.node("InstanceNormalization", [a, ones, zeros], "n")
    a = m.node("Sigmoid", m.node("Reshape", [a, m.integers(1, channels, side, side)], "b"), "s")
    report = keeps_its_meaning(m, m.conv(a, "y", (4, channels, 3, 3)))
    assert len(report.layers) < 16 + 2 * channels // groups


def test_features_become_a_picture_of_one_channel():
    """A spectrum, whose bands are channels, as a picture."""
    m = FloatModel((1, 10, 49))
    a = m.node("Relu", m.node("MatMul", [m.normal(20, 10), "x"], "m"), "r")
    a = m.node("Unsqueeze", [m.node("Transpose", a, "t", perm=[0, 2, 1]), m.integers(1)], "u")
    keeps_its_meaning(m, m.conv(a, "y", (4, 1, 3, 3), strides=[2, 2]))


def test_what_the_host_reads_has_five_axes():
    """Anchors, rows, columns and a part of what there is for each, as YOLO decodes them."""
    m = FloatModel((1, 3, 8, 8))
    a = m.conv("x", "a", (18, 3, 1, 1))
    a = m.node("Reshape", [a, m.integers(1, 3, 6, 8, 8)], "r")
    a = m.node("Sigmoid", m.node("Transpose", a, "t", perm=[0, 1, 3, 4, 2]), "s")
    part = m.node("Slice", [a, *(m.integers(n) for n in (0, 2, 4))], "part")
    moved = m.node("Add", [m.node("Mul", [part, m.constant(2.0)], "m"), m.normal(1, 1, 8, 8, 2)], "moved")
    model, data = m.build(m.node("Round", moved, "y")), m.data()
    report = quantise_with_report(model, data)
    assert report.host is not None
    sizes = [report.graph.value(name) for name in report.graph.outputs]
    assert [(value.channels, value.height, value.width) for value in sizes] == [(6, 8, 8)], "maps stay maps"
    exact = run_float(m.build(*report.origins.values()), data[0])
    values = {end: report.ends[end].value(exact[origin]) for end, origin in report.origins.items()}
    np.testing.assert_allclose(report.finish(values)["y"], run_float(model, data[0])["y"])


# -- three axes, and spectra ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "attributes"),
    [
        ((4, 3, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
        ((4, 3, 2, 3, 1), {"strides": [2, 1, 2], "pads": [0, 1, 0, 1, 1, 0]}),
        ((4, 3, 3, 1, 1), {"dilations": [2, 1, 1], "pads": [2, 0, 0, 2, 0, 0]}),
        ((4, 3, 3, 3, 1), {"auto_pad": "VALID"}),
        ((4, 3, 2, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 1, 1]}),
        ((4, 3, 2, 2, 3), {"auto_pad": "SAME_UPPER"}),
        ((6, 1, 1, 3, 3), {"group": 3}),
    ],
)
def test_convolutions_of_three_axes(weights: tuple[int, ...], attributes: dict[str, Any]):
    """Videos: the depth that takes the fewest weights becomes channels."""
    m = FloatModel((1, 3, 5, 6, 4))
    a = m.node("Conv", ["x", m.normal(*weights), m.normal(weights[0])], "a", **attributes)
    a = m.node("Conv", [m.node("Relu", a, "r"), m.normal(2, weights[0], 1, 1, 1)], "b")
    keeps_its_meaning(m, m.node("GlobalAveragePool", a, "y"))


def test_the_depth_with_the_fewest_weights_becomes_channels():
    """Filters over the whole first axis have 10 for each channel there, and 5 x 5 along the second."""
    m = FloatModel((1, 3, 10, 5, 9))
    a = m.node("Conv", ["x", m.normal(4, 3, 10, 1, 1)], "a")
    weights = quantise_with_report(m.build(m.node("Relu", a, "y")), m.data()).graph.layers[0].w
    assert weights is not None
    assert weights.shape == (4, 30, 1, 1)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
        ("MaxPool", {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2], "pads": [1, 1, 1, 1, 1, 1]}),
        ("MaxPool", {"kernel_shape": [2, 1, 1], "strides": [3, 1, 1], "ceil_mode": 1}),
        ("AveragePool", {"kernel_shape": [2, 2, 2], "strides": [1, 2, 2]}),
        ("AveragePool", {"kernel_shape": [3, 3, 3], "pads": [1, 1, 1, 1, 1, 1], "count_include_pad": 1}),
        ("MaxPool", {"kernel_shape": [2, 2, 2], "auto_pad": "SAME_UPPER"}),
    ],
)
def test_pools_of_three_axes(operator: str, attributes: dict[str, Any]):
    m = FloatModel((1, 3, 5, 6, 4))
    a = m.node("Conv", ["x", m.normal(4, 3, 1, 1, 1)], "a")
    m.node("Conv", [m.node(operator, a, "p", **attributes), m.normal(2, 4, 1, 1, 1)], "y")
    keeps_its_meaning(m, "y")


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 3, 3], "pads": [1, 1, 1, 1, 0, 1]},
        {"kernel_shape": [2, 2, 1], "strides": [2, 2, 1], "ceil_mode": 1},
        {"kernel_shape": [2, 3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 1, 1]},
    ],
)
def test_averages_of_three_axes_whose_borders_do_not_count(attributes: dict[str, Any]):
    m = FloatModel((1, 3, 5, 6, 4))
    m.node("Tanh", m.node("AveragePool", m.node("Sigmoid", "x", "a"), "p", **attributes), "y")
    keeps_its_meaning(m, "y")


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("MaxPool", {"kernel_shape": [2, 2, 2], "strides": [0, 1, 1]}, "are not of three axes, or less than 1"),
        ("MaxPool", {"kernel_shape": [9, 1, 1]}, "its window does not fit the input"),
        (
            "AveragePool",
            {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": 1, "count_include_pad": 1},
            "ceil_mode with padding that counts",
        ),
        ("Conv", {"group": 2}, "in 2 groups for 3 channels of three axes"),
    ],
)
def test_what_is_refused_of_three_axes(operator: str, attributes: dict[str, Any], message: str):
    m = FloatModel((1, 3, 5, 6, 4))
    a = m.node("Tanh", "x", "a")
    a = m.node(operator, [a, m.normal(4, 3, 1, 1, 1)] if operator == "Conv" else a, "p", **attributes)
    m.node("Conv", [a, m.normal(2, 3, 1, 1, 1)], "y")
    refused(m, "y", message)


@pytest.mark.parametrize("onesided", [0, 1])
def test_spectra_of_a_signal(onesided: int):
    """As torch.stft writes them, and their powers."""
    m = FloatModel((1, 96), opset=17)
    step, window = m.constant(8, np.int64), m.constant(np.hanning(16))
    m.node("STFT", ["x", step, window, m.constant(16, np.int64)], "s", onesided=onesided)
    power = m.node("ReduceSum", [m.node("Mul", ["s", "s"], "q"), m.integers(-1)], "p", keepdims=0)
    keeps_its_meaning(m, m.node("MatMul", [power, m.normal(9 if onesided else 16, 4)], "y"))


@pytest.mark.parametrize(
    ("shape", "window", "length", "message"),
    [
        ((1, 16, 2), 8, 8, "must be [1, samples] of real numbers"),
        ((1, 16), None, None, "has neither a window nor a length"),
        ((1, 16), 8, 6, "8 numbers of a window, for 6 of 16 samples, in steps of 4"),
    ],
)
def test_spectra_that_are_refused(shape: Shape, window: int | None, length: int | None, message: str):
    m = FloatModel(shape, opset=17)
    operands = [m.node("Tanh", "x", "a"), m.constant(4, np.int64), "" if window is None else m.normal(window)]
    m.node("STFT", [*operands, "" if length is None else m.constant(length, np.int64)], "s")
    refused(m, m.node("MatMul", ["s", m.normal(2, 3)], "y"), re.escape(message))


def test_an_output_that_is_a_constant_is_the_host_s():
    """Deviations of a policy, say, that are parameters."""
    m = FloatModel()
    m.node("Exp", m.normal(1, 2), "fixed")
    model = m.build(m.conv("x", "y", (4, 3, 1, 1)), "fixed")
    report = quantise_with_report(model, m.data())
    assert report.graph.outputs == ("y",)
    assert report.graph.notes == ("Output fixed is a constant, whatever the input.",)
    outputs = report.said({"y": run_float(model, m.data()[0])["y"]})
    np.testing.assert_allclose(outputs["fixed"], run_float(model, m.data()[0])["fixed"])


# -- several maps in one value ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "axes", "keepdims"),
    [("ReduceSum", [1], 0), ("ReduceMean", [1], 1), ("ReduceMean", [2], 0), ("ReduceMean", [1, 3, 4], 0),
     ("ReduceSum", [1, 2], 1), ("ReduceL2", [2], 0)],
)  # fmt: skip
def test_sums_of_maps_beside_each_other(operator: str, axes: list[int], keepdims: int):
    """Split attention: branches of a convolution in groups, added."""
    m = FloatModel((1, 3, 6, 5), opset=18)
    a = m.node("Reshape", [m.conv("x", "a", (6, 3, 1, 1)), m.integers(1, 2, 3, 6, 5)], "r")
    m.node(operator, [a, m.integers(*axes)], "s", keepdims=keepdims)
    shape = [1 if axis in axes else size for axis, size in enumerate((1, 2, 3, 6, 5)) if keepdims or axis not in axes]
    report = keeps_its_meaning(m, m.node("MatMul", ["s", m.normal(shape[-1], 4)], "y"))
    assert kinds(report).split()[1] in ("conv", "table"), "no transpose"


def test_maps_stacked_and_added():
    """Selective kernels: branches that are tensors of their own."""
    m = FloatModel((1, 3, 6, 5))
    parts = [m.node("Unsqueeze", [m.conv("x", name, (4, 3, 1, 1)), m.integers(1)], f"u{name}") for name in "ab"]
    stack = m.node("Concat", parts, "s", axis=1)
    shares = m.node("Sigmoid", m.node("GlobalAveragePool", m.conv("x", "c", (8, 3, 1, 1)), "p"), "q")
    each = m.node("Mul", [stack, m.node("Reshape", [shares, m.integers(1, 2, 4, 1, 1)], "t")], "m")
    keeps_its_meaning(m, m.conv(m.node("ReduceSum", [each, m.integers(1)], "d", keepdims=0), "y", (4, 4, 1, 1)))


def test_halves_of_features_that_turn_in_pairs():
    """Rotary embeddings of interleaved features, behind a class token that they leave out."""
    m = FloatModel((1, 5, 12))
    q = m.node("Reshape", [m.node("MatMul", ["x", m.normal(12, 8)], "q"), m.integers(1, 5, 2, 4)], "h")
    q = m.node("Transpose", q, "t", perm=[0, 2, 1, 3])
    q = m.node("Slice", [q, *(m.integers(n) for n in (1, 5, 2))], "l")
    odd, even = (m.node("Slice", [q, *(m.integers(n) for n in (first, 9, 3, 2))], f"s{first}") for first in (1, 0))
    parts = [m.node("Unsqueeze", [part, m.integers(4)], f"u{part}") for part in (m.node("Neg", odd, "n"), even)]
    turned = m.node("Reshape", [m.node("Concat", parts, "c", axis=-1), m.integers(1, 2, 4, 4)], "d")
    turned = m.node("Mul", [turned, m.normal(4, 4, scale=1)], "e")
    keeps_its_meaning(m, m.node("MatMul", [turned, m.normal(4, 4)], "y"))


def test_queries_that_are_constants():
    """Of a decoder of objects: the first factor is the same for all pictures."""
    m = FloatModel((1, 9, 16))
    keys = m.node("Reshape", [m.node("MatMul", ["x", m.normal(16, 8)], "k"), m.integers(1, 9, 2, 4)], "r")
    keys = m.node("Transpose", keys, "t", perm=[0, 2, 3, 1])
    shares = m.node("Softmax", m.node("MatMul", [m.normal(1, 2, 5, 4, scale=2), keys], "s"), "p", axis=-1)
    values = m.node("Reshape", [m.node("MatMul", ["x", m.normal(16, 8)], "v"), m.integers(1, 9, 2, 4)], "w")
    keeps_its_meaning(m, m.node("MatMul", [shares, m.node("Transpose", values, "u", perm=[0, 2, 1, 3])], "y"))


@pytest.mark.parametrize("pads", [[0, 1, 0, 0, 0, 3, 0, 0], [0, 1, 0, 0, 0, 0, 2, 0]])
def test_zeros_beside_channels(pads: list[int]):
    """Short cuts of residual networks to more channels."""
    m = FloatModel()
    a = m.node("Pad", [m.conv("x", "a", (4, 3, 3, 3)), m.integers(*pads)], "p")
    channels = 4 + pads[1] + pads[5]
    keeps_its_meaning(m, m.conv(a, "y", (4, channels, 1, 1)))


def test_zeros_beside_channels_at_the_end_are_the_host_s():
    m = FloatModel()
    m.node("Pad", [m.conv("x", "a", (4, 3, 3, 3)), m.integers(0, 1, 0, 0, 0, 0, 0, 0)], "y")
    with pytest.raises(UnsupportedError, match=r"n_y \(Pad\): pads \[0, 1, 0, .*; only rows and columns can be padded"):
        fold(m.build("y"), "net", normalised=False)
    assert fold_to_end(m.build("y"), "net", normalised=False).outputs == ["a"]


def test_flattened_pictures_beside_each_other():
    m = FloatModel((1, 3, 4, 4))
    flat = [m.node("Flatten", m.conv("x", name, (2, 3, 1, 1)), f"f{name}") for name in "ab"]
    keeps_its_meaning(m, m.node("Gemm", [m.node("Concat", [*flat, m.normal(1, 5)], "c", axis=1), m.normal(69, 4)], "y"))


def test_zeros_before_the_tokens_of_heads():
    m = FloatModel((1, 6, 8))
    a = m.node("Reshape", [m.node("MatMul", ["x", m.normal(8, 8)], "q"), m.integers(1, 6, 2, 4)], "r")
    a = m.node("Transpose", m.node("Tanh", a, "h"), "t", perm=[0, 2, 1, 3])
    a = m.node("Pad", [a, m.integers(0, 0, 1, 0, 0, 0, 0, 0)], "p")
    a = m.node("Reshape", [m.node("Transpose", a, "b", perm=[0, 2, 1, 3]), m.integers(1, 7, 8)], "d")
    keeps_its_meaning(m, m.node("MatMul", [a, m.normal(8, 4)], "y"))


@pytest.mark.parametrize(("channels", "side"), [(40, 3), (6, 9)])
def test_a_normalisation_of_all_maps_together(channels: int, side: int):
    """GroupNormalization of one group, with gains and offsets: pixel by pixel where that takes fewer parts."""
    m = FloatModel((1, 3, side, side))
    a = m.conv("x", "a", (channels, 3, 1, 1))
    a = m.node("Reshape", [a, m.integers(0, 1, -1)], "r")
    a = m.node("InstanceNormalization", [a, m.constant(np.ones(1)), m.constant(np.zeros(1))], "n")
    a = m.node("Reshape", [a, m.integers(1, channels, side, side)], "b")
    a = m.node("Add", [m.node("Mul", [a, m.normal(channels, 1, 1, scale=1)], "g"), m.normal(channels, 1, 1)], "o")
    report = keeps_its_meaning(m, m.conv(a, "y", (4, channels, 1, 1)))
    assert len(report.layers) < 16 + 2 * min(channels, side**2)


def test_a_normalisation_of_the_first_maps_together():
    """Part of the channels go through an attention, which begins with a GroupNormalization of one group."""
    m = FloatModel((1, 3, 2, 2))
    a = m.node("Relu", m.conv("x", "c", (20, 3, 1, 1)), "a")
    a = m.node("Slice", [a, m.integers(0), m.integers(8), m.integers(1)], "s")
    a = m.node("Reshape", [a, m.integers(0, 1, -1)], "r")
    a = m.node("InstanceNormalization", [a, m.constant(np.ones(1)), m.constant(np.zeros(1))], "n")
    keeps_its_meaning(m, m.conv(m.node("Reshape", [a, m.integers(1, 8, 2, 2)], "b"), "y", (4, 8, 1, 1)))


@pytest.mark.parametrize("first", ["x", "tokens"])
def test_what_is_normalised_lies_in_rows_that_an_instruction_takes(first: str):
    m = FloatModel((1, 2, 1040) if first == "x" else (1, 1040, 2), opset=17)
    a = m.node("Transpose", "x", "tokens", perm=[0, 2, 1]) if first == "tokens" else "x"
    report = keeps_its_meaning(m, m.node("LayerNormalization", [a, m.normal(1040, scale=1)], "y"))
    maps = {report.graph.value(layer.output).shape for layer in report.graph.layers if layer.kind == "normalise"}
    assert maps == {(1, 2, 2, 520)}


@pytest.mark.parametrize("size", [(1, 3, 4, 5), (1, 40, 3, 3), (1, 8, 1, 4)])
def test_a_normalisation_of_all_maps_with_a_gain_for_each_element(size: Shape):
    m = FloatModel(size, opset=17)
    gains, offsets = m.normal(*size[1:], scale=1), m.normal(*size[1:])
    m.node("LayerNormalization", [m.node("Tanh", "x", "a"), gains, offsets], "n", axis=1)
    keeps_its_meaning(m, m.node("MatMul", ["n", m.normal(size[-1], 4)], "y"))


@pytest.mark.parametrize("turned", [False, True])
def test_an_input_of_bands_and_times_is_a_picture(turned: bool):
    """One that becomes a picture of one channel is one, and so no layer moves it."""
    m = FloatModel((1, 12, 9))
    a = m.node("Unsqueeze", [m.node("Mul", ["x", m.constant(0.5)], "h"), m.integers(1)], "u")
    a = m.node("Transpose", a, "t", perm=[0, 1, 3, 2]) if turned else a
    report = keeps_its_meaning(m, m.conv(a, "y", (4, 1, 3, 3)))
    assert report.graph.inputs[0].shape == ((1, 1, 9, 12) if turned else (1, 1, 12, 9))
    assert kinds(report) in ("conv", "depthwise conv")


@pytest.mark.parametrize("how", ["cut", "padded"])
def test_an_input_with_channels_last_that_is_cut_or_padded_first(how: str):
    m = FloatModel((1, 9, 9, 3))
    if how == "cut":
        m.node("Slice", ["x", m.integers(1, 1), m.integers(-1, -1), m.integers(1, 2)], "s")
    else:
        m.node("Pad", ["x", m.integers(0, 2, 2, 0, 0, 2, 2, 0)], "s")
    report = keeps_its_meaning(m, m.conv(m.node("Transpose", "s", "t", perm=[0, 3, 1, 2]), "y", (4, 3, 3, 3)))
    assert report.graph.inputs[0].shape == (1, 3, 9, 9)


def test_a_single_number_beside_a_tensor():
    """A temperature, say: an input without axes, which a result has no axes either of."""
    m = FloatModel((1, 6))
    scores = m.node("MatMul", ["x", m.normal(6, 4)], "a")
    m.node("Mul", ["t", m.node("ReduceMax", m.node("Mul", [scores, "t"], "y"), "most", keepdims=0)], "z")
    model = m.build("y", "z")
    model.graph.input.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, ()))
    data = [{"x": x, "t": np.array([0.5 + index])} for index, x in enumerate(m.data())]
    report = quantise_with_report(model, data)
    assert report.sources["t"].shape == (1,)
    assert report.snr_db > 25


# -- parts in the place of others -------------------------------------------------------------------------------------


def places(*axes: range) -> np.ndarray:
    """Indices of ScatterND."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1)


@pytest.mark.parametrize(
    ("shape", "written", "indices"),
    [
        ((1, 6, 4, 4), (1, 2, 4, 4), places(range(1), range(1, 3))),  # channels
        ((1, 6, 4, 4), (1, 6, 2, 4), places(range(1), range(6), range(1, 3))),  # rows
        ((1, 6, 4, 4), (1, 6, 2, 2), places(range(1), range(6), range(-3, -1), range(1, 3))),  # a box
        ((5, 8), (2, 8), np.array([[4], [1]])),  # tokens
        ((1, 5, 8), (1, 5, 8), places(range(1), range(5))),  # all
    ],
)
def test_parts_in_the_place_of_others(shape: Shape, written: Shape, indices: np.ndarray):
    """As PyTorch assigns to a slice; a layer with weights behind, so that it is no work for the host."""
    m = FloatModel(shape, opset=16)
    updates = m.node("Slice", [m.node("Sigmoid", "x", "g"), *(m.integers(*each) for each in (
        [0] * len(shape), written, range(len(shape))))], "u")  # fmt: skip
    a = m.node("ScatterND", [m.node("Tanh", "x", "t"), m.constant(indices, np.int64), updates], "s")
    last = m.normal(shape[-1], 3)
    keeps_its_meaning(m, m.conv(a, "y", (3, 6, 1, 1)) if len(shape) == 4 else m.node("MatMul", [a, last], "y"))


def test_rows_of_a_graph_are_added():
    """Messages along the edges of a graph, some to the same node; one more round ends in zeros of its own."""
    m = FloatModel((5, 8), opset=18)
    h = m.node("Tanh", m.node("MatMul", ["x", m.normal(8, 8)], "a"), "h")
    sent = m.node("Gather", [h, m.integers(0, 1, 2, 3, 4, 0, 2)], "sent")
    ends = m.constant([[1], [2], [3], [4], [0], [3], [0]], np.int64)
    a = m.node("ScatterND", [h, ends, sent], "s", reduction="add")
    wide = m.constant(np.tile([[1], [2], [3], [4], [0], [3], [0]], 8), np.int64)
    a = m.node("ScatterElements", [m.constant(np.zeros((5, 8))), wide, m.node("Gather", [a, m.integers(
        0, 1, 2, 3, 4, 0, 2)], "again")], "e", reduction="add")  # fmt: skip
    keeps_its_meaning(m, m.node("MatMul", [a, m.normal(8, 3)], "y"))


def test_constants_are_added_anywhere():
    m = FloatModel((4, 6), opset=18)
    places, numbers = m.constant([[0, 1], [3, 2], [0, 1]], np.int64), m.constant([0.5, -1, 2])
    a = m.node("ScatterND", [m.node("Tanh", "x", "t"), places, numbers], "s", reduction="add")
    keeps_its_meaning(m, m.node("MatMul", [a, m.normal(6, 3)], "y"))


@pytest.mark.parametrize(
    ("options", "indices", "why"),
    [
        ({"reduction": "mul"}, np.zeros((2, 4)), "reduction mul; must be none or add"),
        ({}, np.zeros((1, 4)), r"indices of shape \[1, 4\] for what has shape \[2, 4\]"),
        ({"reduction": "add"}, np.array([[0, 1, 2, 3], [3, 2, 1, 0]]), "it adds other parts than whole rows along one"),
    ],
)
def test_parts_that_are_refused(options: dict[str, Any], indices: np.ndarray, why: str):
    m = FloatModel((6, 4), opset=18)
    updates = m.node("MatMul", [m.normal(2, 6), "x"], "u")
    m.node("ScatterElements", ["x", m.constant(indices, np.int64), updates], "s", **options)
    with pytest.raises(UnsupportedError, match=why):
        quantise_with_report(m.build(m.node("MatMul", ["s", m.normal(4, 3)], "y")), m.data())


@pytest.mark.parametrize(
    ("shape", "indices", "options", "why"),
    [
        (
            (1, 140),
            [[0, at] for at in range(0, 140, 2)],
            {},
            "its places are more than 64 parts of the result; write w",
        ),
        (
            (4, 4),
            [[0, 1], [1, 2]],
            {"reduction": "add"},
            "what it adds has other axes than its operand; add whole rows",
        ),
        ((4, 4), [[0], [1]], {}, r"indices of shape \[2, 1\] for what has shape \[2\]"),
    ],
)
def test_single_numbers_that_are_refused(shape: Shape, indices: list[list[int]], options: dict[str, Any], why: str):
    m = FloatModel(shape, opset=18)
    updates = m.node("Reshape", [m.node("MatMul", ["x", m.normal(shape[1], len(indices))], "u"), m.integers(-1)], "r")
    updates = m.node("Slice", [updates, m.integers(0), m.integers(len(indices)), m.integers(0)], "v")
    m.node("ScatterND", ["x", m.constant(indices, np.int64), updates], "s", **options)
    with pytest.raises(UnsupportedError, match=why):
        quantise_with_report(m.build(m.node("MatMul", ["s", m.normal(shape[1], 3)], "y")), m.data())


# -- products -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operands", "options"),
    [("ab", {"transB": 1}), ("ab", {"transA": 1, "alpha": 0.5}), ("abc", {"transB": 1, "alpha": 2.0, "beta": 0.5}),
     ("awc", {"transB": 1}), ("awc", {"alpha": 0.5, "beta": 2.0})],
)  # fmt: skip
def test_a_gemm_of_what_is_computed(operands: str, options: dict[str, float]):
    """Two factors, or a term, which recurrences have written down in steps."""
    m = FloatModel((4, 4))
    for name in operands:
        m.node("MatMul", ["x", m.normal(4, 4)], name) if name != "w" else None
    names = [m.normal(4, 4) if name == "w" else name for name in operands]
    keeps_its_meaning(m, m.node("Gemm", names, "y", **options))


# -- the beginning and the end --------------------------------------------------------------------------------------


def test_tokens_before_the_batch_are_the_chip_s():
    """An embedding in front of a recurrence, whose tokens come first."""
    m = FloatModel((1, 6), opset=14)
    m.element = TensorProto.INT64
    a = m.node("Transpose", m.node("Gather", [m.normal(20, 8), "x"], "e"), "t", perm=[1, 0, 2])
    a = m.node("LSTM", [a, m.normal(1, 16, 8), m.normal(1, 16, 4), m.normal(1, 32)], "l", hidden_size=4)
    a = m.node("Squeeze", [a, m.integers(1)], "s")
    m.node("MatMul", [m.node("ReduceMean", a, "r", axes=[0]), m.normal(4, 3)], "y")
    model = m.build("y")
    data: Any = [examples(model), {"x": np.arange(6)[None] + 3}]
    report = quantise_with_report(model, data)
    assert report.start is not None
    assert report.start.sources == ("e",)
    assert report.snr_db > 20


def test_a_softmax_along_another_axis_before_what_the_host_does():
    """Expected places: shares of the pixels of a map, summed."""
    m = FloatModel((1, 3, 8, 8))
    a = m.node("Reshape", [m.conv("x", "a", (5, 3, 1, 1)), m.integers(1, 5, 64)], "r")
    shares = m.node("Reshape", [m.node("Softmax", a, "p", axis=-1), m.integers(1, 5, 8, 8)], "q")
    m.node("Round", m.node("Mul", [shares, m.normal(8, 8)], "m"), "y")
    report = quantise_with_report(m.build("y"), m.data())
    assert report.graph.outputs == ("a",)
    assert report.graph.notes[0].endswith("at the end run on the host.")
