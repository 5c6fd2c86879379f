"""The tables of `meshloom schedulers`: who there is, and the options of one."""

from __future__ import annotations

from collections.abc import Iterable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from rich.table import Table

from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.schedulers.interface import Scheduler
from meshloom.sched.schedulers.online.registry import OnlineMaker

#: How values of a type are written on the command line.
_WRITTEN = {bool: "yes, no", int: "a whole number", float: "a number", str: "text", Budget: "STEPS or SECONDS"}


def _table(*names: str) -> Table:
    table = Table(header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=name != names[-1])
    return table


def schedulers_table(schedulers: Iterable[Scheduler]) -> Table:
    """Schedulers, what they can schedule, and what they are."""
    table = _table("scheduler", "schedules", "what it is")
    for one in schedulers:
        table.add_row(one.name, ", ".join(one.kinds), one.summary)
    return table


def online_table(makers: Iterable[OnlineMaker]) -> Table:
    """Online schedulers, and what they are."""
    table = _table("online scheduler", "what it is")
    for one in makers:
        table.add_row(one.name, one.summary)
    return table


def options_table(kind: str, model: type[BaseModel]) -> Table:
    """Options of a scheduler for one kind of workload, their values and defaults."""
    table = _table(f"for {kind}", "values", "if not given", "what it does")
    for name, field in model.model_fields.items():
        must = "must be given" if field.is_required() else _word(field.default)
        table.add_row(name, _values(field.annotation), must, field.description or "")
    if not model.model_fields:
        table.add_row("no options", "", "", "")
    return table


def _word(value: object) -> str:
    if value is None:
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _values(annotation: Any) -> str:
    """What may stand behind the option's `=`."""
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if origin in (Union, UnionType):
        return " or ".join(_values(one) for one in get_args(annotation) if one is not type(None))
    return _WRITTEN.get(annotation, getattr(annotation, "__name__", str(annotation)))
