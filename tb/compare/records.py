"""Compares measured with predicted cycles, instruction by instruction."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import FETCH_TAG, Opcode, Unit
from meshloom.sched.ir.schedule import Gemm, Move, Operation, Schedule
from meshloom.sched.model.timeline import Executed
from meshloom.sched.program.program import OPERATIONS, TAGS, Program

from ..devices.interface import Run
from ..devices.readout import Record
from ..results.figures import Divergence, FaultReport

_Key = tuple[int, Unit, Opcode, int]


class CompareError(ValueError):
    """Records of another program; the message names the first."""


class Timed(Protocol):
    """What trace records and predictions have in common."""

    @property
    def tile(self) -> int: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def opcode(self) -> Opcode: ...
    @property
    def tag(self) -> int: ...
    @property
    def wait(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


T = TypeVar("T", bound=Timed)


class InstructionPlace(NamedTuple):
    """Instruction `index` of the stream of a unit. `remote`: its execution by the mover of another tile (a pull leaves
    two records: request and execution)."""

    tile: int
    unit: Unit
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]  (nobody looks for a value in a place)
    remote: bool = False


@dataclass(frozen=True)
class InstructionPair:
    """One instruction, measured and predicted; `place` if the program is known."""

    measured: Record
    predicted: Executed
    place: InstructionPlace | None = None

    @property
    def differs(self) -> bool:
        """Whether start or end differ at all."""
        return (self.measured.start, self.measured.end) != (self.predicted.start, self.predicted.end)


class _Due(NamedTuple):
    """An instruction whose record is the next of its kind. `after`: the one that must have started before it."""

    place: InstructionPlace
    tag: int
    after: InstructionPlace | None


def locate(records: Sequence[T], program: Program, strange: list[T] | None = None) -> dict[InstructionPlace, T]:
    """Each record of a run, measured or predicted, by its instruction, in the order of start.

    Records of one kind are in the order of their stream: what a front end does, what its own mover executes, and what
    another mover executes for it. Tags (which wrap around in long programs) only distinguish the kinds: a record
    belongs to the request in flight, or else to the stream's next instruction, that has its tag. A record that belongs
    to none is added to `strange`; if that is not given, CompareError is raised.
    """
    queues = _queues(program)
    items: dict[InstructionPlace, T] = {}
    for record in sorted(records, key=lambda record: record.start):
        if record.unit is Unit.NONE:
            continue  # of a packet that has arrived, not of an instruction
        fitting = [
            queue
            for queue in queues.get((record.tile, record.unit, record.opcode), ())
            if queue and queue[0].tag == record.tag
        ]
        if not fitting and strange is not None:
            strange.append(record)
            continue
        if not fitting:
            raise CompareError(
                f"tile {record.tile:#04x}: {record.unit.name.lower()} record of a {record.opcode.name} with tag "
                f"{record.tag} and start {record.start} matches no instruction that can be next; give the run's program"
            )
        # an earlier record may be missing because the trace memory of another tile was full
        queue = next((queue for queue in fitting if queue[0].after in items), fitting[0])
        items[queue.popleft().place] = record
    return items


def _queues(program: Program) -> dict[tuple[int, Unit, Opcode], list[deque[_Due]]]:
    """By tile, unit and opcode of the record: instructions in stream order, those requested by other tiles first."""
    dues: dict[tuple[int, Unit, Opcode], dict[tuple[bool, int, bool], deque[_Due]]] = defaultdict(dict)
    for stream in (*program.streams, program.boot):
        before = None
        for index, instruction in enumerate(stream.instructions):
            opcode, fields = instruction.opcode, instruction.fields
            tag = fields.get("tag", 0)
            if opcode is Opcode.END or (opcode is Opcode.MOVE and tag == FETCH_TAG):
                continue  # they leave no record
            place = InstructionPlace(stream.tile, stream.unit, index)
            pulled = opcode is Opcode.MOVE and fields["src_tile"] != stream.tile
            queues = dues[stream.tile, stream.unit, opcode]
            queues.setdefault((False, stream.tile, pulled), deque()).append(_Due(place, tag, before))
            if pulled:
                queues = dues[fields["src_tile"], stream.unit, opcode]
                due = _Due(place._replace(remote=True), tag, place)
                queues.setdefault((True, stream.tile, False), deque()).append(due)
            before = place
    return {key: [queues[kind] for kind in sorted(queues, reverse=True)] for key, queues in dues.items()}


def operations(program: Program, schedule: Schedule) -> dict[tuple[int, Unit, int], int]:
    """Index in the schedule of each instruction (tile, unit, index in the stream) that is an operation: a unit issues
    its operations in list order. Raises CompareError if the program is not made from this schedule."""
    due: dict[tuple[int, Unit], deque[int]] = defaultdict(deque)
    for number, op in enumerate(schedule.operations):
        due[_stream(op)].append(number)
    counts: dict[tuple[int, Unit, int], int] = {}
    for stream in program.streams:
        mine = due[stream.tile, stream.unit]
        for index, instruction in enumerate(stream.instructions):
            if instruction.opcode in OPERATIONS:
                if not mine:
                    raise CompareError(
                        f"tile {stream.tile:#04x} has more instructions than the schedule has operations"
                    )
                counts[stream.tile, stream.unit, index] = mine.popleft()
    if missing := sorted(number for mine in due.values() for number in mine):
        label = schedule.operations[missing[0]].label
        raise CompareError(f"operation {missing[0]} ({label!r}) of the schedule is not in the program; lower it again")
    return counts


def numbered(program: Program, schedule: Schedule) -> dict[tuple[int, Unit, int], int]:
    """The same by tags, including programs timed ahead; for programs without a tag map, `operations`."""
    if not program.operation_of_tag:
        return operations(program, schedule)
    return {
        (stream.tile, stream.unit, index): number
        for stream in program.streams
        for index, number in enumerate(program.operations_of(stream))
        if number is not None
    }


def _stream(op: Operation) -> tuple[int, Unit]:
    if isinstance(op, Move):
        return op.issuer, Unit.MOVER
    return op.core, Unit.MATRIX if isinstance(op, Gemm) else Unit.VECTOR


@dataclass(frozen=True)
class Match:
    """Records and predictions of a run, matched. `pairs`: in the order of measured start. `strange`: records without a
    prediction. `absent`: predictions without a record, in the order of start, with their place if known."""

    pairs: list[InstructionPair]
    strange: list[Record]
    absent: list[tuple[Executed, InstructionPlace | None]]


def match(records: Sequence[Record], executed: Sequence[Executed], program: Program | None = None) -> Match:
    """Matches each record with its prediction.

    With the program, by instruction (`locate`). Without it, an instruction is identified by tile, unit, opcode and tag,
    and where tags repeat, by its position among equals; so are packet arrivals, in both cases.
    """
    if program is None or program.ahead:  # there, tags are unique
        return _in_turn(records, executed)
    strange: list[Record] = []
    predicted = locate(executed, program)
    measured = locate(records, program, strange)
    pairs = [
        InstructionPair(record, predicted[place], place) for place, record in measured.items() if place in predicted
    ]
    strange += [record for place, record in measured.items() if place not in predicted]
    absent: list[tuple[Executed, InstructionPlace | None]] = [
        (entry, place) for place, entry in predicted.items() if place not in measured
    ]
    arrived = [record for record in records if record.unit is Unit.NONE]
    expected = [entry for entry in executed if entry.unit is Unit.NONE]
    if arrived or expected:  # both are in order; without arrivals nothing is sorted again
        packets = _in_turn(arrived, expected)
        pairs = sorted(pairs + packets.pairs, key=lambda pair: pair.measured.start)
        strange += packets.strange
        absent = sorted(absent + packets.absent, key=lambda result: result[0].start)
    return Match(pairs, strange, absent)


def pair(
    records: Sequence[Record], executed: Sequence[Executed], program: Program | None = None
) -> list[InstructionPair]:
    """The pairs of `match`, without unmatched records and predictions."""
    return match(records, executed, program).pairs


def _in_turn(records: Sequence[Record], executed: Sequence[Executed]) -> Match:
    """By tile, unit, opcode and tag, and where they repeat, by position among equals."""
    predictions: dict[_Key, deque[Executed]] = defaultdict(deque)
    for entry in sorted(executed, key=lambda entry: entry.start):
        predictions[_key(entry)].append(entry)
    pairs: list[InstructionPair] = []
    strange: list[Record] = []
    for record in sorted(records, key=lambda record: record.start):
        if due := predictions[_key(record)]:
            pairs.append(InstructionPair(record, due.popleft()))
        else:
            strange.append(record)
    absent = sorted((entry for left in predictions.values() for entry in left), key=lambda entry: entry.start)
    return Match(pairs, strange, [(entry, None) for entry in absent])


def _key(record: Timed) -> _Key:
    return record.tile, record.unit, record.opcode, record.tag


def first_divergence(
    pairs: Sequence[InstructionPair],
    schedule: Schedule,
    operation_of_tag: Mapping[int, int],
    program: Program | None = None,
) -> Divergence | None:
    """The first instruction, by measured start, that did not run when predicted. Its operation is found by its place in
    the program, if both are known, otherwise by its tag (which wraps around in long programs)."""
    result = next((value for value in pairs if value.differs), None)
    if result is None:
        return None
    record = result.measured
    index = None
    # the boot program and the SYNCs between operations may have the same tags as operations
    if record.opcode in OPERATIONS:
        if program is not None and result.place is not None:
            index = operations(program, schedule).get(result.place[:3])
        else:
            index = operation_of_tag.get(record.tag)
    return Divergence(
        tile=record.tile,
        unit=record.unit.name.lower(),
        tag=record.tag,
        operation=index,
        label=schedule.operations[index].label if index is not None else record.opcode.name,
        predicted_start=result.predicted.start,
        predicted_end=result.predicted.end,
        measured_start=record.start,
        measured_end=record.end,
    )


def fault_reports(run: Run, program: Program, schedule: Schedule, chip: ChipConfig) -> tuple[FaultReport, ...]:
    """The fault that stopped a run, if any, with its operation's label; after a watchdog, what waited for what."""
    if run.fault is None:
        return ()
    from .explain import explain

    fault = run.fault
    return (
        FaultReport(
            cause=fault.cause.name,
            tile=fault.tile,
            unit=fault.unit.name.lower(),
            tag=fault.tag,
            value=fault.value,
            label=label_of(program, schedule, fault.tag),
            explanation=explain(run, program, schedule, chip),
        ),
    )


def label_of(program: Program, schedule: Schedule, tag: int, tile: int | None = None) -> str:
    """Label of the operation with a tag; empty if lowering added the instruction.

    Long programs use a tag several times: with `tile`, the operations among them that this tile issues or executes,
    joined by "or".
    """
    last = program.operation_of_tag.get(tag)
    if last is None:
        return ""
    if tile is None:
        return schedule.operations[last].label
    ops = [schedule.operations[number] for number in range(last, -1, -TAGS)][::-1]
    here = [op for op in ops if tile in ((op.issuer, op.src.tile) if isinstance(op, Move) else (op.core,))]
    return " or ".join(dict.fromkeys(op.label for op in here or ops))
