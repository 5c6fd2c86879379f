"""Tables of a run's page."""

from __future__ import annotations

from html import escape

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.program.names import tile_name

from ..results.area import AreaFigures
from ..results.energy import EnergyFigures
from ..results.explanation import Explanation, Waterfall
from ..results.legend import CycleCause
from ..results.schema import Row
from .console import percent
from .explained import name, place
from .markup import paragraph, share, swatch, table, whole

#: Steps of the critical path that are shown.
_STEPS = 20


def summary_table(row: Row, why: Explanation) -> str:
    """What ran, and what came of it."""
    falls = why.waterfall
    error = "" if row.error_percent is None else f" (error {percent(row.error_percent, sign='+')})"
    rows: list[tuple[str, str]] = [
        ("status", row.status.value),
        ("cycles on the RTL", f"{row.rtl_cycles:,} ({row.simulator})" if row.rtl_cycles else "-"),
        ("cycles of the model", f"{row.model_cycles:,}" + error),
        ("useful PE cycles", percent(100 * falls.ideal_share, 1)),
        *((("time", why.time.words),) if why.time is not None else ()),
        ("bytes compared", f"{row.bytes_checked:,}, {row.mismatches:,} of them wrong"),
        ("instructions", f"{row.instructions:,}"),
        ("chip", f"{row.chip} ({row.chip_digest[:12]}), {falls.pes:,} PEs"),
    ]
    if row.settings is not None:
        rows += [
            ("scheduler", row.settings.scheduler),
            ("input", row.settings.input),
            ("code", row.settings.code),
            ("simulator", row.settings.simulator_version),
        ]
    if row.network is not None and row.network.answer:
        rows.append(("answer", row.network.answer))
    return table(("", ""), rows, left=2)


def cycles_table(falls: Waterfall) -> str:
    """Where the cycles went: a line for each cause, with its part of the waterfall and its meaning. It is the legend of
    the colours too."""
    spent = falls.in_cycles(falls.total)
    known = {str(cause): cause for cause in CycleCause}
    lines: list[str] = []
    before = 0.0
    for cause, cycles in spent.items():
        colour, meaning, group = "", "", ""
        if cause in known:
            colour, meaning, group = known[cause].colour, known[cause].meaning, known[cause].group
        left, wide = (100 * each / max(1, falls.cycles) for each in (before, cycles))
        bar = f'<i style="left:{left:.2f}%;width:{wide:.2f}%;background:{colour}"></i>'
        before += cycles
        lines.append(
            f"<tr><td class='text'>{swatch(colour)}{escape(cause)}</td><td class='number'>{whole(cycles)}</td>"
            f"<td class='number'>{share(cycles, falls.cycles)}</td><td class='fall'><div>{bar}</div></td>"
            f"<td class='text group'>{escape(group)}</td><td class='text meaning'>{escape(meaning)}</td></tr>"
        )
    head = "".join(
        f"<th class='{style}'>{words}</th>"
        for style, words in (
            ("text", "cause"),
            ("number", "cycles"),
            ("number", "share"),
            ("text", "from the ideal to the measured"),
            ("text group", "column of <code>run</code>"),
            ("text meaning", "what the array does"),
        )
    )
    last = (
        f"<tr class='all'><td class='text'>all</td><td class='number'>{whole(falls.cycles)}</td>"
        f"<td class='number'>{share(1, 1)}</td><td></td><td class='group'></td><td></td></tr>"
    )
    return f'<div class="scroll"><table class="falls"><tr>{head}</tr>{"".join(lines)}{last}</table></div>'


def energy_table(figures: EnergyFigures) -> str:
    """An estimate, the largest part first."""
    picojoules = figures.microjoules * 1e6
    rows = [
        (part, whole(each.count), f"{each.picojoules / 1e6:,.3f}", share(each.picojoules, picojoules))
        for part, each in sorted(figures.parts.items(), key=lambda item: -item[1].picojoules)
        if figures.microjoules
    ]
    head = ("part", "products, bytes, bytes x links", "microjoules", "share")
    return table(
        head,
        [*rows, ("all", "", f"{figures.microjoules:,.3f}", "")],
        caption=f"by the table {figures.by!r}",
    )


