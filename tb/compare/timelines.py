"""A run as slices on tracks: units as they recorded, DRAM channels and links as their MOVEs passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from meshloom.hw.spec.config import tile_position
from meshloom.hw.spec.contracts import HEAD_CYCLES
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.ir.dependences import Depends
from meshloom.sched.program.names import tile_name

from ..results.tracks import Flow, RunTimeline, Slices, Track
from .finished import Entry, FinishedRun
from .links import routes_of
from .records import InstructionPlace

_OPCODES = tuple(opcode.name for opcode in Opcode)
_INDEX = {opcode: number for number, opcode in enumerate(Opcode)}
#: Key of a track: kind, tile, and the link's other end (or -1).
_Key = tuple[str, int, int]
_Row = tuple[_Key, int, int, int, int, bool]


def timeline(run: FinishedRun, links: bool = True, flows: bool = True) -> RunTimeline:
    """Both timelines of a run on common tracks. `links`: with a track for each link that carries data; `flows`: with
    who needs whose words."""
    routes = routes_of(run.program, run.chip)
    sides = [list(_rows(run, records, routes if links else {})) for records in (run.predicted, run.measured)]
    keys = sorted({row[0] for rows in sides for row in rows}, key=_order)
    numbers = {key: number for number, key in enumerate(keys)}
    layer_of = [run.layer(op) for op in run.schedule.operations]
    names = list(dict.fromkeys(layer_of))
    index = {name: number for number, name in enumerate(names)}
    needs = Depends(run.schedule.operations, run.chip).data if flows else []
    pairs = [_slices(rows, numbers) for rows in sides]
    return RunTimeline(
        tracks=[_track(key, run) for key in keys],
        opcodes=_OPCODES,
        labels=[op.label for op in run.schedule.operations],
        layers=[index[name] for name in layer_of],
        layer_names=names,
        planned=pairs[0][0],
        measured=pairs[1][0],
        planned_flows=_flows(needs, pairs[0][1]),
        measured_flows=_flows(needs, pairs[1][1]),
    )


def _rows(
    run: FinishedRun, records: Mapping[InstructionPlace, Entry], routes: Mapping[tuple[int, Unit, int], object]
) -> Iterator[_Row]:
    """Track, start, end, opcode, operation, and whether it is the operation itself."""
    drams = set(run.chip.drams)
    fields = {(s.tile, s.unit): s.instructions for s in (*run.program.streams, run.program.boot)}
    for place, entry in records.items():
        number = run.number(place)
        own = entry.opcode in (Opcode.GEMM, Opcode.VEC)
        source = target = -1
        if entry.opcode is Opcode.MOVE:
            counts = fields[place.tile, place.unit][place.index].fields
            source, target = counts["src_tile"], counts["dst_tile"]
            own = entry.tile == source  # else it is the request
        kind = entry.unit.name.lower() if own else "front end"
        what = entry.start, entry.end, _INDEX[entry.opcode], -1 if number is None else number
        yield (kind, entry.tile, int(entry.unit) if not own else -1), *what, own
        if not own or entry.opcode is not Opcode.MOVE:
            continue
        for tile in {source, target} & drams:
            yield ("channel", tile, -1), *what, False
        route = routes.get(place[:3])
        for hop, (here, there) in enumerate(pairwise(getattr(route, "tiles", ()))):
            first = entry.start + HEAD_CYCLES + hop
            yield ("link", here, there), first, max(first + 1, entry.end + hop), *what[2:], False


_KINDS = ("front end", "mover", "matrix", "vector", "channel", "link")


def _order(key: _Key) -> tuple[int, int, int, int]:
    """Units tile by tile, then channels, then links."""
    kind, tile, other = key
    return _KINDS.index(kind) if kind in ("channel", "link") else 0, tile, _KINDS.index(kind), other


def _track(key: _Key, run: FinishedRun) -> Track:
    kind, tile, other = key
    name = tile_name(run.chip, tile)
    if kind == "link":
        (x, y), (u, v) = tile_position(tile), tile_position(other)
        return Track(f"link ({x},{y}) to ({u},{v})", kind, tile)
    if kind == "front end":
        return Track(f"{name} {Unit(other).name.lower()} front end", kind, tile)
    return Track(f"{name} {kind}", kind, tile)


def _slices(rows: Sequence[_Row], numbers: Mapping[_Key, int]) -> tuple[Slices, dict[int, int]]:
    """The slices in order, and for each operation that of itself."""
    columns = np.array([(numbers[row[0]], *row[1:5]) for row in rows], dtype=np.int64).reshape(-1, 5)
    order = np.lexsort((-columns[:, 2], columns[:, 1], columns[:, 0]))  # what holds another begins it
    places: list[int] = order.tolist()
    own = {rows[place][4]: number for number, place in enumerate(places) if rows[place][5]}
    return Slices(*(np.ascontiguousarray(column) for column in columns[order].T)), own


def _flows(needs: Sequence[set[int]], own: Mapping[int, int]) -> list[Flow]:
    return [
        Flow(own[producer], own[consumer])
        for consumer, producers in enumerate(needs)
        if consumer in own
        for producer in sorted(producers)
        if producer in own
    ]
