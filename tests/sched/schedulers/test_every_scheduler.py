"""Every scheduler on every chip: a program that the checker accepts and that computes the right bytes, or a reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig, built_in_chips, load
from meshloom.sched.ir import functional
from meshloom.sched.lowering.programs import planned
from meshloom.sched.schedulers.registry import find, find_chain, find_gradient, find_network, names
from meshloom.sched.workload import catalog
from meshloom.sched.workload.chain_data import random_chain
from meshloom.sched.workload.graph import Graph, Value
from meshloom.sched.workload.layers import LayerData, gemm_shape
from meshloom.sched.workload.training import TrainingLayer
from meshloom.sched.workload.training_chain import Chain
from meshloom.sched.workload.training_data import random_gradients
from meshloom.tb.inputs.golden.chain import chain as golden_chain
from meshloom.tb.inputs.golden.layer import golden

from ..network_graphs import Grower, inputs_of, mismatches, perform, square
from ..odd_chips import ODD, odd_chip
from ..random_graphs import defined_values

#: By kind of workload, with options that make them quick and more ways than the usual ones.
SCHEDULERS = {
    "layers": (
        "loop_order:effort=0.1", "flexer:budget=100k", "paper_static:budget=100k", "klotski:fineness=4",
        "klotski:rounds=yes,fineness=4", "atomic:evaluations=3", "zigzag", "zigzag:whole=yes,barrier=no",
        "klotski:partition=bayes,evaluations=3", "hybrid:budget=100k", "dtt:plans=0", "dtt:pushed=no,sources=nearest",
    ),
    "networks": (
        "klotski:rounds=yes,fineness=4", "atomic:evaluations=3", "zigzag", "loop_order:refine=1",
        "loop_order:between=dram,fused=no", "flexer:budget=100k", "paper_static:budget=100k",
        "klotski:fineness=4,fallback=none", "hybrid:budget=100k", "dtt:refine=1",
    ),
    "gradients": ("gradient:effort=0.1",),
    "chains": ("chain", "chain:update=fused", "chain:keep=no,update=apart"),
}  # fmt: skip
#: The first tier's: those that take a hundredth of a second.
QUICK = {"layers": ("klotski:fineness=4", "atomic:evaluations=3", "zigzag"), "networks": ("zigzag",)}
LAYERS = ("gemm:5x9x7", "conv:6x5x3-6,k3,s2,p1,relu")

#: Chips that are too small for some workloads, and what they lack then.
TOO_SMALL = {
    "tiny_scratchpad": r"SPM: input, weight and sums",
    "tiny_memories": r"[Nn]eeds? \d+ (words|of VEC)|fits no tiling|fits a core|too small",
    "least_memories": r"[Nn]eeds? \d+ (words|of VEC)|fits no tiling|fits a core|too small",
    "little_dram": r"do not fit after the tensors|DRAM tile \d+ is too small|give the chip's \[dram\] words",
    "least_dram": r"do not fit after the tensors|DRAM tile \d+ is too small|give the chip's \[dram\] words|"
    r"tensors need [\d,]+ words of each DRAM tile",
    "few_semaphores": r"needs \d+ semaphores",
}


def reason(name: str, chip: ChipConfig) -> str | None:
    """What a scheduler may say of a chip on which it cannot do these workloads; None: it has to do them."""
    base, small = name.partition(":")[0], TOO_SMALL.get(chip.name)
    if base == "dtt":
        lacks = {
            "has no controller": chip.dtt is None,
            "record no arrivals": not chip.noc.arrivals,
            r"route_hops = \d+ is less than its diameter": chip.noc.route_hops < chip.width + chip.height - 2,
        }
        if any(lacks.values()):
            return "|".join(why for why, lacking in lacks.items() if lacking)
    if base in ("flexer", "paper_static") and not chip.spms:
        return r"has no spm tile"
    if "update" in name and chip.cols < chip.lanes:
        return r"take update=none|too small"
    return small


@cache
def small_network() -> Graph:
    g = Grower(3, Value("x", 5, 6, 6, 0.5))
    g.conv("a", "x", 6, square(3, 1, 1), relu=True)
    g.depthwise("d", "a", square(3, 2, 1))
    g.conv("b", "d", 9)
    g.add("s", "b", "b")
    g.pool("p", "s", square(2))
    g.conv("fc", "p", 3)
    return g.graph("small", "fc", "s")


@cache
def data_of(layer: str) -> LayerData:
    return catalog.find(layer)[0].data()


def make_layers(name: str, chip: ChipConfig) -> None:
    for layer in LAYERS:
        data = data_of(layer)
        outcome = planned(find(name)(data.shape, chip, data.scale), chip).schedule
        result = functional.run(outcome, chip, {"x": data.x, "w": data.w, "bias": data.bias})
        np.testing.assert_array_equal(result["y"], golden(data), layer)


def make_networks(name: str, chip: ChipConfig) -> None:
    graph = small_network()
    result = find_network(name)(graph, chip, None)
    planned(result.schedule, chip)
    inputs = inputs_of(graph, 0)
    right = defined_values(graph, inputs)
    outputs, observed = perform(result, chip, inputs)
    assert outputs.keys() == {"fc", "s"}
    for output, array in outputs.items():
        np.testing.assert_array_equal(array, right[output], output)
    assert [str(wrong) for wrong in mismatches(result, chip, observed, right)] == []


def make_gradients(name: str, chip: ChipConfig) -> None:
    layer = TrainingLayer(gemm_shape("g/l", 7, 9, 6), first=False)
    result = planned(find_gradient(name)(layer, chip).schedule, chip).schedule
    data = random_gradients(layer)
    products = data.products()
    for output, array in functional.run(result, chip, data.arrays()).items():
        np.testing.assert_array_equal(array, golden(products[output]), output)


def make_chains(name: str, chip: ChipConfig) -> None:
    sizes = ((7, 9), (9, 6))
    layers = [TrainingLayer(gemm_shape(f"net/l{at}", 5, n, k), first=False) for at, (k, n) in enumerate(sizes)]
    chain = Chain("chain:net", tuple(layers), True)
    result = planned(find_chain(name)(chain, chip).schedule, chip).schedule
    data = random_chain(chain)
    right = golden_chain(data)
    for output, array in functional.run(result, chip, data.arrays()).items():
        np.testing.assert_array_equal(array, right[output], output)


MAKERS: dict[str, Callable[[str, ChipConfig], None]] = {
    "layers": make_layers,
    "networks": make_networks,
    "gradients": make_gradients,
    "chains": make_chains,
}


def judge(kind: str, name: str, chip: ChipConfig) -> None:
    """Makes a kind of workload. An error has to be one of Meshloom's own that says why, where one is expected."""
    why, refusal = reason(name, chip), None
    try:
        MAKERS[kind](name, chip)
    except ValueError as error:
        refusal = error
    message = f"{name} on {chip.name}: {refusal!r}"
    if refusal is None:
        assert why is None or chip.name in TOO_SMALL, message
    else:
        assert type(refusal).__module__.startswith("meshloom."), message
        assert why is not None, message
        assert re.search(why, str(refusal)), message


