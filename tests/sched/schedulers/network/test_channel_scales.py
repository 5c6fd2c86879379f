"""A multiplier for each channel: schedules, programs and their checks, in NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import Opcode, VectorOp
from meshloom.sched.checker.check import CheckError, check
from meshloom.sched.ir.schedule import Gemm, ScheduleError, Vec
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.program.program import Instruction
from meshloom.sched.schedulers.network.restored import restored
from meshloom.sched.schedulers.network.scheduler import NetworkSchedule, schedule
from meshloom.sched.schedulers.registry import find_network, scales_by_channel
from meshloom.sched.workload.graph import Graph, Value, Window
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.layout import BiasLayout

from ...network_graphs import Grower, every_kind, inputs_of, mismatches, perform, random_network, square
from ...random_graphs import by_channel, defined_values
from .test_network import computes, variant

#: Arrays as wide as words, narrower ones, and memories that hold little.
CHIPS = {
    "tiny": variant("tiny", {"channel_scales": True}),
    "quad16": variant("quad16", {"channel_scales": True}),
    "12x14": variant("pe12x14", {"channel_scales": True}),
    "virtual channels": variant("nine8", {"channel_scales": True}),
}


def scaled_operations(made: NetworkSchedule) -> list[Gemm | Vec]:
    return [op for op in made.schedule.operations if isinstance(op, Gemm | Vec) and op["by_channel"]]


@pytest.mark.parametrize("name", CHIPS)
def test_every_kind_of_layer(name: str) -> None:
    """With scales for all layers that may have them, and for some."""
    for share in (1.0, 0.5):
        result = computes(by_channel(every_kind(width=CHIPS[name].lanes + 1), share), CHIPS[name])
        kinds = {type(op) for op in scaled_operations(result)}
        assert kinds == {Gemm, Vec} if share == 1 else Gemm in kinds


def deep() -> Graph:
    """Layers whose weights and sums do not fit small memories at once, heads of odd widths."""
    g = Grower(5, Value("x", 40, 6, 6, 0.5))
    g.conv("wide", "x", 45, square(3, 1, 1), relu=True)
    g.conv("point", "wide", 33)
    g.depthwise("dw", "point", square(3, 1, 1))
    g.conv("back", "dw", 21, clamp=90)
    g.conv("head", "back", 5, Window(6, 6))
    return g.graph("deep", "head")


@pytest.mark.parametrize(
    "core",
    [
        {"b_words": 160, "a_words": 300},  # K is cut
        {"b_words": 200, "a_words": 300, "acc_words": 40},  # ... and biases come and go
        {"b_words": 8192, "acc_words": 30},
    ],
)
def test_sums_in_parts(core: dict[str, int]) -> None:
    """The last part of each sum has the multipliers of its channels, wherever the others lie."""
    chip = variant("tiny", core | {"channel_scales": True})
    result = computes(by_channel(deep()), chip)
    gemms = [op for op in scaled_operations(result) if isinstance(op, Gemm)]
    assert core["b_words"] > 1000 or any(op["to_acc"] for op in gemms)
    assert all(op["k_blocks"] * op.taps > 1 for op in gemms if op["addend"] == 2 and not op["to_acc"])


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int) -> None:
    """In memories in which sums are made in parts, whatever the order of these."""
    small = variant("quad16", {"a_words": 600, "b_words": 400, "acc_words": 90, "channel_scales": True})
    computes(by_channel(random_network(seed)), small if seed % 2 else CHIPS["12x14"], seed)


def test_fused_layers() -> None:
    """Expansion, depthwise layer and projection without a map in between."""
    g = Grower(3, Value("x", 16, 28, 28, 0.5))
    g.conv("expand", "x", 96, relu=True)
    g.depthwise("dw", "expand", square(3, 1, 1), relu=True)
    g.conv("project", "dw", 16)
    g.add("sum", "project", "x")
    result = computes(by_channel(g.graph("block", "sum")), CHIPS["quad16"])
    assert {type(op) for op in scaled_operations(result)} == {Gemm, Vec}


@pytest.mark.parametrize("name", ["loop_order", pytest.param("paper_static", marks=pytest.mark.slow)])
def test_schedulers_of_whole_networks(name: str) -> None:
    """The search around the nests, and flexer, which leaves layers with multipliers by channel to the nests."""
    g = Grower(4, Value("x", 8, 10, 10, 0.5))
    g.conv("a", "x", 9, square(3, 1, 1), relu=True)
    g.depthwise("b", "a", square(3, 1, 1))
    g.conv("c", "b", 5)
    graph, chip = by_channel(g.graph("small", "c")), CHIPS["tiny"]
    assert scales_by_channel(name, chip)
    result = find_network(name)(graph, chip, None)
    inputs = inputs_of(graph)
    outputs, observed = perform(result, chip, inputs)
    golden = defined_values(graph, inputs)
    np.testing.assert_array_equal(outputs["c"], golden["c"])
    assert mismatches(result, chip, observed, golden) == []
    again = restored(graph, result.schedule, chip)
    for tensor, array in result.constants.items():
        np.testing.assert_array_equal(again.constants[tensor], array)


def test_schedulers_with_one_multiplier_refuse() -> None:
    graph, chip = small(CHIPS["tiny"])
    assert not scales_by_channel("klotski", chip)
    with pytest.raises(WorkloadError, match="layer y has a multiplier for each channel, and this scheduler knows one"):
        find_network("klotski")(graph, chip, None)
    with pytest.raises(WorkloadError, match=r"cores of odd have one for all; .* set core\.channel_scales"):
        schedule(graph, variant("tiny", {"channel_scales": False}))


# -- what cannot be ---------------------------------------------------------------------------------------------------


def small(chip: ChipConfig) -> tuple[Graph, ChipConfig]:
    g = Grower(1, Value("x", 5, 4, 4, 0.5))
    g.conv("y", "x", 5, square(3, 1, 1))
    g.depthwise("z", "y", square(3, 1, 1))
    return by_channel(g.graph("small", "z")), chip


def test_chips_without_refuse() -> None:
    graph, chip = small(CHIPS["tiny"])
    result = computes(graph, chip)
    bare = variant("tiny", {"channel_scales": False})
    same = result.schedule.model_copy(update={"chip_digest": bare.digest})
    with pytest.raises(ScheduleError, match=r"one multiplier for all channels; set core\.channel_scales = true"):
        validate(same, bare)
    program = replace(lower(result.schedule, chip), chip_digest=bare.digest)
    with pytest.raises(CheckError, match=r"core\.channel_scales is off"):
        check(program, bare)


@pytest.mark.parametrize(
    ("kind", "change", "error"),
    [
        (Gemm, {"addend": 0}, "by_channel = 1 without a bias"),
        (Gemm, {"addend": 2, "kernel_h": 1, "kernel_w": 1, "k_blocks": 1}, "a single window"),
        (Vec, {"kernel_h": 1, "kernel_w": 1}, "only a MAC with a window of several taps may"),
        (Vec, {"op": 1}, "only a MAC with a window of several taps may"),
        (Gemm, {"scale": 1024}, r"uses words .* of ACC, which has 4096"),
    ],
)
def test_wrong_instructions_are_refused(kind: type, change: dict[str, int], error: str) -> None:
    graph, chip = small(CHIPS["tiny"])
    result = computes(graph, chip)
    operations = list(result.schedule.operations)
    op = next(op for op in scaled_operations(result) if isinstance(op, kind) and not op.fields.get("to_acc"))
    at = operations.index(op)
    operations[at] = op.model_copy(update={"fields": op.fields | change})
    with pytest.raises(ScheduleError, match=error):
        validate(result.schedule.model_copy(update={"operations": tuple(operations)}), chip)


@pytest.mark.parametrize(
    ("opcode", "change", "error"),
    [
        (Opcode.GEMM, {"addend": 0}, "GEMM with by_channel = 1 and no bias; multipliers lie beside biases"),
        (
            Opcode.GEMM,
            {"addend": 2, "kernel_h": 1, "kernel_w": 1, "k_blocks": 1},
            "by_channel = 1 with partial sums and a single window",
        ),
        (Opcode.VEC, {"kernel_h": 1, "kernel_w": 1}, "MAC with by_channel = 1; it must be 0: only a MAC with a window"),
        (Opcode.VEC, {"op": VectorOp.SUM}, "SUM with by_channel = 1; it must be 0: only a MAC with a window"),
    ],
)
def test_wrong_instructions_of_programs_are_refused(opcode: Opcode, change: dict[str, int], error: str) -> None:
    """By the checker, which reads no schedule."""
    graph, chip = small(CHIPS["tiny"])
    program = lower(computes(graph, chip).schedule, chip)

    def changed(one: Instruction) -> Instruction:
        scaled = one.opcode is opcode and one.fields["by_channel"] and not one.fields.get("to_acc")
        return replace(one, fields=one.fields | change) if scaled else one

    streams = tuple(
        replace(stream, instructions=tuple(map(changed, stream.instructions))) for stream in program.streams
    )
    with pytest.raises(CheckError, match=error):
        check(replace(program, streams=streams), chip)


def test_multipliers_must_be_there() -> None:
    """The checker knows which words of ACC have been written: not a bias for a multiplier, nor the word behind."""
    graph, chip = small(CHIPS["tiny"])
    result = computes(graph, chip)
    for kind in (Gemm, Vec):
        operations = list(result.schedule.operations)
        at = max(index for index, op in enumerate(operations) if isinstance(op, kind) and op["by_channel"])
        op = operations[at]
        assert isinstance(op, Gemm | Vec)
        operations[at] = op.model_copy(update={"fields": op.fields | {"scale": 600}})
        wrong = result.schedule.model_copy(update={"operations": tuple(operations)})
        with pytest.raises(CheckError, match=r"ACC"):
            check(lower(wrong, chip), chip, wrong)


def test_scales_of_layers_are_checked() -> None:
    graph, _ = small(CHIPS["tiny"])
    y = graph.layers[0]
    assert y.scales is not None
    for wrong, error in (
        (y.scales[:-1], r"scales are int32\[4\], must be int32\[5\]"),
        (y.scales * 0, r"scales m = 0\.\.0 must be in 1\.\.65535"),
    ):
        with pytest.raises(WorkloadError, match=error):
            replace(graph, layers=(replace(y, scales=wrong), *graph.layers[1:]))
    with pytest.raises(WorkloadError, match="scale m = 7 beside scales"):
        replace(graph, layers=(replace(y, scale=7), *graph.layers[1:]))


def test_layout_of_biases_and_multipliers() -> None:
    layout = BiasLayout(out_channels=7, cols=3, scaled=True)
    array = np.arange(14, dtype=np.int32).reshape(2, 7) - 3
    packed = layout.pack(array, 4)
    assert packed.shape == (layout.words(4), 4) == (24, 4)
    words = packed.reshape(6, 16).view("<i4")
    np.testing.assert_array_equal(words[:, :3], [[-3, -2, -1], [4, 5, 6], [0, 1, 2], [7, 8, 9], [3, 0, 0], [10, 0, 0]])
    np.testing.assert_array_equal(layout.unpack(packed), array)
