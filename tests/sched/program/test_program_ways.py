"""Routes, virtual channels and fire times in schedules and programs: saved, lowered, listed, checked, ordered."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, Region, Unit, address
from meshloom.hw.spec.routes import RouteError, dimension_ordered
from meshloom.sched.checker.channel_dependences import DependenceGraph
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import Move, Operation, Schedule, ScheduleError, Span, Vec, memory_words
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.model.timeline import play
from meshloom.sched.program.disasm import instruction_text, listing
from meshloom.sched.program.program import Instruction, Program, place
from meshloom.sched.program.routes import Route, default_route, route_fields, route_of
from meshloom.tb.verify.random_programs import random_program, random_route, with_fire_times
from meshloom.tb.verify.random_schedules import copy_of_a, random_operations, schedule_of

from ..random_schedules import expected, interleave, same, small_chip

#: dram (0,0), core (1,0), spm (2,0); host (0,1), core (1,1), dram (2,1).
STEERED = small_chip(noc={"data_vcs": 3, "route_hops": 5})
PLAIN = small_chip()
DRAM, CORE, SPM, FAR = 0x00, 0x01, 0x02, 0x12
#: From the near channel to the scratchpad, round the lower row.
DETOUR = (0x00, 0x10, 0x11, 0x12, 0x02)


def moved(source: int = DRAM, target: int = SPM, src: int = 0, dst: int = 0, words: int = 8, **more: Any) -> Move:
    spans = {name: Span(tile=t, address=a, run=words) for name, t, a in (("src", source, src), ("dst", target, dst))}
    return Move.model_validate({"issuer": source, **spans, "words": words, **more})


def codes(program: Program, tile: int) -> Sequence[Instruction]:
    return next(s.instructions for s in program.streams if (s.tile, s.unit) == (tile, Unit.MOVER))


# -- ways -----------------------------------------------------------------------------------------------------------


def test_ways_are_what_the_chip_does() -> None:
    assert default_route(STEERED, DRAM, FAR) == Route(2, (0x00, 0x01, 0x02, 0x12))
    assert default_route(small_chip(noc={"data_routing": "yx"}), DRAM, FAR) == Route(0, (0x00, 0x10, 0x11, 0x12))
    assert route_of(STEERED, DRAM, FAR, {}) == default_route(STEERED, DRAM, FAR)
    assert route_of(STEERED, DRAM, FAR, {"channel": 1}) == Route(0, dimension_ordered(DRAM, FAR))
    assert route_of(STEERED, DRAM, SPM, route_fields(STEERED, DETOUR, 1)) == Route(1, DETOUR)
    assert route_of(STEERED, DRAM, SPM, route_fields(STEERED, DETOUR, None)) == Route(STEERED.channel_of(SPM), DETOUR)
    assert route_of(STEERED, DRAM, SPM, route_fields(STEERED, DETOUR, None)).hops == 4


def test_routes_come_back_from_their_fields() -> None:
    rng, chip = random.Random(1), small_chip(floorplan=["dram core spm spm"] * 3 + ["host spm spm spm"], noc={
        "data_vcs": 4, "route_hops": 14,
    })  # fmt: skip
    seen = set()
    for _ in range(200):
        source, target = rng.choice([*chip.tiles]), rng.choice([*chip.tiles])
        fields = random_route(rng, chip, source, target, DependenceGraph())
        if fields is None:
            continue
        way = route_of(chip, source, target, fields)
        seen.add(way.hops)
        assert (way.tiles[0], way.tiles[-1]) == (source, target)
        code = Instruction(Opcode.ROUTE, {"tag": 1} | fields).encode()
        assert len(code) == 32
        if fields.get("routed"):
            assert route_fields(chip, way.tiles, None) == {k: v for k, v in fields.items() if k != "channel"}
    assert len(seen) > 8


# -- schedules ------------------------------------------------------------------------------------------------------


def test_a_schedule_with_ways_is_saved_and_loaded(tmp_path) -> None:
    schedule = schedule_of([moved(route=DETOUR, channel=1), moved(words=3), moved(channel=0)], STEERED)
    schedule.save(tmp_path / "ways.json")
    result = Schedule.load(tmp_path / "ways.json")
    assert result == schedule
    first, second, third = result.operations
    assert isinstance(first, Move)
    assert (first.route, first.channel) == (DETOUR, 1)
    assert isinstance(second, Move)
    assert (second.route, second.channel) == (None, None)
    assert isinstance(third, Move)
    assert third.channel == 0


@pytest.mark.parametrize(
    ("chip", "more", "message"),
    [
        (STEERED, {"channel": 3}, r"virtual channel 3 does not exist: small has 3, 0\.\.2"),
        (PLAIN, {"channel": 1}, r"virtual channel 1 does not exist: small has 1"),
        (PLAIN, {"route": DETOUR}, r"small has no source routes; set noc\.route_hops"),
        (STEERED, {"route": (0x00, 0x01)}, r"leads from tile 0x00 to 0x01, the words go from 0x00 to 0x02"),
        (STEERED, {"route": (0x01, 0x02)}, r"leads from tile 0x01 to 0x02, the words go from 0x00 to 0x02"),
        (STEERED, {"route": (0x00, 0x02)}, r"tiles 0x00 and 0x02 are not neighbours"),
        (STEERED, {"route": (0x00, 0x10, 0x20, 0x21)}, r"tile 0x20 is outside the 3x2 mesh"),
        (STEERED, {"route": (0x00, 0x01, 0x00, 0x01, 0x02)}, r"turns back in tile 0x01"),
        (STEERED, {"route": (0x00, 0x01, 0x11, 0x10, 0x00, 0x01, 0x02)}, r"6 hops is too long: .* noc.route_hops = 5"),
    ],
)
def test_a_way_that_the_chip_does_not_have_is_an_error(chip: ChipConfig, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=f"operation 0: .*{message}"):
        validate(schedule_of([moved(**more)], chip), chip)


def test_a_way_does_not_change_what_a_move_means() -> None:
    held = []
    others: tuple[dict[str, Any], ...] = ({}, {"route": DETOUR, "channel": 2})
    for more in others:
        memories = Memories(STEERED)
        memories.region(DRAM, Region.MAIN)[:8] = 7
        execute([moved(**more)], memories)
        held.append(memories.region(SPM, Region.MAIN)[:9].tolist())
    assert held[0] == held[1] == [[7] * 4] * 8 + [[0] * 4]


# -- lowering -------------------------------------------------------------------------------------------------------


def test_a_route_stands_before_its_move_and_nowhere_else() -> None:
    operations = [
        moved(),
        moved(dst=8, route=DETOUR, channel=1),
        moved(dst=16, channel=0),
        moved(dst=24, channel=STEERED.channel_of(SPM)),  # as it goes anyway
        moved(dst=32, route=DETOUR),
    ]
    schedule = schedule_of(list[Operation](operations), STEERED)
    program = lower(schedule, STEERED)
    result = codes(program, DRAM)
    order = [Opcode.MOVE, Opcode.ROUTE, Opcode.MOVE, Opcode.ROUTE, Opcode.MOVE, Opcode.MOVE, Opcode.ROUTE, Opcode.MOVE]
    assert [instruction.opcode for instruction in result[:8]] == order
    ways = [[result[index].fields[name] for name in ("channel", "routed")] for index in (1, 3, 6)]
    assert ways == [[2, 1], [1, 0], [0, 1]]
    assert [bool(result[index].fields["turns"]) for index in (1, 3, 6)] == [True, False, True]
    stream = next(stream for stream in program.streams if stream.tile == DRAM)
    assert program.operations_of(stream)[:8] == [0, None, 1, None, 2, 3, None, 4]
    check(program, STEERED, schedule, initial=[(DRAM, 0, 64)])


def test_one_channel_and_no_routes_need_no_route() -> None:
    schedule = schedule_of([moved(channel=0)], PLAIN)
    program = lower(schedule, PLAIN)
    assert Opcode.ROUTE not in {instruction.opcode for instruction in codes(program, DRAM)}
    check(program, PLAIN, schedule, initial=[(DRAM, 0, 64)])


def test_words_on_different_ways_may_overtake_each_other() -> None:
    """So an overwriting MOVE waits for the one before, unless both go the same way."""
    waits = []
    others: tuple[dict[str, Any], ...] = ({}, {"channel": 0}, {"route": DETOUR})
    for more in others:
        operations = list[Operation]([moved(), moved(src=16, **more)])
        program = lower(schedule_of(operations, STEERED), STEERED)
        second = [instruction for instruction in codes(program, DRAM) if instruction.opcode is Opcode.MOVE][1]
        waits.append(bool(second.fields.get("wait_n")))
        check(program, STEERED, initial=[(DRAM, 0, 64)])
    assert waits == [False, True, True]


@pytest.mark.parametrize("routing", ["xy", "yx"])
@pytest.mark.parametrize("seed", range(8))
def test_every_interleaving_of_ways_ends_as_the_schedule_does(seed: int, routing: str) -> None:
    chip = small_chip(noc={"data_vcs": 3, "route_hops": 4, "data_routing": routing})
    rng = random.Random(seed)
    schedule = schedule_of(random_operations(rng, chip, rng.choice((40, 70))), chip)
    assert any(isinstance(op, Move) and op.route for op in schedule.operations)
    program = lower(schedule, chip, limit=rng.choice((2, 192)))
    target = expected(schedule, chip, seed)
    for order in range(4):
        memories, _ = interleave(program, chip, seed, order)
        assert same(target, memories, program)


def test_without_a_wait_words_on_another_channel_do_overtake() -> None:
    operations = list[Operation]([moved(words=16), moved(src=100, words=2, channel=0)])
    target = expected(schedule_of(operations, STEERED), STEERED, 3)
    first, second = (
        Instruction(Opcode.MOVE, op.body | {"notify": 1, "notify_tile": DRAM, "notify_sem": 1})
        for op in operations
        if isinstance(op, Move)
    )
    delivered = Instruction(Opcode.SYNC, {"wait_sem": 1, "wait_n": 2})
    for route, right in (([], True), ([routed(channel=1)], False)):
        program = program_of([first, *route, second, delivered])
        orders = [same(target, interleave(program, STEERED, 3, order)[0], program) for order in range(40)]
        assert all(orders) == right
        if right:
            check(program, STEERED, initial=[(DRAM, 0, 200)])
        else:
            with pytest.raises(CheckError, match="races: writes spm"):
                check(program, STEERED, initial=[(DRAM, 0, 200)])


@pytest.mark.parametrize("seed", range(6))
def test_the_program_checker_agrees_on_ways(seed: int) -> None:
    chip, rng = small_chip(noc={"data_vcs": 2, "route_hops": 5}), random.Random(seed)
    fills: list[Operation] = []
    for tile in (*chip.cores, *chip.spms):
        for region in (Region.MAIN, Region.B, Region.ACC, Region.OUT):
            if words := memory_words(chip, tile, region):
                fills.append(moved(DRAM, tile, dst=address(region, 0), words=words))
    fills += [Vec(core=core, fields=copy_of_a(chip.core.vec_words)) for core in chip.cores]
    schedule = schedule_of([*fills, *random_operations(rng, chip, 40)], chip)
    check(lower(schedule, chip, limit=rng.choice((3, 192))), chip)


# -- listings -------------------------------------------------------------------------------------------------------


def test_routes_are_listed() -> None:
    text = instruction_text(Instruction(Opcode.ROUTE, {"tag": 1} | route_fields(STEERED, DETOUR, 1)), STEERED)
    assert text == "ROUTE | virtual channel 1 | 4 hops: south, left, straight, left"
    waiting = {"wait_sem": 2, "wait_n": 1, "fire_at": 77, "channel": 3}
    assert instruction_text(Instruction(Opcode.ROUTE, waiting), STEERED) == (
        "ROUTE wait s2>=1 at cycle 77 | virtual channel 2"
    )
    schedule = schedule_of([moved(route=DETOUR)], STEERED)
    assert any(" ROUTE | 4 hops: south" in line for line in listing(lower(schedule, STEERED), STEERED))


# -- the checker ----------------------------------------------------------------------------------------------------


def program_of(
    code: Sequence[Instruction], chip: ChipConfig = STEERED, unit: Unit = Unit.MOVER, at: int = DRAM
) -> Program:
    """A stream that then reports its end; tags from 100 on."""
    end = Instruction(Opcode.SYNC, {"tile": chip.host, "sem": 0, "n": 1})
    tagged = tuple(Instruction(i.opcode, i.fields | {"tag": 100 + n}) for n, i in enumerate((*code, end)))
    streams, boot = place({(at, unit): tagged}, dict.fromkeys(chip.drams, 1024), chip)
    return Program(chip.digest, streams, boot, {})


def problems(code: Sequence[Instruction], chip: ChipConfig = STEERED, unit: Unit = Unit.MOVER, at: int = DRAM) -> str:
    """What the checker says of it."""
    with pytest.raises(CheckError) as caught:
        check(program_of(code, chip, unit, at), chip)
    return str(caught.value)


def routed(**fields: int) -> Instruction:
    return Instruction(Opcode.ROUTE, fields)


MOVE = Instruction(Opcode.MOVE, moved().body | {"notify": 1, "notify_tile": DRAM, "notify_sem": 1})
WAIT = Instruction(Opcode.SYNC, {"wait_sem": 1, "wait_n": 1})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ([routed(channel=1), WAIT], "[0] ROUTE tag 100: no MOVE follows that could use it"),
        ([routed(channel=1), routed(channel=2), MOVE, WAIT], "[0] ROUTE tag 100: no MOVE follows"),
        ([routed(channel=4), MOVE, WAIT], "[0]: channel = 4 names virtual channel 3, but small has 3: use 1..3"),
        ([routed(routed=1), MOVE, WAIT], "entry 0 leads north from tile 0x00, out of the 3x2 mesh"),
        ([routed(**route_fields(STEERED, DETOUR[:4], 0)), MOVE, WAIT],
         "its route ends in tile 0x12, not in the destination 0x02"),
        ([routed(routed=1, turns=0b0001), MOVE, WAIT], "out of the 3x2 mesh"),
        ([routed(post_sem=1, post_n=1, channel=1), MOVE, WAIT], "post_n = 1; a ROUTE posts nothing"),
    ],
)  # fmt: skip
def test_what_the_checker_says_of_routes(code: list[Instruction], message: str) -> None:
    assert message in problems(code)


def test_a_route_is_too_long_without_its_end_among_the_entries_of_a_head() -> None:
    chip = small_chip(noc={"route_hops": 3})
    text = problems([routed(**route_fields(chip, DETOUR, None)), MOVE, WAIT], chip)
    assert "the route ends in tile" in text
    assert "without EJECT" in text


def test_only_the_mover_takes_routes_and_only_where_there_are_ways() -> None:
    assert "the matrix does not execute ROUTE" in problems([routed(channel=1)], unit=Unit.MATRIX, at=CORE)
    text = problems([routed(channel=1), MOVE, WAIT], PLAIN)
    assert "has one virtual channel and no source routes, so no ROUTE; leave it out" in text


def test_a_sync_between_a_route_and_its_move_is_fine() -> None:
    check(program_of([routed(**route_fields(STEERED, DETOUR, 1)), Instruction(Opcode.SYNC, {}), MOVE, WAIT]), STEERED)


def test_a_fire_time_that_is_past_in_any_timing_is_an_error() -> None:
    timed = [Instruction(Opcode.SYNC, {"fire_at": fire}) for fire in (500, 503, 506)]
    text = problems([*timed, Instruction(Opcode.SYNC, {"fire_at": 508})])
    assert "[3] SYNC tag 103: fire_at = 508, but the stream reaches it in cycle 509 at the earliest" in text
    assert text.count("fire_at = ") == 1


def test_paths_that_no_instruction_can_hold_are_an_error() -> None:
    chip = small_chip(floorplan=["dram core spm spm spm", *["spm spm spm spm spm"] * 4, "host spm spm spm spm"])
    rows = [[16 * y + (x if y % 2 == 0 else 4 - x) for x in range(5)] for y in range(6)]
    snake = [tile for row in rows for tile in row]
    with pytest.raises(RouteError, match="a route of 29 hops is too long: an instruction holds 23"):
        route_fields(chip, snake, None)


# -- random programs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_take_ways_and_fire_on_time(seed: int) -> None:
    rng = random.Random(seed)
    chip = small_chip(
        core={"a_words": 256, "b_words": 256, "acc_words": 64, "out_words": 256, "vec_words": 256}, spm_words=1024,
        noc={"data_vcs": rng.randint(1, 4), "route_hops": rng.choice((3, 5)), "data_routing": rng.choice(("xy", "yx"))},
    )  # fmt: skip
    program = random_program(rng, chip, 12, threads=3)
    routes = [i for stream in program.streams for i in stream.instructions if i.opcode is Opcode.ROUTE]
    assert any(route.fields.get("routed") for route in routes)
    check(program, chip)
    timed = with_fire_times(rng, program, chip, 0.2)
    assert sum(bool(i.fields.get("fire_at")) for stream in timed.streams for i in stream.instructions) > 5
    check(timed, chip)
    assert play(timed, chip).cycles >= play(program, chip).cycles


def test_random_programs_of_chips_without_ways_have_none() -> None:
    program = random_program(random.Random(1), small_chip(
        core={"a_words": 256, "b_words": 256, "acc_words": 64, "out_words": 256, "vec_words": 256}, spm_words=1024
    ), 8, threads=2)  # fmt: skip
    assert {i.opcode for stream in program.streams for i in stream.instructions}.isdisjoint({Opcode.ROUTE})
