"""What is wrong with a field that a person has written, by what its type asks for."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from meshloom.hw.spec.mistakes import mistakes


class EachBound(BaseModel):
    """A field for each kind of bound."""

    above: Annotated[float, Field(gt=0)] = 1
    below: Annotated[float, Field(lt=1.5)] = 1
    filled: Annotated[list[str], Field(min_length=1)] = ["a"]
    pair: Annotated[list[int], Field(min_length=2, max_length=2)] = [1, 2]
    word: Annotated[str, Field(min_length=1)] = "a"
    letters: Annotated[str, Field(min_length=3)] = "abc"
    finite: Annotated[float, Field(allow_inf_nan=False)] = 1


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("above", 0, "above = 0 must be more than 0"),
        ("below", 2, "below = 2 must be less than 1.5"),
        ("filled", [], "filled = [] must not be empty"),
        ("pair", [1], "pair = [1] must have at least 2 values"),
        ("pair", [1, 2, 3], "pair = [1, 2, 3] must have at most 2 values"),
        ("word", "", 'word = "" must not be empty'),
        ("letters", "ab", 'letters = "ab" must have at least 3 characters'),
        ("finite", float("inf"), "finite = Infinity must be finite"),
    ],
)
def test_a_bound_is_named(field: str, value: Any, text: str) -> None:
    with pytest.raises(ValidationError) as error:
        EachBound.model_validate({field: value})
    assert mistakes(error.value, {field: value}, EachBound) == text
