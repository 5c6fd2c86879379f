"""The console that everything is printed on, and what all tables there share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from meshloom.sched.support.text import printable

#: Columns of a console that is no terminal (a CI log, a pipe): the table fits and is not folded.
LOG_WIDTH = 176


class _Console(Console):
    """Shows control characters in texts, which may be from a file, as escapes; it sends its own only. A pipe that is
    closed is the command's to deal with."""

    def on_broken_pipe(self) -> None:
        self.quiet = True  # whatever else is shown until the command has ended
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)  # before the width of a cell is taken

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def console(stderr: bool = False) -> Console:
    """A console as wide as the terminal, or as COLUMNS says (0 says nothing), or wide enough for the table when nobody
    says.

    It prints text as it is: names and messages come from users and files, and `[red]` or `:x:` in one means itself.
    """
    result = _Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    columns = os.environ.get("COLUMNS", "")
    if not result.is_terminal and not columns.strip("0").isdigit():
        result.width = LOG_WIDTH
    elif columns and not columns.strip("0"):
        result.width = get_terminal_size().columns
    return result


def percent(value: float | None, digits: int = 2, sign: str = "") -> str:
    """`value` in percent, or a dash."""
    return "-" if value is None else f"{value:{sign}.{digits}f} %"


def share_of(part: float, whole: float) -> str:
    """`part` of `whole` in percent, or a dash."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def dense(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    """A table of many narrow columns; if it is too wide all the same, names in the first one are folded."""
    result = Table(
        title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0),
        pad_edge=False, show_edge=False,
    )  # fmt: skip
    for index, name in enumerate(left):
        result.add_column(name, no_wrap=index > 0, overflow="fold")
    for name in right:
        result.add_column(name, justify="right", no_wrap=True)
    return result
