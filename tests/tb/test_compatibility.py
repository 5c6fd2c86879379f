"""Files of earlier versions, in tests/data: they are read, and mean what they meant (docs/compatibility.md)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from meshloom.hw.spec import config
from meshloom.hw.spec.config import ChipConfig, ConfigError
from meshloom.hw.spec.isa import Opcode, Unit
from meshloom.sched.checker.check import check
from meshloom.sched.ir.schedule import Execution, Gemm, Move, Schedule, ScheduleError
from meshloom.sched.ir.validation import validate
from meshloom.sched.lowering.lifted import lifted, read_metadata
from meshloom.sched.lowering.programs import unchecked
from meshloom.sched.program import image
from meshloom.sched.program.image import ImageError
from meshloom.sched.workload import scenario
from meshloom.tb.results import schema
from meshloom.tb.results.record import ResultsError
from meshloom.tb.results.scenario import ScenarioResults
from meshloom.tb.results.schema import Status
from meshloom.tb.results.sweep import read as read_sweep
from meshloom.tb.runs.sweeps.grid import points

FOLDER = Path(__file__).parents[1] / "data" / "v0.1"
#: Digest of chip.toml in version 0.1. A field that a chip gets later stands in `config.NEWER_FIELDS`: otherwise no
#: schedule and no program of before is for the chip that it was made for.
DIGEST = "7e590ec353607b91fdf77de157e69e519fee1476f73809ea32869e1c5b2f5684"
WORKLOAD = "conv:4x4x8-8,k3,p1,relu"


@pytest.fixture(scope="module")
def chip() -> ChipConfig:
    return config.load(FOLDER / "chip.toml")


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return Schedule.load(FOLDER / "schedule.json")


def test_a_chip_is_the_same_chip(chip: ChipConfig) -> None:
    assert (chip.name, chip.lanes, chip.rows, chip.cols, chip.programs) == ("pocket", 8, 8, 8, 8)
    assert (chip.dram.words, chip.dram.bytes_per_cycle, chip.dram.latency) == (262144, 7, 20)
    assert (len(chip.cores), len(chip.drams), chip.host) == (4, 2, 0x10)
    assert chip.digest == DIGEST


def test_a_newer_field_changes_a_digest_only_where_it_is_used(
    chip: ChipConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hashlib.sha256(
        chip.model_dump_json(exclude={"core": {"vec_table"}, "counters": True, "clock_mhz": True}).encode()
    ).hexdigest()
    monkeypatch.setattr(config, "NEWER_FIELDS", ("core.vec_table", "counters"))
    assert chip.digest == before != DIGEST
    tables = chip.model_copy(update={"core": chip.core.model_copy(update={"vec_table": True})})
    assert (
        tables.digest == hashlib.sha256(tables.model_dump_json(exclude={"counters", "clock_mhz"}).encode()).hexdigest()
    )


def test_a_schedule_has_its_operations_and_tensors(chip: ChipConfig, schedule: Schedule) -> None:
    assert (schedule.workload, schedule.scheduler, schedule.chip_digest) == (WORKLOAD, "loop_order", DIGEST)
    assert schedule.execution is Execution.TRIGGERED
    assert len(schedule.operations) == 28
    bias, gemm = schedule.operations[0], next(op for op in schedule.operations if isinstance(op, Gemm))
    assert isinstance(bias, Move)
    assert (bias.issuer, bias.src.tile, bias.src.address, bias.dst.tile, bias.words) == (1, 0, 44, 1, 4)
    assert (gemm.core, gemm["kernel_h"], gemm["kernel_w"], gemm["relu"], gemm["pad_top"]) == (1, 3, 3, 1, 1)
    assert [tensor.name for tensor in schedule.tensors] == ["x", "w", "bias", "y"]
    assert schedule.predicted is not None
    assert schedule.predicted.cycles == 601
    validate(schedule, chip)


def test_a_program_is_that_of_its_schedule(chip: ChipConfig, schedule: Schedule) -> None:
    program, text = image.load_with_metadata(FOLDER / "program.bin", chip)
    assert program.chip_digest == DIGEST
    assert {stream.unit for stream in program.streams} == {Unit.MOVER, Unit.MATRIX}
    counts = [
        sum(one.opcode is opcode for stream in program.streams for one in stream.instructions) for opcode in Opcode
    ]
    assert dict(zip(Opcode, counts, strict=True)) | {Opcode.SYNC: 0} == dict.fromkeys(Opcode, 0) | {
        Opcode.MOVE: 24,
        Opcode.GEMM: 4,
    }
    check(program, chip)
    metadata = read_metadata(text, "program.bin")
    assert (metadata.chip, metadata.workload, metadata.tensors) == ("pocket", WORKLOAD, schedule.tensors)
    again, _ = lifted(program, metadata, chip)
    for op, saved in zip(again.operations, schedule.operations, strict=True):
        assert op.kind == saved.kind
        if isinstance(op, Move):
            assert op == saved.model_copy(update={"label": ""})
        else:
            assert isinstance(saved, Gemm)
            assert (op.core, op.body) == (saved.core, dict.fromkeys(op.body, 0) | saved.body)


def test_a_program_without_metadata(chip: ChipConfig) -> None:
    program, text = image.load_with_metadata(FOLDER / "program_without_metadata.bin", chip)
    assert text == ""
    assert program == image.load(FOLDER / "program.bin")


def test_lowering_makes_the_program_of_then(chip: ChipConfig, schedule: Schedule) -> None:
    program = unchecked(schedule, chip)
    assert image.to_bytes(program) == (FOLDER / "program_without_metadata.bin").read_bytes()


def test_results_of_layers() -> None:
    results = schema.load(FOLDER / "results.json")
    assert results.schema_version == 1
    assert results.environment["meshloom"] == "0.1.0"
    assert [(row.workload, row.rtl_cycles, row.model_cycles, row.status) for row in results.rows] == [
        ("gemm:4x4x4", 266, 266, Status.PASSED),
        ("resnet8/conv1", 37592, 37592, Status.PASSED),
    ]
    assert results.summary.ok


def test_results_of_a_network_call_the_noc_by_its_name_of_now() -> None:
    text = (FOLDER / "network.json").read_text(encoding="utf-8")
    assert '"limit": "network"' in text
    assert '"noc":' not in text
    (row,) = schema.load(FOLDER / "network.json").rows
    assert row.network is not None
    assert (row.workload, row.rtl_cycles, row.bytes_checked, len(row.network.layers)) == ("resnet8", 794380, 114776, 11)
    old = json.loads(text)["rows"][0]["network"]
    assert row.network.layers[-1].limit == "noc"
    assert row.network.shares["noc"] == old["shares"]["network"]
    for layer, before in zip(row.network.layers, old["layers"], strict=True):
        assert layer.shares.get("noc") == before["shares"].get("network")
        assert "network" not in layer.shares


def test_results_of_a_scenario() -> None:
    text = (FOLDER / "serve.json").read_text(encoding="utf-8")
    results = ScenarioResults.model_validate_json(text)
    figures = results.scenario
    assert (results.schema_version, figures.name, figures.chip, figures.scheduler) == (1, "two", "pocket", "prema")
    assert (figures.model_cycles, figures.rtl_cycles, figures.chip_digest) == (500020, None, DIGEST)
    assert [(row.network, row.arrival) for row in results.instances] == [("minilm_block", 0), ("minilm_block", 4000)]
    assert (len(results.programs), len(results.cores), results.ok) == (12, 24, True)


def test_a_scenario() -> None:
    both = scenario.load(FOLDER / "scenario.toml")
    assert both.name == "two"
    assert [(each.network, each.batch, each.arrival, each.deadline, each.factor) for each in both.requests] == [
        ("minilm_block", 1, 0, None, 2.0),
        ("minilm_block", 1, 4000, None, 2.0),
    ]


def test_a_sweep_has_its_points() -> None:
    sweep = read_sweep(FOLDER / "sweep.toml")
    assert (sweep.name, sweep.measure, sweep.seed, sweep.sample) == ("widths", "model", 7, 3)
    everything = points(sweep.model_copy(update={"sample": None}), FOLDER)
    assert len(everything) == 16
    chosen = points(sweep, FOLDER)
    assert [(point.workload, point.scheduler, dict(point.parameters)) for point in chosen] == [
        ("gemm:8x16x8", "loop_order:effort=1.0", {"dram.latency": 40, "dram.bytes_per_cycle": 4, "effort": 1.0}),
        ("resnet8/conv1", "loop_order:effort=1.0", {"dram.latency": 40, "dram.bytes_per_cycle": 4, "effort": 1.0}),
        ("resnet8/conv1", "loop_order:effort=0.5", {"dram.latency": 40, "dram.bytes_per_cycle": 8, "effort": 0.5}),
    ]


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_is_refused_with_the_mend(version: int, tmp_path: Path) -> None:
    def changed(name: str, field: str) -> Path:
        values = json.loads((FOLDER / name).read_text(encoding="utf-8"))
        path = tmp_path / name
        path.write_text(json.dumps(values | {field: version}), encoding="utf-8")
        return path

    with pytest.raises(ScheduleError, match=r"schedule\.json: version: .*; save the schedule again"):
        Schedule.load(changed("schedule.json", "version"))
    with pytest.raises(ResultsError, match=rf"schema_version {version} is not 1: rerun to rewrite it"):
        schema.load(changed("results.json", "schema_version"))
    code = (FOLDER / "program.bin").read_bytes()
    number = {0: 0, 2: 3}[version].to_bytes(2, "little")
    with pytest.raises(ImageError, match=r"this Meshloom reads versions 1 and 2; write it again"):
        image.from_bytes(code[:4] + number + code[6:])


def test_a_field_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    values = json.loads((FOLDER / "results.json").read_text(encoding="utf-8")) | {"temperature": 300}
    (tmp_path / "r.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ResultsError, match=r"temperature: .*a later one wrote the file, run it again"):
        schema.load(tmp_path / "r.json")
    text = (FOLDER / "chip.toml").read_text(encoding="utf-8")
    (tmp_path / "c.toml").write_text("temperature = 300\n" + text, encoding="utf-8")
    with pytest.raises(ConfigError, match="temperature"):
        config.load(tmp_path / "c.toml")
