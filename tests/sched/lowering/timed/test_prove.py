"""The proof of ahead-of-time programs, condition by condition: two operations may come as close as the hardware lets
them, and not a cycle closer. The cycles are those of `sched/lowering/timed/windows.py`, worked out here from hops and
words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.hw.spec.isa import Opcode, Region, Unit, VectorOp, address
from meshloom.hw.spec.timing import GemmShape, gemm_cycles, gemm_occupancy
from meshloom.sched.ir.schedule import Gemm, Move, Operation, Span, Vec
from meshloom.sched.lowering.timed.prove import ProofError, arrivals, prove
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.tb.verify.random_schedules import schedule_of

CHIP = load("ahead8")
#: dram 00, core 01, core 02, dtt 03 / host 10, core 11, core 12, spm 13 / spm 20, spm 21, dram 22, spm 23
DRAM, NORTH, EAST, WEST, SPM = 0x00, 0x01, 0x02, 0x11, 0x20
DTT = 0x03
#: From a fire time to the first head: out of local memory, out of DRAM.
LOCAL, FAR = 4, 4 + CHIP.dram.latency
#: Late enough for every control packet.
FIRE = 1000
#: Where the controller's code lies.
CODE = 50048
ONES = ("k_blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "n_blocks")
GEMM = dict.fromkeys(ONES, 1) | {"a_plane": 8, "in_w": 8, "out_w": 8, "pixels": 8, "scale": 1, "clamp": 127}
SHAPE = GemmShape(8)


@dataclass(frozen=True)
class Order:
    """An operation, when it fires, over which way-points; None: a SYNC of the controller's own. `code`: a MOVE that
    brings code, and is no operation of the schedule."""

    op: Operation | None
    fire: int = 0
    points: tuple[int, ...] = ()
    code: bool = False


def span(tile: int, at: int, words: int, region: Region = Region.MAIN) -> Span:
    return Span(tile=tile, address=address(region, at), run=words)


def move(source: Span, target: Span) -> Move:
    return Move(issuer=source.tile, src=source, dst=target, words=source.run)


def copy(source: int, target: int, at: int = 0, words: int = 8, to: Region = Region.MAIN) -> Move:
    """Words `at` .. of one tile to the same place in another."""
    return move(span(source, at, words), span(target, at, words, to))


def gemm(core: int = NORTH, **fields: int) -> Gemm:
    return Gemm(core=core, fields=GEMM | fields)


def programmed(orders: Sequence[Order], chip: ChipConfig = CHIP) -> Program:
    """The controller's program: these, with tags 1, 2, ..."""
    code: list[Instruction] = []
    operations: dict[int, int] = {}
    for tag, one in enumerate(orders, 1):
        if one.op is None:
            code.append(Instruction(Opcode.SYNC, {"tag": tag}))
            continue
        if not isinstance(one.op, Move):
            code.append(Instruction(Opcode.ORDER, {"tag": 900 + tag, "tile": one.op.core}))
        elif one.points:
            points = sum(point << 8 * at for at, point in enumerate(one.points))
            code.append(Instruction(Opcode.ORDER, {"tag": 900 + tag, "count": len(one.points), "points": points}))
        kind = Opcode.MOVE if isinstance(one.op, Move) else Opcode.VEC if isinstance(one.op, Vec) else Opcode.GEMM
        code.append(Instruction(kind, {"tag": tag, "fire_at": one.fire} | one.op.body))
        if not one.code:
            operations[tag] = len(operations)
    code.append(Instruction(Opcode.SYNC, {"tag": 999, "fire_at": 99999, "tile": chip.host, "sem": 0, "n": 1}))
    boot = Stream(chip.host, Unit.MOVER, DRAM, 60000, (Instruction(Opcode.END),))
    return Program(chip.digest, (Stream(DTT, Unit.MOVER, DRAM, CODE, tuple(code)),), boot, operations)


def wrong(orders: Sequence[Order], begins: int = 0, chip: ChipConfig = CHIP, sent: Sequence[int] = ()) -> str:
    """What the proof says; empty if it holds. The schedule is the list; `sent`: the order in which the controller has
    it, if that is another."""
    program = programmed([orders[number] for number in sent] if sent else orders, chip)
    if sent:
        program = replace(program, operation_of_tag=dict(enumerate(sent, 1)))
    operations = [one.op for one in orders if one.op is not None and not one.code]
    try:
        proven = prove(program, schedule_of(operations, chip), chip, begins)
    except ProofError as error:
        return str(error)
    assert proven == sum(one.op is not None for one in orders)
    return ""


