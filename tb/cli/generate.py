"""`meshloom generate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api.options import Chip, Clock, Device, Set, examples
from .errors import resumable
from .fields import WeightBits, check_weight_bits, with_fields
from .outputs import STDOUT, check_places
from .requests import filled

if TYPE_CHECKING:
    from ..runs.language.generation import Generation

app = typer.Typer()


@dataclass(frozen=True)
class GenerateRequest:
    """A text to be generated: the fields are the options of the command."""

    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Language model: shakespeare, shakespeare_experts, an .npz file, a folder of transformers' "
            "(config.json, safetensors, tokenizer.json; Llama, Mistral, Qwen, Gemma, OLMo, GPT-2, OPT, Pythia, ...), "
            "a GGUF file, or an ONNX file beside a config.json.",
        ),
    ]
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="Text to go on from.")]
    tokens: Annotated[
        int,
        typer.Option(
            min=1, max=1_000_000, metavar="N", help="Tokens to generate, in all; a folder's model may end sooner."
        ),
    ] = 32
    chip: Chip = "quad16"
    set: Set = None
    chunk: Annotated[
        int,
        typer.Option(min=2, max=4096, metavar="N", help="Tokens of the prompt in a step, at most."),
    ] = 16
    scheduler: Annotated[
        str, typer.Option(metavar="NAME", help="loop_order, with its options: no other knows what stays in DRAM.")
    ] = "loop_order:effort=quick"
    speculate: Annotated[
        int,
        typer.Option(
            min=0, max=256, metavar="N", help="Guess N tokens from the text so far; one step verifies them all."
        ),
    ] = 0
    weight_bits: WeightBits = 8
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text for a folder's model: its beginning sets the steps of int8, what follows is for the perplexity; "
            "default: that of shakespeare.",
        ),
    ] = None
    context: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1023,
            metavar="N",
            help="Tokens that a folder's model looks at; default: 128, or all if it has fewer.",
        ),
    ] = None
    device: Device = "verilator"
    without_rtl: Annotated[
        bool, typer.Option("--model", help="No RTL: ONNX Runtime computes, the timeline model counts cycles.")
    ] = False
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the state is kept after each step, and gone on from; default: below sim_build/results, by the "
            "options above but --tokens.",
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
        'meshloom generate shakespeare --prompt "ROMEO:" --tokens 32',
        'meshloom generate shakespeare --prompt "To be" --tokens 64 --chip quad16 --clock 500',
        'meshloom generate shakespeare --prompt "To be" --tokens 64 --model',
        'meshloom generate shakespeare --prompt "To be, or not to be" --tokens 64 --speculate 3',
        'meshloom generate shakespeare --prompt "ROMEO:" --weight-bits 4 --set core.int4=true',
        'meshloom generate shakespeare_experts --prompt "ROMEO:" --tokens 32',
        'meshloom generate my_llama/ --prompt "Once upon a time" --calibrate stories.txt --context 64',
    )
)
@filled(GenerateRequest)
def generate(request: GenerateRequest) -> None:
    """Generate text with a small language model on the chip's RTL.

    The prompt is read in chunks, then each token has a step of its own; the host looks up embeddings and takes the
    token with the highest score. Keys and values of all tokens lie in DRAM, int8, where the chip appends to them. Every
    tensor of every step is compared with ONNX Runtime on the same integers, and every instruction's cycles with the
    model's. The float model's text is shown beside it. Results go to sim_build/results/ as JSON. The exit status is 1
    if a byte or a cycle is wrong.

    With --speculate (speculative decoding) a step reads the last token and N guesses: what followed the last tokens
    where they stood before. It gives the tokens up to the first wrong guess, those that a step for each would have
    given.

    Of a model with experts a step is several programs: behind each router's scores the host chooses experts, whose
    weights the chip then reads. How often each was chosen, and what that cost, is said, too.

    A folder's model ends at the token that its generation_config.json or config.json names (eos_token_id), as
    transformers' `generate` does.

    When you interrupt (Ctrl-C), the same command goes on with the next step, to the same tokens; with more --tokens
    it goes on behind the last.
    """
    from contextlib import ExitStack
    from datetime import datetime

    from ..report.console import console
    from ..report.language import print_language
    from ..report.progress import Working
    from ..results.scenario import results_path
    from ..runs.language.generation import generate as run_generation
    from .conclude import conclude

    generation = _generation(request)
    keep = generation.keep
    path = results_path(datetime.now().astimezone(), f"{generation.chip.name}-{generation.model.name}-generate")
    check_places(path, request.json, keep)
    if keep.exists() and not keep.is_file():  # it is read again, which of a device might never end
        raise typer.BadParameter(f"{keep} is no file that a later run could go on from", param_hint="--checkpoint")
    screen = console(stderr=request.json == STDOUT)
    tokens, stack = 0, ExitStack()

    def begin(text: str, new: int) -> None:
        nonlocal tokens
        tokens = new
        show(text)

    def add(text: str) -> None:
        nonlocal tokens
        tokens += 1
        show(text)

    def show(text: str) -> None:
        stack.close()  # a line that moves and a text that grows do not go together
        screen.print(text, end="", markup=False, highlight=False, soft_wrap=True)

    def progress() -> str:
        return f"after {tokens} of {request.tokens} tokens; {f'kept in {keep}' if keep.exists() else 'nothing is kept'}"

    with resumable(progress, "--fresh"), stack:
        working = stack.enter_context(Working(screen, f"{generation.model.name} on {generation.chip.name}"))
        results = run_generation(generation, working.say, begin, add)
    screen.print()
    print_language(results, screen)
    conclude(results, path, request.json, screen)


def _generation(request: GenerateRequest) -> Generation:
    """The generation that options mean. Raises ConfigError, LanguageError, SchedulerError."""
    import hashlib

    from meshloom.hw.spec.config import load as load_chip
    from meshloom.sched.schedulers.registry import check_scheduler, options_of
    from meshloom.sched.workload.language.pretrained import load

    from ..inputs.chips import at_clock
    from ..results.recorder import RESULTS_FOLDER
    from ..runs.language.fitting import check_weights
    from ..runs.language.generation import Generation

    if options_of(request.scheduler)[0] != "loop_order":
        raise typer.BadParameter(
            f"{request.scheduler!r}: only loop_order knows what stays in DRAM", param_hint="--scheduler"
        )
    check_weight_bits(request.weight_bits)
    check_scheduler(request.scheduler, "networks")
    chip = at_clock(with_fields(load_chip(request.chip), request.set), request.clock)
    fits = partial(check_weights, chip=chip, weight_bits=request.weight_bits)
    generation = Generation(
        load(request.model, request.calibrate, request.context or 0, fits),
        request.prompt,
        request.tokens,
        chip,
        Path(),
        request.chunk,
        request.scheduler,
        None if request.without_rtl else request.device,
        request.fresh,
        request.speculate,
        request.weight_bits,
    )
    generation.check()
    digest = hashlib.sha256(repr(sorted(generation.setting().items())).encode()).hexdigest()[:12]
    return replace(generation, keep=request.checkpoint or RESULTS_FOLDER / f"generate-{digest}.npz")
