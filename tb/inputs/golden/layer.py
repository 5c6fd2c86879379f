"""The golden model: a layer computed by ONNX Runtime's integer operators, not by our own NumPy code.

Two routes, which must agree:

- `golden` uses QLinearConv. The input scale and the output scale are 1 and the weight scale is m / 2**17, so that its
  float32 requantisation is *exact*, for every int32 sum and every m of 16 bits: where |sum| <= 2**24 the sum is a
  float32 number, and if |sum * m / 2**17| < 128 the product has at most 7 + 17 = 24 significant bits, so it is one too
  and only the final rounding (half to even) rounds. Where the product is 128 or more, or the sum is larger than 2**24
  (then the product is at least 128, or m is 0), rounding is monotone, so that the result saturates as it should.
- `golden_exact` uses ConvInteger for the sums, then Add, Mul, Round (half to even), Clip and Cast in double, where
  32 + 16 bits are exact without further argument.

Both give ONNX Runtime the operands as uint8 with zero point 128. That is the same sum, and its kernels for unsigned
operands widen to 16 bits before they multiply; those for unsigned times signed saturate pairs of products on x86
processors without VNNI.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT
from meshloom.sched.workload.layers import ConvShape, LayerData

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class GoldenError(ValueError):
    """A layer whose sums may leave int32, where ONNX Runtime promises nothing."""


def golden(data: LayerData) -> NDArray[np.int8]:
    """The layer's output, int8 [B, O, OH, OW], by QLinearConv. Raises GoldenError when a sum might leave int32."""
    feeds = _operands(data) | {
        "bias": data.bias,
        "scale": np.array(data.scale / 2**SCALE_SHIFT, np.float32),
    }
    y = _run("requantised", data.shape, feeds)
    return (y ^ np.uint8(0x80)).view(np.int8)


def golden_exact(data: LayerData) -> NDArray[np.int8]:
    """The layer's output, int8 [B, O, OH, OW], by ConvInteger and double arithmetic. Raises as `golden` does."""
    feeds = _operands(data) | {
        "bias": data.bias.reshape(1, -1, 1, 1),
        "scale": np.array(data.scale / 2**SCALE_SHIFT, np.float64),
    }
    return _run("exact", data.shape, feeds)


def golden_int32(data: LayerData) -> NDArray[np.int32]:
    """The sums before requantisation, bias included, int32 [B, O, OH, OW]. Raises as `golden` does."""
    return _run("sums", data.shape, _operands(data) | {"bias": data.bias.reshape(1, -1, 1, 1)})


def _operands(data: LayerData) -> dict[str, NDArray[Any]]:
    largest = 128 * 128 * data.shape.depth + int(np.abs(data.bias.astype(np.int64)).max())
    if largest >= 1 << 31:
        raise GoldenError(
            f"layer {data.shape.name}: sums may reach {largest}, past int32; use smaller biases or fewer products"
        )
    # Flipping the top bit of an int8 adds 128.
    return {name: array.view(np.uint8) ^ np.uint8(0x80) for name, array in (("x", data.x), ("w", data.w))}


def _run(kind: str, shape: ConvShape, feeds: dict[str, NDArray[Any]]) -> NDArray[Any]:
    pads = (shape.pad_top, shape.pad_left, shape.pad_bottom, shape.pad_right)
    window = (shape.kernel_h, shape.kernel_w, shape.stride_h, shape.stride_w, shape.dilation)
    session = _session(kind, window, pads, shape.relu, shape.clamp)
    result = session.run(None, feeds)[0]
    assert isinstance(result, np.ndarray)
    if result.shape != shape.y_shape:  # the two definitions of the output size must agree
        raise AssertionError(f"layer {shape.name}: ONNX Runtime gives {result.shape}, the shape says {shape.y_shape}")
    return result


@lru_cache(maxsize=64)
def _session(
    kind: str, window: tuple[int, int, int, int, int], pads: tuple[int, int, int, int], relu: bool, clamp: int
) -> InferenceSession:
    """A session for all layers with this window; sizes, operands and scale are its inputs. One thread, so that
    processor seconds that are reported are honest."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    kernel_h, kernel_w, stride_h, stride_w, dilation = window
    attributes: dict[str, Any] = {
        "kernel_shape": [kernel_h, kernel_w],
        "strides": [stride_h, stride_w],
        "pads": list(pads),
        "dilations": [dilation, dilation],
    }
    low = 0 if relu else -128
    constants: dict[str, NDArray[Any]] = {"zero": np.array(128, np.uint8)}
    inputs: dict[str, int] = {"x": TensorProto.UINT8, "w": TensorProto.UINT8, "bias": TensorProto.INT32}
    if kind == "requantised":
        constants |= {"one": np.array(1, np.float32)}
        constants |= {"low": np.array(128 + low, np.uint8), "high": np.array(128 + clamp, np.uint8)}
        inputs["scale"], output = TensorProto.FLOAT, TensorProto.UINT8
        operands = ["x", "one", "zero", "w", "scale", "zero", "one", "zero", "bias"]
        nodes = [
            helper.make_node("QLinearConv", operands, ["full"], **attributes),
            helper.make_node("Clip", ["full", "low", "high"], ["y"]),
        ]
    else:
        output = TensorProto.INT32
        nodes = [
            helper.make_node("ConvInteger", ["x", "w", "zero", "zero"], ["products"], **attributes),
            helper.make_node("Add", ["products", "bias"], ["sums" if kind == "exact" else "y"]),
        ]
        if kind == "exact":
            constants |= {"low": np.array(low, np.float64), "high": np.array(clamp, np.float64)}
            inputs["scale"], output = TensorProto.DOUBLE, TensorProto.INT8
            nodes += [
                helper.make_node("Cast", ["sums"], ["wide"], to=TensorProto.DOUBLE),
                helper.make_node("Mul", ["wide", "scale"], ["scaled"]),
                helper.make_node("Round", ["scaled"], ["rounded"]),
                helper.make_node("Clip", ["rounded", "low", "high"], ["clipped"]),
                helper.make_node("Cast", ["clipped"], ["y"], to=TensorProto.INT8),
            ]
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info(name, element, None) for name, element in inputs.items()],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
