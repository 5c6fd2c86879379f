"""Spectra of a signal: a convolution with waves."""

from __future__ import annotations

from math import pi

import numpy as np

from ...graph import Window
from ..bounds import check_size
from ..building.context import FloatContext, Operator
from ..building.kernels import emit_conv
from ..building.pictures import place, settle
from ..errors import Refused
from ..floats import FloatLayer
from ..nodes import Attributes, Node


def short_time_spectra(context: FloatContext, node: Node, attributes: Attributes) -> None:
    """STFT of one real signal: cosines of all frequencies, then sines, each times the window."""
    view, step = settle(context, node.input[0]), int(context.number(node, 1, "step"))
    window, length = context.optional(node, 2, "window"), context.optional(node, 3, "length")
    if view.shape not in ((1, view.order.size), (1, view.order.size, 1)):
        raise Refused(f"of a signal of shape {list(view.shape)}, must be [1, samples] of real numbers")
    if window is None and length is None:
        raise Refused("has neither a window nor a length")
    size = int(length.flat[0]) if length is not None else 0 if window is None else window.size
    if window is None:
        window = np.ones(size)
    if window.size != size or not 0 < size <= view.order.size or step < 1:
        raise Refused(f"{window.size} numbers of a window, for {size} of {view.order.size} samples, in steps of {step}")
    bins = size // 2 + 1 if attributes.get("onesided", 1) else size
    check_size((2 * bins, size), "what stands for its waves")
    turns = -2 * pi / size * np.outer(np.arange(bins), np.arange(size))
    w = np.concatenate([np.cos(turns), np.sin(turns)]) * window.astype(np.float64)
    name = context.fresh(f"{node.input[0]}/line")
    line = place(context, name, view.moved(view.order.reshape(1, 1, 1, -1)))
    layer = FloatLayer(
        "conv", node.output[0], (line.value,), Window(1, size, 1, step), w=w[:, None, None], bias=np.zeros(len(w))
    )
    emit_conv(context, layer, line)
    result = context.views[node.output[0]]
    order = result.order.reshape(2, bins, -1).transpose(2, 1, 0)
    context.keep_view(node.output[0], result.moved(np.ascontiguousarray(order[None])))


OPERATORS: dict[str, Operator] = {"STFT": short_time_spectra}
