"""Mappings of other tools on the command line: imported, run beside what the tool claims, and chips for the tools."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import meshloom
from meshloom.hw.spec.config import load
from meshloom.sched.ir.schedule import Schedule
from meshloom.sched.workload.layers import WorkloadError
from meshloom.sched.workload.shapes import parse
from meshloom.tb.exchange.interface import Importer, ImportFileError
from meshloom.tb.exchange.zigzag_chip import texts
from meshloom.tb.results.energy import load as load_energy
from meshloom.tb.results.schema import load as load_results

from ..command_line import invoke

EXAMPLES = Path(__file__).parents[3] / "examples" / "mappings"
GEMM = EXAMPLES / "zigzag" / "tiny" / "gemm_32x32x32_complete.json"
MAP = EXAMPLES / "timeloop" / "tiny" / "conv_8x8x8-16_k3_p1.map.yaml"
SHAPE = "conv:8x8x8-16,k3,p1"
#: An importer of anybody's: it reads files of Timeloop, and claims what nobody does.
MINE = """
from dataclasses import replace
from meshloom.sched.ir.schedule import ToolClaim
from meshloom.tb.exchange.interface import Importer
from meshloom.tb.exchange.timeloop import read

def mine(path, shape):
    return replace(read(path, shape), claim=ToolClaim(tool="mine", cycles=1000, dram_bytes=5))

READER = Importer("mine", "an example", mine)
"""


def test_a_mapping_is_imported_as_a_schedule(tmp_path: Path) -> None:
    out = tmp_path / "gemm.json"
    shown = invoke("import", "zigzag", GEMM, "--chip", "tiny", "--out", out)
    assert shown.exit_code == 0, shown.output
    result = Schedule.load(out)
    assert (result.workload, result.scheduler) == ("gemm:32x32x32", "zigzag-dse")
    assert result.claim is not None
    assert result.claim.cycles == 2306
    assert result.predicted is not None
    beyond = 100 * (result.predicted.cycles - 2306) / 2306
    assert f"{beyond:+.2f} %" in shown.stdout
    assert invoke("check", out).exit_code == 0


def test_it_runs_beside_the_claim_and_so_does_the_imported_file(tmp_path: Path) -> None:
    """The imported file says what the mapping's says."""
    imported = tmp_path / "gemm.json"
    assert invoke("import", "zigzag", GEMM, "--chip", "tiny", "--out", imported).exit_code == 0
    shown = invoke("run", f"zigzag:{GEMM}", imported, "--chip", "tiny", "--json", tmp_path / "rows.json")
    assert shown.exit_code == 0, shown.output
    one, other = load_results(tmp_path / "rows.json").rows
    assert (one.claimed_cycles, one.rtl_cycles, one.mismatches) == (2306, one.model_cycles, 0)
    assert one.beyond_claim_percent == pytest.approx(100 * (one.rtl_cycles - 2306) / 2306)
    assert (other.claim, other.rtl_cycles) == (one.claim, one.rtl_cycles)
    assert one.settings is not None
    assert one.settings.file == GEMM.name
    assert "claimed cycles" in shown.stdout
    assert "claimed DRAM bytes" not in shown.stdout
    assert one.energy is not None
    assert f"{one.energy.microjoules:,.4g}" in shown.stdout
    why = invoke("explain", imported)
    assert f"zigzag-dse claims 2,306 cycles: these are {one.rtl_cycles - 2306:,} more (+" in why.stdout, why.output


def test_an_importer_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(MINE, encoding="utf-8")
    name = f"{tmp_path / 'my.py'}:READER:{MAP}"
    shown = invoke("run", name, "--workload", SHAPE, "--chip", "tiny", "--json", tmp_path / "rows.json")
    assert shown.exit_code == 0, shown.output
    (row,) = load_results(tmp_path / "rows.json").rows
    assert (row.workload, row.claimed_cycles) == (SHAPE, 1000)
    (tmp_path / "my.py").write_text("READER = print", encoding="utf-8")
    wrong = invoke("import", f"{tmp_path / 'my.py'}:READER", MAP, "--workload", SHAPE)
    assert wrong.exit_code == 2
    assert "it must be of type Importer" in wrong.output.replace("\n", " ")


