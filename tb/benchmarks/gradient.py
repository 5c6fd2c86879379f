"""Both gradients of the layers of the networks that the paper trains, in every order, on its small and large NPUs.

J. Kim et al., "Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient Order for DNN Training" (MICRO
2023), section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from meshloom.hw.spec.config import OFFSET_BITS
from meshloom.sched.papers.gradient.search import LEADERS
from meshloom.sched.workload.training import TrainingLayer

from ..results.events import OnEvent
from . import gradient_runs as runs
from . import gradient_sheets as sheets
from .gradient_plot import draw, rows
from .gradient_runs import EDGE, NETWORKS, ON_RTL, SERVERS, Case
from .interface import BenchmarkError
from .results import FOLDER, Result

#: Bytes of DRAM a cycle, and examples of a batch, on one core of the large NPU. All orders are not tried there
#: (`Case.orders`), in no row.
BYTES, BATCHES = (128, 64, 32), (8, 16, 32)
#: Bytes on the small one, and networks whose layers are searched in seconds there.
EDGE_BYTES, EDGE_SWEPT = (22, 11), ("ncf", "dlrm", "bert")

#: Bars: layers on the RTL of each chip; the model's error in percent, the mean and each.
ENOUGH, MEAN_ERROR, WORST_ERROR = {EDGE: 30, "server1": 12, "server2": 4, "server4": 4, "server8": 1}, 1.0, 3.0
PLOT = "gradient.svg"
PARTS = (EDGE, *SERVERS, "bandwidth", "batch", *(f"rtl_{chip}" for chip in ON_RTL), "kept")


def _bandwidths() -> dict[int, Case]:
    return {width: Case("server1", width) for width in BYTES}


def _edge_bandwidths() -> dict[int, Case]:
    return {width: Case(EDGE, width) for width in EDGE_BYTES}


def _batches() -> dict[int, Case]:
    return {batch: Case("server1", None, batch) for batch in BATCHES}


def _modelled(part: str) -> list[tuple[Case, TrainingLayer]]:
    """What a part measures in the model."""
    if part in (EDGE, *SERVERS):
        return _of([Case(part)], NETWORKS)
    if part == "bandwidth":
        return _of(_bandwidths().values(), NETWORKS) + _of(_edge_bandwidths().values(), EDGE_SWEPT)
    return _of(_batches().values(), NETWORKS) if part == "batch" else []


def _of(cases: Iterable[Case], networks: Sequence[str]) -> list[tuple[Case, TrainingLayer]]:
    return [(case, layer) for case in cases for network in networks for layer in case.layers(network)]


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Measures what is not kept, of the parts that are asked for; shows all that is. Raises BenchmarkError."""
    if unknown := [part for part in parts if part not in PARTS]:
        raise BenchmarkError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    for part in parts or PARTS:
        for case, layer in _modelled(part):
            runs.measure(case, layer, on_progress)
        if part.startswith("rtl_"):
            runs.run_on_rtl(runs.on_rtl(part.removeprefix("rtl_")), on_progress)
    ran = {chip: [(one, found) for one in runs.on_rtl(chip) if (found := runs.ran(one)) is not None] for chip in ON_RTL}
    draw(rows(), FOLDER / PLOT)
    return Result(
        "gradient",
        "Both gradients of a layer, in every order",
        f"dX and dW of the layers with weights of the paper's networks on {EDGE} (45x45, 1 MiB, 22 bytes a cycle for "
        f"numbers of one byte; batch 4) and {', '.join(SERVERS)} (cores of 128x128, 8 MiB and 128 bytes a cycle each; "
        "batch 8 for each), each layer as often as its network has it. `plain` is the paper's baseline (traditional "
        "products, one tiling for both; rows of the batch shared among cores), `interleaved` its first technique, "
        "`algorithm 1` the order that it selects by the sizes, `and the split` that with the fastest way to share a "
        "layer among cores; `sequential` is the strong baseline (one product after the other, each with its own best "
        "tiles and loops or as `plain` has them, and the fastest split), `best` the fastest of all by the model, these "
        "included. Where an order does not fit, or cannot be shared so, the layer takes `sequential`. A first layer "
        "has no dX. A layer whose tensors need more DRAM than its chip has is planned with "
        f"{1 << OFFSET_BITS:,} words to a channel, the most there can be. The model decides between {LEADERS} "
        f"candidates of each order; of layers with more than {runs.LARGE:,} products it plays one. Other splits than "
        "by rows are played where it is not certain, from their busiest resource, that the order takes longer so. "
        "Each result is kept; parts: "
        f"{', '.join(PARTS)}. Bars: "
        f"{', '.join(f'{count} on {chip}' for chip, count in ENOUGH.items())} layers on the RTL with every byte right, "
        f"the model's error there at most {MEAN_ERROR:g} % on average and {WORST_ERROR:g} % each.",
        (
            *map(sheets.networks, (EDGE, *SERVERS)),
            sheets.longest("server1"),
            sheets.sweep("Bytes of DRAM a cycle, server1 (figure 15)", "bytes", _bandwidths(), NETWORKS,
                         sheets.PAPER_BYTES),
            sheets.sweep(f"Bytes of DRAM a cycle, {EDGE}", "bytes", _edge_bandwidths(), EDGE_SWEPT, {}),
            sheets.sweep("Examples of a batch, server1 (figure 16)", "batch", _batches(), NETWORKS, sheets.PAPER_BATCH),
            sheets.neighbours(SERVERS[1:]),
            sheets.on_rtl(tuple(ON_RTL)),
            sheets.missing({part: _counter(part) for part in PARTS if part != "kept"}),
        ),
        (
            f"![The paper's figures 12 to 16, and ours]({PLOT})",
            "What the paper's bandwidth was meant for: it names no width of its numbers. 22 bytes a cycle are meant "
            "for numbers of one byte here; numbers of two bytes see as many a cycle on the same chip with 44, so that "
            f"a paper with two-byte numbers corresponds to the row with 11 bytes a cycle of {EDGE}, and to that with "
            "64 of server1.",
            "The paper's times are of forward and backward pass and update, ours of the two gradients alone; its large "
            "NPU has one memory that all cores share, ours have one each.",
            "Layers whose sums over the pixels of a whole batch may leave int32 (the first ones of yolo on one core, "
            "more with larger batches) are computed in parts of their batch, whose gradients the host adds up. Left "
            f"out, since those of a single picture may: {_left_out() or 'none'}.",
        ),
        tuple(_failures(ran)),
    )  # fmt: skip


