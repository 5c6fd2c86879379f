"""The mover: every word where the instruction says, packets as promised, cycles as stated, every fault."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from meshloom.hw.spec.config import TileKind
from meshloom.hw.spec.contracts import HEAD_CYCLES, SOURCE_CYCLES, TURN_CYCLES
from meshloom.hw.spec.isa import FETCH_TAG, INSTRUCTIONS, Cause, Opcode, Region, Unit, address

from .mover_bench import HERE, MOVE, check_words, chip, move, packet_sizes, random_move, run
from .unit_bench import sometimes

LOCAL = (TileKind.CORE, TileKind.SPM)
#: A region of each kind that its mover reads.
READS = {TileKind.CORE: Region.OUT, TileKind.SPM: Region.MAIN, TileKind.DRAM: Region.MAIN}


def plain(kind: TileKind, **values: int) -> int:
    return move(**({"src": address(READS[kind], 5), "tag": 7} | values))


# -- cycles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LOCAL)
def test_head_of_a_local_move_three_cycles_after_it_was_taken(kind: TileKind) -> None:
    """Taken in t: address in t + 1, word in t + 2, head offered in t + 3."""
    out = run(kind, [plain(kind)], starts=[20])
    assert out.own == [20]
    assert out.packets[0].shown == 20 + HEAD_CYCLES
    assert out.packets[0].last == 21 + HEAD_CYCLES
    assert out.record[0][1] == {
        "tag": 7, "unit": Unit.MOVER, "opcode": Opcode.MOVE, "wait": 0, "stall": 1, "start": 20, "end": 25,
    }  # fmt: skip


@pytest.mark.parametrize("latency", [2, 10, 50])
def test_head_of_a_dram_move_as_soon_as_the_first_word_is_there(latency: int) -> None:
    """Taken in t: burst in t + 1; the head is offered in the cycle in which the first word is."""
    out = run(TileKind.DRAM, [plain(TileKind.DRAM)], starts=[20], latency=lambda: latency)
    assert out.packets[0].shown == 20 + SOURCE_CYCLES + latency


@pytest.mark.parametrize("kind", [*LOCAL, TileKind.DRAM])
@pytest.mark.parametrize(("words", "dst", "dst_run"), [(1, 0, 1), (64, 0, 64), (64, 1, 64), (200, 60, 200), (30, 0, 5)])
def test_words_plus_packets_plus_one(kind: TileKind, words: int, dst: int, dst_run: int) -> None:
    """One cycle for each word and each head, and one to take the next descriptor, once the first is under way."""
    code = plain(kind, words=words, dst=dst, dst_run=dst_run, dst_stride=dst_run)
    out = run(kind, [code] * 4, cycles=4000, until_records=4)
    ends = [record["end"] for _, record in out.record]
    assert len(ends) == 4
    period = words + len(packet_sizes(code)) + TURN_CYCLES
    assert {late - early for early, late in zip(ends[1:], ends[2:], strict=False)} == {period}


@pytest.mark.parametrize(("lanes", "longest"), [(64, 64), (128, 32)])
@pytest.mark.parametrize("kind", [TileKind.SPM, TileKind.DRAM])
def test_packets_and_bursts_stay_in_a_page_of_4_kib(kind: TileKind, lanes: int, longest: int) -> None:
    """They end at multiples of the longest packet, at the destination and the source each by itself."""
    config = chip(lanes)
    code = plain(kind, words=3 * longest, src=address(READS[kind], 5), dst=longest - 3, dst_run=3 * longest)
    out = run(kind, [code] * 3, cycles=4000, until_records=3, config=config)
    assert packet_sizes(code, longest) == [3, longest, longest, longest - 3]
    check_words(out, [code] * 3)
    for packet in out.packets:
        first = packet.head["addr"] * lanes
        assert first // 4096 == (first + packet.head["words"] * lanes - 1) // 4096
    if kind is TileKind.DRAM:
        assert out.reads == [5, longest, 2 * longest, 3 * longest] * 3
    ends = [record["end"] for _, record in out.record]
    assert {late - early for early, late in zip(ends[1:], ends[2:], strict=False)} == {3 * longest + 4 + TURN_CYCLES}


def test_stalls_are_counted_in_record_and_counters() -> None:
    """4 words to the network: 10 cycles without a word, then 6 in which the network takes nothing."""
    code = plain(TileKind.DRAM, words=4)
    out = run(TileKind.DRAM, [code], starts=[20], latency=lambda: 11, data=lambda cycle: cycle >= 38)
    assert out.packets[0].shown == 32
    assert out.packets[0].first == 38
    assert out.record[0][1]["stall"] == 10 + 6
    assert out.counts == {"busy": 10 + 6 + 5, "net_stall": 6, "mem_stall": 10}


@pytest.mark.parametrize("pace", [1, 3])
@pytest.mark.parametrize(("words", "dst"), [(1, 0), (64, 0), (100, 60)])
def test_whole_packets_leave_word_after_word(words: int, dst: int, pace: int) -> None:
    """However slow the channel is: a head waits for all words of its packet."""
    code = plain(TileKind.DRAM, words=words, dst=dst, dst_run=words)
    out = run(TileKind.DRAM, [code] * 2, cycles=4000, until_records=2, pace=pace, config=chip(whole_packets=True))
    check_words(out, [code] * 2)
    assert [len(packet.words) for packet in out.packets] == 2 * packet_sizes(code)
    assert all(packet.last - packet.first == len(packet.words) for packet in out.packets)
    first = out.packets[0]
    assert first.shown == out.own[0] + SOURCE_CYCLES + 10 + pace * (len(first.words) - 1)


# -- contract -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*LOCAL, TileKind.DRAM])
@pytest.mark.parametrize(("lanes", "seed"), [(4, 1), (4, 2), (128, 3), (128, 4)])
def test_random_moves_with_random_stalls(kind: TileKind, lanes: int, seed: int) -> None:
    """With even seeds the registers stop while the mover is not `active`, and DRAM sends whole packets."""
    rng, config = random.Random(seed), chip(lanes, whole_packets=seed % 2 == 0)
    own = [random_move(rng, kind, tag) for tag in range(1, 6)]
    remote = [random_move(rng, kind, tag) for tag in range(101, 106)]
    calm = 0.9 if seed % 2 else 0.5
    moods: dict[str, Any] = {
        name: sometimes(rng, calm) for name in ("offer", "data", "post", "record", "read", "burst")
    }
    moods |= {"until_records": 10, "until_posts": sum(MOVE.unpack(code)["post_n"] > 0 for code in own + remote)}
    out = run(
        kind, own, remote, cycles=6000, gated=seed % 2 == 0, latency=lambda: rng.randint(1, 30), config=config, **moods
    )
    assert out.faults == []
    # in the order in which they were taken: fair between the two while both have something
    taken = sorted([(cycle, code) for cycle, code in zip(out.own, own, strict=True)]
                   + [(cycle, code) for cycle, code in zip(out.remote, remote, strict=True)])  # fmt: skip
    order = [code for _, code in taken]
    check_words(out, order)
    tags = [MOVE.unpack(code)["tag"] for code in order]
    assert [record["tag"] for _, record in out.record] == tags
    starts = dict(zip(tags, (cycle for cycle, _ in taken), strict=True))
    packets = iter(out.packets)
    for code, (_, record) in zip(order, out.record, strict=True):
        last = [next(packets) for _ in packet_sizes(code, config.packet_words)][-1].last
        assert (record["start"], record["end"]) == (starts[record["tag"]], last + 1)
    posts = [
        (MOVE.unpack(code)["post_sem"], MOVE.unpack(code)["post_n"]) for code in order if MOVE.unpack(code)["post_n"]
    ]
    assert [(post["sem"], post["n"]) for _, post in out.post] == posts


def test_own_and_requested_moves_take_turns() -> None:
    own = [plain(TileKind.SPM, tag=tag, words=3) for tag in range(1, 6)]
    remote = [plain(TileKind.SPM, tag=tag, words=3) for tag in range(11, 16)]
    out = run(TileKind.SPM, own, remote)
    tags = [record["tag"] for _, record in out.record]
    assert tags == [1, 11, 2, 12, 3, 13, 4, 14, 5, 15]


def test_a_post_is_made_when_the_last_word_is_handed_over() -> None:
    code = plain(TileKind.SPM, words=70, post_sem=9, post_n=3)
    out = run(TileKind.SPM, [code, plain(TileKind.SPM)], cycles=120)
    assert out.post == [(out.packets[1].last + 1, {"sem": 9, "n": 3})]


def test_a_move_that_still_owes_a_post_holds_up_the_next_head_only() -> None:
    code = plain(TileKind.SPM, post_sem=9, post_n=3)
    out = run(TileKind.SPM, [code, code], post=lambda cycle: cycle >= 50)
    assert out.packets[0].last < 20
    assert out.packets[1].shown == 51


def test_a_move_whose_record_is_not_taken_holds_up_the_next_head_only() -> None:
    """Both records come, each with its own times."""
    out = run(TileKind.SPM, [plain(TileKind.SPM), plain(TileKind.SPM, tag=8)], record=lambda cycle: cycle >= 50)
    assert out.packets[0].last < 20
    assert out.packets[1].shown == 51
    assert [(cycle, record["tag"], record["end"]) for cycle, record in out.record] == [
        (50, 7, out.packets[0].last + 1), (53, 8, out.packets[1].last + 1)
    ]  # fmt: skip


def test_what_fetches_instructions_leaves_no_record() -> None:
    out = run(TileKind.DRAM, [], [plain(TileKind.DRAM, tag=FETCH_TAG, words=8), plain(TileKind.DRAM)])
    assert [record["tag"] for _, record in out.record] == [7]
    assert len(out.packets) == 2


def test_waits_of_the_stream_stand_in_the_record() -> None:
    out = run(TileKind.SPM, [plain(TileKind.SPM)], [plain(TileKind.SPM, tag=8)], waited=321)
    assert {record["tag"]: record["wait"] for _, record in out.record} == {7: 321, 8: 0}


@pytest.mark.parametrize("when", [20, 33])
def test_a_move_from_elsewhere_is_forwarded_without_its_waits(when: int) -> None:
    code = move(src_tile=0x02, tag=5, wait_sem=3, wait_n=4, fire_at=17, post_sem=6, post_n=2, words=9, src=77)
    out = run(TileKind.SPM, [code], starts=[20], forward=lambda cycle: cycle >= when, waited=4)
    kept = MOVE.unpack(code) | {"wait_n": 0, "fire_at": 0}
    ((cycle, request),) = out.forward
    assert request.pop("route") == 0
    # whatever its source address is: a core in a chip with a controller gives other units' requests to their streams
    assert (cycle, request) == (when, {"dst_tile": 0x02, "unit": Unit.MOVER, "fetch": 0, "code": MOVE.pack(kept)})
    assert out.own == [when]
    record = {"tag": 5, "unit": 0, "opcode": Opcode.MOVE, "wait": 4, "stall": 0, "start": 20, "end": when + 1}
    assert out.record == [(when + 1, record)]
    assert (out.packets, out.post) == ([], [])  # the header post is the executing tile's


def test_a_fetch_is_forwarded_as_it_is() -> None:
    layout = INSTRUCTIONS[Opcode.FETCH]
    code = layout.pack(
        {"opcode": Opcode.FETCH, "tag": 3, "tile": 0x01, "unit": 1, "dram": 0x00, "addr": 99, "count": 12}
    )
    out = run(TileKind.SPM, [code], starts=[20])
    assert out.forward == [(20, {"dst_tile": 0x01, "unit": 1, "fetch": 1, "route": 0, "code": code})]
    assert out.record[0][1]["opcode"] == Opcode.FETCH


def test_end_ends() -> None:
    out = run(TileKind.SPM, [INSTRUCTIONS[Opcode.END].pack({"opcode": Opcode.END})], starts=[20])
    assert out.ended == [20]
    assert (out.own, out.record) == ([20], [])


# -- faults -------------------------------------------------------------------------------------------------------

FAULTS = {
    "destination": ({"dst_tile": 0x03}, Cause.DESTINATION, 0x03),
    "destination below": ({"dst_tile": 0x20}, Cause.DESTINATION, 0x20),
    "notify": ({"notify": 1, "notify_tile": 0xFF}, Cause.DESTINATION, 0xFF),
    "no words": ({"words": 0, "src_run": 1, "dst_run": 1}, Cause.SHAPE, 0),
    "no source run": ({"words": 4, "src_run": 0}, Cause.SHAPE, 4),
    "no destination run": ({"words": 4, "dst_run": 0}, Cause.SHAPE, 4),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("requested", [False, True])
def test_impossible_moves(name: str, requested: bool) -> None:
    values, cause, value = FAULTS[name]
    code = plain(TileKind.SPM, **values)
    out = run(TileKind.SPM, [] if requested else [code], [code] if requested else [])
    assert [fault for _, fault in out.faults] == [{"cause": cause, "tag": 7, "value": value}]
    assert (out.packets, out.record) == ([], [])


def test_an_absent_notify_tile_matters_only_to_those_who_notify() -> None:
    out = run(TileKind.SPM, [plain(TileKind.SPM, notify=0, notify_tile=0xFF)])
    assert out.faults == []
    assert len(out.packets) == 1


@pytest.mark.parametrize("tile", [0x03, 0x20, 0xFF])
def test_requests_for_absent_tiles(tile: int) -> None:
    fetch = INSTRUCTIONS[Opcode.FETCH].pack({"opcode": Opcode.FETCH, "tag": 7, "tile": tile, "count": 1})
    for code in (move(src_tile=tile, tag=7), fetch):
        out = run(TileKind.SPM, [code])
        assert out.faults[0][1] == {"cause": Cause.DESTINATION, "tag": 7, "value": tile}
        assert (out.forward, out.own) == ([], [])


@pytest.mark.parametrize(
    ("kind", "source", "words", "run_length", "stride", "value"),
    [
        (TileKind.SPM, address(Region.MAIN, 999), 2, 2, 0, address(Region.MAIN, 1000)),
        (TileKind.SPM, address(Region.MAIN, 990), 3, 1, 9, address(Region.MAIN, 1008)),
        (TileKind.SPM, address(Region.OUT, 0), 1, 1, 0, address(Region.OUT, 0)),
        (TileKind.CORE, address(Region.MAIN, 0), 1, 1, 0, address(Region.MAIN, 0)),
        (TileKind.CORE, address(Region.STATS, 2), 2, 2, 0, address(Region.STATS, 3)),
        (TileKind.CORE, address(Region.ACC, 400), 1, 1, 0, address(Region.ACC, 400)),
        # bursts are checked whole, before they are sent
        (TileKind.DRAM, address(Region.MAIN, 1990), 12, 12, 0, address(Region.MAIN, 1990)),
        (TileKind.DRAM, address(Region.MAIN, (1 << 24) - 1), 1, 1, 0, address(Region.MAIN, (1 << 24) - 1)),
        (TileKind.DRAM, address(Region.TRACE, 63), 2, 2, 0, address(Region.TRACE, 64)),
        (TileKind.DRAM, address(Region.B, 0), 1, 1, 0, address(Region.B, 0)),
    ],
)
def test_sources_past_their_memory(
    kind: TileKind, source: int, words: int, run_length: int, stride: int, value: int
) -> None:
    out = run(kind, [plain(kind, src=source, words=words, src_run=run_length, src_stride=stride)])
    assert out.faults[0][1] == {"cause": Cause.ADDRESS, "tag": 7, "value": value}
    assert out.record == []
    assert value not in out.reads


@pytest.mark.parametrize("kind", [*LOCAL, TileKind.DRAM])
def test_the_last_word_of_a_memory_can_be_read(kind: TileKind) -> None:
    depth = {TileKind.CORE: 300, TileKind.SPM: 1000, TileKind.DRAM: 2000}[kind]
    code = plain(kind, src=address(READS[kind], depth - 5), words=5)
    out = run(kind, [code])
    assert out.faults == []
    check_words(out, [code])


def test_this_check_can_fail() -> None:
    """A word in the wrong place, or out of order, is seen by the checks above."""
    code = plain(TileKind.SPM, words=4)
    out = run(TileKind.SPM, [code])
    out.packets[0] = replace(out.packets[0], words=out.packets[0].words[::-1])
    with pytest.raises(AssertionError):
        check_words(out, [code])
    assert HERE == 0x11


def test_a_host_that_only_boots_sends_requests_and_no_words() -> None:
    config = chip().model_copy(update={"trace_records": 0, "boot_host": True})
    fetch = INSTRUCTIONS[Opcode.FETCH].pack({"opcode": Opcode.FETCH, "tag": 3, "tile": 1, "dram": 0, "count": 9})
    pull = move(tag=4, src_tile=0x12, src=5)
    wrong = move(tag=5, src_tile=HERE, src=0xD000002, dst_tile=1)
    out = run(TileKind.HOST, [fetch, pull, wrong], regions={Region.STATS: 1}, config=config)
    assert [request["dst_tile"] for _, request in out.forward] == [1, 0x12]
    assert [fault for _, fault in out.faults][:1] == [{"cause": Cause.ADDRESS, "tag": 5, "value": 0xD000002}]
    assert [record["tag"] for _, record in out.record] == [3, 4]
    assert (out.packets, out.reads) == ([], [])
