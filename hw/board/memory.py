"""Where the DRAM of a board lies. No gateware library is imported here."""

from __future__ import annotations

from enum import StrEnum


class BoardMemory(StrEnum):
    """What a board's DRAM is made of."""

    BLOCK = "block"  #: block RAM of the FPGA
    SDRAM = "sdram"  #: SDRAM beside it
