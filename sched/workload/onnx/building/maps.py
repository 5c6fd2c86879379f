"""Constants that differ from pixel to pixel, as values of the network: no layer has such an operand otherwise."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import PastePlace, Window
from ..errors import Refused
from ..floats import FloatLayer
from .context import FloatContext
from .pictures import emit_paste, emit_selection, emit_slice, turn
from .views import View

#: Rows and columns of a map that a depthwise layer makes of one pixel, and pixels in all: each costs as many taps.
_SIDE, _PIXELS = 16, 64
#: Such maps beside each other in one row, whose channels need no words of their own then.
_STRIPS = 32


def emit_map(context: FloatContext, array: NDArray[Any], near: View, name: str) -> str:
    """A value [channels, rows, columns] of these numbers; `near`: any tensor, a pixel of which it begins with.

    A filter of zeros makes a number of anything: its bias. Small maps are the filters of a depthwise layer over one
    pixel of ones, larger ones change places with channels.
    """
    context.only_if_generous("its constant differs from pixel to pixel; it may differ from channel to channel")
    array = np.asarray(array, np.float64)
    channels, rows, columns = (int(extent) for extent in array.shape)
    if not np.all(np.isfinite(array)):
        raise Refused("its constants are not finite")
    size = channels, rows, columns
    if rows * columns == 1:
        return _emit_numbers(context, array.ravel(), near, context.fresh(name))
    if rows == 1 and _SIDE < columns <= _STRIPS * _SIDE:  # put together from strips
        firsts = range(0, columns, _SIDE)
        strips = [
            emit_map(context, array[:, :, first : first + _SIDE], near, f"{name}/strip{first}") for first in firsts
        ]
        places = [
            PastePlace(0, first, 1, 1, 1, context.sizes[strip][2]) for first, strip in zip(firsts, strips, strict=True)
        ]
        return emit_paste(context, context.fresh(name), strips, places, size)
    if max(rows, columns) <= _SIDE and rows * columns <= _PIXELS:
        if (channels, 1, 1) not in context.pixels:
            one = _emit_numbers(context, np.ones(channels), near, context.fresh(f"{name}/one"))
            context.pixels[channels, 1, 1] = one
        window = Window(rows, columns, 1, 1, rows - 1, columns - 1, rows - 1, columns - 1)
        taps = array[:, None, ::-1, ::-1].copy()
        layer = FloatLayer(
            "depthwise", context.fresh(name), (context.pixels[channels, 1, 1],), window, w=taps, bias=np.zeros(channels)
        )
        return context.emit(layer, size)
    flat = _emit_numbers(context, array.ravel(), near, context.fresh(f"{name}/numbers"))
    return turn(context, flat, (array.size, 1, 1), channels, rows)


def emit_constant(context: FloatContext, array: NDArray[Any], view: View, name: str) -> View:
    """A constant operand of elementwise arithmetic as a tensor whose elements lie as those of `view`."""
    try:
        whole = np.broadcast_to(array.astype(np.float64), view.shape)
    except ValueError:
        raise Refused(f"a constant of shape {list(array.shape)} does not fit {list(view.shape)}") from None
    if view.order.size > prod(view.size) or np.any(np.bincount(view.order.ravel()) > 1):
        raise Refused("a constant that differs from pixel to pixel, beside a map that is repeated")
    numbers = np.zeros(prod(view.size))
    numbers[view.order.ravel()] = whole.ravel()
    value = emit_map(context, numbers.reshape(view.size), view, f"{name}/constant")
    return View(value, view.size, view.shape, view.index)


def _emit_numbers(context: FloatContext, numbers: NDArray[np.float64], near: View, output: str) -> str:
    """A value of one pixel."""
    _, rows, columns = near.size
    corner = emit_slice(context, near.value, f"{output}/of", near.size, Window(1, 1, 1, 1, 0, 0, rows - 1, columns - 1))
    single = View(corner, (near.size[0], 1, 1), (1, near.size[0], 1, 1))
    first = emit_selection(context, single, np.zeros(1, np.int64), f"{output}/first")
    w = np.zeros((len(numbers), 1, 1, 1))
    return context.emit(FloatLayer("conv", output, (first,), w=w, bias=numbers.copy()), (len(numbers), 1, 1))
