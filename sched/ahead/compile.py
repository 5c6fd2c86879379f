"""From a schedule to its ahead-of-time program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from meshloom.hw.config import ChipConfig, TileKind
from meshloom.hw.isa import OFFSET_BITS, Opcode, Unit

from ..dtt.hardware import DttError
from ..model.timeline import Machine
from ..program.program import Instruction, Program, Stream, next_tag
from ..schedule import Move, Schedule, intervals
from . import dram_train
from .orders import Late, Orders, code_packet, code_room, code_times, emit, keep_code_times
from .timetable import Timetable, Timetabler
from .windows import bursts, launch, train

_OFFSET = (1 << OFFSET_BITS) - 1
#: Attempts to find room for the controller's code, and time for its packets.
_ATTEMPTS = 30
#: How many more times are kept for code than are needed, and how many of them close to each other: the best is taken.
_SHARES = ((1.5, 0), (1.5, 16), (1.5, 64), (4.0, 0))


@dataclass(frozen=True)
class Ahead:
    """A schedule with its timetable and program."""

    schedule: Schedule
    table: Timetable
    orders: Orders

    @property
    def program(self) -> Program:
        return self.orders.program


def compile_ahead(schedule: Schedule, chip: ChipConfig) -> Ahead:
    """Plans a schedule and makes its program.

    Raises DttError for a chip that cannot run one, TimingFault naming operation, cycle and wire for what cannot be
    timed, ScheduleError when the schedule does not fit the chip.
    """
    from ..validation import validate

    validate(schedule, chip)
    if chip.dtt is None:
        raise DttError(
            f'chip {chip.name} has no controller; draw a "dtt" tile into its floorplan, as in the built-in chip ahead16'
        )
    if not chip.noc.arrivals:
        raise DttError(f"chip {chip.name}: nobody could tell when its data arrive; set noc.arrivals = true")
    used = _used(schedule, chip)
    read = dict.fromkeys(chip.drams, 0)
    for op in schedule.operations:
        if isinstance(op, Move) and op.src.tile in read:
            read[op.src.tile] += op.words
    code_tile = min(chip.drams, key=lambda tile: (read[tile], tile))
    code_address = -(-used[code_tile] // 64) * 64
    made: list[Ahead] = []
    error: DttError | None = None
    for share in _SHARES:
        try:
            found = _compile(schedule, chip, code_tile, code_address, *share)
        except Late as late:
            error = late
            continue
        made.append(found)
        brought = [one.departure for one in found.orders.timed.values() if one.operation < 0]
        if not brought:
            break
        # once more, with the times that have been used and no others
        with suppress(Late):
            made.append(_compile(schedule, chip, code_tile, code_address, *share, brought))
    if not made:
        assert error is not None
        raise error
    return min(made, key=lambda one: one.orders.cycles)


def _compile(
    schedule: Schedule,
    chip: ChipConfig,
    code_tile: int,
    code_address: int,
    share: float,
    dense: int,
    times: Sequence[int] = (),
) -> Ahead:
    """One attempt. `times`: those to be kept for code; if there are none, as `code_times` has them."""
    floors: dict[int, int] = {}
    lengths: dict[int, int] = {}
    count = sum(1 if isinstance(op, Move) else 2 for op in schedule.operations) + 1
    cycles = 0  # of the plan before, if there is code to be brought
    error: Late | None = None
    for _ in range(_ATTEMPTS):
        begins, code_until = boot_cycles(chip, code_tile, code_address, count)
        planner = Timetabler(schedule, chip, begins, code_until, code_tile, floors, lengths)
        packets = max(0, -(-count // code_packet(chip)) - code_room(chip)) + 1
        if times:
            keep_code_times(planner, code_address, times)
        elif cycles:
            keep_code_times(planner, code_address, code_times(planner, packets, cycles, share, dense))
        table = planner.plan()
        if not times and not cycles and count > chip.ring(TileKind.DTT):
            cycles = table.cycles
            continue
        try:
            orders = emit(planner, table, code_address)
        except Late as late:
            error = late
            floors |= late.floors
            continue
        if wrong := _out_of_step(orders, chip):
            for index, (fire, cycles_taken) in wrong.items():
                floors[index] = max(fire, floors.get(index, 0))
                lengths[index] = max(cycles_taken, lengths.get(index, 0))
            continue
        length = len(orders.program.streams[0].instructions)
        if min(length, chip.ring(TileKind.DTT)) <= count:
            return Ahead(schedule, table, orders)
        count = length  # way-points have made it longer: its first ring comes for longer
    if error is None:
        raise DttError("MOVEs out of DRAM hold each other up, however they are planned; make their runs longer")
    raise error


def _out_of_step(orders: Orders, chip: ChipConfig) -> dict[int, tuple[int, int]]:
    """MOVEs out of DRAM whose short bursts wait for those of the one before: fire time and length to plan with."""
    found: dict[int, tuple[int, int]] = {}
    for tile in chip.drams:
        state = dram_train.new_state()
        moves = [one for one in orders.timed.values() if isinstance(one.op, Move) and one.op.src.tile == tile]
        for one in sorted(moves, key=lambda one: one.fire):
            assert isinstance(one.op, Move)
            _, words = train(one.op.body)
            its = np.array(bursts(one.op.body)), np.array(words)
            taken = dram_train.earliest(state, one.start)
            leaves, last = dram_train.send(state, taken, chip.dram.latency, *its)
            if (leaves, last) != (one.departure, one.end - 1) and one.operation >= 0:
                found[one.operation] = leaves - launch(chip, tile), last - leaves + 1
    return found


def boot_cycles(chip: ChipConfig, code_tile: int, code_address: int, count: int) -> tuple[int, int]:
    """(the cycle from which the controller can send, the one in which its first ring is there) of a program with
    `count` instructions: as the model plays one of which every instruction is a SYNC."""
    assert chip.dtt is not None
    count = min(count, chip.ring(TileKind.DTT))
    stream = [Instruction(Opcode.SYNC, {"tag": next_tag(index)}) for index in range(count - 1)]
    stream.append(Instruction(Opcode.SYNC, {"tag": next_tag(count), "tile": chip.host, "sem": 0, "n": 1}))
    fetch = {
        "tag": next_tag(0), "tile": chip.dtt, "unit": int(Unit.MOVER), "dram": code_tile,
        "addr": code_address, "count": count,
    }  # fmt: skip
    boot = (
        Instruction(Opcode.FETCH, fetch),
        Instruction(Opcode.SYNC, {"tag": next_tag(1), "wait_sem": 0, "wait_n": 1}),
        Instruction(Opcode.END),
    )
    beyond = code_address + count * chip.instruction_words
    streams = Stream(chip.dtt, Unit.MOVER, code_tile, code_address, tuple(stream))
    program = Program(chip.digest, (streams,), Stream(chip.host, Unit.MOVER, code_tile, beyond, boot), {})
    machine = Machine(program, chip)
    machine.play()
    there = machine.streams[chip.dtt, Unit.MOVER].whole
    first = min(entry.start for entry in machine.executed if entry.tile == chip.dtt)
    return first + 2, there + 4


def _used(schedule: Schedule, chip: ChipConfig) -> dict[int, int]:
    """First word of each DRAM tile behind everything that tensors and operations touch."""
    used = dict.fromkeys(chip.drams, 0)
    for tensor in schedule.tensors:
        for piece in tensor.pieces:
            used[piece.tile] = max(used[piece.tile], (piece.address & _OFFSET) + piece.words)
    for op in schedule.operations:
        if not isinstance(op, Move):
            continue
        for span in (op.src, op.dst):
            if span.tile in used:
                used[span.tile] = max(used[span.tile], intervals(span, op.words)[-1][1])
    return used
