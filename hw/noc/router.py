"""A wormhole router: input buffered, dimension ordered (x first, then y), one cycle per hop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

#: The four neighbours of a tile as (x, y) steps; y grows downwards.
NEIGHBOURS: Mapping[str, tuple[int, int]] = {"north": (0, -1), "east": (1, 0), "south": (0, 1), "west": (-1, 0)}
OPPOSITE: Mapping[str, str] = {"north": "south", "east": "west", "south": "north", "west": "east"}
LOCAL = "local"

#: Where a packet that came in through a port may leave. A packet that has begun to move along y never turns back
#: to x, and never goes back where it came from; with that the channels depend on each other without a circle.
TURNS: Mapping[str, tuple[str, ...]] = {
    "north": ("south", LOCAL),
    "east": ("west", "north", "south", LOCAL),
    "south": ("north", LOCAL),
    "west": ("east", "north", "south", LOCAL),
    LOCAL: ("east", "west", "north", "south", LOCAL),
}


class Flit(data.StructLayout):
    """One flit: `data` (`bits` wide) and `last`, set on the last flit of a packet.

    The first flit of a packet is its head; the low 8 bits of its data are the destination tile (y * 16 + x).
    Raises ValueError when `bits` cannot hold them.
    """

    def __init__(self, bits: int) -> None:
        if bits < 8:
            raise ValueError(f"a flit of {bits} bits cannot hold the 8-bit destination; use at least 8")
        super().__init__({"data": bits, "last": 1})


def ports_at(x: int, y: int, width: int, height: int) -> tuple[str, ...]:
    """The ports of the router at (x, y) of a `width` x `height` mesh: its neighbours' directions, then the tile's."""
    there = [name for name, (dx, dy) in NEIGHBOURS.items() if 0 <= x + dx < width and 0 <= y + dy < height]
    return (*there, LOCAL)


class Router(wiring.Component):
    """The router of tile (x, y) of a `width` x `height` mesh.

    Ports: for `local` and for each direction that has a neighbour, `<direction>_in` and `<direction>_out`, streams
    of `Flit(bits)`; `fault` (1 bit) and `fault_tile` (8 bits).

    Contract: packets between the same two tiles arrive in the order they were injected, whole, never mixed with
    flits of another packet. An output is granted to a packet when its head is at the front of an input buffer, and
    stays granted until the last flit has gone; inputs that want the same output take turns packet by packet. A tile
    may send to itself.

    Latency: a flit accepted in cycle t is offered at the output in cycle t + 1. Throughput: one flit per cycle and
    port, with no bubble between packets, at every `depth` >= 2.

    `<port>_in.ready` is a function of registers only (buffer not full). `<port>_out.valid` and payload do not depend
    on `<port>_out.ready`, and once offered a flit stays until taken.

    A packet that the tile injects for a destination outside the mesh is dropped whole: `fault` is 1 for the one cycle
    in which its head goes (the cycle after its acceptance if the buffer was empty), and `fault_tile` is the destination
    then. Neighbours only pass on what they have checked in the same way, so other inputs do not check; what they cannot
    route further by the rule goes to the tile. No head can block an input for ever.

    `active`: this router holds a flit or is offered one; in cycles without, none of its registers changes.

    Raises ValueError for a position outside the mesh, a mesh beyond 16 x 16, a `depth` below 2 or `bits` below 8.
    """

    fault: Signal
    fault_tile: Signal
    active: Signal

    def __init__(self, x: int, y: int, width: int, height: int, bits: int, depth: int) -> None:
        if not (1 <= width <= 16 and 1 <= height <= 16):
            raise ValueError(f"mesh of {width}x{height}: tile addresses reach 1x1 to 16x16")
        if not (0 <= x < width and 0 <= y < height):
            raise ValueError(f"router at ({x}, {y}) is outside the {width}x{height} mesh")
        if depth < 2:
            raise ValueError(f"buffer depth {depth} cannot sustain a flit per cycle; use at least 2")
        self.x, self.y, self.width, self.height, self.bits, self.depth = x, y, width, height, bits, depth
        self.ports = ports_at(x, y, width, height)
        flits = stream.Signature(Flit(bits))
        members: dict[str, wiring.Member] = {}
        for port in self.ports:
            members[f"{port}_in"] = In(flits)
            members[f"{port}_out"] = Out(flits)
        super().__init__({**members, "fault": Out(1), "fault_tile": Out(8), "active": Out(1)})

    def input(self, port: str) -> Any:
        """The stream that enters through `port`."""
        return getattr(self, f"{port}_in")

    def output(self, port: str) -> Any:
        """The stream that leaves through `port`."""
        return getattr(self, f"{port}_out")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inputs = {port: _Input(m, self, port) for port in self.ports}
        for port in self.ports:
            _arbitrate(m, port, self.output(port), [source for source in inputs.values() if port in source.wants])
        for source in inputs.values():
            m.d.comb += source.pop.eq(Cat(*source.taken).any())
        arriving = [self.input(port).valid for port in self.ports]
        m.d.comb += self.active.eq(Cat(arriving, (source.valid for source in inputs.values())).any())
        return m


class _Input:
    """The buffer of one input, with the routing decision for the flit at its front."""

    def __init__(self, m: Module, router: Router, port: str) -> None:
        self.valid = Signal(name=f"{port}_valid")
        self.pop = Signal(name=f"{port}_pop")
        self.last = Signal(name=f"{port}_last")
        self.front = _buffer(m, port, router.input(port), self.valid, self.pop, router.depth)
        flit: Any = data.View(Flit(router.bits), self.front)
        destination = Signal(8, name=f"{port}_destination")
        inside = Signal(name=f"{port}_inside")  # of a packet whose head has left the buffer
        head = Signal(name=f"{port}_head")
        m.d.comb += [
            self.last.eq(flit.last),
            destination.eq(flit.data[:8]),
            head.eq(self.valid & ~inside),
        ]
        with m.If(self.pop):
            m.d.sync += inside.eq(~self.last)

        #: Reasons for the front flit to leave, one bit each.
        self.taken: list[Value] = []
        if port == LOCAL:
            legal = Signal(name=f"{port}_legal")
            dropping = Signal(name=f"{port}_dropping")
            drop = Signal(name=f"{port}_drop")
            m.d.comb += [
                legal.eq((destination[:4] < router.width) & (destination[4:] < router.height)),
                router.fault.eq(head & ~legal),
                router.fault_tile.eq(destination),
                drop.eq(router.fault | (dropping & self.valid)),
            ]
            with m.If(drop):
                m.d.sync += dropping.eq(~self.last)
            self.taken.append(drop)
            head = head & legal
        #: Output port to "the head at the front wants it".
        self.wants: dict[str, Value] = _directions(m, router, port, destination, head)


def _buffer(m: Module, port: str, flits: Any, valid: Signal, pop: Signal, depth: int) -> Value:
    """A queue of `depth` flits behind a stream; returns its front, which is there when `valid`.

    Written in cycle t, a flit is at the front from cycle t + 1. `pop` must imply `valid`.
    """
    storage = memory.Memory(shape=len(flits.payload.as_value()), depth=depth, init=[])
    m.submodules[f"{port}_buffer"] = storage
    write, read = storage.write_port(), storage.read_port(domain="comb")
    slots = len(write.addr)
    # One bit more than the address: the lap, which tells full from empty.
    pushed = Signal(slots + 1, name=f"{port}_pushed")
    popped = Signal(slots + 1, name=f"{port}_popped")
    m.d.comb += [
        valid.eq(pushed != popped),
        flits.ready.eq((pushed ^ popped) != 1 << slots),
        write.en.eq(flits.valid & flits.ready),
        write.addr.eq(pushed[:slots]),
        write.data.eq(flits.payload.as_value()),
        read.addr.eq(popped[:slots]),
    ]
    with m.If(write.en):
        m.d.sync += pushed.eq(_next_slot(pushed, depth))
    with m.If(pop):
        m.d.sync += popped.eq(_next_slot(popped, depth))
    return read.data


def _next_slot(counter: Signal, depth: int) -> Value:
    """The slot after `counter` (its top bit is the lap), for a buffer of `depth` slots."""
    slots = len(counter) - 1
    if depth == 1 << slots:
        return counter + 1
    return Mux(counter[:slots] == depth - 1, Cat(Const(0, slots), ~counter[slots]), counter + 1)


def _directions(m: Module, router: Router, port: str, destination: Signal, head: Value) -> dict[str, Value]:
    """Output port to "`head` wants to leave there", exactly one of them for each head."""
    to_x, to_y = destination[:4], destination[4:]
    beyond: dict[str, Value] = {
        "east": to_x > router.x,
        "west": to_x < router.x,
        "north": to_y < router.y,
        "south": to_y > router.y,
    }
    found: dict[str, Value] = {}
    rest = head
    for target in TURNS[port]:
        if target in router.ports:
            found[target] = want = Signal(name=f"{port}_to_{target}")
            m.d.comb += want.eq(rest & beyond[target] if target != LOCAL else rest)
            if target != LOCAL:
                rest = rest & ~beyond[target]
    return found


def _arbitrate(m: Module, port: str, flits: Any, sources: list[_Input]) -> None:
    """Grants one output to `sources` in turn, for a packet each, and drives it.

    All vectors have one bit per source. Control is kept in narrow vectors and the data in one chain of multiplexers,
    because a simulator evaluates the former in every cycle and the latter only when a flit moves.
    """
    count = len(sources)
    locked = Signal(name=f"{port}_locked")
    owner = Signal(count, name=f"{port}_owner")  # one-hot: of the packet under way, or of the one before
    wanted = Signal(count, name=f"{port}_wanted")
    later = Signal(count, name=f"{port}_later")
    pool = Signal(count, name=f"{port}_pool")
    chosen = Signal(count, name=f"{port}_chosen")
    offered = Signal(count, name=f"{port}_offered")
    last = Signal(name=f"{port}_out_last")
    taken = Signal(count, name=f"{port}_taken")
    m.d.comb += [
        wanted.eq(Cat(*(source.wants[port] for source in sources))),
        later.eq(wanted & ~(owner | (owner - 1))),  # those after the owner of before come first
        pool.eq(Mux(later.any(), later, wanted)),
        chosen.eq(Mux(locked, owner, pool & -pool)),
        offered.eq(chosen & Cat(*(source.valid for source in sources))),
        last.eq((chosen & Cat(*(source.last for source in sources))).any()),
        flits.valid.eq(offered.any()),
        taken.eq(Mux(flits.ready, offered, 0)),
    ]
    payload = sources[-1].front
    for number in reversed(range(count - 1)):
        payload = Mux(chosen[number], sources[number].front, payload)
    m.d.comb += flits.payload.eq(payload)
    # An offer that has not been taken yet locks too, so that it cannot change.
    with m.If(flits.valid):
        m.d.sync += [locked.eq(~(flits.ready & last)), owner.eq(chosen)]
    for number, source in enumerate(sources):
        source.taken.append(taken[number])
