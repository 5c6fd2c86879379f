"""Room in DRAM that several networks have in common: what one of them leaves there, another one reads where it lies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """Room for one row of `positions` pixels of `channels` channels. Networks on one chip that name the same regions in
    the same order have them in the same place, whether they use them or not. `groups`: of channels that may begin with
    a word of their own (heads of an attention)."""

    name: str
    channels: int
    positions: int
    groups: int = 1

    def planes(self, lanes: int, cols: int) -> int:
        """Words of a pixel, enough for every tensor of so many channels on a chip of these sizes."""
        return self.groups * -(-(self.channels // self.groups) // min(lanes, cols))


@dataclass(frozen=True)
class View:
    """An input or an output of one row of pixels that lies in a region, from pixel `first` on."""

    value: str
    region: str
    first: int = 0
