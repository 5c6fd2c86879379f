"""A chip as AccelForge's architecture file has it; cycles are its seconds, picojoules its joules."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.schedulers.nest.schedule import BIAS_PART

from ..results.energy import EnergyTable
from .interface import ChipExporter

_BYTE = 8
_MEMORY = """\
  - !Memory
    name: {name}
    size: {size}
    leak_power: 0
    area: 0
    tensors: {{{tensors}}}
    actions:
    - {{name: read, energy: {energy:.4g}, throughput: {bits}}}
    - {{name: write, energy: {energy:.4g}, throughput: {bits}}}
"""
_CORES = """\
  - !Container
    name: Cores
    spatial:
    - {{name: cores, fanout: {cores}, reuse: input, min_usage: 0}}
"""
_ARRAY = """\
  - !Container
    name: Array
    spatial:
    - {{name: rows, fanout: {rows}, reuse: weight, min_usage: 0}}
    - {{name: columns, fanout: {cols}, reuse: input, min_usage: 0}}
"""
_COMPUTE = """\
  - !Compute
    name: MAC
    leak_power: 0
    area: 0
    actions:
    - {{name: compute, energy: {energy:.4g}, throughput: 1}}
"""

#: What AccelForge's architecture has no word for.
LEFT = (
    "the NoC: distances, and links that cores share",
    "DRAM latency and bursts",
    "that channels come in words, and columns are filled whole",
    "that sums take 32 bits: ACC is as many results as it has sums",
    "the scratchpad banks, and OUT",
    "the vector unit",
)


def texts(chip: ChipConfig, energy: EnergyTable) -> dict[str, str]:
    """`NAME.accelforge.yaml`."""
    core = chip.core
    sums = (core.acc_words - core.acc_words // BIAS_PART) * chip.cols
    dram = chip.dram.bytes_per_cycle * len(chip.drams) * _BYTE

    def memory(name: str, size: float | str, tensors: str, cost: float, width: int | str) -> str:
        return _MEMORY.format(name=name, size=size, tensors=tensors, energy=cost / _BYTE, bits=width)

    def own(name: str, count: int, tensors: str, units: int) -> str:
        return memory(name, count * _BYTE, f"keep: {tensors}", energy.sram_byte(count), units * _BYTE)

    parts = [
        "arch:\n  nodes:\n",
        memory("DRAM", "inf", "keep: ~Intermediates, may_keep: All", energy.dram_byte, dram),
        _CORES.format(cores=len(chip.cores)) if len(chip.cores) > 1 else "",
        own("A", core.a_words * chip.lanes, "input", chip.rows),
        own("B", core.b_words * chip.lanes, "weight", chip.cols),
        own("ACC", sums, "output, no_refetch_from_above: output", chip.cols),
        _ARRAY.format(rows=chip.rows, cols=chip.cols),
        memory("Sum", "output.bits_per_value if output else 0", "keep: output", 0.0, "inf"),
        _COMPUTE.format(energy=energy.product),
    ]
    return {f"{chip.name}.accelforge.yaml": "".join(parts)}


ACCELFORGE_CHIP = ChipExporter("accelforge", "architecture file of AccelForge", texts, LEFT)
