"""The model's movers: how MOVEs are taken, read, cut into packets and sent.

Mirrors `hw/memory/mover.py`, whose docstring gives the cycle counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from meshloom.hw.spec.config import TileKind
from meshloom.hw.spec.contracts import (
    CLEAR_CYCLES,
    DRAM_BURSTS,
    DRAM_DESCRIPTORS,
    LOCAL_DESCRIPTORS,
    OFFER_CYCLES,
    QUEUE_CYCLES,
    SOURCE_CYCLES,
    START_CYCLES,
    TURN_CYCLES,
    read_ahead,
)
from meshloom.hw.spec.isa import FETCH_TAG, Opcode, Region, Unit, split_address

from ..program.packets import packets
from .arbitration import NONE, Turns
from .flow import FOREVER, OPEN, Link, Peek
from .machine import Machine, Requested
from .posts import MOVER_POST
from .reading import Words
from .records import ModelError

#: MOVEs in flight between source generator and packetiser, by whether the tile has DRAM.
_DESCRIPTORS = {False: LOCAL_DESCRIPTORS, True: DRAM_DESCRIPTORS}
_ROUTE_FIELDS = ("channel", "routed", "turns")


class _Loaded:
    """A MOVE that the source generator has taken in cycle `start`."""

    __slots__ = ("fields", "start", "waited", "words")

    def __init__(self, fields: dict[str, int], waited: int, start: int, words: Peek) -> None:
        self.fields, self.waited, self.start = fields, waited, start
        self.words = words  # the first of the words that have been read


class Mover(Requested):
    """The mover of a tile: an engine that reads one MOVE while it sends another."""

    def __init__(self, machine: Machine, tile: int) -> None:
        self.machine, self.tile = machine, tile
        self.link = machine.data.source(tile)
        self.is_dram = machine.chip.tiles[tile] is TileKind.DRAM
        self.longest = machine.chip.packet_words
        if self.is_dram:
            self.dram = machine.drams[tile]
            self.dram.on_done = self.ask if machine.chip.dram.arbitration == "fifo" else self.burst_arrived
            self.burst_words = Peek(self.dram.read)
            self.whole = machine.chip.dram.whole_packets
            self.dram.read.drainer = self.link
        # the source generator, for memories read word by word
        self.local = Words(machine)
        self.local_words = Peek(self.local)
        self.local.drainer = self.link
        self.reader = self.local.feeder = Link(machine)
        self.ports = machine.drains[tile].reads(self.reader) if tile in machine.drains else {}
        self.asking: deque[tuple[int, int]] = deque()  # bursts that the source generator is offering
        self.asked_in = -1
        # requests of other tiles and an instruction of its own stream, with the cycle from which they are offered
        self.waiting: deque[tuple[dict[str, int], int]] = deque()
        self.mine: tuple[dict[str, int], int, Callable[[int], None]] | None = None
        self.due = 0  # cycle from which the first of them is offered
        #: Instead of `waiting`, in DRAM tiles whose requests are queued by tile.
        self.turns = Turns(machine.chip) if self.is_dram and machine.chip.dram.arbitration != "fifo" else None
        self.most_ahead = read_ahead(machine.chip)  # words
        self.overflow: tuple[dict[str, int], int] | None = None  # a request that the full queue cannot take yet
        self.on_room: Callable[[int], None] | None = None  # admits the next request
        self.route: dict[str, int] = {}  # for the next MOVE of the tile's own stream; empty: none
        self.last_own = False
        self.source_free: int | None = 0  # None: the MOVE being read has not been read whole
        self.loads = 0  # descriptors in the queue
        self.queue: deque[_Loaded] = deque()
        self.sending = False
        self.idle_from = 0
        self.sent = 0  # cycles in which MOVEs were sent that have ended
        self.begun = -1  # first cycle of the one being sent; -1: none is
        self.taken_out = 0  # cycle in which a full descriptor queue got room again

    def own(
        self, opcode: Opcode, fields: dict[str, int], waited: int, cycle: int, accept: Callable[[int], None]
    ) -> None:
        """An instruction of the tile's own stream, offered in `cycle`."""
        machine = self.machine
        if opcode is Opcode.END:
            machine.cycles = cycle + 1
            machine.stop()
            return
        if opcode is Opcode.ROUTE:
            self.route = fields
            self.dispatched(opcode, fields, waited, cycle, cycle)
            accept(cycle)
            return
        if opcode is Opcode.MOVE and self.route:
            fields = fields | {name: self.route.get(name, 0) for name in _ROUTE_FIELDS}
            self.route = {}
        if opcode is Opcode.MOVE and fields["src_tile"] == self.tile:
            self.mine = fields, waited, accept
            machine.at(cycle, self.serve, 1)
            return
        if opcode is Opcode.MOVE:
            target = fields["src_tile"]
            receiver = machine.movers[target]
            request = fields | {"fire_at": 0} if fields.get("fire_at", 0) else fields  # it has fired here

            def arrived(now: int) -> None:
                receiver.request(request, self.tile, now)

        else:
            target = fields["tile"]
            unit = Unit(fields["unit"])
            front = machine.streams[target, unit] if unit is not Unit.NONE else None
            clears = bool(fields.get("clear", 0))

            def arrived(now: int) -> None:
                if clears:
                    machine.at(now + CLEAR_CYCLES, machine.semaphores[target].clear)
                if front is not None:
                    front.start(now + START_CYCLES)

        def accepted(now: int) -> None:
            self.dispatched(opcode, fields, waited, cycle, now)
            accept(now)

        # a FETCH, too, waits for the MOVE that is in front of it at the taker
        machine.senders[self.tile].offer(0, cycle, target, accepted, arrived, machine.movers[target].gate)

    def dispatched(self, opcode: Opcode, fields: dict[str, int], waited: int, offered: int, cycle: int) -> None:
        """An instruction that is not executed here was finished in `cycle`."""
        self.machine.traces[self.tile].dispatched(cycle + 1)
        tile = self.tile
        self.machine.record(tile, tile, Unit.MOVER, opcode, fields.get("tag", 0), waited, offered, cycle + 1)

    def request(self, fields: dict[str, int], requester: int, cycle: int) -> None:
        """The taker holds a MOVE of another tile in `cycle`; the queue offers it a cycle later, if it has room."""
        if self._has_room(requester):
            self._wait(fields, requester, cycle + QUEUE_CYCLES)
        else:
            self.overflow = fields, requester

    def _has_room(self, requester: int) -> bool:
        """Whether the queue can take a request of a tile."""
        if self.turns is not None:
            return self.turns.room(requester)
        return len(self.waiting) < self.machine.chip.mover_queue

    def _wait(self, fields: dict[str, int], requester: int, cycle: int) -> None:
        """A request enters the queue in `cycle`."""
        turns = self.turns
        if turns is not None:
            turns.expect(requester)
            self.machine.at(cycle, lambda now: turns.enter(requester, fields, now))
            self.machine.at(cycle, self.serve, 1)
            return
        self.waiting.append((fields, cycle))
        if len(self.waiting) == 1:
            self._first(cycle)

    def _first(self, cycle: int) -> None:
        """A request is first in the queue from `cycle` on; one with a fire time is offered in the cycle after that."""
        fields, there = self.waiting[0]
        there = max(there, cycle)
        if (fire := fields.get("fire_at", 0)) and there > fire:
            raise ModelError(
                f"MOVE tag {fields['tag']} is the first in the queue of tile {self.tile:#04x} in cycle {there}, after "
                f"its fire time {fire}: a LATE fault; send it earlier, or let it fire later"
            )
        self.due = fire + OFFER_CYCLES if fire else there
        self.machine.at(self.due, self.serve, 1)

    def gate(self, cycle: int, proceed: Callable[[int], None]) -> None:
        """Calls `proceed` when the taker can take another request, in `cycle` (now) or later."""
        if self.overflow is None:
            proceed(cycle)
        else:
            self.on_room = proceed

    def room(self, cycle: int) -> None:
        """The queue released a request in the previous cycle."""
        if self.overflow is not None and self._has_room(self.overflow[1]):
            (fields, requester), self.overflow = self.overflow, None
            self._wait(fields, requester, cycle + QUEUE_CYCLES)
            if self.on_room is not None:
                proceed, self.on_room = self.on_room, None
                proceed(cycle)

    def serve(self, cycle: int) -> None:
        """The source generator takes one of the MOVEs offered in the cycle, if it can."""
        free = self.source_free
        if free is None or cycle < max(free, self.taken_out) or self.loads >= _DESCRIPTORS[self.is_dram]:
            return
        if self.turns is not None and self.dram.ahead > self.most_ahead:
            return  # resumes when a burst is done
        turns, number = self.turns, NONE
        if turns is None:
            there = bool(self.waiting) and self.due <= cycle
        else:
            number = turns.next(cycle)
            there = number != NONE
        if not there and self.mine is None:
            if turns is not None and (later := turns.offered(cycle)) < FOREVER:
                self.machine.at(later, self.serve, 1)
            return
        pick_own = self.mine is not None and (not there or not self.last_own)
        self.last_own = pick_own
        if pick_own:
            assert self.mine is not None
            fields, waited, accept = self.mine
            self.mine = None
            accept(cycle)
        else:
            waited = 0
            if turns is not None:
                fields = turns.take(number, cycle)
            else:
                fields, _ = self.waiting.popleft()
                if self.waiting:
                    self._first(cycle + 1)
            self.machine.at(cycle + 1, self.room)
        region, offset = split_address(fields["src"])
        words = fields["words"]
        self.loads += 1
        self.source_free = None
        # one burst or word a cycle, from the next cycle on
        if self.is_dram and region == Region.MAIN:
            self.asking.extend(_bursts(offset, fields["src_run"], fields.get("src_stride", 0), words, self.longest))
            self.asked_in = cycle
            self.machine.at(cycle + SOURCE_CYCLES, self.ask)
            self.queue.append(_Loaded(fields, waited, cycle, self.burst_words))
        else:
            self.local.port = self.ports.get(region, OPEN)
            first = cycle + SOURCE_CYCLES
            self.machine.at(first, lambda now: self.reader.start(now, OPEN, self.local, words, self.has_read))
            self.queue.append(_Loaded(fields, waited, cycle, self.local_words))
        if not self.sending:
            self.sending = True
            self.machine.at(max(cycle + 1, self.idle_from), self.take)

    def burst_arrived(self, cycle: int) -> None:
        """A burst has arrived whole before `cycle`, in a tile whose requests are queued by tile."""
        self.ask(cycle)
        self.machine.at(cycle, self.serve, 1)

    def ask(self, cycle: int) -> None:
        """Offers the next burst to the DRAM, one a cycle, while the port can have another in flight."""
        if not self.asking or cycle <= self.asked_in or self.dram.outstanding >= DRAM_BURSTS:
            return  # resumes when a burst is done
        self.asked_in = cycle
        word, words = self.asking.popleft()
        self.dram.ask(words, cycle, word)
        if self.asking:
            self.machine.at(cycle + 1, self.ask)
        else:
            self.source_free = cycle + 1
            self.machine.at(cycle + 1, self.serve, 1)

    def has_read(self, cycle: int) -> None:
        """The last word of a MOVE was read from a local memory in the previous cycle."""
        self.source_free = cycle
        self.machine.at(cycle, self.serve, 1)

    def take(self, cycle: int) -> None:
        """The packetiser takes the next descriptor; its first head can be sent in the next cycle."""
        sending = _Sending(self, self.queue.popleft())
        self.taken_out = cycle + 1 if self.loads >= _DESCRIPTORS[self.is_dram] else 0
        self.loads -= 1
        self.machine.at(cycle + 1, self.serve, 1)
        self.begun = cycle + TURN_CYCLES
        self.machine.at(cycle + TURN_CYCLES, sending.packet)

    def finished(self, move: _Loaded, cycle: int) -> None:
        """The last word of a MOVE was injected in the previous cycle."""
        machine, fields = self.machine, move.fields
        if fields.get("post_n", 0):
            machine.semaphores[self.tile].post(cycle, MOVER_POST, fields["post_sem"], fields["post_n"])
        if fields["tag"] != FETCH_TAG:
            machine.traces[self.tile].sent(cycle)
            owner = fields["dst_tile"] if self.is_dram else self.tile  # DRAM serves pulls of the tile that receives
            machine.record(owner, self.tile, Unit.MOVER, Opcode.MOVE, fields["tag"], move.waited, move.start, cycle)
        self.idle_from = cycle
        self.sent += cycle - self.begun
        self.begun = -1
        if self.queue:
            self.take(cycle)
        else:
            self.sending = False

    def busy(self, cycle: int) -> int:
        return self.sent + (max(0, cycle - self.begun) if self.begun >= 0 else 0)


