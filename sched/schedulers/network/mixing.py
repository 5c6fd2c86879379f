"""Convolutions of a network that somebody else than the loop nests makes, and the words that are theirs meanwhile.

Who makes a convolution as if it were alone (`conv.Planner`) needs its input and its result in DRAM, and nothing behind
it. The scratchpad it has to share with tensors that lie there while the convolution runs: it gets the longest run of
words that is free in all banks.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshloom.hw.spec.config import ChipConfig, TileKind

from ...mapping.memory.placement import Stored
from ...mapping.tiling.tiles import Range
from ...workload.stages import Stage, Stages
from .conv import ConvTask
from .storage import lives


def alone(stage: Stage, task: ConvTask, chip: ChipConfig) -> bool:
    """Whether a convolution can be made as if it were alone: nothing goes with it, each lane has the same multiplier,
    whole windows are not packed, and what it reads and writes lies in DRAM."""
    homes = task.x.homes | task.y.homes
    return (
        stage.epilogue is None
        and stage.before is None
        and stage.layer.scales is None
        and not task.whole
        and all(chip.tiles[home] is TileKind.DRAM for home in homes)
    )


def free_words(cut: Stages, stored: Mapping[str, Stored], chip: ChipConfig, index: int) -> Range:
    """The longest run of words, from and to, that no tensor has in any bank while stage `index` runs."""
    busy = [
        (piece.address, piece.address + piece.words)
        for life in lives(cut)
        if life.first <= index <= life.last
        for piece in stored[life.name].pieces()
        if chip.tiles[piece.tile] is TileKind.SPM
    ]
    at, best = 0, (0, 0)
    for low, high in [*sorted(busy), (chip.spm_words, chip.spm_words)]:
        if low - at > best[1] - best[0]:
            best = at, low
        at = max(at, high)
    return best
