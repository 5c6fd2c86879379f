"""Loop nests for a controller: the one whose plan is shortest, which is not always the one that is shortest pulled.

A controller sends a control packet for each operation, one after the other. So a nest with fewer operations can be
ahead of one in which cores would wait less. The best nest of each kind (partition over the cores, operands in the
scratchpad or not) is emitted and replayed as `loop_order` does it, and judged by its replay or its control packets,
whichever take longer. The most promising ones are planned to the cycle, besides the base scheduler's schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, TypeAdapter

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import ORDER_CYCLES, REQUEST_INTERVAL

from ...ir.schedule import Schedule
from ...lowering.timed.compile import compile_ahead
from ...mapping.emit.emission import emit, to_schedule
from ...mapping.play.replay import replay
from ...mapping.tiling.problem import DoesNotFit, pose
from ...mapping.tiling.space import best
from ...mapping.tiling.tiles import Candidate
from ...routing.hardware import DttError
from ...schedulers.loop_order.scheduler import POOL, kind_of
from ...store.findings import SearchCache
from ...workload.layers import ConvShape
from .timed import timed

#: Operations that are planned, at most, besides the base's: those of a first nest always are.
BUDGET = 8000


class Laid(NamedTuple):
    """How a timed schedule gets its cores and sources: a function, and the options that decide what it does."""

    lay: Callable[[Schedule], Schedule]
    options: tuple[object, ...]


class _Choice(BaseModel):
    """What is kept. `nest`: None for the base's schedule."""

    nest: Candidate | None


def shortest(
    base: Schedule, shape: ConvShape, chip: ChipConfig, scale: int, plans: int, laid: Laid, folder: Path | None = None
) -> Schedule:
    """The timed schedule with the shortest plan: `base`, or one of `plans` nests, each with its cores and sources.

    What was chosen is kept below `folder` (None: nowhere), by layer, chip, base, options and the code that decides it.
    Raises DttError if none can be planned."""
    memory = SearchCache(folder, chip, "ahead-layer", f"{__package__}.entry".partition(".")[2])
    key = shape, plans, laid.options, sha256(base.model_dump_json(exclude={"predicted"}).encode()).hexdigest()
    form = TypeAdapter(_Choice)

    def schedule_of(nest: Candidate | None) -> Schedule:
        return laid.lay(timed(base if nest is None else to_schedule(emit(shape, chip, nest, scale), shape, chip)))

    if (choice := memory.get(key, form)) is not None:
        return schedule_of(choice.nest)
    least: tuple[int, Candidate | None, Schedule] | None = None
    failed: DttError | None = None
    left = BUDGET
    for nest in (None, *islice(nests(shape, chip), plans)):
        schedule = schedule_of(nest)
        if nest is not None:
            left -= len(schedule.operations)
            if left < 0 and left + len(schedule.operations) < BUDGET:
                break
        try:
            cycles = compile_ahead(schedule, chip).orders.cycles
        except DttError as error:
            failed = failed or error
            continue
        if least is None or cycles < least[0]:
            least = cycles, nest, schedule
    if least is None:
        assert failed is not None
        raise failed
    memory.put(key, form, _Choice(nest=least[1]))
    return least[2]


def nests(shape: ConvShape, chip: ChipConfig) -> Iterator[Candidate]:
    """The best nest of each kind, the most promising first."""
    judged: dict[object, tuple[float, Candidate]] = {}
    for ranked in best(pose(shape, chip), chip, POOL, shape.name)[0]:
        nest = replace(ranked.candidate, ramp_k=True)
        if (kind := kind_of(nest)) in judged:
            continue
        try:
            nodes = emit(shape, chip, nest).nodes
        except DoesNotFit:
            continue
        packets = len(nodes) * (REQUEST_INTERVAL + ORDER_CYCLES)
        judged[kind] = max(replay(nodes, chip), packets), nest
    yield from (nest for _, nest in sorted(judged.values(), key=lambda one: one[0]))
