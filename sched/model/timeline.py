"""The transaction-level model: predicts when every instruction of a program starts and ends.

It plays the streams, requests, packets, posts and DRAM bursts of a program as events, with the cycle counts that the
gateware's docstrings state (`hw/control/frontend.py`, `hw/memory/mover.py`, `hw/noc/interface.py`, `hw/timing.py`).
Nothing is fitted to measurements: a mechanism is either modelled by its contract or left out, and what is left out is
said where it is.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from meshloom.hw.config import ChipConfig, TileKind
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
from .dram import WRITTEN, Dram
from .mover import Mover, Sender
from .network import Packet, Plane
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
        self.events: list[tuple[int, bool, int, Callable[[int], None]]] = []
        self.serial = self.now = 0
        self.executed: list[Executed] = []
        self.cycles: int | None = None
        self.semaphores: dict[tuple[int, int], int] = {}
        self.waiters: dict[tuple[int, int], tuple[int, Callable[[int], None]]] = {}
        self.drams = {tile: Dram(self, chip) for tile in chip.drams}
        self.senders = {tile: Sender(self, tile) for tile in chip.tiles}
        self.movers = {tile: Mover(self, tile) for tile in chip.tiles}
        self.arrays = {
            (tile, unit): _Array(self, tile, unit) for tile in chip.cores for unit in (Unit.MATRIX, Unit.VECTOR)
        }
        self.streams = {(s.tile, s.unit): _FrontEnd(self, s) for s in (*program.streams, program.boot)}

    def at(self, cycle: int, event: Callable[[int], None], late: bool = False) -> None:
        """Calls `event(cycle)` in its turn; `late`: after all others of that cycle."""
        assert cycle >= self.now, "an event in the past"
        self.serial += 1
        heapq.heappush(self.events, (cycle, late, self.serial, event))

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

    # -- semaphores -------------------------------------------------------------------------------------------------

    def post(self, tile: int, semaphore: int, count: int, cycle: int) -> None:
        """A post accepted in `cycle`; it can be taken from the next cycle on."""

        def arrive(now: int) -> None:
            key = tile, semaphore
            self.semaphores[key] = self.semaphores.get(key, 0) + count
            waiter = self.waiters.get(key)
            if waiter is not None and self.semaphores[key] >= waiter[0]:
                del self.waiters[key]
                self.semaphores[key] -= waiter[0]
                waiter[1](now)

        self.at(cycle + 1, arrive)

    def take(self, tile: int, semaphore: int, count: int, cycle: int, granted: Callable[[int], None]) -> None:
        """Waits from `cycle` (now) on; `granted` is called with the cycle of the grant."""
        key = tile, semaphore
        if self.semaphores.get(key, 0) >= count:
            self.semaphores[key] -= count
            granted(cycle)
        else:
            self.waiters[key] = count, granted

    def send_post(self, source: int, target: int, semaphore: int, count: int, cycle: int) -> None:
        """A post over the post plane, offered in `cycle`."""

        def arrived(now: int) -> int:
            self.post(target, semaphore, count, now)
            return now

        self.posts.send(source, target, cycle, Packet(1, cycle, arrived))

    def landed(self, tile: int, fields: dict[str, int], cycle: int) -> None:
        """The last word of a MOVE is in memory; `cycle`: the notify is offered."""
        if fields.get("notify", 0):
            target = fields["notify_tile"]
            if target == tile:
                self.post(tile, fields["notify_sem"], 1, cycle)
            else:
                self.send_post(tile, target, fields["notify_sem"], 1, cycle)

    # -- packets ----------------------------------------------------------------------------------------------------

    def deliver(
        self,
        source: int,
        fields: dict[str, int],
        packet: tuple[int, int],
        head: int,
        last: int,
        final: bool,
        injected: Callable[[int], None],
        reader: Dram | None,
    ) -> None:
        """One data packet (address, words): head offered in `head`, last word not before `last`. `reader`: the
        channel that its words come from."""
        address, words = packet
        target = fields["dst_tile"]
        region, offset = split_address(address)
        to_dram = region == Region.MAIN and self.chip.tiles[target] is TileKind.DRAM

        dram = self.drams[target] if to_dram else None

        def delivered(now: int) -> int:
            if dram is not None:
                return dram.write(now, sent, words)
            if region >= Region.RING_MOVER:
                front = self.streams[target, Unit(region - Region.RING_MOVER)]
                tail = max(now + words, sent.last)
                self.at(now + 1, lambda cycle: front.arrived(offset, words, now + 1, tail))
            return now + words

        def landed(now: int) -> None:
            # to DRAM: when the write has been answered; else in the next cycle
            self.at(now + (WRITTEN if to_dram else 1), lambda cycle: self.landed(target, fields, cycle))

        sent = Packet(words + 1, last, delivered, injected, landed if final else None)
        if reader is not None:
            reader.carried_by(sent)
        self.data.send(source, target, head, sent)


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

    def arrived(self, offset: int, words: int, first: int, tail: int) -> None:
        """A packet of code: word i is written in cycle `first + i` (the last in `tail`), readable a cycle later."""
        per = self.machine.chip.instruction_words
        for word in range(words):
            if (offset + word) % per == per - 1:
                self.landed.append(min(first + word, tail) + 1)
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
            self.machine.take(
                self.tile, fields["wait_sem"], fields["wait_n"], cycle, lambda now: self.ready(cycle, now)
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
            if fields.get("n", 0):
                machine.send_post(self.tile, fields["tile"], fields["sem"], fields["n"], cycle)
            if fields.get("post_n", 0):
                machine.post(self.tile, fields["post_sem"], fields["post_n"], cycle)
            machine.executed.append(
                Executed(self.tile, self.unit, Opcode.SYNC, fields.get("tag", 0), waited, cycle, cycle + 1)
            )
            self.done(cycle)
        elif instruction.opcode in (Opcode.GEMM, Opcode.VEC):
            machine.arrays[self.tile, self.unit].issue(instruction.opcode, fields, waited, cycle, self.done)
        else:
            machine.movers[self.tile].own(instruction.opcode, fields, waited, cycle, self.done)

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

        def retire(now: int) -> None:
            self.machine.executed.append(
                Executed(self.tile, self.unit, opcode, fields.get("tag", 0), waited, start, end)
            )
            if fields.get("post_n", 0):
                self.machine.post(self.tile, fields["post_sem"], fields["post_n"], now)

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
