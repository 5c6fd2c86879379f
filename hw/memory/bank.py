"""A bank of the shared scratchpad."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..spec.config import ChipConfig
from ..wiring.ecc import coded_data, error_ports, show_errors, word_memory
from ..wiring.signatures import word_read, word_write


class Bank(wiring.Component):
    """`spm_words` words with one write and one read port.

    A write is accepted every cycle and is visible to reads from the next cycle on; a read accepted in cycle t returns
    its word in t + 1, which is undefined if it is written in t (`word_memory`). With `ecc`: `corrected` and `lost`
    (`hw.wiring.ecc`).
    """

    write: stream.Interface
    read: stream.Interface
    read_data: Signal
    corrected: Signal  # with `ecc` only, like `lost`
    lost: Signal

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__(
            {"write": In(word_write(config)), "read": In(word_read()), "read_data": Out(config.coded_bits)}
            | error_ports(config)
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = word_memory(self.config.word_bits, self.config.spm_words, self.config.ecc)
        write, read = words.write_port(), words.read_port()
        m.d.comb += [
            self.write.ready.eq(1),
            write.addr.eq(self.write.payload.offset),
            write.data.eq(self.write.payload.data),
            write.en.eq(self.write.valid),
            self.read.ready.eq(1),
            read.addr.eq(self.read.payload.offset),
            read.en.eq(self.read.valid),
            self.read_data.eq(coded_data(read)),
        ]
        show_errors(m, self, words)
        return m
