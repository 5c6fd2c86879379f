"""Runs a mover against memories, DRAM and a network that stall as they like; judges packets by what they write."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshloom.hw.memory.mover import Mover
from meshloom.hw.spec.config import MOST_PACKET_WORDS, ChipConfig, TileKind
from meshloom.hw.spec.contracts import read_words
from meshloom.hw.spec.isa import (
    ARRIVAL,
    DATA_HEAD,
    INSTRUCTIONS,
    TRACE,
    Opcode,
    Region,
    data_flit_bits,
    route_field,
    split_address,
)
from meshloom.hw.wiring.signatures import Issue, Request, SemPost

from .unit_bench import Mood, Sink, Source, always, bits, faults_of, fields, simulate

HERE = 0x11
#: Words of the regions of each kind of tile in these tests.
REGIONS = {
    TileKind.CORE: {Region.ACC: 400, Region.OUT: 300, Region.TRACE: 64, Region.STATS: 3},
    TileKind.SPM: {Region.MAIN: 1000, Region.TRACE: 64},
    TileKind.DRAM: {Region.MAIN: 2000, Region.TRACE: 64},
}
MOVE = INSTRUCTIONS[Opcode.MOVE]


def chip(lanes: int = 4, whole_packets: bool = False, **noc: Any) -> ChipConfig:
    floorplan = ["dram core spm", "host core dram"]
    dram = {"bytes_per_cycle": 4, "whole_packets": whole_packets}
    return ChipConfig.model_validate({"name": "t", "lanes": lanes, "floorplan": floorplan, "dram": dram, "noc": noc})


def word_of(address: int) -> int:
    """What the test's memories hold: a value that names its address."""
    return (address * 2654435761 + 12345) & 0xFFFFFFFF


@dataclass
class Packet:
    """A data packet; cycles in which its head was first offered, taken, and its last word taken. What chips with more
    in their heads say there: virtual channel, fields of `isa.ARRIVAL`, source route."""

    head: dict[str, int]
    words: list[int]
    shown: int
    first: int
    last: int
    vc: int = 0
    arrival: dict[str, int] | None = None
    route: tuple[int, ...] | None = None


class LinkSink(Sink):
    """Takes flits of a link; `ready` says which virtual channels have room, bit by bit."""

    def look(self, payload: int | None, ready: int, cycle: int) -> None:
        if payload is not None:
            ready = ready >> (payload >> len(self.port.payload.data) + 1) & 1
        super().look(payload, ready, cycle)


@dataclass
class Outcome:
    packets: list[Packet] = field(default_factory=list)
    own: list[int] = field(default_factory=list)  #: cycles in which own instructions were taken
    remote: list[int] = field(default_factory=list)
    forward: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    post: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    record: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    faults: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    offenders: list[int | None] = field(default_factory=list)  #: of each fault: the tile that is named, if any
    ended: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)  #: addresses read, words and bursts alike
    counts: dict[str, int] = field(default_factory=dict)  #: cycles of busy, net_stall, mem_stall
    longest: int = MOST_PACKET_WORDS  #: words of the chip's longest packet

    def written(self) -> dict[tuple[int, int], int]:
        """(tile, address) to the word last written there."""
        return {
            (packet.head["dst_tile"], packet.head["addr"] + i): word
            for packet in self.packets
            for i, word in enumerate(packet.words)
        }


