"""What the timeline makes of fire times, ROUTEs, ways and arrivals, and the closed form of a MOVE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind
from meshloom.hw.spec.isa import FETCH_TAG, Opcode, Region, Unit, address
from meshloom.hw.spec.routes import dimension_ordered
from meshloom.sched.model.frontend import LateError
from meshloom.sched.model.latency import LatencyError, landing, notified
from meshloom.sched.model.records import Executed
from meshloom.sched.model.timeline import play
from meshloom.sched.program.packets import packets
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.sched.program.routes import route_fields

#: In which all streams of a program below have got their code.
START = 1000


def chip_of(**noc: object) -> ChipConfig:
    return ChipConfig.model_validate(
        {
            "name": "line",
            "lanes": 4,
            "floorplan": ["dram core spm spm", "host core dram spm"],
            "dram": {"bytes_per_cycle": 4, "latency": 13},
            "ring_instructions": 256,
            "noc": noc,
        }
    )


DRAM, CORE, SPM, END, FAR = 0x00, 0x01, 0x02, 0x03, 0x12


def sync(**fields: int) -> Instruction:
    return Instruction(Opcode.SYNC, fields)


def move(source: int, target: int, words: int, **fields: int) -> Instruction:
    body = {"src_tile": source, "src_run": words, "dst_tile": target, "dst_run": words, "words": words}
    body |= {"src": 0, "dst": 0}
    return Instruction(Opcode.MOVE, body | {"notify": 1, "notify_tile": source, "notify_sem": 1} | fields)


WAIT = sync(wait_sem=1, wait_n=1)


def executed(chip: ChipConfig, codes: Mapping[int, Sequence[Instruction]]) -> dict[int, list[Executed]]:
    """What the movers of some tiles executed, in the order of tags (from 1 on in each stream); under -1: arrivals."""
    streams = {}
    for tile, code in codes.items():
        end = sync(tile=chip.host, sem=0, n=1)
        numbered = enumerate((*code, end), 1)
        tagged = (Instruction(i.opcode, i.fields | {"tag": i.fields["tag"] or tag}) for tag, i in numbered)
        streams[tile, Unit.MOVER] = tuple(tagged)
    placed, boot = place(streams, dict.fromkeys(chip.drams, 4000), chip)
    result: dict[int, list[Executed]] = {-1: []}
    for entry in play(Program(chip.digest, placed, boot, {}), chip).executed:
        if entry.unit is Unit.NONE:
            result[-1].append(entry)
        elif entry.tile in codes:
            result.setdefault(entry.tile, []).append(entry)
    return {tile: sorted(entries, key=lambda entry: entry.tag) for tile, entries in result.items()}


# -- fire times -----------------------------------------------------------------------------------------------------


def test_an_instruction_fires_in_the_cycle_after_its_time() -> None:
    code = [
        sync(fire_at=START),
        sync(fire_at=START + 3),
        sync(),
        sync(fire_at=START + 100),
        move(SPM, CORE, 4, fire_at=1200),
        WAIT,
    ]
    result = executed(chip_of(), {SPM: code})[SPM]
    assert [entry.start for entry in result[:5]] == [1001, 1004, 1007, 1101, 1201]
    assert result[1].wait == 0
    assert result[3].wait == 1100 - 1009  # its turn came three cycles after the one before was done


def test_a_wait_and_a_fire_time_both_hold() -> None:
    post = sync(tile=SPM, sem=5, n=1, fire_at=2000)
    for fire, start in ((1500, None), (2004, 2005), (2050, 2051), (2003, None)):
        code = [sync(wait_sem=5, wait_n=1, fire_at=fire)]
        codes = {SPM: code, CORE: [post]}
        if start is None:
            with pytest.raises(LateError, match=f"fire_at = {fire} and is ready only in cycle 2004: a LATE fault"):
                executed(chip_of(), codes)
        else:
            assert executed(chip_of(), codes)[SPM][0].start == start


def test_a_late_instruction_is_named() -> None:
    with pytest.raises(
        LateError, match=r"SYNC tag 2, instruction 1 of the mover stream of tile 0x02, has fire_at = 7 "
    ):
        executed(chip_of(), {SPM: [sync(), sync(fire_at=7)]})


def test_a_record_tells_waits_up_to_two_million_cycles() -> None:
    result = executed(chip_of(), {SPM: [sync(fire_at=(1 << 21) + 5000)]})[SPM][0]
    assert result.wait == (1 << 21) - 1


# -- routes ---------------------------------------------------------------------------------------------------------


def test_a_route_takes_three_cycles_and_leaves_a_record() -> None:
    chip = chip_of(route_hops=6)
    route = Instruction(Opcode.ROUTE, route_fields(chip, (0x02, 0x12, 0x11), None))
    result = executed(chip, {SPM: [sync(fire_at=START), route, move(SPM, 0x11, 4), WAIT]})[SPM]
    assert [(entry.opcode, entry.start, entry.end) for entry in result[1:3]] == [
        (Opcode.ROUTE, 1004, 1005),
        (Opcode.MOVE, 1007, 1007 + 8),
    ]


@pytest.mark.parametrize("data_vcs", [1, 2])
def test_a_route_is_for_one_move(data_vcs: int) -> None:
    chip = chip_of(route_hops=6, data_vcs=data_vcs, arrivals=True)
    path = (0x02, 0x12, 0x11, 0x01)
    route = Instruction(Opcode.ROUTE, route_fields(chip, path, None))
    code = [sync(fire_at=START), route, move(SPM, CORE, 4), WAIT, move(SPM, CORE, 4), WAIT]
    result = executed(chip, {SPM: code})
    latencies = [
        arrival.end - next(entry.start for entry in result[SPM] if entry.tag == arrival.tag) for arrival in result[-1]
    ]
    assert latencies == [landing(chip, 3, 4), landing(chip, 1, 4)]


def test_a_pull_takes_its_route_along() -> None:
    chip = chip_of(route_hops=6, data_vcs=2, arrivals=True)
    path = (END, 0x13, 0x12, 0x11, 0x01)
    route = Instruction(Opcode.ROUTE, route_fields(chip, path, 1))
    code = [sync(fire_at=START), route, move(END, CORE, 4), sync(wait_sem=1, wait_n=1)]
    pulled = Instruction(Opcode.MOVE, code[2].fields | {"notify_tile": CORE})
    result = executed(chip, {CORE: [*code[:2], pulled, code[3]], END: [sync()]})
    (there,) = [entry for entry in result[END] if entry.opcode is Opcode.MOVE]
    (arrival,) = result[-1]
    assert arrival.end - there.start == landing(chip, 4, 4)
    assert (arrival.tile, arrival.tag, arrival.wait) == (CORE, 3, 4)


def test_dimension_orders_meet_different_packets() -> None:
    """From the scratchpad to the channel below and left of it, beside a long packet on the upper or the lower row."""
    ends = {}
    for routing in ("xy", "yx"):
        chip = chip_of(data_routing=routing, arrivals=True)
        upper = [sync(fire_at=START), move(END, CORE, 64, dst=address(Region.B, 0)), WAIT]
        across = [sync(fire_at=START + 3), move(SPM, 0x11, 4), WAIT]
        result = executed(chip, {END: upper, SPM: across})
        ends[routing] = next(entry.end for entry in result[-1] if entry.tile == 0x11)
    assert ends["xy"] > START + 64  # behind the tail of the long one, on the link from (2,0) to (1,0)
    assert ends["yx"] == START + 7 + landing(chip_of(), 2, 4)


# -- arrivals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_vcs", [1, 3])
def test_every_packet_leaves_a_record_of_its_arrival(data_vcs: int) -> None:
    chip = chip_of(data_vcs=data_vcs, arrivals=True)
    code = [sync(fire_at=START), move(DRAM, END, 150, dst=30, dst_run=40, dst_stride=50), WAIT]
    result = executed(chip, {DRAM: code})
    expected = packets(code[1].fields, chip.packet_words)
    assert [entry.wait for entry in result[-1]] == [words for _, words in expected] == [34, 6, 40, 40, 12, 18]
    assert {(entry.tile, entry.tag, entry.opcode, entry.unit) for entry in result[-1]} == {
        (END, 2, Opcode.MOVE, Unit.NONE)
    }
    taken = next(entry.start for entry in result[DRAM] if entry.tag == 2)
    head, ejection = taken + 3 + chip.dram.latency, int(data_vcs > 1)
    for entry in result[-1]:
        assert entry.start == head
        assert entry.end == head + entry.wait + 3 + 1 + ejection + 1
        head += entry.wait + 1
    quiet = chip_of(data_vcs=data_vcs)
    assert executed(quiet, {DRAM: code})[-1] == []
    assert FETCH_TAG not in {entry.tag for entry in result[-1]}


def test_a_head_that_has_to_wait_was_born_when_it_was_offered() -> None:
    chip = chip_of(arrivals=True, data_vcs=2)
    long = [sync(fire_at=START), move(CORE, END, 200, src=address(Region.OUT, 0)), WAIT]
    second = [sync(fire_at=START + 10), move(SPM, END, 9, dst=500), WAIT]  # same channel, same link
    result = executed(chip, {CORE: long, SPM: second})
    mine = [entry for entry in result[-1] if entry.wait == 9]
    assert mine[0].start == START + 17  # issued three cycles after its turn, and three to the head
    assert mine[0].end > mine[0].start + 40


# -- the closed form ------------------------------------------------------------------------------------------------

WORDS = (1, 2, 5, 63, 64, 65, 128, 200, 300)


@pytest.mark.parametrize("data_vcs", [1, 3])
@pytest.mark.parametrize("source", [DRAM, CORE, SPM, END, FAR])
def test_the_closed_form_of_a_move_is_the_timeline_of_an_idle_chip(source: int, data_vcs: int) -> None:
    chip = chip_of(data_vcs=data_vcs, arrivals=True, data_depth=2, route_hops=7)
    kind = chip.tiles[source]
    region = Region.OUT if kind is TileKind.CORE else Region.MAIN
    seen = set()
    for target in chip.tiles:
        if target in (chip.host, source):
            continue
        hops = len(dimension_ordered(source, target)) - 1
        to_dram, from_dram = chip.tiles[target] is TileKind.DRAM, kind is TileKind.DRAM
        code, expected = [sync(fire_at=START)], {}
        for words in WORDS:
            expected[len(code) + 1] = hops, words
            code += [move(source, target, words, src=address(region, 0), dst=1024 * to_dram), WAIT]
        result = executed(chip, {source: code})
        ends = {entry.tag: entry.end for entry in sorted(result[-1], key=lambda entry: entry.end)}
        back = len(dimension_ordered(target, source))  # of the notify, over the post plane
        for tag, (hops, words) in expected.items():
            seen.add((hops, words))
            taken, waited = result[source][tag - 1], result[source][tag]
            assert ends[tag] - taken.start == landing(chip, hops, words, from_dram=from_dram)
            message = notified(chip, hops, words, from_dram=from_dram, to_dram=to_dram)
            assert waited.start - 2 - back == taken.start + message
    assert len(seen) >= 2 * len(WORDS)


@pytest.mark.parametrize("data_vcs", [1, 2])
def test_the_closed_form_over_detours(data_vcs: int) -> None:
    chip = chip_of(data_vcs=data_vcs, arrivals=True, route_hops=7)
    path = (0x02, 0x03, 0x13, 0x12, 0x11, 0x10, 0x00, 0x01)
    for hops in (3, 7):
        route = Instruction(Opcode.ROUTE, route_fields(chip, path[: hops + 1], None))
        result = executed(chip, {SPM: [sync(fire_at=START), route, move(SPM, path[hops], 70, dst=512), WAIT]})
        taken = next(entry.start for entry in result[SPM] if entry.opcode is Opcode.MOVE)
        assert result[-1][-1].end - taken == landing(chip, hops, 70)


def test_more_packets_take_a_cycle_each() -> None:
    chip = chip_of(arrivals=True)
    result = executed(chip, {SPM: [sync(fire_at=START), move(SPM, CORE, 60, dst_run=10, dst_stride=20, dst=60), WAIT]})
    assert len(result[-1]) == 8  # six runs, of which two cross a multiple of 64
    assert result[-1][-1].end - result[SPM][1].start == landing(chip, 1, 60, packets=8)


def test_what_has_no_closed_form_says_why() -> None:
    chip, slow = (
        chip_of(),
        chip_of().model_copy(update={"dram": chip_of().dram.model_copy(update={"bytes_per_cycle": 3})}),
    )
    for hops, words, count in ((-1, 4, None), (1, 0, None), (1, 4, 5), (1, 4, 0)):
        with pytest.raises(LatencyError, match="give at least one packet"):
            landing(chip, hops, words, count)
    with pytest.raises(LatencyError, match="line's DRAM moves 3 bytes a cycle and a word has 4"):
        landing(slow, 1, 4, from_dram=True)
    with pytest.raises(LatencyError, match="predict a program with"):
        notified(slow, 1, 4, to_dram=True)
    assert landing(slow, 1, 4) == landing(chip, 1, 4)
