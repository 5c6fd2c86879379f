"""Texts served: a token scheduler decides after each step what the next one reads, on the RTL or in the timeline
model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshloom.hw.spec.config import ChipConfig
from meshloom.sched.schedulers.tokens.drive import Reads, ServedText, TokenDrive, TokenStep
from meshloom.sched.schedulers.tokens.metrics import measure
from meshloom.sched.schedulers.tokens.registry import token_scheduler
from meshloom.sched.workload.language.integers import WEIGHT_BITS, Integers, integers
from meshloom.sched.workload.language.model import LanguageModel
from meshloom.sched.workload.language.pretrained import load
from meshloom.sched.workload.texts import TextScenario

from ...build.builder import SIMULATORS
from ...devices.interface import Job, Run
from ...devices.registry import find as find_device
from ...results.tokens import ExpertStepRow, TextRow, TokenFigures, TokenRun, TokenStepRow
from ..language.fitting import check_weights
from ..language.host import least_wait
from ..language.shared import SharedDram
from ..training.machine import on_device
from .expert_batch import ExpertBatch, ExpertBatches
from .kept import KeptSteps, Texts
from .step import BatchOutcome, BatchStep, Caches, ExpertCost, check_seats, no_caches, seat_words

OnProgress = Callable[[str], None]
#: How steps are scheduled: no other scheduler knows what stays in DRAM.
STEPS = "loop_order:effort=quick"


@dataclass
class Steps:
    """The steps of a model on a chip, each made when it is needed first, and what they take. `seats`: texts whose
    caches are in DRAM at a time, at most."""

    model: LanguageModel
    chip: ChipConfig
    on_progress: OnProgress
    seats: int
    weight_bits: int = WEIGHT_BITS[-1]
    numbers: Integers = field(init=False)
    _steps: dict[tuple[int, ...], BatchStep | ExpertBatch] = field(
        default_factory=dict[tuple[int, ...], "BatchStep | ExpertBatch"]
    )
    _experts: ExpertBatches | None = None
    _shared: SharedDram = field(init=False)
    _cycles: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = field(
        default_factory=dict[tuple[tuple[int, ...], tuple[int, ...]], int]
    )

    def __post_init__(self) -> None:
        self.numbers = integers(self.model, self.weight_bits)
        self._shared = SharedDram(self.chip, self.seats * seat_words(self.model, self.chip))

    def of(self, news: tuple[int, ...]) -> BatchStep | ExpertBatch:
        """The step of so many new tokens of each text. Raises what scheduling raises."""
        if news not in self._steps:
            texts = " + ".join(str(count) for count in news)

            def progress(what: str) -> None:
                self.on_progress(f"step of {texts} tokens: {what}")

            if self.model.mixtures:
                self._experts = self._experts or ExpertBatches(self.numbers, self.chip, STEPS, progress, self.seats)
                self._steps[news] = self._experts.of(news)
            else:
                self._steps[news] = BatchStep(self.numbers, news, self.chip, STEPS, progress, self._shared)
        return self._steps[news]

    @property
    def places(self) -> str:
        """What decides where weights lie: the step that was made first, and the caches before them."""
        return f"{next(iter(self._steps))} behind {self.seats}"

    def predicted(self, news: tuple[int, ...]) -> int:
        """Cycles with caches at the beginning of their regions."""
        return self.of(news).predicted

    def cycles(self, step: BatchStep, totals: tuple[int, ...]) -> int:
        """Cycles in the timeline model, after which the caches hold so many tokens."""
        if (step.news, totals) not in self._cycles:
            self._cycles[step.news, totals] = step.model_cycles(totals)
        return self._cycles[step.news, totals]


@dataclass
class _StepCost:
    """What a step took: cycles on the device, if there is one, and in the model; those of the host between its
    programs."""

    rtl_cycles: int | None
    model_cycles: int
    dram_bytes: int
    experts: ExpertCost | None = None
    host_cycles: int = 0
    host_bytes: int | None = None


@dataclass
class _Executor:
    """Runs steps. Without `execute` in the timeline model: then no token is computed, since times do not depend on
    them, but of models with experts. `prompts`: tokens of each text; `wait`: cycles of the host between two programs;
    `kept`: steps that an interrupted run has done."""

    steps: Steps
    prompts: Sequence[NDArray[np.int64]]
    execute: Callable[[Job], Run] | None
    wait: int
    kept: KeptSteps | None = None
    costs: list[_StepCost] = field(default_factory=list[_StepCost])
    written: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    bytes_checked: int = 0
    mismatches: int = 0
    first_mismatch: str = ""
    divergences: int = 0
    first_divergence: str = ""
    cpu_seconds: float = 0.0
    before: object = None  #: `dram` of the step that ran last on the device
    _length: dict[int, int] = field(default_factory=dict[int, int])
    _caches: dict[int, Caches] = field(default_factory=dict[int, Caches])

    def predicted(self, news: tuple[int, ...]) -> int:
        """See `TokenExecutor`."""
        return self.steps.predicted(news)

    def run(self, news: tuple[int, ...], reads: Sequence[Reads]) -> int:
        """See `TokenExecutor`. Raises ChipFault, and what the device raises."""
        step = self.steps.of(news)
        if self.execute is None and isinstance(step, BatchStep):
            totals = tuple(self._length.get(read.text, 0) + read.count for read in reads)
            cost = _StepCost(None, self.steps.cycles(step, totals), step.dram_bytes)
        else:
            cost = self._computed(step, reads)
        for read in reads:
            self._length[read.text] = self._length.get(read.text, 0) + read.count
        self.costs.append(cost)
        return (cost.model_cycles if cost.rtl_cycles is None else cost.rtl_cycles) + cost.host_cycles

    def release(self, text: int) -> None:
        """See `TokenExecutor`."""
        self._caches.pop(text, None)

    def _computed(self, step: BatchStep | ExpertBatch, reads: Sequence[Reads]) -> _StepCost:
        pairs = [(self._tokens(read), self._caches.get(read.text, no_caches(self.steps.model))) for read in reads]
        outcome = self._outcome(step, pairs)
        for read, (_, caches), new, scores in zip(reads, pairs, outcome.new, outcome.scores, strict=True):
            self._caches[read.text] = {
                name: np.concatenate([array, new[name]], axis=1) for name, array in caches.items()
            }
            if self._length.get(read.text, 0) + read.count >= len(self.prompts[read.text]):
                self.written.setdefault(read.text, []).append(int(scores.argmax()))
        self._add(outcome.bytes_checked, outcome.mismatches, outcome.divergences, outcome.cpu_seconds)
        at = f"step {len(self.costs) + 1}: "
        if outcome.mismatches and not self.first_mismatch:
            self.first_mismatch = at + outcome.first_mismatch
        if outcome.divergences and not self.first_divergence:
            self.first_divergence = at + outcome.first_divergence
        run = self.execute is not None
        host = outcome.experts.round_trips * self.wait if outcome.experts else 0
        return _StepCost(
            outcome.rtl_cycles if run else None, outcome.model_cycles, outcome.dram_bytes, outcome.experts, host,
            outcome.host_bytes if run else None,
        )  # fmt: skip

    def _outcome(self, step: BatchStep | ExpertBatch, texts: Texts) -> BatchOutcome:
        """What an interrupted run has kept of a step, or else what it leaves now."""
        if self.kept is None:
            return self._run(step, texts)
        name = self.kept.name(step.news, texts)
        outcome = self.kept.get(name)
        if outcome is None:
            outcome = self._run(step, texts)
            self.kept.put(name, outcome)
        return outcome

    def _run(self, step: BatchStep | ExpertBatch, texts: Texts) -> BatchOutcome:
        """Runs a step behind those that have run."""
        before, self.before = self.before, step.dram
        if isinstance(step, ExpertBatch):
            return step.run(texts, self.execute, before)
        assert self.execute is not None  # without a device no token of it is computed
        return step.run(texts, self.execute, before)

    def _tokens(self, read: Reads) -> NDArray[np.int64]:
        """The tokens of a text that a step reads."""
        if read.decodes:
            return np.array(self.written[read.text][-1:], np.int64)
        first = self._length.get(read.text, 0)
        return self.prompts[read.text][first : first + read.count]

    def _add(self, bytes_checked: int, mismatches: int, divergences: int, cpu_seconds: float) -> None:
        self.bytes_checked += bytes_checked
        self.mismatches += mismatches
        self.divergences += divergences
        self.cpu_seconds += cpu_seconds


@dataclass
class _Rehearsal:
    """Makes the steps that a run needs and runs none of them: each takes the cycles that are predicted for it."""

    steps: Steps

    def predicted(self, news: tuple[int, ...]) -> int:
        """See `TokenExecutor`."""
        return self.steps.predicted(news)

    def run(self, news: tuple[int, ...], reads: Sequence[Reads]) -> int:
        """See `TokenExecutor`. Raises LanguageError for a step whose records the DRAM has no room for."""
        self.steps.of(news).dram.check_records()
        return self.steps.predicted(news)

    def release(self, text: int) -> None:
        """See `TokenExecutor`: nothing of it is kept."""


def serve(
    scenarios: Sequence[TextScenario],
    chip: ChipConfig,
    schedulers: Sequence[str],
    *,
    device: str | None = "verilator",
    decision_cycles: int = 0,
    weight_bits: int = WEIGHT_BITS[-1],
    on_progress: OnProgress = lambda what: None,
) -> tuple[TokenRun, ...]:
    """Serves each scenario by each of the schedulers. `device`: None for the timeline model alone; `decision_cycles`:
    what a decision takes, besides `least_wait`; `weight_bits`: of the models' weights.

    Raises ScenarioError, LanguageError, SchedulerError, ServingError, and what scheduling raises; ChipFault, and what
    the device raises. An interrupt says how far it has come.
    """
    fits = partial(check_weights, chip=chip, weight_bits=weight_bits)
    models = {scenario.source: load(*scenario.source, fits) for scenario in scenarios}
    scenarios = [scenario.read_by(models[scenario.source]) for scenario in scenarios]
    for scenario in scenarios:  # whatever cannot be is said before anything is made
        scenario.check(models[scenario.source])
        check_seats(models[scenario.source], chip, scenario.seats)
    for name in schedulers:
        token_scheduler(name)
    steps = {
        source: Steps(
            model, chip, on_progress, max(each.seats for each in scenarios if each.source == source), weight_bits
        )
        for source, model in models.items()
    }
    for scenario in scenarios:  # first: the others read weights where it has them
        steps[scenario.source].of((scenario.chunk,))
    wait = decision_cycles + least_wait(chip)
    if device is not None:
        for scenario in scenarios:
            for name in schedulers:  # whatever does not fit is said before a simulator is built
                _rehearse(scenario, steps[scenario.source], name, wait)
    with contextlib.ExitStack() as stack:
        execute = None
        kept: dict[tuple[str, Path | None, int], KeptSteps] = {}
        if device is not None:
            kind = find_device(device)
            execute = stack.enter_context(on_device(kind.open(chip, False, on_progress))).execute
            if device in SIMULATORS:  # what a board does now it need not do the next time
                kept = {
                    source: KeptSteps(each.numbers, chip, kind.tools(), places=each.places)
                    for source, each in steps.items()
                }
        runs = tuple(
            _Serving(
                scenario, steps[scenario.source], name, execute, device or "", wait, kept.get(scenario.source)
            ).served()
            for scenario in scenarios
            for name in schedulers
        )
        for each in kept.values():
            each.forget()
        return runs


def _rehearse(scenario: TextScenario, steps: Steps, scheduler: str, wait: int) -> None:
    """Makes all steps that a scenario needs. Raises LanguageError, SchedulerError, ServingError, and what scheduling
    raises."""
    TokenDrive(_Rehearsal(steps), token_scheduler(scheduler), scenario.seats, scenario.chunk, wait).run(
        scenario.requests
    )


@dataclass
class _Serving:
    """A scenario that is being served by one scheduler."""

    scenario: TextScenario
    steps: Steps
    scheduler: str
    execute: Callable[[Job], Run] | None
    device: str
    wait: int
    kept: KeptSteps | None = None

    def served(self) -> TokenRun:
        """Serves it."""
        scenario, model = self.scenario, self.steps.model
        executor = _Executor(self.steps, _prompts(scenario, model), self.execute, self.wait, self.kept)
        before = self.kept.number if self.kept else 0
        drive = TokenDrive(
            executor, token_scheduler(self.scheduler), scenario.seats, scenario.chunk, self.wait,
            lambda step: self.steps.on_progress(
                f"{scenario.name} by {self.scheduler}: step {len(drive.steps)}, cycle {step.end:,}"
            ),
        )  # fmt: skip
        try:
            texts = drive.run(scenario.requests)
        except KeyboardInterrupt:
            some, then = ("these steps, ", " to go on") if self.kept else ("", ": texts begin anew")
            raise KeyboardInterrupt(
                f"while {scenario.name} was served by {self.scheduler}, after {len(drive.steps)} steps; kept: {some}"
                f"the simulator, and how layers are scheduled. Run it again{then}"
            ) from None
        return self._results(executor, drive.steps, texts, self.kept.number - before if self.kept else 0)

    def _results(
        self, executor: _Executor, steps: Sequence[TokenStep], texts: Sequence[ServedText], kept: int
    ) -> TokenRun:
        scenario, chip, model = self.scenario, self.steps.chip, self.steps.model
        metrics = measure(texts, steps)
        figures = asdict(metrics) | {"texts": len(texts)}
        rows = (
            _text_row(number, text, model.text(executor.written.get(number, []))) for number, text in enumerate(texts)
        )
        return TokenRun(
            scenario=scenario.name,
            model=model.name,
            chip=chip.name,
            chip_digest=chip.digest,
            clock_mhz=chip.clock_mhz,
            scheduler=self.scheduler,
            steps_scheduler=STEPS,
            simulator=self.device,
            weight_bits=self.steps.weight_bits,
            seats=scenario.seats,
            chunk=scenario.chunk,
            context=model.context,
            wait=self.wait,
            figures=TokenFigures.model_validate(figures),
            texts=tuple(rows),
            steps=tuple(_step_row(*pair) for pair in zip(steps, executor.costs, strict=True)),
            bytes_checked=executor.bytes_checked,
            mismatches=executor.mismatches,
            first_mismatch=executor.first_mismatch,
            divergences=executor.divergences,
            first_divergence=executor.first_divergence,
            cpu_seconds=executor.cpu_seconds,
            kept_steps=kept,
        )


def _prompts(scenario: TextScenario, model: LanguageModel) -> list[NDArray[np.int64]]:
    """The tokens of all prompts. Where a length alone is asked for, they are of the text that the model was not trained
    with, from another place on for each text."""
    held = model.tokens(model.held_out)
    prompts: list[NDArray[np.int64]] = []
    for number, request in enumerate(scenario.requests):
        length = request.prompt
        own = np.resize(np.roll(held, -number * length), length)
        prompts.append(model.tokens(request.text) if request.text else own)
    return prompts


def _text_row(number: int, text: ServedText, written: str) -> TextRow:
    request, limits = text.request, text.request.limits
    return TextRow(
        number=number,
        arrival=request.arrival,
        prompt=request.prompt,
        output=request.output,
        ttft=text.ttft,
        tpot=text.tpot,
        end=text.tokens[-1],
        ttft_limit=limits.ttft,
        tpot_limit=limits.tpot,
        met=None if limits.ttft is None and limits.tpot is None else text.met,
        text=written,
    )


def _step_row(step: TokenStep, cost: _StepCost) -> TokenStepRow:
    return TokenStepRow(
        seen=step.seen,
        start=step.start,
        end=step.end,
        chunk=step.batch.chunk,
        chunk_tokens=sum(read.count for read in step.reads if not read.decodes),
        decodes=step.batch.decodes,
        texts=step.texts,
        rtl_cycles=cost.rtl_cycles,
        model_cycles=cost.model_cycles,
        dram_bytes=cost.dram_bytes,
        host_bytes=cost.host_bytes,
        experts=_expert_row(cost),
        reason=step.batch.reason,
    )


def _expert_row(cost: _StepCost) -> ExpertStepRow | None:
    if cost.experts is None:
        return None
    each = cost.experts
    return ExpertStepRow(
        fetched=each.fetched, expert_bytes=each.bytes, expert_cycles=each.cycles, round_trips=each.round_trips,
        host_cycles=cost.host_cycles,
    )  # fmt: skip
