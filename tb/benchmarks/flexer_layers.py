"""What the benchmarks of Flexer share with its studies."""

from __future__ import annotations

from meshloom.sched.papers.flexer.ready import KINDS, ready
from meshloom.sched.schedulers.budget import Budget

from ..results.events import OnEvent, Stage
from ..studies.flexer.flexer_networks import MEMORY_BOUND
from ..studies.flexer.floors import floor_cycles
from ..studies.flexer.layers import BUDGET, NETWORKS, same

__all__ = (
    "BUDGET",
    "HYBRID_BAR",
    "MEMORY_BOUND",
    "NETWORKS",
    "budget_in_words",
    "compile_search",
    "floor_cycles",
    "same",
)

#: How much faster than the strong baseline the hybrid is to be on architectures with the narrow DRAM.
HYBRID_BAR = 1.15


def budget_in_words(budget: Budget) -> str:
    """What a page says of its searches."""
    seconds = (budget.steps or 0) / 1e8
    return (
        f"Each search may do {budget} steps of work for a layer (some {seconds:g} to {2 * seconds:g} seconds of "
        "one thread), so what it finds is the same on every machine and with any number of threads."
    )


def compile_search(on_progress: OnEvent) -> None:
    """Has the searches compiled, once and for all processes, unless that has been done."""
    for kind in KINDS:
        ready(
            kind, lambda done, total: on_progress(Stage(workload="search", what=f"compiling, once: {done} of {total}"))
        )
