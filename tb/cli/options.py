"""Options that several commands have, and how their help is written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .completion import complete_chips, complete_schedulers

#: The path that means stdout.
STDOUT = Path("-")


class Simulator(StrEnum):
    """Simulators that a run can use."""

    VERILATOR = "verilator"
    ICARUS = "icarus"


Chip = Annotated[
    str,
    typer.Option(
        "--chip",
        metavar="NAME|TOML",
        autocompletion=complete_chips,
        help="A built-in chip (see `meshloom chips`) or a TOML file.",
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler",
        metavar="NAME[:OPTION=VALUE,...]",
        autocompletion=complete_schedulers,
        help="Who makes the schedule: one of `meshloom schedulers`, PACKAGE.MODULE:FUNCTION, or FILE.py:FUNCTION.",
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="STEPS|SECONDS",
        help="For each search of a scheduler that otherwise looks at everything: steps of work, as in 100M (the same "
        "result on every machine), or 5s.",
    ),
]
SavedChip = Annotated[
    str | None,
    typer.Option(
        "--chip",
        metavar="NAME|TOML",
        autocompletion=complete_chips,
        help="Its chip; needed if that is not a built-in one.",
    ),
]


def examples(*lines: str) -> str:
    """Examples for the end of a command's help."""
    return "\n".join(("Examples:\n", *(f"- `{line}`" for line in lines)))
