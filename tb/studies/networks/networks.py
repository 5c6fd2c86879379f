"""Whole networks on the RTL: labels, cycles, CPU-seconds, the model's error, and where the time of the arrays goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...inputs.sources import NetworkSource, pictures
from ...results.figures import NetworkFigures
from ...results.legend import GROUPS
from ...results.schema import Row, Status
from ...runs import runner
from ...runs.options import RunOptions
from ..engine.figures import total
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, share, table
from ..points.runs import RunPoint, chip_of

#: The scheduler, and where searches of other lengths are compared.
DEFAULT, SEARCHED_CHIP = "loop_order", "quad16"
#: Networks on each chip, on the first stored picture.
RUNS: Mapping[str, tuple[str, ...]] = {
    "quad16": (
        "resnet8",
        "ds_cnn",
        "vww",
        "squeezenet",
        "efficientnet_lite0",
        "minilm_block",
        "mobilenet_v1",
        "resnet18",
        "googlenet",
    ),
    "quad32": ("squeezenet", "resnet50", "yolov2", "vgg16"),
}
#: Run on every stored picture, on quad16.
LABELLED = ("resnet8", "squeezenet", "efficientnet_lite0")
#: On quad16, with how long is searched, and the percent of PE cycles that must be useful then.
SEARCHED: tuple[tuple[str, str, float], ...] = (
    ("mobilenet_v1", "loop_order", 75.0),
    ("squeezenet", "loop_order:refine=80", 82.0),
    ("resnet8", "loop_order:refine=1000", 75.0),
    ("vww", "loop_order:refine=1000", 30.0),
    ("efficientnet_lite0", "loop_order", 55.0),
)
#: Of the quick study: networks of quad16, those with labels.
QUICK = ("resnet8", "ds_cnn", "vww")
#: What `NetworkFigures.busy` counts, as columns.
BUSY = {
    "compute": "arrays",
    "vector": "vector units",
    "receiving": "into a core",
    "sending": "out of a core",
    "dram": "DRAM channel",
    "memories": "scratchpad port",
}
#: CPU-seconds of simulating that a network may take.
SECONDS = {("quad16", "resnet8"): 3.0, ("quad16", "squeezenet"): 15.0, ("quad32", "resnet50"): 90.0}
#: Percent by which the model may be off: end to end, and in the mean over the layers.
ERROR = 2.0
#: Useful PE cycles, in percent, that layers bounded by the arrays shall reach.
UTILISATION = 90.0
#: A network that ran.
Run = tuple[RunPoint, Row]


@dataclass(frozen=True)
class Answer:
    """Names of classes for a picture: its label, what the RTL says, and the float network; `wrong`: bytes that differ;
    `reason`: why the run does not count."""

    picture: str
    expected: str
    rtl: str
    exact: str
    compared: int
    wrong: int
    reason: str = ""


@dataclass(frozen=True)
class PicturePoint(Point):
    """A network on quad16 on every stored picture."""

    network: str
    row: ClassVar[Any] = tuple[Answer, ...]

    @property
    def run(self) -> RunPoint:
        """The same on the first picture."""
        return RunPoint(SEARCHED_CHIP, self.network)

    @property
    def name(self) -> str:
        return f"pictures of {self.network} on {SEARCHED_CHIP}"

    @property
    def work(self) -> float:
        return 90.0

    def inputs(self) -> Inputs:
        return self.run.inputs()

    def measure(self, report: Report) -> tuple[Answer, ...]:
        report("every picture")
        source = NetworkSource(self.network, pictures(self.network))
        rows = runner.run([source], chip_of(SEARCHED_CHIP), DEFAULT, lambda event: None, RunOptions(here=True))
        return tuple(_answer(row) for row in rows)


def _answer(row: Row) -> Answer:
    network = row.network
    names = ("", "", "", "")
    if network is not None:
        names = network.picture, network.expected, network.answer, network.float_answer
    return Answer(*names, compared=row.bytes_checked, wrong=row.mismatches, reason=row.reason or "")


def points(full: bool) -> list[Point]:
    """Quick: small networks on quad16, pictures of one, and one that is searched for longer."""
    names = RUNS if full else {SEARCHED_CHIP: QUICK}
    usual = [RunPoint(chip, name) for chip, some in names.items() for name in some]
    labelled = [PicturePoint(name) for name in LABELLED if full or name in QUICK[:1]]
    longer = [RunPoint(SEARCHED_CHIP, name, each) for name, each, _ in SEARCHED if full or name in QUICK[:1]]
    return list(dict.fromkeys([*usual, *longer, *labelled]))


def _where(point: RunPoint) -> str:
    return f"{point.workload} on {point.chip}{f' with {point.scheduler}' * (point.scheduler != DEFAULT)}"


def missed(point: RunPoint, row: Row) -> list[str]:
    """Bars that a network missed."""
    where = _where(point)
    if row.status not in (Status.PASSED, Status.MODEL) or row.network is None:
        return [f"{where}: {row.reason}"]
    reasons: list[str] = []
    bar = SECONDS.get((point.chip, point.workload))
    if bar is not None and row.cpu_seconds > bar:
        reasons.append(f"{where}: {row.cpu_seconds:.1f} CPU-seconds, the bar is {bar:g}")
    for what, error in (("end to end", row.error_percent), ("mean over layers", row.network.layer_error_percent)):
        if error is not None and abs(error) > ERROR:
            reasons.append(f"{where}: model error {what} {error:.2f} %, the bar is {ERROR:g} %")
    bound = _bound(row.network)
    if bound and bound[0] < UTILISATION:
        reasons.append(
            f"{where}: layers bounded by the arrays use {bound[0]:.1f} % of the PEs ({bound[1]:.1f} % have "
            f"operands), the bar is {UTILISATION:g} %"
        )
    return reasons


def too_idle(point: RunPoint, row: Row, bar: float) -> list[str]:
    """The bar of a search for a network with arrays at work, if it was missed."""
    if row.network is None or 100 * row.utilisation >= bar:
        return []
    return [f"{_where(point)}: {100 * row.utilisation:.1f} % of the PE cycles are useful, the bar is {bar:g} %"]


def _bound(network: NetworkFigures) -> tuple[float, float] | None:
    """Of the layers that the arrays bound: PE cycles with a useful product, and with operands, in percent."""
    bound = [layer for layer in network.layers if layer.limit.partition("+")[0] == "compute" and layer.shares]
    cycles = sum(layer.core_cycles for layer in bound)
    if not cycles:
        return None
    useful = sum(100 * layer.utilisation * layer.core_cycles for layer in bound) / cycles
    fed = sum(layer.core_cycles * (layer.shares["compute"] + layer.shares["edges"]) for layer in bound) / cycles
    return useful, fed


def _figures(row: Row) -> NetworkFigures:
    assert row.network is not None
    return row.network


def _runs(rows: Rows, chip: str) -> list[Run]:
    """Networks by the default scheduler that have figures of their layers."""
    every = [RunPoint(chip, name) for name in RUNS[chip]]
    return [(point, rows[point]) for point in every if point in rows and rows[point].network]


def _percent(value: float | None, sign: str = "") -> str:
    return DASH if value is None else f"{value:{sign}.2f} %"


#: Columns of whole networks.
COLUMNS: dict[str, Callable[[Run], str]] = {
    "network": lambda run: run[0].workload,
    "MMAC>": lambda run: f"{_figures(run[1]).macs / 1e6:,.1f}",
    "RTL cycles>": lambda run: count(run[1].rtl_cycles),
    "error>": lambda run: _percent(run[1].error_percent, "+"),
    "layer error>": lambda run: _percent(_figures(run[1]).layer_error_percent),
    "PE util.>": lambda run: share(run[1].utilisation),
    "bound util.>": lambda run: f"{(_bound(_figures(run[1])) or (0.0, 0.0))[0]:.1f} %",
    "bound fed>": lambda run: f"{(_bound(_figures(run[1])) or (0.0, 0.0))[1]:.1f} %",
    "DRAM MB>": lambda run: f"{_figures(run[1]).dram_bytes / 1e6:,.2f}",
    "tensors>": lambda run: str(_figures(run[1]).tensors_checked),
    "bytes>": lambda run: count(run[1].bytes_checked),
    "mismatches>": lambda run: str(run[1].mismatches),
    "CPU s>": lambda run: f"{run[1].cpu_seconds:.2f}",
    "cycles/s>": lambda run: count(run[1].cycles_per_second),
}


def whole(rows: Rows) -> list[Table]:
    """Of each chip its networks, and where their PE cycles went."""
    tables: list[Table] = []
    shares: dict[str, Callable[[Run], str]] = {
        "network": lambda run: run[0].workload,
        **{f"{cause}>": lambda run, cause=cause: f"{_figures(run[1]).shares[cause]:.1f}" for cause in GROUPS},
    }
    for chip in RUNS:
        some = _runs(rows, chip)
        tables.append(table(f"{chip}: whole networks", COLUMNS, some, lambda run: bool(missed(*run))))
        tables.append(table(f"{chip}: where the PE cycles went, %", shares, some))
        if chip == SEARCHED_CHIP:
            tables.append(searched(rows))
        tables.append(limited(rows, chip))
    return tables


def _searched(rows: Rows) -> list[tuple[RunPoint, Row, int | None, float]]:
    """Networks with a bar: the run, cycles by default, and the bar."""
    some = [(RunPoint(SEARCHED_CHIP, name, each), RunPoint(SEARCHED_CHIP, name), bar) for name, each, bar in SEARCHED]
    return [
        (point, rows[point], rows[usual].rtl_cycles if usual in rows else None, bar)
        for point, usual, bar in some
        if point in rows
    ]


def searched(rows: Rows) -> Table:
    """What searching longer gives."""
    columns: dict[str, Callable[[tuple[RunPoint, Row, int | None, float]], str]] = {
        "network": lambda each: each[0].workload,
        "scheduler": lambda each: each[0].scheduler,
        "RTL cycles>": lambda each: count(each[1].rtl_cycles),
        "by default>": lambda each: count(each[2]),
        "PE util.>": lambda each: share(each[1].utilisation),
        "bar>": lambda each: f"{each[3]:g} %",
        "mismatches>": lambda each: str(each[1].mismatches),
        "error>": lambda each: _percent(each[1].error_percent, "+"),
    }
    return table(
        f"{SEARCHED_CHIP}: what searching longer gives",
        columns,
        _searched(rows),
        lambda each: bool(missed(*each[:2]) + too_idle(*each[:2], each[3])),
    )


def limited(rows: Rows, chip: str) -> Table:
    """What bounds the schedules that ran on a chip: the busiest resource of each kind."""

    def ideal(run: Run) -> float:
        """Cycles in which all PEs of the chip could do all products."""
        chip = run[0].config
        return _figures(run[1]).macs / (chip.rows * chip.cols * len(chip.cores))

    def largest(run: Run) -> str:
        return max(BUSY, key=_figures(run[1]).busy.__getitem__)

    def bound(run: Run) -> int:
        return _figures(run[1]).busy[largest(run)]

    def name(run: Run) -> str:
        """The network, and how long was searched if not as usual."""
        how = run[0].scheduler.removeprefix(f"{DEFAULT}:")
        return run[0].workload + (f" ({how})" if run[0].scheduler != DEFAULT else "")

    columns: dict[str, Callable[[Run], str]] = {
        "network": name,
        "useful>": lambda run: count(ideal(run)),
        **{f"{name}>": lambda run, kind=kind: count(_figures(run[1]).busy[kind]) for kind, name in BUSY.items()},
        "limit": lambda run: BUSY[largest(run)],
        "bound>": lambda run: count(bound(run)),
        "in turn>": lambda run: count(_figures(run[1]).in_turn_cycles),
        "RTL cycles>": lambda run: count(run[1].rtl_cycles),
        "RTL / bound>": lambda run: f"{run[1].rtl_cycles / max(1, bound(run)):.2f}",
    }
    longer = [(point, row) for point, row, _, _ in _searched(rows)] if chip == SEARCHED_CHIP else []
    runs = dict([*_runs(rows, chip), *longer])
    some = [(point, row) for point, row in runs.items() if row.network and row.network.busy]
    return table(f"{chip}: what limits these schedules, cycles", columns, some)


def answers(rows: Rows) -> list[Table]:
    """What RTL and float network say about each picture."""
    columns: dict[str, Callable[[Answer], str]] = {
        "picture": lambda one: one.picture,
        "label": lambda one: one.expected,
        "RTL": lambda one: one.rtl,
        "float": lambda one: one.exact,
    }
    return [
        table(
            f"{point.network}: right on {sum(one.rtl == one.expected for one in some)} of {len(some)} pictures, the "
            f"float network on {sum(one.exact == one.expected for one in some)}",
            columns,
            some,
            lambda one: one.rtl != one.expected,
        )
        for point, some in rows.pairs(PicturePoint)
    ]


def layers(rows: Rows) -> list[Table]:
    """Every network layer by layer."""
    return [_layers(point, _figures(row)) for chip in RUNS for point, row in _runs(rows, chip)]


def _layers(point: RunPoint, network: NetworkFigures) -> Table:
    columns = ("layer", "limit", "MMAC>", "RTL cycles>", "error>", "core cycles>", *(f"{cause}>" for cause in GROUPS))
    cells = [
        (
            layer.name,
            layer.limit,
            f"{layer.macs / 1e6:,.2f}",
            count(layer.rtl_cycles),
            _percent(layer.error_percent, "+"),
            count(layer.core_cycles),
            *(f"{layer.shares[cause]:.1f}" if layer.shares else DASH for cause in GROUPS),
        )
        for layer in network.layers
    ]
    title = f"{point.workload} on {point.chip}, layer by layer; causes in % of the core cycles"
    return Table(title, columns, cells)


def wrong(rows: Rows) -> list[str]:
    """Every bar that was missed."""
    reasons = [text for point, row in rows.pairs(RunPoint) for text in missed(point, row)]
    reasons += [text for point, row, _, bar in _searched(rows) for text in too_idle(point, row, bar)]
    for point, some in rows.pairs(PicturePoint):
        reasons += [f"{point.name}, {one.picture}: {one.reason}" for one in some if one.reason]
    return list(dict.fromkeys(reasons))


def _right(exact: bool) -> Callable[[Rows], float]:
    def value(rows: Rows) -> float:
        some = [one for _, each in rows.pairs(PicturePoint) for one in each]
        return sum((one.exact if exact else one.rtl) == one.expected for one in some)

    return value


def _error(rows: Rows) -> float | None:
    return max((abs(row.error_percent or 0.0) for _, row in rows.pairs(RunPoint)), default=None)


STUDY = Study(
    name="networks",
    title="Whole networks on the RTL",
    question="How many cycles do whole networks take, are they right, and what limits them?",
    answer="{{ networks }} networks ran: of {{ bytes }} bytes {{ wrong }} differ from ONNX Runtime's, the model is at "
    "most {{ error }} off; the RTL is right on {{ right }} of {{ pictures }} pictures, the float networks on "
    "{{ exact }}.",
    about=prose(__file__),
    points=points,
    tables=(whole, answers, layers),
    figures=(
        Figure(
            "networks",
            "networks on chips",
            lambda rows: sum(point.scheduler == DEFAULT for point, _ in rows.pairs(RunPoint)),
            "{:,.0f}",
        ),
        total("bytes", "bytes compared", "bytes_checked", RunPoint),
        total("wrong", "bytes that differ", "mismatches", RunPoint, none=True),
        Figure("error", "the model's error, worst", _error, "{:.2f} %", Bar("at most", ERROR)),
        Figure(
            "pictures",
            "pictures with labels",
            lambda rows: sum(len(each) for _, each in rows.pairs(PicturePoint)),
            "{:,.0f}",
        ),
        Figure("right", "of them right on the RTL", _right(False), "{:,.0f}"),
        Figure("exact", "right in the float network", _right(True), "{:,.0f}"),
    ),
    checks=wrong,
    alone=True,
)
