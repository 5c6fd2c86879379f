"""Simulated cycles per CPU-second of whole chips that run real layers, and of the timeline model."""

from __future__ import annotations

from collections.abc import Sequence

from ..build.tools import compiler_version
from ..results.schema import OnEvent, Plan, Row
from . import timeline
from .layers import run_layers
from .results import Result, Sheet

#: Cycles per CPU-second that quad16 must reach when built with clang.
BAR = 300_000
BARRED_CHIP = "quad16"
CHIPS = ("quad16", "quad32", "mono16")
LAYERS = ("conv:56x56x128-128,k3,p1,relu", "resnet50/conv3_2_2")


def missed(rows: Sequence[Row], clang: bool) -> list[str]:
    """Bars that were missed: a byte that differs anywhere, or a layer on quad16 below the bar (clang only)."""
    found: list[str] = []
    for row in rows:
        where = f"{row.chip}, {row.workload}"
        if not row.bytes_checked or row.mismatches or row.faults:
            found.append(f"{where}: {row.reason}")
        elif clang and row.chip == BARRED_CHIP and row.cycles_per_second < BAR:
            found.append(f"{where}: {row.cycles_per_second:,.0f} cycles/s, the bar is {BAR:,}")
    return found


def run(on_progress: OnEvent) -> Result:
    """Runs the layers on each chip, one at a time; then the model, as Python and compiled."""
    on_progress(Plan(rows=len(CHIPS) * len(LAYERS)))
    compiler = compiler_version()
    clang = "clang" in compiler
    rows = [ran.row for chip in CHIPS for ran in run_layers(LAYERS, chip, on_progress).ran]
    failed = missed(rows, clang)
    model, slow = timeline.measure(on_progress)
    cells = [
        (
            row.chip,
            row.workload,
            f"{row.rtl_cycles:,}",
            f"{100 * row.utilisation:.1f} %",
            f"{row.mismatches:,}",
            f"{row.cpu_seconds:.2f}",
            f"{row.cycles_per_second:,.0f}",
        )
        for row in rows
    ]
    bad = frozenset(number for number, row in enumerate(rows) if missed([row], clang))
    return Result(
        "speed",
        "Speed of the simulated chips and of their model",
        "Verilator, one thread; CPU-seconds of simulating alone, under cocotb, every byte compared afterwards. Bar: "
        f"{BAR:,} cycles/s on {BARRED_CHIP} with clang. The model: one process each, the best of three; bar: the same "
        f"timeline, and {timeline.BAR:g} times as fast on chips with several cores and one channel.",
        (
            Sheet(
                f"Simulated cycles per CPU-second, built with {compiler or 'an unknown compiler'}",
                ("chip", "layer", "RTL cycles>", "PE util.>", "mismatches>", "CPU s>", "cycles/s>"),
                cells,
                bad,
            ),
            model,
        ),
        () if clang else (f"The bar holds for clang only, so {compiler or 'this compiler'} is not judged.",),
        (*failed, *slow),
    )
