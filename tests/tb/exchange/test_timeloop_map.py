"""Our schedules as maps of Timeloop: what is a plain nest comes back as the same nest, other things are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshloom.hw.spec.config import load
from meshloom.sched.schedulers.nest.mapping import Dimension, Factor
from meshloom.sched.workload.shapes import parse
from meshloom.tb.exchange.timeloop import read
from meshloom.tb.exchange.timeloop_map import MapError, timeloop_map
from meshloom.tb.results.nests import Flow, GemmTile, LayerTiles, Load, Loop, Nest

from ..command_line import invoke

TINY = load("tiny")  # one core of 4x4


def tiles(gemm: tuple[int, int, int], *loops: tuple[str, int], **parts: int) -> LayerTiles:
    one = GemmTile(0, 0, 0, 0, *gemm, (0, 0))
    nest = Nest(tuple(Loop((name,), count) for name, count in loops), (), one, 1.0, parts, 1)
    return LayerTiles([one], 0, {("DRAM", "A"): Flow()}, None, nest)


def test_a_product_comes_back_as_the_same_nest(tmp_path: Path) -> None:
    shape = parse("gemm:32x16x24")
    path = tmp_path / "a.map.yaml"
    path.write_text(timeloop_map(shape, tiles((8, 8, 12), ("n", 2), ("p", 2), ("k", 2), p=2), TINY, "s"))
    entries = yaml.safe_load(path.read_text())["mapping"]
    assert [(each["target"], each["type"]) for each in entries] == [
        ("DRAM", "temporal"), ("DRAM", "spatial"), ("Core", "temporal"), ("Core", "spatial"),
    ]  # fmt: skip
    mapping = read(path, shape).mapping
    assert list(mapping.array) == [Factor(Dimension.OX, 4), Factor(Dimension.K, 4)]
    assert list(mapping.cores) == [Factor(Dimension.OX, 2)]
    own = [(Dimension.C, 12), (Dimension.OX, 2), (Dimension.K, 2)]
    outer = [(Dimension.C, 2), (Dimension.OX, 2), (Dimension.K, 2)]
    assert mapping.loops == tuple(Factor(*each) for each in (*own, *outer))


def test_a_convolution_comes_back_too(tmp_path: Path) -> None:
    shape = parse("conv:8x8x8-16,k3,p1")
    path = tmp_path / "a.map.yaml"
    path.write_text(timeloop_map(shape, tiles((16, 4, 8 * 9), ("p", 4), ("n", 4)), TINY, "s"))
    mapping = read(path, shape).mapping
    own = [(Dimension.C, 8), (Dimension.FX, 3), (Dimension.FY, 3), (Dimension.OX, 2), (Dimension.OY, 2)]
    assert mapping.loops == tuple(Factor(*each) for each in (*own, (Dimension.K, 4), (Dimension.OY, 4)))


@pytest.mark.parametrize(
    ("workload", "made", "says"),
    [
        ("gemm:16x16x16", LayerTiles(), "has no GEMMs alone, so there is no nest"),
        ("gemm:16x16x16", tiles((16, 16, 16), ("p", 2)), "make M = 32, the layer has 16"),
        ("gemm:16x16x16", tiles((16, 16, 8), ("k", 2), ("k", 1)), ""),
        ("gemm:18x16x16", tiles((18, 16, 16)), "does not fill 4x4 PEs row by row"),
        ("conv:8x8x8-16,k3,p1", tiles((64, 16, 8)), "sums over a part of the kernel alone"),
        ("conv:8x8x8-16,b2", tiles((64, 16, 8)), "has a batch of 2, whose images are mixed"),
        ("gemm:16x16x16", tiles((8, 8, 16), ("p", 2), ("n", 2), ("p", 1)), ""),
        ("gemm:64x16x16", tiles((16, 16, 16), ("p", 2), ("n", 1), ("p", 2)), "two loops go over M"),
    ],
)
def test_what_is_no_plain_nest_is_refused(workload: str, made: LayerTiles, says: str) -> None:
    if not says:
        assert "mapping:" in timeloop_map(parse(workload), made, TINY, "s")
        return
    with pytest.raises(MapError, match=says):
        timeloop_map(parse(workload), made, TINY, "s")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"loops": (Loop(("p", "n"), 2),)}, "tiles go over several dimensions at once, so it is no plain nest"),
        ({"loops": (Loop((), 2),)}, "tiles go in no order"),
        ({"loops": (Loop(("p",), 2, (Load("B", 4.0, (0,)),)),)}, "tiles stay for an outer loop as well"),
    ],
)
def test_loops_that_timeloop_has_no_words_for_are_refused(change: Any, says: str) -> None:
    good = tiles((8, 16, 16), ("p", 2))
    assert good.nest is not None
    good.nest = replace(good.nest, **change)
    with pytest.raises(MapError, match=says):
        timeloop_map(parse("gemm:16x16x16"), good, TINY, "s")
    staged = tiles((16, 16, 16))
    staged.flows["DRAM", "SPM"] = Flow()
    with pytest.raises(MapError, match="a memory that is not part of a core's nest"):
        timeloop_map(parse("gemm:16x16x16"), staged, TINY, "s")


def test_the_command_writes_a_map_that_is_imported_again(folder: Path) -> None:
    layer, chip = "conv:16x16x16-16", ("--chip", "mono16")
    shown = invoke("schedule", layer, *chip, "--as", "timeloop", "--out", "a.map.yaml")
    assert shown.exit_code == 0, shown.output
    again = invoke("import", "timeloop", "a.map.yaml", "--workload", layer, *chip)
    assert again.exit_code == 0, again.output
    loops = invoke("schedule", layer, *chip, "--as", "loops", "--out", "a.txt")
    assert loops.exit_code == 0, loops.output
    assert "GEMM: 64 pixels x 16 output channels x 16 inputs" in (folder / "a.txt").read_text()
    assert "name it with --out" in " ".join(invoke("schedule", layer, "--as", "loops").output.replace("│", " ").split())
    wrong = invoke("schedule", "chain:dlrm/top1..top5", "--chip", "server2", "--scheduler", "chain", "--as", "timeloop",
                   "--out", "b")  # fmt: skip
    assert "is no single layer; Timeloop maps one" in wrong.output
