"""An arena: entries against each other on workloads and chips, made and kept as the points of a sweep are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.ir.schedule import ToolClaim
from meshloom.sched.schedulers.registry import REGISTRY, check_scheduler, scheduler_of
from meshloom.sched.support.plugins import PluginError

from ...compare.floors import floor_of
from ...devices.registry import find as find_device
from ...exchange.registry import IMPORTERS
from ...results.arena import ArenaBoard, ArenaChip, Heat, Score, standings_of
from ...results.identity import code
from ...results.sweep import FAILED, PREDICTED, PointRow
from ..failures import Failure, failure
from ..kinds import table
from ..kinds.mappings import MappedSource
from . import entries, grid
from .evaluate import deciding_code
from .sweep import Planned

#: What is run if nobody names anything else: chips whose simulators are built in a minute, six layers and a network.
CHIPS = ("tiny", "quad8", "quad16")
WORKLOADS = (
    "gemm:32x32x32", "gemm:64x64x64", "resnet8/conv1", "resnet8/conv2_1_1", "resnet8/conv3_1_2", "resnet8/conv4_1_2",
    "resnet8",
)  # fmt: skip


@dataclass(frozen=True)
class Lineup:
    """Who runs what where. `entries`: schedulers and mappings; `device`: None for the model alone."""

    entries: tuple[str, ...]
    workloads: tuple[str, ...]
    chips: tuple[str, ...]
    device: str | None


@dataclass(frozen=True)
class ArenaPlan:
    """The points of a lineup, those that cannot even begin as rows, and claims of tools by entry and workload."""

    points: tuple[Planned, ...]
    failures: tuple[PointRow, ...]
    claims: Mapping[tuple[str, str], ToolClaim]


@dataclass(frozen=True)
class _Seat:
    """A workload on a chip. `name`: what means just it; `way`: what schedules it."""

    chip: ChipConfig
    name: str
    macs: int | None
    way: str


def shipped_entries() -> tuple[str, ...]:
    """Schedulers of layers that ship."""
    return tuple(name for name in sorted(REGISTRY.shipped) if "layers" in REGISTRY.get(name).kinds)


def plan(lineup: Lineup) -> ArenaPlan:
    """What a lineup comes to. A file that cannot be loaded, or that crashes, is rows that say so; a name that means
    nothing is refused.

    Raises the errors of names (SchedulerError, WorkloadError, ConfigError, PluginError), EntryError and OSError.
    """
    if lineup.device is not None:
        find_device(lineup.device)
    seats = [seat for chip in map(load, lineup.chips) for name in lineup.workloads for seat in _seats(name, chip)]
    points: dict[str, Planned] = {}
    failures: list[PointRow] = []
    claims: dict[tuple[str, str], ToolClaim] = {}
    for entry in lineup.entries:
        source = entries.mapping_of(entry)
        try:
            if source is None:
                some = _of_scheduler(entry, seats, lineup.device)
            else:
                matching = entries.mapped_layers(source, list(dict.fromkeys(seat.name for seat in _layers(seats))))
                claims |= {(entry, name): claim for name, claim in matching.items()}
                some = _of_mapping(entry, source, matching, seats, lineup.device)
        except Exception as error:
            if not _is_foreign(entry, source):
                raise
            why = _explained(error, entry)
            concerned = seats if source is None else _layers(seats)
            failures += [_failed(entry, seat, lineup.device, why) for seat in concerned]
            continue
        points |= {each.key: each for each in some}
    return ArenaPlan(tuple(sorted(points.values(), key=lambda each: each.point.chip_key)), tuple(failures), claims)


def board(
    lineup: Lineup, planned: ArenaPlan, rows: Iterable[PointRow], command: str, named: Collection[str] = ()
) -> ArenaBoard:
    """The board of the rows that there are of a plan; `command`: what makes it anew. An entry that nobody `named` and
    that can do none of it is left out."""
    keys = {each.key for each in planned.points}
    some = [*(row for row in rows if row.key in keys), *planned.failures]
    able = {row.scheduler for row in some if row.error_kind is None} | set(named)
    some = [row for row in some if row.scheduler in able]
    chips = {chip.name: chip for chip in map(load, lineup.chips)}
    heats: dict[tuple[str, str], list[PointRow]] = {}
    for row in some:
        heats.setdefault((row.workload, row.chip), []).append(row)
    order = {name: number for number, name in enumerate(lineup.chips)}
    every = tuple(
        _heat(members, floor_of(workload, chips[chip]), planned.claims)
        for (workload, chip), members in sorted(heats.items(), key=lambda each: order.get(each[0][1], 0))
    )
    return ArenaBoard(
        measure=lineup.device or "model",
        command=command,
        code=code(),
        chips=tuple(ArenaChip(name=chip.name, digest=chip.digest) for chip in chips.values()),
        heats=every,
        standings=standings_of(every),
    )


def row_of(values: Mapping[str, object]) -> PointRow:
    """A row as a table has it."""
    return PointRow.model_validate(dict(values))


def _heat(rows: Sequence[PointRow], floor: int | None, claims: Mapping[tuple[str, str], ToolClaim]) -> Heat:
    scores = [_score(row, floor, claims.get((row.scheduler, row.workload))) for row in rows]
    scores.sort(key=lambda each: (each.cycles is None, each.cycles or 0, each.entry))
    return Heat(workload=rows[0].workload, chip=rows[0].chip, floor_cycles=floor, scores=tuple(scores))


def _score(row: PointRow, floor: int | None, claim: ToolClaim | None) -> Score:
    """A row's score. Whoever is below the bound does something else: a prediction compares no bytes."""
    reason = "" if row.status in (PREDICTED, "passed") and row.error is None else _in_a_line(row.error or row.status)
    if not reason and row.cycles is not None and floor is not None and row.cycles < floor:
        reason = f"{row.cycles:,} cycles are fewer than the bound, so it does not compute the whole workload"
    return Score(
        entry=row.scheduler,
        status=row.status,
        cycles=None if reason else row.cycles,
        seconds=row.seconds,
        claimed_cycles=claim.cycles if claim else None,
        reason=reason,
    )


