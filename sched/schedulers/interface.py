"""What a scheduler is to the rest: a name, and what it can schedule, with typed options for each.

A function of a `LayerTask` is a scheduler of layers and of whole networks (see `adapted`); one that wants more control
is a `Scheduler`, whose makers build what they like.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .budget import Budget


class Options(BaseModel):
    """Options of a scheduler: a field for each, with its type, its default and (`Field`) a description for the help.

    From the command line they come as text; pydantic makes of it what the field says: `yes` and `no` are bools.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


def _budget(value: object) -> object:
    return Budget.parse(value) if isinstance(value, str) else value


class SearchOptions(Options):
    """Options of a scheduler that searches for as long as it may."""

    budget: Annotated[Budget | None, BeforeValidator(_budget)] = Field(
        default=None,
        description="work of each search: steps (100M, the same result everywhere) or seconds (5s); all if none",
    )


@dataclass(frozen=True)
class Context:
    """What a scheduler is handed besides its workload and options.

    `folder`: where searches may keep what they find (None: nowhere); `on_progress` hears how far a search is,
    `on_layer` the layer of a network that is being scheduled, its number and how many there are.
    """

    folder: Path | None = None
    on_progress: Callable[[Any], None] | None = None
    on_layer: Callable[[str, int, int], None] | None = None


@dataclass(frozen=True)
class Maker:
    """How one kind of workload is scheduled.

    `function`: of the workload, the chip, for layers the requantisation's multiplier, the options and the `Context`; or
    `module:function`, which is imported when it is first called.
    """

    function: Callable[..., Any] | str
    options: type[BaseModel] = Options

    def __call__(self, *given: Any) -> Any:
        function = self.function
        if isinstance(function, str):
            module, _, name = function.partition(":")
            function = getattr(import_module(module), name)
        return function(*given)


@dataclass(frozen=True)
class Scheduler:
    """A scheduler. What it cannot schedule is None.

    `layers(shape, chip, scale, options, context)` makes the Schedule of one layer (`ConvShape`), `networks(graph, chip,
    options, context)` the NetworkSchedule of a whole network (`Graph`). Both raise DoesNotFit for what the chip cannot
    hold. `summary`: one line for lists. `source`: the file that errors are traced to.
    """

    name: str
    summary: str = ""
    layers: Maker | None = None
    networks: Maker | None = None
    source: str = field(default="", compare=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it can schedule: "layers", "networks"."""
        return tuple(kind for kind in ("layers", "networks") if getattr(self, kind) is not None)
