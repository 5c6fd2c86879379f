"""The model's movers and request senders: how MOVEs are taken, read, cut into packets and sent.

Mirrors `hw/memory/mover.py` and the request half of `hw/noc/interface.py`, whose docstrings give the cycle counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshloom.hw.config import PACKET_WORDS, TileKind
from meshloom.hw.isa import FETCH_TAG, Opcode, Region, Unit, split_address

from .dram import OUTSTANDING, Reading
from .network import Gate, Packet
from .records import Executed

if TYPE_CHECKING:
    from .timeline import Machine

#: Flits of a request packet, and cycles from one request taken by a sender to the next.
_REQUEST_FLITS = 5
_REQUEST_PERIOD = 6
#: Words between a local memory and the packetiser; MOVEs whose words may be under way (local, DRAM).
_LOCAL_FIFO = 4
_DESCRIPTORS = {False: 2, True: 8}


class Sender:
    """Requests of a tile onto the request plane: one at a time, lower-numbered ports first."""

    def __init__(self, machine: Machine, tile: int) -> None:
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


@dataclass(frozen=True)
class _Loaded:
    """A MOVE that the source generator has taken in cycle `start`."""

    fields: dict[str, int]
    waited: int
    start: int
    source: Reading | int


class Mover:
    """The mover of a tile: an engine that reads one MOVE while it sends another."""

    def __init__(self, machine: Machine, tile: int) -> None:
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
            self.asking, self.asked_in, self.source_free = source, cycle, None  # the first burst in the next cycle
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
        if source is None or cycle <= self.asked_in:
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

    def __init__(self, mover: Mover, move: _Loaded) -> None:
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

        first = self.words_sent - words

        def injected(now: int) -> None:
            if isinstance(move.source, Reading):
                mover.dram.taken(move.source, first, words, now)
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
