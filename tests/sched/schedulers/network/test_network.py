"""Schedules of whole networks, executed in NumPy: every tensor is the definition, and every program can run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import VectorOp
from meshloom.hw.spec.timing import VecShape, slides
from meshloom.sched.checker.check import check
from meshloom.sched.ir.schedule import Gemm, Move, ScheduleError, Vec
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.model.timeline import play
from meshloom.sched.schedulers.interface import Context
from meshloom.sched.schedulers.loop_order.entry import NetworkOptions, network
from meshloom.sched.schedulers.network.limits import RESOURCES, TOTALS, busy, limits, totals
from meshloom.sched.schedulers.network.restored import restored
from meshloom.sched.schedulers.network.room import DramLack
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, layer_of, schedule
from meshloom.sched.schedulers.registry import find_network
from meshloom.sched.workload.graph import Graph, Layer, Value, Window
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.normalisation import softmax, standardise
from meshloom.sched.workload.stages import cut

from ...network_graphs import (
    POINT,
    Grower,
    attention,
    every_kind,
    functions,
    inputs_of,
    mismatches,
    normalised,
    perform,
    placed,
    random_network,
    square,
)
from ...random_graphs import defined_values

CHIPS = ("tiny", "quad8", "pe12x14", "quad16")


def variant(name: str, core: dict[str, int] | None = None, **changes: Any) -> ChipConfig:
    """A built-in chip with changes."""
    given = load(name).model_dump()
    return ChipConfig.model_validate(given | {"name": "odd"} | changes | {"core": given["core"] | (core or {})})


def computes(graph: Graph, chip: ChipConfig, seed: int = 0) -> NetworkSchedule:
    """Schedules a network and proves that it computes every tensor, whole, and that its program can run."""
    outcome = schedule(graph, chip)
    validate(outcome.schedule, chip)
    inputs = inputs_of(graph, seed)
    golden = defined_values(graph, inputs)
    outputs, observed = perform(outcome, chip, inputs)
    assert set(outputs) == set(graph.outputs)
    for name, result in outputs.items():
        np.testing.assert_array_equal(result, golden[name], name)
    assert [str(wrong) for wrong in mismatches(outcome, chip, observed, golden)] == []
    check(lower(outcome.schedule, chip), chip, outcome.schedule)
    return outcome


@lru_cache
def every(name: str) -> NetworkSchedule:
    return computes(every_kind(), load(name))


@pytest.mark.parametrize("name", CHIPS)
def test_every_kind_of_layer(name: str) -> None:
    result = every(name)
    kinds = {layer.kind for layer in result.graph.layers}
    assert kinds == {"conv", "depthwise", "max_pool", "average_pool", "add", "concat", "slice"}
    assert set(result.spilled) >= set(result.graph.outputs)
    assert result.schedule.workload == "every"
    assert {tensor.role for tensor in result.schedule.tensors} == {"input", "constant", "output"}


@pytest.mark.parametrize("name", ["tiny", "quad16"])
def test_functions_of_activations(name: str) -> None:
    computes(functions(), load(name))


@pytest.mark.parametrize("name", ["tiny", "quad16"])
def test_softmax_and_layer_normalisation(name: str) -> None:
    computes(normalised(), load(name))


@pytest.mark.parametrize("name", ["tiny", "quad16", "quad32"])
def test_attention(name: str) -> None:
    """Products of two tensors in groups, and transposes, with pixels and channels that fill words or do not."""
    chip = load(name)
    depth = 2 * chip.cols
    computes(attention(chip.lanes + 3, 3, depth, 3 * depth), chip)
    computes(attention(1, 1, depth, 5), chip)


@pytest.mark.parametrize(
    ("name", "heads", "depth"), [("tiny", 3, 5), ("tiny", 2, 1), ("quad16", 2, 12), ("quad16", 3, 20), ("narrow", 2, 5)]
)
def test_heads_that_do_not_fill_words(name: str, heads: int, depth: int) -> None:
    """Each begins with a word of its own; lanes between them have filters of zeros."""
    chip = variant("quad16", cols=8) if name == "narrow" else load(name)
    computes(attention(7, heads, depth, heads * depth), chip)


def test_what_lies_between_convolutions_and_heads() -> None:
    """Functions, sums and depthwise convolutions keep the lanes; others read them as they lie; so does a saved one."""
    chip = load("tiny")
    g = Grower(5, Value("x", 6, 2, 3, 0.5))
    for name in "ab":
        g.conv(name, "x", 10)
        g.table(f"{name}t", name)
    g.add("sum", "at", "bt")
    g.depthwise("dw", "sum", square(3, 1, 1))
    g.conv("c", "x", 10)
    g.take(Layer("product", "y", ("dw", "c"), scale=3000, groups=2))
    g.conv("z", "sum", 5)
    graph = g.graph("between", "y", "z", "bt")
    result = computes(graph, chip)
    computes(grown(lambda g: g.take(Layer("product", "y", ("x", "x"), scale=9, groups=2)), x(12, 3, 3)), chip)  # inputs
    again = restored(graph, result.schedule, chip)
    assert again.constants.keys() == result.constants.keys()
    for key, array in result.constants.items():
        np.testing.assert_array_equal(again.constants[key], array, key)


def test_a_saved_schedule_has_the_shapes_of_its_network() -> None:
    """Each constant, input and output that is larger than the network's is refused by name."""
    chip = load("tiny")
    g = Grower(5, Value("x", 6, 3, 3, 0.5))
    g.depthwise("dw", g.table("t", g.conv("a", "x", 10)), square(3, 1, 1))
    g.take(Layer("product", "y", ("dw", "a"), scale=3000))
    graph = g.graph("all", "y")
    result = schedule(graph, chip).schedule
    kinds = {tensor.name.rpartition("/")[2] if tensor.role == "constant" else tensor.role for tensor in result.tensors}
    assert kinds == {"w", "bias", "table", "zeros", "input", "output"}
    for at, tensor in enumerate(result.tensors):
        for name in ("channels", "width", "height", "in_channels", "out_channels", "kernel_h"):
            if (size := getattr(tensor.layout, name, None)) is None or (tensor.name == "y/zeros" and name == "width"):
                continue
            larger = tensor.model_copy(update={"layout": tensor.layout.model_copy(update={name: 2 * size + 1})})
            if larger.layout.shape == tensor.layout.shape:  # in a packed layout, how wide what was packed is
                continue
            tensors = (*result.tensors[:at], larger, *result.tensors[at + 1 :])
            with pytest.raises(ScheduleError, match=rf"tensor '{tensor.name}' is \[.*make both the same"):
                restored(graph, result.model_copy(update={"tensors": tensors}), chip)


