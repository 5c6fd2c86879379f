"""The study of claims: what its page says of rows that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshloom.sched.schedulers.nest.mapping import MappingError
from meshloom.sched.workload.catalog import find
from meshloom.tb.studies.engine.rows import StudyError
from meshloom.tb.studies.points.runs import RunPoint
from meshloom.tb.studies.tools import mapped
from meshloom.tb.studies.tools.mapped import FILES, MappedPoint, MappedRun, every_point, layer_of
from meshloom.tb.studies.tools.referee import QUICK_CHIPS, QUICK_EACH, STUDY, points, sample

from ..command_line import row
from .made_rows import rows_of

ZIGZAG = MappedPoint("zigzag", "tiny", "zigzag/tiny/gemm_32x32x32_complete.json", "gemm:32x32x32")
SCALESIM = MappedPoint("scalesim", "tiny", "scalesim/tiny/gemm_32x32x32/layers.csv", "gemm:32x32x32")
REFUSED = MappedPoint("stream", "nine8", "stream/nine8/resnet8_conv1/mapping.yaml", "resnet8/conv1")


def judged(claimed: int, rtl: int, wrong: int = 0) -> MappedRun:
    causes = {"useful": 0.5 * rtl, "dram": 0.4 * rtl, "end": 0.1 * rtl}
    problem = f"{wrong} of 64 bytes differ from the golden model" if wrong else ""
    return MappedRun(claimed, rtl, rtl, 0.5, compared=64, wrong=wrong, causes=causes, problem=problem)


def test_every_file_is_of_its_layer() -> None:
    """Of all four tools."""
    every = every_point()
    assert {point.tool for point in every} == FILES.keys()
    assert len({point.key for point in every}) == len(every)
    assert len({point.workload for point in every}) >= 40
    for point in every:
        try:
            workload, layer = point.source.layer()
        except MappingError:
            assert point.tool == "stream"
            continue
        assert (workload.name, layer.shape) == (find(point.workload)[0].name, workload.shape)
        assert layer.claim.cycles


def test_a_mapping_that_cannot_be_is_refused_without_a_simulator() -> None:
    assert REFUSED.measure(lambda what: None).refused.startswith("FY 3, FX 3 is unrolled over cores, which cannot add")


def test_names_of_files() -> None:
    assert layer_of("squeezenet_fire2_expand1") == "squeezenet/fire2_expand1"
    assert layer_of("conv_28x28x128-128_k3_p1") == "conv:28x28x128-128,k3,p1"
    with pytest.raises(StudyError, match="alexnet_conv1 is no layer's name"):
        layer_of("alexnet_conv1")


def test_the_quick_study_is_a_sample_of_the_full_one() -> None:
    some = sample()
    assert some == sample()
    assert {point.tool for point in some} == FILES.keys()
    assert len(some) <= QUICK_EACH * len(FILES)
    assert {point.chip for point in some} <= {*QUICK_CHIPS}
    assert {*points(False)} <= {*points(True)}


def test_what_is_shown() -> None:
    known = {
        ZIGZAG: replace(judged(1000, 1500), claimed_microjoules=2.5, microjoules=2.0),
        SCALESIM: replace(judged(1000, 900), claimed_bytes=3072, moved_bytes=4096),
        REFUSED: MappedRun(refused="FY 3 is unrolled over cores, which cannot add; unroll pixels"),
        RunPoint("tiny", "gemm:32x32x32"): row(rtl_cycles=1400),
    }
    rows = rows_of(known)
    texts = STUDY.texts(rows)
    names = "layers", "mean", "median", "worst", "zigzag", "scalesim", "less", "refused"
    assert [texts[name] for name in names] == ["2", "30.0 %", "30.0 %", "50.0 %", "50.0 %", "10.0 %", "1", "1"]
    tools, beside, zigzag, scalesim, refused = STUDY.shown(rows)
    assert tools.rows[0] == ("zigzag", "1", "50.0 %", "50.0 %", "+50.0 %", "+50.0 %", "1.07", "0")
    pair = "1,000 / 1,500 (+50.0 %)", "-", "-", "1,000 / 900 (-10.0 %)"
    assert beside.rows == [("gemm:32x32x32", "tiny", *pair, "1,400")]
    shown = "gemm:32x32x32", "tiny", "1,000", "1,500", "+50.0 %", "50.0 %", "dram 40 %, end 10 %", "1,400", "2.5", "2"
    assert zigzag.rows == [shown]
    assert scalesim.rows[0][-2:] == ("3,072", "4,096")
    assert refused.rows == [("resnet8/conv1", "nine8", "stream", "FY 3 is unrolled over cores, which cannot add")]
    assert STUDY.missed(rows) == []


def test_a_whole_network_is_added_up() -> None:
    names = {each.name for each in find("resnet8")} - {"resnet8/conv2_1_1"}  # as large as conv2_1_2
    known = {MappedPoint("zigzag", "mono16", name, name): judged(1000, 1100) for name in names}
    line = "resnet8", "mono16", "zigzag", "9", "9,000", "9,900", "+10.0 %", "-"
    assert line in [line for table in STUDY.shown(rows_of(known)) for line in table.rows]
    known.popitem()
    assert not any(table.title.startswith("Whole networks") for table in STUDY.shown(rows_of(known)))


def test_a_wrong_byte_is_no_claim() -> None:
    (first, second) = STUDY.missed(rows_of({ZIGZAG: judged(1000, 1500, wrong=2)}))
    assert first == "gemm:32x32x32 on tiny by zigzag: 2 of 64 bytes differ from the golden model"
    assert second == "bytes that differ: 2, not exactly 0"


def test_another_mapping_is_another_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And so is another report beside it."""
    keys = {ZIGZAG.key, SCALESIM.key}
    monkeypatch.setattr(mapped, "gateware", lambda: "other")
    assert not keys & {ZIGZAG.key, SCALESIM.key}
    monkeypatch.undo()
    report = tmp_path / "scalesim" / "tiny" / "gemm_32x32x32" / "tiny" / "COMPUTE_REPORT.csv"
    report.parent.mkdir(parents=True)
    report.write_text("other", encoding="utf-8")
    monkeypatch.setattr(mapped, "FOLDER", tmp_path)
    assert not keys & {ZIGZAG.key, SCALESIM.key}


def test_a_run_has_causes_and_bytes() -> None:
    """On the RTL of the smallest chip."""
    run = ZIGZAG.measure(lambda what: None)
    assert (run.claimed, run.wrong, run.compared) == (2306, 0, 1024)
    assert run.rtl == run.model
    assert sum(run.causes.values()) == pytest.approx(run.model)
    assert run.causes["useful"] == 32**3 / 16
    assert run.moved_bytes >= 3 * 1024
    assert run.claimed_microjoules is not None
