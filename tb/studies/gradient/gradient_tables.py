"""What networks take, by how their orders are chosen: sums of rows, and the tables of `gradient`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from meshloom.sched.schedulers.training.orders import Order, selected
from meshloom.sched.schedulers.training.pair import Split
from meshloom.sched.workload.training import TrainingLayer

from ..engine.rows import Rows
from ..engine.tables import DASH, Table, count, table
from .gradient_cases import NETWORKS, Case
from .gradient_points import OrderCycles, PairRow, PairRun, modelled
from .neighbours import NEIGHBOURS, REPEATS, Sample, predicted

#: Ways to choose an order and a split. On one core the last of the paper's techniques is to compute parts of a layer
#: one after the other, which tiles do already.
WAYS = ("plain", "interleaved", "algorithm 1", "and the split", "sequential", "best")
#: Orders of the strong baseline: one product after the other, with tiles of its own or the same ones.
STRONG = (Order.SEQUENTIAL, Order.PLAIN)
#: Less time than the baseline, percent, on average over nine networks: what the paper says (figures 12, 14, 15, 16).
PAPER: Mapping[str, Mapping[str, float]] = {
    "edge45": {"interleaved": 0.8, "algorithm 1": 23.8, "and the split": 29.3},
    "server1": {"interleaved": 7.4, "algorithm 1": 10.9, "and the split": 14.5},
    "server4": {"and the split": 23.7},
    "server8": {"and the split": 27.7},
}
#: The same for a share of the bandwidth, and for examples of a batch, all techniques together.
PAPER_BYTES, PAPER_BATCH = {128: 14.5, 64: 19.3, 32: 22.7}, {8: 14.5, 16: 14.7, 32: 14.0}
#: Layers of figure 13.
LONGEST = 24


@dataclass(frozen=True)
class Sum:
    """What layers take: cycles, bytes to and from DRAM, and those of spilled sums among them."""

    cycles: int = 0
    dram: int = 0
    spilled: int = 0

    def plus(self, one: OrderCycles, times: int, lanes: int) -> Sum:
        """With `times` layers more."""
        return Sum(
            self.cycles + times * one.cycles,
            self.dram + times * one.words * lanes,
            self.spilled + times * one.spilled * lanes,
        )


def orders_of(rows: Rows, case: Case, layer: TrainingLayer) -> tuple[OrderCycles, ...] | None:
    """What a layer takes; None if it is not measured, or has no schedule at all."""
    point = modelled(case, layer)
    if point not in rows:
        return None
    orders: tuple[OrderCycles, ...] = rows[point].orders
    return orders if any(one.played for one in orders) else None


def chosen(layer: TrainingLayer, orders: Sequence[OrderCycles], way: str) -> OrderCycles:
    """What a layer takes if its order and split are chosen in some way; where that cannot be done, what `sequential`
    takes by the same split. `plain`, `interleaved` and `algorithm 1` share by rows of the batch, as is usual; a layer
    with too few of them stays on one core."""
    there = [one for one in orders if one.played]
    usual = next((one.way for one in orders if one.split is Split.M), None) or min(one.way for one in orders)

    def fastest(some: Sequence[Order], only: tuple[int, Split] | None = None) -> OrderCycles | None:
        able = [one for one in there if one.order in some and only in (None, one.way)]
        return min(able, key=lambda one: one.cycles, default=None)

    if way == "best":
        return min(there, key=lambda one: one.cycles)
    if way == "sequential" or layer.first:
        one = fastest(STRONG, None if way in ("sequential", "and the split") else usual)
    elif way == "and the split":
        one = fastest([selected(layer.m, layer.k, layer.n)])
    else:
        order = selected(layer.m, layer.k, layer.n) if way == "algorithm 1" else Order(way)
        one = fastest([order], usual) or fastest(STRONG, usual)
    return one or fastest(STRONG) or min(there, key=lambda each: each.cycles)


def totals(rows: Rows, case: Case, network: str) -> dict[str, Sum] | None:
    """The sums of all ways over the layers of a network, each as often as that has it; None while one is not
    measured."""
    sums: dict[str, Sum] = {way: Sum() for way in WAYS}
    for layer in case.layers(network):
        orders = orders_of(rows, case, layer)
        if orders is None:
            return None
        for way in WAYS:
            sums[way] = sums[way].plus(chosen(layer, orders, way), layer.count, case.config.lanes)
    return sums


def less(one: float, other: float) -> str:
    """Percent that `one` is less than `other`."""
    return f"{100 * (1 - one / other):+.1f}" if other else DASH


_COLUMNS = (
    "layers>", "plain, cycles>", "interleaved>", "algorithm 1>", "and the split>", "sequential>", "best>",
    "best, of sequential>", "plain, DRAM bytes>", "algorithm 1 >", "sequential >", "best >", "best, spilled>",
)  # fmt: skip
_CYCLES, _DRAM = (3, 4, 5, 6, 7, 8), (10, 11, 12)  # columns of percentages, the name being the first one


def _row(rows: Rows, case: Case, network: str) -> tuple[str, ...] | None:
    sums = totals(rows, case, network)
    if sums is None:
        return None
    layers = case.layers(network)
    plain, strong = sums["plain"], sums["sequential"]
    whole = all(Order.INTERLEAVED in modelled(case, layer).orders(layer) or layer.first for layer in layers)
    ways = ("interleaved", "algorithm 1", "and the split", "sequential", "best")
    return (
        network, f"{sum(layer.count for layer in layers)}", count(plain.cycles),
        *(less(sums[way].cycles, plain.cycles) if whole or way != "interleaved" else DASH for way in ways),
        less(sums["best"].cycles, strong.cycles), count(plain.dram),
        *(less(sums[way].dram, plain.dram) for way in ("algorithm 1", "sequential", "best")),
        count(sums["best"].spilled),
    )  # fmt: skip


def _mean(lines: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    cells = [f"mean of {len(lines)}", *[""] * len(_COLUMNS)]
    for at in (*_CYCLES, *_DRAM):
        values = [float(line[at]) for line in lines if line[at] != DASH]
        cells[at] = f"{sum(values) / len(values):+.1f}" if len(values) == len(lines) else DASH
    return tuple(cells)


def _paper(figures: Mapping[str, float], name: str) -> tuple[str, ...]:
    cells = [name, *[DASH] * len(_COLUMNS)]
    for at, way in ((3, "interleaved"), (4, "algorithm 1"), (5, "and the split")):
        if way in figures:
            cells[at] = f"{figures[way]:+.1f}"
    return tuple(cells)


def networks(rows: Rows, chip: str) -> Table:
    """All networks on a chip that are measured."""
    case = Case(chip)
    lines = [line for name in NETWORKS if (line := _row(rows, case, name)) is not None]
    if lines:
        lines.append(_mean(lines))
        if chip in PAPER:
            lines.append(_paper(PAPER[chip], "the paper, mean of 9"))
    return Table(f"Networks on {chip}, in the model: percent less than `plain`", ("network", *_COLUMNS), lines)


def sweep(
    rows: Rows, title: str, name: str, cases: Mapping[int, Case], some: Sequence[str], paper: Mapping[int, float]
) -> Table:
    """The mean of what each case brings, over those networks of some that are measured in every case."""
    by_case = {value: {network: _row(rows, case, network) for network in some} for value, case in cases.items()}
    common = [network for network in some if all(each[network] for each in by_case.values())]
    lines: list[tuple[str, ...]] = []
    for value, each in by_case.items():
        if common:
            lines.append((f"{value}", *_mean([line for network in common if (line := each[network])])[1:]))
            if value in paper:
                lines.append(_paper({"and the split": paper[value]}, f"{value}, the paper"))
    return Table(f"{title}: mean of {', '.join(common)}, percent less than `plain`", (name, *_COLUMNS), lines)


#: A layer, and what it takes in all orders.
Measured = tuple[TrainingLayer, tuple[OrderCycles, ...]]


def measured(rows: Rows, chip: str) -> list[Measured]:
    """The different layers that are measured, the longest first, first layers left out."""
    case = Case(chip)
    by_size: dict[tuple[int, int, int], Measured] = {}
    for layer in (layer for name in NETWORKS for layer in case.layers(name) if not layer.first):
        orders = orders_of(rows, case, layer)
        if orders is not None:
            by_size.setdefault((layer.m, layer.k, layer.n), (layer, orders))
    return sorted(by_size.values(), key=lambda one: -chosen(*one, "plain").cycles)


def longest(rows: Rows, chip: str) -> Table:
    """Figure 13."""
    some = measured(rows, chip)

    def of(each: Measured, way: str) -> OrderCycles:
        return chosen(*each, way)

    def less_time(way: str) -> Callable[[Measured], str]:
        return lambda each: less(of(each, way).cycles, of(each, "plain").cycles)

    def less_dram(way: str) -> Callable[[Measured], str]:
        return lambda each: less(of(each, way).words, of(each, "plain").words)

    columns: dict[str, Callable[[Measured], str]] = {
        "layer": lambda each: each[0].name.removeprefix("gradient:"),
        "M x K x N": lambda each: f"{each[0].m}x{each[0].k}x{each[0].n}",
        "plain, cycles>": lambda each: count(of(each, "plain").cycles),
        "algorithm 1": lambda each: selected(each[0].m, each[0].k, each[0].n).value,
        "less time, %>": less_time("algorithm 1"),
        "less DRAM, %>": less_dram("algorithm 1"),
        "best": lambda each: of(each, "best").order.value,
        "less time, % >": less_time("best"),
        "less DRAM, % >": less_dram("best"),
    }
    shown = some[:LONGEST]
    title = f"The {len(shown)} longest of {len(some)} different layers on {chip} (figure 13), without first layers"
    return table(title, columns, shown)


def _samples(rows: Rows, chip: str) -> list[Sample]:
    """Layers that can be shared in several ways, with what algorithm 1's order takes in each (at least, where it was
    certain that another one is faster)."""
    samples: list[Sample] = []
    for layer, orders in measured(rows, chip):
        sizes = layer.m, layer.k, layer.n
        order = selected(*sizes)
        cycles = {one.split.value: one.cycles for one in orders if one.order is order and not one.refused}
        if len(cycles) > 1:
            samples.append(Sample(sizes, cycles, chosen(layer, orders, "plain").cycles))
    return samples


def neighbours(rows: Rows, chips: Sequence[str]) -> Table:
    """The paper's predictor of the split."""
    lines: list[tuple[str, ...]] = []
    for chip in chips:
        samples = _samples(rows, chip)
        labels = [sample.label for sample in samples]
        for one in predicted(samples):
            most = max(dict.fromkeys(labels), key=labels.count)
            lines.append((
                chip, f"{len(samples)}", f"{one.neighbours}", f"{100 * one.right:.1f}",
                f"{100 * labels.count(most) / len(labels):.1f} ({most})", f"{100 * one.less:+.1f}",
                f"{100 * one.least:+.1f}",
            ))  # fmt: skip
    lines += [("the paper, two cores", DASH, DASH, "91", DASH, "+21.5", "+22.4")] * bool(lines)
    columns = (
        "chip", "layers>", "neighbours>", "right, %>", "always the commonest, %>", "predicted: less time, %>",
        "argmin by the model: less time, %>",
    )  # fmt: skip
    counts = ", ".join(map(str, NEIGHBOURS))
    title = f"Which split, by K nearest neighbours ({counts}): a fifth for tests, {REPEATS:,} draws"
    return Table(title, columns, lines)


