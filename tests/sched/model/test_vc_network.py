"""The model's data plane with virtual channels: against the gateware's mesh, cycle for cycle, and what it promises."""

from __future__ import annotations

from random import Random

import pytest

from meshloom.hw.spec.config import tile_position
from meshloom.hw.spec.timing import noc_arrival
from meshloom.sched.model.clock import Clock
from meshloom.sched.model.flow import OPEN, Buffer, Door, Link, Place
from meshloom.sched.model.noc_flit import FlitPlane
from meshloom.sched.model.noc_flow import Packet

from ..vc_mesh_bench import measured, predicted, random_traffic

MESHES = [
    (2, 2, 1, "xy", 50),
    (2, 2, 4, "yx", 60),
    (1, 4, 2, "xy", 50),
    (3, 2, 2, "yx", 60),
    (2, 3, 3, "xy", 60),
    (3, 3, 4, "yx", 50),
    pytest.param(4, 3, 4, "xy", 40, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("width", "height", "channels", "routing", "packets"), MESHES)
def test_every_flit_goes_when_the_gateware_lets_it_go(
    width: int, height: int, channels: int, routing: str, packets: int
) -> None:
    random = Random(f"{width}x{height}, {channels}, {routing}")
    traffic = random_traffic(random, width, height, channels, routing, packets)
    assert any(sent.tiles for sent in traffic.sent)
    went_in, went_out = predicted(traffic)
    assert len(went_in) == len(went_out) == sum(sent.flits for sent in traffic.sent)
    assert (went_in, went_out) == measured(traffic, max(went_out.values()) + 50)


def send(
    plane: FlitPlane,
    at: int,
    way: tuple[int, int],
    channel: int,
    flits: int,
    place: Place = OPEN,
    exclusive: bool = False,
) -> list[int]:
    """Offers a packet from a tile to another from cycle `at` on; the cycles in which its flits are taken there."""
    taken: list[int] = []
    packet = Packet([(1, place, lambda now: taken.append(now - 1)) for _ in range(flits)])
    packet.channel = channel
    if exclusive:  # unless a packet says so, a tile takes others at the same time
        packet.exclusive = True
    plane.clock.at(at, lambda now: plane.send(now, *way, packet))
    return taken


def run(plane: FlitPlane) -> None:
    plane.clock.run()


@pytest.mark.parametrize("flits", [1, 2, 5, 65])
@pytest.mark.parametrize("depth", [2, 4])
def test_an_idle_mesh_has_the_closed_form_of_the_gateware_and_a_cycle_for_the_ejection_buffer(
    flits: int, depth: int
) -> None:
    tiles = [16 * y + x for y in range(3) for x in range(4)]
    for source in tiles:
        for target in tiles:
            plane = FlitPlane(Clock(), depth, 3)
            taken = send(plane, 10, (source, target), 2, flits)
            run(plane)
            (x, y), (to_x, to_y) = tile_position(source), tile_position(target)
            last = 10 + noc_arrival(abs(x - to_x) + abs(y - to_y), flits) + 1
            assert taken == list(range(last - flits + 1, last + 1))


def test_two_channels_share_a_link_flit_by_flit() -> None:
    plane = FlitPlane(Clock(), 4, 2)
    first = send(plane, 0, (0, 2), 0, 20)
    second = send(plane, 0, (1, 2), 1, 20)  # joins it on the link from tile 1 to 2
    run(plane)
    assert second == list(range(3, 43, 2))
    assert first == list(range(4, 44, 2))  # its head came a cycle later


def test_a_channel_that_stands_still_takes_nothing_from_others_but_its_turn_at_the_ejection_buffer() -> None:
    plane = FlitPlane(Clock(), 2, 2)
    door = Door(False)
    held = send(plane, 0, (0, 2), 0, 9, door)
    free = send(plane, 20, (1, 2), 1, 9)
    past = send(plane, 45, (0, 1), 1, 9)  # over the links where flits stand, but to another tile
    plane.clock.at(60, lambda now: door.turn(now, True))
    run(plane)
    assert free == list(range(23, 41, 2))
    assert past == list(range(48, 57))
    assert held[0] == 60
    assert held[-1] < 75


def test_a_packet_on_one_channel_waits_for_the_one_before_it_there() -> None:
    plane = FlitPlane(Clock(), 4, 2)
    first = send(plane, 0, (0, 1), 0, 10)
    second = send(plane, 3, (16, 1), 0, 5)
    run(plane)
    assert second[0] == first[-1] + 1


def test_tiles_take_one_exclusive_packet_at_a_time() -> None:
    plane = FlitPlane(Clock(), 4, 3)
    first = send(plane, 0, (0, 1), 0, 12, exclusive=True)
    second = send(plane, 2, (16, 1), 1, 6, exclusive=True)
    other = send(plane, 2, (2, 1), 2, 6)
    run(plane)
    assert second[0] > first[-1]
    assert other[-1] < first[-1]


def test_words_flow_into_a_buffer_and_stop_when_it_is_full() -> None:
    clock = Clock()
    plane = FlitPlane(clock, 4, 2)
    buffer = Buffer(clock, 2)
    taken = send(plane, 0, (0, 1), 1, 8, buffer)
    drain, gone = Link(clock), list[int]()
    buffer.drainer = drain
    clock.at(30, lambda now: drain.start(now, buffer, OPEN, 8, gone.append))
    run(plane)
    assert taken == [3, 4, *range(31, 37)]  # room shows in the cycle after it has been made
    assert gone == [38]


def test_what_stands_still_for_good_ends_the_play() -> None:
    plane = FlitPlane(Clock(), 2, 2)
    held = send(plane, 0, (0, 1), 0, 9, Door(False))
    run(plane)
    assert held == []


def test_a_tile_sees_the_room_of_each_channel() -> None:
    plane = FlitPlane(Clock(), 2, 2)
    send(plane, 0, (0, 1), 1, 20, Door(False))
    rooms = dict[int, tuple[bool, bool]]()
    for cycle in (0, 20):
        plane.clock.at(cycle, lambda now: rooms.__setitem__(now, (plane.room(0, 0, now), plane.room(0, 1, now))))
    run(plane)
    assert rooms == {0: (True, True), 20: (True, False)}


def test_yx_and_ways_of_their_own() -> None:
    order = {}
    for routing, tiles in (("xy", None), ("yx", None), ("xy", (0, 16, 17)), ("xy", (0, 16, 32, 33, 17))):
        plane = FlitPlane(Clock(), 4, 2, routing)
        blocker = send(plane, 0, (0, 1), 0, 30)  # over the link from tile 0 to 1
        taken: list[int] = []
        packet = Packet([(3, OPEN, taken.append)], tiles=tiles)
        plane.clock.at(5, lambda now, plane=plane, packet=packet: plane.send(now, 16, 0, Packet([(1, OPEN, None)])))
        plane.clock.at(31, lambda now, plane=plane, packet=packet: plane.send(now, 0, 17, packet))
        run(plane)
        assert blocker[-1] == 32
        order[routing, tiles] = taken[0]
    # behind the tail of the blocker, on the same channel, or on links of its own
    assert order["yx", None] == order["xy", (0, 16, 17)]
    assert order["xy", (0, 16, 32, 33, 17)] == order["yx", None] + 2
