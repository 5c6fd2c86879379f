"""Windows of the vector unit's layers."""

from __future__ import annotations

from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode

from ...workload.graph import Layer
from .problem import DoesNotFit


def check_window(layer: Layer) -> None:
    """Raises DoesNotFit, naming the layer, when a VEC instruction cannot hold its window."""
    w = layer.window
    for name in ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "pad_top", "pad_left"):
        limit = (1 << INSTRUCTIONS[Opcode.VEC].offsets[name][1]) - 1
        if getattr(w, name) > limit and not (layer.kind == "slice" and name.startswith("pad")):
            raise DoesNotFit(
                f"layer {layer.output}: {name} = {getattr(w, name)} exceeds what a VEC instruction holds ({limit})"
            )
    if layer.kind == "slice":
        return
    down, right = (w.kernel_h - 1) * w.dilation, (w.kernel_w - 1) * w.dilation
    for name, reach in (("pad_top", down), ("pad_bottom", down), ("pad_left", right), ("pad_right", right)):
        if getattr(w, name) > reach:
            raise DoesNotFit(
                f"layer {layer.output}: {name} = {getattr(w, name)} makes windows of padding only; a window of "
                f"{reach + 1} allows {reach} at most"
            )
