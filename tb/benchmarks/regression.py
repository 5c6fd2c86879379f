"""The model's error over the regression, layer by layer, on chips of several sizes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..report.console import percent
from ..results.events import Event, OnEvent, RowCount
from ..results.schema import MEAN_ERROR_PERCENT, WORST_ERROR_PERCENT, Row, Status, summarise
from .results import Result, Sheet

CHIPS = ("quad16", "quad8", "pe12x14", "tiny")
#: `tiny` has 16 PEs: it runs the layers of at most so many multiply-accumulates.
SMALL_CHIP = "tiny"
SMALL_MACS = 2_000_000
#: On this chip, layers that the arrays bound have bars, in percent of useful PE cycles: from the start of a core's
#: first GEMM to the end of its last, and over the whole run.
BOUND_CHIP = "quad16"
WITHIN, END_TO_END = 97.0, 94.0
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


def bounded(chip: str, rows: Sequence[Row]) -> tuple[Sheet, list[str]]:
    """The layers that the arrays bound: how much of the arrays they use, and the bars that were missed."""
    cells: list[tuple[str, ...]] = []
    missed: list[str] = []
    bad: set[int] = set()
    for row in rows:
        used = row.arrays
        if used is None or used.limit.partition("+")[0] != "compute":
            continue
        left = 100 * used.edges
        shares = (("within its cores", 100 * used.within, WITHIN), ("end to end", 100 * row.utilisation, END_TO_END))
        for where, share, bar in shares:
            if share < bar:
                bad.add(len(cells))
                why = f": its edges leave {left:.1f} % of the PEs" if left < bar else ""
                missed.append(
                    f"{chip}: {row.workload}, {where}: {share:.1f} % of the PE cycles are useful, not {bar:g} %{why}"
                )
        cells.append(
            (
                row.workload,
                f"{row.rtl_cycles:,}",
                *(f"{share:.1f} %" for _, share, _ in shares),
                f"{left:.1f} %",
                f"{100 * used.fed_cycles / max(1, used.span_cycles):.1f} %",
            )
        )
    columns = ("layer", "RTL cycles>", "within cores>", "end to end>", "edges leave>", "fed within cores>")
    return Sheet(f"{chip}: layers that the arrays bound", columns, cells, frozenset(bad)), missed


def run(on_progress: OnEvent) -> Result:
    """Runs the regression on every chip."""
    from ..runs import runner
    from ..runs.options import RunOptions

    def pass_on(event: Event) -> None:
        if not isinstance(event, RowCount):  # the plan of all chips has been told
            on_progress(event)

    names = {chip: layers(chip) for chip in CHIPS}
    on_progress(RowCount(rows=sum(map(len, names.values()))))
    sheets: list[Sheet] = []
    failures: list[str] = []
    for chip in CHIPS:
        jobs = len(os.sched_getaffinity(0))
        rows = runner.run(names[chip], chip, "loop_order", pass_on, RunOptions(jobs=jobs))
        sheets.append(sheet(chip, rows))
        failures += [f"{chip}: {reason}" for reason in summarise(rows).reasons]
        if chip == BOUND_CHIP:
            bound, missed = bounded(chip, rows)
            sheets.append(bound)
            failures += missed
    return Result(
        "regression",
        "Model against RTL over the regression",
        "Error is 100 x (model - RTL) / RTL of the cycles of a whole run, programs fetched and tensors moved to and "
        f"from DRAM included. Bounds for each chip: {MEAN_ERROR_PERCENT:g} % in the mean of absolute errors, "
        f"{WORST_ERROR_PERCENT:g} % on every layer; no byte may differ. {SMALL_CHIP} runs the layers of at most "
        f"{SMALL_MACS:,} multiply-accumulates. Layers of which the schedule keeps an array longer than any port, "
        f"vector unit or DRAM channel have bars on {BOUND_CHIP}: {WITHIN:g} % of the PE cycles from the start of a "
        f"core's first GEMM to the end of its last are useful (`within cores`), and {END_TO_END:g} % of those of the "
        "whole run (`end to end`). `edges leave`: what rows, columns and lanes without a use leave of the PEs while "
        "operands are read, so that no order reaches more; `fed within cores`: the share of cycles in which they are.",
        tuple(sheets),
        failures=tuple(failures),
    )
