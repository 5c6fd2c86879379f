"""A study as a page of Markdown, and on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined, TemplateError
from rich.console import Console

from meshloom.sched.store import cache
from meshloom.sched.support.files import write_atomically

from ...build.builder import ROOT
from ...devices.simulated import VERILATOR
from ...results.recorder import environment
from .rows import RowFile, Rows, StudyError
from .study import Study
from .tables import DASH, Table, markdown, print_table
from .values import said

#: Pages belong to the repository; those of an installed package to the folder that it runs in.
FOLDER = ROOT / "docs" / "results" if cache.checkout() else Path("sim_build", "bench")
#: The folder beside the pages of those whose rows were not kept: tables alone, printed by the code of then.
EARLIER = "earlier"
_TEMPLATES = Environment(undefined=StrictUndefined, autoescape=False)  # of Markdown, and of our own texts alone


def row_file(study: Study, folder: Path = FOLDER) -> RowFile:
    """The file of a study's rows."""
    return RowFile(folder / "rows" / f"{study.store or study.name}.jsonl")


def filled(text: str, figures: Mapping[str, str]) -> str:
    """Prose with its figures. Raises StudyError for a name that no figure has."""
    try:
        return _TEMPLATES.from_string(text).render(figures, said=said)
    except TemplateError as error:
        raise StudyError(f"the prose refers to what is no figure: {error}: {text[:80]!r}") from error


class Page:
    """What a study comes to. `quick`, `full`: its rows; tables and prose are those of the full study if it has rows of
    its own, otherwise of the quick one. `folder`: where it lies."""

    def __init__(self, study: Study, quick: Rows, full: Rows, folder: Path = FOLDER) -> None:
        self.study, self.quick, self.full, self.folder = study, quick, full, folder
        self.whole = any(point not in quick.points for point in full.all)
        self.rows = full if self.whole else quick
        self.tables = study.shown(self.rows)
        self.texts = study.texts(self.rows)
        self.missed = study.missed(self.rows)

    @property
    def incomplete(self) -> str:
        """Why it is not written: a part of a study would replace a page that says more. Empty if it is."""
        left, of = len(self.quick.missing), len(self.quick.points)
        if not left or not self.full.missing:
            return ""
        return f"no page: {left:,} of {of:,} points of the quick study are not measured; `--print` shows what is there"

    @property
    def answer(self) -> str:
        """One sentence. Raises StudyError."""
        return filled(self.study.answer, self.texts)

    @property
    def verdict(self) -> str:
        """One line."""
        return "all bars kept" if not self.missed else f"{len(self.missed)} bars missed"

    def figures(self) -> Table:
        """The figures of the quick and the full study, side by side, with their bars."""
        some = self.study.figures
        papers = any(figure.paper for figure in some)
        columns = ("figure", "quick>", *(("full>",) * self.whole), "bar", *(("the paper says",) * papers))
        rows: list[tuple[str, ...]] = []
        bad: set[int] = set()
        for figure in some:
            bar = figure.bar.text(figure.form) if figure.bar else DASH
            both = (self.quick, self.full) if self.whole else (self.quick,)
            bad |= {len(rows)} if figure.missed(self.rows) else set()
            rows.append((figure.what, *(figure.text(rows) for rows in both), bar, *((figure.paper or DASH,) * papers)))
        return Table("In figures", columns, rows, frozenset(bad))

    def origins(self) -> list[str]:
        """Which code has made the rows, and when: a sentence for each of the two sizes."""
        some = [("Quick", self.quick), *([("Full", self.full)] if self.full.points != self.quick.points else [])]
        return [f"{name}: {_origin(rows)}" for name, rows in some]

    def remarks(self) -> list[str]:
        """What is to be known of the tables."""
        return [filled(text, self.texts) for text in self.study.remarks(self.rows)]

    def markdown(self) -> str:
        """The whole page. Names no machine, user or path. Raises StudyError."""
        study = self.study
        parts = [f"# {study.title}", f"**{study.question}** {self.answer}", filled(study.about, self.texts)]
        parts += [f"![{study.title}]({name})" for name in study.pictures]
        parts += [markdown(one) for one in (self.figures(), *self.tables) if one.rows]
        parts += self.remarks()
        parts += [f"**Verdict: {self.verdict}.**"]
        parts += ["\n".join(f"- missed: {text}" for text in self.missed)] * bool(self.missed)
        parts += [f"Printed by `meshloom bench {study.name}` (with `--full`: the study whole)."]
        parts += self.origins()
        if (self.folder / EARLIER / f"{study.name}.md").exists():
            place = f"{EARLIER}/{study.name}.md"
            parts += [f"The full study was printed before rows were kept as text: [{place}]({place})."]
        versions = environment(VERILATOR.tools()) | dict(study.versions())
        parts += ["Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."]
        return "\n\n".join(parts) + "\n"

    def show(self, to: Console) -> None:
        """Tables, remarks, and one red line for each bar that was missed. Raises StudyError."""
        for one in (self.figures(), *self.tables):
            if one.rows:
                print_table(one, to)
        for text in (*self.remarks(), *self.origins()):
            to.print(text, soft_wrap=True)
        for text in self.missed:
            to.print(f"missed: {text}", style="red", soft_wrap=True)
        to.print(self.answer, soft_wrap=True)
        to.print(f"{self.study.name}: {self.verdict}", style="red" if self.missed else "green")


