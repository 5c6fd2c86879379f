"""Where and when the micro-ops of a network run: lists, CP-SAT, then a mapping (Klotski, section III-D's two stages).

A budget is one of work, so the same is found on every machine and after any interruption: what each stage has found is
kept, and a stage that was interrupted begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig

from ...schedulers.budget import Budget, BudgetError
from ...store.findings import SearchCache
from .dag import Dag, numbers, of_graph
from .exact import solved
from .listing import Delays, OpPlacement, check, makespan, retimed
from .mapping import annealed, greedy, hop_words, hops_between, mapped_by_cp_sat
from .muops import MuGraph, Orchestration

#: What is done without being asked for more.
BUDGET = Budget(steps=40_000_000)
#: A step puts a micro-op in a list. Steps that count as one move of annealing, and as one of deterministic time.
_MOVE, _WORK = 2, 5_000_000
#: Shares of the budget: lists, CP-SAT for schedules, annealing; the rest is CP-SAT's for mappings.
_LISTS, _EXACT, _ANNEALING = 0.5, 0.2, 0.2
#: Edges x cores of a mapping that CP-SAT is asked for, at most.
_MAPPED = 20_000


@dataclass(frozen=True)
class Progress:
    """How far it is: `stage` is schedule or mapping; cycles so far, the bound that is proven; words x hops, once there
    is a mapping."""

    stage: str
    makespan: int
    bound: int
    hop_words: int | None = None


OnProgress = Callable[[Progress], None]


class _StoredPlan(NamedTuple):
    """What a stage has found."""

    cores: list[int]
    starts: list[int]
    bound: int


_FORM = TypeAdapter(_StoredPlan)


def orchestration_cache(folder: Path | None, chip: ChipConfig) -> SearchCache:
    """Where stages keep what they find. Raises SettingError."""
    return SearchCache(folder, chip, "klotski", __name__.partition(".")[2])


def orchestrate(
    graph: MuGraph | Dag,
    chip: ChipConfig,
    budget: Budget = BUDGET,
    on_progress: OnProgress | None = None,
    memory: SearchCache | None = None,
    delays: Delays | None = None,
) -> Orchestration:
    """Cores (indices into `chip.cores`) and starts of all micro-ops, and the bound of their makespan.

    `memory` keeps what each stage finds. `delays` between cores: starts are as early as these allow in the order that
    was found without them, and the bound does not know them. Raises GraphError for micro-ops that wait for each other
    in a circle, BudgetError for a budget of seconds.
    """
    steps = budget.steps
    if steps is None:
        raise BudgetError(f"budget {budget}: orchestration counts steps of work, as in 500k, 100M or 2G")
    dag = graph if isinstance(graph, Dag) else of_graph(graph)
    hops = hops_between(chip)
    question = _digest(dag), str(budget)

    def schedule() -> _StoredPlan:
        tries = max(2, int(steps * _LISTS) // max(1, len(dag)))
        solution = solved(dag, len(hops), tries, steps * _EXACT / _WORK, _heard(on_progress))
        return _StoredPlan(numbers(solution.plan.cores), numbers(solution.plan.starts), solution.bound)

    def mapping() -> _StoredPlan:
        plan = greedy(dag, _plan(first).starts, hops)
        plan = annealed(dag, plan, hops, int(steps * _ANNEALING) // _MOVE)
        if len(dag.edges) * len(hops) <= _MAPPED and hop_words(dag, plan.cores, hops):
            work = steps * (1 - _LISTS - _EXACT - _ANNEALING) / _WORK
            plan = OpPlacement(mapped_by_cp_sat(dag, plan, hops, work).cores, plan.starts)
        return _StoredPlan(numbers(plan.cores), numbers(plan.starts), first.bound)

    first = _once(memory, ("schedule", *question), schedule)
    last = _plan(_once(memory, ("mapping", *question), mapping))
    check(dag, last, len(hops))
    if delays is not None:
        last = retimed(dag, last, delays)
    end = makespan(dag, last)
    if on_progress is not None:
        on_progress(Progress("mapping", end, first.bound, hop_words(dag, last.cores, hops)))
    return Orchestration(tuple(numbers(last.cores)), tuple(numbers(last.starts)), end, first.bound)


def _once(memory: SearchCache | None, question: object, find: Callable[[], _StoredPlan]) -> _StoredPlan:
    stored = None if memory is None else memory.get(question, _FORM)
    if stored is None:
        stored = find()
        if memory is not None:
            memory.put(question, _FORM, stored)
    return stored


def _heard(on_progress: OnProgress | None) -> Callable[[int, int], None]:
    def heard(end: int, bound: int) -> None:
        if on_progress is not None:
            on_progress(Progress("schedule", end, bound))

    return heard


def _plan(stored: _StoredPlan) -> OpPlacement:
    return OpPlacement(np.array(stored.cores, np.int64), np.array(stored.starts, np.int64))


def _digest(dag: Dag) -> str:
    total = sha256()
    for array in (dag.cycles, dag.edges, dag.words):
        total.update(f"{array.shape}".encode() + array.tobytes())
    return total.hexdigest()
