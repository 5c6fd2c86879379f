"""What results are made of: frozen, checked records, and the error of a file that is not one."""

from __future__ import annotations

from math import isclose
from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, model_validator

from meshloom.hw.spec.config import Exact

Count = Annotated[int, Field(ge=0)]


class ResultsError(ValueError):
    """A results file that is malformed or contradicts itself; the message names the file and the field."""


def _close(stated: Any, right: Any) -> bool:
    """Whether two numbers are equal except for digits that another writer may have dropped."""
    numbers = isinstance(stated, int | float) and isinstance(right, int | float)
    return numbers and isclose(stated, right, rel_tol=1e-6, abs_tol=1e-9)


class Record(Exact):
    """Frozen; refuses unknown fields; computed fields in the input must agree with the rest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _agree(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict):
            return handler(value)
        values, computed = cast(dict[Any, Any], value), cls.model_computed_fields
        record = handler({name: item for name, item in values.items() if name not in computed})
        for name in computed:
            stated: Any = values.get(name)
            right: Any = getattr(record, name)
            if isinstance(stated, dict) and isinstance(right, BaseModel):
                right = right.model_dump(mode="json")
            right = list(cast(tuple[Any, ...], right)) if isinstance(right, tuple) else right
            if name in values and stated != right and not _close(stated, right):
                raise ValueError(f"{name} = {stated!r} contradicts the other fields, which give {right!r}")
        return record
