# amaranth: UnusedElaboratable=no
"""Packets that tiles on their way take, too, in the model's data plane: against the gateware's mesh, to the cycle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from random import Random

import pytest

from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.mesh import VcMesh
from meshloom.hw.spec.routes import LOCAL, copied_at, dimension_ordered, direction
from meshloom.sched.model import noc_flow
from meshloom.sched.model.clock import Clock
from meshloom.sched.model.flow import FOREVER, Place
from meshloom.sched.model.noc_flow import PORTS, Leg, Packet

from ...hw.test_multicast import BITS, FIRST, drawn, field
from ...hw.test_vc_mesh import NUMBER, flits
from ...hw.vc_traffic import run_mesh

#: Number of a packet and tile that takes it, to the cycles in which that takes its head and its tail.
Taken = dict[tuple[int, int], tuple[int, int]]


class Moody(Place):
    """A tile that takes flits in some cycles, and always from some cycle on."""

    def __init__(self, random: Random, share: float, cycles: int) -> None:
        super().__init__()
        self.takes = list[bool]()
        while len(self.takes) < cycles:
            self.takes += [random.random() < share] * random.randint(1, 4)

    def room(self, now: int) -> bool:
        return now >= len(self.takes) or self.takes[now]

    def fills(self, now: int) -> int:
        return self.takes.index(False, now) - now if False in self.takes[now:] else FOREVER

    def opens(self, now: int) -> int:
        return FOREVER if self.room(now) else next(cycle for cycle in count(now) if self.room(cycle))


@pytest.mark.parametrize(
    ("width", "height", "depth", "routing", "directions", "share", "each"),
    [
        (4, 1, 2, "xy", ("east",), 0.6, 16),
        (2, 3, 3, "yx", ("east", "north"), 0.8, 8),
        (3, 2, 2, "xy", ("west", "south"), 0.7, 8),
        pytest.param(3, 3, 4, "xy", ("east", "south"), 1.0, 16, marks=pytest.mark.slow),
    ],
)
def test_every_tile_takes_a_packet_when_the_gateware_lets_it(
    width: int, height: int, depth: int, routing: str, directions: tuple[str, ...], share: float, each: int
) -> None:
    """All sources send `each` as much as they can, and tiles take flits only now and then."""
    random = Random(f"{width}x{height}, {depth}, {routing}")
    mesh = VcMesh(Plane(width, height, BITS, depth, routing=routing, copies=field(*directions)))
    places = {tile: Moody(random, share, 200) for tile in mesh.tiles}
    sent = drawn(random, mesh.tiles, routing, directions, each)
    assert sum(copies for some in sent.values() for _, copies, _ in some) >= 8
    clock, predicted = Clock(), Taken()
    plane = noc_flow.Plane(clock, depth, routing)
    for source, some in sent.items():
        launch(plane, source, some, places, predicted)
    clock.run()
    sends = {
        source: {
            0: [flits(source << 8 | at, length, to | copies << FIRST) for at, (to, copies, length) in enumerate(some)]
        }
        for source, some in sent.items()
    }
    last = max(tail for _, tail in predicted.values())
    traffic = run_mesh(mesh, sends, last + 9, accept=lambda tile, vc, cycle: places[tile].room(cycle))
    measured = defaultdict[tuple[int, int], list[int]](list)
    for tile, passed in traffic.ejected.items():
        for flit in passed:
            measured[flit.data >> NUMBER, tile].append(flit.cycle)
    assert {key: (cycles[0], cycles[-1]) for key, cycles in measured.items()} == predicted
    assert len(measured) == sum(1 + copies for some in sent.values() for _, copies, _ in some)
    assert {place: flits for place, flits in plane.busy(last + 9).items() if flits} == carried(sent, routing)


def carried(sent: Mapping[int, Sequence[tuple[int, int, int]]], routing: str) -> Counter[tuple[int, int]]:
    """Flits that leave each router through each of its ports: to each tile that takes them, and once over each link."""
    result = Counter[tuple[int, int]]()
    for source, some in sent.items():
        for target, copies, length in some:
            tiles = dimension_ordered(source, target, routing)
            for tile in (*copied_at(tiles, copies), target):
                result[tile, PORTS.index(LOCAL)] += length
            for here, after in pairwise(tiles):
                result[here, PORTS.index(direction(here, after))] += length
    return result


def launch(
    plane: noc_flow.Plane, source: int, some: Sequence[tuple[int, int, int]], places: Mapping[int, Place], taken: Taken
) -> None:
    """Sends packets from a tile, one behind the other: destination, copies and length of each."""

    def legs(number: int, tile: int, length: int) -> list[Leg]:
        """The tile takes its head, then the rest."""
        taken[number, tile] = 0, 0

        def head(now: int) -> None:
            taken[number, tile] = now - 1, now - 1

        def tail(now: int) -> None:
            taken[number, tile] = taken[number, tile][0], now - 1

        first: Leg = (1, places[tile], head)
        return [first, (length - 1, places[tile], tail)] if length > 1 else [first]

    def send(now: int, at: int = 0) -> None:
        if at < len(some):
            target, copies, length = some[at]
            tiles, number = dimension_ordered(source, target, plane.routing), source << 8 | at
            packet = Packet(legs(number, target, length))
            for hop, tile in enumerate(copied_at(tiles, copies), len(tiles) - 1 - copies):
                packet.copies[hop] = legs(number, tile, length)
            plane.send(now, source, target, packet, lambda now: send(now, at + 1))

    plane.clock.at(0, send)
