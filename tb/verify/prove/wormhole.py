"""What is true in every router at all times: who has which channel. Invariants of the proofs of routers and meshes.

`count`   a queue holds no more than `depth` flits;
`noted`   what it has noted of them as they came says where their heads go, and which is the last of its packet;
`owns`    a queue whose packet's head has left has exactly one channel of an output; one whose head is at the front has
          at most one, of the output that the head wants; one that is empty or drops a packet has none. Where the tile
          takes the packet on its way, that of the tile comes first, and these are said of the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Cat, Mux, Value

from meshloom.hw.spec.routes import LOCAL

from .opened import Channel, Queue


def one_hot(vector: Value) -> Value:
    """Exactly one bit is set."""
    return vector.any() & one_hot_or_none(vector)


def one_hot_or_none(vector: Value) -> Value:
    """At most one bit is set."""
    return (vector & (vector - 1)) == 0


def ownership(depth: int, queues: Iterable[Queue], channels: Iterable[Channel]) -> dict[str, Value]:
    """`count` and `owns` of the given queues, and of the channels that they can have, by name."""
    values: dict[str, Value] = {}
    candidates: dict[Queue, list[Channel]] = {queue: [] for queue in queues}
    for channel in channels:
        values[f"owns {channel.title}"] = one_hot_or_none(channel.owner) & (~channel.held | channel.owner.any())
        for queue in channel.sources:
            candidates[queue].append(channel)
    for queue, to in candidates.items():
        values[f"count {queue.title}"] = queue.count <= depth
        values[f"noted {queue.title}"] = queue.noted
        here = Cat(*(channel.owned(queue) for channel in to if channel.port == LOCAL)).any()
        lands = queue.copied & here
        # where the tile takes the packet, too, its channel is not counted
        mine = Cat(*(channel.owned(queue) & ~(queue.copied & (channel.port == LOCAL)) for channel in to))
        unasked = Cat(*(channel.owned(queue) & ~queue.wants[channel.port] for channel in to))
        onward = Cat(*(channel.owned(queue) for channel in to if channel.port in queue.directions))
        first = ~queue.copied | Mux(queue.inside, lands & onward.any(), lands | ~mine.any())
        values[f"owns {queue.title}"] = Mux(
            queue.inside,
            Mux(queue.dropping, ~mine.any() & ~here, first & one_hot(mine)),
            ~queue.dropping & first & one_hot_or_none(mine) & ~unasked.any(),
        )
    return values


def in_flight(channel: Channel) -> Value:
    """The channel is in the middle of a packet: its head has left."""
    return Cat(*(channel.owned(queue) & queue.inside for queue in channel.sources)).any()
