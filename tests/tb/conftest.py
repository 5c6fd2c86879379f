"""What tests of the testbench share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from meshloom.hw.isa import PAGE_WORDS
from meshloom.tb.build.builder import build
from meshloom.tb.devices.interface import FILL
from meshloom.tb.devices.serving import ServedChip

from .served_chip import CHIP

#: Pages of DRAM that tests use.
PAGES = 16


@pytest.fixture(scope="module")
def served() -> Iterator[ServedChip]:
    """A simulator of the chip that the tests of a file use one after another."""
    with ServedChip(build(CHIP, "verilator")) as chip:
        yield chip


@pytest.fixture
def fresh(served: ServedChip) -> ServedChip:
    """The same after reset, with nothing in its DRAM that a test before may have left in the first pages."""
    served.reset()
    nothing = np.full((PAGES * PAGE_WORDS, CHIP.lanes), FILL, np.uint8)
    served.load([(dram, 0, nothing) for dram in CHIP.drams])
    return served
