"""Mappings by AccelForge: they compute their layers, and what is wrong with a file is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from meshloom.hw.spec.config import load
from meshloom.sched.ir.functional import run
from meshloom.sched.schedulers.nest.mapping import Dimension, MappingError
from meshloom.sched.schedulers.nest.schedule import schedule
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.exchange.accelforge_chip import texts
from meshloom.tb.exchange.interface import ImportFileError, ToolLayer
from meshloom.tb.exchange.registry import IMPORTERS
from meshloom.tb.inputs.golden.layer import golden
from meshloom.tb.results.energy import load as load_energy

ACCELFORGE = IMPORTERS.get("accelforge")
#: A convolution on four cores of 8 x 8: 8 columns of pixels, channels over columns and cores.
CONVOLUTION = """\
workload:
  bits_per_value: {All: 8}
  einsums:
  - einsum: "O[n, p, q, m] = I[n, c, H: 2 * p + r, W: 2 * q + s] * W[r, s, c, m]"
    iteration_space_shape:
    - 0 <= n < 1
    - 0 <= p < 4
    - 0 <= q < 8
    - 0 <= c < 16
    - 0 <= m < 64
    - 0 <= r < 3
    - 0 <= s < 3
    renames: {output: O, input: I, weight: W}
mapping:
  nodes:
  - !Storage {tensors: [I, O, W], component: DRAM}
  - !Spatial {rank_variable: m, tile_shape: 16, name: cores, component: Cores}
  - !Storage {tensors: [I], component: A}
  - !Temporal {rank_variable: m, tile_shape: 8}
  - !Storage {tensors: [W], component: B}
  - !Temporal {rank_variable: p, tile_shape: 1}
  - !Storage {tensors: [O], component: ACC}
  - !Spatial {rank_variable: m, tile_shape: 1, name: columns, component: Array}
  - !Spatial {rank_variable: q, tile_shape: 1, name: rows, component: Array}
  - !Storage {tensors: [O], component: Sum}
  - !Temporal {rank_variable: c, tile_shape: 1}
  - !Temporal {rank_variable: r, tile_shape: 1}
  - !Temporal {rank_variable: s, tile_shape: 1}
  - !Compute {einsum: O, component: MAC}
"""


def read(folder: Path, text: str = CONVOLUTION, layer: str | None = None) -> ToolLayer:
    path = folder / "layer.yaml"
    path.write_text(text, encoding="utf-8")
    return ACCELFORGE.read(path, parse(layer) if layer else None)


def test_a_mapping_computes_its_layer(tmp_path: Path) -> None:
    layer, chip = read(tmp_path), load("quad8")
    assert (layer.shape.name, layer.claim.cycles) == ("conv:9x17x16-64,k3,s2", None)
    assert [str(factor) for factor in (*layer.mapping.cores, *layer.mapping.array)] == ["K 4", "K 8", "OX 8"]
    assert [str(loop) for loop in layer.mapping.loops] == ["FX 3", "FY 3", "C 16", "OY 4", "K 2"]
    data = random_data(layer.shape)
    result = schedule(layer.shape, chip, data.scale, layer.mapping, layer.claim)
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))


def test_its_totals_are_the_claim(tmp_path: Path) -> None:
    totals = tmp_path / "layer.totals.json"
    totals.write_text('{"Total<SEP>latency": 9864.0}', encoding="utf-8")
    assert read(tmp_path).claim.cycles == 9864
    totals.write_text('{"Total<SEP>latency": 98', encoding="utf-8")
    with pytest.raises(ImportFileError, match=r"layer.totals.json: is not JSON.*was it cut\?"):
        read(tmp_path)
    totals.write_text("{}", encoding="utf-8")
    with pytest.raises(ImportFileError, match=r"Total<SEP>latency: is missing; it must be the totals"):
        read(tmp_path)


def test_a_product_of_matrices_and_a_stretched_kernel(tmp_path: Path) -> None:
    head, _, tail = CONVOLUTION.partition("mapping:")
    product = """\
workload:
  einsums:
  - einsum: "C[m, n] = A[m, k] * B[k, n]"
    iteration_space_shape: [0 <= m < 8, 0 <= n < 8, 0 <= k < 4]
