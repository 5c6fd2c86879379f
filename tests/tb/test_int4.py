"""Weights of four bits on the RTL: networks and random programs, every byte, and every cycle of the model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from meshloom.hw.spec.config import ChipConfig, load
from meshloom.hw.spec.isa import Opcode
from meshloom.hw.spec.timing import GemmShape, gemm_bubble, gemm_occupancy
from meshloom.sched.ir.schedule import Gemm
from meshloom.sched.model.timeline import play
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.language.integers import integers
from meshloom.sched.workload.language.model import load as load_model
from meshloom.tb.build.builder import build
from meshloom.tb.compare.records import pair
from meshloom.tb.devices.interface import Job
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.sources import Feed
from meshloom.tb.results.language import LanguageResults
from meshloom.tb.results.schema import Settings, Status
from meshloom.tb.runs import network
from meshloom.tb.runs.batch import simulate
from meshloom.tb.runs.kinds.networks import NetworkRun
from meshloom.tb.runs.tokens.kept import KeptSteps
from meshloom.tb.verify.random_programs import random_program

from ..sched.network_graphs import inputs_of
from ..sched.random_graphs import in_groups
from ..sched.schedulers.network.test_int4 import products
from .command_line import invoke


def with_int4(name: str) -> ChipConfig:
    chip = load(name)
    return chip.model_copy(update={"name": f"{name}_int4", "core": chip.core.model_copy(update={"int4": True})})


def occupied(fields: dict[str, int], chip: ChipConfig) -> int:
    """Cycles in which a GEMM reads its operands."""
    shape = (fields[name] for name in ("pixels", "n_blocks", "k_blocks", "kernel_h", "kernel_w"))
    return gemm_occupancy(chip, GemmShape(*shape))


def runs(graph: Graph, chip: ChipConfig, simulator: str) -> None:
    """The network on the RTL; some of its products have such weights."""
    prepared = network.prepare(graph, chip)
    operations = prepared.network_schedule.schedule.operations
    assert any(isinstance(op, Gemm) and op["int4"] for op in operations)
    item = NetworkRun(prepared, graph.name, Feed("noise", inputs_of(graph, 5)))
    settings = Settings(code="", scheduler="loop_order", simulator_version="")
    (row,) = simulate([item], SimulatedDevice(build(chip, simulator)), settings, lambda event: None)
    assert (row.status, row.mismatches) == (Status.PASSED, 0)
    assert row.rtl_cycles == prepared.timeline.cycles


@pytest.mark.parametrize(
    ("name", "simulator"),
    [
        pytest.param("tiny", "verilator", marks=pytest.mark.slow),
        pytest.param("tiny", "icarus", marks=pytest.mark.slow),
        pytest.param("pe12x14", "verilator", marks=pytest.mark.slow),
    ],
)
def test_networks_on_the_rtl(name: str, simulator: str) -> None:
    chip = with_int4(name)
    runs(in_groups(products(4 * chip.cols), chip.cols), chip, simulator)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "pe12x14"])
def test_random_programs_are_predicted_to_the_cycle(name: str) -> None:
    """Behind GEMMs of bytes, which leave no cycle for the scales on a square array, and behind others."""
    chip = with_int4(name)
    values = []
    for seed in range(40):
        random = Random(seed)
        values.append(Job(random_program(random, chip, random.randint(5, 40), threads=1 + seed % 4), [], [], 200_000))
    count = close = 0
    for job, run in zip(values, SimulatedDevice(build(chip, "verilator")).run(values), strict=True):
        timeline = play(job.program, chip)
        assert run.fault is None
        pairs = pair(run.records, timeline.executed, job.program)
        assert len(pairs) == len(run.records) == len(timeline.executed)
        assert [value for value in pairs if value.differs] == []
        assert run.cycles == timeline.cycles
        for stream in job.program.streams:
            products = {one.fields["tag"]: one.fields for one in stream.instructions if one.opcode is Opcode.GEMM}
            count += sum(fields["int4"] for fields in products.values())
            starts = {e.tag: e.start for e in timeline.executed if e.tile == stream.tile and e.tag in products}
            close += sum(
                bool(starts[tag] == starts[before] + occupied(products[before], chip) + bubble)
                for before, tag in pairwise(sorted(starts, key=lambda tag: starts[tag]))
                if (bubble := gemm_bubble(chip, bool(products[tag]["int4"]), bool(products[before]["int4"])))
            )
    assert count > 40
    assert close or chip.cols < chip.lanes


@pytest.mark.slow
def test_a_model_that_is_rounded_to_four_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text and the same bytes on chips with and without; half of the weights' bytes on those with. Served,
    steps that are kept for weights of bytes are not taken for others."""
    monkeypatch.chdir(tmp_path)
    command = ("generate", "shakespeare", "--prompt", "ROMEO:", "--tokens", 3, "--model", "--weight-bits", 4)
    results: list[LanguageResults] = []
    for more in ((), ("--set", "core.int4=true")):
        shown = invoke(*command, *more, "--json", "a.json")
        assert shown.exit_code == 0, shown.stderr
        results.append(LanguageResults.model_validate_json(Path("a.json").read_text()))
    plain, packed = results
    assert (plain.text, plain.perplexity, plain.weight_bits) == (packed.text, packed.perplexity, packed.weight_bits)
    assert packed.weight_bits == 4
    assert packed.decode.dram_bytes < 0.7 * plain.decode.dram_bytes
    assert packed.decode.model_cycles < 0.9 * plain.decode.model_cycles
    model = load_model("shakespeare")
    names = [KeptSteps(integers(model, bits), load("quad16"), {}).name((1,), ()) for bits in (4, 8)]
    assert names[0] != names[1]
