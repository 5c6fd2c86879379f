"""Turns errors of commands into one message and an exit status."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator
from traceback import format_exception
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ..results.exits import Exit, expected
from .outputs import flush


def say_error(message: str) -> None:
    """Prints one red line on stderr."""
    from ..report.console import console

    console(stderr=True).print(f"error: {message}", style="red", markup=False, soft_wrap=True)


class Group(TyperGroup):
    """Turns errors of any command into a message and an exit status; only a bug keeps its traceback."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _one_error():  # it prints help
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _one_error():
            return super().invoke(ctx)


@contextlib.contextmanager
def _one_error() -> Generator[None]:
    try:
        try:
            yield
        finally:
            flush()
    except KeyboardInterrupt as stop:
        # gateware that was being elaborated when the interrupt arrived is, rightly, never used
        warnings.filterwarnings("ignore", message=".* created but never used")
        say_error(f"interrupted {stop}".rstrip())
        raise typer.Exit(Exit.INTERRUPTED) from None
    except (typer.Exit, typer.Abort, TyperException, BrokenPipeError):  # who reads a pipe may have had enough
        raise
    except Exception as error:
        if (found := expected(error)) is None:
            say_error(f"this is a bug in Meshloom:\n{''.join(format_exception(error))}".rstrip())
            raise typer.Exit(Exit.TOOL) from error
        say_error(found[0])
        raise typer.Exit(found[1]) from error