def run(
    kind: TileKind,
    own: Sequence[int] = (),
    remote: Sequence[int] = (),
    *,
    cycles: int = 100,
    until_records: int | None = None,
    until_posts: int = 0,
    gated: bool = False,
    starts: Sequence[int] | None = None,
    waited: int = 0,
    offer: Mood = always,
    data: Callable[[int], int] | None = None,
    forward: Mood = always,
    post: Mood = always,
    record: Mood = always,
    read: Mood = always,
    burst: Mood = always,
    latency: Callable[[], int] = lambda: 10,
    pace: int = 1,
    config: ChipConfig | None = None,
    now: int = 0,
    regions: dict[Region, int] | None = None,
    rights: int = 0,
    clears: Sequence[int] = (),
    heard: Mood = always,
) -> Outcome:
    """Runs instructions (as integers) of the own stream and requests of other tiles. `starts`: earliest cycle of each
    own instruction. `read`, `burst`: when the memory takes a word address, and DRAM a burst. `latency`: cycles from a
    burst to its first word; further words follow in every `pace`th cycle. `data`: virtual channels with room, bit by
    bit (None: all). `now`: the time in cycle 0. `regions`: words of each memory. In chips with `programs`: the stream's
    `rights`, cycles in which it is ended (`clears`), and when a fault is `heard`."""
    config = config or chip()
    unit = Mover(config, kind, regions or REGIONS[kind])
    starts = starts or [0] * len(own)
    source = Source(
        unit.own, [(at, bits(Issue, code=code, waited=waited)) for at, code in zip(starts, own, strict=True)], offer
    )
    requests = Source(unit.remote, [(0, code) for code in remote], offer)
    sinks = {
        "data": LinkSink(unit.data, data or (lambda cycle: (1 << config.noc.data_vcs) - 1)),
        "forward": Sink(unit.forward, forward, bool(clears)),
        "post": Sink(unit.post, post),
        "record": Sink(unit.record, record, fickle=True),  # the engine's records overtake the dispatcher's
        "read": Sink(unit.read, read, fickle=True),  # an address is offered only while there is room for its word
    }
    faults = faults_of(unit.fault)
    if config.programs:
        faults.what = {**faults.what, "named": unit.offender.valid, "offender": unit.offender.tile}
    out = Outcome(counts=dict.fromkeys(("busy", "net_stall", "mem_stall"), 0), longest=config.packet_words)
    answered = 0
    bursts: Sink | None = None
    answers: Source | None = None
    if kind is TileKind.DRAM:
        bursts = sinks["run"] = Sink(unit.run, burst)
        answers = Source(unit.run_data, [])
    ready_at = 0

    def before(cycle: int, context: Any) -> None:
        nonlocal answered, ready_at
        context.set(unit.now, now + cycle)
        if config.programs:
            context.set(unit.rights.as_value(), rights)
            context.set(unit.clear, cycle in clears)
            context.set(unit.heard, heard(cycle))
        result = sinks["read"].got
        if result and result[-1][0] == cycle - 1:
            region, offset = result[-1][1] & 0xF, result[-1][1] >> 4
            out.reads.append(region << 24 | offset)
            context.set(unit.read_data, word_of(region << 24 | offset))
        else:
            context.set(unit.read_data, 0xDEADBEEF)  # held for one cycle only
        if bursts is not None and answers is not None:
            while answered < len(bursts.got):
                at, payload = bursts.got[answered]
                offset, words = payload & 0xFFFFFF, payload >> 24
                out.reads.append(offset)
                assert 1 <= words <= out.longest, "a burst has no more words than a packet"
                assert offset % out.longest + words <= out.longest, "and never crosses a multiple of as many"
                ready_at = max(ready_at, at + latency())
                for i in range(words):
                    answers.add(ready_at, word_of(offset + i))
                    ready_at += pace
                answered += 1
            gone = len(answers.taken)
            there = bisect_right(answers.items, cycle, gone, key=lambda item: item[0])
            context.set(unit.run_level, min(there - gone, read_words(config)))

    def after(cycle: int, context: Any) -> None:
        for name in out.counts:
            out.counts[name] += context.get(getattr(unit, name))
        if context.get(unit.ended):
            out.ended.append(cycle)

    simulate(
        unit, cycles, [source, requests, *([answers] if answers else [])], list(sinks.values()), [faults],
        before, after, {"tile": HERE},
        lambda: until_records is not None
        and len(sinks["record"].got) >= until_records
        and len(sinks["post"].got) >= until_posts,
        gated,
    )  # fmt: skip
    out.own, out.remote = source.taken, requests.taken
    for cycle, values in faults.seen:
        named, offender = values.pop("named", 0), values.pop("offender", 0)
        out.offenders.append(offender if named else None)
        out.faults.append((cycle, values))
    out.forward = [(cycle, fields(Request, payload)) for cycle, payload in sinks["forward"].got]
    out.post = [(cycle, fields(SemPost, payload)) for cycle, payload in sinks["post"].got]
    out.record = [(cycle, fields(TRACE, payload)) for cycle, payload in sinks["record"].got]
    _packets(sinks["data"], out, config)
    return out


def _packets(sink: Sink, out: Outcome, config: ChipConfig) -> None:
    width = data_flit_bits(config)
    flits = [(shown, cycle, payload & ((1 << width) - 1), payload >> width & 1, payload >> width + 1)
             for shown, (cycle, payload) in zip(sink.shown, sink.got, strict=False)]  # fmt: skip
    at = 0
    while at < len(flits):
        shown, first, bits_of_head, last, vc = flits[at]
        head, arrival, route = _head(bits_of_head, config)
        assert not last, "a packet has at least one word"
        body = flits[at + 1 : at + 1 + head["words"]]
        if len(body) < head["words"]:
            break  # cut off by the end of the simulation
        assert [flit[3] for flit in body] == [0] * (head["words"] - 1) + [1], "the tail is where the head says"
        assert {flit[4] for flit in body} == {vc}, "a packet keeps its channel"
        words = [flit[2] & 0xFFFFFFFF for flit in body]
        out.packets.append(Packet(head, words, shown, first, body[-1][1], vc, arrival, route))
        at += 1 + head["words"]


