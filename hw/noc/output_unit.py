"""The output side of a router: allocates virtual channels to packets, and link cycles to virtual channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..spec.routes import LOCAL, TURN_BITS, Turn
from .link import Link, LinkPort, Plane


@dataclass(frozen=True)
class _Channel:
    """A virtual channel of an output. `owner` (one-hot): the source of the packet in flight if `held`, otherwise of the
    previous one. `chosen`: the source whose flit it offers in this cycle, if it has one. One bit for each of `sources`,
    which are numbers of sources of the output.
    """

    sources: Sequence[int]
    held: Signal
    owner: Signal
    chosen: Signal

    @classmethod
    def of(cls, vc: int, sources: Sequence[int]) -> _Channel:
        """A channel with new signals."""
        held = Signal(name=f"held_{vc}")
        owner, chosen = (Signal(len(sources), name=f"{what}_{vc}") for what in ("owner", "chosen"))
        return cls(sources, held, owner, chosen)

    def bits(self, vector: Signal) -> Value:
        """Of a vector with a bit for each source of the output, those of this channel."""
        return Cat(*(vector[source] for source in self.sources))


class Output(wiring.Component):
    """The output `port` of a router of `plane`. It has a source for each of `channels`, the buffers from which packets
    can come here, by their virtual channels.

    In, for each source: `front` (data, then last: the flit at the front), `valid` (there is one), `last`, `request`
    (it is a head that wants to leave here) and `routed` (it has a source route, which is shifted). Out: `taken`: the
    flit leaves here in this cycle. `busy`: a flit leaves; `blocked`: one could, and none does.

    In planes with `copies` a flit can leave by two outputs at once. In, for each source: `waits`: its flit does not
    leave in this cycle, since the other one does not take it. Out: `open`: the flit would leave but for that; `owned`:
    the channel has been that source's since before this cycle.

    Contract, as `Router` states it: a channel of `link` is a packet's from the cycle of its request until its last flit
    has left; sources share a channel in round robin by packet, and channels share the link in round robin by flit.
    Latency: none. Throughput: one flit a cycle.

    Control is kept in narrow vectors with one bit per source or channel, and data in one chain of multiplexers: a
    simulator evaluates the vectors in every cycle, but the chain only when a flit moves.
    """

    front: list[Signal]
    valid: Signal
    last: Signal
    request: Signal
    routed: Signal
    taken: Signal
    waits: Signal
    open: Signal
    owned: Signal
    link: LinkPort
    busy: Signal
    blocked: Signal

    def __init__(self, plane: Plane, port: str, channels: Sequence[int]) -> None:
        self.plane, self.port, self.vcs, self.channels = plane, port, plane.vcs, tuple(channels)
        count = len(self.channels)
        super().__init__(
            {"front": In(plane.bits + 1).array(count), "link": Out(Link(plane.bits, plane.vcs)), "taken": Out(count)}
            | {name: In(count) for name in ("valid", "last", "request", "routed")}
            | {"busy": Out(1), "blocked": Out(1)}
            | ({} if plane.copies is None else {"waits": In(count), "open": Out(count), "owned": Out(count)})
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link, vcs = self.link, self.vcs
        self._offers = Signal(vcs, name="offers")  # channels with a flit, with or without room
        self._go = Signal(vcs, name="go")  # the channel whose flit moves; one-hot or 0
        if self.plane.allocate == "free" and vcs > 1:
            channels = self._free(m)
        else:  # with one channel, "free" is the same as "same"
            channels = [self._same(m, vc) for vc in range(vcs)]
        moving = [self._offer(m, vc, channel) for vc, channel in enumerate(channels)]
        moves: list[list[Value]] = [[] for _ in self.channels]  # of each source: its flit moves, by some channel
        for channel, bits in zip(channels, moving, strict=True):
            for source, bit in zip(channel.sources, bits, strict=True):
                moves[source].append(bit)
        m.d.comb += self.taken.eq(Cat(*(reduce(or_, bits) for bits in moves)))
        select = Signal(len(self.channels))
        if vcs == 1:
            shown: Value = self._offers
            if self.plane.copies is not None:
                shown = self._offers & self._shown(m, channels[0])
            m.d.comb += [self._go.eq(link.ready & shown), link.valid.eq(shown)]
            m.d.comb += select.eq(channels[0].chosen)
        else:
            turn = Signal(vcs)  # the channel of the previous flit
            m.d.comb += [
                self._go.eq(round_robin_grant(m, "sendable", self._offers & link.ready, turn)),
                link.valid.eq(self._go.any()),
                link.payload.vc.eq(Cat(*_encoded(self._go))),
                select.eq(self.taken),
            ]
            with m.If(link.valid):
                m.d.sync += turn.eq(self._go)
        m.d.comb += [
            self.busy.eq(self._go.any()),
            self.blocked.eq((self.request.any() | self._offers.any()) & ~self.busy),
        ]
        self._drive(m, select)
        return m

    def _shown(self, m: Module, channel: _Channel) -> Value:
        """Whether the flit that is offered may leave, as far as another output is concerned."""
        m.d.comb += [
            self.open.eq(Mux(self.link.ready, channel.chosen & self.valid, 0)),
            self.owned.eq(Mux(channel.held, channel.owner, 0)),
        ]
        return ~(channel.chosen & self.waits).any()

    def _same(self, m: Module, vc: int) -> _Channel:
        """A channel shared in round robin by the packets that arrived on the same channel."""
        channel = _Channel.of(vc, [source for source, of in enumerate(self.channels) if of == vc])
        next_ = round_robin_grant(m, f"wanted_{vc}", channel.bits(self.request), channel.owner)
        m.d.comb += channel.chosen.eq(Mux(channel.held, channel.owner, next_))
        return channel

    def _free(self, m: Module) -> list[_Channel]:
        """Channels shared by all packets: in each cycle one waiting head gets a free channel that has room.

        The channel keeps its room until the head uses it.
        """
        count = len(self.channels)
        channels = [_Channel.of(vc, range(count)) for vc in range(self.vcs)]
        served = Signal(count)  # sources that own a channel
        before = Signal(count)
        slot_before = Signal(self.vcs)
        m.d.comb += served.eq(reduce(or_, (Mux(channel.held, channel.owner, 0) for channel in channels)))
        free = self.link.ready & ~Cat(*(channel.held for channel in channels))
        head = round_robin_grant(m, "waiting", self.request & ~served, before)
        slot = round_robin_grant(m, "free", free, slot_before)
        for vc, channel in enumerate(channels):
            m.d.comb += channel.chosen.eq(Mux(channel.held, channel.owner, Mux(slot[vc], head, 0)))
        with m.If(head.any() & slot.any()):
            m.d.sync += [before.eq(head), slot_before.eq(slot)]
        return channels

    def _offer(self, m: Module, vc: int, channel: _Channel) -> Signal:
        """Offers the flit of the chosen source; returns, one-hot, the source whose flit moves."""
        offered, moves = (Signal(len(channel.sources), name=f"{what}_{vc}") for what in ("offered", "moves"))
        last = Signal(name=f"last_{vc}")
        m.d.comb += [
            offered.eq(channel.chosen & channel.bits(self.valid)),
            last.eq((channel.chosen & channel.bits(self.last)).any()),
            self._offers[vc].eq(offered.any()),
            moves.eq(Mux(self._go[vc], offered, 0)),
        ]
        # An offer that has not been taken yet also holds the channel, so that it cannot change.
        with m.If(self._offers[vc]):
            m.d.sync += [channel.held.eq(~(self._go[vc] & last)), channel.owner.eq(channel.chosen)]
        return moves

    def _drive(self, m: Module, select: Signal) -> None:
        """Puts the flit of the selected source on the link; a head with a source route has its route shifted."""
        plane, link = self.plane, self.link
        flit: Value = self.front[-1]
        for number in reversed(range(len(self.channels) - 1)):
            flit = Mux(select[number], self.front[number], flit)
        front = Signal(plane.bits + 1, name="leaving")
        m.d.comb += [front.eq(flit), link.payload.last.eq(front[plane.bits])]
        if plane.routes is None or self.port == LOCAL:
            m.d.comb += link.payload.data.eq(front[: plane.bits])
            return
        first, end = plane.routes.first_bit, plane.routes.end
        shifts = Signal()
        # a route that is used up ejects where it ends, which is a fault unless that is the destination
        rest = Cat(front[first + TURN_BITS : end], Const(Turn.EJECT, TURN_BITS))
        m.d.comb += [
            shifts.eq((select & self.routed).any()),
            link.payload.data.eq(Cat(front[:first], Mux(shifts, rest, front[first:end]), front[end : plane.bits])),
        ]


def round_robin_grant(m: Module, name: str, asking: Value, before: Value) -> Signal:
    """One-hot round robin: the first of those `asking` that follows the one-hot `before`; 0 if none asks.

    Without a carry: an FPGA has carries in chains of their own, which takes longer than a few gates and keeps what is
    before and after apart."""
    count = len(asking)
    asks, later = Signal(count, name=name), Signal(count, name=f"{name}_later")
    pool, next_ = Signal(count, name=f"{name}_pool"), Signal(count, name=f"{name}_next")
    passed = _spread(m, f"{name}_passed", before, count, lambda bits, by: bits >> by)
    behind = _spread(m, f"{name}_behind", (pool << 1)[:count], count, lambda bits, by: (bits << by)[:count])
    m.d.comb += [
        asks.eq(asking),
        later.eq(asks & ~passed),
        pool.eq(Mux(later.any(), later, asks)),
        next_.eq(pool & ~behind),
    ]
    return next_


def _spread(m: Module, name: str, bits: Value, count: int, move: Callable[[Value, int], Value]) -> Value:
    """The bits that are set and all that `move` leads to from there, of `count`."""
    by = 1
    while by < count:
        further = Signal(count, name=f"{name}_{by}")
        m.d.comb += further.eq(bits | move(bits, by))
        bits, by = further, 2 * by
    return bits


def _encoded(one_hot: Value) -> list[Value]:
    """The bits of the index of the bit that is set."""
    count = len(one_hot)
    return [
        Cat(*(one_hot[number] for number in range(count) if number >> bit & 1)).any() for bit in range(ceil_log2(count))
    ]
