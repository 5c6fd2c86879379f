"""Weights in blocks with a scale each (MatMulNBits, DequantizeLinear with a block size) against ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from meshloom.sched.workload.onnx.errors import UnsupportedError
from meshloom.sched.workload.onnx.load import load_model

DOMAIN = "com.microsoft"


def packed(numbers: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Numbers [..., count] in bytes, the first in the low bits."""
    each = 8 // bits
    filled = np.zeros((*numbers.shape[:-1], -(-numbers.shape[-1] // each) * each), np.uint8)
    filled[..., : numbers.shape[-1]] = numbers
    parts = filled.reshape(*filled.shape[:-1], -1, each)
    return np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), axis=-1)


def product(bits: int, depth: int, size: int, zeros: str = "", bias: bool = False, **changes: Any) -> onnx.ModelProto:
    """y = x @ weights, 12 columns. `changes`: attributes that are otherwise."""
    random, count, blocks = np.random.default_rng(bits + depth), 12, -(-depth // size)
    numbers = random.integers(0, 1 << bits, (count, blocks, size)).astype(np.uint8)
    tensors = {
        "B": packed(numbers, bits),
        "S": random.uniform(0.01, 0.1, count * blocks).astype(np.float32),
    }
    operands = ["x", "B", "S"]
    if zeros == "packed":
        tensors["Z"] = packed(random.integers(0, 1 << bits, (count, blocks)).astype(np.uint8), bits).reshape(-1)
    elif zeros:
        tensors["Z"] = random.uniform(0, 1 << bits, count * blocks).astype(np.float32)
    if zeros:
        operands.append("Z")
    if bias:
        tensors["bias"] = random.normal(0, 1, count).astype(np.float32)
        operands += [""] * (5 - len(operands)) + ["bias"]
    attributes: dict[str, Any] = {"K": depth, "N": count, "bits": bits, "block_size": size} | changes
    node = helper.make_node("MatMulNBits", operands, ["y"], "product", domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, count])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def blocks(kind: int, axis: int, size: int, zeros: bool) -> onnx.ModelProto:
    """y = x @ weights [40, 12] that a DequantizeLinear makes."""
    random, shape = np.random.default_rng(axis), (40, 12)
    low, high = (-8, 8) if kind in (TensorProto.INT4, TensorProto.INT8) else (0, 16)
    scales = tuple(-(-length // size) if at == axis else length for at, length in enumerate(shape))
    tensors = [
        helper.make_tensor("q", kind, shape, random.integers(low, high, shape).ravel().tolist()),
        numpy_helper.from_array(random.uniform(0.01, 0.1, scales).astype(np.float32), "s"),
    ]
    if zeros:
        tensors.append(helper.make_tensor("z", kind, scales, random.integers(low, high, scales).ravel().tolist()))
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"][: 2 + zeros], ["w"], axis=axis, block_size=size),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5, 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, 12])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def outcomes(model: onnx.ModelProto, folder: Path) -> tuple[NDArray[Any], NDArray[Any], onnx.ModelProto]:
    """What ONNX Runtime computes of the file, its activations whole, and of the model that was read from it."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    read = load_model(path)
    x = np.random.default_rng(3).normal(0, 1, model.graph.input[0].type.tensor_type.shape.dim[2].dim_value * 5)
    feed = {"x": x.astype(np.float32).reshape(1, 5, -1)}
    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    results = [runtime.InferenceSession(each.SerializeToString(), options).run(None, feed)[0] for each in (model, read)]
    return np.asarray(results[0]), np.asarray(results[1]), read


#: ONNX Runtime has no zero points that are numbers for weights of 8 bits.
WAYS = [(bits, zeros) for bits in (4, 8) for zeros in ("", "packed", "numbers") if (bits, zeros) != (8, "numbers")]


@pytest.mark.parametrize(("bits", "zeros"), WAYS)
@pytest.mark.parametrize(("depth", "size"), [(64, 32), (96, 16), (70, 32)])
def test_products_with_few_bits(bits: int, depth: int, size: int, zeros: str, tmp_path: Path) -> None:
    theirs, ours, read = outcomes(product(bits, depth, size, zeros, bias=zeros == "packed"), tmp_path)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert {node.op_type for node in read.graph.node} <= {"MatMul", "Add"}
    assert {item.name for item in read.graph.initializer} <= {"y/weights", "bias"}


@pytest.mark.parametrize("count", [3, 4, 5])
def test_operands_that_are_left_out(count: int, tmp_path: Path) -> None:
    model = product(4, 64, 32)
    model.graph.node[0].input.extend([""] * (count - 3))
    onnx.save(model, tmp_path / "model.onnx")
    assert [node.op_type for node in load_model(tmp_path / "model.onnx").graph.node] == ["MatMul"]


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8])
@pytest.mark.parametrize(("axis", "size"), [(0, 8), (1, 4), (0, 16)])
@pytest.mark.parametrize("zeros", [False, True])
def test_constants_in_blocks(kind: int, axis: int, size: int, zeros: bool, tmp_path: Path) -> None:
    theirs, ours, read = outcomes(blocks(kind, axis, size, zeros), tmp_path)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert [node.op_type for node in read.graph.node] == ["MatMul"]


def four_bits(domain: str, rows: int, zeros: bool) -> onnx.ModelProto:
    """y = x @ weights of four bits, with `rows` scales; of ONNX Runtime's domain as its quantiser writes it."""
    model = blocks(TensorProto.INT4, 1, 1, zeros)
    graph, random = model.graph, np.random.default_rng(rows)
    node = graph.node[0]
    node.domain = domain
    node.attribute.remove(next(item for item in node.attribute if item.name == "block_size"))
    for item in list(graph.initializer)[1:]:
        graph.initializer.remove(item)
    shape = (rows,) if rows > 1 else ()
    graph.initializer.append(numpy_helper.from_array(random.uniform(0.01, 0.1, shape).astype(np.float32), "s"))
    if zeros:
        graph.initializer.append(
            helper.make_tensor("z", TensorProto.INT4, shape, random.integers(-8, 8, rows).tolist())
        )
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("zeros", [False, True])
def test_constants_of_four_bits(domain: str, rows: int, zeros: bool, tmp_path: Path) -> None:
    theirs, ours, read = outcomes(four_bits(domain, rows, zeros), tmp_path)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert [node.op_type for node in read.graph.node] == ["MatMul"]


def test_a_block_may_be_longer_than_there_are_numbers(tmp_path: Path) -> None:
    weights: list[NDArray[Any]] = []
    for size in (40, 1 << 40):
        onnx.save(blocks(TensorProto.INT4, 0, size, zeros=True), tmp_path / "model.onnx")
        weights.append(numpy_helper.to_array(load_model(tmp_path / "model.onnx").graph.initializer[0]))
    assert weights[0].shape == (40, 12)
    np.testing.assert_array_equal(weights[0], weights[1])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"bits": 3}, "weights of 3 bits in blocks of 32; export it with 2, 4 or 8 bits"),
        ({"K": 640}, "its weights are not 12 x 20 blocks of 32 with 4 bits"),
        ({"K": 0}, "it does not say its K"),
        ({"K": 1 << 20, "N": 1 << 20}, r"its weights.* numbers"),
        ({"weight_prepacked": 1}, r"in a processor's own order \(weight_prepacked\)"),
    ],
)
def test_products_that_cannot_be(changes: dict[str, int], error: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.onnx"
    model = product(4, 64, 32)
    attributes = {each.name: helper.get_attribute_value(each) for each in model.graph.node[0].attribute} | changes
    del model.graph.node[0].attribute[:]
    model.graph.node[0].attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    onnx.save(model, path)
    with pytest.raises(UnsupportedError, match=error):
        load_model(path)


def test_wrong_sizes_and_computed_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.onnx"

    def refused(model: onnx.ModelProto, error: str) -> None:
        onnx.save(model, path)
        with pytest.raises(UnsupportedError, match=error):
            load_model(path)

    def tensor(model: onnx.ModelProto, name: str) -> Any:
        return next(item for item in model.graph.initializer if item.name == name)

    model = product(4, 64, 32)
    tensor(model, "S").CopyFrom(numpy_helper.from_array(np.ones(5, np.float32), "S"))
    refused(model, "it has 5 scales for 12 x 2 blocks")
    for zeros, array, error in (
        ("packed", np.ones(5, np.uint8), "it has 5 bytes of zero points, must have 12 x 1"),
        ("numbers", np.ones(5, np.float32), "it has 5 zero points for 12 x 2 blocks"),
    ):
        model = product(4, 64, 32, zeros)
        tensor(model, "Z").CopyFrom(numpy_helper.from_array(array, "Z"))
        refused(model, error)
    model = four_bits("", 5, zeros=False)
    refused(model, "it has 5 scales of rows, must have 12 or one")
    model = four_bits("", 1, zeros=True)
    tensor(model, "z").CopyFrom(helper.make_tensor("z", TensorProto.INT4, (5,), [0] * 5))
    refused(model, "it has 5 zero points of rows, must have 40 or one")
    model = product(4, 64, 32)
    model.graph.node[0].input[2] = "x"
    refused(model, "its operand 'x' is computed; export it with constants")
    model = product(4, 64, 32)
    model.graph.node[0].input.extend(["", "S"])
    refused(model, r"its blocks have an order of their own \(g_idx\)")
    model = blocks(TensorProto.INT4, 0, 8, zeros=False)
    tensor(model, "s").CopyFrom(numpy_helper.from_array(np.ones((4, 12), np.float32), "s"))
    refused(model, r"its scales are \[4, 12\], must be \[5, 12\]")
    for axis in (2, -3):
        model = blocks(TensorProto.INT4, 0, 8, zeros=False)
        model.graph.node[0].attribute[0].i = axis
        refused(model, f"its numbers have no axis {axis}")
