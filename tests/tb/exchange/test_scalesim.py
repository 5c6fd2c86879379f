"""Topologies that SCALE-Sim ran: their layers compute, and what is wrong with a file is one line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir.functional import run
from meshloom.sched.schedulers.nest.mapping import Operand
from meshloom.sched.schedulers.nest.schedule import schedule
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.exchange import scalesim
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.registry import IMPORTERS
from meshloom.tb.exchange.scalesim_chip import texts
from meshloom.tb.inputs.golden.layer import golden
from meshloom.tb.results.energy import load as load_energy
from meshloom.tb.results.schema import load as load_results
from meshloom.tb.runs.kinds.mappings import MappedSource

from ..command_line import invoke

EXAMPLES = Path(__file__).parents[3] / "examples" / "mappings" / "scalesim"
SMALL = EXAMPLES / "tiny" / "gemm_32x32x32"
NETWORK = EXAMPLES / "mono16" / "resnet8" / "layers.csv"
SCALESIM = IMPORTERS.get("scalesim")
REPORT = "tiny/COMPUTE_REPORT.csv"


def changed(folder: Path, file: str, before: str, after: str) -> Path:
    """A copy of the small run with one file changed; its topology."""
    place = folder / "run"
    shutil.copytree(SMALL, place)
    text = (place / file).read_text(encoding="utf-8")
    assert before in text
    (place / file).write_text(text.replace(before, after), encoding="utf-8")
    return place / "layers.csv"


def test_a_layer_computes_and_its_reports_are_the_claim() -> None:
    layer, chip = SCALESIM.read(SMALL / "layers.csv", None), load("tiny")
    assert layer.shape.name == "gemm:32x32x32"
    assert (layer.claim.cycles, layer.claim.dram_bytes, layer.claim.array) == (2942, 3 * 1024, (4, 4))
    data = random_data(layer.shape)
    result = schedule(layer.shape, chip, data.scale, layer.mapping, layer.claim)
    assert result.claim is not None
    assert result.claim.remark == "", "its array is the chip's"
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))


def test_claimed_bytes_stand_beside_those_that_were_moved(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    shown = invoke("run", f"scalesim:{SMALL / 'layers.csv'}", "--chip", "tiny", "--json", rows)
    assert shown.exit_code == 0, shown.output
    (row,) = load_results(rows).rows
    assert row.energy is not None
    moved = row.energy.parts["DRAM"].count
    assert moved > 3 * 1024
    assert re.search(rf"claimed DRAM bytes.*DRAM bytes(.|\n)* 3,072 .* {moved:,}", shown.output)


def test_a_layer_of_a_network_is_named() -> None:
    """With its padding, which a topology does not have."""
    (named,) = find("resnet8/conv3_1_2")
    layer, chip = SCALESIM.read(NETWORK, named.shape), load("mono16")
    result = schedule(named.shape, chip, named.scale, layer.mapping, layer.claim)
    assert result.claim is not None
    assert result.claim.changes == ()
    weights = [op.label for op in result.operations if op.label.startswith("w ")]
    assert weights == ["w n0 k0", "w n1 k0"]  # each fold of channels comes once, for all pixels
    with pytest.raises(ImportFileError, match="has 9 layers; name one with --workload"):
        SCALESIM.read(NETWORK, None)
    with pytest.raises(ImportFileError, match="none of its 9 layers is like gemm:8x8x8"):
        SCALESIM.read(NETWORK, parse("gemm:8x8x8"))


def test_layers_of_a_topology_have_its_names(tmp_path: Path) -> None:
    """By which `--workload` chooses one. Of equal ones each has its own claim."""
    path = changed(tmp_path, "layers.csv", "32, 1, 1,", "32, 1, 1, ")
    path.write_text("Layer, a, b, c, d, e, f, g,\na, 1, 8, 1, 1, 8, 8, 1,\nb, 1, 8, 1, 1, 8, 8, 1,\n", encoding="utf-8")
    (path.parent / REPORT).write_text("LayerID, Total Cycles,\n0, 11,\n1, 22,\n", encoding="utf-8")
    (path.parent / "tiny" / "DETAILED_ACCESS_REPORT.csv").unlink()
    for name, cycles in (("a", 11), ("b", 22)):
        layer, mapped = MappedSource("scalesim", path, name).layer()
        assert (layer.name, mapped.claim.cycles) == (f"{path}/{name}", cycles)
    with pytest.raises(ImportFileError, match="has 2 layers; name one with --workload: a, b"):
        SCALESIM.read(path, None)
    assert MappedSource("scalesim", path, "gemm:8x8x8").layer()[1].claim.cycles == 11


def test_inputs_that_are_too_many_come_in_parts(tmp_path: Path) -> None:
    """Half of a kB is 4 of 8 rows of 8 pixels."""
    path = changed(tmp_path, "tiny.cfg", "IfmapSramSzkB = 16", "IfmapSramSzkB = 1")
    path.write_text("Layer, M,\nl, 8, 8, 1, 1, 16, 8, 1,\n", encoding="utf-8")
    mapping = SCALESIM.read(path, None).mapping
    assert [str(loop) for loop in mapping.loops] == ["C 16", "OX 8", "OY 4", "OY 2", "K 2"]
    assert [str(loop) for loop in mapping.levels[Operand.INPUT][0].loops if loop.size > 1] == ["C 16", "OX 8", "OY 4"]


def test_a_product_of_matrices_and_windows_beyond_the_input(tmp_path: Path) -> None:
    path = changed(tmp_path, "layers.csv", "1, 32, 1, 1, 32, 32, 1", "8, 16, 32")
    (path.parent / "tiny" / "COMPUTE_REPORT.csv").unlink()
    layer = SCALESIM.read(path, None)
    assert (layer.shape.name, layer.claim.cycles) == ("gemm:8x16x32", None)
    path.write_text("Layer,\nl, 8, 8, 3, 3, 4, 8, 2, 1:1,\n", encoding="utf-8")
    assert SCALESIM.read(path, None).shape.name == "conv:8x8x4-8,k3,s2,p0x0x1x1"


#: A number of more digits than Python reads.
LONG = "9" * 5000


@pytest.mark.parametrize(
    ("file", "before", "after", "says"),
    [
        ("tiny.cfg", "Dataflow = os", "Dataflow = ws", r"Dataflow = ws keeps weights .*with Dataflow = os"),
        ("tiny.cfg", "SparsitySupport = false", "SparsitySupport = True", r"but layers here are dense; run"),
        ("tiny.cfg", "ArrayHeight = 4", "ArrayHeight = x", r"architecture_presets.arrayheight: .*it must be"),
        (
            "tiny.cfg",
            "FilterSramSzkB = 16",
            "FilterSramSzkB = 0",
            r"tiny.cfg:12: FilterSramSzkB = 0: nothing fits into",
        ),
        (
            "tiny.cfg",
            "IfmapSramSzkB = 16",
            "ifmapsramszkb=0",
            r"tiny.cfg:11: IfmapSramSzkB = 0: .* kB with which SCALE",
        ),
        ("tiny.cfg", "ArrayHeight = 4\n", "", r"architecture_presets.arrayheight: is missing; it must be"),
        ("tiny.cfg", "[general]\n", "", r"tiny.cfg: File contains no section headers.* it must be a configuration of"),
        ("layers.csv", "32, 32, 1,", "32, 3", r"layer gemm_32x32x32: .* is neither IFMAP height, .*; was it cut\?"),
        ("layers.csv", "32, 1,", "32, 1, 2:4,", r"sparsity 2:4: layers here are dense, 1:1"),
        ("layers.csv", "gemm_32", "DP_32", r"is channel by channel \(DP\); import layers that sum over channels"),
        ("layers.csv", "32, 32, 1,", "32, 0, 1,", r"layer gemm_32x32x32: .*out_channels = 0 must be"),
        ("layers.csv", "gemm_32x32x32, 1, 32, 1, 1, 32, 32, 1,\n", "", r"has no layer; a topology is a line of names"),
        ("layers.csv", "32, 32, 1,", f"32, {LONG}, 1,", r"is neither IFMAP height, .*; was it cut\?"),
        ("layers.csv", "gemm_32x32x32, 1, 32, 1, 1, 32, 32, 1,", "  ", r"has no layer; a topology is a line of names"),
        ("layers.csv", "gemm_32", "n" * 140_000, r"layers.csv: is no CSV: field larger than field limit"),
        ("tiny.cfg", "ArrayHeight = 4", f"ArrayHeight = {LONG}", r"architecture_presets.arrayheight: .*it must be"),
        (REPORT, "\n0, 2942", "\n0, 2942\n1, 2942", r"is of 2 layers, its topology of 1; was it cut\?"),
        (REPORT, "2942", "many", r"COMPUTE_REPORT.csv: line 2 has no number in Total Cycles .incl. prefetch. or"),
        (REPORT, "Total Cycles", "Cycles", r"REPORT.csv: has no column 'Total Cycles'; give the repo"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, file: str, before: str, after: str, says: str) -> None:
    path = changed(tmp_path, file, before, after)
    with pytest.raises(ImportFileError, match=says) as refusal:
        SCALESIM.read(path, None)
    assert str(refusal.value).startswith(str(path.parent))
    assert len(str(refusal.value)) < 1000
    assert "\n" not in str(refusal.value)


def test_its_configuration_lies_beside_it_alone(tmp_path: Path) -> None:
    path = changed(tmp_path, "tiny.cfg", "tiny", "tiny")
    shutil.copyfile(path.parent / "tiny.cfg", path.parent / "other.cfg")
    with pytest.raises(
        ImportFileError, match=r"needs the .cfg of its run beside it, alone; there is other.cfg, tiny.cfg"
    ):
        SCALESIM.read(path, None)
    with pytest.raises(ImportFileError, match=r"is of another layer: C = 32, but gemm:32x32x64 has C = 64"):
        SCALESIM.read(SMALL / "layers.csv", parse("gemm:32x32x64"))


def test_a_chip_as_a_configuration() -> None:
    text = texts(load("quad16"), load_energy())["quad16.cfg"]
    for line in ("ArrayHeight = 16", "IfmapSramSzkB = 64", "OfmapSramSzkB = 32", "Bandwidth = 32", "Dataflow = os"):
        assert f"\n{line}\n" in text
    assert (SMALL / "tiny.cfg").read_text(encoding="utf-8") == texts(load("tiny"), load_energy())["tiny.cfg"]


def test_a_last_window_that_does_not_fit_is_padded_by_what_is_missing() -> None:
    shape = scalesim._layer(Path("layers.csv"), ["c", "9", "10", "2", "2", "4", "8", "3"])
    assert (shape.pad_bottom, shape.pad_right, shape.out_h, shape.out_w) == (2, 1, 4, 4)
