"""The tools that `meshloom mcp` offers agents: each is a call of what `import meshloom` offers, within a fence.

A call is carried out in a process of its own, so that one that takes too long or too much memory ends alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from meshloom.hw.spec.config import Exact, built_in_chips, mistakes
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.schedulers.registry import REGISTRY
from meshloom.sched.support import apart
from meshloom.sched.support.limits import Limits
from meshloom.sched.workload import zoo

from ..exchange.registry import IMPORTERS
from ..results.exits import expected
from ..results.recorder import RESULTS_FOLDER
from .calls import load_chip, run, schedule
from .fence import Fence
from .protocol import CallError, Server, Tool
from .workload import Workload

INSTRUCTIONS = (
    "Meshloom runs schedules of neural networks on the RTL of multi-NPU chips, checks every byte and counts cycles. "
    "Begin with chips, workloads and schedulers; schedule predicts in a moment, run measures on the RTL (the first run "
    "on a chip builds a simulator, a minute or more); explain says where the cycles went. Files are below one folder."
)
A = TypeVar("A", bound=Exact)
ChipName = Annotated[str, Field(description="a built-in chip's name, or a .toml file")]
WorkloadName = Annotated[
    str, Field(description="a layer (resnet8/conv1), a shape (gemm:64x64x64), a network, or an .onnx file")
]
SchedulerName = Annotated[str, Field(description="name:option=value,..., see the tool schedulers")]
RunText = Annotated[str, Field(description="a name that run returned, a results file, or a saved schedule (.json)")]


@dataclass(frozen=True)
class AgentLimits:
    """Of one call: seconds, megabytes, cycles that a run may be predicted to take, characters of its answer."""

    seconds: float
    megabytes: int
    cycles: int
    characters: int


class _Arguments(Exact):
    """Of a tool: no others than it has."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class _Nothing(_Arguments):
    """No arguments."""


class _OfChips(_Arguments):
    chip: Annotated[ChipName | None, Field(description="one chip in full; all names without it")] = None


class _OfWorkloads(_Arguments):
    network: Annotated[str | None, Field(description="list its layers; without it all networks")] = None


class _OfSchedule(_Arguments):
    workload: WorkloadName
    chip: ChipName = "quad16"
    scheduler: SchedulerName = "loop_order"
    out: Annotated[str | None, Field(description="file for the schedule (.json)")] = None


class _OfCheck(_Arguments):
    file: Annotated[str, Field(description="a saved schedule (.json) or program (.bin)")]
    chip: ChipName | None = None


class _OfRun(_Arguments):
    workload: Annotated[WorkloadName, Field(description="as of schedule, or a saved schedule (.json)")]
    chip: Annotated[ChipName | None, Field(description="quad16, or the chip of a saved schedule")] = None
    scheduler: SchedulerName = "loop_order"


class _OfExplain(_Arguments):
    run: RunText
    workload: Annotated[str | None, Field(description="only this one of the run")] = None
    chip: ChipName | None = None


class _OfCompare(_Arguments):
    runs: Annotated[list[RunText], Field(min_length=2, max_length=10, description="the first is the yardstick")]


class _OfMapping(_Arguments):
    tool: Annotated[str, Field(description="who made the mapping: zigzag, timeloop, ...")]
    file: Annotated[str, Field(description="the tool's file")]
    chip: ChipName = "quad16"
    workload: Annotated[WorkloadName | None, Field(description="the layer, if the file does not say it")] = None
    nearest: Annotated[bool, Field(description="where the chip cannot do what it says, do what is nearest")] = False
    out: Annotated[str | None, Field(description="file for the schedule (.json)")] = None


