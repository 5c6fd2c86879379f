"""Whether every instruction of a run was compared with the model: the trace records that its program must make, those
that the chip made by its own count, and those matched with their prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.program.names import Names, opcode_name, tile_name, unit_name
from meshloom.sched.program.program import Program

from ..devices.interface import Run
from ..devices.readout import records_expected, untraced
from .records import InstructionPlace, Match, Timed, label_of


class Completeness(TypedDict, total=False):
    """Fields of a result row."""

    records_expected: int
    records_compared: int
    record_problem: str
    untraced: str
    corrected_words: int


def completeness(match: Match, run: Run, program: Program, schedule: Schedule, chip: ChipConfig) -> Completeness:
    """How many trace records were expected and how many were compared with their prediction. If some are missing or
    wrong, the reason: which tile, how many, the first instruction without a record, and the fix. Empty after a fault.
    On a chip without trace records: what cannot be said (`untraced`). On one with `ecc`: how many words were corrected.
    """
    if run.fault is not None:
        return {}
    if why := untraced(chip):
        return {"untraced": why}
    from meshloom.hw.control.trace import Counter

    corrected = sum(counters[Counter.CORRECTED] for counters in run.counters.values()) if chip.ecc else 0
    due = records_expected(program, chip)
    counts = {tile: counters[Counter.RECORDS] for tile, counters in run.counters.items()}
    problem = _problem(match, run, due, counts, chip)
    if problem and match.absent:
        first, place = match.absent[0]
        problem += f"; the first without a record is {_instruction(first, place, program, schedule, chip)}"
        problem += f", predicted for cycle {first.start}"
    return {
        "records_expected": sum(due.values()),
        "records_compared": len(match.pairs),
        "record_problem": problem,
        "corrected_words": corrected,
    }


def _problem(match: Match, run: Run, due: Mapping[int, int], counts: Mapping[int, int], chip: ChipConfig) -> str:
    """What is wrong with the records of a run, as text; empty if nothing is."""
    if run.trace_shortage:
        return run.trace_shortage
    odd = [tile for tile in due if counts.get(tile, 0) != due[tile]]
    if match.absent and (tile := match.absent[0][0].tile) in odd:  # the tile of the first missing record
        odd = [tile, *(other for other in odd if other != tile)]
    if odd:
        tile, others = odd[0], f", and {len(odd) - 1} other tiles are off" if len(odd) > 1 else ""
        count, right = counts.get(tile, 0), due[tile]
        why = (
            "the run ended before all was executed: END must wait for every stream"
            if count < right
            else "an instruction was executed twice, or one that is not in the program"
        )
        return f"{tile_name(chip, tile)} made {count} trace records, its program makes {right}{others}; {why}"
    if match.strange:
        record = min(match.strange, key=lambda record: record.start)
        what = f"{unit_name(record.unit)} record of {opcode_name(record.opcode)} tag {record.tag}"
        return (
            f"{tile_name(chip, record.tile)} made a {what}, start {record.start}, which was not predicted: another "
            "program ran than the one compared, or instructions ran out of order"
        )
    if match.absent:
        tile = match.absent[0][0].tile
        return f"{len(match.absent)} predicted records are missing, the first of {tile_name(chip, tile)}"
    return ""


def _instruction(
    entry: Timed, place: InstructionPlace | None, program: Program, schedule: Schedule, chip: ChipConfig
) -> str:
    """Names the instruction of a missing record."""
    if place is not None:
        names = Names(chip, program, [op.label for op in schedule.operations])
        number = next(number for number, stream in enumerate(names.streams) if (stream.tile, stream.unit) == place[:2])
        text = names.instruction(number, place.index)
        return f"{text}, as {tile_name(chip, entry.tile)} executes it" if place.remote else text
    label = label_of(program, schedule, entry.tag, entry.tile)
    what = f"{tile_name(chip, entry.tile)} {unit_name(entry.unit)} {opcode_name(entry.opcode)} tag {entry.tag}"
    return what + f" ({label!r})" * bool(label)
