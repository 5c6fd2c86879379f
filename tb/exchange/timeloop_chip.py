"""A chip as an architecture file of Timeloop has it (version 0.4 of its form, read by timeloopfe)."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.schedulers.nest.schedule import BIAS_PART

from ..results.energy import EnergyTable
from .interface import ChipExporter

_BYTE = 8
_TEXT = """\
architecture:
  version: 0.4
  nodes:
  - !Container
    name: {name}
    attributes: {{technology: "45nm", global_cycle_seconds: 1e-9}}
  - !Component
    name: DRAM
    class: DRAM
    attributes: {{width: {bits}, datawidth: 8, shared_bandwidth: {bandwidth}}}
{nodes}"""
_FANOUT = """\
  - !Container
    name: {name}
    spatial: {{meshX: {x}, meshY: {y}}}
"""
_MEMORY = """\
  - !Component
    name: {name}
    class: SRAM
    attributes: {{depth: {depth}, width: {width}, datawidth: {datawidth}, {rates}}}
    constraints: {{dataspace: {{keep: [{keep}], bypass: [{bypass}]}}}}
"""
_ARRAY = """\
  - !Component
    name: sums
    class: regfile
    attributes: {depth: 1, width: 32, datawidth: 32}
    constraints: {dataspace: {keep: [Outputs], bypass: [Inputs, Weights]}}
  - !Component
    name: mac
    class: intmac
    attributes: {datawidth: 8}
"""
_OPERANDS = ("Inputs", "Weights", "Outputs")

#: What an architecture of Timeloop has no word for.
LEFT = (
    "the NoC: distances, and links that cores share",
    "DRAM latency and bursts",
    "the scratchpad banks, and OUT",
    "that channels come in words, and columns are filled whole",
    "the vector unit",
)


def texts(chip: ChipConfig, energy: EnergyTable) -> dict[str, str]:
    """`NAME.arch.yaml`. Sizes are in words of `datawidth` bits; the energies are Timeloop's own."""
    core = chip.core

    def memory(name: str, depth: int, words: int, keep: str, datawidth: int = _BYTE) -> str:
        bypass = ", ".join(each for each in _OPERANDS if each != keep)
        width, rates = words * datawidth, f"read_bandwidth: {words}, write_bandwidth: {words}"
        return _MEMORY.format(
            name=name, depth=depth, width=width, datawidth=datawidth, rates=rates, keep=keep, bypass=bypass
        )

    nodes = [
        _FANOUT.format(name="core", x=len(chip.cores), y=1) if len(chip.cores) > 1 else "",
        memory("A", core.a_words, chip.lanes, "Inputs"),
        memory("B", core.b_words, chip.lanes, "Weights"),
        memory("ACC", core.acc_words - core.acc_words // BIAS_PART, chip.cols, "Outputs", 32),
        _FANOUT.format(name="PE", x=chip.cols, y=chip.rows),
        _ARRAY,
    ]
    bandwidth = chip.dram.bytes_per_cycle * len(chip.drams)
    text = _TEXT.format(name=chip.name, bits=bandwidth * _BYTE, bandwidth=bandwidth, nodes="".join(nodes))
    return {f"{chip.name}.arch.yaml": text}


TIMELOOP_CHIP = ChipExporter("timeloop", "architecture file of Timeloop (version 0.4)", texts, LEFT)
