"""The tables of `gradient`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import NamedTuple

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.schedulers.training.orders import Order, selected

from ..engine.rows import Rows
from ..engine.tables import DASH, Table, count, table
from .gradient_cases import NETWORKS, Case
from .gradient_points import PairModelled, PairRow, PairRun
from .gradient_sums import STRONG, WAYS, MeasuredLayer, NetworkSums, measured, network_sums, percent_less
from .neighbours import NEIGHBOURS, REPEATS, Sample, predicted

#: Less time than the baseline, percent, on average over nine networks: what the paper says (figures 12, 14, 15, 16).
PAPER: Mapping[str, Mapping[str, float]] = {
    "edge45": {"interleaved": 0.8, "algorithm 1": 23.8, "and the split": 29.3},
    "server1": {"interleaved": 7.4, "algorithm 1": 10.9, "and the split": 14.5},
    "server4": {"and the split": 23.7},
    "server8": {"and the split": 27.7},
}
#: The same for a share of the bandwidth, and for examples of a batch, all techniques together.
PAPER_BYTES, PAPER_BATCH = {128: 14.5, 64: 19.3, 32: 22.7}, {8: 14.5, 16: 14.7, 32: 14.0}
#: Layers of figure 13; bytes of a KiB.
LONGEST, KIB = 24, 1 << 10


#: What a lower bound begins with.
AT_LEAST = "≥ "


class _Saving(NamedTuple):
    """A column of percent less: a way of a base, of the gradients or of a whole step."""

    way: str
    base: str = "plain"
    step: bool = False


_GRADIENTS = {
    **{f"{way}>": _Saving(way) for way in WAYS[1:]},
    "best, of sequential>": _Saving("best", "sequential"),
}
_STEPS = {f"step: {name}": saving._replace(step=True) for name, saving in _GRADIENTS.items()}
_TIMES = ("layers>", "all orders>", "plain, cycles>", *_GRADIENTS, "forward, cycles>", *_STEPS)
_MOVED = ("algorithm 1", "sequential", "best")
_TRAFFIC = (
    "plain, DRAM bytes>", *(f"{way}>" for way in _MOVED), "best, spilled>", "layers with more DRAM>",
    "words a channel then>",
)  # fmt: skip


def signed(value: float | None) -> str:
    """Percent with their sign; a dash where there are none."""
    return DASH if value is None else f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: no minus before a zero


def less(value: float, base: float) -> str:
    """Percent that `value` is less than `base`."""
    return signed(percent_less(value, base))


def _percent(some: Sequence[NetworkSums], of: Callable[[NetworkSums], float | None]) -> str:
    """The mean over networks."""
    values = [value for entry in some if (value := of(entry)) is not None]
    return signed(sum(values) / len(values) if values and len(values) == len(some) else None)


def _saved(some: Sequence[NetworkSums], saving: _Saving) -> str:
    text = _percent(some, lambda entry: entry.less(*saving))
    return AT_LEAST * (text != DASH and any(entry.least(saving.way) for entry in some)) + text


def _times(name: str, some: Sequence[NetworkSums]) -> tuple[str, ...]:
    """A row of one network, or of the mean of several."""
    entry = some[0] if len(some) == 1 else None
    gradients, steps = ([_saved(some, saving) for saving in kind.values()] for kind in (_GRADIENTS, _STEPS))
    searched, layers = sum(each.searched for each in some), sum(each.layers for each in some)
    return (
        name, f"{layers}", f"{searched}", count(entry.ways["plain"].cycles) if entry else "",
        *gradients, count(entry.forward) if entry else "", *steps,
    )  # fmt: skip


def _traffic(name: str, some: Sequence[NetworkSums]) -> tuple[str, ...]:
    entry = some[0] if len(some) == 1 else None
    words = max(each.words for each in some)
    moved = [_percent(some, methodcaller("less_dram", way)) for way in _MOVED]
    return (
        name, count(entry.ways["plain"].dram) if entry else "", *moved,
        count(entry.ways["best"].spilled) if entry else "",
        f"{sum(each.enlarged for each in some)}", count(words) if words else DASH,
    )  # fmt: skip


def _paper(name: str, figures: Mapping[str, float]) -> tuple[str, ...]:
    """A row of what the paper says, whose times are of steps."""
    ways = {f"step: {way}>": value for way, value in figures.items()}
    return (name, *(signed(ways.get(column)) for column in _TIMES))


def networks(rows: Rows, chip: str) -> list[Table]:
    """All networks on a chip that are measured."""
    case = Case(chip)
    some = [entry for name in NETWORKS if (entry := network_sums(rows, case, name)) is not None]
    times, traffic = (
        [_times(entry.network, [entry]) for entry in some],
        [_traffic(entry.network, [entry]) for entry in some],
    )
    if some:
        mean = f"mean of {len(some)}"
        times.append(_times(mean, some))
        traffic.append(_traffic(mean, some))
        if chip in PAPER:
            times.append(_paper("the paper, mean of 9", PAPER[chip]))
    return [
        Table(f"Networks on {chip}, in the model: percent less than `plain`", ("network", *_TIMES), times),
        Table(f"Traffic of networks on {chip}: percent less than `plain`", ("network", *_TRAFFIC), traffic),
    ]


def sweep(
    rows: Rows, title: str, name: str, cases: Mapping[int, Case], some: Sequence[str], paper: Mapping[int, float]
) -> list[Table]:
    """The mean of what each case brings, over those networks of some that are measured in every case."""
    by_case = {value: {network: network_sums(rows, case, network) for network in some} for value, case in cases.items()}
    common = [network for network in some if all(each[network] for each in by_case.values())]
    times: list[tuple[str, ...]] = []
    traffic: list[tuple[str, ...]] = []
    for value, each in by_case.items():
        if sums := [entry for network in common if (entry := each[network]) is not None]:
            times.append(_times(f"{value}", sums))
            traffic.append(_traffic(f"{value}", sums))
            if value in paper:
                times.append(_paper(f"{value}, the paper", {"and the split": paper[value]}))
    mean = f"mean of {', '.join(common)}, percent less than `plain`"
    return [
        Table(f"{title}: {mean}", (name, *_TIMES), times),
        Table(f"Traffic, {title[0].lower()}{title[1:]}: {mean}", (name, *_TRAFFIC), traffic),
    ]


def memories(rows: Rows) -> Table:
    """How the memory of a core is split on the chips that are measured."""
    chips = dict.fromkeys(point.chip for point in rows if isinstance(point, PairModelled))
    columns: dict[str, Callable[[ChipConfig], str]] = {
        "chip": lambda chip: chip.name,
        "cores>": lambda chip: count(len(chip.cores)),
        "array": lambda chip: f"{chip.rows}x{chip.cols}",
        "bytes of a word>": lambda chip: count(chip.lanes),
        "A, words>": lambda chip: count(chip.core.a_words),
        "B, words>": lambda chip: count(chip.core.b_words),
        "ACC, words of sums>": lambda chip: count(chip.core.acc_words),
        "OUT, words>": lambda chip: count(chip.core.out_words),
        "VEC, words>": lambda chip: count(chip.core.vec_words),
        "A / B / ACC / OUT / VEC, KiB": lambda chip: " / ".join(f"{size / KIB:g}" for size in _memory_bytes(chip)),
        "KiB of a core>": lambda chip: f"{sum(_memory_bytes(chip)) / KIB:,g}",
        "DRAM, bytes a cycle of a channel>": lambda chip: count(chip.dram.bytes_per_cycle),
        "DRAM, words of a channel>": lambda chip: count(chip.dram.words),
    }
    return table("Memories of the chips, of each core", columns, [load(chip) for chip in chips])


def _memory_bytes(chip: ChipConfig) -> tuple[int, ...]:
    """Of A, B, ACC (whose words are sums of 32 bits), OUT and VEC."""
    core = chip.core
    words = core.a_words, core.b_words, 4 * core.acc_words, core.out_words, core.vec_words
    return tuple(entry * chip.lanes for entry in words)


def longest(rows: Rows, chip: str) -> Table:
    """Figure 13."""
    some = measured(rows, chip)

    def less_time(way: str) -> Callable[[MeasuredLayer], str]:
        return lambda entry: less(entry.by(way).cycles, entry.by("plain").cycles)

    def less_dram(way: str) -> Callable[[MeasuredLayer], str]:
        return lambda entry: less(entry.by(way).words, entry.by("plain").words)

    columns: dict[str, Callable[[MeasuredLayer], str]] = {
        "layer": lambda entry: entry.layer.name.removeprefix("gradient:"),
        "M x K x N": lambda entry: f"{entry.layer.m}x{entry.layer.k}x{entry.layer.n}",
        "plain, cycles>": lambda entry: count(entry.by("plain").cycles),
        "algorithm 1": lambda entry: selected(entry.layer.m, entry.layer.k, entry.layer.n).value,
        "less time, %>": less_time("algorithm 1"),
        "less DRAM, %>": less_dram("algorithm 1"),
        "best": lambda entry: entry.by("best").order.value,
        "less time, % >": less_time("best"),
        "less DRAM, % >": less_dram("best"),
        "DRAM enlarged to, words>": lambda entry: count(entry.pair.enlarged) if entry.pair.enlarged else DASH,
    }
    shown = some[:LONGEST]
    title = f"The {len(shown)} longest of {len(some)} different layers on {chip} (figure 13), without first layers"
    return table(title, columns, shown)


def _samples(rows: Rows, chip: str) -> list[Sample]:
    """Layers that can be shared in several ways, with what algorithm 1's order takes in each (at least, where it was
    certain that another one is faster)."""
    samples: list[Sample] = []
    for each in measured(rows, chip):
        sizes = each.layer.m, each.layer.k, each.layer.n
        order = selected(*sizes)
        cycles = {
            entry.split.value: entry.cycles for entry in each.pair.orders if entry.order is order and not entry.refused
        }
        if len(cycles) > 1:
            samples.append(Sample(sizes, cycles, each.by("plain").cycles))
    return samples


def neighbours(rows: Rows, chips: Sequence[str]) -> Table:
    """The paper's predictor of the split."""
    lines: list[tuple[str, ...]] = []
    for chip in chips:
        samples = _samples(rows, chip)
        labels = [sample.label for sample in samples]
        for entry in predicted(samples):
            most = max(dict.fromkeys(labels), key=labels.count)
            lines.append((
                chip, f"{len(samples)}", f"{entry.neighbours}", f"{100 * entry.right:.1f}",
                f"{100 * labels.count(most) / len(labels):.1f} ({most})", f"{100 * entry.less:+.1f}",
                f"{100 * entry.least:+.1f}",
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
