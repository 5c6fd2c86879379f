"""What a network is fed: a picture, or an array, as its int8 input tensor."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Graph, Value

from .arrays import DAMAGED, SUFFIXES, Declared, InputError, read_samples

if TYPE_CHECKING:
    from PIL import Image

#: Pixels of a picture: of three channels, as many numbers as a tensor may have (`onnx.bounds.MOST_ELEMENTS`).
MOST_PIXELS = (1 << 24) // 3


def inputs_in(path: Path) -> int:
    """How many inputs a file holds, by its header alone; 1 for one that cannot be read."""
    shape = _batch(path)
    return shape[0] if shape else 1


def one_of(path: Path) -> str:
    """The shape that a file of several inputs has if it holds one, `[1, 3, 32, 32]`; nothing where it is not known."""
    shape = _batch(path)
    return str([1, *shape[1:]]) if shape else ""


def _batch(path: Path) -> tuple[int, ...]:
    """The shape of an .npy file of inputs one behind the other, by its header alone; nothing of another file."""
    if path.suffix != ".npy":
        return ()
    try:
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
    except DAMAGED:
        return ()
    return shape if len(shape) == 4 and shape[0] else ()


def read_picture(path: str | Path, graph: Graph) -> NDArray[np.int8]:
    """The input tensor of a network from a file: int8 [1, channels, rows, columns].

    A picture (any format that Pillow reads) must have exactly the network's size and no transparency; it becomes
    int8 = sat8(RNE((byte - mean) / std / step)). An .npy file holds the tensor itself: int8, or float32, which is
    divided by the input's step. Raises InputError.
    """
    path = Path(path)
    if len(graph.inputs) != 1:
        raise one_picture(graph.name, [value.name for value in graph.inputs])
    (value,) = graph.inputs
    if path.suffix not in SUFFIXES:
        return _read_picture(path, value, graph)
    some = read_samples(path, [declared_by(graph, value)])
    if len(some) > 1:
        raise InputError(f"{path}: holds {len(some)} inputs, not one")
    return as_input(some[0][value.name], value)


def one_picture(network: str, inputs: Sequence[str]) -> InputError:
    """That a picture is not enough for several inputs."""
    names = ", ".join(inputs)
    return InputError(
        f"network {network} has inputs {names}; a picture can be the input of one: give an .npz file with an array for "
        "each, by name"
    )


def declared_by(graph: Graph, value: Value) -> Declared:
    """An input of a network without a file of its own."""
    return Declared(value.name, np.dtype(np.float32), value.shape, graph.name)


def as_input(array: NDArray[Any], value: Value) -> NDArray[np.int8]:
    """The input tensor for an array with its elements in their order: int8 as they are, or real numbers, which are
    divided by the step. Raises InputError."""
    array = array.reshape(value.shape)
    return array if array.dtype == np.int8 else quantise_input(array, value)


def quantise_input(real: NDArray[np.floating], value: Value) -> NDArray[np.int8]:
    """sat8(RNE(real / step)) of a real tensor of the input's shape. Raises InputError when the step is unknown."""
    if not value.step > 0:
        raise InputError(f"input {value.name} has no step; give an int8 .npy file of shape {list(value.shape)}")
    if not np.all(np.isfinite(real)):
        raise InputError(f"input {value.name}: the array has values that are not finite; fix the file")
    return np.clip(np.rint(real.astype(np.float64) / value.step), -128, 127).astype(np.int8)


def open_picture(path: Path, size: tuple[int, int] | None = None, network: str = "") -> Image.Image:
    """The first frame of a picture, decoded, and turned as its camera says (EXIF). Its size is looked at before: it
    must be `size`, width and height, which `network` takes, if that is known, and not more than `MOST_PIXELS`. Raises
    InputError."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # what is too large is refused here
            image = Image.open(path)
        with image:
            if size is not None and image.size not in (size, size[::-1]):
                raise _another_size(path, image.size, size, network)
            if image.width * image.height > MOST_PIXELS:
                raise InputError(
                    f"{path}: is {image.width}x{image.height} pixels (width x height); a picture may have "
                    f"{MOST_PIXELS:,}: crop or resize it"
                )
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            if size is not None and image.size != size:
                raise _another_size(path, image.size, size, network)
    except InputError:
        raise
    except UnidentifiedImageError as error:
        raise InputError(f"{path}: is not a picture; give PNG, WebP or JPEG, or an .npy file") from error
    except Image.DecompressionBombError as error:
        raise InputError(
            f"{path}: is too large; a picture may have {MOST_PIXELS:,} pixels: crop or resize it"
        ) from error
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, struct.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); give an intact picture") from error
    return image


def _another_size(path: Path, own: tuple[int, int], size: tuple[int, int], network: str) -> InputError:
    return InputError(
        f"{path}: is {own[0]}x{own[1]} pixels (width x height), network {network} takes {size[0]}x{size[1]}; crop or "
        "resize it to that"
    )


def read_pixels(
    path: Path, mode: str = "", size: tuple[int, int] | None = None, network: str = ""
) -> NDArray[np.float32]:
    """A picture's bytes, float32 [1, channels, rows, columns]. `mode`: RGB or L (grey), what the picture itself is
    where nobody says; `size`, `network`: as in `open_picture`. Raises InputError."""
    image = open_picture(path, size, network)
    if image.mode.startswith(("I", "F")):
        raise InputError(f"{path}: has more than 8 bits for a channel (mode {image.mode}); save it with 8")
    mode = mode or ("L" if image.mode in ("1", "L", "LA") else "RGB")
    if image.has_transparency_data:
        if np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
            raise InputError(f"{path}: has transparent pixels; put it on a background and save it without alpha")
        image = image.convert("RGBA").convert("RGB")
    pixels = np.asarray(image.convert(mode), np.float32)
    return pixels[None, None] if mode == "L" else np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def _read_picture(path: Path, value: Value, graph: Graph) -> NDArray[np.int8]:
    picture = graph.picture
    if picture is None:
        raise InputError(
            f"{path}: the input of network {graph.name} is not a picture; give an .npy file, int8 or float32 "
            f"{list(value.shape)}"
        )
    if not len(picture.mean) == len(picture.std) == value.channels == (3 if picture.mode == "RGB" else 1):
        raise InputError(f"network {graph.name}: its picture has another number of channels than input {value.name}")
    planes = read_pixels(path, picture.mode, (value.width, value.height), graph.name).astype(np.float64)
    mean, std = (np.array(numbers)[None, :, None, None] for numbers in (picture.mean, picture.std))
    return quantise_input((planes - mean) / std, value)
