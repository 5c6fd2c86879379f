"""Turns errors of commands into one message and an exit status."""

from __future__ import annotations

import contextlib
import shlex
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from traceback import format_exception
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from meshloom.sched.support.file_modules import line_that_failed
from meshloom.sched.support.text import line_of

from ..results.exits import Exit, expected
from .outputs import flush, leave_unread, open_streams


def say_error(message: str) -> None:
    """Prints one red line on stderr."""
    from ..report.console import console

    console(stderr=True).print(f"error: {message}", style="red", markup=False, soft_wrap=True)


@contextlib.contextmanager
def resumable(kept: Callable[[], str], *without: str) -> Generator[None]:
    """An interrupt says what is `kept()`, and the command that goes on from there: this one, but `without` these
    options."""
    try:
        yield
    except KeyboardInterrupt:
        words = [word for word in sys.argv[1:] if word not in without]
        raise KeyboardInterrupt(f"{kept()}; go on with: {shlex.join(['meshloom', *words])}") from None


def _once(command: Any, context: Any, arguments: list[str]) -> None:
    """Refuses an option that is given several times and takes one value: the last would silently win.

    Raises BadParameter that names it.
    """
    if context.resilient_parsing:  # of a line that is being completed
        return
    _, _, order = command.make_parser(context).parse_args(args=list(arguments))
    counts: Counter[Any] = Counter(order)
    for option, count in counts.items():
        several = getattr(option, "multiple", True) or getattr(option, "count", False)  # an argument has neither
        if count > 1 and not several and not option.is_eager:
            raise typer.BadParameter(
                f"is given {count} times, but has one value; give it once", param_hint=option.opts[0]
            )


class Command(TyperCommand):
    """A command whose options with one value are given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _once(self, ctx, args)
        return super().parse_args(ctx, args)


def strict(app: typer.Typer) -> typer.Typer:
    """The same commands, each a `Command`."""
    for registered in app.registered_commands:
        registered.cls = Command
    return app


class Group(TyperGroup):
    """Turns errors of any command into a message and an exit status; only a bug keeps its traceback. Its own options
    with one value are given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _once(self, ctx, args)
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        open_streams()
        with _one_error():  # it prints help
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _one_error():
            return super().invoke(ctx)


@contextlib.contextmanager
def _while_read() -> Generator[None]:
    """Who reads a pipe may have had enough (`| head`): that ends the command without a word."""
    try:
        yield
    except BrokenPipeError:
        leave_unread()
        raise typer.Exit(Exit.UNREAD) from None


@contextlib.contextmanager
def _one_error() -> Generator[None]:
    with _while_read(), _explained():
        yield


@contextlib.contextmanager
def _explained() -> Generator[None]:
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
    except (typer.Exit, typer.Abort, TyperException, BrokenPipeError):
        raise
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # where the help's console ends
            raise stop.__context__ from None
        if (foreign := _of_a_file(stop)) is None:
            raise
        say_error(foreign)
        raise typer.Exit(Exit.NOT_RUN) from stop
    except Exception as error:
        if (pair := expected(error)) is None and (foreign := _of_a_file(error)) is not None:
            say_error(foreign)
            raise typer.Exit(Exit.NOT_RUN) from error
        if pair is None:
            say_error(f"this is a bug in Meshloom:\n{''.join(format_exception(error))}".rstrip())
            raise typer.Exit(Exit.TOOL) from error
        say_error(pair[0])
        raise typer.Exit(pair[1]) from error


def _of_a_file(error: BaseException) -> str | None:
    """What is said of an error that the code of a user's file has raised; None for another one."""
    if (place := line_that_failed(error)) is None:
        return None
    path, kind, text = place[0], type(error).__name__, str(error)
    return f"{path}: its code failed: {kind}{': ' * bool(text)}{text} ({line_of(*place)})"
