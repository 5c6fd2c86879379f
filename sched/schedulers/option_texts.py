"""Options of schedulers as text: `rows=4,parts=[1,2],limit=none`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

#: What an option of several values is in a model.
_SEVERAL = (list, tuple, set, frozenset)


def pieces(text: str) -> Iterator[str]:
    """What stands between the commas that are not in brackets, unless that is nothing."""
    piece, depth = "", 0
    for part in re.split(r"([,\[\]])", text):
        depth = max(0, depth + (part == "[") - (part == "]"))
        if part == "," and not depth:
            yield piece
            piece = ""
        else:
            piece += part
    yield piece


def word(value: object) -> str:
    """A value as it stands behind the option's `=`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return ("no", "yes")[value]
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, _SEVERAL):
        return f"[{','.join(word(each) for each in cast('Sequence[object]', value))}]"
    return str(value)


def read(options: Mapping[str, object], annotations: Mapping[str, Any]) -> dict[str, object]:
    """Options as a model of these annotations takes them: text that means nothing, several values or one of few is
    that; all else remains."""
    return {
        key: _read(value, annotations.get(key)) if isinstance(value, str) else value for key, value in options.items()
    }


def _read(text: str, annotation: Any) -> object:
    kinds = _kinds(annotation)
    if text == "none" and NoneType in kinds and not any("none" in map(word, _members(kind)) for kind in kinds):
        return None
    for kind in kinds:
        if (get_origin(kind) or kind) in _SEVERAL:
            inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
            each = next(iter(get_args(kind)), None)
            return [_read(piece.strip(), each) for piece in pieces(inner)] if inner.strip() else []
        for member in _members(kind):
            if word(member) == text:
                return member
    return text


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """What a value may be, one after the other."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(kind for each in get_args(annotation) for kind in _kinds(each))
    return (annotation,)


def _members(kind: Any) -> tuple[object, ...]:
    """The values of a type that has few."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()
