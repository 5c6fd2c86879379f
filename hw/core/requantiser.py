"""The requantiser of one lane, shared by the drain path and the vector unit: int32 x m / 2^17 to int8."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, signed

from ..spec.isa import SCALE_SHIFT

#: Bits of a multiplier, which is unsigned, and of an accumulator times one.
SCALE_BITS, PRODUCT_BITS = 16, 48
#: Bits of a quotient that are rounded: with all those that a byte takes, and one more.
_NEAR = 9


def requantise(m: Module, wanted: Value, product: Signal, relu: Value, clamp: Value) -> Signal:
    """`clamp(sat8(RNE(product / 2^17)))`: combinational, 48 bits signed to 8 bits signed.

    Ties round to even; the result is then clamped below at 0 if `relu`, and above at `clamp` (7 bits). It is valid only
    while `wanted`. Only the quotient's low bits are rounded: what is past them is past a byte, too, either way.
    """
    name = product.name
    rounded, far, below = Signal(signed(_NEAR + 1), name=f"{name}_rounded"), Signal(name=f"{name}_far"), Signal()
    result = Signal(signed(8), name=f"{name}_result")
    quotient = product[SCALE_SHIFT:]
    high = quotient[_NEAR - 1 :]
    up = product[SCALE_SHIFT - 1] & (product[: SCALE_SHIFT - 1].any() | quotient[0])
    with m.If(wanted):  # otherwise nothing toggles
        m.d.comb += [rounded.eq(quotient[:_NEAR].as_signed() + up), far.eq(high.any() & ~high.all())]
    m.d.comb += below.eq(Mux(far, product[-1], rounded[-1]))
    low = Mux(far | ~rounded[7:].all(), -128, rounded[:8].as_signed())
    top = Mux(far | rounded[7:].any() | (rounded[:7] > clamp), clamp, rounded[:7])
    m.d.comb += result.eq(Mux(below, Mux(relu, 0, low), top))
    return result
