"""Programs that are timed ahead, checked as a whole, with and without their schedule: what is wrong is named."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import INSTRUCTIONS, Opcode, Region, Unit, address
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.schedule import Execution, Move, Schedule, Span
from meshloom.sched.lowering.programs import check_program
from meshloom.sched.lowering.timed.check import check_ahead
from meshloom.sched.lowering.timed.compile import compile_ahead
from meshloom.sched.lowering.timed.prove import ProofError
from meshloom.sched.model.timeline import play
from meshloom.sched.program import image
from meshloom.sched.program.disasm import listing
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find

from ....tiers import slow_but

#: Small, with a ring that the longer programs do not fit into: they bring their own code.
CHIP = ChipConfig.model_validate(
    load("ahead8").model_dump()
    | {"name": "ahead4", "lanes": 4, "rows": 4, "cols": 4, "floorplan": ["dram core dtt", "host spm core"]}
    | {"dram": {"bytes_per_cycle": 4, "latency": 20}, "controller_instructions": 64}
)


def made(name: str, chip: ChipConfig = CHIP) -> tuple[Schedule, Program]:
    workload = find(name)[0]
    schedule = scheduler("dtt")(workload.shape, chip, workload.data().scale)
    return schedule, compile_ahead(schedule, chip).program


@pytest.fixture(scope="module")
def timed() -> tuple[Schedule, Program]:
    """With way-points, GEMMs, biases and stores; more instructions than the controller's ring holds."""
    return made("gemm:70x40x50")


#: With a DRAM tile for the controller's code, below it.
FETCHED = ChipConfig.model_validate(
    CHIP.model_dump()
    | {"name": "ahead4f", "floorplan": ["dram core dtt", "host core dram"], "controller_channel": True}
)


@pytest.fixture(scope="module")
def fetched() -> tuple[Schedule, Program]:
    """The program of a controller that fetches its code."""
    workload = find("gemm:30x40x50")[0]
    schedule = scheduler("dtt:plans=0")(workload.shape, FETCHED, workload.data().scale)
    return schedule, compile_ahead(schedule, FETCHED).program


def at(program: Program, opcode: Opcode, nth: int = 0, **fields: int) -> int:
    """Position of the n-th instruction of a kind in the controller's stream, with those fields."""
    result = [
        position
        for position, one in enumerate(program.streams[0].instructions)
        if one.opcode is opcode and all(one.fields.get(name, 0) == value for name, value in fields.items())
    ]
    return result[nth]


def changed(program: Program, position: int, **fields: int) -> Program:
    """The program with one instruction of the controller changed."""
    code = list(program.streams[0].instructions)
    one = code[position]
    code[position] = Instruction(one.opcode, {**one.fields, **fields})
    return recoded(program, code)


def recoded(program: Program, code: list[Instruction]) -> Program:
    """The program with another stream of the controller, fetched as it lies there."""
    (stream,), boot = program.streams, program.boot
    fetch = Instruction(Opcode.FETCH, {**boot.instructions[0].fields, "count": len(code)})
    return replace(
        program,
        streams=(replace(stream, instructions=tuple(code)),),
        boot=replace(boot, instructions=(fetch, *boot.instructions[1:])),
    )


def refused(program: Program, schedule: Schedule | None = None, chip: ChipConfig = CHIP) -> str:
    with pytest.raises((CheckError, ProofError)) as error:
        check_program(program, chip, schedule)
    return str(error.value)


@pytest.mark.parametrize("name", ["gemm:9x8x7", "conv:5x6x5-6,k3,p1,relu", "gemm:70x40x50"])
def test_good_with_and_without_schedule(name: str) -> None:
    schedule, program = made(name)
    report = check_program(program, CHIP, schedule)
    assert report.timed >= len(schedule.operations)
    assert report.instructions == program.instructions + len(program.boot.instructions)
    assert check_program(image.from_bytes(image.to_bytes(program)), CHIP) == report


def test_a_long_program_is_checked_with_the_moves_that_bring_it(timed: tuple[Schedule, Program]) -> None:
    schedule, program = timed
    assert len(program.streams[0].instructions) > CHIP.controller_instructions
    assert check_program(program, CHIP).timed > len(schedule.operations)