def _left_out() -> str:
    found = [layer for chip in (EDGE, *SERVERS) for name in NETWORKS for layer in Case(chip).left_out(name)]
    return ", ".join(f"{layer.name.removeprefix('gradient:')} ({layer.m:,} pixels)" for layer in found)


def _counter(part: str) -> Callable[[], tuple[int, int]]:
    def count() -> tuple[int, int]:
        if part.startswith("rtl_"):
            asked = runs.on_rtl(part.removeprefix("rtl_"))
            return sum(runs.ran(one) is None for one in asked), len(asked)
        every = _modelled(part)
        return sum(runs.taken(case, layer) is None for case, layer in every), len(every)

    return count


def _failures(ran: dict[str, list[tuple[runs.Asked, runs.Ran]]]) -> list[str]:
    failures: list[str] = []
    for chip, some in ran.items():
        layers = {asked.layer.name for asked, one in some if one.rtl_cycles and not one.trouble}
        failures += [f"{chip}, {asked.layer.name}, {asked.order}: {one.trouble}" for asked, one in some if one.trouble]
        if len(layers) < ENOUGH[chip]:
            failures.append(f"{len(layers)} layers ran on the RTL of {chip}, the bar is {ENOUGH[chip]}")
        errors = [(asked, abs(sheets.error(one))) for asked, one in some if one.rtl_cycles]
        failures += [
            f"{chip}, {asked.layer.name}, {asked.order}: the model is {off:.2f} % off"
            for asked, off in errors
            if off > WORST_ERROR
        ]
        if errors and sum(off for _, off in errors) / len(errors) > MEAN_ERROR:
            failures.append(f"{chip}: the model's mean error is above {MEAN_ERROR:g} %")
    return failures
