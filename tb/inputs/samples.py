"""What an ONNX file is fed, sample by sample: pictures and arrays as its inputs, and what its network makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshloom.sched.workload.graph import Graph

from .arrays import SUFFIXES, Arrays, Declared, InputError, read_samples
from .pictures import as_input, one_picture, quantise_input, read_picture, read_pixels

if TYPE_CHECKING:
    from meshloom.sched.workload.onnx.quantise import Quantised


#: What a picture is, by channels.
_MODES = {1: "L", 3: "RGB"}

Fed = dict[str, NDArray[np.int8]]


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample of the file `path`. `arrays`: by input of the model, in its type; a picture has `pixels` instead,
    float32 [1, channels, rows, columns] of bytes. `own`: whether arrays are the network's own bytes, of which the model
    knows nothing."""

    name: str
    path: Path
    arrays: Arrays = field(default_factory=dict[str, NDArray[Any]])
    pixels: NDArray[np.float32] | None = None
    own: bool = False


def samples_of(files: Iterable[Path], inputs: Sequence[Declared], unused: Sequence[str] = ()) -> list[Sample]:
    """All samples of files of pictures and arrays, which may have arrays of `unused` names, too. Raises WorkloadError
    for a file that does not fit."""
    samples: list[Sample] = []
    for path in files:
        if path.suffix not in SUFFIXES:
            if len(inputs) > 1:
                raise one_picture(inputs[0].network, [each.name for each in inputs])
            samples.append(Sample(path.name, path, pixels=_pixels(path, inputs[0])))
            continue
        some = read_samples(path, inputs, unused)
        for index, arrays in enumerate(some):
            own = any(each.type == np.float32 and arrays[each.name].dtype == np.int8 for each in inputs)
            samples.append(Sample(path.name if len(some) == 1 else f"{path.name}[{index}]", path, arrays, own=own))
    return samples


def _pixels(path: Path, each: Declared) -> NDArray[np.float32]:
    """A picture with as many channels as its input has, where that is 3 or 1, and of its size, where that is fixed."""
    if len(each.shape) != 4:
        return read_pixels(path)
    axes = (1, 2, 3) if each.shape[1] in _MODES or each.shape[3] not in _MODES else (3, 1, 2)
    channels, rows, columns = (each.shape[axis] for axis in axes)
    return read_pixels(path, _MODES.get(channels, ""), (columns, rows) if rows and columns else None, each.network)


def fed_exactly(sample: Sample, graph: Graph, inputs: Sequence[Declared], inside: Mapping[str, str]) -> Fed:
    """The inputs of a network that computes its file to the last bit. `inside`: the tensors of 8 bits that the file
    makes of its inputs of real numbers. Raises InputError."""
    if sample.pixels is not None:
        return {graph.inputs[0].name: read_picture(sample.path, graph)}
    values = {value.name: value for value in graph.inputs}
    arrays: Fed = {}
    for each in inputs:
        array, value = sample.arrays[each.name], values[inside.get(each.name, each.name)]
        if each.type == np.uint8:
            array = array.view(np.int8) ^ np.int8(-128)
        arrays[value.name] = as_input(array, value)
    return arrays


def fed_quantised(sample: Sample, quantisation: Quantised) -> Fed:
    """The inputs of a network that was quantised. Raises InputError."""
    if sample.pixels is not None:
        return {quantisation.graph.inputs[0].name: read_picture(sample.path, quantisation.graph)}
    arrays: Fed = {}
    for value in quantisation.graph.inputs:
        if sample.own and sample.arrays[value.name].dtype == np.int8:
            arrays[value.name] = as_input(sample.arrays[value.name], value)
        else:
            real = real_input(sample, quantisation, value.name)
            arrays[value.name] = quantise_input(quantisation.feed(value.name, real), value)
    return arrays


def real_input(sample: Sample, quantisation: Quantised, name: str) -> NDArray[Any]:
    """An input of the model that was quantised, in real numbers as [1, C, H, W]. Raises InputError."""
    array = quantisation.real(name, sample.arrays[name])
    if array is None:
        held = sample.arrays[name]
        raise InputError(
            f"{sample.path}: holds {held.dtype}{list(held.shape)}; input {name} of network {quantisation.graph.name} "
            f"is {list(quantisation.sources[name].shape)}"
        )
    return array
