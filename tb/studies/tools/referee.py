"""What ZigZag claims of its own mappings, beside what they take on the RTL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, ClassVar

from ...report.console import percent
from ...results.events import Event, Stage
from ...results.schema import Row
from ...runs import runner
from ...runs.kinds.mappings import MappedSource
from ...runs.options import RunOptions
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows, StudyError
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import DASH, Table, count, table
from ..points.runs import DEVICE, RunPoint, chip_of, gateware

#: Files that ZigZag wrote, a folder for each chip; with the layers of which they are, in a checkout.
FOLDER = Path(__file__).parents[3] / "examples" / "mappings" / "zigzag"
CASES = (
    ("tiny", "gemm_32x32x32", "gemm:32x32x32"),
    ("quad8", "gemm_64x64x64", "gemm:64x64x64"),
    ("quad8", "resnet8_conv2_1_1", "resnet8/conv2_1_1"),
    ("quad8", "resnet8_conv3_1_2", "resnet8/conv3_1_2"),
    ("mono16", "gemm_64x64x64", "gemm:64x64x64"),
    ("mono16", "gemm_256x256x256", "gemm:256x256x256"),
    ("mono16", "gemm_1024x512x512", "gemm:1024x512x512"),
    ("mono16", "conv_28x28x128-128_k3_p1", "conv:28x28x128-128,k3,p1"),
    ("mono16", "resnet8_conv1", "resnet8/conv1"),
    ("mono16", "resnet8_conv2_1_1", "resnet8/conv2_1_1"),
    ("mono16", "resnet8_conv3_1_1", "resnet8/conv3_1_1"),
    ("mono16", "resnet8_conv3_1_2", "resnet8/conv3_1_2"),
    ("mono16", "resnet8_conv4_1_2", "resnet8/conv4_1_2"),
    ("mono16", "resnet50_conv3_2_1", "resnet50/conv3_2_1"),
    ("mono16", "resnet50_conv4_2_2", "resnet50/conv4_2_2"),
    ("mono16", "resnet50_conv5_2_3", "resnet50/conv5_2_3"),
    ("mono16", "resnet50_fc", "resnet50/fc"),
    ("mono32", "gemm_256x256x256", "gemm:256x256x256"),
    ("mono32", "gemm_1024x512x512", "gemm:1024x512x512"),
    ("mono32", "conv_28x28x128-128_k3_p1", "conv:28x28x128-128,k3,p1"),
    ("quad16", "gemm_256x256x256", "gemm:256x256x256"),
    ("quad16", "gemm_1024x512x512", "gemm:1024x512x512"),
    ("quad16", "conv_28x28x128-128_k3_p1", "conv:28x28x128-128,k3,p1"),
    ("quad16", "resnet50_conv4_2_2", "resnet50/conv4_2_2"),
)
#: Chips of the quick study.
QUICK = ("tiny", "quad8", "quad16")


@dataclass(frozen=True)
class MappedPoint(Point):
    """A layer by ZigZag's mapping on the RTL of a chip. `file`: below `FOLDER`, of its digest."""

    chip: str
    file: str
    workload: str
    row: ClassVar[Any] = Row

    @property
    def name(self) -> str:
        return f"{self.workload} on {self.chip} by ZigZag"

    @property
    def source(self) -> MappedSource:
        """The mapping's file."""
        return MappedSource("zigzag", FOLDER / self.chip / f"{self.file}_complete.json", self.workload)

    def inputs(self) -> Inputs:
        path = self.source.path
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "none"
        more = (("mapping", digest), ("chip", chip_of(self.chip).digest), ("gateware", gateware()))
        code = "sched.lowering.programs", "sched.model.timeline", "tb.runs.kinds.mappings", "tb.exchange.zigzag"
        return Inputs(code, more)

    def measure(self, report: Report) -> Row:
        """Raises StudyError if it has no cycles."""

        def on_event(event: Event) -> None:
            if isinstance(event, Stage):
                report(event.what)

        options = RunOptions(device=DEVICE, here=True)
        (row,) = runner.run([self.source], chip_of(self.chip), "loop_order", on_event, options)
        if row.error is not None:
            raise StudyError(row.error.words)
        return row

    @classmethod
    def dump(cls, row: Row) -> Any:
        """As of every run."""
        return RunPoint.dump(row)


