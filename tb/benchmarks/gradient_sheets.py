"""The tables of `gradient`: what networks take, by how their orders are chosen, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshloom.sched.papers.gradient.scheduler import BestTiling
from meshloom.sched.papers.gradient.search import Slower
from meshloom.sched.schedulers.training.orders import Order, selected
from meshloom.sched.schedulers.training.pair import Split
from meshloom.sched.workload.training import TrainingLayer

from . import gradient_runs as runs
from .gradient_knn import NEIGHBOURS, REPEATS, Sample, predicted
from .gradient_runs import NETWORKS, Case, Taken
from .results import Sheet

#: Ways to choose an order and a split. On one core the last of the paper's techniques is to compute parts of a layer
#: one after the other, which tiles do already.
WAYS = ("plain", "interleaved", "algorithm 1", "and the split", "sequential", "best")
#: Orders of the strong baseline: one product after the other, with tiles of its own or the same ones.
STRONG = (Order.SEQUENTIAL, Order.PLAIN)
#: Less time than the baseline, percent, on average over nine networks: what the paper says (figures 12, 14, 15, 16).
PAPER = {
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

    def plus(self, one: BestTiling, times: int, lanes: int) -> Sum:
        """With `times` layers more."""
        return Sum(
            self.cycles + times * one.cycles,
            self.dram + times * one.words * lanes,
            self.spilled + times * one.spilled * lanes,
        )


def fits(found: Taken) -> bool:
    """Whether there is any schedule of a layer."""
    return any(isinstance(one, BestTiling) for one in found.values())


def chosen(layer: TrainingLayer, found: Taken, way: str) -> BestTiling:
    """What a layer takes if its order and split are chosen in some way; where that cannot be done, what `sequential`
    takes by the same split. `plain`, `interleaved` and `algorithm 1` share by rows of the batch, as is usual; a layer
    with too few of them stays on one core."""
    there = {key: one for key, one in found.items() if isinstance(one, BestTiling)}
    usual = next((key[1:] for key in found if key[2] is Split.M), None) or min(key[1:] for key in found)

    def fastest(orders: Sequence[Order], only: tuple[int, Split] | None = None) -> BestTiling | None:
        some = [one for key, one in there.items() if key[0] in orders and only in (None, key[1:])]
        return min(some, key=lambda one: one.cycles, default=None)

    if way == "best":
        return min(there.values(), key=lambda one: one.cycles)
    if way == "sequential" or layer.first:
        one = fastest(STRONG, None if way in ("sequential", "and the split") else usual)
    elif way == "and the split":
        one = fastest([selected(layer.m, layer.k, layer.n)])
    else:
        order = selected(layer.m, layer.k, layer.n) if way == "algorithm 1" else Order(way)
        one = fastest([order], usual) or fastest(STRONG, usual)
    return one or fastest(STRONG) or min(there.values(), key=lambda each: each.cycles)


def total(case: Case, layers: Sequence[TrainingLayer], way: str) -> Sum | None:
    """The sum over layers, each as often as its network has it; None while one is not measured."""
    found = Sum()
    for layer in layers:
        taken = runs.taken(case, layer)
        if taken is None or not fits(taken):
            return None
        found = found.plus(chosen(layer, taken, way), layer.count, case.config.lanes)
    return found


def totals(case: Case, layers: Sequence[TrainingLayer]) -> dict[str, Sum] | None:
    """The sums of all ways; None while a layer is not measured."""
    found = {way: total(case, layers, way) for way in WAYS}
    sums = {way: one for way, one in found.items() if one is not None}
    return sums if len(sums) == len(WAYS) else None


def less(one: float, other: float) -> str:
    """Percent that `one` is less than `other`."""
    return f"{100 * (1 - one / other):+.1f}" if other else "-"


_COLUMNS = (
    "layers>", "plain, cycles>", "interleaved>", "algorithm 1>", "and the split>", "sequential>", "best>",
    "best, of sequential>", "plain, DRAM bytes>", "algorithm 1 >", "sequential >", "best >", "best, spilled>",
)  # fmt: skip
_CYCLES, _DRAM = (3, 4, 5, 6, 7, 8), (10, 11, 12)  # columns of percentages, the name being the first one


def _row(name: str, case: Case, layers: Sequence[TrainingLayer]) -> tuple[str, ...] | None:
    sums = totals(case, layers)
    if sums is None:
        return None
    plain, strong = sums["plain"], sums["sequential"]
    whole = all(Order.INTERLEAVED in case.orders(layer) or layer.first for layer in layers)
    ways = ("interleaved", "algorithm 1", "and the split", "sequential", "best")
    return (
        name, f"{sum(layer.count for layer in layers)}", f"{plain.cycles:,}",
        *(less(sums[way].cycles, plain.cycles) if whole or way != "interleaved" else "-" for way in ways),
        less(sums["best"].cycles, strong.cycles), f"{plain.dram:,}",
        *(less(sums[way].dram, plain.dram) for way in ("algorithm 1", "sequential", "best")),
        f"{sums['best'].spilled:,}",
    )  # fmt: skip


def _mean(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    cells = [f"mean of {len(rows)}", *[""] * len(_COLUMNS)]
    for at in (*_CYCLES, *_DRAM):
        values = [float(row[at]) for row in rows if row[at] != "-"]
        cells[at] = f"{sum(values) / len(values):+.1f}" if len(values) == len(rows) else "-"
    return tuple(cells)


def _paper(figures: dict[str, float], name: str) -> tuple[str, ...]:
    cells = [name, *["-"] * len(_COLUMNS)]
    for at, way in ((3, "interleaved"), (4, "algorithm 1"), (5, "and the split")):
        if way in figures:
            cells[at] = f"{figures[way]:+.1f}"
    return tuple(cells)


def networks(chip: str) -> Sheet:
    """All networks on a chip."""
    case = Case(chip)
    rows = [row for name in NETWORKS if (row := _row(name, case, case.layers(name))) is not None]
    if rows:
        rows.append(_mean(rows))
    if chip in PAPER:
        rows.append(_paper(PAPER[chip], "the paper, mean of 9"))
    return Sheet(f"Networks on {chip}, in the model: percent less than `plain`", ("network", *_COLUMNS), rows)


def sweep(title: str, name: str, cases: dict[int, Case], swept: Sequence[str], paper: dict[int, float]) -> Sheet:
    """The mean over some networks of what each case brings."""
    rows: list[tuple[str, ...]] = []
    for value, case in cases.items():
        found = [row for network in swept if (row := _row(network, case, case.layers(network))) is not None]
        if len(found) == len(swept):
            rows.append((f"{value}", *_mean(found)[1:]))
        if value in paper:
            rows.append(_paper({"and the split": paper[value]}, f"{value}, the paper"))
    return Sheet(f"{title}: mean of {', '.join(swept)}, percent less than `plain`", (name, *_COLUMNS), rows)


def longest_layers(chip: str) -> list[tuple[TrainingLayer, Taken]]:
    """The different layers that take longest of those that are measured, first layers left out."""
    return _measured(chip)[:LONGEST]


def _measured(chip: str) -> list[tuple[TrainingLayer, Taken]]:
    """All of them, the longest first."""
    case = Case(chip)
    found: dict[tuple[int, int, int], tuple[TrainingLayer, Taken]] = {}
    for layer in (layer for name in NETWORKS for layer in case.layers(name) if not layer.first):
        taken = runs.taken(case, layer)
        if taken is not None and fits(taken):
            found.setdefault((layer.m, layer.k, layer.n), (layer, taken))
    return sorted(found.values(), key=lambda one: -chosen(*one, "plain").cycles)


def longest(chip: str) -> Sheet:
    """Figure 13."""
    rows: list[tuple[str, ...]] = []
    for layer, taken in longest_layers(chip):
        plain, paper, best = (chosen(layer, taken, way) for way in ("plain", "algorithm 1", "best"))
        rows.append((
            layer.name.removeprefix("gradient:"), f"{layer.m}x{layer.k}x{layer.n}", f"{plain.cycles:,}",
            selected(layer.m, layer.k, layer.n).value, less(paper.cycles, plain.cycles), less(paper.words, plain.words),
            best.candidate.order.value, less(best.cycles, plain.cycles), less(best.words, plain.words),
        ))  # fmt: skip
    columns = (
        "layer", "M x K x N", "plain, cycles>", "algorithm 1", "less time, %>", "less DRAM, %>", "best",
        "less time, % >", "less DRAM, % >",
    )  # fmt: skip
    count = len(_measured(chip))
    title = f"The {LONGEST} longest of {count} different layers on {chip} (figure 13), without first layers"
    return Sheet(title, columns, rows)


def _samples(chip: str) -> list[Sample]:
    """Layers that can be shared in several ways, with what algorithm 1's order takes in each (at least, where it was
    certain that another one is faster)."""
    found: list[Sample] = []
    for layer, taken in _measured(chip):
        sizes = layer.m, layer.k, layer.n
        order = selected(*sizes)
        some = {key[2].value: one for key, one in taken.items() if key[0] is order}
        cycles = {split: one.cycles for split, one in some.items() if isinstance(one, BestTiling | Slower)}
        if len(cycles) > 1:
            found.append(Sample(sizes, cycles, chosen(layer, taken, "plain").cycles))
    return found


def neighbours(chips: Sequence[str]) -> Sheet:
    """The paper's predictor of the split."""
    rows: list[tuple[str, ...]] = []
    for chip in chips:
        samples = _samples(chip)
        for one in predicted(samples):
            most = max({sample.label for sample in samples}, key=[sample.label for sample in samples].count)
            share = sum(sample.label == most for sample in samples) / len(samples)
            rows.append((
                chip, f"{len(samples)}", f"{one.neighbours}", f"{100 * one.right:.1f}", f"{100 * share:.1f} ({most})",
                f"{100 * one.less:+.1f}", f"{100 * one.least:+.1f}",
            ))  # fmt: skip
    rows.append(("the paper, two cores", "-", "-", "91", "-", "+21.5", "+22.4"))
    columns = (
        "chip", "layers>", "neighbours>", "right, %>", "always the commonest, %>", "predicted: less time, %>",
        "argmin by the model: less time, %>",
    )  # fmt: skip
    counts = ", ".join(map(str, NEIGHBOURS))
    title = f"Which split, by K nearest neighbours ({counts}): a fifth for tests, {REPEATS:,} draws"
    return Sheet(title, columns, rows)


