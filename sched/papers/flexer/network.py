"""Convolutions of a network by out-of-order schedules: each layer has the scratchpad for itself, and the tensors
between layers lie in DRAM, as in the paper.

Source: Min, Kwon, Egger, "Flexer" (CGO 2023), section 5 (end to end: layer after layer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig, TileKind

from ...lowering.predict import predict
from ...mapping.memory.placement import Allocator
from ...mapping.nodes import Node, Run
from ...mapping.tiling.problem import DoesNotFit
from ...mapping.tiling.tiles import Range
from ...schedulers.budget import Budget, labelled
from ...schedulers.interface import Context
from ...schedulers.network.conv import ConvNodes, ConvTask
from ...schedulers.network.fusing import fusible
from ...schedulers.network.refine import PAIRED, refined
from ...schedulers.network.scheduler import NetworkSchedule, Progress, schedule, search_cache
from ...schedulers.network.sharing import LAYERWISE, SharingOptions
from ...schedulers.network.storage import Between
from ...workload.graph import Graph
from .judge import Decision
from .layer import LayerSearch
from .policy import FASTEST, OURS, PAPER, PAPER_STATIC, Policy
from .search import OnProgress
from .striping import Places
from .tiles import Tiles

#: Networks whose estimate is so many times the best one's are not played by the timeline model.
HOPELESS = 1.1
#: Schedules that are compared when nests have won, in networks without depthwise layers to be fused.
MIXED = 20


class Planner:
    """Makes the operations of a network's convolutions: the best that any of the policies finds (see `LayerSearch`).

    `policies`: by what decides between their choices; the first of equals is taken.
    """

    def __init__(
        self,
        chip: ChipConfig,
        policies: Mapping[Policy, Policy],
        folder: Path | None = None,
        budget: Budget | None = None,
        on_progress: OnProgress | None = None,
        threads: int | None = None,
    ) -> None:
        self.chip, self.policies = chip, policies
        self.folder, self.budget, self.on_progress, self.threads = folder, budget, on_progress, threads

    @property
    def key(self) -> object:
        """What decides what it makes, besides the chip."""
        return tuple(self.policies.items()), self.budget

    def emit(self, task: ConvTask, dram: Allocator, room: Range | None = None) -> ConvNodes:
        """All operations of a convolution. `room`: the words of each bank, from and to, that are free (None: all).
        Raises DoesNotFit."""
        chip, x, y = self.chip, task.x, task.y
        if room is not None:
            if room[0] == room[1]:
                raise DoesNotFit(f"layer {task.shape.name}: no word of the scratchpad is free")
            chip = chip.model_copy(update={"spm_words": room[1] - room[0]})
        layer = LayerSearch(
            task.shape, chip, task.fixed["scale"], self.folder, self.budget, self.on_progress, self.threads
        )
        assert layer.problem.packed == task.packed, "who packs the input decides how the layer is posed"
        if layer.problem.flat:
            x, y = x.flattened(), y.flattened()
        policy, decision = self.decide(layer)
        places = Places(Tiles(layer.problem, decision.choice.tiling), chip, dram, x, y)
        emitted = layer.emitted(decision.choice, policy, places, task.result)
        order = layer.orders(emitted).run(decision.ahead).order
        if room is not None:
            _shift(emitted.nodes, room[0], chip)
        constants = {"w": places.w.pieces(), "bias": places.bias.pieces()}
        return ConvNodes([emitted.nodes[index] for index in order], constants)

    def decide(self, layer: LayerSearch) -> tuple[Policy, Decision]:
        """The policy whose schedule is shortest, and that schedule. Raises DoesNotFit if none fits."""
        best: tuple[Policy, Decision] | None = None
        error: DoesNotFit | None = None
        for policy, rank in self.policies.items():
            try:
                decision = layer.decided(policy, rank)
            except DoesNotFit as short:
                error = error or short
                continue
            if best is None or decision.cycles < best[1].cycles:
                best = policy, decision
        if best is None:
            assert error is not None
            raise error
        return best


def _shift(nodes: Sequence[Node], words: int, chip: ChipConfig) -> None:
    """Moves all that operations have in the scratchpad so many words up."""
    for node in nodes:
        for field in ("source", "target"):
            run: Run = getattr(node, field)
            if node.fields is None and chip.tiles[run.tile] is TileKind.SPM:
                setattr(node, field, run.moved(words))


def layerwise(
    graph: Graph, chip: ChipConfig, policy: Policy, name: str, budget: Budget | None, context: Context
) -> NetworkSchedule:
    """A network by a policy's schedules, layer after layer, under the scheduler's `name`. Raises DoesNotFit."""
    planner = Planner(chip, {policy: policy}, context.folder, budget, context.on_progress)
    result = schedule(graph, chip, context.on_layer, sharing=replace(LAYERWISE, planner=planner))
    return _called(result, labelled(name, budget))


def hybrid(
    graph: Graph,
    chip: ChipConfig,
    progress: Progress | None = None,
    folder: Path | None = None,
    budget: Budget | None = None,
    on_progress: OnProgress | None = None,
) -> NetworkSchedule:
    """The fastest by the timeline model of static nests with the tensors between layers in DRAM or, whole or by planes,
    in the scratchpad, with max pools fused tightly or not, and of the best schedules of every layer by itself. The best
    static nests are refined (`network.refine`), and single layers whose tensors lie in DRAM may then be made out of
    order, in the words of the scratchpad that are free meanwhile; what `loop_order` finds is compared with that.

    Raises DoesNotFit if a network fits none of these ways.
    """
    memory = search_cache(folder, chip)
    planner = Planner(chip, {PAPER: PAPER, PAPER_STATIC: PAPER_STATIC, OURS: FASTEST}, folder, budget, on_progress)
    ways = [
        SharingOptions(between, tight=tight) for between in (Between.WHOLE, Between.PLANES) for tight in (False, True)
    ]
    ways += [LAYERWISE, replace(LAYERWISE, planner=planner)]
    results: list[tuple[NetworkSchedule, SharingOptions]] = []
    error: DoesNotFit | None = None
    for way in ways:
        try:
            results.append((schedule(graph, chip, progress, memory, way), way))
        except DoesNotFit as short:
            error = error or short
    if not results:
        assert error is not None
        raise error
    results.sort(key=lambda one: one[0].estimate)
    worth = [one for one in results if one[0].estimate <= HOPELESS * results[0][0].estimate]
    best, way = min(worth, key=lambda one: predict(one[0].schedule, chip).cycles)
    several = [best]
    if way.planner is not None:  # layer by layer out of order wins; nests may do so once they are refined
        way = next((each for _, each in results if each.planner is None), way)
    if way.planner is None:
        most = PAIRED.most if fusible(graph, chip, way).pairs else MIXED
        several.append(refined(graph, chip, progress, memory, way, most, planner))
        if way != SharingOptions() and SharingOptions() in [one for _, one in results]:  # else it does not fit
            several.append(refined(graph, chip, progress, memory))
    best = min(several, key=lambda one: predict(one.schedule, chip).cycles)
    return _called(best, labelled("hybrid", budget))


def _called(result: NetworkSchedule, name: str) -> NetworkSchedule:
    return replace(result, schedule=result.schedule.model_copy(update={"scheduler": name}))
