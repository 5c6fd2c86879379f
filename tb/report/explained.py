"""Why a run took its cycles, as tables on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.program.names import tile_name

from ..results.area import AreaFigures
from ..results.energy import EnergyFigures
from ..results.explanation import (
    CriticalPath,
    Explanation,
    Explanations,
    PathStep,
    Spread,
    Wait,
    Waterfall,
    Who,
)
from ..results.legend import legend
from .bounds import bounds_line, bounds_table, gap_table, share_line
from .claims import claim_line
from .console import dense, percent, share_of
from .narrow import show

#: Steps of a path that are shown: the longest, in the order of time.
SHOWN = 24
#: Units that a difference has reached, shown at most.
_UNITS = 12


def print_overview(explanations: Explanations, to: Console) -> None:
    """Prints a line for each workload of a run: its cycles, how many of them are ideal, and what takes most of the
    others; then why the rest is not explained."""
    by = {each.scheduler for each in explanations.workloads}
    names = ("workload", "scheduler") if len(by) > 1 else ("workload",)
    table = dense("workloads", names, ("cycles", "useful", "most of the rest", "RTL - model"))
    for each in explanations.workloads:
        falls = each.waterfall
        lost = Counter({cause: cycles for cause, cycles in falls.total.items() if cause != "useful"})
        most = ", ".join(
            f"{cause} {share_of(cycles, falls.cycles * falls.pes)}" for cause, cycles in lost.most_common(3)
        )
        off = f"{each.spread.end_lag:+,}" if each.spread.instructions else "-"
        own = (each.workload, each.scheduler)[: len(names)]
        table.add_row(*own, f"{falls.cycles:,}", percent(100 * falls.ideal_share, 1), most, off)
    show(table, to)
    for workload, why in explanations.unexplained.items():
        to.print(f"{workload}: {why}", style="yellow", markup=False, soft_wrap=True)


def print_explanation(
    explanation: Explanation, chip: ChipConfig, to: Console, layer: str | None = None, operation: int | None = None
) -> None:
    """Prints waterfall, critical path, waits, and where model and RTL differ; only those of a layer or an operation."""

    def line(text: str, style: str | None = None) -> None:
        to.print(text, markup=False, soft_wrap=True, style=style)

    falls = explanation.waterfall
    where = "RTL" if explanation.source == "rtl" else "timeline model"
    if explanation.planned:
        where = "planned by the timeline model, not measured: it has not run"
    line(f"{explanation.workload} on {explanation.chip} by {explanation.scheduler}: {falls.cycles:,} cycles ({where})")
    if explanation.claim is not None and explanation.claim.cycles:
        line(claim_line(explanation.claim, falls.cycles))
    if operation is None:
        show(waterfall_table(falls, layer), to)
        line(legend(), "dim")
    if falls.note:
        line(f"note: {falls.note}")
    if explanation.bounds is not None:
        show(bounds_table(explanation.bounds, falls.cycles), to)
        line(bounds_line(explanation.bounds, falls.cycles))
        if explanation.bounds.gap is not None:
            show(gap_table(explanation.bounds, chip), to)
            line(share_line(explanation.bounds, falls))
    if explanation.path is None:
        line("timed ahead: nothing waits, so there is no critical path and no wait")
    else:
        steps = [step for step in explanation.path.steps if layer in (None, step.who.layer)]
        show(cause_table(explanation.path, steps, layer), to)
        show(path_table(explanation.path, steps, chip), to)
    if explanation.waits:
        show(wait_table(explanation.waits, chip), to)
    for text in spread_lines(explanation.spread, chip):
        line(text, "yellow" if explanation.spread.differing else None)
    if explanation.energy is not None:
        line(energy_line(explanation.energy))
    if explanation.time is not None:
        line(f"time: {explanation.time.words}")
    if explanation.area is not None:
        line(area_line(explanation.area))


def energy_line(figures: EnergyFigures) -> str:
    """An estimate in a sentence, the largest part first."""
    whole = figures.microjoules * 1e6
    parts = sorted(figures.parts.items(), key=lambda part: -part[1].picojoules)
    text = ", ".join(f"{name} {share_of(part.picojoules, whole)}" for name, part in parts)
    return f"energy, an estimate ({figures.by}): {figures.microjoules:,.3g} microjoules: {text}"


def area_line(figures: AreaFigures) -> str:
    """An estimate in a sentence, the largest part first."""
    parts = [
        f"{_times(part.count)}{part.name} {share_of(part.count * part.cells, figures.cells)}" for part in figures.parts
    ]
    return (
        f"area of the chip, an estimate ({figures.flow}): {figures.cells:,} cells, {figures.flip_flops:,} flip-flops "
        f"among them, and {figures.memory_bits:,} bits of memory: {', '.join(parts)}"
    )


def _times(count: int) -> str:
    return f"{count} x " if count > 1 else ""


def _cycles(value: float) -> str:
    return f"{value:,.1f}"


def waterfall_table(falls: Waterfall, layer: str | None = None) -> Table:
    """Cycles by cause, a line for each layer and one for all: they add up to the cycles of the run."""
    causes = list(falls.total)
    table = dense("where the cycles went (useful: what the products need on all PEs)", ("layer",), (*causes, "all"))
    for layer_spent in falls.layers:
        if layer in (None, layer_spent.layer) and len(falls.layers) > 1:
            spent = falls.in_cycles(layer_spent.pe_cycles)
            table.add_row(
                layer_spent.layer,
                *(_cycles(spent.get(cause, 0.0)) for cause in causes),
                _cycles(sum(layer_spent.pe_cycles.values()) / falls.pes),
            )
    whole = falls.in_cycles(falls.total)
    table.add_row("all", *(_cycles(whole[cause]) for cause in causes), f"{falls.cycles:,}", style="bold")
    table.add_row("", *(share_of(whole[cause], falls.cycles) for cause in causes), "")
    return table


def cause_table(path: CriticalPath, steps: Sequence[PathStep], layer: str | None) -> Table:
    """What the critical path consists of."""
    spent = Counter[tuple[str, str]]()
    count = Counter[tuple[str, str]]()
    for step in steps:
        spent[step.cause, step.activity] += step.cycles
        count[step.cause, step.activity] += 1
    where = f", its part in {layer}" if layer else ""
    title = f"critical path, {path.cycles:,} cycles in {len(path.steps):,} steps{where}"
    table = dense(title, ("cause", "activity"), ("steps", "cycles", "share"))
    for (cause, activity), cycles in spent.most_common():
        table.add_row(cause, activity, f"{count[cause, activity]:,}", f"{cycles:,}", share_of(cycles, path.cycles))
    return table


def path_table(path: CriticalPath, steps: Sequence[PathStep], chip: ChipConfig) -> Table:
    """The longest steps of the critical path, in the order of time."""
    longest = sorted(steps, key=lambda step: -step.cycles)[:SHOWN]
    left = len(steps) - len(longest)
    rest = sum(step.cycles for step in steps) - sum(step.cycles for step in longest)
    title = f"its {len(longest)} longest steps" if left else "its steps"
    table = dense(title, ("activity", "operation", "where"), ("from", "to", "cycles", "share"))
    for step in sorted(longest, key=lambda step: step.start):
        table.add_row(
            _doing(step.activity, step.behind),
            name(step.who),
            place(step.who, chip),
            *(f"{number:,}" for number in (step.start, step.end, step.cycles)),
            share_of(step.cycles, path.cycles),
        )
    if left:
        table.add_row(f"{left:,} shorter ones", "", "", "", "", f"{rest:,}", share_of(rest, path.cycles))
    return table


def wait_table(waits: Sequence[Wait], chip: ChipConfig) -> Table:
    """The waits of arrays that cost most, and what each waited for longest."""
    table = dense(
        "the most costly waits of arrays", ("core", "before", "mostly for"), ("from", "cycles", "of them", "by cause")
    )
    for wait in waits:
        table.add_row(
            tile_name(chip, wait.core),
            name(wait.gemm),
            f"{name(wait.by)}: {_doing(wait.by_activity, wait.behind)}",
            *(f"{number:,}" for number in (wait.start, wait.cycles, wait.by_cycles)),
            ", ".join(f"{cause} {cycles:,}" for cause, cycles in list(wait.causes.items())[:3]),
        )
    return table


def spread_lines(spread: Spread, chip: ChipConfig) -> list[str]:
    """Where model and RTL differ, in sentences."""
    if spread.first is None:
        if spread.unmatched:
            return [f"{spread.unmatched:,} records have no prediction, or predictions no record"]
        if not spread.instructions:
            return ["nothing was measured"]
        return [f"model and RTL agree: each of {spread.instructions:,} instructions began and ended when predicted"]
    first = spread.first
    lines = [
        f"model and RTL differ in {spread.differing:,} of {spread.instructions:,} instructions; the RTL ended "
        f"{spread.end_lag:+,} cycles from the model",
        f"first {first.label!r} (tag {first.tag} on {tile_name(chip, first.tile)} {first.unit}): predicted "
        f"{first.predicted_start:,}..{first.predicted_end:,}, measured "
        f"{first.measured_start:,}..{first.measured_end:,}",
        f"mechanism: {spread.mechanism}",
    ]
    for stream in spread.streams[:_UNITS]:
        lines.append(
            f"  from cycle {stream.first:,} on {tile_name(chip, stream.tile)} {stream.unit}: {stream.differing:,} of "
            f"{stream.instructions:,} instructions, by up to {stream.largest:+,} cycles"
        )
    if more := len(spread.streams) - _UNITS:
        lines += [f"  and {more} more units"] * (more > 0)
    return lines


def _doing(activity: str, behind: Who | None) -> str:
    return activity if behind is None else f"{activity} behind {name(behind)}"


def name(who: Who) -> str:
    """An instruction's operation and label, or its opcode if lowering added it."""
    if who.operation is None:
        return f"{who.opcode} [{who.position}] of the {who.unit} stream"
    return f"{who.operation}: {who.label}" if who.label else f"{who.operation}: {who.opcode}"


def place(who: Who, chip: ChipConfig) -> str:
    """Where an instruction was executed, and by whom it was sent."""
    ran = f"{tile_name(chip, who.executed_by)} {who.unit}"
    return ran if who.executed_by == who.tile else f"{ran} for {tile_name(chip, who.tile)}"
