"""Results as one table, a row for each workload: CSV, or Parquet.

Columns are those of a row of the JSON file, in its order: of objects inside it by `object.field`; lists are JSON text.
They are the same for every run.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from .schema import Results, Row

if TYPE_CHECKING:
    import polars

#: Python types of single values, and what they are in Arrow. What else there is becomes JSON text.
_ARROW = {bool: "bool_", int: "int64", float: "float64", str: "string"}


def columns() -> dict[str, type]:
    """Name to type of every column: bool, int, float, str, or object for JSON text."""
    return dict(_leaves(Row))


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type]]:
    fields = {name: field.annotation for name, field in model.model_fields.items()}
    computed = {name: field.return_type for name, field in model.model_computed_fields.items()}
    for name, annotation in (fields | computed).items():
        kind = _single(annotation)
        if issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{prefix}{name}.")
        elif issubclass(kind, Enum):
            yield prefix + name, str
        else:
            yield prefix + name, kind if kind in _ARROW else object


def _single(annotation: Any) -> type:
    """The type of a field, whether it may be null or not; object for lists and other collections."""
    if get_origin(annotation) is Annotated:
        return _single(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        (one,) = [each for each in get_args(annotation) if each is not type(None)]
        return _single(one)
    return annotation if isinstance(annotation, type) and get_origin(annotation) is None else object


def values(results: Results) -> list[dict[str, Any]]:
    """The rows, each with a value for every column; None where it has none."""
    kinds = columns()
    return [
        {name: _value(row, name.split("."), kind) for name, kind in kinds.items()}
        for row in results.model_dump(mode="json")["rows"]
    ]


def _value(row: Any, path: list[str], kind: type) -> Any:
    value: Any = row
    for name in path:
        if value is None:
            return None
        value = value[name]
    return json.dumps(value, separators=(",", ":")) if kind is object and value is not None else value


def text(results: Results) -> str:
    """The table as CSV with a head; what has no value is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(columns()), lineterminator="\n")
    writer.writeheader()
    for row in values(results):
        writer.writerow({name: str(value).lower() if isinstance(value, bool) else value for name, value in row.items()})
    return out.getvalue()


def parquet(results: Results) -> bytes:
    """The table as Parquet."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [(name, getattr(pyarrow, _ARROW.get(kind, "string"))()) for name, kind in columns().items()]
    )
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(values(results), schema), out)
    return out.getvalue()


def frame(results: Results) -> polars.DataFrame:
    """The table in memory."""
    import polars

    schema = {name: kind if kind in _ARROW else str for name, kind in columns().items()}
    return polars.DataFrame(values(results), schema)