@dataclass(frozen=True)
class AgentTools:
    """The calls behind the tools."""

    fence: Fence
    limits: AgentLimits

    def chips(self, wish: _OfChips) -> object:
        """Names of the chips, or one chip."""
        if wish.chip is None:
            return {"chips": list(built_in_chips())}
        chip = load_chip(self.fence.chip(wish.chip))
        return {"digest": chip.digest, **chip.model_dump(mode="json")}

    def workloads(self, wish: _OfWorkloads) -> object:
        """Names of the networks, or of the layers of one."""
        if wish.network is None:
            return {"networks": list(zoo.names()), "shapes": ["gemm:MxNxK", "conv:HxWxC-K,k3,s1,p1"]}
        return {"layers": [each.name for each in Workload.of(self.fence.workload(wish.network)).layers()]}

    def schedulers(self, wish: _Nothing) -> object:
        """Schedulers that are installed, with what they schedule."""
        known = {name: REGISTRY.get(name) for name in REGISTRY.shipped}
        return {name: {"schedules": list(each.kinds), "summary": each.summary} for name, each in known.items()}

    def schedule(self, wish: _OfSchedule) -> object:
        """A schedule, checked and predicted."""
        chip, by = self.fence.chip(wish.chip), self.fence.scheduler(wish.scheduler)
        return self._scheduled(schedule(self.fence.workload(wish.workload), chip, by), wish.out)

    def check(self, wish: _OfCheck) -> object:
        """What is proven of a saved schedule or program."""
        from meshloom.sched.lowering.programs import check_program

        from ..results.saved import read

        chip = None if wish.chip is None else self.fence.chip(wish.chip)
        config, program, saved = read(self.fence.path(wish.file), chip)
        report = check_program(program, config, saved)
        return {
            "good": True,
            "chip": config.name,
            "instructions": report.instructions,
            "accesses": report.accesses,
            "warnings": list(report.warnings),
        }

    def run(self, wish: _OfRun) -> object:
        """A run on the RTL, unless it is predicted to take too many cycles."""
        name = self.fence.workload(wish.workload)
        if name.endswith((".json", ".bin")):
            from ..results.saved import chip_of, read

            place = self.fence.path(wish.workload)
            chip = load_chip(chip_of(place) if wish.chip is None else self.fence.chip(wish.chip))
            plan = read(place, str(self.fence.chip(wish.chip)) if wish.chip else None)[2]
            if plan is None:
                raise CallError(f"{wish.workload}: a program has no schedule that predicts it; run its schedule")
        else:
            chip = load_chip(self.fence.chip(wish.chip or "quad16"))
            plan = schedule(name, chip, self.fence.scheduler(wish.scheduler))
        cycles = plan.predicted.cycles if plan.predicted else 0
        if cycles > self.limits.cycles:
            raise CallError(f"{wish.workload}: {cycles:,} cycles are predicted, at most {self.limits.cycles:,} are run")
        result = run(plan, chip, jobs=1)
        result.save(self.fence.path(str(RESULTS_FOLDER / f"{result.results.run}.json")))
        left_out: Any = {"settings", "artefacts", "waves", "network"}
        return {
            "run": result.results.run,
            "ok": result.ok,
            "reasons": list(result.reasons),
            "rows": [row.model_dump(mode="json", exclude=left_out, exclude_none=True) for row in result.rows],
        }

    def explain(self, wish: _OfExplain) -> object:
        """Where the cycles of a run went."""
        from ..compare.explained import explained_all
        from ..results.named import chosen

        runs = chosen(self._named(wish.run, wish.chip), wish.workload)
        pairs, unexplained = explained_all(runs, None, False, 5, False, lambda what: None, None)
        whole: Any = {"path", "spread"}
        return {
            "workloads": [pair.why.model_dump(mode="json", exclude=whole, exclude_none=True) for pair in pairs],
            "unexplained": unexplained,
        }

    def compare(self, wish: _OfCompare) -> object:
        """Runs beside the first of them, by cause."""
        from ..compare.ranked import ranked

        runs = {name: self._named(name, None) for name in wish.runs}
        return ranked(runs).model_dump(mode="json", exclude_none=True)

    def import_mapping(self, wish: _OfMapping) -> object:
        """The schedule of a layer as another tool mapped it."""
        if wish.tool not in IMPORTERS.shipped:
            raise CallError(f"unknown tool {wish.tool!r}; there are {', '.join(IMPORTERS.shipped)}")
        layer = None if wish.workload is None else self.fence.workload(wish.workload)
        work = Workload.mapped(wish.tool, self.fence.path(wish.file), layer, nearest=wish.nearest)
        return self._scheduled(schedule(work, self.fence.chip(wish.chip)), wish.out)

    def _named(self, name: str, chip: str | None) -> Any:
        """The workloads of a run, whose artefacts are this server's own."""
        from meshloom.sched.store.kinds import ARTEFACTS

        from ..runs.planned import find

        runs = find(self.fence.run(name), None if chip is None else self.fence.chip(chip))
        cached = ARTEFACTS.folder().resolve()
        for each in runs:
            if each.folder and not (self.fence.holds(each.folder) or each.folder.resolve().is_relative_to(cached)):
                raise CallError(f"{name}: its artefacts are not in the folder of this server; run it again here")
        return runs

    def _scheduled(self, plan: Schedule, out: str | None) -> object:
        place = None if out is None else self.fence.path(out)
        if place is not None:
            plan.save(place)
        claim = plan.claim.model_dump(mode="json", exclude_none=True) if plan.claim else None
        return {
            "workload": plan.workload,
            "scheduler": plan.scheduler,
            "predicted_cycles": plan.predicted.cycles if plan.predicted else None,
            "operations": len(plan.operations),
            "claim": claim,
            "file": out,
        }