def test_products_of_maps() -> None:
    """Rows and columns on both sides, one tensor by itself, clamped; part of a concatenation; many pixels."""
    g = Grower(3, Value("x", 5, 4, 5, 0.5), Value("z", 5, 3, 7, 0.5), Value("long", 5, 10, 30, 0.5))
    g.take(Layer("product", "xz", ("x", "z"), scale=3000, relu=True))
    g.take(Layer("product", "xx", ("x", "x"), scale=2000, clamp=90))
    g.concat("both", "xz", "xx", "x")
    g.take(Layer("product", "onto", ("long", "x"), scale=2500))
    g.take(Layer("transpose", "turned", ("long",)))
    g.conv("mixed", "both", 6, square(3, 1, 1))
    g.take(Layer("transpose", "again", ("turned",)))
    for chip in (*map(load, CHIPS), variant("tiny", {"a_words": 48, "b_words": 80, "out_words": 40})):
        computes(g.graph("maps", "mixed", "onto", "again"), chip)


def test_maps_of_any_shape_are_normalised() -> None:
    """One pixel, one row, one channel, more channels than lanes; blocks with empty lanes."""
    for size in ((1, 1, 1), (9, 1, 1), (5, 1, 13), (1, 7, 1)):
        g = Grower(3, Value("x", *size, 0.5))
        for layer in (*softmax("s", "x", 0.2), *standardise("n", "x", size[1] * size[2], 1 / 16)):
            g.take(layer)
        computes(g.graph("shapes", "s", "n"), load("tiny"))


