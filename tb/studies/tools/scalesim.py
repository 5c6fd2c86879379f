"""Side by side with SCALE-Sim v3 (output stationary, one core, batch 1): cycles and CPU-seconds, in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from meshloom.sched.workload.catalog import find

from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure, Study, prose
from ..engine.tables import Table, count, table
from ..points.runs import chip_of, gateware, scheduled_by
from .layers import run_layers
from .scale_sim import PINS, ForeignLayer, drive, install

#: CPU-seconds of theirs for each of ours that the bar asks for.
SPEED_UP = 20
CHIPS = ("mono16", "mono32")
LAYERS = (
    "gemm:64x64x64",
    "gemm:256x256x256",
    "mobilenet_v1/pw7",
    "mobilenet_v1/pw5",
    "resnet50/conv3_2_1",
    "resnet50/conv3_2_2",
    "resnet50/conv3_2_3",
)
#: The chip of the quick study: SCALE-Sim takes a third of the time there.
QUICK = CHIPS[1:]


@dataclass(frozen=True)
class OwnLayer:
    """A layer on our RTL: cycles of the run, and of the array alone; bytes; CPU-seconds for simulating, for the
    schedule and for the golden model. `reason`: what is wrong with the run."""

    name: str
    rtl_cycles: int
    array_cycles: int
    compared: int
    wrong: int
    cpu_seconds: float
    schedule_seconds: float
    golden_seconds: float
    reason: str = ""


@dataclass(frozen=True)
class SideBySide:
    """Layers on both, in the same order. `process_seconds`: of our simulator, start and loading included."""

    ours: tuple[OwnLayer, ...]
    theirs: tuple[ForeignLayer, ...]
    process_seconds: float
    versions: dict[str, str]


@dataclass(frozen=True)
class ComparisonPoint(Point):
    """All layers on a chip with one array, then on SCALE-Sim's array of that size."""

    chip: str
    row: ClassVar[Any] = SideBySide

    @property
    def name(self) -> str:
        return f"layers on {self.chip} and on SCALE-Sim"

    @property
    def work(self) -> float:
        return 120.0

    def inputs(self) -> Inputs:
        more = (("chip", chip_of(self.chip).digest), ("gateware", gateware()), ("tools", " ".join(PINS)))
        return Inputs(scheduled_by("loop_order").modules, more)

    def measure(self, report: Report) -> SideBySide:
        """Raises StudyError when SCALE-Sim cannot be installed or fails."""
        chip, python = chip_of(self.chip), install(report)
        batch = run_layers(LAYERS, chip, report)
        ours = tuple(
            OwnLayer(
                each.row.workload,
                each.row.rtl_cycles,
                each.array_cycles,
                each.row.bytes_checked,
                each.row.mismatches,
                each.row.cpu_seconds,
                each.schedule_seconds,
                each.golden_seconds,
                each.row.reason or "",
            )
            for each in batch.layers
        )
        theirs: dict[str, ForeignLayer] = {}
        versions: dict[str, str] = {}
        for message in drive(python, chip.rows, chip.cols, [find(name)[0].shape for name in LAYERS]):
            if "versions" in message:
                versions = message["versions"]
                continue
            one = ForeignLayer(**message)
            theirs[one.name] = one
            report(f"SCALE-Sim: {one.name}")
        return SideBySide(ours, tuple(theirs[each.name] for each in ours), batch.process_seconds, versions)


#: A layer on both.
Pair = tuple[OwnLayer, ForeignLayer]


def judge(ours: OwnLayer, theirs: ForeignLayer) -> list[str]:
    """The bars that a layer missed, in words."""
    reasons: list[str] = []
    if not ours.compared or ours.reason:
        reasons.append(ours.reason or "no byte was compared")
    if not 0 < ours.array_cycles < theirs.cycles:
        reasons.append(f"{ours.array_cycles:,} cycles are not fewer than its {theirs.cycles:,}")
    if ours.cpu_seconds * SPEED_UP > theirs.cpu_seconds:
        reasons.append(
            f"{ours.cpu_seconds:.3f} CPU-s are not {SPEED_UP} times fewer than its {theirs.cpu_seconds:.2f} "
            f"({speed_up((ours, theirs)):.0f} times)"
        )
    return reasons


