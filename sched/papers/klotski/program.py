"""The schedule of a whole network from its micro-ops with a core and a start each."""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.spec.config import ChipConfig, TileKind, tile_position

from ...ir.schedule import Move, Schedule
from ...mapping.play.interleave import Interleaver
from ...schedulers.network.scheduler import HORIZONS, MicroOps, NetworkSchedule
from .emit import Emitter
from .homes import Homes
from .muops import MuGraph, Orchestration
from .work import works

#: Results are sent at once if the estimate is longer by this factor when they may be held back: it is no judge of less.
CHOKED = 1.01


def program(
    graph: MuGraph,
    plan: Orchestration,
    chip: ChipConfig,
    name: str,
    rounds: Sequence[int] | None = None,
    copies: bool = True,
) -> NetworkSchedule:
    """The schedule, as that of a scheduler `name`. `rounds`: of each micro-op, all of one behind all of the one before
    (see `rounds`); `copies`: whether constants may lie in several DRAM tiles (see `homes`). Raises DoesNotFit, and
    ValueError for a plan that does not respect who reads whose results."""
    homes = Homes(graph.stages, works(graph.stages, chip), chip, copies)
    emitter = Emitter(graph, plan, chip, homes, rounds)
    nodes = emitter.emit()
    homes.outputs()
    interleaver = Interleaver(nodes, chip, in_order=rounds is not None)
    best, at_once = (
        min((interleaver.run(horizon, at_once) for horizon in HORIZONS), key=lambda interleaving: interleaving.cycles)
        for at_once in (False, True)
    )
    if best.cycles > CHOKED * at_once.cycles:
        best = at_once
    network = graph.stages.graph
    schedule = Schedule(
        chip=chip.name, chip_digest=chip.digest, workload=network.name, scheduler=name,
        operations=tuple(interleaver.waits.operations[index] for index in best.order),
        tensors=tuple(homes.tensors.tensors),
    )  # fmt: skip
    return NetworkSchedule(
        network, schedule, homes.tensors.constants, graph.stages.lanes, homes.tensors.copies,
        tuple(sorted(homes.spilled)), best.cycles,
        MicroOps(len(graph.ops), plan.makespan, plan.bound, hops_bytes(schedule, chip), emitter.spilled_words),
    )  # fmt: skip


def hops_bytes(schedule: Schedule, chip: ChipConfig) -> int:
    """Bytes that go from core to core, times the links that they pass (of each move: rows and columns between)."""
    total = 0
    for op in schedule.operations:
        if isinstance(op, Move) and chip.tiles[op.src.tile] is chip.tiles[op.dst.tile] is TileKind.CORE:
            (x, y), (to_x, to_y) = tile_position(op.src.tile), tile_position(op.dst.tile)
            total += op.words * chip.lanes * (abs(x - to_x) + abs(y - to_y))
    return total
