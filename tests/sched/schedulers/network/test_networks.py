"""Networks by every scheduler that has a name, executed in NumPy: whoever makes the convolutions and wherever tensors
lie, every tensor is the definition, and every program can run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.checker.check import check
from meshloom.sched.ir.schedule import Move, Prediction, Schedule
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.predict import predict
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.flexer import network as flexer_networks
from meshloom.sched.papers.flexer.network import HOPELESS, Planner
from meshloom.sched.papers.flexer.policy import FASTEST, OURS, PAPER
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.budget import Budget
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, layer_of, schedule
from meshloom.sched.schedulers.network.sharing import LAYERWISE, SharingOptions
from meshloom.sched.schedulers.network.storage import Between
from meshloom.sched.schedulers.registry import SchedulerError
from meshloom.sched.workload.graph import Graph, Value
from meshloom.sched.workload.stages import cut

from ....tiers import slow_but
from ...network_graphs import Grower, every_kind, inputs_of, mismatches, perform, random_network, square
from ...random_graphs import defined_values

#: Of every search.
BUDGET = Budget(steps=5_000_000)
SCHEDULERS = (
    f"flexer:budget={BUDGET}",
    f"paper_static:budget={BUDGET}",
    "loop_order:between=dram,fused=no",
    "loop_order:between=planes,tight=yes",
)


def small(words: int = 300, name: str = "quad8") -> ChipConfig:
    """A chip whose scratchpad is too small for most tensors."""
    return ChipConfig.model_validate(load(name).model_dump() | {"name": f"small{words}", "spm_words": words})


SMALL = small()


def computes(made: NetworkSchedule, chip: ChipConfig, seed: int = 0) -> None:
    """Proves that a schedule computes every tensor, whole, and that its program can run."""
    validate(made.schedule, chip)
    inputs = inputs_of(made.graph, seed)
    golden = defined_values(made.graph, inputs)
    outputs, observed = perform(made, chip, inputs)
    for name, result in outputs.items():
        np.testing.assert_array_equal(result, golden[name], name)
    assert [str(wrong) for wrong in mismatches(made, chip, observed, golden)] == []
    check(lower(made.schedule, chip), chip, made.schedule)


@pytest.mark.parametrize("name", slow_but(SCHEDULERS, *(name for name in SCHEDULERS if "budget" not in name)))
@pytest.mark.parametrize("chip", slow_but([SMALL, load("pe12x14")], SMALL), ids=lambda chip: chip.name)
def test_every_kind_of_layer(name: str, chip: ChipConfig) -> None:
    result = registry.find_network(name)(every_kind(), chip, None)
    computes(result, chip)
    base = name.partition(":")[0]
    assert result.schedule.scheduler == (name if base == "loop_order" else base)


@pytest.mark.parametrize("name", slow_but(SCHEDULERS, SCHEDULERS[0]))
@pytest.mark.parametrize("seed", slow_but(range(3), 2))
def test_random_networks(name: str, seed: int) -> None:
    computes(registry.find_network(name)(random_network(20 + seed), small(200), None), small(200), seed)


@pytest.mark.slow
def test_layers_by_themselves_leave_nothing_on_the_chip() -> None:
    graph, chip = every_kind(), load("quad8")
    planner = Planner(chip, {PAPER: PAPER}, budget=BUDGET)
    for sharing in (LAYERWISE, SharingOptions(Between.DRAM, fused=False, planner=planner)):
        result = schedule(graph, chip, sharing=sharing)
        stages = cut(graph, chip, {layer.output for layer in graph.layers})
        assert set(result.spilled) == {stages.roots[stage.y][0] for stage in stages.stages}
        assert not any(stage.epilogue for stage in stages.stages)


def stored_by(made: NetworkSchedule, layer: str, chip: ChipConfig) -> Counter[int]:
    """Words that the MOVEs of a layer bring to tiles other than cores."""
    result: Counter[int] = Counter()
    for op in made.schedule.operations:
        if isinstance(op, Move) and layer_of(op.label) == layer and op.dst.tile not in chip.cores:
            result[op.dst.tile] += op.words
    return result


def big_between() -> Graph:
    """A tensor of four planes that is larger than the scratchpad of `small`, between two convolutions."""
    grower = Grower(5, Value("x", 8, 12, 12))
    grower.conv("big", "x", 32, square(3, 1, 1), relu=True)
    grower.conv("y", "big", 8, square(3, 1, 1))
    return grower.graph("big", "y")


def test_some_planes_of_a_tensor_lie_in_the_scratchpad() -> None:
    graph, chip = big_between(), small(256)
    parts = {between: schedule(graph, chip, sharing=SharingOptions(between)) for between in Between}
    for result in parts.values():
        computes(result, chip)
        assert "big" in result.spilled
    drams = set(chip.drams)

    def moved(between: Between) -> int:
        moves = [op for op in parts[between].schedule.operations if isinstance(op, Move)]
        return sum(op.words * ((op.src.tile in drams) + (op.dst.tile in drams)) for op in moves)

    stored = set(stored_by(parts[Between.PLANES], "big", chip))
    assert stored & drams
    assert stored & set(chip.spms)
    assert moved(Between.DRAM) == moved(Between.WHOLE), "nothing fits whole"
    assert moved(Between.PLANES) <= moved(Between.WHOLE) - 2 * 12 * 12, "a plane is neither written nor read there"


def test_a_pool_is_fused_tightly_when_two_rows_of_it_do_not_fit() -> None:
    grower = Grower(6, Value("x", 8, 20, 20))
    grower.conv("conv", "x", 8, square(3, 1, 1), relu=True)
    grower.pool("y", "conv", square(3, 2, 1))
    graph = grower.graph("pool", "y")
    core = load("quad8").model_dump()["core"] | {"out_words": 2 * 3 * 20, "vec_words": 64}
    chip = ChipConfig.model_validate(load("quad8").model_dump() | {"name": "tight", "core": core})
    result = {tight: schedule(graph, chip, sharing=SharingOptions(tight=tight)) for tight in (False, True)}
    for one in result.values():
        computes(one, chip)
    assert len(cut(graph, chip).stages) == 2
    assert len(cut(graph, chip, tight=True).stages) == 1
    words = {tight: stored_by(one, "conv", chip).total() for tight, one in result.items()}
    assert words == {False: 20 * 20, True: 10 * 10}, "what the pool reads is kept nowhere"


def test_convolutions_are_made_out_of_order_beside_what_lies_in_the_scratchpad() -> None:
    """Whose input and result lie in DRAM: they get the words that the kept tensor leaves."""
    grower = Grower(5, Value("x", 8, 12, 12))
    grower.conv("kept", "x", 8, square(3, 1, 1))
    grower.conv("big", "x", 64, square(3, 1, 1), relu=True)
    grower.conv("next", "big", 64, square(3, 1, 1))
    grower.conv("z", "next", 8, square(3, 1, 1))
    grower.add("y", "z", "kept")
    graph, chip = grower.graph("between", "y"), small(256)
    nests = schedule(graph, chip)
    assert nests.alone == ("big", "next"), "an addition goes with z, and kept is kept"
    assert "kept" not in nests.spilled
    planner = Planner(chip, {PAPER: PAPER}, budget=BUDGET)
    result = schedule(graph, chip, sharing=SharingOptions(planner=planner, planned=frozenset({"big", "kept", "z"})))
    computes(result, chip)
    assert result.alone == nests.alone
    places = {name: stored_by(result, name, chip) for name in ("big", "next")}
    assert set(places["big"]) & set(chip.spms), "its tiles come over the scratchpad"
    assert places["next"] == stored_by(nests, "next", chip)
    bank = next(iter(chip.spms))
    used = [
        (op.dst.address, op.dst.address + op.words)
        for op in result.schedule.operations
        if isinstance(op, Move) and layer_of(op.label) == "big" and op.dst.tile == bank
    ]
    kept = [op.dst for op in nests.schedule.operations if isinstance(op, Move) and layer_of(op.label) == "kept"]
    there = {span.address for span in kept if span.tile == bank}
    assert there
    assert used
    assert not [at for at in there for low, high in used if low <= at < high]


@pytest.mark.slow
def test_the_hybrid_is_no_worse_than_any_of_its_ways() -> None:
    graph, chip = big_between(), small(256)
    result = registry.find_network(f"hybrid:budget={BUDGET}")(graph, chip, None)
    computes(result, chip)
    assert result.schedule.scheduler == "hybrid"
    planner = Planner(chip, {PAPER: PAPER, OURS: FASTEST}, budget=BUDGET)
    ways = [SharingOptions(between, tight=tight) for between in Between for tight in (False, True)]
    ways += [LAYERWISE, SharingOptions(Between.DRAM, fused=False, planner=planner)]
    others = [predict(one.schedule, chip).cycles for way in ways if (one := schedule(graph, chip, sharing=way))]
    assert predict(result.schedule, chip).cycles <= min(others)
    assert HOPELESS > 1


def test_the_hybrid_refines_nests_though_layers_by_themselves_are_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refined, nests can overtake layers by themselves, which nothing refines."""
    graph, chip = big_between(), small(256)
    nests, refined = schedule(graph, chip), schedule(graph, chip, sharing=LAYERWISE)
    alone = replace(nests, schedule=nests.schedule.model_copy(update={"workload": "alone"}), estimate=1)

    def scheduled(graph: Graph, chip: ChipConfig, progress: object, memory: object, way: SharingOptions) -> object:
        return nests if way.planner is None else alone

    def played(made: Schedule, chip: ChipConfig) -> Prediction:
        cycles = 100 if made.workload == "alone" else 120 if made is nests.schedule else 90
        return Prediction(cycles=cycles)

    monkeypatch.setattr(flexer_networks, "HOPELESS", 1e9)
    monkeypatch.setattr(flexer_networks, "schedule", scheduled)
    monkeypatch.setattr(flexer_networks, "predict", played)
    monkeypatch.setattr(flexer_networks, "refined", lambda *_: refined)
    assert flexer_networks.hybrid(graph, chip).schedule.operations == refined.schedule.operations
    monkeypatch.setattr(flexer_networks, "refined", lambda *_: nests)
    assert flexer_networks.hybrid(graph, chip).schedule.workload == "alone"


