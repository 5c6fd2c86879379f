"""What tests of the testbench share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.isa import PAGE_WORDS
from meshloom.tb.build.builder import build
from meshloom.tb.devices.interface import FILL
from meshloom.tb.devices.serving import ServedChip
from meshloom.tb.results.events import OnEvent, RowCount, Stage, Unwritten
from meshloom.tb.results.schema import Row
from meshloom.tb.results.shelf import Shelf
from meshloom.tb.runs.options import RunOptions

from .served_chip import CHIP

#: Pages of DRAM that tests use.
PAGES = 16


@pytest.fixture(scope="module")
def served() -> Iterator[ServedChip]:
    """A simulator of the chip that the tests of a file use one after another."""
    with ServedChip(build(CHIP, "verilator")) as chip:
        yield chip


@pytest.fixture
def fresh(served: ServedChip) -> ServedChip:
    """The same after reset, with nothing in its DRAM that a test before may have left in the first pages."""
    served.reset()
    nothing = np.full((PAGES * PAGE_WORDS, CHIP.lanes), FILL, np.uint8)
    served.load([(dram, 0, nothing) for dram in CHIP.drams])
    return served


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Installs an engine that plays a script of rows and exceptions; returns the arguments of its calls."""

    def install(
        *script: Row | Unwritten | BaseException, shelves: list[Shelf | None] | None = None
    ) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []
        shelves = [] if shelves is None else shelves

        def run(
            workloads: list[str],
            chip: str,
            scheduler: str,
            on_event: OnEvent,
            options: RunOptions,
        ) -> list[Row]:
            calls.append((workloads, chip, scheduler, options.device, options.waves, options.jobs, options.links))
            shelves.append(options.artefacts)
            on_event(RowCount(len(script)))
            for step in script:
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, Unwritten):
                    on_event(step)
                    continue
                on_event(Stage(step.workload, "simulating"))
                on_event(step)
            return [step for step in script if isinstance(step, Row)]

        monkeypatch.setattr("meshloom.tb.runs.runner.run", run)
        monkeypatch.setattr("meshloom.tb.runs.runner.count_rows", lambda *arguments: len(script))
        return calls

    return install
