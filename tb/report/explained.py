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
from ..results.explanation import CriticalPath, Explanation, Explanations, PathStep, Spread, Wait, Waterfall, Who
from .console import dense, percent
from .narrow import show

#: Steps of a path that are shown: the longest, in the order of time.
SHOWN = 24
#: Units that a difference has reached, shown at most.
_UNITS = 12


def print_overview(found: Explanations, to: Console) -> None:
    """Prints a line for each workload of a run: its cycles, how many of them are ideal, and what takes most of the
    others; then why the rest is not explained."""
    made = dense("workloads", ("workload",), ("cycles", "useful", "most of the rest", "RTL - model"))
    for each in found.workloads:
        falls = each.waterfall
        lost = Counter({cause: cycles for cause, cycles in falls.total.items() if cause != "useful"})
        most = ", ".join(f"{cause} {_share(cycles, falls.cycles * falls.pes)}" for cause, cycles in lost.most_common(3))
        off = f"{each.spread.end_lag:+,}" if each.spread.instructions else "-"
        made.add_row(each.workload, f"{falls.cycles:,}", percent(100 * falls.ideal_share, 1), most, off)
    show(made, to)
    for workload, why in found.unexplained.items():
        to.print(f"{workload}: {why}", style="yellow", markup=False, soft_wrap=True)


def print_explanation(
    found: Explanation, chip: ChipConfig, to: Console, layer: str | None = None, operation: int | None = None
) -> None:
    """Prints waterfall, critical path, waits, and where model and RTL differ; only those of a layer or an operation."""

    def line(text: str, style: str | None = None) -> None:
        to.print(text, markup=False, soft_wrap=True, style=style)

    falls = found.waterfall
    where = "RTL" if found.source == "rtl" else "timeline model"
    if found.planned:
        where = "planned by the timeline model, not measured: it has not run"
    line(f"{found.workload} on {found.chip} by {found.scheduler}: {falls.cycles:,} cycles ({where})")
    if operation is None:
        show(waterfall_table(falls, layer), to)
    if falls.note:
        line(f"note: {falls.note}")
    if found.path is None:
        line("timed ahead: nothing waits, so there is no critical path and no wait")
    else:
        steps = [step for step in found.path.steps if layer in (None, step.who.layer)]
        show(cause_table(found.path, steps, layer), to)
        show(path_table(found.path, steps, chip), to)
    if found.waits:
        show(wait_table(found.waits, chip), to)
    for text in spread_lines(found.spread, chip):
        line(text, "yellow" if found.spread.differing else None)
    if found.energy is not None:
        line(energy_line(found.energy))
    if found.area is not None:
        line(area_line(found.area))


def energy_line(found: EnergyFigures) -> str:
    """An estimate in a sentence, the largest part first."""
    whole = found.microjoules * 1e6
    parts = sorted(found.parts.items(), key=lambda part: -part[1].picojoules)
    told = ", ".join(f"{name} {_share(part.picojoules, whole)}" for name, part in parts)
    return f"energy, an estimate ({found.by}): {found.microjoules:,.3g} microjoules: {told}"


def area_line(found: AreaFigures) -> str:
    """An estimate in a sentence, the largest part first."""
    parts = [f"{_times(part.count)}{part.name} {_share(part.count * part.cells, found.cells)}" for part in found.parts]
    return (
        f"area of the chip, an estimate ({found.flow}): {found.cells:,} cells, {found.flip_flops:,} flip-flops among "
        f"them, and {found.memory_bits:,} bits of memory: {', '.join(parts)}"
    )


def _times(count: int) -> str:
    return f"{count} x " if count > 1 else ""


def _cycles(value: float) -> str:
    return f"{value:,.1f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def waterfall_table(falls: Waterfall, layer: str | None = None) -> Table:
    """Cycles by cause, a line for each layer and one for all: they add up to the cycles of the run."""
    causes = list(falls.total)
    made = dense("where the cycles went (useful: what the products need on all PEs)", ("layer",), (*causes, "all"))
    for found in falls.layers:
        if layer in (None, found.layer) and len(falls.layers) > 1:
            spent = falls.in_cycles(found.pe_cycles)
            made.add_row(
                found.layer,
                *(_cycles(spent.get(cause, 0.0)) for cause in causes),
                _cycles(sum(found.pe_cycles.values()) / falls.pes),
            )
    whole = falls.in_cycles(falls.total)
    made.add_row("all", *(_cycles(whole[cause]) for cause in causes), f"{falls.cycles:,}", style="bold")
    made.add_row("", *(_share(whole[cause], falls.cycles) for cause in causes), "")
    return made


