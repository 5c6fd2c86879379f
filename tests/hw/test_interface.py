"""The network interface: packets into memory words, requests into flits and back; latencies, stalls, faults."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from meshloom.hw.noc.data_receiver import DataReceiver
from meshloom.hw.noc.interface import RequestSender, RequestTaker
from meshloom.hw.spec.config import MOST_PACKET_WORDS, ChipConfig
from meshloom.hw.spec.contracts import DELIVERED_CYCLES, QUEUE_CYCLES, REQUEST_INTERVAL, SENDER_CYCLES, TAKER_CYCLES
from meshloom.hw.spec.isa import (
    DATA_HEAD,
    INSTRUCTIONS,
    REQUEST_HEAD,
    ROUTE_BODY,
    BlockedOn,
    Cause,
    Opcode,
    Region,
    address,
    data_flit_bits,
    split_address,
    with_parity,
)
from meshloom.hw.wiring.signatures import BlockedStatus, Request

from .unit_bench import (
    Mood,
    Sink,
    Source,
    Strobe,
    always,
    back_to_back,
    bits,
    faults_of,
    fields,
    never,
    simulate,
    sometimes,
)

#: Words of the regions that can be written in these tests; bursts to DRAM go to MAIN.
DEPTHS = {Region.MAIN: 2000, Region.OUT: 50, Region.RING_MOVER: 64}
Timed = list[tuple[int, dict[str, int]]]


def chip(lanes: int = 8, mover_queue: int = 2) -> ChipConfig:
    values: dict[str, Any] = {"name": "t", "lanes": lanes, "floorplan": ["dram core host"], "mover_queue": mover_queue}
    return ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": 4}})


FIRE_AT = INSTRUCTIONS[Opcode.MOVE].pack({"fire_at": 0xFFFFFFFF})

# -- DataReceiver -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packet:
    """A data packet as it comes. `said`: the length in its head, if that is not the truth."""

    at: int
    words: tuple[int, ...]
    notify: tuple[int, int] | None = None  #: tile, semaphore
    said: int | None = None
    flip: int = 0  #: bits of the head that are flipped on the way

    def flits(self, width: int) -> list[int]:
        tile, semaphore = self.notify or (0, 0)
        head = {"dst_tile": 1, "addr": self.at, "words": len(self.words) if self.said is None else self.said}
        notice = {"notify_tile": tile, "notify_sem": semaphore, "notify": int(self.notify is not None)}
        data = [with_parity(DATA_HEAD, DATA_HEAD.pack(head | notice)) ^ self.flip, *self.words]
        return [flit | (i == len(data) - 1) << width for i, flit in enumerate(data)]


@dataclass
class Delivered:
    """What a `DataReceiver` did."""

    taken: list[int] = field(default_factory=list)  #: cycle of each flit
    written: list[tuple[int, int, int]] = field(default_factory=list)  #: cycle, address, word
    delivered: list[tuple[int, int, int]] = field(default_factory=list)  #: cycle, tile, semaphore
    bursts: Timed = field(default_factory=list)
    burst_words: list[tuple[int, int]] = field(default_factory=list)
    faults: Timed = field(default_factory=list)


def deliver(
    packets: Sequence[Packet],
    *,
    lanes: int = 8,
    dram: bool = False,
    cycles: int = 100,
    offer: Mood = always,
    write: Mood = always,
    delivered: Mood = always,
    burst: Mood = always,
    burst_data: Mood = always,
    gated: bool = False,
) -> Delivered:
    """Sends packets, one after another; the other arguments say who is willing when."""
    config = chip(lanes)
    unit = DataReceiver(config, DEPTHS, dram)
    flits = [flit for packet in packets for flit in packet.flits(data_flit_bits(config))]
    source = back_to_back(unit.flit, flits, offer)
    writes, notices = Sink(unit.write, write), Sink(unit.delivered, delivered)
    sinks = [writes, notices]
    if dram:
        heads, words = Sink(unit.burst, burst), Sink(unit.burst_data, burst_data)
        sinks += [heads, words]
    faults = faults_of(unit.fault)
    simulate(unit, cycles, [source], sinks, [faults], gated=gated)
    out = Delivered(source.taken, faults=faults.seen)
    for cycle, payload in writes.got:
        word = fields(unit.write.payload.shape(), payload)
        out.written.append((cycle, address(Region(word["region"]), word["offset"]), word["data"]))
    for cycle, payload in notices.got:
        notice = fields(unit.delivered.payload.shape(), payload)
        assert notice["notify"]
        out.delivered.append((cycle, notice["notify_tile"], notice["notify_sem"]))
    if dram:
        out.bursts = [(cycle, fields(unit.burst.payload.shape(), payload)) for cycle, payload in heads.got]
        out.burst_words = words.got
    return out


def test_a_flit_a_cycle_and_written_in_its_own_cycle() -> None:
    """No bubble between packets, and the notice in the cycle after the tail."""
    at = address(Region.OUT, 3)
    out = deliver([Packet(at, (10, 11, 12), (5, 9)), Packet(at + 9, (20,), (6, 8)), Packet(at + 1, (30, 31))])
    assert out.taken == list(range(9))
    assert out.written == [
        (1, at, 10), (2, at + 1, 11), (3, at + 2, 12), (5, at + 9, 20), (7, at + 1, 30), (8, at + 2, 31),
    ]  # fmt: skip
    assert out.delivered == [(3 + DELIVERED_CYCLES, 5, 9), (5 + DELIVERED_CYCLES, 6, 8)]
    assert out.faults == []


def test_the_next_packet_waits_for_a_notice_that_is_not_taken() -> None:
    at = address(Region.OUT, 0)
    out = deliver([Packet(at, (1,), (5, 9)), Packet(at, (2,))], delivered=lambda cycle: cycle >= 12)
    assert out.taken == [0, 1, 12, 13]
    assert out.delivered == [(12, 5, 9)]


@pytest.mark.parametrize(("lanes", "dram", "seed"), [(4, False, 1), (8, True, 2), (16, False, 3), (64, True, 4)])
def test_random_packets_with_random_stalls(lanes: int, dram: bool, seed: int) -> None:
    """Every word once, in order; every notice; bursts as the heads say. Even seeds: registers stop unless `active`."""
    rng = random.Random(seed)
    packets = []
    for _ in range(30):
        region = rng.choice(list(DEPTHS))
        size = rng.choice((1, 2, 7, MOST_PACKET_WORDS if region is not Region.OUT else 50))
        at = address(region, rng.randrange(DEPTHS[region] - size + 1))
        notify = (rng.randrange(256), rng.randrange(64)) if rng.random() < 0.5 else None
        packets.append(Packet(at, tuple(rng.randrange(1 << 8 * lanes) for _ in range(size)), notify))
    moods = {name: sometimes(rng, 0.7) for name in ("offer", "write", "delivered", "burst", "burst_data")}
    out = deliver(packets, lanes=lanes, dram=dram, cycles=4000, gated=seed % 2 == 0, **moods)
    to_dram = [packet for packet in packets if dram and split_address(packet.at)[0] == Region.MAIN]
    local = [packet for packet in packets if packet not in to_dram]
    assert [(at, word) for _, at, word in out.written] == [
        (packet.at + i, word) for packet in local for i, word in enumerate(packet.words)
    ]
    assert [(tile, semaphore) for _, tile, semaphore in out.delivered] == [p.notify for p in local if p.notify]
    assert [word for _, word in out.burst_words] == [word for packet in to_dram for word in packet.words]
    for packet, (_, burst) in zip(to_dram, out.bursts, strict=True):
        tile, semaphore = packet.notify or (0, 0)
        notice = {"notify": int(packet.notify is not None), "notify_tile": tile, "notify_sem": semaphore}
        assert burst == {"offset": split_address(packet.at)[1], "words": len(packet.words)} | notice
    assert out.faults == []


@pytest.mark.parametrize("dram", [False, True])
@pytest.mark.parametrize(
    ("packet", "cause", "value", "written"),
    [
        (Packet(address(Region.OUT, 49), (1, 2)), Cause.ADDRESS, address(Region.OUT, 49), 0),
        (Packet(address(Region.OUT, 50), (1,)), Cause.ADDRESS, address(Region.OUT, 50), 0),
        (Packet(address(Region.MAIN, 1999), (1, 2)), Cause.ADDRESS, address(Region.MAIN, 1999), 0),
        (Packet(address(Region.MAIN, (1 << 24) - 1), (1, 2)), Cause.ADDRESS, address(Region.MAIN, (1 << 24) - 1), 0),
        (Packet(address(Region.B, 0), (1,)), Cause.ADDRESS, address(Region.B, 0), 0),
        (Packet(address(Region.RING_MATRIX, 0), (1,)), Cause.ADDRESS, address(Region.RING_MATRIX, 0), 0),
        (Packet(address(Region.OUT, 0), (1, 2), said=0), Cause.LENGTH, address(Region.OUT, 0), 0),
        (Packet(address(Region.OUT, 4), (), said=1), Cause.LENGTH, address(Region.OUT, 4), 0),
        (Packet(address(Region.OUT, 4), (1, 2), said=3), Cause.LENGTH, address(Region.OUT, 4), 2),
        (Packet(address(Region.OUT, 4), (1, 2, 3), said=2), Cause.LENGTH, address(Region.OUT, 4), 2),
    ],
)
def test_a_bad_packet_is_reported_once_and_sinks(
    packet: Packet, cause: Cause, value: int, written: int, dram: bool
) -> None:
    """The packets before and behind it arrive."""
    good = address(Region.OUT, 20)
    out = deliver([Packet(good, (7,)), packet, Packet(good + 1, (8, 9))], dram=dram)
    assert [fault for _, fault in out.faults] == [{"cause": cause, "tag": 0, "value": value}]
    assert len(out.written) == 1 + written + 2
    assert [(at, word) for _, at, word in (out.written[0], *out.written[-2:])] == [
        (good, 7), (good + 1, 8), (good + 2, 9),
    ]  # fmt: skip
    assert (out.bursts, out.burst_words) == ([], [])


@pytest.mark.parametrize("dram", [False, True])
@pytest.mark.parametrize("field", list(DATA_HEAD.offsets))
def test_no_bit_of_a_head_can_flip_unseen(field: str, dram: bool) -> None:
    """Whatever the head says then: the packet sinks, the ones around it arrive."""
    good = address(Region.OUT, 20)
    first, width = DATA_HEAD.offsets[field]
    for bit in sorted({first, first + width // 2, first + width - 1}):
        packet = Packet(address(Region.OUT, 4), (1, 2, 3), (5, 9), flip=1 << bit)
        out = deliver([Packet(good, (7,)), packet, Packet(good + 1, (8, 9))], dram=dram, cycles=20)
        value = (packet.flits(64)[0] >> DATA_HEAD.offsets["addr"][0]) & (1 << 28) - 1
        assert [fault for _, fault in out.faults] == [{"cause": Cause.PARITY, "tag": 0, "value": value}]
        assert [at for _, at, _ in out.written] == [good, good + 1, good + 2]
        assert (out.delivered, out.bursts) == ([], [])


def test_the_last_word_of_each_region_can_be_written() -> None:
    packets = [Packet(address(region, depth - 2), (1, 2)) for region, depth in DEPTHS.items()]
    out = deliver(packets)
    assert out.faults == []
    assert len(out.written) == 6


# -- RequestSender and RequestTaker --------------------------------------------------------------------------------


def request(rng: random.Random, port: int) -> int:
    values = {"dst_tile": rng.randrange(256), "unit": rng.randrange(4), "fetch": rng.randrange(2)}
    return bits(Request, code=rng.getrandbits(248) << 8 | port, route=rng.getrandbits(ROUTE_BODY.used), **values)


def request_flits(payload: int) -> list[int]:
    """The packet of a request: head, then the instruction, low bits first; bit 64 is `last`."""
    expected = fields(Request, payload)
    head = REQUEST_HEAD.pack(
        {name: expected[name] for name in ("dst_tile", "unit", "fetch")} | ROUTE_BODY.unpack(expected["route"])
    )
    words = [expected["code"] >> 64 * i & (1 << 64) - 1 for i in range(4)]
    head |= (payload.bit_count() & 1) << REQUEST_HEAD.offsets["parity"][0]
    return [head, *words[:3], words[3] | 1 << 64]


def send(
    items: Sequence[Sequence[int]], cycles: int, flit: Mood = always, offer: Mood = always, gated: bool = False
) -> tuple[list[Source], Sink]:
    unit = RequestSender(len(items))
    sources = [back_to_back(getattr(unit, f"request_{i}"), payloads, offer) for i, payloads in enumerate(items)]
    sink = Sink(unit.flit, flit)
    simulate(unit, cycles, sources, [sink], gated=gated)
    return sources, sink


def test_a_request_every_six_cycles_and_its_head_one_cycle_later() -> None:
    rng = random.Random(1)
    payloads = [request(rng, 0) for _ in range(3)]
    (source,), sink = send([payloads], 40)
    assert source.taken == [0, REQUEST_INTERVAL, 2 * REQUEST_INTERVAL]
    assert sink.cycles == [taken + SENDER_CYCLES + flit for taken in source.taken for flit in range(5)]
    assert sink.payloads == [flit for payload in payloads for flit in request_flits(payload)]


def test_the_lower_source_goes_first() -> None:
    rng = random.Random(2)
    payloads = [[request(rng, port) for _ in range(2)] for port in range(3)]
    sources, _ = send(payloads, 60)
    assert [source.taken for source in sources] == [[0, 6], [12, 18], [24, 30]]


@pytest.mark.parametrize("gated", [False, True])
def test_random_requests_with_random_stalls(gated: bool) -> None:
    rng = random.Random(3)
    payloads = [[request(rng, port) for _ in range(10)] for port in range(3)]
    sources, sink = send(payloads, 700, sometimes(rng, 0.6), sometimes(rng, 0.1), gated)
    taken = sorted((cycle, payload) for source, own in zip(sources, payloads, strict=True)
                   for cycle, payload in zip(source.taken, own, strict=True))  # fmt: skip
    assert sink.payloads == [flit for _, payload in taken for flit in request_flits(payload)]


@dataclass
class Taken:
    flits: list[int]
    moves: Sink
    starts: list[Strobe]
    faults: Timed


def take(
    packets: Sequence[Sequence[int]],
    cycles: int = 60,
    units: int = 3,
    move: Mood = always,
    offer: Mood = always,
    gated: bool = False,
    moved: bool = True,
) -> Taken:
    unit = RequestTaker(chip(), units, moves=moved)
    source = back_to_back(unit.flit, [flit for packet in packets for flit in packet], offer)
    moves = Sink(unit.move, move)
    faults = faults_of(unit.fault)
    starts = [Strobe(unit.start(i).valid, {"fetch": unit.start(i).fetch.as_value()}) for i in range(units)]
    simulate(unit, cycles, [source], [moves], [faults, *starts], gated=gated)
    return Taken(source.taken, moves, starts, faults.seen)


def move_packet(code: int) -> list[int]:
    return request_flits(bits(Request, dst_tile=1, code=code))


def fetch_packet(unit: int, **values: int) -> list[int]:
    code = INSTRUCTIONS[Opcode.FETCH].pack({"opcode": Opcode.FETCH, "unit": unit, **values})
    return request_flits(bits(Request, dst_tile=1, unit=unit, fetch=1, code=code))


def test_a_move_is_offered_two_cycles_after_its_last_flit() -> None:
    taken = take([move_packet(111), move_packet(222)])
    assert taken.flits == list(range(10))
    there = TAKER_CYCLES + QUEUE_CYCLES
    assert taken.moves.got == [(4 + there, 111), (9 + there, 222)]


@pytest.mark.parametrize("unit", [0, 1, 2])
def test_a_fetch_starts_its_unit_one_cycle_after_its_last_flit(unit: int) -> None:
    values = {"tag": 9, "tile": 1, "dram": 3, "addr": 4567, "count": 89}
    taken = take([fetch_packet(unit, **values)])
    code = INSTRUCTIONS[Opcode.FETCH].pack({"opcode": Opcode.FETCH, "unit": unit, **values})
    assert taken.starts[unit].seen == [(4 + TAKER_CYCLES, {"fetch": code})]
    assert all(taken.starts[other].seen == [] for other in range(3) if other != unit)
    assert (taken.moves.got, taken.faults) == ([], [])


def test_moves_wait_in_a_queue_and_then_hold_up_the_plane() -> None:
    """A queue of 2, and one that stands whole before it: the fourth request is not taken, nothing is lost."""
    taken = take([move_packet(number) for number in range(1, 6)], move=lambda cycle: cycle >= 40, cycles=80)
    assert [cycle for cycle in taken.flits if cycle < 40] == list(range(15))
    assert taken.moves.payloads == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("gated", [False, True])
def test_random_packets_in_order_with_random_stalls(gated: bool) -> None:
    rng = random.Random(4)
    codes = [rng.getrandbits(256) & ~FIRE_AT for _ in range(30)]
    packets, fetches = [], 0
    for code in codes:
        packets.append(move_packet(code))
        if rng.random() < 0.3:
            packets.append(fetch_packet(rng.randrange(3), tag=fetches, count=1))
            fetches += 1
    taken = take(packets, 1200, move=sometimes(rng, 0.2), offer=sometimes(rng, 0.7), gated=gated)
    assert taken.moves.payloads == codes
    started = sorted((cycle, result["fetch"] >> 4 & 0xFFFF) for start in taken.starts for cycle, result in start.seen)
    assert [tag for _, tag in started] == list(range(fetches))
    assert taken.faults == []


@pytest.mark.parametrize("units", [1, 2, 3])
def test_a_fetch_for_a_unit_that_is_not_there(units: int) -> None:
    taken = take([fetch_packet(units, tag=77), move_packet(5)], units=units)
    assert taken.faults == [(5, {"cause": Cause.DESTINATION, "tag": 77, "value": units})]
    assert all(start.seen == [] for start in taken.starts)
    assert taken.moves.payloads == [5]


def test_where_there_is_no_memory_a_move_is_a_fault_and_nothing_waits() -> None:
    code = INSTRUCTIONS[Opcode.MOVE].pack({"opcode": Opcode.MOVE, "tag": 12, "src": 0xD000003})
    taken = take([move_packet(code), fetch_packet(0, tag=5)], units=1, moved=False)
    assert taken.faults == [(5, {"cause": Cause.ADDRESS, "tag": 12, "value": 0xD000003})]
    assert (taken.moves.got, len(taken.starts[0].seen), len(taken.flits)) == ([], 1, 10)


@pytest.mark.parametrize("size", [1, 2, 4, 6, 7])
def test_a_request_of_the_wrong_length(size: int) -> None:
    """Reported with the number of flits behind the head; the next request is understood again."""
    flits = [*(0 for _ in range(size - 1)), 1 << 64]
    taken = take([flits, move_packet(5)])
    assert taken.faults == [(size - 1, {"cause": Cause.LENGTH, "tag": 0, "value": size - 1})]
    assert taken.moves.payloads == [5]


@pytest.mark.parametrize("flit", range(5))
def test_no_bit_of_a_request_can_flip_unseen(flit: int) -> None:
    """Such a request goes nowhere; the next one is understood."""
    rng = random.Random(flit)
    for bit in rng.sample(range(REQUEST_HEAD.used if flit == 0 else 64), 8):
        flipped = move_packet(rng.getrandbits(256))
        flipped[flit] ^= 1 << bit
        taken = take([flipped, move_packet(5)])
        assert [fault["cause"] for _, fault in taken.faults] == [Cause.PARITY]
        assert all(start.seen == [] for start in taken.starts)
        assert taken.moves.payloads == [5]


@pytest.mark.parametrize("taken", [True, False])
def test_a_packet_that_waits_says_for_what(taken: bool) -> None:
    """A packet of three words of which one has come; it has been written, or the memory does not take it."""
    unit = DataReceiver(chip(), DEPTHS)
    source = back_to_back(unit.flit, Packet(address(Region.OUT, 4), (1, 2, 3)).flits(64)[:2], always)
    seen: list[dict[str, int]] = []

    def look(_: int, context: Any) -> None:
        seen.append(fields(BlockedStatus, context.get(unit.blocked_status.as_value())))

    simulate(unit, 8, [source], [Sink(unit.write, always if taken else never)], after=look)
    at, left = (address(Region.OUT, 5), 2) if taken else (address(Region.OUT, 4), 3)
    where = {"sem": at & 63, "need": at >> 6 & 63, "has": at >> 12 & 255, "peer": at >> 20}
    assert seen[-1] == {"waits": BlockedOn.FLITS if taken else BlockedOn.MEMORY, "tag": left} | where


def test_the_queue_says_how_much_waits_in_it() -> None:
    unit = RequestTaker(chip(), 1)
    codes = [INSTRUCTIONS[Opcode.MOVE].pack({"opcode": Opcode.MOVE, "tag": tag, "dst_tile": 7}) for tag in (30, 31, 32)]
    source = back_to_back(unit.flit, [flit for code in codes for flit in move_packet(code)], always)
    seen: list[dict[str, int]] = []

    def look(_: int, context: Any) -> None:
        seen.append(fields(BlockedStatus, context.get(unit.blocked_status.as_value())))

    simulate(unit, 30, [source], after=look)
    assert seen[3]["waits"] == BlockedOn.FLITS  # the first one is not whole
    assert seen[-1] == {"waits": BlockedOn.UNIT, "tag": 30, "sem": 0, "need": 1, "has": 2, "peer": 7}
