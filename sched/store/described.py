"""Inputs of a computation as text, nothing of them left out: what is kept under such a text is that of no other input.

A `repr` says what its class likes to say: of a large array some elements, of a field with `repr=False` nothing, of most
objects where they lie in memory. Here every field counts, and what is not known to be told apart is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel


def described(value: object) -> str:
    """A text that differs for different inputs, and is the same in every process: of numbers, texts, enumerations,
    arrays, paths, and sequences, sets, mappings, dataclasses and models of these.

    Raises TypeError for anything else.
    """
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, np.generic):  # some of which are floats, too
        number: Any = cast("Any", value)
        return described(number.item())
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray):
        return _array(cast("NDArray[Any]", value))
    if isinstance(value, PurePath):
        return f"path {str(value)!r}"
    return _composed(value)


def _composed(value: object) -> str:
    """Of something that has parts."""
    name = type(value).__qualname__
    if isinstance(value, Mapping):  # its order may decide
        pairs = cast("Mapping[object, object]", value).items()
        return f"{name}{{{','.join(f'{described(key)}:{described(each)}' for key, each in pairs)}}}"
    if isinstance(value, set | frozenset):
        return f"{name}{{{','.join(sorted(map(described, cast('frozenset[object]', value))))}}}"
    if isinstance(value, tuple | list):
        return f"{name}[{','.join(map(described, cast('list[object]', value)))}]"
    if isinstance(value, BaseModel):
        names = list(type(value).model_fields)
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
    else:
        raise TypeError(f"{name} cannot be part of what a result is kept under: give its fields")
    return f"{name}({','.join(f'{each}={described(getattr(value, each))}' for each in names)})"


def _array(array: NDArray[Any]) -> str:
    if array.dtype.hasobject:
        raise TypeError("an array of objects cannot be part of what a result is kept under")
    return f"array({array.dtype.descr},{array.shape},{sha256(np.ascontiguousarray(array).tobytes()).hexdigest()})"