@pytest.mark.parametrize("chip", ODD)
def test_quick_schedulers_on_odd_chips(chip: str) -> None:
    for kind, schedulers in QUICK.items():
        for name in schedulers:
            judge(kind, name, odd_chip(chip))


#: All schedulers on all chips take twelve minutes of a processor: each has its turn on every fifth one.
TURNS = 5


def in_turn(kind: str, number: int, chip: ChipConfig) -> Sequence[str]:
    """The schedulers of a kind whose turn it is on the chip of that number, and those that need a controller if it has
    one: few chips do. Of kinds with a few schedulers all of these."""
    if kind not in QUICK:
        return SCHEDULERS[kind]
    return [
        name
        for index, name in enumerate(SCHEDULERS[kind])
        if (index - number) % TURNS == 0 or (chip.dtt is not None and name.startswith("dtt"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("chip", ODD)
def test_every_scheduler_on_odd_chips(chip: str, kind: str) -> None:
    for name in in_turn(kind, ODD.index(chip), odd_chip(chip)):
        judge(kind, name, odd_chip(chip))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("chip", built_in_chips())
def test_every_scheduler_on_built_in_chips(chip: str, kind: str) -> None:
    for name in in_turn(kind, built_in_chips().index(chip), load(chip)):
        judge(kind, name, load(chip))


def test_every_scheduler_and_kind_is_there() -> None:
    for kind, schedulers in SCHEDULERS.items():
        assert {name.partition(":")[0] for name in schedulers} == set(names(kind))
    assert len(ODD) >= 12
    for chips in ([odd_chip(name) for name in ODD], [load(name) for name in built_in_chips()]):
        done = {
            (kind, name)
            for kind in SCHEDULERS
            for number, chip in enumerate(chips)
            for name in in_turn(kind, number, chip)
            if reason(name, chip) is None
        }
        assert done == {(kind, name) for kind, schedulers in SCHEDULERS.items() for name in schedulers}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["core", "dram", "spm", "."])
@pytest.mark.parametrize("size", [(16, 16), (1, 16), (16, 1)], ids=["16x16", "1x16", "16x1"])
def test_the_largest_meshes_run(size: tuple[int, int], kind: str) -> None:
    """Of cores alone, of memories alone, and of routers; 253 cores have more streams than a semaphore counts."""
    width, height = size
    tiles = ["host", "dram", "core", *[kind] * (width * height - 3)]
    rows = [tiles[width * row : width * (row + 1)] for row in range(height)]
    chip = ChipConfig.model_validate({"name": "largest", "lanes": 4, "semaphores": 8, "floorplan": rows})
    (layer,) = catalog.find("gemm:64x16x16")
    data = layer.data()
    outcome = planned(find("loop_order:effort=0.01")(data.shape, chip, data.scale), chip)
    result = functional.run(outcome.schedule, chip, {"x": data.x, "w": data.w, "bias": data.bias})
    np.testing.assert_array_equal(result["y"], golden(data))
    if kind == "core" and size == (16, 16):
        assert len(outcome.program.streams) > 255
