"""ONNX files as networks: integer models as `writer` writes them, and others that keep to the same arithmetic.

What an integer model must be: QLinearConv with one scale for all weights or one for each filter (which only chips with
`core.channel_scales` have), sx * sw / sy = m / 2**17 with a whole m of 1..65535 (in float32, as ONNX Runtime computes
it), zero points 128 (uint8) or 0 (int8); MaxPool, Concat, Slice and Clip on such tensors; additions either by
QLinearAdd with three equal scales or in int32; QuantizeLinear at an input and DequantizeLinear at an output. What may
follow at the end is `reader_context.ENDS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..graph import Graph
from .dequantised import has_integer_operators
from .errors import OnnxError, UnsupportedError
from .integers.context import IntegerContext
from .integers.result import build_graph
from .integers.table import OPERATORS
from .load import check, is_float_model, load_model
from .lowering import lower_nodes
from .metadata import KEY, Metadata
from .reader_context import ENDS
from .settling import settled

if TYPE_CHECKING:
    from onnx import ModelProto


def as_it_is(model: ModelProto, name: str, by_channel: bool = False) -> Graph | None:
    """The network of a model that the chip computes to the last bit; None for a float model, and for one of integer
    operators that it does not, which `quantise` takes. `by_channel`: the chip has multipliers by channel. Raises
    OnnxError for others, as `read` does."""
    model = settled(model, name)
    if is_float_model(model):
        return None
    try:
        graph = from_onnx(model, name)
        return graph if by_channel or all(layer.scales is None for layer in graph.layers) else None
    except UnsupportedError:
        if has_integer_operators(model):
            return None
        raise


def read(path: str | Path) -> Graph:
    """The network in an integer ONNX file.

    Raises OnnxError when the file is missing, damaged, no ONNX, of float type or has sizes that are not fixed;
    UnsupportedError with all nodes that the chip cannot run; WorkloadError when layers contradict each other.
    """
    model = load_model(path)
    if is_float_model(model):
        raise OnnxError(f"{path}: is a float model; quantise it first, with calibration data")
    return from_onnx(model, str(path))


def from_onnx(model: ModelProto, name: str) -> Graph:
    """As `read`; `name` is for messages, and for the network if the model's metadata has none."""
    context = IntegerContext(check(model, name, OPERATORS.keys() | ENDS))
    lower_nodes(context, OPERATORS)
    text = next((item.value for item in model.metadata_props if item.key == KEY), None)
    return build_graph(context, None if text is None else Metadata.parse(text, name))
