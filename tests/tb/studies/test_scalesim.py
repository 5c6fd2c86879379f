"""The comparison with SCALE-Sim: what it is given, how it is driven, what is judged. It is not installed here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from meshloom.sched.support.files import write_atomically
from meshloom.sched.workload.catalog import find
from meshloom.tb.studies.engine.rows import StudyError
from meshloom.tb.studies.tools import scale_sim, scalesim
from meshloom.tb.studies.tools import scale_sim_driver as driver

from .made_rows import page_of


def test_layers_are_those_that_scale_sim_is_given() -> None:
    shapes = [find(name)[0].shape for name in scalesim.LAYERS]
    assert [scale_sim.topology(shape) for shape in shapes] == [
        [1, 64, 1, 1, 64, 64, 1],
        [1, 256, 1, 1, 256, 256, 1],
        [14, 14, 1, 1, 512, 512, 1],
        [28, 28, 1, 1, 256, 256, 1],
        [28, 28, 1, 1, 512, 128, 1],
        [30, 30, 3, 3, 128, 128, 1],
        [28, 28, 1, 1, 128, 512, 1],
    ]


def test_padding_is_folded_in_for_the_true_output_size() -> None:
    # 13 rows in, 1 + 13 + 1 with padding; 7 rows out at stride 2 need all 15
    assert scale_sim.topology(find("conv:13x12x5-33,k3,s2,p1")[0].shape) == [15, 13, 3, 3, 5, 33, 2]


@pytest.mark.parametrize("name", ["conv:8x8x4-4,b2", "conv:8x8x4-4,k3,d2,p2", "conv:8x8x4-4,s1x2"])
def test_what_scale_sim_cannot_express_is_an_error(name: str) -> None:
    with pytest.raises(StudyError, match="SCALE-Sim has no layer like"):
        scale_sim.topology(find(name)[0].shape)


OURS = scalesim.OwnLayer("gemm:8x8x8", 1000, 900, 64, 0, 0.001, 0.5, 0.1)
THEIRS = scale_sim.ForeignLayer("gemm:8x8x8", 1000, 0, 0.5, 0.1)


def test_both_bars_and_every_byte_are_judged() -> None:
    judge = scalesim.judge
    assert judge(OURS, THEIRS) == []
    assert judge(replace(OURS, array_cycles=999, cpu_seconds=0.005), THEIRS) == []
    (text,) = judge(replace(OURS, array_cycles=1000), THEIRS)
    assert text == "1,000 cycles are not fewer than its 1,000"
    (text,) = judge(replace(OURS, cpu_seconds=0.01), THEIRS)
    assert text == "0.010 CPU-s are not 20 times fewer than its 0.10 (10 times)"
    assert judge(replace(OURS, wrong=2, reason="2 of 64 bytes differ"), THEIRS) == ["2 of 64 bytes differ"]
    assert len(judge(replace(OURS, array_cycles=0, compared=0, cpu_seconds=1.0), THEIRS)) == 3


def test_layers_are_side_by_side() -> None:
    slow = replace(OURS, name="b", cpu_seconds=0.01)
    row = scalesim.SideBySide((OURS, slow), (THEIRS, replace(THEIRS, name="b")), 0.5, {"numpy": "1.26"})
    page = page_of(scalesim.STUDY, {scalesim.ComparisonPoint("mono32"): row})
    (table,) = page.tables
    assert table.title == "mono32: one 32x32 core"
    assert table.bad == {1}
    assert [cells[-2:] for cells in table.rows] == [("100", "pass"), ("10", "missed")]
    assert page.missed[0].startswith("mono32, b: 0.010 CPU-s are not 20 times fewer")
    assert page.missed[1] == "CPU-seconds of SCALE-Sim for each of ours, least: 10, not at least 20"
    assert page.remarks()[0].startswith("mono32, gemm:8x8x8: the whole run, 1,000 cycles, is longer")


class FakeSimulator:
    """SCALE-Sim's interface as far as the driver uses it."""

    def __init__(self, **arguments: Any) -> None:
        assert arguments["save_disk_space"]
        assert not arguments["verbose"]
        lines = Path(arguments["topology"]).read_text().splitlines()
        self.numbers = [int(cell) for cell in lines[1].split(",")[1:-1]]
        assert "Dataflow = os" in Path(arguments["config"]).read_text()
        self.runner = self
        self.single_layer_sim_object_list = [self]

    def run_scale(self, top_path: str) -> None:
        sys.stdout.write("noise")

    def get_compute_report_items(self) -> list[float]:
        return [9999, sum(self.numbers), 0, 50.0, 100.0, 50.0]


def test_the_driver_speaks_json_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("scalesim.scale_sim")
    monkeypatch.setattr(module, "scalesim", FakeSimulator, raising=False)
    monkeypatch.setattr(driver, "import_module", lambda name: module)
    monkeypatch.setattr(driver.metadata, "version", lambda name: "9.9")
    write_atomically(tmp_path / "job", json.dumps({"rows": 4, "cols": 8, "layers": [["a", 1, 64, 1, 1, 64, 32, 1]]}))
    driver.main(str(tmp_path / "job"), str(tmp_path))
    versions, layer = map(json.loads, capsys.readouterr().out.splitlines())
    assert versions == {"versions": {"scalesim": "9.9", "numpy": "9.9"}}
    result = scale_sim.ForeignLayer(**layer)
    assert (result.name, result.cycles, result.utilisation) == ("a", 164, 0.5)
    assert result.cpu_seconds >= 0
    assert "ArrayHeight = 4\nArrayWidth = 8\n" in (tmp_path / "chip.cfg").read_text()


def fake_python(folder: Path, text: str) -> Path:
    """A program that takes the place of SCALE-Sim's Python: whatever it is asked to run, it does `text`."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def test_drive_yields_what_it_hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_sim, "OUTPUT", tmp_path)
    shapes = [find("gemm:8x8x8")[0].shape]
    python = fake_python(tmp_path, 'print(\'{"versions": {}}\')\nprint(\'{"name": "x"}\')')
    assert list(scale_sim.drive(python, 4, 4, shapes)) == [{"versions": {}}, {"name": "x"}]
    assert [path.name for path in tmp_path.iterdir()] == ["python"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('{\"versions\": {}}')", "after 0 of 1 layers: it printed nothing"),
        ("import sys; sys.exit('numpy has no attribute x')", "after 0 of 1 layers: numpy has no attribute x"),
    ],
)
def test_a_simulator_that_stops_early_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setattr(scale_sim, "OUTPUT", tmp_path)
    with pytest.raises(StudyError, match=why):
        list(scale_sim.drive(fake_python(tmp_path, text), 4, 4, [find("gemm:8x8x8")[0].shape]))


def test_a_failed_installation_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "noise\nno network")

    monkeypatch.setattr(scale_sim, "OUTPUT", tmp_path)
    monkeypatch.setattr(scale_sim.subprocess, "run", run)
    with pytest.raises(StudyError, match=r"could not be installed: no network \(it needs scalesim==3\.0\.0, numpy<2"):
        scale_sim.install(lambda what: None)
    assert [path.suffix for path in (tmp_path / "tools").glob("[!.]*")] == [".log"]
