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

from meshloom.hw.config import PACKET_WORDS, ChipConfig, TileKind
from meshloom.hw.isa import FETCH_TAG, Opcode, Region, Unit, split_address
from meshloom.hw.timing import GEMM_ISSUE_CYCLES, GemmShape, gemm_cycles, gemm_occupancy

from ..program.program import Program, Stream
from .dram import OUTSTANDING, WRITTEN, Dram, Reading
from .network import Gate, Packet, Plane

#: Flits of a request packet, and cycles from one request taken by a sender to the next.
_REQUEST_FLITS = 5
_REQUEST_PERIOD = 6
#: Words between a local memory and the packetiser; MOVEs whose words may be under way (local, DRAM).
_LOCAL_FIFO = 4
_DESCRIPTORS = {False: 2, True: 8}


@dataclass(frozen=True)
class Executed:
    """One instruction as one unit executed it; `wait` and the cycles as in a trace record (`hw.isa.TRACE`)."""

    tile: int
    unit: Unit
    opcode: Opcode
    tag: int
    wait: int
    start: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """Cycles of the whole run, and every executed instruction in the order of its end."""

    cycles: int
    executed: list[Executed]


class ModelError(ValueError):
    """A program that the model cannot finish: it would hang (see `sched.program.check` for who waits on what)."""


def play(program: Program, chip: ChipConfig) -> Timeline:
    """Predicts a program. Raises ModelError when it never ends."""
    return _Machine(program, chip).run()


class _Machine:
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
        self.senders = {tile: _Sender(self, tile) for tile in chip.tiles}
        self.movers = {tile: _Mover(self, tile) for tile in chip.tiles}
        self.arrays = {tile: _Array(self, tile) for tile in chip.cores}
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


class _Sender:
    """Requests of a tile onto the request plane: one at a time, lower-numbered ports first."""

    def __init__(self, machine: _Machine, tile: int) -> None:
        self.machine, self.tile = machine, tile
        self.free = 0  # first cycle in which it can take a request; -1 while one is under way
        self.offers: dict[int, tuple[int, Callable[[int], None], Callable[[int], None], Gate | None]] = {}

    def offer(
        self,
        port: int,
        cycle: int,
        target: int,
        taken: Callable[[int], None],
        arrived: Callable[[int], None],
        gate: Gate | None,
    ) -> None:
        """A request offered at `port` in `cycle` (now). `taken` is called when the sender takes it, `arrived` in the
        cycle in which it stands whole in the receiver, whose `gate` says when the next one may come."""
        self.offers[port] = target, taken, arrived, gate
        if self.free >= 0:
            self.machine.at(max(cycle, self.free), self.choose, late=True)

    def choose(self, cycle: int) -> None:
        if self.free < 0 or cycle < self.free or not self.offers:
            return
        target, taken, arrived, gate = self.offers.pop(min(self.offers))
        self.free = -1
        last = cycle + _REQUEST_FLITS

        def injected(now: int) -> None:
            self.free = now + 1
            if self.offers:
                self.machine.at(self.free, self.choose, late=True)

        def delivered(now: int) -> int:
            tail = max(now + _REQUEST_FLITS - 1, last)
            self.machine.at(tail + 1, arrived)
            return tail

        self.machine.requests.send(
            self.tile, target, cycle + 1, Packet(_REQUEST_FLITS, last, delivered, injected, gate=gate)
        )
        taken(cycle)


class _FrontEnd:
    """One instruction stream."""

    def __init__(self, machine: _Machine, stream: Stream) -> None:
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

        port = 1 if self.unit is Unit.MOVER else 2
        sender.offer(port, cycle, self.stream.dram_tile, taken, lambda now: mover.request(fields, now), mover.gate)

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
        elif instruction.opcode is Opcode.GEMM:
            machine.arrays[self.tile].issue(fields, waited, cycle, self.done)
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
    """The matrix unit of a core."""

    def __init__(self, machine: _Machine, tile: int) -> None:
        self.machine, self.tile = machine, tile
        self.free = 0  # first cycle in which the readers can start on another GEMM
        self.staged = 0  # first cycle in which the stage before the readers is empty

    def issue(self, fields: dict[str, int], waited: int, cycle: int, taken: Callable[[int], None]) -> None:
        chip = self.machine.chip
        accepted = max(cycle, self.staged)
        shape = GemmShape(
            fields["pixels"], fields["n_blocks"], fields["k_blocks"], fields["kernel_h"], fields["kernel_w"]
        )
        start = max(accepted + GEMM_ISSUE_CYCLES, self.free)
        self.free = start + gemm_occupancy(chip, shape)
        self.staged = start  # the stage hands over in the cycle before the first operand address
        end = start + gemm_cycles(chip, shape)

        def retire(now: int) -> None:
            self.machine.executed.append(
                Executed(self.tile, Unit.MATRIX, Opcode.GEMM, fields.get("tag", 0), waited, start, end)
            )
            if fields.get("post_n", 0):
                self.machine.post(self.tile, fields["post_sem"], fields["post_n"], now)

        self.machine.at(end, retire)
        self.machine.at(accepted, taken)


