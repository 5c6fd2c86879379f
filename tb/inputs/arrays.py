"""Arrays from .npy and .npz files, as the inputs of a network: of the type and the shape that these have."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.layers import WorkloadError

if TYPE_CHECKING:
    from onnx import ModelProto

#: Types of files that hold arrays.
SUFFIXES = (".npy", ".npz")
#: Types of pictures that are taken of a folder; a file that is named may have any other.
_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
#: Bytes of all arrays of an archive, unpacked.
MOST_BYTES = 1 << 28
#: What reading a damaged file raises.
DAMAGED = (
    OSError, ValueError, EOFError, SyntaxError, TypeError, KeyError, MemoryError, NotImplementedError, RecursionError,
    RuntimeError, BadZipFile, ZlibError, TokenError, Warning,
)  # fmt: skip

Arrays = Mapping[str, NDArray[Any]]


class InputError(WorkloadError):
    """A file that cannot be the input of a network; the message names it, what is wrong and the fix."""


def files_of(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Files, and in the place of a folder its pictures and arrays, by name. Raises InputError for one without any."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        try:
            inside = sorted(each for each in path.iterdir() if _is_taken(each))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        if not inside:
            types = ", ".join((*_PICTURES, *SUFFIXES))
            raise InputError(
                f"{path}: is a folder without pictures or arrays ({types}); give one that has some, or files"
            )
        files += inside
    return tuple(files)


def _is_taken(path: Path) -> bool:
    """Neither hidden (notes that a system keeps beside a picture) nor of another type."""
    return path.suffix.lower() in (*_PICTURES, *SUFFIXES) and not path.name.startswith(".") and path.is_file()


@dataclass(frozen=True)
class Declared:
    """An input of `network`: its name, type and shape; a size of 0 may be anything.

    `shapes`: others that arrays may have, those of the network's tensor. Where the type is float32, an int8
    array holds the network's own bytes.
    """

    name: str
    type: np.dtype[Any]
    shape: tuple[int, ...]
    network: str
    shapes: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        sizes = ", ".join("?" if size == 0 else str(size) for size in self.shape)
        kind = "int8 or float32" if self.type == np.float32 else self.type.name
        return f"input {self.name} of network {self.network} is {kind} [{sizes}]"


def declared(model: ModelProto, network: str) -> tuple[Declared, ...]:
    """The inputs of an ONNX model. Those of bfloat16, which .npy files lack, are float32 here."""
    from onnx import TensorProto, helper

    initializers = {item.name for item in model.graph.initializer}
    declareds: list[Declared] = []
    for value in model.graph.input:
        if value.name in initializers:
            continue
        kind = value.type.tensor_type
        element = TensorProto.FLOAT if kind.elem_type == TensorProto.BFLOAT16 else kind.elem_type
        shape = tuple(max(0, dim.dim_value) for dim in kind.shape.dim)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
        declareds.append(Declared(value.name, dtype, shape, network, _values(shape)))
    return tuple(declareds)


def _values(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The shapes, [1, channels, rows, columns], that the network's tensor may have for an input of this shape."""
    match shape:
        case (channels,) | (1, channels):
            return ((1, channels, 1, 1),)
        case (rows, channels):
            return ((1, channels, 1, rows),)
        case (_, first, last):
            return ((1, first, 1, last), (1, last, 1, first), (1, first, last, 1))
        case (_, height, width, channels):
            return ((1, channels, height, width),)
        case _:
            return ()


def read_samples(path: Path, inputs: Sequence[Declared], unused: Sequence[str] = ()) -> list[dict[str, NDArray[Any]]]:
    """The arrays of a file by input, for each sample that it holds.

    An .npz file has an array for each input, by its name or (as `numpy.savez` calls those without one) in order; an
    .npy file is for a network with one input. Arrays hold one sample, with or without the batch of 1, or several, along
    an axis in front or instead of the batch. They have the input's type, or another one that holds the same numbers.
    Arrays of `unused` names are left alone. Raises InputError.
    """
    return in_step(path, {each.name: _samples(path, array, each) for each, array in _by_input(path, inputs, unused)})


def in_step(path: Path, samples: Mapping[str, Sequence[NDArray[Any]]]) -> list[dict[str, NDArray[Any]]]:
    """The arrays of each sample of a file, of those by input. Raises InputError where inputs have other numbers of
    samples."""
    counts = {name: len(some) for name, some in samples.items()}
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise InputError(f"{path}: holds other numbers of samples: {each}; save as many of each")
    return [dict(zip(samples, some, strict=True)) for some in zip(*samples.values(), strict=True)]


