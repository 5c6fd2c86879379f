"""The benchmark of latencies: what it counts, and layers on the RTL and in the model by the same launches."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from meshloom.hw.spec.config import load
from meshloom.sched.lowering.templates.schemes import Scheme
from meshloom.sched.papers.layer_puzzle.samples import Alone, Draw, compiled, draws
from meshloom.tb.benchmarks import layer_latency, layer_rtl
from meshloom.tb.benchmarks.interface import BenchmarkError
from meshloom.tb.benchmarks.layer_latency import CLASSES, FORMS, Error, causes, classes, exact
from meshloom.tb.benchmarks.layer_rtl import Pair, RtlChunk

CHIP = load("lp9")
KINDS = (Scheme(), Scheme(feature=2), Scheme(output=5), Scheme(output=9), Scheme(input=2))


def _errors(size: float) -> list[Error]:
    """One layer of each kind, the same error of each form."""
    draw = Draw("ncf", 1, 0, Scheme())
    errors = [Error(replace(draw, scheme=scheme), True, (size,) * len(FORMS)) for scheme in KINDS]
    return [*errors, Error(draw, False, (-size,) * len(FORMS))]


def test_classes_and_causes_count_sizes_and_keep_signs() -> None:
    pair = Pair(Draw("ncf", 1, 0, Scheme(output=2)), 100, 104, 104)
    sheet = causes(_errors(4.0), [pair])
    assert [row[1] for row in sheet.rows] == ["1"] * 7
    assert sheet.rows[0][2:5] == ("4.0", "4.0", "4.0")
    assert sheet.rows[5][2:5] == ("4.0", "-4.0", "4.0")
    assert sheet.rows[6][5:] == ("4.0", "4.0", "4.0")
    shares = classes(_errors(4.0)).rows[0][1:]
    assert shares == tuple("100" if end >= 4 else "0" for end in CLASSES)


def test_a_program_that_ends_in_another_cycle_is_a_bar_missed() -> None:
    failures: list[str] = []
    good = RtlChunk((), (), 30, 0, 1000)
    assert not exact([good], failures).failed
    assert not failures
    assert exact([good, replace(good, differ=2)], failures).failed
    assert failures == ["2 of 60 programs ended on the RTL in another cycle than in the model"]


def test_what_is_kept_is_compared_and_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHLOOM_CACHE", str(tmp_path))
    with pytest.raises(BenchmarkError, match="no part tiny; there are kept"):
        layer_latency.run(lambda event: None, ["tiny"])
    with pytest.raises(BenchmarkError, match="nothing to compare has been measured"):
        layer_latency.run(lambda event: None, ["kept"])


@pytest.mark.slow
def test_layers_take_the_same_time_on_the_rtl_and_in_the_model() -> None:
    """Alone, and beside others that begin anew."""
    small = [draw for draw in islice(draws(CHIP), 100) if draw.network == "ncf" and draw.stage > 1][:5]
    alone = [Alone(draw, template.measures) for draw, template in compiled(small, CHIP)]
    chunk = layer_rtl.measured(CHIP, 3, alone)
    assert len(chunk.alone) == len(alone)
    assert chunk.beside
    assert chunk.programs > len(chunk.alone) + len(chunk.beside)
    assert chunk.differ == 0
    assert all(pair.rtl == pair.model for pair in (*chunk.alone, *chunk.beside))
