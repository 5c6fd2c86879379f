"""The passes that rewrite a float model before its nodes are read, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..load import CheckedModel
from .channels_last import resize_with_channels_first
from .correlations import multiply_by_computed_filters
from .pads import move_pads_into_pools
from .products import separate_computed_operands
from .recurrence import unroll_recurrences
from .standardisation import join_standardisations
from .triangles import multiply_by_triangles

#: Each gives a model that computes the same outputs, or the model itself.
PASSES: Sequence[Callable[[CheckedModel], CheckedModel]] = (
    resize_with_channels_first,
    multiply_by_triangles,
    separate_computed_operands,
    multiply_by_computed_filters,
    join_standardisations,
    move_pads_into_pools,
    unroll_recurrences,
)


def rewrite(model: CheckedModel) -> CheckedModel:
    """The model after all passes."""
    for apply in PASSES:
        model = apply(model)
    return model