def _origin(rows: Rows) -> str:
    if not rows.all:
        return f"none of {len(rows.points):,} points is measured"
    dates = sorted({each.line.date for each in rows.all.values() if each.line.date})
    codes = sorted({_short(each.line.code) for each in rows.all.values() if each.line.code})
    current = len(rows.all) - len(rows.older)
    text = f"{len(rows.all):,} of {len(rows.points):,} points are measured, {current:,} of them with the present code"
    if dates:
        text += f"; {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "")
    if codes:
        text += f"; by {_listed(codes)}"
    seconds = sum(each.line.seconds for each in rows.all.values())
    return text + (f"; {seconds:,.0f} CPU-seconds in all" if seconds else "") + "."


def _short(code: str) -> str:
    """Version and commit, without the digest of the sources."""
    return ", ".join(part for part in code.split(", ") if not part.startswith("sources "))


def _listed(codes: Sequence[str], most: int = 3) -> str:
    rest = len(codes) - most
    return "; ".join(codes[:most]) + (f" and {rest} more" if rest > 0 else "")


def page_of(study: Study, folder: Path = FOLDER) -> Page:
    """A study by the rows that there are."""
    file = row_file(study, folder)
    quick, full = study.points(False), study.points(True)
    known = file.look([*quick, *full])
    return Page(study, Rows(quick, known), Rows([*full, *quick], known), folder)


def _set_aside(path: Path, pictures: Iterable[str]) -> None:
    """Keeps a page that was printed before rows were kept, with the pictures in it: its tables stand nowhere else.
    Raises WriteError."""
    earlier = path.parent / EARLIER / path.name
    if path.exists() and not earlier.exists() and "\nQuick: " not in (text := path.read_text(encoding="utf-8")):
        for name in pictures:
            if (picture := path.with_name(name)).exists():
                write_atomically(earlier.with_name(name), picture.read_bytes())
        write_atomically(earlier, text)


def save(page: Page, folder: Path = FOLDER) -> Path:
    """Writes pictures and page, each whole or not at all; the path of the page, relative to the repository where it
    lies in it. Raises StudyError, WriteError."""
    path = folder / f"{page.study.name}.md"
    _set_aside(path, page.study.pictures)
    for name, draw in page.study.pictures.items():
        draw(page.rows, folder / name)
    write_atomically(path, page.markdown())
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
