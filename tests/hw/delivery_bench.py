"""Feeds a `DataReceiver` as a router with virtual channels does, and says in each cycle what its contract allows.

`Contract` is the docstring of `hw/noc/data_receiver.py` in plain Python, cycle by cycle: whose turn it is, what moves,
what is written, told and recorded. `compare` runs both on the same traffic; they must agree in every cycle.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshloom.hw.noc.data_receiver import DataReceiver
from meshloom.hw.spec.config import MOST_PACKET_WORDS, ChipConfig
from meshloom.hw.spec.contracts import ARRIVAL_RECORDS, EJECTION_FLITS
from meshloom.hw.spec.isa import (
    ARRIVAL,
    DATA_HEAD,
    FETCH_TAG,
    TRACE,
    Opcode,
    Region,
    Unit,
    address,
    split_address,
    with_parity,
)

from .unit_bench import Mood, Sink, always, faults_of, fields, simulate

#: Words of the regions that can be written in these tests; bursts to DRAM go to MAIN.
DEPTHS = {Region.MAIN: 2000, Region.OUT: 50, Region.RING_MOVER: 64}
#: What a cycle of a stream looks like: (cycle, what it carries).
Events = list[tuple[int, Any]]
#: Says whether the memory takes a word of a region in a cycle.
Writable = Callable[[int, Region], bool]


def chip(vcs: int = 1, lanes: int = 8, arrivals: bool = False, **noc: Any) -> ChipConfig:
    values: dict[str, Any] = {"name": "t", "lanes": lanes, "floorplan": ["dram core host"]}
    values["noc"] = {"data_vcs": vcs, "arrivals": arrivals, **noc}
    return ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": 4}})


@dataclass(frozen=True)
class Packet:
    """A data packet. `tag` and `injected_at` stand in the heads of chips with arrivals. `said`: the length in its head,
    if that is not the truth. `flip`: bits of the head that are flipped on the way."""

    at: int
    words: tuple[int, ...]
    notify: tuple[int, int] | None = None  #: tile, semaphore
    tag: int = 0
    injected_at: int = 0
    said: int | None = None
    flip: int = 0

    @property
    def region(self) -> Region:
        return Region(split_address(self.at)[0])

    def flits(self, config: ChipConfig) -> list[tuple[int, bool]]:
        """(data, last) of each flit."""
        tile, semaphore = self.notify or (0, 0)
        values = {"dst_tile": 1, "addr": self.at, "words": len(self.words) if self.said is None else self.said}
        values |= {"notify_tile": tile, "notify_sem": semaphore, "notify": int(self.notify is not None)}
        head = with_parity(DATA_HEAD, DATA_HEAD.pack(values))
        if config.noc.arrivals:
            arrival = with_parity(ARRIVAL, ARRIVAL.pack({"tag": self.tag, "injected_at": self.injected_at}))
            head |= arrival << DATA_HEAD.used
        data = [head ^ self.flip, *self.words]
        return [(flit, i == len(data) - 1) for i, flit in enumerate(data)]


def random_packet(rng: random.Random, lanes: int, tag: int = 0, regions: Sequence[Region] = tuple(DEPTHS)) -> Packet:
    """A good packet; the tag also stands in its first word."""
    region = rng.choice(list(regions))
    size = rng.choice((1, 1, 2, 5, MOST_PACKET_WORDS if region is not Region.OUT else 50))
    at = address(region, rng.randrange(DEPTHS[region] - size + 1))
    notify = (rng.randrange(256), rng.randrange(64)) if rng.random() < 0.5 else None
    words = tuple(rng.randrange(1 << 8 * lanes) for _ in range(size))
    return Packet(at, words, notify, tag, rng.randrange(1 << 16))


@dataclass
class Delivered:
    """What a `DataReceiver` did: cycle and what."""

    taken: Events = field(default_factory=list)  #: vc of each flit that it accepted from the network
    written: Events = field(default_factory=list)  #: (address, word)
    delivered: Events = field(default_factory=list)  #: (tile, semaphore)
    records: Events = field(default_factory=list)  #: fields of `isa.TRACE`
    bursts: Events = field(default_factory=list)  #: (offset, words, notify)
    burst_words: Events = field(default_factory=list)
    faults: Events = field(default_factory=list)  #: fields of the fault


@dataclass
class _Feed:
    """The router's local output: in each cycle a flit of a channel that is ready, or (with one channel) one that stays
    until it is taken."""

    config: ChipConfig
    unit: DataReceiver
    queues: Mapping[int, deque[tuple[int, bool]]]
    offer: Callable[[int, int], bool]  # vc, cycle
    rng: random.Random
    out: Delivered
    offered: int | None = None

    def set(self, cycle: int, context: Any) -> None:
        port, vcs = self.unit.flit, self.config.noc.data_vcs
        ready = context.get(port.ready)
        waiting = [vc for vc, queue in self.queues.items() if queue]
        if vcs > 1 or self.offered is None:
            there = [vc for vc in waiting if (vcs == 1 or ready >> vc & 1) and self.offer(vc, cycle)]
            self.offered = self.rng.choice(there) if there else None
        context.set(port.valid, self.offered is not None)
        if self.offered is not None:
            data, last = self.queues[self.offered][0]
            flit = {"data": data, "last": last} | ({"vc": self.offered} if vcs > 1 else {})
            context.set(port.payload, flit)

    def look(self, cycle: int, context: Any) -> None:
        if self.offered is not None and context.get(self.unit.flit.ready) >> self.offered & 1:
            self.queues[self.offered].popleft()
            self.out.taken.append((cycle, self.offered))
            self.offered = None


def deliver(
    packets: Mapping[int, Sequence[Packet]],
    config: ChipConfig,
    *,
    dram: bool = False,
    cycles: int = 100,
    seed: int = 0,
    offer: Callable[[int, int], bool] = lambda vc, cycle: True,
    write: Writable = lambda cycle, region: True,
    delivered: Mood = always,
    burst: Mood = always,
    burst_data: Mood = always,
    record: Mood = always,
    gated: bool = False,
    now: int = 0,
) -> Delivered:
    """Sends the packets of each virtual channel in order; the channels share the link flit by flit, at random.

    The other arguments say who is willing when; `now`: the time in cycle 0.
    """
    unit = DataReceiver(config, DEPTHS, dram)
    out = Delivered()
    queues = {vc: deque(flit for packet in own for flit in packet.flits(config)) for vc, own in packets.items()}
    feed = _Feed(config, unit, queues, offer, random.Random(seed), out)
    several = config.noc.data_vcs > 1
    # with several channels another one's flit may be offered in the next cycle
    notices = Sink(unit.delivered, delivered)
    sinks = [notices]
    heads = words = records = None
    if dram:
        heads, words = Sink(unit.burst, burst, fickle=several), Sink(unit.burst_data, burst_data, fickle=several)
        sinks += [heads, words]
    if config.noc.arrivals:
        records = Sink(unit.record, record)
        sinks.append(records)
    faults = faults_of(unit.fault)
    shape = unit.write.payload.shape()

    def before(cycle: int, context: Any) -> None:
        context.set(unit.now, now + cycle)
        feed.set(cycle, context)
        region = context.get(unit.write.payload.region)
        context.set(unit.write.ready, bool(context.get(unit.write.valid)) and write(cycle, Region(region)))

    def after(cycle: int, context: Any) -> None:
        feed.look(cycle, context)
        if context.get(unit.write.valid) and context.get(unit.write.ready):
            word = fields(shape, int(context.get(unit.write.payload.as_value())))
            out.written.append((cycle, (address(Region(word["region"]), word["offset"]), word["data"])))

    simulate(unit, cycles, sinks=sinks, strobes=[faults], before=before, after=after, gated=gated)
    for cycle, payload in notices.got:
        notice = fields(unit.delivered.payload.shape(), payload)
        assert notice["notify"]
        out.delivered.append((cycle, (notice["notify_tile"], notice["notify_sem"])))
    if heads is not None and words is not None:
        for cycle, payload in heads.got:
            head = fields(unit.burst.payload.shape(), payload)
            notify = (head["notify_tile"], head["notify_sem"]) if head["notify"] else None
            out.bursts.append((cycle, (head["offset"], head["words"], notify)))
        out.burst_words = list(words.got)
    if records is not None:
        out.records = [(cycle, fields(TRACE, payload)) for cycle, payload in records.got]
    out.faults = list(faults.seen)
    return out


@dataclass
class _Under:
    """What is known of the packet under way on a channel; `packet` None: none is."""

    packet: Packet | None = None
    at: int = 0  # words that have gone
    start: int = 0


class Contract:
    """What a `DataReceiver` with several virtual channels has to do with good packets, cycle by cycle.

    `step` gets the flit that the network brings (vc, packet, number of the flit; None: none) and who is willing, and
    adds what happens to `out`.
    """

    def __init__(self, config: ChipConfig, dram: bool, now: int) -> None:
        self.vcs, self.arrivals, self.dram, self.now = config.noc.data_vcs, config.noc.arrivals, dram, now
        self.ejection_buffers: list[deque[tuple[Packet, int]]] = [deque() for _ in range(self.vcs)]
        self.under = [_Under() for _ in range(self.vcs)]
        self.before = self.vcs - 1  # the channel that had its turn last
        self.locked: int | None = None
        self.owed: tuple[int, int] | None = None
        self.queue: deque[dict[str, int]] = deque()  # records
        self.out = Delivered()

    def step(
        self,
        cycle: int,
        flit: tuple[int, Packet, int] | None,
        write: Writable,
        delivered: bool,
        burst: bool,
        burst_data: bool,
        record: bool,
    ) -> None:
        message = self.owed is None or delivered
        room = len(self.queue) < ARRIVAL_RECORDS
        if self.owed is not None and delivered:
            self.out.delivered.append((cycle, self.owed))
            self.owed = None
        if self.queue and record:
            self.out.records.append((cycle, self.queue.popleft()))
        if (vc := self._turn()) is not None:
            self.before = vc
            self._serve(cycle, vc, message, room, write, burst, burst_data)
        if flit is not None:  # at the front from the next cycle on
            vc, packet, number = flit
            self.ejection_buffers[vc].append((packet, number))
            assert len(self.ejection_buffers[vc]) <= EJECTION_FLITS, (
                f"channel {vc} was ready without room in cycle {cycle}"
            )
            self.out.taken.append((cycle, vc))

    def _turn(self) -> int | None:
        order = [(self.before + 1 + i) % self.vcs for i in range(self.vcs)]
        return next((vc for vc in order if self.ejection_buffers[vc] and not self._held(vc)), None)

    def _held(self, vc: int) -> bool:
        """A head for DRAM, while another packet's words go there."""
        packet, number = self.ejection_buffers[vc][0]
        return self._to_dram(packet) and number == 0 and self.locked is not None

    def _to_dram(self, packet: Packet) -> bool:
        return self.dram and packet.region is Region.MAIN

    def _serve(
        self, cycle: int, vc: int, told: bool, room: bool, write: Writable, burst: bool, burst_data: bool
    ) -> None:
        packet, number = self.ejection_buffers[vc][0]
        under, out, to_dram = self.under[vc], self.out, self._to_dram(packet)
        if number == 0:
            if not told or (to_dram and not burst):
                return
            assert under.packet is None
            age = (self.now + cycle - packet.injected_at) % (1 << 16)
            self.under[vc] = _Under(packet, 0, self.now + cycle - age)
            if to_dram:
                out.bursts.append((cycle, (split_address(packet.at)[1], len(packet.words), packet.notify)))
                self.locked = vc
        else:
            assert under.packet is packet
            last, notifies = number == len(packet.words), packet.notify is not None and not to_dram
            if last and ((notifies and not told) or (self.arrivals and not room)):
                return
            if not (burst_data if to_dram else write(cycle, packet.region)):
                return
            word = packet.words[number - 1]
            if to_dram:
                out.burst_words.append((cycle, word))
            else:
                out.written.append((cycle, (packet.at + number - 1, word)))
            if last:
                self.locked = None if to_dram else self.locked
                self.owed = packet.notify if notifies else self.owed
                self.under[vc] = _Under()
                if self.arrivals and packet.tag != FETCH_TAG:
                    self._record(packet, under.start, self.now + cycle + 1)
        self.ejection_buffers[vc].popleft()

    def _record(self, packet: Packet, start: int, end: int) -> None:
        result = {"tag": packet.tag, "unit": int(Unit.NONE), "opcode": int(Opcode.MOVE), "wait": len(packet.words)}
        self.queue.append(result | {"stall": 0, "start": start % (1 << 32), "end": end % (1 << 32)})


