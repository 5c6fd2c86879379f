"""A DRAM channel whose words lie in a slower memory: the chip's clock stops while a word is not there."""

from __future__ import annotations

from amaranth.hdl import Cat, EnableInserter, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..noc.input_unit import FlitBuffer
from ..spec.config import ChipConfig
from ..wiring.axi import AXI4, AXI4Port
from .channel import QUEUE, DramChannel

#: Words that are read ahead, and writes that wait.
_AHEAD, _BEHIND = 64, 16


def access_layout(config: ChipConfig) -> data.StructLayout:
    """An access to a word of a channel: `store` are the bytes of `data` to write, none to read."""
    return data.StructLayout({"address": 32, "store": config.lanes, "data": config.word_bits})


class PacedChannel(wiring.Component):
    """A DRAM channel of a chip, to the cycle as the simulators' (`DramChannel`), in cycles of the chip's clock.

    `run`: the chip's clock ticks at the end of this cycle. `may_run`: it can at the end of the next one, because what
    the chip may read then is there, and there is room for what it may write. Cycles in which it does not tick do not
    exist for the chip, so that no memory behind this is too slow. `reset` is that of the chip, in cycles that `run`:
    bursts on their way are dropped.

    `request`: a word to read, or to write if it has bytes to `store`, which may wait for as long as it has to. What is
    read is in `word` when it `answers`, in the order of its requests. A burst is requested from the cycle on in which
    it comes, behind all that has been written before; what is written later may be read or not, which the checker of
    programs allows nobody to notice.
    """

    axi: AXI4Port
    reset: Signal
    run: Signal
    may_run: Signal
    request: stream.Interface
    answers: Signal
    word: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {
                "axi": In(AXI4(address_bits=32, data_bits=config.word_bits)),
                "reset": In(1),
                "run": In(1),
                "may_run": Out(1),
                "request": Out(stream.Signature(access_layout(config))),
                "answers": In(1),
                "word": In(config.word_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, request = self.config, self.request
        channel = DramChannel(config)
        m.submodules.channel = EnableInserter(self.run)(channel)
        wiring.connect(m, wiring.flipped(self.axi), channel.axi)
        live = Signal()  # what the channel does in this cycle is done
        m.d.comb += [live.eq(self.run & ~self.reset), channel.reset.eq(self.reset), channel.fresh.eq(1)]

        bursts = FlitBuffer(32 + 8, QUEUE)
        m.submodules.bursts = ResetInserter(self.reset)(bursts)
        active, word, left = Signal(), Signal(32), Signal(8)
        m.d.comb += [
            bursts.flit.eq(Cat(channel.word, channel.length)),
            bursts.arrives.eq(channel.begins & live),
        ]
        ahead = FlitBuffer(config.word_bits, _AHEAD)
        m.submodules.ahead = ResetInserter(self.reset)(ahead)
        there, coming = Signal(range(_AHEAD + 1)), Signal(range(_AHEAD + 1))  # words in `ahead`, and requested
        dropping = Signal()  # what has been requested is no longer needed
        m.d.comb += [
            ahead.flit.eq(self.word),
            ahead.arrives.eq(self.answers & ~dropping & ~self.reset),
            ahead.pop.eq(channel.read & live),
            channel.fetched.eq(ahead.front),
        ]
        behind = FlitBuffer(32 + config.word_bits + config.lanes, _BEHIND)
        m.submodules.behind = behind
        waiting = Signal(range(_BEHIND + 1))  # words in it
        stored = behind.front[32:]
        m.d.comb += [
            behind.flit.eq(Cat(channel.stored, channel.data, channel.store)),
            behind.arrives.eq(channel.store.any() & live),
        ]

        reads = Signal()
        m.d.comb += [
            reads.eq(active & ~dropping & (there + coming < _AHEAD)),
            request.valid.eq(behind.valid | reads),
            request.payload.address.eq(Mux(behind.valid, behind.front[:32], word)),
            request.payload.data.eq(stored[: config.word_bits]),
            request.payload.store.eq(Mux(behind.valid, stored[config.word_bits :], 0)),
            behind.pop.eq(behind.valid & request.ready),
        ]
        step = Signal()  # a word of a burst is requested
        m.d.comb += step.eq(reads & ~behind.valid & request.ready)
        with m.If(step):
            m.d.sync += [word.eq(word + 1), left.eq(left - 1), active.eq(left != 0)]
        with m.If(bursts.valid & (~active | (step & (left == 0)))):
            m.d.comb += bursts.pop.eq(1)
            m.d.sync += [active.eq(1), word.eq(bursts.front[:32]), left.eq(bursts.front[32:])]
        m.d.sync += [
            there.eq(there + ahead.arrives - ahead.pop),
            coming.eq(coming + step - self.answers),
            waiting.eq(waiting + behind.arrives - behind.pop),
        ]
        with m.If(coming == 0):
            m.d.sync += dropping.eq(0)
        with m.If(self.reset):
            m.d.sync += [active.eq(0), there.eq(0), dropping.eq(1)]
        needed = Mux(self.run, channel.coming, channel.due)
        enough = (there > 1) | ((there == 1) & ~ahead.pop)
        m.d.comb += self.may_run.eq((~needed | enough) & (waiting < _BEHIND - 1))
        return m
