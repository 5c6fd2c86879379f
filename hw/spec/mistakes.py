"""What is wrong with a description that a person has written: the field, what stands there, and what has to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from .near import near, near_or_all

#: Characters of a wrong value that are shown.
_SHOWN = 40
#: What something that is too short has too few of.
_UNITS = {"too_short": "values", "string_too_short": "characters"}


def mistakes(error: ValidationError, values: Mapping[str, Any], model: type[BaseModel]) -> str:
    """All mistakes in one line. `values`: what was read from the file that should have become a `model`.

    A field that is not in `values` is never blamed, unless for being missing: where it is wrong, it was derived from
    one that is.
    """
    lacks: dict[tuple[int | str, ...], list[str]] = {}  # of each table, the fields that it must have
    texts: dict[object, str] = {}
    for item in error.errors():
        place = item["loc"]
        if item["type"] == "missing":
            lacks.setdefault(place[:-1], []).append(str(place[-1]))
            texts[place[:-1]] = _missing(place[:-1], lacks[place[:-1]])
        elif _written(place, values):
            texts[place, item["type"]] = _mistake(item, values, model)
    return "; ".join(texts.values())


def _written(place: Sequence[int | str], values: object) -> bool:
    for part in place:
        if not isinstance(values, Mapping):
            break
        table = cast("Mapping[object, object]", values)
        if part not in table:
            return False
        values = table[part]
    return True


def _mistake(item: Any, values: Mapping[str, Any], model: type[BaseModel]) -> str:
    kind, place, context = item["type"], item["loc"], item.get("ctx", {})
    where = ".".join(map(str, place))
    if kind == "value_error":  # one of our own messages
        return ": ".join(filter(None, (where, str(context["error"]))))
    if kind == "extra_forbidden":
        return f"{where}: there is no such field; {_meant(place, model)}"
    if kind == "enum" and place[0] == "floorplan":  # a word of a drawing, whose rows are text in the file
        known = context["expected"].replace("'", "").replace(" or ", ", ")
        hint = near(str(item["input"]), known.split(", "))
        return f"{place[0]}: row {place[1]}, column {place[2]} is {_shown(item['input'])}; " + (
            hint or f"a place is one of {known}"
        )
    return f"{where} = {_shown(item['input'])} {_must(kind, context, place, model)}"


def _missing(table: Sequence[int | str], names: Sequence[str]) -> str:
    """Of one table."""
    if len(names) == 1:
        return f"{'.'.join(map(str, (*table, *names)))}: is missing; there is no default for it"
    where = f"[{'.'.join(map(str, table))}]: " if table else ""
    return f"{where}{', '.join(names[:-1])} and {names[-1]} are missing; there are no defaults for them"


def _must(kind: str, context: Mapping[str, Any], place: Sequence[int | str], model: type[BaseModel]) -> str:
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}"
    if kind == "less_than_equal":
        return f"must be at most {context['le']}"
    if kind == "greater_than":
        return f"must be more than {context['gt']:g}"
    if kind == "less_than":
        return f"must be less than {context['lt']:g}"
    if kind in ("too_short", "string_too_short"):
        least = context["min_length"]
        return "must not be empty" if least == 1 else f"must have at least {least} " + _UNITS[kind]
    if kind == "too_long":
        return f"must have at most {context['max_length']} values"
    if kind == "finite_number":
        return "must be finite"
    if kind.startswith("int"):
        return "must be a whole number"
    if kind.startswith("float"):
        return "must be a number"
    if kind.startswith("bool"):
        return "must be true or false"
    if kind == "string_pattern_mismatch":  # of names, which become those of files and modules
        return "must be letters, digits and _, with a letter first"
    if kind == "string_too_long":
        return f"must have at most {context['max_length']} characters"
    if kind.startswith("string"):
        return "must be text in quotes"
    if kind in ("enum", "literal_error"):
        return f"must be {context['expected']}".replace("'", '"')
    if kind.startswith(("model", "dict")):
        return "must be a table of fields"
    if kind.startswith(("tuple", "list")):
        if len(place) == 2 and place[0] == "floorplan":  # its rows are text in the file
            return 'must be text such as "dram core"'
        first, second = _examples(place, model)
        return f"must be a list, such as [{first}] or [{first}, {second}]"
    return "is not possible here"


def _meant(place: Sequence[int | str], model: type[BaseModel]) -> str:
    """What a name that is no field of its table may have been meant to be."""
    *table, name = (part for part in place if isinstance(part, str))  # numbers count the tables of a list
    fields = dict(_tables(model))
    here = ".".join(table)
    for other, names in fields.items():
        if name in names and other != here:
            return f"{name} belongs " + (f"into [{other}]" if other else "in front of all [tables]")
    return near_or_all(name, fields.get(here, []))


def _examples(place: Sequence[int | str], model: type[BaseModel]) -> tuple[str, str]:
    """Two members that a list may have, as they stand in a file."""
    kinds: list[Any] = [model]
    for part in place:
        if isinstance(part, str):
            fields = [kind.model_fields for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
            kinds = list(_within(each[part].annotation for each in fields if part in each))
    if int in kinds or float in kinds:
        return "1", "2"
    words = [json.dumps(kind) for kind in kinds if isinstance(kind, str)]
    return (words[0], words[1]) if len(words) > 1 else ('"one"', '"two"')


def _within(annotations: Iterable[Any]) -> Iterator[Any]:
    """Types, and what they are made of."""
    for annotation in annotations:
        yield annotation
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            yield from (member.value for member in annotation)
        yield from _within(get_args(annotation))


def _tables(model: type[BaseModel], name: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each table that a description may have, with the names of its fields."""
    yield name, list(model.model_fields)
    for field, info in model.model_fields.items():
        for kind in (info.annotation, *get_args(info.annotation)):  # a table, or a list of them
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _tables(kind, f"{name}.{field}" if name else field)


def _shown(value: object) -> str:
    """A value as it might stand in the file."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
