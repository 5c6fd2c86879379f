"""Where model and RTL differ: the first instruction, the mechanism that it tells of, and how it spreads."""

from __future__ import annotations

from dataclasses import dataclass

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Region, Unit, split_address
from meshloom.sched.program.names import tile_name

from ..results.explanation import Spread, StreamLag
from ..results.figures import Divergence
from .finished import FinishedRun
from .records import InstructionPlace


@dataclass
class _Lag:
    """Of one unit."""

    first: int = -1
    differing: int = 0
    instructions: int = 0
    largest: int = 0


def spread(run: FinishedRun) -> Spread:
    """How the records of a run differ from their predictions, by unit, in the order in which the difference came."""
    lags: dict[tuple[int, Unit], _Lag] = {}
    first: InstructionPlace | None = None
    pairs = [(place, value) for place, value in run.measured.items() if place in run.predicted]
    pairs.sort(key=lambda pair: pair[1].start)
    for place, entry in pairs:
        expected, lag = run.predicted[place], lags.setdefault((entry.tile, entry.unit), _Lag())
        lag.instructions += 1
        begun, ended = entry.start - expected.start, entry.end - expected.end
        if not begun and not ended:
            continue
        first = place if first is None else first
        lag.first = entry.start if lag.first < 0 else lag.first
        lag.differing += 1
        lag.largest = max(lag.largest, begun, ended, key=abs)
    streams = [
        StreamLag(tile=tile, unit=unit.name.lower(), **vars(lag))
        for (tile, unit), lag in sorted(lags.items(), key=lambda each: each[1].first)
        if lag.differing
    ]
    return Spread(
        instructions=len(pairs),
        differing=sum(stream.differing for stream in streams),
        unmatched=run.unmatched,
        end_lag=run.row.rtl_cycles - run.row.model_cycles if run.measured else 0,
        first=None if first is None else _divergence(run, first),
        mechanism="" if first is None else mechanism(run, first),
        streams=tuple(streams),
    )


def _divergence(run: FinishedRun, place: InstructionPlace) -> Divergence:
    entry, expected = run.measured[place], run.predicted[place]
    return Divergence(
        tile=entry.tile,
        unit=entry.unit.name.lower(),
        tag=entry.tag,
        operation=run.number(place),
        label=run.label(place) or entry.opcode.name,
        predicted_start=expected.start,
        predicted_end=expected.end,
        measured_start=entry.start,
        measured_end=entry.end,
    )


def mechanism(run: FinishedRun, place: InstructionPlace) -> str:
    """What made the first instruction differ, as far as its record tells: nothing that began before it did."""
    entry, expected = run.measured[place], run.predicted[place]
    if entry.start != expected.start:
        late = entry.start - expected.start
        if entry.wait != expected.wait:
            return f"it waited {_more(entry.wait - expected.wait)} for its semaphore: the post's way, or its count"
        return f"it began {_later(late)}, although its wait was as predicted: its code, its unit or its mover's queue"
    longer = _more(entry.end - expected.end)
    match entry.opcode:
        case Opcode.MOVE if entry.tile != _source(run, place):
            return f"it began in time, and the request plane took it in {longer}: a queue of requests"
        case Opcode.MOVE:
            return f"it began in time, and lasted {longer} (stalled for {entry.stall} cycles): {_of_move(run, place)}"
        case Opcode.SYNC | Opcode.FETCH:
            return f"it began in time, and lasted {longer}: the post or request plane took its packet then"
        case _:
            return f"it began in time, and lasted {longer}: the unit's contract in hw/spec/timing.py"


def _fields(run: FinishedRun, place: InstructionPlace) -> dict[str, int]:
    streams = (*run.program.streams, run.program.boot)
    stream = next(one for one in streams if (one.tile, one.unit) == (place.tile, place.unit))
    return dict(stream.instructions[place.index].fields)


def _source(run: FinishedRun, place: InstructionPlace) -> int:
    return _fields(run, place)["src_tile"]


def _of_move(run: FinishedRun, place: InstructionPlace) -> str:
    fields = _fields(run, place)
    source, target = fields["src_tile"], fields["dst_tile"]
    channels = [tile_name(run.chip, tile) for tile in (source, target) if tile in run.chip.drams]
    if channels:
        return f"the channel of {' and '.join(channels)}, or traffic from it"
    if (source in run.chip.cores and split_address(fields["src"])[0] == Region.ACC) or _drained(run.chip, fields):
        return f"the ports of ACC and OUT in {tile_name(run.chip, source)} and {tile_name(run.chip, target)}"
    return f"traffic between {tile_name(run.chip, source)} and {tile_name(run.chip, target)}"


def _drained(chip: ChipConfig, fields: dict[str, int]) -> bool:
    """Whether it writes a memory into which the drain path has priority."""
    return fields["dst_tile"] in chip.cores and split_address(fields["dst"])[0] in (Region.ACC, Region.OUT)


def _more(cycles: int) -> str:
    return f"{abs(cycles)} cycle{'s' * (abs(cycles) != 1)} {'longer' if cycles > 0 else 'less'}"


def _later(cycles: int) -> str:
    return f"{abs(cycles)} cycle{'s' * (abs(cycles) != 1)} {'later' if cycles > 0 else 'earlier'}"
