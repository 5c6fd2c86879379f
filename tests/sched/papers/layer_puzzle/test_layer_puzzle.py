"""Algorithm 1 as printed and mended, and the versions that are kept."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.schemes import LayerShape, Scheme
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.layer_puzzle.stepwise import stepwise
from meshloom.sched.schedulers.online.latency import Latency, corrected, literal
from meshloom.sched.schedulers.online.versions import (
    FIXED,
    LEVELS,
    SchemeChoice,
    choices,
    compiled,
    fixed,
    pareto,
    saving,
    select_choices,
)
from meshloom.sched.workload.layers import ConvShape

from ...lowering.test_serving_templates import served_chip
from ...network_graphs import every_kind

CHIP = load("lp9")


def layer(shape: ConvShape) -> LayerShape:
    return LayerShape(pose(shape, CHIP), True, (shape.in_channels, shape.out_channels))


def test_the_printed_algorithm_by_hand():
    # 14x14x64 -> 96, 3x3: 196 pixels, three blocks of 32 outputs, 576 products each
    shape = layer(ConvShape("hand", 1, 64, 14, 14, 96, 3, 3, 1, 1, 1, 1, 1, 1))
    result = literal(shape, Scheme(output=3), CHIP)
    assert result.compute == 576 * (196 / 32) * 1 + max(195 % 32, 31 % 32)
    assert result.load == 14 * 14 * 64 / 248
    assert result.store == 196 * 32 / 248
    assert result.cycles == result.compute + result.load + result.store
    half = literal(shape, Scheme(output=3), CHIP, 0.5)
    assert half.load == 2 * result.load
    assert half.compute == result.compute


def test_the_mended_algorithm_counts_what_the_printed_one_forgets():
    shape = layer(ConvShape("hand", 1, 64, 14, 14, 96, 3, 3, 1, 1, 1, 1, 1, 1))
    one, three = corrected(shape, Scheme(), CHIP), corrected(shape, Scheme(output=3), CHIP)
    assert one.compute == 3 * 7 * 18 * 32 + 64  # whole folds
    assert one.load == 14 * 14 * 2 + 3 * 18 * 32  # words of input and of weights, over one link
    assert three.load == 14 * 14 * 2 + 18 * 32
    assert three.cycles < one.cycles < 3 * three.cycles
    assert 0 < one.utilisation < 1
    reduced = corrected(shape, Scheme(input=2), CHIP)
    assert reduced.load == 14 * 14 + 3 * 9 * 32 + 4 * (3 * 196 / 2)  # partial sums are four words each


def test_more_congestion_never_helps():
    shape = layer(ConvShape("hand", 1, 512, 7, 7, 512, 1, 1))
    cycles = [corrected(shape, Scheme(output=8), CHIP, level).cycles for level in LEVELS]
    assert cycles == sorted(cycles)


def choice(speedup: float, utilisation: float) -> SchemeChoice:
    return SchemeChoice(0.8, 1, Scheme(), 1.0, speedup, utilisation)


def test_pareto_front():
    a, b, c, d = choice(1, 0.9), choice(2, 0.5), choice(1.5, 0.5), choice(2, 0.5)
    assert pareto([a, b, c, d]) == (a, b)
    assert pareto([]) == ()


def test_choices_are_the_best_of_all_schemes():
    def favours_outputs(shape: LayerShape, scheme: Scheme, _chip: object, _level: float) -> Latency:
        cycles = 1000 / scheme.cores + 10 * (scheme.output == 1)
        return Latency(cycles, 0, 0, 0, 1 / (cycles * scheme.cores))

    shape = layer(ConvShape("many", 1, 256, 14, 14, 256))
    outcome = choices(shape, CHIP, range(1, 10), 0.5, favours_outputs)
    assert [one.cores for one in outcome] == list(range(1, 10))
    assert all(one.scheme.output > 1 for one in outcome[1:])
    result = select_choices(shape, CHIP, predict=favours_outputs)
    assert len(result.all) == 27
    assert {one.cores for one in result.front} == {9}  # as well used as any, and the fastest


def test_kept_versions_compile():
    net = ServedNetwork(every_kind(), served_chip(), 1)
    result = saving(net.shapes, net.chip)
    assert 0 < result.front <= result.all
    assert result.compiled <= result.programs
    assert 0 <= result.share < 1
    templates = compiled(net, 1)
    assert [len(template.cores) for template in templates] == sorted(len(template.cores) for template in templates)
    assert {template.scheme for template in templates} <= set(select_choices(net.shapes[1], net.chip).schemes)


@pytest.mark.parametrize("index", [3, 8])
def test_predictions_follow_the_model(index: int):
    from meshloom.sched.lowering.templates.compiling import compile_stage
    from meshloom.sched.lowering.templates.schemes import schemes
    from meshloom.sched.workload import zoo

    net = ServedNetwork(zoo.load("mobilenet_v1"), CHIP, 1)
    for cores in (1, 4):
        scheme = schemes(net.shapes[index], cores)[0]
        measured = compile_stage(net, index, scheme).measures.cycles
        assert corrected(net.shapes[index], scheme, CHIP).cycles == pytest.approx(measured, rel=0.35)


def test_a_network_held_to_one_parallelisation_takes_what_its_layers_have():
    """Plain schemes of it alone, on every number of cores up to the layer's parts; one core always."""
    whole = layer(ConvShape("c", 1, 64, 8, 8, 96, 3, 3, 1, 1, 1, 1, 1, 1))
    assert fixed(whole, "fmap", 9) == tuple(Scheme(feature=parts) for parts in range(1, 9))  # 8 rows
    assert fixed(whole, "output", 9) == tuple(Scheme(output=parts) for parts in (1, 2, 3))  # 96 channels
    net = ServedNetwork(every_kind(), served_chip(), 1)
    for index, shape in enumerate(net.shapes):
        for kind, factor in FIXED.items():
            expected = fixed(shape, kind, len(net.chip.cores))
            result = [template.scheme for template in compiled(net, index, kind=kind)]
            assert result[0] == Scheme()
            assert set(result) <= set(expected)
            assert all(getattr(scheme, factor) == scheme.cores for scheme in result)


