"""`meshloom serve-tokens`: texts from a language model, whose steps are scheduled while they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..api.completion import complete_token_schedulers
from ..api.options import Chip, Clock, Device, MemoryLimit, Network, Set, TimeLimit, examples
from ..api.request import limited
from .conclude import conclude
from .fields import WeightBits, check_weight_bits, with_fields
from .outputs import STDOUT, check_places
from .requests import filled, once

app = typer.Typer()
#: What names all schedulers that have a name.
ALL = "all"


@dataclass(frozen=True)
class ServeTokensRequest:
    """Texts to be served: the fields are the options of the command."""

    scenarios: Annotated[
        list[Path],
        typer.Argument(metavar="SCENARIO.toml...", help="A language model, texts to read and to write, and limits."),
    ]
    chip: Chip = "quad16"
    set: Set = None
    clock: Clock = None
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_token_schedulers,
            show_default="chunked",
            help="Token scheduler to use: one of `meshloom schedulers`, PACKAGE.MODULE:THING, or FILE.py:THING; all: "
            "each that has a name. May be given several times.",
        ),
    ] = None
    weight_bits: WeightBits = 8
    device: Device = "verilator"
    model: Annotated[
        bool,
        typer.Option("--model", help="In the timeline model alone; no token is computed, but of models with experts."),
    ] = False
    decision_cycles: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Cycles that a decision takes, besides reading and writing registers."),
    ] = 0
    time_limit: TimeLimit = None
    memory_limit: MemoryLimit = None
    network: Network = False
    json: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", help="Also write the results here; - is stdout."),
    ] = None


@app.command(
    "serve-tokens",
    epilog=examples(
        "meshloom serve-tokens examples/texts/chat.toml",
        "meshloom serve-tokens examples/texts/*.toml --scheduler all --model",
        "meshloom serve-tokens my_texts.toml --scheduler my_scheduler.py:decide --clock 500 --json out.json",
    ),
)
@filled(ServeTokensRequest)
def serve_tokens(request: ServeTokensRequest) -> None:
    """Serve texts with a small language model: a token scheduler decides after each step what the next one reads.

    A step reads a chunk of a prompt, or the last token of texts that write, or both; weights are read once for all of
    them. Times to the first token (TTFT) and between tokens (TPOT), tokens in a million cycles, and the texts that are
    in time are what schedulers are compared by. On the RTL every tensor of every step is compared with ONNX Runtime,
    and every instruction's cycles with the model. Results go to sim_build/results/ as JSON. The exit status is 1 if a
    byte or a cycle is wrong.

    When you interrupt (Ctrl-C), the steps that a simulator has run, the simulator and what searches know of layers are
    kept: the same command goes on. In the timeline model alone texts begin anew.
    """
    from datetime import UTC, datetime

    from meshloom.hw.spec.config import load as load_chip
    from meshloom.sched.schedulers.tokens.registry import TOKENS
    from meshloom.sched.workload.texts import load

    from ..devices.registry import find as find_device
    from ..inputs.chips import at_clock
    from ..report.console import console
    from ..report.progress import Working
    from ..report.tokens import print_tokens
    from ..results.identity import code
    from ..results.recorder import environment
    from ..results.scenario import results_path
    from ..results.tokens import TokenResults, name_of
    from ..runs.tokens.serve import serve

    check_weight_bits(request.weight_bits)
    started = datetime.now(UTC)
    chip = at_clock(with_fields(load_chip(request.chip), request.set), request.clock)
    names: list[str] = []
    for name in once(request.scheduler or ["chunked"], "--scheduler"):
        names += TOKENS.names() if name == ALL else [name]
    scenarios = [load(path) for path in request.scenarios]
    path = results_path(started.astimezone(), f"{chip.name}-{name_of([one.name for one in scenarios])}-serve-tokens")
    check_places(path, request.json)
    screen = console(stderr=request.json == STDOUT)
    device = None if request.model else request.device
    limits = limited(request.time_limit, request.memory_limit, request.network)
    with limits, Working(screen, f"texts on {chip.name}") as working:
        runs = serve(
            scenarios, chip, list(dict.fromkeys(names)), device=device, decision_cycles=request.decision_cycles,
            weight_bits=request.weight_bits, on_progress=working.say,
        )  # fmt: skip
    versions = environment(find_device(device).tools() if device is not None else {})
    results = TokenResults(started=started, environment=versions, code=code(), runs=runs)
    print_tokens(results, screen)
    conclude(results, path, request.json, screen)
