"""Records of arrivals: where each data packet came, how long it was on its way; and what they must not hold up."""

from __future__ import annotations

import random
from typing import Any

import pytest

from meshloom.hw.spec.contracts import ARRIVAL_RECORDS
from meshloom.hw.spec.isa import ARRIVAL, DATA_HEAD, FETCH_TAG, Cause, Opcode, Region, Unit, address

from .delivery_bench import Packet, chip, deliver, random_packet, replay, steady

OUT = address(Region.OUT, 0)


def record(tag: int, words: int, start: int, end: int) -> dict[str, int]:
    kind = {"unit": Unit.NONE, "opcode": Opcode.MOVE}
    return {"tag": tag, **kind, "wait": words, "stall": 0, "start": start, "end": end}


@pytest.mark.parametrize(("vcs", "ejection"), [(1, 0), (2, 1), (4, 1)])
def test_start_end_words_and_tag_stand_in_the_record(vcs: int, ejection: int) -> None:
    """`end` is the cycle after the tail was taken, which an ejection buffer makes one later; `start` when the head was
    born."""
    packets = {
        vcs - 1: [
            Packet(OUT, (1, 2, 3), (5, 9), tag=77, injected_at=990),
            Packet(OUT + 9, (4,), tag=78, injected_at=1003),
        ]
    }
    result = deliver(packets, chip(vcs, arrivals=True), now=1000)
    # the tails are the 4th and 6th flit
    ends = [1000 + 3 + ejection + 1, 1000 + 5 + ejection + 1]
    assert [what for _, what in result.records] == [record(77, 3, 990, ends[0]), record(78, 1, 1003, ends[1])]
    assert [cycle + 1000 for cycle, _ in result.records] == ends, "offered in the cycle after the tail"


@pytest.mark.parametrize("now", [5, 0x1_0003, 0xFFFF_FFFE])
@pytest.mark.parametrize("age", [0, 4, 0xFFFF])
def test_low_bits_of_the_birth_are_enough(now: int, age: int) -> None:
    """Where the low 16 bits of the clock, or all of it, run over while the packet is on its way."""
    packet = Packet(OUT, (1,), tag=3, injected_at=(now + 2 - age) % (1 << 16))
    result = deliver({0: [packet]}, chip(arrivals=True), now=now, offer=lambda vc, cycle: cycle >= 2)
    assert [what["start"] for _, what in result.records] == [(now + 2 - age) % (1 << 32)]
    assert [what["end"] for _, what in result.records] == [(now + 4) % (1 << 32)]


@pytest.mark.parametrize("vcs", [1, 3])
def test_what_fetches_instructions_leaves_no_record(vcs: int) -> None:
    code = Packet(address(Region.RING_MOVER, 8), (1, 2, 3, 4), tag=FETCH_TAG, injected_at=0)
    data = Packet(OUT, (5,), tag=FETCH_TAG - 1, injected_at=0)
    result = deliver({0: [code, data, code]}, chip(vcs, arrivals=True))
    assert [what["tag"] for _, what in result.records] == [FETCH_TAG - 1]
    assert len(result.written) == 9


