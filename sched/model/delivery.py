"""The model's data packets: their route, and their delivery at the destination.

Mirrors `hw/noc/data_receiver.py` and the memories that it writes.
"""

from __future__ import annotations

from collections.abc import Callable

from meshloom.hw.spec.isa import FETCH_TAG, Opcode, Region, Unit, split_address
from meshloom.hw.spec.routes import copied_at

from ..program.routes import Route, default_route, route_of
from .flow import OPEN, Door, Place
from .machine import Machine, PacketMaker
from .noc_flow import Leg, Packet

#: Called in the cycle after the last word of a packet has been taken.
_Done = Callable[[int], None]


class Packets(PacketMaker):
    """Makes the packets of a run."""

    def __init__(self, machine: Machine) -> None:
        self.machine, chip = machine, machine.chip
        self.several, self.arrivals = chip.noc.data_vcs > 1, chip.noc.arrivals
        self._routes: dict[tuple[int, ...], Route] = {}

    def of(self, fields: dict[str, int], address: int, words: int, final: bool) -> Packet:
        """A packet of a MOVE (`fields` include those of its ROUTE) of `words` words to `address`; `final`: the last."""
        route = self._route(fields)
        packet = Packet([], tiles=route.tiles)
        packet.channel = route.channel
        if copies := fields.get("copies", 0):
            first = len(route.tiles) - 1 - copies
            for hop, tile in enumerate(copied_at(route.tiles, copies), first):
                packet.copies[hop] = self._legs(packet, fields | {"dst_tile": tile}, address, words, False)
        packet.carry(self._legs(packet, fields, address, words, final))
        return packet

    def _legs(self, packet: Packet, fields: dict[str, int], address: int, words: int, final: bool) -> list[Leg]:
        """How the tile that receives a packet takes it."""
        tile, notify = fields["dst_tile"], final and bool(fields.get("notify", 0))
        region, offset = split_address(address)
        machine = self.machine
        door = machine.doors[tile]
        record = self._record(packet, fields, words)
        if region == Region.MAIN and tile in machine.drams:
            packet.exclusive = True
            return self._to_dram(fields, offset, words, notify, record)
        if region >= Region.RING_MOVER:
            front, per = machine.streams[tile, Unit(region - Region.RING_MOVER)], machine.chip.instruction_words
            place = OPEN if self.several else door
            instructions: list[Leg] = [(per, place, front.arrived)] * (words // per)
            if record is not None:  # code brought by a controller's own program
                instructions[-1] = per, place, _both(front.arrived, record)
            return [(1, door, None), *instructions]
        done = _both(self._landing(fields) if notify else None, record)
        return self._to_memory(machine.ports.get((tile, region)), door, words, notify, done)

    def _route(self, fields: dict[str, int]) -> Route:
        """The route of its packets."""
        channel, turns = fields.get("channel", 0), fields.get("turns", 0) if fields.get("routed", 0) else -1
        key = fields["src_tile"], fields["dst_tile"], channel, turns
        if (route := self._routes.get(key)) is None:
            chip, (source, target, *_) = self.machine.chip, key
            plain = not channel and turns < 0
            route = default_route(chip, source, target) if plain else route_of(chip, source, target, fields)
            self._routes[key] = route
        return route

    def _to_dram(
        self, fields: dict[str, int], offset: int, words: int, notify: bool, record: _Done | None
    ) -> list[Leg]:
        """The packet becomes a burst, which notifies when it has been written."""
        machine, tile = self.machine, fields["dst_tile"]
        dram = machine.drams[tile]

        def written(now: int, acknowledge: Callable[[int], None]) -> None:
            machine.delivered(tile, fields, now, acknowledge)

        def begun(now: int) -> None:
            dram.expect(words, written if notify else None, offset, now)

        return [(1, dram.door, begun), (words, dram.written, record)]

    def _to_memory(self, port: Place | None, door: Door, words: int, notify: bool, done: _Done | None) -> list[Leg]:
        """A packet's words pass the write port if it is shared; the next packet, and with several channels also the
        last word of a packet that notifies, wait at the door until the previous notify has been accepted."""
        if not self.several:
            return [(words + 1, door, done)] if port is None else [(1, door, None), (words, port, done)]
        place = OPEN if port is None else port
        if not notify:
            return [(1, door, None), (words, place, done)]
        last: Leg = (1, door if port is None else _Both(port, door), done)
        return [(1, door, None), (words - 1, place, None), last] if words > 1 else [(1, door, None), last]

    def _landing(self, fields: dict[str, int]) -> _Done:
        """Notifies that the last word has been written."""
        machine, tile = self.machine, fields["dst_tile"]
        door = machine.doors[tile]

        def delivered(now: int) -> None:
            door.open = False  # no other packet until the notify has been accepted
            machine.delivered(tile, fields, now, lambda cycle: door.turn(cycle, True))

        return delivered

    def _record(self, packet: Packet, fields: dict[str, int], words: int) -> _Done | None:
        """Records the arrival of a packet."""
        if not self.arrivals or fields["tag"] == FETCH_TAG:
            return None
        machine, tile, tag = self.machine, fields["dst_tile"], fields["tag"]
        owner = fields["src_tile"] if tile in machine.drams else tile

        def arrived(now: int) -> None:
            machine.record(owner, tile, Unit.NONE, Opcode.MOVE, tag, words, packet.injected_at, now)

        return arrived


class _Both(Place):
    """A place that is ready when two others are."""

    def __init__(self, one: Place, other: Place) -> None:
        super().__init__()
        self.one, self.other = one, other

    def room(self, now: int) -> bool:
        return self.one.room(now) and self.other.room(now)


def _both(first: _Done | None, then: _Done | None) -> _Done | None:
    if first is None or then is None:
        return first or then

    def done(now: int) -> None:
        first(now)
        then(now)

    return done