def area_table(figures: AreaFigures) -> str:
    """An estimate, in the order of the figures."""
    rows = [
        (
            part.name,
            part.count,
            whole(part.cells),
            whole(part.flip_flops),
            whole(part.memory_bits),
            share(part.count * part.cells, figures.cells),
        )
        for part in figures.parts
    ]
    last = ("all", "", whole(figures.cells), whole(figures.flip_flops), whole(figures.memory_bits), "")
    head = ("part", "how often", "cells of one", "of them flip-flops", "bits of memory", "share of all cells")
    return table(head, [*rows, last], caption=f"{figures.flow} ({figures.tools})")


def faults_table(row: Row, chip: ChipConfig) -> str:
    """What the chip reported, or that it did not."""
    if not row.faults:
        return paragraph("None.")
    if not row.fault_reports:
        return paragraph(f"{row.faults} faults, without details.", "bad")
    rows = [
        (
            fault.cause,
            tile_name(chip, fault.tile),
            fault.unit,
            fault.tag,
            f"{fault.value:#x}",
            fault.label,
            fault.explanation,
        )
        for fault in row.fault_reports
    ]
    return table(("cause", "tile", "unit", "tag", "value", "operation", "why"), rows, left=7)


def layers_table(row: Row, why: Explanation) -> str:
    """A line for each layer."""
    falls = why.waterfall
    layer_figures = {layer.name: layer for layer in row.network.layers} if row.network else {}
    spent = {each.layer: each.pe_cycles for each in falls.layers}
    rows: list[tuple[object, ...]] = []
    for layer in dict.fromkeys((*layer_figures, *spent)):
        pe_cycles, figures = spent.get(layer, {}), layer_figures.get(layer)
        mine = sum(pe_cycles.values())
        rows.append(
            (
                layer,
                figures.kind if figures else "-",
                figures.limit if figures else "-",
                whole(figures.macs) if figures else "-",
                whole(figures.rtl_cycles) if figures else "-",
                percent(figures.error_percent, sign="+") if figures else "-",
                whole(mine / falls.pes),
                share(mine, falls.cycles * falls.pes),
                share(pe_cycles.get("useful", 0), mine),
            )
        )
    head = (
        "layer",
        "kind",
        "limit",
        "products",
        "first to last cycle",
        "model error",
        "its cycles of the run",
        "share",
        "useful",
    )
    return table(head, rows, left=3)


def path_table(why: Explanation, chip: ChipConfig) -> str:
    """The longest steps of the critical path, in the order of time."""
    if why.path is None:
        return paragraph("Timed ahead: nothing waits.")
    longest = sorted(why.path.steps, key=lambda step: -step.cycles)[:_STEPS]
    rows = [
        (
            step.activity,
            step.cause,
            name(step.who),
            place(step.who, chip),
            whole(step.start),
            whole(step.end),
            whole(step.cycles),
            share(step.cycles, why.path.cycles),
        )
        for step in sorted(longest, key=lambda step: step.start)
    ]
    head = ("activity", "cause", "operation", "where", "from", "to", "cycles", "share")
    caption = f"The {len(longest)} longest of {len(why.path.steps):,} steps of the critical path"
    return table(head, rows, left=4, caption=caption)


def waits_table(why: Explanation, chip: ChipConfig) -> str:
    """The most costly waits of arrays."""
    rows = [
        (
            tile_name(chip, wait.core),
            name(wait.gemm),
            f"{name(wait.by)}: {wait.by_activity}",
            place(wait.by, chip),
            ", ".join(f"{cause} {cycles:,}" for cause, cycles in wait.causes.items()),
            whole(wait.start),
            whole(wait.cycles),
        )
        for wait in why.waits
    ]
    head = ("core", "before", "mostly for", "where", "by cause", "from", "cycles")
    return table(head, rows, left=5, caption="The most costly waits of arrays") if rows else ""
