"""A scheduler that asks the timeline model: it tries tiles and loads of each layer, and decides for whole networks what
stays on the chip and which branch goes first. It lets `in_turn` make the operations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Literal

from in_turn import TurnOptions
from in_turn import schedule as in_turn
from pydantic import Field

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import Move, Schedule
from meshloom.sched.lowering.programs import planned
from meshloom.sched.mapping.emit.task import LayerTask
from meshloom.sched.schedulers.interface import Context, Maker, Options, Scheduler
from meshloom.sched.schedulers.network.authored import schedule as schedule_network
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule
from meshloom.sched.schedulers.network.sharing import LAYERWISE
from meshloom.sched.schedulers.network.storage import Between
from meshloom.sched.workload.graph import Graph, Layer
from meshloom.sched.workload.layers import ConvShape

NAME = "tuned"


def cycles(schedule: Schedule, chip: ChipConfig) -> int:
    """What the timeline model predicts, of the very program that would run."""
    return planned(schedule, chip).timeline.cycles


def heights(rows: int) -> list[int]:
    """Heights of tiles that are worth a try: all rows, and powers of two below."""
    return [rows, *(height for height in (1, 2, 4, 8, 16, 32) if height < rows)]


# -- a layer ----------------------------------------------------------------------------------------------------------


def one(shape: ConvShape, chip: ChipConfig, scale: int, rows: int, pushed: str = "") -> Schedule:
    """The schedule of `in_turn` with tiles of so many rows. What is `pushed`, by the first letters of labels (x:
    inputs, w: weights, b: biases), is sent by the memory that holds it, instead of requested by the core."""
    task = LayerTask(shape, chip, scale)
    in_turn(task, TurnOptions(rows=rows))
    schedule = task.schedule(NAME)
    operations = [
        operation.model_copy(update={"issuer": operation.src.tile})
        if isinstance(operation, Move) and operation.dst.tile in task.cores and operation.label[0] in pushed
        else operation
        for operation in schedule.operations
    ]
    return schedule.model_copy(update={"operations": tuple(operations)})


def layer(shape: ConvShape, chip: ChipConfig, scale: int, options: Options, context: Context) -> Schedule:
    """The quickest of all heights with all, some or none of the loads pushed."""
    rows = LayerTask(shape, chip, scale).rows
    choices = product(heights(rows), ("", "x", "w", "xwb"))
    return min((one(shape, chip, scale, *choice) for choice in choices), key=lambda it: cycles(it, chip))


# -- a network --------------------------------------------------------------------------------------------------------


class NetworkOptions(Options):
    """`tuned:between=dram,first=short`."""

    between: Literal["dram", "whole"] = Field(
        "whole", description="tensors between layers: all in DRAM, or on the chip"
    )
    first: Literal["long", "short"] = Field("long", description="which of two branches goes first")


def network(graph: Graph, chip: ChipConfig, options: NetworkOptions, context: Context) -> NetworkSchedule:
    """Each layer with tiles that suit it, tensors that fit in the scratchpad, and branches in order."""

    @cache
    def height(shape: ConvShape) -> int:
        rows = LayerTask(shape, chip, 1).rows
        return min(heights(rows), key=lambda height: cycles(one(shape, chip, 1, height), chip))

    def author(task: LayerTask) -> None:
        in_turn(task, TurnOptions(rows=height(task.shape)))

    ordered = replace(graph, layers=tuple(by_rank(graph, options.first == "long")))
    sharing = replace(LAYERWISE, between=Between(options.between))
    return schedule_network(ordered, chip, author, NAME, context.on_layer, sharing)


def by_rank(graph: Graph, long_first: bool) -> Iterable[Layer]:
    """The layers in an order that makes every tensor before it is read. Of several that could be next, the first is the
    one with the most (or least) products from there to the end of the network."""
    rank: dict[str, int] = {}
    for layer in reversed(graph.layers):
        rank[layer.output] = graph.macs(layer) + max(
            (rank[user.output] for user in graph.users(layer.output)), default=0
        )
    there, left = {value.name for value in graph.inputs}, list(graph.layers)
    while left:
        ready = [layer for layer in left if there.issuperset(layer.inputs)]
        chosen = (max if long_first else min)(ready, key=lambda layer: rank[layer.output])
        left.remove(chosen)
        there.add(chosen.output)
        yield chosen


TUNED = Scheduler(
    NAME,
    "tiles and loads that the timeline model finds best; tensors on the chip",
    layers=Maker(layer),
    networks=Maker(network, NetworkOptions),
)
