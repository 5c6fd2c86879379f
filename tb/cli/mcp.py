"""`meshloom mcp`: a server for agents."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..api.options import examples
from .requests import filled

app = typer.Typer()


@dataclass(frozen=True)
class McpRequest:
    """A server: the fields are the options of the command."""

    folder: Annotated[
        Path,
        typer.Option(
            "--folder", metavar="DIR", exists=True, file_okay=False, help="Files are read and written below it alone."
        ),
    ]
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=1, metavar="SECONDS", help="Most seconds of a call.")
    ] = 600.0
    memory_limit: Annotated[
        int, typer.Option("--memory-limit", min=64, metavar="MB", help="Most memory that a call may take.")
    ] = 8192
    max_cycles: Annotated[
        int, typer.Option("--max-cycles", min=1, metavar="N", help="A run may be predicted to take so many at most.")
    ] = 20_000_000
    max_output: Annotated[
        int, typer.Option("--max-output", min=1000, metavar="N", help="Most characters of an answer.")
    ] = 100_000
    allow_schedulers: Annotated[
        bool, typer.Option("--allow-schedulers", help="Execute scheduler files (FILE.py:NAME) of the folder.")
    ] = False


@app.command(epilog=examples("meshloom mcp --folder work", "meshloom mcp --folder work --max-cycles 1000000"))
@filled(McpRequest)
def mcp(request: McpRequest) -> None:
    """Serve agents over standard input and output (Model Context Protocol): schedule, check, run, explain, compare.

    A client starts this command itself. Nothing outside of the folder is read or written, no file of it is executed
    unless that is allowed, and each call is held to the limits.
    """
    from ..api.agents import AgentLimits, server
    from ..api.fence import Fence

    os.chdir(request.folder)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what calls print is no message
    bounds = AgentLimits(request.time_limit, request.memory_limit, request.max_cycles, request.max_output)
    requests = os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8", errors="replace")
    server(Fence(Path.cwd(), request.allow_schedulers), bounds).serve(requests, answers)
