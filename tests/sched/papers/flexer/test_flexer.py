"""Flexer's schedules: bit-exact whatever was chosen, as many words from DRAM as the search counted, and searches."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, CoreConfig, load
from meshloom.sched.checker.check import check
from meshloom.sched.ir.functional import run
from meshloom.sched.ir.schedule import Gemm, Move, Schedule
from meshloom.sched.lowering.predict import predict
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.mapping.tiling.problem import DoesNotFit, pose
from meshloom.sched.papers.flexer import layer as layers
from meshloom.sched.papers.flexer.entry import ListOptions, StaticLayerOptions
from meshloom.sched.papers.flexer.flows import flows
from meshloom.sched.papers.flexer.judge import dram_words
from meshloom.sched.papers.flexer.layer import LayerSearch
from meshloom.sched.papers.flexer.order import AHEAD
from meshloom.sched.papers.flexer.playing import play
from meshloom.sched.papers.flexer.policy import (
    MEMORIES,
    PAPER,
    PAPER_STATIC,
    PRIORITIES,
    PRUNINGS,
    Choice,
    Kind,
    Policy,
)
from meshloom.sched.papers.flexer.state import DROP, GIVE, LOAD, NEXT, ORDERS, RUN, STORE
from meshloom.sched.papers.flexer.static import unrolled
from meshloom.sched.papers.flexer.tiles import Tiles, Tiling, steps, viable
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.inputs.golden.layer import golden

from ....tiers import slow_but

SHAPES = (
    "conv:12x12x40-40,k3,p1,relu",
    "conv:7x7x33-5,k5,p2",
    "gemm:64x64x64",
    "conv:14x14x24-33,k3,s2,p1",
    "conv:9x9x33-3,b2,relu",
    "conv:13x11x5-33,k3,s2,p1,d2",
    "conv:15x9x3-5,k7,s2,p3,b3,relu,clamp96",
    "conv:10x6x20-24,k3x5,s1x2,p1x2",
    "gemm:3x10x64",
)
SMALL = parse("conv:10x10x40-40,k3,p1,relu")
#: The paper's search with transfers first and a beam.
BEAM = Policy("flexer", priority=1, pruning=3, home=True, by_words=0.25)


def cramped(random: np.random.Generator) -> ChipConfig:
    """A small chip, its memories drawn so that tiles must leave."""
    chip = load(str(random.choice(["quad8", "quad8", "tiny"])))
    core = CoreConfig(
        a_words=int(random.choice([300, 600, 2000])),
        b_words=int(random.choice([250, 600, 2000])),
        acc_words=int(random.choice([30, 60, 200, 1000])),
        out_words=int(random.choice([64, 256])),
    )
    return chip.model_copy(update={"spm_words": int(random.choice([128, 256, 512, 1024, 4096])), "core": core})


def drawn(random: np.random.Generator, layer: LayerSearch, kind: str) -> tuple[Choice, Policy]:
    """A choice and a policy at random."""
    space = viable(layer.problem, layer.chip, layer.shape.name)
    some = np.flatnonzero(space.operations < 300)
    tiling = space.tiling(int(random.choice(some if len(some) else [int(space.operations.argmin())])))
    tiles = Tiles(layer.problem, tiling)
    home = bool(random.integers(2))
    if kind == "nest":
        cores = len(layer.chip.cores)
        shape = [(1, cores), (cores, 1), (2, max(1, cores // 2))][int(random.integers(3))]
        policy = Policy("nest", home=True, overlap=bool(random.integers(4)))
        return Choice(tiling, "mn"[int(random.integers(2))], shape=shape), policy
    loops = ORDERS[int(random.integers(len(ORDERS)))].loops
    if kind == "static":
        policy = Policy(
            "static",
            overlap=bool(random.integers(2)),
            private=bool(random.integers(2)),
            unroll=("any", "m", "n")[int(random.integers(3))],
            regions=("best", "equal")[int(random.integers(2))],
        )
        result = list(flows(layer.problem, layer.chip, policy, tiling))
        assert all(policy.unroll in ("any", unrolled(choice.loops)) for choice in result)
        if result:
            return result[int(random.integers(len(result)))], policy
    policy = Policy(
        "flexer",
        priority=int(random.integers(len(PRIORITIES))),
        memory=int(random.integers(len(MEMORIES))),
        pruning=int(random.integers(len(PRUNINGS))) if tiles.operations < 60 else int(random.integers(2, 4)),
        home=home,
        again=bool(random.integers(2)),
        overlap=bool(random.integers(4)),
        private=home or bool(random.integers(4)),
    )
    return Choice(tiling, loops), policy


def proven(schedule: Schedule, chip: ChipConfig, name: str) -> None:
    """The schedule gives the golden model's result, and its program can run."""
    data = random_data(parse(name))
    result = run(schedule, chip, {"x": data.x, "w": data.w, "bias": data.bias})
    assert np.array_equal(result["y"], golden(data))
    check(lower(schedule, chip), chip, schedule)