def load_array(path: Path) -> NDArray[Any]:
    """The array in an .npy file. Raises InputError."""
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # of a header that NumPy has to guess at
            return np.lib.format.read_array(file, allow_pickle=False)
    except DAMAGED as error:
        why = f"cannot be read as an .npy file ({_reason(error)})"
        raise InputError(f"{path}: {why}; save it with numpy.save") from error


def load_archive(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in an .npz file by name. Raises InputError."""
    try:
        with ZipFile(path) as archive:
            total = sum(item.file_size for item in archive.infolist())
        if total <= MOST_BYTES:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: np.asarray(arrays[name]) for name in arrays.files}
    except DAMAGED as error:
        raise InputError(
            f"{path}: cannot be read as an .npz file ({_reason(error)}); save it with numpy.savez"
        ) from error
    raise InputError(f"{path}: holds {total} bytes unpacked, more than {MOST_BYTES}; save fewer samples in each file")


def _reason(error: BaseException) -> str:
    """What an error says, in one line of which not much is the file's own."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    return text[:200] or type(error).__name__


def _by_input(path: Path, inputs: Sequence[Declared], unused: Sequence[str]) -> list[tuple[Declared, NDArray[Any]]]:
    names = ", ".join(each.name for each in inputs)
    if path.suffix != ".npz":
        if len(inputs) > 1:
            raise InputError(
                f"{path}: is one array, network {inputs[0].network} has inputs {names}; give an .npz file "
                "with an array for each, by name (numpy.savez)"
            )
        return [(inputs[0], load_array(path))]
    arrays = {name: array for name, array in load_archive(path).items() if name not in unused}
    if set(arrays) == {f"arr_{index}" for index in range(len(inputs))}:
        return [(each, arrays[f"arr_{index}"]) for index, each in enumerate(inputs)]
    if len(arrays) == len(inputs) == 1:
        return [(inputs[0], next(iter(arrays.values())))]
    if set(arrays) != {each.name for each in inputs}:
        raise InputError(
            f"{path}: has arrays {', '.join(sorted(arrays)) or 'none'}; network {inputs[0].network} has inputs "
            f"{names}: save an array for each, by name"
        )
    return [(each, arrays[each.name]) for each in inputs]


def _samples(path: Path, array: NDArray[Any], declared: Declared) -> list[NDArray[Any]]:
    """The samples in an array, each of the input's type, in its shape or in another one of `shapes`."""
    whole, first = declared.shape, declared.shape[:1] in ((0,), (1,))
    sample = (1, *whole[1:]) if first else whole
    array = array.reshape(1) if array.ndim == 0 else array
    if _fits(array.shape, sample):
        some = [array]
    elif first and len(whole) > 1 and _fits(array.shape, sample[1:]):
        some = [array[None]]
    elif first and (len(whole) > 1 or whole == (1,)) and _fits(array.shape[1:], sample[1:]):
        some = np.split(array, len(array)) if len(array) else []
    elif _fits(array.shape[1:], sample):
        some = list(array)
    elif any(_fits(array.shape, each) for each in declared.shapes):
        some = [array]
    else:
        raise InputError(f"{path}: holds {array.dtype}{list(array.shape)}; {declared}")
    if not some:
        raise InputError(f"{path}: holds no sample, {array.dtype}{list(array.shape)}; {declared}")
    return [_typed(path, one, declared) for one in some]


def _fits(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    return len(shape) == len(sizes) and all(b in (0, a) for a, b in zip(shape, sizes, strict=True)) and prod(shape) > 0


def _typed(path: Path, array: NDArray[Any], declared: Declared) -> NDArray[Any]:
    """The array in the input's type. Raises InputError where that has not the same numbers, or one is none."""
    if array.dtype.kind == declared.type.kind == "f" and (places := np.argwhere(np.isnan(array))).size:
        raise InputError(
            f"{path}: {len(places)} of {array.size} numbers of {declared.name} are not a number (NaN), first at "
            f"{places[0].tolist()}; replace them, with numpy.nan_to_num for one"
        )
    if array.dtype == declared.type or (declared.type == np.float32 and array.dtype == np.int8):
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "biuf" and declared.type.kind in "biuf":
        with np.errstate(all="ignore"):
            same = array.astype(declared.type)
            back = same.astype(array.dtype)
            if np.array_equal(same, array) and np.array_equal(back, array):
                return same
    raise InputError(
        f"{path}: holds {array.dtype}{list(array.shape)}, not all of which are numbers of {declared.type}; {declared}: "
        "save it as that"
    )
