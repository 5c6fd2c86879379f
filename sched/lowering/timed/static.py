"""Checks of a controller's stream that do not depend on time: the fields of its orders, and their recipients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from meshloom.hw.spec.config import MOST_POINTS, ChipConfig, TileKind
from meshloom.hw.spec.isa import ACCEPTS, AHEAD_ACCEPTS, Opcode, Region, Unit, address

from ...checker.accesses import Access
from ...checker.problems import Problems
from ...checker.static import DecodedInstruction, StaticCheck
from ...program.names import Names, opcode_name
from ...program.program import Program, Stream
from .orders import rebuilt

_Problem = Callable[[str, str], None]
#: The unit that executes each opcode that the controller sends.
_UNITS = {opcode: unit for unit, accepts in ACCEPTS.items() for opcode in accepts if opcode in AHEAD_ACCEPTS}


class OrdersCheck(StaticCheck):
    """Fills `steps` and `problems` like `StaticCheck`, for a program that a controller sends ahead of time: one stream,
    that of the controller, whose last instruction notifies the host.

    `executing`: for each instruction of that stream the tile that executes it; meaningless for ORDER and SYNC.
    """

    def __init__(self, program: Program, chip: ChipConfig, names: Names, problems: Problems) -> None:
        super().__init__(program, chip, names, problems)
        self.executing: list[int] = []
        self._order: DecodedInstruction | None = None  # an ORDER that no instruction has followed yet
        self._next = chip.ring(TileKind.DTT)  # the first instruction that has not been brought

    def run(self) -> None:
        """All static checks."""
        streams = [(stream.tile, stream.unit) for stream in self.program.streams]
        if streams != [(self.chip.dtt, Unit.MOVER)]:
            fix = "a program that is timed ahead has one stream, that of the controller"
            self.problems.add("program", f"has {len(streams)} streams besides the boot stream", fix)
            return
        super().run()
        boot = self.program.boot.instructions
        waits = [(each.fields.get("wait_sem", 0), each.fields.get("wait_n", 0)) for each in boot]
        if [each.opcode for each in boot] != [Opcode.FETCH, Opcode.SYNC, Opcode.END] or waits != [
            (0, 0),
            (0, 1),
            (0, 0),
        ]:
            fix = "it must be FETCH, a SYNC that waits for 1 in semaphore 0, END"
            self.problems.add("boot stream", "does not start the controller and wait for it alone", fix)

    def _placement(self, number: int, stream: Stream) -> None:
        # the controller's stream is that of its tile's mover, which the other checks know about
        self._place(number, stream)
        code = self.chip.code_channel
        if number and code not in (None, stream.dram_tile):
            what = f"its code lies in {self.names.tile(stream.dram_tile)}"
            self.problems.add(self.names.stream(number), what, f"place it in {self.names.tile(code)}, its own channel")

    def _stream(self, number: int, stream: Stream) -> None:
        self._order = None
        super()._stream(number, stream)
        if number and (not stream.instructions or stream.instructions[-1].opcode is not Opcode.SYNC):
            what = "does not notify the host"
            self.problems.add(self.names.stream(number), what, "SYNC must be its last instruction")

    def _instruction(
        self, number: int, position: int, stream: Stream, step: DecodedInstruction
    ) -> DecodedInstruction | None:
        if number == 0:
            return super()._instruction(number, position, stream, step)

        def problem(what: str, fix: str) -> None:
            self.problems.add(self.names.instruction(number, position), what, fix)

        order, self._order = self._order, None
        self.executing.append(stream.tile)
        if step.opcode not in (Opcode.SYNC, *AHEAD_ACCEPTS):
            problem(f"the controller does not send {opcode_name(step.opcode)}", "leave it out")
            return None
        for name in ("wait_n", "post_n", "notify"):
            if step.fields.get(name):
                problem(f"{name} = {step.fields[name]}", "instructions that are timed ahead use no semaphores")
                return None
        if order is not None and step.opcode in (Opcode.ORDER, Opcode.SYNC):
            problem("cannot use the ORDER before it", "MOVE, GEMM or VEC must follow an ORDER")
        if step.opcode is Opcode.ORDER:
            self._order = step
            return step
        if step.opcode is Opcode.SYNC:
            return self._end(position, stream, step, problem)
        return self._sent(number, position, stream, step, order, problem)

    def _end(
        self, position: int, stream: Stream, step: DecodedInstruction, problem: _Problem
    ) -> DecodedInstruction | None:
        target = tuple(step.fields[name] for name in ("tile", "sem", "n"))
        if position != len(stream.instructions) - 1:
            problem("the controller waits here", "only its last instruction may be SYNC")
        elif target != (self.chip.host, 0, 1):
            problem("does not notify the host", "it must add 1 to semaphore 0 of the host")
        return step

    def _sent(
        self,
        number: int,
        position: int,
        stream: Stream,
        step: DecodedInstruction,
        order: DecodedInstruction | None,
        problem: _Problem,
    ) -> DecodedInstruction | None:
        """An instruction that is executed elsewhere: its fields must fit that unit."""
        tile, fields = step.fields.get("src_tile", 0), step.fields
        if step.opcode is not Opcode.MOVE:
            tile = order.fields["tile"] if order is not None else stream.tile
            if self.chip.tiles.get(tile) is not TileKind.CORE:
                problem(f"is sent to {self.names.tile(tile)}", "an ORDER before it must name a core")
                return None
        self.executing[-1] = tile
        there = replace(stream, tile=tile, unit=_UNITS[step.opcode])
        # its fire time is not that of its position in this stream: `prove` checks that
        instruction = super()._instruction(number, position, there, replace(step, fields={**fields, "fire_at": 0}))
        if instruction is None:
            return None
        code = self.chip.code_channel
        if step.opcode is Opcode.MOVE and fields["dst_tile"] in self.chip.tiles:
            self._ordered_route(fields, order, problem)
            if code is not None and (fields["dst_tile"] == self.chip.dtt or code in (tile, fields["dst_tile"])):
                what = f"is between {self.names.tile(tile)} and {self.names.tile(fields['dst_tile'])}"
                problem(what, f"{self.names.tile(code)} and the controller are for code only, which no MOVE brings")
            elif fields["dst_tile"] == self.chip.dtt:
                self._code(stream, fields, problem)
        return replace(instruction, fields=fields)

    def _ordered_route(self, fields: dict[str, int], order: DecodedInstruction | None, problem: _Problem) -> None:
        """Waypoints must lead to the destination as the controller can rebuild it."""
        chip, count = self.chip, order.fields["count"] if order is not None else 0
        if order is not None and order.fields["channel"] > chip.noc.data_vcs:
            channel = order.fields["channel"]
            problem(f"its ORDER names channel {channel - 1}", f"{chip.name} has channels 0..{chip.noc.data_vcs - 1}")
        if order is None or not count:
            return
        points = [order.fields["points"] >> 8 * at & 0xFF for at in range(min(count, MOST_POINTS))]
        if count > MOST_POINTS:
            problem(f"its ORDER has {count} waypoints", f"at most {MOST_POINTS} fit")
        elif outside := [point for point in points if not _in_mesh(point, chip)]:
            problem(f"its route has the waypoint {self.names.tile(outside[0])}", "waypoints must lie on the floorplan")
        elif _turns_back(rebuilt(fields["src_tile"], points, fields["dst_tile"], chip.noc.data_routing)):
            problem("its route turns back", "a packet cannot leave a router by the port that it entered by")

    def _code(self, stream: Stream, fields: dict[str, int], problem: _Problem) -> None:
        """A MOVE to the controller itself must load the next code, in whole instructions, to its place in the ring."""
        per, ring, words = self.chip.instruction_words, self.chip.ring(TileKind.DTT), fields["words"]
        source = stream.address + self._next * per
        meant = {
            "src_tile": stream.dram_tile,
            "src": source,
            "dst": address(Region.RING_MOVER, self._next % ring * per),
        }
        whole = words % per == 0 and min(fields["src_run"], fields["dst_run"]) >= words
        if any(fields[name] != value for name, value in meant.items()) or not whole:
            fix = f"whole instructions from [{self._next}] on, from word {source} to their place in the ring"
            problem("does not load the controller's next code", fix)
        elif self._next % ring + words // per > ring:
            problem(f"loads {words // per} instructions past the end of the ring", "split it there")
        self._next += words // per

    def _inside(self, access: Access, move: bool, problem: _Problem) -> None:
        if not (access.write and access.tile == self.chip.dtt and access.region == Region.RING_MOVER):
            super()._inside(access, move, problem)  # the ring: see `_code`


def _in_mesh(tile: int, chip: ChipConfig) -> bool:
    return tile in chip.tiles or tile in chip.gaps


def _turns_back(path: Sequence[int]) -> bool:
    return any(before == after for (before, _), (_, after) in pairwise(pairwise(path)))
