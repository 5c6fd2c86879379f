"""From a schedule to its ahead-of-time program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.contracts import OFFER_CYCLES

from ...ir.schedule import Move, Schedule
from ...program.program import Program
from ...routing.hardware import DttError, TimingFault
from ..extent import dram_ends
from . import dram_train
from .boot import boot_of
from .orders import Late, Orders, code_packet, code_room, code_times, emit, keep_code_times
from .timetable import CodeTimes, Timetable, Timetabler
from .windows import bursts, launch, train

#: Attempts to find space for the controller's code, and times for its packets.
_ATTEMPTS = 30
#: Times reserved for code as a multiple of those needed, and how many of them close together: the best plan is taken.
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

    Raises DttError for a chip that cannot run one, TimingFault naming operation, cycle and wire for an operation that
    cannot be timed, ScheduleError if the schedule does not fit the chip.
    """
    from ...ir.validation import validate

    validate(schedule, chip)
    if chip.dtt is None:
        raise DttError(
            f'chip {chip.name} has no controller; draw a "dtt" tile into its floorplan, as in the built-in chip ahead16'
        )
    if not chip.noc.arrivals:
        raise DttError(
            f"chip {chip.name}: packets record no arrivals, so no plan could be verified; set noc.arrivals = true"
        )
    for index, op in enumerate(schedule.operations):
        if isinstance(op, Move) and chip.code_channel in (op.src.tile, op.dst.tile):
            raise DttError(
                f"operation {index} ({op.label or 'a move'}) uses DRAM tile {chip.code_channel:#04x}, which holds the "
                "controller's code only; use another, or set controller_channel = false"
            )
    code_tile, code_address = code_place(schedule, chip)
    programs: list[Ahead] = []
    error: DttError | None = None
    for share in _SHARES:
        try:
            ahead = _compile(schedule, chip, code_tile, code_address, *share)
        except TimingFault as fault:
            error = fault
            continue
        programs.append(ahead)
        brought = [one.departure for one in ahead.orders.timed.values() if one.operation < 0]
        if not brought:
            break
        # again, with only the times that were used
        with suppress(TimingFault):
            programs.append(_compile(schedule, chip, code_tile, code_address, *share, brought))
    if not programs:
        assert error is not None
        raise error
    return min(programs, key=lambda one: one.orders.cycles)


