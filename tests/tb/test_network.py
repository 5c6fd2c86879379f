"""A whole network on the RTL, from inputs to the row of the table; and that each comparison can fail."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import OFFSET_BITS, ChipConfig, load
from meshloom.hw.spec.isa import Opcode, Region, Unit
from meshloom.sched.ir.schedule import Move, Schedule
from meshloom.sched.lowering.programs import program_of
from meshloom.sched.model.timeline import play
from meshloom.sched.schedulers.network.scheduler import schedule
from meshloom.sched.schedulers.network.sharing import SharingOptions
from meshloom.sched.store import cache
from meshloom.sched.workload.graph import Graph
from meshloom.sched.workload.stages import cut
from meshloom.tb.build.builder import build
from meshloom.tb.compare import attribution
from meshloom.tb.devices.interface import Job, Run
from meshloom.tb.devices.observe import ObserveError
from meshloom.tb.devices.simulated import SimulatedDevice
from meshloom.tb.inputs.golden.graph import golden_values
from meshloom.tb.inputs.sources import Feed
from meshloom.tb.results.legend import GROUPS
from meshloom.tb.results.schema import Row, Settings, Status
from meshloom.tb.runs import network
from meshloom.tb.runs.batch import simulate
from meshloom.tb.runs.kinds.networks import NetworkRun
from meshloom.tb.runs.network import PreparedNetwork

from ..sched.network_graphs import (
    Grower,
    Value,
    attention,
    every_kind,
    functions,
    inputs_of,
    normalised,
    placed,
    square,
)
from ..sched.schedulers.network.test_expansion import nothing_between_is_stored, three

CHIP = load("tiny")
LABELS = tuple(f"class {number}" for number in range(10))


def graph() -> Graph:
    return replace(every_kind(14, 9), labels=LABELS)


@pytest.fixture(scope="module")
def prepared() -> PreparedNetwork:
    return network.prepare(graph(), CHIP)


@pytest.fixture(scope="module")
def feed() -> Feed:
    return Feed("noise.png", inputs_of(graph(), 3), 4, 7)


def wrong_word(job: Job, result: Schedule, name: str) -> Job:
    """The job with a wrong bit in the first lane of each word of a tensor's first piece in DRAM."""
    piece = result.tensor(name).pieces[0]
    at = piece.tile, piece.address & ((1 << OFFSET_BITS) - 1)
    memory = []
    for tile, offset, words in job.memory:
        changed = words.copy()
        if (tile, offset) == at:
            changed[:, 0] ^= 0x40
        memory.append((tile, offset, changed))
    return replace(job, memory=memory)


@pytest.fixture(scope="module")
def runs(prepared: PreparedNetwork, feed: Feed) -> dict[str, Run]:
    """The network as it is, with one wrong weight, one wrong bias and one wrong input, and with too little time."""
    job = network.job(prepared, feed.arrays, CHIP, 4, 20_000)
    result = prepared.network_schedule.schedule
    jobs = {"good": job, "hang": replace(job, watchdog=3000)}
    jobs |= {name: wrong_word(job, result, name) for name in ("dw/w", "wide/bias", "grey@packed")}
    device = SimulatedDevice(build(CHIP, "verilator"))
    return dict(zip(jobs, device.run(list(jobs.values())), strict=True))


@pytest.fixture(scope="module")
def row(prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run]) -> Row:
    return network.row(prepared, "every", feed, runs["good"], CHIP)


def bytes_of(name: str, prepared: PreparedNetwork) -> int:
    value = prepared.graph.value(name)
    return len(prepared.network_schedule.lanes[name]) * value.height * value.width


def test_every_tensor_is_compared_and_right(row: Row, prepared: PreparedNetwork) -> None:
    assert (row.status, row.reason, row.mismatches, row.faults) == (Status.PASSED, "", 0, 0)
    layers = [layer.output for layer in prepared.graph.layers if layer.kind != "concat"]
    assert row.network is not None
    assert row.network.tensors_checked == len(layers)
    # as computed, and outputs once more in DRAM
    assert row.bytes_checked == sum(bytes_of(name, prepared) for name in (*layers, *prepared.graph.outputs))
    assert (row.workload, row.chip, row.scheduler, row.simulator) == ("every", "tiny", "loop_order", "verilator")
    assert row.instructions == prepared.program.instructions


