"""Weights that lie in a file with few bits and a scale for each block, as the numbers that they stand for.

Two forms are usual: `MatMulNBits` of ONNX Runtime's own domain (com.microsoft), in which most language models with
weights of four bits come, and DequantizeLinear with a `block_size` (from opset 21 on), or of numbers of four bits, also
in that domain. Both are constants, so they are computed once. ONNX Runtime itself may compute such products with
activations that it rounds to 8 bits: what the chip is compared with has the weights as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .bounds import check_size
from .errors import NodeRefusal, Refused, UnsupportedError, node_name, operator_name
from .pointwise import MICROSOFT

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_PRODUCT = f"{MICROSOFT}.MatMulNBits"
#: Bits of a weight that MatMulNBits is known to have.
_BITS = (2, 4, 8)


def with_whole_weights(model: ModelProto, name: str) -> ModelProto:
    """The model with constants in place of weights that lie in blocks; itself if there are none. `name` is for
    messages. Raises UnsupportedError for blocks that are not as their operator says."""
    import onnx
    from onnx import numpy_helper

    tensors = {item.name: item for item in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and (value := _attributes(node).get("value")) is not None:
            tensors[node.output[0]] = value
    blocked = {index for index, node in enumerate(model.graph.node) if _in_blocks(node, tensors)}
    if not blocked:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    refused: list[NodeRefusal] = []
    for index, node in enumerate(model.graph.node):
        if index not in blocked:
            result.graph.node.append(node)
            continue
        try:
            if operator_name(node) == _PRODUCT:
                weights = f"{node.output[0]}/weights"
                result.graph.initializer.append(numpy_helper.from_array(_product_weights(node, tensors), weights))
                result.graph.node.extend(_product(node, weights))
            else:
                result.graph.initializer.append(numpy_helper.from_array(_blocks(node, tensors), node.output[0]))
        except Refused as why:
            refused.append(NodeRefusal(node_name(node), operator_name(node), str(why), tuple(node.output)))
    if refused:
        raise UnsupportedError(name, refused)
    read = {each for node in result.graph.node for each in node.input} | {each.name for each in result.graph.output}
    used = [item for item in result.graph.initializer if item.name in read]
    del result.graph.initializer[:]
    result.graph.initializer.extend(used)
    return result


def _in_blocks(node: NodeProto, tensors: dict[str, TensorProto]) -> bool:
    from onnx import TensorProto

    if operator_name(node) == _PRODUCT:
        return True
    if node.op_type != "DequantizeLinear":
        return False
    few = TensorProto.INT4, TensorProto.UINT4
    is_few = node.input[0] in tensors and tensors[node.input[0]].data_type in few
    return is_few or (not node.domain and _attributes(node).get("block_size", 0) > 0)


def _attributes(node: NodeProto) -> dict[str, Any]:
    from onnx import helper

    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _constant(node: NodeProto, index: int, tensors: dict[str, TensorProto]) -> NDArray[Any] | None:
    """An operand; None if it is left out. Raises Refused if it is computed."""
    from onnx import numpy_helper

    name = node.input[index] if index < len(node.input) else ""
    if not name:
        return None
    if name not in tensors:
        raise Refused(f"its operand {name!r} is computed; export it with constants")
    return numpy_helper.to_array(tensors[name])


def _blocks(node: NodeProto, tensors: dict[str, TensorProto]) -> NDArray[Any]:
    """What a DequantizeLinear makes of blocks: (x - zero) * scale, each scale for `block_size` numbers along `axis`."""
    attributes = _attributes(node)
    size = attributes.get("block_size", 0)
    numbers, scales, zeros = (_constant(node, index, tensors) for index in range(3))
    if numbers is None or scales is None:
        raise Refused("it has no numbers or no scales; export it again")
    single = not size and scales.size == 1
    if not single and not -numbers.ndim <= attributes.get("axis", 1) < numbers.ndim:
        raise Refused(f"its numbers have no axis {attributes.get('axis', 1)}; export it again")
    check_size(numbers.shape, "what it makes")
    axis = 0 if single else attributes.get("axis", 1) % numbers.ndim
    if not size:
        return _rows(numbers, scales, zeros, axis)
    expected = tuple(-(-length // size) if at == axis else length for at, length in enumerate(numbers.shape))
    for what, array in (("scales", scales), ("zero points", zeros)):
        if array is not None and array.shape != expected:
            raise Refused(f"its {what} are {list(array.shape)}, must be {list(expected)}; export it again")
    along, times = slice(0, numbers.shape[axis]), min(size, numbers.shape[axis])  # a block may be longer than all

    def spread(array: NDArray[Any]) -> NDArray[np.float64]:
        return np.moveaxis(np.moveaxis(array.astype(np.float64).repeat(times, axis), axis, 0)[along], 0, axis)

    zero = 0.0 if zeros is None else spread(zeros)
    return ((numbers.astype(np.float64) - zero) * spread(scales)).astype(scales.dtype)


def _rows(numbers: NDArray[Any], scales: NDArray[Any], zeros: NDArray[Any] | None, axis: int) -> NDArray[Any]:
    """The same with one scale for all, or one for each index along `axis`."""
    shape = [-1 if at == axis else 1 for at in range(numbers.ndim)]
    count = numbers.shape[axis] if numbers.ndim else 1

    def along(what: str, array: NDArray[Any]) -> NDArray[np.float64]:
        if array.size not in (1, count):
            raise Refused(f"it has {array.size} {what}, must have {count} or one; export it again")
        return array.astype(np.float64).reshape(shape if array.size > 1 else ())

    zero = 0.0 if zeros is None else along("zero points of rows", zeros)
    return ((numbers.astype(np.float64) - zero) * along("scales of rows", scales)).astype(scales.dtype)


def _product_weights(node: NodeProto, tensors: dict[str, TensorProto]) -> NDArray[Any]:
    """The weights [K, N] of a MatMulNBits: [N, blocks, bytes of a block], the first of a byte in its low bits."""
    attributes = _attributes(node)
    if missing := [each for each in ("K", "N", "block_size") if attributes.get(each, 0) < 1]:
        raise Refused(f"it does not say its {missing[0]}; export it again")
    depth, count, size, bits = attributes["K"], attributes["N"], attributes["block_size"], attributes.get("bits", 4)
    check_size((depth, count), "its weights")
    if bits not in _BITS or size * bits % 8:
        raise Refused(f"weights of {bits} bits in blocks of {size}; export it with 2, 4 or 8 bits")
    if attributes.get("weight_prepacked", 0):
        raise Refused("its weights are in a processor's own order (weight_prepacked); export it anew")
    packed, scales, zeros, order = (_constant(node, index, tensors) for index in range(1, 5))
    if order is not None:
        raise Refused("its blocks have an order of their own (g_idx); export it without")
    blocks = -(-depth // size)
    if packed is None or scales is None or packed.size * 8 != count * blocks * size * bits:
        raise Refused(f"its weights are not {count} x {blocks} blocks of {size} with {bits} bits; export it again")
    if scales.size != count * blocks:
        raise Refused(f"it has {scales.size} scales for {count} x {blocks} blocks; export it again")
    numbers = _few_bits(packed.reshape(count, -1), bits, blocks * size).reshape(count, blocks, size)
    zero: NDArray[Any] | float = 1 << (bits - 1)
    if zeros is not None and zeros.dtype == np.uint8:
        row = -(-blocks * bits // 8)
        if zeros.size != count * row:
            raise Refused(f"it has {zeros.size} bytes of zero points, must have {count} x {row}; export it again")
        zero = _few_bits(zeros.reshape(count, row), bits, blocks)[..., None]
    elif zeros is not None:
        if zeros.size != count * blocks:
            raise Refused(f"it has {zeros.size} zero points for {count} x {blocks} blocks; export it again")
        zero = zeros.reshape(count, blocks, 1).astype(np.float64)
    weights = (numbers - zero) * scales.reshape(count, blocks, 1).astype(np.float64)
    return np.ascontiguousarray(weights.reshape(count, -1)[:, :depth].T.astype(scales.dtype))


def _few_bits(rows: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.float64]:
    """The first `count` numbers of each row of bytes, float64 [rows, count]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (rows[..., None] >> shifts & ((1 << bits) - 1)).reshape(len(rows), -1)[:, :count].astype(np.float64)


def _product(node: NodeProto, weights: str) -> list[NodeProto]:
    """The product, and the sum with its bias if it has one."""
    from onnx import helper

    result, bias = node.output[0], node.input[5] if len(node.input) > 5 else ""
    product = f"{result}/product" if bias else result
    nodes = [helper.make_node("MatMul", [node.input[0], weights], [product], f"{result}/MatMul")]
    if bias:
        nodes.append(helper.make_node("Add", [product, bias], [result], f"{result}/Add"))
    return nodes
