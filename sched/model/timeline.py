"""The transaction-level model: predicts when every instruction of a program starts and ends.

It plays the streams, requests, packets, posts and DRAM bursts of a program as events, with the cycle counts that the
gateware's docstrings state (`hw/control/frontend.py`, `hw/memory/mover.py`, `hw/noc/interface.py`, `hw/timing.py`),
down to the flit, but with events only where a flow begins or ends (`flow.py`). Nothing is fitted to measurements: a
mechanism is either modelled by its contract or left out. Left out are a MOVE that reads ACC while the drain path reads
addends there, `fire_at`, and faults.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from meshloom.hw.config import ChipConfig
from meshloom.hw.isa import FETCH_TAG, Opcode, Region, Unit, VectorOp, split_address
from meshloom.hw.timing import (
    GEMM_ISSUE_CYCLES,
    VEC_ISSUE_CYCLES,
    GemmShape,
    VecShape,
    gemm_cycles,
    gemm_occupancy,
    vec_cycles,
    vec_occupancy,
)

from ..program.program import Program, Stream
from .drain import WritePort, drained
from .dram import Dram
from .flow import OPEN, Door
from .mover import Mover, Sender
from .network import Leg, Packet, Plane
from .posts import LANDED_POST, PLANE_POST, SYNC_POST, UNIT_POST, PostSender, Semaphores, Trace
from .records import Executed


@dataclass(frozen=True)
class Timeline:
    """Cycles of the whole run, and every executed instruction in the order of its end."""

    cycles: int
    executed: list[Executed]


__all__ = ["Executed", "ModelError", "Timeline", "play"]


class ModelError(ValueError):
    """A program that the model cannot finish: it would hang (see `sched.program.check` for who waits on what)."""


def play(program: Program, chip: ChipConfig) -> Timeline:
    """Predicts a program. Raises ModelError when it never ends."""
    return Machine(program, chip).run()


class Machine:
    """All state of a run, and its events."""

    def __init__(self, program: Program, chip: ChipConfig) -> None:
        self.program, self.chip = program, chip
        noc = chip.noc
        self.data = Plane(self, noc.data_depth)
        self.requests = Plane(self, noc.request_depth)
        self.posts = Plane(self, noc.post_depth)
        self.events: list[tuple[int, int, int, Callable[[int], None]]] = []
        self.serial = self.now = 0
        self.executed: list[Executed] = []
        self.cycles: int | None = None
        self.semaphores = {tile: Semaphores(self) for tile in chip.tiles}
        self.traces = {tile: Trace(self) for tile in chip.tiles}
        self.post_senders = {tile: PostSender(self, self.posts, tile) for tile in chip.tiles}
        self.doors = {tile: Door(True) for tile in chip.tiles}  # into the memories
        self.drams = {tile: Dram(self, chip) for tile in chip.drams}
        self.ports: dict[tuple[int, int], WritePort] = {
            (tile, region): WritePort() for tile in chip.cores for region in (Region.ACC, Region.OUT)
        }
        self.senders = {tile: Sender(self, tile) for tile in chip.tiles}
        self.movers = {tile: Mover(self, tile) for tile in chip.tiles}
        self.arrays = {
            (tile, unit): _Array(self, tile, unit) for tile in chip.cores for unit in (Unit.MATRIX, Unit.VECTOR)
        }
        self.streams = {(s.tile, s.unit): _FrontEnd(self, s) for s in (*program.streams, program.boot)}

    def at(self, cycle: int, event: Callable[[int], None], phase: int = 0) -> None:
        """Calls `event(cycle)` in its turn."""
        assert cycle >= self.now, "an event in the past"
        self.serial += 1
        heapq.heappush(self.events, (cycle, phase, self.serial, event))

    def run(self) -> Timeline:
        boot = self.streams[self.program.boot.tile, Unit.MOVER]
        boot.start(0)
        events = self.events
        while events and self.cycles is None:
            self.now, _, _, event = heapq.heappop(events)
            event(self.now)
        if self.cycles is None:
            raise ModelError("the program never ends: some stream waits for a post that nobody makes")
        return Timeline(self.cycles, self.executed)

    # -- what arrives -----------------------------------------------------------------------------------------------

    def send_post(
        self, source: int, number: int, target: int, semaphore: int, count: int, cycle: int,
        taken: Callable[[int], None],
    ) -> None:  # fmt: skip
        """A post over the post plane, offered in `cycle`; `taken` is called when the network takes it."""

        def gate(now: int, proceed: Callable[[int], None]) -> None:
            self.semaphores[target].post(now, PLANE_POST, semaphore, count, proceed)

        self.post_senders[source].offer(cycle, number, target, Packet([(1, OPEN, None)], gate), taken)

    def landed(self, tile: int, fields: dict[str, int], cycle: int, accepted: Callable[[int], None]) -> None:
        """The last word of a MOVE is in memory; `cycle`: the notify is offered."""
        target = fields["notify_tile"]
        if target == tile:
            self.semaphores[tile].post(cycle, LANDED_POST, fields["notify_sem"], 1, accepted)
        else:
            self.send_post(tile, 0, target, fields["notify_sem"], 1, cycle, accepted)

    def packet(self, fields: dict[str, int], address: int, words: int, final: bool) -> Packet:
        """A packet of a MOVE, and what becomes of it where it is received."""
        tile = fields["dst_tile"]
        region, _ = split_address(address)
        door = self.doors[tile]
        notify = final and bool(fields.get("notify", 0))
        if region == Region.MAIN and (dram := self.drams.get(tile)) is not None:

            def written(now: int, told: Callable[[int], None]) -> None:
                self.landed(tile, fields, now, told)

            def begun(now: int) -> None:
                dram.expect(words, written if notify else None)

            return Packet([(1, door, begun), (words, dram.written, None)])

        def landed(now: int) -> None:
            door.open = False  # no other packet until that has been told

            def told(cycle: int) -> None:
                door.turn(cycle, True)

            self.landed(tile, fields, now, told)

        done = landed if notify else None
        if region >= Region.RING_MOVER:
            front, per = self.streams[tile, Unit(region - Region.RING_MOVER)], self.chip.instruction_words
            legs: list[Leg] = [(per, door, front.arrived)] * (words // per)
            return Packet([(1, door, None), *legs])
        if (port := self.ports.get((tile, region))) is not None:
            return Packet([(1, door, None), (words, port, done)])
        return Packet([(words + 1, door, done)])


class _FrontEnd:
    """One instruction stream."""

    def __init__(self, machine: Machine, stream: Stream) -> None:
        self.machine, self.stream = machine, stream
        self.tile, self.unit = stream.tile, stream.unit
        self.count = len(stream.instructions)
        self.requested = self.consumed = 0
        self.landed: deque[int] = deque()  # cycle from which each fetched instruction can be loaded
        self.loading: int | None = None  # front end has been free since then
        self.fetching = False

    def start(self, cycle: int) -> None:
        """The FETCH has been taken: from `cycle` on the stream asks for its code."""
        self.loading = cycle
        self.fetch(cycle)

    def fetch(self, cycle: int) -> None:
        """Asks for the next half ring if that much is free."""
        chip = self.machine.chip
        room = chip.ring_instructions - (self.requested - self.consumed)
        if self.fetching or self.requested == self.count or room < chip.fetch_chunk:
            return
        chunk = min(chip.fetch_chunk, self.count - self.requested)
        words = chunk * chip.instruction_words
        slot = self.requested % chip.ring_instructions
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

        def taken(now: int) -> None:
            self.fetching = False
            self.machine.at(now + 1, self.fetch)

        sender.offer(
            1 + self.unit, cycle, self.stream.dram_tile, taken, lambda now: mover.request(fields, now), mover.gate
        )

    def arrived(self, cycle: int) -> None:
        """An instruction is in the ring from `cycle` on."""
        self.landed.append(cycle)
        if self.loading is not None:
            self.load(self.loading)

    def load(self, cycle: int) -> None:
        """The front end is free from `cycle` on."""
        self.loading = cycle
        if not self.landed:
            return
        self.loading = None
        begin = max(cycle, self.landed.popleft())
        self.machine.at(begin + 1, self.wait)

    def wait(self, cycle: int) -> None:
        fields = self.stream.instructions[self.consumed].fields
        if fields.get("wait_n", 0):
            self.machine.semaphores[self.tile].take(
                cycle, self.unit, fields["wait_sem"], fields["wait_n"], lambda now: self.ready(cycle, now)
            )
        else:
            self.ready(cycle, cycle)

    def ready(self, since: int, cycle: int) -> None:
        """The wait held in `cycle`; the instruction is offered in the next."""
        waited = cycle - since
        self.machine.at(cycle + 1, lambda now: self.issue(waited, now))

    def issue(self, waited: int, cycle: int) -> None:
        instruction = self.stream.instructions[self.consumed]
        fields = instruction.fields
        machine = self.machine
        if instruction.opcode is Opcode.SYNC:
            self.sync(fields, waited, cycle)
        elif instruction.opcode in (Opcode.GEMM, Opcode.VEC):
            machine.arrays[self.tile, self.unit].issue(instruction.opcode, fields, waited, cycle, self.done)
        else:
            machine.movers[self.tile].own(instruction.opcode, fields, waited, cycle, self.done)

    def sync(self, fields: dict[str, int], waited: int, cycle: int) -> None:
        """Done when its post, the network and the trace have been served."""
        machine, tile, unit = self.machine, self.tile, self.unit
        todo = 1 + bool(fields.get("n", 0)) + bool(fields.get("post_n", 0))

        def served(now: int) -> None:
            nonlocal todo
            todo -= 1
            if todo == 0:
                self.done(now)

        def traced(now: int) -> None:
            machine.executed.append(Executed(tile, unit, Opcode.SYNC, fields.get("tag", 0), waited, cycle, now + 1))
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
            self.loading = cycle + 1
            self.machine.at(cycle + 1, self.next)
        self.machine.at(cycle + 1, self.fetch)

    def next(self, cycle: int) -> None:
        if self.loading is not None:
            self.load(self.loading)


class _Array:
    """A unit of a core that computes: the matrix or the vector unit."""

    def __init__(self, machine: Machine, tile: int, unit: Unit) -> None:
        self.machine, self.tile, self.unit = machine, tile, unit
        self.free = 0  # first cycle in which the readers can start on another instruction
        self.staged = 0  # first cycle in which the stage before the readers takes another

    def issue(
        self, opcode: Opcode, fields: dict[str, int], waited: int, cycle: int, taken: Callable[[int], None]
    ) -> None:
        """An instruction offered in `cycle`; `taken` is called when the unit takes it."""
        accepted = max(cycle, self.staged)
        lead, occupied, cycles = _lengths(opcode, fields, self.machine.chip)
        start = max(accepted + lead, self.free)
        self.free = start + occupied
        self.staged = start - 1  # it hands over, and takes the next, in the cycle before the first operand address
        end = start + cycles
        if opcode is Opcode.GEMM:
            port = self.machine.ports[self.tile, Region.ACC if fields.get("to_acc", 0) else Region.OUT]
            for first, rows in drained(self.machine.chip, fields, start):
                port.take(self.machine.now, first, rows)

        def retire(now: int) -> None:
            self.machine.executed.append(
                Executed(self.tile, self.unit, opcode, fields.get("tag", 0), waited, start, end)
            )
            if fields.get("post_n", 0):
                post = self.machine.semaphores[self.tile].post
                post(now, UNIT_POST + self.unit, fields["post_sem"], fields["post_n"])

        self.machine.at(end, retire)
        self.machine.at(accepted, taken)


def _lengths(opcode: Opcode, fields: dict[str, int], chip: ChipConfig) -> tuple[int, int, int]:
    """Cycles from acceptance by an idle unit to the start, for which the readers are busy, and from start to end."""
    kernel = fields["kernel_h"], fields["kernel_w"]
    if opcode is Opcode.GEMM:
        gemm = GemmShape(fields["pixels"], fields["n_blocks"], fields["k_blocks"], *kernel)
        return GEMM_ISSUE_CYCLES, gemm_occupancy(chip, gemm), gemm_cycles(chip, gemm)
    vec = VecShape(VectorOp(fields.get("op", 0)), fields["pixels"], fields["blocks"], *kernel)
    return VEC_ISSUE_CYCLES, vec_occupancy(chip, vec), vec_cycles(chip, vec)
