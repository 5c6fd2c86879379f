"""The interface of a scheduler: a name, and what it can schedule, each with typed options.

A function of a `LayerTask` is already a scheduler of layers and of whole networks (see `adapted`); one that needs more
control is a `Scheduler`, whose makers build any schedule they like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .budget import Budget
from .option_texts import word

if TYPE_CHECKING:
    from ..lowering.predict import Lowered


class Options(BaseModel):
    """Options of a scheduler: a field for each, with its type, its default and (`Field`) a description for the help.

    Options from the command line arrive as text and become what the field's type says: `yes` and `no` are bools, `none`
    is None, `[1,2]` is a list or a tuple, and a member of an Enum is called by its value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def named(self, base: str) -> str:
        """A scheduler's name with the options that are not as usual, as they are written on the command line."""
        return written(base, self.model_dump(exclude_defaults=True))


def written(base: str, options: Mapping[str, object]) -> str:
    """A scheduler's name with options, as on the command line."""
    text = ",".join(f"{key}={word(value)}" for key, value in options.items())
    return f"{base}:{text}" if text else base


def _budget(value: object) -> object:
    return Budget.parse(value) if isinstance(value, str) else value


class SearchOptions(Options):
    """Options of a scheduler that searches within a budget."""

    budget: Annotated[Budget | None, BeforeValidator(_budget)] = Field(
        default=None,
        description="work of each search: steps (100M, the same result everywhere) or seconds (5s); all if none",
    )


@dataclass(frozen=True)
class Context:
    """What a scheduler receives besides its workload and options.

    `folder`: where searches may store results (None: nowhere). `on_progress` is called with the progress of a search,
    `on_layer` with the layer of a network that is being scheduled, its index and the number of layers, `on_lowered`
    with what a search for a layer has lowered and played of the schedule that it returns: nobody need do so again.
    """

    folder: Path | None = None
    on_progress: Callable[[Any], None] | None = None
    on_layer: Callable[[str, int, int], None] | None = None
    on_lowered: Callable[[Lowered], None] | None = None


@dataclass(frozen=True)
class Maker:
    """How one kind of workload is scheduled.

    `function`: takes the workload, the chip, for layers the multiplier of requantisation, the options and the
    `Context`; or `module:function`, which is imported on the first call.
    """

    function: Callable[..., Any] | str
    options: type[BaseModel] = Options

    def __call__(self, *arguments: Any) -> Any:
        function = self.function
        if isinstance(function, str):
            module, _, name = function.partition(":")
            function = getattr(import_module(module), name)
        return function(*arguments)


@dataclass(frozen=True)
class Scheduler:
    """A scheduler. A maker is None for a kind of workload that it cannot schedule.

    `layers(shape, chip, scale, options, context)` makes the Schedule of one layer (`ConvShape`), `networks(graph, chip,
    options, context)` the NetworkSchedule of a whole network (`Graph`), `gradients(layer, chip, options, context)` the
    GradientSchedule of a layer in training (`TrainingLayer`), `chains(chain, chip, options, context)` the ChainSchedule
    of layers in a row (`Chain`). They raise DoesNotFit for a workload that the chip cannot hold. `summary`: one line
    for lists. `source`: the file to which errors are traced. `by_channel`: networks may have layers with a multiplier
    for each channel (`Layer.scales`); files are quantised without for others.
    """

    name: str
    summary: str = ""
    layers: Maker | None = None
    networks: Maker | None = None
    source: str = field(default="", compare=False)
    gradients: Maker | None = None
    chains: Maker | None = None
    by_channel: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of workload that it can schedule: "layers", "networks", "gradients", "chains"."""
        kinds = ("layers", "networks", "gradients", "chains")
        return tuple(kind for kind in kinds if getattr(self, kind) is not None)
