"""State of a network in DRAM, and room there that several networks have in common: what one of them leaves in it,
another one reads where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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


class ConstantPlace(NamedTuple):
    """Words `first` .. `first + words - 1` of a constant's packed form lie in DRAM `tile` from word `address` on."""

    tile: int
    address: int
    first: int
    words: int


@dataclass(frozen=True)
class Cache:
    """State that stays in DRAM between runs, and that a run appends to.

    `rows`: a `paste`, in one row of pixels, of the input `past` and of `new`, which the run computes. It lies in a
    region of `positions` pixels, as a view: `new` is stored behind `past` where that lies, and nothing is copied. The
    next run's view begins as many pixels further as `new` has. `region`: which of the network's it is ("": its own).
    """

    rows: str
    past: str
    new: str
    positions: int
    region: str = ""
