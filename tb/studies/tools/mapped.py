"""Layers that other tools mapped, on the RTL: the files in `examples/mappings`, which they wrote, and their runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import Move
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.nest.mapping import MappingError

from ...compare.attribution import spent_by_layer
from ...compare.causes import Causes
from ...compare.records import locate, operations
from ...results.events import Event, Stage
from ...runs import runner
from ...runs.kinds.interface import Listener
from ...runs.kinds.layers import LayerRun
from ...runs.kinds.mappings import MappedSource
from ...runs.options import RunOptions
from ..engine.point import Inputs, Point, Report
from ..engine.rows import StudyError
from ..points.runs import DEVICE, chip_of, gateware

#: Files of tools, in a checkout: TOOL/CHIP/..., as the scripts leave them.
FOLDER = Path(__file__).parents[3] / "examples" / "mappings"
#: The tools that have run here, and where their files are below a chip's folder.
FILES = {
    "zigzag": "*_complete.json",
    "stream": "*/mapping.yaml",
    "accelforge": "*.yaml",
    "scalesim": "*/layers.csv",
}
#: Networks of which there are layers, and how names of files begin that are not of them.
NETWORKS = ("resnet8", "resnet50", "squeezenet", "ds_cnn")
_OTHERS = re.compile(r"(gemm|conv)_(.+)")


def layer_of(name: str) -> str:
    """The layer that a file's name means: `resnet8_conv1` is resnet8/conv1, `conv_8x8x8-16_k3` is conv:8x8x8-16,k3.
    Raises StudyError."""
    network = next((each for each in NETWORKS if name.startswith(f"{each}_")), None)
    if network is not None:
        return f"{network}/{name.removeprefix(f'{network}_')}"
    match = _OTHERS.fullmatch(name)
    if match is None:
        raise StudyError(f"{name} is no layer's name")
    return f"{match[1]}:{match[2].replace('_', ',')}"


def _names(tool: str, path: Path) -> list[str]:
    """The layers of a file."""
    if tool == "scalesim":
        return [line.partition(",")[0] for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return [path.parent.name if tool == "stream" else path.name.removesuffix("_complete.json").removesuffix(".yaml")]


@dataclass(frozen=True)
class MappedRun:
    """A layer by a tool's mapping. Cycles that the tool `claimed` (null: none), of the RTL and of the model; bytes of
    DRAM and microjoules, claimed and moved or estimated; `wrong` of the `compared` bytes; `causes`: cycles of the model
    by cause, useful ones too; `problem`: of the run. `refused`: why the chip cannot do it; then all else is 0."""

    claimed: int | None = None
    rtl: int = 0
    model: int = 0
    utilisation: float = 0.0
    claimed_bytes: int | None = None
    moved_bytes: int = 0
    claimed_microjoules: float | None = None
    microjoules: float | None = None
    compared: int = 0
    wrong: int = 0
    causes: dict[str, float] = field(default_factory=dict[str, float])
    problem: str = ""
    refused: str = ""

    @property
    def beyond(self) -> float | None:
        """How far the RTL is beyond the claim, in percent."""
        return 100 * (self.rtl - self.claimed) / self.claimed if self.claimed and self.rtl else None


@dataclass(frozen=True)
class MappedPoint(Point):
    """A layer by a tool's mapping on the RTL of a chip. `file`: below `FOLDER`, of its digest."""

    tool: str
    chip: str
    file: str
    workload: str
    row: ClassVar[type[MappedRun]] = MappedRun

    @property
    def name(self) -> str:
        return f"{self.workload} on {self.chip} by {self.tool}"

    @property
    def work(self) -> float:
        """CPU-seconds, roughly."""
        return 3.0

    @property
    def source(self) -> MappedSource:
        """The mapping's file."""
        return MappedSource(self.tool, FOLDER / self.file, self.workload)

    def inputs(self) -> Inputs:
        """What is beside the file belongs to it, too."""
        digest = hashlib.sha256()
        path = FOLDER / self.file
        beside = path.parent.rglob("*") if self.tool in ("stream", "scalesim") else path.parent.glob(f"{path.stem}*")
        for each in sorted(beside):
            if each.is_file():
                digest.update(each.read_bytes())
        more = (("mapping", digest.hexdigest()), ("chip", chip_of(self.chip).digest), ("gateware", gateware()))
        code = "sched.lowering.programs", "sched.model.timeline", "tb.runs.kinds.mappings", f"tb.exchange.{self.tool}"
        return Inputs(code, more)

    def measure(self, report: Report) -> MappedRun:
        """Raises StudyError if it has no cycles."""
        chip = chip_of(self.chip)
        try:
            plan = self.source.plan(chip, "", Listener())
        except (MappingError, DoesNotFit) as error:
            return MappedRun(refused=str(error).removeprefix(f"{FOLDER / self.file}: "))

        def on_event(event: Event) -> None:
            if isinstance(event, Stage):
                report(event.what)

        (row,) = runner.run([self.source], chip, "loop_order", on_event, RunOptions(device=DEVICE, here=True))
        if row.error is not None:
            raise StudyError(row.error.words)
        assert isinstance(plan, LayerRun), "groups have no points yet"
        claim = plan.schedule.claim
        assert claim is not None, "it has been imported"
        return MappedRun(
            claimed=claim.cycles,
            rtl=row.rtl_cycles,
            model=row.model_cycles,
            utilisation=row.utilisation,
            claimed_bytes=claim.dram_bytes,
            moved_bytes=dram_bytes(plan, chip),
            claimed_microjoules=None if claim.picojoules is None else claim.picojoules / 1e6,
            microjoules=row.energy.microjoules if row.energy else None,
            compared=row.bytes_checked,
            wrong=row.mismatches,
            causes=causes_of(plan, chip),
            problem=row.reason or "",
        )


def dram_bytes(plan: LayerRun, chip: ChipConfig) -> int:
    """Bytes that a schedule reads from DRAM and writes to it."""
    moves = (op for op in plan.schedule.operations if isinstance(op, Move))
    return chip.lanes * sum(
        move.words * ((move.src.tile in chip.drams) + (move.dst.tile in chip.drams)) for move in moves
    )


def causes_of(plan: LayerRun, chip: ChipConfig) -> dict[str, float]:
    """The cycles of the model by cause, as `meshloom explain` counts them."""
    causes = Causes(plan.program, locate(plan.timeline.executed, plan.program), chip)
    number = operations(plan.program, plan.schedule)
    name, cycles = plan.name, plan.timeline.cycles
    spent = spent_by_layer(
        causes, lambda place: number[place[:3]], plan.schedule, cycles, lambda _: name, {name: plan.macs}
    )[name]
    pes = chip.rows * chip.cols * len(chip.cores)
    return {str(cause): count / pes for cause, count in spent.items() if count}


@cache
def every_point() -> Sequence[MappedPoint]:
    """All files that tools wrote, a point for each layer; none outside of a checkout."""
    points: list[MappedPoint] = []
    for tool, pattern in FILES.items():
        for path in sorted(FOLDER.glob(f"{tool}/*/{pattern}")):
            file = path.relative_to(FOLDER)
            points += [MappedPoint(tool, file.parts[1], file.as_posix(), layer_of(name)) for name in _names(tool, path)]
    return points
