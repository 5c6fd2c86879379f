"""What the names on the command line mean: layers, built-in networks, ONNX files; and what a network is fed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..sched.workload.graph import Graph, Picture
from ..sched.workload.layers import WorkloadError


@dataclass(frozen=True)
class NetworkSource:
    """A network by built-in name or by the path of an ONNX file, with the files that it is fed, one run for each.

    A float model is quantised with `calibration` (if empty: with the inputs). `mean`, `std`: how its pictures are
    normalised, (byte - mean) / std, one number for all channels or one for each.
    """

    name: str
    inputs: tuple[Path, ...] = ()
    calibration: tuple[Path, ...] = ()
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)

    @property
    def title(self) -> str:
        """Its name in tables."""
        return Path(self.name).stem if self.name.endswith(".onnx") else self.name


@dataclass(frozen=True, eq=False)
class Feed:
    """One run's inputs, where they are from, and the class that they show, if that is known (index, or -1)."""

    name: str
    arrays: dict[str, NDArray[np.int8]]
    label: int = -1
    float_label: int = -1


def is_network(name: str) -> bool:
    """Whether a name on the command line means a whole network."""
    from ..sched.workload.zoo import names

    return name.endswith(".onnx") or name in names()


def load(source: NetworkSource) -> Graph:
    """The network itself; a float model is quantised first. Raises WorkloadError (OnnxError) when that cannot be."""
    from ..sched.onnx.reader import is_float, read
    from ..sched.workload import zoo

    if not source.name.endswith(".onnx"):
        return zoo.load(source.name)
    return quantised(source) if is_float(source.name) else read(source.name)


def quantised(source: NetworkSource) -> Graph:
    """The int8 network of a float model. Raises WorkloadError when there is nothing to calibrate it with."""
    from ..sched.onnx.quantise import quantise

    files = source.calibration or source.inputs
    if not files:
        raise WorkloadError(
            f"{source.name}: is a float model; give pictures to calibrate it with (--input or --calibrate)"
        )
    arrays = [_real(path) for path in files]
    if all(path.suffix == ".npy" for path in files):
        return quantise(source.name, arrays)
    channels = arrays[0].shape[1]
    mean, std = (_per_channel(source, numbers, channels) for numbers in (source.mean, source.std))
    picture = Picture("RGB" if channels == 3 else "L", mean, std)
    shape = (1, channels, 1, 1)
    data = [(array - np.reshape(mean, shape)) / np.reshape(std, shape) for array in arrays]
    return quantise(source.name, [item.astype(np.float32) for item in data], picture=picture)


def _per_channel(source: NetworkSource, numbers: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(numbers) not in (1, channels):
        raise WorkloadError(f"{source.name}: --mean and --std take 1 or {channels} numbers, not {len(numbers)}")
    return numbers * channels if len(numbers) == 1 else numbers


def _real(path: Path) -> NDArray[np.float32]:
    """Calibration data from a file: a picture's bytes, or an array, as float32 [1, channels, rows, columns]."""
    if path.suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise WorkloadError(f"{path}: cannot be read as an .npy file ({error})") from error
        return np.asarray(array, np.float32)
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"), np.float32)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise WorkloadError(f"{path}: cannot be read as a picture ({error}); give PNG, JPEG or .npy") from error
    return pixels[None, None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def feeds(source: NetworkSource, graph: Graph) -> list[Feed]:
    """What to run a network with: the files asked for, otherwise the first stored picture, or arrays.

    Raises InputError for a file that does not fit, WorkloadError when there is nothing to feed it.
    """
    from ..sched.workload import zoo
    from .pictures import read_picture

    known: dict[Path, tuple[int, int]] = {}
    stored: dict[str, NDArray[np.int8]] = {}
    if source.name in zoo.names():
        pictures = zoo.pictures(source.name)
        floats = zoo.float_top1(source.name)
        for index, (path, label) in enumerate(pictures):
            known[path.resolve()] = (-1 if label is None else label), floats[index] if index < len(floats) else -1
        stored = zoo.arrays(source.name)
    files = source.inputs or tuple(list(known)[:1])
    if files:
        found = []
        for path in files:
            label, float_label = known.get(path.resolve(), (-1, -1))
            array = read_picture(path, graph)
            found.append(Feed(path.name, {graph.inputs[0].name: array}, label, float_label))
        return found
    if stored:
        return [Feed("stored arrays" if graph.real else "random bytes", stored)]
    raise WorkloadError(f"network {graph.name}: give it something to work on with --input")


def pictures(name: str) -> tuple[Path, ...]:
    """All pictures stored for a built-in network."""
    from ..sched.workload import zoo

    return tuple(path for path, _ in zoo.pictures(name))


def label_of(graph: Graph, index: int) -> str:
    """The name of a class, or its number; empty for -1."""
    if index < 0:
        return ""
    return graph.labels[index] if index < len(graph.labels) else str(index)


def regression_networks() -> Sequence[str]:
    """The networks of `make sim`."""
    return ("resnet8",)
