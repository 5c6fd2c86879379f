"""Depthwise convolutions made in front of the 1x1 ones that read them, and the search that says where that pays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import OFFSET_BITS, Region
from meshloom.sched.ir.schedule import Move, Vec
from meshloom.sched.lowering.predict import predict
from meshloom.sched.schedulers import registry
from meshloom.sched.schedulers.network import refine, sharing_search
from meshloom.sched.schedulers.network.refine import refined
from meshloom.sched.schedulers.network.reuse import Reuse
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, Progress, schedule, search_cache
from meshloom.sched.schedulers.network.sharing import LAYERWISE, SharingOptions
from meshloom.sched.schedulers.network.sharing_search import SharingSearch
from meshloom.sched.store.findings import SearchCache
from meshloom.sched.workload.graph import Graph, Value, Window
from meshloom.sched.workload.stages import cut

from ...network_graphs import Grower, square
from .test_networks import computes

CHIP = load("quad8")
WINDOWS = {
    "3x3": square(3, 1, 1),
    "3x3 by 2": square(3, 2, 1),
    "5x5": square(5, 1, 2),
    "dilated": square(3, 1, 2, 2),
    "lopsided": Window(2, 5, 1, 3, 1, 0, 0, 2),
    "a row": Window(1, 3, 1, 1, 0, 1, 0, 1),
}


def chip(name: str = "quad8", /, **core: int) -> ChipConfig:
    values = load(name).model_dump()
    return ChipConfig.model_validate(values | {"name": "other", "core": values["core"] | core})


def pair(window: Window, channels: int = 21, size: tuple[int, int] = (13, 11), outputs: int = 18) -> Graph:
    """conv -> depthwise -> 1x1."""
    grower = Grower(3, Value("x", 3, *size))
    grower.conv("first", "x", channels, square(3, 1, 1), relu=True)
    grower.depthwise("dw", "first", window, relu=True, clamp=100)
    grower.conv("pw", "dw", outputs, relu=True)
    return grower.graph("pair", "pw")


def shares(made: NetworkSchedule, tensor: str) -> int:
    """Words of a tensor that VECs compute."""
    boxes = [op.result for op in made.schedule.operations if isinstance(op, Vec)]
    return sum(box.planes * box.rows * box.columns for box in boxes if box and box.tensor == tensor)


def within_cores(made: NetworkSchedule, on: ChipConfig) -> list[Move]:
    """MOVEs of results of the vector unit to A of the same core."""
    return [
        op
        for op in made.schedule.operations
        if isinstance(op, Move) and op.src.tile == op.dst.tile and op.src.tile in on.cores
    ]


@pytest.mark.parametrize("windows", [1, 5])
@pytest.mark.parametrize("name", WINDOWS)
def test_every_window(name: str, windows: int) -> None:
    on, graph = chip(vec_windows=windows), pair(WINDOWS[name])
    result = schedule(graph, on)
    computes(result, on)
    assert [stage.layer.output for stage in cut(graph, on).stages] == ["first", "pw"]
    moves = within_cores(result, on)
    assert moves
    for move in moves:
        assert move.src.address >> OFFSET_BITS == Region.VEC
        assert move.dst.address >> OFFSET_BITS == Region.MAIN
    value = graph.value("dw")
    assert shares(result, "dw") >= 3 * value.height * value.width, "every word is computed somewhere"
    stored = sum(
        op.words
        for op in result.schedule.operations
        if isinstance(op, Move) and op.src.address >> OFFSET_BITS == Region.VEC
    )
    assert stored == sum(move.words for move in moves), "and leaves no core"


@pytest.mark.parametrize(
    "core",
    [
        {"a_words": 150},
        {"vec_words": 40},
        {"b_words": 140, "acc_words": 24},
        {"a_words": 260, "b_words": 220, "acc_words": 40, "out_words": 60, "vec_words": 60},
    ],
    ids=str,
)
def test_small_memories(core: dict[str, int]) -> None:
    """One channel block and few rows at a time; or, where not even that fits, by itself."""
    on = chip(**core)
    for graph in (pair(WINDOWS["3x3"]), pair(WINDOWS["5x5"], channels=40, size=(9, 30))):
        computes(schedule(graph, on), on)


@pytest.mark.parametrize("name", ["tiny", "pe12x14", "mono16"])
def test_other_chips(name: str) -> None:
    computes(schedule(pair(WINDOWS["3x3 by 2"], size=(15, 9)), load(name)), load(name))


def residual() -> Graph:
    grower = Grower(4, Value("x", 12, 10, 10))
    grower.conv("expand", "x", 30, relu=True)
    grower.depthwise("dw", "expand", square(3, 1, 1), relu=True)
    grower.conv("project", "dw", 12)
    grower.add("sum", "project", "x")
    grower.depthwise("dw2", "sum", square(3, 1, 1))
    grower.conv("pw2", "dw2", 9, relu=True)
    grower.pool("pooled", "pw2", square(2, 2))
    return grower.graph("residual", "pooled")


def test_additions_and_pools_behind() -> None:
    graph = residual()
    for on in (CHIP, chip(vec_words=120), chip(out_words=64, vec_words=64)):
        result = schedule(graph, on)
        computes(result, on)
        assert within_cores(result, on)
    stages = cut(graph, CHIP).stages
    assert [(s.before and s.before.output, s.layer.output, s.epilogue and s.epilogue.output) for s in stages] == [
        (None, "expand", None),
        ("dw", "project", "sum"),
        ("dw2", "pw2", "pooled"),
    ]


def test_what_is_not_fused() -> None:
    """A depthwise layer that others read too, or an output; a convolution with a window; what is asked to be apart."""
    grower = Grower(5, Value("x", 8, 9, 9))
    for name in "abc":
        grower.depthwise(name, "x", square(3, 1, 1))
    grower.conv("a1", "a", 8)
    grower.conv("a2", "a", 8)
    grower.conv("b1", "b", 8)
    grower.conv("c1", "c", 8, square(3, 1, 1))
    graph = grower.graph("apart", "a1", "a2", "b1", "b", "c1")
    assert not any(stage.before for stage in cut(graph, CHIP).stages)
    computes(schedule(graph, CHIP), CHIP)
    graph = pair(WINDOWS["3x3"])
    for sharing in (LAYERWISE, SharingOptions(fused=False), SharingOptions(apart=frozenset({"pw"}))):
        result = schedule(graph, CHIP, sharing=sharing)
        computes(result, CHIP)
        assert not within_cores(result, CHIP)


# -- which of them pay -----------------------------------------------------------------------------------------------


def chain() -> Graph:
    grower = Grower(6, Value("x", 3, 16, 16))
    last = grower.conv("stem", "x", 16, square(3, 2, 1), relu=True)
    for index in range(3):
        last = grower.depthwise(f"dw{index}", last, square(3, 1 + index % 2, 1), relu=True)
        last = grower.conv(f"pw{index}", last, 24, relu=True)
    return grower.graph("chain", last)


def cycles(made: NetworkSchedule, on: ChipConfig = CHIP) -> int:
    return predict(made.schedule, on).cycles


def counting(monkeypatch: pytest.MonkeyPatch) -> list[SharingOptions]:
    """What each schedule that the search makes from now on shares."""
    result: list[SharingOptions] = []

    def counted(
        graph: Graph, on: ChipConfig, told: Progress | None, memory: SearchCache | None, sharing: SharingOptions,
        *reuse: Reuse,
    ) -> NetworkSchedule:  # fmt: skip
        result.append(sharing)
        return schedule(graph, on, told, memory, sharing, *reuse)

    for module in (refine, sharing_search):
        monkeypatch.setattr(module, "schedule", counted)
    return result


def counting_differences(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cycles foreseen of all schedules that a search has made and that were not as the best one."""
    result = list[int]()
    judged = SharingSearch.judged

    def counted(self: SharingSearch, sharing: SharingOptions) -> object:
        best = self.standing
        played, schedule = judged(self, sharing)
        if best is None or not played.same(best):
            result.append(played.estimate)
        return played, schedule

    monkeypatch.setattr(SharingSearch, "judged", counted)
    return result


