"""What a training step may do across its layers; none of it changes a byte of a result.

A layer's gradients computed by themselves leave units idle wherever dX is on its way to the layer before. Only dX is
on that way: nobody waits for dW but the update. So dW can give way until a unit has nothing else to do, as between the
stages of a pipeline in P. Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), here between a core's units.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule
from ...lowering.predict import predict
from ...mapping.play.ranked import Rank, fastest, in_order


class Across(StrEnum):
    """One thing that a step may do across layers."""

    OVERLAP = "overlap"  #: operations start when what they need is there, of whatever layer they are
    KEEP = "keep"  #: what the core has anyway is neither stored nor loaded again: gradients at sums, maps for masks
    DEFER = "defer"  #: as overlap, but who has the longest way to the end goes first, so that dW gives way to dX


@dataclass(frozen=True)
class Reordered:
    """Operations in another order, and where the multipliers now are (`step.Half.multipliers`)."""

    schedule: Schedule
    multipliers: dict[int, str]


def named(some: Collection[Across]) -> str:
    """Their names in one fixed order, with commas; `none` for none."""
    return ",".join(each for each in Across if each in some) or "none"


def ranks_of(some: Collection[Across]) -> tuple[Rank, ...]:
    """How those that order operations do it."""
    ranks = {Across.OVERLAP: Rank.PLACE, Across.DEFER: Rank.WAY}
    return tuple(rank for each, rank in ranks.items() if each in some)


def reordered(schedule: Schedule, multipliers: Mapping[int, str], chip: ChipConfig, ranks: Sequence[Rank]) -> Reordered:
    """The fastest order of a list's operations (`ranked.fastest`); all give the same bytes."""
    order, _ = fastest(schedule, chip, ranks, predict)
    place = {old: new for new, old in enumerate(order)}
    return Reordered(in_order(schedule, order), {place[index]: name for index, name in multipliers.items()})