@pytest.mark.parametrize("name", ["flexer", "paper_static", "hybrid"])
def test_a_budget_of_seconds_is_named(name: str) -> None:
    """What was found in it depends on the machine."""
    result = registry.find_network(f"{name}:budget=0.001s")(big_between(), small(256), None)
    assert result.schedule.scheduler == f"{name}:budget=0.001s"


def test_what_is_found_is_kept_for_a_second_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, chip = big_between(), load("quad8")
    first = registry.find_network("flexer", tmp_path)(graph, chip, None)
    monkeypatch.setattr("meshloom.sched.papers.flexer.layer.search", None)  # a search would fail
    assert registry.find_network("flexer", tmp_path)(graph, chip, None).schedule == first.schedule


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "best",
            "unknown scheduler 'best'; known are atomic, chain, dtt, flexer, gradient, hybrid, klotski, "
            "loop_order, paper_static, zigzag",
        ),
        ("loop_order:between=spm", "between = 'spm' must be one of dram, whole, planes"),
        ("loop_order:colour=1", "has no option 'colour' for networks; it has between, fused, tight"),
        ("loop_order:effort=1", "effort = '1' must be one of quick, default, thorough"),
        ("flexer:budget=soon", "budget 'soon' must be steps of work"),
        ("flexer:priority=best", "priority = 'best' must be one of benefit, min_transfer, min_spill"),
        ("hybrid:priority=benefit", "scheduler hybrid has no option 'priority' for networks; it has budget"),
        ("paper_static:", None),
    ],
)
def test_names_and_options(name: str, message: str | None) -> None:
    if message is None:
        registry.find_network(name)
        return
    with pytest.raises(SchedulerError, match=message):
        registry.find_network(name)


def test_without_a_scratchpad_an_out_of_order_schedule_says_so() -> None:
    chip = ChipConfig.model_validate(
        load("quad8").model_dump() | {"name": "none", "floorplan": ["dram core core", "host core core"]}
    )
    with pytest.raises(DoesNotFit, match="chip none has no spm tile"):
        registry.find_network(f"flexer:budget={BUDGET}")(big_between(), chip, None)
    computes(registry.find_network(f"hybrid:budget={BUDGET}")(big_between(), chip, None), chip)
