"""Algorithm 1 of "Layer-Puzzle" (C. Gao et al., DATE 2023): a layer's latency by arithmetic, as printed and mended.

Both take the largest part that a scheme gives to a core. As printed, folds are quotients that nothing rounds up, what
drains is a remainder (`%`), the weights are missing from what is loaded, each core has the whole chip's bandwidth to
itself, and nothing overlaps. Mended (`corrected`): folds and channel blocks are whole, arrays fill and drain once,
weights, halos, partial sums and the other operand of an addition are carried too, cores share the channels and each has
one link of a word a cycle, and transfers run beside the computation but for the first tile and the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from meshloom.hw.spec.config import ChipConfig

from ...lowering.templates.plans import largest
from ...lowering.templates.schemes import LayerShape, Scheme, SubTile, split
from ...lowering.templates.vector import occupancy

#: Cycles from a launch to the first word of a tile, and from the last operand to the last word in DRAM, about: FETCHes,
#: requests, DRAM latency and hops, of the order of 100 each on a mesh of five columns.
BEGIN, FINISH = 250, 150
#: Words of a core's first tiles, about: without them it cannot begin.
FIRST_WORDS = 512
#: How much cores that share channels delay each other (see `queued`), fitted to 360 layers of four networks by random
#: schemes, 300 on lp9 and 60 on lp25, as the timeline model plays them.
QUEUE, OVERLAP, STORES = 0.4, 0.4, 0.4


@dataclass(frozen=True)
class Latency:
    """Cycles of a layer on its cores, of which arrays compute for `compute`, and loading and storing take `load` and
    `store`; `utilisation`: useful multiply-accumulates per PE and cycle."""

    cycles: float
    compute: float
    load: float
    store: float
    utilisation: float


#: Predicts a layer: shape, scheme, chip, mem_factor. Raises DoesNotFit for a scheme that the shape has no parts for.
Predictor = Callable[[LayerShape, Scheme, ChipConfig, float], Latency]


def _input_pixels(shape: LayerShape, part: SubTile) -> int:
    """Words of one channel block that a part reads, halos included."""
    problem = shape.problem
    if problem.flat:
        return sum(r1 - r0 for _, r0, r1 in part.segments)
    rows = 0
    for _, r0, r1 in part.segments:
        i0, i1, _ = problem.input_rows(r0, r1)
        rows += i1 - i0
    return rows * problem.in_w


def _bandwidth(chip: ChipConfig) -> float:
    """Bytes a cycle of all DRAM channels."""
    return len(chip.drams) * chip.dram.bytes_per_cycle


def utilisation(shape: LayerShape, scheme: Scheme, chip: ChipConfig, cycles: float) -> float:
    """Useful multiply-accumulates per PE of its cores and cycle."""
    peak = chip.rows * chip.cols if shape.matrix else chip.lanes
    return shape.macs / (scheme.cores * peak * cycles)


def literal(shape: LayerShape, scheme: Scheme, chip: ChipConfig, mem_factor: float = 1.0) -> Latency:
    """Algorithm 1 as printed, with the chip's bandwidth for BW; brackets around the folds read as parentheses."""
    problem, part = shape.problem, largest(shape, split(shape, scheme))
    pixels = part.pixels(problem)
    inputs, outputs = shape.channels
    channels = min((part.n[1] - part.n[0]) * chip.cols, outputs)
    deep = min((part.k[1] - part.k[0]) * chip.lanes, inputs) if shape.matrix else 1
    window = deep * problem.kernel_h * (1 if problem.packed else problem.kernel_w)
    if problem.packed:
        window = (part.k[1] - part.k[0]) * chip.lanes * problem.kernel_h
    folds = pixels / chip.rows * (channels / chip.cols)
    drain = max((pixels - 1) % chip.rows, (channels - 1) % chip.cols)
    compute = window * folds + drain
    rate = _bandwidth(chip) * mem_factor
    load = _input_pixels(shape, part) * (deep if shape.matrix else channels) / rate
    store = pixels * channels / rate
    cycles = load + compute + store
    return Latency(cycles, compute, load, store, utilisation(shape, scheme, chip, cycles))


def carried(shape: LayerShape, scheme: Scheme, chip: ChipConfig) -> tuple[int, int, float]:
    """DRAM words of the core with the largest part: its inputs, weights, and results."""
    part = largest(shape, split(shape, scheme))
    blocks, deep = part.n[1] - part.n[0], part.k[1] - part.k[0]
    weights = blocks * shape.problem.taps * (deep * chip.cols if shape.matrix else 1)
    pixels = part.pixels(shape.problem) * shape.repeat**2
    return _input_pixels(shape, part) * deep, weights, pixels * blocks / scheme.input


def corrected(shape: LayerShape, scheme: Scheme, chip: ChipConfig, mem_factor: float = 1.0) -> Latency:
    """Algorithm 1 mended (see above). `mem_factor`: share of the bandwidth that is left to the layer."""
    problem, part = shape.problem, largest(shape, split(shape, scheme))
    blocks, deep = part.n[1] - part.n[0], part.k[1] - part.k[0]
    pixels = part.pixels(problem)
    x, weights, y = carried(shape, scheme, chip)
    if shape.matrix:
        compute = blocks * ceil(pixels / chip.rows) * deep * problem.taps * chip.lanes + chip.rows + chip.cols
    else:
        compute = _vector_cycles(shape, chip, part)
    passed = 4 * y * (scheme.input - 1)  # partial sums from core to core: four words each, over links alone
    rate = min(1.0, _bandwidth(chip) / chip.lanes / scheme.cores) * mem_factor
    load = (x + weights + y * shape.residual) / rate + passed
    store = y / rate + passed
    both = (x + weights + y * (1 + shape.residual)) * scheme.cores / (_bandwidth(chip) / chip.lanes * mem_factor)
    first = min(load, FIRST_WORDS / rate)
    cycles = BEGIN + first + max(compute, load, store, both) + FINISH + min(store, FIRST_WORDS / 4 / rate)
    return Latency(cycles, compute, load, store, utilisation(shape, scheme, chip, cycles))


def queued(shape: LayerShape, scheme: Scheme, chip: ChipConfig, mem_factor: float = 1.0) -> Latency:
    """`corrected`, and what cores lose to each other: a channel sends first in, first out, so a core that is served
    keeps others waiting whose words lie behind.

    With c cores on n channels, u = (c - 1) / n, at most 1: transfers take 1 + QUEUE u times as long, OVERLAP u of what
    could overlap does not, and neither do results to the extent STORES.
    """
    alone = corrected(shape, scheme, chip, mem_factor)
    crowd = min(1.0, (scheme.cores - 1) / len(chip.drams))
    load, store = alone.load * (1 + QUEUE * crowd), alone.store * (1 + QUEUE * crowd)
    cycles = BEGIN + min(load, FIRST_WORDS) + max(alone.compute, load, store) + FINISH
    cycles += OVERLAP * crowd * min(alone.compute, load) + STORES * min(alone.store, alone.compute)
    return Latency(cycles, alone.compute, load, store, utilisation(shape, scheme, chip, cycles))


def _vector_cycles(shape: LayerShape, chip: ChipConfig, part: SubTile) -> int:
    """Cycles of the vector unit: those of one instruction for each segment."""
    return sum(occupancy(shape, chip, segment, part.n[1] - part.n[0]) for segment in part.segments)