@pytest.mark.parametrize("kind", slow_but(["flexer", "static", "nest"], "flexer", "static"))
@pytest.mark.parametrize("name", SHAPES)
def test_random_choices_compute_the_layer(name: str, kind: str) -> None:
    """On cramped chips: all bytes right in either order of the operations, and DRAM traffic as counted."""
    random = np.random.default_rng([ord(letter) for letter in name + kind])
    done, stores = 0, 0
    for _ in range(20):
        chip = cramped(random)
        layer = LayerSearch(parse(name), chip, random_data(parse(name)).scale)
        try:
            choice, policy = drawn(random, layer, kind)
        except DoesNotFit:
            continue
        good, _, words, log = play(layer.problem, chip, choice, policy, record=True)
        assert good
        assert set(log["kind"]) <= {LOAD, STORE, GIVE, DROP, RUN, NEXT}
        assert (log["kind"] == RUN).sum() == Tiles(layer.problem, choice.tiling).operations
        stores += int((log["kind"] == STORE).sum())
        result = layer.emitted(choice, policy)
        assert policy.overlap or result.fences or len(result.nodes) < 2
        order = layer.orders(result).run(AHEAD[int(random.integers(len(AHEAD)))])
        assert sorted(order.order) == list(range(len(result.nodes)))
        schedule = layer.schedule(result, order, "test")
        proven(schedule, chip, name)
        bias = sum(op.words for op in schedule.operations if isinstance(op, Move) and op.label.startswith("bias"))
        assert dram_words(schedule, chip) == words + bias
        done += 1
        if done == 3:
            break
    assert done == 3


def test_partial_sums_are_spilled_and_come_back() -> None:
    """Sums that leave for DRAM are moved as four words each, and pulled into ACC again."""
    chip = load("quad8").model_copy(update={"spm_words": 128})
    layer = LayerSearch(parse("conv:12x12x40-40,k3,p1,relu"), chip, 3000)
    choice, policy = Choice(Tiling(4, 4, 1, 1), "kmn"), PAPER
    _, _, _, log = play(layer.problem, chip, choice, policy, record=True)
    assert (log["kind"] == STORE).any()
    result = layer.emitted(choice, policy)
    spilled = [node for node in result.nodes if node.label.startswith("spill p")]
    again = [node for node in result.nodes if node.label.startswith("load p")]
    assert spilled
    assert sum(node.words for node in again) == sum(node.words for node in spilled)
    assert all(node.words % 4 == 0 for node in spilled)
    operations = [node.operation() for node in result.nodes]
    assert any(isinstance(op, Gemm) and op["to_acc"] for op in operations)


