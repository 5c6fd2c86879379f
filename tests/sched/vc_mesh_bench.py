"""Random packets through the gateware's mesh with virtual channels and through the model's: the cycle of every flit.

What stands around the mesh in a tile (one sender, an ejection buffer, the delivery's turns) is played here by plain
lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from amaranth.hdl import Cat
from amaranth.sim import Simulator

from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.mesh import VcMesh
from meshloom.hw.spec.config import tile_address
from meshloom.hw.spec.contracts import EJECTION_FLITS
from meshloom.hw.spec.routes import RouteField, dimension_ordered, encode
from meshloom.sched.checker.channel_dependences import DependenceGraph
from meshloom.sched.model.clock import Clock
from meshloom.sched.model.flow import Place
from meshloom.sched.model.noc_flit import FlitPlane
from meshloom.sched.model.noc_flow import Packet
from meshloom.sched.program.routes import Route
from meshloom.tb.verify.random_programs import random_path

#: Where heads hold their route: behind the destination and the packet's number.
NUMBER_BITS = 10
FIELD = RouteField(flag_bit=8 + NUMBER_BITS, first_bit=9 + NUMBER_BITS, turns=9)


@dataclass(frozen=True)
class Sent:
    """A packet: what it is, and how many cycles its sender waits before it. `exclusive`: see `network.Packet`."""

    source: int
    target: int
    channel: int
    flits: int
    gap: int
    tiles: tuple[int, ...] | None
    exclusive: bool


@dataclass(frozen=True)
class Traffic:
    """Packets in the order in which each source sends them, and in which cycles tiles take no flit of a channel."""

    plane: Plane
    sent: tuple[Sent, ...]
    stalls: int  # of 8 cycles
    seed: int

    def stalled(self, tile: int, channel: int, cycle: int) -> bool:
        """Whether what stands behind the ejection buffer cannot take a flit of the channel."""
        return hash((self.seed, tile, channel, cycle)) % 8 < self.stalls


#: (number of the packet, number of the flit) to the cycle in which it was injected, and in which it was delivered.
Cycles = tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]


def random_traffic(random: Random, width: int, height: int, channels: int, routing: str, packets: int) -> Traffic:
    """Packets between all pairs; a third of them on ways of their own, such that none can wait in a circle."""
    plane = Plane(width, height, FIELD.end, random.choice((2, 3, 4)), channels, routing, "same", FIELD)
    tiles = [tile_address(x, y) for y in range(height) for x in range(width)]
    dependences = DependenceGraph()
    for source in tiles:
        for target in tiles:
            for channel in range(channels):
                dependences.add(Route(channel, dimension_ordered(source, target, routing)), "unrouted")
    few = random.sample(tiles, min(len(tiles), random.choice((1, 2, 16))))  # hot spots
    sent = []
    for _ in range(packets):
        source, target, channel = random.choice(tiles), random.choice(few), random.randrange(channels)
        result = None
        if random.random() < 0.4:
            result = random_path(random, tiles, source, target, FIELD.longest)
            if result is not None and not dependences.admits(Route(channel, result)):
                result = None
        if result is not None:
            dependences.add(Route(channel, result), "routed")
        flits = random.choice((1, 2, 2, 5, random.randint(1, 20)))
        gap = random.choice((0, 0, 0, random.randint(1, 9)))
        sent.append(Sent(source, target, channel, flits, gap, result, target % 2 == 0 and random.random() < 0.5))
    return Traffic(plane, tuple(sent), random.choice((0, 0, 2, 5)), random.randrange(1 << 20))


def measured(traffic: Traffic, limit: int) -> Cycles:
    """In the gateware. Fails when not all has arrived after `limit` cycles."""
    plane = traffic.plane
    mesh = VcMesh(plane)
    several = plane.vcs > 1
    queues = {tile: deque[tuple[int, int]]() for tile in mesh.tiles}  # (packet, flit) to be sent
    for number, sent in enumerate(traffic.sent):
        queues[sent.source].extend((number, flit) for flit in range(sent.flits))
    boxes = {tile: [deque[tuple[int, int]]() for _ in range(plane.vcs)] for tile in mesh.tiles}
    turns = dict.fromkeys(mesh.tiles, plane.vcs - 1)
    held = dict.fromkeys(mesh.tiles, -1)  # channel of the exclusive packet that is being taken
    waits = {tile: traffic.sent[queue[0][0]].gap if queue else 0 for tile, queue in queues.items()}
    come = {tile: [0] * plane.vcs for tile in mesh.tiles}  # flits of the packet that is coming
    numbers = {tile: [-1] * plane.vcs for tile in mesh.tiles}
    went_in, went_out = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    watched = [signal for tile in mesh.tiles for signal in (mesh.inject(tile).ready, mesh.eject(tile).valid)]
    watched += [mesh.eject(tile).payload.as_value() for tile in mesh.tiles]
    everything = Cat(*watched)

    def deliver(tile: int, cycle: int) -> None:
        for step in range(1, plane.vcs + 1):
            channel = (turns[tile] + step) % plane.vcs
            if not boxes[tile][channel]:
                continue
            number, flit = boxes[tile][channel][0]
            sent = traffic.sent[number]
            if flit == 0 and sent.exclusive and held[tile] >= 0:
                continue
            turns[tile] = channel
            if not traffic.stalled(tile, channel, cycle):
                boxes[tile][channel].popleft()
                went_out[number, flit] = cycle
                if sent.exclusive:
                    held[tile] = -1 if flit == sent.flits - 1 else channel
            return

    async def testbench(ctx: Any) -> None:
        for cycle in range(limit):
            offered, rooms = dict[int, tuple[int, int]](), dict[int, int]()
            for tile, queue in queues.items():
                if queue and waits[tile] == 0:
                    offered[tile] = number, flit = queue[0]
                    ctx.set(mesh.inject(tile).payload, _flit(traffic, number, flit, several))
                waits[tile] = max(0, waits[tile] - 1)
                ctx.set(mesh.inject(tile).valid, tile in offered)
                rooms[tile] = sum((len(box) < EJECTION_FLITS) << channel for channel, box in enumerate(boxes[tile]))
                ctx.set(mesh.eject(tile).ready, rooms[tile])
            _, _, sampled = await ctx.tick().sample(everything)
            values = list(_cut(int(sampled), watched))
            for tile in mesh.tiles:
                deliver(tile, cycle)  # decided by what stood there before this cycle's flit
            for at, tile in enumerate(mesh.tiles):
                ready, valid, payload = values[2 * at], values[2 * at + 1], values[2 * len(mesh.tiles) + at]
                if tile in offered and ready >> traffic.sent[offered[tile][0]].channel & 1:
                    went_in[queues[tile].popleft()] = cycle
                    if queues[tile] and queues[tile][0][1] == 0:
                        waits[tile] = traffic.sent[queues[tile][0][0]].gap
                channel, data = payload >> plane.bits + 1, payload & (1 << plane.bits) - 1
                if valid and rooms[tile] >> channel & 1:  # one channel alone offers whether or not there is room
                    flit = come[tile][channel]
                    if flit == 0:
                        numbers[tile][channel] = data >> 8 & (1 << NUMBER_BITS) - 1
                    boxes[tile][channel].append((numbers[tile][channel], flit))
                    come[tile][channel] = 0 if payload >> plane.bits & 1 else flit + 1
            if len(went_out) == sum(sent.flits for sent in traffic.sent):
                return
        raise AssertionError(f"not all flits have arrived after {limit} cycles")

    simulator = Simulator(mesh)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return went_in, went_out


def _flit(traffic: Traffic, number: int, flit: int, several: bool) -> dict[str, int]:
    sent, plane = traffic.sent[number], traffic.plane
    data = sent.target | number << 8
    if flit == 0 and sent.tiles is not None:
        data = FIELD.insert(data, encode(sent.tiles, plane.width, plane.height, FIELD))
    result = {"data": data if flit == 0 else 0, "last": int(flit == sent.flits - 1)}
    return result | {"vc": sent.channel} if several else result


def _cut(value: int, signals: Sequence[Any]) -> Any:
    for signal in signals:
        yield value & (1 << len(signal)) - 1
        value >>= len(signal)


class _Stalling(Place):
    """A place that takes nothing in some cycles."""

    def __init__(self, traffic: Traffic, tile: int, channel: int) -> None:
        super().__init__()
        self.traffic, self.tile, self.channel = traffic, tile, channel

    def room(self, now: int) -> bool:
        return not self.traffic.stalled(self.tile, self.channel, now)

    def opens(self, now: int) -> int:
        return now + 1  # at the earliest


class _Noting(Place):
    """Where flits come from; notes when each goes."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[int] = []
        self.since = self.rate = 0

    def set_out(self, now: int, rate: int) -> None:
        self.gone += range(self.since, now) if self.rate else ()
        self.since, self.rate = now, rate


