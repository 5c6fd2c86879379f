"""Descriptions in which a value is what it looks like: `true` is no number, and `"12"` and `12.0` are no whole ones."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

#: Kinds of values that pydantic would convert into each other.
_VALUES = ("bool", "int", "float", "str")


def _make_exact(schema: Any) -> None:
    """Makes every value in a schema strict, at any depth."""
    if isinstance(schema, list | tuple):
        for part in cast("list[Any]", schema):
            _make_exact(part)
    elif isinstance(schema, dict):
        parts = cast("dict[str, Any]", schema)
        if parts.get("type") in _VALUES:
            parts["strict"] = True
        for name, part in parts.items():
            if name not in ("metadata", "serialization", "default"):
                _make_exact(part)


class Exact(BaseModel):
    """A model that takes numbers, texts, true and false only as what they are; a whole number is a number too.

    Lists still become tuples, and texts members of an enumeration: files know neither. What checks values is built when
    the first one comes: most commands need few models.
    """

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _make_exact(schema)
        return schema
