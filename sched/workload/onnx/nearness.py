"""How near the chip comes to the steps that a file has chosen itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.isa import SCALE_SHIFT

from .floats import FloatLayer, FloatNet
from .pins import CUT, UNCUT, Pin
from .rounding import Rounder


def note_of(net: FloatNet, rounder: Rounder) -> str:
    """How near a network is to the scales of its file, in a sentence for people.

    The bound: by how many of the file's steps a layer's result may differ from the file's if both have the same
    operands: of operands that the chip has rounded, weights and biases that it has rounded (multiplied by the largest
    operand that the file can say), its own rounding and the file's. Where the file saturates and no tensor of the
    calibration data did, the chip may not: its tensors reach as far above 0 as below.
    """
    values = {name: some[-1] for name, some in rounder.pins.items()}
    own = {name: pin for name, pin in values.items() if not name.endswith((UNCUT, CUT))}
    same = sum(abs(rounder.step(name) / pin.scale - 1) < 1e-6 for name, pin in own.items())
    graph = {layer.output: layer for layer in rounder.graph().layers}
    worst, where = 0.0, ""
    for layer in net.layers:
        operand, result = (values.get(name) for name in (layer.inputs[0], layer.output))
        if operand is None or result is None or layer.w is None or layer.bias is None or layer.moves:
            continue
        integer, x_step, y_step = graph[layer.output], rounder.step(layer.inputs[0]), rounder.step(layer.output)
        if integer.w is None or integer.bias is None:
            continue
        numbers = np.atleast_1d(np.array(integer.scale if integer.scales is None else integer.scales, np.float64))
        w_step = numbers * y_step / x_step / (1 << SCALE_SHIFT)
        w = integer.w.astype(np.float64) * w_step[:, None, None, None]
        bias = integer.bias.astype(np.float64) * (w_step * x_step)
        bound = float(_sums(layer, w, operand, x_step, bias).max())
        bound = (bound + y_step / 2 + result.scale / 2) / result.scale
        if bound > worst:
            worst, where = bound, layer.output
    rest = len(own) - same
    others = f", {rest} the nearest that the chip has around 0" if rest else ""
    bounded = (
        f"; given the file's operands, results of weights are at most {worst:.2f} of the file's steps from the file's "
        f"({where}), where that does not cut them off"
    )
    return f"{same} of {len(own)} tensors have the file's own scale{others}{bounded if where else ''}."


def _sums(
    layer: FloatLayer, w: NDArray[np.float64], operand: Pin, x_step: float, bias: NDArray[np.float64]
) -> NDArray[np.float64]:
    """By how much sums may be off, for each channel, before they are rounded."""
    assert layer.w is not None
    assert layer.bias is not None
    axes = (1, 2, 3)
    off = np.abs(w - layer.w).sum(axis=axes) * max(operand.high, -operand.low)
    if abs(x_step / operand.scale - 1) >= 1e-6:
        off += np.abs(w).sum(axis=axes) * x_step / 2
    return off + np.abs(bias - layer.bias)
