"""`meshloom import`, `meshloom import-chip` and `meshloom export-chip`: from and to other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..api.completion import complete_chips
from ..api.options import Chip, Energy, MemoryLimit, Nearest, Network, Set, TimeLimit, examples
from ..api.request import limited
from .fields import with_fields
from .outputs import check_places
from .requests import filled

app = typer.Typer()


@dataclass(frozen=True)
class ImportRequest:
    """A mapping to become a schedule: the fields are the options of the command."""

    tool: Annotated[
        str,
        typer.Argument(
            metavar="TOOL",
            help="Who made the mapping: zigzag, timeloop, scalesim, stream, accelforge, maestro, or an importer's "
            "FILE.py:NAME.",
        ),
    ]
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The tool's file with the mapping of a layer, or of a fused group.")
    ]
    chip: Chip = "quad16"
    set: Set = None
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="The layer, if the file does not say its sizes; of a fused group the network, or LAYER+LAYER.",
        ),
    ] = None
    nearest: Nearest = False
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    network: Network = False
    loops: Annotated[
        bool, typer.Option("--loops", help="Show the loop nest of the schedule: tiles, what is loaded in which loop.")
    ] = False
    out: Annotated[Path | None, typer.Option("--out", metavar="PATH", help="Save the schedule as JSON.")] = None


@app.command(
    "import",
    epilog=examples(
        "meshloom import zigzag conv2_complete.json --chip mono16 --out conv2.json",
        "meshloom import timeloop gemm.map.yaml --workload gemm:64x64x64 --chip mono16",
        "meshloom import stream conv2/mapping.yaml --workload resnet8/conv2_1_1 --chip quad8",
    ),
)
@filled(ImportRequest)
def import_(request: ImportRequest) -> None:
    """Make the schedule of a layer or a fused group as another tool has mapped it, check it, predict its cycles.

    Its loops are walked as the tool says: a tile is loaded whenever they change it. What the chip cannot do is refused
    in a line that says what would do. `meshloom run TOOL:FILE` runs it on the RTL at once.
    """
    from meshloom.hw.spec.config import load

    from ..report.claims import ClaimedRun, print_claims
    from ..report.console import console
    from ..report.narrow import show
    from ..report.tables import prediction_table
    from ..runs.kinds.interface import Listener
    from ..runs.kinds.mappings import MappedSource

    chip = with_fields(load(request.chip), request.set)
    check_places(*([request.out] if request.out else []))
    source = MappedSource(request.tool, request.file, request.workload, request.nearest)
    with limited(request.time_limit, request.memory_limit, request.network):
        plan = source.plan(chip, "", Listener())
    screen = console()
    show(prediction_table([(plan.name, plan.macs, plan.schedule, chip)]), screen)
    if plan.schedule.claim is not None:
        print_claims([ClaimedRun(plan.name, chip.name, plan.schedule.claim, plan.timeline.cycles)], "model", screen)
    if request.loops:
        from ..compare.tiles import layers_of
        from ..report.loops import print_loops

        print_loops(plan.schedule, layers_of(plan.schedule, chip), chip, screen)
    if request.out is not None:
        plan.schedule.save(request.out)
        screen.print(f"schedule: {request.out}", markup=False, soft_wrap=True)


@app.command(
    "export-chip",
    epilog=examples(
        "meshloom export-chip mono16 --as zigzag --out hardware", "meshloom export-chip mono16 --as scalesim"
    ),
)
def export_chip(
    chip: Annotated[
        str,
        typer.Argument(metavar="NAME|TOML", autocompletion=complete_chips, help="A built-in chip, or a TOML file."),
    ],
    tool: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="TOOL",
            help="Whose files: zigzag, scalesim, stream, accelforge, timeloop, or an exporter's FILE.py:NAME.",
        ),
    ],
    set: Set = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to.")] = Path(),
    energy: Energy = None,
) -> None:
    """Write a chip as another tool describes hardware, so that the tool maps layers onto it.

    What the tool has no word for is listed.
    """
    from meshloom.hw.spec.config import load
    from meshloom.sched.support.files import write_atomically

    from ..exchange.registry import CHIP_EXPORTERS
    from ..report.console import console
    from ..results.energy import DEFAULT
    from ..results.energy import load as load_energy

    exporter, screen = CHIP_EXPORTERS.get(tool), console()
    texts = exporter.texts(with_fields(load(chip), set), load_energy(energy or DEFAULT))
    for name, text in texts.items():
        write_atomically(out / name, text)
        screen.print(str(out / name), markup=False, soft_wrap=True)
    for each in exporter.left:
        screen.print(f"note: {exporter.name} does not see {each}", style="yellow", markup=False, soft_wrap=True)


@app.command(
    "import-chip",
    epilog=examples(
        "meshloom import-chip zigzag tpu_like.yaml --out tpu_like.toml",
        "meshloom import-chip scalesim scale.cfg --name edge",
    ),
)
def import_chip(
    tool: Annotated[
        str,
        typer.Argument(
            metavar="TOOL",
            help="Whose file: zigzag, stream, scalesim, accelforge, timeloop, or a reader's FILE.py:NAME.",
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The tool's hardware file.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="Save the chip as TOML.", show_default="stdout")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the chip.", show_default="that of the file")
    ] = None,
) -> None:
    """Make the chip that another tool's hardware file describes, and list what is not carried over.

    Its arrays, cores, memories and DRAM bandwidth become those of the chip; what the file does not say is as in any
    chip of ours. The chip can be used at once: `meshloom run LAYER --chip PATH`.
    """
    from meshloom.sched.support.files import write_atomically

    from ..exchange.chips import CHIP_IMPORTERS
    from ..exchange.hardware import toml
    from ..report.console import console

    imported = CHIP_IMPORTERS.get(tool).read(file, name)
    text, screen = toml(imported.chip, f"From {file.name} of {tool}."), console(stderr=out is None)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)
        screen.print(f"chip: {out}", markup=False, soft_wrap=True)
    for each in imported.left:
        screen.print(f"note: {each}", style="yellow", markup=False, soft_wrap=True)
