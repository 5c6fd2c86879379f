"""The index of all pages by question, made of what the pages themselves say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from meshloom.sched.support.files import write_atomically

_ABOUT = """# Results

What has been measured, by question. Each page is printed by `meshloom bench NAME` from rows that are kept as text
(`rows/`); it says which code measured them, when, and which bars are missed. `meshloom bench` measures a sample of
every study, `--full` a study whole, and `meshloom bench --stale` says what the present code would measure anew. The
files that a run leaves are in [formats](../formats.md), what the papers claim and what is measured here in
[claims](../claims.md).
"""
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_ANSWER = re.compile(r"^\*\*(.+?\?)\*\* (.+)$", re.MULTILINE)
_VERDICT = re.compile(r"^\*\*Verdict: (.+)\.\*\*$", re.MULTILINE)


@dataclass(frozen=True)
class _Entry:
    """What the index says of a page."""

    name: str
    question: str
    answer: str
    verdict: str

    @classmethod
    def of(cls, name: str, text: str) -> _Entry:
        answer, title, verdict = _ANSWER.search(text), _TITLE.search(text), _VERDICT.search(text)
        question, text = answer.groups() if answer else (title[1] if title else name, "see the page")
        return cls(name, question, text, verdict[1] if verdict else "")

    @property
    def line(self) -> str:
        cells = self.question, self.answer, f"[{self.name}]({self.name}.md)", self.verdict
        return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def index(places: Mapping[str, str], folder: Path) -> str:
    """The index as Markdown. `places`: where each study is, by its name; `folder`: of the pages. Those that have not
    been printed are left out, and pages that no study prints come last."""
    subjects: dict[str, list[_Entry]] = {}
    pages = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    pages.pop("README", None)
    for name, place in places.items():
        if name in pages:
            package = place.partition(":")[0].rpartition(".")[0]
            about = (import_module(package).__doc__ or package).strip().partition("\n")[0].removesuffix(".")
            subjects.setdefault(about, []).append(_Entry.of(name, pages.pop(name)))
    if pages:
        subjects["Others"] = [_Entry.of(name, text) for name, text in pages.items()]
    parts = [_ABOUT]
    for about, entries in subjects.items():
        lines = ["| question | answer | page | bars |", "|---|---|---|---|", *(entry.line for entry in entries)]
        parts.append(f"## {about}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def save_index(places: Mapping[str, str], folder: Path) -> Path:
    """Writes the index beside the pages. Raises WriteError."""
    path = folder / "README.md"
    write_atomically(path, index(places, folder))
    return path
