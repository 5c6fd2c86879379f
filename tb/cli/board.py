"""`meshloom board`: a board in a simulator."""

from __future__ import annotations

from typing import Annotated

import typer

from meshloom.hw.board.memory import BoardMemory

from ..api.options import Chip, examples

app = typer.Typer()


@app.command(epilog=examples("meshloom board --simulate --chip tiny --port 5000"))
def board(
    simulate: Annotated[
        bool, typer.Option("--simulate", help="In a simulator, the only board there is so far; must be given.")
    ] = False,
    chip: Chip = "tiny",
    memory: Annotated[
        BoardMemory, typer.Option("--memory", help="Where its DRAM lies: in block RAM, or in SDRAM.")
    ] = BoardMemory.BLOCK,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="TCP port of this machine to listen on; 0: a free one.")
    ] = 0,
) -> None:
    """Run a board with this chip in a simulator: its UART is behind a TCP port.

    The board is the chip, its DRAM and the host link. `meshloom run WORKLOAD --device tcp:localhost:PORT` runs
    on it as on one of hardware. It ends with Ctrl-C.
    """
    from meshloom.hw.spec.config import load

    from ..devices.board.simulator import check_port, running, simulator
    from ..devices.interface import NoDeviceError
    from ..report.console import console
    from ..report.progress import Working

    config = load(chip)
    if not simulate:
        raise typer.BadParameter("is needed: boards of hardware need no server", param_hint="--simulate")
    check_port(port)
    with Working(console(stderr=True), f"{config.name}: building its board, unless it is cached") as shown:
        program = simulator(config, shown.say, memory)
    with running(program, port) as (place, process):
        console().print(f"a board with chip {config.name}: --device tcp:localhost:{place}; Ctrl-C ends it")
        status = process.wait()
    raise NoDeviceError(f"the simulated board has ended with status {status}")
