"""Which of a network's choices suit each other: the timeline model decides, by whole schedules.

Each layer's loop nests are chosen by an estimate of the layer alone, and the list of all operations by an estimate of
the whole; both leave out much of what one layer does to the next. The timeline model leaves out nothing, so what it
says about a whole schedule is what the chip does. A descent changes one choice at a time and keeps what is faster:
depthwise convolutions fused with the 1x1 ones behind them, all or none; how far ahead operands are fetched; each fused
pair by itself; the second best loop nests of the layers with the most products.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import TypeAdapter

from meshloom.hw.config import ChipConfig

from ...lowering.predict import predict
from ...mapping.problem import DoesNotFit
from ...mapping.stages import cut
from ...store.findings import SearchCache
from ...workload.graph import Graph
from .scheduler import HORIZONS, NetworkSchedule, Progress, SharingOptions, schedule

#: Schedules that are compared, if not said otherwise, of networks in which depthwise convolutions can be fused.
USUAL = 24
#: What progress calls the network when it is scheduled once more.
ANOTHER = "the whole another way"
_CYCLES = TypeAdapter(int)


def refined(
    graph: Graph,
    chip: ChipConfig,
    progress: Progress | None = None,
    memory: SearchCache | None = None,
    sharing: SharingOptions | None = None,
    most: int | None = None,
) -> NetworkSchedule:
    """The fastest schedule of a network among `most` that share what `sharing` says. None: `USUAL` for networks with
    `pairs`, one for others.

    What each one takes is kept in `memory`, so that an interrupted search goes on and a second one is done at once.
    Raises as `scheduler.schedule` does.
    """
    sharing = sharing or SharingOptions()
    fusible = pairs(graph, chip, sharing)
    if most is None:
        most = USUAL if fusible else 0
    if most < 2:
        return schedule(graph, chip, progress, memory, sharing)
    search = _Search(graph, chip, progress, memory, most)
    search.try_(sharing)
    search.try_(replace(sharing, apart=frozenset(fusible)))
    for horizon in HORIZONS:
        search.try_(replace(search.best, horizon=horizon))
    for pair in fusible:
        search.try_(replace(search.best, apart=search.best.apart ^ {pair}))
    for layer in search.longest() if search.left else ():
        search.try_(replace(search.best, second=search.best.second ^ {layer}))
    return search.made or schedule(graph, chip, progress, memory, search.best)


def pairs(graph: Graph, chip: ChipConfig, sharing: SharingOptions) -> list[str]:
    """The convolutions, by name, that a depthwise one can go with."""
    if not sharing.fused or sharing.planner is not None:
        return []
    return [stage.layer.output for stage in cut(graph, chip, pastes=True).stages if stage.before]


class _Search:
    """The best so far: `best`, and its schedule `made` if that is at hand. `left`: schedules that may be compared."""

    def __init__(
        self, graph: Graph, chip: ChipConfig, progress: Progress | None, memory: SearchCache | None, most: int
    ) -> None:
        self.graph, self.chip, self.progress, self.memory = graph, chip, progress, memory
        self.left, self.most = most, most
        self.best = SharingOptions()
        self.made: NetworkSchedule | None = None
        self._cycles: int | None = None
        self._tried: set[SharingOptions] = set()
        self._what = (
            [
                (
                    layer.kind,
                    layer.output,
                    layer.inputs,
                    layer.window,
                    None if layer.w is None else layer.w.shape,
                    layer.groups,
                    layer.rows,
                )
                for layer in graph.layers
            ],
            [(value.name, value.channels, value.height, value.width) for value in graph.inputs],
            graph.outputs,
        )

    def try_(self, sharing: SharingOptions) -> None:
        """Compares a schedule with the best, if any may still be compared. Raises DoesNotFit if the first has no room.

        That one is the best until another is faster."""
        if not self.left or sharing in self._tried:
            return
        first = not self._tried
        self.left -= 1
        self._tried.add(sharing)
        if self.progress and not first:
            self.progress(ANOTHER, self.most - self.left - 1, self.most)
        made: NetworkSchedule | None = None
        options = sharing.between, sharing.fused, sharing.tight, sharing.horizon
        key = ("refined", self._what, *options, sorted(sharing.apart), sorted(sharing.second))
        cycles = self.memory.get(key, _CYCLES) if self.memory else None
        if cycles is None:
            try:
                made = schedule(self.graph, self.chip, self.progress if first else None, self.memory, sharing)
            except DoesNotFit:
                if first:
                    raise
                return
            cycles = predict(made.schedule, self.chip).cycles
            if self.memory:
                self.memory.put(key, _CYCLES, cycles)
        if self._cycles is None or cycles < self._cycles:
            self.best, self.made, self._cycles = sharing, made, cycles

    def longest(self) -> list[str]:
        """Convolutions, those with the most products first."""
        layers = [layer for layer in self.graph.layers if layer.kind == "conv"]
        return [layer.output for layer in sorted(layers, key=lambda layer: -self.graph.macs(layer))]