def _in_a_line(text: str) -> str:
    """A reason that fits a row: of the lists of a checker how many there are, and the first."""
    return " ".join(" ".join(line.split()) for line in text.splitlines()[:2])


def _seats(workload: str, chip: ChipConfig) -> list[_Seat]:
    """What a workload's name means on a chip. Raises WorkloadError, also for what has its schedule."""
    seats: list[_Seat] = []
    for request in table.find(workload, chip):
        if request.scheduled_as is None:
            raise entries.EntryError(
                f"workload {workload}: has its schedule already; a mapping is an entry: --entry {workload}"
            )
        seats.append(_Seat(chip, request.reference, request.macs, request.scheduled_as))
    return seats


def _layers(seats: Sequence[_Seat]) -> list[_Seat]:
    return [seat for seat in seats if seat.way == "layers"]


def _of_scheduler(entry: str, seats: Sequence[_Seat], device: str | None) -> list[Planned]:
    """The points of a scheduler: all that it schedules. Raises SchedulerError."""
    kinds = scheduler_of(entry).kinds
    own = [seat for seat in seats if seat.way in kinds]
    for way in dict.fromkeys(seat.way for seat in own or seats):
        check_scheduler(entry, way)
    decided = deciding_code(entry, device)
    return [_planned(entry, seat, device, decided) for seat in own]


def _of_mapping(
    entry: str, source: MappedSource, claims: Mapping[str, ToolClaim], seats: Sequence[_Seat], device: str | None
) -> list[Planned]:
    """The points of a mapping: its layer, on chips with an array of its claim; on all if there is none. Raises
    OSError."""
    decided = grid.digest([entries.decided_by(source), deciding_code("loop_order", device)])
    own = [seat for seat in _layers(seats) if seat.name in claims]
    fitting = [seat for seat in own if _is_for(claims[seat.name].array, seat.chip)]
    return [_planned(entry, seat, device, decided) for seat in fitting or own]


def _is_for(array: Sequence[int], chip: ChipConfig) -> bool:
    """Whether a claim is for the array of a chip; rows and columns may be the other way round."""
    rows, cols, cores = (*array, 1, 1, 1)[:3]
    return sorted((rows, cols)) == sorted((chip.rows, chip.cols)) and cores == len(chip.cores)


def _planned(entry: str, seat: _Seat, device: str | None, decided: str) -> Planned:
    point = grid.Point(seat.chip.name, seat.chip, seat.chip.digest, "", entry, seat.name, seat.macs, {})
    return Planned(point, grid.digest([1, point.content, device, decided]), decided)


def _is_foreign(entry: str, source: MappedSource | None) -> bool:
    """Whether an entry is somebody's code: an installed package, or a file that is there."""
    name, registry = (entry, REGISTRY) if source is None else (source.importer, IMPORTERS)
    base, _ = registry.split(name)
    place = base.partition(":")[0]
    if place.endswith(".py"):
        return Path(place).is_file()
    return base not in registry.shipped and base in registry.names()


def _explained(error: Exception, entry: str) -> Failure:
    why = failure(error, "reading")
    known = isinstance(error, PluginError | ValueError) and why.message
    return Failure(why.kind, why.stage, why.message if known else f"entry {entry}: {why.kind}: {why.message}")


def _failed(entry: str, seat: _Seat, device: str | None, why: Failure) -> PointRow:
    """The row of a point that cannot begin."""
    return PointRow(
        key="",
        chip=seat.chip.name,
        chip_digest=seat.chip.digest,
        scheduler=entry,
        workload=seat.name,
        measure=device or "model",
        status=FAILED,
        error=why.message,
        error_kind=why.kind,
        error_stage=why.stage,
    )
