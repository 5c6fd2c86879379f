"""A run as a page: one HTML file that needs no network.

Plotly's script is part of the file. The timeline is drawn by a script of ours (page.js), since no library draws
millions of boxes; its data are binary, in base64.
"""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.support.text import printable

from ..results.area import AreaFigures
from ..results.energy import EnergyFigures
from ..results.explanation import Explanation
from ..results.schema import Row
from ..results.tracks import Ints, RunPictures, RunTimeline, Slices
from .console import percent
from .explained import name, place, spread_lines
from .figures import figures

#: Kinds of tracks on the page.
_KINDS = ("mover", "matrix", "vector", "channel")
#: Nothing may be fetched, whatever a script tries.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


class Shown(NamedTuple):
    """A workload of a run, and what its page shows of it."""

    row: Row
    why: Explanation
    pictures: RunPictures
    chip: ChipConfig

    @property
    def title(self) -> str:
        """What ran on what."""
        planned = ", planned and not measured" if self.why.planned else ""
        return f"{self.row.workload} on {self.row.chip} by {self.row.scheduler}{planned}"


def page(runs: Sequence[Shown], failed: Mapping[str, str] | None = None) -> str:
    """The page of a run of one workload or of several, of which each is drawn when it is opened; `failed`: why nothing
    can be shown of others."""
    single = len(runs) == 1 and not failed
    data = [
        {
            "at": number,
            "figures": figures(each.why.waterfall, each.pictures, each.chip, _name(number, "")),
            "timeline": _timeline(each.pictures.timeline, each.why.waterfall.cycles),
        }
        for number, each in enumerate(runs)
    ]
    here = files("meshloom.tb.report")
    plotly = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    title = escape(runs[0].title if single else f"{len(runs)} workloads")
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<style>{(here / 'page.css').read_text(encoding='utf-8')}</style></head><body>",
        f"<h1>{title}</h1>",
        *([] if single else [_overview(runs)]),
        *(_text(f"{name}: {why}", "bad") for name, why in (failed or {}).items()),
    ]
    for number, each in enumerate(runs):
        opened = " open" * (number == 0)
        head = "" if single else f"<details{opened}><summary>{escape(each.title)}</summary>"
        parts += [f'<div class="run" id="{_name(number, "run")}">{head}', *_sections(each, number)]
        parts.append(("" if single else "</details>") + "</div>")
    parts += [
        f'<script type="application/json" id="data">{_embedded(data)}</script>',
        f"<script>{plotly}</script>",
        f"<script>{(here / 'page.js').read_text(encoding='utf-8')}</script>",
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _name(number: int, what: str) -> str:
    """The id of an element that each workload has."""
    return f"w{number}-{what}"


def _overview(runs: Sequence[Shown]) -> str:
    """A line for each workload."""
    rows = [
        (
            each.title,
            each.row.status,
            f"{each.why.waterfall.cycles:,}",
            percent(100 * each.why.waterfall.ideal_share, 1),
            percent(each.row.error_percent, sign="+"),
        )
        for each in runs
    ]
    return _table(("workload", "status", "cycles", "useful PE cycles", "model"), rows, left=2)


def _embedded(data: object) -> str:
    """JSON that cannot end the script element that it is in."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _sections(shown: Shown, number: int) -> Iterable[str]:
    row, why, pictures, chip = shown

    def plot(what: str) -> str:
        return f'<div class="plot" id="{_name(number, what)}"></div>'

    yield "<h2>Summary</h2>" + _summary(row, why)
    if why.energy is not None:
        yield "<h2>Energy, an estimate</h2>" + _energy(why.energy)
    if why.area is not None:
        yield "<h2>Area of the chip, an estimate</h2>" + _area(why.area)
    if not why.planned:
        yield "<h2>Faults</h2>" + _faults(row)
    yield "<h2>Where the cycles went</h2>" + plot("waterfall") + f'<div id="{_name(number, "by-layer")}"></div>'
    if why.waterfall.note:
        yield _text(why.waterfall.note)
    yield "<h2>Layers</h2>" + _layers(row, why)
    yield "<h2>Timeline</h2>"
    yield _text(
        "Wheel: zoom; drag: move; double click: all of it. Above in each track what the model planned, below what was "
        "measured; a slice of a mover or channel begins when the one before has ended. Colours are layers."
    )
    yield '<div class="gantt"><canvas></canvas><div class="tip"></div></div>'
    yield "<h2>Critical path and waits</h2>" + _path(why, chip) + _waits(why, chip)
    for line in spread_lines(why.spread, chip):
        yield _text(line, "bad" if why.spread.differing else "")
    yield "<h2>Roofline</h2>" + plot("roofline")
    yield _text("A layer's cycles are its part of the run's, so that layers which overlap are not counted twice.")
    yield "<h2>Links</h2>"
    links = plot("links-busy") + plot("links-blocked")
    yield f'<div class="pair">{links}</div>' if pictures.links else _text("Nothing was counted.")
    yield "<h2>Memories</h2>" + plot("memory")


def escape(text: str) -> str:
    """Text from wherever, as HTML that shows it."""
    return html.escape(printable(text))


def _text(words: str, style: str = "") -> str:
    return f'<p class="{style}">{escape(words)}</p>' if style else f"<p>{escape(words)}</p>"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1, caption: str = "") -> str:
    """A table; its first `left` columns are text."""

    def cells(tag: str, values: Sequence[object]) -> str:
        return "".join(
            f"<{tag} class='{'text' if number < left else 'number'}'>{escape(str(value))}</{tag}>"
            for number, value in enumerate(values)
        )

    text = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table>{text}<tr>{cells("th", head)}</tr>{body}</table></div>'


def _summary(row: Row, why: Explanation) -> str:
    falls = why.waterfall
    rows: list[tuple[str, str]] = [
        ("status", f"{row.status}{f': {row.reason}' if row.reason else ''}"),
        ("cycles on the RTL", f"{row.rtl_cycles:,} ({row.simulator})" if row.simulator else "-"),
        ("cycles of the model", f"{row.model_cycles:,} ({percent(row.error_percent, sign='+')})"),
        ("useful PE cycles", percent(100 * falls.ideal_share, 1)),
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
    return _table(("", ""), rows, left=2)


def _energy(energy_figures: EnergyFigures) -> str:
    rows = [
        (
            name,
            f"{part.count:,}",
            f"{part.picojoules / 1e6:,.4g}",
            percent(part.picojoules / energy_figures.microjoules / 1e4, 1),
        )
        for name, part in sorted(energy_figures.parts.items(), key=lambda part: -part[1].picojoules)
        if energy_figures.microjoules
    ]
    head = ("part", "products, bytes, bytes x links", "microjoules", "share")
    return _table(
        head,
        [*rows, ("all", "", f"{energy_figures.microjoules:,.4g}", "")],
        caption=f"by the table {energy_figures.by!r}",
    )


def _area(area_figures: AreaFigures) -> str:
    rows = [
        (part.name, part.count, f"{part.cells:,}", f"{part.flip_flops:,}", f"{part.memory_bits:,}",
         percent(100 * part.count * part.cells / area_figures.cells, 1) if area_figures.cells else "")
        for part in area_figures.parts
    ]  # fmt: skip
    whole = ("all", "", f"{area_figures.cells:,}", f"{area_figures.flip_flops:,}", f"{area_figures.memory_bits:,}", "")
    head = ("part", "how often", "cells of one", "of them flip-flops", "bits of memory", "share of all cells")
    return _table(head, [*rows, whole], caption=f"{area_figures.flow} ({area_figures.tools})")


def _faults(row: Row) -> str:
    if not row.faults:
        return _text("None.")
    if not row.fault_reports:
        return _text(f"{row.faults} faults, without details.", "bad")
    rows = [
        (fault.cause, f"({fault.tile % 16},{fault.tile // 16})", fault.unit, fault.tag, fault.label, fault.explanation)
        for fault in row.fault_reports
    ]
    return _table(("cause", "tile", "unit", "tag", "operation", "why"), rows, left=6)


def _layers(row: Row, why: Explanation) -> str:
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
                f"{figures.macs:,}" if figures else "-",
                f"{figures.rtl_cycles:,}" if figures else "-",
                percent(figures.error_percent, sign="+") if figures else "-",
                f"{mine / falls.pes:,.1f}",
                percent(100 * pe_cycles.get("useful", 0) / mine if mine else None, digits=1),
            )
        )
    head = ("layer", "kind", "limit", "products", "first to last cycle", "model error", "cycles of the run", "useful")
    return _table(head, rows, left=3)


def _path(why: Explanation, chip: ChipConfig) -> str:
    if why.path is None:
        return _text("Timed ahead: nothing waits.")
    longest = sorted(why.path.steps, key=lambda step: -step.cycles)[:20]
    rows = [
        (step.activity, name(step.who), place(step.who, chip), f"{step.start:,}", f"{step.end:,}", f"{step.cycles:,}",
         percent(100 * step.cycles / max(1, why.path.cycles), 1))
        for step in sorted(longest, key=lambda step: step.start)
    ]  # fmt: skip
    head = ("activity", "operation", "where", "from", "to", "cycles", "share")
    caption = f"The {len(longest)} longest of {len(why.path.steps):,} steps of the critical path"
    return _table(head, rows, left=3, caption=caption)


def _waits(why: Explanation, chip: ChipConfig) -> str:
    rows = [
        (f"({wait.core % 16},{wait.core // 16})", name(wait.gemm), f"{name(wait.by)}: {wait.by_activity}",
         place(wait.by, chip), f"{wait.start:,}", f"{wait.cycles:,}",
         ", ".join(f"{cause} {cycles:,}" for cause, cycles in wait.causes.items()))
        for wait in why.waits
    ]  # fmt: skip
    head = ("core", "before", "mostly for", "where", "from", "cycles", "by cause")
    return _table(head, rows, left=4, caption="The most costly waits of arrays") if rows else ""


def _timeline(timeline: RunTimeline, cycles: int) -> dict[str, Any]:
    """Tracks and their slices, for page.js."""
    shown = [number for number, track in enumerate(timeline.tracks) if track.kind in _KINDS]
    labels = list(dict.fromkeys(timeline.labels))
    index = {label: number for number, label in enumerate(labels)}
    sides = [("planned", timeline.planned), ("measured", timeline.measured)]
    return {
        "cycles": cycles,
        "tracks": [timeline.tracks[number].name for number in shown],
        "labels": labels,
        "layers": list(timeline.layer_names),
        "label_of": _binary(np.array([index[label] for label in timeline.labels], dtype=np.int64)),
        "layer_of": _binary(np.array(timeline.layers, dtype=np.int64)),
        "sides": [{"name": name, **_side(slices, shown)} for name, slices in sides if len(slices)],
    }


def _side(slices: Slices, shown: Sequence[int]) -> dict[str, Any]:
    """The slices of some tracks one after the other; a slice begins when those before it on its track have ended."""
    first = [0]
    parts: list[tuple[Ints, Ints, Ints]] = []
    for track in shown:
        low, high = np.searchsorted(slices.track, (track, track + 1))
        start, end = slices.start[low:high], slices.end[low:high]
        if len(end):
            ended = np.maximum.accumulate(end)
            start = np.maximum(start, np.concatenate((start[:1], ended[:-1])))
            some = end > start  # what lies within another one has no time of its own
            parts.append((start[some], end[some], slices.operation[low:high][some]))
            first.append(first[-1] + int(np.count_nonzero(some)))
        else:
            first.append(first[-1])
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.zeros(0, int)] * 3
    names = ("start", "end", "operation")
    return {"first": first} | {name: _binary(column) for name, column in zip(names, columns, strict=True)}


def _binary(values: Ints) -> str:
    """int32, little-endian, in base64. Runs are shorter than 2^31 cycles: the chip's counters have 32 bits."""
    return b64encode(values.astype("<i4").tobytes()).decode("ascii")
