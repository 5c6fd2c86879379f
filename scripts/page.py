"""The page that says where the committed data comes from: sections that scripts write, hashes, licence texts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from sources import PACKAGES

DATA = Path(__file__).parents[1] / "sched" / "workload" / "data"
_HEAD = """\
# Sources of the data

Made by `scripts/convert_networks.py` (how to run it stands at its top), `scripts/convert_resnet8.py` and
`scripts/train_language.py`; this page too.
Nothing here is fetched when Meshloom runs.
"""
_FILES, _LICENCE = "Files", "Licence text: "


def write_page(folder: Path, sections: dict[str, tuple[str, tuple[str, ...]]]) -> None:
    """Writes SOURCES.md anew: `sections` replace those of the same titles, the others stay, hashes are made afresh.

    A section: its text, and the packages in `folder` whose licence texts are to stand on the page.
    """
    path = DATA / "SOURCES.md"
    found = _sections(path.read_text()) if path.exists() else {}
    for title, (text, packages) in sections.items():
        found[title] = text
        for package in packages:
            found[_LICENCE + package] = f"```text\n{PACKAGES[package].licence_text(folder)}\n```\n"
    found[_FILES] = "| file | sha256 |\n|---|---|\n" + "".join(
        f"| {file.relative_to(DATA).as_posix()} | {hashlib.sha256(file.read_bytes()).hexdigest()} |\n"
        for file in sorted(DATA.rglob("*"))
        if file.is_file() and file != path
    )
    ordered = sorted(found, key=lambda title: (title.startswith(_LICENCE), title == _FILES, title))
    text = "\n".join(f"## {title}\n\n{found[title].strip()}\n" for title in ordered)
    path.write_text(f"{_HEAD}\n{text}")


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))
