"""The model's error over the regression, layer by layer, on chips of several sizes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..report.console import percent
from ..results.events import Event, OnEvent, Plan
from ..results.schema import MEAN_ERROR_PERCENT, WORST_ERROR_PERCENT, Row, Status, summarise
from .results import Result, Sheet

CHIPS = ("quad16", "quad8", "pe12x14", "tiny")
#: `tiny` has 16 PEs: it runs the layers of at most so many multiply-accumulates.
SMALL_CHIP = "tiny"
SMALL_MACS = 2_000_000
_COLUMNS = (
    "workload",
    "RTL cycles>",
    "model cycles>",
    "error>",
    "PE util.>",
    "bytes checked>",
    "mismatches>",
    "instructions>",
    "cycles/s>",
)


def layers(chip: str) -> list[str]:
    """Names of the regression's layers that run on a chip."""
    from meshloom.sched.workload.catalog import regression

    return [layer.name for layer in regression() if chip != SMALL_CHIP or layer.shape.macs <= SMALL_MACS]


def sheet(chip: str, rows: Sequence[Row]) -> Sheet:
    """The table of one chip."""
    summary = summarise(rows)
    cells = [
        (
            row.workload if row.status is Status.PASSED else f"{row.workload} [{row.status}]",
            f"{row.rtl_cycles:,}",
            f"{row.model_cycles:,}",
            percent(row.error_percent, sign="+"),
            percent(100 * row.utilisation, digits=1),
            f"{row.bytes_checked:,}",
            f"{row.mismatches:,}",
            f"{row.instructions:,}",
            f"{row.cycles_per_second:,.0f}",
        )
        for row in rows
    ]
    title = (
        f"{chip}: {summary.passed} of {summary.rows} passed, mean error {percent(summary.mean_error_percent)}, "
        f"worst {percent(summary.worst_error_percent)}"
    )
    bad = frozenset(number for number, row in enumerate(rows) if row.status is not Status.PASSED)
    return Sheet(title, _COLUMNS, cells, bad)


def run(on_progress: OnEvent) -> Result:
    """Runs the regression on every chip."""
    from ..runs import runner
    from ..runs.options import RunOptions

    def pass_on(event: Event) -> None:
        if not isinstance(event, Plan):  # the plan of all chips has been told
            on_progress(event)

    names = {chip: layers(chip) for chip in CHIPS}
    on_progress(Plan(rows=sum(map(len, names.values()))))
    sheets: list[Sheet] = []
    failures: list[str] = []
    for chip in CHIPS:
        jobs = len(os.sched_getaffinity(0))
        rows = runner.run(names[chip], chip, "loop_order", pass_on, RunOptions(jobs=jobs))
        sheets.append(sheet(chip, rows))
        failures += [f"{chip}: {reason}" for reason in summarise(rows).reasons]
    return Result(
        "regression",
        "Model against RTL over the regression",
        "Error is 100 x (model - RTL) / RTL of the cycles of a whole run, programs fetched and tensors moved to and "
        f"from DRAM included. Bounds for each chip: {MEAN_ERROR_PERCENT:g} % in the mean of absolute errors, "
        f"{WORST_ERROR_PERCENT:g} % on every layer; no byte may differ. {SMALL_CHIP} runs the layers of at most "
        f"{SMALL_MACS:,} multiply-accumulates.",
        tuple(sheets),
        failures=tuple(failures),
    )
