"""Options that several commands have, and how their help is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .completion import complete_chips, complete_devices, complete_reports, complete_schedulers

#: The path that means stdout.
STDOUT = Path("-")


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
Device = Annotated[
    str,
    typer.Option(
        "--device",
        "--simulator",
        metavar="NAME",
        autocompletion=complete_devices,
        help="What programs run on: verilator, icarus (a slow second opinion), one of an installed package, "
        "PACKAGE.MODULE:KIND, or FILE.py:KIND.",
    ),
]
Reports = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="FORM=PATH",
        autocompletion=complete_reports,
        help="Write the results in this form, too: json, csv, parquet, junit, PACKAGE.MODULE:FORM or FILE.py:FORM.",
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
