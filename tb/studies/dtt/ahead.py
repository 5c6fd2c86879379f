"""The same layers pushed by a controller ahead of time, and pulled by those who need the data, on the same chip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import REQUEST_INTERVAL
from meshloom.hw.spec.isa import INSTRUCTION_BYTES
from meshloom.sched.papers.dtt.timed import NAME
from meshloom.sched.workload.catalog import find

from ...results.schema import Row
from ...runs.runner import prepare
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, ratio, share, table
from ..engine.values import with_settings
from ..points.runs import RunPoint, chip_of, scheduled_by
from .traffic import flit_hops, link_load, off_plan

CHIP, BASE = "ahead16", "loop_order"
#: All of ResNet-8, and layers of the larger networks: dense and pointwise, early and late ones; the first are quick.
WORKLOADS = (
    *("resnet8", "resnet50/conv2_1_1", "resnet50/conv5_2_3"),
    *("resnet50/conv2_1_2", "resnet50/conv3_2_2", "resnet50/conv4_2_1"),
    *("vgg16/conv2_2", "vgg16/conv4_2", "vgg16/conv5_1"),
)
#: Cores of the chips that ask what one controller can feed, as sides of a square, and the layers that they run.
GRIDS = (2, 3, 4, 5)
LAYERS = ("resnet8/conv4_1_2", "gemm:64x256x128")
#: How many of them the quick study has.
QUICK_WORKLOADS, QUICK_GRIDS = 3, 2
#: CPU seconds in which a layer must be planned.
MOST_SECONDS = 60


def fed_chip(grid: int) -> ChipConfig:
    """A chip of `grid` x `grid` 8x8 cores, with a DRAM channel and scratchpad for each row of cores, and a controller
    with a channel for its code."""
    plan = [" ".join(("dram", *["core"] * grid, "spm")) for _ in range(grid)]
    plan.append(" ".join(("host", "dtt", "dram", *["spm"] * (grid - 1))))
    changes = ("floorplan", tuple(plan)), ("noc.route_hops", 2 * grid + 6), ("controller_channel", True)
    return chip_of("ahead8", changes, f"fed{grid * grid}")


@dataclass(frozen=True)
class Fed:
    """A layer on a larger chip: cycles in the model, pulled, pushed, and pulled where the code's channel is an ordinary
    one, for data and code; `packets` of the controller; `macs`: multiply-accumulates. `seconds`: of the processor,
    until its pushed program is proven, besides those of the base's search."""

    pulled: int
    shared: int
    pushed: int
    packets: int
    macs: int
    seconds: float


@dataclass(frozen=True)
class LayerFed(Point):
    """A layer on `grid` x `grid` cores that one controller feeds, in the model."""

    layer: str
    grid: int
    row: ClassVar[Any] = Fed

    @property
    def cores(self) -> int:
        """All of the chip."""
        return self.grid**2

    @property
    def name(self) -> str:
        return f"{self.layer} on {self.cores} cores"

    @property
    def work(self) -> float:
        return 10.0 * self.grid

    def inputs(self) -> Inputs:
        both = [scheduled_by(scheduler) for scheduler in (BASE, NAME)]
        modules = dict.fromkeys(module for each in both for module in each.modules)
        return Inputs((*modules, "tb.runs.runner"), (("chip", fed_chip(self.grid).digest),))

    def measure(self, report: Report) -> Fed:
        chip, workload = fed_chip(self.grid), find(self.layer)[0]
        report("planning, pulled")
        pulled = prepare(workload, chip, BASE).timeline
        shared = ChipConfig.model_validate(chip.model_dump() | {"controller_channel": False})
        report("planning, pushed")
        begun = process_time()
        pushed = prepare(workload, chip, NAME).timeline
        seconds = process_time() - begun
        packets = sum(each.tile == chip.dtt and each.opcode.name != "ORDER" for each in pushed.executed)
        together = prepare(workload, shared, BASE).timeline.cycles
        return Fed(pulled.cycles, together, pushed.cycles, packets, workload.shape.macs, round(seconds, 2))


def points(full: bool) -> list[Point]:
    """Workloads on the RTL both ways, and layers on larger chips."""
    workloads, grids = (WORKLOADS, GRIDS) if full else (WORKLOADS[:QUICK_WORKLOADS], GRIDS[:QUICK_GRIDS])
    runs: list[Point] = [_run(workload, scheduler) for workload in workloads for scheduler in (BASE, NAME)]
    return runs + [LayerFed(layer, grid) for layer in LAYERS for grid in grids]


def _run(workload: str, scheduler: str) -> RunPoint:
    return RunPoint(CHIP, workload, scheduler, links=True)


class _Pair:
    """A workload pulled and pushed."""

    def __init__(self, workload: str, pulled: Row, pushed: Row) -> None:
        self.workload, self.pulled, self.pushed = workload, pulled, pushed
        self.gain = pulled.rtl_cycles / max(1, pushed.rtl_cycles)


def _pairs(rows: Rows) -> list[_Pair]:
    both = [(workload, _run(workload, BASE), _run(workload, NAME)) for workload in WORKLOADS]
    return [
        _Pair(name, rows[pulled], rows[pushed]) for name, pulled, pushed in both if pulled in rows and pushed in rows
    ]


def _fed(rows: Rows) -> list[tuple[LayerFed, Fed]]:
    return [(point, row) for point, row in rows.items() if isinstance(point, LayerFed)]


