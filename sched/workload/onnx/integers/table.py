"""The table of operators of integer models."""

from __future__ import annotations

from collections.abc import Mapping

from . import arithmetic, functions, layout, sums
from .context import IntegerOperator

#: Operator, with its domain unless standard, to its function.
OPERATORS: Mapping[str, IntegerOperator] = {
    name: function for family in (arithmetic, functions, layout, sums) for name, function in family.OPERATORS.items()
}
