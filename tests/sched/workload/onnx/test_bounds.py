"""What a few bytes may ask for: sizes are looked at before anything is made; damaged files are one line each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.onnx.bounds import MOST_ELEMENTS, MOST_LAYERS, Budget, check_size
from meshloom.sched.workload.onnx.errors import OnnxError, Refused, UnsupportedError
from meshloom.sched.workload.onnx.float_reader import fold
from meshloom.sched.workload.onnx.host import fold_to_end
from meshloom.sched.workload.onnx.load import load_model
from meshloom.sched.workload.onnx.quantise import quantise_with_report
from meshloom.sched.workload.onnx.runtime import run, session
from meshloom.sched.workload.onnx.sparse_weights import fill_sparse_weights
from meshloom.sched.workload.onnx.validity import MOST_WITHOUT_DATA

from ...float_models import FloatModel


def test_sizes_and_budgets_end_where_they_say():
    check_size((MOST_ELEMENTS,))
    with pytest.raises(
        Refused, match=r"its result would have the shape \[16777217\]; a tensor may have 16,777,216 numbers"
    ):
        check_size((MOST_ELEMENTS + 1,))
    budget = Budget(1)
    budget.spend("layers", MOST_LAYERS)
    with pytest.raises(Refused, match="with it there would be 32,769 layers; 32,768 at most"):
        budget.spend("layers", 1)
    with pytest.raises(Refused, match="16,777,233 weights of layers; 16,777,232 at most for a file of this size"):
        budget.spend("weights of layers", MOST_ELEMENTS + 17)


# -- sizes ----------------------------------------------------------------------------------------------------------

K = 100_000
SIZES: dict[str, tuple[Callable[[FloatModel], str], str]] = {
    "constant": (lambda m: m.node("ConstantOfShape", m.integers(K, K), "k"), "of constants: its result would have"),
    "expand": (lambda m: m.node("Expand", [m.constant(1.0), m.integers(K, K)], "k"), "of constants: its result"),
    "tile": (lambda m: m.node("Tile", [m.constant([1.0]), m.integers(K * K)], "k"), "of constants: its result"),
    "range": (lambda m: m.node("Range", [m.constant(0.0), m.constant(1e10), m.constant(1.0)], "k"), "of constants"),
    "resize": (lambda m: m.node("Resize", [m.normal(1, 1, 2, 2), "", "", m.integers(1, 1, K, K)], "k"), "of constants"),
    "pad": (lambda m: m.node("Pad", [m.normal(2, 2), m.integers(0, 0, K, K)], "k"), "of constants: its result"),
    "product": (lambda m: m.node("MatMul", [m.normal(5000, 1), m.normal(1, 5000)], "k"), "of constants: its result"),
    "two": (lambda m: m.node("Add", [m.node("ConstantOfShape", m.integers(4000, 4000), "j"), m.constant(1.0)], "k"),
            "numbers computed from constants"),
    "expanded": (lambda m: m.node("Expand", ["x", m.integers(K, 1, 8, 8)], "k"), r"shape \[100000, 3, 8, 8\]"),
    "tiled": (lambda m: m.node("Tile", ["x", m.integers(1, 1, K, K)], "k"), "its result would have the shape"),
    "resized": (lambda m: m.node("Resize", ["x", "", "", m.integers(1, 3, K, K)], "k"), "its result would have"),
    "scaled": (lambda m: m.node("Resize", ["x", "", m.constant([1, 1, 1e4, 1e4])], "k"), "its result would have"),
    "padded": (lambda m: m.node("Pad", ["x", m.integers(0, 0, K, K, 0, 0, K, K)], "k"), "its result would have"),
    "edges": (lambda m: m.node("Pad", ["x", m.integers(0, 0, K, K, 0, 0, 0, 0)], "k", mode="edge"), "its result would"),
    "gathered": (lambda m: m.node("Gather", ["x", m.constant(np.zeros(10 * K), np.int64)], "k", axis=1), "its result"),
    "pads": (lambda m: m.conv("x", "k", (3, 3, 1, 1), pads=[10**9] * 4), "its result would have the shape"),
    "apart": (lambda m: m.conv("x", "k", (3, 3, 2, 2), dilations=[10**9, 1], pads=[10**9, 0, 10**9, 0]),
              "what stands for its weights would have the shape"),
    "transposed": (lambda m: m.node("ConvTranspose", ["x", m.normal(3, 3, 1, 1)], "k", strides=[K, K]), "its result"),
    "phases": (lambda m: m.node("ConvTranspose", ["x", m.normal(3, 3, 1, 1)], "k", strides=[17, 16]),
               r"strides \[17, 16\] take 272 layers; 256 at most"),
    "maxima": (lambda m: m.node("MaxPool", "x", "k", kernel_shape=[10**9] * 2, pads=[10**9 - 8] * 4), "its result"),
    "window": (lambda m: m.node("MaxPool", "x", "k", kernel_shape=[10**8, 1], pads=[10**8 - 8, 0, 0, 0]),
               "a window of 100,000,000x1"),
    "averages": (lambda m: m.node("AveragePool", "x", "k", kernel_shape=[10**8, 1], pads=[10**8 - 8, 0, 0, 0],
                                  count_include_pad=1), "what stands for its weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_what_would_be_too_large(name: str):
    build, message = SIZES[name]
    m = FloatModel(opset=13)
    result = build(m)
    m.conv(m.node("Add", ["x", m.node("ReduceSum", result, "sum", keepdims=0)], "b"), "y", (3, 3, 1, 1))
    with pytest.raises(UnsupportedError, match=message):
        fold(m.build("y"), "net", normalised=False)


def test_inputs_that_are_too_large():
    m = FloatModel((1, 3, 10**6, 10**6))
    m.conv("x", "y", (4, 3, 3, 3))
    with pytest.raises(
        OnnxError, match=r"net: input 'x' would have the shape \[1, 3, 1000000, 1000000\]; a tensor may"
    ):
        fold_to_end(m.build("y"), "net", normalised=False)


def test_groups_with_too_many_zeros():
    m = FloatModel((1, 20_000, 1, 1))
    m.node("Conv", ["x", m.constant(np.ones((20_000, 2, 1, 1)))], "y", group=10_000)
    with pytest.raises(
        UnsupportedError, match=r"what stands for its weights would have the shape \[20000, 20000, 1, 1\]"
    ):
        fold(m.build("y"), "net", normalised=False)
    m = FloatModel((1, 4200, 40, 1))
    m.node("Conv", ["x", m.constant(np.ones((4200, 1, 33, 1)))], "y", group=4200)
    with pytest.raises(UnsupportedError, match="what stands for its weights"):
        fold(m.build("y"), "net", normalised=False)


def test_strides_beyond_a_map_are_none():
    m = FloatModel()
    m.conv("x", "y", (4, 3, 3, 3), strides=[2**40, 11])
    assert [layer.kind for layer in fold(m.build("y"), "net", normalised=False).layers][-1] == "conv"


# -- depth ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["Relu", "Identity", "Sigmoid", "Transpose"])
def test_chains_of_any_depth(operator: str):
    m = FloatModel()
    name = m.conv("x", "a", (3, 3, 1, 1))
    attributes = {"perm": [0, 1, 3, 2]} if operator == "Transpose" else {}
    for index in range(1500):
        name = m.node(operator, name, f"t{index}", **attributes)
    m.node("Relu", name, "y")
    assert fold(m.build("y"), "net", normalised=False).layers[0].kind == "conv"


def test_a_chain_runs():
    """From an input on, as the file that was not read."""
    m = FloatModel()
    name = "x"
    for index in range(1000):
        name = m.node("Relu", name, f"t{index}")
    m.conv(name, "y", (4, 3, 1, 1))
    report = quantise_with_report(m.build("y"), m.data(1))
    assert [layer.kind for layer in report.graph.layers] == ["max_pool", "conv"]


# -- files ------------------------------------------------------------------------------------------------------------


def saved(path: Path, *nodes: onnx.NodeProto, w: onnx.TensorProto | None = None, **changes: Any) -> Path:
    """A file of these nodes, between `x` and `y`; one convolution if there are none."""
    stored = [w] if w is not None else [numpy_helper.from_array(np.ones((3, 3, 1, 1), np.float32), "w")]
    x = changes.get("x") or helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes or [helper.make_node("Conv", ["x", "w"], ["y"], "n")]), "g", [x], [y], stored)
    opsets = [helper.make_opsetid("", version) for version in changes.get("opsets", (17,))]
    model = helper.make_model(graph, opset_imports=opsets or None, ir_version=changes.get("ir", 8))
    if not opsets:
        del model.opset_import[:]
    path.write_bytes(model.SerializeToString())
    return path


def node(operator: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], "n", **attributes)


def tensor(*dims: int, kind: int = TensorProto.FLOAT, count: int = 0, **external: str) -> onnx.TensorProto:
    result = TensorProto(name="w", data_type=kind, dims=dims, float_data=[1.0] * count)
    for key, value in external.items():
        result.data_location = TensorProto.EXTERNAL
        result.external_data.add(key=key, value=value)
    return result


@pytest.mark.parametrize(
    ("nodes", "changes", "message"),
    [
        ([node("Relu", "a", "b"), node("Relu", "b", "a"), node("Add", "a x", "y")], {}, "input 'a' of node: name: n"),
        ([node("Relu", "x", "a"), node("Neg", "x", "a"), node("Relu", "a", "y")], {}, "'a' has been used as output"),
        ([node("Conv", "x zz", "y")], {}, "input 'zz' of node: name: n OpType: Conv"),
        ([node("Relu", "x", "a")], {}, "'y' is not an output of any node"),
        ([node("Conv", "x", "y")], {}, r"Node\(n\) with schema\(::Conv:11\) has input size 1"),
        ([node("Conv", "x w", "y", strides="ab")], {}, "Mismatched attribute type in 'n : strides'"),
        ([node("Conv", "x w", "y", strange=1)], {}, "Unrecognized attribute: strange for operator Conv"),
        ([], {"opsets": ()}, "opset none must be one of 7..28; export it with another opset"),
        ([], {"opsets": (99,)}, "opset 99 must be one of"),
        ([], {"opsets": (17, 16)}, "opset 17, 16 must be one of"),
        ([], {"ir": 99}, "ir_version 99 is higher"),
        ([], {"x": helper.make_tensor_value_info("x", 999, [1, 3, 8, 8])}, r"'x' has an unknown type \(999\)"),
        ([], {"x": helper.make_tensor_sequence_value_info("x", 1, None)}, "'x' is no tensor; export the model with"),
        ([], {"w": tensor(3, 3, 1, 1, count=5)}, r"tensor 'w' of shape \[3, 3, 1, 1\]: does not fit its data"),
        ([], {"w": tensor(2**31, 2**31, 3, 3, count=1)}, r"'w' of shape \[2147483648, .*: does not fit its data"),
        ([], {"w": tensor(3, 3, 1, -1, count=9)}, "has a negative size; export it again"),
        ([], {"w": tensor(1, kind=555, count=1)}, r"'w' of shape \[1\]: has an unknown type \(555\)"),
        ([], {"w": tensor(MOST_WITHOUT_DATA + 1)}, "has no data; the tensors of a file that have none"),
        ([], {"w": tensor(3, 3, 1, 1, location="no.bin")}, "its weights 'w' lie in 'no.bin', which is no file"),
        ([], {"w": tensor(3, 3, 1, 1, location=".")}, "lie in '.', which is no file"),
        ([], {"w": tensor(3, 3, 1, 1, location="w.bin", offset="8")}, "36 bytes from 8 on; the file has 36"),
        ([], {"w": tensor(3, 3, 1, 1, location="w.bin", offset="-4")}, "36 bytes from -4 on"),
        ([], {"w": tensor(3, 3, 1, 1, location="w.bin", length="9000000000")}, "9,000,000,000 bytes from 0 on"),
        ([], {"w": tensor(3, 3, 1, 1, location="w.bin", length="4")}, "4 bytes from 0 on"),
        ([], {"w": tensor(3, 3, 1, 1, location="w.bin", offset="few")}, "as no file can be .*'few'"),
        ([], {"w": tensor(3, 3, 1, 1, location="../up.bin")}, "in another file that cannot be read: .*outside"),
    ],
)  # fmt: skip
def test_damaged_files(nodes: list[onnx.NodeProto], changes: dict[str, Any], message: str, tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    for path in (folder / "w.bin", tmp_path / "up.bin"):
        path.write_bytes(np.ones(9, np.float32).tobytes())
    path = saved(folder / "net.onnx", *nodes, **changes)
    with pytest.raises(OnnxError, match=message) as caught:
        load_model(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert len(text) < len(str(path)) + 600


def test_weights_in_another_file(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(np.arange(10, dtype=np.float32).tobytes())
    path = saved(tmp_path / "net.onnx", w=tensor(3, 3, 1, 1, location="w.bin", offset="4"))
    assert np.array_equal(numpy_helper.to_array(load_model(path).graph.initializer[0]).ravel(), np.arange(1, 10))


@pytest.mark.parametrize("content", [b"", b"hello world\n" * 50, bytes(range(256)) * 9])
def test_files_that_are_no_models(content: bytes, tmp_path: Path):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(OnnxError, match=r"is not an ONNX model|is damaged or not an ONNX file"):
        load_model(path)


def test_truncated_files(tmp_path: Path):
    m = FloatModel()
    m.conv("x", "y", (4, 3, 3, 3))
    whole = m.build("y").SerializeToString()
    path = tmp_path / "net.onnx"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(OnnxError) as caught:
            load_model(path)
        assert str(caught.value).startswith(str(path))


def test_what_is_no_file(tmp_path: Path):
    with pytest.raises(OnnxError, match="cannot be read: Is a directory"):
        load_model(tmp_path)
    os.mkfifo(tmp_path / "net.onnx")
    with pytest.raises(OnnxError, match="is a device, a pipe or a socket; give an ONNX file"):
        load_model(tmp_path / "net.onnx")


def test_an_unknown_operator_is_named(tmp_path: Path):
    """Files with operators that ONNX does not know are read as far as they can be."""
    path = saved(tmp_path / "net.onnx", node("Strange", "x", "y", domain="own"))
    with pytest.raises(UnsupportedError, match=r"n \(own.Strange\): no layer does that"):
        fold(load_model(path), str(path), normalised=False)


def sparse(places: object, shape: tuple[int, ...] = (3, 4)) -> onnx.SparseTensorProto:
    numbers = numpy_helper.from_array(np.array([1, -2, 3], np.float32), "w")
    return helper.make_sparse_tensor(numbers, numpy_helper.from_array(np.array(places, np.int64), "at"), shape)


@pytest.mark.parametrize("places", [[1, 6, 11], [[0, 1], [1, 2], [2, 3]]])
@pytest.mark.parametrize("where", ["initialiser", "node", "branch"])
def test_sparse_weights_are_whole_ones(places: object, where: str, tmp_path: Path):
    right = np.zeros((3, 4), np.float32)
    right[[0, 1, 2], [1, 2, 3]] = 1, -2, 3
    m = FloatModel((1, 3), opset=17)
    if where == "node":
        m.nodes.append(helper.make_node("Constant", [], ["w"], sparse_value=sparse(places)))
    m.node("MatMul", ["x", "w"], "y")
    if where == "branch":
        part = helper.make_graph(list(m.nodes), "part", [], [helper.make_empty_tensor_value_info("y")],
                                 sparse_initializer=[sparse(places)])  # fmt: skip
        m.nodes[:] = [helper.make_node("If", [m.constant(True, np.bool_)], ["y"], then_branch=part, else_branch=part)]
    model = m.build("y")
    if where == "initialiser":
        model.graph.sparse_initializer.append(sparse(places))
    onnx.save(model, tmp_path / "m.onnx")
    loaded, x = load_model(tmp_path / "m.onnx"), m.data()[0]
    np.testing.assert_allclose(run(session(loaded, "m"), {"x": x})["y"], x @ right, rtol=1e-6)
    assert not loaded.graph.sparse_initializer
    assert b"sparse_value" not in loaded.SerializeToString()


@pytest.mark.parametrize(
    ("places", "shape", "why"),
    [
        ([1, 6, 12], (3, 4), r"'w' of shape \[3, 4\]: its values have places that it has not"),
        ([1, 6, 11], (1 << 20, 1 << 20), "as a whole it would have the shape"),
    ],
)
def test_sparse_weights_that_cannot_be_whole(places: object, shape: tuple[int, ...], why: str):
    model = FloatModel((1, 3)).build()
    model.graph.sparse_initializer.append(sparse(places, shape))
    with pytest.raises(OnnxError, match=why):
        fill_sparse_weights(model, "m")


def test_what_is_laid_out_for_a_processor_is_named(tmp_path: Path):
    m = FloatModel()
    m.node("Conv", ["x", m.normal(8, 3, 3, 3)], "y", domain="com.microsoft.nchwc")
    model = m.build("y")
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(
        UnsupportedError, match="ONNX Runtime has laid it out for one processor; keep what the exporter"
    ):
        fold_to_end(model, "m", normalised=False)


def test_an_input_without_a_shape_is_named(tmp_path: Path) -> None:
    m = FloatModel()
    model = m.build(m.conv("x", "y", (2, 3, 3, 3)))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(OnnxError, match=r"m.onnx: input 'x' has no number of axes; export it with a shape \(sizes may"):
        load_model(tmp_path / "m.onnx")
