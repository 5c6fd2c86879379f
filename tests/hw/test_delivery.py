"""DataReceiver with virtual channels: packets side by side, whose turn it is, DRAM one at a time; to the cycle."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from meshloom.hw.noc.data_receiver import DataReceiver
from meshloom.hw.spec.contracts import DELIVERED_CYCLES, EJECTION_CYCLES, EJECTION_FLITS
from meshloom.hw.spec.isa import BlockedOn, Cause, Region, address
from meshloom.hw.wiring.signatures import BlockedStatus

from .delivery_bench import DEPTHS, Delivered, Packet, chip, deliver, random_packet, replay, steady
from .unit_bench import Sink, fields, simulate

OUT = address(Region.OUT, 0)


def words_of(packets: list[Packet]) -> list[tuple[int, int]]:
    """(address, word) of all words, in order."""
    return [(packet.at + i, word) for packet in packets for i, word in enumerate(packet.words)]


@pytest.mark.parametrize(
    ("vcs", "dram", "arrivals", "chance", "seed"),
    [
        (2, False, False, 0.9, 1),
        (3, False, True, 0.6, 2),
        (4, False, False, 0.5, 3),
        (2, True, True, 0.7, 4),
        (3, True, False, 0.9, 5),
        (4, True, False, 0.5, 6),
    ],
)
def test_random_packets_on_all_channels_do_what_the_contract_says(
    vcs: int, dram: bool, arrivals: bool, chance: float, seed: int
) -> None:
    """Flits of all channels mixed, everybody unwilling at times: every write, notice, burst and record in its cycle.
    Even seeds: registers stop unless `active`."""
    rng, config = random.Random(seed), chip(vcs, 8, arrivals)
    packets = {vc: [random_packet(rng, 8, 100 * vc + n) for n in range(9)] for vc in range(vcs)}
    names = ("burst", "burst_data", "record")
    moods: dict[str, Any] = {name: steady(10 * seed + i, chance) for i, name in enumerate(names)}
    moods["delivered"] = steady(seed, 0.1)  # whoever is told takes its time
    by_region = {region: steady(1000 + region, chance) for region in Region}
    moods["write"] = lambda cycle, region: by_region[region](cycle)
    offers = [steady(500 + vc, 0.8) for vc in range(vcs)]
    cycles = 700 * vcs
    result = deliver(
        packets, config, dram=dram, cycles=cycles, seed=seed, gated=seed % 2 == 0,
        offer=lambda vc, cycle: offers[vc](cycle), **moods,
    )  # fmt: skip
    right = replay(result, packets, config, dram=dram, cycles=cycles, **moods)
    assert result == right
    assert len(result.taken) == sum(1 + len(packet.words) for own in packets.values() for packet in own)
    check_all_of_it(result, packets, dram)


def check_all_of_it(found: Delivered, packets: dict[int, list[Packet]], dram: bool) -> None:
    """Every word once at its address and in the order of its channel, every notice once, bursts unmixed."""
    everything = [packet for own in packets.values() for packet in own]
    to_dram = [packet for packet in everything if dram and packet.region is Region.MAIN]
    local = [packet for packet in everything if packet not in to_dram]
    written = [what for _, what in found.written]
    assert sorted(written) == sorted(words_of(local))
    for own in packets.values():
        mine = words_of([packet for packet in own if packet in local])
        assert [what for what in written if what in set(mine)] == mine
    assert sorted(what for _, what in found.delivered) == sorted(p.notify for p in local if p.notify is not None)
    # the words of each burst stand together, in its order
    words = iter([what for _, what in found.burst_words])
    bursts = [tuple(next(words) for _ in range(size)) for _, (_, size, _) in found.bursts]
    assert sorted(zip([what for _, what in found.bursts], bursts, strict=True), key=str) == sorted(
        (((packet.at & 0xFFFFFF, len(packet.words), packet.notify), packet.words) for packet in to_dram), key=str
    )
    assert next(words, None) is None
    assert found.faults == []


@pytest.mark.parametrize("vcs", [2, 3, 4])
def test_a_flit_is_written_the_cycle_after_its_acceptance(vcs: int) -> None:
    """One channel at a flit a cycle: the ejection buffer costs one cycle and no throughput."""
    vc = vcs - 1
    result = deliver(
        {vc: [Packet(OUT + 3, (10, 11, 12), (5, 9)), Packet(OUT + 9, (20,)), Packet(OUT, (30,))]}, chip(vcs)
    )
    assert [cycle for cycle, _ in result.taken] == list(range(8))
    late = EJECTION_CYCLES
    assert result.written == [
        (1 + late, (OUT + 3, 10)), (2 + late, (OUT + 4, 11)), (3 + late, (OUT + 5, 12)), (5 + late, (OUT + 9, 20)),
        (7 + late, (OUT, 30)),
    ]  # fmt: skip
    assert result.delivered == [(3 + late + DELIVERED_CYCLES, (5, 9))]


@pytest.mark.parametrize("stuck", [Region.OUT, Region.MAIN])
def test_a_region_that_takes_nothing_stops_its_own_channel_only(stuck: Region) -> None:
    """Channel 0 waits for a memory that refuses; the others go on, each at every second turn at least."""
    other = Region.MAIN if stuck is Region.OUT else Region.OUT
    packets = {
        0: [Packet(address(stuck, 1), (1, 2, 3), (1, 1))],
        1: [Packet(address(other, 0), tuple(range(100, 120)), (2, 2)), Packet(address(other, 40), (7, 8))],
        2: [Packet(address(other, 20), tuple(range(200, 220)))],
    }
    result = deliver(packets, chip(3), cycles=120, write=lambda cycle, region: region is not stuck or cycle >= 100)
    before = [what for cycle, what in result.written if cycle < 100]
    assert sorted(before) == sorted(words_of([*packets[1], *packets[2]]))
    assert (
        max(cycle for cycle, _ in result.written if cycle < 100) < 75
    )  # 45 flits; a third of the turns is channel 0's
    assert [what for cycle, what in result.written if cycle >= 100] == words_of(packets[0])
    assert [what for _, what in result.delivered] == [(2, 2), (1, 1)]


def test_the_turn_goes_on_when_it_could_not_be_used() -> None:
    """Channel 0's word is refused in every cycle: channels 1 and 2 have the other two of three turns, in order."""
    packets = {0: [Packet(OUT, (1,))]} | {vc: [Packet(address(Region.MAIN, 64 * vc), (vc,) * 30)] for vc in (1, 2)}
    result = deliver(
        packets, chip(3), cycles=80, write=lambda cycle, region: region is Region.MAIN,
        offer=lambda vc, cycle: vc == 0 or cycle >= 4,
    )  # fmt: skip
    cycles = {vc: [cycle for cycle, (_, word) in result.written if word == vc] for vc in (1, 2)}
    middle = {vc: [cycle for cycle in result if 12 <= cycle < 36] for vc, result in cycles.items()}
    for found_in in middle.values():
        assert [late - early for early, late in zip(found_in, found_in[1:], strict=False)] == [3] * 7
    assert {vc: found_in[0] % 3 for vc, found_in in middle.items()} in ({1: a, 2: (a + 1) % 3} for a in range(3))


