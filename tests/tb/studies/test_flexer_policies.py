"""The search of out-of-order schedules: metrics against the paper's policies, bars, the picture."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from meshloom.hw.spec.config import load
from meshloom.sched.mapping.tiling.problem import pose
from meshloom.sched.papers.flexer.policy import PAPER
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.flexer import flexer_policies
from meshloom.tb.studies.flexer.flexer_policies import (
    ADDED,
    ADDED_LAYERS,
    ARCHS,
    LAYERS,
    NESTS,
    STUDY,
    TABLE_2,
    ChoicePoint,
    DuplicatePoint,
    Duplicates,
    SearchPoint,
    SearchTime,
    choices_of,
    small,
)
from meshloom.tb.studies.flexer.layers import shape_of

from .made_rows import page_of, rows_of

TIME = SearchTime(20, 1000, 900, 100, True, 200.0, 390.0, (1.0, 1.21))


def known() -> dict[Point, object]:
    rows: dict[Point, object] = {SearchPoint("arch5", "resnet50"): TIME}
    for arch in ARCHS:
        for number, policy in enumerate(TABLE_2.values()):
            rows |= {ChoicePoint(arch, layer, policy): (100.0 + 10 * number, 10.0) for layer in LAYERS}
        copies = Duplicates(
            {"every": (100.0, 100.0), "pruned": (100.0, 121.0), "levels": (81.0, 100.0)},
            {"every": (4.0, 4.0), "pruned": (1.0, 1.0), "levels": (2.0, 2.0)},
        )
        rows[DuplicatePoint(arch, ADDED_LAYERS[0])] = copies
    for policy in ADDED.values():
        rows |= {ChoicePoint(ARCHS[1], layer, policy): (90.0, 10.0) for layer in ADDED_LAYERS if policy != PAPER}
    return rows


def test_policies_are_beside_the_papers() -> None:
    page = page_of(STUDY, known())
    times, table_2, added, duplicates = page.tables
    assert times.rows[0][1:] == ("1,000", "900", "100", "200", "390", "1.100", "1.210")
    assert table_2.rows[0][1:] == ("1.000", "1.00", "1.000", "1.00")
    assert table_2.rows[1][1:] == ("1.100", "1.10", "1.100", "1.10")
    assert added.rows[-1][1:] == ("0.900", "1.000", "0.900")
    assert duplicates.rows[0][2:] == ("2", "1.1000", "1.000", "1.210", "4.0")
    assert duplicates.rows[1][2:] == ("2", "0.9000", "0.810", "1.000", "2.0")
    assert page.missed == []
    assert page.answer.startswith("Pruning by data flow changes cycles x words by factors of 1.000 to 1.210; all that")


def test_bars() -> None:
    slow = SearchTime(20, 1000, 900, 100, False, 301.0, 390.0, (1.0,))
    assert page_of(STUDY, {SearchPoint("arch5", "resnet50"): slow}).missed == [
        "the search of resnet50 on arch5 left out tilings without a proof",
        "seconds of a whole search: 301, not at most 300",
    ]


def test_what_is_enumerated_is_small_and_not_too_small() -> None:
    """Some of each nest, in the order of their bounds."""
    name, chip = "resnet50/conv3_1_1", load("arch5")
    some = list(islice(small(choices_of(name, chip), pose(shape_of(name), chip), chip), 4))
    assert {choice.loops for choice in some} == set(NESTS)
    assert len({(choice.tiling, choice.loops) for choice in some}) == 4


def test_the_picture_is_drawn_from_rows(tmp_path: Path) -> None:
    flexer_policies.draw(rows_of(known()), tmp_path / "policies.svg")
    assert (tmp_path / "policies.svg").stat().st_size > 1000
