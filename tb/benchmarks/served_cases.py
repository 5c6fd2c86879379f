"""What can go wrong when many networks share a chip, on the RTL of lp9: a fault, deadlines that nobody can meet, no
core free, a single core, a network that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.model.session import Completion, Launch
from meshloom.sched.program.program import Instruction, Stream
from meshloom.sched.schedulers.online.drive import Drive
from meshloom.sched.schedulers.online.instances import instances_of
from meshloom.sched.schedulers.online.interface import Platform
from meshloom.sched.schedulers.online.registry import online_scheduler
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.scenario import Request, Scenario

from ..build.builder import build, ingredients
from ..devices.serving import ServedChip
from ..results.events import OnEvent, Stage
from ..results.scenario import ScenarioResults
from ..runs.online.executor import SessionExecutor
from ..runs.online.networks import compile_networks
from ..runs.online.rtl_session import RtlSession
from ..runs.online.serve import least_decision_cycles, serve
from ..runs.workers import Workers, report_progress
from .results import Sheet

CHIP, DEVICE = "lp9", "verilator"
#: The program that is spoilt is the first with a GEMM launched after this cycle: all four networks are there by then.
SPOILT = 20_000


@dataclass(frozen=True)
class Case:
    """What was served and what came of it, in words. `cycles`: on the RTL; `wrong`, `checked`: bytes of networks that
    came to their end; `missed`: deadlines; `told`: what the case is about; `ok`: whether it went as it must."""

    networks: int
    cycles: int | None
    checked: int
    wrong: int
    missed: str
    told: str
    ok: bool


FORM = TypeAdapter(Case)


def one_core() -> ChipConfig:
    """A chip with a single core of lp9."""
    values = load(CHIP).model_dump() | {"name": "lp1", "floorplan": ["dram core dram", "dram host dram"], "programs": 2}
    return ChipConfig.model_validate(values)


def poor() -> ChipConfig:
    """lp9 with 16 MB of DRAM in all."""
    chip = load(CHIP)
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


def fault() -> Case:
    """Four networks, of which one gets a program that cannot run."""
    chip = load(CHIP)
    four = (Request("mobilenet_v1"), Request("mobilenet_v1"), Request("ncf", 4, 10_000), Request("ncf", 1, 10_000))
    asked = Scenario("fault", four)
    made = compile_networks(asked, chip, _told("fault"))
    instances = instances_of(asked, {key: one.network for key, one in made.items()})
    with ServedChip(build(chip, DEVICE, False, _told("fault"))) as served:
        session = RtlSession(served)
        executor = SessionExecutor(Spoiling(session), made, session)
        run = Drive(executor, online_scheduler("planaria", Platform.of(chip)), least_decision_cycles(chip)).run(
            instances
        )
    lost = [one for one in run.served if one.lost]
    left = [executor.outcomes.get(one.instance.number) for one in run.served if not one.lost]
    ended = [one for one in left if one is not None]
    checked, wrong = sum(one.checked for one in ended), sum(one.wrong for one in ended)
    names = "; ".join(f"network {one.instance.number} ({one.instance.network.label}) lost: {one.lost}" for one in lost)
    ok = len(lost) == 1 and len(ended) == len(instances) - 1 and checked > 0 and not wrong and not session.strays
    return Case(len(instances), run.end, checked, wrong, "-", names or "no network was lost", ok)


def hopeless() -> Case:
    """Deadlines of a hundredth of the time on one core."""
    requests = tuple(Request(*each, factor=0.01) for each in (("mobilenet_v1", 1), ("ncf", 4), ("ncf", 1)))
    found = _served(Scenario("hopeless", requests), load(CHIP), "lookahead")
    missed = [row for row in found.instances if row.hopeless]
    told = f"{len(missed)} of {len(found.instances)} deadlines named as such that nobody could meet"
    return _case(found, told, len(missed) == len(found.instances))


def busy() -> Case:
    """A network comes while another one has all cores: in the middle of its longest layer that does."""
    chip, first = load(CHIP), Request("mobilenet_v1")
    alone = serve(Scenario("alone", (first,)), chip, "prema", device=None, on_progress=_told("busy")).results
    until = [row.cycle for row in alone.cores[1:]]
    steps = zip(alone.cores, until, strict=False)
    whole = [(end - row.cycle, row.cycle) for row, end in steps if row.cores == len(chip.cores)]
    longest, begin = max(whole)
    arrival = begin + longest // 2
    found = _served(Scenario("busy", (first, Request("ncf", 1, arrival))), chip, "prema")
    before = [row for row in found.cores if row.cycle <= arrival and row.instance == 0]
    free = len(chip.cores) - before[-1].cores
    begun = min(row.launched for row in found.programs if row.instance == 1)
    told = f"cores free when it came: {free}; its first launch {begun - arrival:,} cycles later"
    return _case(found, told, free == 0 and begun > arrival)


def single() -> Case:
    """Three networks on one core."""
    found = _served(
        Scenario("single", (Request("ncf"), Request("ncf", 4), Request("ncf", 1, 20_000))), one_core(), "lookahead"
    )
    at_once = max(row.cores for row in found.cores)
    return _case(found, f"cores at a time: {at_once}", at_once == 1)


def too_large() -> Case:
    """A network whose weights do not fit."""
    try:
        serve(Scenario("large", (Request("resnet50", 4), Request("ncf"))), poor(), "prema", device=None)
    except DoesNotFit as error:
        return Case(2, None, 0, 0, "-", f"refused before anything runs: {error}", ok=True)
    return Case(2, None, 0, 0, "-", "was served", ok=False)


CASES: dict[str, Callable[[], Case]] = {
    "a fault in one of four networks": fault,
    "deadlines that nobody can meet": hopeless,
    "an arrival while all cores are busy": busy,
    "one core": single,
    "a network larger than memory": too_large,
}


def _told(title: str) -> Callable[[str], None]:
    return lambda what: report_progress(title, what)


def _served(asked: Scenario, chip: ChipConfig, scheduler: str) -> ScenarioResults:
    return serve(asked, chip, scheduler, device=DEVICE, on_progress=_told(asked.name)).results


def _case(found: ScenarioResults, told: str, as_told: bool) -> Case:
    figures = found.scenario
    judged = [row.met for row in found.instances if row.met is not None]
    missed = f"{judged.count(False)} of {len(judged)}" if judged else "-"
    ok = found.ok and as_told and all(row.bytes_checked for row in found.instances)
    told += "" if found.ok else f"; {'; '.join(found.reasons)}"
    return Case(len(found.instances), figures.rtl_cycles, figures.bytes_checked, figures.mismatches, missed, told, ok)


def _memory() -> SearchCache:
    return SearchCache(SCHEDULES.folder(), load(CHIP), "served-cases", "tb.benchmarks.served_cases")


def _key(name: str) -> str:
    """What a case is kept under, besides code: the sources of the simulators."""
    return repr((name, *(ingredients(chip, DEVICE, False)["sources"] for chip in (load(CHIP), one_core()))))


def _measured(name: str) -> None:
    """Runs a case and keeps it: in a worker process."""
    _memory().put(_key(name), FORM, CASES[name]())


def measure(pool: Workers, on_progress: OnEvent) -> None:
    """Runs the cases that are not kept."""
    left = [name for name in CASES if _memory().get(_key(name), FORM) is None]
    for name, future in [(name, pool.submit(_measured, name)) for name in left]:
        on_progress(Stage(workload="cases", what=name))
        pool.result(future, on_progress)


def sheet(failures: list[str]) -> Sheet:
    """A row for each case that is kept; what did not go as it must is a failure."""
    rows: list[tuple[str, ...]] = []
    bad: set[int] = set()
    for name in CASES:
        if (case := _memory().get(_key(name), FORM)) is None:
            continue
        if not case.ok:
            bad.add(len(rows))
            failures.append(f"{name}: {case.told}")
        cycles = "-" if case.cycles is None else f"{case.cycles:,}"
        rows.append((name, f"{case.networks}", cycles, f"{case.checked:,}", f"{case.wrong}", case.missed, case.told))
    columns = ("case", "networks>", "RTL cycles>", "bytes>", "wrong>", "deadlines missed>", "what came of it")
    return Sheet("Cases, on the RTL", columns, rows, frozenset(bad))
