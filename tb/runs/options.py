"""How workloads are run, whichever they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunOptions:
    """`device`: what they run on, by name (`devices.registry`), on so many at the same time as there are `jobs`.

    `waves`: write waveforms. `links`: rows also tell of the data plane's links and the congestion. `traces`:
    folder for tracebacks of unexpected errors, `artefacts`: for what each run leaves (None: it is not kept)."""

    device: str = "verilator"
    jobs: int = 1
    waves: bool = False
    links: bool = False
    traces: Path | None = None
    artefacts: Path | None = None
