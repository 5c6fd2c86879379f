"""What a `normalise` layer is in ONNX: a function of the model's own for each way, whose body any runtime can execute.

| `by` | function (domain meshloom) | operands behind x |
|---|---|---|
| max | LessMaximum | low, high |
| mean | LessMean | m / 2**17, low, high |
| sum | OverSum | m * 2**12, 1 / 2**17, low, high |
| root | OverRoot | m * 2**12, 1 / 2**17, low, high |

with 2**13 for 2**17 where the layer has `times16`. x and the result are uint8 with zero point 128, [1, C, H, W]; what
is taken of all rows and columns of a channel is computed in float64, which holds every number on the way exactly: sums
and their quotients have less than 53 bits, and a quotient or root that is no whole number is further from one than
float64 rounds. `low` and `high` bound the result (128 if relu, 128 + clamp), both float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshloom.hw.spec.isa import DIVIDEND_SHIFT, MOST_QUOTIENT, ROOT_SHIFT, SCALE_SHIFT

from ..graph import By, Layer
from ..layers import NO_CLAMP, SCALE_LIMIT
from .errors import Refused

if TYPE_CHECKING:
    from onnx import FunctionProto

DOMAIN = "meshloom"
#: The function of each way, and its operands behind x.
FUNCTIONS: dict[By, tuple[str, tuple[str, ...]]] = {
    "max": ("LessMaximum", ("low", "high")),
    "mean": ("LessMean", ("scale", "low", "high")),
    "sum": ("OverSum", ("dividend", "step", "low", "high")),
    "root": ("OverRoot", ("dividend", "step", "low", "high")),
}
_BEGIN = """
    v = Cast <to = 11> (x)
    zero = Constant <value = double {128.0}> ()
    s = Sub (v, zero)
    axes = Constant <value_ints = [2, 3]> ()
"""
_QUOTIENT = f"""
    nothing = Constant <value = double {{0.0}}> ()
    most = Constant <value = double {{{MOST_QUOTIENT}.0}}> ()
    above = Greater (divisor, nothing)
    exact = Div (dividend, divisor)
    whole = Floor (exact)
    least = Min (whole, most)
    quotient = Where (above, least, most)
    product = Mul (s, quotient)
    scaled = Mul (product, step)
    found = Round (scaled)
"""
_WAYS: dict[By, str] = {
    "max": "    y = ReduceMax <axes = [2, 3]> (s)\n    found = Sub (s, y)\n",
    "mean": """
    sum = ReduceSum (s, axes)
    product = Mul (sum, scale)
    rounded = Round (product)
    least = Constant <value = double {-128.0}> ()
    most = Constant <value = double {127.0}> ()
    y = Clip (rounded, least, most)
    found = Sub (s, y)
""",
    "sum": "    divisor = ReduceSum (s, axes)\n" + _QUOTIENT,
    "root": f"""
    squares = Mul (s, s)
    sum = ReduceSum (squares, axes)
    times = Constant <value = double {{{1 << ROOT_SHIFT}.0}}> ()
    larger = Mul (sum, times)
    root = Sqrt (larger)
    divisor = Floor (root)
"""
    + _QUOTIENT,
}
_END = """
    moved = Add (found, zero)
    bounded = Clip (moved, low, high)
    y8 = Cast <to = 2> (bounded)
"""


def function(by: By, opset: int) -> FunctionProto:
    """The definition of a way's function."""
    from onnx import parser

    name, operands = FUNCTIONS[by]
    head = f'<opset_import: ["" : {opset}], domain: "{DOMAIN}"> {name} (x, {", ".join(operands)}) => (y8)'
    return parser.parse_function(head + " {" + _BEGIN + _WAYS[by] + _END + "}")


def numbers(layer: Layer) -> dict[str, float]:
    """The operands of a layer's function behind x, by name."""
    step = 2.0 ** (4 * layer.times16 - SCALE_SHIFT)
    constants = {
        "scale": layer.scale * step,
        "dividend": float(layer.scale << DIVIDEND_SHIFT),
        "step": step,
        "low": 128.0 if layer.relu else 0.0,
        "high": 128.0 + layer.clamp,
    }
    assert layer.by is not None
    return {name: constants[name] for name in FUNCTIONS[layer.by][1]}


def layer_of(by: By, output: str, x: str, factors: dict[str, float]) -> Layer:
    """The layer whose `numbers` those are. Raises Refused where there is none."""
    relu, clamp = factors["low"] == 128, round(factors["high"]) - 128
    if factors["low"] not in (0, 128) or not 0 <= clamp <= NO_CLAMP:
        raise Refused(f"bounds {factors['low']} and {factors['high']}; the lower must be 0 or 128, the upper 128..255")
    for times16 in (False, True):
        step = 2.0 ** (4 * times16 - SCALE_SHIFT)
        scale = {
            "scale": factors.get("scale", 0) / step,
            "dividend": factors.get("dividend", 0) / (1 << DIVIDEND_SHIFT),
        }
        m = scale["scale" if by == "mean" else "dividend"]
        layer = Layer(
            "normalise", output, (x,), relu=relu, clamp=clamp, scale=round(m) if np.isfinite(m) else 0, by=by,
            times16=times16,
        )  # fmt: skip
        if numbers(layer) == factors and (by == "max" or 0 < layer.scale <= SCALE_LIMIT):
            return layer
    raise Refused(
        f"numbers {factors}: a scale must be m / 2^17 or m / 2^13, a dividend m * 2^12, m a whole number of "
        f"1..{SCALE_LIMIT}, a step 1 / 2^17 or 1 / 2^13"
    )
