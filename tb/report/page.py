"""A run as a page: one HTML file that needs no network.

Plotly's script is part of the file. The timeline is drawn by a script of ours (page.js), since no library draws
millions of boxes; its data are binary, in base64.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from meshloom.hw.spec.config import ChipConfig

from ..results.explanation import Explanation
from ..results.schema import Row, Status
from ..results.tracks import Ints, RunPictures, RunTimeline, Slices
from .claim_phases import CLAIM, CLAIM_TITLE, claim_figures, claim_table, transfer_table
from .console import percent
from .explained import spread_lines
from .figures import figures
from .floorplan import chip_section
from .markup import Section, contents, document, escape, paragraph, plot, sections_text, table, whole
from .page_tables import (
    area_table,
    cycles_table,
    energy_table,
    faults_table,
    layers_table,
    path_table,
    summary_table,
    waits_table,
)
from .page_words import glossary

#: Kinds of tracks on the page.
_KINDS = ("mover", "matrix", "vector", "channel")


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
    failed = failed or {}
    single = len(runs) == 1 and not failed
    data = [
        {
            "at": number,
            "figures": [
                *figures(each.why.waterfall, each.pictures, each.chip, _name(number, "")),
                *claim_figures(each.why.claim, each.pictures.timeline, each.why.waterfall.cycles, _name(number, "")),
            ],
            "timeline": _timeline(each.pictures.timeline, each.why.waterfall.cycles),
        }
        for number, each in enumerate(runs)
    ]
    title = runs[0].title if single else f"{len(runs) + len(failed)} workloads"
    groups: list[tuple[str, Sequence[Section]]] = []
    body = [] if single else [_overview(runs, failed)]
    for number, each in enumerate(runs):
        sections = _sections(each, number)
        groups.append(("" if single else each.title, sections))
        opened = " open" * (number == 0)
        head = "" if single else f"<details{opened}><summary>{escape(each.title)}</summary>"
        foot = "" if single else "</details>"
        body.append(f'<div class="run" id="{_name(number, "run")}">{head}{_banner(each)}')
        body.append(f"{sections_text(sections)}{foot}</div>")
    words = glossary()
    groups.append(("", [words]))
    return document(title, contents(groups), [*body, sections_text([words])], data)


def _name(number: int, what: str) -> str:
    """The id of an element that each workload has."""
    return f"w{number}-{what}"


def _overview(runs: Sequence[Shown], failed: Mapping[str, str]) -> str:
    """A line for each workload, and why nothing is shown of others."""
    rows = [
        (
            each.title,
            each.row.status,
            whole(each.why.waterfall.cycles),
            percent(100 * each.why.waterfall.ideal_share, 1),
            percent(each.row.error_percent, sign="+"),
        )
        for each in runs
    ]
    lines = "".join(paragraph(f"{name}: {why}", "banner bad") for name, why in failed.items())
    return table(("workload", "status", "cycles", "useful PE cycles", "model error"), rows, left=2) + lines


def _banner(shown: Shown) -> str:
    """Why a run did not pass, before anything else."""
    row = shown.row
    if row.status in (Status.PASSED, Status.PLANNED):
        return ""
    plan = "" if shown.why.source == "rtl" else " Nothing was measured: the cycles below are those of the model."
    state = "" if row.reason.startswith(row.status) else f"{row.status}: "
    return paragraph(f"{state}{row.reason}.{plan}", "banner bad")


def _sections(shown: Shown, number: int) -> list[Section]:
    row, why, pictures, chip = shown
    parts = [("summary", "Summary", summary_table(row, why)), ("chip", "The chip", chip_section(chip))]
    if not why.planned:
        parts.append(("faults", "Faults", faults_table(row, chip)))
    note = paragraph(why.waterfall.note) if why.waterfall.note else ""
    parts += [
        (
            "cycles",
            "Where the cycles went",
            cycles_table(why.waterfall)
            + note
            + plot(_name(number, "by-layer"), "Cycles by layer and cause, in the colours of the table"),
        ),
        *_claim(shown, number),
        ("layers", "Layers", layers_table(row, why)),
        ("timeline", "Timeline", _gantt(why)),
        (
            "path",
            "Critical path and waits",
            path_table(why, chip)
            + waits_table(why, chip)
            + "".join(
                paragraph(line, "bad" if why.spread.differing else "") for line in spread_lines(why.spread, chip)
            ),
        ),
        ("rates", "Roofline", _roofline(pictures, number)),
        ("links", "Links", _links(pictures, number)),
        (
            "memories",
            "Memories",
            plot(_name(number, "memory"), "Words that somebody will still read, in % of each memory: at most 100"),
        ),
    ]
    if why.energy is not None:
        parts.append(("energy", "Energy, an estimate", energy_table(why.energy)))
    if why.area is not None:
        parts.append(("area", "Area of the chip, an estimate", area_table(why.area)))
    return [Section(_name(number, f"s-{anchor}"), title, body) for anchor, title, body in parts]


def _claim(shown: Shown, number: int) -> list[tuple[str, str, str]]:
    """Of a layer by another tool's mapping: when it does what, by the tool and here."""
    claim, cycles = shown.why.claim, shown.why.waterfall.cycles
    if claim is None or claim.cycles is None:
        return []
    timeline = shown.pictures.timeline
    body = claim_table(claim, timeline, cycles) + plot(_name(number, CLAIM), CLAIM_TITLE)
    body += transfer_table(claim, timeline)
    return [("claim", f"What {claim.tool} claims", body)]


def _gantt(why: Explanation) -> str:
    """The place of the timeline, its buttons and the legend of its colours."""
    both = "" if why.planned else " Above in each track what the model planned, below what was measured."
    return (
        paragraph(
            f"Wheel: zoom; drag: move; double click: all of it.{both} A slice of a mover or channel begins when the "
            "one before has ended. Colours are layers: press one in the legend to see it alone."
        )
        + '<div class="buttons"><button data-zoom="0.5">closer</button><button data-zoom="2">wider</button>'
        + '<button data-zoom="0">all</button></div>'
        + '<div class="gantt"><canvas></canvas><div class="tip"></div></div><div class="legend"></div>'
    )


def _roofline(pictures: RunPictures, number: int) -> str:
    peaks = f"{pictures.peak_macs:,} products and {pictures.peak_bytes:,} bytes of DRAM a cycle at most"
    return plot(_name(number, "roofline"), f"Products a cycle by products per byte of DRAM: {peaks}") + paragraph(
        "A layer's cycles are its part of the run's, so that layers which overlap are not counted twice. A name that "
        "has no room is shown when you point at its layer."
    )


def _links(pictures: RunPictures, number: int) -> str:
    if not pictures.links:
        return paragraph("Nothing was counted.")
    busy = plot(_name(number, "links-busy"), "Share of cycles in which a flit left by a link", "plot square")
    blocked = plot(_name(number, "links-blocked"), "Share in which a flit waited and none left", "plot square")
    return f'<div class="pair">{busy}{blocked}</div>'


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