def _wrong_pair(pair: _Pair) -> list[str]:
    pulled, pushed = pair.pulled, pair.pushed
    texts = [f"{pair.workload}, pulled: {pulled.reason}"] * bool(pulled.reason)
    if not pulled.bytes_checked:
        texts.append(f"{pair.workload}, pulled: no byte was compared")
    if not pushed.planned_arrivals:
        texts.append(f"{pair.workload}: no arrival was planned")
    texts += off_plan(_run(pair.workload, NAME), pushed)
    if pair.gain <= 1:
        texts.append(f"{pair.workload}: pushed takes {pushed.rtl_cycles:,} cycles, pulled {pulled.rtl_cycles:,}")
    return texts


def _wrong_fed(each: tuple[LayerFed, Fed]) -> list[str]:
    point, row = each
    if row.pushed >= row.pulled:
        return [f"{point.name}: pushed takes {row.pushed:,} cycles, pulled {row.pulled:,}"]
    if row.seconds > MOST_SECONDS:
        return [f"{point.name}: planned in {row.seconds:.0f} s, the bar is {MOST_SECONDS} s"]
    return []


def wrong(rows: Rows) -> list[str]:
    """A byte or an arrival that is off, cycles that were not planned, no gain, planning that takes too long."""
    texts = [text for pair in _pairs(rows) for text in _wrong_pair(pair)]
    return texts + [text for each in _fed(rows) for text in _wrong_fed(each)]


def cycles(rows: Rows) -> Table:
    """Every workload both ways."""
    columns: dict[str, Callable[[_Pair], str]] = {
        "workload": lambda pair: pair.workload,
        "pulled>": lambda pair: count(pair.pulled.rtl_cycles),
        "pushed>": lambda pair: count(pair.pushed.rtl_cycles),
        "gain>": lambda pair: ratio(pair.gain),
        "arrivals>": lambda pair: count(pair.pushed.planned_arrivals),
        "off>": lambda pair: count(pair.pushed.arrival_mismatches),
        "link load pulled>": lambda pair: share(link_load(pair.pulled)),
        "pushed >": lambda pair: share(link_load(pair.pushed)),
        "flit-hops pulled>": lambda pair: count(flit_hops(pair.pulled)),
        "pushed  >": lambda pair: count(flit_hops(pair.pushed)),
        "instructions pulled>": lambda pair: count(pair.pulled.instructions),
        "pushed   >": lambda pair: count(pair.pushed.instructions),
    }
    return table("RTL cycles", columns, _pairs(rows), bad=lambda pair: bool(_wrong_pair(pair)))


def _use(point: LayerFed, row: Fed, cycles: int) -> str:
    chip = fed_chip(point.grid)
    return share(row.macs / (chip.rows * chip.cols * point.cores) / cycles, 0)


def fed(rows: Rows) -> Table:
    """What one controller feeds."""
    columns: dict[str, Callable[[tuple[LayerFed, Fed]], str]] = {
        "layer": lambda each: each[0].layer,
        "cores>": lambda each: count(each[0].cores),
        "pulled>": lambda each: count(each[1].pulled),
        "pushed>": lambda each: count(each[1].pushed),
        "gain>": lambda each: ratio(each[1].pulled, each[1].pushed),
        "pulled, channel shared>": lambda each: count(each[1].shared),
        "gain >": lambda each: ratio(each[1].shared, each[1].pushed),
        "packets>": lambda each: count(each[1].packets),
        "controller>": lambda each: share(REQUEST_INTERVAL * each[1].packets / each[1].pushed, 0),
        "PE util. pulled>": lambda each: _use(*each, each[1].pulled),
        "pushed >": lambda each: _use(*each, each[1].pushed),
        "planned in CPU s>": lambda each: f"{each[1].seconds:.0f}",
    }
    title = "What one controller feeds (model; 8x8 cores, a DRAM channel for each row of them, and one for code)"
    return table(title, columns, _fed(rows), bad=lambda each: bool(_wrong_fed(each)))


def _gain(which: Callable[..., float | None]) -> Callable[[Rows], float | None]:
    return lambda rows: which((pair.gain for pair in _pairs(rows)), default=None)


STUDY = Study(
    name="ahead",
    title="Ahead of time: pushed against pulled",
    question="Are layers faster if a controller pushes their data ahead of time than if those who need them ask?",
    answer="On the RTL pushed ones are {{ least_gain }} to {{ most_gain }} times as fast as the same layers pulled.",
    about=with_settings(prose(__file__), instruction=INSTRUCTION_BYTES),
    points=points,
    tables=(cycles, fed),
    figures=(
        Figure("least_gain", "cycles pulled / pushed on the RTL, least", _gain(min), bar=Bar("above", 1)),
        Figure("most_gain", "cycles pulled / pushed on the RTL, most", _gain(max)),
        Figure(
            "arrivals",
            "arrivals that were planned",
            lambda rows: sum(pair.pushed.planned_arrivals for pair in _pairs(rows)),
            "{:,.0f}",
        ),
        Figure(
            "off",
            "those in another cycle",
            lambda rows: sum(pair.pushed.arrival_mismatches for pair in _pairs(rows)),
            "{:,.0f}",
            Bar("exactly", 0),
        ),
        Figure(
            "seconds",
            "CPU-seconds to plan a layer for a larger chip, most",
            lambda rows: max((row.seconds for _, row in _fed(rows)), default=None),
            "{:.0f}",
            Bar("at most", MOST_SECONDS),
        ),
    ),
    checks=wrong,
    paper="dtt",
)
