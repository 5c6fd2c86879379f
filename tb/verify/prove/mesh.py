"""Whole meshes: wherever they have got to, their flits can go on.

The theorem `progress`: in every state that can be reached from reset, whatever was injected and however sinks stalled,
if the mesh holds a flit and all sinks take what they are offered in this cycle, then a flit moves, even if no source
begins a new packet. "Moves" means that a flit leaves a buffer, or that a source which has injected a part of a packet
has room for the next flit of it; or, in planes with `copies`, that a packet gets the channel to a tile that takes it on
its way, which each does once for each such tile.

Why no deadlock follows: let sources finish the packets that they have begun and begin no others, and let sinks take.
Each flit has a finite route before it (each hop brings a head nearer, which is the claim `route` of `router`, and the
rest follows it), so finitely many moves are left, and as long as flits are there one is made: the mesh empties. So no
reachable state has flits that can never move, be it all of them or a few in a corner.

Assumptions: packets are finite and sources finish them; sinks take in the end, independent of each other. Nothing is
assumed of lengths, destinations (they may even lie outside the mesh: such packets are dropped) or times.

The proof has two steps: invariants are proved by induction, and progress follows from them in each state. The
invariants, for the queue of each virtual channel of each input:

`count`, `owns`   see `wormhole`;
`route`           the destination of every head in it is one that dimension order leads through this link;
`joined`          a queue ends in the middle of a packet if and only if the channel that fills it is.
"""

from __future__ import annotations

from functools import reduce

from amaranth.hdl import Cat, Const, Module, Signal, Value

from meshloom.hw.noc.link import Plane
from meshloom.hw.noc.mesh import VcMesh
from meshloom.hw.spec.routes import LOCAL, NEIGHBOURS, OPPOSITE

from .engine import Bench
from .opened import Channel, OpenRouter, Place, Queue
from .probe import elaborated
from .wormhole import in_flight, ownership


class OpenMesh:
    """A mesh (a fresh one) with all its queues and channels, by (place, port, virtual channel).

    Injected data is free in the bits of `used` and 0 in the others.
    """

    def __init__(self, mesh: VcMesh, used: int) -> None:
        self.mesh, self.plane = mesh, mesh.plane
        module = elaborated(mesh)
        self.top = Module()
        self.top.submodules.mesh = mesh
        self.inputs: list[Signal] = []
        self.sinking: list[Value] = []
        self.queues: dict[tuple[Place, str, int], Queue] = {}
        self.channels: dict[tuple[Place, str, int], Channel] = {}
        for y in range(self.plane.height):
            for x in range(self.plane.width):
                opened = OpenRouter(self.top, getattr(module.submodules, f"router_{x}_{y}"))
                self.queues |= {((x, y), *key): queue for key, queue in opened.queues.items()}
                self.channels |= {((x, y), *key): channel for key, channel in opened.channels.items()}
        for tile in mesh.tiles:
            self._surround(tile, used)

    def _surround(self, tile: int, used: int) -> None:
        """Free injection, and sinks that stall as they like."""
        inject, eject = self.mesh.inject(tile), self.mesh.eject(tile)
        valid, last = Signal(name=f"send_{tile}"), Signal(name=f"last_{tile}")
        data = Signal(self.plane.bits, name=f"data_{tile}")
        vc = Signal(len(Value.cast(inject.payload.vc)), name=f"vc_{tile}")
        take = Signal(self.plane.vcs, name=f"take_{tile}")
        self.top.d.comb += [
            inject.valid.eq(valid),
            inject.payload.data.eq(data & used),
            inject.payload.last.eq(last),
            inject.payload.vc.eq(vc),
            eject.ready.eq(take),
        ]
        self.inputs += [valid, data, last, take, *([vc] if len(vc) else [])]
        self.sinking.append(take.all())


def invariants(opened: OpenMesh) -> dict[str, Value]:
    """The invariants of the module's docstring, by name."""
    values = ownership(opened.plane.depth, opened.queues.values(), opened.channels.values())
    for queue in opened.queues.values():
        right = [
            ~(queue.there(at) & queue.begins(at)) | on_the_way(opened.plane, queue, flit)
            for at, flit in enumerate(queue.flits)
        ]
        values[f"route {queue.title}"] = Cat(*right).all()
    for (place, port, vc), channel in opened.channels.items():
        if port != LOCAL:
            (x, y), (dx, dy) = place, NEIGHBOURS[port]
            below = opened.queues[(x + dx, y + dy), OPPOSITE[port], vc]
            values[f"joined {below.title}"] = below.ends_open == in_flight(channel)
    return values


def on_the_way(plane: Plane, queue: Queue, flit: Value) -> Value:
    """Whether a head may have come in here: its destination lies where dimension order sends it through this link."""
    if queue.port == LOCAL:
        return Const(1, 1)
    x, y = queue.place
    to_x, to_y = flit[:4], flit[4:8]
    # The packet moves away from the port it came in by, and is not beyond its destination.
    ahead = {"west": to_x >= x, "east": to_x <= x, "north": to_y >= y, "south": to_y <= y}[queue.port]
    inside = (to_x < plane.width) & (to_y < plane.height)
    along = "x" if queue.port in ("east", "west") else "y"
    if along == plane.routing[0]:
        return ahead & inside
    aligned = {"x": to_y == y, "y": to_x == x}[along]
    return ahead & aligned & inside


def progress(opened: OpenMesh) -> Value:
    """The theorem, as one bit."""
    queues = opened.queues.values()
    holds = [queue.valid for queue in queues]
    moves = [queue.pop for queue in queues]
    continues = [q.ends_open & (q.count < opened.plane.depth) for q in queues if q.port == LOCAL]
    lands = [
        channel.offers & ~channel.held & (channel.chosen & Cat(*(queue.copied for queue in channel.sources))).any()
        for (_, port, _), channel in opened.channels.items()
        if port == LOCAL
    ]
    sinks = reduce(Value.__and__, opened.sinking)
    return ~sinks | ~Cat(*holds).any() | Cat(*moves, *continues, *lands).any()


def bench(plane: Plane, mesh: VcMesh | None = None) -> Bench:
    """A mesh of `plane` (`mesh`: a mutant of it) with its invariants and the theorem.

    With source routes the theorem is false, and meant to be refuted: any set of them need not be free of cycles.
    """
    bits = max(plane.width - 1, plane.height - 1).bit_length()
    used = ((1 << bits) - 1) * 0x11
    if plane.routes is not None:
        used |= 1 << plane.routes.flag_bit | (1 << plane.routes.end) - (1 << plane.routes.first_bit)
    if plane.copies is not None:
        used |= (1 << plane.copies.end) - (1 << plane.copies.first_bit)
    opened = OpenMesh(mesh or VcMesh(plane), used)
    shown = {q.title: q.shown() for q in opened.queues.values()}
    far = opened.channels[(plane.width - 1, plane.height - 1), LOCAL, 0]
    body = [far.owned(queue) & queue.inside for queue in far.sources if queue.port != LOCAL]
    stuck = ~Cat(*(queue.pop for queue in opened.queues.values())).any()
    witnesses = {
        "a packet of several flits has come to the last tile": far.goes & Cat(*body).any(),
        "all tiles' buffers are full and nothing moves while sinks stall": stuck
        & Cat(*(queue.count == plane.depth for queue in opened.queues.values() if queue.port == LOCAL)).all(),
    }
    return Bench(opened.top, opened.inputs, {"progress": progress(opened)}, invariants(opened), {}, shown, witnesses)