def test_functions_in_small_memories() -> None:
    """Tiles of some columns of one row, and rows that are repeated."""
    core = {"a_words": 64, "b_words": 700, "out_words": 54, "vec_words": 54}
    computes(functions(7, 9), variant("tiny", core))


@pytest.mark.parametrize("rooms", [3, 2, 1])
def test_windows_that_fill_a_memory_leave_room_for_fewer_tiles(rooms: int) -> None:
    """Windows and maps of 80 words, of several blocks, in memories for one, two or three of them."""
    g = Grower(4, Value("x", 20, 10, 8, 0.5))
    g.average("all", "x", square(8))
    for layer in standardise("n", "x", 80, 1 / 16):
        g.take(layer)
    words = 80 * rooms + 3
    computes(
        g.graph("windows", "all", "n"), variant("tiny", {"a_words": words, "out_words": words, "vec_words": words})
    )


@pytest.mark.parametrize("name", CHIPS)
def test_maps_put_together_from_others(name: str) -> None:
    result = computes(placed(), load(name))
    assert {layer.kind for layer in result.graph.layers} >= {"paste", "slice"}


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("seed", range(8))
def test_random_networks(seed: int, name: str) -> None:
    computes(random_network(seed), load(name), seed)


@pytest.mark.parametrize("name", ["tiny", "quad8"])
def test_a_small_scratchpad_spills_and_computes_the_same(name: str) -> None:
    roomy = every(name)
    small = computes(every_kind(), variant(name, spm_words=64 if name == "tiny" else 300))
    outputs = {cut(roomy.graph, load(name)).roots[output][0] for output in roomy.graph.outputs}
    assert set(roomy.spilled) == outputs
    assert set(small.spilled) > outputs


ODD = {
    "no scratchpad": variant("quad8", floorplan=["dram core core", "host core core"]),
    "one core, no scratchpad": variant("quad8", floorplan=["dram core", "host core"], rows=3),
    "two drams, five cores": variant(
        "pe12x14", rows=5, cols=16, floorplan=["dram core core core", "host spm  core core", "core dram core spm"]
    ),
    "small memories": variant(
        "quad8", {"a_words": 256, "b_words": 768, "acc_words": 64, "out_words": 96, "vec_words": 96}
    ),
    "less VEC than OUT": variant(
        "quad8", {"a_words": 300, "b_words": 512, "acc_words": 48, "out_words": 200, "vec_words": 48}
    ),
    "large memories": variant("tiny", {"a_words": 65535, "acc_words": 16384, "out_words": 16384, "vec_words": 16384}),
}


@pytest.mark.parametrize("what", ODD)
def test_other_chips(what: str) -> None:
    outcome = computes(every_kind(), ODD[what])
    if not ODD[what].spms:
        result = cut(outcome.graph, ODD[what])
        assert set(outcome.spilled) == {result.roots[stage.y][0] for stage in result.stages}, "there is no other place"
    for seed in (11, 17):
        computes(random_network(seed), ODD[what])


# -- corners ------------------------------------------------------------------------------------------------------


def grown(build: Callable[[Grower], object], *inputs: Value, outputs: tuple[str, ...] = ("y",)) -> Graph:
    grower = Grower(3, *inputs)
    build(grower)
    return grower.graph("corner", *outputs)


def x(channels: int, height: int, width: int) -> Value:
    return Value("x", channels, height, width)


