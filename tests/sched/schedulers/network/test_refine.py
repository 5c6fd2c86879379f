"""What the search over whole schedules may vary: whole windows, who sends, staging, the order of tiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest

from meshloom.hw.spec.config import ChipConfig, TileKind, load
from meshloom.sched.ir.hazards import dependences
from meshloom.sched.ir.schedule import Move
from meshloom.sched.lowering.predict import lowered, predict
from meshloom.sched.lowering.programs import checked
from meshloom.sched.mapping.memory.placement import Dram
from meshloom.sched.mapping.play.replay import replay
from meshloom.sched.mapping.tiling.plan import plan
from meshloom.sched.mapping.tiling.problem import DoesNotFit, pose, whole_windows
from meshloom.sched.mapping.tiling.tiles import Candidate, parts
from meshloom.sched.program.program import ProgramError
from meshloom.sched.schedulers.network import conv, refine, sharing_search
from meshloom.sched.schedulers.network.refine import Effort, refined, with_effort
from meshloom.sched.schedulers.network.reuse import Reuse
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, layer_of, schedule, search_cache
from meshloom.sched.schedulers.network.sharing import SWITCHES, SharingOptions
from meshloom.sched.schedulers.network.sharing_search import SharingSearch
from meshloom.sched.schedulers.network.storage import SMALL_SHARE, staging_words
from meshloom.sched.workload import zoo
from meshloom.sched.workload.graph import Graph, Value
from meshloom.sched.workload.layers import ConvShape
from meshloom.sched.workload.layout import ActivationLayout, PackedWindow

from ....tiers import slow_but
from ...network_graphs import Grower, square
from .test_networks import computes

CHIP = load("quad8")


def picture(channels: int, outputs: int, window: int, stride: int, size: int, pooled: bool = False) -> Graph:
    """A picture, a convolution, maybe a max pool, another convolution."""
    grower = Grower(8, Value("x", channels, size, size + 3))
    last = grower.conv("first", "x", outputs, square(window, stride, window // 2), relu=True)
    if pooled:
        last = grower.pool("pool", last, square(3, 2, 1))
    last = grower.conv("second", last, 12, square(3, 1, 1))
    return grower.graph("picture", last)


def first(graph: Graph) -> ConvShape:
    return graph.conv_shape(graph.layers[0])


def packed(made: NetworkSchedule) -> list[PackedWindow]:
    """The windows that the host packs."""
    layouts = [tensor.layout for tensor in made.schedule.tensors if isinstance(tensor.layout, ActivationLayout)]
    return [layout.packed_kw for layout in layouts if layout.packed_kw]


# -- whole windows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["quad8", "pe12x14"])
@pytest.mark.parametrize(
    ("channels", "window", "stride", "pooled"), [(3, 3, 2, False), (3, 3, 2, True), (1, 5, 1, False), (3, 7, 2, True)]
)
def test_whole_windows_compute_the_same(name: str, channels: int, window: int, stride: int, pooled: bool) -> None:
    on, graph = load(name), picture(channels, 24, window, stride, 13, pooled)
    result = schedule(graph, on, sharing=SharingOptions(whole=True))
    computes(result, on)
    assert [window.kernel_h > 1 for window in packed(result)] == (
        [whole_windows(first(graph), on)] if pose(first(graph), on).packed else []
    )


def test_when_whole_windows_are_taken() -> None:
    """Where arrays are the limit or as many words are fetched; not where the picture would come twice for nothing."""
    on = load("quad16")
    strided = first(picture(3, 32, 3, 2, 32))
    assert whole_windows(strided, on), "two windows of 16 lanes instead of three, as many words"
    assert not whole_windows(first(picture(3, 16, 3, 1, 32)), on), "few outputs: DRAM would be the limit"
    assert whole_windows(first(picture(3, 64, 3, 1, 32)), on), "many outputs: the arrays are"
    slow = ChipConfig.model_validate(on.model_dump() | {"name": "slow", "dram": {"bytes_per_cycle": 2}})
    assert not whole_windows(first(picture(3, 64, 3, 1, 32)), slow)
    rows = pose(strided, on)
    whole = pose(strided, on, packed=True, whole=True)
    assert (rows.k_blocks * rows.taps, whole.k_blocks * whole.taps) == (3, 2)
    assert whole.flat
    assert whole.ideal_cycles == rows.ideal_cycles * 2 / 3


def test_one_kernel_row_has_no_rows_to_pack() -> None:
    shape = first(picture(3, 32, 3, 2, 32))
    assert not whole_windows(replace(shape, kernel_h=1, pad_top=0, pad_bottom=0), load("quad16"))


# -- what a layer may do otherwise -----------------------------------------------------------------------------------


def layers() -> Graph:
    grower = Grower(9, Value("x", 3, 10, 10))
    last = grower.conv("one", "x", 24, square(3, 1, 1), relu=True)
    last = grower.conv("two", last, 24, square(3, 1, 1), relu=True)
    last = grower.conv("three", last, 40, square(3, 2, 1))
    return grower.graph("layers", last)


@pytest.mark.parametrize("kind", [TileKind.SPM, TileKind.DRAM])
def test_memories_send_on_their_own(kind: TileKind) -> None:
    graph = layers()
    result = schedule(graph, CHIP, sharing=SharingOptions(pushed=frozenset({("two", kind)})))
    computes(result, CHIP)
    moves = [op for op in result.schedule.operations if isinstance(op, Move) and CHIP.tiles[op.src.tile] is kind]
    sent = [op for op in moves if layer_of(op.label) == "two" and op.dst.tile in CHIP.cores]
    assert sent
    assert all(op.issuer == op.src.tile for op in sent)
    others = [op for op in moves if layer_of(op.label) != "two" and op.dst.tile in CHIP.cores]
    assert others
    assert all(op.issuer == op.dst.tile for op in others)


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches(switch: str) -> None:
    graph, turned = layers(), frozenset((name, switch) for name in ("one", "two", "three"))
    computes(schedule(graph, CHIP, sharing=SharingOptions(turned=turned)), CHIP)


def test_edges_first() -> None:
    """A core's last tile is the second that it computes."""
    problem = pose(first(picture(8, 8, 3, 1, 40)), CHIP)
    candidate = Candidate(2, 1, False, 4, 43, 1, 1, "input")
    part = parts(problem, CHIP, candidate)[1]
    rows = [step.item.m.r0 for step in plan(problem, CHIP, candidate, part).steps]
    edges = [step.item.m.r0 for step in plan(problem, CHIP, replace(candidate, edges=True), part).steps]
    assert rows == [20, 24, 28, 32, 36]
    assert edges == [20, 36, 24, 28, 32]


