"""The documentation as a site: it builds, links lead somewhere, and the interface's pages have what they are about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--config-file",
        str(config),
        "--site-dir",
        str(site),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("index.html", "Which question do you have?"),
        ("setup/index.html", "You should see"),
        ("newcomers/architect/index.html", "An architect in ten minutes"),
        ("errors/index.html", "exceeds one word a cycle"),
        ("contributing/index.html", "When a run on the RTL fails"),
        ("api/chip/index.html", "ChipConfig"),
        ("api/schedule/index.html", "Operations in a total program order"),
        ("api/results/index.html", "Exit"),
    ],
)
def test_pages_have_what_they_are_about(page: str, words: str, site: Path) -> None:
    assert words in (site / page).read_text(encoding="utf-8")


def test_the_site_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    texts = {entry["location"]: entry["text"] for entry in index["docs"]}
    assert any("Interleaved Gradient Order" in text for text in texts.values())
    assert any(place.startswith("errors/") and "exceeds one word a cycle" in text for place, text in texts.items())
    assert 'id="mkdocs_search_modal"' in (site / "index.html").read_text(encoding="utf-8")


def test_every_page_of_docs_is_in_it(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        place = path.relative_to(ROOT / "docs").with_suffix("")
        assert (site / (place.parent if place.name == "README" else place) / "index.html").exists(), path


#: Pages that are printed by benchmarks, which name their code themselves, and those of the past.
_PRINTED = ("docs/results", "CHANGELOG.md")


def test_every_file_that_a_page_names_is_there() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for page in pages:
        if not page.relative_to(ROOT).as_posix().startswith(_PRINTED):
            for name in re.findall(r"\b(?:hw|sched|tb|tests|scripts)/[\w./]*\.\w+", page.read_text(encoding="utf-8")):
                assert (ROOT / name).exists(), f"{page.relative_to(ROOT)}: {name}"


def test_no_page_of_the_architecture_is_long() -> None:
    for page in (ROOT / "docs" / "architecture").glob("*.md"):
        assert page.stat().st_size < 12_500, page


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        values = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"', path.read_text(encoding="utf-8"))
        assert values == [], path


@pytest.mark.parametrize("link", ["[there](nowhere.md)", "[there](proofs.md#no-such-heading)"])
def test_a_broken_link_fails(link: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("results"))
    for page in (tmp_path / "docs").rglob("*.md"):
        text = re.sub(r"\((\.\./)?results/[^)]*\)", r"(\1isa.md)", page.read_text(encoding="utf-8"))
        text = re.sub(
            r"\(\.\./(?:README|CONTRIBUTING|LICENSE|sched/)[^)]*\)", "(isa.md)", text
        )  # what the hook brings in
        page.write_text(text, encoding="utf-8")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"site_name: x\nstrict: true\ndocs_dir: {tmp_path}/docs\nvalidation: {{anchors: warn}}\n")
    assert build(config, tmp_path / "before").returncode == 0
    with (tmp_path / "docs" / "isa.md").open("a", encoding="utf-8") as file:
        file.write(f"\n{link}\n")
    assert build(config, tmp_path / "after").returncode != 0
