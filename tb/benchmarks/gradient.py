"""Both gradients of the layers of the networks that the paper trains, in every order, on its small NPU.

J. Kim et al., "Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient Order for DNN Training" (MICRO
2023), section 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshloom.hw.config import ChipConfig
from meshloom.sched.schedulers.gradient.orders import Order, selected
from meshloom.sched.workload.training import TrainingLayer

from ..results.events import OnEvent
from . import gradient_runs as runs
from .gradient_runs import Ran, Taken
from .interface import BenchmarkError
from .results import Result, Sheet

#: The paper's networks on its small NPU (table 4).
NETWORKS = ("rcnn", "goo", "ncf", "res", "dlrm", "mob", "yolov2_tiny", "bert_tiny", "t5_small")
#: Networks of the sweeps, with layers that are searched in minutes; bytes of DRAM a cycle and examples of a batch.
SWEPT, BYTES, BATCHES = ("ncf", "dlrm", "bert_tiny"), (6, 11, 22), (4, 8, 16)
#: Layers with at most so many products run on the RTL: seconds each.
MOST_MACS = 150_000_000
#: Bars: layers on the RTL; the model's error in percent, the mean and each.
ENOUGH, MEAN_ERROR, WORST_ERROR = 30, 1.0, 3.0
#: Less time than the baseline, percent, on average over the networks: what the paper says of its small NPU (figure 12).
PAPER = {"interleaved": 0.8, "algorithm 1": 23.8}
PARTS = (*NETWORKS, "bandwidth", "batch", "rtl", "kept")


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Measures what is not kept, of the parts that are asked for; shows all that is. Raises BenchmarkError."""
    if unknown := [part for part in parts if part not in PARTS]:
        raise BenchmarkError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    asked = parts or PARTS
    for network in (name for name in NETWORKS if name in asked):
        for layer in runs.layers(network):
            runs.measure(layer, runs.chip(), on_progress)
    if "bandwidth" in asked:
        for layer in _swept(None):
            for width in BYTES:
                runs.measure(layer, _chip(width), on_progress)
    if "batch" in asked:
        for batch in BATCHES:
            for layer in _swept(batch):
                runs.measure(layer, runs.chip(), on_progress)
    if "rtl" in asked:
        runs.run_on_rtl(on_rtl(), on_progress)
    ran = {layer.name: (layer, one) for layer in on_rtl() if (one := runs.ran(layer)) is not None}
    return Result(
        "gradient",
        "Both gradients of a layer, in every order",
        f"dX and dW of the layers with weights of the paper's networks on {runs.CHIP} (45x45, 1 MiB, 22 bytes a cycle "
        "for numbers of one byte; batch 4), each layer as often as its network has it. `plain` is the paper's baseline "
        "(traditional products, one tiling for both), `sequential` the strong one (each product with its own best "
        "tiles and loops); `algorithm 1` is what the paper selects by the sizes, `best` the fastest of all by the "
        "model, `sequential` included. A first layer has no dX. Each result is kept; parts: "
        f"{', '.join(PARTS)}. Bars: {ENOUGH} layers on the RTL with every byte right, the model's error there at most "
        f"{MEAN_ERROR:g} % on average and {WORST_ERROR:g} % each.",
        (_networks(), *_sweeps(), _rtl(ran), _missing()),
        (
            "What the paper's bandwidth was meant for: it names no width of its numbers. 22 bytes a cycle are meant "
            "for numbers of one byte here; numbers of two bytes see as many a cycle on the same chip with 44, so that "
            "a paper with two-byte numbers corresponds to the row with 11 bytes a cycle in the sweep.",
        ),
        tuple(_failures({name: one for name, (_, one) in ran.items()})),
    )


def _chip(width: int) -> ChipConfig:
    return runs.chip(None if width == runs.chip().dram.bytes_per_cycle else width)


def _swept(batch: int | None) -> list[TrainingLayer]:
    return [layer for network in SWEPT for layer in runs.layers(network, batch) if not layer.first]


def on_rtl() -> list[TrainingLayer]:
    """The layers that run on the RTL, small ones first."""
    found = [layer for network in NETWORKS for layer in runs.layers(network) if layer.macs <= MOST_MACS]
    return sorted(found, key=lambda layer: (layer.macs, layer.name))[: 2 * ENOUGH]


# -- tables -----------------------------------------------------------------------------------------------------------

#: Ways to choose an order, by name.
WAYS = ("sequential", "plain", "interleaved", "algorithm 1", "best")


def chosen(layer: TrainingLayer, found: dict[Order, Taken], way: str) -> Taken:
    """What a layer takes if its order is chosen in some way; where that order does not fit, what `sequential` takes."""
    there = {order: one for order, one in found.items() if not one.trouble}
    if way == "best":
        return min(there.values(), key=lambda one: one.cycles)
    order = selected(layer.m, layer.k, layer.n) if way == "algorithm 1" else Order(way)
    return there.get(order) or there[Order.SEQUENTIAL]


def total(layers: Sequence[TrainingLayer], config: ChipConfig, way: str) -> Taken | None:
    """The sum over layers, each as often as its network has it; None while one is not measured."""
    cycles = moved = spilled = 0
    for layer in layers:
        found = runs.taken(layer, config)
        if found is None or all(one.trouble for one in found.values()):
            return None
        one = chosen(layer, found, way)
        cycles += layer.count * one.cycles
        moved += layer.count * one.dram_bytes
        spilled += layer.count * one.spilled_bytes
    return Taken(cycles, moved, spilled)


