"""The page of a run, and that of a comparison: one file without a network, whose figures are the runs'."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from meshloom.hw.spec.config import load
from meshloom.tb.cli.main import app
from meshloom.tb.compare.explained import explained
from meshloom.tb.compare.finished import FinishedRun, finished_run
from meshloom.tb.compare.lives import occupancy, thinned
from meshloom.tb.compare.pictures import pictures
from meshloom.tb.report.markup import escape
from meshloom.tb.report.page import Shown, page
from meshloom.tb.results.artefacts import Artefacts
from meshloom.tb.results.artefacts import load as load_artefacts
from meshloom.tb.results.figures import FaultReport
from meshloom.tb.results.legend import CycleCause
from meshloom.tb.results.tracks import RunTimeline

from .kept_runs import keep

SHAPE = "gemm:17x33x9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keep(tmp_path_factory.mktemp("runs"), SHAPE, load("tiny"))


@pytest.fixture(scope="module")
def run_artefacts(folder: Path) -> Artefacts:
    return load_artefacts(folder)


@pytest.fixture(scope="module")
def run(run_artefacts: Artefacts) -> FinishedRun:
    return finished_run(run_artefacts)


def page_text(run: FinishedRun, artefacts: Artefacts, timeline: RunTimeline | None = None, **changes: Any) -> str:
    why = explained(run)
    shown = pictures(run, artefacts, why.waterfall)
    if timeline is not None:
        shown = replace(shown, timeline=timeline)
    return page([Shown(run.row.model_copy(update=changes), why, shown, run.chip)])


def data_of(text: str) -> dict[str, Any]:
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert embedded is not None
    (only,) = json.loads(embedded[1])
    return only


def numbers(text: str) -> list[int]:
    return np.frombuffer(b64decode(text), dtype="<i4").tolist()


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


# -- what is in it --------------------------------------------------------------------------------------------------


def test_the_page_fetches_nothing(run: FinishedRun, run_artefacts: Artefacts) -> None:
    text = page_text(run, run_artefacts)
    assert re.search(r"<(script|link|img|iframe)\b[^>]*\b(src|href)=", text) is None
    assert "default-src 'none'" in text


def test_the_figures_are_those_of_the_run(run: FinishedRun, run_artefacts: Artefacts) -> None:
    text = page_text(run, run_artefacts)
    figures = {figure["id"].removeprefix("w0-"): figure for figure in data_of(text)["figures"]}
    assert set(figures) == {"by-layer", "roofline", "memory", "links-busy", "links-blocked"}
    assert {f'id="w0-{name}"' for name in figures} <= set(re.findall(r'id="[\w-]+"', text))
    assert sum(sum(cause["x"]) for cause in figures["by-layer"]["data"]) == pytest.approx(run.row.rtl_cycles)
    (_, layers) = figures["roofline"]["data"]
    roof = run.chip.rows * run.chip.cols * len(run.chip.cores)
    assert all(0 < y <= roof for y in layers["y"])
    links = run_artefacts.tables["links"].to_pylist()
    assert len(figures["links-busy"]["data"]) == len(links) + 1  # and the scale
    first = links[0]
    assert f"{100 * first['busy'] / first['cycles']:.1f} % busy" in figures["links-busy"]["data"][0]["text"]


def test_the_timeline_has_every_slice_on_both_sides(run: FinishedRun, run_artefacts: Artefacts) -> None:
    shown = data_of(page_text(run, run_artefacts))["timeline"]
    assert [side["name"] for side in shown["sides"]] == ["planned", "measured"]
    labels, label_of = shown["labels"], numbers(shown["label_of"])
    assert [labels[number] for number in label_of] == [op.label for op in run.schedule.operations]
    gemms = sorted((e.start, e.end) for e in run.measured.values() if e.opcode.name == "GEMM")
    track = next(number for number, name in enumerate(shown["tracks"]) if name.endswith("matrix"))
    for side in shown["sides"]:
        starts, ends, first = numbers(side["start"]), numbers(side["end"]), side["first"]
        assert len(first) == len(shown["tracks"]) + 1
        assert first[-1] == len(starts) == len(ends) == len(numbers(side["operation"]))
        for low, high in zip(first, first[1:], strict=False):
            mine = list(zip(starts[low:high], ends[low:high], strict=True))
            assert all(start < end for start, end in mine)
            assert all(stop <= begin for (_, stop), (begin, _) in zip(mine, mine[1:], strict=False))
        low, high = first[track : track + 2]
        assert ends[low:high] == [end for _, end in gemms]


def test_text_from_outside_stays_text(run: FinishedRun, run_artefacts: Artefacts) -> None:
    fault = FaultReport(
        cause="ADDRESS", tile=1, unit="mover", tag=3, value=0, label="</script><b>", explanation="<i>why"
    )
    text = page_text(run, run_artefacts, workload="<script>alert(1)</script>", faults=1, fault_reports=(fault,))
    assert "<script>alert" not in text
    assert "<b>" not in text
    assert "&lt;/script&gt;&lt;b&gt;" in text
    assert "&lt;i&gt;why" in text
    labels = [f"</script>{number}" for number in range(len(run.schedule.operations))]
    timeline = pictures(run, run_artefacts, explained(run).waterfall).timeline
    assert data_of(page_text(run, run_artefacts, replace(timeline, labels=labels)))["timeline"]["labels"] == labels


def test_after_a_fault_the_plan_is_shown(run: FinishedRun, run_artefacts: Artefacts) -> None:
    faulty = replace(run, measured={})
    why = explained(faulty, model=True)
    shown = data_of(page([Shown(run.row, why, pictures(faulty, run_artefacts, why.waterfall, model=True), run.chip)]))
    assert [side["name"] for side in shown["timeline"]["sides"]] == ["planned"]


def test_memories_are_never_fuller_than_full(run: FinishedRun) -> None:
    """Word by word: what an operation has written and a later one reads is there in between."""
    kept_words = {each.name: each for each in occupancy(run, run.measured)}
    assert {"core@(1,0) A", "core@(1,0) B"} <= kept_words.keys()
    for each in kept_words.values():
        assert each.words.min() >= 0
        assert each.words.max() <= each.room
        assert each.words[-1] == 0
        assert each.words.max() > 0
        (short,) = thinned([each], run.row.rtl_cycles, 5)
        assert len(short.cycles) <= 5
        assert short.words.max() == each.words.max()
    results = kept_words["core@(1,0) OUT"]
    stored = [op.words for op in run.schedule.operations if op.kind == "move" and op.src.tile == run.chip.cores[0]]
    assert max(stored) <= results.words.max() <= sum(stored)
    first = min(int(each.cycles[each.words > 0][0]) for each in kept_words.values())
    early = {at: entry._replace(start=entry.start - first, end=entry.end - first) for at, entry in run.measured.items()}
    words = {name: each.words.tolist() for name, each in kept_words.items()}
    assert {each.name: each.words.tolist() for each in occupancy(run, early)} == words, "also what begins in cycle 0"


def test_the_command_writes_a_page(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    shown = invoke(folder, "--out", path)
    assert shown.exit_code == 0, shown.output
    assert path.read_text().startswith("<!doctype html>")
    first = path.read_bytes()
    assert invoke(folder, "--out", path).exit_code == 0
    assert path.read_bytes() == first


def test_contents_lead_to_every_section(run: FinishedRun, run_artefacts: Artefacts) -> None:
    text = page_text(run, run_artefacts)
    linked = re.findall(r'<a href="#([\w-]+)">', text)
    headings = re.findall(r'<h2 id="([\w-]+)">', text)
    assert linked == headings
    assert {"w0-s-summary", "w0-s-chip", "w0-s-cycles", "w0-s-timeline", "w0-s-memories", "glossary"} <= set(headings)


def test_the_chip_is_drawn_and_described(run: FinishedRun, run_artefacts: Artefacts) -> None:
    text = page_text(run, run_artefacts)
    drawn = re.search(r'<svg class="floorplan".*?</svg>', text, re.DOTALL)
    assert drawn is not None
    for kind in set(run.chip.tiles.values()):
        assert drawn[0].count(f'<rect class="{kind.value}"') == len(run.chip.of_kind(kind))
    width, height = run.chip.width, run.chip.height
    assert drawn[0].count("<line ") == width * (height - 1) + height * (width - 1)
    assert f"array of {run.chip.rows} x {run.chip.cols} PEs" in text
    assert f"{len(run.chip.channels)}, {run.chip.dram.bytes_per_cycle} bytes a cycle each" in text


def test_one_table_says_where_the_cycles_went_and_what_its_words_mean(
    run: FinishedRun, run_artefacts: Artefacts
) -> None:
    text = page_text(run, run_artefacts)
    (falls,) = re.findall(r'<table class="falls">.*?</table>', text, re.DOTALL)
    total = explained(run).waterfall.total
    known = {str(cause): cause for cause in CycleCause}
    bars = [tuple(map(float, each)) for each in re.findall(r"left:([\d.]+)%;width:([\d.]+)%", falls)]
    assert len(bars) == len(total)
    for cause, (start, wide), (end, _) in zip(total, bars, [*bars[1:], (100.0, 0.0)], strict=True):
        assert start + wide == pytest.approx(end, abs=0.02), "a bar begins where the one before ends"
        assert escape(known[cause].meaning) in falls
        assert f">{known[cause].group}<" in falls
        assert known[cause].colour in falls


def test_every_count_has_its_thousands_apart(run: FinishedRun, run_artefacts: Artefacts) -> None:
    text = re.sub(r"<script.*?</script>|<style>.*?</style>", "", page_text(run, run_artefacts), flags=re.DOTALL)
    cells = re.findall(r"<td class='number'>([^<]*)</td>", text)
    assert len(cells) > 100
    for cell in cells:
        assert re.fullmatch(r"|-|[+-]?\d{1,3}(,\d{3})*(\.\d+)?( %)?", cell), cell
    shares = [cell for cell in cells if cell.endswith(" %") and cell[0] not in "+-"]
    assert all(re.fullmatch(r"\d+\.\d %", cell) for cell in shares)


def test_a_failed_run_says_so_first(run: FinishedRun, run_artefacts: Artefacts) -> None:
    text = page_text(run, run_artefacts, mismatches=1, first_mismatch="image 0, channel 3")
    banner = text.index('<p class="banner bad">mismatch: 1 of 1 bytes differ')
    assert banner < text.index("<h2 ")
    assert "banner bad" not in page_text(run, run_artefacts).partition("</style>")[2]


def test_memories_are_as_full_as_they_ever_are(run: FinishedRun, run_artefacts: Artefacts) -> None:
    """Columns of the picture have the most of their cycles: no peak is lost, and none is made up."""
    (shown,) = [each for each in data_of(page_text(run, run_artefacts))["figures"] if each["id"] == "w0-memory"]
    (heat,) = shown["data"]
    kept_words = {each.name: each for each in occupancy(run, run.measured)}
    assert len(heat["y"]) == len(heat["z"]) == len(kept_words)
    for name, row in zip(heat["y"], heat["z"], strict=True):
        memory = kept_words[name.split(", most")[0]]
        assert max(row) == pytest.approx(100 * memory.words.max() / memory.room, abs=0.06)
        assert f"most {max(row):.1f} %" in name


def test_two_runs_are_compared_on_a_page(folder: Path, tmp_path: Path) -> None:
    slower = keep(tmp_path / "other", SHAPE, load("tiny"), scheduler="paper_static")
    path = tmp_path / "c.html"
    shown = CliRunner().invoke(app, ["compare", str(folder), str(slower), "--out", str(path)])
    assert shown.exit_code == 0, shown.output
    text = path.read_text()
    before, after = load_artefacts(folder).row, load_artefacts(slower).row
    assert f"<td class='number'>{before.rtl_cycles:,}</td><td class='number'>{after.rtl_cycles:,}</td>" in text
    figures = {each["id"]: each for each in data_of(text)["figures"]}
    assert set(figures) == {"w0-causes", "w0-layers"}
    sums = [sum(side["x"]) for side in figures["w0-causes"]["data"]]
    assert sums == pytest.approx([before.rtl_cycles, after.rtl_cycles])
    assert all(escape(cause.meaning) in text and cause.colour in text for cause in CycleCause)
    moved = sum(sum(cause["x"]) for cause in figures["w0-layers"]["data"])
    assert moved == pytest.approx(after.rtl_cycles - before.rtl_cycles)
    assert re.findall(r'<a href="#([\w-]+)">', text) == re.findall(r'<h2 id="([\w-]+)">', text)
