"""Templates on the RTL: stages of a network, each placed on other cores and in another window than it was compiled for,
leave the same bytes in DRAM as their schedules in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from meshloom.hw.spec.config import ChipConfig
from meshloom.hw.spec.isa import PAGE_WORDS
from meshloom.sched.ir import functional
from meshloom.sched.lowering.templates.compiling import compile_stage
from meshloom.sched.lowering.templates.network import ServedNetwork
from meshloom.sched.lowering.templates.relocate import place_program
from meshloom.sched.lowering.templates.schemes import schemes
from meshloom.sched.lowering.templates.template import ProgramPlace
from meshloom.sched.model.timeline import play
from meshloom.sched.workload.graph import Value
from meshloom.tb.build.builder import build
from meshloom.tb.devices.interface import Job
from meshloom.tb.devices.simulated import SimulatedDevice

from ..sched.lowering.test_serving_templates import inputs_of
from ..sched.network_graphs import attention, every_kind, functions, normalised, placed
from ..sched.served import FOUR, chip_of
from ..tiers import slow_but
from .served_chip import CHIP

#: Where windows begin: not where they were compiled for.
PAGE = 9


def windows(net: ServedNetwork, memories: functional.Memories, chip: ChipConfig) -> list[np.ndarray]:
    """What lies in the window of each DRAM tile."""
    return [memories.region(dram, 0)[: net.window.words].copy() for dram in chip.drams]


#: Cores that can do all that a layer may ask for.
ABLE = chip_of(
    "dram core core", "host core core", "dram . .", core={"vec_table": True, "vec_whole": True, "vec_windows": 2}
)
#: The first tier makes do with a simulator that other tests need, too.
CASES = {
    "lp4": (CHIP, every_kind(size=10)),
    "four": (FOUR, every_kind(size=10)),
    "functions": (ABLE, functions(7, 9)),
    "normalised": (ABLE, normalised(6, 9)),
    "attention": (ABLE, attention(heads=3, depth=5)),
    "placed": (ABLE, placed()),
}


@pytest.mark.parametrize("name", slow_but(CASES, "lp4"))
def test_bytes_and_cycles_of_templates(name: str) -> None:
    chip, graph = CASES[name]
    assert all(isinstance(value, Value) for value in graph.inputs)
    net = ServedNetwork(graph, chip, 2)
    memories = functional.Memories(chip)
    for name, array in net.arrays(inputs_of(graph, 2)).items():
        memories.write_tensor(net.tensors[name], array)
    jobs, expected, cycles = [], [], []
    base = PAGE * PAGE_WORDS
    for index, shape in enumerate(net.shapes):
        every = [scheme for cores in range(1, len(chip.cores) + 1) for scheme in schemes(shape, cores)]
        scheme = every[(5 * index + 3) % len(every)]
        template = compile_stage(net, index, scheme)
        place = ProgramPlace(chip.cores[::-1][: scheme.cores], PAGE, PAGE + net.code_page, PAGE + net.code_page + 2)
        program = place_program(template, chip, place, alone=True)
        before = windows(net, memories, chip)
        functional.execute(net.schedule(index, scheme, chip.cores[: scheme.cores]).operations, memories)
        memory = [(dram, base, words) for dram, words in zip(chip.drams, before, strict=True)]
        outputs = [(dram, base, net.window.words) for dram in chip.drams]
        jobs.append(Job(program, [*memory, *program.image(chip)], outputs))
        expected.append(windows(net, memories, chip))
        cycles.append(play(program, chip).cycles)
    runs = SimulatedDevice(build(chip, "verilator")).run(jobs, "templates")
    for index, (run, right, model) in enumerate(zip(runs, expected, cycles, strict=True)):
        stage = net.stages[index].y
        assert run.fault is None, stage
        for result, target in zip(run.memory, right, strict=True):
            np.testing.assert_array_equal(result, target, stage)
        assert abs(run.cycles - model) <= 0.02 * run.cycles + 8, stage
