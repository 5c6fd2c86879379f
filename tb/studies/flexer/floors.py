"""What no schedule can undercut."""

from __future__ import annotations

from functools import cache
from math import ceil

from meshloom.sched.workload import zoo

from ..points.runs import chip_of


@cache
def floor_cycles(arch: str, network: str) -> int:
    """Cycles that no schedule of a network can undercut: all products on all arrays, or weights, biases, input and
    output over the DRAM channels."""
    chip, graph = chip_of(arch), zoo.load(network)
    arrays = graph.total_macs / (len(chip.cores) * chip.rows * chip.cols)
    constants = sum(layer.w.nbytes for layer in graph.layers if layer.w is not None)
    constants += sum(layer.bias.nbytes for layer in graph.layers if layer.bias is not None)
    values = [*graph.inputs, *(graph.values[name] for name in graph.outputs)]
    ends = sum(value.channels * value.height * value.width for value in values)
    return ceil(max(arrays, (constants + ends) / (len(chip.drams) * chip.dram.bytes_per_cycle)))
