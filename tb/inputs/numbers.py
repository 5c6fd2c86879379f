"""What a model of text is fed: numbers (of words, of a mask; real ones of a cache) from .npz or .npy files."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import load_archive, load_array
from .pictures import InputError

#: Names of inputs that say which numbers count, and are 1 where nobody gives them.
_MASKS = ("mask",)


def read_numbers(
    path: Path, inputs: Sequence[str], real: Container[str] = (), unused: Container[str] = ()
) -> dict[str, NDArray[Any]]:
    """An array [1, tokens] for each of a model's `inputs`, by name; one of any shape for those in `real` numbers. Those
    of `unused` names are left alone.

    An .npz file has them by name; an .npy file is the first one, masks are 1 then and everything else (kinds of
    sentences) 0. Raises InputError.
    """
    arrays = load_archive(path) if path.suffix == ".npz" else {inputs[0]: load_array(path)}
    if path.suffix != ".npz":
        if any(name in real for name in inputs):
            raise InputError(f"{path}: is one array; the model's inputs are {', '.join(inputs)}: give an .npz file")
        first = arrays[inputs[0]]
        arrays |= {name: np.full_like(first, any(part in name for part in _MASKS)) for name in inputs[1:]}
    arrays = {name: array for name, array in arrays.items() if name not in unused}
    if sorted(arrays) != sorted(inputs):
        raise InputError(
            f"{path}: has arrays {', '.join(arrays) or 'none'}; the model's inputs are {', '.join(inputs)}"
        )
    for name, array in arrays.items():
        if name in real:
            if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
                raise InputError(f"{path}: {name} is {array.dtype}, must be finite numbers; save it as float32")
            continue
        if array.dtype.kind not in "iub":
            raise InputError(f"{path}: {name} is {array.dtype}, must be whole numbers; save it as int64")
        arrays[name] = array[None] if array.ndim == 1 else array
    return arrays
