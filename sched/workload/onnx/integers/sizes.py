"""Channels, rows and columns of a layer's result."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Layer, pasted_pixels, slice_size
from ..errors import Refused

Size = tuple[int, int, int]


def size_of(layer: Layer, sizes_of: Mapping[str, Size]) -> Size | None:
    """Channels, rows and columns of a layer's result, if those of its operands are known. Raises Refused."""
    sizes = [sizes_of.get(name) for name in layer.inputs]
    if (x := sizes[0]) is None or None in sizes:
        return None
    window, channels = layer.window, x[0] if layer.w is None else len(layer.w)
    if layer.kind == "concat":
        return sum(size[0] for size in sizes if size), x[1], x[2]
    if layer.kind in ("add", "mul", "table", "normalise"):
        return x
    if layer.kind == "product":
        return layer.groups * (sizes[1] or x)[1] * (sizes[1] or x)[2], x[1], x[2]
    if layer.kind == "transpose":
        return layer.groups * x[1] * x[2], layer.rows, x[0] // layer.groups // layer.rows
    if layer.kind == "paste":
        return x[0], *pasted_pixels(layer.places).shape
    if layer.kind == "upsample":
        return channels, x[1] * layer.repeat, x[2] * layer.repeat
    if layer.kind == "slice":
        size = channels, *slice_size(window, *x[1:])
    else:
        size = channels, *window.output(x[1], x[2])
    if min(size) < 1:
        raise Refused("its window does not fit its input")
    return size
