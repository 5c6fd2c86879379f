"""Models of 8 bits as ONNX Runtime's own quantiser makes them: pairs of QuantizeLinear and DequantizeLinear, or integer
operators."""

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


class ModelForm(StrEnum):
    """What a model computes with."""

    FLOAT = "float"
    PAIRS = "pairs"  #: QuantizeLinear and DequantizeLinear around activations, DequantizeLinear behind weights
    INTEGERS = "integers"  #: QLinearConv and its like


#: How often each is drawn.
_SHARES = {ModelForm.FLOAT: 6, ModelForm.PAIRS: 2, ModelForm.INTEGERS: 1}
#: What ONNX Runtime's integer operator computes wrongly: 1 is a number too many for it, and becomes 0.
_NOT = {"Softmax"}
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
    """The model in 8 bits, calibrated with `data`: signed or not, symmetric or not, one scale or one for each channel.
    Raises UnquantisedError."""
    import onnxruntime
    from onnxruntime.quantization import (  # pyright: ignore[reportMissingTypeStubs]
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,  # pyright: ignore[reportUnknownVariableType]
    )

    class Reader(CalibrationDataReader):
        """Gives the data once."""

        def __init__(self) -> None:
            self._left = iter(data)

        def get_next(self) -> Any:
            return next(self._left, None)

    # it runs sessions of its own, which say what they leave out
    onnxruntime.set_default_logger_severity(4)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    if any(node.op_type == _UNBOUNDED for node in model.graph.node):
        raise UnquantisedError(f"{_UNBOUNDED} has no range")
    random = Random(f"quantised {seed}")
    options: dict[str, Any] = {
        "quant_format": QuantFormat.QDQ if form is ModelForm.PAIRS else QuantFormat.QOperator,
        "per_channel": random.random() < 0.4,
        "activation_type": random.choice((QuantType.QInt8, QuantType.QUInt8)),
        "weight_type": random.choice((QuantType.QInt8, QuantType.QInt8, QuantType.QUInt8)),
        "nodes_to_exclude": [node.name for node in model.graph.node if node.op_type in _NOT],
        "extra_options": {"ActivationSymmetric": random.random() < 0.3, "WeightSymmetric": random.random() < 0.8},
    }
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
