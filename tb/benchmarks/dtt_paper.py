"""Two questions that Dijkstra-Through-Time leaves open: what a simpler description of the hardware costs an explorer
before it (Figure 7), and what a controller without waypoints would save and need."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import geometric_mean

from meshloom.hw.spec.config import load
from meshloom.hw.spec.contracts import REQUEST_INTERVAL
from meshloom.hw.spec.isa import INSTRUCTION_BYTES
from meshloom.sched.lowering.timed.again import Again, search_again
from meshloom.sched.papers.dtt import examples
from meshloom.sched.papers.dtt.entry import NAME
from meshloom.sched.papers.dtt.placing import DOT, Operation
from meshloom.sched.papers.dtt.upstream import explore, handed_on, mapped, simplified
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find

from ..results.events import OnEvent, Stage
from ..studies.dtt.dtt_holders import NINE
from ..studies.points.runs import chip_of
from .results import Result, Sheet

#: Layers whose programs are looked at.
LAYERS = ("resnet50/conv2_1_1", "gemm:128x512x256", "conv:14x14x256-256")
#: Workloads for the butterfly of Figure 6, by seed, and mappings that the explorer tries.
SEEDS, TRIES = range(6), 20
#: Operands in its DRAM, and operations of a workload.
_DATA, _OPERATIONS = 8, 16


def random_workload(seed: int) -> list[Operation]:
    """Dot products, matrix products and custom functions, of operands in DRAM and of results that come at least four
    operations before."""
    random = Random(seed)
    found: list[Operation] = []
    for number in range(_OPERATIONS):
        there = [*range(_DATA), *range(100, 100 + max(0, number - 3))]
        kind = random.choice(("matmul", DOT, "matmul", "custom"))
        found.append(Operation(100 + number, tuple(random.sample(there, 3)), kind, slots=random.choice((2, 4))))
    return found


def _explored() -> tuple[Sheet, str, list[str]]:
    """The butterfly by an explorer that knows it, and by one that knows a star. Table, remark, missed bars."""
    hardware = examples.butterfly()
    star = simplified(hardware, "DRAM")
    given = {"DRAM": range(_DATA)}, examples.BUTTERFLY_DISTRIBUTION
    rows: list[tuple[str, ...]] = []
    slower: list[float] = []
    dearer: list[float] = []
    faster: list[float] = []
    work: list[float] = []
    for seed in SEEDS:
        operations = random_workload(seed)
        plain = mapped(hardware, operations, *given, {})
        upstream, whole = (explore(one, operations, *given, TRIES) for one in (star, hardware))
        handed = handed_on(upstream, hardware, operations, *given)
        slower.append(handed.runtime / whole.outcome.runtime)
        dearer.append(float(handed.energy / whole.outcome.energy))
        faster.append(plain.runtime / handed.runtime)
        work.append(whole.moves / upstream.moves)
        rows.append(
            (
                f"{seed}",
                f"{plain.runtime}",
                f"{upstream.outcome.runtime}",
                f"{handed.runtime}",
                f"{whole.outcome.runtime}",
                *(f"{float(one.energy):.1f}" for one in (plain, upstream.outcome, handed, whole.outcome)),
                f"{upstream.moves:,}",
                f"{whole.moves:,}",
            )
        )
    columns = (
        "workload", "cycles, first fit>", "in the star>", "handed on>", "all known>", "energy, first fit>",
        "in the star>", "handed on>", "all known>", "moves routed, star>", "all known>",
    )  # fmt: skip
    remark = (
        f"Figure 7: {len(hardware.wires)} wires become {len(star.wires)}. What the explorer finds in the star and "
        f"hands on takes {geometric_mean(slower):.3f} times the cycles (worst {max(slower):.3f}) and "
        f"{geometric_mean(dearer):.3f} times the energy of what it finds when it knows all, with "
        f"{geometric_mean(work):.1f} times fewer moves routed; First Best Fit alone takes {geometric_mean(faster):.2f} "
        "times the cycles of what is handed on."
    )
    missed = [] if geometric_mean(slower) <= 1.05 else [f"handed on: {geometric_mean(slower):.3f} times the cycles"]
    return Sheet(f"Figure 7: {TRIES} mappings for the butterfly of Figure 6", columns, rows), remark, missed


def cells(found: Again) -> tuple[str, ...]:
    """A program's row."""
    return (
        f"{found.moves:,}",
        f"{found.instructions:,}",
        f"{found.waypoints:,}",
        f"{100 * found.waypoints / found.instructions:.1f} %",
        f"{found.looked_at / max(1, found.moves):.1f}",
        f"{found.held:,}",
        f"{found.held * INSTRUCTION_BYTES / 1024:,.1f}",
        f"{found.ahead:,}",
        f"{found.resources}",
        f"{found.table_bits / 8192:,.1f}",
    )


def _again(on_progress: OnEvent) -> tuple[Sheet, str]:
    """What searching again would save and need. Table and remark."""
    rows: list[tuple[str, ...]] = []
    every: list[Again] = []
    for chip in (load("ahead16"), chip_of("ahead16", NINE)):
        for name in LAYERS:
            on_progress(Stage(workload=name, what=f"planning for {chip.name}"))
            found = search_again(scheduler(NAME)(find(name)[0].shape, chip, 1 << 15), chip)
            every.append(found)
            rows.append((chip.name, name, *cells(found)))
    columns = (
        "chip", "layer", "moves>", "instructions>", "for waypoints>", "share>", "links looked at / move>",
        "moves held>", "KB>", "cycles ahead>", "links, ports>", "table, KB>",
    )  # fmt: skip
    share = max(found.waypoints / found.instructions for found in every)
    looked: Sequence[float] = [found.looked_at / max(1, found.moves) for found in every]
    remark = (
        f"Without waypoints: at most {100 * share:.1f} % of the instructions would go. At one link a cycle a search "
        f"takes {min(looked):.0f} to {max(looked):.0f} cycles in the mean, beside a control packet every "
        f"{REQUEST_INTERVAL}."
    )
    return Sheet("A controller without waypoints", columns, rows), remark


def run(on_progress: OnEvent) -> Result:
    """Explores the butterfly, and times layers ahead on four and nine cores; nothing runs on the RTL."""
    explored, figure_7, missed = _explored()
    again, waypoints = _again(on_progress)
    return Result(
        "dtt_paper",
        "The explorer before it, and a controller without waypoints",
        "Two questions of *Dijkstra-Through-Time* (V. Tableau Roche and P. Murugappa Velayuthan). **Figure 7**: an "
        "explorer that knows no butterfly is told a star, each actor behind the DRAM by one wire (`simplified` in "
        "`sched/papers/dtt/upstream.py`); the mapping that it finds there is scheduled for the butterfly of Figure 6, "
        "beside what the same explorer finds if it knows all. Bar: 1.05 times the cycles in the mean. **Waypoints**: "
        "what repeating the planner's search in the controller would save, the instructions that carry nothing but "
        "waypoints; and what it needs at least, if it searches in no time: moves that it has "
        "searched and may not send yet, as another one for the same mover fires earlier (*held*, 32 bytes each), and a "
        "table with a bit for "
        "each link or port and cycle, from the move at hand to the last reservation (*cycles ahead*). Programs by "
        "`--scheduler dtt`; `sched/lowering/timed/again.py`.",
        (explored, again),
        (figure_7, waypoints),
        tuple(missed),
    )
