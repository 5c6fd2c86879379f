"""Mappings that ZigZag wrote: they compute their layers, and what is wrong with a file is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir.functional import run
from meshloom.sched.schedulers.nest.mapping import Dimension, Factor, MappingError
from meshloom.sched.schedulers.nest.schedule import schedule
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.registry import IMPORTERS
from meshloom.tb.exchange.zigzag import _whole
from meshloom.tb.inputs.golden.layer import golden

EXAMPLES = Path(__file__).parents[3] / "examples" / "mappings" / "zigzag"
SMALL = EXAMPLES / "mono16" / "gemm_64x64x64_complete.json"
FILES = sorted(EXAMPLES.glob("*/*_complete.json"))
ZIGZAG = IMPORTERS.get("zigzag")


def changed(folder: Path, *change: Any) -> Path:
    """The small file with another value (the last one) at a place."""
    values: Any = json.loads(SMALL.read_text(encoding="utf-8"))
    *place, key, value = change
    inner = values
    for name in place:
        inner = inner[name]
    if value is None:
        del inner[key]
    else:
        inner[key] = value
    path = folder / "changed_complete.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_example_can_be_scheduled(path: Path) -> None:
    layer, chip = ZIGZAG.read(path, None), load(path.parent.name)
    result = schedule(layer.shape, chip, 1 << 10, layer.mapping, layer.claim)
    assert result.claim is not None
    assert result.claim.changes == ()
    assert result.claim.cycles is not None
    assert result.claim.cycles >= layer.shape.macs / (chip.rows * chip.cols * len(chip.cores))


def test_an_example_computes_its_layer() -> None:
    layer, chip = ZIGZAG.read(SMALL, None), load("mono16")
    data = random_data(layer.shape)
    result = schedule(layer.shape, chip, data.scale, layer.mapping, layer.claim)
    assert layer.shape.name == "gemm:64x64x64"
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("inputs", "temporal_mapping", None),
            r"inputs.temporal_mapping: is missing; it must be LAYER_complete.json of",
        ),
        (("outputs", "latency", "computation", "long"), r"outputs.latency.computation: Input should be a valid number"),
        (
            ("inputs", "layer", "loop_dimensions", "K", 65),
            r"MxNxK. make 4 iterations .16 at a time., but K = 65 needs 5",
        ),
        (("inputs", "layer", "loop_dimensions", "G", 2), r"loop_dimensions: G = 2: a layer in groups"),
        (("inputs", "temporal_mapping", "W", [["(C, 64)"]]), r"temporal_mapping.W has 1 levels for 2 memories"),
        (
            ("inputs", "temporal_mapping", "W", [["(C, 6.4)"], []]),
            r"loop '\(C, 6.4\)' is not \(DIMENSION, whole number\)",
        ),
        (("inputs", "temporal_mapping", "W", [["(C, 6.4.0)"], []]), r"loop '\(C, 6.4.0\)' is not \(DIMENSION, whole"),
        (("inputs", "temporal_mapping", "W", [["(C, .)"], []]), r"loop '\(C, .\)' is not \(DIMENSION, whole number"),
        (("inputs", "temporal_mapping", "W", [["(C, 64)"], []]), r"the loops of W are C 64, those of I .*same loops"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, change: tuple[Any, ...], says: str) -> None:
    path = changed(tmp_path, *change)
    with pytest.raises((ImportFileError, MappingError), match=says) as refusal:
        ZIGZAG.read(path, None)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("equation", ["O[m][n]+=W[n][q]*I[m][q]", "O[m][n] = I[m][q] * W[n][q]"])
def test_a_product_may_name_its_dimensions_as_it_likes(equation: str, tmp_path: Path) -> None:
    """Its operands say which is which."""
    path, text = tmp_path / "gemm_complete.json", SMALL.read_text(encoding="utf-8")
    for name, other in (("OX", "M"), ("K", "N"), ("C", "Q")):
        text = text.replace(f'"({name}, ', f'"({other}, ')
    values = json.loads(text)
    values["inputs"]["layer"] |= {"equation": equation, "loop_dimensions": {"M": 64, "N": 64, "Q": 64}}
    path.write_text(json.dumps(values), encoding="utf-8")
    layer, same = ZIGZAG.read(path, None), ZIGZAG.read(SMALL, None)
    assert (layer.shape, layer.mapping.levels, layer.mapping.array) == (
        same.shape,
        same.mapping.levels,
        same.mapping.array,
    )


def test_what_is_no_product(tmp_path: Path) -> None:
    path, values = tmp_path / "sum_complete.json", json.loads(SMALL.read_text(encoding="utf-8"))
    values["inputs"]["layer"] |= {"equation": "P[a]=Q[a]+R[a]", "loop_dimensions": {"A": 64}}
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ImportFileError, match=r"layer.equation: .* is no product of W and I; give a Conv or Gemm"):
        ZIGZAG.read(path, None)


def test_a_cut_file_and_another_layer(tmp_path: Path) -> None:
    path = tmp_path / "cut_complete.json"
    path.write_text(SMALL.read_text(encoding="utf-8")[:1000], encoding="utf-8")
    with pytest.raises(ImportFileError, match=r"cut_complete.json: is not JSON: .*; it must be .* was it cut\?"):
        ZIGZAG.read(path, None)
    with pytest.raises(
        ImportFileError, match=r"is of another layer: K = 64, but gemm:64x32x64 has K = 32; name its own"
    ):
        ZIGZAG.read(SMALL, parse("gemm:64x32x64"))


def test_what_zigzag_rounds_down_is_a_whole_column_more() -> None:
    """It unrolls 1000 channels over 16 columns in 63 turns of 15.87 on average, and writes 15."""
    channels, rows = Dimension.K, Dimension.C
    written, turns = (Factor(channels, 15), Factor(rows, 8)), [Factor(channels, 63)]
    sizes, wide = {channels: 1000, rows: 8}, {channels: 16.0, rows: 8.0}
    assert _whole(written, turns, sizes, wide) == (Factor(channels, 16), Factor(rows, 8))
    assert _whole(written, turns, sizes, wide | {channels: 15.0}) == written, "the array has no column more"
    assert _whole(written, turns, sizes | {channels: 945}, wide) == written, "the turns are enough"
    assert _whole(written, turns, sizes | {channels: 1009}, wide) == written, "a column more would not be enough"
    twice = (Factor(channels, 5), Factor(channels, 3))
    assert _whole(twice, turns, sizes | {channels: 350}, wide) == twice, "nobody knows which of both was rounded"
