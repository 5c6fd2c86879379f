"""A command whose options are the fields of a record: each stands once, with its type, its default and its help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin, get_type_hints

import typer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def once(values: Sequence[str], option: str) -> list[str]:
    """The values of an option that takes several, all different. Raises BadParameter."""
    if twice := [each for each, count in Counter(values).items() if count > 1]:
        raise typer.BadParameter(
            f"{twice[0]} is given {values.count(twice[0])} times; give each once", param_hint=option
        )
    return list(values)


#: In place of an option that a command has not.
_NO_OPTION = object()
R = TypeVar("R", bound="DataclassInstance")


def _limited(request: DataclassInstance) -> AbstractContextManager[None]:
    """What keeps schedulers within the limits of a command that has any, from where it first loads one."""
    from ..api.request import limited

    limits: dict[str, Any] = {
        name: getattr(request, name, _NO_OPTION) for name in ("time_limit", "memory_limit", "network")
    }
    if _NO_OPTION in limits.values():
        return nullcontext()
    return limited(limits["time_limit"], limits["memory_limit"], limits["network"])


def filled(record: type[R]) -> Callable[[Callable[[R], None]], Callable[..., None]]:
    """Makes a function of a record (a dataclass) one that typer can call: it has a parameter for each field that is
    annotated with a `typer.Option` or a `typer.Argument`."""
    hints = get_type_hints(record, include_extras=True)
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(record)
        if get_origin(hints[field.name]) is Annotated
    ]

    def decorate(function: Callable[[R], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**values: object) -> None:
            request = record(**values)
            with _limited(request):
                function(request)

        command.__annotations__ = {each.name: each.annotation for each in parameters}
        vars(command)["__signature__"] = Signature(parameters)
        return command

    return decorate
