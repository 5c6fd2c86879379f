"""Quantisers of AMD's tools (Quark, Vitis AI), which have operators of their own beside ONNX's.

With 8 bits they compute what ONNX's do. Those of 16 bits and of blocks with one exponent are no integers of the chip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .errors import Refused
from .replacement import Replacement

_DOMAINS = "com.amd.quark", "com.vai.quantize"
#: `TensorProto` says so: uint8, int8.
_BYTES = 2, 3


def _standard(s: Replacement, kind: str) -> None:
    zero = s.operand(2)
    own = s.constants[zero].data_type if zero in s.constants else s.kinds.get(zero)
    if zero and own not in _BYTES:  # without one they are unsigned bytes
        raise Refused("its numbers are none of 8 bits, which the chip has; export the model with those (A8W8, XINT8)")
    axis = {name: value for name, value in s.attributes.items() if name == "axis"}
    s.op(kind, *(s.operand(index) for index in range(3)), to=s.result(0), **axis)


def _quantize(s: Replacement) -> None:
    _standard(s, "QuantizeLinear")


def _dequantize(s: Replacement) -> None:
    _standard(s, "DequantizeLinear")


def _blocks(s: Replacement) -> None:
    raise Refused(
        "blocks of numbers share an exponent, and the chip has one scale for a tensor; export the model with 8 bits "
        "(A8W8, XINT8)"
    )


OPERATORS: Mapping[str, Callable[[Replacement], None]] = {
    f"{domain}.{name}": function
    for domain in _DOMAINS
    for name, function in {
        "BFPFixNeuron": _blocks,
        "BFPQuantizeDequantize": _blocks,
        "ExtendedDequantizeLinear": _dequantize,
        "ExtendedQuantizeLinear": _quantize,
        "MXFixNeuron": _blocks,
        "MXQuantizeDequantize": _blocks,
        "VitisDequantizeLinear": _dequantize,
        "VitisQuantizeLinear": _quantize,
    }.items()
}
