"""Functions as schedulers: one that adds a layer's operations to a `LayerTask` schedules layers and whole networks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_type_hints

from pydantic import BaseModel

from meshloom.hw.spec.config import ChipConfig

from ..ir.schedule import Schedule
from ..workload.graph import Graph
from ..workload.layers import ConvShape
from .interface import Context, Maker, Options, Scheduler

#: `function(task)` or `function(task, options)`.
Authored = Callable[..., object]


def adapted(name: str, thing: object) -> Scheduler:
    """The scheduler that `thing` is or makes, under a name.

    A function takes a `LayerTask`, and may take options: a second parameter annotated with a model derived from
    `Options`. Raises TypeError with what it must be.
    """
    if isinstance(thing, Scheduler):
        return replace(thing, name=name, source=thing.source or _source_of(thing)) if ":" in name else thing
    if not callable(thing):
        raise TypeError(f"is of type {type(thing).__name__}; it must be a Scheduler, or a function of a LayerTask")
    check_plain(thing)
    options, takes = options_taken(thing, "a LayerTask")
    summary = (inspect.getdoc(thing) or "").partition("\n")[0]
    source = inspect.getsourcefile(_function(thing)) or ""

    def layer(shape: ConvShape, chip: ChipConfig, scale: int, values: BaseModel, context: Context) -> Schedule:
        from ..mapping.emit.task import LayerTask

        task = LayerTask(shape, chip, scale)
        thing(task, *([values] if takes else []))
        return task.schedule(name)

    def network(graph: Graph, chip: ChipConfig, values: BaseModel, context: Context) -> Any:
        from .network.authored import schedule

        return schedule(graph, chip, lambda task: thing(task, *([values] if takes else [])), name, context.on_layer)

    return Scheduler(name, summary, Maker(layer, options), Maker(network, options), source, by_channel=True)


def _source_of(scheduler: Scheduler) -> str:
    """The file in which its makers are, unless they are imported by name."""
    makers = (scheduler.layers, scheduler.networks, scheduler.gradients, scheduler.chains)
    functions = [inspect.unwrap(maker.function) for maker in makers if maker and inspect.isfunction(maker.function)]
    return (inspect.getsourcefile(functions[0]) or "") if functions else ""


def _function(thing: Callable[..., Any]) -> Any:
    """What a call of a function, of a partial one, or of an object runs; a class itself."""
    inner: Any = inspect.unwrap(thing)
    if isinstance(inner, partial):
        return _function(inner.func)
    return inner if isinstance(inner, type) or inspect.isroutine(inner) else type(inner).__call__


def check_plain(thing: object) -> None:
    """Raises TypeError for a function whose call runs nothing of it yet: a generator, or one of `async def`."""
    function: Any = _function(thing) if callable(thing) else thing
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("is an async function, which would never run; begin it with def alone")
    if inspect.isgeneratorfunction(function):
        raise TypeError("is a generator, which would never run; leave out yield")


def options_taken(thing: Callable[..., Any], first: str) -> tuple[type[BaseModel], bool]:
    """The options of a function, or of a class, whose first argument is `first`, and whether it wants them. Raises
    TypeError with what it must take."""
    must = f"must take {first}, and may take options (a model derived from Options)"
    try:
        parameters = list(inspect.signature(thing).parameters.values())
        hints = get_type_hints(thing.__init__ if isinstance(thing, type) else _function(thing))
    except (TypeError, ValueError, NameError) as error:
        raise TypeError(f"{must}: {error}") from None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not positional or len(needed) > 2 or len([p for p in needed if p in positional]) != len(needed):
        raise TypeError(f"takes {', '.join(p.name for p in parameters) or 'nothing'}; it {must}")
    if len(positional) == 1:
        return Options, False
    model = hints.get(positional[1].name)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"has a parameter {positional[1].name} that is annotated with no model; it {must}")
    return model, True