CORNERS: dict[str, tuple[str, Graph]] = {
    "wider than a VEC's row": ("quad8", grown(lambda g: g.pool("y", "x", Window(1, 2, 1, 2)), x(3, 1, 2600))),
    "wide slice": ("quad8", grown(lambda g: g.slice("y", "x", 0, 1, (1, 2)), x(9, 2, 2600))),
    "wide addition": (
        "quad8",
        grown(lambda g: (g.conv("c", "x", 5, Window(1, 3, 1, 1, 0, 1, 0, 1)), g.add("y", "c", "x")), x(5, 2, 1500)),
    ),
    "pool that leaves rows out": (
        "tiny",
        grown(lambda g: (g.conv("c", "x", 9), g.pool("y", "c", square(2, 2))), x(5, 9, 9)),
    ),
    "pool that skips rows": (
        "tiny",
        grown(lambda g: (g.conv("c", "x", 9), g.pool("y", "c", square(1, 3))), x(5, 10, 10)),
    ),
    "pool of a pool": (
        "quad8",
        grown(
            lambda g: (
                g.conv("c", "x", 9, relu=True),
                g.pool("p", "c", square(3, 2, 1)),
                g.pool("y", "p", square(5, 1, 2)),
            ),
            x(6, 21, 30),
        ),
    ),
    "largest average": ("tiny", grown(lambda g: g.average("y", "x", square(31)), x(9, 31, 31))),
    "more blocks than a VEC has": ("tiny", grown(lambda g: g.pool("y", "x", square(2)), x(1200, 3, 3))),
    "single pixels": (
        "tiny",
        grown(
            lambda g: (
                g.depthwise("d", "x", square(3, 1, 1)),
                g.pool("p", "d", square(3, 2, 1)),
                g.concat("c", "p", "x"),
                g.slice("y", "c", 0, 0, (2, 2)),
            ),
            x(6, 1, 1),
        ),
    ),
    "slice far inside": ("quad8", grown(lambda g: g.slice("y", "x", 20, 17, (3, 2)), x(5, 26, 26))),
    "concatenation of inputs alone": ("pe12x14", grown(lambda g: g.concat("y", "x", "x"), x(20, 3, 3))),
    "fully connected": ("quad8", grown(lambda g: g.conv("y", "x", 100, square(7)), x(60, 7, 7))),
    "spaces and colons in names": (
        "quad8",
        grown(
            lambda g: (g.conv("a: b c", "x", 9), g.depthwise("c: ", "a: b c", square(2)), g.conv("y", "c: ", 3)),
            x(6, 9, 9),
        ),
    ),
    "what nobody reads": (
        "quad8",
        grown(lambda g: (g.conv("u", "x", 5), g.concat("v", "u", "x"), g.conv("y", "x", 5)), x(6, 9, 9)),
    ),
    "outputs in outputs, and one twice": (
        "quad8",
        grown(
            lambda g: (
                g.conv("a", "x", 5),
                g.conv("b", "x", 9),
                g.concat("y", "a", "b"),
                g.concat("z", "y", "a"),
            ),
            x(6, 9, 9),
            outputs=("y", "a", "z", "y"),
        ),
    ),
    "addition of a layer that is an output": (
        "quad8",
        grown(lambda g: (g.conv("a", "x", 6), g.add("y", "a", "x", relu=True)), x(6, 9, 9), outputs=("a", "y")),
    ),
}


@pytest.mark.parametrize("what", CORNERS)
def test_corners(what: str) -> None:
    name, graph = CORNERS[what]
    result = computes(graph, load(name))
    stages = {stage.layer.output for stage in cut(graph, load(name)).stages}
    assert limits(result, load(name)).keys() == stages


def test_what_is_fused_and_what_is_not() -> None:
    graph, chip = every_kind(), load("quad8")
    result = {stage.layer.output: stage.epilogue.output for stage in cut(graph, chip).stages if stage.epilogue}
    assert result == {"stem": "pooled", "wide": "residual"}
    assert not any(stage.epilogue for stage in cut(graph, chip, ("stem", "wide")).stages)
    for what in ("pool that leaves rows out", "pool that skips rows", "addition of a layer that is an output"):
        name, graph = CORNERS[what]
        assert not any(stage.epilogue for stage in cut(graph, load(name)).stages), "all rows must be seen"


