"""Networks in micro-ops: every element is made once, and whoever reads it has an edge from who makes it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from meshloom.hw.spec import config
from meshloom.hw.spec.isa import Unit, VectorOp
from meshloom.hw.spec.timing import GemmShape, VecShape, gemm_occupancy, vec_occupancy
from meshloom.sched.mapping.emit.fields import VECTOR_OPS
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.papers.klotski.muops import MuGraph, MuOp, Region
from meshloom.sched.papers.klotski.partition import Partition, cutting, fitted, micro_ops
from meshloom.sched.papers.klotski.work import stages_of, works
from meshloom.sched.workload.graph import Graph, Layer, Value, Window
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.stages import cut

from ...network_graphs import Grower, every_kind, random_network, square
from ...random_graphs import PLAIN, random_graph

CHIP = config.load("pe12x14")
PARTITIONS = (Partition(3, 4, 16, 14), Partition(2, 100, 32, 28), Partition(1, 1, 160, 14), Partition(99, 5, 16, 42))


def elements(region: Region) -> set[tuple[int, int, int]]:
    return set(product(range(*region.planes), range(*region.rows), range(*region.columns)))


def window_of(layer: Layer) -> Window:
    """What a layer slides over its input, a slice with negative padding."""
    if layer.kind == "add":
        return Window()
    w = layer.window
    if layer.kind == "slice":
        return Window(1, 1, w.stride_h, w.stride_w, -w.pad_top, -w.pad_left)
    return w


def taps(layer: Layer, value: Value, rows: tuple[int, int], columns: tuple[int, int]) -> tuple[set[int], set[int]]:
    """Rows and columns of its input between those that results read, by definition."""
    w = window_of(layer)
    down = {y * w.stride_h - w.pad_top + k * w.dilation for y in range(*rows) for k in range(w.kernel_h)}
    across = {x * w.stride_w - w.pad_left + k * w.dilation for x in range(*columns) for k in range(w.kernel_w)}
    between = (set(range(min(some), max(some) + 1)) for some in (down, across))
    return next(between) & set(range(value.height)), next(between) & set(range(value.width))


def check(graph: MuGraph, chip: config.ChipConfig) -> None:
    """Holds micro-ops and edges against a drawing of who makes each element of each tensor."""
    stages = graph.stages
    maker: dict[str, dict[tuple[int, int, int], int]] = defaultdict(dict)
    assert [op.number for op in graph.ops] == list(range(len(graph.ops)))
    for op in graph.ops:
        root, first = stages.roots[stages.stages[op.stage].y]
        if op.last:
            for plane, row, column in elements(op.result):
                assert (plane + first, row, column) not in maker[root]
                maker[root][plane + first, row, column] = op.number
    for stage in stages.stages:  # all of every result is made
        value, (root, first) = stages.values[stage.y], stages.roots[stage.y]
        planes = len(stages.lanes[stage.y]) // chip.lanes
        whole = Region((first, first + planes), (0, value.height), (0, value.width))
        assert elements(whole) <= maker[root].keys()

    expected: Counter[tuple[int, int, int, str, tuple[int, int, int]]] = Counter()
    for op in graph.ops:
        stage = stages.stages[op.stage]
        for operand, (name, region) in enumerate(op.reads):
            down, across = taps(stage.layer, stages.values[stage.x], op.result.rows, op.result.columns)
            if name not in stages.roots:
                assert name == f"{stage.x}@{stage.layer.output}"  # packed: the window's columns lie in channels
                assert region.columns == op.result.columns
                assert region.rows == (min(down), max(down) + 1)
                continue
            planes = op.channels if operand == 0 else op.result.planes
            assert region == Region(planes, (min(down), max(down) + 1), (min(across), max(across) + 1))
            root, first = stages.roots[name]
            for plane, row, column in elements(region):
                at = (plane + first, row, column)
                if at in maker[root]:
                    expected[maker[root][at], op.number, operand, root, at] += 1
        if op.sums is not None:
            before = graph.ops[op.sums]
            assert (before.stage, before.result, before.channels[1]) == (op.stage, op.result, op.channels[0])
            assert not before.last
    result: Counter[tuple[int, int, str, tuple[int, int, int]]] = Counter()
    sums: set[tuple[int, int]] = set()
    for edge in graph.edges:
        assert edge.producer < edge.consumer
        if edge.sums:
            assert edge.region == graph.ops[edge.producer].result
            assert edge.words == 4 * edge.region.words
            sums.add((edge.producer, edge.consumer))
            continue
        root, first = stages.roots[edge.tensor]
        assert stages.stages[graph.ops[edge.producer].stage].y == edge.tensor
        for plane, row, column in elements(edge.region):
            result[edge.producer, edge.consumer, root, (plane + first, row, column)] += 1
    by_pair: Counter[tuple[int, int, str, tuple[int, int, int]]] = Counter()
    for (producer, consumer, _, root, at), count in expected.items():
        assert count == 1
        by_pair[producer, consumer, root, at] += 1
    assert result == by_pair
    assert sums == {(op.sums, op.number) for op in graph.ops if op.sums is not None}
    assert [edge.consumer for edge in graph.edges] == sorted(edge.consumer for edge in graph.edges)


def size(op: MuOp) -> tuple[int, int, int, int]:
    rows, columns, planes = (high - low for low, high in (op.result.rows, op.result.columns, op.result.planes))
    return rows, columns, planes, op.channels[1] - op.channels[0]


def check_costs(graph: MuGraph, chip: config.ChipConfig) -> None:
    """Holds cycles, constants, kinds and memory of each micro-op against its own regions."""
    shapes: dict[tuple[int, int], set[tuple[int, int, int, int]]] = defaultdict(set)
    core = chip.core
    for op in graph.ops:
        layer = graph.stages.stages[op.stage].layer
        rows, columns, planes, depth = size(op)
        shapes[op.stage, op.kind].add((rows, columns, planes, depth if op.unit is Unit.MATRIX else 0))
        window, (_, read) = window_of(layer), op.reads[0]
        packed = "@" in op.reads[0][0]
        kernel_w = 1 if packed else window.kernel_w
        in_w = read.columns[1] - read.columns[0]
        assert 0 <= op.kind < 16
        assert 2 * read.words <= core.a_words
        if op.unit is Unit.MATRIX:
            shape = GemmShape(rows * columns, planes, depth, window.kernel_h, kernel_w)
            assert op.cycles == gemm_occupancy(chip, shape)
            weights = planes * depth * window.kernel_h * kernel_w * chip.cols
            assert op.constants == weights + (4 * planes if op.sums is None else 0)
            assert 2 * weights <= core.b_words
            assert 2 * op.result.words <= core.out_words
            if op.sums is not None or not op.last:
                assert 2 * op.result.words <= core.acc_words
            continue
        left = max(0, window.pad_left - op.result.columns[0] * window.stride_w)
        shape = VecShape(
            VECTOR_OPS[layer.kind], rows * columns, planes, window.kernel_h, window.kernel_w, window.stride_w,
            window.dilation, in_w, columns, left,
        )  # fmt: skip
        assert op.cycles == vec_occupancy(chip, shape)
        assert 2 * op.result.words <= core.vec_words
        depthwise = shape.op is VectorOp.MAC
        assert op.constants == (planes * (window.kernel_h * window.kernel_w + 4) if depthwise else 0)
    assert all(len(sizes) == 1 for sizes in shapes.values())  # one shape to a kind


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("make", [random_network, partial(random_graph, kinds=PLAIN)], ids=["network", "graph"])
def test_random_networks(make, seed):
    graph = make(seed)
    stages = stages_of(graph, CHIP)
    result = micro_ops(stages, CHIP, PARTITIONS[seed % len(PARTITIONS)])
    check(result, CHIP)
    check_costs(result, CHIP)


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_every_kind_of_layer(partition):
    """Concatenations of concatenations, inputs that are copied and packed, dilation, odd strides and paddings."""
    stages = stages_of(every_kind(), CHIP)
    result = micro_ops(stages, CHIP, partition)
    check(result, CHIP)
    check_costs(result, CHIP)
    assert any("@" in op.reads[0][0] for op in result.ops)
    assert any(op.sums is not None for op in result.ops) or partition.ic > 100


@pytest.mark.parametrize("seed", range(6))
def test_one_partition_for_each_stage(seed):
    stages = stages_of(random_network(seed + 100), CHIP)
    random = np.random.default_rng(seed)
    chosen = [
        Partition(h, w, 16 * (1 + h % 3), 14 * (1 + w % 3))
        for h, w in random.integers(1, 9, (len(stages.stages), 2)).tolist()
    ]
    result = micro_ops(stages, CHIP, chosen)
    check(result, CHIP)
    for op in result.ops:
        rows, columns, planes, depth = size(op)
        s = chosen[op.stage]
        assert rows <= s.h
        assert columns <= s.w
        assert planes * CHIP.cols <= s.oc
        assert op.unit is Unit.VECTOR or depth * CHIP.lanes <= s.ic


def test_figure_5():
    """s(2, 2, 2, 3) of a 5 x 5 x 4 result from 3 channels, in words: 16 kinds, which differ in all four dimensions."""
    grower = Grower(1, Value("x", 3 * 16, 5, 5))
    grower.conv("y", "x", 4 * 14, square(3, 1, 1))
    stages = stages_of(grower.graph("figure", "y"), CHIP)
    result = micro_ops(stages, CHIP, Partition(2, 2, 2 * 16, 3 * 14))
    assert Counter(op.kind for op in result.ops) == {  # 2 whole rows and 1 rest, alike for columns; else 1 and 1
        kind: (1 if kind & 1 else 2) * (1 if kind & 2 else 2) for kind in range(16)
    }
    assert {size(op) for op in result.ops if op.kind == 0} == {(2, 2, 3, 2)}
    assert {size(op) for op in result.ops if op.kind == 15} == {(1, 1, 1, 1)}
    check(result, CHIP)


def test_what_is_too_large_is_cut_to_the_nearest_size_that_fits():
    grower = Grower(1, Value("x", 64, 40, 40))
    grower.conv("y", "x", 140, square(3, 1, 1))
    stages = stages_of(grower.graph("large", "y"), CHIP)
    (work,) = works(stages, CHIP)
    whole = Partition.of(work.whole, CHIP)
    (result,) = fitted([work], CHIP, whole)
    assert work.too_large(CHIP, work.whole)
    assert not work.too_large(CHIP, result)
    pixels = replace(result, rows=min(2 * result.rows, 40))
    assert result == pixels or work.too_large(CHIP, pixels)
    check_costs(micro_ops(stages, CHIP, whole), CHIP)
    assert fitted([work], CHIP, Partition(2, 2, 16, 14))[0] == replace(result, rows=2, columns=2, planes=1, depth=1)


def test_more_than_a_core_ever_holds_is_refused():
    small = CHIP.model_copy(update={"core": CHIP.core.model_copy(update={"a_words": 400})})
    grower = Grower(1, Value("x", 16, 15, 15))
    grower.depthwise("y", "x", square(15))
    stages = stages_of(grower.graph("large", "y"), small)
    refusal = (
        r"layer y: no part of it fits a core of .* takes 225 words of A, 200 at most; --set core.a_words=450, or take "
        r"scheduler loop_order, which needs no room for the next one"
    )
    with pytest.raises(DoesNotFit, match=refusal):
        micro_ops(stages, small, Partition(1, 1, 16, 14))


def test_bad_partitions_are_refused():
    stages = stages_of(random_network(1), CHIP)
    with pytest.raises(ValueError, match=r"s\(1, 1, 12, 14\).* multiple of 16 \(lanes\) and oc of 14"):
        micro_ops(stages, CHIP, Partition(1, 1, 12, 14))
    with pytest.raises(ValueError, match="at least 1"):
        micro_ops(stages, CHIP, Partition(0, 1, 16, 14))
    with pytest.raises(ValueError, match="2 partitions for"):
        micro_ops(stages, CHIP, [PARTITIONS[0]] * 2)


def test_fused_stages_are_refused():
    grower = Grower(1, Value("x", 16, 8, 8))
    grower.conv("y", "x", 16)
    grower.pool("z", "y", square(2, 2))
    with pytest.raises(DoesNotFit, match="stages_of"):
        works(cut(grower.graph("fused", "z"), CHIP), CHIP)


def test_layers_that_no_instruction_computes_are_refused():
    x = Value("x", 16, 40, 40)
    grower = Grower(1, x)
    grower.conv("y", "x", 16, square(17))
    with pytest.raises(WorkloadError, match="layer wide/y: kernel_h = 17"):
        works(stages_of(grower.graph("wide", "y"), CHIP), CHIP)
    far = Graph("far", (x,), (Layer("max_pool", "y", ("x",), Window(2, 2, 9, 9)),), ("y",))
    with pytest.raises(DoesNotFit, match="layer y: stride_h = 9"):
        works(stages_of(far, CHIP), CHIP)
    twice = Graph("twice", (x,), (Layer("upsample", "y", ("x",), repeat=2),), ("y",))
    with pytest.raises(
        DoesNotFit, match=r"layer y: there are no micro-ops for upsample, only .*; take a scheduler without"
    ):
        works(stages_of(twice, CHIP), CHIP)


def test_arrays_say_what_the_list_says():
    """The arrays that searches use, against the micro-ops that programs are made of."""
    stages = stages_of(every_kind(), CHIP)
    result, arrays = micro_ops(stages, CHIP, PARTITIONS[0]), cutting(stages, CHIP, PARTITIONS[0])
    assert arrays.cycles.tolist() == [op.cycles for op in result.ops]
    links = arrays.links
    assert [(edge.producer, edge.consumer, edge.words) for edge in result.edges] == list(
        zip(links.producer.tolist(), links.consumer.tolist(), links.words.tolist(), strict=True)
    )
