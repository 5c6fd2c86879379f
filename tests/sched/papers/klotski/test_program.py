"""Programs of micro-ops: whatever the cores and the order, they compute the network, byte for byte, and can run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load, tile_position
from meshloom.sched.checker.check import check
from meshloom.sched.ir.schedule import Box, Move
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.predict import predict
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.klotski.muops import MuGraph, Orchestration
from meshloom.sched.papers.klotski.partition import Partition, micro_ops
from meshloom.sched.papers.klotski.placing import settled
from meshloom.sched.papers.klotski.program import program
from meshloom.sched.papers.klotski.rounds import by_turns
from meshloom.sched.papers.klotski.work import stages_of
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule
from meshloom.sched.schedulers.registry import find, find_network
from meshloom.sched.workload import shapes
from meshloom.sched.workload.graph import Graph, Value, Window

from ....tiers import slow_but
from ...network_graphs import Grower, every_kind, inputs_of, mismatches, perform, random_network, square
from ...random_graphs import defined_values


def anyhow(graph: MuGraph, cores: int, seed: int) -> Orchestration:
    """Any cores, and any order in which all is made before it is read."""
    random = Random(seed)
    missing = [len(edges) for edges in graph.before]
    ready = [number for number, count in enumerate(missing) if not count]
    starts = [0] * len(graph.ops)
    for position in range(len(graph.ops)):
        number = ready.pop(random.randrange(len(ready)))
        starts[number] = position
        for edge in graph.after[number]:
            missing[edge.consumer] -= 1
            if not missing[edge.consumer]:
                ready.append(edge.consumer)
    return Orchestration(tuple(random.randrange(cores) for _ in graph.ops), tuple(starts), len(starts), 1)


def computes(
    graph: Graph, chip: ChipConfig, partition: Partition, seed: int = 0, turns: bool = False
) -> NetworkSchedule:
    """Makes a program and proves that it computes every tensor, whole, and that it can run. `turns`: in rounds."""
    cut = micro_ops(stages_of(graph, chip), chip, partition)
    plan = anyhow(cut, len(chip.cores), seed)
    result = program(cut, plan, chip, "klotski", by_turns(cut, plan) if turns else None)
    proves(result, graph, chip, seed)
    return result


def proves(made: NetworkSchedule, graph: Graph, chip: ChipConfig, seed: int = 0) -> None:
    """Proves that a schedule computes every tensor, whole, and that its program can run."""
    validate(made.schedule, chip)
    inputs = inputs_of(graph, seed)
    golden = defined_values(graph, inputs)
    outputs, observed = perform(made, chip, inputs)
    assert set(outputs) == set(graph.outputs)
    for name, values in outputs.items():
        np.testing.assert_array_equal(values, golden[name], name)
    assert [str(wrong) for wrong in mismatches(made, chip, observed, golden)] == []
    check(lower(made.schedule, chip), chip, made.schedule)


@pytest.mark.parametrize("name", ["klotski9", "tiny", "quad8"])
@pytest.mark.parametrize("seed", slow_but(range(6), 0, 1, 2))
def test_random_networks(seed: int, name: str) -> None:
    chip = load(name)
    random = Random(seed)
    oc, ic = chip.cols * random.randint(1, 3), chip.lanes * random.randint(1, 3)
    computes(random_network(seed), chip, Partition(random.randint(1, 9), random.randint(2, 20), ic, oc), seed)


SMALL = {"a_words": 900, "b_words": 700, "acc_words": 200, "out_words": 220, "vec_words": 220}
VARIANTS: dict[str, dict[str, Any]] = {
    "one core": {"floorplan": ["dram core", "host ."]},
    "two channels": {"noc": {"data_vcs": 2}},
    "slow DRAM": {"dram": {"bytes_per_cycle": 1, "latency": 200}},
    "YX": {"noc": {"data_routing": "yx"}},
    "little room": {"core": SMALL},
}


@pytest.mark.parametrize("what", VARIANTS)
@pytest.mark.parametrize("seed", range(2))
def test_other_chips(seed: int, what: str) -> None:
    chip = altered("klotski9", VARIANTS[what])
    computes(random_network(seed + 20), chip, Partition(4, 9, 2 * chip.lanes, 2 * chip.cols), seed)


def altered(name: str, changes: dict[str, Any]) -> ChipConfig:
    """A built-in chip with changes."""
    given = load(name).model_dump()
    changed = {key: given[key] | value if isinstance(value, dict) else value for key, value in changes.items()}
    return ChipConfig.model_validate(given | changed | {"name": "odd"})


@pytest.mark.parametrize(("rows", "channels"), [(120, 56), pytest.param(180, 28, marks=pytest.mark.slow)])
def test_results_that_keep_their_core_from_going_on_are_sent_at_once(rows: int, channels: int) -> None:
    """Each core does neighbouring rows, and waits in its first ones for the last ones of the core before. Results that
    it holds back until then take the place of all that it could do meanwhile: more than twice the cycles."""
    chip = altered("klotski9", {"core": {"out_words": 130}})
    g = Grower(3, Value("x", 14, rows, 20))
    for name, before in (("c0", "x"), ("c1", "c0")):
        g.conv(name, before, channels, Window(3, 3, 1, 1, 1, 1, 1, 1))
    graph = g.graph("tall", "c1")
    cut = micro_ops(stages_of(graph, chip), chip, Partition(4, 20, 4 * chip.lanes, chip.cols))
    plan = settled(cut, chip)
    result = program(cut, plan, chip, "klotski")
    assert predict(result.schedule, chip).cycles < 1.1 * plan.makespan
    proves(result, graph, chip)


def test_additions_take_up_what_their_core_has_just_made() -> None:
    chip = load("klotski9")
    grower = Grower(3, Value("x", 14, 7, 9))
    both = [grower.conv(name, "x", 34, square(3, 1, 1)) for name in ("a", "b")]
    cut = micro_ops(stages_of(grower.graph("sum", grower.add("sum", *both)), chip), chip, Partition(2, 5, 16, 14))
    cores = settled(cut, chip).cores
    sums = [op for op in cut.ops if len(op.reads) == 2]
    assert len(sums) > len(chip.cores) // 2
    for op in sums:
        assert cores[op.number] in [cores[edge.producer] for edge in cut.before[op.number]]


def test_what_finds_no_room_comes_back_from_dram() -> None:
    """Operands and partial sums, of which all but few are given up, are right all the same."""
    chip = altered("klotski9", {"core": SMALL, "floorplan": ["dram core", "host ."]})
    g = Grower(3, Value("x", 60, 8, 8))
    for index in range(4):
        g.conv(f"c{index}", "x" if index == 0 else f"c{index - 1}", 60, Window(3, 3, 1, 1, 1, 1, 1, 1))
    g.add("sum", "c3", "c0")
    graph = g.graph("deep", "sum")
    result = [computes(graph, chip, Partition(3, 8, chip.lanes, chip.cols), seed).micro_ops for seed in range(3)]
    assert all(figures and figures.spilled_words > 1000 for figures in result)


@pytest.mark.parametrize("name", ["klotski9", "tiny"])
def test_every_kind_of_layer(name: str) -> None:
    chip = load(name)
    computes(every_kind(), chip, Partition(5, 9, chip.lanes, chip.cols))


@pytest.mark.parametrize("name", ["klotski9", "tiny"])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_with_a_barrier(seed: int, name: str) -> None:
    """No unit begins with a round before all have ended the one before."""
    chip, graph = load(name), random_network(seed)
    partition = Partition(3, 9, chip.lanes, chip.cols)
    schedule = computes(graph, chip, partition, seed, turns=True).schedule
    cut = micro_ops(stages_of(graph, chip), chip, partition)
    rounds = by_turns(cut, anyhow(cut, len(chip.cores), seed))
    begins, ends = dict[int, int](), dict[int, int]()
    times = predict(schedule, chip)
    for op, start, end in zip(schedule.operations, times.start, times.end, strict=True):
        if isinstance(op, Move) or op.result is None:
            continue
        turn = rounds[_maker(cut, op.result)]
        begins[turn], ends[turn] = min(start, begins.get(turn, start)), max(end, ends.get(turn, end))
    assert len(begins) > 3
    for before, after in pairwise(sorted(begins)):
        assert ends[before] <= begins[after]


def _maker(graph: MuGraph, box: Box) -> int:
    """The micro-op that makes the results in a box."""
    (result,) = (
        op.number
        for op in graph.ops
        if op.last
        and graph.stages.stages[op.stage].y == box.tensor
        and op.result.planes[0] <= box.plane < op.result.planes[1]
        and op.result.rows[0] == box.row
        and op.result.columns[0] == box.column
    )
    return result


@pytest.mark.parametrize(
    "name",
    [
        "zigzag",
        "zigzag:whole=yes",
        "zigzag:barrier=no",
        pytest.param("atomic:evaluations=5", marks=pytest.mark.slow),
        "klotski",
        "klotski:rounds=yes",
        pytest.param("klotski:partition=bayes,plan=solved,evaluations=5", marks=pytest.mark.slow),
    ],
)
def test_schedulers_of_networks(name: str) -> None:
    """Each says its name and options, and how far its plan is above its bound."""
    chip, graph = load("klotski9"), random_network(4)
    result = find_network(name)(graph, chip, None)
    proves(result, graph, chip)
    assert result.schedule.scheduler == name
    figures = result.micro_ops
    assert figures is not None
    assert figures.planned_cycles >= figures.bound_cycles > 0


@pytest.mark.parametrize("seed", slow_but((7, 9), 9))
def test_the_quicker_of_micro_ops_and_loop_nests_is_taken(seed: int) -> None:
    """By the timeline model; the row says which it was, and figures are those of the micro-ops."""
    chip, graph = load("klotski9"), random_network(seed)
    names = ("klotski:fallback=none", "loop_order", "klotski")
    micro, loops, taken = (find_network(name)(graph, chip, None) for name in names)
    cycles = [predict(one.schedule, chip).cycles for one in (micro, loops, taken)]
    assert cycles[2] == min(cycles)
    assert taken.micro_ops is not None
    assert micro.micro_ops is not None
    assert taken.micro_ops.taken == (micro.micro_ops.taken if cycles[0] <= cycles[1] else "loop_order")
    assert replace(taken.micro_ops, taken=micro.micro_ops.taken) == micro.micro_ops


def test_micro_ops_of_the_baseline_are_taken_where_they_are_quicker() -> None:
    """Layers whose weights are most of what they read."""
    grower, chip = Grower(3, Value("x", 24, 6, 6)), load("klotski9")
    grower.conv("a", "x", 96, square(3, 1, 1))
    grower.conv("b", "a", 96, square(3, 1, 1))
    grower.conv("y", "b", 48)
    graph = grower.graph("weights", "y")
    names = ("klotski:fallback=none", "klotski:fallback=none,fineness=0.5", "atomic")
    ours, shared, theirs = (find_network(name)(graph, chip, None) for name in names)
    cycles = [predict(one.schedule, chip).cycles for one in (ours, shared, theirs)]
    assert cycles[0] == cycles[2] < cycles[1]
    assert ours.schedule.scheduler == names[0]
    assert ours.micro_ops is not None
    assert theirs.micro_ops is not None
    assert ours.micro_ops == replace(theirs.micro_ops, taken="atomic")


def test_weights_come_from_nearby() -> None:
    """Copies of them in several tiles shorten their ways; where DRAM is small, there is one of each."""
    grower = Grower(2, Value("x", 60, 14, 14))
    grower.conv("a", "x", 200, Window(3, 3, 1, 1, 1, 1, 1, 1))
    graph = grower.graph("one", "a")

    def links(chip: ChipConfig, copies: bool) -> tuple[int, int]:
        cut = micro_ops(stages_of(graph, chip), chip, Partition(4, 14, 4 * chip.lanes, 2 * chip.cols))
        outcome = program(cut, settled(cut, chip), chip, "klotski", copies=copies)
        proves(outcome, graph, chip)
        result = 0
        for op in outcome.schedule.operations:
            if isinstance(op, Move) and op.src.tile in chip.drams:
                (x, y), (to_x, to_y) = tile_position(op.src.tile), tile_position(op.dst.tile)
                result += op.words * (abs(x - to_x) + abs(y - to_y))
        return result, sum(tensor.name.startswith("a/w") for tensor in outcome.schedule.tensors)

    near, copies = links(load("klotski9"), True)
    far, one = links(load("klotski9"), False)
    assert near < 0.8 * far
    assert copies > 1 == one
    small = altered("klotski9", {"dram": {"words": 9000}})
    assert links(small, True)[1] == 1


@pytest.mark.parametrize("name", ["zigzag", "klotski:fineness=2"])
def test_schedulers_of_layers(name: str) -> None:
    """A layer is a network of one, with the tensors that layers have."""
    chip, make = load("klotski9"), find(name)
    shape = shapes.parse("conv:9x8x20-30,k3,s2,p1,relu")
    result = make(shape, chip, 300)
    assert [(tensor.name, tensor.role) for tensor in result.tensors] == [
        ("x", "input"), ("w", "constant"), ("bias", "constant"), ("y", "output"),
    ]  # fmt: skip
    check(lower(result, chip), chip, result)
    with pytest.raises(DoesNotFit, match="micro-ops are those of one image, not of 2; give it batch 1"):
        make(replace(shape, batch=2), chip, 300)
    core = chip.core.model_copy(update={"a_words": 2})
    with pytest.raises(DoesNotFit, match=r"layer conv:9x8x20-30,k3,s2,p1,relu: no part of it fits a core"):
        make(shape, chip.model_copy(update={"core": core}), 300)


def test_an_operand_without_room_names_the_layer_and_the_memory() -> None:
    tiny = load("tiny")
    core = tiny.core.model_copy(update={"a_words": 6, "b_words": 100, "acc_words": 8, "out_words": 8, "vec_words": 16})
    with pytest.raises(DoesNotFit, match="layer gemm:9x17x40: A of a tiny core has no room for an operand of 3 words"):
        find("zigzag")(shapes.parse("gemm:9x17x40"), tiny.model_copy(update={"core": core}), 300)
