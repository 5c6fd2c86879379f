"""Options shared by several commands, and the format of examples in their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from meshloom.sched.support.limits import MEGABYTES, SECONDS

from .completion import (
    complete_chips,
    complete_devices,
    complete_online_schedulers,
    complete_reports,
    complete_runs,
    complete_schedulers,
)

Chip = Annotated[
    str,
    typer.Option(
        "--chip",
        metavar="NAME|TOML",
        autocompletion=complete_chips,
        help="A built-in chip (see `meshloom chips`) or a TOML file.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Another value for a field of the chip, named as in its file: dram.arbitration=round_robin, "
        "noc.multicast=[east,south]. May be given several times.",
        show_default="the chip as it is",
    ),
]


Chips = Annotated[
    list[str] | None,
    typer.Option(
        "--chip",
        metavar="NAME|TOML",
        autocompletion=complete_chips,
        help="A built-in chip (see `meshloom chips`) or a TOML file. Given several times: a row for each, and a "
        "comparison.",
        show_default="quad16",
    ),
]
Schedulers = Annotated[
    list[str] | None,
    typer.Option(
        "--scheduler",
        metavar="NAME[:OPTION=VALUE,...]",
        autocompletion=complete_schedulers,
        help="Scheduler to use: one of `meshloom schedulers`, PACKAGE.MODULE:FUNCTION, or FILE.py:FUNCTION. Given "
        "several times: a row for each, and a comparison.",
        show_default="loop_order",
    ),
]
OnlineScheduler = Annotated[
    str,
    typer.Option(
        "--scheduler",
        metavar="NAME[:OPTION=VALUE,...]",
        autocompletion=complete_online_schedulers,
        help="Online scheduler to use: one of `meshloom schedulers`, PACKAGE.MODULE:THING, or FILE.py:THING.",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        "--simulator",
        metavar="NAME",
        autocompletion=complete_devices,
        help="Device to run programs on: verilator, icarus (a slow second opinion), a board (tcp:HOST:PORT, "
        "serial:PATH), one of an installed package, PACKAGE.MODULE:KIND, or FILE.py:KIND.",
    ),
]
Reports = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="FORM=PATH",
        autocompletion=complete_reports,
        help="Also write the results in this form: json, csv, parquet, junit, PACKAGE.MODULE:FORM or FILE.py:FORM.",
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="STEPS|SECONDS",
        help="Limit for each search, which is otherwise exhaustive: steps of work such as 100M (the same result "
        "on every machine), or seconds such as 5s.",
    ),
]
Effort = Annotated[
    Literal["quick", "default", "thorough"] | None,
    typer.Option(
        "--effort",
        help="Work that the search for a schedule does, the same on every machine: quick takes a fraction of the time "
        "for a few percent more cycles, thorough a multiple for a few less.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Scheduler of a Dask cluster instead, such as tls://head:8786; it must be one that you trust.",
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        min=0,
        metavar="SECONDS",
        help="Most seconds that a scheduler may take for one schedule or one decision, or an importer of yours for a "
        "file; 0: any number. One that takes longer fails.",
        show_default=f"{SECONDS:g}; none for schedulers that ship with Meshloom",
    ),
]
MemoryLimit = Annotated[
    int | None,
    typer.Option(
        "--memory-limit",
        min=0,
        metavar="MB",
        help="Most memory that a scheduler, or an importer of yours, may take; 0: any. One that needs more fails.",
        show_default=f"{MEGABYTES}; none for schedulers that ship with Meshloom",
    ),
]
Network = Annotated[
    bool,
    typer.Option(
        "--network/--no-network",
        help="Let a scheduler, or an importer of yours, use the network; usually the system keeps it from that.",
    ),
]
Calibrate = Annotated[
    list[Path] | None,
    typer.Option(
        "--calibrate",
        metavar="FILE",
        help="Pictures to quantise a float model with, or their folder; default: those of --input, or numbers that are "
        "drawn: cycles hardly depend on them.",
    ),
]
Calibration = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="A float model's ranges: of all values (max), of P percent (percentile:P), of least error (mse), or "
        "the better of max and mse.",
    ),
]
Mean = Annotated[str, typer.Option(metavar="N[,N,N]", help="A float model takes pictures as (byte - mean) / std.")]
Std = Annotated[str, typer.Option(metavar="N[,N,N]", help="See --mean; the defaults give 0..1.")]
Bind = Annotated[
    list[str] | None,
    typer.Option(
        "--bind",
        metavar="SIZE=N",
        help="Give a size that an ONNX file leaves open a number, by its name in the file or as INPUT:AXIS; "
        "a picture or an array gives it by itself.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        metavar="N",
        help="Of what is drawn: the input of an ONNX file without files for it, weights of which it has shapes alone.",
    ),
]
_A_RUN = (
    "its results file, its name in sim_build/results (see `meshloom runs`), a folder of artefacts, or `latest`; or a "
    "saved schedule (.json) or program (.bin) that has not run, as the model plans it."
)
RunName = Annotated[
    str, typer.Argument(metavar="RUN", autocompletion=complete_runs, help=f"A run that is over: {_A_RUN}")
]
RunNames = Annotated[
    list[str], typer.Argument(metavar="RUN...", autocompletion=complete_runs, help=f"Runs that are over, each {_A_RUN}")
]
Energy = Annotated[
    Path | None,
    typer.Option(
        "--energy",
        metavar="TOML",
        help="Picojoules of products, memories and links, for estimates of energy.",
        show_default="that of the run, or a 45 nm process",
    ),
]
Nearest = Annotated[
    bool,
    typer.Option(
        "--nearest",
        help="Where the chip cannot do what another tool's mapping says, do what is nearest, and say so.",
    ),
]
Area = Annotated[
    bool,
    typer.Option(
        "--area", help="Estimate the chip's area with Yosys, unless it is known: minutes, once for each chip."
    ),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="PATH", help="Also write this as JSON; - is stdout, and all else then goes to stderr."
    ),
]
Clock = Annotated[
    float | None,
    typer.Option(
        "--clock",
        metavar="MHZ",
        min=0.001,
        max=100_000,
        help="Clock of the chip, by which cycles are also told as time, operations, bytes and watts.",
        show_default="clock_mhz of the chip's file, if it says one",
    ),
]
SavedChip = Annotated[
    str | None,
    typer.Option(
        "--chip",
        metavar="NAME|TOML",
        autocompletion=complete_chips,
        help="Chip that the file was made for; needed if it is not a built-in one.",
    ),
]


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\n".join(("Examples:\n", *(f"- `{line}`" for line in lines)))


def bindings(texts: list[str] | None) -> dict[str, int]:
    """What `--bind` says. Raises BadParameter."""
    counts: dict[str, int] = {}
    for text in texts or ():
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal() or len(number) > 12 or not int(number):
            raise typer.BadParameter(f"{text!r} must be a name and a size of 1 or more: batch=1", param_hint="--bind")
        if name in counts:
            raise typer.BadParameter(f"{name} is given twice, {counts[name]} and {number}", param_hint="--bind")
        counts[name] = int(number)
    return counts
