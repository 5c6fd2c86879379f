"""Loop nests: of sequences whose nest is known, and of schedules, whoever made them and whatever their labels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from meshloom.hw.spec.config import TileKind, load
from meshloom.sched.ir.schedule import Move, Schedule
from meshloom.sched.workload.catalog import find
from meshloom.tb.compare.nests import nest_of
from meshloom.tb.compare.tiles import layers_of
from meshloom.tb.report.loops import nest_lines
from meshloom.tb.results.nests import GemmTile, LayerTiles, Nest
from meshloom.tb.runs.runner import prepare

from .command_line import invoke

CHIP = load("quad8")


def tiles(
    points: Sequence[tuple[int, int, int]], core: int = 1, loads: Sequence[tuple[int, int]] = ()
) -> list[GemmTile]:
    """GEMMs of these tiles (p, n, k), each with the words that it is the first to read."""
    fresh = loads or [(0, 0)] * len(points)
    return [GemmTile(core, p, n, k, 16, 8, 32, words) for (p, n, k), words in zip(points, fresh, strict=True)]


def nest(points: Sequence[tuple[int, int, int]], loads: Sequence[tuple[int, int]] = ()) -> Nest:
    result = nest_of(tiles(points, loads=loads))
    assert result is not None
    return result


def loops(one: Nest) -> list[tuple[str, int]]:
    return [("".join(loop.dimensions), loop.count) for loop in one.loops]


@pytest.mark.parametrize("order", ["pnk", "pkn", "npk", "nkp", "kpn", "knp"])
def test_every_order_of_three_loops(order: str) -> None:
    sizes = {"p": 4, "n": 3, "k": 2}
    points = []
    for indices in product(*(range(sizes[name]) for name in order)):
        at = dict(zip(order, indices, strict=True))
        points.append((at["p"], at["n"], at["k"]))
    result = nest(points)
    assert loops(result) == [(name, sizes[name]) for name in order]
    assert result.share == 1


def test_a_dimension_in_two_loops() -> None:
    """Two groups of two pixel tiles, all channels for each group."""
    result = nest([(2 * outer + inner, n, 0) for outer in range(2) for n in range(3) for inner in range(2)])
    assert loops(result) == [("p", 2), ("n", 3), ("p", 2)]


def test_a_loop_that_turns_back() -> None:
    points = [(p, n if p % 2 == 0 else 2 - n, 0) for p in range(4) for n in range(3)]
    result = nest(points)
    assert loops(result) == [("p", 4), ("n", 3)]
    assert [loop.reverses for loop in result.loops] == [False, True]


def test_dimensions_in_step_and_no_nest_at_all() -> None:
    assert loops(nest([(i, i, 0) for i in range(3)])) == [("pn", 3)]
    mixed = nest([(0, 0, 0), (1, 1, 0), (0, 1, 0), (1, 0, 0)])
    assert loops(mixed) == [("", 4)]
    assert mixed.share == 0
    assert nest_of([]) is None


def test_what_comes_in_which_loop_and_stays() -> None:
    """Inputs come for each pixel tile and stay for all channels; weights come with the first tile and stay."""
    points = [(p, n, 0) for p in range(4) for n in range(3)]
    loads = [(64 if n == 0 else 0, 32 if p == 0 else 0) for p, n, _ in points]
    outer, inner = nest(points, loads).loops
    assert [(load.memory, load.words, load.once) for load in outer.loads] == [("A", 64, ())]
    assert [(load.memory, load.words, load.once) for load in inner.loads] == [("B", 32, (0,))]
    once = nest(points, [(64 if n == 0 else 0, 96 if (p, n) == (0, 0) else 0) for p, n, _ in points])
    assert [(load.memory, load.words) for load in once.before] == [("B", 96)]


def test_what_cores_divide_among_themselves() -> None:
    points = {1: [(p, 0, 0) for p in range(2)], 2: [(p, 1, 0) for p in range(2)]}
    result = nest_of([each for core, those in points.items() for each in tiles(those, core)])
    assert result is not None
    assert (result.cores, result.parts) == (2, {"p": 1, "n": 2, "k": 1})


@pytest.fixture(scope="module")
def schedules() -> dict[str, Schedule]:
    layer = find("conv:8x8x16-24,k3,p1")[0]
    return {name: prepare(layer, CHIP, name).schedule for name in ("loop_order", "zigzag")}


@pytest.mark.parametrize("name", ["loop_order", "zigzag"])
def test_words_that_are_moved_are_those_of_the_moves(name: str, schedules: dict[str, Schedule]) -> None:
    schedule = schedules[name]
    (layer,) = layers_of(schedule, CHIP).values()
    moves = [op for op in schedule.operations if isinstance(op, Move)]
    assert sum(flow.moved for flow in layer.flows.values()) == sum(op.words for op in moves)
    into_b = [flow for (_, target), flow in layer.flows.items() if target == "B"]
    assert len(set[int]().union(*(flow.values for flow in into_b))) == schedule.tensor("w").words
    written = sum(op.words for op in moves if CHIP.tiles[op.dst.tile] is TileKind.DRAM)
    assert sum(flow.moved for (_, target), flow in layer.flows.items() if target == "DRAM") == written
    assert schedule.predicted is not None
    stays = [flow.stays / flow.stayed for flow in into_b if flow.stayed]
    assert stays
    assert all(0 < cycles < schedule.predicted.cycles for cycles in stays)


@pytest.mark.parametrize("name", ["loop_order", "zigzag"])
def test_labels_have_no_part_in_it(name: str, schedules: dict[str, Schedule]) -> None:
    schedule = schedules[name]
    bare = tuple(op.model_copy(update={"label": ""}) for op in schedule.operations)
    (labelled,), (other,) = (
        layers_of(each, CHIP).values() for each in (schedule, schedule.model_copy(update={"operations": bare}))
    )
    assert labelled.gemms == other.gemms
    assert nest_of(labelled.gemms) == nest_of(other.gemms)


@pytest.mark.parametrize(
    ("vectors", "cycles", "line"),
    [
        (0, None, "fc: 2 GEMMs"),
        (1200, None, "fc: 2 GEMMs, 1,200 VECs"),
        (0, (1000, 25000), "fc: 2 GEMMs, cycles 1,000..25,000"),
    ],
)
def test_the_first_line_of_a_layer(vectors: int, cycles: tuple[int, int] | None, line: str) -> None:
    layer = LayerTiles(tiles([(0, 0, 0), (1, 0, 0)]), vectors, cycles=cycles)
    assert nest_lines("fc", layer, CHIP) == [line]


def test_it_is_shown(folder: Path) -> None:
    shown = invoke("schedule", "gemm:64x256x64", "--chip", "quad8", "--loops")
    assert shown.exit_code == 0, shown.output
    assert "loop nests of gemm:64x256x64 on quad8 by loop_order, from its operations" in shown.output
    for text in (
        "parallel: 4 of 4 cores, which divide output channels in",
        "for k in 2:",
        "words into B each",
        "GEMM:",
    ):
        assert text in shown.output
    assert "cycles they stay" in shown.output
    assert "loop nests" not in invoke("schedule", "gemm:16x16x16", "--chip", "quad8").output


@pytest.mark.slow
def test_networks_have_a_nest_for_each_layer(folder: Path) -> None:
    output = invoke("schedule", "resnet8", "--chip", "quad8", "--loops").output
    for layer in ("conv1", "conv3_1_2", "fc"):
        assert f"\n{layer}: " in output
