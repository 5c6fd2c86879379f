"""The links of the data plane in a run: their load, how often they blocked flits, and the delay of packets.

The congestion level of a run is ideal time / real time over its MOVEs (1 = as on an idle chip): `mem_factor` of C. Gao,
Y. Wang, C. Liu et al., "Layer-Puzzle: Allocating and Scheduling Multi-task on Multi-core NPUs by Using Layer
Heterogeneity" (DATE 2023). The real time of a MOVE is the time in which its mover had nothing else to send: from the
cycle in which it took the MOVE, or had sent the previous one, to the cycle after its last word. The ideal time is the
one that `idle` gives for the same MOVE on an idle chip, from the same start; after another MOVE of its mover (whose
sending hides the latency) it is at least one cycle for each flit, and the time that the bandwidth of DRAM allows. A
MOVE that is faster counts as ideal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypedDict

from meshloom.hw.spec.config import ChipConfig, tile_position
from meshloom.hw.spec.isa import FETCH_TAG, Opcode, Unit
from meshloom.hw.spec.routes import dimension_ordered, ports_at
from meshloom.sched.program.names import tile_name
from meshloom.sched.program.program import Program, Stream
from meshloom.sched.program.routes import Route, receivers, route_of

from ..devices.interface import Run
from ..devices.readout import Record
from ..results.figures import Congestion, LinkFigures, PacketFigures, SourceFigures
from .idle import idle_move, steady_cycles
from .records import InstructionPlace, locate


class LinksError(ValueError):
    """A run without link figures; the message names what is missing and the fix."""


class Figures(TypedDict):
    """Fields of a result row."""

    links: tuple[LinkFigures, ...]
    congestion: Congestion | None


def figures(run: Run, program: Program, chip: ChipConfig, complete: bool = True) -> Figures:
    """Both figures of a run; see `links` and `congestion`. Unless `complete`, records are missing, so congestion is
    None."""
    return {"links": links(run, chip), "congestion": congestion(run, program, chip) if complete else None}


class Transfer(NamedTuple):
    """A MOVE as its mover executed it: its fields, the route of its packets, and its record."""

    fields: Mapping[str, int]
    route: Route
    record: Record


def links(run: Run, chip: ChipConfig) -> tuple[LinkFigures, ...]:
    """Every output of every router of the data plane, in floorplan order: to its neighbours and into its tile. Empty
    after a fault."""
    from meshloom.hw.control.trace import LINK_BLOCKED, LINK_BUSY
    from meshloom.hw.wiring.link_counters import OUTPUTS

    link_figures: list[LinkFigures] = []
    for tile, counters in run.counters.items():
        there = ports_at(*tile_position(tile), chip.width, chip.height)
        for port, busy, blocked in zip(OUTPUTS, LINK_BUSY, LINK_BLOCKED, strict=True):
            if port in there:
                figures = {"busy": counters[busy], "blocked": counters[blocked], "cycles": run.cycles}
                link_figures.append(LinkFigures(tile=tile, port=port, **figures))
    return tuple(link_figures)


def congestion(run: Run, program: Program, chip: ChipConfig) -> Congestion | None:
    """The congestion level of a run, by source tile and in total; None if it moved nothing, or ended in a fault.

    Raises LinksError if its trace is incomplete.
    """
    if run.fault is not None:
        return None
    if run.trace_shortage:
        raise LinksError(f"the congestion of a run needs all of its records: {run.trace_shortage}")
    moved = list(transfers(run, program, chip))
    if not moved:
        return None
    by_source: dict[int, list[Transfer]] = defaultdict(list)
    for transfer in moved:
        by_source[transfer.record.tile].append(transfer)
    sources: list[SourceFigures] = []
    for tile in (tile for tile in chip.tiles if tile in by_source):
        own = sorted(by_source[tile], key=lambda transfer: transfer.record.end)
        ideal, real = (sum(times) for times in zip(*_times(own, chip), strict=True))
        sources.append(SourceFigures(tile=tile, moves=len(own), ideal_cycles=ideal, real_cycles=real))
    return Congestion(
        ideal_cycles=sum(source.ideal_cycles for source in sources),
        real_cycles=sum(source.real_cycles for source in sources),
        sources=tuple(sources),
        packets=_packets(moved, run, chip),
    )


def transfers(run: Run, program: Program, chip: ChipConfig) -> Iterator[Transfer]:
    """The MOVEs of a run, stream by stream."""
    records = {} if program.ahead else locate(run.records, program)
    # tags of an ahead-of-time program are unique
    moved = [record for record in run.records if record.opcode is Opcode.MOVE and record.unit is Unit.MOVER]
    timed = {(record.tile, record.tag): record for record in moved}
    for stream, index, fields, route in _moves(program, chip):
        place = InstructionPlace(stream.tile, stream.unit, index, fields["src_tile"] != stream.tile)
        record = timed.get((fields["src_tile"], fields["tag"])) if program.ahead else records.get(place)
        if record is None:
            raise LinksError(
                f"the congestion of a run needs all of its records: that of the MOVE with tag {fields['tag']}, "
                f"instruction {index} of {tile_name(chip, stream.tile)}'s stream, is missing; run it again"
            )
        yield Transfer(fields, route, record)


def routes_of(program: Program, chip: ChipConfig) -> dict[tuple[int, Unit, int], Route]:
    """The route of the data of each MOVE, by tile, unit and index in its stream."""
    return {(stream.tile, stream.unit, index): route for stream, index, _, route in _moves(program, chip)}


def data_moves(program: Program, chip: ChipConfig) -> Iterator[tuple[Mapping[str, int], Route]]:
    """The fields of each MOVE that is not of code, and the route of its data."""
    return ((fields, route) for _, _, fields, route in _moves(program, chip))


def _moves(program: Program, chip: ChipConfig) -> Iterator[tuple[Stream, int, Mapping[str, int], Route]]:
    """The MOVEs of a program except those that fetch code: stream, index in it, fields, and route of the data."""
    for stream in (*program.streams, program.boot):
        named: tuple[Opcode, Mapping[str, int]] | None = None  # a ROUTE or ORDER for the next one
        for index, instruction in enumerate(stream.instructions):
            opcode, fields = instruction.opcode, instruction.fields
            if opcode in (Opcode.ROUTE, Opcode.ORDER):
                named = opcode, fields
            if opcode is Opcode.MOVE and fields.get("tag", 0) != FETCH_TAG:
                yield stream, index, fields, _route(fields, named, chip)
                named = None


def _route(fields: Mapping[str, int], named: tuple[Opcode, Mapping[str, int]] | None, chip: ChipConfig) -> Route:
    """The route of a MOVE's data: that of its ROUTE or ORDER, or the chip's default."""
    opcode, counts = named or (Opcode.ROUTE, {})
    if opcode is Opcode.ROUTE:
        return route_of(chip, fields["src_tile"], fields["dst_tile"], counts)
    points = [counts.get("points", 0) >> 8 * number & 0xFF for number in range(counts.get("count", 0))]
    stops = fields["src_tile"], *points, fields["dst_tile"]
    tiles = [stops[0]]
    for here, there in pairwise(stops):
        tiles += dimension_ordered(here, there, chip.noc.data_routing)[1:]
    channel = counts.get("channel", 0)
    return Route(channel - 1 if channel else chip.channel_of(fields["dst_tile"]), tuple(tiles))


def _times(own: list[Transfer], chip: ChipConfig) -> Iterator[tuple[int, int]]:
    """(ideal, real) time of each of a mover's MOVEs, in the order in which it sent them."""
    free = 0  # when the previous MOVE had been sent
    for fields, route, record in own:
        begins = max(record.start, free)
        ends = record.start + idle_move(fields, chip, route).cycles
        if free > record.start:
            ends = max(ends, free + steady_cycles(fields, chip))
        real = record.end - begins
        yield min(real, ends - begins), real
        free = record.end


