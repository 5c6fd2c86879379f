"""Schedules and programs that have not run, as if they had been: what the timeline model plans, for `explain`,
`compare` and `report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.lowering.programs import Planned
from meshloom.sched.model.timeline import Timeline
from meshloom.sched.support.reading import parse_json
from meshloom.sched.workload.layers import WorkloadError

from ..compare.finished import macs_of_layer
from ..compare.tables import tables
from ..devices.interface import Run
from ..inputs.sources import NetworkSource
from ..inputs.sources import load as load_network
from ..results import named
from ..results.artefacts import Artefacts, arrow_tables
from ..results.clock import clock_figures
from ..results.figures import LayerFigures, NetworkFigures
from ..results.identity import code
from ..results.named import NamedRun, RunNameError
from ..results.saved import chip_of
from ..results.schema import Row, Settings
from . import network
from .kinds.interface import PlannedWorkload
from .kinds.networks import NetworkRequest
from .saved import SavedSource, meaning, settings_of
from .saved import planned as plan_of


@dataclass(frozen=True)
class PlannedRun(NamedRun):
    """What would run. `left`: its artefacts; nothing in them is measured."""

    left: Artefacts | None = None

    def load(self) -> Artefacts:
        """Its artefacts."""
        assert self.left is not None
        return self.left


def find(name: str, chip: str | ChipConfig | None = None) -> tuple[NamedRun, ...]:
    """The workloads of a run by its name (`results.named.find`), or the one of a saved schedule (.json) or program
    (.bin) that has not run. `chip`: for which a file was made, if not for a built-in one.

    Raises RunNameError for a name that means none of these or if `chip` is given for a run, ResultsError for a damaged
    file, and for a schedule or a program what reading and checking it raise.
    """
    path = Path(name)
    if is_saved(name):
        config = load(chip) if isinstance(chip, str) else chip
        return (planned(path, config or chip_of(path)),)
    if chip is not None:
        raise RunNameError(f"{name}: is a run, whose chip is known; --chip is for saved schedules and programs")
    return named.find(name)


def is_saved(name: str) -> bool:
    """Whether this is a file with a schedule or a program, not a run."""
    path = Path(name)
    if not path.is_file() or path.suffix != ".json":
        return path.is_file() and path.suffix == ".bin"
    try:
        value: object = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # whoever reads it as results says what is wrong
        return False
    return isinstance(value, dict) and "operations" in value and "rows" not in value


def planned(path: Path, chip: ChipConfig) -> PlannedRun:
    """The plan of a saved schedule or program: checked, and played by the timeline model. Raises what reading and
    checking a file raise."""
    source = SavedSource(path, "")  # its tensors need not be known
    saved = plan_of(source, chip, lambda stage: None)
    row = Row(
        workload=saved.schedule.workload or source.name,
        chip=chip.name,
        chip_digest=chip.digest,
        scheduler=saved.schedule.scheduler,
        simulator="",
        settings=Settings(code=code(), simulator_version="", **settings_of(source, saved.schedule)),
        model_cycles=saved.timeline.cycles,
        instructions=saved.program.instructions,
        network=_network(path, saved, chip),
    )
    nothing = Run(0, None, [], [], {}, 0.0, "")
    result = arrow_tables(tables(nothing, saved.timeline, saved.program, saved.schedule, chip))
    return PlannedRun(row, None, left=Artefacts(row, chip, saved.schedule, saved.program, result))


def of_plan(plan: PlannedWorkload, chip: ChipConfig, scheduler: str) -> PlannedRun:
    """A schedule of this process that has not run. `scheduler`: by name, with its options."""
    single = plan.macs is None or macs_of_layer(plan.schedule, plan.name) is not None
    figures = (
        None if single else NetworkFigures(macs=plan.macs or 0, tensors_checked=0, dram_bytes=0, layers=(), shares={})
    )
    row = Row(
        workload=plan.name,
        chip=chip.name,
        chip_digest=chip.digest,
        scheduler=plan.schedule.scheduler,
        simulator="",
        settings=Settings(code=code(), scheduler=scheduler, simulator_version=""),
        model_cycles=plan.timeline.cycles,
        instructions=plan.program.instructions,
        network=figures,
    )
    row = row.model_copy(update={"time": clock_figures(chip.clock_mhz, plan.timeline.cycles, macs=plan.macs)})
    nothing = Run(0, None, [], [], {}, 0.0, "")
    result = arrow_tables(tables(nothing, plan.timeline, plan.program, plan.schedule, chip))
    return PlannedRun(row, None, left=Artefacts(row, chip, plan.schedule, plan.program, result))


def _network(path: Path, saved: Planned, chip: ChipConfig) -> NetworkFigures | None:
    """The layers of a network, if that is what the file says that it computes."""
    try:
        means = meaning(SavedSource(path), saved.schedule, chip)
        graph = load_network(NetworkSource(means.source.name)) if isinstance(means, NetworkRequest) else None
    except (WorkloadError, OSError):  # whatever it is, its operations are known
        return None
    if graph is None:
        return None
    macs = {layer.output: graph.macs(layer) for layer in graph.layers}
    kinds = {layer.output: layer.kind for layer in graph.layers}
    layers = [
        LayerFigures(name=name, kind=kinds.get(name, "copy"), macs=macs.get(name, 0), limit="", rtl_cycles=0,
                     model_cycles=cycles, core_cycles=0, utilisation=0.0, shares={})
        for name, cycles in _predicted(saved.timeline, saved, chip).items()
    ]  # fmt: skip
    order = {layer.output: index for index, layer in enumerate(graph.layers)}
    layers.sort(key=lambda layer: order.get(layer.name, len(order)))
    return NetworkFigures(macs=graph.total_macs, tensors_checked=0, dram_bytes=0, layers=tuple(layers), shares={})


def _predicted(timeline: Timeline, saved: Planned, chip: ChipConfig) -> dict[str, int]:
    """Each layer's cycles from its first GEMM or VEC to its last."""
    pairs = network.spans(timeline.executed, chip, saved.schedule)
    return {name: end - start for name, (start, end) in pairs.items()}
