"""Maps of Timeloop, written by hand in its published form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.ir.functional import run
from meshloom.sched.schedulers.nest.mapping import MappingError
from meshloom.sched.schedulers.nest.schedule import schedule
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.exchange.interface import Importer, ImportFileError
from meshloom.tb.exchange.registry import IMPORTERS
from meshloom.tb.inputs.golden.layer import golden

CONVOLUTION = """\
mapping:
- target: DRAM
  type: temporal
  factors: C1 K2 R1 S1 P1 Q8 N1
  permutation: QKCRSPN
- target: CoreMemory
  type: temporal
  factors: C8 K2 R3 S3 P2 Q1 N1
  permutation: CRSPQKN
- target: CoreMemory
  type: spatial
  factors: C1 K4 R1 S1 P4 Q1 N1
  permutation: PKCRSQN
- target: Sums
  type: temporal
  factors: C=1 K=1 R=1 S=1 P=1 Q=1 N=1
  permutation: CRSPQKN
- target: Sums
  type: bypass
  keep: [Outputs]
  bypass: [Inputs, Weights]
"""
SHAPE = "conv:8x8x8-16,k3,p1"


def timeloop() -> Importer:
    return IMPORTERS.get("timeloop")


def saved(folder: Path, text: str, name: str = "layer.map.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("upwards", [False, True])
def test_a_map_computes_its_layer(tmp_path: Path, upwards: bool) -> None:
    """Whichever end the list begins with."""
    text = CONVOLUTION
    if upwards:
        head, *entries = CONVOLUTION.split("- target")
        text = "- target".join([head, *reversed(entries)])
    data, chip = random_data(parse(SHAPE)), load("tiny")
    layer = timeloop().read(saved(tmp_path, text), data.shape)
    result = schedule(data.shape, chip, data.scale, layer.mapping, layer.claim)
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))
    loads = [op.label for op in result.operations if op.label.startswith("w ")]
    assert loads == ["w n0 k0", "w n2 k0"]  # each half of K comes once, for all rows


def test_factors_may_be_written_otherwise(tmp_path: Path) -> None:
    """As a list, as a table, or not at all where there are no loops."""
    shape = parse(SHAPE)
    plain = timeloop().read(saved(tmp_path, CONVOLUTION), shape).mapping

    def listed(pairs: Sequence[str]) -> str:
        return f"[{', '.join(pairs)}]"

    def table(pairs: Sequence[str]) -> str:
        return "{" + ", ".join(f"{pair[0]}: {pair[1:].lstrip('=')}" for pair in pairs) + "}"

    for form in (listed, table):
        lines = [line.partition("factors: ") for line in CONVOLUTION.splitlines()]
        text = "\n".join(f"{start}{key}{form(rest.split()) if key else rest}" for start, key, rest in lines)
        assert timeloop().read(saved(tmp_path, text), shape).mapping == plain
    text = re.sub(r"(factors:)(?: [A-Z]=1)+\n", r"\1\n", CONVOLUTION)
    assert text != CONVOLUTION
    assert timeloop().read(saved(tmp_path, text), shape).mapping == plain
    wrong = CONVOLUTION.replace("factors: ", "factors: 3 # ", 1)
    with pytest.raises(ImportFileError, match=r"mapping\.0\.factors: Input should be a valid list"):
        timeloop().read(saved(tmp_path, wrong), shape)


def test_a_product_of_matrices_has_letters_of_its_own(tmp_path: Path) -> None:
    text = """\
mapping:
  - {target: DRAM, type: temporal, factors: "M=8 N=8 K=1", permutation: [M, N, K]}
  - {target: L1, type: temporal, factors: "M=1 N=1 K=32", permutation: [K, M, N]}
  - {target: L1, type: spatial, factors: "M=4 N=4 K=1", permutation: [K, M, N]}
