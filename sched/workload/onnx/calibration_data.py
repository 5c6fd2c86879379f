"""The inputs that a network is calibrated with: checked, in its shapes, and whether they are pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..graph import Picture
from .errors import OnnxError
from .floats import FloatNet

if TYPE_CHECKING:
    from onnx import ModelProto

#: An array for each input, or mappings from the inputs' names.
Calibration: TypeAlias = Sequence[NDArray[np.floating] | Mapping[str, NDArray[np.floating]]]
#: Inputs of a model, by name.
Inputs: TypeAlias = Mapping[str, NDArray[np.floating]]


def checked_data(model: ModelProto, name: str, items: Calibration) -> list[dict[str, NDArray[np.floating]]]:
    """The data as mappings. Raises OnnxError when there are none or they have other names or types."""
    initializers = {item.name for item in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in initializers]
    if not items:
        raise OnnxError(f"{name}: no calibration data; give at least one input")
    feeds: list[dict[str, NDArray[np.floating]]] = []
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            if len(inputs) != 1:
                raise OnnxError(f"{name}: has inputs {', '.join(inputs)}; calibration data must be mappings of them")
            item = {inputs[0]: item}
        if sorted(item) != sorted(inputs):
            raise OnnxError(f"{name}: calibration {index} has {', '.join(item)}, the model {', '.join(inputs)}")
        for key, array in item.items():
            is_array = isinstance(array, np.ndarray)  # pyright: ignore[reportUnnecessaryIsInstance]  (from outside)
            if not is_array or array.dtype.kind not in "fiub" or not np.all(np.isfinite(array)):
                raise OnnxError(f"{name}: calibration {index}: {key} must be an array of finite numbers")
        feeds.append(dict(item))
    return feeds


def as_values(net: FloatNet, data: Sequence[Inputs]) -> list[dict[str, NDArray[np.floating]]]:
    """The data as [1, C, H, W]; they may have the shape that the model's input has. Raises OnnxError for others."""
    arrays: list[dict[str, NDArray[np.floating]]] = []
    for index, item in enumerate(data):
        values: dict[str, NDArray[np.floating]] = {}
        for key, array in item.items():
            value = net.inputs[key].placed(array)
            if value is None:
                raise OnnxError(
                    f"{net.name}: calibration {index}: {key} has shape {list(array.shape)}, must be "
                    f"{list(net.inputs[key].shape)}"
                )
            values[key] = value
        arrays.append(values)
    return arrays


def has_bytes_alone(data: Sequence[Inputs]) -> bool:
    """Whether the data are whole numbers of 0..255."""
    return all(
        np.all((array >= 0) & (array <= 255) & (array == np.rint(array))) for item in data for array in item.values()
    )


def may_be_picture(net: FloatNet) -> bool:
    """Whether a network has one input, of one channel or of three."""
    return [source.size[0] in (1, 3) for source in net.inputs.values()] == [True]


def picture_of(net: FloatNet, picture: Picture | None) -> Picture | None:
    """The given picture with the arithmetic at the model's beginning added to it."""
    if picture is None and not net.normalise:
        return None
    if len(net.inputs) != 1:
        raise OnnxError(f"{net.name}: has {len(net.inputs)} inputs; a picture can be the input of one")
    ((name, source),) = net.inputs.items()
    channels = source.size[0]
    if channels not in (1, 3):
        raise OnnxError(f"{net.name}: input {name!r} has {channels} channels; a picture has 3, or 1 if it is grey")
    if picture is None:
        picture = Picture("RGB" if channels == 3 else "L", (0.0,) * channels, (1.0,) * channels)
    if not len(picture.mean) == len(picture.std) == channels:
        raise OnnxError(f"{net.name}: input {name!r} has {channels} channels, the picture {len(picture.mean)}")
    if name not in net.normalise:
        return picture
    # gain * (byte - mean) / std + offset
    gain, offset = net.normalise[name]
    mean, std = np.array(picture.mean), np.array(picture.std)
    return replace(picture, mean=tuple((mean - offset * std / gain).tolist()), std=tuple((std / gain).tolist()))