@pytest.mark.parametrize("dram", [False, True])
@pytest.mark.parametrize("field", [*ARRIVAL.offsets, *DATA_HEAD.offsets])
def test_no_bit_of_a_longer_head_can_flip_unseen(field: str, dram: bool) -> None:
    layout, base = (ARRIVAL, DATA_HEAD.used) if field in ("tag", "injected_at") else (DATA_HEAD, 0)
    first, width = layout.offsets[field]
    for bit in sorted({first, first + width // 2, first + width - 1}):
        packet = Packet(OUT + 4, (1, 2, 3), (5, 9), tag=6, injected_at=99, flip=1 << base + bit)
        result = deliver({0: [packet, Packet(OUT + 1, (8, 9), tag=7)]}, chip(arrivals=True), dram=dram, cycles=20)
        assert [fault["cause"] for _, fault in result.faults] == [Cause.PARITY]
        assert [what for _, what in result.written] == [(OUT + 1, 8), (OUT + 2, 9)]
        assert [what["tag"] for _, what in result.records] == [7]


def test_the_parity_of_the_arrival_fields_is_their_own() -> None:
    """Two flips, one in each part of the head, do not hide each other."""
    packet = Packet(OUT, (1,), tag=6, flip=1 << DATA_HEAD.used - 5 | 1 << DATA_HEAD.used + 3)
    parity = Packet(OUT, (1,), tag=6, flip=1 << DATA_HEAD.used + ARRIVAL.offsets["parity"][0])
    for bad in (packet, parity):
        result = deliver({0: [bad]}, chip(arrivals=True))
        assert [fault["cause"] for _, fault in result.faults] == [Cause.PARITY]
        assert (result.written, result.records) == ([], [])


@pytest.mark.parametrize(("vcs", "gated"), [(1, False), (1, True), (3, False), (3, True)])
def test_a_slow_trace_holds_up_tails_only_when_the_queue_is_full(vcs: int, gated: bool) -> None:
    """More packets than the queue holds: they go as if there were no trace until it is full, and nothing is lost."""
    packets = {vc: [Packet(OUT + vc, (n,), tag=20 * vc + n) for n in range(12)] for vc in range(vcs)}
    config, cycles = chip(vcs, arrivals=True), 150 * vcs
    seen: dict[str, Any] = {}
    for name, ready in {"fast": steady(0, 1.0), "late": lambda cycle: cycle >= 100 and cycle % 3 == 0}.items():
        seen[name] = deliver(packets, config, cycles=cycles, record=ready, gated=gated)
        if vcs > 1:
            assert seen[name] == replay(seen[name], packets, config, dram=False, cycles=cycles, record=ready)
    fast, late = seen["fast"], seen["late"]
    assert late.written[:ARRIVAL_RECORDS] == fast.written[:ARRIVAL_RECORDS]
    assert len([cycle for cycle, _ in late.written if cycle < 100]) == ARRIVAL_RECORDS
    assert sorted(what["tag"] for _, what in late.records) == sorted(p.tag for own in packets.values() for p in own)
    for vc in range(vcs):
        tags = [what["tag"] for _, what in late.records if what["tag"] // 20 == vc]
        assert tags == sorted(tags), "the packets of a channel in order"
    # a record says when its tail went, not when the trace took it
    ends = [what["end"] for _, what in late.records]
    assert ends == [cycle + 1 for cycle, _ in late.written]


@pytest.mark.parametrize("vcs", [1, 2])
def test_a_full_queue_holds_up_no_word_but_the_last(vcs: int) -> None:
    packets = [*(Packet(OUT, (n,)) for n in range(ARRIVAL_RECORDS)), Packet(OUT + 5, tuple(range(10, 20)))]
    result = deliver({0: packets}, chip(vcs, arrivals=True), record=lambda cycle: cycle >= 60)
    assert [word for cycle, (_, word) in result.written if cycle < 60] == [*range(ARRIVAL_RECORDS), *range(10, 19)]
    assert result.written[-1] == (61, (OUT + 14, 19))


@pytest.mark.parametrize("dram", [False, True])
def test_random_packets_each_leave_their_record(dram: bool) -> None:
    """One channel, with stalls: a record for each packet, in order, to the cycle of its tail."""
    rng = random.Random(8)
    packets = [random_packet(rng, 8, rng.choice((n, n, FETCH_TAG))) for n in range(25)]
    moods: dict[str, Any] = {
        name: steady(i, 0.7) for i, name in enumerate(("delivered", "burst", "burst_data", "record"))
    }
    writable = steady(9, 0.8)
    result = deliver(
        {0: packets}, chip(arrivals=True), dram=dram, cycles=2500, write=lambda cycle, region: writable(cycle),
        now=70_000, **moods,
    )  # fmt: skip
    sizes = [len(packet.words) for packet in packets]
    cycles = sorted([cycle for cycle, _ in result.written] + [cycle for cycle, _ in result.burst_words])
    tails = [cycles[sum(sizes[: n + 1]) - 1] for n in range(len(packets))]
    taken = [cycle for cycle, _ in result.taken]
    heads = [taken[sum(sizes[:n]) + n] for n in range(len(packets))]
    right = []
    for packet, head, tail in zip(packets, heads, tails, strict=True):
        if packet.tag != FETCH_TAG:
            start = 70_000 + head - (70_000 + head - packet.injected_at) % (1 << 16)
            right.append(record(packet.tag, len(packet.words), start, 70_000 + tail + 1))
    assert [what for _, what in result.records] == right
