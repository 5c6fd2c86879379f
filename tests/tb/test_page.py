"""The page of a run: one file without a network, whose figures are the run's, looked at in a browser."""

from __future__ import annotations

import io
import json
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from meshloom.hw.spec.config import load
from meshloom.tb.cli.main import app
from meshloom.tb.compare.explained import explained
from meshloom.tb.compare.finished import FinishedRun, finished_run
from meshloom.tb.compare.lives import occupancy, thinned
from meshloom.tb.compare.pictures import pictures
from meshloom.tb.report.page import Shown, page
from meshloom.tb.results.artefacts import Artefacts
from meshloom.tb.results.artefacts import load as load_artefacts
from meshloom.tb.results.figures import FaultReport
from meshloom.tb.results.tracks import RunTimeline, Slices, Track

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
    assert set(figures) == {"waterfall", "by-layer", "roofline", "memory", "links-busy", "links-blocked"}
    assert {f'id="w0-{name}"' for name in figures} <= set(re.findall(r'id="[\w-]+"', text))
    bars = figures["waterfall"]["data"][0]
    assert bars["y"][-1] == pytest.approx(sum(bars["y"][:-1])) == run.row.rtl_cycles
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


def test_the_command_writes_a_page(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    shown = invoke(folder, "--out", path)
    assert shown.exit_code == 0, shown.output
    assert path.read_text().startswith("<!doctype html>")
    first = path.read_bytes()
    assert invoke(folder, "--out", path).exit_code == 0
    assert path.read_bytes() == first


# -- in a browser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    """A page of Debian's Chromium, which `make setup` installs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium.new_page(viewport={"width": 1200, "height": 900})
        chromium.close()


def opened(browser_page: Page, path: Path) -> bytes:
    """Opens a page, which must neither complain nor fetch anything; a picture of all of it."""
    texts: list[str] = []
    result: list[str] = []
    browser_page.on("console", lambda message: texts.append(message.text))
    browser_page.on("pageerror", lambda error: texts.append(str(error)))
    browser_page.on("request", lambda request: result.append(request.url))
    browser_page.goto(path.as_uri())
    browser_page.wait_for_selector("body[data-ready=yes]", timeout=120_000)
    assert texts == []
    assert result == [path.as_uri()]
    return browser_page.screenshot(full_page=True, timeout=120_000)


def wait_until(browser_page: Page, condition: str) -> None:
    """Waits for what an expression of the page says, asked from outside: the page may not evaluate text itself."""
    for _ in range(1200):
        if browser_page.evaluate(condition):
            return
        browser_page.wait_for_timeout(100)
    pytest.fail(f"{condition} after two minutes")


def colours(browser_page: Page) -> int:
    """Different colours on the canvas of the timeline."""
    return browser_page.evaluate(
        """() => { const canvas = document.querySelector(".gantt canvas");
        const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(image.data.buffer)).size; }"""
    )


@pytest.mark.slow
def test_a_browser_shows_it(browser_page: Page, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    assert invoke(folder, "--out", path).exit_code == 0
    shot = np.asarray(Image.open(io.BytesIO(opened(browser_page, path))).convert("L"))
    assert shot.shape[0] > 2000
    assert 0.02 < (shot < 200).mean() < 0.6, "neither blank nor black"
    assert browser_page.locator(".main-svg").count() >= 6
    assert colours(browser_page) > 20
    before = browser_page.evaluate("timeline.view")
    browser_page.locator(".gantt canvas").hover(position={"x": 600, "y": 40})
    browser_page.mouse.wheel(0, -500)
    wait_until(browser_page, "timeline.pending === 0")
    low, high = browser_page.evaluate("timeline.view")
    assert before[0] <= low < high <= before[1]
    assert high - low < before[1] - before[0]
    browser_page.locator(".gantt canvas").dblclick(position={"x": 600, "y": 40})
    wait_until(browser_page, f"timeline.view[1] - timeline.view[0] === {run_cycles(folder)}")


def run_cycles(folder: Path) -> int:
    return load_artefacts(folder).row.rtl_cycles


@pytest.mark.slow
def test_a_million_slices(browser_page: Page, run: FinishedRun, run_artefacts: Artefacts, tmp_path: Path) -> None:
    """All of it: no more is drawn than there are columns of pixels. A piece of it: every slice by itself."""
    count, tracks = 1_000_000, 8
    each = count // tracks
    random = np.random.default_rng(1)
    edges = np.sort(random.choice(20_000_000, size=(tracks, 2 * each), replace=False), axis=1)
    slices = Slices(
        np.repeat(np.arange(tracks), each),
        edges[:, ::2].ravel(),
        edges[:, 1::2].ravel(),
        np.zeros(count, dtype=np.int64),
        np.arange(count) % len(run.schedule.operations),
    )
    named = pictures(run, run_artefacts, explained(run).waterfall).timeline
    many = replace(
        named,
        tracks=[Track(f"core {number}", "matrix", number) for number in range(tracks)],
        planned=slices,
        measured=slices,
    )
    path = tmp_path / "many.html"
    path.write_text(
        page_text(run, run_artefacts, many).replace(
            f'"cycles":{run.row.rtl_cycles},"tracks"', '"cycles":20000000,"tracks"'
        )
    )
    opened(browser_page, path)
    columns = browser_page.evaluate("timeline.canvas.clientWidth - timeline.left")
    assert 0.9 * columns * tracks * 2 < browser_page.evaluate("timeline.drawn") <= columns * tracks * 2
    assert colours(browser_page) > 20
    first, last = 10_000_000, 10_001_000
    browser_page.evaluate(f"timeline.show({first}, {last})")
    wait_until(browser_page, "timeline.pending === 0")
    inside = int(((slices.end > first) & (slices.start < last)).sum())
    assert 0.8 * 2 * inside <= browser_page.evaluate("timeline.drawn") <= 2 * inside
