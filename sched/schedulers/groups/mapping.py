"""The mapping of a network in fused groups, as tools of the field print it.

The layers of a group share loops (over pixels and channels of any of them). In each iteration each layer computes a
tile on its cores, and passes it on to the cores of the layers that read it; only what leaves the group goes to DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.schedule import ToolClaim
from ..nest.mapping import LayerMapping


@dataclass(frozen=True)
class GroupLayer:
    """A layer of a group. `loops`: which of the group's loops those that its mapping has outside the core are, both
    innermost first (0: the group's innermost)."""

    mapping: LayerMapping
    loops: tuple[int, ...]


@dataclass(frozen=True)
class FusedGroup:
    """Layers that are computed together, by the names of their results. `loops`: how many loops they share."""

    layers: Mapping[str, GroupLayer]
    loops: int


@dataclass(frozen=True)
class GroupedNetwork:
    """How a tool maps a network: groups, one after the other, and what it claims of all of them."""

    groups: Sequence[FusedGroup]
    claim: ToolClaim