def _less(one: float, other: float) -> str:
    """Percent that `one` is less than `other`."""
    return f"{100 * (1 - one / other):+.1f}" if other else "-"


def _row(name: str, layers: Sequence[TrainingLayer], config: ChipConfig) -> tuple[str, ...] | None:
    found = {way: total(layers, config, way) for way in WAYS}
    sums = {way: one for way, one in found.items() if one is not None}
    if len(sums) != len(WAYS):
        return None
    plain, strong = sums["plain"], sums["sequential"]
    return (
        name, f"{len(layers)}", f"{plain.cycles:,}",
        *(_less(sums[way].cycles, plain.cycles) for way in ("interleaved", "algorithm 1", "sequential", "best")),
        _less(sums["best"].cycles, strong.cycles), f"{plain.dram_bytes:,}",
        *(_less(sums[way].dram_bytes, plain.dram_bytes) for way in ("algorithm 1", "sequential", "best")),
        f"{sums['best'].spilled_bytes:,}",
    )  # fmt: skip


_COLUMNS = (
    "layers>", "plain, cycles>", "interleaved>", "algorithm 1>", "sequential>", "best>", "best, of sequential>",
    "plain, DRAM bytes>", "algorithm 1 >", "sequential >", "best >", "best, spilled>",
)  # fmt: skip


def _networks() -> Sheet:
    rows = [row for name in NETWORKS if (row := _row(name, runs.layers(name), runs.chip())) is not None]
    if rows:
        count = len(rows)
        means = [f"{sum(float(row[at]) for row in rows) / count:+.1f}" for at in (3, 4, 5, 6, 7)]
        moved = [f"{sum(float(row[at]) for row in rows) / count:+.1f}" for at in (9, 10, 11)]
        rows.append((f"mean of {count}", "", "", *means, "", *moved, ""))
    paper = (f"{PAPER['interleaved']:+.1f}", f"{PAPER['algorithm 1']:+.1f}")
    rows.append(("the paper, mean of 9 (figure 12)", "", "", *paper, "-", "-", "-", "", "-", "-", "-", ""))
    return Sheet("Networks, in the model: percent less than `plain`", ("network", *_COLUMNS), rows)


def _sweeps() -> tuple[Sheet, Sheet]:
    widths = [(f"{width}", _row(f"{width}", _swept(None), _chip(width))) for width in BYTES]
    batches = [(f"{batch}", _row(f"{batch}", _swept(batch), runs.chip())) for batch in BATCHES]
    some = ", ".join(SWEPT)
    return (
        Sheet(f"Bytes of DRAM a cycle: layers of {some}", ("bytes", *_COLUMNS), [row for _, row in widths if row]),
        Sheet(f"Examples of a batch: layers of {some}", ("batch", *_COLUMNS), [row for _, row in batches if row]),
    )


def _rtl(ran: dict[str, tuple[TrainingLayer, Ran]]) -> Sheet:
    rows: list[tuple[str, ...]] = []
    for name, (layer, one) in ran.items():
        error = 100 * (one.model_cycles - one.rtl_cycles) / max(1, one.rtl_cycles)
        rows.append((
            name.removeprefix("gradient:"), f"{layer.m}x{layer.k}x{layer.n}", one.order, f"{one.rtl_cycles:,}",
            f"{error:+.2f}", f"{one.compared:,}", f"{one.wrong}", one.trouble,
        ))  # fmt: skip
    bad = frozenset(at for at, row in enumerate(rows) if row[-1])
    columns = ("layer", "M x K x N", "best order", "RTL cycles>", "model, %>", "bytes compared>", "wrong>", "trouble")
    return Sheet("On the RTL: layers with the fewest products", columns, rows, bad)


def _missing() -> Sheet:
    """What has not been measured, by part."""
    left = {name: [one for one in runs.layers(name) if runs.taken(one, runs.chip()) is None] for name in NETWORKS}
    every = {name: len(runs.layers(name)) for name in NETWORKS}
    left["bandwidth"] = [one for width in BYTES for one in _swept(None) if runs.taken(one, _chip(width)) is None]
    every["bandwidth"] = len(BYTES) * len(_swept(None))
    left["batch"] = [one for batch in BATCHES for one in _swept(batch) if runs.taken(one, runs.chip()) is None]
    every["batch"] = sum(len(_swept(batch)) for batch in BATCHES)
    left["rtl"] = [one for one in on_rtl() if runs.ran(one) is None]
    every["rtl"] = len(on_rtl())
    rows = [(part, f"{len(some)}", f"{every[part]}") for part, some in left.items() if some]
    title = "Not measured since what decides it changed; `meshloom bench gradient --part NAME` measures a part"
    return Sheet(title, ("part", "missing>", "of>"), rows)


def _failures(ran: dict[str, Ran]) -> list[str]:
    failures = [f"{name}: {one.trouble}" for name, one in ran.items() if one.trouble]
    if len(ran) < ENOUGH:
        failures.append(f"{len(ran)} layers ran on the RTL, the bar is {ENOUGH}")
    errors = {
        name: 100 * abs(one.model_cycles - one.rtl_cycles) / one.rtl_cycles
        for name, one in ran.items()
        if one.rtl_cycles
    }
    failures += [f"{name}: the model is {error:.2f} % off" for name, error in errors.items() if error > WORST_ERROR]
    if errors and sum(errors.values()) / len(errors) > MEAN_ERROR:
        failures.append(f"the model's mean error is above {MEAN_ERROR:g} %")
    return failures