def test_the_ejection_buffer_holds_two_flits_of_each_channel() -> None:
    """Nothing is written: two flits of each channel behind those that could go (heads), and no more."""
    packets = {vc: [Packet(OUT + 5 * vc, (1, 2, 3, 4))] for vc in range(4)}
    result = deliver(packets, chip(4), cycles=60, write=lambda cycle, region: False)
    assert sorted(vc for _, vc in result.taken) == sorted([0, 1, 2, 3] * (1 + EJECTION_FLITS))


@pytest.mark.parametrize("gated", [False, True])
def test_packets_for_dram_go_one_after_the_other_and_hold_up_no_others(gated: bool) -> None:
    """DRAM takes one word in five cycles. Heads for DRAM on other channels wait; packets for other memories don't."""
    packets = {
        0: [Packet(address(Region.MAIN, 0), tuple(range(20)))],
        1: [Packet(address(Region.MAIN, 64), tuple(range(100, 120)))],
        2: [Packet(OUT + n, (n,), (3, n)) for n in range(12)],
    }
    result = deliver(packets, chip(3), dram=True, cycles=330, burst_data=lambda cycle: cycle % 5 == 0, gated=gated)
    assert sorted(what for _, what in result.burst_words) == [*range(20), *range(100, 120)]
    first = next(what for _, what in result.burst_words)
    assert [what for _, what in result.burst_words][:20] == list(range(first, first + 20))
    ends = [cycle for cycle, _ in result.burst_words][19::20]
    assert result.bursts[1][0] == ends[0] + 1, "the next head goes right behind the last word"
    assert max(cycle for cycle, _ in result.written) < 60, "the ring does not wait for DRAM"
    assert [what for _, what in result.delivered] == [(3, n) for n in range(12)]


def test_a_notice_that_is_not_taken_holds_up_heads_and_tails_but_no_words() -> None:
    """One is told; until then no other packet that notifies ends, and none begins."""
    packets = {
        0: [Packet(OUT, (1,), (1, 1))],
        1: [Packet(OUT + 10, tuple(range(10, 20)), (2, 2))],
        2: [Packet(OUT + 20, tuple(range(20, 30))), Packet(OUT + 40, (40,))],
    }
    result = deliver(packets, chip(3), cycles=120, delivered=lambda cycle: cycle >= 70)
    early = sorted(word for cycle, (_, word) in result.written if cycle < 70)
    assert early == [1, *range(10, 19), *range(20, 30)]
    assert sorted(word for cycle, (_, word) in result.written if cycle >= 70) == [19, 40]
    assert [what for _, what in result.delivered] == [(1, 1), (2, 2)]


