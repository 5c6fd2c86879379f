"""Cycles of a layer by arithmetic, as tools for accelerators count them: what the study `models` holds against the RTL.

Written from their papers, not taken from their programs; where a program's source shows what it counts, it is named
beside the paper. SCALE-Sim's, the roofline and Layer-Puzzle's know the layer
and the chip, and each counts the best mapping that it knows itself; Timeloop's and ZigZag's count a mapping, for
which they get the schedule that runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.timing import GemmShape, gemm_occupancy
from meshloom.sched.ir.schedule import Gemm, Move, Schedule
from meshloom.sched.lowering.templates.schemes import LayerShape, schemes
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.schedulers.online import latency
from meshloom.sched.workload.layers import ConvShape


@dataclass(frozen=True)
class CountedCase:
    """A layer on a chip, and the schedule that runs. `estimate`: cycles that our own closed form expects of it."""

    shape: ConvShape
    chip: ChipConfig
    schedule: Schedule
    estimate: float

    @cached_property
    def dram_rate(self) -> float:
        """Words a cycle of all DRAM channels together."""
        return len(self.chip.drams) * self.chip.dram.bytes_per_cycle / self.chip.lanes


def scale_sim(case: CountedCase) -> float:
    """Output stationary, no stalls: (2 R + C + T - 2) cycles for each fold of R x C outputs with T products each.

    "A Systematic Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim" (A. Samajdar et al.,
    ISPASS 2020), the analytical model: run time of a fold, times the folds, ceil(S_R / R) ceil(S_C / C); of several
    cores, the best grid of partitions. SCALE-Sim's own program lets a fold's results leave while the next one begins:
    R + C + T - 2 (`scalesim/compute/systolic_compute_os.py`), R cycles fewer a fold.
    """
    shape, chip = case.shape, case.chip
    pixels, outputs = shape.batch * shape.out_h * shape.out_w, shape.out_channels
    fold = 2 * chip.rows + chip.cols + shape.in_channels * shape.kernel_h * shape.kernel_w - 2
    cores = len(chip.cores)
    return fold * min(
        ceil(ceil(pixels / down) / chip.rows) * ceil(ceil(outputs / (cores // down)) / chip.cols)
        for down in range(1, cores + 1)
        if cores % down == 0
    )


def roofline(shape: ConvShape, chip: ChipConfig) -> float:
    """The larger of products / PEs and bytes / bandwidth, each tensor carried once ("Roofline: An Insightful Visual
    Performance Model", S. Williams et al., CACM 52(4), 2009)."""
    weights = shape.out_channels * shape.in_channels * shape.kernel_h * shape.kernel_w
    inputs = shape.batch * shape.in_channels * shape.in_h * shape.in_w
    results = shape.batch * shape.out_channels * shape.out_h * shape.out_w
    compute = shape.macs / (chip.rows * chip.cols * len(chip.cores))
    return max(compute, (weights + inputs + results) / (len(chip.drams) * chip.dram.bytes_per_cycle))


def _algorithm_1(form: latency.Predictor) -> Callable[[CountedCase], float]:
    def best(case: CountedCase) -> float:
        shape = LayerShape(pose(case.shape, case.chip), True, (case.shape.in_channels, case.shape.out_channels))
        for cores in range(len(case.chip.cores), 0, -1):  # a small layer has no parts for all of them
            if some := schemes(shape, cores):
                return min(form(shape, scheme, case.chip, 1.0).cycles for scheme in some)
        raise AssertionError("every layer can be on one core")

    return best


@dataclass(frozen=True)
class _Period:
    """A GEMM, as its core's memories see it: cycles of its windows, and words that are fetched for it, from DRAM and
    from elsewhere, and stored after it."""

    cycles: int
    from_dram: int
    from_spm: int
    stored: int


def _periods(case: CountedCase) -> dict[int, list[_Period]]:
    """The GEMMs of each core, in the order of the schedule, each with the transfers that stand before it."""
    chip, drams = case.chip, set(case.chip.drams)
    periods: dict[int, list[_Period]] = {core: [] for core in chip.cores}
    waiting = {core: [0, 0, 0] for core in chip.cores}
    for op in case.schedule.operations:
        if isinstance(op, Move):
            if op.dst.tile in waiting:
                waiting[op.dst.tile][op.src.tile not in drams] += op.words
            if op.src.tile in waiting:
                waiting[op.src.tile][2] += op.words
        elif isinstance(op, Gemm):
            shape = GemmShape(op["pixels"], op["n_blocks"], op["k_blocks"], op["kernel_h"], op["kernel_w"])
            periods[op.core].append(_Period(gemm_occupancy(chip, shape), *waiting[op.core]))
            waiting[op.core] = [0, 0, 0]
    for core, (_, _, stored) in waiting.items():  # results of the last one
        if periods[core]:
            periods[core].append(_Period(0, 0, 0, stored))
    return periods


def timeloop(case: CountedCase) -> float:
    """The busiest unit, as if all ran beside each other from the first cycle to the last: arrays, DRAM channels,
    scratchpads, and a core's way in and out.

    "Timeloop: A Systematic Approach to DNN Accelerator Evaluation" (A. Parashar et al., ISPASS 2019): cycles of each
    component by itself, and their maximum (Timeloop's `Topology::ComputeStats`, over arithmetic and all memories).
    """
    busy = Counter[str]()
    for periods in _periods(case).values():
        busy["array"] = max(busy["array"], sum(each.cycles for each in periods))
        busy["in"] = max(busy["in"], sum(each.from_dram + each.from_spm for each in periods))
        busy["out"] = max(busy["out"], sum(each.stored for each in periods))
    drams, spms = set(case.chip.drams), set(case.chip.spms)
    moves = [op for op in case.schedule.operations if isinstance(op, Move)]
    words = sum(op.words * ((op.src.tile in drams) + (op.dst.tile in drams)) for op in moves)
    staged = sum(op.words * ((op.src.tile in spms) + (op.dst.tile in spms)) for op in moves)
    return max(*busy.values(), words / case.dram_rate, staged / max(1, len(spms)))


def zigzag(case: CountedCase) -> float:
    """A core's windows, the stalls of its GEMMs whose operands take longer than the GEMM before, the first operands
    and the last results; the slowest core counts.

    "A Uniform Latency Model for DNN Accelerators with Diverse Architectures and Dataflows" (L. Mei et al., DATE 2022),
    which ZigZag uses: compute with spatial under-utilisation + stalls, real less allowed cycles of a transfer in each
    period but the first + loading and offloading (ZigZag's `CostModelEvaluation.calc_latency`, `PortActivity`). Its
    periods are alike, so it counts one and multiplies; here they are a schedule's, and each is counted. Cores share
    the DRAM channels evenly.
    """
    cores = _periods(case)
    active = max(1, sum(map(bool, cores.values())))
    share = min(1.0, case.dram_rate / active)

    def of_core(periods: list[_Period]) -> Iterator[float]:
        window = 0  # nothing runs beside the first one's
        for each in periods:
            real = max(each.from_dram / share + each.from_spm, each.stored / share)
            yield each.cycles + max(0.0, real - window)
            window = each.cycles

    return max(sum(of_core(periods)) for periods in cores.values())


@dataclass(frozen=True)
class Form:
    """A way to count. `terms`: the groups of causes (`model_layers.GROUPS`) that it has a term for, besides the useful
    products."""

    name: str
    count: Callable[[CountedCase], float]
    terms: frozenset[str]


FORMS = (
    Form("SCALE-Sim's formula", scale_sim, frozenset({"padding", "pipeline", "imbalance"})),
    Form("roofline", lambda case: roofline(case.shape, case.chip), frozenset({"dram"})),
    Form("Algorithm 1, as printed", _algorithm_1(latency.literal), frozenset({"pipeline", "dram", "end"})),
    Form(
        "Algorithm 1, mended",
        _algorithm_1(latency.corrected),
        frozenset({"padding", "pipeline", "dram", "program", "imbalance", "end"}),
    ),
    Form("Timeloop's style", timeloop, frozenset({"padding", "dram", "network", "imbalance"})),
    Form("ZigZag's style", zigzag, frozenset({"padding", "dram", "network", "imbalance", "end"})),
    Form(
        "our estimate",
        lambda case: case.estimate,
        frozenset({"padding", "pipeline", "dram", "network", "program", "imbalance", "end"}),
    ),
)
