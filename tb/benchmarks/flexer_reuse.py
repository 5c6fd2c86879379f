"""What schedules do with tiles: how often each is loaded (Figure 10), and what the cores share (Figure 11)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.playing import play
from meshloom.sched.papers.flexer.policy import Choice, Policy
from meshloom.sched.papers.flexer.state import LOAD, NEXT, RUN, STORE
from meshloom.sched.papers.flexer.tiles import Tiles

#: What is moved, and what the cores of a set may share.
KINDS, SHARED = ("inputs", "weights", "sums", "results"), ("inputs", "weights", "both", "nothing")


@dataclass(frozen=True)
class Reuse:
    """One schedule. `words` moved of each kind; `loads` of each kind: how many tiles are moved 1, 2, ... times.

    `shared`: how many sets share inputs only, weights only, both, or nothing.
    """

    cycles: int
    words: dict[str, int]
    loads: dict[str, dict[int, int]]
    shared: dict[str, int]


def unlimited(chip: ChipConfig) -> ChipConfig:
    """The chip with a scratchpad that holds any layer."""
    return chip.model_copy(update={"name": f"{chip.name}_all", "spm_words": 1 << 20})


def reuse(layer: LayerSearch, choice: Choice, policy: Policy) -> Reuse:
    """Plays a choice and counts."""
    _, cycles, _, log = play(layer.problem, layer.chip, choice, policy, record=True)
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
    loads = {kind: dict(sorted(Counter(count.values()).items())) for kind, count in times.items()}
    return Reuse(int(cycles), dict(words), loads, dict(shared))
