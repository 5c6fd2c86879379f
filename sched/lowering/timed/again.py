"""What a controller would save, and need, that searched for every route again instead of being told its waypoints.

The paper's controller runs Dijkstra's algorithm between waypoints. One that repeats the planner's search needs none, if
it sees what the planner saw: the reservations of all moves planned before. Moves are planned in the order of the
schedule, each into the gaps that earlier ones have left, and the packets for a mover must leave in the order in which
they fire, since it queues them. So a move is kept from its search until the last one of its mover that fires earlier
has been searched. And the table must reach from the cycle of a move to the last reservation before it. Both are lower
bounds, for a controller that searches in no time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode

from ...ir.schedule import Move, Schedule
from ...program.program import Instruction
from .boot import boot_of
from .compile import code_count, code_place, compile_ahead
from .timetable import CodeTimes, Timed, Timetabler


@dataclass(frozen=True)
class Again:
    """Of a program: `instructions`, and those that only carry waypoints of `moves`; what must be `held`: moves that
    have been searched and may not be sent yet; `ahead`: cycles of reservations on each of `resources` (links and
    ports); `looked_at`: links that the planner looked at, for all moves."""

    instructions: int
    waypoints: int
    moves: int
    held: int
    ahead: int
    resources: int
    looked_at: int

    @property
    def table_bits(self) -> int:
        """A bit for each resource and cycle."""
        return self.resources * self.ahead


def search_again(schedule: Schedule, chip: ChipConfig) -> Again:
    """The figures of a timed schedule. Raises as `compile_ahead`."""
    ahead = compile_ahead(schedule, chip)
    code = ahead.orders.program.streams[0].instructions
    moves = sorted(
        (one for one in ahead.table.timed if isinstance(one.op, Move) and one.operation >= 0),
        key=lambda one: one.operation,
    )
    tile, address = code_place(schedule, chip)
    boot = boot_of(chip, tile, address, code_count(schedule))
    planner = Timetabler(schedule, chip, CodeTimes(boot.begins, boot.until, tile))
    planner.plan()
    return Again(
        len(code),
        waypoint_orders(code),
        len(moves),
        *ahead_of_search(moves),
        planner.mesh.resources,
        int(planner.space.tally.looked_at),
    )


def waypoint_orders(code: Sequence[Instruction]) -> int:
    """Instructions that only carry waypoints; an ORDER of a computation carries its core instead."""
    return sum(one.opcode is Opcode.ORDER and one.fields.get("count", 0) > 0 for one in code)


def ahead_of_search(moves: list[Timed]) -> tuple[int, int]:
    """Most moves that may not be sent yet at a time, and most cycles from a move's fire time to the end of all
    reservations made before it; `moves` in the order of planning."""
    changes = [0] * (len(moves) + 1)  # of the number that is kept, from a move's search on
    movers: dict[int, list[int]] = {}
    for place, one in enumerate(moves):
        movers.setdefault(one.path[0], []).append(place)
    for its in movers.values():
        # the earliest fire time from each of them on rises, and its last one below a cycle is that of a move itself
        least = [*accumulate((moves[place].fire for place in reversed(its)), min)][::-1]
        for number, place in enumerate(its):
            last = bisect_left(least, moves[place].fire) - 1
            if last > number:
                changes[place] += 1
                changes[its[last]] -= 1
    ahead = last_cycle = 0
    for one in moves:
        ahead = max(ahead, last_cycle - one.fire)
        last_cycle = max(last_cycle, one.arrival)
    return max(accumulate(changes), default=0), ahead