def points(full: bool) -> Sequence[Point]:
    """Every layer by ZigZag's mapping and by our own search; quick: on the chips that are small or usual."""
    cases = [case for case in CASES if full or case[0] in QUICK]
    return [point for case in cases for point in (MappedPoint(*case), _own(*case))]


def _own(chip: str, file: str, workload: str) -> RunPoint:
    return RunPoint(chip, workload)


#: A layer by ZigZag's mapping, its row, and that of our own search where it has run.
JudgedLayer = tuple[MappedPoint, Row, Row | None]


def _every(rows: Rows) -> list[JudgedLayer]:
    """Layers by ZigZag's mapping, and by our own search where that has run."""
    pairs = rows.pairs(MappedPoint)
    own: dict[RunPoint, Row] = dict(rows.pairs(RunPoint))
    return [(point, row, own.get(_own(point.chip, point.file, point.workload))) for point, row in pairs]


def claims(rows: Rows) -> Table:
    """A line for each layer."""
    columns: dict[str, Callable[[JudgedLayer], str]] = {
        "layer": lambda layer: layer[0].workload,
        "chip": lambda layer: layer[0].chip,
        "claimed>": lambda layer: count(layer[1].claimed_cycles),
        "RTL>": lambda layer: count(layer[1].rtl_cycles),
        "beyond claim>": lambda layer: percent(layer[1].beyond_claim_percent, 1, "+"),
        "PE util.>": lambda layer: percent(100 * layer[1].utilisation, 1),
        "loop_order, RTL>": lambda layer: count(layer[2].rtl_cycles) if layer[2] else DASH,
    }
    return table("Layers by ZigZag's mapping", columns, _every(rows))


def _beyond(rows: Rows) -> list[float]:
    return [row.beyond_claim_percent for _, row, _ in _every(rows) if row.beyond_claim_percent is not None]


def _of(figure: Callable[[list[float]], float], rows: Rows) -> float | None:
    """A figure of how far the RTL is from claims, either way; None without rows."""
    some = [abs(percent) for percent in _beyond(rows)]
    return figure(some) if some else None


def _less(rows: Rows) -> int:
    return sum(percent < 0 for percent in _beyond(rows))


def wrong(rows: Rows) -> list[str]:
    """Runs that are not good, in words."""
    return [f"{point.name}: {row.reason}" for point, row, _ in _every(rows) if row.reason]


STUDY = Study(
    name="referee",
    title="What ZigZag claims, and what its mappings take",
    question="Does a layer take as many cycles on the RTL as the tool claims that mapped it?",
    answer="{{ layers }} layers are {{ mean }} from ZigZag's claim in the mean (median {{ median }}), {{ worst }} at "
    "worst; {{ less }} of them take less.",
    about=prose(__file__),
    points=points,
    tables=(claims,),
    figures=(
        Figure("layers", "layers on chips", lambda rows: len(_every(rows)), "{:,.0f}"),
        Figure("mean", "RTL from claim, either way, mean", lambda rows: _of(mean, rows), "{:.1f} %"),
        Figure("median", "the same, median", lambda rows: _of(median, rows), "{:.1f} %"),
        Figure("worst", "the same, worst", lambda rows: _of(max, rows), "{:.1f} %"),
        Figure("less", "layers that take less than is claimed", _less, "{:,.0f}"),
        Figure(
            "wrong", "bytes that differ", lambda rows: sum(row.mismatches for _, row, _ in _every(rows)), "{:,.0f}",
            Bar("exactly", 0),
        ),
    ),
    checks=wrong,
)  # fmt: skip
