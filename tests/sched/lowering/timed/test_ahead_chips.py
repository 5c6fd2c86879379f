"""Ahead-of-time programs on chips of many kinds: planned, proven, and played by the model, 0 cycles off; or refused."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode, Region, Unit, address
from meshloom.sched.ir.schedule import Move, Span
from meshloom.sched.lowering.timed.boot import boot_of
from meshloom.sched.lowering.timed.compile import Ahead, compile_ahead
from meshloom.sched.lowering.timed.prove import ProofError, arrivals, prove
from meshloom.sched.model.timeline import play, played
from meshloom.sched.program.program import Instruction, Program, Stream
from meshloom.sched.routing.hardware import DttError, TimingFault
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find
from meshloom.tb.verify.random_schedules import random_operations, schedule_of

from ....tiers import slow_but

PLANS = (
    ["core spm dram core", "host dtt core spm"],
    ["dram core dtt", "host spm core"],
    ["dram core", "dtt host"],
    ["dram core dtt core dram", "host spm core spm core"],
    ["dram core", "core dtt", "spm dram", "core host", "spm core"],
    ["host", "dram", "dtt", "core", "spm"],
)
WORDS: dict[str, Any] = {
    "core": {"a_words": 128, "b_words": 128, "acc_words": 32, "out_words": 64, "vec_words": 64},
    "spm_words": 128,
}


def chip_of(plan: list[str], lanes: int = 4, latency: int = 20, **fields: Any) -> ChipConfig:
    noc = {"route_hops": len(plan) + len(plan[0].split()) - 2, "arrivals": True} | fields.pop("noc", {})
    dram = {"bytes_per_cycle": lanes, "latency": latency}
    return ChipConfig.model_validate(
        {"name": "ahead", "lanes": lanes, "floorplan": plan, "dram": dram, "noc": noc} | WORDS | fields
    )


def random_chip(random: Random) -> ChipConfig:
    lanes, plan = random.choice((4, 8)), random.choice(PLANS)
    hops = len(plan) + len(plan[0].split()) - 2
    return chip_of(
        plan,
        lanes,
        random.choice((1, 2, 20, 60, 200)),
        rows=random.randint(1, lanes),
        cols=random.randint(1, lanes),
        noc={
            "data_vcs": random.randint(1, 4),
            "data_depth": random.choice((2, 3, 4, 8)),
            "data_routing": random.choice(("xy", "yx")),
            "route_hops": hops + random.choice((0, 1, 2, 4)),
        },
        controller_instructions=random.choice((32, 64, 256)),
        mover_queue=random.choice((1, 2, 4, 8)),
        product_register=random.random() < 0.5,
        core=WORDS["core"] | {"operand_sources": random.random() < 0.7},
    )


def compiled(name: str, chip: ChipConfig, author: str = "loop_order") -> Ahead:
    workload = find(name)[0]
    return compile_ahead(scheduler(author)(workload.shape, chip, workload.data().scale), chip)


def crowded(seed: int, chip: ChipConfig, count: int) -> Ahead:
    """Random operations that overlap a lot, on ways that the planner finds; none within a channel of DRAM, which reads
    or writes."""
    operations = [
        op.model_copy(update={"channel": None, "route": None}) if isinstance(op, Move) else op
        for op in random_operations(Random(seed), chip, count)
        if not isinstance(op, Move) or (op.src.tile != op.dst.tile and chip.code_channel not in _ends(op))
    ]
    return compile_ahead(schedule_of(operations, chip), chip)


def _ends(move: Move) -> tuple[int, int]:
    return move.src.tile, move.dst.tile


def loads(chip: ChipConfig, count: int = 30, words: int = 4) -> list[Move]:
    """Many short MOVEs out of one DRAM tile that wait for nothing but each other."""
    result = []
    for at in range(count):
        src = Span(tile=chip.drams[0], address=words * at, run=words)
        dst = Span(tile=chip.cores[0], address=address(Region.MAIN, words * at), run=words)
        result.append(Move(issuer=chip.cores[0], src=src, dst=dst, words=words, label=f"load {at}"))
    return result


def off(made: Ahead, chip: ChipConfig) -> dict[int, tuple[int, int]]:
    """Tag of each MOVE that does not land when it was planned to: both cycles; and the program is proven."""
    assert prove(made.program, made.schedule, chip, made.table.begins)
    delivered: dict[int, int] = {}
    for one in play(made.program, chip).executed:
        if one.unit is Unit.NONE and one.opcode is Opcode.MOVE:
            delivered[one.tag] = max(one.end, delivered.get(one.tag, 0))
    planned = arrivals(made.program, chip)
    moves = {tag: one.arrival for tag, one in made.orders.timed.items() if one.path}
    assert moves == planned
    return {tag: (cycle, delivered[tag]) for tag, cycle in planned.items() if delivered[tag] != cycle}


@pytest.mark.parametrize("routing", ["xy", "yx"])
@pytest.mark.parametrize("vcs", slow_but([1, 2, 3, 4], 1, 4))
def test_nothing_is_off_with_any_number_of_channels(vcs: int, routing: str) -> None:
    noc = {"data_vcs": vcs, "data_depth": 2, "data_routing": routing, "route_hops": 8}
    chip = chip_of(PLANS[0], 8, 25, cols=6, noc=noc)
    assert off(compiled("gemm:8x6x8", chip), chip) == {}
    assert off(crowded(vcs, chip, 60), chip) == {}


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_off_on_random_chips(seed: int) -> None:
    chip = random_chip(Random(seed))
    assert off(crowded(seed, chip, 40), chip) == {}


@pytest.mark.parametrize("vcs", [1, 2])
@pytest.mark.parametrize("latency", [60, 200, 1000])
def test_moves_that_fire_while_the_first_code_leaves_wait_behind_it(latency: int, vcs: int) -> None:
    """A DRAM that is slow to begin: MOVEs are asked for long before the controller's first ring has left it."""
    chip = chip_of(PLANS[2], 4, latency, noc={"data_vcs": vcs})
    result = compile_ahead(schedule_of(loads(chip), chip), chip)
    (code,) = result.program.streams
    boot = boot_of(chip, code.dram_tile, code.address, len(code.instructions))
    assert any(one.fire < boot.sent for one in result.table.timed)
    assert off(result, chip) == {}


