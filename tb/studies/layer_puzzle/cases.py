"""What can go wrong when many networks share a chip, on the RTL of lp9: a fault, deadlines that nobody can meet, no
core free, a single core, a network that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.model.session import Completion, Launch
from meshloom.sched.program.program import Instruction, Stream
from meshloom.sched.schedulers.online.drive import Drive
from meshloom.sched.schedulers.online.instances import instances_of
from meshloom.sched.schedulers.online.interface import Platform
from meshloom.sched.schedulers.online.registry import online_scheduler
from meshloom.sched.workload.scenario import Request, Scenario

from ...build.builder import build
from ...devices.serving import ServedChip
from ...results.scenario import ScenarioResults
from ...runs.online.executor import SessionExecutor
from ...runs.online.networks import compile_networks
from ...runs.online.rtl_session import RtlSession
from ...runs.online.serve import least_decision_cycles, serve
from ..engine.point import Inputs, Point, Report
from ..engine.rows import Rows
from ..engine.tables import DASH, Table, count, table
from ..points.runs import DEVICE, chip_of, gateware

CHIP = "lp9"
#: The program that is spoilt is the first with a GEMM launched after this cycle: all four networks are there by then.
SPOILT = 20_000


@dataclass(frozen=True)
class Outcome:
    """What was served and what came of it. `cycles`: on the RTL; `wrong`, `checked`: bytes of networks that came to
    their end; `missed`: deadlines; `words`: what the case is about; `ok`: whether it went as it must."""

    networks: int
    cycles: int | None
    checked: int
    wrong: int
    missed: str
    words: str
    ok: bool


def one_core() -> ChipConfig:
    """A chip with a single core of lp9."""
    values = chip_of(CHIP).model_dump() | {
        "name": "lp1",
        "floorplan": ["dram core dram", "dram host dram"],
        "programs": 2,
    }
    return ChipConfig.model_validate(values)


def poor() -> ChipConfig:
    """lp9 with 16 MB of DRAM in all."""
    chip = chip_of(CHIP)
    values = chip.model_dump() | {"name": "poor", "dram": chip.dram.model_dump() | {"words": 1 << 16}}
    return ChipConfig.model_validate(values)


class Spoiling:
    """A session of the RTL in which one program has a GEMM without pixels. See `Session`."""

    def __init__(self, session: RtlSession) -> None:
        self.session = session
        self.spoilt = False

    @property
    def chip(self) -> ChipConfig:
        return self.session.chip

    @property
    def now(self) -> int:
        return self.session.now

    def launch(self, launch: Launch, at: int) -> None:
        """Launches it, spoilt if it is the one."""
        matrix = [stream for stream in launch.program.streams if stream.unit is Unit.MATRIX]
        if at > SPOILT and matrix and not self.spoilt:
            self.spoilt, first = True, matrix[0]
            code = list(first.instructions)
            number = next(position for position, one in enumerate(code) if one.opcode is Opcode.GEMM)
            code[number] = Instruction(Opcode.GEMM, code[number].fields | {"pixels": 0})
            stream = Stream(first.tile, first.unit, first.dram_tile, first.address, tuple(code))
            streams = tuple(stream if each is first else each for each in launch.program.streams)
            launch = replace(launch, program=replace(launch.program, streams=streams))
        self.session.launch(launch, at)

    def advance(self, until: int | None) -> tuple[Completion, ...]:
        """See `Session`."""
        return self.session.advance(until)


def fault(report: Report) -> Outcome:
    """Four networks, of which one gets a program that cannot run."""
    chip = chip_of(CHIP)
    four = (Request("mobilenet_v1"), Request("mobilenet_v1"), Request("ncf", 4, 10_000), Request("ncf", 1, 10_000))
    scenario = Scenario("fault", four)
    compiled = compile_networks(scenario, chip, report)
    instances = instances_of(scenario, {key: one.network for key, one in compiled.items()})
    with ServedChip(build(chip, DEVICE, False, report)) as served:
        session = RtlSession(served)
        executor = SessionExecutor(Spoiling(session), compiled, session)
        run = Drive(executor, online_scheduler("planaria", Platform.of(chip)), least_decision_cycles(chip)).run(
            instances
        )
    lost = [one for one in run.served if one.lost]
    left = [executor.outcomes.get(one.instance.number) for one in run.served if not one.lost]
    ended = [one for one in left if one is not None]
    checked, wrong = sum(one.checked for one in ended), sum(one.wrong for one in ended)
    names = "; ".join(f"network {one.instance.number} ({one.instance.network.label}) lost: {one.lost}" for one in lost)
    ok = len(lost) == 1 and len(ended) == len(instances) - 1 and checked > 0 and not wrong and not session.strays
    return Outcome(len(instances), run.end, checked, wrong, "-", names or "no network was lost", ok)


def hopeless(report: Report) -> Outcome:
    """Deadlines of a hundredth of the time on one core."""
    requests = tuple(Request(*each, factor=0.01) for each in (("mobilenet_v1", 1), ("ncf", 4), ("ncf", 1)))
    results = _serve(Scenario("hopeless", requests), chip_of(CHIP), "lookahead", report)
    missed = [row for row in results.instances if row.hopeless]
    words = f"{len(missed)} of {len(results.instances)} deadlines named as such that nobody could meet"
    return _outcome(results, words, len(missed) == len(results.instances))


def busy(report: Report) -> Outcome:
    """A network comes while another one has all cores: in the middle of its longest layer that does."""
    chip, first = chip_of(CHIP), Request("mobilenet_v1")
    alone = serve(Scenario("alone", (first,)), chip, "prema", device=None, on_progress=report).results
    until = [row.cycle for row in alone.cores[1:]]
    steps = zip(alone.cores, until, strict=False)
    whole = [(end - row.cycle, row.cycle) for row, end in steps if row.cores == len(chip.cores)]
    longest, begin = max(whole)
    arrival = begin + longest // 2
    results = _serve(Scenario("busy", (first, Request("ncf", 1, arrival))), chip, "prema", report)
    before = [row for row in results.cores if row.cycle <= arrival and row.instance == 0]
    free = len(chip.cores) - before[-1].cores
    begun = min(row.launched for row in results.programs if row.instance == 1)
    words = f"cores free when it came: {free}; its first launch {begun - arrival:,} cycles later"
    return _outcome(results, words, free == 0 and begun > arrival)


def single(report: Report) -> Outcome:
    """Three networks on one core."""
    three = Request("ncf"), Request("ncf", 4), Request("ncf", 1, 20_000)
    results = _serve(Scenario("single", three), one_core(), "lookahead", report)
    at_once = max(row.cores for row in results.cores)
    return _outcome(results, f"cores at a time: {at_once}", at_once == 1)


def too_large(report: Report) -> Outcome:
    """A network whose weights do not fit."""
    try:
        serve(Scenario("large", (Request("resnet50", 4), Request("ncf"))), poor(), "prema", device=None)
    except DoesNotFit as error:
        return Outcome(2, None, 0, 0, "-", f"refused before anything runs: {error}", ok=True)
    return Outcome(2, None, 0, 0, "-", "was served", ok=False)


CASES: dict[str, Callable[[Report], Outcome]] = {
    "a fault in one of four networks": fault,
    "deadlines that nobody can meet": hopeless,
    "an arrival while all cores are busy": busy,
    "one core": single,
    "a network larger than memory": too_large,
}


@dataclass(frozen=True)
class CasePoint(Point):
    """One of the cases."""

    case: str
    row: ClassVar[Any] = Outcome

    @property
    def name(self) -> str:
        return self.case

    @property
    def work(self) -> float:
        return 60.0

    def inputs(self) -> Inputs:
        more = ("gateware", gateware()), *((chip.name, chip.digest) for chip in (chip_of(CHIP), one_core(), poor()))
        return Inputs(("tb.studies.layer_puzzle.cases",), more)

    def measure(self, report: Report) -> Outcome:
        """Serves it. Raises BuildError, DeviceError."""
        return CASES[self.case](report)


def _serve(scenario: Scenario, chip: ChipConfig, scheduler: str, report: Report) -> ScenarioResults:
    return serve(scenario, chip, scheduler, device=DEVICE, on_progress=report).results


def _outcome(results: ScenarioResults, words: str, as_it_must: bool) -> Outcome:
    figures = results.scenario
    judged = [row.met for row in results.instances if row.met is not None]
    missed = f"{judged.count(False)} of {len(judged)}" if judged else DASH
    ok = results.ok and as_it_must and all(row.bytes_checked for row in results.instances)
    words += "" if results.ok else f"; {'; '.join(results.reasons)}"
    checked, wrong = figures.bytes_checked, figures.mismatches
    return Outcome(len(results.instances), figures.rtl_cycles, checked, wrong, missed, words, ok)


def outcomes(rows: Rows) -> Table:
    """A row for each case."""
    columns: dict[str, Callable[[tuple[str, Outcome]], str]] = {
        "case": lambda each: each[0],
        "networks>": lambda each: str(each[1].networks),
        "RTL cycles>": lambda each: count(each[1].cycles),
        "bytes>": lambda each: count(each[1].checked),
        "wrong>": lambda each: str(each[1].wrong),
        "deadlines missed>": lambda each: each[1].missed,
        "what came of it": lambda each: each[1].words,
    }
    some = [(name, row) for name in CASES if (row := rows.get(CasePoint(name))) is not None]
    return table("Cases, on the RTL", columns, some, lambda each: not each[1].ok)


def failures(rows: Rows) -> list[str]:
    """Cases that did not go as they must."""
    return [f"{point.case}: {row.words}" for point, row in rows.items() if isinstance(point, CasePoint) and not row.ok]
