"""All DRAM channels of a board in one SDRAM, and the host link's way to it."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..wiring.axi import AXI4, AXI4Port
from .link import MemoryBus, MemoryPort
from .paced import PacedChannel, access_layout
from .sdram import BUS_BITS, SDRAM_BYTES, SLOWEST, Sdram, SdramPins, SdramPinsPort, SdramTimes


def check_size(config: ChipConfig) -> None:
    """Raises ValueError for a chip whose DRAM is larger than the SDRAM."""
    size = len(config.channels) * config.dram.words * config.lanes
    if size > SDRAM_BYTES:
        raise ValueError(f"{size:,} bytes of DRAM, and SDRAM has {SDRAM_BYTES:,} for all: take a smaller dram.words")


class SdramStore(wiring.Component):
    """Serves the requests of channels (`request_<i>`, answered by `answers_<i>` with `word`) and of `link`. The link
    goes last, behind all that channels have written; of the channels the first that asks goes. Channel i begins at word
    i * `dram.words`. A request is taken into a register, from which the controller (`Sdram`, with `pins`) has it.
    Raises what `Sdram` and `check_size` raise.
    """

    link: MemoryPort
    word: Signal
    pins: SdramPinsPort

    def __init__(self, config: ChipConfig, clock: float, times: SdramTimes = SLOWEST) -> None:
        check_size(config)
        self.config, channels = config, len(config.channels)
        self._sdram = Sdram(8 * config.lanes // BUS_BITS, clock, channels + 1, times)
        members: dict[str, Any] = {}
        for index in range(channels):
            members[f"request_{index}"] = In(stream.Signature(access_layout(config)))
            members[f"answers_{index}"] = Out(1)
        members |= {"link": In(MemoryBus(config.lanes)), "word": Out(config.word_bits), "pins": Out(SdramPins())}
        super().__init__(members)

    def request(self, index: int) -> stream.Interface:
        """Of a channel."""
        return getattr(self, f"request_{index}")

    def answers(self, index: int) -> Signal:
        """A channel's word is there."""
        return getattr(self, f"answers_{index}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, link, sdram = self.config, self.link, self._sdram
        channels = range(len(config.channels))
        m.submodules.sdram = sdram
        wiring.connect(m, sdram.pins, wiring.flipped(self.pins))
        of_link = len(channels)
        pending, done, kept = Signal(), Signal(), Signal(config.word_bits)  # the link's read is under way; has its word
        takes, served = Signal(), Signal()
        m.d.comb += takes.eq(~sdram.request.valid | sdram.request.ready)
        item: Any = sdram.request.payload
        base: Value = Const(0)
        for index in channels:
            base = Mux(link.channel == index, index * config.dram.words, base)
        m.d.comb += [link.ready.eq(served | done), link.answer.eq(kept), self.word.eq(sdram.word)]
        m.d.sync += done.eq(0)
        with m.If(takes):
            m.d.sync += sdram.request.valid.eq(0)
            free: Value = Const(1)
            for index in channels:
                request = self.request(index)
                payload: Any = request.payload
                with m.If(free & request.valid):
                    m.d.comb += request.ready.eq(1)
                    m.d.sync += [
                        sdram.request.valid.eq(1),
                        item.tag.eq(index),
                        item.address.eq(payload.address + index * config.dram.words),
                        item.data.eq(payload.data),
                        item.store.eq(payload.store),
                    ]
                free &= ~request.valid
            with m.If(free & (link.write | (link.read & ~pending & ~done))):
                m.d.comb += served.eq(link.write)
                m.d.sync += [
                    sdram.request.valid.eq(1),
                    item.tag.eq(of_link),
                    item.address.eq(base + link.address),
                    item.data.eq(link.data),
                    item.store.eq(Mux(link.write, -1, 0)),
                    pending.eq(link.read),
                ]
        for index in channels:
            m.d.comb += self.answers(index).eq(sdram.answers & (sdram.tag == index))
        with m.If(sdram.answers & (sdram.tag == of_link)):
            m.d.sync += [kept.eq(sdram.word), pending.eq(0), done.eq(1)]
        return m


class PacedMemory(wiring.Component):
    """The DRAM channels of a chip (`axi_<i>`) on one SDRAM, to the cycle as the simulators' in cycles of the chip's
    clock, which ticks at the end of the cycles that `run`. `reset` is that of the chip, whose clock ticks meanwhile;
    what is stored stays. Raises what `SdramStore` raises.
    """

    link: MemoryPort
    reset: Signal
    run: Signal
    pins: SdramPinsPort

    def __init__(self, config: ChipConfig, clock: float, times: SdramTimes = SLOWEST) -> None:
        self._store = SdramStore(config, clock, times)
        self._channels = [PacedChannel(config) for _ in config.channels]
        bus = AXI4(address_bits=32, data_bits=config.word_bits)
        super().__init__(
            {f"axi_{index}": In(bus) for index in range(len(config.channels))}
            | {"link": In(MemoryBus(config.lanes)), "reset": In(1), "run": Out(1), "pins": Out(SdramPins())}
        )

    def axi(self, index: int) -> AXI4Port:
        """Of a channel."""
        return getattr(self, f"axi_{index}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = self._store
        wiring.connect(m, wiring.flipped(self.link), store.link)
        wiring.connect(m, store.pins, wiring.flipped(self.pins))
        for index, channel in enumerate(self._channels):
            m.submodules[f"channel_{index}"] = channel
            wiring.connect(m, wiring.flipped(self.axi(index)), channel.axi)
            wiring.connect(m, channel.request, store.request(index))
            m.d.comb += [
                channel.answers.eq(store.answers(index)),
                channel.word.eq(store.word),
                channel.reset.eq(self.reset),
                channel.run.eq(self.run),
            ]
        may_run = Cat(*(channel.may_run for channel in self._channels)).all()
        stands = Signal()  # from reset on the clock ticks
        m.d.sync += stands.eq(~may_run & ~self.reset)
        m.d.comb += self.run.eq(~stands)
        return m
