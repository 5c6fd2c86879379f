"""What a `mul` layer is in ONNX where QLinearMul is not exact: a function of the model's own.

QLinearMul adds the zero point before it rounds, in float32, so a product that is 1 / 2**17 from the middle of two whole
numbers rounds like the middle. Few multipliers m have such products (`is_exact`). `Times` (domain meshloom) takes a, b
and m / 2**17, and rounds first; tensors are uint8 with zero point 128.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshloom.hw.spec.isa import SCALE_SHIFT

from .normalising import DOMAIN

if TYPE_CHECKING:
    from onnx import FunctionProto

NAME = "Times"
_BODY = """
    zero = Constant <value = double {128.0}> ()
    low = Constant <value = double {0.0}> ()
    high = Constant <value = double {255.0}> ()
    x = Cast <to = 11> (a)
    v = Cast <to = 11> (b)
    r = Sub (x, zero)
    s = Sub (v, zero)
    product = Mul (r, s)
    scaled = Mul (product, scale)
    rounded = Round (scaled)
    moved = Add (rounded, zero)
    bounded = Clip (moved, low, high)
    y = Cast <to = 2> (bounded)
"""


def function(opset: int) -> FunctionProto:
    """Its definition."""
    from onnx import parser

    head = f'<opset_import: ["" : {opset}], domain: "{DOMAIN}"> {NAME} (a, b, scale) => (y)'
    return parser.parse_function(head + " {" + _BODY + "}")


@cache
def is_exact(m: int) -> bool:
    """Whether QLinearMul rounds every product of two bytes, times m / 2**17, as it is."""
    whole, half = 1 << SCALE_SHIFT, 1 << (SCALE_SHIFT - 1)
    if m % 2 == 0:
        return True
    places = {(near * pow(m, -1, whole)) % whole for near in (half - 1, half + 1)}
    products = {sign for place in places for sign in (place, place - whole)}
    return not any(_is_product(abs(product)) and abs(product) * m < whole << 7 for product in products)


def _is_product(number: int) -> bool:
    return any(number % a == 0 and number // a <= 128 for a in range(1, 129))