def predicted(traffic: Traffic) -> Cycles:
    """In the model."""
    clock, plane = Clock(), traffic.plane
    network = FlitPlane(clock, plane.depth, plane.vcs, plane.routing)
    went_in, went_out = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    mine: dict[int, list[int]] = {}
    for number, sent in enumerate(traffic.sent):
        mine.setdefault(sent.source, []).append(number)

    def launch(source: int, at: int) -> Callable[[int], None]:
        number = mine[source][at]
        sent = traffic.sent[number]
        place: Place = _Stalling(traffic, sent.target, sent.channel)
        came = _Noting()

        def noted(flit: int) -> Callable[[int], None]:
            return lambda now: went_out.__setitem__((number, flit), now - 1)

        def injected(now: int) -> None:
            went_in.update(((number, flit), cycle) for flit, cycle in enumerate(came.gone))
            follow(source, at + 1, now)

        def start(now: int) -> None:
            packet = Packet([(1, place, noted(flit)) for flit in range(sent.flits)], tiles=sent.tiles)
            packet.channel, packet.exclusive = sent.channel, sent.exclusive
            to = network.enter(source, sent.target, packet)
            network.source(source).start(now, came, to, sent.flits, injected)

        return start

    def follow(source: int, at: int, now: int) -> None:
        if at < len(mine[source]):
            clock.at(now + traffic.sent[mine[source][at]].gap, launch(source, at))

    for source in mine:
        follow(source, 0, 0)
    clock.run()
    return went_in, went_out
