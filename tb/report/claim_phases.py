"""A claimed timeline beside the one of the run: loading before the first GEMM, GEMMs, storing after the last one.

Tools count in these three phases. A run has no such phases by itself, since loads and stores go on beside GEMMs: here
they are the cycles before the first GEMM of all cores begins, and after the last one ends. Of a tool that says when it
plans the transfers of a tensor, these stand beside the MOVEs of that tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meshloom.sched.ir.schedule import ToolClaim

from ..results.tracks import RunTimeline
from .console import percent
from .figures import Figure, cycles_axis, figure
from .markup import paragraph, table, whole

#: Where the figure is, and what stands above it.
CLAIM = "claim"
CLAIM_TITLE = "One below the other: the timeline that is claimed, and the one of this run"
_NAMES: Mapping[str, tuple[str, str]] = {
    "onload": ("before the first GEMM", "#90a4ae"),
    "compute": ("first GEMM to last", "#1e88e5"),
    "offload": ("after the last GEMM", "#ffb300"),
}
#: Tensors of a layer by the first word of the labels of their MOVEs.
_TENSORS: Mapping[str, str] = {"x": "input", "w": "weights", "y": "result"}
#: A claim that is only a sum.
_WHOLE = "all"


def phases(timeline: RunTimeline, cycles: int) -> dict[str, int]:
    """Cycles of each phase of a run, measured, or planned if nothing was measured. Without a GEMM all is `onload`."""
    slices = timeline.measured if len(timeline.measured) else timeline.planned
    arrays = [number for number, track in enumerate(timeline.tracks) if track.kind == "matrix"]
    own = np.isin(slices.track, arrays)
    if not own.any():
        return {"onload": cycles, "compute": 0, "offload": 0}
    first, last = int(slices.start[own].min()), min(cycles, int(slices.end[own].max()))
    return {"onload": first, "compute": last - first, "offload": cycles - last}


def moves(timeline: RunTimeline, tensor: str) -> tuple[int, int, float] | None:
    """Of the MOVEs of a tensor of a layer, measured or planned: the cycle in which the first begins, how many there
    are, and the cycles of one in the mean; None if there are none."""
    slices = timeline.measured if len(timeline.measured) else timeline.planned
    movers = [number for number, track in enumerate(timeline.tracks) if track.kind == "mover"]
    named = [number for number, label in enumerate(timeline.labels) if label.partition(" ")[0] == tensor]
    own = np.isin(slices.track, movers) & np.isin(slices.operation, named)
    if not own.any():
        return None
    return int(slices.start[own].min()), int(own.sum()), float((slices.end[own] - slices.start[own]).mean())


def transfer_table(claim: ToolClaim, timeline: RunTimeline) -> str:
    """A line for each tensor whose transfers the tool has planned; nothing if it has planned none."""
    lines: list[tuple[str, ...]] = []
    for each in claim.transfers:
        own = moves(timeline, each.tensor)
        begin, count, cycles = ("-", "-", "-") if own is None else (whole(own[0]), whole(own[1]), f"{own[2]:,.1f}")
        theirs = whole(each.begin), whole(each.bytes), whole(each.cycles)
        lines.append((_TENSORS[each.tensor], *theirs, begin, count, cycles))
    if not lines:
        return ""
    claimed, own_columns = ("first begins", "bytes of one", "cycles of one"), ("first begins", "MOVEs", "cycles of one")
    columns = "tensor", *(f"claimed: {name}" for name in claimed), *(f"this run: {name}" for name in own_columns)
    return table(columns, lines) + paragraph(
        f"A transfer of {claim.tool} goes to all cores that need it; here each core has a MOVE of its own, which waits "
        "for those before it."
    )


def _claimed(claim: ToolClaim) -> dict[str, int]:
    """Cycles of each phase by the tool, or of all of them together."""
    return {phase.name: phase.cycles for phase in claim.phases} or {_WHOLE: claim.cycles or 0}


def claim_table(claim: ToolClaim, timeline: RunTimeline, cycles: int) -> str:
    """A line for each phase, and one for their sum."""
    claimed, own = _claimed(claim), phases(timeline, cycles)
    rows = [(words, claimed.get(name), own[name]) for name, (words, _) in _NAMES.items()]
    rows.append(("all", claim.cycles, cycles))
    lines = (
        (
            words,
            "-" if theirs is None else whole(theirs),
            whole(ours),
            "-" if theirs is None else whole(ours - theirs, "+"),
            percent(100 * (ours - theirs) / theirs if theirs else None, 1, "+"),
        )
        for words, theirs, ours in rows
    )
    remark = paragraph(claim.remark) if claim.remark else ""
    return table(("phase", f"claimed by {claim.tool}", "this run", "beyond claim", "in %"), lines) + remark


def claim_figures(claim: ToolClaim | None, timeline: RunTimeline, cycles: int, prefix: str) -> list[Figure]:
    """Two bars of phases on one axis of cycles; nothing without claimed cycles."""
    if claim is None or claim.cycles is None:
        return []
    claimed, own = _claimed(claim), phases(timeline, cycles)
    parts = {**_NAMES, _WHOLE: (f"all that {claim.tool} says", "#b0bec5")}
    bars: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": words,
            "y": [f"claimed by {claim.tool}", "this run"],
            "x": [claimed.get(name, 0), own.get(name, 0)],
            "marker": {"color": colour},
        }
        for name, (words, colour) in parts.items()
        if name in claimed or name in own
    ]
    layout: Figure = {
        "barmode": "stack",
        "height": 220,
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.5},
        "yaxis": {"autorange": "reversed", "automargin": True, "ticksuffix": " "},
        "xaxis": cycles_axis(),
    }
    return [figure(f"{prefix}{CLAIM}", bars, layout)]
