"""`meshloom check` and `meshloom disasm`: saved schedules and program images."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ..api.options import Bind, SavedChip, Set, bindings, examples
from ..results.exits import expected
from .fields import saved_chip

app = typer.Typer()


@app.command(
    epilog=examples(
        "meshloom check conv1.json",
        "meshloom check conv1.bin --chip my_chip.toml",
        "meshloom check model.onnx --bind height=224 --bind width=224",
    )
)
def check(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="A saved schedule (.json), a program image or an ONNX file.")
    ],
    chip: SavedChip = None,
    set: Set = None,
    bind: Bind = None,
) -> None:
    """Prove that a schedule or a program can run on its chip: capacity, defined bytes, no deadlock, no race and,
    if it is timed ahead, nothing late. Of an ONNX file, say what the chip would run, or what it cannot."""
    if path.suffix == ".onnx":
        from meshloom.hw.spec.config import load

        from ..inputs.sources import described
        from ..report.console import console

        config = saved_chip(chip, set)
        by_channel = (config or load("quad16")).core.channel_scales
        for line in described(path, bindings(bind), by_channel, config):
            console().print(line, markup=False, soft_wrap=True)
        return
    _check_there(path)
    if path.suffix == ".toml":
        raise typer.BadParameter(_of_toml(path), param_hint="FILE")
    if bind:
        raise typer.BadParameter("is for ONNX files", param_hint="--bind")
    from ..results.saved import read

    config, program, saved = read(path, saved_chip(chip, set))
    from meshloom.sched.lowering.programs import check_program

    from ..report.console import console

    report = check_program(program, config, saved)
    if report.timed:
        what = f"{report.timed} of them timed ahead, all in time, {report.accesses} accesses"
    else:
        what = f"{report.semaphores} semaphores (at most {report.peak} pending), {report.accesses} accesses"
    console().print(
        f"{path}: good on {config.name}: {report.instructions} instructions in {report.streams} streams, {what}",
        markup=False,
        soft_wrap=True,
    )
    for warning in report.warnings:
        console().print(f"note: {warning}", style="yellow", markup=False, soft_wrap=True)


@app.command(epilog=examples("meshloom disasm conv1.bin | less", "meshloom disasm conv1.json"))
def disasm(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A program image, or a schedule (.json) to lower.")],
    chip: SavedChip = None,
    set: Set = None,
) -> None:
    """Print a program's instructions, stream by stream, with the labels of its schedule if there is one.

    The program of a schedule is listed even if `meshloom check` refuses it; stderr then reports why.
    """
    from ..results.saved import read

    _check_there(path)
    config, program, saved = read(path, saved_chip(chip, set))
    from meshloom.sched.program.disasm import listing

    for line in listing(program, config, [op.label for op in saved.operations] if saved else ()):
        typer.echo(line)
    if saved is None:
        return
    from meshloom.sched.lowering.programs import check_program

    try:
        check_program(program, config, saved)
    except ValueError as error:
        if (pair := expected(error)) is None:
            raise
        from ..report.console import console

        note = f"note: this program must not run: {pair[0]}"
        console(stderr=True).print(note, style="yellow", markup=False, soft_wrap=True)


def _check_there(path: Path) -> None:
    """Raises BadParameter for the name of a workload, of which there is no file."""
    if not path.suffix and not path.exists():
        raise typer.BadParameter(
            f"{path}: there is no such file; schedules and programs are read from files, which `meshloom schedule "
            f"{quote(str(path))} --out s.json` makes of a workload",
            param_hint="FILE",
        )


def _of_toml(path: Path) -> str:
    """What to do with a file that describes something else, by what stands in it. Raises OSError."""
    from meshloom.sched.support.reading import parse_toml

    try:
        values = parse_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return f"{path}: {error}"
    kinds = {
        "floorplan": f"is a chip: `meshloom chips {path}` checks and shows it",
        "network": f"is a scenario: `meshloom serve {path} --model` checks it, and serves it in the model",
        "workloads": f"is a sweep: `meshloom sweep {path} --plan` checks it, and counts its points",
        "dram_byte": f"is a table of energies: `meshloom explain RUN --energy {path}` reads it",
    }
    what = next((text for key, text in kinds.items() if key in values), "")
    return f"{path}: {what or 'is neither a schedule, a program nor an ONNX file'}"