@pytest.mark.parametrize(
    ("name", "chip_name"),
    [
        ("flexer", "quad8"),
        pytest.param("paper_static", "tiny", marks=pytest.mark.slow),
        pytest.param("hybrid", "tiny", marks=pytest.mark.slow),
    ],
)
def test_schedulers(name: str, chip_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scheduler on four cores and on one; found again from the folder, without another search."""
    chip, shape = load(chip_name), parse("conv:6x6x20-20,k3,p1,relu")
    data = random_data(shape)
    result = registry.find(name, tmp_path)(shape, chip, data.scale)
    assert result.scheduler == name
    assert result.predicted is not None
    proven(result, chip, shape.name)

    def no_search(*_: object, **__: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(layers, "search", no_search)
    again = registry.find(name, tmp_path)(shape, chip, data.scale)
    assert again.operations == result.operations


@pytest.mark.slow
def test_hybrid_is_never_worse(tmp_path: Path) -> None:
    """Than any of the static orders and the paper's, by the model."""
    from meshloom.sched.papers.flexer.scheduler import candidates, hybrid

    chip = load("quad8")
    layer = LayerSearch(SMALL, chip, 1000, tmp_path)
    result = candidates(layer)
    assert {"loop_order", "paper_static", "flexer"} < set(result)
    best = hybrid(SMALL, chip, 1000, tmp_path)
    assert best.predicted is not None
    assert best.predicted.cycles == min(outcome.cycles for outcome in result.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spm_words": 8}, "SPM: input, weight and sums"),
        ({"core": CoreConfig(a_words=8)}, "A: one input tile"),
        ({"core": CoreConfig(b_words=32)}, "B: one weight tile takes 36 words, 32 are there"),
        ({"floorplan": ("dram core", "host core")}, "no spm tile"),
    ],
)
def test_a_layer_that_does_not_fit(change: dict[str, object], message: str) -> None:
    """One clear error that names the memory."""
    chip = ChipConfig.model_validate(load("tiny").model_dump() | {"name": "odd"} | change)
    with pytest.raises(DoesNotFit, match=message):
        registry.find("flexer")(parse("conv:6x6x20-20,k3,p1"), chip, 1000)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flexor", "unknown scheduler"),
        ("flexer:priority", "not key=value"),
        ("flexer:budget=soon", "must be steps of work"),
        ("flexer:budget=5", "must be steps of work"),
        ("loop_order:priority=benefit", "no option"),
        ("hybrid:priority=benefit", "no option"),
    ],
)
def test_scheduler_names(name: str, message: str) -> None:
    with pytest.raises(registry.SchedulerError, match=message):
        registry.find(name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("priority=max", "priority = 'max' must be one of benefit, min_transfer, min_spill"),
        ("cycles=much", "cycles = 'much' must be a number"),
        ("words=101", "words = '101' must be at most 100"),
        ("home=maybe", "home = 'maybe' must be yes or no"),
        ("colour=red", "scheduler flexer has no option 'colour' for layers"),
    ],
)
def test_policy_options(options: str, message: str) -> None:
    with pytest.raises(registry.SchedulerError, match=message):
        registry.find(f"flexer:{options}")


def test_every_option_of_a_policy_is_the_searchs() -> None:
    """The names that people type are those that the compiled search counts, in its order."""
    fields = ListOptions.model_fields
    for name, there in (("priority", PRIORITIES), ("memory", MEMORIES), ("pruning", PRUNINGS)):
        assert get_args(fields[name].annotation) == there
    assert ListOptions().policy("flexer") == PAPER
    assert StaticLayerOptions().policy("static") == PAPER_STATIC
    given = ListOptions(priority="min_spill", memory="small", pruning="beam", words=2, cycles=3, home=True, again=True)
    assert given.policy("flexer") == Policy("flexer", 2, 2, 3, 3.0, 2.0, True, True)
    given = StaticLayerOptions(unroll="n", regions="equal", private=False, overlap=False)
    assert given.policy("static") == Policy("static", overlap=False, private=False, unroll="n", regions="equal")


