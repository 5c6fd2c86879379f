"""A run as a trace in Chrome's JSON format, which https://ui.perfetto.dev and chrome://tracing show.

Planned and measured are side by side, a track for each unit, link and DRAM channel, with arrows from who makes words to
who needs them. A cycle is a microsecond there, as the name of each process says. GEMMs and VECs overlap a little in the
pipeline: the earlier one is cut (its argument `end` says when it ended). A mover takes MOVEs while it sends others, and
links and channels carry several at a time: they have as many tracks as that takes.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from meshloom.sched.support.files import write_atomically
from meshloom.sched.support.text import printable

from ..results.schema import Row
from ..results.tracks import Flow, RunTimeline, Slices

#: Kinds of tracks on which slices overlap.
_SHARED = ("mover", "channel", "link")
_Event = dict[str, Any]


def save_trace(runs: Sequence[tuple[RunTimeline, Row]], path: Path) -> None:
    """Writes a trace of one or several workloads, one below the other, compressed if the name ends in .gz. Raises
    OSError."""
    result = chain.from_iterable(events(timeline, row, 2 * number) for number, (timeline, row) in enumerate(runs))
    text = "[\n" + ",\n".join(json.dumps(event, separators=(",", ":")) for event in result) + "\n]\n"
    write_atomically(path, gzip.compress(text.encode(), 6, mtime=0) if path.suffix == ".gz" else text)


def events(timeline: RunTimeline, row: Row, before: int = 0) -> Iterator[_Event]:
    """The events of a trace: of the plan, then of the measurement; for each its names, slices and flows. `before`:
    processes that the trace has already."""
    sides = (
        (before + 1, "planned (timeline model)", timeline.planned, timeline.planned_flows),
        (before + 2, f"measured ({row.simulator})", timeline.measured, timeline.measured_flows),
    )
    for process, name, slices, flows in sides:
        if not len(slices):
            continue
        title = f"{row.workload} on {row.chip}: {name}; 1 us here is 1 cycle"
        yield _named("process_name", process, 0, title)
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
        placed = _Placed(timeline, slices)
        for thread, title in enumerate(placed.names, 1):
            yield _named("thread_name", process, thread, title)
            order = {"sort_index": thread}
            yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": order}
        yield from _slices(timeline, slices, placed, process)
        yield from _flows(placed, flows, process)


def _named(what: str, process: int, thread: int, name: str) -> _Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": printable(name)}}


class _Placed:
    """Each slice with its thread (numbered from 1), start, and end, cut where the next one of the thread begins."""

    def __init__(self, found: RunTimeline, slices: Slices) -> None:
        self.names: list[str] = []
        self.threads: list[int] = []
        self.starts: list[int] = slices.start.tolist()
        self.stops: list[int] = slices.end.tolist()
        lanes: list[tuple[int, int]] = []  # of the current track: thread, and its last slice
        at = -1
        tracks: list[int] = slices.track.tolist()
        for number, track in enumerate(tracks):
            if track != at:
                lanes, at = [], track
            shared = found.tracks[track].kind in _SHARED
            free = (lane for lane, (_, last) in enumerate(lanes) if self.stops[last] <= self.starts[number])
            lane = next(free, len(lanes)) if shared else 0
            if lane == len(lanes):
                self.names.append(found.tracks[track].name + (f", {lane + 1}" if lane else ""))
                lanes.append((len(self.names), number))
            elif not shared:
                before = lanes[0][1]
                self.stops[before] = min(self.stops[before], self.starts[number])
            lanes[lane] = lanes[lane][0], number
            self.threads.append(lanes[lane][0])


def _slices(timeline: RunTimeline, slices: Slices, placed: _Placed, process: int) -> Iterator[_Event]:
    tracks: list[int] = slices.track.tolist()
    ends: list[int] = slices.end.tolist()
    opcodes: list[int] = slices.opcode.tolist()
    operations: list[int] = slices.operation.tolist()
    for number, operation in enumerate(operations):
        opcode, start = timeline.opcodes[opcodes[number]], placed.starts[number]
        args: dict[str, Any] = {"opcode": opcode, "end": ends[number]}
        name = opcode
        if operation >= 0:
            name = timeline.labels[operation] or opcode
            args |= {"operation": operation, "layer": printable(timeline.layer_names[timeline.layers[operation]])}
        yield {
            "ph": "X",
            "name": printable(name),
            "cat": timeline.tracks[tracks[number]].kind,
            "pid": process,
            "tid": placed.threads[number],
            "ts": start,
            "dur": placed.stops[number] - start,
            "args": args,
        }


def _flows(placed: _Placed, flows: Sequence[Flow], process: int) -> Iterator[_Event]:
    for number, (first, last) in enumerate(flows):
        common: _Event = {"name": "words", "cat": "flow", "pid": process, "id": process * 10**9 + number}
        leaves = max(placed.starts[first], placed.stops[first] - 1)
        yield {"ph": "s", "ts": leaves, "tid": placed.threads[first], **common}
        arrives = max(placed.starts[last], leaves)
        yield {"ph": "f", "bp": "e", "ts": arrives, "tid": placed.threads[last], **common}
