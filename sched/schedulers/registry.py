"""Schedulers by name: those that ship, those of installed packages (entry points `meshloom.schedulers`), and any
`package.module:function` or `FILE.py:function`. Options follow a colon: `flexer:budget=2M,priority=min_spill`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from meshloom.hw.spec.config import ChipConfig, near

from ..ir.schedule import Schedule
from ..support import apart
from ..support.limits import Limits, limits_for
from ..support.plugins import Registry
from ..workload.graph import Graph
from ..workload.layers import ConvShape
from ..workload.training import TrainingLayer
from ..workload.training_chain import Chain
from .authored import adapted
from .failures import SchedulerError, TracebackThere, ended, failure
from .interface import Context, Maker, Scheduler, written
from .option_texts import pieces, read
from .papers import declared

if TYPE_CHECKING:
    from ..lowering.predict import Lowered

T = TypeVar("T")

#: Entry points of other packages that are schedulers.
GROUP = "meshloom.schedulers"


@dataclass(frozen=True)
class Chosen:
    """A scheduler itself, where others are given by name, and options as values; results call it `str(...)`."""

    scheduler: Scheduler
    options: Mapping[str, object] = field(default_factory=dict[str, object])

    def __str__(self) -> str:
        return written(self.scheduler.name, self.options)


class LayerScheduler(Protocol):
    """Makes the schedule of one layer. Raises what `find` raises, and DoesNotFit."""

    def __call__(self, shape: ConvShape, chip: ChipConfig, scale: int = ...) -> Schedule: ...


#: Makes the schedule of a network on a chip, and tells how far it is. Raises DoesNotFit, WorkloadError.
NetworkScheduler = Callable[[Graph, ChipConfig, "Callable[[str, int, int], None] | None"], Any]

#: Makes the schedule of a layer's two gradients on a chip. Raises DoesNotFit.
GradientScheduler = Callable[[TrainingLayer, ChipConfig], Any]
#: The same for layers in a row.
ChainScheduler = Callable[[Chain, ChipConfig], Any]

REGISTRY: Registry[Scheduler] = Registry(
    "scheduler",
    GROUP,
    {"loop_order": "meshloom.sched.schedulers.loop_order.entry:LOOP_ORDER"} | declared("SCHEDULERS"),
    adapted,
    SchedulerError,
    tried=True,
)


def names(kind: str | None = None) -> tuple[str, ...]:
    """Names of all schedulers, or of those that schedule a `kind`: "layers", "networks", "gradients", "chains". Those
    that do not load are left out of the latter."""
    if kind is None:
        return REGISTRY.names()

    def can(name: str) -> bool:
        try:
            return kind in REGISTRY.get(name).kinds
        except SchedulerError:
            return False

    return tuple(name for name in REGISTRY.names() if can(name))


def scheduler_of(name: str | Chosen) -> Scheduler:
    """The scheduler that a name, with or without options, means. Raises SchedulerError."""
    return name.scheduler if isinstance(name, Chosen) else REGISTRY.get(options_of(name)[0])


def scales_by_channel(name: str | Chosen, chip: ChipConfig) -> bool:
    """Whether a network's layers may have a multiplier for each channel, on this chip by this scheduler. Raises
    SchedulerError."""
    return chip.core.channel_scales and scheduler_of(name).by_channel


def options_of(name: str, registry: Registry[Any] | None = None) -> tuple[str, dict[str, str]]:
    """A scheduler's name and its options: `loop_order:effort=0.5`. `registry`: of other things than these schedulers.
    Raises SchedulerError when an option has no value."""
    base, text = (registry or REGISTRY).split(name)
    options: dict[str, str] = {}
    for option in filter(None, pieces(text)):
        key, equals, value = option.partition("=")
        if not equals or not value:
            raise SchedulerError(f"scheduler {name!r}: {option!r} is not key=value")
        if key in options:
            raise SchedulerError(f"scheduler {name!r}: {key} is given twice")
        options[key] = value
    return base, options


def takes_option(base: str, option: str) -> bool:
    """Whether a scheduler has an option, for any kind of workload. Raises SchedulerError on a name that is none."""
    scheduler = REGISTRY.get(base)
    return any(option in getattr(scheduler, kind).options.model_fields for kind in scheduler.kinds)


def find(
    name: str | Chosen,
    folder: Path | None = None,
    on_progress: Callable[[Any], None] | None = None,
    on_lowered: Callable[[Lowered], None] | None = None,
) -> LayerScheduler:
    """The scheduler of that name, for layers. `folder`, `on_progress`, `on_lowered`: see `Context`.

    Raises SchedulerError that lists what there is, or says which option is wrong. What is found raises Meshloom's own
    errors as they are, and SchedulerError with the scheduler's name and line for all others.
    """
    scheduler, maker, options = _prepared(name, "layers")
    context = Context(folder, on_progress, on_lowered=on_lowered)

    def make(shape: ConvShape, chip: ChipConfig, scale: int = 1 << 15) -> Schedule:
        return _Call(name, maker, scheduler, shape.name)(Schedule, shape, chip, scale, options, context=context)

    return make


def find_network(
    name: str | Chosen, folder: Path | None = None, on_progress: Callable[[Any], None] | None = None
) -> NetworkScheduler:
    """The scheduler of that name, for whole networks; raises as `find`. No other stands in for one that
    knows none."""
    from ..mapping.emit.fields import check_units
    from ..workload.words import in_words
    from .network.room import with_need
    from .network.scheduler import NetworkSchedule

    scheduler, maker, options = _prepared(name, "networks")

    def make(
        graph: Graph, chip: ChipConfig, on_layer: Callable[[str, int, int], None] | None = None
    ) -> NetworkSchedule:
        context = Context(folder, on_progress, on_layer)
        call = _Call(name, maker, scheduler, f"network {graph.name}")
        words = in_words(graph, chip)
        check_units(words.layers, chip)

        def make_on(target: ChipConfig) -> NetworkSchedule:
            return call(NetworkSchedule, words, target, options, context=context)

        return with_need(lambda: make_on(chip), make_on, graph, chip)

    return make


def find_gradient(name: str | Chosen, folder: Path | None = None) -> GradientScheduler:
    """The scheduler of that name, for layers in training; raises as `find`."""
    from .training.schedules import GradientSchedule

    scheduler, maker, options = _prepared(name, "gradients")

    def make(layer: TrainingLayer, chip: ChipConfig) -> GradientSchedule:
        call = _Call(name, maker, scheduler, layer.name)
        return call(GradientSchedule, layer, chip, options, context=Context(folder))

    return make


def find_chain(name: str | Chosen, folder: Path | None = None) -> ChainScheduler:
    """The scheduler of that name, for layers in a row in training; raises as `find`."""
    from .training.schedules import ChainSchedule

    scheduler, maker, options = _prepared(name, "chains")

    def make(chain: Chain, chip: ChipConfig) -> ChainSchedule:
        return _Call(name, maker, scheduler, chain.name)(ChainSchedule, chain, chip, options, context=Context(folder))

    return make


def check_scheduler(name: str | Chosen, kind: str) -> None:
    """Raises SchedulerError for a name that means no scheduler of a kind of workload, or an option that it lacks."""
    _prepared(name, kind)


def _prepared(name: str | Chosen, kind: str) -> tuple[Scheduler, Maker, BaseModel]:
    """A scheduler, how it makes a kind of workload, and its options."""
    scheduler = scheduler_of(name)
    options: Mapping[str, object] = name.options if isinstance(name, Chosen) else options_of(name)[1]
    base = scheduler.name if isinstance(name, Chosen) else options_of(name)[0]
    maker: Maker | None = getattr(scheduler, kind)
    if maker is None:
        able = ", ".join(names(kind))
        others = f"take one of {able}" if able else "there is none that does"
        if kind == "networks":
            raise SchedulerError(
                f"scheduler {base} schedules layers, not whole networks; give it a network's layers ('NETWORK/*'), or "
                f"{others}"
            )
        raise SchedulerError(f"scheduler {base} does not schedule {kind}; {others}")
    return scheduler, maker, typed_options(base, kind, maker.options, options)


def typed_options(base: str, kind: str, model: type[BaseModel], options: Mapping[str, object]) -> BaseModel:
    """Options as the scheduler's model has them. Raises SchedulerError that names the option and what it may be."""
    for key in options:
        if key not in model.model_fields:
            fields = list(model.model_fields)
            hint = near(key, fields) or f"it has {', '.join(fields) or 'none'}"
            raise SchedulerError(f"scheduler {base} has no option {key!r} for {kind}; {hint}")
    try:
        values = model.model_validate(
            read(options, {key: field.annotation for key, field in model.model_fields.items()})
        )
    except ValidationError as error:
        raise SchedulerError(f"scheduler {base}: {_wrong(error, options)}") from None
    for key in options:
        if isinstance(value := getattr(values, key), float) and isnan(value):
            raise SchedulerError(f"scheduler {base}: {key} = {options[key]!r} must be a number, not one that is none")
    return values