def speed_up(pair: Pair) -> float:
    """CPU-seconds of theirs for each of ours."""
    return pair[1].cpu_seconds / max(pair[0].cpu_seconds, 1e-9)


COLUMNS: dict[str, Callable[[Pair], str]] = {
    "layer": lambda pair: pair[0].name,
    "our run>": lambda pair: count(pair[0].rtl_cycles),
    "our cycles>": lambda pair: count(pair[0].array_cycles),
    "its cycles>": lambda pair: count(pair[1].cycles),
    "ours / its>": lambda pair: f"{pair[0].array_cycles / pair[1].cycles:.3f}",
    "mismatches>": lambda pair: count(pair[0].wrong),
    "our CPU s>": lambda pair: f"{pair[0].cpu_seconds:.3f}",
    "schedule>": lambda pair: f"{pair[0].schedule_seconds:.2f}",
    "golden>": lambda pair: f"{pair[0].golden_seconds:.3f}",
    "its CPU s>": lambda pair: f"{pair[1].cpu_seconds:.2f}",
    "its / ours>": lambda pair: f"{speed_up(pair):.0f}",
    "bars": lambda pair: "missed" if judge(*pair) else "pass",
}


def _pairs(row: SideBySide) -> list[Pair]:
    return list(zip(row.ours, row.theirs, strict=True))


def _every(rows: Rows) -> list[Pair]:
    return [pair for _, row in rows.pairs(ComparisonPoint) for pair in _pairs(row)]


def layers(rows: Rows) -> list[Table]:
    """A table for each chip."""
    return [
        table(
            f"{point.chip}: one {chip_of(point.chip).rows}x{chip_of(point.chip).cols} core",
            COLUMNS,
            _pairs(row),
            lambda pair: bool(judge(*pair)),
        )
        for point, row in rows.pairs(ComparisonPoint)
    ]


def remarks(rows: Rows) -> list[str]:
    """Runs that are longer than SCALE-Sim's compute cycles; CPU-seconds in all."""
    texts: list[str] = []
    for point, row in rows.pairs(ComparisonPoint):
        texts += [
            f"{point.chip}, {ours.name}: the whole run, {ours.rtl_cycles:,} cycles, is longer than SCALE-Sim's "
            f"{theirs.cycles:,} compute cycles."
            for ours, theirs in _pairs(row)
            if ours.rtl_cycles >= theirs.cycles
        ]
        texts.append(
            f"{point.chip}: our simulator process took {row.process_seconds:.1f} CPU-s in all, start and loading of "
            f"memories included; SCALE-Sim's layers {sum(each.cpu_seconds for each in row.theirs):.1f} "
            f"({', '.join(f'{name} {version}' for name, version in row.versions.items())})."
        )
    return texts


STUDY = Study(
    name="scalesim",
    title="Side by side with SCALE-Sim v3",
    question="Is the RTL simulated in less time than SCALE-Sim takes to count, and does it need fewer cycles?",
    answer="On {{ layers }} runs of layers the array takes {{ cycles }} times SCALE-Sim's cycles at most; simulating "
    "takes {{ speed_up }} times less CPU time at least.",
    about=prose(__file__),
    points=lambda full: [ComparisonPoint(chip) for chip in (CHIPS if full else QUICK)],
    tables=(layers,),
    figures=(
        Figure("layers", "layers on chips", lambda rows: len(_every(rows)), "{:,.0f}"),
        Figure(
            "cycles",
            "cycles of the array beside SCALE-Sim's, most",
            lambda rows: max((ours.array_cycles / theirs.cycles for ours, theirs in _every(rows)), default=None),
            "{:.3f}",
            Bar("below", 1.0),
        ),
        Figure(
            "speed_up",
            "CPU-seconds of SCALE-Sim for each of ours, least",
            lambda rows: min(map(speed_up, _every(rows)), default=None),
            "{:.0f}",
            Bar("at least", SPEED_UP),
        ),
        Figure(
            "wrong",
            "bytes that differ",
            lambda rows: sum(ours.wrong for ours, _ in _every(rows)),
            "{:,.0f}",
            Bar("exactly", 0),
        ),
    ),
    checks=lambda rows: [
        f"{point.chip}, {pair[0].name}: {reason}"
        for point, row in rows.pairs(ComparisonPoint)
        for pair in _pairs(row)
        for reason in judge(*pair)
    ],
    remarks=remarks,
    alone=True,
)
