"""What the layers of a network's schedule have in common, and what each does otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig, TileKind

from . import conv
from .storage import STAGING_SHARE, Between

#: Switches of a convolution's candidate that a network may turn.
SWITCHES = ("tight", "ramp_rows", "tail_rows", "edges", "fair")
#: Cycles of computing by which operands are fetched ahead of their use: the best of these is taken.
HORIZONS = (1500, 4000, 12000)


@dataclass(frozen=True)
class SharingOptions:
    """What the layers of a network have in common.

    `between`: where tensors lie; `fused`: whether additions and max pools go with the convolution before them, max
    pools even if rows are computed twice for it (`tight`); `apart`: 1x1 convolutions, by name, with which the depthwise
    one before them doesn't go; `expanded`: those with which the convolution before that one goes, too; `second`,
    `third`: convolutions with that one of the best of their loop nests; `turned`: convolutions with switches of their
    candidate that are the other way (`SWITCHES`); `pushed`: layers, with a kind of memory, to whose cores its tiles
    send on their own what the cores otherwise ask for; `staging`: the part of each bank, 1 / this, that weights are
    staged in; `whole`: whether pictures of few channels may be packed by whole windows; `horizon`: see
    `mapping.play.interleave` (None: the best of a few by the estimate); `deep`: weights of layers that only stream them
    (`streams`) have all of B, so that more are there when what such a layer waits for ends; `copied`: layers whose
    words for several cores one MOVE brings, where routers copy packets (`multicast`); `planner`: who makes convolutions
    instead of the loop nests: those of `planned` that can be made as if they were alone (`mixing`), or all (None), with
    nothing fused.
    """

    between: Between = Between.WHOLE
    fused: bool = True
    tight: bool = False
    apart: frozenset[str] = frozenset()
    expanded: frozenset[str] = frozenset()
    second: frozenset[str] = frozenset()
    third: frozenset[str] = frozenset()
    turned: frozenset[tuple[str, str]] = frozenset()
    pushed: frozenset[tuple[str, TileKind]] = frozenset()
    staging: int = STAGING_SHARE
    whole: bool = False
    horizon: int | None = None
    deep: bool = False
    copied: frozenset[str] = frozenset()
    planner: conv.Planner | None = None
    planned: frozenset[str] | None = None


#: What a schedule does otherwise than another one.
Change = Callable[[SharingOptions], SharingOptions]


def streams(pixels: int, chip: ChipConfig) -> bool:
    """Whether a layer with so many pixels of output takes each weight once: the array holds all of them together."""
    return pixels <= chip.rows


#: Each layer by itself: tensors between layers in DRAM, nothing fused.
LAYERWISE = SharingOptions(Between.DRAM, fused=False)
