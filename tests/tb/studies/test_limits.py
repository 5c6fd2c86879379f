"""The study of purchases: what `limit` names is worth buying, layer by layer. No simulator is built or run here."""

from __future__ import annotations

import pytest

from meshloom.hw.spec.config import load
from meshloom.tb.studies.networks import limits
from meshloom.tb.studies.networks.limits import LimitPoint, Purchases, purchases

from .made_rows import page_of

CHIP = load("quad32")


def test_a_page_says_where_another_purchase_would_have_been_better() -> None:
    right = Purchases(1000, "dram", {"compute": 900, "dram": 600, "noc": 1100})
    either = Purchases(1000, "dram+noc", {"compute": 950, "dram": 950, "noc": 700})
    wrong = Purchases(1000, "vector", {"compute": 800, "dram": 900, "noc": 1000})
    assert (right.saves("dram"), right.saves("noc"), right.short, either.short) == (0.4, 0.0, 0.0, 0.0)
    names = ("resnet50/conv1", "resnet50/fc", "resnet50/conv2_1_1")
    rows = (right, either, wrong)
    page = page_of(limits.STUDY, {LimitPoint("quad16", name): row for name, row in zip(names, rows, strict=True)})
    assert page.texts == {"layers": "3", "best": "2", "worst": "20.0 %"}
    assert page.missed == ["what another saves more, at worst: 20.0 %, not at most 10.0 %"]
    assert page.tables[0].rows[0] == ("resnet50/conv1", "1,000", "dram", "10.0 %", "40.0 %", "0.0 %", "0.0 %")


def test_purchases_double_one_thing_alone() -> None:
    chips = limits.twice(CHIP)
    assert {len(chip.cores) for chip in chips["compute"]} == {2 * len(CHIP.cores)}
    assert {len(chip.drams) for chip in chips["dram"]} == {2 * len(CHIP.drams)}
    assert {len(chip.drams) for chip in chips["compute"]} == {len(CHIP.drams)}
    assert {len(chip.cores) for chip in chips["dram"]} == {len(CHIP.cores)}
    (wide,) = chips["noc"]
    assert (wide.lanes, wide.rows, wide.cols, wide.dram.bytes_per_cycle) == (64, 32, 32, 32)
    assert wide.core.a_words * wide.lanes == CHIP.core.a_words * CHIP.lanes


FIRST = "resnet50/conv2_1_1"


#: The layer whose full mover queues cost what the play does not see; the page says so.
MISSED = "resnet50/conv4_2_1"


@pytest.mark.parametrize(
    "layer", [each if each == FIRST else pytest.param(each, marks=pytest.mark.slow) for each in limits.layers()]
)
def test_what_is_named_is_worth_buying(layer: str) -> None:
    bought = purchases(layer, CHIP)
    assert (bought.short > limits.MOST) == (layer == MISSED), bought
    if layer == FIRST:
        assert bought.limit == "dram"
