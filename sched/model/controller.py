"""The model's ahead-of-time controller: when each of its control packets is sent, and to which unit.

Mirrors `hw/dtt/controller.py` and `hw/dtt/route_builder.py`, whose docstrings give the cycle counts.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.contracts import CONTROLLER_CYCLES, PACE_CYCLES, RING_CYCLES, ROUTE_BUILD_CYCLES
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.hw.spec.routes import dimension_ordered, encode

from ..program.program import Instruction, Program, Stream
from .machine import Executes, Machine

_COMPUTES = {Opcode.GEMM: Unit.MATRIX, Opcode.VEC: Unit.VECTOR}


def pushed_streams(program: Program, chip: ChipConfig) -> list[Stream]:
    """The instructions that the controller sends to each computing unit, in order, as that unit's stream."""
    codes: dict[tuple[int, Unit], list[Instruction]] = defaultdict(list)
    for stream in program.streams:
        if stream.tile != chip.dtt:
            continue
        tile = 0
        for instruction in stream.instructions:
            if instruction.opcode is Opcode.ORDER:
                tile = instruction.fields.get("tile", 0)
            elif (unit := _COMPUTES.get(instruction.opcode)) is not None:
                codes[tile, unit].append(instruction)
    return [Stream(tile, unit, chip.drams[0], 0, tuple(code)) for (tile, unit), code in codes.items()]


class Controller(Executes):
    """The controller of tile `tile`."""

    def __init__(self, machine: Machine, tile: int) -> None:
        self.machine, self.tile = machine, tile
        self.order: dict[str, int] = {}
        room = machine.chip.mover_queue
        self.fired: dict[tuple[int, Unit], deque[int]] = defaultdict(lambda: deque(maxlen=room))

    def own(
        self, opcode: Opcode, fields: dict[str, int], waited: int, cycle: int, accept: Callable[[int], None]
    ) -> None:
        """An instruction of the tile's stream, offered in `cycle`; `accept` is called when it has been sent."""
        machine, chip = self.machine, self.machine.chip
        if opcode is Opcode.ORDER:
            self.order = fields
            self._done(opcode, fields, waited, cycle, cycle)
            accept(cycle)
            return
        order, self.order = self.order, {}
        offered = cycle + CONTROLLER_CYCLES
        if opcode is Opcode.MOVE:
            target, unit = fields["src_tile"], Unit.MOVER
            if order.get("count", 0):
                path = self._path(fields, order)
                route = encode(path, chip.width, chip.height)
                turns = sum(turn << 2 * at for at, turn in enumerate(route))
                fields = fields | {"routed": 1, "turns": turns}
                offered = cycle + len(path) - 1 + order["count"] + ROUTE_BUILD_CYCLES
            if channel := order.get("channel", 0):
                fields = fields | {"channel": channel}
            mover = machine.movers[target]
            gate = mover.gate

            def arrived(now: int) -> None:
                mover.request(fields, self.tile, now)
        else:
            target, unit = order["tile"], _COMPUTES[opcode]
            front = machine.streams[target, unit]
            gate = None

            def arrived(now: int) -> None:
                front.arrived(now + RING_CYCLES)

        fired = self.fired[target, unit]
        if len(fired) == fired.maxlen:
            offered = max(offered, fired[0] + PACE_CYCLES)
        fired.append(fields.get("fire_at", 0))

        def accepted(now: int) -> None:
            self._done(opcode, fields, waited, cycle, now)
            accept(now)

        machine.at(offered, lambda now: machine.senders[self.tile].offer(1, now, target, accepted, arrived, gate))

    def _done(self, opcode: Opcode, fields: dict[str, int], waited: int, begun: int, cycle: int) -> None:
        tile = self.tile
        self.machine.record(tile, tile, Unit.MOVER, opcode, fields.get("tag", 0), waited, begun, cycle + 1)

    def _path(self, fields: dict[str, int], order: dict[str, int]) -> tuple[int, ...]:
        points = [order["points"] >> 8 * at & 0xFF for at in range(order["count"])]
        path = [fields["src_tile"]]
        for point in (*points, fields["dst_tile"]):
            path += dimension_ordered(path[-1], point, self.machine.chip.noc.data_routing)[1:]
        return tuple(path)
