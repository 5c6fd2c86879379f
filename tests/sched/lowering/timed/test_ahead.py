"""Ahead-of-time programs: planned, proven; and whatever is wrong with one is found before it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode
from meshloom.hw.spec.routes import dimension_ordered
from meshloom.sched.ir.schedule import Move, Schedule
from meshloom.sched.lowering.timed import orders
from meshloom.sched.lowering.timed.compile import Ahead, compile_ahead
from meshloom.sched.lowering.timed.orders import rebuilt, waypoints_of
from meshloom.sched.lowering.timed.prove import ProofError, prove
from meshloom.sched.lowering.timed.timetable import Timed, Timetabler
from meshloom.sched.program.program import Instruction, Program
from meshloom.sched.routing.hardware import DttError
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find

from ....tiers import slow_but

CHIP = load("ahead8")
LAYERS = ("resnet8/conv1", "resnet8/conv4_1_2", "resnet8/fc", "gemm:33x40x25", "conv:14x14x24-40,k3,s2,p1,relu")


def schedule(name: str, chip: ChipConfig = CHIP) -> Schedule:
    workload = find(name)[0]
    return scheduler("loop_order")(workload.shape, chip, workload.data().scale)


@pytest.fixture(scope="module")
def ahead() -> Ahead:
    return compile_ahead(schedule("resnet8/conv4_1_2"), CHIP)


@pytest.mark.parametrize("name", slow_but(LAYERS, "resnet8/fc", "gemm:33x40x25"))
def test_layers_are_proven(name: str) -> None:
    result = compile_ahead(schedule(name), CHIP)
    operations = len(result.schedule.operations)
    assert prove(result.program, result.schedule, CHIP, result.table.begins) >= operations
    assert sorted(one.operation for one in result.table.timed) == list(range(operations))


@pytest.mark.slow
def test_packets_of_32_words_are_proven() -> None:
    """Words of 128 bytes: trains of shorter packets, and code in packets of 32 instructions."""
    values = CHIP.model_dump() | {"name": "wide", "lanes": 128, "rows": 8, "cols": 16, "controller_instructions": 64}
    chip = ChipConfig.model_validate(values | {"dram": {"bytes_per_cycle": 128, "words": 1 << 16}})
    result = compile_ahead(schedule("conv:10x10x200-60,k3,p1", chip), chip)
    assert prove(result.program, result.schedule, chip, result.table.begins) >= len(result.schedule.operations)
    brought = [one for one in result.orders.timed.values() if one.operation < 0]
    assert brought
    assert max(one.flits for one in brought) <= 33


def test_a_long_program_brings_its_own_code() -> None:
    values = CHIP.model_dump() | {"name": "short", "controller_instructions": 64}
    chip = ChipConfig.model_validate(values)
    result = compile_ahead(schedule("resnet8/conv4_1_2", chip), chip)
    brought = [one for one in result.orders.timed.values() if one.operation < 0]
    assert len(result.program.streams[0].instructions) > 3 * 64
    assert len(brought) > 6
    assert prove(result.program, result.schedule, chip, result.table.begins)


def test_code_is_brought_in_time_even_if_an_operation_is_always_due_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a channel without a gap: then the next packet of code is fetched when the last one is nearly through."""
    chip = ChipConfig.model_validate(CHIP.model_dump() | {"name": "short", "controller_instructions": 64})
    bring = orders._bring

    def at_the_last_moment(planner: Timetabler, op: Move, sent: int, fired: int, last: int | None) -> Timed | None:
        return None if last is not None else bring(planner, op, sent, fired, last)

    monkeypatch.setattr(orders, "_bring", at_the_last_moment)
    result = compile_ahead(schedule("gemm:64x80x50", chip), chip)
    assert sum(one.operation < 0 for one in result.orders.timed.values()) >= 3
    assert prove(result.program, result.schedule, chip, result.table.begins)


# -- what the proof finds -------------------------------------------------------------------------------------------


def changed(ahead: Ahead, position: int, **fields: int) -> Program:
    """The program with some fields of one of the controller's instructions changed."""
    (stream,) = ahead.program.streams
    code = list(stream.instructions)
    code[position] = Instruction(code[position].opcode, {**code[position].fields, **fields})
    return replace(ahead.program, streams=(replace(stream, instructions=tuple(code)),))


def where(ahead: Ahead, kind: str, nth: int = 0) -> int:
    """Position of the instruction of the n-th operation of a kind."""
    expected = [tag for tag, one in ahead.orders.timed.items() if one.op.kind == kind and one.operation >= 0][nth]
    code = ahead.program.streams[0].instructions
    return next(
        at
        for at, one in enumerate(code)
        if one.fields["tag"] == expected and one.opcode not in (Opcode.ORDER, Opcode.SYNC)
    )