def test_a_smaller_staging_area_leaves_room_for_maps() -> None:
    """A map that fits fifteen sixteenths of the banks, and not three quarters of them."""
    words = 16 * 19 * 4 // len(CHIP.spms)  # of "one" in each bank
    on = ChipConfig.model_validate(CHIP.model_dump() | {"name": "small", "spm_words": words * 8 // 7})
    assert on.spm_words - staging_words(on) < words <= on.spm_words - staging_words(on, SMALL_SHARE)
    grower = Grower(9, Value("x", 3, 16, 19))
    grower.conv("one", "x", 32, square(3, 1, 1))
    grower.conv("two", "one", 16)
    spilled: dict[int, tuple[str, ...]] = {}
    for share in (4, SMALL_SHARE):
        result = schedule(grower.graph("maps", "two"), on, sharing=SharingOptions(staging=share))
        computes(result, on)
        spilled[share] = result.spilled
    assert spilled == {4: ("one", "two"), SMALL_SHARE: ("two",)}


# -- the search ------------------------------------------------------------------------------------------------------


def test_it_is_never_slower_and_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = layers()
    alone = refined(graph, CHIP, most=12)
    computes(alone, CHIP)
    assert predict(alone.schedule, CHIP).cycles <= predict(schedule(graph, CHIP).schedule, CHIP).cycles
    memory, result = search_cache(tmp_path, CHIP), list[SharingOptions]()

    def stops(*args: Any) -> NetworkSchedule:
        if len(result) == 7:
            raise KeyboardInterrupt
        result.append(args[-1])
        return schedule(*args)

    monkeypatch.setattr(sharing_search, "schedule", stops)
    with pytest.raises(KeyboardInterrupt):
        refined(graph, CHIP, memory=memory, most=12)
    monkeypatch.undo()
    assert refined(graph, CHIP, memory=search_cache(tmp_path, CHIP), most=12).schedule == alone.schedule


def test_hopeless_ones_are_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    played = list[int]()

    def counted(*args: Any) -> object:
        played.append(1)
        return lowered(*args)

    monkeypatch.setattr(sharing_search, "lowered", counted)
    refined(layers(), CHIP, most=12)
    some = len(played)
    assert some < 12, "equal schedules are not played twice"
    played.clear()
    monkeypatch.setattr(sharing_search, "HOPELESS", 0.5)
    refined(layers(), CHIP, most=12)
    assert len(played) == 1


@pytest.mark.parametrize("short", [1, 2])
def test_schedules_whose_code_has_no_room_lose(short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first or the second one that is played; if all have none, that is said."""
    played = list[int]()

    def lowered_unless(*args: Any) -> object:
        played.append(1)
        if short in (len(played), 0):
            raise ProgramError("9 words of code do not fit")
        return lowered(*args)

    monkeypatch.setattr(sharing_search, "lowered", lowered_unless)
    assert refined(layers(), CHIP, most=4).lowered is not None
    short = 0
    with pytest.raises(ProgramError, match="9 words of code do not fit"):
        refined(layers(), CHIP, most=4)


@pytest.mark.parametrize("effort", [Effort.QUICK, Effort.DEFAULT])
@pytest.mark.parametrize("name", slow_but(("layers", "depthwise"), "layers"))
def test_whole_windows_need_not_fit(name: str, effort: Effort, monkeypatch: pytest.MonkeyPatch) -> None:
    def schedule_unless(graph: Graph, chip: ChipConfig, progress: Any, memory: Any, sharing: Any, *more: Any) -> object:
        if sharing.whole:
            raise DoesNotFit("whole windows are too many words")
        return schedule(graph, chip, progress, memory, sharing, *more)

    for module in (refine, sharing_search):
        monkeypatch.setattr(module, "schedule", schedule_unless)
    graph = layers() if name == "layers" else zoo.load("ds_cnn")
    if effort is Effort.DEFAULT:
        assert refined(graph, CHIP, most=2).schedule.operations
    else:
        assert with_effort(effort, graph, CHIP).schedule.operations


def test_the_program_of_the_best_is_at_hand() -> None:
    """What the search has lowered and played is what would be lowered and played again, unless somebody changes it."""
    graph = layers()
    result = refined(graph, CHIP, most=3)
    done, plain = result.lowered, lowered(result.schedule, CHIP)
    assert done is not None
    assert done.is_of(result.schedule)
    assert (done.program, done.timeline) == (plain.program, plain.timeline)
    fewer = result.schedule.model_copy(update={"operations": result.schedule.operations[:-1]})
    assert not done.is_of(fewer)
    assert checked(done, CHIP) is done.program


def pairs() -> Graph:
    grower = Grower(3, Value("x", 3, 8, 8))
    last = grower.depthwise("dw1", grower.conv("first", "x", 8), square(3, 1, 1))
    last = grower.depthwise("dw2", grower.conv("pw1", last, 8), square(3, 1, 1))
    return grower.graph("pairs", grower.conv("pw2", last, 8))


def streamed() -> Graph:
    """Most weights are of a layer with four pixels."""
    grower = Grower(3, Value("x", 3, 6, 6))
    return grower.graph("streamed", grower.conv("small", grower.conv("large", "x", 8), 16, square(3, 3, 0)))


SENT = "pushed:3 whole=False, whole=False, turned:3, pushed:3, turned:3 pushed:3, pushed:0, turned:3 pushed:0"
PUSHED, HORIZON = "pushed:5, pushed:10, pushed:5, staging=16", "horizon=1500, horizon=4000, horizon=12000"
ONE = "turned:1, turned:1, turned:1, turned:1, turned:1, second:1, third:1"


@pytest.mark.parametrize(
    ("graph", "more", "order"),
    [
        (layers, {}, f"{SENT}, staging=16, {HORIZON}, pushed:5, {ONE}, pushed:5"),
        (layers, {"spilled": True}, f"{SENT}, staging=16, between=planes, {HORIZON}"),
        (layers, {"planner": Mock(key="it")}, f"{SENT}, staging=16, {HORIZON}, planned:1, planned:1, planned:1"),
        (streamed, {}, f"{SENT.replace('3', '2')}, deep=True, staging=16, {HORIZON}"),
        (pairs, {}, f"{PUSHED}, apart:2, expanded:1, {HORIZON}, whole=False, expanded:2, apart:1, apart:1, expanded:1"),
        (pairs, {"spilled": True}, f"{PUSHED}, apart:2, expanded:1, between=planes, {HORIZON}"),
        (pairs, {"large": True}, f"apart:2, expanded:1, expanded:2, {PUSHED}, {HORIZON}, whole=False, apart:1"),
        (pairs, {"quick": True}, "<1 apart:2, <1 expanded:1, pushed:5, pushed:10, <1 expanded:2, <1 apart:1"),
        (
            pairs, {"quick": True, "spilled": True},
            "<1 apart:2, <1 expanded:1, <1 staging=16, <1 between=planes, pushed:5, pushed:10",
        ),
        (streamed, {"quick": True}, "deep=True"),
    ],
)  # fmt: skip
def test_what_is_compared_in_which_order(
    graph: Callable[[], Graph], more: dict[str, Any], order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the first schedule is the best: what is otherwise in each, of sets how many entries. `<1`: only if the
    estimate is no longer."""
    network, tried = graph(), list[SharingOptions]()
    names, words = tuple(layer.output for layer in network.layers), list[str]()

    def judged(search: SharingSearch, sharing: SharingOptions) -> tuple[Any, object]:
        tried.append(sharing)
        now = {field.name: getattr(sharing, field.name) for field in fields(sharing)}
        now = {name: now[name] for name in now if now[name] != getattr(tried[0], name) and name != "planner"}
        each = [f"{name}:{len(one)}" if isinstance(one, frozenset) else f"{name}={one}" for name, one in now.items()]
        words.append(" ".join(["<1"] * (search.hopeless == 1) + each))
        operations = sharing_search.LARGE + 1 if more.get("large") else 1
        played = {"cycles": len(tried), "worst": names, "alone": names, "spilled": more.get("spilled", False)}
        return sharing_search.Standing(1, operations, **played), object()

    monkeypatch.setattr(SharingSearch, "judged", judged)
    if more.get("quick"):
        with_effort(Effort.QUICK, network, CHIP)
    else:
        refined(network, CHIP, most=order.count(",") + 2, planner=more.get("planner"))
    assert ", ".join(words[1:]) == order


# -- work ------------------------------------------------------------------------------------------------------------


def test_effort_is_work() -> None:
    """A quick search makes one schedule of a network without pairs, a usual one a few, and none is slower for it."""
    graph, cycles, outcome = layers(), dict[Effort, int](), dict[Effort, int]()
    for effort in (Effort.QUICK, Effort.DEFAULT):
        steps = list[str]()
        result = with_effort(effort, graph, CHIP, lambda name, _number, _of, steps=steps: steps.append(name))
        cycles[effort], outcome[effort] = predict(result.schedule, CHIP).cycles, 1 + steps.count(sharing_search.ANOTHER)
    assert outcome == {Effort.QUICK: 1, Effort.DEFAULT: refine.PLAIN.most}
    assert cycles[Effort.DEFAULT] <= cycles[Effort.QUICK]


def test_a_thorough_search_compares_eight_times_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[int | None]()

    def counted(graph: Graph, chip: ChipConfig, *rest: Any) -> NetworkSchedule:
        compared.append(rest[-1])
        return schedule(graph, chip)

    monkeypatch.setattr(refine, "refined", counted)
    grower = Grower(3, Value("x", 3, 8, 8))
    grower.conv("first", "x", 8)
    grower.depthwise("dw", "first", square(3, 1, 1))
    grower.conv("pw", "dw", 8)
    for graph in (layers(), grower.graph("pair", "pw")):
        with_effort(Effort.THOROUGH, graph, CHIP)
    assert compared == [8 * 8, 8 * 28]


def test_a_quick_search_does_the_same_with_and_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked up instead of made does not change what is compared next."""
    graph, chip, compared = zoo.load("ds_cnn"), load("quad16"), list[SharingOptions]()
    decisive = sharing_search._decisive

    def noted(sharing: SharingOptions) -> tuple[object, object]:
        compared.append(sharing)
        return decisive(sharing)

    monkeypatch.setattr(sharing_search, "_decisive", noted)
    first = with_effort(Effort.QUICK, graph, chip, None, search_cache(tmp_path, chip))
    without = compared.copy()
    compared.clear()
    again = with_effort(Effort.QUICK, graph, chip, None, search_cache(tmp_path, chip))
    assert compared == without
    assert again.schedule.operations == first.schedule.operations


def test_the_work_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search costs, in work, which is the same on every machine: candidates replayed, schedules lowered and
    played, layers' operations emitted and listed. Who makes it cheaper lowers the bounds."""
    counts, reuses = Counter[str](), list[Reuse]()

    def reuse() -> Reuse:
        reuses.append(Reuse())
        return reuses[-1]

    def count(module: ModuleType, name: str) -> None:
        function: Callable[..., object] = getattr(module, name)

        def counted(*args: object) -> object:
            counts[name] += 1
            return function(*args)

        monkeypatch.setattr(module, name, counted)

    monkeypatch.setattr(sharing_search, "Reuse", reuse)
    count(conv, "replay")
    count(sharing_search, "lowered")
    operations = len(refined(layers(), CHIP, most=4).schedule.operations)
    (shared,) = reuses
    assert counts["replay"] <= 21
    assert counts["lowered"] <= 4
    assert shared.emitted <= 3 * operations, "once for whole windows or not, once for cores in turn"
    assert shared.listed <= 3 * operations


def test_candidates_that_make_the_same_are_emitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = list[conv.ConvTask]()

    def choose(task: conv.ConvTask, chip: ChipConfig) -> list[Candidate]:
        tasks.append(task)
        return [Candidate(2, 1, False, 4, 8, 1, 1, "output")]

    monkeypatch.setattr(conv, "choose", choose)
    schedule(layers(), CHIP)
    replays = conv.Replays(tasks[0], CHIP)
    for order in ("input", "weight", "output"):
        for snap in (False, True):
            candidate = Candidate(2, 1, snap, 4, 99, 9, 9, order)
            nodes = conv.emit(tasks[0], CHIP, candidate, Dram(CHIP)).nodes
            assert replays.of(candidate) == (replay(nodes, CHIP), len(nodes))
    assert 1 < replays.emitted < 6


def test_schedules_share_what_is_alike() -> None:
    """Of schedules that differ only in who sends, the operations and dependences are made once; the work is counted."""
    graph, reuse = layers(), Reuse()
    kinds = (TileKind.SPM, TileKind.DRAM)
    each = [frozenset((layer.output, kind) for layer in graph.layers for kind in kinds[:most]) for most in (0, 2)]
    apart = [schedule(graph, CHIP, sharing=SharingOptions(pushed=pushed)) for pushed in each]
    shared = [schedule(graph, CHIP, sharing=SharingOptions(pushed=pushed), reuse=reuse) for pushed in each]
    assert [one.schedule for one in shared] == [one.schedule for one in apart]
    assert reuse.emitted == reuse.listed == len(shared[0].schedule.operations)
    # one layer with another loop nest: the others stay
    schedule(graph, CHIP, sharing=SharingOptions(turned=frozenset({("two", "tight")})), reuse=reuse)
    assert reuse.emitted < 2 * len(shared[0].schedule.operations)


def test_switches_that_change_nothing_are_not_listed() -> None:
    """Nor is the best list forgotten for others that are tried."""
    graph, reuse = layers(), Reuse()
    best = schedule(graph, CHIP, sharing=SharingOptions(), reuse=reuse).schedule.operations
    reuse.hold()
    same = 0
    for switch in SWITCHES:
        before, turned = reuse.listed, SharingOptions(turned=frozenset({("two", switch)}))
        result = schedule(graph, CHIP, sharing=turned, reuse=reuse).schedule
        assert result == schedule(graph, CHIP, sharing=turned).schedule
        same += result.operations == best
        assert (reuse.listed == before) == (result.operations == best), switch
    assert 0 < same < len(SWITCHES)
    emitted = reuse.emitted
    schedule(graph, CHIP, sharing=SharingOptions(), reuse=reuse)
    assert reuse.emitted == emitted


@pytest.mark.parametrize("pushed", [False, True])
def test_known_dependences_are_those_of_the_list(pushed: bool) -> None:
    graph, reuse = layers(), Reuse()
    sent = frozenset((layer.output, TileKind.SPM) for layer in graph.layers) if pushed else frozenset[Any]()
    result = schedule(graph, CHIP, sharing=SharingOptions(pushed=sent), reuse=reuse).schedule
    assert reuse.needs(result.operations) == dependences(result.operations, CHIP)
