"""The loop nests of a schedule and the words that it moves, as data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Flow:
    """Words of a layer that MOVEs bring from one kind of memory into another. `moved`: all; `values`: the different
    ones among them. `stays`: cycles from their arrival to the end of the last operation that reads them, times words;
    `stayed`: words that are counted in that."""

    moved: int = 0
    values: set[int] = field(default_factory=set[int])
    stays: int = 0
    stayed: int = 0


@dataclass(frozen=True)
class GemmTile:
    """A GEMM: `p`, `n`, `k` number its tile within its layer; pixels, output channels and products for each of them.
    `fresh`: words of operand memories A and B that it is the first to read."""

    core: int
    p: int
    n: int
    k: int
    pixels: int
    channels: int
    depth: int
    fresh: tuple[int, int]


@dataclass
class LayerTiles:
    """A layer: its GEMMs in the order of the schedule and the nest that they follow (None: it has none), how many VECs
    it has, and its traffic, by the names of the memories that it is between. `cycles`: predicted, first and last."""

    gemms: list[GemmTile] = field(default_factory=list[GemmTile])
    vectors: int = 0
    flows: dict[tuple[str, str], Flow] = field(default_factory=dict[tuple[str, str], Flow])
    cycles: tuple[int, int] | None = None
    nest: Nest | None = None


@dataclass(frozen=True)
class Load:
    """What each iteration of a loop brings into a core's `memory`: so many words in the mean. They stay there for all
    loops inside it, and for all iterations of the outer loops `once`, by depth: they come in the first one only."""

    memory: str
    words: float
    once: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """A loop over tiles of `dimensions` (several: in step), `count` iterations. Without dimensions: `count` GEMMs in no
    nest. `reverses`: whether every other pass goes backwards."""

    dimensions: tuple[str, ...]
    count: int
    loads: tuple[Load, ...] = ()
    reverses: bool = False


@dataclass(frozen=True)
class Nest:
    """The loops of a core, outermost first, and what one GEMM in them does. `before`: what comes before the first loop
    and stays for all of them. `share`: the part of its GEMMs that follow
    them. `parts`: into how many parts the cores divide each dimension among themselves; `cores`: how many have work."""

    loops: tuple[Loop, ...]
    before: tuple[Load, ...]
    gemm: GemmTile
    share: float
    parts: dict[str, int]
    cores: int
