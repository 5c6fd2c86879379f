"""What schedules do with tiles: how often each is loaded (Figure 10), and what the cores share (Figure 11)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.playing import play
from meshloom.sched.papers.flexer.policy import OURS, PAPER, PAPER_STATIC, Choice, Policy
from meshloom.sched.papers.flexer.state import LOAD, NEXT, RUN, STORE
from meshloom.sched.papers.flexer.tiles import Tiles

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..points.runs import chip_of
from .layers import BUDGET, search_of, shape_of

#: Layers of both figures, and their architecture.
LAYERS, ARCH = ("vgg16/conv4_2", "resnet50/conv3_1_1"), "arch6"
#: Schedules that are counted; `unlimited`: the paper's, with a scratchpad that holds any layer.
POLICIES = {"unlimited": PAPER, "paper_static": PAPER_STATIC, "flexer": PAPER, "nest": OURS}
#: What is moved, and what the cores of a set may share.
KINDS, SHARED = ("inputs", "weights", "sums", "results"), ("inputs", "weights", "both", "nothing")


@dataclass(frozen=True)
class Reuse:
    """One schedule. `words` moved of each kind; `loads` of each kind: how many tiles are moved 1, 2, ... times.

    `shared`: how many sets share inputs only, weights only, both, or nothing.
    """

    words: dict[str, int]
    loads: dict[str, dict[int, int]]
    shared: dict[str, int]


@dataclass(frozen=True)
class ReusePoint(Point):
    """A layer by one of the schedules."""

    layer: str
    schedule: str
    row: ClassVar[Any] = Reuse

    @property
    def name(self) -> str:
        return f"reuse of {self.layer} by {self.schedule}"

    @property
    def chip(self) -> ChipConfig:
        """What it is scheduled for."""
        chip = chip_of(ARCH)
        if self.schedule != "unlimited":
            return chip
        return chip.model_copy(update={"name": f"{chip.name}_all", "spm_words": 1 << 20})

    @property
    def work(self) -> float:
        return 3.0

    def inputs(self) -> Inputs:
        more = ("chip", self.chip.digest), ("layer", f"{shape_of(self.layer)!r}, {BUDGET}")
        return Inputs(("sched.papers.flexer.layer", "tb.studies.flexer.reuse"), more)

    def measure(self, report: Report) -> Reuse:
        """Raises DoesNotFit."""
        policy = POLICIES[self.schedule]
        layer = search_of(shape_of(self.layer), self.chip)
        return reuse(layer, layer.decided(policy).choice, policy)


def points(full: bool) -> list[ReusePoint]:
    """Both layers by all schedules; quick: the first."""
    return [ReusePoint(layer, schedule) for layer in LAYERS[: None if full else 1] for schedule in POLICIES]


def reuses(rows: Rows) -> dict[tuple[str, str], Reuse]:
    """By layer and schedule."""
    return {(point.layer, point.schedule): row for point, row in rows.items() if isinstance(point, ReusePoint)}


def reuse(layer: LayerSearch, choice: Choice, policy: Policy) -> Reuse:
    """Plays a choice and counts."""
    _, _, _, log = play(layer.problem, layer.chip, choice, policy, record=True)
    events: list[list[int]] = log.tolist()
    tiles = Tiles(layer.problem, choice.tiling)
    m, n, k = tiles.shape
    edges = np.array([0, m * k, (m + n) * k, (m + n) * k + m * n])
    words: Counter[str] = Counter({"results": int(tiles.out_words.sum())})
    times: dict[str, Counter[int]] = {kind: Counter() for kind in KINDS}
    times["results"].update(range(m * n))
    for event, tile, _, size in events:
        if event in (LOAD, STORE):
            kind = KINDS[int(np.searchsorted(edges, tile, side="right")) - 1]
            words[kind] += size
            times[kind][tile] += 1
    loads = {kind: dict(sorted(Counter(count.values()).items())) for kind, count in times.items()}
    return Reuse(dict(words), loads, _shared(events, n, k))


def _shared(events: list[list[int]], n: int, k: int) -> dict[str, int]:
    """Sets of operations by what their cores share."""
    shared: Counter[str] = Counter()
    running: list[tuple[int, int, int]] = []
    for event, what, _, _ in [*events, [NEXT, 0, 0, 0]]:
        if event == RUN:
            pair, deep = divmod(what, k)
            running.append((pair // n, pair % n, deep))
        elif event == NEXT and running:
            inputs = len({(one, deep) for one, _, deep in running}) < len(running)
            weights = len({(two, deep) for _, two, deep in running}) < len(running)
            shared["both" if inputs and weights else "inputs" if inputs else "weights" if weights else "nothing"] += 1
            running = []
    return dict(shared)
