"""DRAM of block RAM behind an AXI4 port, with a second way in for the host link."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In

from ..spec.config import ChipConfig
from ..wiring.axi import AXI4, AXI4Port
from .channel import DramChannel
from .link import MemoryBus, MemoryPort


class BlockRam(wiring.Component):
    """A DRAM channel of a chip, to the cycle as the simulators' (`DramChannel`), as long as `link` asks for nothing.
    `reset` is that of the chip: what is stored stays.

    `link` (`MemoryBus` without `channel`) goes first, and is answered at once: a beat of the chip that would go in the
    same cycle waits.
    """

    axi: AXI4Port
    link: MemoryPort
    reset: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        bus = AXI4(address_bits=32, data_bits=config.word_bits)
        super().__init__({"axi": In(bus), "link": In(MemoryBus(config.lanes)), "reset": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, link = self.config, self.link
        m.submodules.channel = channel = DramChannel(config)
        wiring.connect(m, wiring.flipped(self.axi), channel.axi)
        m.submodules.words = words = memory.Memory(shape=config.word_bits, depth=config.dram.words, init=[])
        port = words.write_port(granularity=8)
        read = words.read_port(transparent_for=[port])
        m.d.sync += channel.fresh.eq(~link.read)
        m.d.comb += [
            channel.reset.eq(self.reset),
            channel.pause.eq(link.read | link.write),
            # the word of the next cycle's beat, unless the link reads
            read.addr.eq(Mux(link.read, link.address, channel.next_word)),
            channel.fetched.eq(read.data),
            link.answer.eq(read.data),
            link.ready.eq(1),
            port.addr.eq(Mux(link.write, link.address, channel.stored)),
            port.data.eq(Mux(link.write, link.data, channel.data)),
            port.en.eq(Mux(link.write, -1, channel.store)),
        ]
        return m
