"""One router in free surroundings: any flits come in by any input, outputs stall as they like. Nothing is assumed.

`packets`, watched from outside unless stated otherwise:

together   Any one packet (the free input `pick` says which; its flits carry a mark) leaves by one channel of one
           output, once, with no flit of another packet in between; with its last flit as many have come out as went
           in. As the packet is arbitrary: nothing is lost or doubled, and packets are never mixed.
route      Heads carry the number of the input they came by. Each leaves by the port that dimension order gives for its
           destination and by a turn of `ROUTINGS`, or by the port that its source route says, which then has lost its
           first entry. `prescribed` says so independently of the router.
dropped    A head is dropped (seen inside) if and only if there is no such port.

`conduct`, seen inside where it is about channels:

stable     With one channel, an offer that is not taken stays as it is. With more, a flit is sent only where there is
           room. In both cases, what a channel has to offer stays the same until it goes.
grant      A channel is given to one head at most, and only to one that wants it; somebody gets it if anybody wants it;
           who has it keeps it until the last flit has gone.
fair       A head waits for one packet of each other candidate for its channel at most (with "free" allocation: one
           assignment of a channel), a flit with room for one flit of each other channel at most.
asleep     In a cycle without `active` no register changes, so its clock may stand still.

The invariants that carry `packets`, besides those of `wormhole`: a mark stands on all flits of a packet or on none,
from the sender's framing through the queue to the receiver's; the flits that are missing outside are in a queue; one
packet is marked at most.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from meshloom.hw.noc.router import Router
from meshloom.hw.spec.routes import LOCAL

from .arbiter import in_turn
from .engine import Bench, Shown
from .opened import Channel, Queue
from .surroundings import COPY, FLAG, MARK, ROUTE, STAMP, Surroundings, prescribed
from .wormhole import in_flight, one_hot_or_none, ownership


def packets(router: Router) -> Bench:  # long: one property after another
    """The claims about packets: together, route, dropped."""
    around = Surroundings(router)
    top, queues, channels = around.top, around.queues, around.channels
    properties: dict[str, Value] = {}
    invariants = ownership(router.plane.depth, queues.values(), channels.values())

    pick = around.free("pick", len(queues))
    picked, seen = Signal(name="picked"), Signal(name="seen")  # a packet has been marked; its head has left
    starts: list[Value] = []
    entered: list[Value] = []
    active: list[tuple[Value, Value]] = []
    followed: dict[Queue, _Followed] = {}
    for (key, queue), wish in zip(queues.items(), pick, strict=True):
        followed[queue] = follow = _Followed(top, router, queue, around, wish & ~picked)
        starts.append(follow.starts)
        entered.append(around.enters[key] & around.marks[queue.port])
        active.append(follow.active)
        invariants |= follow.invariants(seen)
        properties[f"dropped: {queue.title}"] = ~(queue.valid & ~queue.inside) | (queue.drop == ~follow.routable())

    out: list[Value] = []
    heads: list[Value] = []
    complete: list[Value] = []
    for key, channel in channels.items():
        watch = _Watched(top, router, channel, around.leaves[key])
        leaving = [channel.owned(queue) & queue.inside & followed[queue].leaving for queue in channel.sources]
        invariants[f"mark going out of {channel.title}"] = ~watch.inside | (watch.mark == Cat(*leaving).any())
        out.append(watch.marked)
        heads.append(watch.marked & ~watch.inside)
        complete.append(watch.marked & watch.last)
        properties |= watch.properties()
        invariants |= watch.invariants()
    for queue in queues.values():
        lost = queue.drop & queue.flits[0][MARK]
        out.append(lost)
        heads.append(lost & ~queue.inside)
    with top.If(Cat(*starts).any()):
        top.d.sync += picked.eq(1)
    with top.If(Cat(*heads).any()):
        top.d.sync += seen.eq(1)
    flits = [(q, at, flit[MARK]) for q in queues.values() for at, flit in enumerate(q.flits)]
    stored = Cat(*(queue.there(at) & mark for queue, at, mark in flits))
    waiting = Cat(*(queue.there(at) & queue.begins(at) & mark for queue, at, mark in flits))
    missing = Signal(range(len(flits) + 1), name="missing")  # marked flits that went in and have not come out
    top.d.sync += missing.eq(missing + Cat(*entered).any() - Cat(*out).any())
    properties |= {
        "together: it leaves once": ~Cat(*heads).any() | (~seen & one_hot_or_none(Cat(*heads))),
        "together: flit by flit": one_hot_or_none(Cat(*out)),
        "together: as many flits out as in": ~Cat(*complete).any() | ((missing == 1) & ~_marking(active)),
    }
    marked = Cat(*(busy for busy, _ in active))
    invariants |= {
        "one packet is marked": one_hot_or_none(marked) & one_hot_or_none(waiting),
        "marked from picking on": (picked == (seen | waiting.any()))
        & ~(seen & waiting.any())
        & (picked | ~marked.any()),
        "missing flits are in queues": missing == sum(stored),
    }
    around.shown |= {"marked flits inside": Shown([missing])}
    witnesses = {
        "a marked packet of several flits leaves": Cat(*complete).any() & ~Cat(*heads).any(),
        "a packet is dropped": Cat(*(queue.drop for queue in queues.values())).any(),
    }
    assume = {"one packet is picked": one_hot_or_none(pick)}
    return Bench(top, around.inputs, properties, invariants, assume, around.shown, witnesses)


def _marking(active: list[tuple[Value, Value]]) -> Value:
    return Cat(*(coming for _, coming in active)).any()


class _Followed:
    """Marks the packet that begins to come into `queue` when `pick` is set, and follows marks through the queue."""

    def __init__(self, top: Module, router: Router, queue: Queue, around: Surroundings, pick: Value) -> None:
        self.queue, self.router = queue, router
        name, port = f"{queue.port}_{queue.vc}", queue.port
        takes = around.enters[port, queue.vc]
        last = around.router.input(port).payload.last
        self.sending, self.marking = Signal(name=f"{name}_sending"), Signal(name=f"{name}_marking")
        self.leaving = Signal(name=f"{name}_leaving")  # the flit that left last had a mark
        self.starts = Signal(name=f"{name}_starts")
        top.d.comb += self.starts.eq(takes & ~self.sending & pick)
        with top.If(takes & (self.starts | self.marking)):
            top.d.comb += around.marks[port].eq(1)
        with top.If(takes):
            top.d.sync += [self.sending.eq(~last), self.marking.eq((self.marking | self.starts) & ~last)]
        with top.If(queue.pop):
            top.d.sync += self.leaving.eq(queue.flits[0][MARK])
        stored = Cat(*(queue.there(at) & flit[MARK] for at, flit in enumerate(queue.flits)))
        self.active = (stored.any() | (queue.inside & self.leaving) | self.marking, self.marking)

    def routable(self) -> Value:
        """For the head at the front there is a port."""
        return Cat(*prescribed(self.router, self.queue.port, self.queue.flits[0]).values()).any()

    def invariants(self, seen: Value) -> dict[str, Value]:
        """About the queue and what stands before and behind it."""
        queue, latest = self.queue, self.leaving
        alike: list[Value] = []
        number = self.router.ports.index(queue.port)
        for at, flit in enumerate(queue.flits):
            before = queue.flits[at - 1][MARK] if at else self.leaving
            same = (queue.begins(at) | (flit[MARK] == before)) & (flit[STAMP] == number)
            if self.router.plane.routes is not None:
                same = same & (flit[ROUTE] == flit[COPY])
            alike.append(~queue.there(at) | same)
            latest = Mux(queue.there(at), flit[MARK], latest)
        return {
            f"marks of {queue.title}": Cat(*alike).all() & ~(queue.inside & self.leaving & ~seen),
            f"coming in to {queue.title}": (self.sending == queue.ends_open)
            & (self.marking == (queue.ends_open & latest)),
        }


class _Watched:
    """Watches what leaves by a channel of an output."""

    def __init__(self, top: Module, router: Router, channel: Channel, sends: Value) -> None:
        self.router, self.channel, self.sends = router, channel, sends
        name = f"{channel.port}_{channel.vc}"
        payload = router.output(channel.port).payload
        self.data, self.last = payload.data, payload.last
        self.inside, self.mark = Signal(name=f"{name}_receiving"), Signal(name=f"{name}_receives_marked")
        self.marked = Signal(name=f"{name}_marked")
        top.d.comb += self.marked.eq(sends & self.data[MARK])
        with top.If(sends):
            top.d.sync += [self.inside.eq(~self.last), self.mark.eq(self.data[MARK])]

    def properties(self) -> dict[str, Value]:
        """together, route."""
        router, port = self.router, self.channel.port
        right = Cat(
            *(
                (self.data[STAMP] == number) & prescribed(router, source, self.data)[port]
                for number, source in enumerate(router.ports)
            )
        ).any()
        if router.plane.routes is not None:
            rest = Cat(self.data[COPY][2:], Const(3, 2)) if port != LOCAL else self.data[COPY]
            right = right & (self.data[ROUTE] == Mux(self.data[FLAG], rest, self.data[COPY]))
        return {
            f"together: not mixed {self.channel.title}": ~(self.sends & self.inside) | (self.data[MARK] == self.mark),
            f"route: {self.channel.title}": ~(self.sends & ~self.inside) | right,
        }

    def invariants(self) -> dict[str, Value]:
        """About the packet that is under way."""
        channel = self.channel
        return {f"going out of {channel.title}": self.inside == in_flight(channel)}


def conduct(router: Router) -> Bench:
    """The claims about single cycles: stable, grant, fair, asleep."""
    around = Surroundings(router)
    top, channels = around.top, around.channels
    invariants = ownership(router.plane.depth, around.queues.values(), channels.values())
    properties = {"asleep": _asleep(around)}
    for port in router.ports:
        link: Any = router.output(port)
        if router.plane.vcs == 1:
            payload = Cat(link.payload.last, link.payload.data)
            value = _stays(top, f"{port}_offer", link.valid & ~link.ready, Cat(link.valid, payload))
            properties[f"stable: offer to {port}"] = value
        else:
            chosen = Cat(*(around.leaves[port, v] for v in range(router.plane.vcs)))
            properties[f"stable: room at {port}"] = ~link.valid | chosen.any()
    for channel in channels.values():
        properties |= _grants(top, channel, router.plane.allocate == "same" or router.plane.vcs == 1)
    for claims, helpers in _fairness(around):
        properties |= claims
        invariants |= helpers
    first = channels[LOCAL, 0]
    witnesses = {
        "all want the same": Cat(*(queue.wants[LOCAL] for queue in first.sources)).all(),
        "a packet is under way and another waits": in_flight(first) & ~first.goes & first.sources[0].wants[LOCAL],
    }
    return Bench(top, around.inputs, properties, invariants, {}, around.shown, witnesses)


def _stays(top: Module, name: str, condition: Value, value: Value) -> Value:
    """If `condition` held in the cycle before, `value` has not changed since."""
    held, before = Signal(name=f"{name}_stays"), Signal(len(value), name=f"{name}_before")
    top.d.sync += [held.eq(condition), before.eq(value)]
    return ~held | (value == before)


def _asleep(around: Surroundings) -> Value:
    registers = Cat(*around.inside.registers)
    return _stays(around.top, "asleep", ~around.router.active, registers)


def _grants(top: Module, channel: Channel, alone: bool) -> dict[str, Value]:
    """`alone`: the channel is given without regard to others."""
    name = f"{channel.port}_{channel.vc}"
    wants = Cat(*(queue.wants[channel.port] for queue in channel.sources))
    front = Cat(*(channel.chosen[at].replicate(len(q.flits[0])) & q.flits[0] for at, q in enumerate(channel.sources)))
    last = Cat(*(channel.chosen[at] & queue.last for at, queue in enumerate(channel.sources))).any()
    ends = channel.goes & last
    claims = {
        "grant: one at most": one_hot_or_none(channel.chosen),
        "grant: only to one that wants": channel.held | ((channel.chosen & ~wants) == 0),
        "grant: kept until the last": _stays(
            top, f"{name}_owner", channel.offers & ~ends, Mux(channel.offers, channel.chosen, channel.owner)
        ),
        "stable: what it has to offer": _stays(
            top, f"{name}_front", channel.offers & ~channel.goes, Cat(channel.offers, front)
        ),
    }
    if alone:
        claims["grant: somebody, if anybody wants"] = ~wants.any() | channel.offers | channel.held
    return {f"{what} {channel.title}": claim for what, claim in claims.items()}


def _fairness(around: Surroundings) -> list[tuple[dict[str, Value], dict[str, Value]]]:
    """(claims, invariants) for each arbiter of the router."""
    top, plane, inner = around.top, around.router.plane, around.inside
    pairs: list[tuple[dict[str, Value], dict[str, Value]]] = []
    free = plane.allocate == "free" and plane.vcs > 1
    for port in around.router.ports:
        mine = [around.channels[port, v] for v in range(plane.vcs)]
        for channel in [] if free else mine:
            waiting = [queue.wants[port] & ~channel.owned(queue) for queue in channel.sources]
            got = [channel.offers & channel.chosen[at] for at in range(len(waiting))]
            done = [channel.goes & has & queue.last for has, queue in zip(got, channel.sources, strict=True)]
            holding = Mux(channel.held, channel.owner, 0)
            pairs.append(in_turn(top, f"fair: to {port}.{channel.vc}", channel.owner, waiting, done, got, holding))
        if free:
            served, head = inner[f"{port}_output.served"], inner[f"{port}_output.waiting_next"]
            value = inner[f"{port}_output.free_next"].any()
            waiting = [q.wants[port] & ~served[at] for at, q in enumerate(mine[0].sources)]
            got = [head[at] & value for at in range(len(waiting))]
            pairs.append(in_turn(top, f"fair: channels to {port}", inner[f"{port}_output.before"], waiting, got, got))
        if plane.vcs > 1:
            ready = around.router.output(port).ready
            waiting = [channel.offers & ready[v] for v, channel in enumerate(mine)]
            goes = [channel.goes for channel in mine]
            pairs.append(in_turn(top, f"fair: link to {port}", inner[f"{port}_output.turn"], waiting, goes, goes))
    return pairs
