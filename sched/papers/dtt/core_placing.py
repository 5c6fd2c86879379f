"""Which core does what: First Best Fit, the paper's Algorithm 1, on the cores of a schedule.

A base scheduler shares a layer among cores by their numbers. Cores are alike, so what it gives one may as well be done
by another: `placed` renames them. What a core does is one operation of the algorithm, in the order in which they begin;
each goes to the free core of highest affinity. The affinity is what its words would travel, with a minus: each from the
nearest tile that has it by then, its source or (`shared`) a core that was given it before; results to where they go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig

from ...ir.holders import Holders
from ...ir.schedule import Move, Operation, Schedule
from ...lowering.timed.windows import hops as apart
from ...routing.hardware import Actor
from . import placing as paper


@dataclass(frozen=True)
class _Share:
    """What a core of the base schedule does: the values that it is sent, each once for every time, from which tiles;
    words that it sends, by tile."""

    core: int
    values: NDArray[np.int32]
    sources: NDArray[np.int64]
    sent: Mapping[int, int]


def placed(schedule: Schedule, chip: ChipConfig, shared: bool) -> Schedule:
    """The schedule with its cores renamed by First Best Fit. `shared`: words may come from cores that have them."""
    shares = _shares(schedule, chip)
    names = {f"{core:#04x}": core for core in chip.cores}
    actors = {name: Actor(name, name, name) for name in names}
    # a core does one share: it is busy for the whole schedule then
    operations = [paper.Operation(number, (), cycles=1 << 40) for number in range(len(shares))]

    def affinity(actor: Actor, operation: paper.Operation, done: paper.Placing) -> float:
        cores_of = {number: names[name] for number, name in done.places.items()}
        return -_travel(shares, operation.result, names[actor.name], cores_of if shared else {})

    placements = paper.first_best_fit(operations, actors, 0, affinity)
    core_of = {shares[one.operation.result].core: names[one.actor] for one in placements}
    rest = [core for core in chip.cores if core not in core_of.values()]
    core_of |= dict(zip([core for core in chip.cores if core not in core_of], rest, strict=True))
    renamed = tuple(_renamed(op, core_of) for op in schedule.operations)
    return schedule.model_copy(update={"operations": renamed, "predicted": None})


def _shares(schedule: Schedule, chip: ChipConfig) -> list[_Share]:
    """What each core does, in the order in which they begin."""
    holders = Holders(schedule.operations, chip)
    values: dict[int, list[NDArray[np.int32]]] = {}
    sources: dict[int, list[NDArray[np.int64]]] = {}
    sent: dict[int, dict[int, int]] = {}
    for op in schedule.operations:
        if isinstance(op, Move):
            if op.dst.tile in chip.cores:
                words = holders.values(op)
                values.setdefault(op.dst.tile, []).append(words)
                sources.setdefault(op.dst.tile, []).append(np.full(len(words), op.src.tile))
            elif op.src.tile in chip.cores:
                to = sent.setdefault(op.src.tile, {})
                to[op.dst.tile] = to.get(op.dst.tile, 0) + op.words
        holders.done(op)
    return [
        _Share(core, np.concatenate(values[core]), np.concatenate(sources[core]), sent.get(core, {})) for core in values
    ]


def _travel(shares: list[_Share], number: int, core: int, cores_of: Mapping[int, int]) -> float:
    """Words x hops of a share on a core; `cores_of`: the cores of the shares placed before."""
    share = shares[number]
    hops = np.zeros(len(share.values), np.int64)
    for tile in np.unique(share.sources):
        hops[share.sources == tile] = apart(int(tile), core)
    for other, at in cores_of.items():
        there = np.isin(share.values, shares[other].values) & (share.values >= 0)
        hops[there] = np.minimum(hops[there], apart(at, core))
    return float(hops.sum()) + sum(words * apart(core, tile) for tile, words in share.sent.items())


def _renamed(op: Operation, core_of: Mapping[int, int]) -> Operation:
    if not isinstance(op, Move):
        return op.model_copy(update={"core": core_of[op.core]})
    ends = {
        name: span.model_copy(update={"tile": core_of.get(span.tile, span.tile)})
        for name, span in (("src", op.src), ("dst", op.dst))
    }
    return op.model_copy(update=ends | {"issuer": core_of.get(op.issuer, op.issuer), "route": None, "channel": None})