mapping:
  nodes:
  - !Storage {tensors: [A, B, C], component: DRAM}
  - !Storage {tensors: [A, B, C], component: Core}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Temporal {rank_variable: n, tile_shape: 1}
  - !Temporal {rank_variable: k, tile_shape: 1}
  - !Compute {einsum: C, component: MAC}
"""
    layer = read(tmp_path, product)
    assert (layer.shape.name, [str(loop) for loop in layer.mapping.loops]) == ("gemm:8x8x4", ["C 4", "K 8", "OX 8"])
    wide = head.replace("2 * p + r", "p + 2 * r").replace("2 * q + s", "q + 2 * s") + "mapping:" + tail
    assert read(tmp_path, wide).shape.name == "conv:8x12x16-64,k3,d2"
    swapped = CONVOLUTION.replace(
        '= I[n, c, H: 2 * p + r, W: 2 * q + s] * W[r, s, c, m]"',
        '= W[r, s, c, m] * I[n, c, H: 2 * p + r, W: 2 * q + s]"',
    )
    assert read(tmp_path, swapped).mapping.sizes[Dimension.K] == 64


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("mapping:", "mappings:", r"layer.yaml: mapping: is missing; it must be a workload of one einsum"),
        ("einsum: O, component: MAC}", "einsum: O", r"is not YAML: .*was it cut\?"),
        ("!Compute {einsum: O, component: MAC}", "!Compute 3", r"is not YAML: !Compute has no fields"),
        ("!Compute", "!Sequential", r"mapping.nodes.13.kind: Input should be 'Storage'"),
        ("  - einsum:", "  - {einsum: x, iteration_space_shape: []}\n  - einsum:", r"2 einsums; a layer runs"),
        ("O[n, p, q, m] =", "O[n, p, q, m] +=", r"is no product like O.m, n. = A.m, k. \* B.k, n."),
        ("H: 2 * p + r", "H: 2 * p - r", r"index 'H: 2 \* p - r' is neither a variable nor like"),
        ("H: 2 * p + r", "H: 2 * r + p", r"workload: r \+ p is no window of a convolution"),
        ("O[n, p,", "O[n, g, p,", r"workload: variable g of .* is none of a layer's dimensions"),
        ("0 <= p < 4", "0 <= p < P", r"bound '0 <= p < P' is not like 0 <= m < 64"),
        ("    - 0 <= p < 4\n", "", r"variable p has no bound in iteration_space_shape"),
        ("tile_shape: 16", "tile_shape: 15", r"tiles of 15 do not divide 64 of m; factors must multiply up"),
        ("rank_variable: s", "rank_variable: x", r"mapping: 'x' is no variable of the einsum"),
        ("  - !Temporal {rank_variable: s, tile_shape: 1}\n", "", r"FX make 1 iterations, but FX = 3 needs"),
        ("tensors: [W]", "tensors: [F]", r"tensor F in B is none of the einsum's"),
        ("  - !Storage {tensors: [W], component: B}\n", "", r"mapping: W has no memory but DRAM; keep a tile of it"),
        ("tensors: [I, O, W]", "tensors: [I, W]", r"mapping: m is cut before O has a memory; DRAM first"),
        ("name: rows, component: Array", "name: rows, component: Row", r"Cores, Array, Row unroll: the chips have"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, before: str, after: str, says: str) -> None:
    assert before in CONVOLUTION
    with pytest.raises((ImportFileError, MappingError), match=says) as refusal:
        read(tmp_path, CONVOLUTION.replace(before, after, 1))
    assert str(refusal.value).startswith(str(tmp_path))
    assert "\n" not in str(refusal.value)


def test_another_layer(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="is of another layer: K = 64, but conv:8x16x16-32,k3,s2,p1 has K = 32"):
        read(tmp_path, layer="conv:8x16x16-32,k3,s2,p1")


def test_a_chip_for_accelforge() -> None:
    text = texts(load("quad16"), load_energy())["quad16.accelforge.yaml"]
    for part in ("name: cores, fanout: 4", "name: columns, fanout: 16", f"size: {4096 * 16 * 8}", "throughput: 256"):
        assert part in text
    assert "Cores" not in texts(load("tiny"), load_energy())["tiny.accelforge.yaml"]
    assert yaml.compose(text) is not None
