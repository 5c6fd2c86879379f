"""Training as people see it: a table on the terminal, and the curve of the loss as a picture (SVG)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..results.clock import clock_figures
from .plots import save_plot

if TYPE_CHECKING:
    from rich.console import Console

    from ..results.training import TrainingResults


def print_training(results: TrainingResults, screen: Console) -> None:
    """The figures of a training, and what was wrong."""
    from rich.table import Table

    table = Table("", f"{results.network} on {results.chip}, order {results.order}, across layers {results.across}")
    done = "" if results.complete else " (interrupted)"
    table.add_row("steps", f"{results.steps:,} of {results.batch} examples{done}")
    if results.loss_first is not None and results.loss_last is not None:
        table.add_row("loss", f"{results.loss_first:.4f} in the first step, {results.loss_last:.4f} in the last")
    if results.accuracy is not None and results.float_accuracy is not None:
        table.add_row("test accuracy", f"{results.accuracy:.1%}; in floating point {results.float_accuracy:.1%}")
    rtl = "not run" if results.rtl_cycles is None else f"{results.rtl_cycles:,}"
    table.add_row("cycles", f"RTL {rtl}, model {results.model_cycles:,}; a step {results.step_cycles:,}")
    if (step := clock_figures(results.clock_mhz, results.step_cycles)) is not None:
        cycles = results.model_cycles if results.rtl_cycles is None else results.rtl_cycles
        whole = clock_figures(results.clock_mhz, cycles)
        rate = 1e3 * results.batch / step.milliseconds
        text = f"{step.milliseconds:,.4g} ms a step at {step.clock_mhz:,g} MHz, {rate:,.4g} examples/s"
        table.add_row("time", text if whole is None else f"{text}, {whole.milliseconds:,.4g} ms in all")
    table.add_row("bytes", f"{results.bytes_checked:,} compared, {results.mismatches:,} wrong")
    if results.rtl_cycles is not None:
        table.add_row("CPU seconds", f"{results.cpu_seconds:,.1f} of simulating")
    screen.print(table)
    for why in results.reasons:
        screen.print(why, style="red", markup=False, soft_wrap=True)


def draw(results: TrainingResults, path: Path) -> None:
    """The loss of each step. The same figures give the same bytes. Raises WriteError."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    # fixed names of shapes, no date: the file changes only when a figure does
    settings: Any = {"svg.hashsalt": "meshloom", "font.size": 8, "svg.fonttype": "none"}
    with mpl.rc_context(settings):  # pyright: ignore[reportUnknownMemberType]  (names of settings are open)
        figure, axes = plt.subplots(figsize=(6, 3.2))
        axes.semilogy(  # pyright: ignore[reportUnknownMemberType]  (keywords are open)
            range(1, len(results.losses) + 1), results.losses, color="tab:blue", linewidth=1
        )
        where = "RTL" if results.rtl_cycles is not None else "model"
        axes.set(xlabel="step", ylabel="loss", title=f"{results.network}, int8, {results.chip} ({where})")
        axes.grid(alpha=0.3)  # pyright: ignore[reportUnknownMemberType]  (keywords are open)
        figure.tight_layout()
        save_plot(figure, path)
