"""What the files of the command line share."""

from __future__ import annotations

from pathlib import Path

#: The path that means stdout.
STDOUT = Path("-")


def say_error(message: str) -> None:
    """Prints a message to stderr as the errors of all commands are."""
    from ..report.console import console

    console(stderr=True).print(f"error: {message}", style="red", markup=False, soft_wrap=True)


def examples(*lines: str) -> str:
    """Examples for the end of a command's help."""
    return "\n".join(("Examples:\n", *(f"- `{line}`" for line in lines)))
