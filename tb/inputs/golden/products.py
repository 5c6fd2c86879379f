"""Matrix products of int8 by ONNX Runtime's MatMulInteger: the sums of gradients."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .layer import GoldenError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def product(a: NDArray[np.int8], b: NDArray[np.int8]) -> NDArray[np.int32]:
    """a·b, int32 [M, N] of int8 [M, K] and [K, N]. Raises GoldenError when a sum might leave int32."""
    depth = a.shape[1]
    if 128 * 128 * depth >= 1 << 31:
        raise GoldenError(f"product of {a.shape} by {b.shape}: sums of {depth} products may leave int32")
    # as in `layer`: flipping the top bit adds 128, which is given as zero point
    feeds = {name: array.view(np.uint8) ^ np.uint8(0x80) for name, array in (("a", a), ("b", b))}
    result = _session().run(None, feeds)[0]
    assert isinstance(result, np.ndarray)
    return result


@cache
def _session() -> InferenceSession:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b", "zero", "zero"], ["y"])],
        "product",
        [helper.make_tensor_value_info(name, TensorProto.UINT8, None) for name in ("a", "b")],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(np.array(128, np.uint8), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
