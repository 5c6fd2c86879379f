"""Running models in ONNX Runtime, on one thread, so that results and processor seconds are reproducible."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import OnnxError

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession, SessionOptions


#: What it says of files in a newer format than it knows, although nothing in them need be new.
_NEW_FORMAT = "Unsupported model IR version"
#: What its optimiser would do to the numbers of a model: it rounds weights that the file leaves in floating point.
_NOT_IN_THE_FILE = ("WeightBiasQuantization",)
#: Where it runs. After an error it would try others, and say so on standard output (`enable_fallback`).
_PROVIDERS = ("CPUExecutionProvider",)
_ERRORS = "onnxruntime.capi.onnxruntime_pybind11_state"


def on_one_thread(path: Path) -> InferenceSession:
    """A session of a file as it is. Raises what ONNX Runtime raises."""
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), _options(), providers=_PROVIDERS, enable_fallback=False)


def _options() -> SessionOptions:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, too
    # it multiplies weights of 8 bits as real numbers, as the file says, instead of rounding what they multiply
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return options


def session(model: ModelProto, name: str, *, mixed_signs: bool = False) -> InferenceSession:
    """A session on the CPU. Raises OnnxError, naming the model `name`, when ONNX Runtime refuses the model.

    `mixed_signs`: it multiplies uint8 by int8. Pairs of such products would saturate on x86 processors without VNNI.
    """
    import onnxruntime

    options = _options()
    if mixed_signs:  # not for others: ONNX Runtime would not find kernels for int8 by int8
        options.add_session_config_entry("session.x64quantprecision", "1")
        model = _with_bytes_of_their_own(model)
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=_PROVIDERS, enable_fallback=False,
            disabled_optimizers=_NOT_IN_THE_FILE,
        )  # fmt: skip
    except Exception as error:
        # its exceptions have no base of their own; a name that is no text is none of them
        if type(error).__module__ != _ERRORS and not isinstance(error, UnicodeDecodeError | RuntimeError):
            raise
        if _NEW_FORMAT in str(error) and (older := _in_older_format(model)) is not None:
            return session(older, name, mixed_signs=mixed_signs)
        raise OnnxError(f"{name}: ONNX Runtime refuses it: {str(error).strip()}") from error


def _with_bytes_of_their_own(model: ModelProto) -> ModelProto:
    """The model with a copy of each signed constant for each node that reads it, or itself. ONNX Runtime puts unsigned
    bytes in their place node by node, under one name, and stumbles over the second."""
    import onnx

    signed = {item.name: item for item in model.graph.initializer if item.data_type == onnx.TensorProto.INT8}
    uses = Counter(name for node in model.graph.node for name in node.input if name in signed)
    if not any(count > 1 for count in uses.values()):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for node in result.graph.node:
        for index, name in enumerate(node.input):
            if uses[name] > 1:
                uses[name] -= 1
                own = result.graph.initializer.add()
                own.CopyFrom(signed[name])
                own.name = node.input[index] = f"{name}//copy{uses[name]}"
    return result


def _in_older_format(model: ModelProto) -> ModelProto | None:
    """The model in the oldest format that has its operators; None if that is the one that it has."""
    import onnx
    from onnx import helper

    oldest = helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
    if model.ir_version <= oldest:
        return None
    older = onnx.ModelProto()
    older.CopyFrom(model)
    older.ir_version = oldest
    return older


def run(live: InferenceSession, feeds: dict[str, NDArray[Any]], name: str = "the model") -> dict[str, NDArray[Any]]:
    """All outputs of one run by name. Raises OnnxError, naming the model `name`, when ONNX Runtime cannot run it."""
    names = [output.name for output in live.get_outputs()]
    try:
        arrays = live.run(names, feeds)
    except Exception as error:
        if type(error).__module__ != _ERRORS:
            raise
        raise OnnxError(f"{name}: ONNX Runtime cannot run it: {str(error).strip()}") from error
    return {key: np.asarray(array) for key, array in zip(names, arrays, strict=True)}


def evaluate(model: ModelProto, feeds: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """All outputs of a small model by name, as ONNX's reference implementation computes them; where that lacks a
    version of an operator (those of QuantizeLinear and DequantizeLinear before opset 19, say), as ONNX Runtime does.
    Raises OnnxError with the reason of the former when neither can."""
    from onnx.reference import ReferenceEvaluator

    names = [value.name for value in model.graph.output]
    try:
        reference: Any = ReferenceEvaluator(model)
        computed = reference.run(None, feeds)
    except Exception as error:  # whatever the reference implementation stumbles over
        try:
            return run(session(model, "the constant"), feeds, "the constant")
        except OnnxError:
            raise OnnxError(str(error)) from error
    return dict(zip(names, (np.asarray(array) for array in computed), strict=True))
