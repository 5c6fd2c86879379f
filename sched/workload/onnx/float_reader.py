"""Float ONNX models as `FloatNet`s."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from .building.context import FloatContext
from .building.result import build_network
from .floats import FloatNet
from .load import check
from .lowering import lower_nodes
from .operators.table import operators_of
from .passes.definitions import put_definitions_in_place
from .passes.table import rewrite
from .pins import Pin
from .reader_context import ENDS

if TYPE_CHECKING:
    from onnx import ModelProto


def fold(
    model: ModelProto,
    name: str,
    *,
    normalised: bool,
    generous: bool = False,
    cuts: Mapping[str, Pin] | None = None,
    lacks: Collection[str] = (),
) -> FloatNet:
    """The folded network of a float model. `name` is for messages and the network.

    `normalised`: per-channel arithmetic on an input (mean and deviation of pictures) is taken out of the network, to be
    done when the input is made (`FloatNet.normalise`); otherwise it becomes a layer. `generous`: also what takes
    several layers that have no weights of the file (`building.maps`). `cuts`: what 8 bits that a file had have cut off
    of tensors before they are read. `lacks`: units of cores that no layer may need (`floats.unit_of`). Raises
    UnsupportedError with all nodes that the chip cannot run, OnnxError as `load.check` does.
    """
    table = operators_of(model)
    checked = check(model, name, table.keys() | ENDS)
    if generous:
        checked = put_definitions_in_place(checked, table.keys())
    context = FloatContext(rewrite(checked), normalised, generous, cuts, lacks)
    lower_nodes(context, table)
    return build_network(context)