def test_functions_of_activations_on_the_rtl() -> None:
    """Tables (whose lanes without a channel are not zero), products and repetitions, to the byte and the cycle."""
    prepared_network = network.prepare(functions(7, 9), CHIP)
    feed = Feed("noise.png", inputs_of(prepared_network.graph, 6), 4, 7)
    (run,) = SimulatedDevice(build(CHIP, "verilator")).run(
        [network.job(prepared_network, feed.arrays, CHIP, 4, 60_000)]
    )
    row = network.row(prepared_network, "functions", feed, run, CHIP)
    assert (row.status, row.reason, row.mismatches) == (Status.PASSED, "", 0)
    assert row.rtl_cycles == row.model_cycles > 0


def test_of_outputs_with_lanes_that_need_not_be_zero_these_do_not_count() -> None:
    grower = Grower(1, Value("x", 6, 3, 5))
    prepared_network = network.prepare(grower.graph("table", grower.table("y", "x", np.full(256, 7, np.int8))), CHIP)
    (output,) = network.output_words(prepared_network, inputs_of(prepared_network.graph, 1), CHIP)
    assert output.compared.tolist() == [[True] * 4] * 15 + [[True, True, False, False]] * 15
    assert (output.words[output.compared] == 7).all()


def test_softmax_and_layer_normalisation_on_the_rtl() -> None:
    prepared_network = network.prepare(normalised(6, 9), CHIP)
    feed = Feed("noise.png", inputs_of(prepared_network.graph, 6), 4, 7)
    (run,) = SimulatedDevice(build(CHIP, "verilator")).run(
        [network.job(prepared_network, feed.arrays, CHIP, 4, 60_000)]
    )
    row = network.row(prepared_network, "normalised", feed, run, CHIP)
    assert (row.status, row.reason, row.mismatches) == (Status.PASSED, "", 0)
    assert row.rtl_cycles == row.model_cycles > 0


def test_an_inverted_residual_on_the_rtl() -> None:
    """What cores expand, filter and project without storing anything between, to the byte and the cycle."""
    sharing = SharingOptions(expanded=frozenset({"project"}))
    schedules = schedule(three(square(3, 2, 1), square(3, 1, 1), channels=7), CHIP, sharing=sharing)
    nothing_between_is_stored(schedules, CHIP)
    program = program_of(schedules.schedule, CHIP)
    prepared_network = PreparedNetwork(schedules, program, play(program, CHIP))
    feed = Feed("noise.png", inputs_of(prepared_network.graph, 6), 4, 7)
    (run,) = SimulatedDevice(build(CHIP, "verilator")).run(
        [network.job(prepared_network, feed.arrays, CHIP, 4, 60_000)]
    )
    row = network.row(prepared_network, "three", feed, run, CHIP)
    assert (row.status, row.reason, row.mismatches) == (Status.PASSED, "", 0)
    assert row.rtl_cycles == row.model_cycles > 0


def test_attention_on_the_rtl() -> None:
    """Products of two tensors and transposes, whose groups do not fill their last words, to the byte and the cycle."""
    both = [network.prepare(attention(6, 2, depth, 10), CHIP) for depth in (8, 5)]  # heads that fill words, and not
    feeds = [Feed("noise.png", inputs_of(value.graph, 6), 4, 7) for value in both]
    jobs = [network.job(value, feed.arrays, CHIP, 4, 60_000) for value, feed in zip(both, feeds, strict=True)]
    for prepared_network, feed, run in zip(
        both, feeds, SimulatedDevice(build(CHIP, "verilator")).run(jobs), strict=True
    ):
        row = network.row(prepared_network, "attention", feed, run, CHIP)
        assert (row.status, row.reason, row.mismatches) == (Status.PASSED, "", 0)
        assert row.rtl_cycles == row.model_cycles > 0
        assert row.network is not None
        assert row.network.tensors_checked == len(prepared_network.graph.layers)


def test_the_answer_is_that_of_the_chip(row: Row, feed: Feed) -> None:
    scores = golden_values(graph(), feed.arrays)["scores"].reshape(-1)
    assert row.network is not None
    assert row.network.answer == LABELS[int(np.argmax(scores))]
    assert (row.network.picture, row.network.expected, row.network.float_answer) == ("noise.png", "class 4", "class 7")


