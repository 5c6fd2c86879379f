"""The model's network: closed forms on an idle mesh, and the routers' arbitration when packets compete."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest

from meshloom.hw.config import load, tile_position
from meshloom.sched.model.dram import Dram, Reading
from meshloom.sched.model.network import Packet, Plane


class Clock:
    """Events in order; `late` ones of a cycle come last."""

    def __init__(self) -> None:
        self.events: list[tuple[int, bool, int, Callable[[int], None]]] = []
        self.serial = 0

    def at(self, cycle: int, event: Callable[[int], None], late: bool = False) -> None:
        self.serial += 1
        heapq.heappush(self.events, (cycle, late, self.serial, event))

    def run(self) -> None:
        while self.events:
            cycle, _, _, event = heapq.heappop(self.events)
            event(cycle)


def send(plane: Plane, source: int, target: int, head: int, flits: int, log: dict[str, int], name: str) -> None:
    """Offers a packet; its times land in `log`: `<name> head`, `<name> in` and `<name> tail`."""

    def delivered(now: int) -> int:
        log[f"{name} head"] = now
        return now + flits - 1

    def note(what: str) -> Callable[[int], None]:
        return lambda now: log.__setitem__(f"{name} {what}", now)

    packet = Packet(flits, head + flits - 1, delivered, note("in"), note("tail"))
    plane.send(source, target, head, packet)


@pytest.mark.parametrize("flits", [1, 2, 4, 5, 17, 65])
@pytest.mark.parametrize("depth", [2, 4, 8])
def test_an_idle_mesh_has_the_closed_form_of_the_gateware(flits: int, depth: int) -> None:
    tiles = [16 * y + x for y in range(3) for x in range(4)]
    for source in tiles:
        for target in tiles:
            clock, log = Clock(), dict[str, int]()
            send(Plane(clock, depth), source, target, 10, flits, log, "p")
            clock.run()
            (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
            hops = abs(x - to_x) + abs(y - to_y)
            assert log == {"p head": 10 + hops + 1, "p in": 10 + flits - 1, "p tail": 10 + hops + flits}


def test_a_packet_waits_until_the_tail_before_it_has_left_the_port() -> None:
    clock, log = Clock(), dict[str, int]()
    plane = Plane(clock, 4)
    send(plane, 0, 1, 0, 10, log, "first")  # leaves router 0 in cycles 1..10 and router 1 in 2..11
    send(plane, 16, 1, 3, 5, log, "second")  # comes from below, wants the same tile
    clock.run()
    assert log["first tail"] == 11
    assert log["second head"] == 12
    assert log["second tail"] == 16


def test_inputs_take_turns() -> None:
    clock, log = Clock(), dict[str, int]()
    plane = Plane(clock, 4)
    for number in range(3):  # two sources, packets back to back, one target between them
        send(plane, 0, 1, 5 * number, 5, log, f"west {number}")
        send(plane, 2, 1, 5 * number, 5, log, f"east {number}")
    clock.run()
    order = sorted((when, name) for name, when in log.items() if name.endswith("head"))
    sides = [name.split()[0] for _, name in order]
    assert all(before != after for before, after in zip(sides, sides[1:], strict=False)), order


def test_a_slower_packet_is_told_when_it_is_true() -> None:
    clock, log = Clock(), dict[str, int]()
    plane = Plane(clock, 4)
    packet = Packet(10, 9, lambda now: now + 9, lambda now: log.__setitem__("in", now))
    plane.send(0, 1, 0, packet)
    clock.at(4, lambda _: packet.delay(7))
    clock.run()
    assert log["in"] == 16


def test_reads_alone_have_the_whole_channel_and_share_it_with_writes() -> None:
    chip = load("quad16")
    clock = Clock()
    dram = Dram(clock, chip)
    reading = Reading([64, 64])
    dram.ask(reading, 0)
    dram.ask(reading, 1)
    first = dram.first(reading, 0)
    assert first == 1 + chip.dram.latency + 1
    assert dram.take(reading, 0, 64, first) == first + 63
    alone = Dram(Clock(), chip)
    written = alone.write(100, Packet(33, 132, lambda now: now), 32)
    assert written == 100 + 32
    # a write of 32 words in the middle of 64 reads: both at half the rate while both are there
    busy = Dram(Clock(), chip)
    both = Reading([64])
    busy.ask(both, 0)
    busy.take(both, 0, 64, busy.first(both, 0))
    packet = Packet(65, 0, lambda now: now)
    busy.carried_by(packet)
    start = busy.first(both, 0)
    shared = busy.write(start - 40, Packet(33, 0, lambda now: now), 32)
    assert shared == start - 40 + 64
    assert packet.last == 32
