"""Loop nests of others: their schedules compute the layer, move what the loops say, and what cannot be is refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.checker.check import check
from meshloom.sched.ir.functional import run
from meshloom.sched.ir.schedule import Move, Schedule, ToolClaim
from meshloom.sched.lowering.semaphores.lower import lower
from meshloom.sched.schedulers.nest.mapping import (
    Dimension,
    Factor,
    LayerMapping,
    Level,
    MappingError,
    MemoryPlace,
    Operand,
)
from meshloom.sched.schedulers.nest.schedule import schedule, sizes_of
from meshloom.sched.workload.layers import random_data
from meshloom.sched.workload.shapes import parse
from meshloom.tb.inputs.chips import changed
from meshloom.tb.inputs.golden.layer import golden

CLAIM = ToolClaim(tool="by_hand", cycles=1)


def factors(text: str) -> tuple[Factor, ...]:
    """`OX4 K2` as loops, innermost first."""
    pairs = re.findall(r"([A-Z]+)(\d+)", text)
    return tuple(Factor(Dimension(name), int(size)) for name, size in pairs)


def mapped(shape: str, loops: Sequence[str], array: str, cores: str = "") -> LayerMapping:
    """A mapping with one level in the core and one in DRAM, `|` between them: of inputs, weights and outputs."""

    def levels(text: str) -> list[Level]:
        core, dram = text.split("|")
        return [Level("core", MemoryPlace.CORE, factors(core)), Level("dram", MemoryPlace.DRAM, factors(dram))]

    texts = zip(Operand, loops, strict=True)
    return LayerMapping(
        sizes_of(parse(shape)), {operand: levels(text) for operand, text in texts}, factors(array), factors(cores)
    )


def lowered(shape: str, chip: str, mapping: LayerMapping, nearest: bool = False) -> Schedule:
    """The schedule, after it has computed the layer and its program has been checked."""
    data, config = random_data(parse(shape)), load(chip)
    result = schedule(data.shape, config, data.scale, mapping, CLAIM, nearest=nearest)
    assert np.array_equal(run(result, config, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))
    check(lower(result, config), config, result)
    return result


def words(result: Schedule) -> Counter[str]:
    """Words that go to or from each tensor, by the first letter of a label."""
    count: Counter[str] = Counter()
    for operation in result.operations:
        if isinstance(operation, Move):
            count[operation.label.partition(" ")[0]] += operation.words
    return count


def test_a_tile_comes_whenever_the_loops_change_it() -> None:
    """32x32x32 on 4x4: 8 blocks of pixels, of outputs and of sums. The walk is K inside OX, so A's tile stays for all K
    and comes once; B's comes for every block of pixels, unless all of it lies in the core."""
    both = "C32 | K8 OX8"
    once = words(lowered("gemm:32x32x32", "tiny", mapped("gemm:32x32x32", [both] * 3, "OX4 K4")))
    assert (once["x"], once["w"], once["y"]) == (32 * 8, 8 * 32 * 8, 32 * 8)
    all_weights = mapped("gemm:32x32x32", [both, "C32 K8 | OX8", both], "OX4 K4")
    assert words(lowered("gemm:32x32x32", "tiny", all_weights))["w"] == 32 * 8


def test_sums_stay_until_they_are_complete() -> None:
    mapping = mapped("gemm:32x32x32", ["C8 | OX8 K8 C4"] * 2 + ["C8 OX8 K8 C4 |"], "OX4 K4")
    moved = words(lowered("gemm:32x32x32", "tiny", mapping))
    assert (moved["x"], moved["w"], moved["y"]) == (8 * 8 * 32, 8 * 32, 32 * 8)


@pytest.mark.parametrize(
    ("shape", "chip", "loops", "array", "cores"),
    [
        ("conv:8x8x8-16,k3,p1", "tiny", ("C8 FX3 FY3 OX2 | OY8 K4",) * 3, "OX4 K4", ""),
        ("conv:7x9x8-16,k3,p1,s2", "tiny", ("C8 FX3 FY3 OX2 OY4 | K4",) * 3, "OX4 K4", ""),
        ("conv:9x9x33-3,b2,relu", "tiny", ("C33 OX3 | OY9 B2",) * 3, "OX3 K3", ""),
        ("gemm:10x9x16", "tiny", ("C16 | OX3 K3",) * 3, "OX4 K4", ""),
        ("conv:8x8x3-8,k3,p1", "tiny", ("C3 FX3 FY3 OX2 OY8 | K2",) * 3, "OX4 K4", ""),
        ("conv:16x16x32-32", "quad8", ("C32 K2 | OX2 OY8",) * 3, "OX8 K8", "OY2 K2"),
        ("conv:8x8x16-16,k3,p1", "quad8", ("C16 FX3 FY3 | OY2 K2",) * 3, "OX8 K8", "OY4"),
    ],
)  # fmt: skip
def test_it_computes(shape: str, chip: str, loops: tuple[str, ...], array: str, cores: str) -> None:
    assert lowered(shape, chip, mapped(shape, loops, array, cores)).claim == CLAIM