@dataclass(frozen=True)
class _Loaded:
    """A MOVE that the source generator has taken in cycle `start`."""

    fields: dict[str, int]
    waited: int
    start: int
    source: Reading | int


class _Mover:
    """The mover of a tile: an engine that reads one MOVE while it sends another."""

    def __init__(self, machine: _Machine, tile: int) -> None:
        self.machine, self.tile = machine, tile
        self.is_dram = machine.chip.tiles[tile] is TileKind.DRAM
        if self.is_dram:
            self.dram = machine.drams[tile]
            self.dram.on_done = self.ask
        self.asking: Reading | None = None  # bursts that the source generator is offering
        self.asked_in = -1
        # requests of other tiles and an instruction of one's own, with the cycle from which they are offered
        self.waiting: deque[tuple[dict[str, int], int]] = deque()
        self.mine: tuple[dict[str, int], int, int, Callable[[int], None]] | None = None
        self.overflow: dict[str, int] | None = None  # a request that the full queue does not take yet
        self.on_room: Callable[[int], None] | None = None  # lets the next request in
        self.last_own = False
        self.source_free: int | None = 0  # None: until the packetiser has come far enough
        self.loads = 0  # descriptors taken in and not yet taken out
        self.queue: deque[_Loaded] = deque()
        self.sending = False
        self.idle_from = 0
        self.taken_out = 0  # cycle in which a full descriptor queue had room again

    def own(
        self, opcode: Opcode, fields: dict[str, int], waited: int, cycle: int, taken: Callable[[int], None]
    ) -> None:
        """An instruction of the tile's own stream, offered in `cycle`."""
        machine = self.machine
        if opcode is Opcode.END:
            machine.cycles = cycle + 1
            return
        if opcode is Opcode.MOVE and fields["src_tile"] == self.tile:
            self.mine = fields, waited, cycle, taken
            self.serve(cycle)
            return
        if opcode is Opcode.MOVE:
            target = fields["src_tile"]
            receiver = machine.movers[target]

            def arrived(now: int) -> None:
                receiver.request(fields, now)

        else:
            target, receiver = fields["tile"], None
            front = machine.streams[target, Unit(fields["unit"])]

            def arrived(now: int) -> None:
                front.start(now + 1)

        def accepted(now: int) -> None:
            machine.executed.append(
                Executed(self.tile, Unit.MOVER, opcode, fields.get("tag", 0), waited, cycle, now + 1)
            )
            taken(now)

        machine.senders[self.tile].offer(0, cycle, target, accepted, arrived, receiver and receiver.gate)

    def request(self, fields: dict[str, int], cycle: int) -> None:
        """A MOVE of another tile stands in the taker in `cycle`; the queue offers it a cycle later, if it has room."""
        if len(self.waiting) >= self.machine.chip.mover_queue:
            self.overflow = fields
            return
        self.waiting.append((fields, cycle + 1))
        self.machine.at(cycle + 1, self.serve)

    def gate(self, cycle: int, proceed: Callable[[int], None]) -> None:
        """Calls `proceed` when the taker can take another request, `cycle` (now) at the earliest."""
        if self.overflow is None:
            proceed(cycle)
        else:
            self.on_room = proceed

    def room(self, cycle: int) -> None:
        """The queue has given a request away in the cycle before."""
        if self.overflow is not None:
            self.waiting.append((self.overflow, cycle + 1))
            self.overflow = None
            self.machine.at(cycle + 1, self.serve)
            if self.on_room is not None:
                proceed, self.on_room = self.on_room, None
                proceed(cycle)

    def serve(self, cycle: int) -> None:
        """The source generator takes a MOVE if it can."""
        free = self.source_free
        if free is None or cycle < free or self.loads >= _DESCRIPTORS[self.is_dram]:
            return
        offered = [self.waiting[0][1]] if self.waiting else []
        if self.mine is not None:
            offered.append(self.mine[2])
        if not offered or cycle < min(offered):
            return
        there = bool(self.waiting) and self.waiting[0][1] <= cycle
        pick_own = self.mine is not None and (not there or not self.last_own)
        self.last_own = pick_own
        if pick_own:
            assert self.mine is not None
            fields, waited, since, taken = self.mine
            self.mine = None
            taken(cycle)
        else:
            fields, since = self.waiting.popleft()
            waited = 0
            self.machine.at(cycle + 1, self.room)
        # of a local memory it is known late when the source was free
        now, cycle = cycle, max(free, since, self.taken_out)
        region, offset = split_address(fields["src"])
        words = fields["words"]
        self.loads += 1
        if self.is_dram and region == Region.MAIN:
            # one burst a cycle, from the next cycle on
            source = Reading(_bursts(offset, fields["src_run"], fields.get("src_stride", 0), words))
            self.asking, self.source_free = source, None
            self.machine.at(max(now, cycle + 1), self.ask)
        else:
            source = cycle + 3
            self.source_free = None
        self.queue.append(_Loaded(fields, waited, cycle, source))
        if not self.sending:
            self.sending = True
            self.machine.at(max(now, cycle + 1, self.idle_from), self.take)

    def ask(self, cycle: int) -> None:
        """Offers the next burst to the DRAM, one a cycle, while the port can keep another under way."""
        source = self.asking
        if source is None or self.asked_in == cycle:
            return
        if self.dram.outstanding >= OUTSTANDING:
            return  # goes on when a burst is done
        self.asked_in = cycle
        self.dram.ask(source, cycle)
        if len(source.ready) < len(source.ends):
            self.machine.at(cycle + 1, self.ask)
        else:
            self.asking, self.source_free = None, cycle + 1
            self.machine.at(cycle + 1, self.serve)

    def take(self, cycle: int) -> None:
        """The packetiser takes the next descriptor; its first head can go in the next cycle."""
        sending = _Sending(self, self.queue.popleft())
        self.loads -= 1
        self.taken_out = cycle + 1 if self.loads + 1 >= _DESCRIPTORS[self.is_dram] else 0
        self.machine.at(cycle + 1, self.serve)
        self.machine.at(cycle + 1, sending.begin)

    def finished(self, move: _Loaded, last: int) -> None:
        """The last word of a MOVE was injected in cycle `last`."""
        machine, fields = self.machine, move.fields
        if fields.get("post_n", 0):
            machine.post(self.tile, fields["post_sem"], fields["post_n"], last + 1)
        if fields["tag"] != FETCH_TAG:
            machine.executed.append(
                Executed(self.tile, Unit.MOVER, Opcode.MOVE, fields["tag"], move.waited, move.start, last + 1)
            )
        self.idle_from = last + 1
        if self.queue:
            machine.at(last + 1, self.take)
        else:
            self.sending = False


