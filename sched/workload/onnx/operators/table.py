"""The table of operators: those that are read here, and those of installed packages (entry points
`meshloom.operators`, whose name is the operator's, with its domain unless standard)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from meshloom.sched.support.plugins import PluginError, Registry

from ..building.context import Operator
from ..errors import OnnxError, operator_name
from . import (
    activations,
    contractions,
    convolutions,
    elementwise,
    joining,
    layout,
    normalisation,
    padding,
    pools,
    products,
    reductions,
    resizing,
    scatters,
    scores,
    spectra,
    volumes,
)

if TYPE_CHECKING:
    from onnx import ModelProto

#: Entry points of other packages that are operators.
GROUP = "meshloom.operators"
#: Operator to its function.
OPERATORS: Mapping[str, Operator] = {
    **activations.OPERATORS,
    **contractions.OPERATORS,
    **convolutions.OPERATORS,
    **elementwise.OPERATORS,
    **joining.OPERATORS,
    **layout.OPERATORS,
    **normalisation.OPERATORS,
    **padding.OPERATORS,
    **pools.OPERATORS,
    **products.OPERATORS,
    **reductions.OPERATORS,
    **resizing.OPERATORS,
    **scatters.OPERATORS,
    **scores.OPERATORS,
    **spectra.OPERATORS,
    **volumes.OPERATORS,  # in the place of those of pictures
}


class OperatorError(PluginError, OnnxError):
    """An operator of an installed package that cannot be loaded; the message names it, the place and the fix."""


def _accept(name: str, thing: object) -> Operator:
    if not callable(thing):
        raise TypeError(f"is of type {type(thing).__name__}; it must be a function of a context, a node and attributes")
    return cast(Operator, thing)


ADDED: Registry[Operator] = Registry("operator", GROUP, {}, _accept, OperatorError)


def operators_of(model: ModelProto) -> dict[str, Operator]:
    """Operator to its function, for a model; what a package adds does not replace what is here, and only what the
    model has is loaded. Raises OperatorError."""
    others = {operator_name(node) for node in model.graph.node} - OPERATORS.keys()
    return dict(OPERATORS) | {name: ADDED.get(name) for name in ADDED.names() if name in others}
