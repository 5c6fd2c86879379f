"""Quantisers of QONNX (Quant, IntQuant, Trunc, BipolarQuant), which Brevitas writes for FINN and hls4ml.

A quantiser takes real numbers and gives real numbers: q * scale, with whole q of so many bits. One of a constant
becomes integers and their DequantizeLinear. One of an activation with 8 bits or fewer becomes a pair of QuantizeLinear
and DequantizeLinear behind a Clip, which `dequantising.pairs` reads; one with more bits the Clip alone, as the chip has
8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from .errors import Refused
from .replacement import Replacement

#: Domains that have had these operators.
_DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
#: From this opset on the ends of a Clip are operands.
_CLIP_OPERANDS = 11
#: From this opset on scales may lie along an axis.
_ALONG_AXES = 13
#: Bits of a whole number, at most.
_MOST_BITS = 64
_NEAREST = ("ROUND", "HALF_EVEN")
#: What becomes of numbers between two whole ones; of activations only the nearest is computed.
_ROUNDING: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    **dict.fromkeys(_NEAREST, np.rint),
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}
_JUMPS = (
    "it has one bit, so it jumps at 0: where 8 bits move what it reads past 0, the result has the other sign; give "
    "activations two bits or more"
)


def _number(s: Replacement, index: int, what: str) -> NDArray[np.float64]:
    array = s.number(s.operand(index))
    if array is None:
        raise Refused(f"its {what} is computed, must be a constant; export it again with constants folded")
    return array.astype(np.float64)


def _single(s: Replacement, index: int, what: str) -> float:
    array = _number(s, index, what)
    if array.size != 1:
        raise Refused(f"its {what} has {array.size} numbers, must have one")
    return float(array.flat[0])


def _quant(s: Replacement) -> None:
    _integers(s, _number(s, 1, "scale"), _number(s, 2, "zero point"), _single(s, 3, "number of bits"), b"ROUND")


def _trunc(s: Replacement) -> None:
    """The nearest of its scale and then of a coarser one, of which the coarser decides."""
    zero = _number(s, 2, "zero point")
    if np.any(zero):
        raise Refused("its zero point is not 0")
    if len(s.node.input) < 6:
        raise Refused("its result has no scale of its own; export it with QONNX 1.0 or newer")
    bits = _single(s, 5, "number of bits of its result")
    _integers(s, _number(s, 4, "scale of its result"), zero, bits, b"FLOOR")


def _integers(s: Replacement, scale: NDArray[np.float64], zero: NDArray[np.float64], bits: float, usual: bytes) -> None:
    """`usual`: how numbers are rounded if nothing says it."""
    signed, narrow = bool(s.attributes.get("signed", 1)), bool(s.attributes.get("narrow", 0))
    mode = s.attributes.get("rounding_mode", usual).decode().upper()
    if mode not in _ROUNDING:
        raise Refused(f"rounding_mode {mode} must be one of {', '.join(_ROUNDING)}")
    if not np.all(scale > 0) or not 1 <= bits <= _MOST_BITS or bits % 1:
        raise Refused(f"its scale must be above 0, its number of bits 1 to {_MOST_BITS}; it has {bits:g} bits")
    least = -(2.0 ** (bits - 1)) + narrow if signed else 0.0
    most = 2.0 ** (bits - 1) - 1 if signed else 2.0**bits - 1 - narrow
    array = s.number(s.operand(0))
    if array is not None:
        steps = array.astype(np.float64) / scale + zero
        whole = _ROUNDING[mode](np.clip(steps, least, most))
        if signed and bits == 1:
            whole = np.where(steps >= 0, 1.0, -1.0)
        _constant(s, whole, scale, zero)
        return
    if signed and bits == 1:
        raise Refused(_JUMPS)
    if scale.size != 1 or zero.size != 1:
        raise Refused("an activation has a scale or a zero point for each channel; give it one for all")
    if mode not in _NEAREST:
        raise Refused(f"rounding_mode {mode} of an activation; must be {' or '.join(_NEAREST)}")
    if s.opset < _CLIP_OPERANDS:
        raise Refused(
            f"an activation's range is a Clip, which has its ends from opset {_CLIP_OPERANDS} on; export it so"
        )
    step, middle = float(scale.flat[0]), float(zero.flat[0])
    ends = [s.constant((end - middle) * step, np.float32) for end in (least, most)]
    kind = np.int8 if signed else np.uint8
    limits = np.iinfo(kind)
    if not limits.min <= least <= most <= limits.max or middle % 1 or not limits.min <= middle <= limits.max:
        s.op("Clip", s.operand(0), *ends, to=s.result(0))
        return
    x = s.operand(0) if (least, most) == (limits.min, limits.max) else s.op("Clip", s.operand(0), *ends)
    numbers = s.constant(step, np.float32), s.constant(middle, kind)
    s.op("DequantizeLinear", s.op("QuantizeLinear", x, *numbers), *numbers, to=s.result(0))


def _bipolar(s: Replacement) -> None:
    scale, array = _number(s, 1, "scale"), s.number(s.operand(0))
    if array is None:
        raise Refused(_JUMPS)
    _constant(s, np.where(array >= 0, 1.0, -1.0), scale, np.zeros(()))


def _constant(
    s: Replacement, whole: NDArray[np.float64], scale: NDArray[np.float64], zero: NDArray[np.float64]
) -> None:
    """Integers with the scale that they have, so that they stay what they are; real numbers where there is no type for
    them."""
    types = (kind for kind in (np.int8, np.uint8) if _holds(kind, whole) and _holds(kind, zero))
    kind = next(types, None)
    axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
    along = whole.ndim == scale.ndim and len(axes) == 1 and s.opset >= _ALONG_AXES
    if kind is None or zero.size > 1 or not (scale.size == 1 or along):
        s.op("Identity", s.constant((whole - zero) * scale, np.float32), to=s.result(0))
        return
    steps = scale.reshape(-1 if along else ())
    zeros = np.full(steps.shape, zero.flat[0])
    operands = [s.constant(whole, kind), s.constant(steps, np.float32), s.constant(zeros, kind)]
    if along:
        s.op("DequantizeLinear", *operands, to=s.result(0), axis=axes[0])
    else:
        s.op("DequantizeLinear", *operands, to=s.result(0))


def _holds(kind: type[np.integer], array: NDArray[np.float64]) -> bool:
    limits = np.iinfo(kind)
    return bool(np.all((array >= limits.min) & (array <= limits.max) & (array % 1 == 0)))


OPERATORS: Mapping[str, Callable[[Replacement], None]] = {
    f"{domain}.{operator}": write
    for domain in _DOMAINS
    for operator, write in {"BipolarQuant": _bipolar, "IntQuant": _quant, "Quant": _quant, "Trunc": _trunc}.items()
}
