"""The closed form: what binds a candidate is what it costs more for more of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.play.estimate import Loads, closed_form

CHIP = load("quad16")


def cycles(**own: int) -> float:
    """Of one core with room for all that it fetches, tiles of ten words."""
    sizes = {"a_tile": 10, "b_tile": 10, "a_slots": 1000, "b_slots": 1000, "out_slots": 8, "x_words": 10, "w_words": 10}
    ones = ("parts_m", "parts_n", "compute", "gemms", "gemm_cycles", "out_tile", "out_words")
    loads: dict[str, Any] = {
        name: np.array([1.0 * size]) for name, size in (dict.fromkeys(ones, 1) | sizes | own).items()
    }
    direct = np.array([[False]])
    return float(closed_form(Loads(**loads, x_spm=direct, w_spm=direct), CHIP)[0, 0])


def test_words_of_both_operands_share_a_cores_link() -> None:
    """Two DRAM tiles bring more than the link takes."""
    more = 100 * 10 * (1 + 1 / CHIP.packet_words) + 100
    few = cycles(a_fetch=10, b_fetch=10)
    assert cycles(a_fetch=110, b_fetch=10) == cycles(a_fetch=10, b_fetch=110) == few + more
    assert cycles(a_fetch=110, b_fetch=110) == few + 2 * more
