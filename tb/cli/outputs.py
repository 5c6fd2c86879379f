"""Where a command writes what it was asked for: files, and standard output for `-`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from meshloom.sched.support.files import check_writable, write_atomically, write_error

if TYPE_CHECKING:
    from rich.console import Console

    from ..results.record import Record

#: Stands for stdout.
STDOUT = Path("-")
#: What names of pages end with, if they end with anything.
PAGES = (".html", ".htm", "")
#: The same of tables of rows.
TABLES = (".csv", ".parquet", ".txt", "")


def open_streams() -> None:
    """Standard streams that whoever called has closed lead to nowhere. Otherwise the next file that is opened would
    have their number, and get what child processes print."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: that of the stream
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def put(place: Path, content: str | bytes) -> None:
    """Writes to a file, or to standard output for STDOUT. Raises WriteError."""
    if place != STDOUT:
        write_atomically(place, content)
        return
    try:
        typer.echo(content, nl=False)
    except BrokenPipeError:
        raise  # who reads it may have had enough
    except OSError as error:
        raise write_error(error, "standard output") from error


def check_places(*places: Path | None) -> None:
    """Looks whether all that is asked for can be written, before a long run and not after it. Raises WriteError."""
    check_writable(*(place for place in places if place is not None and place != STDOUT))


def check_page(place: Path | None) -> None:
    """Looks whether a page can be written there, as `check_places` does, and whether it would be called one.

    Raises BadParameter, WriteError.
    """
    if place is not None and place.suffix.lower() not in PAGES:
        raise typer.BadParameter(
            f"{place} ends with {place.suffix}, and a page is HTML; call it {place.with_suffix(PAGES[0])}, which a "
            "browser can print as a PDF",
            param_hint="--out",
        )
    check_places(place)


def check_table(place: Path | None, option: str) -> None:
    """Looks whether a table that goes there is called what it is. Raises BadParameter."""
    if place is not None and place.suffix.lower() not in TABLES:
        raise typer.BadParameter(
            f"{place} ends with {place.suffix}, and a table is CSV or Parquet; call it {place.with_suffix(TABLES[0])}, "
            "which spreadsheets open",
            param_hint=option,
        )


def listing_screen(json: Path | None) -> Console:
    """Where a command that lists things shows its tables: on stderr if stdout has the JSON. Raises WriteError for a
    place that cannot be written."""
    from ..report.console import console

    check_places(json)
    return console(stderr=json == STDOUT)


def put_list(json: Path | None, entries: Record) -> None:
    """Writes a list as JSON, if that is asked for. Raises WriteError."""
    if json is not None:
        put(json, entries.model_dump_json(indent=2) + "\n")


def flush() -> None:
    """Writes out what has been printed. Raises WriteError; nothing is tried again when the process ends."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        leave_unread()
        raise write_error(error, "standard output") from error


def leave_unread() -> None:
    """What has been printed and is not read leads to nowhere, so that nothing is tried again when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