def closest(make: Callable[[int], Sequence[Order]], exact: int, why: str, **given: Any) -> None:
    """`make(fire)` is proven from cycle `exact` on, and refuted for that reason one cycle before."""
    for fire in (exact, exact + 1, exact + 500):
        assert wrong(make(fire), **given) == "", fire - exact
    message = wrong(make(exact - 1), **given)
    assert why in message, message


# -- where flits are ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [1, 8, 64, 65])
def test_arrivals_follow_from_departure_hops_and_flits(words: int) -> None:
    """A head for each packet; from DRAM later, by its latency; over way-points by the longer way. DRAM sends a word a
    cycle, and the next packet's head goes while its first word comes."""
    flits = words + -(-words // 64)
    orders = [
        Order(copy(SPM, EAST, 0, words), FIRE),
        Order(copy(DRAM, NORTH, 128, words), FIRE + 200),
        Order(copy(SPM, EAST, 256, words, Region.B), FIRE + 400, (0x10, 0x00, 0x01)),
        Order(gemm(WEST), FIRE + 600),
    ]
    assert wrong(orders) == ""
    assert arrivals(programmed(orders), CHIP) == {
        1: FIRE + LOCAL + 4 + flits + 1,
        2: FIRE + 200 + FAR + 1 + flits + 1,
        3: FIRE + 400 + LOCAL + 4 + flits + 1,
    }


def test_a_link_carries_one_train_at_a_time() -> None:
    """From 20 and 21 over 21 -> 22 to different tiles: the second takes its first link when the first has left it."""
    closest(
        lambda fire: [Order(copy(SPM, 0x22, 64, 8), FIRE), Order(copy(0x21, 0x23, 0, 3), fire)],
        FIRE + 9 + 1,  # 9 flits, which come to that link a hop later
        "are both on link 0x21 -> 0x22",
    )


def test_a_tile_takes_one_train_at_a_time() -> None:
    """From the north and from the south, 1 and 3 hops."""
    closest(
        lambda fire: [Order(copy(SPM, WEST, 0, 8), FIRE), Order(copy(NORTH, WEST, 64, 8, Region.B).model_copy(update={
            "src": span(NORTH, 0, 8, Region.OUT)}), fire)],
        FIRE + 2 + 9 - 1,
        f"are both on port into {WEST:#04x}",
    )  # fmt: skip


def test_a_mover_turns_between_two_trains() -> None:
    """To different sides: 9 flits, and a cycle for the next descriptor."""
    closest(
        lambda fire: [Order(copy(SPM, 0x10 + 1, 0, 8), FIRE), Order(copy(SPM, DRAM, 64, 4), fire, (0x10,))],
        FIRE + 9 + 1,
        f"are both on port out of {SPM:#04x}",
    )


def test_a_dram_channel_reads_or_writes() -> None:
    """What comes in is written 4 cycles after its last flit; what goes out keeps the channel from its departure."""
    into = copy(SPM, DRAM, 0, 8)  # 2 hops
    closest(
        lambda fire: [Order(into, FIRE), Order(copy(DRAM, EAST, 64, 4), fire)],
        FIRE + LOCAL + 2 + 1 + 9 + 4 - FAR,
        f"are both on channel of {DRAM:#04x}",
    )
    closest(
        lambda fire: [Order(copy(DRAM, EAST, 64, 4), FIRE), Order(into, fire)],
        FIRE + FAR + 5 + 1 - (LOCAL + 2 + 1),
        f"are both on channel of {DRAM:#04x}",
    )


def test_a_mover_fires_in_the_order_in_which_it_is_sent() -> None:
    first, second = copy(SPM, WEST, 0, 1), copy(SPM, WEST, 64, 1, Region.B)
    assert wrong([Order(first, FIRE), Order(second, FIRE + 50)]) == ""
    for early in (FIRE, FIRE - 50):
        message = wrong([Order(first, FIRE), Order(second, early)])
        assert f"of {SPM:#04x} are sent in the wrong order" in message


def test_a_mover_of_dram_takes_a_move_when_it_has_asked_for_the_one_before() -> None:
    """40 runs of a word are 40 bursts, one a cycle and 16 at once: the next MOVE cannot be taken while they are asked
    for."""
    runs = Span(tile=DRAM, address=0, run=1, stride=2)
    first = Move(issuer=DRAM, src=runs, dst=span(NORTH, 0, 40), words=40)
    message = wrong([Order(first, FIRE), Order(copy(DRAM, NORTH, 128, 2, Region.B), FIRE + 20)])
    assert f"the mover of {DRAM:#04x} cannot take the MOVE with tag 2 before" in message
    assert wrong([Order(first, FIRE), Order(copy(DRAM, NORTH, 128, 2, Region.B), FIRE + 200)]) == ""


@pytest.mark.parametrize("spare", [0, -1])
def test_a_way_has_as_many_hops_as_heads_hold(spare: int) -> None:
    """There and back again: 9 hops."""
    around = (0x21, 0x22, 0x12, 0x11, 0x10, 0x00)
    hops = len(arrivals_path(around)) - 1
    chip = CHIP.model_copy(update={"noc": CHIP.noc.model_copy(update={"route_hops": hops + spare})})
    message = wrong([Order(copy(SPM, EAST, 0, 4), FIRE, around)], chip=chip)
    assert message == ("" if not spare else f"instruction 1 (tag 1): its route has {hops} hops, too many")


def arrivals_path(points: Sequence[int]) -> list[int]:
    """The tiles of a way from SPM over neighbouring `points` and then east along row 0 to EAST."""
    path = [SPM, *points]
    while path[-1] != EAST:
        path.append(path[-1] + 1)
    return path


# -- what is read and written ---------------------------------------------------------------------------------------


def test_words_are_read_when_they_have_arrived() -> None:
    """By a mover two cycles before its head leaves, by a unit when it starts."""
    load = copy(DRAM, SPM, 0, 8)
    arrives = FIRE + FAR + 2 + 9 + 1
    closest(lambda fire: [Order(load, FIRE), Order(copy(SPM, WEST, 0, 8), fire)], arrives + 2 - LOCAL, "reads what")
    loads = [Order(copy(DRAM, NORTH, 0, 8), FIRE - 100), Order(copy(DRAM, NORTH, 0, 8, Region.B), FIRE)]
    arrives = FIRE + FAR + 1 + 9 + 1
    closest(lambda fire: [*loads, Order(gemm(), fire)], arrives - 3, "reads what")


def test_dram_is_read_when_its_answer_has_come() -> None:
    """Written 8 cycles after the last flit; read from 3 cycles after the fire time on."""
    store = copy(SPM, 0x22, 0, 8)
    closest(
        lambda fire: [Order(store, FIRE), Order(copy(0x22, WEST, 0, 8), fire)],
        FIRE + LOCAL + 2 + 1 + 9 + 8 - 3,
        "reads what",
    )


def test_words_are_overwritten_when_they_have_been_read() -> None:
    """The first word lands two cycles after its head has gone the last hop; the last one is read with the last flit."""
    leave, over = copy(SPM, WEST, 0, 8), move(span(0x21, 100, 8), span(SPM, 0, 8))
    closest(lambda fire: [Order(leave, FIRE), Order(over, fire)], FIRE + 9 - 1 - 2, "overwrites what")


def test_of_two_that_write_the_same_words_the_second_ends_last() -> None:
    """From the east, and from the north: one behind the other through the port, and in the wrong order."""
    first, second = copy(0x10 + 3, 0x12, 0, 8), move(span(EAST, 0, 4, Region.OUT), span(0x12, 4, 4))
    into = f"are both on port into {0x12:#04x}"
    closest(lambda fire: [Order(first, FIRE), Order(second, fire)], FIRE + 9, into)
    assert "operation 1 overwrites what operation 0 needs" in wrong([Order(first, FIRE), Order(second, FIRE - 50)])


def test_operands_are_overwritten_when_the_unit_has_read_them() -> None:
    """A and B are free when the last window has been fed; results when they have been written, too."""
    start = FIRE + 3
    feed = [Order(gemm(), FIRE)]
    over = copy(SPM, NORTH, 0, 8)  # 3 hops
    closest(
        lambda fire: [*feed, Order(over, fire)],
        start + gemm_occupancy(CHIP, SHAPE) - (LOCAL + 3 + 2),
        "overwrites what",
    )


def test_results_are_read_when_the_last_has_been_written() -> None:
    start = FIRE + 3
    away = move(span(NORTH, 0, 8, Region.OUT), span(EAST, 0, 8))
    closest(
        lambda fire: [Order(gemm(), FIRE), Order(away, fire)],
        start + gemm_cycles(CHIP, SHAPE) + 2 - LOCAL,
        "reads what",
    )


def test_a_unit_orders_what_it_computes() -> None:
    """Partial sums of one GEMM are the addends of the next, which starts when the array is free."""
    first, second = gemm(to_acc=1), gemm(addend=2)
    step = gemm_occupancy(CHIP, SHAPE)
    closest(lambda fire: [Order(first, FIRE), Order(second, fire)], FIRE + step, "is to begin instruction 3 (tag 2)")
    swapped = wrong([Order(first, FIRE), Order(second, FIRE - 100)], sent=(1, 0))
    assert "operation 1 reads what 0 writes" in swapped
    over = [Order(gemm(), FIRE), Order(gemm(scale=2), FIRE - 100)]
    assert "operation 1 overwrites what operation 0 needs" in wrong(over, sent=(1, 0))


def test_a_front_end_fires_once_in_three_cycles() -> None:
    """VECs of one word, which leave their unit at once."""
    body = {"op": VectorOp.MAX, "x_plane": 1, "in_w": 1, "out_w": 1, "pixels": 1, "clamp": 127}
    body |= dict.fromkeys(("blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation"), 1)
    one, other = Vec(core=NORTH, fields=body), Vec(core=NORTH, fields=body | {"dest_base": 5})
    closest(lambda fire: [Order(one, FIRE), Order(other, fire)], FIRE + 3, "the vector unit of 0x01 is to begin")
    assert wrong([Order(one, FIRE), Order(Vec(core=EAST, fields=body), FIRE)]) == "", "cores do not wait for each other"


def test_nothing_comes_into_out_while_the_drain_path_writes() -> None:
    """A MOVE to words of OUT that no GEMM uses meets it all the same; into A it does not."""
    rows = 8  # results of one fold, one a cycle, the last with the end of the GEMM
    drained = (FIRE + 3 + gemm_cycles(CHIP, SHAPE) - rows, FIRE + 3 + gemm_cycles(CHIP, SHAPE))
    lands = LOCAL + 3 + 2  # first word
    for words in (1, 5):
        met = set()
        for fire in range(drained[0] - lands - 12, drained[1] - lands + 12):
            into = copy(SPM, NORTH, 100, words, Region.OUT)
            message = wrong([Order(gemm(), FIRE), Order(into, fire)])
            assert not message or "conflicts with the drain path" in message
            if message:
                met.add(fire)
            assert wrong([Order(gemm(), FIRE), Order(copy(SPM, NORTH, 100, words), fire)]) == ""
        first, after = min(met), max(met) + 1
        assert met == set(range(first, after))
        # from the cycle in which its last word meets the first row to that in which its first meets the last
        assert (after + lands, first + lands + words) == (drained[1], drained[0] + 1)


def test_nothing_leaves_acc_while_addends_are_read() -> None:
    """A MOVE out of ACC, words that are nobody's addends, beside a GEMM with and without one."""
    away = move(span(NORTH, 200, 4, Region.ACC), span(EAST, 0, 4))
    fire = FIRE + 3 + gemm_cycles(CHIP, SHAPE) + 2 - LOCAL  # the first cycle in which all is over
    closest(lambda at: [Order(gemm(addend=1), FIRE), Order(away, at)], fire, "conflicts with the drain path")
    assert wrong([Order(gemm(), FIRE), Order(away, fire - 1)]) == ""


def test_every_operation_must_be_in_the_program() -> None:
    orders = [Order(copy(SPM, WEST), FIRE), Order(gemm(), FIRE + 100)]
    with pytest.raises(ProofError, match="3 operations in the schedule, 2 in the program"):
        prove(programmed(orders), schedule_of([*(one.op for one in orders if one.op), gemm(EAST)], CHIP), CHIP, 0)
    two = [Order(copy(SPM, WEST), FIRE), Order(copy(0x21, WEST, 64), FIRE + 2)]
    assert wrong(two).endswith(" are both on link 0x21 -> 0x11 (and 1 more)"), "the port behind it, too"


# -- control packets ------------------------------------------------------------------------------------------------


def test_a_control_packet_must_be_there_when_it_is_due() -> None:
    """8 cycles and the hops to a mover, 9 to a unit, for which the controller reads an ORDER first."""
    fire, hops = FIRE, 5
    assert wrong([Order(copy(SPM, WEST), fire)], fire - 8 - hops) == ""
    assert "the control packet of instruction 0 (tag 1)" in wrong([Order(copy(SPM, WEST), fire)], fire - 8 - hops + 1)
    arrives = 4 + 1 + 3  # the ORDER's four words and a head, then a turn of the mover: instruction 1 of the first ring
    begins = fire - 9 - 2 - 1 - arrives
    assert wrong([Order(gemm(), fire)], begins) == ""
    assert f"reaches tile {NORTH:#04x} only in cycle {fire + 1}" in wrong([Order(gemm(), fire)], begins + 1)


def test_a_way_costs_the_controller_its_hops_and_way_points() -> None:
    """4 hops (5 tiles), 2 way-points: 9 cycles before the packet goes."""
    orders = [Order(copy(SPM, WEST, 0, 4), FIRE, (0x10, 0x00))]
    path = 5
    begins = FIRE - 8 - 5 - (path + 2 + 2) - 8
    tiles = len([SPM, 0x10, 0x00, NORTH, WEST])
    assert tiles == path
    assert wrong(orders, begins) == ""
    assert "reaches tile 0x20" in wrong(orders, begins + 1)


def test_control_packets_go_one_every_six_cycles() -> None:
    """Of MOVEs without way-points. The second of the first ring's instructions comes 8 cycles after the first: four
    words and a head, and the mover's turn between the halves; the code of all others is there in time."""
    moves = [copy(SPM, WEST, 8 * number, 1) for number in range(5)]
    due = [FIRE, *(FIRE + 8 + 6 * number for number in range(4))]
    for number in range(5):
        closest(
            lambda fire, number=number: [
                Order(op, fire if at == number else due[at] + (fire - due[number]) * (at > number))
                for at, op in enumerate(moves)
            ],
            due[number],
            f"the control packet of instruction {number} (tag {number + 1})",
            begins=FIRE - 8 - 5,
        )


def test_the_controller_sends_no_unit_more_than_it_takes() -> None:
    """The ninth MOVE of a mover, which keeps eight, is sent two cycles after the first has fired; whoever comes behind
    waits with it."""
    queue = CHIP.mover_queue
    many = [Order(copy(SPM, WEST, 8 * number, 1), FIRE + 20 * number) for number in range(queue + 1)]
    distant = copy(0x21, 0x23, 0, 1)  # four hops from the controller
    closest(lambda fire: [*many, Order(distant, fire)], FIRE + 2 + 6 + 8 + 4, "(tag 10) reaches tile 0x21")
    early = FIRE - 50
    assert wrong([*many[:queue], Order(distant, early)]) == ""


def test_code_behind_the_first_ring_must_be_brought_where_there_is_room() -> None:
    """By MOVEs of the program itself: over instructions that are done with, before it is due."""
    ring, per = CHIP.ring(TileKind.DTT), CHIP.instruction_words
    last = copy(SPM, WEST, 0, 1)
    due = FIRE + ring * per  # when DRAM's mover has long sent the first ring

    def bringing(count: int) -> Move:
        source = span(DRAM, CODE + ring * per, count * per)
        return move(source, span(DTT, 0, count * per, Region.RING_MOVER))

    def long(bring: Move | None, at: int, fire: int) -> list[Order]:
        """`bring` is instruction `at`, `last` the first of the second ring; one SYNC follows, that of the end."""
        first = Order(bring, due, code=True)
        return [first if number == at else Order(None) for number in range(ring)] + [Order(last, fire)]

    arrives = due + FAR + 3 + 9 + 1  # 3 hops, 2 instructions of 4 words and a head
    closest(lambda fire: long(bringing(2), 1, fire), arrives + 8 + 5, f"the control packet of instruction {ring} ")
    assert (
        wrong(long(bringing(2), 0, arrives + 500))
        == "instruction 0 loads code over instructions that have yet to be sent"
    )
    assert f"instruction {ring + 1} of the controller is never loaded" in wrong(long(bringing(1), 1, arrives + 500))
    assert f"instruction {ring} of the controller is never loaded" in wrong(long(None, 1, arrives + 500))
    alone = [Order(None)] * (ring - 1)
    assert wrong([Order(last, FIRE), *alone[:-1]]) == "", "a ring full needs none"
    assert f"instruction {ring} of the controller is never loaded" in wrong([Order(last, FIRE), *alone])
