"""What a controller would save, and need, that searched for every route again instead of being told its waypoints.

The paper's controller runs Dijkstra's algorithm between waypoints. One that repeats the planner's search needs none, if
it sees what the planner saw: the reservations of all moves planned before. Moves are planned in the order of the
schedule, each into the gaps that earlier ones have left, and control packets leave in the order in which they fire. So
a route can be searched only when all moves planned before it have been, of which some fire later: these have to be read
and kept until then. And the table must reach from the cycle of the move to the last reservation so far. Both are lower
bounds, for a controller that searches as late as it may and in no time.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

from meshloom.hw.config import ChipConfig
from meshloom.hw.isa import Opcode

from ...ir.schedule import Move, Schedule
from .boot import boot_of
from .compile import code_count, code_place, compile_ahead
from .timetable import CodeTimes, Timed, Timetabler


@dataclass(frozen=True)
class Again:
    """Of a program: `instructions`, and those that only carry waypoints of `moves`; what must be `held`: moves that
    have been searched and fire later; `ahead`: cycles of reservations on each of `resources` (links and ports);
    `looked_at`: links that the planner looked at, for all moves."""

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
    made = compile_ahead(schedule, chip)
    code = made.orders.program.streams[0].instructions
    moves = sorted(
        (one for one in made.table.timed if isinstance(one.op, Move) and one.operation >= 0),
        key=lambda one: one.operation,
    )
    tile, address = code_place(schedule, chip)
    boot = boot_of(chip, tile, address, code_count(schedule))
    planner = Timetabler(schedule, chip, CodeTimes(boot.begins, boot.until, tile))
    planner.plan()
    return Again(
        len(code),
        sum(one.opcode is Opcode.ORDER and one.fields.get("count", 0) > 0 for one in code),
        len(moves),
        *_kept(moves),
        planner.mesh.resources,
        int(planner.space.tally.looked_at),
    )


def _kept(moves: list[Timed]) -> tuple[int, int]:
    """Most moves that fire later than one planned behind them, and most cycles from a move's fire time to the end of
    all reservations made before it; `moves` in the order of planning."""
    fires: list[int] = []
    held = ahead = last = 0
    for one in moves:
        held = max(held, len(fires) - bisect_right(fires, one.fire))
        ahead = max(ahead, last - one.fire)
        insort(fires, one.fire)
        last = max(last, one.arrival)
    return held, ahead
