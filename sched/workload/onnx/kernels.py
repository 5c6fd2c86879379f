"""Convolutions whose windows no instruction holds, and the layers that make a tensor's parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Place, Window
from .arranging import Arranging
from .errors import Refused
from .floats import FloatLayer
from .views import NO_PAD, Size, View
from .windows import limit


class Kernels(Arranging):
    def emit_conv(self, layer: FloatLayer, view: View) -> None:
        """A convolution over a value, put into a form that instructions can hold.

        A stride beyond what a GEMM holds becomes a smaller one over phases of the map, one behind the other in the
        channels; so do the parts of a kernel that is too large: the sums are the same, and rounded once.
        """
        assert layer.w is not None
        _widened(layer)
        w, size = layer.window, view.size
        outputs = (len(layer.w), *w.output(*size[1:]))
        if layer.kind != "conv":
            self.emit(layer, outputs)
            return
        name, most, stride = view.value, limit("kernel_h"), limit("stride_h")
        rows = _factor(w.kernel_h, w.stride_h, w.dilation, most, stride)
        columns = _factor(w.kernel_w, w.stride_w, w.dilation, most, stride)
        if min(outputs) > 0 and (rows > 1 or columns > 1):
            name, size = self._phases(layer, name, size, (rows, columns))
        w = layer.window
        if min(outputs) > 0 and max(w.kernel_h, w.kernel_w) > most:
            name, size = self._shifted(layer, name, size, most, outputs[1:])
        layer.inputs = (name,)
        self.emit(layer, outputs)

    def _phases(self, layer: FloatLayer, name: str, size: Size, factor: tuple[int, int]) -> tuple[str, Size]:
        """Rows and columns of equal remainders, all behind each other in the channels; the layer's kernel likewise."""
        assert layer.w is not None
        w, (down, right) = layer.window, factor
        kernel = -(-w.kernel_h // down), -(-w.kernel_w // right)
        out_h, out_w = w.output(*size[1:])
        step_h, step_w = w.stride_h // down, w.stride_w // right
        high, wide = (out_h - 1) * step_h + kernel[0], (out_w - 1) * step_w + kernel[1]
        pad = (w.pad_top, w.pad_left, high * down - size[1] - w.pad_top, wide * right - size[2] - w.pad_left)
        name, size = self._fitted(name, size, pad)
        parts = [
            self.slice_of(name, f"{layer.output}/phase{y}_{x}", size, Window(1, 1, down, right, y, x))
            for y in range(down)
            for x in range(right)
        ]
        weights = np.zeros((*layer.w.shape[:2], kernel[0] * down, kernel[1] * right))
        weights[:, :, : w.kernel_h, : w.kernel_w] = layer.w
        folded = weights.reshape(*layer.w.shape[:2], kernel[0], down, kernel[1], right).transpose(0, 3, 5, 1, 2, 4)
        layer.w = folded.reshape(len(layer.w), -1, *kernel)
        layer.window = Window(*kernel, step_h, step_w)
        one = size[0], high, wide
        return self.concat_of(parts, self.fresh(f"{layer.output}/phases"), one), (one[0] * len(parts), high, wide)

    def _shifted(
        self, layer: FloatLayer, name: str, size: Size, most: int, result: tuple[int, int]
    ) -> tuple[str, Size]:
        """The map once for each part of the kernel, moved by the taps before it, behind each other in the channels."""
        assert layer.w is not None
        w, counts = layer.window, [-(-kernel // most) for kernel in (layer.window.kernel_h, layer.window.kernel_w)]
        kernel = -(-w.kernel_h // counts[0]), -(-w.kernel_w // counts[1])
        high = (result[0] - 1) * w.stride_h + (kernel[0] - 1) * w.dilation + 1
        wide = (result[1] - 1) * w.stride_w + (kernel[1] - 1) * w.dilation + 1
        apart = kernel[0] * w.dilation, kernel[1] * w.dilation
        full = high + (counts[0] - 1) * apart[0], wide + (counts[1] - 1) * apart[1]
        pad = (w.pad_top, w.pad_left, full[0] - size[1] - w.pad_top, full[1] - size[2] - w.pad_left)
        name, size = self._fitted(name, size, pad)
        weights = np.zeros((*layer.w.shape[:2], kernel[0] * counts[0], kernel[1] * counts[1]))
        weights[:, :, : w.kernel_h, : w.kernel_w] = layer.w
        parts: list[str] = []
        pieces: list[NDArray[np.float64]] = []
        for y in range(counts[0]):
            for x in range(counts[1]):
                top, left = y * apart[0], x * apart[1]
                window = Window(1, 1, 1, 1, top, left, full[0] - top - high, full[1] - left - wide)
                parts.append(self.slice_of(name, f"{layer.output}/part{y}_{x}", size, window))
                across = slice(x * kernel[1], (x + 1) * kernel[1])
                pieces.append(weights[:, :, y * kernel[0] : (y + 1) * kernel[0], across])
        layer.w = np.concatenate(pieces, axis=1)
        layer.window = replace(Window(*kernel, w.stride_h, w.stride_w), dilation=w.dilation)
        one = size[0], high, wide
        return self.concat_of(parts, self.fresh(f"{layer.output}/parts"), one), (one[0] * len(parts), high, wide)

    def _fitted(self, name: str, size: Size, pad: tuple[int, int, int, int]) -> tuple[str, Size]:
        """A value with zeros around it, or (negative) without its last rows and columns."""
        cut = Window(pad_bottom=max(0, -pad[2]), pad_right=max(0, -pad[3]))
        name = self.slice_of(name, f"{name}/cut", size, cut)
        size = size[0], size[1] - cut.pad_bottom, size[2] - cut.pad_right
        zeros = pad[0], pad[1], max(0, pad[2]), max(0, pad[3])
        if zeros != NO_PAD:
            keep = self.views.get(name)
            made = self._padded(name, View(name, size, (1, *size), pad=zeros))
            if keep is not None:
                self.views[name] = keep
            return made.value, made.size
        return name, size

    # -- what a rearranged tensor's pictures are pasted of ----------------------------------------------------

    def pasted(self, output: str, parts: Sequence[FloatLayer], size: Size, steps: tuple[int, int]) -> None:
        """A map of `size` whose rows and columns the results of `parts` take in turn."""
        places: list[Place] = []
        names: list[str] = []
        for index, part in enumerate(parts):
            y, x = divmod(index, steps[1])
            rows, columns = -(-(size[1] - y) // steps[0]), -(-(size[2] - x) // steps[1])
            if rows > 0 and columns > 0:
                _widened(part)
                names.append(self.emit(part, (size[0], rows, columns)))
                places.append(Place(y, x, *steps, rows, columns))
        self.emit(FloatLayer("paste", output, tuple(names), places=tuple(places)), size)

    def makers(self, name: str) -> list[FloatLayer]:
        """The layers with weights that a tensor is the result of, put together from several or not, if nothing else
        reads them and nothing follows their sums yet."""
        whole = self.fusible(name, ("conv", "depthwise", "paste", "concat"))
        if whole is None:
            return []
        found = [whole] if whole.w is not None else [self.layers.get(part) for part in dict.fromkeys(whole.inputs)]
        own = whole.w is not None or all(  # no tensors of the file
            not self.model.uses[part] and sum(part in layer.inputs for layer in self.layers.values()) == 1
            for part in whole.inputs
        )
        layers = [layer for layer in found if layer and layer.w is not None and not layer.relu and layer.clamp == inf]
        return layers if own and len(layers) == len(found) else []


def _widened(layer: FloatLayer) -> None:
    """Adds taps of 0 where windows would lie in the padding alone, which no instruction takes: on the other side, so
    that each window has a pixel."""
    assert layer.w is not None
    w = layer.window
    taps: list[tuple[int, int]] = []
    for kernel, before, behind in ((w.kernel_h, w.pad_top, w.pad_bottom), (w.kernel_w, w.pad_left, w.pad_right)):
        reach = (kernel - 1) * w.dilation
        taps.append((max(0, -(-(behind - reach) // w.dilation)), max(0, -(-(before - reach) // w.dilation))))
    (top, bottom), (left, right) = taps
    layer.w = np.pad(layer.w, ((0, 0), (0, 0), (top, bottom), (left, right)))
    layer.window = replace(
        w, kernel_h=w.kernel_h + top + bottom, kernel_w=w.kernel_w + left + right,
        pad_top=w.pad_top + top * w.dilation, pad_left=w.pad_left + left * w.dilation,
        pad_bottom=w.pad_bottom + bottom * w.dilation, pad_right=w.pad_right + right * w.dilation,
    )  # fmt: skip


def _factor(kernel: int, stride: int, dilation: int, most: int, most_stride: int) -> int:
    """By what a stride that no GEMM holds is divided; 1 if it need not be."""
    if stride <= most_stride and (kernel <= most or stride == 1):
        return 1
    for factor in range(2, stride + 1):
        if (
            stride % factor == 0
            and stride // factor <= most_stride
            and (-(-kernel // factor) <= most or factor == stride)
        ):
            if dilation > 1:
                raise Refused(f"a stride of {stride} with dilation {dilation}")
            return factor
    return 1


def inflated(w: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """Weights [..., KH, KW] with zeros between their taps, which then are `rows` and `columns` apart."""
    high, wide = ((size - 1) * apart + 1 for size, apart in zip(w.shape[2:], (rows, columns), strict=True))
    found = np.zeros((*w.shape[:2], high, wide), w.dtype)
    found[:, :, ::rows, ::columns] = w
    return found
