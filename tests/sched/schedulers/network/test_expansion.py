"""A convolution, a depthwise and a 1x1 one on one core: the maps between them are computed and never stored."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import OFFSET_BITS, Region
from meshloom.sched.ir.schedule import Gemm, Move, Vec
from meshloom.sched.schedulers.network.fusing import fusible
from meshloom.sched.schedulers.network.refine import refined
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, schedule
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.workload.graph import Graph, Value, Window
from meshloom.sched.workload.stages import Stage, cut

from ...network_graphs import POINT, Grower, square
from .test_networks import computes
from .test_prologue import WINDOWS, chain, chip, cycles, residual, within_cores

CHIP = load("quad8")
FIRST = {
    "1x1": (POINT, 12),
    "3x3": (square(3, 1, 1), 12),
    "1x1 by 2": (square(1, 2), 12),
    "lopsided": (Window(2, 3, 1, 2, 1, 0, 0, 1), 12),
    "packed": (square(3, 2, 1), 3),  # the host packs a picture of three channels
}


def three(
    window: Window, first: Window = POINT, channels: int = 12, size: tuple[int, int] = (13, 11), wide: int = 37
) -> Graph:
    """conv -> depthwise -> 1x1, with a wide map between the first two."""
    grower = Grower(8, Value("x", channels, *size))
    grower.conv("expand", "x", wide, first, relu=True, clamp=110)
    grower.depthwise("dw", "expand", window, relu=True, clamp=100)
    grower.conv("project", "dw", 18)
    return grower.graph("three", "project")


def expanded(graph: Graph, on: ChipConfig, *names: str, whole: bool = False) -> NetworkSchedule:
    return schedule(graph, on, sharing=SharingOptions(expanded=frozenset(names), whole=whole))


def stages(graph: Graph, on: ChipConfig, *names: str) -> list[list[str]]:
    """The layers of each stage."""

    def layers(stage: Stage) -> list[str]:
        return [layer.output for layer in (stage.expand, stage.before, stage.layer, stage.epilogue) if layer]

    return [layers(stage) for stage in cut(graph, on, expanded=names).stages]


def computed(made: NetworkSchedule, tensor: str) -> int:
    """Words of a tensor that GEMMs compute."""
    boxes = [op.result for op in made.schedule.operations if isinstance(op, Gemm)]
    return sum(box.planes * box.rows * box.columns for box in boxes if box and box.tensor == tensor)


def nothing_between_is_stored(made: NetworkSchedule, on: ChipConfig) -> None:
    moves = [op for op in made.schedule.operations if isinstance(op, Move) and op.src.tile in on.cores]
    inside = within_cores(made, on)
    assert inside
    assert {op.src.address >> OFFSET_BITS for op in inside} == {Region.VEC}
    assert {op.src.address >> OFFSET_BITS for op in moves if op not in inside} == {Region.OUT}
    assert all(op["x_out"] for op in made.schedule.operations if isinstance(op, Vec))


@pytest.mark.parametrize("windows", [1, 5])
@pytest.mark.parametrize("name", WINDOWS)
def test_every_window(name: str, windows: int) -> None:
    on, graph = chip(vec_windows=windows), three(WINDOWS[name])
    assert stages(graph, on, "project") == [["expand", "dw", "project"]]
    result = expanded(graph, on, "project")
    computes(result, on)
    nothing_between_is_stored(result, on)
    value = graph.value("dw")
    assert computed(result, "expand") >= 5 * value.height * value.width, "every word that is read is computed"


@pytest.mark.parametrize("name", FIRST)
def test_every_convolution_before(name: str) -> None:
    window, channels = FIRST[name]
    graph = three(square(3, 1, 1), window, channels)
    for whole in (False, True) if name == "packed" else (False,):
        result = expanded(graph, CHIP, "project", whole=whole)
        computes(result, CHIP)
        nothing_between_is_stored(result, CHIP)


@pytest.mark.parametrize(
    ("core", "fits"),
    [
        ({"out_words": 160}, True),
        ({"a_words": 200, "vec_words": 60}, True),
        ({"out_words": 40}, False),
        ({"b_words": 140}, False),
        ({"acc_words": 8}, False),
    ],
    ids=str,
)
def test_small_memories(core: dict[str, int], fits: bool) -> None:
    """Fewer rows or channel blocks at a time, or one result at a time; else the wide map is stored, after all."""
    on, graph = chip(**core), three(square(3, 1, 1))
    result = expanded(graph, on, "project")
    computes(result, on)
    stored = [op for op in result.schedule.operations if isinstance(op, Move) and op.label.startswith("expand: y")]
    assert bool(stored) != fits


@pytest.mark.parametrize("name", ["tiny", "pe12x14", "mono16"])
@pytest.mark.parametrize("size", [(3, 4), (15, 9)], ids=str)
def test_other_chips_and_sizes(name: str, size: tuple[int, int]) -> None:
    """One core; an array that is not square, with words wider than its blocks; fewer rows than cores."""
    on = load(name)
    result = expanded(three(square(3, 2, 1), size=size, wide=20), on, "project")
    computes(result, on)
    nothing_between_is_stored(result, on)


def test_additions_behind() -> None:
    graph = residual()
    assert stages(graph, CHIP, "project", "pw2") == [["expand", "dw", "project", "sum"], ["dw2", "pw2", "pooled"]]
    for on in (CHIP, chip(vec_words=120), chip(out_words=120, vec_words=64)):
        result = expanded(graph, on, "project")
        computes(result, on)


def test_chains_take_turns() -> None:
    """In a chain of pairs a convolution goes with what is before it or with what is behind it."""
    graph = chain()
    assert stages(graph, CHIP, "pw0", "pw1", "pw2") == [["stem", "dw0", "pw0"], ["dw1"], ["pw1", "dw2", "pw2"]]
    assert stages(graph, CHIP, "pw1") == [["stem"], ["dw0"], ["pw0", "dw1", "pw1"], ["dw2", "pw2"]]
    for names in (("pw0", "pw2"), ("pw1",)):
        computes(expanded(graph, CHIP, *names), CHIP)
    assert fusible(graph, CHIP, SharingOptions()).wide == {"pw0": "stem", "pw1": "pw0", "pw2": "pw1"}


def test_what_does_not_go_together() -> None:
    """A wide map that is an output or has another reader, or is added to something; what nothing may be fused with."""
    grower = Grower(5, Value("x", 8, 9, 9))
    for name in ("output", "read", "sum"):
        grower.conv(f"{name} a", "x", 16)
        if name == "sum":
            grower.add("sum a+", "sum a", "read a")
        grower.depthwise(f"{name} b", "sum a+" if name == "sum" else f"{name} a", square(3, 1, 1))
        grower.conv(f"{name} c", f"{name} b", 8)
    graph = grower.graph("apart", "output a", "output c", "read c", "sum c")
    assert not any(stage.expand for stage in cut(graph, CHIP, expanded=("output c", "read c", "sum c")).stages)
    graph = three(square(3, 1, 1))
    names = ["project"]
    assert not any(stage.expand for stage in cut(graph, CHIP, apart=names, expanded=names).stages)
    assert not any(stage.expand for stage in cut(graph, CHIP, whole_inputs=names, expanded=names).stages)
    assert not any(stage.expand for stage in cut(graph, CHIP, apart=["expand"], expanded=names).stages)


def test_the_search_finds_where_it_pays() -> None:
    """A wide map that has no room in the scratchpad: without it the network is faster, and no byte of it is stored."""
    graph = three(square(3, 2, 1), channels=8, size=(40, 40), wide=48)
    on = ChipConfig.model_validate(CHIP.model_dump() | {"name": "poor", "spm_words": 2048})
    result = refined(graph, on)
    computes(result, on)
    nothing_between_is_stored(result, on)
    assert cycles(result, on) < cycles(schedule(graph, on), on)