def test_the_nearest_is_run_when_it_is_asked_for(tmp_path: Path) -> None:
    """8 rows of pixels are more than 4."""
    path = tmp_path / "wide.map.yaml"
    path.write_text(MAP.read_text(encoding="utf-8").replace("C8 P2 Q2", "C8 P1 Q2").replace("P4 Q1", "P8 Q1"))
    command = "import", "timeloop", path, "--workload", SHAPE, "--chip", "tiny"
    refused = invoke(*command)
    assert refused.exit_code == 2
    assert "8 pixels are unrolled over the array of tiny" in " ".join(refused.output.split())
    done = invoke(*command, "--nearest")
    assert done.exit_code == 0, done.output
    assert "the nearest: 8 pixels in 2 turns" in done.stdout


def test_a_claim_for_another_array_says_so() -> None:
    shown = invoke("import", "zigzag", GEMM, "--chip", "quad8")
    assert "the claim is for an array of 4x4, quad8 has 8x8x4 (rows, columns, cores)" in shown.stdout, shown.output
    assert "the claim is for" not in invoke("import", "zigzag", GEMM, "--chip", "tiny").stdout
    quad8 = EXAMPLES / "zigzag" / "quad8" / "gemm_64x64x64_complete.json"
    assert "the claim is for" not in invoke("import", "zigzag", quad8, "--chip", "quad8").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "gemm:8x8x8", "--nearest"), "is for mappings of other tools; none is given"),
        (("run", f"zigzag:{GEMM}", "--scheduler", "loop_order", "--scheduler", "zigzag"), "has been mapped already"),
        (("run", "zigzag:", "--chip", "tiny"), "names no file"),
        (("run", "zigzag:none.json", "--chip", "tiny"), "none.json: No such file or directory"),
        (("import", "zigsag", GEMM), "did you mean zigzag"),
        (("import", "zigzag", GEMM, "--workload", "gemm:32x32x64"), "is of another layer: C = 32"),
        (("import", "zigzag", GEMM, "--workload", "resnet8"), "name one of them"),
        (
            ("export-chip", "tiny", "--as", "timelop"),
            "unknown chip exporter 'timelop'; known are accelforge, scalesim, stream, timeloop, zigzag",
        ),
    ],
)
def test_bad_requests_are_one_line(arguments: tuple[object, ...], says: str) -> None:
    shown = invoke(*arguments)
    assert shown.exit_code == 2, shown.output
    assert says in " ".join(shown.output.replace("│", " ").split())


def test_a_chip_for_zigzag(tmp_path: Path) -> None:
    shown = invoke("export-chip", "quad16", "--as", "zigzag", "--out", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "note: zigzag does not see the NoC" in shown.stdout
    chip = yaml.safe_load((tmp_path / "quad16.yaml").read_text(encoding="utf-8"))
    memories = chip["memories"]
    assert memories["a"]["size"] == 4096 * 16 * 8
    assert memories["acc"]["size"] == (1024 - 128) * 16 * 32
    assert memories["dram"]["served_dimensions"] == chip["operational_array"]["dimensions"] == ["D1", "D2", "D3"]
    assert chip["operational_array"]["sizes"] == [16, 16, 4]
    assert yaml.safe_load((tmp_path / "quad16.mapping.yaml").read_text(encoding="utf-8"))[0]["spatial_mapping"] == {
        "D1": ["OX, 16"], "D2": ["K, 16"], "D3": ["K, 4"],
    }  # fmt: skip
    assert yaml.safe_load(texts(load("tiny"), load_energy())["tiny.yaml"])["operational_array"]["sizes"] == [4, 4]


def test_python_has_it_too() -> None:
    work = meshloom.Workload.mapped("timeloop", MAP, SHAPE)
    result = meshloom.schedule(work, "tiny")
    assert (result.workload, result.scheduler) == (SHAPE, "timeloop")
    assert result.claim is not None
    with pytest.raises(WorkloadError, match="of which no layer runs by itself"):
        work.layers()
    with pytest.raises(ImportFileError, match="has no strides: name its layer"):
        meshloom.schedule(meshloom.Workload.mapped("timeloop", MAP), "tiny")


def test_an_importer_may_be_named_by_its_module() -> None:
    assert Importer("late", "", "meshloom.tb.exchange.timeloop:read").read(MAP, parse(SHAPE)).shape.name == SHAPE
