"""Latencies of layers: what the page counts, and layers on the RTL and in the model by the same launches."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from meshloom.sched.lowering.templates.schemes import Scheme
from meshloom.sched.papers.layer_puzzle.samples import Alone, Draw, compiled, draws
from meshloom.tb.studies.engine.point import Point
from meshloom.tb.studies.layer_puzzle.chunks import Pair, RtlChunk, RtlChunkPoint, on_both
from meshloom.tb.studies.layer_puzzle.decisions import FORMS, DecisionPoint, DecisionTimes, FormTimes, FormTimesPoint
from meshloom.tb.studies.layer_puzzle.layer_latency import CLASSES, STUDY, TEST, Error, causes_of, classes_of

from ..served_chip import CHIP as SMALL
from ..served_chip import chip_with
from .made_rows import page_of

#: With room for all networks; its cores and meshes are those of other tests.
CHIP = chip_with("lp4large", dram=SMALL.dram.model_dump() | {"words": 1 << 23})
KINDS = (Scheme(), Scheme(feature=2), Scheme(output=5), Scheme(output=9), Scheme(input=2))


def errors_of(size: float) -> list[Error]:
    """One layer of each kind, the same error of each form."""
    draw = Draw("ncf", 1, 0, Scheme())
    errors = [Error(replace(draw, scheme=scheme), True, (size,) * len(FORMS)) for scheme in KINDS]
    return [*errors, Error(draw, False, (-size,) * len(FORMS))]


def test_classes_and_causes_count_sizes_and_keep_signs() -> None:
    pair = Pair(Draw("ncf", 1, 0, Scheme(output=2)), 100, 104, 104)
    sheet = causes_of(errors_of(4.0), [pair])
    assert [row[1] for row in sheet.rows] == ["1"] * 7
    assert sheet.rows[0][2:5] == ("4.0", "4.0", "4.0")
    assert sheet.rows[5][2:5] == ("4.0", "-4.0", "4.0")
    assert sheet.rows[6][5:] == ("4.0", "4.0", "4.0")
    assert causes_of([], []).rows[0][2] == "-"
    shares = classes_of(errors_of(4.0)).rows[0][1:]
    assert shares == tuple("100" if end >= 4 else "0" for end in CLASSES)


def test_bars() -> None:
    """A program that ends in another cycle, a slow form, a slow decision."""
    good = RtlChunk((), (), 30, 0, 1000)
    rows: dict[Point, object] = {
        RtlChunkPoint("lp9", TEST[0]): good,
        FormTimesPoint("lp9"): FormTimes((1.0,) * len(FORMS), 60.0),
        DecisionPoint("lp9", "prema"): DecisionTimes(0.1, 4.0, 36.0),
    }
    page = page_of(STUDY, rows)
    assert page.missed == []
    assert page.texts["differ"] == "0"
    rows[RtlChunkPoint("lp9", TEST[1])] = replace(good, differ=2)
    rows[FormTimesPoint("lp9")] = FormTimes((1.0, 1.0, 1.0, 2.0), 60.0)
    rows[DecisionPoint("lp9", "lookahead")] = DecisionTimes(3.0, 100.0, 2000.0)
    page = page_of(STUDY, rows)
    assert page.missed == [
        "by steps, times as fast as the model: 30, not at least 50",
        "programs that ended in another cycle on the RTL: 2, not exactly 0",
        "microseconds of a decision, worst: 2000, not at most 1000",
    ]
    (exact,) = (one for one in page.tables if one.title == "The model against the RTL")
    assert exact.rows == [("0", "0", "60", "2,000", "2")]
    assert exact.bad


@pytest.mark.slow
def test_layers_take_the_same_time_on_the_rtl_and_in_the_model() -> None:
    """Alone, and beside others that begin anew."""
    some = [draw for draw in islice(draws(CHIP), 100) if draw.network == "ncf" and draw.stage > 1][:5]
    alone = [Alone(draw, template.measures) for draw, template in compiled(some, CHIP)]
    chunk = on_both(CHIP, 3, alone)
    assert len(chunk.alone) == len(alone)
    assert chunk.beside
    assert chunk.programs > len(chunk.alone) + len(chunk.beside)
    assert chunk.differ == 0
    assert all(pair.rtl == pair.model for pair in (*chunk.alone, *chunk.beside))
