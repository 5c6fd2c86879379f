"""Networks by schedulers, in the model and on the RTL (layers, too), as the studies of Flexer and Klotski need them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.lowering.programs import unchecked
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Program
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import zoo

from ...results.figures import MicroOpFigures
from ...results.schema import MEAN_ERROR_PERCENT, WORST_ERROR_PERCENT
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.study import Bar, Figure
from .runs import RunPoint, chip_of, gateware, scheduled_by

#: The file of rows that its studies share.
STORE = "network_runs"


@dataclass(frozen=True)
class NetworkCycles:
    """What a network takes. `cycles`: of the model; `busy`: those in which arrays read operands, of all cores; `macs`:
    multiply-accumulates; `micro_ops`: what the scheduler says of them; `seconds`: of the processor, that scheduling
    took, or on the RTL simulating. On the RTL: `rtl_cycles`, `compared` bytes of which `wrong` differ."""

    cycles: int
    busy: int
    macs: int
    micro_ops: MicroOpFigures | None
    seconds: float
    rtl_cycles: int = 0
    compared: int = 0
    wrong: int = 0

    def utilisation(self, chip: str) -> float:
        """Share of all cycles of all arrays in which they read operands."""
        return self.busy / (self.cycles * len(chip_of(chip).cores))

    @property
    def error(self) -> float:
        """Of the model, as a share of the RTL's cycles."""
        return self.cycles / self.rtl_cycles - 1


@dataclass(frozen=True)
class NetworkRun(Point):
    """A network on a chip by a scheduler, with its options; on the `rtl` (where it may be a layer), or in the timeline
    model alone."""

    chip: str
    network: str
    scheduler: str
    rtl: bool = False
    row: ClassVar[Any] = NetworkCycles

    @property
    def name(self) -> str:
        return f"{self.network} on {self.chip} by {self.scheduler}" + " (model)" * (not self.rtl)

    @property
    def work(self) -> float:
        return 30.0

    def inputs(self) -> Inputs:
        scheduled = scheduled_by(self.scheduler)
        chip = chip_of(self.chip).digest
        bench = (("gateware", gateware()),) * self.rtl
        return Inputs((*scheduled.modules, "sched.workload.zoo"), (*scheduled.more, ("chip", chip), *bench))

    def measure(self, report: Report) -> NetworkCycles:
        """Raises DoesNotFit, ProgramError; StudyError for a run without cycles, or with wrong bytes."""
        return self._on_rtl(report) if self.rtl else self._in_model(report)

    def _in_model(self, report: Report) -> NetworkCycles:
        chip, graph = chip_of(self.chip), zoo.load(self.network)
        # what searches of micro-ops have kept would hide what they cost
        folder = SCHEDULES.folder() if self.scheduler.startswith("loop_order") else None
        make = find_network(self.scheduler, folder)
        before = time.process_time()
        planned = make(graph, chip, lambda what, number, of: report(f"scheduling: {what} ({number + 1} of {of})"))
        seconds = time.process_time() - before
        program = unchecked(planned.schedule, chip)
        figures = MicroOpFigures(**asdict(planned.micro_ops)) if planned.micro_ops else None
        return NetworkCycles(play(program, chip).cycles, _busy(program, chip), graph.total_macs, figures, seconds)

    def _on_rtl(self, report: Report) -> NetworkCycles:
        row = RunPoint(self.chip, self.network, self.scheduler).measure(report)
        network = row.network
        return NetworkCycles(
            row.model_cycles, 0, network.macs if network else 0, network.micro_ops if network else None,
            row.cpu_seconds, row.rtl_cycles, row.bytes_checked, row.mismatches,
        )  # fmt: skip


def _busy(program: Program, chip: ChipConfig) -> int:
    gemms = (each.fields for stream in program.streams for each in stream.instructions if each.opcode is Opcode.GEMM)
    return sum(
        gemm_occupancy(
            chip, GemmShape(gemm["pixels"], gemm["n_blocks"], gemm["k_blocks"], gemm["kernel_h"], gemm["kernel_w"])
        )
        for gemm in gemms
    )


def on_rtl(rows: Rows) -> dict[NetworkRun, NetworkCycles]:
    """Those that ran on the RTL."""
    return {point: row for point, row in rows.items() if isinstance(point, NetworkRun) and point.rtl}


def _errors(rows: Rows) -> list[float]:
    return [100 * abs(row.error) for row in on_rtl(rows).values()]


def accuracy(mean: float = MEAN_ERROR_PERCENT, worst: float = WORST_ERROR_PERCENT) -> tuple[Figure, ...]:
    """Figures of how well the model predicts the RTL, and of the bytes there; their bars in percent."""
    return (
        Figure("programs", "programs on the RTL", lambda rows: len(on_rtl(rows)), "{:,.0f}"),
        Figure(
            "compared",
            "bytes compared with ONNX Runtime",
            lambda rows: sum(row.compared for row in on_rtl(rows).values()),
            "{:,.0f}",
        ),
        Figure(
            "wrong",
            "bytes that differ",
            lambda rows: sum(row.wrong for row in on_rtl(rows).values()),
            "{:,.0f}",
            Bar("exactly", 0),
        ),
        Figure(
            "mean_error",
            "the model's error, mean",
            lambda rows: sum(errors) / len(errors) if (errors := _errors(rows)) else None,
            "{:.3f} %",
            Bar("at most", mean),
        ),
        Figure(
            "worst_error",
            "the model's error, worst",
            lambda rows: max(_errors(rows), default=None),
            "{:.3f} %",
            Bar("at most", worst),
        ),
    )
