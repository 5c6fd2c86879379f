"""`meshloom train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .conclude import conclude
from .options import Chip, Device, examples
from .outputs import STDOUT, check_places

if TYPE_CHECKING:
    from meshloom.sched.schedulers.training.across import Across

app = typer.Typer()


@app.command(  # each parameter is a command-line option
    epilog=examples(
        "meshloom train digits --steps 200",
        "meshloom train digits --chip quad16 --steps 20 --order interleaved --json out.json",
        "meshloom train digits --steps 200 --across all",
        "meshloom train digits --steps 200 --model",
    )
)
def train(
    network: Annotated[str, typer.Argument(metavar="NAME", help="Network to train: digits.")],
    chip: Chip = "quad16",
    steps: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="Training steps in all.")] = 200,
    batch: Annotated[int, typer.Option(min=1, max=4096, metavar="N", help="Examples of a step.")] = 64,
    order: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="How dX and dW of a layer share the time; the weights are the same with all."
        ),
    ] = "sequential",
    across: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="What steps do across layers, with commas: overlap, keep, defer; all, none. The weights are the same "
            "with any.",
        ),
    ] = "none",
    rate: Annotated[float, typer.Option(min=0.0, max=10.0, metavar="X", help="Learning rate.")] = 0.05,
    momentum: Annotated[float, typer.Option(min=0.0, max=0.999, metavar="X", help="Momentum.")] = 0.9,
    update: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who keeps the weights: double (the host, with momentum), int8 (nobody: they are int8 alone, the rate "
            "is a power of two, without momentum), chip (the same, updated on the chip).",
        ),
    ] = "double",
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Of the first weights and the order of the examples.")
    ] = 0,
    device: Device = "verilator",
    model: Annotated[
        bool,
        typer.Option("--model", help="No RTL: the functional executor computes, the timeline model counts cycles."),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the state is kept after each step, and gone on from; default: below sim_build/results, by the "
            "options above.",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew although there is a checkpoint.")] = False,
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="PATH", help="Also write the results here; - is stdout, and all else then goes to stderr."
        ),
    ] = None,
) -> None:
    """Train a network with int8 forward and backward passes on the chip's RTL.

    Each step has two programs, compiled once: the forward pass, and the gradients of all maps and weights. Loss and
    update are the host's. Every tensor of every step is compared with ONNX Runtime's integer products, and every
    instruction's cycles with the model's. At the end the network is tested, and so is the same training in floating
    point. Results go to sim_build/results/ as JSON and, with the loss of each step, as a picture. The exit status is 1
    if a byte or a cycle is wrong.

    When you interrupt (Ctrl-C), the same command goes on with the next step, to the same bits.
    """
    import dataclasses
    import hashlib
    from datetime import datetime

    from meshloom.hw.spec.config import load as load_chip
    from meshloom.hw.spec.config import near_or_all
    from meshloom.sched.schedulers.training.across import Across
    from meshloom.sched.schedulers.training.orders import Order

    from ..report.console import console
    from ..report.progress import Counted
    from ..report.training import draw, print_training
    from ..results.recorder import RESULTS_FOLDER
    from ..results.scenario import results_path
    from ..runs.training.numbers import Update
    from ..runs.training.run import Training
    from ..runs.training.run import train as run_training
    from ..runs.training.trainer import Rates

    config = load_chip(chip)
    if order not in tuple(Order):
        raise typer.BadParameter(f"{order!r}: {near_or_all(order, tuple(Order))}", param_hint="--order")
    if update not in tuple(Update):
        raise typer.BadParameter(f"{update!r}: {near_or_all(update, tuple(Update))}", param_hint="--update")
    if Update(update) is not Update.DOUBLE and not rate:
        raise typer.BadParameter(f"must be above 0 where the update is {update}", param_hint="--rate")
    chosen = frozenset(Across) if across == "all" else _across(across)
    rates = Rates(rate, momentum, Update(update))
    asked = Training(
        network, config, steps, Path(), batch, Order(order), chosen, None if model else device, rates, seed
    )
    digest = hashlib.sha256(repr(sorted(asked.setting().items())).encode()).hexdigest()[:12]
    keep = checkpoint or RESULTS_FOLDER / f"train-{digest}.npz"
    asked = dataclasses.replace(asked, keep=keep, fresh=fresh)
    path = results_path(datetime.now().astimezone(), f"{config.name}-{network}-train")
    check_places(path, json, keep)
    if keep.exists() and not keep.is_file():  # it is read again, which of a device might never end
        raise typer.BadParameter(f"{keep} is no file that a later run could go on from", param_hint="--checkpoint")
    screen = console(stderr=json == STDOUT)
    with Counted(screen, f"{network} on {config.name}", "steps") as progress:
        results = run_training(
            asked,
            progress.say,
            lambda state: progress.begin(max(steps, state.step), state.step),
            lambda state: progress.advance(1, f"loss {state.losses[-1]:.4f}"),
        )
    picture = path.with_suffix(".svg")
    results = results.model_copy(update={"picture": picture.as_posix()})
    print_training(results, screen)
    conclude(results, path, json, picture, lambda: draw(results, picture), screen)


def _across(names: str) -> frozenset[Across]:
    """What `--across` means. Raises BadParameter for a name that means nothing."""
    from meshloom.hw.spec.config import near_or_all
    from meshloom.sched.schedulers.training.across import Across

    asked = [] if names == "none" else [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in tuple(Across):
            known = (*Across, "all", "none")
            raise typer.BadParameter(f"{name!r}: {near_or_all(name, known)}", param_hint="--across")
    return frozenset(map(Across, asked))