def server(fence: Fence, limits: AgentLimits) -> Server:
    """A server of these tools."""
    calls, bound = AgentTools(fence, limits), Limits(limits.seconds, limits.megabytes, network=True)

    def tool(name: str, model: type[A], call: Callable[[A], object], description: str, writes: bool = False) -> Tool:
        return Tool(name, description, model.model_json_schema(), _bounded(model, call, bound), writes)

    tools = [
        tool("chips", _OfChips, calls.chips, "List the chips, or show one."),
        tool("workloads", _OfWorkloads, calls.workloads, "List the networks, or the layers of one."),
        tool("schedulers", _Nothing, calls.schedulers, "List the schedulers."),
        tool("schedule", _OfSchedule, calls.schedule, "Make a schedule, check it, predict its cycles.", True),
        tool("check", _OfCheck, calls.check, "Prove that a saved schedule or program can run on its chip."),
        tool("run", _OfRun, calls.run, "Run on the RTL: every byte compared, cycles counted.", True),
        tool("explain", _OfExplain, calls.explain, "Say where the cycles of a run went, by cause and layer."),
        tool("compare", _OfCompare, calls.compare, "Compare runs with the first of them, by cause."),
        tool("import_mapping", _OfMapping, calls.import_mapping, "Schedule a layer as another tool mapped it.", True),
    ]
    return Server(metadata.version("meshloom"), INSTRUCTIONS, tools, limits.characters)


def _bounded(model: type[A], call: Callable[[A], object], limits: Limits) -> Callable[[Mapping[str, object]], object]:
    """A call with arguments of a model, in a process of its own. It raises CallError alone."""

    def bounded(arguments: Mapping[str, object]) -> object:
        try:
            wish = model.model_validate(dict(arguments))
        except ValidationError as error:
            raise CallError(mistakes(error, arguments, model)) from error
        try:
            return apart.call(lambda report: call(wish), limits, _agent_error)
        except apart.DiedError as death:
            raise CallError(f"the call ended: {death.what}") from None

    return bounded


def _agent_error(error: BaseException) -> BaseException:
    """An error as the agent hears of it."""
    if isinstance(error, CallError):
        return error
    known = expected(error) if isinstance(error, Exception) else None
    return CallError(known[0] if known else f"this is a bug in Meshloom: {type(error).__name__}: {error}")