def _wrong(error: ValidationError, options: Mapping[str, object]) -> str:
    """The first option that is wrong, its value and what it must be."""
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "options"
    if first["type"] == "value_error":  # in the scheduler's own words
        return str(first.get("ctx", {}).get("error", first["msg"]))
    context = first.get("ctx", {})
    must = {
        "literal_error": lambda: f"one of {str(context['expected']).replace(' or ', ', ')}".replace("'", ""),
        "enum": lambda: f"one of {str(context['expected']).replace(' or ', ', ')}".replace("'", ""),
        "bool_parsing": lambda: "yes or no",
        "greater_than": lambda: f"above {context['gt']:g}",
        "greater_than_equal": lambda: f"at least {context['ge']:g}",
        "less_than": lambda: f"below {context['lt']:g}",
        "less_than_equal": lambda: f"at most {context['le']:g}",
        "int_parsing": lambda: "a whole number",
        "float_parsing": lambda: "a number",
        "missing": lambda: (
            f"{int(first['loc'][1]) + 1} or more values, such as [1,2]" if len(first["loc"]) > 1 else "given"
        ),
        "too_short": lambda: f"{context['min_length']} or more values, such as [1,2]",
        "too_long": lambda: f"at most {context['max_length']} values, such as [1,2]",
    }.get(str(first["type"]))
    shown = f" = {options[key]!r}" if key in options else ""
    return f"{key}{shown} must be {must()}" if must else f"{key}{shown}: {first['msg']}"


