"""`meshloom verilog` and `meshloom chips`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.completion import complete_chips
from ..api.options import Chip, Json, Set, examples
from .fields import with_fields
from .outputs import check_places, listing_screen, put_list

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ..results.listings import ChipEntry

app = typer.Typer()


@app.command(epilog=examples("meshloom verilog --chip quad16 --out build/quad16", "meshloom verilog --chip my.toml"))
def verilog(
    chip: Chip = "quad16",
    set: Set = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder to write to.", show_default="sim_build/verilog/<chip>"),
    ] = None,
    system: Annotated[
        bool,
        typer.Option("--system", help="Also the chip with AXI ports as tools know them, for FuseSoC and Vivado."),
    ] = False,
) -> None:
    """Write the chip as synthesisable Verilog, with a manifest of its ports and parameters."""
    from meshloom.hw.spec.config import load

    from ..build.verilog_files import emit_verilog
    from ..report.console import console
    from ..report.progress import Working

    config = with_fields(load(chip), set)
    folder = out or Path("sim_build") / "verilog" / config.name
    check_places(folder / f"{config.name}.v", folder / f"{config.name}.json")
    with Working(console(stderr=True), f"{config.name}: writing its Verilog"):
        paths = emit_verilog(config, folder)
        if system:
            from ..build.fpga.system import emit_system

            paths += emit_system(config, folder)
    for path in paths:
        console().print(str(path), markup=False, soft_wrap=True)


@app.command(
    epilog=examples(
        "meshloom chips",
        "meshloom chips my_chip.toml",
        "meshloom chips tiny --set core.a_words=512",
        "meshloom chips --json -",
    )
)
def chips(
    chip: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME|TOML", autocompletion=complete_chips, help="Chips to show; all built-in ones by default."
        ),
    ] = None,
    set: Set = None,
    json: Json = None,
) -> None:
    """List the built-in chips, or check and show a chip of your own."""
    from meshloom.hw.spec.config import built_in_chips, load

    from ..report.narrow import show
    from ..report.tables import chip_table
    from ..results.listings import ChipList

    if set and not chip:
        raise typer.BadParameter("changes the chips that are named; name one, such as quad16", param_hint="--set")
    configs = [with_fields(load(name), set) for name in chip or built_in_chips()]
    screen = listing_screen(json)
    show(chip_table(configs), screen)
    put_list(json, ChipList(chips=tuple(_entry(config) for config in configs)))


def _entry(chip: ChipConfig) -> ChipEntry:
    from ..report.tables import processing_elements
    from ..results.listings import ChipEntry

    return ChipEntry(
        name=chip.name,
        digest=chip.digest,
        floorplan=tuple(" ".join(row) for row in chip.floorplan),
        cores=len(chip.cores),
        rows=chip.rows,
        cols=chip.cols,
        lanes=chip.lanes,
        pes=processing_elements(chip),
        scratchpad_bytes=len(chip.spms) * chip.spm_words * chip.lanes,
        channels=len(chip.drams),
        dram_bytes_per_cycle=chip.dram.bytes_per_cycle,
        clock_mhz=chip.clock_mhz,
    )
