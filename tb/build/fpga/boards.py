"""Boards for which there are bitstreams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class BoardError(ValueError):
    """A board, or what it is to run, that cannot be: nothing has been made."""


@dataclass(frozen=True)
class Room:
    """What an FPGA has: LUTs with four inputs, block RAMs of 2 KiB, multipliers of 18 by 18 bits."""

    luts: int
    block_rams: int
    multipliers: int


@dataclass(frozen=True)
class FpgaBoard:
    """`loader`: what `openFPGALoader -b` calls it; `platform`: module and class of its definition in amaranth-boards;
    `oscillator`: its clock in MHz; `device`: nextpnr's options for its FPGA; `room`: what that has;
    `sdram`: it has SDRAM as `hw.board.sdram` knows it."""

    loader: str
    platform: str
    oscillator: float
    device: tuple[str, ...]
    room: Room
    sdram: bool = False

    @property
    def block_ram(self) -> int:
        """Bytes."""
        return self.room.block_rams << 11


#: What an ECP5 has, by the end of its name.
_ROOM = {"25k": Room(24288, 56, 28), "85k": Room(83640, 208, 156)}


def _ecp5(
    loader: str, platform: str, oscillator: float, size: str, package: str, speed: int, sdram: bool = False
) -> FpgaBoard:
    device = (f"--{size}", "--package", package, "--speed", str(speed))
    return FpgaBoard(loader, f"{loader}:{platform}", oscillator, device, _ROOM[size[-3:]], sdram)


#: By name.
BOARDS: Mapping[str, FpgaBoard] = {
    "ulx3s": _ecp5("ulx3s", "ULX3S_85F_Platform", 25, "85k", "CABGA381", 6, sdram=True),
    "ulx3s_25f": _ecp5("ulx3s", "ULX3S_25F_Platform", 25, "25k", "CABGA381", 6, sdram=True),
    "ecpix5": _ecp5("ecpix5", "ECPIX585Platform", 100, "um5g-85k", "CABGA554", 8),
}


def board(name: str) -> FpgaBoard:
    """The board of that name. Raises BoardError."""
    if name not in BOARDS:
        raise BoardError(f"unknown board {name!r}: known are {', '.join(BOARDS)}")
    return BOARDS[name]