def test_a_pool_that_fits_only_by_itself_is_not_fused() -> None:
    """Of the three rows of 90 that the pool needs, A holds no two tiles with all channels and all columns."""
    graph = grown(
        lambda g: (g.conv("c", "x", 6, square(3, 1, 1)), g.pool("y", "c", square(2, 2))),
        x(48, 6, 90),
    )
    chip = variant("quad8", {"a_words": 300, "out_words": 2048})
    assert any(stage.epilogue for stage in cut(graph, chip).stages), "it is tried"
    result = computes(graph, chip)
    assert not any(isinstance(op, Vec) and op["x_out"] for op in result.schedule.operations)


# -- what is told about a schedule ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHIPS)
def test_busy_cycles_are_those_of_the_operations(name: str) -> None:
    chip, outcome = load(name), every(name)
    result, named = busy(outcome, chip), limits(outcome, chip)
    assert result.keys() == named.keys()
    layers = {stage.layer.output for stage in cut(outcome.graph, chip).stages}
    assert result.keys() == layers
    cores = len(chip.cores)
    for resource, kind in (("compute", Gemm), ("vector", Vec)):
        for layer, loads in result.items():
            ops = [op for op in outcome.schedule.operations if isinstance(op, kind) and layer_of(op.label) == layer]
            cycles = sum(_cycles(op, chip) for op in ops)
            assert cycles / cores <= loads[resource] <= cycles
    for layer, loads in result.items():
        assert set(loads) == set(RESOURCES)
        kinds = named[layer].split("+")
        assert set(kinds) <= set(RESOURCES)
        assert all(loads[kind] > 0 for kind in kinds), "nobody buys more of what is not used"
    through = sum(op.words for op in outcome.schedule.operations if isinstance(op, Move))
    assert sum(loads["noc"] for loads in result.values()) < 1.1 * through


@pytest.mark.parametrize("name", CHIPS)
def test_no_run_takes_less_than_its_busiest_resource(name: str) -> None:
    chip, outcome = load(name), every(name)
    result, by_layer = totals(outcome.schedule, chip), busy(outcome, chip)
    assert tuple(result) == TOTALS
    cycles = play(lower(outcome.schedule, chip), chip).cycles
    assert 0 < max(result.values()) <= cycles
    for resource in ("compute", "vector", "dram"):
        layers = [loads[resource] for loads in by_layer.values()]
        assert max(layers) <= result[resource] <= sum(layers)
    moves = [op for op in outcome.schedule.operations if isinstance(op, Move)]
    for ports, ends in (("receiving", [op.dst for op in moves]), ("sending", [op.src for op in moves])):
        words = [sum(op.words for op, end in zip(moves, ends, strict=True) if end.tile == core) for core in chip.cores]
        assert result[ports] == pytest.approx(max(words) * (1 + 1 / chip.packet_words))


