"""A text from its prompt to its last token: prefill in chunks, then a step for each token, gone on with where it
stopped."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.workload.language import reference
from meshloom.sched.workload.language.graph import attended, step_graph
from meshloom.sched.workload.language.integers import WEIGHT_BITS, Integers, integers
from meshloom.sched.workload.language.model import LanguageError, LanguageModel
from meshloom.sched.workload.language.speculation import accept, guess

from ...build.builder import SIMULATORS
from ...devices.interface import Job, Run
from ...devices.registry import find as find_device
from ...inputs.golden.graph import golden_values
from ...results.identity import code
from ...results.language import ExpertFigures, LanguageResults, PhaseFigures
from ...results.recorder import environment
from ..training.machine import on_device
from .expert_step import ExpertModel, ExpertStep, expert_bytes
from .host import least_wait
from .programs import Programs
from .shared import SharedDram
from .state import PhaseTotals, TextState, first_state, load, save
from .step import LanguageStep, StepOutcome
from .walk import Golden, Walk

OnProgress = Callable[[str], None]
#: What `LanguageResults.cache` says of a simulator, of a device that others may use in between, and of none.
STAYS = "appended in place by the chip; stays in DRAM from program to program"
RESTORED = "appended in place by the chip; before each program the bench loads the same bytes again"
_NO_DEVICE = "ONNX Runtime's"
#: What stands for a character of which a token is a part.
_PART = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Generation:
    """What is to be generated, and how. `tokens`: in all, behind the prompt; `chunk`: of a step of prefill, at most;
    `device`: None for ONNX Runtime and the timeline model; `keep`: the checkpoint, which is gone on from if it is
    there, unless `fresh`; `speculate`: tokens that are guessed before each step of decode, which verifies them;
    `weight_bits`: of the weights (`sched.workload.int4`)."""

    model: LanguageModel
    prompt: str
    tokens: int
    chip: ChipConfig
    keep: Path
    chunk: int = 16
    scheduler: str = "loop_order:effort=quick"
    device: str | None = "verilator"
    fresh: bool = False
    speculate: int = 0
    weight_bits: int = 8

    def check(self) -> None:
        """Raises LanguageError for a prompt without tokens, a character without one, and a text or guesses beyond the
        context."""
        if not self.prompt or not self.read:
            raise LanguageError(
                "the prompt is empty; give it a character at least"
                if not self.prompt
                else f"the prompt {self.prompt!r} has no tokens in model {self.model.name}; give it a word"
            )
        read, context = self.read + self.tokens - 1, self.model.context
        if read > context:
            more = f", or a larger context, up to {self.model.reach}" if self.model.reach > context else ""
            raise LanguageError(
                f"a prompt of {self.read} tokens and {self.tokens} new ones are {read} tokens to look at, model "
                f"{self.model.name} looks at {context}; shorten the prompt, or take fewer --tokens{more}"
            )
        if self.speculate > context - 2:
            raise LanguageError(
                f"{self.speculate} guesses behind a token are more than model {self.model.name} looks at in a step, "
                f"which is {context - 1} tokens; take fewer --speculate"
            )

    @cached_property
    def read(self) -> int:
        """Tokens of the prompt. Raises LanguageError for a character without one."""
        return len(self.model.tokens(self.prompt))

    @property
    def news(self) -> tuple[int, ...]:
        """Tokens of the steps of prefill: chunks, and what is left."""
        most = min(self.chunk, self.model.context - 1)
        return (most,) * (self.read // most) + ((self.read % most,) if self.read % most else ())

    @property
    def end(self) -> int:
        """Tokens of the text at most, with those of the prompt."""
        return self.read + self.tokens

    def setting(self) -> dict[str, str | int]:
        """What decides the tokens and what is summed up about them, and so belongs to a checkpoint."""
        weights = hashlib.sha256()
        for name, array in sorted(self.model.arrays.items()):
            weights.update(name.encode() + array.tobytes())
        if self.model.top:
            weights.update(f"top {self.model.top}".encode())
        weights.update(self.model.decisive.encode())
        return {
            "model": self.model.name, "weights": weights.hexdigest()[:16], "prompt": self.prompt, "chunk": self.chunk,
            "chip": self.chip.name, "chip_digest": self.chip.digest, "scheduler": self.scheduler,
            "device": self.device or "model", "speculate": self.speculate,
            **({"weight_bits": self.weight_bits} if self.weight_bits != WEIGHT_BITS[-1] else {}),
        }  # fmt: skip


@dataclass
class _Generator:
    """Runs the steps of a generation and sums up what they say."""

    numbers: Integers
    state: TextState
    generation: Generation
    execute: Callable[[Job], Run] | None
    on_progress: OnProgress
    first_mismatch: str = ""
    first_divergence: str = ""
    before: LanguageStep | None = None  #: what ran last on the device
    _steps: dict[int, LanguageStep | ExpertStep] = field(default_factory=dict[int, "LanguageStep | ExpertStep"])
    _experts: ExpertModel | None = None
    _shared: SharedDram = field(init=False)

    def __post_init__(self) -> None:
        self._shared = SharedDram(self.generation.chip)

    def step(self, tokens: int) -> LanguageStep | ExpertStep:
        """The step of so many tokens, made when it is needed first."""
        if tokens not in self._steps:
            chip, scheduler = self.generation.chip, self.generation.scheduler
            if self.numbers.model.mixtures:
                programs = self._experts or ExpertModel(Programs(self.numbers, chip, scheduler, self.on_progress))
                self._experts, self._steps[tokens] = programs, programs.step(tokens)
            else:
                self._steps[tokens] = LanguageStep(
                    self.numbers, tokens, chip, scheduler, self.on_progress, self._shared
                )  # fmt: skip
        return self._steps[tokens]

    def advance(self) -> list[int]:
        """A step of prefill, or of decode; returns the tokens that it gave, none while the prompt has not been read."""
        state = self.state
        decoding = state.read >= self.generation.read
        guesses = self._guesses() if decoding else []
        left = len(state.tokens) - state.read
        count = 1 + len(guesses) if decoding else min(left, self.generation.news[0])
        step = self.step(count)
        tokens = np.array([*state.tokens[state.read :], *guesses][:count], np.int64)
        outcome = step.run(tokens, state.caches, self.execute, self.before)
        self.before = step if isinstance(step, LanguageStep) else None
        verified = outcome.scores.argmax(axis=1)[-1 - len(guesses) :].tolist()
        new = self.generation.model.until_end(accept(guesses, verified)[: self._wanted])
        valid = len(new) if guesses else count  # keys and values of a wrong guess are none of the text's
        self._add(state.decode if decoding else state.prefill, outcome, valid)
        state.caches = {
            name: np.concatenate([array, outcome.new[name][:, :valid]], axis=1) for name, array in state.caches.items()
        }
        if guesses:
            state.guesses.tokens_guessed += len(guesses)
            state.guesses.tokens_accepted += len(new) - 1
        if state.read < len(state.tokens):
            return []
        state.tokens += new
        return new

    @property
    def ended(self) -> bool:
        """Whether the last token that was asked for is there, or one behind which a text is over."""
        tokens, prompt = self.state.tokens[: self.generation.end], self.generation.read
        return len(tokens) >= self.generation.end or self.generation.model.ended(tokens[prompt:])

    def _guesses(self) -> list[int]:
        """The tokens that the next step verifies behind the last one; none if the context has no room for them, or if
        one step is enough without."""
        count, room = self.generation.speculate, self.generation.model.context - self.state.read
        return guess(self.state.tokens, count) if 0 < count < room and self._wanted > 1 else []

    @property
    def _wanted(self) -> int:
        """Tokens that are left to be generated."""
        return self.generation.end - len(self.state.tokens)

    def _add(self, totals: PhaseTotals, outcome: StepOutcome, tokens: int) -> None:
        totals.steps += 1
        totals.tokens += tokens
        totals.rtl_cycles += outcome.rtl_cycles
        totals.model_cycles += outcome.model_cycles
        totals.dram_bytes += outcome.dram_bytes
        totals.least_cycles += outcome.least_cycles
        totals.host_bytes += outcome.host_bytes
        totals.picojoules += round(outcome.picojoules)
        if outcome.routing is not None:
            totals.expert_cycles += outcome.routing.cycles
            totals.expert_bytes += outcome.routing.expert_bytes
            totals.round_trips += len(outcome.routing.tokens)
            self.state.choices += outcome.routing.tokens
            self.state.fetched += outcome.routing.fetches
        checked = self.state.checked
        checked.bytes_checked += outcome.bytes_checked
        checked.mismatches += outcome.mismatches
        checked.divergences += outcome.divergences
        self.state.cpu_seconds += outcome.cpu_seconds
        at = f"token {self.state.read + 1}: "
        if outcome.mismatches and not self.first_mismatch:
            self.first_mismatch = at + outcome.first_mismatch
        if outcome.divergences and not self.first_divergence:
            self.first_divergence = at + outcome.first_divergence


def generate(
    generation: Generation,
    on_progress: OnProgress = lambda what: None,
    on_begin: Callable[[str, int], None] = lambda text, tokens: None,
    on_token: Callable[[str], None] = lambda text: None,
) -> LanguageResults:
    """Generates. `on_begin` is told the text that is there, and how many of its tokens are new, `on_token` what each
    further token adds. After each step the checkpoint is written; an interrupted generation goes on with the next step,
    to the same tokens.

    Raises LanguageError, TextStateError, DoesNotFit, OSError before anything runs; ChipFault, and what the device
    raises.
    """
    started = datetime.now(UTC)
    generation.check()
    model, setting = generation.model, generation.setting()
    there = generation.keep.exists() and not generation.fresh
    state = load(generation.keep, model, setting) if there else first_state(model, generation.prompt)
    numbers = integers(model, generation.weight_bits)
    kind = None if generation.device is None else find_device(generation.device)
    end = generation.end
    with contextlib.ExitStack() as stack:
        generator = _Generator(numbers, state, generation, None, on_progress)
        if not generator.ended:
            for count in sorted({*generation.news, 1, 1 + generation.speculate}, reverse=True):
                step = generator.step(
                    count
                )  # whatever does not fit is said before anything runs, the largest step first
                if kind is not None:
                    step.check_records()
            if kind is not None:
                device = stack.enter_context(on_device(kind.open(generation.chip, False, on_progress)))
                generator.execute = device.execute
        there = len(state.tokens[:end])
        text = model.text(state.tokens[:there]).rstrip(_PART)
        on_begin(text, max(0, there - generation.read))
        while not generator.ended and not state.checked.mismatches:
            tokens = generator.advance()
            save(state, generation.keep, setting)
            for _ in tokens:
                there += 1
                before, text = text, _grown(text, model.text(state.tokens[:there]))
                on_token(text[len(before) :])
    on_progress("the float model, and the perplexity of both")
    return _results(generator, started, environment(kind.tools() if kind else {}))


def _grown(before: str, now: str) -> str:
    """A text after one more token: as before while that has not told a whole character."""
    return now if now.startswith(before) and not now.endswith(_PART) else before


def _results(generator: _Generator, started: datetime, versions: dict[str, str]) -> LanguageResults:
    generation, state, model = generator.generation, generator.state, generator.generation.model
    prompt, end = generation.read, generation.end
    tokens = state.tokens[:end]
    rows = reference.scores(model, np.array(tokens[:-1] if len(tokens) > prompt else tokens, np.int64))
    agreed = [int(row.argmax()) == token for row, token in zip(rows[prompt - 1 :], tokens[prompt:], strict=False)]
    run = generation.device is not None
    perplexity = _perplexity(generator.numbers)
    return LanguageResults(
        started=started,
        environment=versions,
        code=code(),
        model=model.name,
        weights=model.weights,
        chip=generation.chip.name,
        chip_digest=generation.chip.digest,
        scheduler=generation.scheduler,
        simulator=generation.device or "",
        chunk=generation.chunk,
        speculate=generation.speculate,
        weight_bits=generation.weight_bits,
        **asdict(state.guesses),
        context=model.context,
        cache=_NO_DEVICE if not run else STAYS if generation.device in SIMULATORS else RESTORED,
        cache_bytes=sum(array.shape[0] for array in state.caches.values()) * model.context,
        complete=generator.ended,
        ended=model.ended(tokens[prompt:]),
        prompt=generation.prompt,
        text=_behind(model, tokens, prompt),
        float_text=_float_text(generation),
        agreement=sum(agreed) / len(agreed) if agreed else None,
        perplexity=perplexity[0],
        float_perplexity=perplexity[1],
        prefill=_figures(state.prefill, run),
        decode=_figures(state.decode, run),
        experts=_experts(generator),
        first_mismatch=generator.first_mismatch,
        first_divergence=generator.first_divergence,
        cpu_seconds=state.cpu_seconds,
        clock_mhz=generation.chip.clock_mhz,
        checkpoint=generation.keep.as_posix(),
        **asdict(state.checked),
    )


def _figures(totals: PhaseTotals, run: bool) -> PhaseFigures:
    return PhaseFigures(
        steps=totals.steps,
        tokens=totals.tokens,
        rtl_cycles=totals.rtl_cycles if run else None,
        model_cycles=totals.model_cycles,
        dram_bytes=totals.dram_bytes,
        least_cycles=totals.least_cycles,
        host_bytes=totals.host_bytes if run else None,
        microjoules=totals.picojoules / 1e6,
        expert_cycles=totals.expert_cycles,
        expert_bytes=totals.expert_bytes,
        round_trips=totals.round_trips,
    )


def _experts(generator: _Generator) -> ExpertFigures | None:
    """What experts did; None of a model without."""
    model, state, chip = generator.numbers.model, generator.state, generator.generation.chip
    if not model.mixtures:
        return None
    return ExpertFigures(
        layers=model.mixtures,
        top=model.top,
        choices=tuple(map(tuple, state.choices.tolist())),
        fetched=tuple(map(tuple, state.fetched.tolist())),
        weight_bytes=sum(model.experts(layer) * expert_bytes(model, layer, chip) for layer in model.mixtures),
        round_trip_cycles=least_wait(chip),
    )


def _float_text(generation: Generation) -> str:
    """What the float model says behind the prompt."""
    tokens = generation.model.tokens(generation.prompt).tolist()
    for _ in range(generation.tokens):
        if generation.model.ended(tokens[generation.read :]):
            break
        tokens.append(int(reference.scores(generation.model, np.array(tokens))[-1].argmax()))
    return _behind(generation.model, tokens, generation.read)


def _behind(model: LanguageModel, tokens: list[int], prompt: int) -> str:
    """What tokens say behind the first `prompt` of them."""
    return model.text(tokens)[len(model.text(tokens[:prompt])) :]


def _perplexity(numbers: Integers) -> tuple[float, float]:
    """Per token of the text that was held out: of the integers and of the float model."""
    model = numbers.model
    size = model.context - 1
    held = model.tokens(model.held_out)
    score = _scorer(numbers, size)
    losses, count = np.zeros(2), 0
    for first in range(0, len(held) - 1, size):
        window: NDArray[np.int64] = held[first : first + size]
        full = np.concatenate([window, np.zeros(size - len(window), np.int64)])  # what follows counts for nothing
        scores = score(full) * np.float32(numbers.steps["scores"])
        losses += reference.loss(scores[: len(window)], window), reference.loss(reference.scores(model, window), window)
        count += len(window) - 1
    integer, real = (math.exp(each / max(1, count)) for each in losses)
    return integer, real


def _scorer(numbers: Integers, size: int) -> Callable[[NDArray[np.int64]], NDArray[np.int8]]:
    """Scores, int8 [size, V], of a text of so many tokens from its beginning on, as ONNX Runtime computes them."""
    model = numbers.model
    if model.mixtures:
        walk, golden, empty = Walk.of(numbers), Golden(numbers), first_state(model, "").caches
        return lambda tokens: walk.step([(tokens, empty)], golden, every=True).scores[0]
    graph = step_graph(numbers, size)
    past = {cache.past: np.zeros(graph.value(cache.past).shape, np.int8) for cache in graph.caches}
    fixed = attended(model.context, model.heads, size, size, numbers.slopes) | past
    return lambda tokens: golden_values(graph, numbers.entered(tokens, 0) | fixed)["scores"][0, :, 0].T
