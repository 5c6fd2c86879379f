"""Brings the weights of a sliding VEC into the vector unit's tap memory, one block ahead of the walk."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import OFFSET_BITS
from ..spec.contracts import WINDOW_TAPS
from .ports import address_bits

#: What becomes of a word of B that is requested in this cycle: `place` in the tap memory; zero unless it was `made`.
FILL_LAYOUT = data.StructLayout({"valid": 1, "made": 1, "place": address_bits(2 * WINDOW_TAPS)})


class TapLoader(wiring.Component):
    """Requests the words of B that hold the taps of each block, for one half of the tap memory while the walk uses the
    other.

    - `start`: strobe in the last cycle before a VEC, with `taps` (1 to `WINDOW_TAPS`), `blocks` and `base`. The first
      set is requested from the next cycle on, a word a cycle; each later one from the first cycle of the walk before.
    - `active`: word `at` of B is requested in this cycle, for `place` in the tap memory.
    - `ready`: the walk may advance; its weights are in `half`, or will be when it reads them, a cycle after its
      address.
    - `take`: strobe in the last cycle of a block's walk.
    """

    start: Signal
    taps: Signal
    blocks: Signal
    base: Signal
    take: Signal
    active: Signal
    at: Signal
    place: Signal
    ready: Signal
    half: Signal

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "taps": In(10),
                "blocks": In(8),
                "base": In(16),
                "take": In(1),
                "active": Out(1),
                "at": Out(OFFSET_BITS),
                "place": Out(address_bits(2 * WINDOW_TAPS)),
                "ready": Out(1),
                "half": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        last = Signal(range(WINDOW_TAPS))  # number of a block's last tap
        tap = Signal(range(WINDOW_TAPS))
        left = Signal(8)  # blocks whose weights are not all requested
        filling = Signal()  # half that is filled
        waiting = Signal()  # a whole set is there for the next block
        finished = Signal()
        turn = Signal()  # the walk goes on with the set that is (now) whole
        m.d.comb += [
            self.place.eq(Cat(tap, filling)),
            finished.eq(self.active & (tap == last)),
            turn.eq((waiting | finished) & (~self.ready | self.take)),
        ]
        with m.If(self.active):
            m.d.sync += [self.at.eq(self.at + 1), tap.eq(tap + 1)]
        with m.If(finished):
            m.d.sync += [self.active.eq(0), tap.eq(0), left.eq(left - 1), waiting.eq(1)]
        with m.If(self.take):
            m.d.sync += self.ready.eq(0)
        with m.If(turn):
            m.d.sync += [
                self.ready.eq(1),
                self.half.eq(filling),
                filling.eq(~filling),
                waiting.eq(0),
                self.active.eq((left - finished) != 0),
            ]
        with m.If(self.start):
            m.d.sync += [
                last.eq(self.taps - 1),
                left.eq(self.blocks),
                self.at.eq(self.base),
                self.active.eq(1),
                self.ready.eq(0),
                tap.eq(0),
                waiting.eq(0),
            ]
        return m