"""
    layer = timeloop().read(saved(tmp_path, text), parse("gemm:32x32x32"))
    assert [str(factor) for factor in layer.mapping.loops] == ["C 32", "OX 8", "K 8"]
    assert layer.claim.cycles is None


def test_groups_of_one_are_nothing(tmp_path: Path) -> None:
    """As the mapper of version 4 writes them."""
    plain = timeloop().read(saved(tmp_path, CONVOLUTION), parse(SHAPE)).mapping
    text = CONVOLUTION.replace("C8 K2", "C8 K2 G1").replace("QKCRSPN", "QKCRSPNG")
    assert text != CONVOLUTION
    assert timeloop().read(saved(tmp_path, text), parse(SHAPE)).mapping == plain


def test_the_statistics_beside_a_map_are_its_claim(tmp_path: Path) -> None:
    path = saved(tmp_path, CONVOLUTION)
    saved(
        tmp_path, "Summary Stats\n-------------\nUtilization: 1.00\nCycles: 4608\nEnergy: 0.25 uJ\n", "layer.stats.txt"
    )
    claim = timeloop().read(path, parse(SHAPE)).claim
    assert (claim.cycles, claim.picojoules) == (4608, 250_000.0)
    saved(tmp_path, "Buffer and Arithmetic Levels\n", "layer.stats.txt")
    with pytest.raises(ImportFileError, match=r"layer.stats.txt: has no line 'Cycles: N'; was it cut"):
        timeloop().read(path, parse(SHAPE))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("mapping:", "architecture:", r"layer.map.yaml: mapping: is missing; it must be a map of Timeloop"),
        ("[Inputs, Weights]", "[Inputs, Weights", r"is not YAML: .*line "),
        ("type: spatial", "type: spacial", r"mapping.2.type: Input should be 'temporal', 'spatial'"),
        ("K2 R3", "K2 R2", r"loops over FX make 2 iterations, but FX = 3 needs 3: factors must multiply up"),
        (
            "C1 K4",
            "C1 K3",
            r"loops over K .output channels; N of a product MxNxK. make 4 iterations .3 at a time., but K = 16 needs 6",
        ),
        ("C8 K2", "C8 K2 G2", r"target CoreMemory: dimension G is none of N, K"),
        ("C8 K2", "C8 X2", r"target CoreMemory: dimension X is none of N, K"),
        ("C8 K2", "C8,3 K2", r"factor 'C8,3' has a remainder"),
        ("C8 K2", "C0 K2", r"factor 'C0' leaves open what it is"),
        ("C8 K2", "C8 C1", r"target CoreMemory: C stands twice in factors"),
        ("C8 K2", "C8 two", r"are not like C3 M1 R3"),
        ("permutation: QKCRSPN", "permutation: KCRSPN", r"permutation KCRSPN lacks Q, which has a factor"),
        ("permutation: QKCRSPN", "permutation: QKCRSPNK", r"target \w+: K stands twice in permutation QKCRSPNK; give"),
        ("target: DRAM", "target: Top", r"neither the first nor the last one is main memory; name it DRAM"),
        ("keep: [Outputs]", "keep: [Results]", r"target Sums: 'Results' is none of Inputs, Weights, Outputs"),
    ],
)
def test_a_bad_map_is_one_line(tmp_path: Path, before: str, after: str, says: str) -> None:
    path = saved(tmp_path, CONVOLUTION.replace(before, after))
    with pytest.raises((ImportFileError, MappingError), match=says) as refusal:
        timeloop().read(path, parse(SHAPE))
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


def test_three_targets_that_unroll_are_one_too_many(tmp_path: Path) -> None:
    text = CONVOLUTION.replace("factors: C=1 K=1", "factors: C=1 K=2").replace(
        "- target: Sums\n  type: temporal", "- target: Sums\n  type: spatial"
    )
    text = text.replace("C1 K2 R1 S1 P1 Q8", "C1 K1 R1 S1 P1 Q8").replace(
        "- target: DRAM", "- target: DRAM\n  type: spatial\n  factors: P2\n- target: DRAM", 1
    )
    with pytest.raises(MappingError, match="unroll: the chips have an array, and cores; unroll at two targets"):
        timeloop().read(saved(tmp_path, text), parse(SHAPE))


def test_without_its_layer(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=r"has no strides: name its layer with --workload"):
        timeloop().read(saved(tmp_path, CONVOLUTION), None)