def _cycles(op: Gemm | Vec, chip: ChipConfig) -> int:
    """Cycles by the definition of folds, words, and columns of windows that slide."""
    if isinstance(op, Gemm):
        return op["n_blocks"] * -(-op["pixels"] // chip.rows) * op.taps * chip.lanes
    if not slides(chip, VecShape.of(op.body)):
        return op["blocks"] * op["pixels"] * op.taps
    walk = 0
    for first in range(0, op["pixels"], op["out_w"]):
        pixels = min(op["out_w"], op["pixels"] - first)
        for column in range((pixels - 1) * op["stride_w"] + op["kernel_w"]):
            walk += op["kernel_h"] if 0 <= column - op["pad_left"] < op["in_w"] else 1
    if op["op"] != VectorOp.MAC:
        return op["blocks"] * walk
    return op.taps + (op["blocks"] - 1) * max(walk, op.taps) + walk


def test_progress_names_every_stage() -> None:
    message: list[tuple[str, int, int]] = []
    graph, chip = every_kind(10, 6), load("tiny")
    schedule(graph, chip, lambda *what: message.append(what))
    names = [stage.layer.output for stage in cut(graph, chip).stages]
    assert [name for name, _, _ in message] == [*names, "overlapping layers"]
    assert [number for _, number, _ in message] == list(range(len(names) + 1))
    assert {of for _, _, of in message} == {len(names)}


def test_arrays_have_a_channel_for_each_lane() -> None:
    result, chip = every("pe12x14"), load("pe12x14")
    arrays = result.arrays(inputs_of(result.graph))
    expected = {tensor.name for tensor in result.schedule.tensors if tensor.role != "output"}
    assert set(arrays) == expected
    # 21 channels of one convolution and 17 of another in blocks of 14, one after the other
    lanes = result.lanes["fire"].reshape(-1, chip.lanes)
    assert lanes.shape == (4, 16)
    assert lanes[:, 14:].max() == -1
    assert [(row >= 0).sum() for row in lanes] == [14, 7, 14, 3]
    assert sorted(lanes[lanes >= 0]) == list(range(38))
    used = result.lanes["fire"] >= 0
    w = arrays["wide/w"]
    assert w.shape[1] == 64
    np.testing.assert_array_equal(w[:, ~used], 0)
    (wide,) = [layer for layer in result.graph.layers if layer.output == "wide"]
    np.testing.assert_array_equal(w[:, used], wide.w)


# -- errors -------------------------------------------------------------------------------------------------------


def big() -> Graph:
    g = Grower(1, x(8, 4, 4))
    g.conv("y", "x", 4096, square(3, 1, 1))
    return g.graph("heavy", "y")


@pytest.mark.parametrize(
    ("graph", "chip", "error", "message"),
    [
        (
            big(), variant("tiny", dram={"words": 20000}), DoesNotFit,
            "network heavy is too big for chip odd: its weights take 294,912 bytes, the DRAM has 80,000 bytes; give "
            r"the chip's \[dram\] words = 262144 \(--set dram.words=262144\)",
        ),
        (big(), variant("tiny", dram={"words": 90000}), DoesNotFit, "DRAM tile 0 is too small: tensors need at least"),
        (
            grown(lambda g: g.conv("y", "x", 3, square(3, 1, 1)), x(4, 9, 9)), variant("tiny", {"b_words": 7}),
            DoesNotFit, "layer corner/y fits no tiling on chip odd: .*B needs 36 words, has 7",
        ),
        (
            grown(lambda g: g.average("y", "x", square(9)), x(4, 9, 9)), variant("tiny", {"a_words": 80}),
            DoesNotFit, "layer y: A or VEC of a odd core is too small: one output pixel needs 81 words of A, there are "
            "80",
        ),
        (
            grown(lambda g: g.depthwise("y", "x", square(5, 1, 2)), x(4000, 3, 3)), load("tiny"), DoesNotFit,
            "layer y: its weights do not fit B or ACC of a tiny core",
        ),
        (
            grown(lambda g: g.average("y", "x", square(40)), x(4, 40, 40)), load("quad8"), DoesNotFit,
            r"layer y: kernel_h = 40 exceeds what a VEC instruction holds \(31\)",
        ),
        (
            grown(lambda g: (g.conv("c", "x", 3), g.pool("y", "c", square(8, 8))), x(4, 16, 16)), load("quad8"),
            DoesNotFit, r"layer y: stride_h = 8 exceeds what a VEC instruction holds \(7\)",
        ),
        (
            grown(lambda g: g.depthwise("y", "x", square(1, 1, 1)), x(4, 8, 8)), load("quad8"), DoesNotFit,
            "layer y: pad_top = 1 makes windows of padding only",
        ),
        (
            grown(lambda g: (g.conv("c", "x", 20), g.add("y", "c", "x")), x(20, 3, 3)), load("pe12x14"), WorkloadError,
            "network corner: layer y: its operands lie in different channel blocks",
        ),
        (
            grown(lambda g: g.table("y", "x"), x(4, 3, 3)), load("quad8"), DoesNotFit,
            r"layer y needs a table, and cores of quad8 have none; take another chip, or set core\.vec_table = true",
        ),
        (
            grown(lambda g: (g.conv("a", "x", 5), g.conv("b", "x", 7), g.concat("c", "a", "b"),
                             g.take(Layer("product", "y", ("c", "c"), scale=9, groups=2))), x(4, 3, 3)), load("tiny"),
            WorkloadError, "2 groups of 6 channels of c do not lie in words of their own; on tiny a word has 4",
        ),
        (
            grown(lambda g: g.take(Layer("product", "y", ("x", "x"), scale=9)), x(2000, 2, 2)), load("tiny"),
            DoesNotFit, "a product over 2000 channels needs 500 words of A and 2000 of B for its smallest tile",
        ),
        (
            grown(lambda g: g.take(Layer("normalise", "y", ("x",), by="max")), x(4, 3, 3)), load("quad8"), DoesNotFit,
            r"layer y normalises maps, and cores of quad8 cannot; take another chip, or set core\.vec_whole = true",
        ),
        (
            grown(lambda g: g.take(Layer("normalise", "y", ("x",), by="max")), x(4, 46, 46)), load("tiny"), DoesNotFit,
            r"layer y normalises maps of 46x46 pixels; a core of tiny has room for 2048 words",
        ),
        (
            grown(lambda g: g.take(Layer("normalise", "y", ("x",), by="max")), x(4, 1, 1153)), load("tiny"), DoesNotFit,
            "maps of 1x1153 pixels; no chip takes rows of more than 1023, and no divisor makes shorter ones: take a si",
        ),
        (
            grown(lambda g: g.conv("y", "x", 3), x(4, 3, 3), outputs=("y", "x")), load("tiny"), WorkloadError,
            "network corner: output x is an input of it; leave it out",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_clear_error(
    graph: Graph, chip: ChipConfig, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        schedule(graph, chip)
    assert "\n" not in str(raised.value)


def test_a_refusal_for_want_of_dram_names_a_size_that_is_enough_for_tensors_and_programs() -> None:
    chip = variant("tiny", dram={"words": 90000})
    with pytest.raises(DoesNotFit, match=r"network heavy needs .* for its tensors and programs, each has") as raised:
        network(big(), chip, NetworkOptions(), Context())
    sizes = re.findall(r"needs (\d+) words|--set dram\.words=(\d+)", str(raised.value))
    for words in (int(least or ample) for least, ample in sizes):
        roomy = variant("tiny", dram={"words": words})
        lower(schedule(big(), roomy).schedule, roomy)


@pytest.mark.parametrize("name", ["zigzag", "atomic:evaluations=3", "flexer:budget=1k"])
def test_other_schedulers_name_the_need_of_the_whole_network_too(name: str) -> None:
    """What they lack first is less than that."""
    chip, make = variant("quad16", dram={"words": 2000}), find_network(name)
    g = Grower(1, x(16, 8, 8))
    for layer, before in zip("abcdefy", "xabcdef", strict=True):
        g.conv(layer, before, 32, square(3, 1, 1))
    graph = g.graph("row", "y")
    with pytest.raises(DramLack, match=r"network row needs \d+ words of each .*, each has 2000") as raised:
        make(graph, chip, None)
    need = raised.value.need
    result = make(graph, variant("quad16", dram={"words": need}), None)
    lower(result.schedule, variant("quad16", dram={"words": need}))


def test_pieces_of_the_same_sizes_may_be_added() -> None:
    """Concatenations of unlike pieces lie in blocks with gaps; two of the same pieces fit each other."""
    g = Grower(2, x(5, 6, 6))
    for side in "ab":
        g.concat(side, *(g.conv(f"{side}{n}", "x", n) for n in (3, 9)))
    g.add("y", "a", "b")
    g.conv("z", "y", 4, square(3, 1, 1))
    graph = g.graph("gaps", "z", "y")
    assert (computes(graph, load("quad8")).lanes["y"] < 0).sum() == 24 - 12
    wrong = replace(
        graph, layers=(*graph.layers, Layer("concat", "c", ("a9", "a3"), POINT), Layer("add", "d", ("c", "a")))
    )
    with pytest.raises(WorkloadError, match="layer d: its operands lie in different channel blocks"):
        schedule(wrong, load("quad8"))
