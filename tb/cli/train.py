"""`meshloom train`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.options import Chip, Clock, Device, Set, examples
from .conclude import conclude
from .errors import resumable
from .fields import with_fields
from .outputs import STDOUT, check_places
from .requests import filled

if TYPE_CHECKING:
    from meshloom.sched.schedulers.training.across import Across

    from ..runs.training.run import Training

app = typer.Typer()


@dataclass(frozen=True)
class TrainRequest:
    """A training: the fields are the options of the command."""

    network: Annotated[str, typer.Argument(metavar="NAME", help="Network to train: digits.")]
    chip: Chip = "quad16"
    set: Set = None
    steps: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="Training steps in all.")] = 200
    batch: Annotated[int, typer.Option(min=1, max=4096, metavar="N", help="Examples of a step.")] = 64
    order: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="How dX and dW of a layer share the time; the weights are the same with all."
        ),
    ] = "sequential"
    across: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="What steps do across layers, with commas: overlap, keep, defer; all, none. The weights are the same "
            "with any.",
        ),
    ] = "none"
    rate: Annotated[float, typer.Option(min=0.0, max=10.0, metavar="X", help="Learning rate.")] = 0.05
    momentum: Annotated[float, typer.Option(min=0.0, max=0.999, metavar="X", help="Momentum.")] = 0.9
    update: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who keeps the weights: double (the host, with momentum), int8 (nobody: they are int8 alone, the rate "
            "is a power of two, without momentum), chip (the same, updated on the chip).",
        ),
    ] = "double"
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="Of the first weights and the order of the examples.")
    ] = 0
    device: Device = "verilator"
    model: Annotated[
        bool,
        typer.Option("--model", help="No RTL: the functional executor computes, the timeline model counts cycles."),
    ] = False
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the state is kept after each step, and gone on from; default: below sim_build/results, by the "
            "options above.",
        ),
    ] = None
    clock: Clock = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew although there is a checkpoint.")] = False
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="PATH", help="Also write the results here; - is stdout, and all else then goes to stderr."
        ),
    ] = None


@app.command(
    epilog=examples(
        "meshloom train digits --steps 200",
        "meshloom train digits --chip quad16 --steps 20 --order interleaved --json out.json",
        "meshloom train digits --steps 200 --across all",
        "meshloom train digits --steps 200 --model",
    )
)
@filled(TrainRequest)
def train(request: TrainRequest) -> None:
    """Train a network with int8 forward and backward passes on the chip's RTL.

    Each step has two programs, compiled once: the forward pass, and the gradients of all maps and weights. Loss and
    update are the host's. Every tensor of every step is compared with ONNX Runtime's integer products, and every
    instruction's cycles with the model's. At the end the network is tested, and so is the same training in floating
    point. Results go to sim_build/results/ as JSON and, with the loss of each step, as a picture. The exit status is 1
    if a byte or a cycle is wrong.

    When you interrupt (Ctrl-C), the same command goes on with the next step, to the same bits.
    """
    from datetime import datetime

    from ..report.console import console
    from ..report.progress import Counted
    from ..report.training import draw, print_training
    from ..results.scenario import results_path
    from ..runs.training.run import train as run_training

    training = _training(request)
    chip, network, keep = training.chip, request.network, training.keep
    path = results_path(datetime.now().astimezone(), f"{chip.name}-{network}-train")
    check_places(path, request.json, keep)
    if keep.exists() and not keep.is_file():  # it is read again, which of a device might never end
        raise typer.BadParameter(f"{keep} is no file that a later run could go on from", param_hint="--checkpoint")
    screen = console(stderr=request.json == STDOUT)
    with Counted(screen, f"{network} on {chip.name}", "steps") as progress:

        def kept() -> str:
            return f"{progress.reached}; {f'kept in {keep}' if keep.exists() else 'nothing is kept'}"

        with resumable(kept, "--fresh"):
            results = run_training(
                training,
                progress.say,
                lambda state: progress.begin(max(request.steps, state.step), state.step),
                lambda state: progress.advance(1, f"loss {state.losses[-1]:.4f}"),
            )
    picture = path.with_suffix(".svg")
    results = results.model_copy(update={"picture": picture.as_posix()})
    print_training(results, screen)
    conclude(results, path, request.json, screen, picture, lambda: draw(results, picture))


def _training(request: TrainRequest) -> Training:
    """The training that options mean. Raises BadParameter, ConfigError."""
    import hashlib

    from meshloom.hw.spec.config import load as load_chip
    from meshloom.sched.schedulers.training.orders import Order

    from ..inputs.chips import at_clock
    from ..results.recorder import RESULTS_FOLDER
    from ..runs.training.numbers import Update
    from ..runs.training.run import Training
    from ..runs.training.trainer import Rates

    config = at_clock(with_fields(load_chip(request.chip), request.set), request.clock)
    order = Order(_one_of(request.order, tuple(Order), "--order"))
    update = Update(_one_of(request.update, tuple(Update), "--update"))
    if update is not Update.DOUBLE and not request.rate:
        raise typer.BadParameter(f"must be above 0 where the update is {update}", param_hint="--rate")
    training = Training(
        request.network,
        config,
        request.steps,
        Path(),
        request.batch,
        order,
        _across(request.across),
        None if request.model else request.device,
        Rates(request.rate, request.momentum, update),
        request.seed,
    )
    digest = hashlib.sha256(repr(sorted(training.setting().items())).encode()).hexdigest()[:12]
    keep = request.checkpoint or RESULTS_FOLDER / f"train-{digest}.npz"
    return replace(training, keep=keep, fresh=request.fresh)


def _across(text: str) -> frozenset[Across]:
    """What `--across` means. Raises BadParameter for a name that means nothing."""
    from meshloom.sched.schedulers.training.across import Across

    names = [] if text == "none" else list(Across) if text == "all" else [name.strip() for name in text.split(",")]
    near = (*Across, "all", "none")
    return frozenset(Across(_one_of(name, tuple(Across), "--across", near)) for name in names)


def _one_of(name: str, names: Sequence[str], option: str, near: Sequence[str] = ()) -> str:
    """A name if it is one of `names`. Raises BadParameter, with the nearest of `near` (those names), if it is not."""
    from meshloom.hw.spec.config import near_or_all

    if name not in names:
        raise typer.BadParameter(f"{name!r}: {near_or_all(name, near or names)}", param_hint=option)
    return name
