"""Float ONNX models, built layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto


def same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Padding before and after of TensorFlow's "same"."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2


class FloatModel:
    """Adds nodes whose result is called like the layer, each behind the one before unless `source` says otherwise.

    `inputs`: name -> shape [1, C, H, W].
    """

    def __init__(self, name: str, inputs: dict[str, tuple[int, ...]]) -> None:
        self.name, self.inputs = name, inputs
        self.last = next(iter(inputs))
        self.channels = {name: shape[1] for name, shape in inputs.items()}
        self._nodes: list[Any] = []
        self._constants: dict[str, NDArray[np.float32]] = {}

    def conv(
        self,
        name: str,
        weights: NDArray[np.float64],
        bias: NDArray[np.float64],
        *,
        source: str | None = None,
        stride: int = 1,
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        top: float | None = None,
        relu: bool = False,
    ) -> str:
        """A convolution [O, I, KH, KW] (depthwise if I = 1 and O = channels), with ReLU, or ReLU clamped at `top`.

        `pads`: top, left, bottom, right.
        """
        source = source or self.last
        inside = name if not relu else f"{name}.sums"
        depthwise = weights.shape[1] == 1 and self.channels[source] == len(weights)
        self._constants |= {f"{name}.w": weights.astype(np.float32), f"{name}.b": bias.astype(np.float32)}
        self._node(
            "Conv",
            [source, f"{name}.w", f"{name}.b"],
            inside,
            strides=[stride] * 2,
            pads=list(pads),
            kernel_shape=list(weights.shape[2:]),
            group=len(weights) if depthwise else 1,
        )
        if relu and top is None:
            self._node("Relu", [inside], name)
        elif relu:
            self._constants |= {"low": np.array(0, np.float32), "high": np.array(top, np.float32)}
            self._node("Clip", [inside, "low", "high"], name)
        return self._made(name, len(weights))

    def add(self, name: str, one: str, other: str, *, relu: bool = False) -> str:
        """A residual sum."""
        self._node("Add", [one, other], f"{name}.sum" if relu else name)
        if relu:
            self._node("Relu", [f"{name}.sum"], name)
        return self._made(name, self.channels[one])

    def concat(self, name: str, *parts: str) -> str:
        """Tensors side by side in their channels."""
        self._node("Concat", list(parts), name, axis=1)
        return self._made(name, sum(self.channels[part] for part in parts))

    def max_pool(self, name: str, kernel: int, stride: int, pads: tuple[int, int, int, int] = (0, 0, 0, 0)) -> str:
        """A max pool."""
        self._node("MaxPool", [self.last], name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=list(pads))
        return self._made(name, self.channels[self.last])

    def global_average(self, name: str) -> str:
        """The average of each channel."""
        self._node("GlobalAveragePool", [self.last], name)
        return self._made(name, self.channels[self.last])

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))

    def _made(self, name: str, channels: int) -> str:
        self.channels[name] = channels
        self.last = name
        return name

    def model(self, *outputs: str) -> ModelProto:
        """The model; `outputs` default to the last layer."""
        from onnx import TensorProto, checker, helper, numpy_helper

        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in outputs or (self.last,)],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        checker.check_model(model)
        return model


def run(model: ModelProto, feeds: dict[str, NDArray[Any]], *, every: bool = False) -> dict[str, NDArray[Any]]:
    """Outputs of a model on ONNX Runtime (one thread), or, if `every`, all its tensors."""
    import onnxruntime
    from onnx import ModelProto, helper

    if every:
        model = ModelProto.FromString(model.SerializeToString())
        known = {output.name for output in model.graph.output}
        names = [name for node in model.graph.node for name in node.output if name and name not in known]
        model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return {name: np.asarray(value) for name, value in zip(names, session.run(None, feeds), strict=True)}