def replay(
    found: Delivered,
    packets: Mapping[int, Sequence[Packet]],
    config: ChipConfig,
    *,
    dram: bool,
    cycles: int,
    now: int = 0,
    write: Writable = lambda cycle, region: True,
    delivered: Mood = always,
    burst: Mood = always,
    burst_data: Mood = always,
    record: Mood = always,
) -> Delivered:
    """What the contract does with the flits in the cycles in which the unit has accepted them. Moods as in `deliver`
    (they must answer alike for the same cycle)."""
    contract = Contract(config, dram, now)
    flits = {vc: _numbered(own) for vc, own in packets.items()}
    accepted = dict(found.taken)
    for cycle in range(cycles):
        vc = accepted.get(cycle)
        flit = None if vc is None else (vc, *next(flits[vc]))
        moods = delivered(cycle), burst(cycle), burst_data(cycle), record(cycle)
        contract.step(cycle, flit, write, *moods)
    return contract.out


def _numbered(packets: Sequence[Packet]) -> Iterator[tuple[Packet, int]]:
    for packet in packets:
        for number in range(1 + len(packet.words)):
            yield packet, number


def steady(seed: int, chance: float) -> Mood:
    """A random mood that answers alike whenever it is asked about the same cycle."""
    rng = random.Random(seed)
    known: list[bool] = []

    def mood(cycle: int) -> bool:
        while len(known) <= cycle:
            known.append(rng.random() < chance)
        return known[cycle]

    return mood
