"""Schemes of parallelism: that they share a layer out without loss, and what their names say."""

from __future__ import annotations

from itertools import pairwise

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.templates.schemes import LayerShape, Scheme, schemes, split
from meshloom.sched.mapping.tiling.problem import DoesNotFit, pose
from meshloom.sched.workload.layers import ConvShape, gemm_shape

CHIP = load("lp9")
WIDE = ConvShape("wide", 4, 256, 14, 14, 256, 3, 3, 1, 1, 1, 1, 1, 1)
POINT = ConvShape("point", 2, 512, 7, 7, 300)


def layer(shape: ConvShape) -> LayerShape:
    return LayerShape(pose(shape, CHIP), True, (shape.in_channels, shape.out_channels))


def test_all_products_are_found():
    result = schemes(layer(WIDE), 6)
    assert len(set(result)) == len(result)
    assert {scheme.cores for scheme in result} == {6}
    names = {str(scheme) for scheme in result}
    assert {"f6", "o6", "i6", "b2f3", "b3f2", "b2o3", "f2i3", "b1f1o2i3".removeprefix("b1f1")} <= names
    assert schemes(layer(gemm_shape("tiny", 1, 8, 8)), 2) == ()  # one row, one block of either kind


@pytest.mark.parametrize("shape", [WIDE, POINT], ids=lambda shape: shape.name)
@pytest.mark.parametrize("cores", [1, 4, 6, 9])
def test_every_product_is_computed_once(shape: ConvShape, cores: int):
    this = layer(shape)
    problem = this.problem
    for scheme in schemes(this, cores):
        parts = split(this, scheme)
        assert len(parts) == cores
        seen: dict[tuple[int, int, int], int] = {}
        for part in parts:
            for image, first, end in part.segments:
                for row in range(first, end):
                    for n in range(*part.n):
                        for k in range(*part.k):
                            at = image * problem.out_rows + row, n, k
                            seen[at] = seen.get(at, 0) + 1
        rows = problem.images * problem.out_rows
        assert len(seen) == rows * problem.n_blocks * problem.k_blocks
        assert set(seen.values()) == {1}
        for one, other in pairwise(parts):
            if other.link:  # neighbours in a ring add up the same sums
                assert (one.segments, one.n, one.link) == (other.segments, other.n, other.link - 1)


def test_flat_maps_are_cut_at_full_arrays():
    cut = [part.segments[0][1:] for part in split(layer(POINT), Scheme(feature=3))]
    assert cut == [(0, 32), (32, 64), (64, 98)]


def test_names():
    for scheme in schemes(layer(WIDE), 12):
        assert Scheme.parse(str(scheme)) == scheme
    assert str(Scheme()) == "single"
    for wrong in ("f", "f1", "o2f2", "x3", "", "f3 o2"):
        with pytest.raises(ValueError, match="give factors above 1 in the order b, f, o, i"):
            Scheme.parse(wrong)


def test_too_many_parts():
    with pytest.raises(DoesNotFit, match="scheme b5: batch has 4 parts at most, not 5"):
        split(layer(WIDE), Scheme(batch=5))