@pytest.mark.parametrize(("name", "index", "scheme", "bound"), [
    ("mobilenet_v1", 2, "single", 0.1), ("mobilenet_v1", 16, "single", 0.03), ("transformer", 18, "single", 0.05),
    ("mobilenet_v1", 7, "single", 0.1), ("resnet50", 14, "f3", 0.15), ("transformer", 19, "i2", 0.15),
])  # fmt: skip
def test_steps_follow_the_model(name: str, index: int, scheme: str, bound: float):
    from meshloom.sched.lowering.templates.compiling import compile_stage
    from meshloom.sched.workload import zoo

    net = ServedNetwork(zoo.load(name), CHIP, 1)
    measured = compile_stage(net, index, Scheme.parse(scheme)).measures.cycles
    result = stepwise(net.shapes[index], Scheme.parse(scheme), CHIP)
    assert result.cycles == pytest.approx(measured, rel=bound)
    assert result.cycles < stepwise(net.shapes[index], Scheme.parse(scheme), CHIP, 0.5).cycles


def test_steps_count_what_crosses_a_ring_and_what_lies_in_one_channel():
    shape = layer(ConvShape("ring", 1, 512, 14, 14, 64, 1, 1))
    shared, alone = stepwise(shape, Scheme(input=4), CHIP), stepwise(shape, Scheme(), CHIP)
    assert shared.store > 4 * 3 / 4 * alone.store / 4  # partial sums of four words each, in three rounds of four
    thin = layer(ConvShape("thin", 1, 32, 112, 112, 32, 1, 1))  # one plane: each tile in one channel
    assert stepwise(thin, Scheme(), CHIP).load >= 112 * 112 * 32 / 31
