"""Prose that speaks of many studies, with the numbers of all of them: docs/claims.md, and a table of the README."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, StrictUndefined, TemplateError

from meshloom.sched.schedulers.papers import papers
from meshloom.sched.support.files import write_atomically

from .engine.page import EARLIER
from .engine.rows import StudyError
from .engine.sources import StudySource, numbers, tables_of
from .engine.values import FILTERS, FUNCTIONS, Origin
from .registry import PAPERS, REGISTRY, SHIPPED

#: The template of docs/claims.md, and of the README's table.
CLAIMS, COSTS = (Path(__file__).with_name(name) for name in ("claims.md", "costs.md"))
#: Between these lines of the README its table is printed.
BEGIN, END = "<!-- printed by `meshloom bench --print` -->", "<!-- end of what is printed -->"


def printed(template: str, folder: Path) -> str:
    """A text with its numbers. `folder`: of the pages and rows. Raises StudyError for a reference to nothing."""
    sources = {name: StudySource(name, REGISTRY.get, folder) for name in SHIPPED}
    templates = Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, keep_trailing_newline=True)
    vars(templates)["filters"].update(FILTERS)  # of a type that jinja2 leaves open

    def earlier(page: str, title: str, row: str, column: str) -> str:
        return _earlier(folder / EARLIER / f"{page}.md", title, row, column)

    def states() -> dict[str, str]:
        return {name: one.state for name, one in sources.items() if one.is_used}

    try:
        return templates.from_string(template).render(sources, **FUNCTIONS, earlier=earlier, states=states)
    except TemplateError as error:
        raise StudyError(f"the prose refers to what is no study, figure or table: {error}") from error


def _earlier(page: Path, title: str, row: str, column: str) -> str:
    """A number of a page that no study prints. Raises StudyError."""
    values = numbers(tables_of(page.read_text(encoding="utf-8")), Origin.EARLIER, title, row, column)
    if len(values) != 1:
        raise StudyError(f"{page.name}: {len(values)} numbers in column {column!r}, row {row!r} of table {title!r}")
    return values[0].text


def with_costs(readme: str, folder: Path) -> str:
    """The README with its table printed anew. Raises StudyError."""
    table = printed(COSTS.read_text(encoding="utf-8"), folder)
    return re.sub(rf"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", lambda _: table, readme, flags=re.DOTALL)


def save_prose(folder: Path) -> None:
    """Writes docs/claims.md, and the README with its table, where `folder` is the repository's docs/results. Nothing
    where studies of a paper have been taken out. Raises StudyError, WriteError."""
    claims, readme = folder.parent / "claims.md", folder.parent.parent / "README.md"
    if not (claims.exists() and readme.exists() and set(PAPERS) <= set(papers())):
        return
    texts = {
        claims: printed(CLAIMS.read_text(encoding="utf-8"), folder),
        readme: with_costs(readme.read_text(encoding="utf-8"), folder),
    }
    for path, text in texts.items():
        write_atomically(path, text)
