"""Numbers that compiled code finds by name: arrays of records.

A class names the fields and says what they mean; `layout` makes it a type for arrays. A table is an array of such
records, and numbers that belong together are one record, `np.zeros(1, layout(Kind))[0]`. Compiled code reads and sets
`table[index].field`.

Arrays of records have to be passed to compiled code: one that it made itself may be freed before it looks into an
element.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np

R_co = TypeVar("R_co", covariant=True)


class Table(Protocol[R_co]):
    """An array of records, as compiled code uses it."""

    def __getitem__(self, index: int, /) -> R_co: ...

    def __len__(self) -> int: ...


def layout(record: type) -> np.dtype[Any]:
    """The type in arrays of the fields that a class names, each of them an int or a float."""
    kinds = {"int": np.int64, "float": np.float64}
    return np.dtype((np.record, [(name, kinds[kind]) for name, kind in record.__annotations__.items()]))
