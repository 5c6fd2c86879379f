"""The CRC of frames."""

from __future__ import annotations

from typing import Protocol, cast

from amaranth.hdl import Module, Signal
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC


class Crc(Protocol):
    """CRC-32 over bytes (`amaranth.lib.crc.Processor`): a byte in each cycle with `valid`; its `crc` is there in the
    next, and so is `match_detected`, of bytes with their CRC behind them. `start` begins anew with the byte of the
    cycle."""

    start: Signal
    data: Signal
    valid: Signal
    crc: Signal
    match_detected: Signal


def crc_in(m: Module) -> Crc:
    """A CRC as a submodule."""
    m.submodules.crc = processor = CRC32_ISO_HDLC(data_width=8).create()
    return cast("Crc", processor)
