"""`meshloom arena`: schedulers and mappings against each other, on the RTL or in the model."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.completion import complete_chips, complete_workloads
from ..api.options import Device, Json, MemoryLimit, Network, TimeLimit, examples
from ..api.request import limited
from ..results.exits import Exit
from .errors import resumable
from .outputs import STDOUT, check_page, check_places, put
from .requests import filled, once

if TYPE_CHECKING:
    from ..results.arena import ArenaBoard
    from ..results.sweep import PointRow
    from ..runs.sweeps.arena import Lineup

app = typer.Typer()
#: Where rows are kept unless somebody says otherwise.
_ROWS = Path("sim_build") / "arena"


@dataclass(frozen=True)
class ArenaRequest:
    """A board: the fields are the options of the command."""

    entry: Annotated[
        list[str] | None,
        typer.Option(
            "--entry",
            metavar="NAME|FILE.py:NAME|TOOL:FILE",
            help="A scheduler of ours or of an installed package, one in a file, or the mapping of another tool, which "
            "takes part in its own layer. Given several times.",
            show_default="the schedulers that ship",
        ),
    ] = None
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            autocompletion=complete_workloads,
            help="A layer, a shape or a network. Given several times.",
            show_default="six layers and resnet8",
        ),
    ] = None
    chip: Annotated[
        list[str] | None,
        typer.Option(
            "--chip",
            metavar="NAME|TOML",
            autocompletion=complete_chips,
            help="A built-in chip or a TOML file. Given several times.",
            show_default="tiny, quad8 and quad16",
        ),
    ] = None
    predict: Annotated[
        bool, typer.Option("--predict", help="Cycles of the timeline model; nothing runs, and no byte is compared.")
    ] = False
    device: Device = "verilator"
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    network: Network = False
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Worker processes on this machine; default: one per CPU.")
    ] = len(os.sched_getaffinity(0))
    retry: Annotated[bool, typer.Option("--retry", help="Make points again that failed.")] = False
    rows: Annotated[
        Path,
        typer.Option("--rows", metavar="DIR", help="Folder of the rows; what it has is not made again."),
    ] = _ROWS
    json: Json = None
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PAGE.html", help="Write the board as a page to look at.")
    ] = None

    def lineup(self) -> Lineup:
        """Who runs what where. Raises BadParameter for what is given twice."""
        from ..runs.sweeps import arena as arenas

        return arenas.Lineup(
            tuple(once(self.entry or arenas.shipped_entries(), "--entry")),
            tuple(once(self.workload or arenas.WORKLOADS, "--workload")),
            tuple(once(self.chip or arenas.CHIPS, "--chip")),
            None if self.predict else self.device,
        )

    def command(self, lineup: Lineup) -> str:
        """The command that makes the same board."""
        words = ["meshloom", "arena"]
        for option, values in (("--entry", lineup.entries), ("--workload", lineup.workloads), ("--chip", lineup.chips)):
            words += [word for value in values for word in (option, value)]
        words += ["--predict"] if self.predict else ["--device", self.device]
        for option, value in (("--time-limit", self.time_limit), ("--memory-limit", self.memory_limit)):
            words += [] if value is None else [option, f"{value:g}"]
        words += ["--network"] * self.network
        return shlex.join(words)


@app.command(
    epilog=examples(
        "meshloom arena --predict --chip tiny",
        "meshloom arena --entry loop_order --entry my.py:schedule --chip quad8 --out board.html",
        "meshloom arena --entry loop_order --entry zigzag:gemm_complete.json --workload gemm:64x64x64 --chip quad8",
    )
)
@filled(ArenaRequest)
def arena(request: ArenaRequest) -> None:
    """Put schedulers and other tools' mappings against each other: who is the fastest on the RTL, and by how much.

    Beside each stands the bound that no schedule can undercut. An entry that does not ship with Meshloom runs in a
    process of its own: one that crashes or hangs is a row that says so, and the others go on. Rows are kept as they
    come, so an interrupted board goes on where it was. The exit status is 1 if a byte differs, 3 if an entry that was
    named failed.
    """
    from ..report.arena import arena_page, print_board
    from ..report.console import console
    from ..report.progress import Counted
    from ..runs.sweeps import arena as arenas
    from ..runs.sweeps import sweep as sweeps
    from ..runs.sweeps.store import read

    check_places(request.json)
    check_page(request.out)
    lineup, screen = request.lineup(), console(stderr=request.json == STDOUT)
    with limited(request.time_limit, request.memory_limit, request.network), Counted(screen, "arena") as progress:
        planned = arenas.plan(lineup)

        def on_rows(rows: Sequence[PointRow]) -> None:
            progress.advance(len(rows), "")

        with resumable(lambda: f"{progress.reached}; their rows are kept in {request.rows}"):
            sweeps.run_points(
                planned.points,
                lineup.device,
                request.rows,
                jobs=request.jobs,
                retry=request.retry,
                on_plan=progress.begin,
                on_rows=on_rows,
            )
    rows = [arenas.row_of(values) for values in read(request.rows).to_dicts()]
    board = arenas.board(lineup, planned, rows, request.command(lineup), request.entry or ())
    print_board(board, screen)
    if request.json is not None:
        put(request.json, board.model_dump_json(indent=2) + "\n")
    if request.out is not None:
        put(request.out, arena_page(board))
        screen.print(f"page: {request.out}", markup=False, soft_wrap=True)
    if status := _status(board, request.entry or ()):
        raise typer.Exit(status)


def _status(board: ArenaBoard, named: Sequence[str]) -> Exit:
    """1 if a byte differs, or the model is off; 3 if an entry that somebody named failed."""
    lost = [score for heat in board.heats for score in heat.scores if score.reason]
    if any(score.status not in ("failed", "passed") for score in lost):
        return Exit.WRONG
    return Exit.NOT_RUN if any(score.entry in named for score in lost) else Exit.OK
