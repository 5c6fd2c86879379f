"""What a benchmark found: tables, remarks and a verdict; on the screen and as committed Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from meshloom.sched.store import cache
from meshloom.sched.support.files import write_atomically

from ..build.builder import ROOT
from ..devices.simulated import VERILATOR
from ..report.narrow import show
from ..results.recorder import environment

#: Pages belong to the repository; those of an installed package to the folder that it runs in.
FOLDER = ROOT / "docs" / "results" if cache.checkout() else Path("sim_build", "bench")


@dataclass(frozen=True)
class Sheet:
    """A table. `columns`: names, those of numbers end with ">" (aligned right). `failed`: numbers of bad rows."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    failed: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: a row of {len(row)} cells in a table of {len(self.columns)} columns")


@dataclass(frozen=True)
class Result:
    """A benchmark's result. `name`: that of its page; `about`: what was measured and how; `failures`: bars that were
    missed, in words."""

    name: str
    title: str
    about: str
    sheets: tuple[Sheet, ...]
    remarks: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict[str, str])  #: besides those of every run

    @property
    def passed(self) -> bool:
        """Whether every bar was reached."""
        return not self.failures

    @property
    def verdict(self) -> str:
        """One line."""
        return "all bars reached" if self.passed else f"{len(self.failures)} bars missed"


def print_result(result: Result, to: Console) -> None:
    """Tables, remarks, and one red line for each bar that was missed."""
    for sheet in result.sheets:
        made = Table(title=sheet.title, title_justify="left", header_style="bold", pad_edge=False)
        for name in sheet.columns:
            made.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left", no_wrap=True)
        for number, row in enumerate(sheet.rows):
            made.add_row(*row, style="red" if number in sheet.failed else "")
        show(made, to)
    for remark in result.remarks:
        to.print(remark, markup=False, soft_wrap=True)
    for failure in result.failures:
        to.print(f"missed: {failure}", style="red", markup=False, soft_wrap=True)
    to.print(f"{result.name}: {result.verdict}", style="green" if result.passed else "red", markup=False)


def markdown(result: Result) -> str:
    """The result as a page. Names no machine, user, path or date."""
    lines = [f"# {result.title}", "", f"Printed by `meshloom bench {result.name}`. {result.about}", ""]
    for sheet in result.sheets:
        lines += [f"## {sheet.title}", ""]
        lines.append("| " + " | ".join(name.rstrip(">") for name in sheet.columns) + " |")
        lines.append("|" + "|".join("---:" if name.endswith(">") else "---" for name in sheet.columns) + "|")
        lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in sheet.rows]
        lines.append("")
    lines += [line for remark in result.remarks for line in (remark, "")]
    lines += [f"**Verdict: {result.verdict}.**", ""]
    lines += [f"- missed: {failure}" for failure in result.failures]
    lines += [""] * bool(result.failures)
    versions = environment(VERILATOR.tools()) | result.versions
    lines.append("Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    return "\n".join(lines) + "\n"


def save_result(result: Result, folder: Path = FOLDER) -> Path:
    """Writes `<name>.md`, whole or not at all; its path relative to the repository where it lies in it."""
    path = folder / f"{result.name}.md"
    write_atomically(path, markdown(result))
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