def _limits(name: str | Chosen) -> Limits | None:
    """Under which a scheduler runs in a process of its own; None: it is called in this one."""
    if isinstance(name, Chosen):
        shipped = name.scheduler.name in REGISTRY.shipped and REGISTRY.get(name.scheduler.name) is name.scheduler
    else:
        shipped = options_of(name)[0] in REGISTRY.shipped
    return limits_for(shipped)


@dataclass(frozen=True)
class _Call:
    """A call of a scheduler. `name`: as it was asked for; `workload`: what it schedules, for messages."""

    name: str | Chosen
    maker: Maker
    scheduler: Scheduler
    workload: str

    def __call__(self, kind: type[T], *arguments: Any, context: Context) -> T:
        """What the scheduler makes of a workload: a `kind`.

        Meshloom's own errors come through as they are; all others, other results, and a process that ends, become a
        SchedulerError that names scheduler, workload and the line that failed.
        """
        limits = _limits(self.name)
        if limits is None:
            try:
                return self._make(kind, arguments, context)
            except (Exception, SystemExit, GeneratorExit) as error:
                explained = self._explained(error, limits)
                if explained is error:
                    raise
                raise explained from error

        def work(report: apart.Report) -> T:
            return self._make(kind, arguments, _reporting(context, report))

        def hear(report: tuple[str, tuple[Any, ...]]) -> None:
            getattr(context, report[0])(*report[1])

        try:
            explain, source = partial(self._explained, limits=limits), self.scheduler.source
            name = "" if self.scheduler.name in REGISTRY.shipped else f"scheduler {self.scheduler.name}"
            return apart.call(work, limits, explain, hear, source, name)
        except apart.DiedError as death:
            raise ended(self.scheduler.name, self.scheduler.source, f"on {self.workload}", death) from None
        except SchedulerError as error:
            raise error from (TracebackThere(error.trace) if error.trace else None)

    def _make(self, kind: type[T], arguments: Sequence[Any], context: Context) -> T:
        result = self.maker(*arguments, context)
        if not isinstance(result, kind):
            raise SchedulerError(
                f"scheduler {self.scheduler.name} made a {type(result).__name__} of {self.workload}, not a "
                f"{kind.__name__}"
            )
        return result

    def _explained(self, error: BaseException, limits: Limits | None) -> BaseException:
        return failure(self.scheduler.name, self.scheduler.source, f"on {self.workload}", error, limits)


def _reporting(context: Context, report: apart.Report) -> Context:
    """A context whose reports go from a scheduler's process to its caller, but for programs: these are large."""

    def on_progress(progress: Any) -> None:
        report(("on_progress", (progress,)))

    def on_layer(*layer: Any) -> None:
        report(("on_layer", layer))

    return replace(
        context,
        on_progress=context.on_progress and on_progress,
        on_layer=context.on_layer and on_layer,
        on_lowered=None,
    )
