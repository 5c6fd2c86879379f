"""The numbers behind the pictures of a report."""

from __future__ import annotations

from collections import Counter

from meshloom.sched.ir.schedule import Move

from ..results.artefacts import Artefacts
from ..results.explanation import Waterfall
from ..results.tracks import LayerPoint, LinkLoad, RunPictures
from .explained import times
from .finished import FinishedRun
from .lives import occupancy, thinned
from .timelines import timeline

#: Points of a curve at most: more than a screen has columns.
POINTS = 800


def pictures(run: FinishedRun, artefacts: Artefacts, falls: Waterfall, model: bool = False) -> RunPictures:
    """Timelines, memories, roofline and links of a run, whose waterfall is `falls`; `model`: memories by the model.

    Raises ExplainError for a run that measured nothing.
    """
    records, cycles = times(run, model)
    chip = run.chip
    return RunPictures(
        timeline=timeline(run, links=False, flows=False),
        memories=thinned(occupancy(run, records), cycles, POINTS),
        points=_points(run, falls),
        links=_links(artefacts),
        peak_macs=chip.rows * chip.cols * len(chip.cores),
        peak_bytes=chip.dram.bytes_per_cycle * len(chip.drams),
    )


def _points(run: FinishedRun, falls: Waterfall) -> list[LayerPoint]:
    """Layers with products and with bytes."""
    drams = set(run.chip.drams)
    moved = Counter[str]()
    for op in run.schedule.operations:
        if isinstance(op, Move):
            ends = (op.src.tile in drams) + (op.dst.tile in drams)
            moved[run.layer(op)] += ends * op.words * run.chip.lanes
    return [
        LayerPoint(each.layer, useful, moved[each.layer], sum(each.pe_cycles.values()) / falls.pes)
        for each in falls.layers
        if (useful := each.pe_cycles.get("useful", 0))
    ]


def _links(artefacts: Artefacts) -> list[LinkLoad]:
    rows = artefacts.tables["links"].to_pylist()
    return [
        LinkLoad(row["tile"], row["port"], row["busy"] / row["cycles"], row["blocked"] / row["cycles"])
        for row in rows
        if row["cycles"]
    ]