class _Sending:
    """A MOVE in the packetiser. `source`: the bursts that bring its words, or from when on a local memory does."""

    def __init__(self, mover: _Mover, move: _Loaded) -> None:
        self.mover, self.move = mover, move
        self.packets = _packets(move.fields)
        self.at = 0
        self.words_sent = 0

    def ready(self, cycle: int) -> int:
        """First cycle not before `cycle` in which the next word is there."""
        source = self.move.source
        if isinstance(source, int):
            return max(cycle, source)
        return max(cycle, self.mover.dram.first(source, self.words_sent))

    def begin(self, cycle: int) -> None:
        """Sends the next packet as soon as its first word is there."""
        source = self.move.source
        if isinstance(source, Reading) and not source.ready:
            self.mover.machine.at(cycle + 1, self.begin)  # the DRAM has not been asked yet
            return
        self.mover.machine.at(self.ready(cycle), self.packet)

    def packet(self, cycle: int) -> None:
        """Sends the next packet; its head goes in `cycle`."""
        mover, machine = self.mover, self.mover.machine
        move = self.move
        packet = self.packets[self.at]
        words = packet[1]
        self.at += 1
        final = self.at == len(self.packets)
        last = cycle + words
        reader = None
        if not isinstance(move.source, int):
            reader = mover.dram
            last = max(last, reader.take(move.source, self.words_sent, words, cycle))
        self.words_sent += words

        def injected(now: int) -> None:
            if not final:
                machine.at(self.ready(now + 1), self.packet)
                return
            if isinstance(move.source, int):
                # the last words wait in the FIFO when they have been read
                mover.source_free = max(move.start + move.fields["words"] + 1, now - _LOCAL_FIFO + 2)
                machine.at(max(now, mover.source_free), mover.serve)
            mover.finished(move, now)

        machine.deliver(mover.tile, move.fields, packet, cycle, last, final, injected, reader)


def _packets(fields: dict[str, int]) -> list[tuple[int, int]]:
    """(address, words) of the packets of a MOVE, cut as the packetiser cuts them."""
    packets = []
    base = address = fields["dst"]
    run, stride = fields["dst_run"], fields.get("dst_stride", 0)
    run_left, left = run, fields["words"]
    while left:
        size = min(run_left, left, PACKET_WORDS - address % PACKET_WORDS)
        packets.append((address, size))
        address += size
        run_left -= size
        left -= size
        if run_left == 0:
            base += stride
            address, run_left = base, run
    return packets


def _bursts(offset: int, run: int, stride: int, words: int) -> list[int]:
    """Words of the bursts of a MOVE's source, cut as the source generator cuts them."""
    bursts = []
    base, run_left, left = offset, run, words
    while left:
        size = min(run_left, left, PACKET_WORDS - offset % PACKET_WORDS)
        bursts.append(size)
        offset += size
        run_left -= size
        left -= size
        if run_left == 0:
            base += stride
            offset, run_left = base, run
    return bursts