def test_a_bias_is_there_when_sums_begin() -> None:
    """ACC has room for the biases of 8 of 12 blocks, and every block's sums are visited four times."""
    chip = changed(load("tiny"), {"core.acc_words": 64})
    loops = ("C8 | K12 C4 OX2", "C8 | K12 C4 OX2", "C8 K12 C4 | OX2")
    data = random_data(parse("gemm:8x48x32"))
    result = schedule(data.shape, chip, data.scale, mapped("gemm:8x48x32", loops, "OX4 K4"), CLAIM)
    assert np.array_equal(run(result, chip, {"x": data.x, "w": data.w, "bias": data.bias})["y"], golden(data))


def test_a_kernel_may_lie_outside_the_core() -> None:
    """Each column of a kernel with its own weights and inputs; sums stay. A tile's first or last row may be padding."""
    shape = "conv:6x4x8-8,k3,p1"
    inner, outer = "C8 FX3", "OY6 FY3 K2"
    moved = words(
        lowered(shape, "tiny", mapped(shape, [f"{inner} | {outer}"] * 2 + [f"{inner} OY6 FY3 | K2"], "OX4 K4"))
    )
    assert moved["w"] == 3 * 3 * 2 * 4 * 2
    assert moved["x"] == 2 * (3 * 6) * 4 * 2
    between = mapped(shape, ["C8 FX3 FY3 | OY6 K2", "C8 FX3 | FY3 OY6 K2", "C8 FX3 FY3 | OY6 K2"], "OX4 K4")
    with pytest.raises(MappingError, match="inputs stay in the core for FY 3, weights do not"):
        schedule(parse(shape), load("tiny"), 1, between, CLAIM)
    lowered(shape, "tiny", between, nearest=True)


@pytest.mark.parametrize("seed", range(12))
def test_any_mapping_computes_the_layer(seed: int) -> None:
    """Any order of loops and any cut between core and DRAM; what the chip cannot do it does in the nearest way."""
    shape, random = "conv:8x6x8-12,k3,p1,b2", Random(seed)
    loops = ["C2", "C2", "C2", "FX3", "FY3", "OX3", "OY2", "OY4", "K3", "B2"]
    random.shuffle(loops)
    cuts = [random.randrange(4, len(loops) + 1) for _ in Operand]
    texts = [" ".join(loops[:cut]) + "|" + " ".join(loops[cut:]) for cut in cuts]
    lowered(shape, "tiny", mapped(shape, texts, "OX2 K4"), nearest=True)


@pytest.mark.parametrize("seed", range(6))
def test_any_mapping_on_cores_computes_the_layer(seed: int) -> None:
    """Parts of cores that are no whole tiles, too."""
    shape, random = "conv:8x6x8-12,k1", Random(seed)
    loops = ["C2", "C4", "OX3", "OY2", "OY2", "K3"]
    random.shuffle(loops)
    texts = [f"{' '.join(loops[:cut])} | {' '.join(loops[cut:])}" for cut in (random.randrange(2, 7) for _ in Operand)]
    lowered(shape, "quad8", mapped(shape, texts, "OX2 K2", "OY2 K2"), nearest=True)


