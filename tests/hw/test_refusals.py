"""Parameters of gateware that are refused when it is described."""

from __future__ import annotations

from typing import Any

import pytest

from meshloom.hw.noc.link import Plane
from meshloom.hw.wiring.axi import AXI4Lite


@pytest.mark.parametrize("bits", [0, 16, 31, 33, 63, 65, 128])
def test_axi4_lite_has_two_widths(bits: int) -> None:
    with pytest.raises(ValueError, match=f"AXI4-Lite has no data width of {bits} bits; use 32 or 64"):
        AXI4Lite(address_bits=8, data_bits=bits)
    assert [AXI4Lite(address_bits=8, data_bits=good).data_bits for good in (32, 64)] == [32, 64]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 0}, "mesh of 0x3: tile addresses reach 1x1 to 16x16"),
        ({"width": 17}, "mesh of 17x3: tile addresses reach 1x1 to 16x16"),
        ({"height": 0}, "mesh of 3x0: tile addresses reach 1x1 to 16x16"),
        ({"height": 17}, "mesh of 3x17: tile addresses reach 1x1 to 16x16"),
        ({"depth": 1}, "buffer depth 1 cannot sustain a flit per cycle"),
        ({"vcs": 0}, "0 virtual channels: use 1 to 4"),
        ({"vcs": 5}, "5 virtual channels: use 1 to 4"),
        ({"routing": "zz"}, "unknown routing 'zz': use xy or yx"),
        ({"allocate": "any"}, "unknown allocation 'any': use same or free"),
        ({"bits": 7}, "a flit of 7 bits cannot hold the 8-bit destination; use at least 8"),
    ],
)
def test_meshes_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"width": 3, "height": 3, "bits": 16, "depth": 2}
    with pytest.raises(ValueError, match=message):
        Plane(**(good | changes))


@pytest.mark.parametrize(
    "changes",
    [{"width": 1, "height": 16}, {"width": 16, "height": 1}, {"depth": 2}, {"vcs": 4}, {"bits": 8},
     {"routing": "yx", "allocate": "free"}],
)  # fmt: skip
def test_meshes_at_their_limits(changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {"width": 3, "height": 3, "bits": 16, "depth": 2}
    Plane(**(good | changes))