def on_rtl(chips: Sequence[str]) -> Sheet:
    """What has run on the RTL: each layer in every order and split that applies."""
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for chip in chips:
        by_layer: dict[str, list[tuple[runs.Asked, runs.Ran]]] = {}
        for asked in runs.on_rtl(chip):
            one = runs.ran(asked)
            if one is not None:
                by_layer.setdefault(asked.layer.name, []).append((asked, one))
        for name, some in by_layer.items():
            layer, did = some[0][0].layer, [pair for pair in some if pair[1].rtl_cycles]
            if not did:
                continue
            best = min(did, key=lambda pair: pair[1].rtl_cycles)
            plain = next((one for asked, one in did if asked.order is Order.PLAIN), None)
            strong = min((one.rtl_cycles for asked, one in did if asked.order in STRONG), default=0)
            troubles = [one.trouble for _, one in some if one.trouble]
            if troubles:
                bad.add(len(rows))
            errors = [error(one) for _, one in did]
            rows.append((
                chip, name.removeprefix("gradient:"), f"{layer.m}x{layer.k}x{layer.n}", f"{len(did)}",
                best[0].order.value + (f" by {best[0].split}" if best[0].cores > 1 else ""),
                f"{best[1].rtl_cycles:,}", less(best[1].rtl_cycles, plain.rtl_cycles) if plain else "-",
                less(best[1].rtl_cycles, strong), f"{max(errors, key=abs):+.2f}",
                f"{sum(one.compared for _, one in did):,}", f"{sum(one.wrong for _, one in did)}", "; ".join(troubles),
            ))  # fmt: skip
    columns = (
        "chip", "layer", "M x K x N", "programs>", "best on the RTL", "RTL cycles>", "less than plain, %>",
        "less than sequential, %>", "model, % (worst)>", "bytes compared>", "wrong>", "trouble",
    )  # fmt: skip
    return Sheet("On the RTL: each layer in every order and split that applies", columns, rows, frozenset(bad))


def error(one: runs.Ran) -> float:
    """Percent that the model is off."""
    return 100 * (one.model_cycles - one.rtl_cycles) / max(1, one.rtl_cycles)


def missing(parts: dict[str, Callable[[], tuple[int, int]]]) -> Sheet:
    """What has not been measured, by part: `parts` count what is missing, and all."""
    rows: list[tuple[str, ...]] = []
    for part, count in parts.items():
        left, every = count()
        if left:
            rows.append((part, f"{left}", f"{every}"))
    title = "Not measured since what decides it changed; `meshloom bench gradient --part NAME` measures a part"
    return Sheet(title, ("part", "missing>", "of>"), rows)
