"""Pages of the site that are files elsewhere, and those of the Python interface. A hook of MkDocs (see mkdocs.yml)."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parents[1]
#: Files of the project's root (or below it) to their place in the site. What lies in docs/ keeps its place.
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE",
    "sched/workload/data/SOURCES.md": "sources.md",
}
#: Pages of the Python interface: title, and the modules whose docstrings they are made of.
INTERFACE = {
    "python": (
        "Chips, schedules and runs",
        "meshloom",
        "meshloom.tb.api.calls",
        "meshloom.tb.api.workload",
        "meshloom.tb.api.result",
    ),
    "chip": ("Chips and instructions", "meshloom.hw.spec.config", "meshloom.hw.spec.isa"),
    "schedule": ("Schedules", "meshloom.sched.ir.schedule"),
    "schedulers": ("Schedulers", "meshloom.sched.schedulers.registry", "meshloom.sched.workload.layers"),
    "checker": ("Programs and their checker", "meshloom.sched.program.program", "meshloom.sched.checker.check"),
    "model": ("Timeline model", "meshloom.sched.model.timeline"),
    "results": ("Results", "meshloom.tb.results.schema", "meshloom.tb.results.figures", "meshloom.tb.results.exits"),
}
#: Code, which stays as it is, or the middle of `[block][pixel]`, which would be a link.
_CODE_OR_INDEX = re.compile(r"(`[^`]*`|^    .*$)|(\]\[)", re.MULTILINE)
#: A link of a page of docs/ to a file outside of it.
_OUTSIDE = re.compile(r"\]\(\.\./([\w./]+)")
_LINK = re.compile(r"(\]\()([^)#:]+)((?:#[^)]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    for source, place in ELSEWHERE.items():
        path = ROOT / source
        if path.suffix == ".md":
            files.append(File.generated(config, place, content=moved(path.read_text(encoding="utf-8"))))
        else:
            files.append(File.generated(config, place, abs_src_path=str(path)))
    for name, (title, *modules) in INTERFACE.items():
        parts = [
            f"# {title}",
            *(f"## `{module}`\n\n::: {module}\n    options:\n      heading_level: 3" for module in modules),
        ]
        files.append(File.generated(config, f"api/{name}.md", content="\n\n".join(parts) + "\n"))
    files.append(File.generated(config, "errors.md", content=_error_texts()))
    return files


def _error_texts() -> str:
    """The table of tests/error_texts.py, which is no package that is installed."""
    place = str(ROOT)
    sys.path.insert(0, place)
    try:
        return importlib.import_module("tests.error_texts").table()
    finally:
        sys.path.remove(place)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Indices one after the other stay indices; links out of docs/ lead to where those files are in the site."""
    text = _CODE_OR_INDEX.sub(lambda match: match[1] or "]\\[", markdown)
    return _OUTSIDE.sub(lambda match: f"]({ELSEWHERE.get(match[1], match[0][2:])}", text)


def moved(text: str) -> str:
    """A page of the project's root with the links that it has in the site."""

    def link(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        return f"{before}{ELSEWHERE.get(target, target.removeprefix('docs/'))}{after}"

    return _LINK.sub(link, text)