@dataclass
class _Late:
    """Sums over packets."""

    count: int = 0
    total: int = 0
    worst: int = 0
    idle: int = 0
    latest: int = 0

    def add(self, latency: int, idle: int) -> None:
        self.count += 1
        self.total += latency
        self.worst = max(self.worst, latency)
        self.idle += idle
        self.latest = max(self.latest, latency - idle)


def _packets(moved: list[Transfer], run: Run, chip: ChipConfig) -> PacketFigures | None:
    """Latencies of packets; None on chips without `noc.arrivals`.

    The packets of a MOVE arrive in order. Where tags repeat, so do those of MOVEs with the same tag between the same
    two tiles, as long as they take the same route. Of a packet that several tiles take, the latency is that to its
    destination.
    """
    if not chip.noc.arrivals:
        return None
    arrived: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for record in sorted(run.records, key=lambda record: record.start):
        if record.arrival:
            arrived[record.tile, record.tag].append(record)
    sums = _Late()
    turns: dict[tuple[int, int], int] = defaultdict(int)
    for fields, route, _ in sorted(moved, key=lambda transfer: transfer.record.start):
        tag = fields.get("tag", 0)
        target, *copied = receivers(chip, fields)
        for packet in idle_move(fields, chip, route).packets:
            record = arrived[target, tag][turns[target, tag]]
            sums.add(record.end - record.start, packet.latency)
            for tile in (target, *copied):
                turns[tile, tag] += 1
    return PacketFigures(
        count=sums.count,
        mean=sums.total / sums.count,
        worst=sums.worst,
        idle_mean=sums.idle / sums.count,
        worst_late=sums.latest,
    )
