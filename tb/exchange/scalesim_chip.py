"""A core of a chip as SCALE-Sim's configuration has it."""

from __future__ import annotations

from meshloom.hw.spec.config import ChipConfig

from ..results.energy import EnergyTable
from .interface import ChipExporter

_TEXT = """\
[general]
run_name = {name}

[run_presets]
InterfaceBandwidth = USER
UseRamulatorTrace = False

[architecture_presets]
ArrayHeight = {rows}
ArrayWidth = {cols}
IfmapSramSzkB = {a}
FilterSramSzkB = {b}
OfmapSramSzkB = {out}
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Dataflow = os
Bandwidth = {dram}
ReadRequestBuffer = 64
WriteRequestBuffer = 64

[layout]
IfmapCustomLayout = False
IfmapSRAMBankBandwidth = {dram}
IfmapSRAMBankNum = 1
IfmapSRAMBankPort = 1
FilterCustomLayout = False
FilterSRAMBankBandwidth = {dram}
FilterSRAMBankNum = 1
FilterSRAMBankPort = 1

[sparsity]
SparsitySupport = false
"""

#: What a configuration has no word for.
LEFT = (
    "all but one core, and the NoC",
    "that inputs, weights and outputs share the DRAM channels: each has the bandwidth of all",
    "DRAM latency and bursts",
    "memories of less than 1 kB, and parts of one",
    "sums in ACC, biases, the vector unit",
)


def texts(chip: ChipConfig, energy: EnergyTable) -> dict[str, str]:
    """`NAME.cfg`. SCALE-Sim takes the bandwidth of inputs and weights from their banks' (version 3.0.0)."""
    core = chip.core

    def kilobytes(words: int) -> int:
        return max(1, words * chip.lanes // 1024)

    text = _TEXT.format(
        name=chip.name,
        rows=chip.rows,
        cols=chip.cols,
        a=kilobytes(core.a_words),
        b=kilobytes(core.b_words),
        out=kilobytes(core.out_words),
        dram=chip.dram.bytes_per_cycle * len(chip.drams),
    )
    return {f"{chip.name}.cfg": text}


SCALESIM_CHIP = ChipExporter("scalesim", "configuration of SCALE-Sim, output stationary", texts, LEFT)
