"""How good a partition is: what searches for partitions ask, each time they look at one.

Klotski (Equation 3) maximises the entropy of the shares that micro-ops have in all cycles, over a multiple of the
makespan, or of their mean latency, which "is effective" too. The makespan by itself is the plain objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...schedulers.network.form import form
from ...store.described import described
from ...store.findings import SearchCache
from ...workload.stages import Stages
from .cutting import Ints, cut_up
from .partition import Partition, fit
from .playing import Cores, play
from .work import Extent, StageWork, works


class Objective(StrEnum):
    """What is maximised: entropy over makespan, entropy over mean latency (Equation 3), or the makespan's inverse."""

    ENTROPY = "entropy / makespan"
    MEAN = "entropy / mean"
    MAKESPAN = "makespan"


@dataclass(frozen=True)
class Trial:
    """A partition that was tried. `parts`: rows, columns, planes, depth of the micro-ops of each stage; `count`: of
    micro-ops; `kinds`: shapes among them, of all stages; `entropy`: in nats; `mean`: cycles of a micro-op; `makespan`,
    `bound`: cycles (see `playing`)."""

    parts: tuple[tuple[int, int, int, int], ...]
    count: int
    kinds: int
    entropy: float
    mean: float
    makespan: int
    bound: int

    def value(self, objective: Objective, alpha: float) -> float:
        """Equation 3 with its coefficient, or its like. `alpha`: 1 over cycles, so that values are about 1."""
        match objective:
            case Objective.ENTROPY:
                return self.entropy / (alpha * self.makespan)
            case Objective.MEAN:
                return self.entropy / (alpha * self.mean)
            case Objective.MAKESPAN:
                return 1 / (alpha * self.makespan)

    def partitions(self, chip: ChipConfig) -> list[Partition]:
        """The same, as `micro_ops` takes it."""
        return [Partition.of(Extent(*part), chip) for part in self.parts]


_TRIAL = TypeAdapter(Trial)


def trial_cache(folder: Path | None, chip: ChipConfig) -> SearchCache:
    """Where trials are kept below `folder` (None: in this process only). Raises SettingError."""
    return SearchCache(folder, chip, "partitions", __name__.partition(".")[2])


def entropy(latencies: Ints) -> float:
    """Of the shares of micro-ops in all cycles, in nats: ln n if all are alike."""
    shares = latencies / latencies.sum()
    return float(-(shares * np.log(shares)).sum())


def _form(stages: Stages) -> str:
    """A digest of a network, and of how it is cut into stages."""
    names = [(stage.layer.output, stage.y, stage.r, stage.reads) for stage in stages.stages]
    cut = stages.roots, stages.members, stages.places, stages.lanes
    return sha256(described((form(stages.graph), names, cut)).encode()).hexdigest()


class Judge:
    """Tries partitions of one network on one chip. `memory`: keeps trials, so that a search that was interrupted goes
    on where it was. `looked`: partitions that were asked for. Raises DoesNotFit for a network that the chip lacks the
    instructions or the memory for."""

    def __init__(self, stages: Stages, chip: ChipConfig, memory: SearchCache | None = None) -> None:
        self.stages, self.chip, self.memory = stages, chip, memory
        self.works: tuple[StageWork, ...] = works(stages, chip)
        self.cores = Cores.of(chip)
        self.looked = 0
        self._network = _form(stages)

    @cached_property
    def alpha(self) -> float:
        """Coefficient of objectives: of the cycles that all stages would take uncut, shared by all cores."""
        cycles = sum(work.cycles(self.chip, work.whole, (0, work.whole.columns)) for work in self.works)
        return len(self.cores) / cycles

    def fitted(self, extents: Sequence[Extent]) -> list[Extent]:
        """The nearest sizes that fit cores."""
        return [fit(work, self.chip, extent) for work, extent in zip(self.works, extents, strict=True)]

    def look(self, extents: Sequence[Extent]) -> Trial:
        """Tries a partition (the nearest that fits)."""
        self.looked += 1
        parts = self.fitted(extents)
        question = self._network, tuple(parts)
        trial = self.memory.get(question, _TRIAL) if self.memory else None
        if trial is None:
            trial = self._look(parts)
            if self.memory:
                self.memory.put(question, _TRIAL, trial)
        return trial

    def _look(self, parts: Sequence[Extent]) -> Trial:
        cutting = cut_up(self.stages, self.works, parts, self.chip)
        played = play(cutting, self.cores)
        return Trial(
            parts=tuple((part.rows, part.columns, part.planes, part.depth) for part in parts),
            count=cutting.count,
            kinds=sum(len(np.unique(grid.kinds)) for grid in cutting.grids),
            entropy=entropy(cutting.cycles),
            mean=float(cutting.cycles.mean()),
            makespan=played.makespan,
            bound=played.bound,
        )
