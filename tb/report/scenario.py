"""The tables of a scenario on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..results.scenario import ScenarioResults
from .busy import print_busy
from .narrow import show

if TYPE_CHECKING:
    from rich.console import Console


def print_scenario(results: ScenarioResults, console: Console) -> None:
    """Prints a row for each network, the scenario's figures, and why it is not well, if it is not."""
    from rich.table import Table

    figures = results.scenario
    table = Table(title=f"{figures.name} on {figures.chip} by {figures.scheduler}", title_justify="left")
    for name in ("network", "arrival", "end", "turnaround", "slowdown", "deadline", "layers", "bytes", "wrong"):
        table.add_column(name, justify="left" if name in ("network", "deadline") else "right")
    for row in results.instances:
        layers = sum(program.instance == row.number for program in results.programs)
        name = f"{row.number}: {row.network}" + f" x{row.batch}" * (row.batch > 1)
        deadline = "-" if row.deadline is None else f"{row.deadline:,} {'met' if row.met else 'missed'}"
        compared = figures.rtl_cycles is not None
        table.add_row(
            name,
            f"{row.arrival:,}",
            "lost" if row.end is None else f"{row.end:,}",
            "-" if row.turnaround is None else f"{row.turnaround:,}",
            "-" if row.slowdown is None else f"{row.slowdown:.2f}",
            deadline,
            f"{layers}",
            f"{row.bytes_checked:,}" if compared else "-",
            f"{row.mismatches:,}" if compared else "-",
        )
    show(table, console)
    model = figures.model
    rows = [("timeline model", figures.model_cycles, model)]
    if figures.rtl_cycles is not None:
        rows.insert(0, ("RTL", figures.rtl_cycles, figures))
    summary = Table()
    for name in ("", "cycles", "ANTT", "STP", "SLA violations", "PE utilisation", "cores busy"):
        summary.add_column(name, justify="right" if name else "left")
    for name, cycles, metrics in rows:
        summary.add_row(
            name, f"{cycles:,}", f"{metrics.antt:.3f}", f"{metrics.stp:.3f}", f"{100 * metrics.sla_violations:.1f} %",
            f"{100 * metrics.utilisation:.1f} %", f"{100 * metrics.busy:.1f} %",
        )  # fmt: skip
    show(summary, console)
    if results.busy:
        print_busy(results.busy, console)
    for note in results.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    if (line := _time(results)) is not None:
        console.print(line, soft_wrap=True)
    mean, worst = figures.decision_seconds
    text = f"{figures.decisions} decisions, {1e6 * mean:.0f} us each here (worst {1e6 * worst:.0f} us)"
    text += f", launched {figures.decision_cycles} cycles after what they follow from"
    if figures.rtl_cycles is not None:
        off = [abs(row.error_percent) for row in results.programs if row.error_percent is not None]
        text += f"; model error of a program's end: worst {max(off, default=0.0):.2f} %"
    console.print(text, markup=False, soft_wrap=True)
    if hopeless := [row for row in results.instances if row.hopeless]:
        dated = sum(row.deadline is not None for row in results.instances)
        first, *_ = hopeless
        console.print(
            f"{len(hopeless)} of {dated} deadlines are hopeless: {first.number}: {first.network} is given "
            f"{(first.deadline or 0) - first.arrival:,} of the {first.isolated:,} cycles that it takes alone on the "
            "whole chip; raise deadline or deadline_factor, or leave it out for no deadline",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )
    for reason in results.reasons:
        console.print(f"not well: {reason}", style="red", markup=False, soft_wrap=True)


def _time(results: ScenarioResults) -> str | None:
    """The scenario as time, if the chip's clock is known: all of it, each network's turnaround, frames a second."""
    figures = results.scenario
    cycles = figures.model_cycles if figures.rtl_cycles is None else figures.rtl_cycles
    if (whole := figures.milliseconds(cycles)) is None or not cycles:
        return None
    frames = sum(row.batch for row in results.instances if row.end is not None)
    turnarounds = [figures.milliseconds(row.turnaround) or 0.0 for row in results.instances if row.turnaround]
    text = f"time: {whole:,.4g} ms at {figures.clock_mhz:,g} MHz, {1e3 * frames / whole:,.4g} frames/s"
    if turnarounds:
        mean = sum(turnarounds) / len(turnarounds)
        text += f", turnaround {mean:,.4g} ms in the mean, {max(turnarounds):,.4g} ms at worst"
    return text
