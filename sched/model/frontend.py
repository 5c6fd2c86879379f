"""The model's front ends: how a stream fetches its code, waits, fires and issues instructions.

Mirrors `hw/control/frontend.py`, whose docstring gives the cycle counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from meshloom.hw.spec.contracts import DECODE_CYCLES, LOAD_CYCLES, OFFER_CYCLES
from meshloom.hw.spec.isa import FETCH_TAG, TRACE, Opcode, Region

from ..program.program import Stream
from .flow import nothing
from .machine import Fed, Machine
from .posts import SYNC_POST
from .records import ModelError

#: The longest wait that a record can hold.
_MOST_WAITED = TRACE.most("wait")


class LateError(ModelError):
    """An instruction that is ready only after its fire time: a LATE fault.

    `stream`, `position`: the instruction; `cycle`: the earliest fire time that it could have.
    """

    def __init__(self, stream: Stream, position: int, cycle: int) -> None:
        self.stream, self.position, self.cycle = stream, position, cycle
        instruction = stream.instructions[position]
        fields = instruction.fields
        super().__init__(
            f"{instruction.opcode.name} tag {fields.get('tag', 0)}, instruction {position} of the "
            f"{stream.unit.name.lower()} stream of tile {stream.tile:#04x}, has fire_at = {fields['fire_at']} and is "
            f"ready only in cycle {cycle}: a LATE fault; fire it in {cycle} or later, or set fire_at to 0"
        )


class FrontEnd(Fed):
    """One instruction stream. `pushed`: a controller sends it, one control packet for each instruction."""

    def __init__(self, machine: Machine, stream: Stream, pushed: bool = False) -> None:
        self.machine, self.stream = machine, stream
        self.tile, self.unit = stream.tile, stream.unit
        self.count = len(stream.instructions)
        self.ring = machine.chip.ring(machine.chip.tiles[stream.tile])
        self.requested = self.consumed = 0
        self.delivered: deque[int] = deque()  # cycle from which each fetched instruction can be loaded
        self.loading: int | None = None  # cycle since which the front end has been free
        self.fetching = False
        #: For the stream of an ahead-of-time controller.
        self.controller = machine.controllers.get(stream.tile)
        if pushed:
            self.requested, self.loading = self.count, 0
        self.whole = 0  # cycle from which all code delivered so far is in the ring
        self.on_last: Callable[[int], None] = nothing  # called in the cycle in which its last instruction is taken

    def start(self, cycle: int) -> None:
        """The FETCH has been taken: from `cycle` on the stream requests its code."""
        self.loading = cycle
        self.fetch(cycle)

    def fetch(self, cycle: int) -> None:
        """Requests the next half ring if that much is free."""
        chip = self.machine.chip
        room = self.ring - (self.requested - self.consumed)
        if self.fetching or self.requested == self.count or room < self.ring // 2:
            return
        if self.controller is not None and self.requested >= self.ring and not chip.controller_channel:
            return  # MOVEs of the program bring the rest
        chunk = min(self.ring // 2, self.count - self.requested)
        words = chunk * chip.instruction_words
        slot = self.requested % self.ring
        ring = (Region.RING_MOVER + self.unit) << 24
        fields = {
            "tag": FETCH_TAG,
            "src_tile": self.stream.dram_tile,
            "src": self.stream.address + self.requested * chip.instruction_words,
            "src_run": words,
            "dst_tile": self.tile,
            "dst": ring + slot * chip.instruction_words,
            "dst_run": words,
            "words": words,
        }
        self.requested += chunk
        self.fetching = True
        mover = self.machine.movers[self.stream.dram_tile]
        sender = self.machine.senders[self.tile]
        port = 0 if self.controller is not None else 1 + self.unit  # it goes before control packets

        def accept(now: int) -> None:
            self.fetching = False
            self.machine.at(now + 1, self.fetch)

        def arrived(now: int) -> None:
            mover.request(fields, self.tile, now)

        sender.offer(port, cycle, self.stream.dram_tile, accept, arrived, mover.gate)

    def arrived(self, cycle: int) -> None:
        """An instruction is in the ring from `cycle` on."""
        self.delivered.append(cycle)
        self.whole = cycle
        if self.loading is not None:
            self.load(self.loading)

    def load(self, cycle: int) -> None:
        """The front end is free from `cycle` on."""
        self.loading = cycle
        if not self.delivered:
            return
        self.loading = None
        begin = max(cycle, self.delivered.popleft())
        self.machine.at(begin + DECODE_CYCLES, self.wait)

    def wait(self, cycle: int) -> None:
        fields = self.stream.instructions[self.consumed].fields
        if fields.get("wait_n", 0):
            self.machine.semaphores[self.tile].take(
                cycle, self.unit, fields["wait_sem"], fields["wait_n"], lambda now: self.ready(cycle, now)
            )
        else:
            self.ready(cycle, cycle)

    def ready(self, since: int, cycle: int) -> None:
        """The wait is over in `cycle`; the instruction is offered in the next, or in the one after its fire time."""
        instruction = self.stream.instructions[self.consumed]
        here = self.controller is None or instruction.opcode is Opcode.SYNC  # others fire elsewhere
        if here and (fire := instruction.fields.get("fire_at", 0)):
            if cycle > fire:
                raise LateError(self.stream, self.consumed, cycle)
            cycle = fire
        waited = min(cycle - since, _MOST_WAITED)
        self.machine.at(cycle + OFFER_CYCLES, lambda now: self.issue(waited, now))

    def issue(self, waited: int, cycle: int) -> None:
        instruction = self.stream.instructions[self.consumed]
        fields = instruction.fields
        machine = self.machine
        if instruction.opcode is Opcode.SYNC:
            self.sync(fields, waited, cycle)
        elif self.controller is not None:
            self.controller.own(instruction.opcode, fields, waited, cycle, self.done)
        elif instruction.opcode in (Opcode.GEMM, Opcode.VEC):
            machine.arrays[self.tile, self.unit].own(instruction.opcode, fields, waited, cycle, self.done)
        else:
            machine.movers[self.tile].own(instruction.opcode, fields, waited, cycle, self.done)

    def sync(self, fields: dict[str, int], waited: int, cycle: int) -> None:
        """Done when its post, the NoC and the trace have been served."""
        machine, tile, unit = self.machine, self.tile, self.unit
        todo = 1 + bool(fields.get("n", 0)) + bool(fields.get("post_n", 0))

        def served(now: int) -> None:
            nonlocal todo
            todo -= 1
            if todo == 0:
                self.done(now)

        def traced(now: int) -> None:
            machine.record(tile, tile, unit, Opcode.SYNC, fields.get("tag", 0), waited, cycle, now + 1)
            served(now)

        if fields.get("n", 0):
            machine.send_post(tile, 1 + unit, fields["tile"], fields["sem"], fields["n"], cycle, served)
        if fields.get("post_n", 0):
            machine.semaphores[tile].post(cycle, SYNC_POST + unit, fields["post_sem"], fields["post_n"], served)
        machine.traces[tile].sync(cycle, unit, traced)

    def done(self, cycle: int) -> None:
        """The unit took the instruction in `cycle`."""
        self.consumed += 1
        if self.consumed < self.count:
            self.loading = cycle + LOAD_CYCLES
            self.machine.at(self.loading, self.next)
        else:
            self.on_last(cycle)
        self.machine.at(cycle + 1, self.fetch)

    def next(self, cycle: int) -> None:
        if self.loading is not None:
            self.load(self.loading)