def refuted(ahead: Ahead, program: Program, begins: int | None = None) -> str:
    with pytest.raises(ProofError) as error:
        prove(program, ahead.schedule, CHIP, ahead.table.begins if begins is None else begins)
    return str(error.value)


@pytest.mark.parametrize("later", [-1, 1])
def test_a_computation_that_fires_a_cycle_off_is_found_somewhere(ahead: Ahead, later: int) -> None:
    """Where there is no slack: earlier, it reads what is not there yet; later, whoever waits for it comes too early.
    That is so of most of the first twelve."""
    result = 0
    for nth in range(12):
        at = where(ahead, "gemm", nth)
        fire = ahead.program.streams[0].instructions[at].fields["fire_at"]
        try:
            prove(changed(ahead, at, fire_at=fire + later), ahead.schedule, CHIP, ahead.table.begins)
        except ProofError:
            result += 1
    assert result >= 10, result


def test_two_on_a_wire_are_named(ahead: Ahead) -> None:
    """MOVEs that leave a little earlier meet others on a wire."""
    moves = [one for one in ahead.table.timed if isinstance(one.op, Move)]
    code = ahead.program.streams[0].instructions
    tags = {one.operation: tag for tag, one in ahead.orders.timed.items()}
    message = set()
    for one in moves[10:40]:
        at = next(at for at, each in enumerate(code) if each.fields["tag"] == tags[one.operation])
        try:
            prove(changed(ahead, at, fire_at=one.fire - 6), ahead.schedule, CHIP, ahead.table.begins)
        except ProofError as error:
            message.add(str(error).split(": ", 1)[1])
    assert any("are both on" in words for words in message)


def test_a_mover_fires_in_the_order_in_which_it_is_sent(ahead: Ahead) -> None:
    first, *_, last = [
        one for one in ahead.table.timed if isinstance(one.op, Move) and one.op.src.tile == CHIP.drams[1]
    ]
    tags = {one.operation: tag for tag, one in ahead.orders.timed.items()}
    code = ahead.program.streams[0].instructions
    at = next(at for at, each in enumerate(code) if each.fields["tag"] == tags[last.operation])
    assert "are sent in the wrong order" in refuted(ahead, changed(ahead, at, fire_at=first.fire - 1))


def test_data_that_come_too_late_are_named(ahead: Ahead) -> None:
    at = where(ahead, "gemm")
    fire = ahead.program.streams[0].instructions[at].fields["fire_at"]
    assert "reads what" in refuted(ahead, changed(ahead, at, fire_at=fire - 200))


def test_a_control_packet_that_cannot_be_there_is_named(ahead: Ahead) -> None:
    text = refuted(ahead, ahead.program, ahead.table.begins + 2000)
    assert "the control packet of instruction" in text


def test_another_way_is_another_wire(ahead: Ahead) -> None:
    """A way-point turned into another collides, or does not fit the chip's heads."""
    code = ahead.program.streams[0].instructions
    at = next(at for at, one in enumerate(code) if one.opcode is Opcode.ORDER and one.fields.get("count"))
    with pytest.raises(ProofError):
        prove(changed(ahead, at, count=0), ahead.schedule, CHIP, ahead.table.begins)


def test_a_missing_operation_is_found(ahead: Ahead) -> None:
    tags = dict(list(ahead.program.operation_of_tag.items())[1:])
    assert "operations in the schedule" in refuted(ahead, replace(ahead.program, operation_of_tag=tags))


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chip", "part"),
    [
        (load("quad8"), 'draw a "dtt" tile into its floorplan'),
        (
            CHIP.model_copy(update={"noc": CHIP.noc.model_copy(update={"route_hops": 3})}),
            "planned routes need at least 5",
        ),
        (CHIP.model_copy(update={"dram": CHIP.dram.model_copy(update={"bytes_per_cycle": 4})}), "make them equal"),
    ],
)
def test_chips_that_cannot_run_one(chip: ChipConfig, part: str) -> None:
    with pytest.raises(DttError, match=part):
        compile_ahead(schedule("resnet8/fc", chip), chip)


def test_way_points_are_the_fewest_that_rebuild_a_path() -> None:
    straight = dimension_ordered(0x00, 0x23)
    assert waypoints_of(straight, "xy") == ()
    column_first = dimension_ordered(0x00, 0x23, "yx")
    assert waypoints_of(column_first, "xy") == (0x20,)
    assert waypoints_of(column_first, "yx") == ()
    stairs = (0x00, 0x10, 0x11, 0x21, 0x22, 0x32)
    points = waypoints_of(stairs, "xy")
    assert rebuilt(0x00, points, 0x32, "xy") == stairs
    assert len(points) == 2
