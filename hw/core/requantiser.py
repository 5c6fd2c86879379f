"""The requantiser of one lane, shared by the drain path and the vector unit: int32 x m / 2^17 to int8."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, signed

from ..spec.isa import SCALE_SHIFT

#: Bits of a multiplier, which is unsigned, and of an accumulator times one.
SCALE_BITS, PRODUCT_BITS = 16, 48


def requantise(m: Module, wanted: Value, product: Signal, relu: Value, clamp: Value) -> Signal:
    """`clamp(sat8(RNE(product / 2^17)))`: combinational, 48 bits signed to 8 bits signed.

    Ties round to even; the result is then clamped below at 0 if `relu`, and above at `clamp` (7 bits). It is valid only
    while `wanted`.
    """
    rounded = Signal(signed(PRODUCT_BITS - SCALE_SHIFT + 1), name=f"{product.name}_rounded")
    result = Signal(signed(8), name=f"{product.name}_result")
    half = (1 << (SCALE_SHIFT - 1)) - 1  # with the quotient's lowest bit added, ties round to even
    with m.If(wanted):  # otherwise nothing toggles
        m.d.comb += rounded.eq((product + half + product[SCALE_SHIFT]) >> SCALE_SHIFT)
    low = Mux(relu, 0, Mux(rounded < -128, -128, rounded))
    m.d.comb += result.eq(Mux(rounded < 0, low, Mux(rounded > clamp, clamp, rounded)))
    return result