def test_a_program_that_is_fetched(fetched: tuple[Schedule, Program]) -> None:
    schedule, program = fetched
    (code,) = program.streams
    assert (code.dram_tile, len(code.instructions) > FETCHED.controller_instructions) == (0x12, True)
    assert check_program(program, FETCHED, schedule).timed == len(schedule.operations)
    assert check_program(image.from_bytes(image.to_bytes(program)), FETCHED).timed == len(schedule.operations)
    assert play(program, FETCHED).cycles > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"src_tile": 0x12}, "are for code only"),
        ({"dst_tile": 0x12, "dst": 0}, "are for code only"),
        ({"dst_tile": 0x02, "dst": address(Region.RING_MOVER, 0)}, "are for code only"),
    ],
)
def test_data_do_not_pass_a_code_channel(
    fetched: tuple[Schedule, Program], fields: dict[str, int], message: str
) -> None:
    program = changed(fetched[1], at(fetched[1], Opcode.MOVE), **fields)
    assert message in refused(program, chip=FETCHED)


def test_code_lies_in_its_channel(fetched: tuple[Schedule, Program]) -> None:
    (stream,) = fetched[1].streams
    program = replace(fetched[1], streams=(replace(stream, dram_tile=0x00),))
    assert "its code lies in dram@(0,0); place it in dram@(2,1), its own channel" in refused(program, chip=FETCHED)


def test_data_on_the_link_of_the_code_are_named(fetched: tuple[Schedule, Program]) -> None:
    """A way round by two way-points, over the link between the code channel and the controller."""
    program = fetched[1]
    move = at(program, Opcode.MOVE, src_tile=0x00, dst_tile=0x01)
    code = list(program.streams[0].instructions)
    order = Instruction(Opcode.ORDER, {"tag": 7, "count": 3, "points": 0x02 << 16 | 0x12 << 8 | 0x11})
    before = [] if code[move - 1].opcode is not Opcode.ORDER else [move - 1]
    code = [one for number, one in enumerate(code[:move]) if number not in before] + [order, *code[move:]]
    assert "is on the link of the controller's code" in refused(recoded(program, code), chip=FETCHED)


def test_the_other_checker_sends_them_here(timed: tuple[Schedule, Program]) -> None:
    with pytest.raises(CheckError, match="belongs to a controller, whose program is timed ahead"):
        check(timed[1], CHIP)


def test_listings_say_where_orders_send(timed: tuple[Schedule, Program]) -> None:
    lines = list(listing(timed[1], CHIP, [op.label for op in timed[0].operations]))
    assert any("ORDER | to core@(1,0)" in line for line in lines)
    program = changed(timed[1], at(timed[1], Opcode.ORDER), tile=0, channel=1, count=2, points=0x1200 | 0x11)
    assert any("ORDER | virtual channel 0 | via spm@(1,1), core@(2,1)" in line for line in listing(program, CHIP))


# -- fields, and who is meant ---------------------------------------------------------------------------------------

WRONG: list[tuple[Opcode, int, Mapping[str, int], str]] = [
    (Opcode.ORDER, 0, {"tile": 0x00}, "is sent to dram@(0,0); an ORDER before it must name a core"),
    (Opcode.ORDER, 0, {"tile": 0x77}, "is sent to nothing@(7,7); an ORDER before it must name a core"),
    (Opcode.ORDER, 0, {"post_n": 1}, "post_n = 1; instructions that are timed ahead use no semaphores"),
    (Opcode.MOVE, 0, {"wait_n": 1}, "wait_n = 1; instructions that are timed ahead use no semaphores"),
    (Opcode.MOVE, 0, {"notify": 1}, "notify = 1; instructions that are timed ahead use no semaphores"),
    (Opcode.MOVE, 0, {"src_tile": 0x77}, "src_tile is nothing@(7,7)"),
    (Opcode.MOVE, 0, {"dst_tile": 0x77}, "writes nothing@(7,7)"),
    (Opcode.MOVE, 0, {"words": 0}, "words = 0; it must be at least 1"),
    (Opcode.MOVE, 0, {"dst": address(Region.ACC, 1 << 16)}, "the memory has"),
    (Opcode.GEMM, 0, {"pixels": 0}, "pixels = 0; it must be at least 1"),
    (Opcode.GEMM, 0, {"a_base": 1 << 20}, "does not encode"),
    (Opcode.GEMM, 0, {"a_base": CHIP.core.a_words - 1}, "the memory has"),
    (Opcode.SYNC, 0, {"tile": 0x00}, "does not notify the host; it must add 1 to semaphore 0 of the host"),
    (Opcode.SYNC, 0, {"n": 2}, "does not notify the host; it must add 1 to semaphore 0 of the host"),
]


