"""Who holds the words of a MOVE, and schedules whose MOVEs take their words from there: the same bytes, proven, with
less out of DRAM."""

from __future__ import annotations

from random import Random
from typing import Literal

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.hw.spec.isa import Region, address
from meshloom.sched.ir.functional import execute, execute_one, take
from meshloom.sched.ir.holders import Holders
from meshloom.sched.ir.schedule import Gemm, Move, Schedule, Span, Tensor
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.timed.compile import compile_ahead
from meshloom.sched.lowering.timed.prove import prove
from meshloom.sched.lowering.timed.sources import nearest
from meshloom.sched.lowering.timed.windows import hops
from meshloom.sched.papers.dtt.core_placing import placed
from meshloom.sched.papers.dtt.entry import TransferOptions
from meshloom.sched.schedulers.registry import find as scheduler
from meshloom.sched.workload.catalog import find
from meshloom.tb.verify.random_schedules import random_operations, schedule_of

from ....tiers import slow_but
from ...random_schedules import random_memories, small_chip

CHIP = load("ahead8")
CORES = CHIP.cores


def without_sources(chip: ChipConfig = CHIP) -> ChipConfig:
    return chip.model_copy(update={"core": chip.core.model_copy(update={"operand_sources": False})})


def move(src: tuple[int, int], dst: tuple[int, int], words: int, **runs: int) -> Move:
    source = Span(tile=src[0], address=src[1], run=runs.get("run", words), stride=runs.get("stride", 0))
    return Move(
        issuer=dst[0], src=source, dst=Span(tile=dst[0], address=dst[1], run=runs.get("into", words), stride=99),
        words=words,
    )  # fmt: skip


def test_holders_hold_what_a_move_brings() -> None:
    """Random operations that overlap a lot: each source found has the words that the MOVE's own source has then."""
    chip = small_chip(floorplan=["dram core spm", "host core dram", "core spm core"])
    chip = chip.model_copy(update={"core": chip.core.model_copy(update={"operand_sources": True})})
    result = 0
    for seed in range(6):
        operations = random_operations(Random(seed), chip, 400)
        memories, holders = random_memories(seed, chip), Holders(operations, chip)
        for op in operations:
            if isinstance(op, Move):
                for source in holders.others(op):
                    other = op.model_copy(update={"issuer": op.dst.tile, "src": source, "route": None})
                    validate(schedule_of([other], chip), chip)
                    np.testing.assert_array_equal(take(other, memories), take(op, memories))
                    result += 1
            execute_one(op, memories)
            holders.done(op)
    assert result > 20


def test_a_part_of_a_tile_is_found_in_the_order_in_which_it_lies() -> None:
    dram, a, b = CHIP.drams[0], CORES[0], CORES[1]
    tile = move((dram, 0), (a, 100), 60, into=20)  # three rows of 20 words, 99 apart
    part = move((dram, 5), (b, 0), 30, run=10, stride=20)  # ten words of each row
    holders = Holders([tile, part], CHIP)
    holders.done(tile)
    assert list(holders.others(part)) == [Span(tile=a, address=105, run=10, stride=99)]
    again = move((dram, 1000), (a, 105 + 2 * 99), 1)
    holders = Holders([tile, again, part], CHIP)
    holders.done(tile)
    holders.done(again)
    assert list(holders.others(part)) == []


