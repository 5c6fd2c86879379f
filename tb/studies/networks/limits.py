"""Whether `limit` names what one would buy more of: each kind of resource is bought, layer by layer, in the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.lowering.predict import predict
from meshloom.sched.schedulers.network.limits import limit
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find as workloads

from ...inputs.chips import changed
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, share, table
from ..points.runs import scheduled_by

CHIPS = ("quad32", "quad16")
SCHEDULER = "loop_order:effort=0.05"
#: Layers of the quick study, and of the first tier of tests.
QUICK = ("resnet50/conv2_1_1", "resnet50/conv2_1_2", "resnet50/conv4_2_1", "resnet50/fc")
#: Floorplans with twice as many cores, and with twice as many channels, of a chip with four cores and two channels.
_CORES = (
    ("dram core core core core", "spm core core core core", "host spm dram . ."),
    ("core dram core core core", "core spm core core core", ". host spm dram ."),
)
_CHANNELS = (
    ("dram core core dram", "spm core core .", "dram host spm dram"),
    ("dram core core dram", "spm core core dram", "host spm dram ."),
)
#: Memories of a core, in words.
_MEMORIES = ("a_words", "b_words", "acc_words", "out_words", "vec_words")


@dataclass(frozen=True)
class Purchases:
    """A layer's cycles, its `limit`, and the fewest cycles with twice as much of each kind of resource."""

    cycles: int
    limit: str
    bought: Mapping[str, int]

    def saves(self, resource: str) -> float:
        """Share of the cycles that a kind of resource saves."""
        return max(0.0, 1 - self.bought[resource] / self.cycles)

    @property
    def short(self) -> float:
        """Share of the cycles that the best purchase saves beyond the best of those that `limit` names."""
        named = [self.saves(resource) for resource in self.limit.split("+") if resource in self.bought]
        return max(map(self.saves, self.bought)) - max(named, default=0.0)


def twice(chip: ChipConfig) -> dict[str, tuple[ChipConfig, ...]]:
    """Chips with twice as much of each kind of resource."""
    core = {f"core.{name}": getattr(chip.core, name) // 2 for name in _MEMORIES}
    fixed = {"rows": chip.rows, "cols": chip.cols, "spm_words": chip.spm_words // 2, "dram.words": chip.dram.words // 2}
    return {
        "compute": tuple(changed(chip, {"floorplan": list(plan)}) for plan in _CORES),
        "dram": tuple(changed(chip, {"floorplan": list(plan)}) for plan in _CHANNELS),
        "noc": (changed(chip, {"lanes": 2 * chip.lanes, **fixed, **core}),),
    }


@dataclass(frozen=True)
class LimitPoint(Point):
    """A layer on a chip."""

    chip: str
    layer: str
    row: ClassVar[Any] = Purchases

    @property
    def name(self) -> str:
        return f"{self.layer} on {self.chip}"

    @property
    def work(self) -> float:
        return 3.0

    def inputs(self) -> Inputs:
        own = ("sched.schedulers.network.limits", "tb.studies.networks.limits")
        inputs = scheduled_by(SCHEDULER)
        more = (*inputs.more, ("chip", load(self.chip).digest))
        return Inputs((*inputs.modules, *own), more)

    def measure(self, report: Report) -> Purchases:
        report("buying")
        return purchases(self.layer, load(self.chip))


def purchases(layer: str, chip: ChipConfig) -> Purchases:
    """A layer on a chip, and on chips that have twice as much of something. Raises KeyError for a wrong name."""
    (workload,) = workloads(layer)
    schedule = scheduler(SCHEDULER)(workload.shape, chip, workload.scale)

    def cycles(other: ChipConfig) -> int:
        return predict(scheduler(SCHEDULER)(workload.shape, other, workload.scale), other).cycles

    bought = {resource: min(map(cycles, chips)) for resource, chips in twice(chip).items()}
    return Purchases(predict(schedule, chip).cycles, limit(schedule, chip), bought)


@cache
def layers() -> tuple[str, ...]:
    """The layers of resnet50, the first of each shape."""
    shapes = {repr(replace(one.shape, name="")): one.name for one in reversed(workloads("resnet50/*"))}
    return tuple(shapes.values())[::-1]


def points(full: bool) -> Sequence[LimitPoint]:
    """Quick: four layers on quad32."""
    if not full:
        return [LimitPoint(CHIPS[0], layer) for layer in QUICK]
    return [LimitPoint(chip, layer) for chip in CHIPS for layer in layers()]


def _table(chip: str, rows: Rows) -> Table:
    some = [(point.layer, row) for point, row in rows.pairs(LimitPoint) if point.chip == chip]
    columns: dict[str, Callable[[tuple[str, Purchases]], str]] = {
        "layer": lambda each: each[0],
        "cycles>": lambda each: count(each[1].cycles),
        "limit": lambda each: each[1].limit,
        "cores save>": lambda each: share(each[1].saves("compute")),
        "channels save>": lambda each: share(each[1].saves("dram")),
        "links save>": lambda each: share(each[1].saves("noc")),
        "short>": lambda each: share(each[1].short),
    }
    return table(f"Purchases on {chip}", columns, some, lambda each: each[1].short > MOST)


#: The bar: what a purchase may save, of the cycles, beyond those that are named.
MOST = 0.1


def tables(rows: Rows) -> list[Table]:
    """One for each chip."""
    return [_table(chip, rows) for chip in CHIPS]


def _worst(rows: Rows) -> float | None:
    return max((100 * row.short for row in rows.values()), default=None)


def _right(rows: Rows) -> float:
    return sum(row.short <= 0.0 for row in rows.values())


STUDY = Study(
    name="limits",
    title="What one would buy more of",
    question="Does `limit` name the resource that one would buy more of?",
    answer="For {{ best }} of {{ layers }} layers it names the best purchase, and at worst another saves {{ worst }} "
    "of the cycles more.",
    about=prose(__file__),
    points=points,
    tables=(tables,),
    figures=(
        Figure("layers", "layers", len, "{:,.0f}"),
        Figure("best", "of which the best purchase is named", _right, "{:,.0f}"),
        Figure("worst", "what another saves more, at worst", _worst, "{:.1f} %", Bar("at most", 100 * MOST)),
    ),
)