def test_outputs_that_are_no_vectors_are_saved(
    prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the chip computed them; where they cannot be, the row says so and is there all the same."""
    monkeypatch.chdir(tmp_path)
    more = prepared.graph.outputs[1:]
    assert more
    figures = network.row(prepared, "every", feed, runs["good"], CHIP, Path("kept")).network
    assert figures is not None
    golden = golden_values(graph(), feed.arrays)
    for output in figures.outputs:
        value = prepared.graph.value(output.name)
        if output.file is None:
            assert output.top[0].index == int(golden[output.name].argmax())
        else:
            saved = np.load(tmp_path / output.file)
            np.testing.assert_array_equal(saved, golden[output.name] * np.float32(value.step or 1))
    assert any(output.file for output in figures.outputs)
    (tmp_path / "file").write_text("")
    figures = network.row(prepared, "every", feed, runs["good"], CHIP, Path("file")).network
    assert figures is not None
    assert not any(output.file for output in figures.outputs)
    assert figures.notes == ("outputs cannot be saved in file: Not a directory",)


def test_the_model_knows_the_cycles(row: Row) -> None:
    assert abs(row.error_percent or 100) <= 2 or row.model_cycles == row.rtl_cycles
    assert row.network is not None
    assert row.network.layer_error_percent is not None
    assert row.network.layer_error_percent <= 2


def test_all_pe_cycles_are_accounted_for(prepared: PreparedNetwork, runs: dict[str, Run], row: Row) -> None:
    run, pes = runs["good"], CHIP.rows * CHIP.cols
    macs = {layer.output: prepared.graph.macs(layer) for layer in prepared.graph.layers}
    result = attribution.attribute(
        prepared.program, prepared.network_schedule.schedule, run.records, run.cycles, CHIP,
        lambda op: network.layer_of(op.label), macs,
    )  # fmt: skip
    assert result.total.total == len(CHIP.cores) * run.cycles * pes
    assert row.network is not None
    assert set(row.network.shares) == set(GROUPS)
    assert sum(row.network.shares.values()) == pytest.approx(100)
    assert sum(layer.core_cycles for layer in row.network.layers) == len(CHIP.cores) * run.cycles
    arrays = sum(macs[layer.name] for layer in row.network.layers if layer.kind == "conv")
    assert row.network.shares["compute"] == pytest.approx(100 * arrays / (pes * run.cycles))


def test_every_layer_has_its_figures(row: Row, prepared: PreparedNetwork, runs: dict[str, Run]) -> None:
    assert row.network is not None
    figures = {layer.name: layer for layer in row.network.layers}
    stages = [stage.layer.output for stage in cut(prepared.graph, CHIP).stages]
    assert set(figures) == set(stages)
    in_order = [layer.output for layer in prepared.graph.layers if layer.output in figures]
    assert [layer.name for layer in row.network.layers][: len(in_order)] == in_order
    for name, layer in figures.items():
        assert 0 < layer.rtl_cycles <= runs["good"].cycles
        assert layer.kind == ("copy" if "/copy" in name else prepared.graph.layers[_index(name, prepared)].kind)
        assert set(layer.limit.split("+")) <= {"compute", "vector", "dram", "noc"}
        if layer.kind == "conv":
            assert sum(layer.shares.values()) == pytest.approx(100)
            assert layer.utilisation == pytest.approx(layer.shares["compute"] / 100)
            assert layer.utilisation == pytest.approx(layer.macs / (16 * layer.core_cycles))
        else:
            assert (layer.shares, layer.core_cycles, layer.utilisation) == ({}, 0, 0)


def _index(name: str, prepared: PreparedNetwork) -> int:
    return [layer.output for layer in prepared.graph.layers].index(name)


def test_spans_are_those_of_the_records(prepared: PreparedNetwork, runs: dict[str, Run]) -> None:
    run, result = runs["good"], prepared.network_schedule.schedule
    pairs = network.spans(run.records, CHIP, result)
    computing = [r for r in run.records if r.opcode in (Opcode.GEMM, Opcode.VEC)]
    assert min(start for start, _ in pairs.values()) == min(r.start for r in computing)
    assert max(end for _, end in pairs.values()) == max(r.end for r in computing)
    scores = next(op for op in result.operations if op.label.startswith("scores: y"))
    assert isinstance(scores, Move), "the last layer's store: its GEMM ends the network's chain"
    assert min(pairs["packed"][0], pairs["stem"][0]) == min(
        r.start for r in run.records if r.unit is Unit.MATRIX and r.opcode is Opcode.GEMM
    )


def test_bytes_of_dram_are_those_of_its_moves(prepared: PreparedNetwork, row: Row) -> None:
    tiles: Counter[int] = Counter()
    for op in prepared.network_schedule.schedule.operations:
        if isinstance(op, Move):
            tiles.update({op.src.tile: op.words})
            tiles.update({op.dst.tile: op.words})
    moved = sum(tiles[tile] for tile in CHIP.drams) * CHIP.lanes
    assert row.network is not None
    assert row.network.dram_bytes == moved + 32 * prepared.program.instructions
    assert row.network.dram_bytes > sum(layer.w.size for layer in prepared.graph.layers if layer.w is not None)


# -- checks that can fail -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first"), [("dw/w", "dw: "), ("wide/bias", "wide: "), ("grey@packed", "packed: ")], ids=lambda name: name
)
def test_what_is_wrong_in_dram_is_found_and_named(
    name: str, first: str, prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run]
) -> None:
    result = network.row(prepared, "every", feed, runs[name], CHIP)
    assert result.status is Status.MISMATCH
    assert 0 < result.mismatches < result.bytes_checked
    assert result.first_mismatch.startswith(first), "the layer that made the others wrong"
    assert re.match(r"[a-z]+: \d+ wrong bytes, first in plane \d, row \d", result.first_mismatch)
    assert f"first in {first}" in result.reason
    layer = first.removesuffix(": ")
    place = r"core@\(1,0\) (\w+) stream \[(\d+)\], cycles (\d+)\.\.(\d+)"
    match = re.search(rf"; computed by \w+ '{layer}: .*' \({place}\)$", result.first_mismatch)
    assert match is not None
    unit, index, start, end = match.groups()
    stream = next(s for s in prepared.program.streams if (s.tile, s.unit.name.lower()) == (CHIP.cores[0], unit))
    tag = stream.instructions[int(index)].fields["tag"]
    spans = [(r.start, r.end) for r in runs[name].records if (r.unit, r.tag) == (stream.unit, tag)]
    assert (int(start), int(end)) in spans
    assert result.network is not None
    assert sum(result.network.shares.values()) == pytest.approx(100), "cycles are explained all the same"


def test_an_output_that_is_wrong_in_dram_alone_is_found(
    prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run]
) -> None:
    memory = [words.copy() for words in runs["good"].memory]
    memory[-1][-1, 0] ^= 1
    comparison = network.compare_bytes(prepared, replace(runs["good"], memory=memory), feed.arrays, CHIP)
    last = [tensor.name for tensor in prepared.network_schedule.schedule.tensors if tensor.role == "output"][-1]
    assert comparison.wrong == 1
    assert comparison.first.startswith(f"output {last}: 1 wrong bytes, first in channel ")
    assert f"; computed by GEMM '{last}: " in comparison.first
    assert f", moved by MOVE '{last}: " in comparison.first
    assert comparison.wrong_byte is not None
    assert comparison.wrong_byte.found == np.int8(np.uint8(memory[-1][-1, 0]))


def test_padding_lanes_count(prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run]) -> None:
    """9 channels in words of 4: the last word of each pixel has three lanes without a channel."""
    run = runs["good"]
    place = CHIP.cores[0], Region.OUT
    written = run.observed[place]
    bad = written.words.copy()
    rows = np.flatnonzero((bad[:, 1:] == 0).all(axis=1) & (bad[:, 0] != 0))
    bad[rows[0], 3] = 1
    changed = replace(run, observed={**run.observed, place: written._replace(words=bad)})
    comparison = network.compare_bytes(prepared, changed, feed.arrays, CHIP)
    assert comparison.wrong == 1
    assert "lane 3: is 1, must be 0" in comparison.first


def test_an_operation_without_a_box_does_not_go_unchecked(
    prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run]
) -> None:
    result = prepared.network_schedule.schedule
    blind = [
        op.model_copy(update={"result": None}) if op.label.startswith("dw2: d") else op for op in result.operations
    ]
    changed = replace(
        prepared,
        network_schedule=replace(
            prepared.network_schedule, schedule=result.model_copy(update={"operations": tuple(blind)})
        ),
    )
    with pytest.raises(AssertionError, match="network every: nothing was observed of dw2"):
        network.compare_bytes(changed, runs["good"], feed.arrays, CHIP)


def test_a_run_that_was_not_observed_is_an_error(prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run]) -> None:
    with pytest.raises(ObserveError):
        network.compare_bytes(prepared, replace(runs["good"], observed={}), feed.arrays, CHIP)


def test_a_fault_is_a_row_without_figures(prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run]) -> None:
    result = network.row(prepared, "every", feed, runs["hang"], CHIP)
    assert (result.status, result.bytes_checked) == (Status.FAULT, 0)
    assert result.reason.startswith("fault WATCHDOG")
    assert result.network is not None
    assert (result.network.layers, result.network.shares, result.network.answer) == ((), {}, "")


# -- the road to it -----------------------------------------------------------------------------------------------


def test_prepare_tells_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    texts: list[str] = []
    network.prepare(every_kind(10, 5), CHIP, texts.append)
    assert texts[0].startswith("scheduling packed (1 of ")
    assert texts[-2].startswith("scheduling")  # the search has lowered and played the best one
    assert texts[-1] == "checking the program"
    network.prepare(every_kind(10, 5), CHIP, texts.append)  # the search is kept
    assert texts[-3:] == ["lowering", "checking the program", "predicting its cycles"]


def test_a_network_that_only_pools_has_no_compute(prepared: PreparedNetwork) -> None:
    g = Grower(1, Value("x", 5, 9, 9))
    g.pool("p", "x", square(2, 2))
    g.average("y", "p", square(4))
    only = network.prepare(g.graph("pools", "y"), CHIP)
    feed = Feed("noise", inputs_of(only.graph))
    (run,) = SimulatedDevice(build(CHIP, "verilator")).run([network.job(only, feed.arrays, CHIP, 4, 20_000)])
    row = network.row(only, "pools", feed, run, CHIP)
    assert row.status is Status.PASSED
    assert row.utilisation == 0
    assert row.network is not None
    assert row.network.shares["compute"] == row.network.shares["edges"] == 0
    assert sum(row.network.shares.values()) == pytest.approx(100)


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_both_simulators_agree_on_a_small_network(simulator: str) -> None:
    """A convolution with its pool, and a residual addition: cycles are the model's on either."""
    g = Grower(5, Value("x", 3, 8, 8))
    g.conv("c", "x", 6, square(3, 1, 1), relu=True)
    g.pool("p", "c", square(2, 2))
    g.conv("d", "p", 6, square(3, 1, 1))
    g.add("y", "d", "p", relu=True)
    prepared_network = network.prepare(g.graph("small", "y"), CHIP)
    item = NetworkRun(prepared_network, "small", Feed("noise", inputs_of(prepared_network.graph)))
    (row,) = simulate(
        [item],
        SimulatedDevice(build(CHIP, simulator)),
        Settings(code="", scheduler="loop_order", simulator_version=""),
        lambda event: None,
    )
    assert (row.status, row.simulator, row.mismatches) == (Status.PASSED, simulator, 0)
    assert row.scheduler == "loop_order"
    assert row.rtl_cycles == pytest.approx(prepared_network.timeline.cycles, rel=0.02)


def test_a_trace_that_is_too_small_says_so(prepared: PreparedNetwork, feed: Feed, runs: dict[str, Run]) -> None:
    """Records are lost: bytes are compared all the same, cycles cannot be explained, and the row says which number to
    raise."""
    records = runs["good"].records[40:]
    short: dict[str, Any] = {"records": records, "trace_shortage": "set trace_records = 8192"}
    result = network.row(prepared, "every", feed, replace(runs["good"], **short), CHIP)
    assert (result.status, result.mismatches) == (Status.INCOMPLETE, 0)
    assert result.records_compared < result.records_expected == len(runs["good"].records)
    assert result.record_problem.startswith("set trace_records = 8192; the first without a record is ")
    assert result.network is not None
    assert (result.network.layers, result.network.shares) == ((), {})
    assert result.network.answer, "which the bytes say"
    faulted = network.row(prepared, "every", feed, replace(runs["hang"], **short), CHIP)
    assert faulted.status is Status.FAULT, "which counts for more"


def test_a_network_whose_program_ends_early_is_a_row_that_says_so(prepared: PreparedNetwork, feed: Feed) -> None:
    """What the cores computed until then is less than the schedule says."""
    boot = prepared.program.boot
    code = tuple(each for each in boot.instructions if each.opcode is not Opcode.SYNC)
    early = replace(prepared.program, boot=replace(boot, instructions=code))
    job = replace(network.job(prepared, feed.arrays, CHIP, 4, 20_000), program=early)
    (run,) = SimulatedDevice(build(CHIP, "verilator")).run([job])
    result = network.row(prepared, "every", feed, run, CHIP)
    assert result.status is Status.FAILED
    assert result.failure is not None
    assert result.failure.startswith("what the cores computed is not what the schedule says: core 0 (tile 0x01) wrote")
    assert "END must wait for every stream" in result.failure
    assert result.records_compared < result.records_expected


@pytest.mark.slow
def test_maps_put_together_from_others() -> None:
    prepared_network = network.prepare(placed(), CHIP)
    feed = Feed("noise", inputs_of(placed(), 3))
    (run,) = SimulatedDevice(build(CHIP, "verilator")).run(
        [network.job(prepared_network, feed.arrays, CHIP, 4, 20_000)]
    )
    result = network.row(prepared_network, "placed", feed, run, CHIP)
    assert (result.status, result.mismatches, result.error_percent) == (Status.PASSED, 0, 0)


def test_other_chips_schedule_it_too() -> None:
    chip: ChipConfig = load("quad8")
    assert schedule(graph(), chip).schedule.chip == "quad8"
