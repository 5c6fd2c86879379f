"""What a timed schedule's figures count."""

from __future__ import annotations

from meshloom.hw.spec.isa import Opcode
from meshloom.sched.lowering.timed.again import waypoint_orders
from meshloom.sched.program.program import Instruction


def test_orders_with_any_number_of_waypoints_count_and_those_without_do_not() -> None:
    def order(**fields: int) -> Instruction:
        return Instruction(Opcode.ORDER, fields)

    assert waypoint_orders([]) == 0
    assert waypoint_orders([order(tile=3), order(tile=3, count=0)]) == 0
    assert [waypoint_orders([order(tile=3), order(count=count)]) for count in range(1, 4)] == [1, 1, 1]
    assert waypoint_orders([Instruction(Opcode.MOVE, {"count": 2}), order(count=1), order(count=2)]) == 2
