"""The output side of a router: allocates virtual channels to packets, and link cycles to virtual channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.utils import ceil_log2

from ..spec.routes import LOCAL, TURN_BITS, Turn
from .input_unit import Queue
from .link import LinkPort, Plane


@dataclass(frozen=True)
class _Channel:
    """A virtual channel of an output. `owner` (one-hot): the source of the packet in flight if `held`, otherwise of the
    previous one. `chosen`: the source whose flit it offers in this cycle, if it has one. One bit for each of `sources`.
    """

    sources: Sequence[Queue]
    held: Signal
    owner: Signal
    chosen: Signal

    @classmethod
    def of(cls, name: str, sources: Sequence[Queue]) -> _Channel:
        """A channel with new signals."""
        held = Signal(name=f"{name}_held")
        owner, chosen = (Signal(len(sources), name=f"{name}_{what}") for what in ("owner", "chosen"))
        return cls(sources, held, owner, chosen)


class Output:
    """Drives one output: allocates its virtual channels to packets, and its cycles to channels.

    Control is kept in narrow vectors with one bit per source or channel, and data in one chain of multiplexers: a
    simulator evaluates the vectors in every cycle, but the chain only when a flit moves.
    """

    def __init__(self, m: Module, plane: Plane, port: str, link: LinkPort, sources: Sequence[Queue]) -> None:
        self.m, self.port, self.vcs, self.sources = m, port, plane.vcs, sources
        self.offers = Signal(self.vcs, name=f"{port}_offers")  # channels with a flit, with or without room
        self.go = Signal(self.vcs, name=f"{port}_go")  # the channel whose flit moves; one-hot or 0
        if plane.allocate == "free" and self.vcs > 1:
            channels = self._free(sources, link.ready)
        else:  # with one channel, "free" is the same as "same"
            channels = [self._same(vc, [queue for queue in sources if queue.vc == vc]) for vc in range(self.vcs)]
        moving = [self._offer(vc, channel) for vc, channel in enumerate(channels)]
        if self.vcs == 1:
            m.d.comb += [self.go.eq(link.ready & self.offers), link.valid.eq(self.offers)]
            selected = {queue: [bit] for queue, bit in zip(sources, channels[0].chosen, strict=True)}
        else:
            turn = Signal(self.vcs, name=f"{port}_turn")  # the channel of the previous flit
            m.d.comb += [
                self.go.eq(round_robin_grant(m, f"{port}_sendable", self.offers & link.ready, turn)),
                link.valid.eq(self.go.any()),
                link.payload.vc.eq(Cat(*_encoded(self.go))),
            ]
            with m.If(link.valid):
                m.d.sync += turn.eq(self.go)
            selected: dict[Queue, list[Value]] = {queue: [] for queue in sources}
            for channel, moves in zip(channels, moving, strict=True):
                for queue, bit in zip(channel.sources, moves, strict=True):
                    selected[queue].append(bit)
        self._drive(link, plane, selected)

    def count(self, busy: Signal, blocked: Signal) -> None:
        """Drives the strobes: a flit leaves; a flit is waiting and none leaves."""
        wanted = Cat(queue.route_request[self.port] for queue in self.sources).any()
        self.m.d.comb += [busy.eq(self.go.any()), blocked.eq((wanted | self.offers.any()) & ~busy)]

    def _same(self, vc: int, sources: Sequence[Queue]) -> _Channel:
        """A channel shared in round robin by the packets that arrived on the same channel."""
        channel = _Channel.of(f"{self.port}_{vc}", sources)
        wanted = Cat(*(queue.route_request[self.port] for queue in sources))
        next_ = round_robin_grant(self.m, f"{self.port}_{vc}_wanted", wanted, channel.owner)
        self.m.d.comb += channel.chosen.eq(Mux(channel.held, channel.owner, next_))
        return channel

    def _free(self, sources: Sequence[Queue], ready: Value) -> list[_Channel]:
        """Channels shared by all packets: in each cycle one waiting head gets a free channel that has room.

        The channel keeps its room until the head uses it.
        """
        m, port, count = self.m, self.port, len(sources)
        channels = [_Channel.of(f"{port}_{vc}", sources) for vc in range(self.vcs)]
        served = Signal(count, name=f"{port}_served")  # sources that own a channel
        before, slot_before = Signal(count, name=f"{port}_before"), Signal(self.vcs, name=f"{port}_slot_before")
        m.d.comb += served.eq(reduce(or_, (Mux(channel.held, channel.owner, 0) for channel in channels)))
        waiting = Cat(*(queue.route_request[port] for queue in sources)) & ~served
        free = ready & ~Cat(*(channel.held for channel in channels))
        head = round_robin_grant(m, f"{port}_waiting", waiting, before)
        slot = round_robin_grant(m, f"{port}_free", free, slot_before)
        for vc, channel in enumerate(channels):
            m.d.comb += channel.chosen.eq(Mux(channel.held, channel.owner, Mux(slot[vc], head, 0)))
        with m.If(head.any() & slot.any()):
            m.d.sync += [before.eq(head), slot_before.eq(slot)]
        return channels

    def _offer(self, vc: int, channel: _Channel) -> Signal:
        """Offers the flit of the chosen source; returns, one-hot, the source whose flit moves."""
        name, m = f"{self.port}_{vc}", self.m
        offered, taken = (Signal(len(channel.sources), name=f"{name}_{what}") for what in ("offered", "taken"))
        last = Signal(name=f"{name}_out_last")
        m.d.comb += [
            offered.eq(channel.chosen & Cat(*(queue.valid for queue in channel.sources))),
            last.eq((channel.chosen & Cat(*(queue.last for queue in channel.sources))).any()),
            self.offers[vc].eq(offered.any()),
            taken.eq(Mux(self.go[vc], offered, 0)),
        ]
        # An offer that has not been taken yet also holds the channel, so that it cannot change.
        with m.If(self.offers[vc]):
            m.d.sync += [channel.held.eq(~(self.go[vc] & last)), channel.owner.eq(channel.chosen)]
        for number, queue in enumerate(channel.sources):
            queue.taken.append(taken[number])
        return taken

    def _drive(self, link: LinkPort, plane: Plane, selected: Mapping[Queue, list[Value]]) -> None:
        """Puts the flit of the selected source on the link; a head with a source route has its route shifted."""
        m, port, queues = self.m, self.port, list(selected)
        select = Signal(len(queues), name=f"{port}_select")
        m.d.comb += select.eq(Cat(*(reduce(or_, bits) for bits in selected.values())))
        flit = queues[-1].front
        for number in reversed(range(len(queues) - 1)):
            flit = Mux(select[number], queues[number].front, flit)
        front = Signal(plane.bits + 1, name=f"{port}_front")
        m.d.comb += [front.eq(flit), link.payload.last.eq(front[plane.bits])]
        if plane.routes is None or port == LOCAL:
            m.d.comb += link.payload.data.eq(front[: plane.bits])
            return
        first, end = plane.routes.first_bit, plane.routes.end
        routed = Signal(name=f"{port}_routed")
        # a route that is used up ejects where it ends, which is a fault unless that is the destination
        rest = Cat(front[first + TURN_BITS : end], Const(Turn.EJECT, TURN_BITS))
        m.d.comb += [
            routed.eq((select & Cat(*(queue.routed for queue in queues))).any()),
            link.payload.data.eq(Cat(front[:first], Mux(routed, rest, front[first:end]), front[end : plane.bits])),
        ]


def round_robin_grant(m: Module, name: str, asking: Value, before: Value) -> Signal:
    """One-hot round robin: the first of those `asking` that follows the one-hot `before`; 0 if none asks."""
    count = len(asking)
    asks, later = Signal(count, name=name), Signal(count, name=f"{name}_later")
    pool, next_ = Signal(count, name=f"{name}_pool"), Signal(count, name=f"{name}_next")
    m.d.comb += [
        asks.eq(asking),
        later.eq(asks & ~(before | (before - 1))),
        pool.eq(Mux(later.any(), later, asks)),
        next_.eq(pool & -pool),
    ]
    return next_


def _encoded(one_hot: Value) -> list[Value]:
    """The bits of the index of the bit that is set."""
    count = len(one_hot)
    return [
        Cat(*(one_hot[number] for number in range(count) if number >> bit & 1)).any() for bit in range(ceil_log2(count))
    ]
