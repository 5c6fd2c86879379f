"""What a model of text is fed: whole numbers (of words, of a mask) from .npz or .npy files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.support.text import shortened

from .pictures import InputError

#: Bytes of all arrays of a file, unpacked.
MOST_BYTES = 1 << 28
#: What reading a damaged file raises.
_DAMAGED = (
    ValueError, EOFError, SyntaxError, TypeError, KeyError, MemoryError, NotImplementedError, RuntimeError, BadZipFile,
    ZlibError, TokenError,
)  # fmt: skip
#: Names of inputs that say which numbers count, and are 1 where nobody gives them.
_MASKS = ("mask",)


def _archive(file: BinaryIO) -> dict[str, NDArray[Any]]:
    with ZipFile(file) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > MOST_BYTES:
        raise ValueError(f"it holds {size:,} bytes, {MOST_BYTES:,} are possible")
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def read_numbers(path: Path, inputs: Sequence[str]) -> dict[str, NDArray[Any]]:
    """An array [1, tokens] for each of a model's `inputs`, by name.

    An .npz file has them by name; an .npy file is the first one, masks are 1 then and everything else (kinds of
    sentences) 0. Raises InputError.
    """
    try:
        with path.open("rb") as file:
            found = (
                _archive(file)
                if path.suffix == ".npz"
                else {inputs[0]: np.lib.format.read_array(file, allow_pickle=False)}
            )
    except (OSError, *_DAMAGED) as error:
        why = shortened(error, 200) or type(error).__name__
        raise InputError(f"{path}: cannot be read as {path.suffix[1:]} ({why}); save it with numpy.savez") from error
    if path.suffix != ".npz":
        first = found[inputs[0]]
        found |= {name: np.full_like(first, any(part in name for part in _MASKS)) for name in inputs[1:]}
    if sorted(found) != sorted(inputs):
        raise InputError(f"{path}: has arrays {', '.join(found) or 'none'}; the model's inputs are {', '.join(inputs)}")
    for name, array in found.items():
        if array.dtype.kind not in "iub":
            raise InputError(f"{path}: {name} is {array.dtype}, must be whole numbers; save it as int64")
        found[name] = array[None] if array.ndim == 1 else array
    return found
