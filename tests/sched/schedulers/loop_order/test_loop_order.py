"""The loop_order scheduler: every stationarity computes the layer, the winner is valid, errors say what to mend."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, CoreConfig, DramConfig, load
from meshloom.sched.ir import functional
from meshloom.sched.ir.schedule import Gemm, Move, Prediction, Schedule
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.mapping.emit.emission import build, emit
from meshloom.sched.mapping.play.replay import replay
from meshloom.sched.mapping.tiling.arena import assign
from meshloom.sched.mapping.tiling.plan import plan
from meshloom.sched.mapping.tiling.problem import DoesNotFit, pose
from meshloom.sched.mapping.tiling.tiles import ORDERS, Candidate, Order, Pooling, even, parts, pooled_tiles
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.interface import Context
from meshloom.sched.schedulers.loop_order.entry import NetworkOptions, network
from meshloom.sched.schedulers.loop_order.scheduler import LEAST, REPLAY_BUDGET, schedule, search
from meshloom.sched.schedulers.network import refine
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.workload import zoo
from meshloom.sched.workload.layers import ConvShape, LayerData, gemm_shape, random_data

CHIPS = ("tiny", "quad8", "quad16", "pe12x14")

#: Share of the usual search budget, where how good the winner is does not matter.
EFFORT = 0.05

SHAPES = {
    "same_3x3": ConvShape("same_3x3", 1, 33, 7, 7, 20, 3, 3, 1, 1, 1, 1, 1, 1, relu=True),
    "odd_5x5_s2_b2": ConvShape("odd_5x5_s2_b2", 2, 3, 13, 11, 9, 5, 5, 2, 2, 2, 2, 1, 1),
    "flat_1x1_b3": ConvShape("flat_1x1_b3", 3, 20, 9, 9, 33),
    "shortcut_1x1_s2": ConvShape("shortcut_1x1_s2", 1, 40, 11, 10, 18, 1, 1, 2, 2),
    "dilated_b2": ConvShape("dilated_b2", 2, 5, 12, 9, 17, 3, 3, 1, 1, 2, 2, 2, 2, dilation=2, clamp=50),
    "first_7x7_s2": ConvShape("first_7x7_s2", 1, 3, 20, 17, 8, 7, 7, 2, 2, 3, 3, 3, 3),
    "one_pixel": ConvShape("one_pixel", 1, 70, 1, 1, 30),
    "gemm": gemm_shape("gemm", 37, 50, 100),
    "one_row": ConvShape("one_row", 1, 17, 1, 6, 40, 3, 3, 1, 1, 1, 1, 1, 1),
    "asymmetric": ConvShape("asymmetric", 1, 20, 10, 6, 24, 3, 5, 1, 2, 2, 1, 0, 3),
}


@cache
def data(name: str) -> LayerData:
    return random_data(SHAPES[name])


def convolve(layer: LayerData) -> np.ndarray:
    """The layer in plain NumPy, exact: float64 holds every product and sum."""
    s = layer.shape
    x = np.pad(layer.x.astype(np.int64), ((0, 0), (0, 0), (s.pad_top, s.pad_bottom), (s.pad_left, s.pad_right)))
    y = np.zeros(s.y_shape, np.int64)
    for ky, kx in product(range(s.kernel_h), range(s.kernel_w)):
        taken = x[:, :, ky * s.dilation :, kx * s.dilation :]
        taken = taken[
            :, :, : (s.out_h - 1) * s.stride_h + 1 : s.stride_h, : (s.out_w - 1) * s.stride_w + 1 : s.stride_w
        ]
        y += np.einsum("bchw,oc->bohw", taken, layer.w[:, :, ky, kx].astype(np.int64))
    y = np.rint((y + layer.bias[None, :, None, None]) * layer.scale / 2**17)
    return np.clip(y, 0 if s.relu else -128, min(s.clamp, 127)).astype(np.int8)


@cache
def expected(name: str) -> np.ndarray:
    return convolve(data(name))


def check(made: Schedule, chip: ChipConfig, layer: LayerData, wanted: np.ndarray) -> None:
    validate(made, chip)
    result = functional.run(made, chip, {"x": layer.x, "w": layer.w, "bias": layer.bias})["y"]
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("chip_name", CHIPS)
@pytest.mark.parametrize("name", SHAPES)
def test_winner_computes_the_layer(name: str, chip_name: str) -> None:
    chip, layer = load(chip_name), data(name)
    result = schedule(layer.shape, chip, layer.scale, effort=EFFORT)
    check(result, chip, layer, expected(name))
    assert lower(result, chip).streams
    assert result.predicted is not None
    assert len(result.predicted.start) == len(result.operations)
    macs = chip.rows * chip.cols * len(chip.cores)
    assert result.predicted.cycles > layer.shape.macs / macs, "faster than the arrays can be"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("chip_name", CHIPS)
@pytest.mark.parametrize("name", SHAPES)
def test_every_order_computes_the_layer(name: str, chip_name: str, order: str) -> None:
    """Tile sizes, partitions, routes and ramps drawn for each order, until several have fitted."""
    chip, layer = load(chip_name), data(name)
    problem = pose(layer.shape, chip)
    random = np.random.default_rng([ord(letter) for letter in name + chip_name + order])
    done = 0
    for _ in range(60):
        cores = len(chip.cores)
        parts_n = int(random.integers(1, min(cores, problem.n_blocks) + 1))
        candidate = Candidate(
            parts_m=int(random.integers(1, min(cores // parts_n, problem.images * problem.out_rows) + 1)),
            parts_n=parts_n,
            snap=bool(random.integers(2)),
            tile_rows=int(random.integers(1, min(problem.out_rows, 30) + 1)),
            tile_columns=int(random.choice([problem.out_w, problem.out_w, -(-problem.out_w // 2)])),
            tile_n=int(random.integers(1, problem.n_blocks + 1)),
            tile_k=int(random.integers(1, problem.k_blocks + 1)),
            order=order,  # type: ignore[arg-type]
            **{
                flag: bool(random.integers(2))
                for flag in ("x_spm", "w_spm", "ramp_rows", "ramp_k", "tail_rows", "strip", "late", "tight")
            },
        )
        try:
            result = build(layer.shape, chip, candidate, layer.scale)
        except DoesNotFit:
            continue
        check(result, chip, layer, expected(name))
        done += 1
        if done == 2:
            break
    assert done == 2


def test_small_memories_force_every_tiling() -> None:
    """A chip whose memories hold a few rows and one weight tile: slots are evicted, sums stay in ACC."""
    chip = load("quad8").model_copy(update={"core": CoreConfig(a_words=180, b_words=200, acc_words=40, out_words=36)})
    layer = data("same_3x3")
    result = schedule(layer.shape, chip, layer.scale, effort=EFFORT)
    check(result, chip, layer, expected("same_3x3"))
    for order in ORDERS:
        result = build(layer.shape, chip, Candidate(2, 2, False, 2, 7, 1, 1, order, ramp_k=True), layer.scale)
        check(result, chip, layer, expected("same_3x3"))
        assert any(isinstance(op, Gemm) and op["to_acc"] for op in result.operations)


@pytest.mark.parametrize("order", ORDERS)
def test_orders_keep_still_what_they_promise(order: Order) -> None:
    """Weight-stationary fetches each weight once even if only two tiles fit B, input-stationary each input."""
    chip = load("mono16").model_copy(
        update={"core": CoreConfig(a_words=2 * 64, b_words=2 * 144, acc_words=1024, out_words=256)}
    )
    shape = ConvShape("still", 1, 64, 8, 8, 64, 3, 3, 1, 1, 1, 1, 1, 1)
    result = build(shape, chip, Candidate(1, 1, False, 2, 8, 1, 1, order))
    fetched = dict.fromkeys("xw", 0)
    for op in result.operations:
        if isinstance(op, Move) and op.label[0] in "xw":
            fetched[op.label[0]] += op.words
    weights, inputs = 4 * 4 * 144, 4 * (24 + 32 + 32 + 24)
    if order == "weight":
        assert fetched["w"] == weights
        assert fetched["x"] > inputs
    elif order == "input":
        assert fetched["x"] == inputs
        assert fetched["w"] > weights
    else:
        assert fetched["w"] > weights


def test_staged_operands_leave_dram_once() -> None:
    chip = load("quad16")
    shape = ConvShape("staged", 1, 64, 16, 16, 64, 3, 3, 1, 1, 1, 1, 1, 1)
    result = build(shape, chip, Candidate(4, 1, False, 4, 16, 1, 4, "weight", w_spm=True))
    words = result.tensor("w").words
    moves = [op for op in result.operations if isinstance(op, Move) and op.label.startswith("w ")]
    assert sum(op.words for op in moves if op.src.tile in chip.drams) == words
    pulled = {tile: sum(op.words for op in moves if op.src.tile == tile) for tile in chip.spms}
    assert sum(pulled.values()) == 4 * words
    assert len(set(pulled.values())) == 1, "banks share the load"


def test_strip_fetches_every_row_once() -> None:
    chip = load("quad16")
    shape = ConvShape("strip", 1, 16, 16, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1)

    def inputs(candidate: Candidate) -> int:
        ops = build(shape, chip, candidate).operations
        return sum(op.words for op in ops if isinstance(op, Move) and op.label.startswith("x"))

    tiled = Candidate(4, 1, False, 1, 16, 1, 1, "weight")
    # Four cores of four rows each and a halo row where they meet.
    assert inputs(replace(tiled, strip=True)) == (5 + 6 + 6 + 5) * 16
    assert inputs(tiled) == (4 * 3 * 4 - 2) * 16


def test_model_decides_among_the_leaders() -> None:
    """`predict` is asked about the leaders, and its favourite is returned with its prediction."""
    chip, shape = load("quad16"), SHAPES["same_3x3"]
    request: list[Schedule] = []

    def predict(made: Schedule, _: ChipConfig) -> Prediction:
        request.append(made)
        return Prediction(cycles=1000 - len(request))

    made = schedule(shape, chip, predict=predict, effort=0.2)
    assert len(request) > 1
    assert made.operations == request[-1].operations
    assert made.predicted == Prediction(cycles=1000 - len(request))
    assert schedule(shape, chip, predict=None, effort=EFFORT).predicted is None


@pytest.mark.parametrize("name", ["gemm", "one_pixel"])
def test_what_is_left_of_the_replays_goes_to_other_ways_to_begin_and_end(name: str) -> None:
    effort = 0.2
    result = search(SHAPES[name], load("tiny"), predict=None, effort=effort)
    ways = ("ramp_rows", "tail_rows", "late", "strip", "tight")
    varied = sum(any(getattr(ranked.candidate, way) for way in ways) for ranked in result.ranked)
    assert 0.3 * result.replays < varied < 0.6 * result.replays
    spent = [max(ranked.operations, LEAST) for ranked in result.ranked]
    assert sum(spent) - max(spent) < REPLAY_BUDGET * effort


def test_compute_bound_layers_keep_the_arrays_busy() -> None:
    """End to end, by the timeline model, from the start of the run to the last store."""
    chip = load("quad16")
    for shape in (
        ConvShape("res3x3", 1, 128, 28, 28, 128, 3, 3, 1, 1, 1, 1, 1, 1),
        ConvShape("res1x1", 1, 128, 28, 28, 512),
        gemm_shape("square", 512, 512, 512),
    ):
        best = search(shape, chip, effort=0.5).ranked[0]
        assert shape.macs / (4 * 256 * best.cycles) > 0.9, shape.name


def test_replay_is_above_what_bounds_it() -> None:
    """No schedule is faster than its busiest array or than its words through the DRAM channels."""
    chip = load("quad16")
    for order in ORDERS:
        nodes = emit(SHAPES["same_3x3"], chip, Candidate(2, 2, False, 2, 7, 1, 1, order, ramp_k=True)).nodes
        busiest = max(sum(node.cycles for node in nodes if node.issuer == core) for core in chip.cores)
        words = sum(node.words for node in nodes if node.source.tile in chip.drams or node.target.tile in chip.drams)
        assert replay(nodes, chip) > max(busiest, words / len(chip.drams))


def test_parts_cover_everything_once() -> None:
    problem = pose(SHAPES["dilated_b2"], load("quad16"))
    for parts_m, parts_n, snap in ((4, 1, False), (3, 1, True), (2, 2, False), (1, 2, True)):
        candidate = Candidate(parts_m, parts_n, snap, 2, problem.out_w, 1, 1, "output")
        covered = [
            (image, row, n)
            for part in parts(problem, load("quad16"), candidate)
            for image, r0, r1 in part.segments
            for row in range(r0, r1)
            for n in range(part.n0, part.n1)
        ]
        assert sorted(covered) == sorted(product(range(2), range(problem.out_rows), range(problem.n_blocks)))
    assert even(0, 7, 3) == [(0, 2), (2, 4), (4, 7)]


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("pad", [0, 1])
def test_tiles_before_a_pool_make_all_its_rows_once(rows: int, pad: int) -> None:
    """Whatever the height of tiles, each has the rows that its windows read, and no row is left out."""
    chip = load("quad8")
    problem = pose(ConvShape("pooled", 1, 8, 13, 9, 20, 3, 3, 1, 1, 1, 1, 1, 1), chip, flatten=False)
    height = (13 + 2 * pad - 3) // 2 + 1
    pooling = Pooling((3, 3), (2, 2), (pad, pad), height, (9 + 2 * pad - 3) // 2 + 1)
    candidate = Candidate(3, 1, False, rows, problem.out_w, 1, 1, "input")
    work = parts(problem, chip, candidate, pooling)
    assert len({part.core for part in work}) == 3
    result = [pooled_tiles(problem, part, candidate, pooling) for part in work]
    done = [row for tiles in result for low, high in tiles.values() for row in range(low, high)]
    assert done == list(range(height))
    seen = set()
    for tiles in result:
        for tile, (low, high) in tiles.items():
            needed = {2 * row - pad + tap for row in range(low, high) for tap in range(3)} & set(range(13))
            assert set(range(tile.r0, tile.r1)) == needed
            assert (tile.c0, tile.c1) == (0, 9)
            assert tile.r1 - tile.r0 <= max(rows, 3)
            seen |= needed
    assert seen == set(range(13))


def test_a_plan_with_an_addition_keeps_room_for_the_other_operand() -> None:
    chip = load("quad8")
    problem = pose(ConvShape("sum", 1, 16, 12, 12, 16, 3, 3, 1, 1, 1, 1, 1, 1), chip)
    candidate = Candidate(4, 1, False, 1, 12, 2, 2, "output")
    (one, *_), (other, *_) = (
        [
            plan(problem, chip, candidate, part, frugal=True, residual=residual)
            for part in parts(problem, chip, candidate)
        ]
        for residual in (True, False)
    )
    assert one.r_base == chip.core.a_words - 2 * one.out_slot
    assert max(residency.slot + 1 for residency in one.a) * one.a_slot <= one.r_base
    assert [residency.key for residency in one.r] == [
        (step.item.m, step.item.n) for step in one.steps if step.last and step.piece.n[0] == 0
    ]
    assert other.r == []
    assert other.r_base == chip.core.a_words
    small = chip.model_copy(update={"core": chip.core.model_copy(update={"vec_words": one.out_slot - 1})})
    with pytest.raises(DoesNotFit, match="VEC of a quad8 core is too small: one tile needs 24 words, it has 23"):
        plan(problem, small, candidate, one.part, residual=True)
    assert plan(problem, small, candidate, one.part).vec_slots == 1, "which nothing uses"


def test_slots_evict_what_is_needed_last() -> None:
    uses = list(enumerate("abcabdab"))
    residencies = assign(uses, 3)
    assert [(residency.key, residency.first) for residency in residencies] == [("a", 0), ("b", 1), ("c", 2), ("d", 5)]
    assert residencies[3].slot == residencies[2].slot
    assert residencies[3].free_after == 2
    with pytest.raises(ValueError, match="too few"):
        assign([(0, "a"), (0, "b")], 1)


def test_layer_that_fits_no_tiling_names_the_memory() -> None:
    chip = load("tiny").model_copy(update={"core": CoreConfig(b_words=50)})
    shape = ConvShape("big", 1, 8, 9, 9, 8, 5, 5, 1, 1)
    with pytest.raises(DoesNotFit, match=r"layer big .* chip tiny.* B needs 100 words, has 50 \(50 too few\)"):
        schedule(shape, chip)
    dry = load("tiny").model_copy(update={"dram": DramConfig(words=100, bytes_per_cycle=4)})
    with pytest.raises(DoesNotFit, match="DRAM tile 0 is too small"):
        schedule(shape, dry)


def test_wide_pictures_are_cut_into_columns() -> None:
    chip = load("quad8")
    layer = random_data(ConvShape("wide", 1, 8, 4, 1500, 8, 3, 3, 1, 1, 1, 1, 1, 1))
    result = schedule(layer.shape, chip, layer.scale, effort=EFFORT)
    check(result, chip, layer, convolve(layer))


def test_padding_beyond_the_kernel_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="pad_top = 3"):
        schedule(ConvShape("far", 1, 8, 9, 9, 8, 3, 3, 1, 1, 3, 1, 1, 1), load("quad16"))


def test_unknown_scheduler_lists_the_known() -> None:
    with pytest.raises(
        registry.SchedulerError,
        match="unknown scheduler 'loop'; known are atomic, chain, dtt, flexer, gradient, hybrid, klotski, loop_order, "
        "paper_static, zigzag",
    ):
        registry.find("loop")
    shape = gemm_shape("g", 8, 8, 8)
    assert registry.find("loop_order")(shape, load("tiny")) == schedule(shape, load("tiny"))


def test_a_network_of_which_nothing_is_said_is_searched_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(refine, "with_effort", lambda *what: calls.append(what))
    network(zoo.load("resnet8"), load("tiny"), NetworkOptions(), Context())
    ((effort, *_, sharing),) = calls
    assert (effort, sharing) == (refine.Effort.DEFAULT, SharingOptions())
