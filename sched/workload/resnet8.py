"""The trained MLPerf Tiny ResNet-8 (CIFAR-10), int8, with the real activations of real pictures.

`data/resnet8.npz` is made by scripts/convert_resnet8.py; data/SOURCES.md says from what, and how well it classifies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.archives import DAMAGE, read_archive
from .layers import ConvShape, LayerData, WorkloadError

FILE = Path(__file__).parent / "data" / "resnet8.npz"


@cache
def contents(path: Path = FILE) -> Mapping[str, NDArray[Any]]:
    """All arrays of the file by name. Raises WorkloadError when it is missing or damaged.

    `layers` (names in order), `labels` (of the pictures) and `classes`; for each layer `<layer>/w`, `/bias`, `/input`
    (name of its input tensor) and `/geometry` (stride, pad top, left, bottom, right, relu, scale); for each tensor
    `tensor/<name>` int8 [picture, channels, rows, columns] and `step/<name>` (real value of 1).
    """
    try:
        arrays = read_archive(path)
        # a damaged directory may hide arrays
        names = {"labels", "classes"}
        for layer in arrays["layers"]:
            source = arrays[f"{layer}/input"]
            names |= {f"{layer}/w", f"{layer}/bias", f"{layer}/geometry", f"step/{layer}", f"step/{source}"}
            names.add(f"tensor/{source}")
        if missing := names - arrays.keys():
            raise KeyError(", ".join(sorted(missing)))
    except (OSError, *DAMAGE) as error:
        raise WorkloadError(
            f"{path}: cannot be read ({error}); restore it, or run scripts/convert_resnet8.py"
        ) from error
    return MappingProxyType(arrays)


def layer_names() -> tuple[str, ...]:
    """Layers in the order of the network, without the network's name: conv1 .. fc."""
    return tuple(str(name) for name in contents()["layers"])


@cache
def shape(layer: str) -> ConvShape:
    """Shape of one layer, for one picture."""
    arrays = contents()
    outputs, inputs, kernel_h, kernel_w = arrays[f"{layer}/w"].shape
    _, _, in_h, in_w = arrays[f"tensor/{arrays[f'{layer}/input']}"].shape
    stride, top, left, bottom, right, relu, _ = (int(value) for value in arrays[f"{layer}/geometry"])
    size = (1, inputs, in_h, in_w, outputs, kernel_h, kernel_w, stride, stride, top, left, bottom, right)
    return ConvShape(f"resnet8/{layer}", *size, relu=bool(relu))


def layer_data(layer: str, picture: int = 0) -> LayerData:
    """Real weights, bias, scale and input activation of one layer, for one of the stored pictures."""
    arrays = contents()
    x = np.array(arrays[f"tensor/{arrays[f'{layer}/input']}"][picture : picture + 1], np.int8)
    w, bias = np.array(arrays[f"{layer}/w"], np.int8), np.array(arrays[f"{layer}/bias"], np.int32)
    return LayerData(shape(layer), x, w, bias, int(arrays[f"{layer}/geometry"][-1]))
