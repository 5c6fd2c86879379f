"""Mappings that Stream wrote: they compute their layers, and what is wrong with a file is one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from meshloom.hw.spec.config import load
from meshloom.sched.ir.functional import run
from meshloom.sched.ir.schedule import Move, ToolClaim
from meshloom.sched.schedulers.nest.mapping import MappingError, Operand
from meshloom.sched.schedulers.nest.schedule import schedule
from meshloom.sched.workload.catalog import find
from meshloom.sched.workload.layers import random_data
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.registry import IMPORTERS
from meshloom.tb.exchange.stream import REPORT
from meshloom.tb.exchange.stream_chip import texts
from meshloom.tb.inputs.golden.layer import golden
from meshloom.tb.results.energy import load as load_energy

SMALL = Path(__file__).parents[3] / "examples" / "mappings" / "stream" / "quad8" / "resnet8_conv3_1_2"
SHAPE = find("resnet8/conv3_1_2")[0].shape
STREAM = IMPORTERS.get("stream")


def changed(folder: Path, before: str, after: str, file: str = "mapping.yaml") -> Path:
    """A copy of the example with one file changed; its mapping."""
    place = folder / "run"
    shutil.copytree(SMALL, place)
    text = (place / file).read_text(encoding="utf-8")
    assert before in text
    (place / file).write_text(text.replace(before, after), encoding="utf-8")
    return place / "mapping.yaml"


def test_a_mapping_computes_its_layer_on_its_cores(tmp_path: Path) -> None:
    path = changed(tmp_path, "    - 2\n    - 3\n", "    - 3\n    - 2\n")
    layer, chip = STREAM.read(path, SHAPE), load("quad8")
    assert [str(factor) for factor in layer.mapping.cores] == ["K 4"]
    assert [str(loop) for loop in layer.mapping.loops][-2:] == ["OX 2", "C 4"]
    assert layer.claim.cycles == 9512
    transfers = [(each.tensor, each.begin, each.cycles, each.bytes) for each in layer.claim.transfers]
    assert transfers == [("w", 0, 144, 2304), ("x", 72, 64, 1280), ("y", 1355, 256, 4096)]
    data = random_data(SHAPE)
    result = schedule(SHAPE, chip, data.scale, layer.mapping, layer.claim)
    assert result.claim is not None
    assert result.claim.remark == "", "it says nothing of the array"
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))
    loads = [op for op in result.operations if isinstance(op, Move) and op.label.startswith("w ")]
    first = {op.dst.tile: op.label for op in reversed(loads)}
    order = [chip.cores[number] for number in (0, 1, 3, 2)]
    assert first == {core: f"w n{part} k0" for part, core in enumerate(order)}


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("layers:", "nodes:", r"mapping.yaml: layers: is missing; it must be a mapping.yaml of stream-dse"),
        ("core_allocation:", "core_allocation: [", r"is not YAML: .*was it cut\?"),
        ("split: 4", "split: 3", r"is divided into 3 parts for 4 cores; each core needs one"),
        ("dim: D6", "dim: D7", r"dimension 'D7' is none of a Conv's, D0 to D6"),
        (
            "tile: 8\n  - dim: conv.D5",
            "tile: 7\n  - dim: conv.D5",
            r"tiles of 7 of conv.D1 do not divide the 16 of a core",
        ),
        ("dim: conv.D1", "dim: other.D1", r"tiles of other.D1: other is no layer of the file, which maps conv"),
        ("tile: 8", "tile: 0", r"fused_groups.0.intra_core_tiling.0.tile: Input should be greater than 0"),
        (
            "fused_groups:",
            "- name: two\n  core_allocation: [[0]]\nfused_groups:",
            r"layers conv, two are mapped together",
        ),
        ("  inter_core_tiling", "  - [1]\n  inter_core_tiling", r"layer conv has several core lists; give one"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, before: str, after: str, says: str) -> None:
    path = changed(tmp_path, before, after)
    with pytest.raises((ImportFileError, MappingError), match=says) as refusal:
        STREAM.read(path, SHAPE)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("inner", "kept"), [("D5", ["OX 2", "C 4"]), ("D2", [])])
def test_sums_stay_in_a_core_while_loops_over_channels_run_and_no_longer(
    inner: str, kept: list[str], tmp_path: Path
) -> None:
    """Of two loops over tiles the inner one is over channels, or over rows."""
    path = changed(tmp_path, "conv.D5", f"conv.{inner}")
    core, dram = STREAM.read(path, SHAPE).mapping.levels[Operand.OUTPUT]
    assert [str(loop) for loop in core.loops[7:]] == kept
    assert [str(loop) for loop in dram.loops] == ([] if kept else ["OX 2", "OY 2"])


@pytest.mark.parametrize("number", ["tensor_bits: 18432", "path_cycles: 144"])
def test_a_transfer_of_a_report_may_be_of_nothing_but_not_of_less(tmp_path: Path, number: str) -> None:
    field = number.partition(":")[0]
    path = changed(tmp_path, number, f"{field}: 0", str(REPORT))
    first = STREAM.read(path, SHAPE).claim.transfers[0]
    assert 0 in (first.bytes, first.cycles)
    report = path.parent / REPORT
    report.write_text(report.read_text(encoding="utf-8").replace(f"{field}: 0", f"{field}: -0.5"), encoding="utf-8")
    with pytest.raises(ImportFileError, match=rf"{field}: Input should be greater than or equal to 0"):
        STREAM.read(path, SHAPE)


def test_what_is_beside_it_and_what_it_lacks(tmp_path: Path) -> None:
    path = changed(tmp_path, "totals", "sums", str(REPORT))
    with pytest.raises(ImportFileError, match=r"slot_latency_breakdown.yaml: totals: is missing; it must be a report"):
        STREAM.read(path, SHAPE)
    (path.parent / REPORT).unlink()
    assert STREAM.read(path, SHAPE).claim == ToolClaim(tool="stream-dse")
    with pytest.raises(ImportFileError, match="a mapping of Stream has no sizes: name its layer with --workload"):
        STREAM.read(path, None)
    layer, other = STREAM.read(path, SHAPE), find("resnet8/conv2_1_1")[0].shape
    with pytest.raises(MappingError, match=r"tiles of 8 of conv.D5 do not divide the 3 of a core"):
        STREAM.read(path, find("resnet8/conv1")[0].shape)
    assert STREAM.read(path, other).mapping.sizes != layer.mapping.sizes, "any layer that the tiles divide"
    with pytest.raises(MappingError, match="core 1 is used, tiny has 0 to 0; name cores of the chip"):
        schedule(SHAPE, load("tiny"), 1 << 10, layer.mapping, layer.claim, nearest=True)


def test_a_chip_for_stream() -> None:
    chip = yaml.safe_load(texts(load("quad16"), load_energy())["quad16.stream.yaml"])
    assert [*chip["cores"]] == [0, 1, 2, 3, 4]
    assert chip["cores"][0]["operational_array"]["sizes"] == [16, 16]
    assert chip["cores"][4]["type"] == "zigzag.offchip"
    assert chip["core_connectivity"] == [{"type": "bus", "cores": [0, 1, 2, 3, 4], "bandwidth": 256}]
