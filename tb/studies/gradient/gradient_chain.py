"""Gradients across layers: rows of layers as one program, beside each layer's fastest order by itself; training steps.

What is beyond J. Kim et al., "Improving Data Reuse in NPU On-chip Memory with Interleaved Gradient Order for DNN
Training" (MICRO 2023): dX that stays in the cores, dW that gives way (P. Qi et al., "Zero Bubble Pipeline Parallelism",
ICLR 2024), the update fused with dW, siblings joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from meshloom.sched.schedulers.training.across import Across
from meshloom.sched.schedulers.training.orders import Order

from ...runs.training.numbers import Update as Weights
from ..engine.figures import total
from ..engine.point import Point
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, table
from .chain_points import (
    ARGMIN,
    JOINED,
    UPDATES,
    WAYS,
    ChainCycles,
    ChainModelled,
    ChainRow,
    ChainRun,
    Siblings,
    SiblingsModelled,
    chain_names,
    rtl_ways,
    siblings,
)
from .gradient_tables import less
from .trainings import TrainingPoint, TrainingRow

#: Chips and the networks, or rows of them, whose layers are measured there in the model.
NETWORKS: Mapping[str, Sequence[str]] = {
    "edge45": ("ncf", "rcnn/block3_project..block4_expand", "dlrm/bottom1..bottom3"),
    "server1": ("ncf", "dlrm"),
    "server2": ("ncf", "dlrm"),
    "server4": ("ncf", "dlrm"),
}
#: Rows of layers on the RTL, by chip.
ON_RTL: Mapping[str, Sequence[str]] = {
    "edge45": ("chain:ncf", "chain:dlrm/bottom1..bottom3", "chain:rcnn/block3_project..block4_expand,b1"),
    "server2": ("chain:ncf", "chain:dlrm/bottom1..bottom3", "chain:dlrm/top3..top5"),
}
#: Layers that read the same map, by chip: all of a network, or of a module.
SIBLINGS: Mapping[str, Sequence[str]] = {"edge45": ("goo/conv5_a",)}
#: The same of the quick study.
QUICK_NETWORKS: Mapping[str, Sequence[str]] = {"edge45": ("ncf",), "server2": ("ncf",)}
QUICK_ON_RTL: Mapping[str, Sequence[str]] = {"edge45": ("chain:ncf",)}

#: Steps of each way on the RTL, and of trainings in the functional executor; percent that a step has to save.
STEPS, LEARNED_STEPS, SAVED = 3, 200, 25.0
_EVERYTHING = tuple(Across)


def _step(order: Order, across: Sequence[Across], weights: Weights) -> TrainingPoint:
    """The usual rates; without momentum those of the table of trainings."""
    rate, momentum = (0.05, 0.9) if weights is Weights.DOUBLE else (0.5, 0.0)
    return TrainingPoint(
        STEPS, True, 0, order, tuple(each for each in Across if each in across), weights, rate, momentum
    )


_ACROSS = (
    (), (Across.KEEP,), (Across.OVERLAP,), (Across.OVERLAP, Across.KEEP), (Across.DEFER,), _EVERYTHING,
)  # fmt: skip
#: Ways of a training step, the first of each who keeps the weights as a base for the others.
STEP_WAYS = (
    *(_step(order, some, Weights.DOUBLE) for order in (Order.SEQUENTIAL, Order.INTERLEAVED) for some in _ACROSS),
    *(_step(Order.SEQUENTIAL, some, Weights.INT8) for some in (_ACROSS[0], _ACROSS[-1])),
    *(_step(Order.SEQUENTIAL, some, Weights.CHIP) for some in (_ACROSS[0], _ACROSS[-1])),
)
#: Trainings in the functional executor: who keeps the weights, learning rate, momentum, seed.
LEARNED = tuple(
    TrainingPoint(LEARNED_STEPS, False, seed, weights=weights, rate=rate, momentum=momentum)
    for weights, rate, momentum, seed in (
        (Weights.DOUBLE, 0.05, 0.9, 0),
        *((Weights.INT8, 0.5, 0.0, seed) for seed in (0, 1, 2, 3)),
        (Weights.INT8, 0.0625, 0.0, 0),
    )
)


def points(full: bool) -> list[Point]:
    """Training steps, trainings, rows of layers and siblings in the model, rows of layers on the RTL."""
    if full:
        steps, learned, networks, runs = STEP_WAYS, LEARNED, NETWORKS, ON_RTL
    else:
        steps = tuple(point for point in STEP_WAYS if point.order is Order.SEQUENTIAL)
        learned, networks, runs = LEARNED[1:2], QUICK_NETWORKS, QUICK_ON_RTL
    some: list[Point] = [*steps, *learned]
    some += [
        ChainModelled(chip, name, way)
        for chip, names in networks.items()
        for name in _chain_names(chip, names)
        for way in (ARGMIN, *WAYS, *UPDATES)
    ]
    if full:
        some += [
            SiblingsModelled(chip, network, each.name, way)
            for chip, networks in SIBLINGS.items()
            for network in networks
            for each in siblings(chip, network)
            for way in (ARGMIN, JOINED)
        ]
    return some + [
        ChainRun(chip, name, way)
        for chip, names in runs.items()
        for name in chain_names(chip, names)
        for way in rtl_ways(chip)
    ]


def _chain_names(chip: str, networks: Sequence[str]) -> list[str]:
    return chain_names(chip, [f"chain:{network}" for network in networks])


def _plain(name: str) -> str:
    return name.removeprefix("chain:")


# -- training steps ---------------------------------------------------------------------------------------------------


def steps(rows: Rows) -> Table:
    """Training steps, beside the first way."""
    base: TrainingRow | None = rows.get(STEP_WAYS[0])

    def of(point: TrainingPoint) -> TrainingRow:
        return rows[point]

    columns: dict[str, Callable[[TrainingPoint], str]] = {
        "order": lambda point: point.words[0],
        "across layers": lambda point: point.words[1],
        "weights": lambda point: point.words[2],
        "cycles of a step>": lambda point: count(of(point).step_cycles),
        "less, %>": lambda point: less(of(point).step_cycles, base.step_cycles) if base else DASH,
        "DRAM bytes of a step>": lambda point: count(of(point).dram_bytes),
        "less, % >": lambda point: less(of(point).dram_bytes, base.dram_bytes) if base else DASH,
        "RTL cycles>": lambda point: count(of(point).rtl_cycles),
        "model cycles>": lambda point: count(of(point).model_cycles),
        "wrong bytes>": lambda point: count(of(point).wrong),
    }
    title = f"A training step of digits on quad16, batch 64: {STEPS} steps and the test, on the RTL"
    return table(title, columns, [point for point in STEP_WAYS if point in rows])


def learning(rows: Rows) -> Table:
    """Trainings by who keeps the weights."""

    def of(point: TrainingPoint) -> TrainingRow:
        return rows[point]

    columns: dict[str, Callable[[TrainingPoint], str]] = {
        "weights": lambda point: point.weights.value,
        "rate>": lambda point: f"{point.rate:g}",
        "momentum>": lambda point: f"{point.momentum:g}",
        "seed>": lambda point: f"{point.seed}",
        "first loss>": lambda point: f"{of(point).losses[0]:.4f}",
        "last loss>": lambda point: f"{of(point).losses[-1]:.4f}",
        "test>": lambda point: f"{of(point).accuracy or 0:.1%}",
        "float test>": lambda point: f"{of(point).float_accuracy or 0:.1%}",
    }
    title = f"Weights that only the chip has (int8), {LEARNED_STEPS} steps of digits"
    return table(title, columns, [point for point in LEARNED if point in rows])


# -- rows of layers ---------------------------------------------------------------------------------------------------


class ChainLine:
    """A row of layers on a chip in all ways."""

    def __init__(self, name: str, rows: Mapping[str, ChainCycles]) -> None:
        self.name, self.rows, self.base = _plain(name), rows, rows[ARGMIN]

    def able(self, way: str) -> ChainCycles | None:
        """What it takes some way, unless that is refused."""
        row = self.rows[way]
        return None if row.refused else row

    def cycles(self, way: str) -> int:
        """By some way, by `argmin` where that is refused."""
        return row.cycles if (row := self.able(way)) else self.base.cycles

    @property
    def best(self) -> int:
        """Cycles by the fastest way, `argmin` included."""
        return min(self.cycles(way) for way in (ARGMIN, *WAYS))


def chain_lines(rows: Rows, chip: str) -> list[ChainLine]:
    """Rows of layers that are measured every way."""
    lines: list[ChainLine] = []
    for name in _chain_names(chip, NETWORKS[chip]):
        ways = {way: rows[point] for way in (ARGMIN, *WAYS) if (point := ChainModelled(chip, name, way)) in rows}
        if len(ways) == 1 + len(WAYS):
            lines.append(ChainLine(name, ways))
    return lines


def in_a_row(rows: Rows, chip: str) -> Table:
    """Layers in a row, beside each by itself."""
    lines = chain_lines(rows, chip)
    cells: list[tuple[str, ...]] = []
    for line in lines:
        shares = [less(line.cycles(way), line.base.cycles) if line.able(way) else "refused" for way in WAYS]
        last = line.able("keep, defer")
        cells.append(
            (
                line.name, count(line.base.plain), count(line.base.cycles), *shares, count(line.base.dram_bytes),
                count(last.dram_bytes if last else None),
            )
        )  # fmt: skip
    if lines:
        base, best = (sum(each) for each in zip(*((line.base.cycles, line.best) for line in lines), strict=True))
        sums = [less(sum(line.cycles(way) for line in lines), base) for way in WAYS]
        cells.append(("all, argmin where refused", "", count(base), *sums, "", ""))
        cells.append(("all, the fastest of each", "", count(best), "", "", "", less(best, base), "", ""))
    columns = (
        "layers", "plain, cycles>", "argmin, cycles>", *(f"{way}>" for way in WAYS), "argmin, DRAM bytes>",
        "keep, defer >",
    )  # fmt: skip
    return Table(f"Layers in a row on {chip}, in the model: percent less than argmin", columns, cells)


#: A chip, a row of layers there, and what it takes without an update, with it apart, and fused.
Updated = tuple[str, str, ChainCycles, ChainCycles, ChainCycles]


def updates(rows: Rows) -> Table:
    """The update with the gradients."""
    some: list[Updated] = []
    for chip, networks in NETWORKS.items():
        for name in _chain_names(chip, networks):
            keys = [ChainModelled(chip, name, way) for way in ("keep, defer", *UPDATES)]
            if all(point in rows and not rows[point].refused for point in keys):
                none, apart, fused = (rows[point] for point in keys)
                some.append((chip, _plain(name), none, apart, fused))
    columns: dict[str, Callable[[Updated], str]] = {
        "chip": lambda each: each[0],
        "layers": lambda each: each[1],
        "no update, cycles>": lambda each: count(each[2].cycles),
        "apart>": lambda each: count(each[3].cycles),
        "fused>": lambda each: count(each[4].cycles),
        "less than apart, %>": lambda each: less(each[4].cycles, each[3].cycles),
        "no update, DRAM bytes>": lambda each: count(each[2].dram_bytes),
        "apart >": lambda each: count(each[3].dram_bytes),
        "fused >": lambda each: count(each[4].dram_bytes),
        "less than apart, % >": lambda each: less(each[4].dram_bytes, each[3].dram_bytes),
    }
    return table("The update with the gradients, in the model (keep, defer)", columns, some)


def joined(rows: Rows, chip: str) -> Table:
    """Siblings by themselves and joined."""
    some: list[tuple[str, str, ChainCycles, ChainCycles]] = []
    for network in SIBLINGS[chip]:
        for each in siblings(chip, network):
            both = [SiblingsModelled(chip, network, each.name, way) for way in (ARGMIN, JOINED)]
            if all(point in rows for point in both):
                some.append((each.name, _size(each), rows[both[0]], rows[both[1]]))
    if some:
        some.append(("all", "", _sum([each[2] for each in some]), _sum([each[3] for each in some])))
    columns: dict[str, Callable[[tuple[str, str, ChainCycles, ChainCycles]], str]] = {
        "layers": lambda each: each[0],
        "joined, MxNxK": lambda each: each[1],
        "argmin, cycles>": lambda each: count(each[2].cycles),
        "joined>": lambda each: count(each[3].cycles),
        "less, %>": lambda each: less(each[3].cycles, each[2].cycles),
        "argmin, DRAM bytes>": lambda each: count(each[2].dram_bytes),
        "joined >": lambda each: count(each[3].dram_bytes),
        "less, % >": lambda each: less(each[3].dram_bytes, each[2].dram_bytes),
    }
    return table(f"Siblings on {chip}, in the model", columns, some)


def _sum(some: Sequence[ChainCycles]) -> ChainCycles:
    return ChainCycles(sum(each.cycles for each in some), sum(each.dram_bytes for each in some))


def _size(some: Siblings) -> str:
    return some.joined.removeprefix("gradient:gemm:")


def on_rtl(rows: Rows) -> Table:
    """Rows of layers on the RTL."""

    def of(point: ChainRun) -> ChainRow:
        return rows[point]

    columns: dict[str, Callable[[ChainRun], str]] = {
        "chip": lambda point: point.chip,
        "layers": lambda point: _plain(point.chain),
        "way": lambda point: point.way,
        "tiles": lambda point: of(point).nest,
        "RTL cycles>": lambda point: count(of(point).rtl_cycles),
        "model cycles>": lambda point: count(of(point).model_cycles),
        "bytes compared>": lambda point: count(of(point).compared),
        "wrong>": lambda point: count(of(point).wrong),
        "trouble": lambda point: of(point).trouble,
    }
    some = [point for point in rows if isinstance(point, ChainRun)]
    return table("On the RTL", columns, some, bad=lambda point: bool(_wrong_run(point, of(point))))


# -- bars -------------------------------------------------------------------------------------------------------------


def _wrong_run(point: ChainRun, row: ChainRow) -> list[str]:
    if row.trouble or row.wrong:
        return [f"{point.name}: {row.trouble or f'{row.wrong} wrong bytes'}"]
    if row.rtl_cycles != row.model_cycles:
        return [f"{point.name}: {row.rtl_cycles:,} cycles, the model says {row.model_cycles:,}"]
    return []


def wrong(rows: Rows) -> list[str]:
    """Wrong bytes and cycles, training steps that come to other losses, and those that save too little."""
    texts = [text for point, row in rows.items() if isinstance(point, ChainRun) for text in _wrong_run(point, row)]
    bases: dict[bool, TrainingRow] = {}
    for point in STEP_WAYS:
        if point not in rows:
            continue
        row: TrainingRow = rows[point]
        base = bases.setdefault(point.weights is Weights.DOUBLE, row)  # weights in int8: the chip as the host
        name = f"step, {', '.join(point.words)}"
        texts += [f"{name}: {why}" for why in row.reasons]
        if row.losses != base.losses:
            texts.append(f"{name}: comes to other losses")
    return texts


def _saved(order: Order) -> Callable[[Rows], float | None]:
    """Percent of the cycles of a step that all that is done across layers saves, of those of the first way."""
    whole = _step(order, _EVERYTHING, Weights.DOUBLE)

    def value(rows: Rows) -> float | None:
        if whole not in rows or STEP_WAYS[0] not in rows:
            return None
        return 100 * (1 - rows[whole].step_cycles / rows[STEP_WAYS[0]].step_cycles)

    return value


def _gained(chip: str) -> Callable[[Rows], float | None]:
    """Percent of the cycles of `argmin` that the fastest way of each row of layers saves."""

    def value(rows: Rows) -> float | None:
        lines = chain_lines(rows, chip)
        base = sum(line.base.cycles for line in lines)
        return 100 * (1 - sum(line.best for line in lines) / base) if base else None

    return value


STUDY = Study(
    name="gradient_chain",
    title="Gradients across layers",
    question="What does it bring to schedule the gradients of layers in a row together, and their update?",
    answer="A training step of `digits` takes {{ sequential }} fewer cycles with all that is done across layers, and "
    "rows of layers {{ edge45 }} fewer on `edge45`.",
    about=prose(__file__),
    points=points,
    tables=(
        steps,
        learning,
        *(partial(in_a_row, chip=chip) for chip in NETWORKS),
        updates,
        *(partial(joined, chip=chip) for chip in SIBLINGS),
        on_rtl,
    ),
    figures=(
        *(
            Figure(
                order.value,
                f"a training step in `{order.value}` order, all across layers: cycles less",
                _saved(order),
                "{:.1f} %",
                Bar("at least", SAVED),
            )
            for order in (Order.SEQUENTIAL, Order.INTERLEAVED)
        ),
        *(
            Figure(chip, f"rows of layers on {chip}, the fastest of each: cycles less than argmin", _gained(chip),
                   "{:.1f} %")
            for chip in NETWORKS
        ),
        total("compared", "bytes of rows of layers compared on the RTL", "compared", ChainRun),
    ),
    checks=wrong,
    paper="gradient",
)  # fmt: skip
