"""What a model of text is fed: numbers (of words, of a mask; real ones of a cache) from .npz or .npy files."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Declared, in_step, load_archive, load_array
from .pictures import InputError

#: Names of inputs that say which numbers count, and are 1 where nobody gives them.
_MASKS = ("mask",)


def numbers_in(
    path: Path, inputs: Sequence[Declared], real: Container[str] = (), unused: Container[str] = ()
) -> list[dict[str, NDArray[Any]]]:
    """As `read_numbers`, for each sample in the file: where an input has a batch of 1, its array may hold several along
    that axis. Raises InputError, too, for arrays of other shapes than the model's."""
    arrays = read_numbers(path, [each.name for each in inputs], real, unused)
    return in_step(path, {each.name: _samples(path, arrays[each.name], each, each.name in real) for each in inputs})


def _samples(path: Path, array: NDArray[Any], declared: Declared, real: bool) -> list[NDArray[Any]]:
    sizes = declared.shape
    array = array.reshape(1) if array.ndim == 0 else array
    if len(sizes) == 1 and array.ndim == 2 and len(array) == 1:  # `read_numbers` gives it a batch
        array = array[0]
    shapes = (sizes, (1, *sizes), *((sizes[1:],) if real and sizes[:1] == (1,) else ()))
    if any(_are(array.shape, each) for each in shapes):
        return [array]
    if sizes[:1] == (1,) and _are(array.shape[1:], sizes[1:]):
        return np.split(array, len(array))
    raise InputError(f"{path}: holds {array.dtype}{list(array.shape)}; {declared}")


def _are(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    return len(shape) == len(sizes) and all(size in (0, its) for its, size in zip(shape, sizes, strict=True))


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