def _head(word: int, config: ChipConfig) -> tuple[dict[str, int], dict[str, int] | None, tuple[int, ...] | None]:
    """The three parts of a head: what all have, ARRIVAL if the chip has arrivals, the source route if it has one.

    Every part has even parity (the route none), and bits of no part are zero."""
    head = DATA_HEAD.unpack(word & (1 << DATA_HEAD.used) - 1)
    assert (word & (1 << DATA_HEAD.used) - 1).bit_count() % 2 == 0
    end, arrival, field = DATA_HEAD.used, None, route_field(config)
    if config.noc.arrivals:
        part = word >> end & (1 << ARRIVAL.used) - 1
        assert part.bit_count() % 2 == 0
        arrival = ARRIVAL.unpack(part)
        end += ARRIVAL.used
    route = None
    if field is not None:
        assert (field.flag_bit, field.first_bit) == (end, end + 1), "the route follows"
        route, end = field.extract(word), field.end
    assert word >> end == 0
    return head, arrival, route


def move(**values: int) -> int:
    """A MOVE from this tile to its left neighbour; runs as long as the move unless said otherwise."""
    words = values.get("words", 1)
    given = {"src_tile": HERE, "dst_tile": 0x10, "src_run": words, "dst_run": words, "words": words} | values
    return MOVE.pack({"opcode": Opcode.MOVE, **given})


def expected(code: int) -> list[tuple[tuple[int, int], int]]:
    """((tile, destination address), word) of every word of a MOVE, in order: the contract in one line."""
    f = MOVE.unpack(code)
    return [
        (
            (f["dst_tile"], f["dst"] + i // f["dst_run"] * f["dst_stride"] + i % f["dst_run"]),
            word_of(f["src"] + i // f["src_run"] * f["src_stride"] + i % f["src_run"]),
        )
        for i in range(f["words"])
    ]


def packet_sizes(code: int, longest: int = MOST_PACKET_WORDS) -> list[int]:
    """Words of each packet: cut where the run ends and where the address reaches a multiple of `longest`."""
    f = MOVE.unpack(code)
    sizes, at = [], 0
    while at < f["words"]:
        inside = at % f["dst_run"]
        address = f["dst"] + at // f["dst_run"] * f["dst_stride"] + inside
        sizes.append(min(f["dst_run"] - inside, f["words"] - at, longest - address % longest))
        at += sizes[-1]
    return sizes


def check_words(out: Outcome, codes: Sequence[int]) -> None:
    """The packets carry the words of these MOVEs, in this order, cut as promised, and only the last one notifies."""
    at = 0
    for code in codes:
        f = MOVE.unpack(code)
        sizes = packet_sizes(code, out.longest)
        packets = out.packets[at : at + len(sizes)]
        at += len(sizes)
        assert [packet.head["words"] for packet in packets] == sizes
        result = [
            ((packet.head["dst_tile"], packet.head["addr"] + i), word)
            for packet in packets
            for i, word in enumerate(packet.words)
        ]
        assert result == expected(code)
        assert [packet.head["notify"] for packet in packets] == [0] * (len(sizes) - 1) + [f["notify"]]
        for packet in packets:
            assert (packet.head["notify_tile"], packet.head["notify_sem"]) == (f["notify_tile"], f["notify_sem"])
    assert at == len(out.packets)


def random_move(rng: random.Random, kind: TileKind, tag: int) -> int:
    """A MOVE whose source lies inside the memories of `kind`."""
    region, depth = rng.choice(list(REGIONS[kind].items()))
    words = rng.choice((1, 2, 3, 17, 64, 65, 130))
    run = rng.choice((1, 3, 20, 64, words))
    rows = -(-words // run)
    run = min(run, depth)
    stride = rng.randrange(max(1, min(40, (depth - run) // max(1, rows)))) if rows > 1 else 0
    span = (rows - 1) * stride + run
    if span > depth or split_address((region << 24) + span)[0] != region:
        words, run, stride, span = 1, 1, 0, 1
    return move(
        tag=tag, words=words, src=region << 24 | rng.randrange(depth - span + 1), src_run=run, src_stride=stride,
        dst=rng.randrange(1 << 10) | rng.randrange(4) << 24, dst_run=rng.choice((1, 5, 64, words, words)),
        dst_stride=rng.randrange(200), dst_tile=rng.choice((0x00, 0x01, 0x02, 0x10, 0x11, 0x12)),
        notify=rng.randrange(2), notify_tile=0x02, notify_sem=rng.randrange(64), post_sem=rng.randrange(64),
        post_n=rng.choice((0, 1, 15)),
    )  # fmt: skip
