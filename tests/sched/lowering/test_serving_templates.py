"""Networks as they are served: every stage by every scheme, executed in NumPy, is the definition, and can run."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.checker.check import check
from meshloom.sched.ir import functional
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.schemes import Scheme, schemes
from meshloom.sched.mapping.tiling.problem import DoesNotFit
from meshloom.sched.workload.graph import Graph, Value

from ...tiers import slow_but
from ..network_graphs import Grower, attention, every_kind, functions, normalised, placed, random_network
from ..random_graphs import defined_values


def served_chip(lanes: int = 8, name: str = "served8", words: int = 2048) -> ChipConfig:
    """Six cores and four channels, without a scratchpad, as small as tests like it."""
    return ChipConfig.model_validate(
        {
            "name": name,
            "lanes": lanes,
            "semaphores": 64,
            "floorplan": ["dram core core core dram", "dram core core core dram", ".  .  host . ."],
            "dram": {"bytes_per_cycle": lanes - 1, "words": 1 << 16},
            "core": {
                "a_words": words, "b_words": words, "acc_words": 1024, "out_words": 512, "vec_windows": 3,
                "vec_table": True, "vec_whole": True,
            },
            "noc": {"data_vcs": 4},
        }
    )  # fmt: skip


def inputs_of(graph: Graph, batch: int) -> dict[str, np.ndarray]:
    """Images over all of int8: int8 [batch, C, H, W]."""
    random = np.random.default_rng(batch)
    return {v.name: random.integers(-128, 128, (batch, *v.shape[1:])).astype(np.int8) for v in graph.inputs}


def computes(graph: Graph, chip: ChipConfig, batch: int, pick: int) -> set[str]:
    """Proves that all stages together compute a network's outputs; `pick` chooses schemes. Returns their names."""
    net = ServedNetwork(graph, chip, batch)
    inputs = inputs_of(graph, batch)
    memories = functional.Memories(chip)
    for name, array in net.arrays(inputs).items():
        memories.write_tensor(net.tensors[name], array)
    taken: set[str] = set()
    for index, shape in enumerate(net.shapes):
        every = [scheme for cores in range(1, 7) for scheme in schemes(shape, cores)]
        scheme = every[(pick * 7 + index * 5) % len(every)]
        schedule = net.schedule(index, scheme, chip.cores[6 - scheme.cores :])
        validate(schedule, chip)
        check(lower(schedule, chip), chip, schedule)
        functional.execute(schedule.operations, memories)
        taken.add(str(scheme))
    images = [defined_values(graph, {name: x[i : i + 1] for name, x in inputs.items()}) for i in range(batch)]
    for name in graph.outputs:
        result = net.output(name, memories.read_tensor(net.tensors[name]))
        np.testing.assert_array_equal(result, np.concatenate([golden[name] for golden in images]), name)
    return taken


@pytest.mark.parametrize("way", slow_but(["1, 0", "1, 1", "2, 2", "3, 3", "4, 4"], "1, 1", "2, 2"))
def test_every_kind_of_layer_by_many_schemes(way: str):
    batch, pick = map(int, way.split(", "))
    assert len(computes(every_kind(), served_chip(), batch, pick)) > 5


#: What takes more than convolutions, pools and sums.
KINDS = (functions(), normalised(), attention(), attention(heads=3, depth=5), placed())


@pytest.mark.parametrize("batch", slow_but([1, 2, 3], 2))
@pytest.mark.parametrize("graph", slow_but(KINDS, KINDS[0], KINDS[3], KINDS[4]), ids=lambda graph: graph.name)
def test_functions_whole_maps_and_pastes(graph: Graph, batch: int):
    computes(graph, served_chip(), batch, batch)


@pytest.mark.parametrize("seed", range(6))
def test_random_networks(seed: int):
    computes(random_network(seed), served_chip(), 1 + seed % 3, seed)


def test_wide_words():
    computes(every_kind(width=40), served_chip(16, "served16"), 2, 1)


def test_biases_have_to_fit_the_memory_of_sums() -> None:
    """Also where no sums are kept there, since a tile takes all channels at once."""
    g = Grower(3, Value("x", 6, 2, 2, 0.5))
    g.conv("y", "x", 8 * 20)
    values = served_chip().model_dump()
    chip = ChipConfig.model_validate(values | {"core": values["core"] | {"acc_words": 16}})
    net = ServedNetwork(g.graph("wide", "y"), chip, 1)
    with pytest.raises(DoesNotFit):
        net.schedule(0, Scheme(), chip.cores[:1])
    validate(net.schedule(0, Scheme(output=2), chip.cores[:2]), chip)
