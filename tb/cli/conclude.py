"""The end of a command that has one set of results: files, picture, what is said of them, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from meshloom.sched.support.files import WriteError

from ..results.exits import Exit
from .errors import say_error
from .outputs import STDOUT, put

if TYPE_CHECKING:
    from rich.console import Console


class Savable(Protocol):
    """Results that can be saved, and that are good or not."""

    @property
    def ok(self) -> bool: ...

    def save(self, path: Path) -> None: ...

    def model_dump_json(self, *, indent: int) -> str: ...


def conclude(
    results: Savable,
    path: Path,
    json: Path | None,
    screen: Console,
    picture: Path | None = None,
    draw: Callable[[], None] = lambda: None,
) -> None:
    """Saves results at `path` and at `json` (STDOUT: prints them there), has their picture drawn at `picture` if there
    is one, and says where they are. Raises typer.Exit if results are bad or something could not be written, which keeps
    nothing else from being written."""
    trouble = ""
    for place in (path, json):
        try:
            if place == STDOUT:
                put(STDOUT, results.model_dump_json(indent=1) + "\n")
            elif place is not None:
                results.save(place)
        except WriteError as error:
            trouble = trouble or str(error)
    try:
        draw()
    except WriteError as error:
        trouble = trouble or str(error)
    if trouble:
        say_error(trouble)
    else:
        shown = f"results: {path}" if picture is None else f"results: {path}, picture: {picture}"
        screen.print(shown, markup=False, soft_wrap=True)
    if not results.ok:
        raise typer.Exit(Exit.WRONG)
    if trouble:
        raise typer.Exit(Exit.NOT_WRITTEN)
