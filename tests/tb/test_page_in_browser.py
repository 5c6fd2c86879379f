"""Pages in a browser: what is drawn, what it takes, and whether it can be read; pictures are left in
sim_build/screenshots."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from meshloom.hw.spec.config import load
from meshloom.tb.cli.main import app
from meshloom.tb.compare.explained import explained
from meshloom.tb.compare.finished import FinishedRun, finished_run
from meshloom.tb.compare.pictures import pictures
from meshloom.tb.report.page import Shown, page
from meshloom.tb.results.artefacts import Artefacts
from meshloom.tb.results.artefacts import load as load_artefacts
from meshloom.tb.results.figures import FaultReport
from meshloom.tb.results.tracks import Slices, Track

if TYPE_CHECKING:
    from playwright.sync_api import Page

from .kept_runs import keep, keep_network
from .test_page import SHAPE, invoke, page_text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keep(tmp_path_factory.mktemp("runs"), SHAPE, load("tiny"))


@pytest.fixture(scope="module")
def run_artefacts(folder: Path) -> Artefacts:
    return load_artefacts(folder)


@pytest.fixture(scope="module")
def run(run_artefacts: Artefacts) -> FinishedRun:
    return finished_run(run_artefacts)


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
    """Waits for what an expression of the page says; asked from outside, since the page forbids to evaluate text."""
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
    assert browser_page.locator(".main-svg").count() >= 5
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


#: A desk and a telephone, by day and at night: width, scheme, and how light the ground is.
SCREENS: tuple[tuple[int, Literal["light", "dark"], int], ...] = (
    (1200, "light", 255),
    (1200, "dark", 20),
    (420, "light", 255),
    (420, "dark", 20),
)
#: Where pictures of pages are left to be looked at.
SHOTS = Path(__file__).parents[2] / "sim_build" / "screenshots"
#: Whether two boxes of a list overlap, each (left, top, right, bottom).
OVERLAPS = """boxes => boxes.some((a, at) => boxes.slice(at + 1).some(
    b => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom))"""


def failed_page(tmp_path: Path) -> str:
    """A run whose chip raised a fault, and one that could not be scheduled."""
    artefacts = load_artefacts(keep(tmp_path / "failed", SHAPE, load("tiny")))
    run = replace(finished_run(artefacts), measured={})
    fault = FaultReport(
        cause="WATCHDOG", tile=1, unit="mover", tag=3, value=0, label="x i0 y0 x0 k0",
        explanation="core@(1,0) mover waits for semaphore 3, which the matrix unit posts; the matrix unit waits for it",
    )  # fmt: skip
    row = artefacts.row.model_copy(update={"faults": 1, "fault_reports": (fault,), "rtl_cycles": 0})
    why = explained(run, model=True)
    shown = Shown(row, why, pictures(run, artefacts, why.waterfall, model=True), run.chip)
    return page([shown], {"vgg16/fc6": "scheduling: no loop order fits: memory B has 256 words, 1,024 are needed"})


def network_page(name: str, tmp_path: Path) -> str:
    artefacts = load_artefacts(keep_network(tmp_path / name, name, load("quad16")))
    return page_text(finished_run(artefacts), artefacts)


def test_a_failed_run_has_what_is_looked_at(tmp_path: Path) -> None:
    """Its banner, its timeline and its contents, without a browser."""
    text = failed_page(tmp_path)
    for part in ('class="banner bad"', "vgg16/fc6", "WATCHDOG", 'class="gantt', "dataset.ready", "color-scheme"):
        assert part in text, part


@pytest.mark.slow  # plans a network
@pytest.mark.parametrize("name", ["resnet8", "squeezenet", "failed"])
def test_pages_are_readable_on_a_desk_and_on_a_telephone_at_night(
    name: str, browser_page: Page, tmp_path: Path
) -> None:
    """Pictures of all are left in sim_build/screenshots."""
    path = tmp_path / "run.html"
    path.write_text(failed_page(tmp_path) if name == "failed" else network_page(name, tmp_path))
    SHOTS.mkdir(parents=True, exist_ok=True)
    browser = browser_page.context.browser
    assert browser is not None
    for width, scheme, ground in SCREENS:
        shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        picture = opened(shown, path)
        (SHOTS / f"{name}-{width}-{scheme}.png").write_bytes(picture)
        assert np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))[2, 2, 0] == ground
        look_at(shown, width)
        shown.close()


@pytest.mark.slow  # a browser
def test_a_comparison_is_readable_too(browser_page: Page, folder: Path, tmp_path: Path) -> None:
    slower = keep(tmp_path / "other", SHAPE, load("tiny"), scheduler="paper_static:budget=1M")
    path = tmp_path / "c.html"
    assert CliRunner().invoke(app, ["compare", str(folder), str(slower), "--out", str(path)]).exit_code == 0
    browser = browser_page.context.browser
    assert browser is not None
    SHOTS.mkdir(parents=True, exist_ok=True)
    for width, scheme, _ in SCREENS:
        shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        (SHOTS / f"comparison-{width}-{scheme}.png").write_bytes(opened(shown, path))
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.locator(".main-svg").count() >= 2
        shown.close()


def look_at(browser_page: Page, width: int) -> None:
    """Nothing is wider than the screen, no title is below a bar of buttons, names of the roofline are apart, and each
    layer has its colour in the legend."""
    assert browser_page.evaluate("document.documentElement.scrollWidth") <= width
    assert browser_page.evaluate(
        """() => [...document.querySelectorAll(".modebar")].every(bar => {
        const title = bar.closest("figure").querySelector("figcaption").getBoundingClientRect();
        return bar.getBoundingClientRect().top >= title.bottom; })"""
    )
    names = "[...document.querySelectorAll('[id$=roofline] .textpoint text')].map(text => text.getBoundingClientRect())"
    assert browser_page.evaluate(f"{names}.length") >= 1
    assert not browser_page.evaluate(f"({OVERLAPS})({names})")
    assert not browser_page.evaluate(
        f"({OVERLAPS})([...document.querySelectorAll('figure')].map(each => each.getBoundingClientRect()))"
    )
    legend = browser_page.locator(".legend button").all_inner_texts()
    assert legend == [name for name in browser_page.evaluate("timeline.layers") if name in legend]
    assert legend
    browser_page.locator(".legend button").first.click()
    assert browser_page.evaluate("timeline.only") >= 0
