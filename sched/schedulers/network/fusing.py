"""What goes with a 1x1 convolution: the depthwise one before it, and the one before that, or neither."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from meshloom.hw.spec.config import ChipConfig

from ...workload.graph import Graph
from ...workload.stages import cut
from .sharing import Change, SharingOptions


class FusionDepth(StrEnum):
    """How much is computed together with a convolution; in the order in which it is tried."""

    APART = "apart"  #: nothing: what lies between goes through memory
    EXPANDED = "expanded"  #: the depthwise convolution before it, and the convolution before that one
    PAIR = "pair"  #: the depthwise convolution before it


@dataclass(frozen=True)
class Fusible:
    """The convolutions of a network that a depthwise one can go with. `pairs`: their names; `wide`: those of them that
    the one before the depthwise one can go with, too, and that one."""

    pairs: tuple[str, ...]
    wide: Mapping[str, str]

    @property
    def residuals(self) -> frozenset[str]:
        """Those of `wide` that have no neighbour to go with. In a chain of pairs each convolution has two, and alone it
        seldom pays."""
        return frozenset(name for name, first in self.wide.items() if first not in self.pairs)

    @property
    def owners(self) -> dict[str, str]:
        """With which convolution others may be computed."""
        return {first: name for name, first in self.wide.items()}

    def by_size(self, graph: Graph, least: int = 2) -> dict[str, frozenset[str]]:
        """Of each convolution those whose results are as large, itself among them; of those that are so many at least.
        Layers of one size gain or lose by the same."""
        groups: dict[int, set[str]] = {}
        for name in self.pairs:
            value = graph.value(name)
            groups.setdefault(value.height * value.width, set()).add(name)
        several = [frozenset(group) for group in groups.values() if len(group) >= least]
        return {name: group for group in several for name in group}

    def changes(
        self, names: Collection[str], fusions: Iterable[FusionDepth], roomless: Collection[tuple[str, FusionDepth]]
    ) -> Iterator[Change]:
        """Each of some fusions, for those of some layers that it can be; `roomless`: what has no room."""
        for fusion in fusions:
            able = frozenset(names).intersection(self.wide if fusion is FusionDepth.EXPANDED else self.pairs)
            if fusion is not FusionDepth.APART:  # without room for a pair there is none for more
                able = frozenset(
                    able.difference(name for name, depth in roomless if depth in (fusion, FusionDepth.PAIR))
                )
            if able:
                yield partial(fuse, able, fusion)


def fuse(names: frozenset[str], fusion: FusionDepth, sharing: SharingOptions) -> SharingOptions:
    """As much as `fusion` says goes with some convolutions."""
    apart, expanded = sharing.apart - names, sharing.expanded - names
    match fusion:
        case FusionDepth.APART:
            apart |= names
        case FusionDepth.EXPANDED:
            expanded |= names
        case FusionDepth.PAIR:
            pass
    return replace(sharing, apart=apart, expanded=expanded)


def with_room(sharing: SharingOptions, roomless: Collection[tuple[str, FusionDepth]]) -> SharingOptions:
    """`sharing` without what has no room to be computed together."""
    for name, depth in roomless:
        without = FusionDepth.APART if depth is FusionDepth.PAIR else FusionDepth.PAIR
        sharing = fuse(frozenset((name,)), without, sharing)
    return sharing


def fusible(graph: Graph, chip: ChipConfig, sharing: SharingOptions) -> Fusible:
    """What of a network can be fused."""
    if not sharing.fused or (sharing.planner is not None and sharing.planned is None):
        return Fusible((), {})
    pairs = [stage.layer.output for stage in cut(graph, chip, pastes=True, by_channel=True).stages if stage.before]
    wide: dict[str, str] = {}
    for name in pairs:
        for stage in cut(graph, chip, pastes=True, expanded=(name,), by_channel=True).stages:
            if stage.expand:
                wide[name] = stage.expand.output
    return Fusible(tuple(pairs), wide)
