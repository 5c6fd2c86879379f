"""Trained model files out of packages, as they are: quantised, run on the RTL, and their answers beside float's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.workload.layers import WorkloadError

from ...build.builder import build
from ..engine.point import Report
from .file_cases import Arrays, ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto

    from meshloom.sched.workload.onnx.original import Original
    from meshloom.sched.workload.onnx.quantise import Quantised

CHIP, DEVICE = "quad16", "verilator"


@dataclass(frozen=True)
class FileRun:
    """What a file gave. `layers`: kinds with their numbers; `macs`; `rtl_cycles`, `model_cycles`, `utilisation` (share
    of all PE cycles with a useful product); `tensors` and bytes `compared`, `wrong` ones; `snr_db` of the worst output;
    `task`: its answers beside float's. `refused`: why there is none of it."""

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
    refused: str = ""

    @property
    def error(self) -> float:
        """Of the model, as a share of the RTL's cycles."""
        return self.model_cycles / self.rtl_cycles - 1 if self.rtl_cycles else 0.0


def run(file: ModelFile, report: Report) -> FileRun:
    """Quantises and runs a file. Raises PackageError."""
    from meshloom.sched.workload.onnx.quantise import quantise_with_report

    report("fetching and quantising")
    model = file.model()
    try:
        calibration = [array for array, _ in file.inputs(file.tests, file.calibration)]
        by_channel = load(CHIP).core.channel_scales
        quantised = quantise_with_report(model, calibration, name=file.name, by_channel=by_channel)
        return _run(file, model, quantised, report)
    except (WorkloadError, DoesNotFit) as error:
        return FileRun(nodes=len(model.graph.node), refused=str(error))


def _run(file: ModelFile, model: ModelProto, quantised: Quantised, report: Report) -> FileRun:
    """The first input on the RTL; all of them in the integer network, which the RTL equals byte by byte."""
    from meshloom.sched.workload.onnx.original import Original

    from ...devices.simulated import SimulatedDevice
    from ...inputs.pictures import quantise_input
    from ...inputs.sources import Feed
    from ...runs import network

    chip = load(CHIP)
    graph, ((name, source),) = quantised.graph, quantised.sources.items()
    rest = model if quantised.start is None else quantised.start.rest
    original = Original(rest, file.name, quantised.origins.values(), quantised.sources)
    inputs = [(source.value(_start(quantised, name, array)), right) for array, right in file.inputs(0, file.tests)]
    judged = [(*_answers(original, quantised, name, value), right) for value, right in inputs]
    prepared = network.prepare(graph, chip, report)
    report("on the RTL")
    feed = Feed(file.name, {name: quantise_input(inputs[0][0], graph.inputs[0])})
    (run,) = SimulatedDevice(build(chip, DEVICE)).run([network.job(prepared, feed.arrays, chip, 4, 20_000)])
    row = network.row(prepared, file.name, feed, run, chip)
    kinds = Counter(layer.kind for layer in graph.layers)
    return FileRun(
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
        snr_db=quantised.snr_db,
        choice=f"{quantised.equalised:g}, {quantised.ranges}{', by channel' if quantised.by_channel else ''}",
        task=file.judge(judged),
        refused=row.reason or "",
    )


def _start(quantised: Quantised, name: str, array: np.ndarray | Arrays) -> np.ndarray:
    """The network's input for an input of the file: what the host makes of it, if anything."""
    if isinstance(array, np.ndarray):
        return array
    return array[name] if quantised.start is None else quantised.start.run(array)[name]


def _answers(original: Original, quantised: Quantised, name: str, value: np.ndarray) -> tuple[Arrays, Arrays]:
    """The file's tensors that the chip computes, then the outputs that the host makes of them: of the float file, and
    of the integer network."""
    from ...inputs.golden.graph import golden_values
    from ...inputs.pictures import quantise_input

    theirs = original.run({name: value})
    golden = golden_values(quantised.graph, {name: quantise_input(value, quantised.graph.inputs[0])})
    real = {tensor: golden[tensor] * quantised.graph.value(tensor).step for tensor in quantised.graph.outputs}
    ours = {origin: quantised.ends[tensor].array(real[tensor]) for tensor, origin in quantised.origins.items()}
    ours |= quantised.finish(real)
    return {tensor: theirs[tensor] for tensor in ours}, ours
