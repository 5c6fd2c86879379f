"""What the network scheduler's order and places rest on: dependences, interleaving, storage."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.hw.spec.isa import Region, address
from meshloom.sched.ir.dependences import Depends
from meshloom.sched.ir.schedule import Access, Gemm, Move, Operation, Span, reads, writes
from meshloom.sched.mapping.memory.placement import Dram
from meshloom.sched.mapping.nodes import Node, Run
from meshloom.sched.mapping.play.interleave import Interleaver
from meshloom.sched.schedulers.network import reuse, scheduler
from meshloom.sched.schedulers.network.scheduler import HORIZONS, NetworkSchedule, schedule
from meshloom.sched.schedulers.network.storage import homes, kind_of, lives, place, staging_words
from meshloom.sched.workload.stages import cut

from ...network_graphs import every_kind, places, random_network

Word = tuple[int, int, int]  # tile, region, offset


def words(accesses: list[Access]) -> set[Word]:
    return {
        (access.tile, int(access.region), at)
        for access in accesses
        for low, high in access.intervals
        for at in range(low, high)
    }


def defined(operations: list[Operation], chip: ChipConfig) -> tuple[list[set[int]], list[set[int]]]:
    """For each operation, by words: who wrote what it reads; who wrote or has read what it overwrites."""
    writer: dict[Word, int] = {}
    readers: dict[Word, set[int]] = {}
    data, room = [], []
    for index, op in enumerate(operations):
        read, written = words(reads(op, chip)), words(writes(op, chip))
        data.append({writer[word] for word in read if word in writer})
        for word in read:
            readers.setdefault(word, set()).add(index)
        before: set[int] = set()
        for word in written:
            before |= readers.get(word, set()) | ({writer[word]} if word in writer else set())
            writer[word], readers[word] = index, set()
        room.append(before - {index} - data[-1])
    return data, room


def some_moves(seed: int, chip: ChipConfig) -> list[Operation]:
    """Moves with runs and strides that cross pages and each other."""
    random = Random(seed)
    tiles = (*chip.drams, *chip.spms)

    def span(run: int) -> Span:
        at = random.choice((random.randrange(60), 1000 + random.randrange(40)))
        return Span(tile=random.choice(tiles), address=at, run=run, stride=run + random.randrange(5))

    result: list[Operation] = []
    for _ in range(60):
        words = random.randrange(1, 50)
        result.append(
            Move(issuer=tiles[0], src=span(random.randrange(1, 60)), dst=span(random.randrange(1, 60)), words=words)
        )
    return result


@pytest.mark.parametrize("seed", range(5))
def test_dependences_of_moves_are_those_of_their_words(seed: int) -> None:
    chip = load("tiny")
    operations = some_moves(seed, chip)
    data, room = defined(operations, chip)
    result = Depends(operations, chip)
    assert result.data == data
    assert result.room == room


def test_dependences_of_a_network_are_those_of_its_words() -> None:
    chip = load("tiny")
    operations = list(schedule(every_kind(10, 6), chip).schedule.operations)
    assert {op.kind for op in operations} == {"move", "gemm", "vec"}
    data, room = defined(operations, chip)
    result = Depends(operations, chip)
    assert result.data == data
    assert result.room == room


class Watched(Interleaver):
    """Keeps what the scheduler had it reorder."""

    last: Watched

    def __init__(self, nodes: Any, chip: ChipConfig, **known: Any) -> None:
        super().__init__(nodes, chip, **known)
        Watched.last = self


@pytest.mark.parametrize("name", ["tiny", "quad8"])
def test_every_order_respects_every_dependence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "Interleaver", Watched)
    chip = load(name)
    outcome = schedule(every_kind(), chip)
    before = [node.operation() for node in Watched.last.nodes]
    depends = Depends(before, chip)
    result = {horizon: Watched.last.run(horizon) for horizon in (0, *HORIZONS)}
    for one in result.values():
        assert sorted(one.order) == list(range(len(before)))
        turn = {index: at for at, index in enumerate(one.order)}
        for index in range(len(before)):
            for other in depends.data[index] | depends.room[index]:
                assert turn[other] < turn[index]
    best = min((result[horizon] for horizon in HORIZONS), key=lambda one: one.cycles)
    assert outcome.schedule.operations == tuple(before[index] for index in best.order)


def test_layers_overlap() -> None:
    """Operations of a layer come before the last ones of the layer before, and weights long before their layer."""
    result = schedule(every_kind(), load("quad8"))
    layers = [scheduler.layer_of(op.label) for op in result.schedule.operations]
    first = {layer: layers.index(layer) for layer in layers}
    last = {layer: len(layers) - 1 - layers[::-1].index(layer) for layer in layers}
    assert first["right"] < last["left"], "branches are mixed"
    ops = result.schedule.operations
    computing = {
        layer: min(i for i, op in enumerate(ops) if layers[i] == layer and op.kind != "move") for layer in first
    }
    assert first["wide"] < computing["right"], "weights are fetched while the layers before compute"


def test_one_operation_at_a_time_is_an_order_too() -> None:
    chip = load("tiny")
    ones = ("pixels", "n_blocks", "k_blocks", "kernel_h", "kernel_w", "a_plane")
    node = Node(chip.cores[0], [], "alone", fields=dict.fromkeys(ones, 1), cycles=4)
    assert Interleaver([node], chip).run(0).order == [0]
    assert Interleaver([], chip).run(0).order == []


def choked(chip: ChipConfig) -> list[Node]:
    """A core makes ten results in one place; another reads each of them behind ten operations of its own, which the
    first then has, too."""
    maker, reader = chip.cores[:2]
    ones = dict.fromkeys(("pixels", "n_blocks", "k_blocks", "kernel_h", "kernel_w", "a_plane"), 1)

    def gemm(core: int, number: int, reads: int, after: list[Node]) -> Node:
        fields = ones | {"a_base": reads, "dest_base": int(core == reader)}
        return Node(core, after, f"{core} {number}", fields=fields, cycles=1000)

    result = [gemm(reader, number, 100, []) for number in range(10)]
    sent: list[Node] = []
    for number in range(10):
        result.append(gemm(maker, number, 100, []))
        source = Run(maker, address(Region.OUT, 0), 1, 1)
        target = Run(reader, address(Region.MAIN, number), 1, 1)
        sent.append(Node(maker, [result[-1]], f"send {number}", source, target, 1))
        result.append(sent[-1])
    result += [gemm(reader, 10 + number, number, [send]) for number, send in enumerate(sent)]
    return [*result, *(gemm(maker, 10 + number, 100, []) for number in range(10))]


def test_what_a_core_sends_at_once_makes_room_for_what_it_makes_next() -> None:
    """Held back until its use is near, each result keeps its core from going on."""
    chip = load("quad8")
    interleaver = Interleaver(choked(chip), chip)
    held, sent = interleaver.run(0), interleaver.run(0, at_once=True)
    assert 20_000 <= sent.cycles < 21_000, "both cores compute twenty times without a pause"
    assert held.cycles > 25_000
    assert sorted(held.order) == sorted(sent.order) == list(range(len(interleaver.nodes)))


def test_horizons_below_two_operations_are_one_horizon() -> None:
    interleaver = Interleaver(choked(load("quad8")), load("quad8"))
    assert interleaver.run(0) is interleaver.run(2000)
    assert interleaver.run(0) is not interleaver.run(0, at_once=True)
    assert interleaver.run(6000).cycles < interleaver.run(0).cycles


# -- storage ------------------------------------------------------------------------------------------------------


def taken(made: NetworkSchedule, chip: ChipConfig) -> None:
    """Pieces of tensors in DRAM do not overlap."""
    result = [place for tensor in made.schedule.tensors for place in places(tensor)]
    for (tile, low, high), (other, start, stop) in combinations(result, 2):
        assert tile != other or high <= start or stop <= low


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("words_of_bank", [64, 400, 1000, 16384])
def test_tensors_that_live_at_a_time_lie_apart(seed: int, words_of_bank: int) -> None:
    chip = load("quad8").model_copy(update={"spm_words": words_of_bank})
    stages = cut(random_network(seed), chip)
    stored, spilled = place(stages, chip, Dram(chip))
    alive = lives(stages)
    assert {life.name for life in alive} == set(stored)
    assert spilled >= {stages.roots[name][0] for name in stages.graph.outputs}
    held: dict[str, set[tuple[int, int]]] = {}
    for life in alive:
        where = stored[life.name]
        kind = kind_of(where, chip)
        assert kind is (TileKind.DRAM if life.name in spilled else TileKind.SPM)
        assert {chip.tiles[tile] for tile in where.homes} == {kind}
        pieces = where.pieces()
        assert sum(piece.words for piece in pieces) == life.words
        held[life.name] = {(p.tile, p.address + at) for p in pieces for at in range(p.words)}
        assert len(held[life.name]) == life.words
        if kind is TileKind.SPM:
            addresses = [address for _, address in held[life.name]]
            assert staging_words(chip) <= min(addresses), "the lower part is for weights on their way"
            assert max(addresses) < chip.spm_words
    for one, other in combinations(alive, 2):
        if one.first <= other.last and other.first <= one.last:
            assert not held[one.name] & held[other.name], f"{one.name} and {other.name}"


def test_lives_are_from_the_making_to_the_last_reading() -> None:
    stages = cut(every_kind(), load("tiny"))
    at = {stage.y: index for index, stage in enumerate(stages.stages)}
    result = {life.name: (life.first, life.last) for life in lives(stages)}
    assert result["one"] == (at["one"], at["residual"]), "the addition behind `wide` reads it"
    assert result["fire"] == (at["left"], at["residual"]), "made in two parts, read by `wide`"
    assert "left" not in result
    assert "stem" not in result, "it is pooled in the core"
    assert result["scores"] == (at["scores"], len(stages.stages)), "an output stays"


def test_a_tensor_is_spread_over_all_tiles() -> None:
    tiles = [3, 5, 9]
    cuts, home = homes([7], 4, tiles)
    assert cuts == [0]
    assert [home(plane, 0) for plane in range(7)] == [3, 3, 5, 5, 9, 9, 9]
    cuts, home = homes([1], 7, tiles)
    assert [home(0, segment) for segment in range(len(cuts))] == tiles
    cuts, home = homes([1], 2, tiles)
    assert len(cuts) == 2, "no more segments than rows"
    cuts, home = homes([1, 2, 3], 4, tiles)
    assert [home(plane, 0) for plane in range(6)] == [3, 5, 9, 3, 5, 9]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_in_dram_overlaps(seed: int) -> None:
    chip = load("quad8").model_copy(update={"spm_words": 128})
    taken(schedule(random_network(seed), chip), chip)


def test_layers_that_follow_each_other_use_opposite_ends() -> None:
    """So that operands of the next one can come while the last GEMMs of this one run."""
    chip = load("quad8")
    result = schedule(every_kind(10, 9), chip)
    sums: dict[str, set[int]] = {}
    for op in result.schedule.operations:
        if isinstance(op, Gemm):
            for access in reads(op, chip):
                if access.region is Region.B:
                    sums.setdefault(scheduler.layer_of(op.label), set()).update(access.intervals[0])
    following = [("one", "left"), ("left", "right"), ("right", "wide")]
    for before, after in following:
        assert max(sums[before]) <= min(sums[after]) or max(sums[after]) <= min(sums[before])
