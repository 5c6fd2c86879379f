"""Data-flow directives of MAESTRO: they compute their layers, and what is wrong with a file is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir.functional import run
from meshloom.sched.schedulers.nest.mapping import MappingError, Operand
from meshloom.sched.schedulers.nest.schedule import schedule
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.exchange.interface import ImportFileError
from meshloom.tb.exchange.registry import IMPORTERS
from meshloom.tb.inputs.golden.layer import golden
from meshloom.tb.runs.kinds.mappings import MappedSource

SMALL = Path(__file__).parents[3] / "examples" / "mappings" / "maestro" / "tiny" / "conv_8x8x8-16_k3_p1.m"
SHAPE = parse("conv:8x8x8-16,k3,p1")
MAESTRO = IMPORTERS.get("maestro")
GEMM = """
Constant Rows 4;
Network g {
  Layer A { Type: CONV Dimensions { K: 8, C: 4, R: 1, S: 1, Y: 4, X: 4 } Dataflow { TemporalMap(4,4) K; } }
  Layer B {
    Type: GEMM
    Dimensions { M: 16, N: 8, K: 12 }
    Dataflow {
      TemporalMap(4,4) N;   /* columns */
      SpatialMap(1,1) M;
      TemporalMap(4,4) K;
      Cluster(Rows, P);
      SpatialMap(1,1) N;
    }
  }
}
"""


def written(folder: Path, text: str, hardware: str = "NumPEs: 16\n", table: str = "") -> Path:
    path = folder / "map.m"
    path.write_text(text, encoding="utf-8")
    path.with_suffix(".hw").write_text(hardware, encoding="utf-8")
    if table:
        path.with_suffix(".csv").write_text(table, encoding="utf-8")
    return path


def test_a_mapping_computes_its_layer() -> None:
    layer, chip = MAESTRO.read(SMALL, SHAPE), load("tiny")
    assert [str(factor) for factor in layer.mapping.array] == ["OY 4", "K 4"]
    assert [str(loop) for loop in layer.mapping.loops][-3:] == ["C 2", "OY 2", "K 4"]
    kept = {operand: [str(loop) for loop in core.loops[7:]] for operand, (core, _) in layer.mapping.levels.items()}
    assert kept == {Operand.INPUT: [], Operand.WEIGHT: [], Operand.OUTPUT: ["C 2"]}
    data = random_data(SHAPE)
    result = schedule(SHAPE, chip, data.scale, layer.mapping, layer.claim)
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))
    assert MAESTRO.read(SMALL, None).shape.y_shape == (1, 16, 8, 8), "without padding it reads more"


def test_sizes_may_have_the_padding_or_not() -> None:
    dilated = parse("conv:8x8x8-16,k3,p1,d2")  # windows that MAESTRO has no word for: fewer outputs
    assert MAESTRO.read(SMALL, dilated).shape == dilated
    with pytest.raises(ImportFileError, match="is of another layer: OY = 8, but conv:9x9x8-16,k3,p1,d2 has OY = 7"):
        MAESTRO.read(SMALL, parse("conv:9x9x8-16,k3,p1,d2"))


def test_a_size_may_be_a_sum(tmp_path: Path) -> None:
    text = SMALL.read_text(encoding="utf-8")
    summed = text.replace("TemporalMap(10,8) X", "TemporalMap(8 + Sz(S)-1,8) X").replace("(4,4) C", "(8-4,4) C")
    assert summed.count("-") == text.count("-") + 2
    assert MAESTRO.read(written(tmp_path, summed), SHAPE).mapping == MAESTRO.read(SMALL, SHAPE).mapping


def test_strides_are_the_layers(tmp_path: Path) -> None:
    text = SMALL.read_text(encoding="utf-8")
    other = written(tmp_path, text.replace("X: 1, Y: 1 }", "X: 7, Y: 1 }"))
    with pytest.raises(ImportFileError, match="Stride X = 7, but conv:8x8x8-16,k3,p1 has a stride of 1; name its own"):
        MAESTRO.read(other, SHAPE)
    with pytest.raises(ImportFileError, match="Stride Y = 1, but conv:16x16x8-16,k3,s2,p1 has a stride of 2"):
        MAESTRO.read(written(tmp_path, text.replace("Y: 10, X: 10", "Y: 16, X: 16")), parse("conv:16x16x8-16,k3,s2,p1"))


def test_a_product_and_its_claim(tmp_path: Path) -> None:
    shape = parse("gemm:16x8x12")
    head = "Network Name, Layer Number, NumPEs, Runtime (Cycles), Power\n"
    path = written(
        tmp_path,
        GEMM.replace("Layer B", f"Layer {shape.name.replace(':', '_')}"),
        table=f"{head}g,A,16,7,1\ng,B,16,400,1\n",
    )
    with pytest.raises(ImportFileError, match=r"has 2 layers \(A, gemm_16x8x12\); name one of them with --workload"):
        MAESTRO.read(path, None)
    path = written(tmp_path, GEMM.replace("Layer A", "// Layer A"), table=f"{head}g, B, 16, 400, 1\n")
    layer = MAESTRO.read(path, shape)
    assert (layer.shape, layer.claim.cycles) == (shape, 400)
    assert [str(factor) for factor in layer.mapping.array] == ["OX 4", "K 4"]
    data = random_data(shape)
    result = schedule(shape, load("tiny"), data.scale, layer.mapping, layer.claim)
    arrays = {"x": data.x, "w": data.w, "bias": data.bias}
    assert np.array_equal(run(result, load("tiny"), arrays)["y"], golden(data))


def test_weights_that_stay_in_the_array_are_refused(tmp_path: Path) -> None:
    text = SMALL.read_text(encoding="utf-8").replace("SpatialMap(1,1) K;", "SpatialMap(1,1) C;")
    layer, data, chip = MAESTRO.read(written(tmp_path, text), SHAPE), random_data(SHAPE), load("tiny")
    with pytest.raises(
        MappingError, match="C 4 is unrolled over the array, whose processing elements sum by themselves"
    ):
        schedule(SHAPE, chip, data.scale, layer.mapping, layer.claim)
    result = schedule(SHAPE, chip, data.scale, layer.mapping, layer.claim, nearest=True)
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("Network", "Net", r"map.m:3: 'Net' stands where 'Network' must; it must be a mapping file of MAESTRO"),
        ("SpatialMap(1,1) K;\n    }\n  }\n}", "SpatialMap(1,1)", r"map.m: ends too early; .*was it cut\?"),
        ("TemporalMap(4,4) C", "TemporalMap(Sz(Q),4) C", r"map.m:12: 'Q' is no number above 0, constant, or dimension"),
        ("TemporalMap(4,4) C", "TemporalMap(Sz(R)-4,4) C", r"map.m:12: 'Sz\(R\)-4' is -1; a size is above 0"),
        ("TemporalMap(4,4) C", "TemporalMap(2*2,4) C", r"map.m:12: '\*' stands where ',' must"),
        ("TemporalMap(4,4) C", f"TemporalMap({'9' * 5000},4) C", r"map.m:12: '9{60}... .5,000 characters.' is no"),
        ("TemporalMap(4,4) C", "Parallel(4,4) C", r"map.m:12: 'Parallel' is none of TemporalMap, SpatialMap, Cluster"),
        ("TemporalMap(4,4) C", "TemporalMap(4,4) M", r"layer CONV: 'M' is no dimension of a CONV: N, K, C, R, S, Y, X"),
        (
            "TemporalMap(4,4) C",
            "SpatialMap(4,4) C",
            r"Y and C are unrolled together over one level; unroll one at each",
        ),
        (
            "TemporalMap(4,4) C",
            "TemporalMap(3,3) C",
            r"the loops over C \(input channels; K of .*\) make 9 iterations, but C = 8 needs 8",
        ),
        ("Type: CONV", "Type: DSCONV", r"layer CONV: is of type DSCONV, which has no mapping here; CONV and GEMM"),
        ("K: 16, ", "", r"has no K among its Dimensions; give K, C, R, S, Y, X"),
        ("K: 16, ", "K: 32, ", r"is of another layer: K = 32, but conv:8x8x8-16,k3,p1 has K = 16; name its own with"),
        ("Y: 10, X: 10", "Y: 11, X: 10", r"is of another layer: OY = 9, but conv:8x8x8-16,k3,p1 has OY = 8"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, before: str, after: str, says: str) -> None:
    text = SMALL.read_text(encoding="utf-8")
    assert before in text
    path = written(tmp_path, text.replace(before, after))
    with pytest.raises((ImportFileError, MappingError), match=says) as refusal:
        MAESTRO.read(path, SHAPE)
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


def test_what_must_lie_beside_it(tmp_path: Path) -> None:
    text = SMALL.read_text(encoding="utf-8")
    path = written(tmp_path, text, "L1Size: 4\n")
    with pytest.raises(ImportFileError, match=r"map.hw: does not say num_pes: N"):
        MAESTRO.read(path, SHAPE)
    path.with_suffix(".hw").unlink()
    with pytest.raises(MappingError, match=r"over how many PEs Y goes is not said; write num_pes: N to NAME.hw"):
        MAESTRO.read(path, SHAPE)
    for cell, says in (("inf", "row 1 has no Runtime"), ("1" * 140_000, "is no CSV: field larger than")):
        with pytest.raises(ImportFileError, match=rf"map.csv: {says}"):
            MAESTRO.read(written(tmp_path, text, table=f"Runtime (Cycles)\n{cell}\n"), SHAPE)
    with pytest.raises(ImportFileError, match=r"map.csv: has 1 rows for 1|map.csv: row 1 has no Runtime \(Cycles\)"):
        MAESTRO.read(written(tmp_path, text, table="Layer Number\n1\n"), SHAPE)


def test_of_several_layers_one_is_chosen_by_its_name_in_the_file_or_by_its_sizes(tmp_path: Path) -> None:
    path = written(tmp_path, GEMM)
    chosen = MappedSource("maestro", path, "B").layer()
    assert chosen[0].shape == chosen[1].shape == parse("gemm:16x8x12")
    assert MAESTRO.read(path, parse("gemm:16x8x12")).shape.name == "gemm:16x8x12"
    with pytest.raises(ImportFileError, match=r"has 2 layers .A, B.; name one of them with --workload"):
        MAESTRO.read(path, parse("gemm:16x8x13"))
    with pytest.raises(ImportFileError, match="has 2 layers with the name A; give each a name of its own"):
        MappedSource("maestro", written(tmp_path, GEMM.replace("Layer B", "Layer A")), "A").layer()


def test_a_layer_without_padding_is_a_workload_of_ours() -> None:
    shape = MAESTRO.read(SMALL, None).shape
    assert shape == parse(shape.name), "so that a saved schedule of it runs"
