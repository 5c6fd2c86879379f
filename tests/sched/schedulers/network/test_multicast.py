"""What several cores need, brought by one MOVE where routers copy packets: the same meaning, fewer words."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.sched.checker.check import check
from meshloom.sched.ir.dependences import Depends
from meshloom.sched.ir.functional import Memories, execute
from meshloom.sched.ir.schedule import Move, Operation, Span, writes
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.predict import predict
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.schedulers.network import refine, sharing_search
from meshloom.sched.schedulers.network.multicast import merged
from meshloom.sched.schedulers.network.refine import Effort, refined, with_effort
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, layer_of, schedule
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.workload import zoo
from meshloom.sched.workload.graph import Graph, Value
from meshloom.tb.verify.random_schedules import random_operations, schedule_of

from ...network_graphs import Grower, every_kind, square
from .test_networks import computes


def copying(built_in: str, *directions: str, **changes: Any) -> ChipConfig:
    values = load(built_in).model_dump(mode="json", exclude_none=True)
    noc = values["noc"] | {"data_vcs": 1, "route_hops": 0, "multicast": list(directions)}
    return ChipConfig.model_validate(values | {"noc": noc} | changes)


#: Seven cores in the lines of two DRAM channels, with small memories.
CHIP = copying(
    "quad8", "east", "south", name="seven",
    floorplan=["dram core core core", "dram core core core", "host core spm  spm"],
)  # fmt: skip


def words(result: NetworkSchedule, chip: ChipConfig) -> int:
    """What all MOVEs read of DRAM."""
    moves = [op for op in result.schedule.operations if isinstance(op, Move)]
    return sum(op.words for op in moves if op.src.tile in chip.drams)


def copies(result: NetworkSchedule) -> int:
    return sum(op.copies for op in result.schedule.operations if isinstance(op, Move))


def alike(random: Random, chip: ChipConfig, count: int) -> list[Operation]:
    """Random operations, among which many MOVEs bring the same words to other cores, too."""
    result: list[Operation] = []
    for op in random_operations(random, chip, count):
        result.append(op.model_copy(update={"copies": 0}) if isinstance(op, Move) else op)
        if isinstance(op, Move) and op.dst.tile in chip.cores:
            for tile in random.sample(chip.cores, random.randint(0, len(chip.cores))):
                if tile not in (op.dst.tile, op.src.tile):
                    dst = Span(tile=tile, address=op.dst.address, run=op.dst.run, stride=op.dst.stride)
                    result.append(op.model_copy(update={"dst": dst, "copies": 0}))
                    if random.random() < 0.3:
                        result += random_operations(random, chip, 1)
    return result


@pytest.mark.parametrize("seed", range(6))
def test_what_is_merged_means_the_same(seed: int) -> None:
    """Whatever reads and overwrites the words, and whoever else is moved for it."""
    random = Random(f"merged {seed}")
    operations = [op.model_copy(update={"copies": 0}) if isinstance(op, Move) else op for op in alike(random, CHIP, 40)]
    depends = Depends(operations, CHIP)
    order, copied = merged(operations, range(len(operations)), depends, CHIP, range(len(operations)))
    after = [operations[i].model_copy(update={"copies": copied[i]}) if i in copied else operations[i] for i in order]
    assert len(copied) >= 5
    assert len(after) == len(operations) - sum(copied.values())
    validate(schedule_of(after, CHIP), CHIP)
    first, then = Memories(CHIP), Memories(CHIP)
    for memories in (first, then):
        data = np.random.default_rng(seed)
        for dram in CHIP.drams:
            memories.region(dram, 0)[:400] = data.integers(0, 256, (400, CHIP.lanes), np.uint8)
    execute(operations, first)
    execute(after, then)
    for place in {(tile, region) for op in operations for tile, region, _ in writes(op, CHIP)}:
        assert np.array_equal(first.region(*place), then.region(*place)), place


#: Tiles of the upper row; where the words that all bring are.
DRAM, NEAR, FAR = 0x00, 0x01, 0x02
WORDS = Span(tile=DRAM, address=0, run=4)


def bring(tile: int) -> Move:
    """The same words to the same place of a core."""
    return Move(issuer=DRAM, src=WORDS, dst=WORDS.model_copy(update={"tile": tile}), words=4)


def send(tile: int, target: int, at: int = 0) -> Move:
    """What was brought there, on to another tile."""
    src, dst = WORDS.model_copy(update={"tile": tile}), Span(tile=target, address=at, run=4)
    return Move(issuer=tile, src=src, dst=dst, words=4)


@pytest.mark.parametrize(
    ("operations", "order", "copied"),
    [
        ([bring(FAR + 1), bring(FAR), bring(NEAR)], [0], {0: 2}),
        # the first core has read them before the second one's were brought: both come at first
        ([bring(NEAR), send(NEAR, DRAM, 100), bring(FAR)], [2, 1], {2: 1}),
        # what the second core had there is read before, and by then the first one still waits
        ([bring(NEAR), send(FAR, DRAM, 200), send(NEAR, DRAM, 100), bring(FAR)], [1, 3, 2], {3: 1}),
        # what the first core read goes to the second one, which sends it on before it gets its own
        ([bring(NEAR), send(NEAR, FAR), send(FAR, DRAM, 200), bring(FAR)], [0, 1, 2, 3], {}),
        # the same, and one more that can come with the second
        ([bring(NEAR), send(NEAR, FAR), send(FAR, DRAM, 200), bring(FAR), bring(FAR + 1)], [0, 1, 2, 4], {4: 1}),
    ],
)
def test_moves_become_one_where_none_waits_for_what_waits_for_another(
    operations: list[Operation], order: list[int], copied: dict[int, int]
) -> None:
    numbers = range(len(operations))
    assert merged(operations, numbers, Depends(operations, CHIP), CHIP, numbers) == (order, copied)


def test_operations_of_other_layers_stay_as_they_are() -> None:
    operations = alike(Random(1), CHIP, 30)
    plain = [op.model_copy(update={"copies": 0}) if isinstance(op, Move) else op for op in operations]
    order, copied = merged(plain, range(len(plain)), Depends(plain, CHIP), CHIP, ())
    assert (order, copied) == (list(range(len(plain))), {})


def rows() -> Graph:
    """Weights that all cores need for their part of the rows, and pictures that they share."""
    grower = Grower(9, Value("x", 8, 16, 16))
    last = grower.conv("b", grower.conv("a", "x", 32, square(3, 1, 1)), 32, square(3, 1, 1))
    return grower.graph("rows", grower.conv("c", last, 16))


def test_layers_whose_words_are_copied_compute_the_same() -> None:
    graph = rows()
    plain, shared = (
        schedule(graph, CHIP, sharing=SharingOptions(copied=frozenset(some)))
        for some in ((), [layer.output for layer in graph.layers])
    )
    layers = {layer_of(op.label) for op in shared.schedule.operations if isinstance(op, Move) and op.copies}
    assert len(layers) > 1
    single = schedule(graph, CHIP, sharing=SharingOptions(copied=frozenset([min(layers)])))
    assert {layer_of(op.label) for op in single.schedule.operations if isinstance(op, Move) and op.copies} == {
        min(layers)
    }
    assert words(shared, CHIP) < words(single, CHIP) < words(plain, CHIP)
    for result in (shared, single):
        computes(result, CHIP)


@pytest.mark.slow
def test_every_kind_of_layer_can_have_copies() -> None:
    graph = every_kind()
    result = schedule(graph, CHIP, sharing=SharingOptions(copied=frozenset(layer.output for layer in graph.layers)))
    assert copies(result) > 0
    computes(result, CHIP)


@pytest.mark.slow
def test_where_routers_copy_a_schedule_takes_no_longer() -> None:
    """The search compares the same as without, then copies besides; it keeps what the timeline model finds faster."""
    graph, plain = rows(), copying("quad8", name="seven", floorplan=CHIP.model_dump(mode="json")["floorplan"])
    without, result = refined(graph, plain), refined(graph, CHIP)
    assert predict(result.schedule, CHIP).cycles < predict(without.schedule, plain).cycles
    assert copies(result) > copies(without) == 0
    computes(result, CHIP)
    quick = with_effort(Effort.QUICK, graph, CHIP), with_effort(Effort.QUICK, graph, plain)
    assert predict(quick[0].schedule, CHIP).cycles <= predict(quick[1].schedule, plain).cycles


def test_chips_whose_routers_copy_nothing_are_searched_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, rest = list[SharingOptions](), list[int]()
    search = sharing_search.SharingSearch
    ever, outcome = search.try_, search.outcome
    monkeypatch.setattr(search, "try_", lambda self, one: (tried.append(one), ever(self, one)))
    monkeypatch.setattr(search, "outcome", lambda self, one: (rest.append(self.left), outcome(self, one))[1])
    refined(rows(), load("quad8"), most=2)
    assert not any(one.copied for one in tried)
    refined(rows(), copying("quad8", "east", "north"), most=2)
    assert next(len(one.copied) for one in tried if one.copied) == 3
    assert len([one for one in tried if one.copied]) >= refine.COPIED
    assert max(rest) == refine.AFTER_COPIES - 1, "so many more, and not what was left before"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet8", "ds_cnn"])
def test_networks_with_copies_can_run(name: str) -> None:
    chip = copying("nine8", "east", "south")
    graph = zoo.load(name)
    result = schedule(graph, chip, sharing=SharingOptions(copied=frozenset(layer.output for layer in graph.layers)))
    assert copies(result) > 20
    check(lower(result.schedule, chip), chip, result.schedule)


def test_where_whole_windows_have_no_room_a_quick_search_begins_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a chip whose routers copy nothing; copies are compared with that."""
    tried: list[SharingOptions] = []

    def schedule_unless(graph: Graph, chip: ChipConfig, progress: Any, memory: Any, sharing: Any, *more: Any) -> Any:
        if sharing.whole:
            raise DoesNotFit("whole windows are more words")
        tried.append(sharing)
        return schedule(graph, chip, progress, memory, sharing, *more)

    for module in (refine, sharing_search):
        monkeypatch.setattr(module, "schedule", schedule_unless)
    with_effort(Effort.QUICK, rows(), CHIP)
    assert [len(sharing.copied) for sharing in tried[:2]] == [0, 3]
    assert tried[0].pushed == tried[1].pushed != frozenset()
