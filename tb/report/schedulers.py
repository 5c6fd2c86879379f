"""The tables of `meshloom schedulers`: who there is, and the options of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import EnumType
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from rich.table import Table

from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.schedulers.interface import Scheduler
from meshloom.sched.schedulers.online.registry import OnlineMaker
from meshloom.sched.schedulers.option_texts import word
from meshloom.sched.schedulers.tokens.registry import TokenMaker

from ..results.listings import OptionEntry, SchedulerEntry
from .tables import text_table

#: How values of a type are written on the command line.
_WRITTEN = {
    bool: "yes, no",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "none",
    Budget: "STEPS or SECONDS",
}


def schedulers_table(schedulers: Iterable[Scheduler]) -> Table:
    """Schedulers, what they can schedule, and what they are."""
    lines = ((one.name, ", ".join(one.kinds), one.summary) for one in schedulers)
    return text_table(("scheduler", "schedules", "what it is"), lines)


def online_table(makers: Iterable[OnlineMaker]) -> Table:
    """Online schedulers, and what they are."""
    return text_table(("online scheduler", "what it is"), ((one.name, one.summary) for one in makers))


def tokens_table(makers: Iterable[TokenMaker]) -> Table:
    """Token schedulers, and what they are."""
    return text_table(("token scheduler", "what the next step reads"), ((one.name, one.summary) for one in makers))


def options_table(kind: str, model: type[BaseModel]) -> Table:
    """Options of a scheduler for one kind of workload, their values and defaults."""
    table = text_table((f"for {kind}", "values", "if not given", "what it does"), ())
    for name, field in model.model_fields.items():
        must = "must be given" if field.is_required() else word(field.default)
        table.add_row(name, _values(field.annotation), must, field.description or "")
    if not model.model_fields:
        table.add_row("no options", "", "", "")
    return table


def entry(
    scheduler: Scheduler | OnlineMaker | TokenMaker,
    kinds: Iterable[str],
    models: Mapping[str, type[BaseModel]] | None = None,
) -> SchedulerEntry:
    """A scheduler as data. `models`: its options by kind of work, if they are to be in it."""
    options = {kind: tuple(_options(model)) for kind, model in (models or {}).items()}
    return SchedulerEntry(name=scheduler.name, summary=scheduler.summary, schedules=tuple(kinds), options=options)


def _options(model: type[BaseModel]) -> Iterator[OptionEntry]:
    for name, field in model.model_fields.items():
        required = field.is_required()
        default = None if required or field.default is None else word(field.default)
        yield OptionEntry(
            name=name,
            values=_values(field.annotation),
            default=default,
            required=required,
            summary=field.description or "",
        )


def _values(annotation: Any) -> str:
    """What may stand behind the option's `=`."""
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(map(word, get_args(annotation)))
    if isinstance(annotation, EnumType):
        members: Iterable[object] = annotation
        return ", ".join(map(word, members))
    if origin in (Union, UnionType):
        return " or ".join(_values(one) for one in get_args(annotation))
    if origin in (list, tuple, set, frozenset):
        each = [_values(one) for one in get_args(annotation) if one is not ...]
        more = ", ..." if origin is not tuple or ... in get_args(annotation) else ""
        return f"[{', '.join(each)}{more}]"
    return _WRITTEN.get(annotation, getattr(annotation, "__name__", str(annotation)))
