"""Simulated cycles per CPU-second of whole chips that run real layers, and of the timeline model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig, load

from ..build.builder import TARGET
from ..build.tools import compiler_version
from ..results.events import OnEvent, RowCount
from ..results.schema import Row
from ..studies.tools.layers import run_layers
from . import builds, idle, plain_loop, relocation, threads, timeline
from .results import Result, Sheet
from .variables import set_to

#: Cycles per CPU-second over those of a plain C++ loop, at least, of a chip whose arrays are busy; with clang.
BARS = {"quad16": 0.2, "quad32": 0.3, "mono128": 0.3, "nine32": 0.2, "twentyfive32": 0.2}
LAYERS = ("conv:56x56x128-128,k3,p1,relu", "resnet50/conv3_2_2")
#: Share of PE cycles from which the bars hold.
BUSY = 0.95
#: What simulators are compiled for: the processor at hand, and what most machines of the last ten years have.
TARGETS = ("native", "x86-64-v3", "x86-64-v2")
#: Chip, what it is compiled for, layers. Of the last two chips, which no file describes, see `builds.grid`.
CHIPS = (
    *(("quad16", target, LAYERS) for target in TARGETS),
    ("quad32", "native", LAYERS),
    ("mono16", "native", LAYERS),
    ("mono128", "native", ("conv:56x56x128-128,k3,p1,relu", "conv:28x28x512-512,k3,p1,relu")),
    ("nine32", "native", ("conv:48x64x128-288,k3,p1,relu",)),
    ("twentyfive32", "native", ("conv:80x64x128-480,k3,p1,relu",)),
)
GRIDS = {"nine32": (3, 3), "twentyfive32": (5, 5)}
#: Chips that several threads simulate, too.
SHARED = ("quad32", "mono128", "nine32", "twentyfive32")
_REPEATS = 3


@dataclass(frozen=True)
class Measured:
    """A layer's row on a chip whose simulator was compiled for `target`, and `plain`: what the plain loop reaches."""

    row: Row
    target: str
    plain: float

    @property
    def ratio(self) -> float:
        return self.row.cycles_per_second / self.plain


def missed(measured: Sequence[Measured], clang: bool) -> list[str]:
    """Bars that were missed: a byte that differs anywhere, or a busy layer below its chip's bar (clang only)."""
    found: list[str] = []
    for one in measured:
        row = one.row
        where = f"{row.chip} ({one.target}), {row.workload}"
        if not row.bytes_checked or row.mismatches or row.faults:
            found.append(f"{where}: {row.reason}")
        elif clang and row.utilisation >= BUSY and one.ratio < BARS.get(row.chip, 0):
            found.append(f"{where}: {one.ratio:.3f} of the plain loop, the bar is {BARS[row.chip]:g}")
    return found


def _chip(name: str) -> ChipConfig:
    return builds.grid(name, *GRIDS[name]) if name in GRIDS else load(name)


def _measure(name: str, target: str, layers: Sequence[str], on_progress: OnEvent) -> list[Measured]:
    chip = _chip(name)
    with set_to(TARGET, target):  # what simulators are compiled for
        before = plain_loop.speed(chip, target)
        rows = [ran.row for ran in run_layers(layers, chip, on_progress, times=_REPEATS).ran]
        plain = max(before, plain_loop.speed(chip, target))
    return [Measured(row, target, plain) for row in rows]


def run(on_progress: OnEvent) -> Result:
    """Runs the layers on each chip, one at a time; then the model, as Python and compiled; then places templates."""
    on_progress(RowCount(rows=sum(len(layers) for _, _, layers in CHIPS)))
    compiler = compiler_version()
    clang = "clang" in compiler
    measured = [one for chip, target, layers in CHIPS for one in _measure(chip, target, layers, on_progress)]
    failed = missed(measured, clang)
    resting, restless = idle.measure(on_progress)
    layers_of = {chip: layers for chip, target, layers in CHIPS if target == "native"}
    shared = threads.measure({name: (_chip(name), layers_of[name][0]) for name in SHARED}, on_progress)
    model, slow = timeline.measure(on_progress)
    placing = relocation.measure(on_progress)
    cells = [
        (
            one.row.chip,
            one.target,
            one.row.workload,
            f"{one.row.rtl_cycles:,}",
            f"{100 * one.row.utilisation:.1f} %",
            f"{one.row.mismatches:,}",
            f"{one.row.cpu_seconds:.2f}",
            f"{one.row.cycles_per_second:,.0f}",
            f"{one.plain:,.0f}",
            f"{one.ratio:.3f}",
        )
        for one in measured
    ]
    bad = frozenset(number for number, one in enumerate(measured) if missed([one], clang))
    bars = ", ".join(f"{bar:g} on {chip}" for chip, bar in BARS.items())
    return Result(
        "speed",
        "Speed of the simulated chips and of their model",
        "Verilator, one thread; CPU-seconds of simulating alone, under cocotb, every byte compared afterwards. The "
        "plain loop is a C++ program that does what the processing elements of all cores do and nothing else, compiled "
        f"for the same target; of each the best of {_REPEATS}. Bar: with clang, layers that use {100 * BUSY:.0f} % of "
        f"the PE cycles reach of that loop {bars}; a chip at rest reaches {idle.BAR:,.0f} cycles per CPU-second. "
        "nine32 and twentyfive32: as in builds.md. The model: one process each, the best of three; bar: the same "
        f"timeline, and {timeline.BAR:g} times as fast on chips with several cores and one channel. Placing a compiled "
        "layer for `meshloom serve`: CPU time in Python, the best of five, no bar.",
        (
            Sheet(
                f"Simulated cycles per CPU-second, built with {compiler or 'an unknown compiler'}",
                (
                    "chip",
                    "-march",
                    "layer",
                    "RTL cycles>",
                    "PE util.>",
                    "mismatches>",
                    "CPU s>",
                    "cycles/s>",
                    "plain loop>",
                    "ratio>",
                ),
                cells,
                bad,
            ),
            resting,
            shared,
            model,
            placing,
        ),
        () if clang else (f"The bar holds for clang only, so {compiler or 'this compiler'} is not judged.",),
        (*failed, *restless, *slow),
    )