class LayerRun:
    """A layer on the RTL of a chip in all orders and splits that have run."""

    def __init__(self, chip: str, name: str, runs: Sequence[tuple[PairRun, PairRow]]) -> None:
        self.chip, self.name = chip, name
        self.runs = [(point, row) for point, row in runs if row.rtl_cycles]
        self.best, self.row = min(self.runs, key=lambda pair: pair[1].rtl_cycles)
        self.plain = next((row.rtl_cycles for point, row in self.runs if point.order is Order.PLAIN), 0)
        self.strong = min((row.rtl_cycles for point, row in self.runs if point.order in STRONG), default=0)
        self.trouble = "; ".join(row.trouble for _, row in runs if row.trouble)
        self.error = max((row.error for _, row in self.runs), key=abs)


def layer_runs(rows: Rows) -> list[LayerRun]:
    """Layers that have run on the RTL."""
    by_layer: dict[tuple[str, str], list[tuple[PairRun, PairRow]]] = {}
    for point, row in rows.items():
        if isinstance(point, PairRun):
            by_layer.setdefault((point.chip, point.layer), []).append((point, row))
    return [LayerRun(*key, some) for key, some in by_layer.items() if any(row.rtl_cycles for _, row in some)]


def on_rtl(rows: Rows) -> Table:
    """What has run on the RTL: each layer in every order and split that applies."""
    sizes = {
        (chip, layer.name): f"{layer.m}x{layer.k}x{layer.n}"
        for chip in dict.fromkeys(run.chip for run in layer_runs(rows))
        for network in NETWORKS
        for layer in Case(chip).layers(network)
    }
    columns: dict[str, Callable[[LayerRun], str]] = {
        "chip": lambda run: run.chip,
        "layer": lambda run: run.name.removeprefix("gradient:"),
        "M x K x N": lambda run: sizes.get((run.chip, run.name), DASH),
        "programs>": lambda run: count(len(run.runs)),
        "best on the RTL": lambda run: run.best.order.value + f" by {run.best.split}" * (run.best.cores > 1),
        "RTL cycles>": lambda run: count(run.row.rtl_cycles),
        "less than plain, %>": lambda run: less(run.row.rtl_cycles, run.plain),
        "less than sequential, %>": lambda run: less(run.row.rtl_cycles, run.strong),
        "model, % (worst)>": lambda run: f"{run.error:+.2f}",
        "bytes compared>": lambda run: count(sum(row.compared for _, row in run.runs)),
        "wrong>": lambda run: count(sum(row.wrong for _, row in run.runs)),
        "trouble": lambda run: run.trouble,
    }
    title = "On the RTL: each layer in every order and split that applies"
    return table(title, columns, layer_runs(rows), bad=lambda run: bool(run.trouble))
