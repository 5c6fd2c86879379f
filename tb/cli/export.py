"""`meshloom export`: a workload as files that run it elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.completion import complete_schedulers, complete_workloads
from ..api.options import Bind, Budget, Chip, Effort, MemoryLimit, Network, Seed, Set, TimeLimit, bindings, examples
from ..api.request import limited, refuse_other_kind
from .fields import with_fields
from .requests import filled

if TYPE_CHECKING:
    from meshloom.hw.spec.config import ChipConfig

    from ..runs.kinds.interface import WorkloadRequest

app = typer.Typer()


@dataclass(frozen=True)
class ExportRequest:
    """A workload to be exported: the fields are the options of the command."""

    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            autocompletion=complete_workloads,
            help="A layer, a shape, a network or an ONNX file; or a saved schedule (.json) or program (.bin) of one.",
        ),
    ]
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Folder to write; one that this command has written before is replaced."
        ),
    ]
    chip: Chip = "quad16"
    set: Set = None
    scheduler: Annotated[
        str,
        typer.Option(
            "--scheduler",
            metavar="NAME[:OPTION=VALUE,...]",
            autocompletion=complete_schedulers,
            help="Scheduler to use: one of `meshloom schedulers`, PACKAGE.MODULE:FUNCTION, or FILE.py:FUNCTION.",
        ),
    ] = "loop_order"
    budget: Budget = None
    effort: Effort = None
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    network: Network = False
    input: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="What a network works on: a picture, .npy or .npz file."),
    ] = None
    bind: Bind = None
    seed: Seed = 0


@app.command(
    epilog=examples(
        "meshloom export gemm:16x16x16 --chip tiny --out gemm",
        "meshloom export my_model.onnx --input cat.png --chip my_chip.toml --out board",
    )
)
@filled(ExportRequest)
def export(request: ExportRequest) -> None:
    """Write a workload as files that run it without Meshloom: memory images, a C driver, a Verilog test bench.

    The folder has what DRAM must hold before the run and what must be in it afterwards (for `$readmemh`, as bytes, and
    as C), the chip's Verilog, a C driver that needs nothing but access to registers and DRAM, and a test bench for any
    Verilog simulator that prints PASS. manifest.json says what is what.
    """
    from meshloom.hw.spec.config import load
    from meshloom.sched.schedulers.registry import check_scheduler

    from ..report.console import console
    from ..report.progress import Working
    from ..runs.export.export import files
    from ..runs.export.folder import check_place, write_folder
    from ..runs.searching import searching, with_budget, with_effort

    chip = with_fields(load(request.chip), request.set)
    check_place(request.out)
    refuse_other_kind(request.scheduler)
    scheduler = with_effort(with_budget(request.scheduler, request.budget), request.effort)
    workload, screen = _read(request, chip), console(stderr=True)
    workload.check(chip)
    _check_inputs(request, workload.runs)
    if workload.scheduled_as is not None:
        check_scheduler(scheduler, workload.scheduled_as)
    with limited(request.time_limit, request.memory_limit, request.network), searching(screen) as listener:
        runs = workload.prepare(chip, scheduler, listener)
    _check_inputs(request, len(runs))
    (run,) = runs
    with Working(screen, f"{run.name}: writing its files"):
        result = files(run, chip)
        write_folder(request.out, result)
    for name in result:
        console().print(str(request.out / name), markup=False, soft_wrap=True)


def _check_inputs(request: ExportRequest, count: int) -> None:
    """Raises BadParameter for a file of several inputs."""
    from ..inputs.pictures import one_of

    if count != 1:
        shape = one_of(request.input) if request.input is not None else ""
        raise typer.BadParameter(
            f"{request.input} has {count} inputs; give one" + (shape and f" sample, {shape}"), param_hint="--input"
        )


def _read(request: ExportRequest, chip: ChipConfig) -> WorkloadRequest:
    """The workload, with what it works on. Raises BadParameter, WorkloadError."""
    from ..inputs.sources import NetworkSource
    from ..runs.kinds.networks import NetworkRequest
    from ..runs.kinds.table import is_file, is_network, one
    from ..runs.saved import SavedSource

    name, inputs = request.workload, () if request.input is None else (request.input,)
    source = NetworkSource(name, inputs=inputs, bind=tuple(bindings(request.bind).items()), seed=request.seed)
    if is_network(name):
        return NetworkRequest(source)
    if is_file(name):
        return SavedSource(Path(name), fed=source)
    for option, value in (("--input", request.input), ("--bind", request.bind)):
        if value:
            raise typer.BadParameter(f"is for networks; {name} has its own input", param_hint=option)
    return one(name, chip)