class _Sending:
    """A MOVE in the packetiser."""

    def __init__(self, mover: Mover, move: _Loaded) -> None:
        self.mover, self.move = mover, move
        self.packets = packets(move.fields, mover.longest)
        self.at = 0

    def packet(self, cycle: int) -> None:
        """Offers the head of the next packet as soon as its first word is available, from `cycle` on; with
        `dram.whole_packets`, all of its words."""
        mover, fields = self.mover, self.move.fields
        address, words = self.packets[self.at]
        self.at += 1
        packet = mover.machine.packets.of(fields, address, words, self.at == len(self.packets))
        place = mover.machine.data.enter(mover.tile, fields["dst_tile"], packet)
        link, there = mover.link, self.move.words
        there.since = -1
        whole = mover.is_dram and mover.whole and there is mover.burst_words
        if whole:
            mover.dram.read.want(cycle, words)

        def headed(now: int) -> None:
            packet.injected_at = there.since
            if whole:
                mover.dram.read.want(now, 1)
            link.start(now, there.buffer, place, words, self.gone)

        link.start(cycle, there, place, 1, headed)

    def gone(self, cycle: int) -> None:
        """The packet's last word was sent in the previous cycle."""
        if self.at < len(self.packets):
            self.packet(cycle)
        else:
            self.mover.finished(self.move, cycle)


def _bursts(offset: int, run: int, stride: int, words: int, longest: int) -> list[tuple[int, int]]:
    """First word and words of the bursts of a MOVE's source, cut as the source generator cuts them."""
    bursts: list[tuple[int, int]] = []
    base, run_left, left = offset, run, words
    while left:
        size = min(run_left, left, longest - offset % longest)
        bursts.append((offset, size))
        offset += size
        run_left -= size
        left -= size
        if run_left == 0:
            base += stride
            offset, run_left = base, run
    return bursts
