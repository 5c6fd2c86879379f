"""Reading the file of a scenario, of networks or of texts: TOML, its tables as models, errors with their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from meshloom.hw.spec.config import mistakes

from ..support.reading import read_toml
from .arrivals import ScenarioError

M = TypeVar("M", bound=BaseModel)
S = TypeVar("S")


def read_scenario(path: Path, scenario_of: Callable[[dict[str, Any]], S]) -> S:
    """What `scenario_of` makes of a TOML file. Raises ScenarioError with the file, and what `scenario_of` says."""
    values = read_toml(path, ScenarioError)
    try:
        return scenario_of(values)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def valid(model: type[M], values: dict[str, Any], where: str) -> M:
    """A table as a model; `where` begins what is said of a mistake. Raises ScenarioError."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ScenarioError(where + mistakes(error, values, model)) from None
