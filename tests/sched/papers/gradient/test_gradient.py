"""Both gradients of a layer as one schedule: every order, every byte, spilled sums, what does not fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Region, VectorOp, address
from meshloom.sched.checker.check import check
from meshloom.sched.ir import functional
from meshloom.sched.ir.schedule import Gemm, Move, Prediction, Schedule, Vec
from meshloom.sched.lowering.predict import predict
from meshloom.sched.lowering.programs import program_of
from meshloom.sched.mapping.tiling.arena import NEVER, Arena
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.gradient import search as search_module
from meshloom.sched.papers.gradient.emit import Emitter
from meshloom.sched.papers.gradient.scheduler import BestTiling, Refused, Searches, Slower, schedule
from meshloom.sched.papers.gradient.search import MOST_GROUPS, Search, _sizes, tilings
from meshloom.sched.papers.gradient.sharing import begun, groups, links
from meshloom.sched.schedulers.registry import SchedulerError, find_gradient
from meshloom.sched.schedulers.training.orders import (
    LOOPS,
    Nest,
    Order,
    TileProduct,
    alone,
    fused,
    nests,
    selected,
    steps,
)
from meshloom.sched.schedulers.training.pair import GradientPair, Part, Split, Tiling
from meshloom.sched.workload.training import EDGE_BATCH, Setting, TrainingLayer, find
from meshloom.sched.workload.training_data import Scales, random_gradients, scales_of, unfolded

from ....tiers import slow_but

EDGE6, QUAD8 = load("edge6"), load("quad8")


def layer(name: str) -> TrainingLayer:
    return find(f"gradient:{name}", Setting(False, EDGE_BATCH))[0]


def expected(one: TrainingLayer) -> dict[str, np.ndarray]:
    """The gradients by NumPy, in 64 bits, as [1, K, 1, pixels]."""
    data = random_gradients(one)
    x, w, dy = (array.astype(np.int64) for array in (data.x, data.w, data.dy))
    exact = {"dw": (x.T @ dy, data.scales.dw)}
    if not one.first:
        exact["dx"] = ((dy @ w.T).T, data.scales.dx)
    return {
        name: np.clip(np.rint(sums * scale / 2**17), -128, 127).astype(np.int8)[None, :, None, :]
        for name, (sums, scale) in exact.items()
    }


def check_bytes(made: Schedule, one: TrainingLayer, chip: ChipConfig) -> None:
    result = functional.run(made, chip, random_gradients(one).arrays())
    target = expected(one)
    assert result.keys() == target.keys()
    for name, array in target.items():
        np.testing.assert_array_equal(result[name], array, name)


def emitted(pair: GradientPair, order: Order, nest: Nest) -> tuple[Emitter, Schedule]:
    result = Emitter(pair, steps(pair, order, nest), scales_of(pair.layer))
    return result, Schedule(
        chip=pair.chip.name,
        chip_digest=pair.chip.digest,
        workload=pair.layer.name,
        scheduler="gradient",
        operations=tuple(node.operation() for node in result.nodes),
        tensors=pair.tensors(),
    )


@pytest.mark.parametrize("order", slow_but(Order, Order.DX_MAJOR))
def test_every_order_gives_both_gradients_in_a_proven_program(order: Order) -> None:
    one = layer("gemm:29x23x31")
    result = schedule(one, EDGE6, (order,), effort=0.02)
    check_bytes(result.schedule, one, EDGE6)
    program_of(result.schedule, EDGE6)
    assert result.order == order
    assert result.predicted.keys() == {order}
    # what it says of DRAM is what its operations move
    drams = EDGE6.drams
    words = sum(op.words for op in result.schedule.operations if isinstance(op, Move)
                and (op.src.tile in drams or op.dst.tile in drams))  # fmt: skip
    assert result.dram_bytes == words * EDGE6.lanes


@pytest.mark.parametrize("order", [Order.DX_MAJOR, Order.DW_MAJOR])
def test_partial_sums_spill_and_come_back(order: Order) -> None:
    one = layer("gemm:40x60x40")
    pair = GradientPair(one, EDGE6)
    nest = Nest(Tiling(16, 12, 16), {Order.DX_MAJOR: "mnk", Order.DW_MAJOR: "nmk"}[order])
    result, outcome = emitted(pair, order, nest)
    acc = [op for op in outcome.operations if isinstance(op, Move) and op.dst.address >= address(Region.ACC, 0)
           and op.dst.tile == EDGE6.cores[0] and op.dst.address < address(Region.OUT, 0)]  # fmt: skip
    assert result.work.spilled > 0
    assert 2 * sum(op.words for op in acc) == result.work.spilled
    dram = result.work.dram * EDGE6.lanes / EDGE6.dram.bytes_per_cycle
    assert max(result.work.array, dram) <= result.work.pipelined <= result.work.array + result.work.vector + dram + 1
    check_bytes(outcome, one, EDGE6)


@pytest.mark.parametrize(
    "case",
    slow_but(
        [
            "edge6/gemm:1x1x1",
            "edge6/gemm:5x100x7",
            "edge6/gemm:100x6x9",
            "edge6/conv:7x5x3-10,k3,s2,p1,b2",
            "tiny/gemm:20x20x20",
            "pe12x14/gemm:33x21x40",
        ],
        "edge6/gemm:1x1x1",
        "edge6/conv:7x5x3-10,k3,s2,p1,b2",
    ),
)
def test_odd_shapes_and_chips(case: str) -> None:
    chip, _, name = case.partition("/")
    one, config = layer(name), load(chip)
    result = schedule(one, config, (Order.INTERLEAVED,), effort=0.01)
    check_bytes(result.schedule, one, config)
    program_of(result.schedule, config)


def test_the_first_layer_has_no_input_gradient() -> None:
    one = TrainingLayer(layer("gemm:12x10x9").shape, first=True)
    result = schedule(one, EDGE6, effort=0.01)
    check_bytes(result.schedule, one, EDGE6)
    assert [tensor.name for tensor in result.schedule.tensors] == ["x", "w", "dy", "dw"]
    assert result.predicted.keys() == {Order.SEQUENTIAL}


def test_orders_visit_every_product_once() -> None:
    pair = GradientPair(layer("gemm:40x30x50"), EDGE6)
    target = set(alone(pair, "dx", Nest(Tiling(16, 12, 16)))) | set(alone(pair, "dw", Nest(Tiling(16, 12, 16))))
    for order in list(Order)[1:]:
        for nest in nests(order, Tiling(16, 12, 16)):
            result = steps(pair, order, nest)
            assert len(result) == len(target)
            assert set(result) == target
    assert all(set(alone(pair, "dx", Nest(Tiling(16, 12, 16), loops, True))) < target for loops in LOOPS)


def test_figure_10_by_the_tiles_of_dy_that_follow_each_other() -> None:
    pair = GradientPair(layer("gemm:32x32x12"), EDGE6)

    def along(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [one for at, one in enumerate(found) if not at or one != found[at - 1]]

    tiling = Tiling(16, 12, 16)
    at = {
        order: along([(step.m[0], step.n[0]) for step in steps(pair, order, nests(order, tiling)[0])])
        for order in (Order.INTERLEAVED, Order.DX_MAJOR, Order.DW_MAJOR)
    }
    rows = [(0, 0), (0, 16), (16, 0), (16, 16)]
    assert at[Order.DX_MAJOR] == rows
    assert at[Order.DW_MAJOR] == [(m, n) for n, m in rows]
    assert at[Order.INTERLEAVED] == [(0, 0), (0, 16), (16, 0), (0, 16), (16, 16)]  # dX by rows, dW by columns


def test_algorithm_1() -> None:
    assert selected(512, 512, 512) is selected(512, 129, 512) is Order.INTERLEAVED
    assert selected(512, 128, 512) is Order.DX_MAJOR
    assert selected(100, 500, 100) is Order.DW_MAJOR
    assert selected(100, 500, 500) is Order.DX_MAJOR


def test_operands_are_transposed_by_the_vector_unit() -> None:
    one = layer("gemm:16x12x16")
    pair = GradientPair(one, EDGE6)
    _, result = emitted(pair, Order.PLAIN, Nest(Tiling(16, 12, 16)))
    kinds = [type(op) for op in result.operations]
    assert kinds.count(Gemm) >= 2
    assert kinds.count(Vec) >= 3  # X, W and dY
    assert all(op["op"] == VectorOp.TRANSPOSE for op in result.operations if isinstance(op, Vec))


def test_unfolding_is_what_a_convolution_sums() -> None:
    one = layer("conv:6x7x3-4,k3x2,s2x1,p1x0,d1,b2")
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, one.shape.x_shape).astype(np.int8)
    w = rng.integers(-128, 128, one.shape.w_shape).astype(np.int8)
    from meshloom.sched.workload.layers import LayerData
    from meshloom.tb.inputs.golden.layer import golden_int32

    sums = golden_int32(LayerData(one.shape, x, w, np.zeros(4, np.int32), 1))
    result = unfolded(one, x).astype(np.int64) @ w.reshape(4, -1).T
    np.testing.assert_array_equal(result, sums.transpose(0, 2, 3, 1).reshape(one.m, 4))


def test_products_by_onnx_runtime_are_those_by_numpy() -> None:
    from meshloom.tb.inputs.golden.layer import golden

    one = layer("gemm:19x8x13")
    target = expected(one)
    for name, product in random_gradients(one).products().items():
        np.testing.assert_array_equal(golden(product), target[name])


def test_what_is_used_again_last_leaves() -> None:
    after = {"a": 9, "b": NEVER, "c": 5, "d": 3}
    gone: list[str] = []

    arena = Arena[str]("A", 12, after.__getitem__, lambda key, at: gone.append(key))
    for now, key in enumerate("abc"):
        assert arena.take(key, 4, now) == 4 * now
    assert arena.take("d", 4, 5) == 4
    assert gone == ["b"]
    assert arena.at("c", 6) == 8
    with pytest.raises(DoesNotFit, match="A is too small: 13 words"):
        arena.take("e", 13, 5)


def test_what_does_not_fit_says_what_is_too_small() -> None:
    core = EDGE6.core.model_copy(update={"acc_words": 4})
    small = EDGE6.model_copy(update={"core": core})
    with pytest.raises(DoesNotFit, match="need 8 of ACC, edge6 has 4"):
        schedule(layer("gemm:64x64x64"), small)


def with_words(words: int) -> ChipConfig:
    return EDGE6.model_copy(update={"dram": EDGE6.dram.model_copy(update={"words": words})})


def test_a_layer_that_dram_has_no_room_for_names_the_words_that_it_needs() -> None:
    one = layer("gemm:64x64x64")
    with pytest.raises(DoesNotFit, match=r"need .* words of each DRAM tile.* edge6 has 64; set words = ") as why:
        schedule(one, with_words(64))
    need, enough = (int(text.replace(",", "")) for text in re.findall(r"(?:need|words =) ([\d,]+)", str(why.value)))
    with pytest.raises(DoesNotFit, match=f"need {need:,} words"):
        schedule(one, with_words(need - 1))
    GradientPair(one, with_words(need))
    assert need < enough <= 2 * need
    program_of(schedule(one, with_words(enough), (Order.PLAIN,), effort=0.02, leaders=1).schedule, with_words(enough))
    with pytest.raises(DoesNotFit, match="no chip has more than 16,777,216: take a smaller batch"):
        GradientPair(layer("gemm:131071x4096x1"), EDGE6)


def test_sums_that_may_leave_int32_are_refused_before_anything_runs() -> None:
    with pytest.raises(DoesNotFit, match="dw: sums of 131,072 products of int8 may leave int32, of 131,071 they do n"):
        schedule(layer("gemm:131072x8x8"), EDGE6)


SHARED = {
    "a block of columns for each of four cores": ("quad8", "gemm:20x19x32", 4),
    "cores with more and with less": ("quad8", "gemm:12x9x50", 4),
    "fewer blocks than cores": ("quad8", "gemm:9x30x13", 2),
    "narrow arrays, blocks that begin inside a word": ("pe12x14", "gemm:18x21x70", 2),
    "the first layer": ("quad8", "conv:6x6x3-9,k3,b2", 4),
    "one is asked for": ("quad8", "gemm:20x19x32", 1),
}


@pytest.mark.parametrize("case", SHARED)
@pytest.mark.parametrize("order", [Order.SEQUENTIAL, Order.INTERLEAVED, Order.K_MAJOR])
def test_cores_share_the_columns_of_x(case: str, order: Order) -> None:
    """Each works, no two on the same; every byte is right, and the program is proven."""
    name, text, working = SHARED[case]
    chip, one = load(name), layer(text)
    result = schedule(one, chip, (order,), effort=0.05, cores=1 if working == 1 else 0, splits=(Split.K,))
    check_bytes(result.schedule, one, chip)
    check(program_of(result.schedule, chip), chip)
    of = {op.core for op in result.schedule.operations if isinstance(op, Gemm)}
    assert of == set(chip.cores[:working])
    assert result.nest.endswith(f" on {working} cores") == (working > 1)


def several(name: str) -> TrainingLayer:
    """A layer; `first ...`: as the first of its network."""
    result = layer(name.removeprefix("first "))
    return TrainingLayer(result.shape, first=True) if name.startswith("first ") else result


@pytest.mark.parametrize(
    "case",
    [
        "m quad8 sequential gemm:40x20x40 4",
        "m quad8 plain gemm:37x18x19 4",
        "m quad8 interleaved gemm:40x9x30 4",
        "m quad8 dw_major gemm:40x20x40 4",
        "m quad8 k_major gemm:33x20x24 4",
        "m pe12x14 dw_major gemm:40x30x40 2",
        "m quad8 sequential first gemm:33x17x26 4",
        "n quad8 sequential gemm:40x40x20 4",
        "n quad8 plain gemm:19x37x18 4",
        "n quad8 interleaved gemm:24x33x9 4",
        "n quad8 dx_major gemm:40x40x20 4",
        "n quad8 k_major gemm:20x25x33 4",
        "n quad8 sequential first gemm:17x26x33 4",
    ],
)
def test_cores_pass_sums_on(case: str) -> None:
    """Shared by M or N: sums go from core to core; every byte is right, and the program is proven."""
    split, name, order, text, working = case.replace("first gemm", "first_gemm").split()
    chip, one = load(name), several(text.replace("_", " "))
    result = schedule(one, chip, (Order(order),), effort=0.05, splits=(Split(split),), leaders=1)
    check_bytes(result.schedule, one, chip)
    check(program_of(result.schedule, chip), chip)
    assert {op.core for op in result.schedule.operations if isinstance(op, Gemm)} == set(chip.cores[: int(working)])
    assert result.nest.endswith(f" on {working} cores by {split}")
    if one.first and split == "n":
        assert result.spilled_bytes == 0  # of dW each core has its own rows
    else:
        assert result.spilled_bytes > 0


def test_what_no_two_cores_can_share_is_said() -> None:
    pair = GradientPair(layer("gemm:64x20x40"), load("quad8"), 4, Split.M)
    with pytest.raises(DoesNotFit, match="sums of dw are open from the first step to the last, so that no two cores"):
        begun(fused(pair.parts[1], Nest(Tiling(8, 20, 40), "mkn")), pair.parts[1])


def test_each_core_begins_at_another_tile() -> None:
    pair = GradientPair(layer("gemm:64x32x8"), load("quad8"), 4, Split.M)
    walk = alone(pair.parts[0], "dw", Nest(Tiling(8, 8, 8), "nkm"))
    firsts = [begun(walk, part)[0].n for part in pair.parts]
    assert firsts == [(0, 8), (8, 16), (16, 24), (24, 32)]
    beside = [links(begun(walk, part), part)["dw", (0, 8), (8, 16)] for part in pair.parts]
    assert beside == [(1, 3), (None, 0), (3, None), (0, 2)]  # from the core that begins there on
    assert groups(walk, "dw") == [0, 2, 4, 6]


def test_parts_are_all_of_a_pair() -> None:
    quad8, one = load("quad8"), layer("gemm:20x9x50")
    assert [(part.first, part.k) for part in GradientPair(one, quad8, 4).parts] == [
        ((0, 0, 0), 8), ((0, 8, 0), 16), ((0, 24, 0), 16), ((0, 40, 0), 10)
    ]  # fmt: skip
    assert [part.core for part in GradientPair(one, quad8, 4).parts] == list(quad8.cores)
    assert [(part.core, part.k) for part in GradientPair(one, quad8).parts] == [(0x01, 50)]
    by_rows = GradientPair(one, quad8, 4, Split.M).parts
    assert [(part.first, part.m, part.k, part.n, part.sums) for part in by_rows] == [
        ((0, 0, 0), 8, 50, 9, "dw"), ((8, 0, 0), 8, 50, 9, "dw"), ((16, 0, 0), 4, 50, 9, "dw")
    ]  # fmt: skip
    assert [(part.first, part.n) for part in GradientPair(one, quad8, 4, Split.N).parts] == [
        ((0, 0, 0), 8),
        ((0, 0, 8), 1),
    ]


def test_a_second_search_finds_what_the_first_kept(tmp_path: Path) -> None:
    one, request = layer("gemm:20x19x32"), (Order.PLAIN, Order.DX_MAJOR)
    first = schedule(one, EDGE6, request, effort=0.05, folder=tmp_path)

    def never(made: Schedule, chip: ChipConfig) -> Prediction:
        calls.append(made)
        return predict(made, chip)

    calls: list[Schedule] = []
    other = TrainingLayer(replace(one.shape, name="gradient:other"))  # the same sizes by another name
    second = schedule(other, EDGE6, request, predict=never, effort=0.05, folder=tmp_path)
    assert len(calls) == 1  # of the schedule that is made
    assert second.schedule.operations == first.schedule.operations
    assert (second.predicted, second.dram_bytes) == (first.predicted, first.dram_bytes)
    refused = Searches(EDGE6.model_copy(update={"core": EDGE6.core.model_copy(update={"acc_words": 4})}))
    assert isinstance(refused.find(layer("gemm:64x64x64"), Order.PLAIN), Refused)


def test_tilings_fit_and_reach_the_whole_layer() -> None:
    result = tilings(GradientPair(layer("gemm:8x8x6"), EDGE6))
    assert result == [Tiling(8, 6, 8)]
    assert all(len(fused(GradientPair(layer("gemm:8x8x6"), EDGE6), Nest(one))) == 2 for one in result)


def test_names_and_options() -> None:
    result = find_gradient("gradient:order=plain,effort=0.01")(layer("gemm:8x8x6"), EDGE6)
    assert result.schedule.scheduler == "gradient:order=plain,effort=0.01"
    with pytest.raises(SchedulerError, match="does not schedule gradients; take one of gradient"):
        find_gradient("loop_order")
    with pytest.raises(SchedulerError, match="order = 'fine' must be one of best, algorithm1"):
        find_gradient("gradient:order=fine")


@pytest.mark.parametrize("unit", [1, 4, 16])
def test_sizes_of_tiles_are_equal_parts_up_to_the_most_groups(unit: int) -> None:
    most = search_module.MOST_GROUPS
    for units in range(1, 3 * most):
        for end in {(units - 1) * unit + 1, units * unit}:
            parts = {-(-units // number) for number in range(1, units + 1)}
            assert search_module._sizes(end, unit) == [size * unit for size in sorted(parts) if size <= most]
    assert search_module._sizes(most * unit, unit)[-1] == most * unit
    assert search_module._sizes(most * unit + 1, unit)[-1] == -(-(most + 1) // 2) * unit


@pytest.mark.parametrize("order", [Order.PLAIN, Order.K_MAJOR])
def test_what_steps_take_at_least(order: Order) -> None:
    """Exactly the array's cycles, and never more than the whole."""
    pair = GradientPair(layer("gemm:40x50x30"), EDGE6)
    search = Search(pair, "gradient", predict)
    for tiling in search.tilings[::5]:
        result, _ = emitted(pair, order, Nest(tiling, "kmn"))
        least = search._least(tiling, ("dx", "dw"))
        assert least.array == result.work.array
        assert least.loaded <= result.work.loaded
        assert least.stored == result.work.stored - result.work.spilled // 2
        again = Emitter(pair, steps(pair, order, Nest(tiling, "kmn")), search.scales, False, None, least,
                        result.work.pipelined)  # fmt: skip
        assert not again.late
        late = Emitter(pair, steps(pair, order, Nest(tiling, "kmn")), search.scales, False, None, least,
                       result.work.pipelined // 2)  # fmt: skip
        assert late.late


@pytest.mark.parametrize("order", [Order.SEQUENTIAL, Order.DX_MAJOR, Order.K_MAJOR])
def test_giving_up_early_changes_nothing(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(
        pair: GradientPair, some: list[TileProduct], scales: Scales, record: bool, part: Part, *_: object
    ) -> Emitter:
        return Emitter(pair, some, scales, record, part)

    pair = GradientPair(layer("gemm:60x50x40"), EDGE6)
    result = Search(pair, "gradient", predict, 0.1).best(order)
    monkeypatch.setattr(search_module, "Emitter", whole)
    assert Search(pair, "gradient", predict, 0.1).best(order) == result


@pytest.mark.slow  # plays what the search does not, too
def test_what_is_certainly_slower_is_not_played() -> None:
    """It has a bound that the whole search keeps; asked for without a limit, it is found all the same."""
    one = layer("gemm:40x50x60")
    whole = Searches(QUAD8, effort=0.1)
    searches = Searches(QUAD8, effort=0.1)
    played: list[BestTiling | Refused | Slower] = []
    for order in (Order.SEQUENTIAL, Order.DX_MAJOR):
        for split in Split:
            result = whole.find(one, order, 4, split)
            assert isinstance(result, BestTiling)
            for enough in (1, result.cycles, result.cycles + 1):
                request = Searches(QUAD8, effort=0.1).find(one, order, 4, split, enough)
                played.append(request)
                if isinstance(request, Slower):
                    assert enough <= request.cycles <= result.cycles
                else:
                    assert request == result
            assert isinstance(searches.find(one, order, 4, split, 1), Slower)
            assert isinstance(searches.stored(one, order, 4, split, 1), Slower)
            assert searches.stored(one, order, 4, split) is None
            assert searches.find(one, order, 4, split) == result
            assert searches.stored(one, order, 4, split, 1) == result
    assert {type(each) for each in played} == {BestTiling, Slower}


def test_a_schedule_is_the_best_of_all_splits() -> None:
    """Though the slower ones are not played."""
    one = layer("gemm:40x50x60")
    result = schedule(one, QUAD8, (Order.PLAIN,), effort=0.1)
    every = [Searches(QUAD8, effort=0.1).find(one, Order.PLAIN, 4, split) for split in Split]
    best = min(each.cycles for each in every if isinstance(each, BestTiling))
    assert result.predicted == {Order.PLAIN: best}
    assert result.schedule.predicted is not None
    assert result.schedule.predicted.cycles == best


def test_tiles_are_equal_parts_of_no_more_than_so_many_units() -> None:
    assert _sizes(MOST_GROUPS * 16, 16)[-1] == MOST_GROUPS * 16
    assert _sizes(MOST_GROUPS * 16 + 1, 16)[-1] == (MOST_GROUPS + 2) // 2 * 16
    assert _sizes(1, 16) == _sizes(16, 16) == [16]
    assert _sizes(17, 16) == [16, 32]