def _compile(
    schedule: Schedule,
    chip: ChipConfig,
    code_tile: int,
    code_address: int,
    share: float,
    dense: int,
    times: Sequence[int] = (),
) -> Ahead:
    """One attempt. `times`: those to be reserved for code; if empty, those of `code_times`."""
    floors: dict[int, int] = {}
    lengths: dict[int, int] = {}
    count = code_count(schedule)
    cycles = 0  # of the previous plan, if code must be brought
    error: TimingFault | None = None
    for _ in range(_ATTEMPTS):
        planner = Timetabler(schedule, chip, code_begins(chip, code_tile, code_address, count), floors, lengths)
        packets = max(0, -(-count // code_packet(chip)) - code_room(chip)) + 1
        if times:
            keep_code_times(planner, code_address, times)
        elif cycles:
            keep_code_times(planner, code_address, code_times(planner, packets, cycles, share, dense))
        table = planner.plan()
        if not chip.controller_channel and not times and not cycles and count > chip.ring(TileKind.DTT):
            cycles = table.cycles
            continue
        try:
            orders = emit(planner, table, code_address)
        except Late as late:
            error = late
            floors |= late.floors
            continue
        if held := _out_of_step(orders, chip):
            error = _held_up(held, chip)
            before = floors.copy(), lengths.copy()
            for one in held:
                floors[one.operation] = max(one.fire, floors.get(one.operation, 0))
                lengths[one.operation] = max(one.cycles, lengths.get(one.operation, 0))
            if (floors, lengths) == before:  # some have more time reserved than they now take
                lengths |= {one.operation: one.cycles for one in held}
            continue
        length = len(orders.program.streams[0].instructions)
        if min(length, chip.ring(TileKind.DTT)) <= count:
            return Ahead(schedule, table, orders)
        count = length  # way-points have made it longer: its first ring takes longer to arrive
    assert error is not None
    raise error


@dataclass(frozen=True)
class _Held:
    """A MOVE out of DRAM that deviates from its plan: when it can fire, and how many cycles its flits then take."""

    operation: int
    label: str
    tile: int
    planned: int
    fire: int
    cycles: int


def _held_up(held: Sequence[_Held], chip: ChipConfig) -> TimingFault:
    """The error for MOVEs for which there is no plan."""
    first = min(held, key=lambda one: one.planned)
    return TimingFault(
        f"operation {first.operation} ({first.label or 'a move'}) is to fire in cycle {first.planned}, but earlier"
        f" MOVEs out of DRAM tile {first.tile:#04x} delay it until {first.fire} in every plan; make their runs longer,"
        f" or reduce dram.latency = {chip.dram.latency}",
        str(first.operation),
        first.planned,
        f"channel of {first.tile:#04x}",
    )


def _out_of_step(orders: Orders, chip: ChipConfig) -> list[_Held]:
    """MOVEs out of DRAM that wait for earlier ones: for their short bursts, for an entry in the mover's queue, or for
    the controller's first code to leave. If a MOVE of code would wait, the MOVE before it is delayed instead."""
    late: list[_Held] = []
    (code,) = orders.program.streams
    boot = boot_of(chip, code.dram_tile, code.address, len(code.instructions))
    for tile in chip.drams:
        state = boot.mover(chip) if tile == code.dram_tile else dram_train.new_state()
        moves = [one for one in orders.timed.values() if isinstance(one.op, Move) and one.op.src.tile == tile]
        before = None
        for one in sorted(moves, key=lambda one: one.fire):
            assert isinstance(one.op, Move)
            _, words = train(one.op.body, chip)
            its = np.array(bursts(one.op.body, chip)), np.array(words)
            accepted = dram_train.earliest(state, one.start)
            leaves, last = dram_train.send(state, accepted, chip.dram.latency, *its)
            fire = max(accepted - OFFER_CYCLES, leaves - launch(chip, tile))
            if (accepted, leaves, last) != (one.start, one.departure, one.end - 1):
                if one.operation >= 0:
                    late.append(_Held(one.operation, one.op.label, tile, one.fire, fire, last - leaves + 1))
                elif before is not None:
                    later = one.fire + 1
                    late.append(_Held(before.operation, before.op.label, tile, before.fire, later, before.flits))
            if one.operation >= 0:
                before = one
    return late


def code_place(schedule: Schedule, chip: ChipConfig) -> tuple[int, int]:
    """DRAM tile, and first word there, of a schedule's program: the channel that holds nothing else, or behind
    everything in the one that is read least."""
    used = dram_ends(schedule, chip)
    read = dict.fromkeys(chip.drams, 0)
    for op in schedule.operations:
        if isinstance(op, Move) and op.src.tile in read:
            read[op.src.tile] += op.words
    tile = min(chip.drams, key=lambda tile: (read[tile], tile)) if chip.code_channel is None else chip.code_channel
    return tile, -(-used.get(tile, 0) // 64) * 64


def code_begins(chip: ChipConfig, tile: int, address: int, count: int) -> CodeTimes:
    """When the first ring of `count` instructions is brought from a DRAM tile."""
    boot = boot_of(chip, tile, address, count)
    # afterwards a code channel carries nothing that data could meet
    return CodeTimes(boot.begins, boot.begins if chip.controller_channel else boot.until, tile)


def code_count(schedule: Schedule) -> int:
    """Instructions of a schedule's program, as long as no MOVE needs waypoints."""
    return sum(1 if isinstance(op, Move) else 2 for op in schedule.operations) + 1
