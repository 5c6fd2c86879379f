"""`meshloom bitstream` and `meshloom load`: a chip on an FPGA board."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshloom.hw.board.memory import BoardMemory

from ..api.options import Chip, examples
from .outputs import check_places, put

app = typer.Typer()


Board = Annotated[str, typer.Option("--board", metavar="NAME", help="The FPGA board.")]


@app.command(epilog=examples("meshloom bitstream --board ulx3s --chip examples/boards/fpga4.toml --out fpga"))
def bitstream(
    chip: Chip,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to.")],
    board: Board = "ulx3s",
    clock: Annotated[float, typer.Option("--clock", metavar="MHZ", help="The chip's clock.")] = 12.5,
    baud: Annotated[int, typer.Option("--baud", min=1, metavar="N", help="Bits a second of the UART.")] = 500_000,
    memory: Annotated[
        BoardMemory, typer.Option("--memory", help="Where its DRAM lies: in block RAM, or in the board's SDRAM.")
    ] = BoardMemory.BLOCK,
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Where placing begins.")] = 1,
    tries: Annotated[
        int, typer.Option("--tries", min=1, metavar="N", help="How many seeds to place with until --clock is met.")
    ] = 1,
) -> None:
    """Synthesise, place and route a chip with its link for an FPGA board: a bitstream, and how the chip lies there.

    Takes twenty minutes and more, once for each chip, board and clock. The tools come from PyPI when this command is
    used for the first time. It fails if the chip does not fit, or is slower than --clock. The folder gets the bitstream
    and layout.json: what is used of the FPGA, by part, and the longest path.
    """
    from meshloom.hw.spec.config import load

    from ..build.fpga.bitstream import BitstreamRequest
    from ..build.fpga.bitstream import bitstream as make
    from ..report.console import console
    from ..report.fpga import layout_tables
    from ..report.narrow import show
    from ..report.progress import Working

    config = load(chip)
    places = out / f"{config.name}.bit", out / "layout.json"
    check_places(*places)
    request = BitstreamRequest(config, board, clock, baud, seed, memory, tries)
    with Working(console(stderr=True), f"{config.name} for {board}") as shown:
        result = make(request, lambda what: shown.say(f"{config.name} for {board}: {what}"))
    out.mkdir(parents=True, exist_ok=True)
    put(places[0], result.file.read_bytes())
    put(places[1], result.layout.model_dump_json(indent=2) + "\n")
    for table in layout_tables(result.layout, request.clock):
        show(table, console())
    for place in places:
        console().print(str(place), markup=False, soft_wrap=True)
    load_it = (
        f"meshloom load {places[0]} --board {board}; then meshloom run WORKLOAD --chip {chip} "
        f"--device serial:PORT@{baud}"
    )
    console(stderr=True).print(f"to the board with {load_it}", style="dim", markup=False, soft_wrap=True)


@app.command(epilog=examples("meshloom load fpga/fpga4.bit --board ulx3s"))
def load(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Made by `meshloom bitstream`.", show_default=False)],
    board: Board = "ulx3s",
) -> None:
    """Load a bitstream onto an FPGA board, by openFPGALoader. The board keeps it until it loses power."""
    from ..build.fpga.load import load as load_onto

    load_onto(file, board)