@pytest.mark.parametrize(("opcode", "nth", "fields", "message"), WRONG, ids=[f"{w[0].name}-{w[2]}" for w in WRONG])
def test_fields_that_cannot_be(
    timed: tuple[Schedule, Program], opcode: Opcode, nth: int, fields: dict[str, int], message: str
) -> None:
    program = changed(timed[1], at(timed[1], opcode, nth), **fields)
    assert message in refused(program)
    assert message in refused(program, timed[0])


def test_orders_are_for_the_instruction_behind_them(timed: tuple[Schedule, Program]) -> None:
    program = timed[1]
    code = list(program.streams[0].instructions)
    order = at(program, Opcode.ORDER)
    assert "cannot use the ORDER before it" in refused(recoded(program, [*code[:order], code[order], *code[order:]]))
    assert "an ORDER before it must name a core" in refused(recoded(program, [*code[:order], *code[order + 1 :]]))
    fetch = Instruction(Opcode.FETCH, {"tag": 9, "count": 1})
    assert "the controller does not send FETCH" in refused(recoded(program, [fetch, *code]))
    assert "only its last instruction may be SYNC" in refused(recoded(program, [code[-1], *code]))
    assert "does not notify the host; SYNC must be its last instruction" in refused(recoded(program, code[:-1]))


def test_way_points_lead_there(timed: tuple[Schedule, Program]) -> None:
    program = timed[1]
    code = list(program.streams[0].instructions)
    move = at(program, Opcode.MOVE, src_tile=0x00, dst_tile=0x01)
    for order, message in [
        ({"count": 1, "points": 0x77}, "its route has the waypoint nothing@(7,7); waypoints must lie on the floorplan"),
        ({"count": 1, "points": 0x02}, "its route turns back"),
        ({"count": 13}, "its ORDER has 13 waypoints; at most 12 fit"),
        ({"channel": 2}, "its ORDER names channel 1; ahead4 has channels 0..0"),
    ]:
        ordered = [*code[:move], Instruction(Opcode.ORDER, {"tag": 7, **order}), *code[move:]]
        assert message in refused(recoded(program, ordered))


@pytest.mark.parametrize(
    "fields", [{"words": 65}, {"words": 63}, {"src": 0}, {"src_run": 8}, {"dst": 64}, {"dst_run": 8}]
)
def test_code_comes_whole_and_in_order(timed: tuple[Schedule, Program], fields: dict[str, int]) -> None:
    program = timed[1]
    brings = at(program, Opcode.MOVE, dst_tile=CHIP.dtt or 0)
    code = program.streams[0].instructions[brings].fields
    fields = fields | ({"dst": code["dst"] + fields["dst"]} if "dst" in fields else {})
    assert "does not load the controller's next code" in refused(changed(program, brings, **fields))


def test_streams_are_one_and_the_boot_waits_for_it(timed: tuple[Schedule, Program]) -> None:
    program = timed[1]
    sync = (Instruction(Opcode.SYNC, {"tag": 1}),)
    beside = Stream(CHIP.cores[0], Unit.MOVER, CHIP.drams[0], 1 << 19, sync)
    assert "has 2 streams" in refused(replace(program, streams=(*program.streams, beside)))
    fetch, _, end = program.boot.instructions
    hasty = replace(program, boot=replace(program.boot, instructions=(fetch, end)))
    assert "does not start the controller and wait for it alone" in refused(hasty)
    assert "was lowered for another chip" in refused(replace(program, chip_digest="0" * 64))


# -- what it computes -----------------------------------------------------------------------------------------------


def test_another_operation_than_the_schedules_is_named(timed: tuple[Schedule, Program]) -> None:
    schedule, program = timed
    gemm = at(program, Opcode.GEMM)
    other = changed(program, gemm, relu=1)
    assert "differs from its operation in the schedule" in refused(other, schedule)
    check_program(other, CHIP)  # by itself it is good: it means something else
    tags = dict(program.operation_of_tag)
    tags.popitem()
    assert "its tags name " in refused(replace(program, operation_of_tag=tags), schedule)
    code = list(program.streams[0].instructions)
    again = changed(program, at(program, Opcode.MOVE, 1), tag=code[at(program, Opcode.MOVE)].fields["tag"])
    assert "tags of a program that is timed ahead are unique" in refused(again)