@pytest.mark.parametrize(
    ("loops", "array", "says"),
    [
        (("C32 | OX8 K8",) * 3, "OX4 K2", "channels; N of .*. make 8 iterations .2 at a time., but K = 32 needs 16"),
        (("C32 | OX8 K8", "C32 | K8 OX8", "C32 | OX8 K8"), "OX4 K4", "same loops in the same order"),
        (("C8 | OX8 K8",) * 3, "OX4 K4 C4", "C 4 is unrolled.*unroll pixels.*or run the nearest mapping .--nearest"),
        (("C32 | OX4 K8",) * 3, "OX8 K4", "8 pixels are unrolled over the array of tiny.*at most 4.*in 2 turns"),
        (("C2 | C16 OX8 K8",) * 3, "OX4 K4", "tile has 2 of C: a word has 4 input channels; let 4 of C"),
        (("C8 | OX8 K8 C4",) * 3, "OX4 K4", "partial sums go to DRAM.*the loop C 4.*sums stay in ACC"),
        (("C32 OX8 K8 |",) * 3, "OX4 K4", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_that_says_what_would_do(loops: tuple[str, ...], array: str, says: str) -> None:
    shape = parse("gemm:32x32x32")
    if not says:
        lowered("gemm:32x32x32", "tiny", mapped("gemm:32x32x32", loops, array))
        return
    with pytest.raises(MappingError, match=says) as refusal:
        schedule(shape, load("tiny"), 1, mapped("gemm:32x32x32", loops, array), CLAIM)
    assert "\n" not in str(refusal.value)


def test_the_nearest_says_what_it_changes() -> None:
    shape = "gemm:32x32x32"
    result = lowered(shape, "tiny", mapped(shape, ("C8 | OX8 K8",) * 3, "OX4 K4 C4"), nearest=True)
    assert result.claim is not None
    assert result.claim.changes == ("C 4 summed in turn",)
    assert Schedule.model_validate_json(result.model_dump_json()).claim == result.claim


@pytest.mark.parametrize(
    ("shape", "loops", "array", "unrolled"),
    [
        ("gemm:32x32x32", "K4 OX4 C32 | OX8 K8", "", "1x1"),
        ("gemm:32x32x32", "K2 C32 | OX8 K8", "OX4 K2", "4x2"),
        ("gemm:32x32x32", "C32 | OX8 K8", "OX4 K4", ""),
        ("gemm:6x2x32", "OX2 C32 |", "OX3 K2", ""),  # turns are as many
    ],
)
def test_a_mapping_that_leaves_elements_idle_says_so(shape: str, loops: str, array: str, unrolled: str) -> None:
    result = lowered(shape, "tiny", mapped(shape, (loops,) * 3, array))
    assert result.claim is not None
    begin = (
        f"the mapping unrolls {unrolled} over the array (pixels, output channels); tiny computes up to 4x4 side by side"
    )
    assert result.claim.remark.startswith(begin) if unrolled else not result.claim.remark


@pytest.mark.parametrize(("loops", "array"), [("K4 C32 | OX4 K4", "OX8 K2"), ("K4 C8 | OX8 K8", "OX4 C4")])
def test_as_many_elements_in_another_form_are_not_faster(loops: str, array: str) -> None:
    result = lowered("gemm:32x32x32", "tiny", mapped("gemm:32x32x32", (loops,) * 3, array), nearest=True)
    assert result.claim is not None
    assert result.claim.changes
    assert result.claim.remark == ""


def test_more_cores_than_there_are() -> None:
    mapping = mapped("gemm:32x32x32", ("C32 | OX4 K4",) * 3, "OX4 K4", "OX2 K2")
    with pytest.raises(MappingError, match=r"4 cores are used .K 2, OX 2., tiny has 1; unroll less over"):
        schedule(parse("gemm:32x32x32"), load("tiny"), 1, mapping, CLAIM)
    summed = mapped("gemm:32x32x32", ("C16 | OX8 K8",) * 3, "OX4 K4", "C2")
    with pytest.raises(MappingError, match=r"C 2 is unrolled over cores, which cannot add"):
        schedule(parse("gemm:32x32x32"), load("quad8"), 1, summed, CLAIM)
    result = lowered("gemm:32x32x32", "tiny", mapping, nearest=True)
    assert result.claim is not None
    assert result.claim.changes == ("K 2, OX 2 in turn on one core",)
    assert lowered("gemm:32x32x32", "quad8", summed, nearest=True).claim != CLAIM


def test_tiles_that_are_larger_than_a_memory() -> None:
    shape = "gemm:8x64x512"
    loops = ("C512 | K16 OX2", "C512 K16 | OX2", "C512 | K16 OX2")
    with pytest.raises(
        MappingError, match=r"tiles of weights that stay .* B of a tiny core, which holds 8 of 512 words"
    ):
        schedule(parse(shape), load("tiny"), 1, mapped(shape, loops, "OX4 K4"), CLAIM)
    level = [
        Level("pe", MemoryPlace.PE, ()),
        Level("l2", MemoryPlace.SHARED, factors("C32 OX8 K8")),
        Level("dram", MemoryPlace.DRAM, ()),
    ]
    between = LayerMapping(sizes_of(parse("gemm:32x32x32")), dict.fromkeys(Operand, level), factors("OX4 K4"))
    with pytest.raises(MappingError, match="l2 holds tiles of I between cores and DRAM"):
        schedule(parse("gemm:32x32x32"), load("tiny"), 1, between, CLAIM)