def test_results_are_found_where_they_are_made_and_sums_are_not() -> None:
    dram, a, b = CHIP.drams[0], CORES[0], CORES[1]
    moves = [move((a, address(region, 0)), (dram, 64 * region), 8) for region in (Region.OUT, Region.ACC)]
    ones = ("a_plane", "in_w", "k_blocks", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation", "out_w")
    fields = dict.fromkeys(ones, 1) | {"pixels": 8, "n_blocks": 1}
    result = [Gemm(core=a, fields=fields | {"to_acc": to_acc}) for to_acc in (0, 1)]
    back = [move((dram, 64 * region), (b, 0), 8) for region in (Region.OUT, Region.ACC)]
    holders = Holders([*result, *moves, *back], CHIP)
    for op in (*result, *moves):
        holders.done(op)
    assert [list(holders.others(one)) for one in back] == [
        [Span(tile=a, address=address(Region.OUT, 0), run=8, stride=8)],
        [],
    ]


def words_out_of_dram(schedule: Schedule) -> int:
    drams = {tile for tile, kind in CHIP.tiles.items() if kind is TileKind.DRAM}
    return sum(op.words for op in schedule.operations if isinstance(op, Move) and op.src.tile in drams)


def results(schedule: Schedule, chip: ChipConfig) -> list[bytes]:
    """The outputs, all DRAM being random before."""
    memories = random_memories(3, chip)
    execute(schedule.operations, memories)
    outputs: list[Tensor] = [tensor for tensor in schedule.tensors if tensor.role == "output"]
    return [memories.read_tensor(tensor).tobytes() for tensor in outputs]


@pytest.fixture(scope="module")
def given() -> Schedule:
    return scheduler("dtt")(find("gemm:33x40x25")[0].shape, CHIP, 1 << 15)


LAYERS = ("gemm:33x40x25", "conv:14x14x24-40,k3,s2,p1,relu", "resnet8/conv4_1_2")


@pytest.mark.parametrize("name", slow_but(LAYERS, "gemm:33x40x25"))
def test_layers_from_the_nearest_sources_are_proven_and_the_same(name: str) -> None:
    given = scheduler("dtt")(find(name)[0].shape, CHIP, 1 << 15)
    result = TransferOptions(sources="nearest").laid(given, CHIP)
    assert given.operations != result.operations
    assert results(given, CHIP) == results(result, CHIP)
    assert words_out_of_dram(result) <= words_out_of_dram(given)
    outcome = compile_ahead(result, CHIP)
    assert prove(outcome.program, outcome.schedule, CHIP, outcome.table.begins) >= len(result.operations)
    assert outcome.table.flit_hops < compile_ahead(given, CHIP).table.flit_hops


def test_without_the_ports_operand_memories_are_no_sources(given: Schedule) -> None:
    plain = without_sources()
    chosen = nearest(given.model_copy(update={"chip_digest": plain.digest}), plain, 16)
    operands = (Region.MAIN, Region.B)
    sources = {(op.src.tile, op.src.address >> 24) for op in chosen.operations if isinstance(op, Move)}
    assert not {source for source in sources if source[0] in plain.cores and source[1] in operands}


@pytest.mark.parametrize("sources", ["given", "nearest"])
def test_first_best_fit_only_renames_cores(given: Schedule, sources: Literal["given", "nearest"]) -> None:
    """The same bytes, each core's work done by one core."""
    renamed = placed(given, CHIP, sources == "nearest")
    pairs = {
        (one.core, other.core)
        for one, other in zip(given.operations, renamed.operations, strict=True)
        if not isinstance(one, Move) and not isinstance(other, Move)
    }
    assert len(pairs) == len({before for before, _ in pairs}) == len({now for _, now in pairs})
    both = TransferOptions(placing="first_best_fit", sources=sources).laid(given, CHIP)
    assert results(renamed, CHIP) == results(both, CHIP) == results(given, CHIP)


def test_first_best_fit_puts_work_beside_its_channel() -> None:
    """Two cores, each with words of one channel: whoever begins first has the core next to its own."""
    chip = CHIP
    near, far = chip.drams[0], chip.drams[1]
    shares = [(CORES[0], far), (CORES[-1], near)]
    operations = [move((dram, 0), (core, 0), 50) for core, dram in shares]
    result = placed(schedule_of(operations, chip), chip, False).operations
    for op in result:
        assert isinstance(op, Move)
        assert hops(op.src.tile, op.dst.tile) == min(hops(op.src.tile, core) for core in CORES)


@pytest.mark.slow
def test_more_nests_are_no_slower() -> None:
    shape = find("gemm:48x128x64")[0].shape
    cycles = [
        compile_ahead(scheduler(f"dtt:plans={plans},sources=nearest")(shape, CHIP, 1 << 15), CHIP).orders.cycles
        for plans in (0, 5)
    ]
    assert cycles[1] <= cycles[0]
