"""`meshloom doctor`."""

from __future__ import annotations

import typer

from ..api.options import Json, examples
from ..results.exits import Exit
from .outputs import listing_screen, put_list

app = typer.Typer()

_COLOUR = {"ok": "", "note": "yellow", "missing": "red"}


@app.command(epilog=examples("meshloom doctor", "meshloom doctor --json - | jq '.checks[] | select(.state != \"ok\")'"))
def doctor(json: Json = None) -> None:
    """Look at what Meshloom needs of this machine: Python, packages, compilers, the cache, the compiled model, room.

    A line for each, with what to do where something is the matter. Nothing is built. The exit status is 4 if something
    is missing without which nothing can be simulated.
    """
    from ..runs.health import health

    screen = listing_screen(json)
    result = health()
    width = max(len(check.name) for check in result.checks)
    for check in result.checks:
        mend = f"; {check.mend}" * bool(check.mend)
        line = f"{check.state:<8} {check.name:<{width}}  {check.what}{mend}"
        screen.print(line, style=_COLOUR[check.state], soft_wrap=True)
    put_list(json, result)
    if not result.ok:
        raise typer.Exit(Exit.TOOL)
