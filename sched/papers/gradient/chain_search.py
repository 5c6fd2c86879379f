"""The best schedule of layers in a row, of several sizes of tiles and orders of operations.

All plans are emitted and list scheduled once; the timeline model decides between the leaders of that. What was found is
kept, so that a second run only emits it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...ir.schedule import Schedule
from ...lowering.predict import predict
from ...mapping.play.interleave import Interleaver
from ...mapping.play.ranked import HORIZONS, Rank, fastest, in_order, nodes_of
from ...mapping.tiling.problem import MAX_IN_WIDTH, DoesNotFit
from ...schedulers.network.limits import totals
from ...schedulers.training.schedules import ChainSchedule
from ...store.findings import SearchCache
from ...support.garbage import uncollected
from ...workload.training_chain import Chain
from .chain import ChainEmitter
from .chain_plan import ChainPlan

#: Plans that the timeline model decides between.
LEADERS = 3
#: Operations of the largest plan that is tried, and ranges of rows in groups of `lanes`.
MOST_OPERATIONS, RANGES = 12_000, (1, 2, 4, 8)
#: Blocks of columns of a tile, besides all of them, and blocks of columns of W in a piece of dW.
_BLOCKS, _PIECES = (1, 2, 3, 4, 6, 8), (1, 2, 4)


@dataclass(frozen=True)
class _Outcome:
    """A plan, and the order of its operations (indices into what it emits)."""

    plan: ChainPlan
    order: tuple[int, ...]


_OUTCOME = TypeAdapter(_Outcome)


def plans(chain: Chain, chip: ChipConfig, request: ChainPlan) -> Iterator[ChainPlan]:
    """All plans that are tried: `request` with other tiles, and if it puts dW off, also such that do not."""
    cols, lanes = chip.cols, chip.lanes
    columns = max(ceil(layer.k / cols) for layer in chain.layers)
    wide = max(ceil(layer.n / cols) for layer in chain.layers)
    most = MAX_IN_WIDTH // cols
    pieces = sorted({min(blocks, wide, most) for blocks in (*_PIECES, most)})
    ranges = [chain.m]
    if request.cores == 1:
        ranges += [groups * lanes for groups in RANGES if groups * lanes < chain.m]
    for m in ranges:
        blocks = sorted({min(k, columns) for k in _BLOCKS} | {columns}) if m == chain.m else [columns]
        for k in blocks:
            for n in pieces if m == chain.m else pieces[-1:]:
                for defer in (False, True) if request.defer else (False,):
                    yield replace(request, m=m, k=k, n=n * cols, defer=defer)


def schedule(
    chain: Chain, chip: ChipConfig, request: ChainPlan, name: str, folder: Path | None = None
) -> ChainSchedule:
    """The best schedule of a chain with `request`'s cores, and what it keeps, puts off and makes of dW; its tiles count
    for nothing. `name`: of the scheduler; `folder`: where what is found is kept. Deterministic. Raises DoesNotFit with
    why, if no plan fits."""
    memory = SearchCache(folder, chip, "chains", __name__.partition(".")[2])
    key = chain, request.cores, request.keep, request.defer, request.update
    outcome = memory.get(key, _OUTCOME)
    if outcome is None:
        outcome = _search(chain, chip, request)
        memory.put(key, _OUTCOME, outcome)
    emitter, listed = _emitted(chain, chip, outcome.plan, name)
    result = in_order(listed, outcome.order)
    result = result.model_copy(update={"predicted": predict(result, chip)})
    busy = totals(result, chip)
    words = emitter.dram_words
    return ChainSchedule(
        chain, result, str(outcome.plan), words * chip.lanes, int(busy["compute"]), int(busy["vector"])
    )


def _emitted(chain: Chain, chip: ChipConfig, plan: ChainPlan, name: str) -> tuple[ChainEmitter, Schedule]:
    emitter = ChainEmitter(chain, chip, plan)
    return emitter, Schedule(
        chip=chip.name,
        chip_digest=chip.digest,
        workload=chain.name,
        scheduler=name,
        operations=tuple(emitter.operations),
        tensors=tuple(emitter.tensors.listed),
    )


def _search(chain: Chain, chip: ChipConfig, request: ChainPlan) -> _Outcome:
    tried: list[tuple[int, ChainPlan, Schedule]] = []
    why: DoesNotFit | None = None
    with uncollected():
        for plan in plans(chain, chip, request):
            try:
                _, listed = _emitted(chain, chip, plan, "")
            except DoesNotFit as error:
                why = why or error
                continue
            if len(listed.operations) <= MOST_OPERATIONS or not tried:
                interleaver = Interleaver(nodes_of(listed, chip), chip)
                tried.append((interleaver.run(HORIZONS[1] * interleaver.longest).cycles, plan, listed))
    if not tried:
        raise DoesNotFit(
            f"{chain.name}: no tiles fit {chip.name} ({why}); its layers do one by one, as {chain.layers[0].name}, "
            "with scheduler gradient"
        ) from why
    ranks = tuple(Rank) if request.defer else (Rank.PLACE,)
    leaders = sorted(tried, key=lambda one: one[0])[:LEADERS]
    best = min(((*fastest(listed, chip, ranks, predict), plan) for _, plan, listed in leaders), key=lambda one: one[1])
    return _Outcome(best[2], best[0])