def test_networks_always_overlap() -> None:
    """Nothing is silently left out: where fences cannot be kept, the option that asks for them is refused."""
    with pytest.raises(registry.SchedulerError, match="no option 'overlap' for networks"):
        registry.find_network("paper_static:overlap=no")
    registry.find_network("paper_static:unroll=n,regions=equal,private=no")
    registry.find("paper_static:overlap=no")


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ("flexer:private=no,home=yes", "flexer: home=yes keeps partial sums in cores, .* private=no: leave one out"),
        ("paper_static:home=yes", "paper_static has no option 'home'"),
        ("paper_static:priority=min_spill", "paper_static has no option 'priority'"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(scheduler: str, message: str) -> None:
    """A core that keeps nothing has no sums; the baseline's sums have a region of the scratchpad, and its order no
    priorities."""
    for find in (registry.find, registry.find_network):
        with pytest.raises(registry.SchedulerError, match=message):
            find(scheduler)


def test_sets_take_turns_where_nothing_may_overlap() -> None:
    """Each operation of a set begins after the set's tiles have come, and those of the next come after it has ended."""
    chip = load("tiny")
    layer = LayerSearch(SMALL, chip, random_data(SMALL).scale, budget=Budget(steps=200_000))
    for kind in ("static", "flexer"):
        cycles = {overlap: layer.best(Policy(kind, overlap=overlap), "x").cycles for overlap in (True, False)}
        result = layer.best(Policy(kind, overlap=False), "x").schedule
        times = predict(result, chip)
        assert result.fences
        for fence in result.fences:
            assert min(times.start[fence:]) > max(times.end[:fence])
        assert cycles[False] > cycles[True]


@pytest.mark.parametrize(
    ("name", "rows", "kind", "choice"),
    [
        ("conv:12x10x32-24,k3", 192, "flexer", Choice(Tiling(3, 4, 1, 1), "kmn")),
        ("conv:10x10x24-40,k3", 256, "nest", Choice(Tiling(4, 2, 3, 1), "n", shape=(2, 2))),
    ],
)
def test_without_overlap_every_tile_has_a_place(name: str, rows: int, kind: Kind, choice: Choice) -> None:
    """Where the clock that a set is tried with is not the one that it is placed with, it finds no room here."""
    chip = load("quad8").model_copy(update={"spm_words": rows})
    layer = LayerSearch(parse(name), chip, random_data(parse(name)).scale)
    policy = Policy(kind, overlap=False)
    good, _, _, log = play(layer.problem, chip, choice, policy, record=True)
    assert good
    assert (log["where"][np.isin(log["kind"], (LOAD, GIVE))] >= 0).all()
    result = layer.emitted(choice, policy)
    proven(layer.schedule(result, layer.orders(result).run(AHEAD[0]), "test"), chip, name)


def test_regions_that_hold_no_tile_are_one_error() -> None:
    chip = load("tiny").model_copy(update={"spm_words": 16})
    with pytest.raises(DoesNotFit, match=r"raise spm_words, or let the regions differ|no tiling"):
        LayerSearch(SMALL, chip, 1 << 15, budget=Budget(steps=1000)).best(Policy("static", regions="equal"), "x")


def test_options_travel_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    class Watched:
        def __init__(self, *some: object) -> None:
            given.extend(some)

        def best(self, policy: Policy, name: str) -> object:
            given.extend([policy, name])
            return self

        schedule = None

    monkeypatch.setattr(layers, "LayerSearch", Watched)
    shape, chip = parse("gemm:8x8x8"), load("tiny")
    with pytest.raises(registry.SchedulerError, match="made a NoneType"):
        registry.find("flexer:budget=3M,priority=min_spill")(shape, chip, 7)
    assert given == [shape, chip, 7, None, Budget(steps=3_000_000), None, Policy("flexer", priority=2), "flexer"]


def test_tiles_are_cut_as_in_the_paper() -> None:
    """Equal steps, and what remains."""
    assert steps(10, 4) == [(0, 4), (4, 8), (8, 10)]
    problem = pose(parse("conv:10x10x40-40,k3,p1"), load("quad8"))
    tiles = Tiles(problem, Tiling(4, 10, 2, 3))
    assert tiles.shape == (3, 3, 2)
    assert tiles.cycles.sum() == sum(
        -(-pixels // 8) * n * k * 9 * 8 for pixels in (40, 40, 20) for n in (2, 2, 1) for k in (3, 2)
    )


@pytest.mark.parametrize("number", range(1, 9))
def test_architectures_of_table_1(number: int) -> None:
    """Cores, scratchpad and DRAM bandwidth of the paper's Table 1."""
    chip = load(f"arch{number}")
    assert (chip.rows, chip.cols) == (32, 32)
    assert len(chip.cores) == (2 if number <= 4 else 4)
    assert len(chip.spms) * chip.spm_words * chip.lanes == (256 if number % 4 in (1, 2) else 512) * 1024
    assert len(chip.drams) * chip.dram.bytes_per_cycle == (32 if number % 2 else 64)
