"""What a core keeps in its own memories: which slot of A and B holds which tile when, and where partial sums lie.

The sequence of a core's operations is known, so tiles are kept that are used again soonest. Partial sums stay in ACC
while the same core goes on with them; otherwise they are handed to the scratchpad (or, if they are spilled next, to
DRAM) as soon as they are complete.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from meshloom.hw.spec.config import ChipConfig

from ...mapping.tiling.arena import TileResidency, assign
from ...mapping.tiling.problem import DoesNotFit
from .state import MOST_RESULTS, bias_rows
from .tiles import Tiles

_NEVER = 1 << 60


@dataclass
class Operation:
    """One tiled convolution on its way into a schedule: tile numbers, core, and its place in the core's sequence.

    `depth`: how many tiles of input blocks its sums have before; `slot` of its sums in ACC (-1: none), `result`: slot
    in OUT. `pull`: its sums come from the scratchpad; `keep`: the sums it makes stay for the core's next operation on
    them; `spilled`: they leave for DRAM before the next one.
    """

    m: int
    n: int
    k: int
    core: int
    index: int
    depth: int
    slot: int = -1
    result: int = -1
    pull: bool = False
    keep: bool = False
    spilled: bool = False


@dataclass
class Residence:
    """A core's memories: stays of tiles by the index of the operation that begins them; slot sizes in words."""

    a: dict[int, TileResidency] = field(default_factory=dict[int, TileResidency])
    b: dict[int, TileResidency] = field(default_factory=dict[int, TileResidency])
    bias: dict[int, TileResidency] = field(default_factory=dict[int, TileResidency])
    a_of: list[TileResidency] = field(default_factory=list[TileResidency])
    b_of: list[TileResidency] = field(default_factory=list[TileResidency])
    bias_of: list[TileResidency] = field(default_factory=list[TileResidency])


@dataclass(frozen=True)
class Slots:
    """How the memories of all cores are divided (words; ACC in rows)."""

    a_size: int
    a: int
    b_size: int
    b: int
    bias_size: int
    bias: int
    sums_base: int
    sums_size: int
    sums: int
    out_size: int
    out: int


def divide(tiles: Tiles, chip: ChipConfig) -> Slots:
    """Slots for the largest tiles. Raises DoesNotFit when a memory is too small for one."""
    core = chip.core
    a_size, b_size = int(tiles.in_words.max()), int(tiles.wt_words.max())
    out_size = tiles.m_most * tiles.n_most
    bias = bias_rows(tiles, chip)
    sums = (core.acc_words - bias) // out_size if len(tiles.k) > 1 else 0
    slots = Slots(
        a_size=a_size, a=core.a_words // a_size, b_size=b_size, b=core.b_words // b_size,
        bias_size=tiles.n_most,
        bias=bias // tiles.n_most,
        sums_base=bias, sums_size=out_size, sums=sums,
        out_size=out_size, out=min(MOST_RESULTS, core.out_words // out_size),
    )  # fmt: skip
    for name, count in (("A", slots.a), ("B", slots.b), ("OUT", slots.out), ("ACC", slots.bias)):
        if not count:
            raise DoesNotFit(f"{name} of a {chip.name} core is too small for one tile of {tiles.tiling}")
    if len(tiles.k) > 1 and sums < 1:
        raise DoesNotFit(f"ACC of a {chip.name} core is too small for the sums of one tile of {tiles.tiling}")
    return slots


def _stays(keys: Sequence[Hashable], slots: int) -> tuple[dict[int, TileResidency], list[TileResidency]]:
    """Stays by their first use, and the stay that each use is part of."""
    residencies = assign(list(enumerate(keys)), slots)
    of: list[TileResidency | None] = [None] * len(keys)
    for residency in residencies:
        for index in range(residency.first, residency.last + 1):
            if keys[index] == residency.key:
                of[index] = residency
    return {residency.first: residency for residency in residencies}, [
        residency for residency in of if residency is not None
    ]


def reside(operations: Sequence[Operation], slots: Slots, private: bool = True) -> Residence:
    """Plans the memories of one core, whose `operations` these are in order. Not `private`: nothing stays there for
    the next operation."""
    residence = Residence()
    own = [0 if private else op.index for op in operations]
    residence.a, residence.a_of = _stays([(op.m, op.k, at) for op, at in zip(operations, own, strict=True)], slots.a)
    residence.b, residence.b_of = _stays([(op.n, op.k, at) for op, at in zip(operations, own, strict=True)], slots.b)
    residence.bias, residence.bias_of = _stays([op.n for op in operations], slots.bias)
    return residence


def link_sums(chains: dict[tuple[int, int], list[Operation]], private: bool = True) -> None:
    """Decides for each operation, in the order of its chain, whether its sums may stay in their core; if cores keep
    nothing (not `private`), none do."""
    for chain in chains.values():
        for one, following in zip(chain, chain[1:], strict=False):
            one.keep = private and following.core == one.core and not one.spilled
            following.pull = not one.keep


def place_sums(
    operations: Sequence[Operation], chains: dict[tuple[int, int], list[Operation]], slots: Slots, last: int
) -> None:
    """Gives the sums of one core's operations their slots of ACC, and finished results theirs of OUT.

    If too many would stay, those that are needed last are handed over instead.
    """
    held: dict[tuple[int, int], Operation] = {}  # sums that stay, by their last operation so far
    slot_of: dict[tuple[int, int], int] = {}
    free = list(range(slots.sums))
    results = 0

    def following(op: Operation) -> Operation:
        return chains[op.m, op.n][op.depth + 1]

    for op in operations:
        if op.depth == last:
            op.result = results % slots.out
            results += 1
        if last == 0:
            continue
        pair = op.m, op.n
        before = held.pop(pair, None)
        if before is not None:
            op.slot = slot_of[pair]
        else:
            if not free:
                victim = max(held, key=lambda other: following(held[other]).index)
                evicted = held.pop(victim)
                evicted.keep, following(evicted).pull = False, True
                free.append(slot_of[victim])
            op.slot = free.pop(0)
        if op.depth < last and op.keep:
            held[pair] = op
            slot_of[pair] = op.slot
        else:
            free.append(op.slot)