@pytest.mark.parametrize(("vcs", "queue"), [(1, 8), (3, 2)])
def test_code_is_brought_in_time_by_a_dram_that_is_slow_to_begin(vcs: int, queue: int) -> None:
    """Eight MOVEs wait in the queue of a DRAM tile's mover at most, and code is one of them."""
    chip = chip_of(PLANS[2], 4, 1000, controller_instructions=64, mover_queue=queue, noc={"data_vcs": vcs})
    result = crowded(vcs - 1, chip, 120)
    assert any(one.operation < 0 for one in result.orders.timed.values())
    assert off(result, chip) == {}


#: A DRAM tile above, beside and below the controller.
WITH_CODE_CHANNEL = (
    ["dram core dram", "host core dtt", "spm core spm"],
    ["core dram dtt", "host dram core", "core spm spm"],
    ["core dtt host", "dram dram core"],
)


@pytest.mark.parametrize(("latency", "ring"), [(1, 16), (60, 32), (1000, 32), (20, 256)])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_off_where_the_controller_fetches_its_code(seed: int, latency: int, ring: int) -> None:
    chip = chip_of(
        WITH_CODE_CHANNEL[seed], (4, 8, 32)[seed], latency, controller_instructions=ring, controller_channel=True,
        mover_queue=(2, 8, 4)[seed], noc={"data_vcs": 1 + seed % 2, "data_routing": ("xy", "yx", "xy")[seed]},
    )  # fmt: skip
    result = crowded(seed, chip, 60)
    (code,) = result.program.streams
    assert code.dram_tile == chip.code_channel
    assert all(one.operation >= 0 for one in result.orders.timed.values()), "no MOVE brings code"
    assert len(code.instructions) > ring or ring == 256
    assert off(result, chip) == {}
    assert play(result.program, chip).cycles >= result.orders.cycles


