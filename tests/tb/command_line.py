"""What tests of the command line share: calling it, rows, and where results are."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner, Result

from meshloom.tb.cli.main import app
from meshloom.tb.report import progress
from meshloom.tb.results.schema import Row


def row(workload: str = "gemm:8x8x8", **changes: Any) -> Row:
    good = {"chip": "tiny", "scheduler": "loop_order", "simulator": "verilator", "cpu_seconds": 0.1}
    numbers = {"rtl_cycles": 1000, "model_cycles": 1001, "utilisation": 0.5, "bytes_checked": 64, "instructions": 4}
    return Row.model_validate({"workload": workload} | good | numbers | changes)


def invoke(*arguments: object) -> Result:
    """`meshloom` with some arguments, in this process. What it prints doesn't depend on how fast the machine is: there
    are no lines that say for how long something has gone on."""
    with patch.object(progress, "SOON", 3600.0):
        return CliRunner().invoke(app, list(map(str, arguments)))


def results_in(folder: Path) -> Path:
    return folder / "sim_build" / "results"
