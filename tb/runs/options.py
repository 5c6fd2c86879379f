"""Options for running workloads of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..results.energy import EnergyTable
from ..results.shelf import Shelf


@dataclass(frozen=True)
class RunOptions:
    """`device`: the device by name (`devices.registry`); `jobs`: how many of them run concurrently.

    `waves`: write waveforms. `links`: rows include the data plane's links and the congestion. `traces`: folder for
    tracebacks of unexpected errors, `artefacts`: for what each workload leaves (None: not kept). `here`: workloads are
    prepared in this process, one after another, not in processes of their own. `energy`: the table of the estimates of
    their energy (None: ours). `area`: the chip's area is measured first if it is not known; rows have it if it is.
    `detailed`: rows say also what explains their outcome; without it they are judged the same, and have no settings,
    no area, energy and time, and nothing of what bounds a layer and what its arrays did."""

    device: str = "verilator"
    jobs: int = 1
    waves: bool = False
    links: bool = False
    traces: Path | None = None
    artefacts: Shelf | None = None
    here: bool = False
    energy: EnergyTable | None = None
    area: bool = False
    detailed: bool = True