def test_code_that_is_requested_behind_an_order_delays_its_packet() -> None:
    """The ORDER of a GEMM ends a half ring: the request for the next half goes before the GEMM's packet."""
    chip = chip_of(
        ["dram dtt spm", "core core dram", "core host core"], 8, 1, controller_instructions=16, mover_queue=2,
        controller_channel=True, rows=7, cols=3, noc={"data_vcs": 2, "data_depth": 3, "route_hops": 6},
        core={"a_words": 512, "b_words": 700, "acc_words": 200, "out_words": 150, "vec_words": 150},
    )  # fmt: skip
    result = compiled("gemm:12x6x20", chip)
    prove(result.program, result.schedule, chip, result.table.begins)
    assert off(result, chip) == {}
    assert play(result.program, chip).cycles >= result.orders.cycles


def test_no_data_in_the_channel_of_the_code() -> None:
    chip = chip_of(WITH_CODE_CHANNEL[0], 4, 20, controller_channel=True)
    (move,) = loads(chip, 1)
    there = move.model_copy(update={"src": move.src.model_copy(update={"tile": chip.code_channel})})
    with pytest.raises(
        DttError, match=r"operation 0 \(load 0\) uses DRAM tile 0x02, which holds the controller's code"
    ):
        compile_ahead(schedule_of([there], chip), chip)


def test_fetched_code_that_is_not_there_in_time_is_named() -> None:
    """The same program with a ring so small that the controller waits for its code again and again."""
    chip = chip_of(WITH_CODE_CHANNEL[0], 4, 20, controller_channel=True)
    result = crowded(1, chip, 60)
    short = chip.model_copy(update={"controller_instructions": 4})
    with pytest.raises(ProofError, match=r"the control packet of instruction .* reaches tile .* only in cycle"):
        prove(result.program, result.schedule, short, result.table.begins)


@pytest.mark.parametrize("count", [1, 7, 16, 17, 40])
@pytest.mark.parametrize(("lanes", "latency", "ring"), [(4, 1, 1024), (4, 1000, 64), (8, 200, 16), (64, 20, 4)])
def test_the_first_code_leaves_as_the_model_says(lanes: int, latency: int, ring: int, count: int) -> None:
    chip = chip_of(PLANS[1], lanes, latency, controller_instructions=ring)
    boot = boot_of(chip, chip.drams[0], 640, count)
    state = boot.mover(chip)
    machine = played(_sleeper(chip, count), chip)
    mover = machine.movers[chip.drams[0]]
    assert (state.times.packetiser, state.times.generator) == (mover.idle_from, mover.source_free)
    assert boot.sent == mover.idle_from - 1


def _sleeper(chip: ChipConfig, count: int) -> Program:
    """A program whose controller does nothing but end."""
    assert chip.dtt is not None
    dram, words = chip.drams[0], min(count, chip.controller_instructions)
    stream = [Instruction(Opcode.SYNC, {"tag": at + 1}) for at in range(words - 1)]
    stream.append(Instruction(Opcode.SYNC, {"tag": words, "tile": chip.host, "sem": 0, "n": 1}))
    fetch = {"tile": chip.dtt, "unit": 0, "dram": dram, "addr": 640, "count": words}
    boot = (
        Instruction(Opcode.FETCH, fetch),
        Instruction(Opcode.SYNC, {"wait_sem": 0, "wait_n": 1}),
        Instruction(Opcode.END, {}),
    )
    streams = Stream(chip.dtt, Unit.MOVER, dram, 640, tuple(stream))
    return Program(chip.digest, (streams,), Stream(chip.host, Unit.MOVER, dram, 640 + 8 * words, boot), {})


def test_each_control_packet_may_have_to_wait_for_the_operation_before() -> None:
    chip = load("ahead8").model_copy(update={"mover_queue": 1})
    assert not off(compiled("conv:8x6x4-14,k3,p1", chip, "loop_order:effort=0.1"), chip)


def test_what_has_no_plan_is_refused_with_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts find no plan where MOVEs hold each other up; who is told names one of them."""
    monkeypatch.setattr("meshloom.sched.lowering.timed.compile._ATTEMPTS", 2)
    chip = chip_of(PLANS[2], 4, 1000)
    with pytest.raises(TimingFault) as error:
        compile_ahead(schedule_of(loads(chip), chip), chip)
    words = r"operation (\d+) \(load \1\) is to fire in cycle \d+, .* DRAM tile 0x00 .* until \d+ .* = 1000"
    assert re.fullmatch(words, str(error.value))
