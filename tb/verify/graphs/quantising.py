"""Models of 8 bits as ONNX Runtime's own quantiser makes them: pairs of QuantizeLinear and DequantizeLinear, or integer
operators. Ranges are those of the data, or narrower, so that the file cuts off what lies beyond."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from meshloom.sched.workload.onnx.errors import OnnxError
from meshloom.sched.workload.onnx.runtime import run, session


class ModelForm(StrEnum):
    """What a model computes with."""

    FLOAT = "float"
    PAIRS = "pairs"  #: QuantizeLinear and DequantizeLinear around activations, DequantizeLinear behind weights
    INTEGERS = "integers"  #: QLinearConv and its like


#: How often each is drawn.
_SHARES = {ModelForm.FLOAT: 6, ModelForm.PAIRS: 2, ModelForm.INTEGERS: 1}
#: What ONNX Runtime's integer operator computes wrongly: 1 is a number too many for it, and becomes 0.
_NOT = {"Softmax"}
#: Shares of models whose ranges are narrow: those of all tensors by a factor, those of some (of pairs alone), with ends
#: of their own each.
_ALL_NARROW, _SOME_NARROW = 0.3, 0.4
#: Factors of ranges, and of one end of a range.
_FACTORS, _ENDS = (0.5, 0.25, 0.1), (1.0, 1.0, 0.6, 0.3, 0.1, 1.5)
_LARGEST = float(np.finfo(np.float32).max)
#: Shares of models of pairs whose activations have 16 bits, and some of whose nodes are not quantised.
_WIDE, _MIXED = 0.1, 0.3
#: Its results have no range that 8 bits hold.
_UNBOUNDED = "Reciprocal"


class UnquantisedError(Exception):
    """ONNX Runtime's quantiser does not take the model."""


def form_of(seed: int) -> ModelForm:
    """The form of a model."""
    return Random(f"form {seed}").choices(list(_SHARES), list(_SHARES.values()))[0]


def quantised(
    model: onnx.ModelProto, data: Sequence[Mapping[str, NDArray[np.float32]]], form: ModelForm, seed: int
) -> onnx.ModelProto:
    """The model in 8 bits (or activations in 16), calibrated with `data` or with narrower ranges: signed or not,
    symmetric or not, one scale or one for each channel. Raises UnquantisedError."""
    import onnxruntime
    from onnxruntime.quantization import (  # pyright: ignore[reportMissingTypeStubs]
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,  # pyright: ignore[reportUnknownVariableType]
    )

    random, narrow = Random(f"quantised {seed}"), Random(f"narrow {seed}")
    factor = narrow.choice(_FACTORS) if narrow.random() < _ALL_NARROW else 1.0

    class Reader(CalibrationDataReader):
        """Gives the data once."""

        def __init__(self) -> None:
            self._left = ({name: array * np.float32(factor) for name, array in item.items()} for item in data)

        def get_next(self) -> Any:
            return next(self._left, None)

    # it runs sessions of its own, which say what they leave out
    onnxruntime.set_default_logger_severity(4)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    if any(node.op_type == _UNBOUNDED for node in model.graph.node):
        raise UnquantisedError(f"{_UNBOUNDED} has no range")
    activations = random.choice((QuantType.QInt8, QuantType.QUInt8))
    weights = random.choice((QuantType.QInt8, QuantType.QInt8, QuantType.QUInt8))
    options: dict[str, Any] = {
        "quant_format": QuantFormat.QDQ if form is ModelForm.PAIRS else QuantFormat.QOperator,
        "per_channel": random.random() < 0.4,
        "activation_type": activations,
        "weight_type": weights if activations is QuantType.QUInt8 else QuantType.QInt8,  # it knows no other pair
        "nodes_to_exclude": [node.name for node in model.graph.node if node.op_type in _NOT],
        "extra_options": {"ActivationSymmetric": random.random() < 0.3, "WeightSymmetric": random.random() < 0.8},
    }
    if form is ModelForm.PAIRS:
        if narrow.random() < _WIDE:
            options["activation_type"] = narrow.choice((QuantType.QInt16, QuantType.QUInt16))
        if narrow.random() < _MIXED:
            options["nodes_to_exclude"] += [node.name for node in model.graph.node if narrow.random() < 0.3]
        if narrow.random() < _SOME_NARROW:
            options["extra_options"]["TensorQuantOverrides"] = _own_ranges(model, data, narrow)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # advice on how to prepare models
    try:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "quantised.onnx"
            quantize_static(model, file, Reader(), **options)
            return onnx.load(file)  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:  # of whatever kind: what it does not know ends in any way
        raise UnquantisedError(str(error)) from error
    finally:
        logging.disable(level)


def _own_ranges(
    model: onnx.ModelProto, data: Sequence[Mapping[str, NDArray[np.float32]]], random: Random
) -> dict[str, list[dict[str, Any]]]:
    """Ranges of some tensors that are not those of their values. Raises UnquantisedError."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    inputs = [value.name for value in model.graph.input]
    named = {value.name for value in model.graph.output}
    made = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output]
    exposed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in made if name not in named)
    try:
        live = session(exposed, "drawn")
        values = [{**item, **run(live, dict(item))} for item in data]
    except OnnxError as error:
        raise UnquantisedError(str(error)) from error
    ranges: dict[str, list[dict[str, Any]]] = {}
    for name in (*inputs, *made):
        some = [item[name] for item in values]
        if some[0].dtype != np.float32 or random.random() < 0.5:
            continue
        low, high = (float(end([end(array) for array in some])) * random.choice(_ENDS) for end in (np.min, np.max))
        # An end that was drawn may be beyond float32, in which ranges are: those are no ranges.
        if max(abs(low), abs(high)) <= _LARGEST and low < high:
            ranges[name] = [{"rmin": np.float32(low), "rmax": np.float32(high)}]
    return ranges