def cause_table(path: CriticalPath, steps: Sequence[PathStep], layer: str | None) -> Table:
    """What the critical path consists of."""
    spent = Counter[tuple[str, str]]()
    count = Counter[tuple[str, str]]()
    for step in steps:
        spent[step.cause, step.activity] += step.cycles
        count[step.cause, step.activity] += 1
    where = f", its part in {layer}" if layer else ""
    title = f"critical path, {path.cycles:,} cycles in {len(path.steps):,} steps{where}"
    made = dense(title, ("cause", "activity"), ("steps", "cycles", "share"))
    for (cause, activity), cycles in spent.most_common():
        made.add_row(cause, activity, f"{count[cause, activity]:,}", f"{cycles:,}", _share(cycles, path.cycles))
    return made


def path_table(path: CriticalPath, steps: Sequence[PathStep], chip: ChipConfig) -> Table:
    """The longest steps of the critical path, in the order of time."""
    longest = sorted(steps, key=lambda step: -step.cycles)[:SHOWN]
    left = len(steps) - len(longest)
    rest = sum(step.cycles for step in steps) - sum(step.cycles for step in longest)
    title = f"its {len(longest)} longest steps" if left else "its steps"
    made = dense(title, ("activity", "operation", "where"), ("from", "to", "cycles", "share"))
    for step in sorted(longest, key=lambda step: step.start):
        made.add_row(
            _doing(step.activity, step.behind),
            name(step.who),
            place(step.who, chip),
            *(f"{number:,}" for number in (step.start, step.end, step.cycles)),
            _share(step.cycles, path.cycles),
        )
    if left:
        made.add_row(f"{left:,} shorter ones", "", "", "", "", f"{rest:,}", _share(rest, path.cycles))
    return made


def wait_table(waits: Sequence[Wait], chip: ChipConfig) -> Table:
    """The waits of arrays that cost most, and what each waited for longest."""
    made = dense(
        "the most costly waits of arrays", ("core", "before", "mostly for"), ("from", "cycles", "of them", "by cause")
    )
    for wait in waits:
        made.add_row(
            tile_name(chip, wait.core),
            name(wait.gemm),
            f"{name(wait.by)}: {_doing(wait.by_activity, wait.behind)}",
            *(f"{number:,}" for number in (wait.start, wait.cycles, wait.by_cycles)),
            ", ".join(f"{cause} {cycles:,}" for cause, cycles in list(wait.causes.items())[:3]),
        )
    return made


def spread_lines(found: Spread, chip: ChipConfig) -> list[str]:
    """Where model and RTL differ, in sentences."""
    if found.first is None:
        if found.unmatched:
            return [f"{found.unmatched:,} records have no prediction, or predictions no record"]
        if not found.instructions:
            return ["nothing was measured"]
        return [f"model and RTL agree: each of {found.instructions:,} instructions began and ended when predicted"]
    first = found.first
    lines = [
        f"model and RTL differ in {found.differing:,} of {found.instructions:,} instructions; the RTL ended "
        f"{found.end_lag:+,} cycles from the model",
        f"first {first.label!r} (tag {first.tag} on {tile_name(chip, first.tile)} {first.unit}): predicted "
        f"{first.predicted_start:,}..{first.predicted_end:,}, measured "
        f"{first.measured_start:,}..{first.measured_end:,}",
        f"mechanism: {found.mechanism}",
    ]
    for stream in found.streams[:_UNITS]:
        lines.append(
            f"  from cycle {stream.first:,} on {tile_name(chip, stream.tile)} {stream.unit}: {stream.differing:,} of "
            f"{stream.instructions:,} instructions, by up to {stream.largest:+,} cycles"
        )
    if more := len(found.streams) - _UNITS:
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