def test_the_refined_schedule_is_no_slower_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, message = chain(), list[tuple[str, int, int]]()
    ways = [SharingOptions(), SharingOptions(apart=frozenset({"pw0", "pw1", "pw2"}))]
    memory = search_cache(tmp_path, CHIP)
    result = refined(graph, CHIP, lambda *what: message.append(what), memory)
    computes(result, CHIP)
    assert cycles(result) <= min(cycles(schedule(graph, CHIP, sharing=way)) for way in ways)
    compared = [what for what in message if what[0] == sharing_search.ANOTHER]
    assert compared[0][1:] == (1, refine.PAIRED.most)
    outcome = counting(monkeypatch)
    again = refined(graph, CHIP, None, search_cache(tmp_path, CHIP))
    assert again.schedule == result.schedule
    assert len(outcome) == 1, "only the best one is made"


def test_how_many_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    result = counting(monkeypatch)
    for most, count in ((0, 1), (1, 1), (2, 2)):
        result.clear()
        refined(chain(), CHIP, most=most)
        assert len(result) == count
    plain = Grower(7, Value("x", 3, 8, 8))
    plain.conv("one", "x", 8, square(3, 1, 1))
    plain.conv("two", "one", 8, square(3, 1, 1))
    graph = plain.graph("plain", "two")
    different = counting_differences(monkeypatch)
    refined(chain(), CHIP, most=5)
    assert len(different) == 5
    different.clear()
    result.clear()
    refined(graph, CHIP)
    assert len(different) == refine.PLAIN.most, "nothing to fuse: few schedules"
    assert len(result) > len(different), "those that change nothing do not count"
    different.clear()
    refined(graph, CHIP, most=7)
    assert len(different) == 7, "unless asked for"
    different.clear()
    monkeypatch.setattr(refine, "PLAIN", replace(refine.PLAIN, work=1))
    refined(graph, CHIP)
    assert len(different) == refine.PLAIN.least, "large networks: fewer"


def test_the_option() -> None:
    graph = chain()
    one = registry.find_network("loop_order:refine=1")(graph, CHIP, None)
    best = registry.find_network("loop_order")(graph, CHIP, None)
    assert one.schedule.scheduler == "loop_order:refine=1"
    assert cycles(best) <= cycles(one)
    with pytest.raises(registry.SchedulerError, match=r"refine = .-1. must be at least 0"):
        registry.find_network("loop_order:refine=-1")
