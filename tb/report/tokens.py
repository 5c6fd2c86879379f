"""The tables of served texts on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..results.tokens import TokenResults, TokenRun
from .narrow import show

if TYPE_CHECKING:
    from rich.console import Console

#: Texts of a run from which on only those that missed a limit have a row.
_MANY = 40


def print_tokens(results: TokenResults, console: Console) -> None:
    """Prints the texts of a single run, the figures of each, and why they are not well, if they are not."""
    if len(results.runs) == 1:
        _print_texts(results.runs[0], console)
    _print_runs(results.runs, console)
    for run in results.runs:
        if run.simulator:
            console.print(
                f"{run.scenario} by {run.scheduler}: {run.bytes_checked:,} bytes compared with ONNX Runtime in "
                f"{len(run.steps):,} steps, {run.mismatches:,} wrong; {run.host_bytes or 0:,} bytes from the host; "
                f"{run.cpu_seconds:,.1f} CPU seconds of simulating",
                markup=False,
                soft_wrap=True,
            )
    for reason in results.reasons:
        console.print(f"not well: {reason}", style="red", markup=False, soft_wrap=True)


def _print_texts(run: TokenRun, console: Console) -> None:
    from rich.table import Table

    table = Table(title=f"{run.scenario} on {run.chip} by {run.scheduler}", title_justify="left")
    names = ["text", "arrival", "prompt", "output", "TTFT", "TPOT", "end", "limits"]
    if run.simulator:
        names.append("written")
    for name in names:
        table.add_column(name, justify="left" if name in ("limits", "written") else "right")
    rows = run.texts if len(run.texts) <= _MANY else tuple(row for row in run.texts if row.met is False)
    for row in rows:
        cells = [
            f"{row.number}", f"{row.arrival:,}", f"{row.prompt:,}", f"{row.output:,}", f"{row.ttft:,}",
            "-" if row.tpot is None else f"{row.tpot:,.0f}", f"{row.end:,}",
            "-" if row.met is None else "met" if row.met else "missed",
        ]  # fmt: skip
        table.add_row(*cells, *([repr(row.text)] if run.simulator else []))
    if rows:
        show(table, console)


def _print_runs(runs: Sequence[TokenRun], console: Console) -> None:
    from rich.table import Table

    table = Table()
    for name in (
        "scenario", "scheduler", "cycles", "steps", "tokens/Mcycle", "in time/Mcycle", "texts in time", "TTFT mean",
        "TTFT p99", "TPOT mean", "TPOT p99", "texts a decode step",
        "DRAM bytes/token",
    ):  # fmt: skip
        table.add_column(name, justify="left" if name in ("scenario", "scheduler") else "right")
    for run in runs:
        figures = run.figures
        table.add_row(
            run.scenario, run.scheduler, f"{figures.cycles:,}", f"{len(run.steps):,}",
            f"{figures.tokens_per_megacycle:.2f}", f"{figures.goodput:.2f}" if run.dated else "-",
            f"{figures.met} of {figures.texts}" if run.dated else "-", f"{figures.ttft.mean:,.0f}",
            f"{figures.ttft.p99:,.0f}", f"{figures.tpot.mean:,.0f}", f"{figures.tpot.p99:,.0f}", f"{figures.batch:.2f}",
            f"{run.dram_bytes_per_token:,.0f}",
        )  # fmt: skip
    show(table, console)
    for run in runs:
        if run.experts is not None:
            some, cycles = run.experts, run.figures.cycles
            read = sum(step.chunk_tokens + len(step.decodes) for step in run.steps)
            console.print(
                f"{run.scenario} by {run.scheduler}: {some.fetched / read:,.2f} experts fetched for each of {read:,} "
                f"tokens that were read, {some.expert_bytes / read:,.0f} bytes; {some.expert_cycles:,} cycles in their "
                f"programs; {some.round_trips:,} round trips of the host, {some.host_cycles:,} cycles: "
                f"{some.host_cycles / cycles:.1%}",
                markup=False,
                soft_wrap=True,
            )
        if run.clock_mhz and run.tokens_per_second is not None:
            figures, scale = run.figures, 1e3 * run.clock_mhz
            console.print(
                f"{run.scenario} by {run.scheduler}: {run.tokens_per_second:,.4g} tokens/s at {run.clock_mhz:,g} MHz, "
                f"TTFT {figures.ttft.mean / scale:,.4g} ms, TPOT {figures.tpot.mean / scale:,.4g} ms in the mean",
                markup=False,
                soft_wrap=True,
            )
