"""Networks by schedulers, as `klotski`, `flexer_networks` and `flexer_rtl` need them: in the model, and on the RTL
(layers, too).

Each result is kept under all that decides it, so whoever is interrupted goes on, and in the repository as text.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cache

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.lowering.programs import unchecked
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.model.timeline import play
from meshloom.sched.program.program import Program, ProgramError
from meshloom.sched.schedulers.registry import REGISTRY, find_network, scheduler_of
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload import zoo

from ..build.builder import ingredients
from ..results.events import OnEvent, Stage
from ..results.figures import MicroOpFigures
from ..results.schema import Status
from ..runs.runner import run as run_workloads
from . import kept
from .kept import Decided, Kept, Record
from .results import FOLDER

DEVICE = "verilator"
#: What decides what happens, besides the scheduler.
_DECIDE = ("sched.lowering.programs", "sched.model.timeline", "sched.workload.zoo")


@dataclass(frozen=True)
class Asked:
    """A network on a chip by a scheduler, with its options; on the `rtl` (where it may be a layer), or in the timeline
    model alone."""

    chip: str
    network: str
    scheduler: str
    rtl: bool = False


@dataclass(frozen=True)
class Found:
    """What came of it. `cycles`: of the model; `busy`: those in which arrays read operands, of all cores; `macs`:
    multiply-accumulates; `micro_ops`: what the scheduler says of them; `seconds`: of the processor, that it took.

    `trouble`: why there is none of it. On the RTL: `rtl_cycles`, `compared` bytes of which `wrong` differ."""

    cycles: int
    busy: int
    macs: int
    micro_ops: MicroOpFigures | None
    seconds: float
    rtl_cycles: int = 0
    compared: int = 0
    wrong: int = 0
    trouble: str = ""

    def utilisation(self, chip: str) -> float:
        """Share of all cycles of all arrays in which they read operands."""
        return self.busy / (self.cycles * len(config(chip).cores))

    @property
    def error(self) -> float:
        """Of the model, as a share of the RTL's cycles."""
        return self.cycles / self.rtl_cycles - 1


@cache
def config(chip: str) -> ChipConfig:
    """A built-in chip."""
    return load(chip)


@cache
def _gateware(chip: str) -> str:
    """Sources of the simulator; who compiled it, and for which processor, changes no result."""
    return ingredients(config(chip), DEVICE, False)["sources"]


def _decided(asked: Asked) -> Decided:
    modules = REGISTRY.shipped[scheduler_of(asked.scheduler).name].partition(":")[0].removeprefix("meshloom."), *_DECIDE
    return Decided(config(asked.chip), modules, _gateware(asked.chip) if asked.rtl else "")


KEPT = Kept(FOLDER / "network_runs.jsonl", "micro-ops", TypeAdapter(Record[Asked, Found]), TypeAdapter(Found), _decided)


def told(older: Collection[Asked]) -> tuple[str, ...]:
    """A remark on what older code has found."""
    names = [f"{one.network} on {one.chip} by {one.scheduler}" + " (model)" * (not one.rtl) for one in older]
    return kept.told(names)


def measure(asked: Sequence[Asked], on_progress: OnEvent) -> list[str]:
    """Measures what is not kept, one after the other, and keeps each as it comes (that something does not fit, too).

    Returns why some did not run on the RTL, in words."""
    failures: list[str] = []
    left = KEPT.missing(asked)
    for number, one in enumerate(left):
        where = f"{one.chip}, {one.scheduler}" + " on the RTL" * one.rtl
        on_progress(Stage(workload=one.network, what=f"{where} ({number + 1} of {len(left)})"))
        found = _on_rtl(one, on_progress) if one.rtl else _in_model(one, on_progress)
        if one.rtl and not found.rtl_cycles:
            failures.append(f"{one.network} on {one.chip} by {one.scheduler} did not run: {found.trouble}")
            continue
        KEPT.put(one, found)
    return failures


def _in_model(asked: Asked, on_progress: OnEvent) -> Found:
    chip, graph = config(asked.chip), zoo.load(asked.network)
    # what searches of micro-ops have kept would hide what they cost
    folder = SCHEDULES.folder() if asked.scheduler.startswith("loop_order") else None
    make = find_network(asked.scheduler, folder)

    def told(what: str, number: int, of: int) -> None:
        on_progress(Stage(workload=asked.network, what=f"{what} ({number + 1} of {of})", passing=True))

    before = time.process_time()
    try:
        made = make(graph, chip, told)
        seconds = time.process_time() - before
        program = unchecked(made.schedule, chip)
    except (DoesNotFit, ProgramError) as error:
        return Found(0, 0, graph.total_macs, None, 0.0, trouble=str(error))
    figures = MicroOpFigures(**asdict(made.micro_ops)) if made.micro_ops else None
    return Found(play(program, chip).cycles, _busy(program, chip), graph.total_macs, figures, seconds)


def _busy(program: Program, chip: ChipConfig) -> int:
    gemms = (each.fields for stream in program.streams for each in stream.instructions if each.opcode is Opcode.GEMM)
    return sum(
        gemm_occupancy(
            chip, GemmShape(gemm["pixels"], gemm["n_blocks"], gemm["k_blocks"], gemm["kernel_h"], gemm["kernel_w"])
        )
        for gemm in gemms
    )


def _on_rtl(asked: Asked, on_progress: OnEvent) -> Found:
    def told(event: object) -> None:
        if isinstance(event, Stage):
            on_progress(event)

    (row,) = run_workloads([asked.network], asked.chip, asked.scheduler, told)
    network = row.network
    trouble = "" if row.status in (Status.PASSED, Status.MODEL) and network is not None else row.reason
    return Found(
        row.model_cycles, 0, network.macs if network else 0, network.micro_ops if network else None, row.cpu_seconds,
        row.rtl_cycles, row.bytes_checked, row.mismatches, trouble,
    )  # fmt: skip