def test_words_that_nobody_has_written_are_named(timed: tuple[Schedule, Program]) -> None:
    schedule, program = timed
    gemm = at(program, Opcode.GEMM)
    unwritten = changed(program, gemm, b_base=CHIP.core.b_words - 400)
    assert "which nothing has written; write it first" in refused(unwritten)
    inputs = tuple(tensor for tensor in schedule.tensors if tensor.name != "w")
    without = schedule.model_copy(update={"tensors": inputs})
    assert "which nothing has written" in refused(program, without)
    output = schedule.tensor("y")
    pieces = tuple(piece.model_copy(update={"address": piece.address + 20_000}) for piece in output.pieces)
    moved = tuple(t.model_copy(update={"pieces": pieces}) if t is output else t for t in schedule.tensors)
    assert "is never written; move the result there" in refused(program, schedule.model_copy(update={"tensors": moved}))


def test_the_host_is_told_when_all_is_done(timed: tuple[Schedule, Program]) -> None:
    end = len(timed[1].streams[0].instructions) - 1
    fire = timed[1].streams[0].instructions[end].fields["fire_at"]
    assert "the host is notified before" in refused(changed(timed[1], end, fire_at=fire - 40))


def test_without_its_schedule_the_order_of_operations_still_counts() -> None:
    """Which operation a tag is says what its reads mean: exchanged, a GEMM reads before its operand is written."""
    schedule, program = made("gemm:9x8x7")
    gemm = next(index for index, op in enumerate(schedule.operations) if op.kind == "gemm")
    swap = {0: gemm, gemm: 0}
    tags = {tag: swap.get(index, index) for tag, index in program.operation_of_tag.items()}
    assert "which nothing has written" in refused(replace(program, operation_of_tag=tags))


def test_moves_alone_need_no_order() -> None:
    dram, spm = CHIP.drams[0], CHIP.spms[0]
    there = Move(issuer=dram, src=Span(tile=dram, address=0, run=8), dst=Span(tile=spm, address=0, run=8), words=8)
    back = Move(issuer=spm, src=Span(tile=spm, address=0, run=8), dst=Span(tile=dram, address=64, run=8), words=8)
    schedule = Schedule(
        chip=CHIP.name, chip_digest=CHIP.digest, workload="copy", scheduler="hand", execution=Execution.TIMED,
        operations=(there, back),
    )  # fmt: skip
    program = compile_ahead(schedule, CHIP).program
    assert all(one.opcode is not Opcode.ORDER for one in program.streams[0].instructions)
    assert check_program(program, CHIP).timed == 2
    with pytest.raises(CheckError, match="which nothing has written"):  # no tensor says that DRAM is loaded
        check_program(program, CHIP, schedule)


@pytest.mark.parametrize("seed", slow_but(range(4), 0))
def test_whatever_is_corrupted_is_refused_or_runs_in_time(seed: int) -> None:
    """One field of one instruction is changed at a time. What the check lets through, the model plays to its end, with
    nothing that comes late; and nothing ends in another exception."""
    _, program = made("gemm:70x40x50" if seed % 2 else "conv:5x6x5-6,k3,p1,relu")
    program = image.from_bytes(image.to_bytes(program))
    rng, good = random.Random(seed), 0
    code = program.streams[0].instructions
    for _ in range(60):
        position = rng.randrange(len(code))
        layout = INSTRUCTIONS[code[position].opcode]
        name = rng.choice([name for name in layout.offsets if name != "opcode"])
        width = layout.offsets[name][1]
        now = code[position].fields[name]
        value = rng.choice([now ^ 1 << rng.randrange(width), max(0, now - 1), min(now + 1, (1 << width) - 1)])
        other = changed(program, position, **{name: value})
        try:
            check_ahead(other, CHIP)
        except (CheckError, ProofError):
            continue
        good += 1
        play(other, CHIP)  # raises ModelError on what hangs or is late
    assert good, "padding fields, scales and labels do no harm"