BAD = {
    "address": (Packet(OUT + 49, (1, 2)), Cause.ADDRESS, 0),
    "no such region": (Packet(address(Region.B, 0), (1,)), Cause.ADDRESS, 0),
    "no words": (Packet(OUT, (1, 2), said=0), Cause.LENGTH, 0),
    "too short": (Packet(OUT + 4, (1, 2), said=3), Cause.LENGTH, 2),
    "too long": (Packet(OUT + 4, (1, 2, 3, 4), said=2), Cause.LENGTH, 2),
    "flipped": (Packet(OUT + 4, (1, 2, 3), flip=1 << 40), Cause.PARITY, 0),
}


@pytest.mark.parametrize("dram", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_packet_sinks_and_all_others_arrive(name: str, dram: bool) -> None:
    """Between two good ones of its channel, with traffic on the other."""
    packet, cause, written = BAD[name]
    good = {
        0: [Packet(OUT + 20, (7,), (1, 1)), Packet(OUT + 30, (8, 9))],
        1: [Packet(OUT + 10, tuple(range(60, 70)), (2, 2)), Packet(address(Region.MAIN, 3), (5, 6))],
    }
    result = deliver({0: [good[0][0], packet, good[0][1]], 1: good[1]}, chip(2), dram=dram, cycles=60)
    assert [fault["cause"] for _, fault in result.faults] == [cause]
    bad = words_of([packet])[:written]
    expected = words_of([*good[0], *good[1][: 1 if dram else 2]])
    assert sorted(what for _, what in result.written) == sorted([*expected, *bad])
    assert [what for _, what in result.burst_words] == ([5, 6] if dram else [])
    assert sorted(what for _, what in result.delivered) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("said", [2, 0])
def test_what_sinks_does_not_free_the_dram(said: int) -> None:
    """The rest of a bad packet for DRAM comes while another channel's words go there, and a third one waits."""
    bad = Packet(address(Region.MAIN, 500), tuple(range(900, 930)), said=said)
    packets = {
        0: [bad],
        1: [Packet(address(Region.MAIN, 0), tuple(range(30)))],
        2: [Packet(address(Region.MAIN, 64), tuple(range(100, 130)))],
    }
    starts = {0: 0, 1: 8, 2: 12}
    result = deliver(
        packets, chip(3), dram=True, cycles=300, offer=lambda vc, cycle: cycle >= starts[vc],
        burst_data=lambda cycle: cycle % 2 == 0,
    )  # fmt: skip
    assert [fault["cause"] for _, fault in result.faults] == [Cause.LENGTH]
    assert [what for _, what in result.burst_words] == [*bad.words[:said], *range(30), *range(100, 130)]


@pytest.mark.parametrize("vcs", [2, 4])
def test_a_packet_that_waits_says_for_what(vcs: int) -> None:
    """Two packets, each with two of its three words gone: it is told of one of them, as long as nothing comes."""
    unit = DataReceiver(chip(vcs), DEPTHS)
    flits = {vc: Packet(OUT + 10 * vc, (1, 2, 3)).flits(chip(vcs))[:3] for vc in (0, vcs - 1)}
    coming = [(vc, *flits[vc][number]) for number in range(3) for vc in flits]
    seen: list[dict[str, int]] = []

    def before(cycle: int, context: Any) -> None:
        context.set(unit.flit.valid, cycle < len(coming))
        if cycle < len(coming):
            vc, data, last = coming[cycle]
            context.set(unit.flit.payload, {"vc": vc, "data": data, "last": last})
            assert context.get(unit.flit.ready) >> vc & 1

    def look(_: int, context: Any) -> None:
        seen.append(fields(BlockedStatus, context.get(unit.blocked_status.as_value())))

    simulate(unit, 20, [], [Sink(unit.write, fickle=True)], before=before, after=look)
    waiting = [(blocked_status["waits"], blocked_status["tag"]) for blocked_status in seen[12:]]
    assert set(waiting) == {(BlockedOn.FLITS, 1)}
    at = {
        blocked_status["sem"] | blocked_status["need"] << 6 | blocked_status["has"] << 12 | blocked_status["peer"] << 20
        for blocked_status in seen[12:]
    }
    assert at <= {OUT + 2, OUT + 10 * (vcs - 1) + 2}
    assert len(at) == 1


def test_with_one_channel_there_is_no_ejection_buffer() -> None:
    """As `test_interface.py` says of it: written in the cycle of its acceptance."""
    result = deliver({0: [Packet(OUT, (1, 2, 3), (4, 4))]}, chip(1))
    assert result.written == [(1, (OUT, 1)), (2, (OUT + 1, 2)), (3, (OUT + 2, 3))]
    assert result.delivered == [(4, (4, 4))]


def test_this_comparison_can_fail() -> None:
    """A unit that writes one word a cycle late, or takes another turn, is not the contract's."""
    packets = {vc: [Packet(OUT + 10 * vc, (vc,) * 5, (vc, vc))] for vc in range(2)}
    result = deliver(packets, chip(2))
    right = replay(result, packets, chip(2), dram=False, cycles=100)
    assert result == right
    late = replace(result, written=[*result.written[:-1], (result.written[-1][0] + 1, result.written[-1][1])])
    assert late != right
    refused = replay(result, packets, chip(2), dram=False, cycles=100, write=lambda cycle, region: cycle != 4)
    assert refused.written != result.written
