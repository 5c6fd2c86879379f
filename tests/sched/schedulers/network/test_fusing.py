"""What goes with a 1x1 convolution, for one layer or for all of one size, and what the search makes of it."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.schedulers.network import sharing_search
from meshloom.sched.schedulers.network.fusing import Fusible, FusionDepth, fuse, fusible, with_room
from meshloom.sched.schedulers.network.refine import refined
from meshloom.sched.schedulers.network.scheduler import schedule
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.workload.graph import Graph, Value

from ...network_graphs import POINT, Grower, square
from .test_prologue import chip

CHIP = load("quad8")
#: Cores have no room for what an expansion takes besides; none for the depthwise convolution either.
NARROW, TIGHT = chip(out_words=64), chip(a_words=100)


def bottlenecks(*sizes: int, wide: int = 32) -> Graph:
    """Inverted residuals: 1x1, depthwise and 1x1 convolutions, each with a result of so many rows and columns."""
    grower = Grower(3, Value("x", 16, 2 * sizes[0], 2 * sizes[0]))
    last, rows = "x", 2 * sizes[0]
    for index, size in enumerate(sizes):
        grower.conv(f"expand{index}", last, wide, POINT, relu=True)
        grower.depthwise(f"dw{index}", f"expand{index}", square(3, rows // size, 1), relu=True)
        grower.conv(f"project{index}", f"dw{index}", 16)
        last, rows = f"project{index}", size
    return grower.graph("bottlenecks", last)


def test_each_layer_has_one_depth() -> None:
    names, rest = frozenset({"a", "b"}), frozenset({"c"})
    sharing = SharingOptions(apart=frozenset({"a", "c"}), expanded=frozenset({"b"}))
    assert fuse(names, FusionDepth.APART, sharing) == SharingOptions(apart=names | rest)
    assert fuse(names, FusionDepth.EXPANDED, sharing) == SharingOptions(apart=rest, expanded=names)
    assert fuse(names, FusionDepth.PAIR, sharing) == SharingOptions(apart=rest)


def test_layers_of_one_size_are_a_group() -> None:
    graph = bottlenecks(8, 8, 4, 2, 2)
    some = fusible(graph, CHIP, SharingOptions())
    assert some.pairs == tuple(f"project{index}" for index in range(5))
    assert some.wide == {f"project{index}": f"expand{index}" for index in range(5)}
    assert some.residuals == frozenset(some.pairs)
    large, small = frozenset({"project0", "project1"}), frozenset({"project3", "project4"})
    assert some.by_size(graph) == {"project0": large, "project1": large, "project3": small, "project4": small}


def test_nothing_is_fused_where_nothing_may_be() -> None:
    assert fusible(bottlenecks(8), CHIP, SharingOptions(fused=False)) == Fusible((), {})


def test_changes_leave_out_what_cannot_be() -> None:
    some = Fusible(("a", "b"), {"a": "before a"})
    start = SharingOptions(expanded=frozenset({"a"}))

    def changes(*roomless: tuple[str, FusionDepth]) -> list[SharingOptions]:
        return [change(start) for change in some.changes(("a", "b", "c"), FusionDepth, roomless)]

    both = frozenset({"a", "b"})
    assert changes() == [SharingOptions(apart=both), start, SharingOptions()], "b has nothing that could be expanded"
    without = changes(("a", FusionDepth.EXPANDED), ("b", FusionDepth.PAIR))
    assert without == [SharingOptions(apart=both), SharingOptions()]
    assert changes(("a", FusionDepth.PAIR), ("b", FusionDepth.PAIR)) == [SharingOptions(apart=both)]
    assert list(some.changes(("c",), FusionDepth, ())) == []


def test_what_has_no_room_is_left_out() -> None:
    sharing = SharingOptions(apart=frozenset({"a"}), expanded=frozenset({"b", "c", "d"}))
    roomless = [("b", FusionDepth.EXPANDED), ("c", FusionDepth.EXPANDED), ("c", FusionDepth.PAIR)]
    expected = SharingOptions(apart=frozenset({"a", "c"}), expanded=frozenset({"d"}))
    assert with_room(sharing, roomless) == expected
    assert with_room(sharing, ()) == sharing


def test_a_schedule_says_what_has_no_room() -> None:
    graph = bottlenecks(8, wide=64)
    sharing = SharingOptions(expanded=frozenset({"project0"}))
    assert schedule(graph, CHIP, sharing=sharing).roomless == ()
    expanded = "project0", FusionDepth.EXPANDED
    assert schedule(graph, NARROW, sharing=sharing).roomless == (expanded,)
    result = schedule(graph, TIGHT, sharing=sharing)
    assert result.roomless == (expanded, ("project0", FusionDepth.PAIR))
    assert schedule(graph, TIGHT, sharing=with_room(sharing, result.roomless)).schedule == result.schedule


def test_the_search_changes_all_of_a_size_before_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not try again what had no room."""
    compared = list[SharingOptions]()
    decisive = sharing_search._decisive

    def noted(sharing: SharingOptions) -> tuple[object, object]:
        compared.append(sharing)
        return decisive(sharing)

    monkeypatch.setattr(sharing_search, "_decisive", noted)
    graph = bottlenecks(4, 4, 2, 2, wide=16)
    pair = [frozenset({"project0", "project1"}), frozenset({"project2", "project3"})]
    refined(graph, CHIP, most=15)
    changes = [
        (before.apart | before.expanded) ^ (after.apart | after.expanded)
        for before, after in zip(compared, compared[1:], strict=False)
    ]
    several = [index for index, change in enumerate(changes) if change in pair]
    single = [index for index, change in enumerate(changes) if len(change) == 1]
    assert several
    assert single
    assert min(several) < min(single)
    for narrow, tries in ((NARROW, 1), (TIGHT, 0)):
        compared.clear()
        refined(bottlenecks(8, 4), narrow, most=7)
        assert sum("project0" in sharing.expanded for sharing in compared) == tries
